"""`Event.partial_output`: the structured output of an agent while its response streams."""

from __future__ import annotations

from collections.abc import Mapping

from .._json import JSON
from .._values import changed
from ..events import Event
from ..flows._output import RESULT, OutputSchema
from ..flows._partial_json import PartialValue
from ..types import Content
from ._base import SET_MODEL_RESPONSE

__all__ = ["PartialOutput"]


class PartialOutput:
    """
    The value of one response, as far as its pieces have arrived.

    A model sends it as text, or as the arguments of `set_model_response`: then a piece has a call of it whose
    `args_text` is the next piece of their JSON text. These calls are incomplete and are taken out of the event.
    """

    def __init__(self, output: OutputSchema) -> None:
        self._is_wrapped = output.is_wrapped
        self._text = PartialValue()
        self._call = PartialValue()
        self._value: JSON = None

    def with_value(self, event: Event) -> Event:
        """Take the next partial event; return it with the value so far, without incomplete calls."""
        content = event.content
        if content is None:
            return changed(event, partial_output=self._value)
        for part in content.parts:
            if part.text and not part.thought and (value := self._text.feed(part.text)) is not None:
                self._value = value
        for call in content.calls:
            if call.name == SET_MODEL_RESPONSE:
                value = self._call.feed(call.args_text or "")
                self._value = value.get(RESULT) if self._is_wrapped and isinstance(value, Mapping) else value
        if content.calls:
            left = [part for part in content.parts if part.function_call is None]
            content = Content(role="model", parts=left) if left else None
        return changed(event, content=content, partial_output=self._value)
