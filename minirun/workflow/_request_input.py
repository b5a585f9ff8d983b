"""A question as a value, which a node yields or returns; `await ctx.request_input(...)` asks without one."""

from __future__ import annotations

from typing import Any

import attrs

from .._json import JSON, check_id, check_text, freeze, shown
from .._record import Record
from ..errors import InvalidValueError

__all__ = ["RequestInput"]


def _checked_id(value: object) -> str | None:
    return None if value is None else check_id("RequestInput.interrupt_id", value)


def _checked_message(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidValueError("RequestInput.message", f"expected a string or None, found {shown(value)}")
    return check_text(str.__str__(value), "RequestInput.message")


def _checked_payload(value: object) -> JSON:
    return freeze(value, "RequestInput.payload")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RequestInput(Record):
    """
    A question that a node asks of somebody outside. The invocation pauses until it is answered.

    Raises:
        InvalidValueError: `interrupt_id` is no id, `message` no text, or `payload` no JSON.
    """

    interrupt_id: str | None = attrs.field(default=None, converter=_checked_id)
    """What programs that show the question know it by: it stands in the arguments of its call. None: nothing."""

    message: str | None = attrs.field(default=None, converter=_checked_message)
    """What the person is told that answers."""

    payload: JSON = attrs.field(default=None, converter=_checked_payload)
    """What a program that shows the question may need; frozen JSON."""

    response_schema: Any = None
    """What the answer has to be: a type or a JSON schema, as `LlmAgent.output_schema`; None for anything."""
