"""The tool by which a model gives an answer of a form, where it cannot be told the form otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .._json import freeze
from ..errors import ArgumentError
from ..events import Event
from ..flows._prompts import Prompts
from ..runtime import ToolContext
from ..tools import BaseTool
from ..types import FunctionDeclaration

if TYPE_CHECKING:
    from ..flows._output import OutputSchema

__all__ = ["Answer", "AnswerTool", "accepted_answer", "refused_answers"]

NAME = "set_model_response"


class Answer(NamedTuple):
    """A final answer: its value, and the same as JSON text."""

    value: Any
    text: str


class AnswerTool(BaseTool):
    """`set_model_response`: its arguments are the answer. The response to a call of it has the checked value."""

    def __init__(self, output: OutputSchema, prompts: Prompts) -> None:
        super().__init__(name=NAME, description=prompts.output_tool_description, on_interrupted="rerun")
        self._output = output
        self._checked: list[Any] = []

    @property
    def declaration(self) -> FunctionDeclaration:
        """The form of the answer as that of a call."""
        parameters = freeze(dict(self._output.tool_parameters), NAME)
        return FunctionDeclaration(name=self.name, description=self.description, parameters=parameters)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Check the answer; what is wrong with it becomes an error response, and the model tries again."""
        outcome = self._output.parse_args(args)
        if outcome.problems:
            raise ArgumentError("\n".join(outcome.problems))
        self._checked.append(outcome.value)
        return {"result": outcome.value}

    def answer(self, response: Mapping[str, Any]) -> Answer | None:
        """The answer that a response to a call holds; None if it holds none, or a wrong one that a hook has given."""
        if list(response) != ["result"]:
            return None
        value, text = response["result"], self._output.dump(response["result"])
        if value not in self._checked:
            outcome = self._output.parse_text(text)
            if outcome.problems:
                return None
            value = outcome.value
        return Answer(value, self._output.dump(value))

    def _is_last_word(self, response: Mapping[str, Any]) -> bool:
        return self.answer(response) is not None


def accepted_answer(event: Event, tool: AnswerTool) -> Answer | None:
    """The answer among the responses of *event*: the last one in call order that fits, or None."""
    answers = [tool.answer(response) for response in _responses(event)]
    return next((answer for answer in reversed(answers) if answer is not None), None)


def refused_answers(event: Event, tool: AnswerTool) -> int:
    """1 if there are answers among the responses of *event*, and none that fits; else 0."""
    return int(bool(_responses(event)) and accepted_answer(event, tool) is None)


def _responses(event: Event) -> list[Mapping[str, Any]]:
    return [item.response for item in event.get_function_responses() if item.name == NAME]


def answer_tool(output: OutputSchema, prompts: Prompts, tools: Mapping[str, BaseTool] | None) -> AnswerTool:
    """The tool by which the model has answered, among those of the last request; a new one if that is long ago."""
    found = None if tools is None else tools.get(NAME)
    return found if isinstance(found, AnswerTool) else AnswerTool(output, prompts)
