"""What there is of an answer of a form while it streams: `Event.partial_output`, for agents that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._json import JSON
from .._values import changed
from ..events import Event
from ..flows._output import RESULT
from ..flows._partial_json import PartialValue
from ..flows._partial_shapes import shape_of, wrapped_shape
from ..runtime import InvocationContext
from ..types import Content, FunctionCall
from ._base import SET_MODEL_RESPONSE

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = ["PartialOutput"]


class PartialOutput:
    """
    The value of one answer of an agent, as far as its fragments have come.

    A model gives it as text, or as the arguments of `set_model_response`: then a fragment has a call of it whose
    `args_text` is the next piece of their JSON text. Nobody is shown these calls, as they are half.
    """

    def __init__(self, agent: LlmAgent, ctx: InvocationContext) -> None:
        assert agent._output is not None
        self._is_wrapped = agent._output.is_wrapped
        shapes = ctx._invocation.memo.setdefault("shapes of partial outputs", {})
        if agent.name not in shapes:
            shape = shape_of(agent.output_schema)
            shapes[agent.name] = shape, wrapped_shape(shape) if self._is_wrapped else shape
        of_text, self._of_call = shapes[agent.name]
        self._text = PartialValue(of_text)
        self._call: PartialValue | None = None

    def with_value(self, event: Event) -> Event:
        """Take the next fragment; return it with the value so far, without half calls."""
        content, calls = event.content, 0
        for part in content.parts if content is not None else ():
            if part.text is not None:
                if not part.thought:
                    self._text.feed(part.text)
            elif part.function_call is not None:
                calls += 1
                self._take_call(part.function_call)
        if not calls:
            return changed(event, partial_output=self._value())
        assert content is not None
        left = [part for part in content.parts if part.function_call is None]
        content = Content(role="model", parts=left) if left else None
        return changed(event, content=content, partial_output=self._value())

    def _take_call(self, call: FunctionCall) -> None:
        if call.name == SET_MODEL_RESPONSE:
            self._call = self._call or PartialValue(self._of_call)
            self._call.feed(call.args_text or "")

    def _value(self) -> JSON:
        if self._call is None:
            return self._text.value
        value = self._call.value
        return value if not self._is_wrapped or value is None else value.get(RESULT)
