"""What a run does about secrets as long as it was given none: nothing. `credentials._secrets` has what it does then."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ..events import Event

__all__ = ["NO_SECRETS", "OF_RUN", "NoSecrets"]


class NoSecrets:
    """The methods are those of `Secrets`."""

    __slots__ = ()

    are_known = False
    """Whether there are any."""
    hide: Callable[[str], str] | None = None
    """What takes them out of a text; None if there are none."""

    def out_of_text(self, value: str) -> str:
        """Return the text without them."""
        return value

    def out_of_event(self, event: Event) -> Event:
        """Return the event without them."""
        return event

    def out_of(self, value: Any) -> Any:
        """Return a value without them."""
        return value

    def check_name(self, name: object, what: str) -> None:
        """Raise if one is in a new name."""

    def check_value(self, value: Any, what: str) -> None:
        """Raise if one is in what is about to be stored."""

    def check_keys(self, value: Any, what: str) -> None:
        """Raise if one is a key somewhere in *value*."""

    def check_write(self, key: object, value: Any) -> None:
        """Raise if one is in a write to the state."""

    def check_event(self, event: Event, *own_names: str | None) -> None:
        """Raise if *event* brings a name with one in it."""

    def out_of_error(self, error: BaseException) -> None:
        """Take them out of what an exception says."""

    def text_of(self, error: BaseException) -> str:
        """Return what *error* says, without them; empty if it cannot say anything."""
        try:
            return str(error)
        except Exception:  # its own: whatever it raises, it says nothing
            return ""

    def shown(self, error: BaseException) -> BaseException:
        """Return what may be shown of *error*, with its traceback, in its place."""
        return error


NO_SECRETS = NoSecrets()

OF_RUN: ContextVar[NoSecrets] = ContextVar("minirun secrets", default=NO_SECRETS)
"""While a model is asked: the secrets of the run that asks, for models that write requests down."""
