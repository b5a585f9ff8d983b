"""
What must not be said: the secrets that a run was given, taken out of its events and of the results of its tools.

A run that was given none pays nothing for it; one that was, a look at each event that it says. This is the last line of
defence: it does not find what was encoded in between, nor what is in the exceptions that reach hooks and callers.
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

    def _out_of_text(self, value: str) -> str:
        for text in self._texts:
            value = value.replace(text, HIDDEN)
        return value
