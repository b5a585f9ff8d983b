"""
What must not be said: the secrets that a run was given, taken out of its events and of the results of its tools.

A run that was given none pays nothing for it; one that was, a look at each event that it says. This is the last line of
defence: it does not find what was encoded in between, nor what the variables of somebody's frames hold, nor what was
written to the state and no event has carried yet.
"""

from __future__ import annotations

from typing import Any

from .._codec import event_from_json, event_to_dict, event_to_json
from .._json import dumps
from ..credentials import AuthCredential
from ..events import Event

__all__ = ["HIDDEN", "SECRET_CHARS_MIN", "Secrets"]

HIDDEN = "[secret]"
"""What stands in the place of a secret."""

# Shorter ones are parts of ordinary words and numbers; what is worth keeping secret is longer.
SECRET_CHARS_MIN = 8

# These are no secrets, and are said for good reasons.
_TOLD = ("username", "client_id")

# Where an OSError keeps what it says, beside its arguments.
_OF_OS_ERRORS = ("strerror", "filename", "filename2")


class Secrets:
    """The secrets that a run was given. They are in no text made of this."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: tuple[str, ...] = ()  # the longest first, as one may be a part of another

    def know(self, credential: AuthCredential) -> None:
        """From here on, what *credential* holds is taken out."""
        for name in credential.names:
            text = credential.reveal(name)
            if name not in _TOLD and len(text) >= SECRET_CHARS_MIN and text not in self._texts:
                self._texts = tuple(sorted((*self._texts, text), key=len, reverse=True))

    def out_of_event(self, event: Event) -> Event:
        """Return *event* without them: the same object, if it has none."""
        if not self._texts:
            return event
        line = event_to_json(event)
        if not any(dumps(text)[1:-1] in line for text in self._texts):
            return event
        return event_from_json(dumps(self.out_of(event_to_dict(event))))

    def out_of(self, value: Any) -> Any:
        """Return a JSON value without them."""
        if not self._texts:
            return value
        if isinstance(value, str):
            return self._out_of_text(value)
        if isinstance(value, dict):
            return {self.out_of(key): self.out_of(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.out_of(item) for item in value]
        return value

    def out_of_error(self, error: BaseException) -> None:
        """Take them out of what *error* says, and all that it came from: what it holds in texts, and its notes."""
        found, seen = [error] if self._texts else [], set[int]()
        while found:
            one = found.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one, BaseExceptionGroup):
                found += one.exceptions
            else:
                self._out_of_attributes(one)
            found += [other for other in (one.__cause__, one.__context__) if other is not None]

    def _out_of_attributes(self, error: BaseException) -> None:
        if any(isinstance(arg, str) and self._out_of_text(arg) != arg for arg in error.args):
            error.args = tuple(self._out_of_text(arg) if isinstance(arg, str) else arg for arg in error.args)
        for name in (*_OF_OS_ERRORS, *vars(error)):
            value = getattr(error, name, None)
            cleaned = self.out_of(value) if isinstance(value, (str, list, tuple, dict)) else value
            if cleaned != value:
                setattr(error, name, cleaned)

    def _out_of_text(self, value: str) -> str:
        for text in self._texts:
            value = value.replace(text, HIDDEN)
        return value
