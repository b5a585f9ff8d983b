"""What a user can send."""

from __future__ import annotations

from .._values import changed
from ..errors import InvalidMessageError
from ..types import Content, Part

__all__ = ["user_content"]


def user_content(message: object, *, may_answer: bool, name: str = "new_message") -> Content:
    """
    Return a new message as what is stored of it; *name* is what errors call it.

    Raises:
        InvalidMessageError: It is neither a text nor a Content, is empty, has calls, or responses but *may_answer*.
    """
    if isinstance(message, str):
        message = Content(role="user", parts=[Part(text=message)] if message.strip() else [])
    if message is None or (isinstance(message, Content) and not message.parts):
        msg = f"expected a {name} with something in it, found an empty one; pass a text or a Content with parts"
        raise InvalidMessageError(msg)
    if not isinstance(message, Content):
        msg = f"expected {name} to be a string or a Content, found {type(message).__name__}"
        raise InvalidMessageError(msg)
    calls, responses = message.calls_and_responses
    if calls:
        msg = "expected a user's message without function calls; calls are made by models"
        raise InvalidMessageError(msg)
    if responses and not may_answer:
        msg = "expected a message without function responses; answer with run_async(new_message=pending.reply(...))"
        raise InvalidMessageError(msg)
    return message if message.role == "user" else changed(message, role="user")
