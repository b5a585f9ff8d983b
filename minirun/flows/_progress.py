"""What is told of something that goes on: a message, and how far it is."""

from __future__ import annotations

from .._json import brief
from ..errors import InvalidValueError
from ..events import Event

__all__ = ["progress_event"]


def progress_event(message: str, fraction: float | None, call_id: str | None) -> Event:
    """
    Return the partial event that tells of the progress of a call, or of an agent.

    Raises:
        InvalidValueError: *message* is no text, or *fraction* no number from 0 to 1.
    """
    if not isinstance(message, str):
        raise InvalidValueError("message", f"expected a text, found {brief(message)}")
    is_number = isinstance(fraction, (int, float)) and not isinstance(fraction, bool)
    if fraction is not None and not (is_number and 0 <= fraction <= 1):
        raise InvalidValueError("fraction", f"expected a number from 0 to 1, found {brief(fraction)}")
    told = {"message": message, "fraction": fraction, "function_call_id": call_id}
    progress = {name: value for name, value in told.items() if value is not None}
    return Event(partial=True, custom_metadata={"progress": progress})
