"""Answers of a form: the tool to give one by, where a model cannot be told the form otherwise, and how often it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._json import freeze
from ..errors import ArgumentError, OutputSchemaError
from ..events import Event
from ..flows._prompts import Prompts
from ..runtime import ToolContext
from ..tools import BaseTool
from ..types import FunctionDeclaration
from ._base import SET_MODEL_RESPONSE as NAME

if TYPE_CHECKING:
    from ..flows._output import OutputSchema
    from ..runtime._invocation import Invocation

__all__ = ["Answer", "AnswerTool", "OutputRetries"]


class Answer(NamedTuple):
    """A final answer: its value, and the same as JSON text."""

    value: Any
    text: str


class AnswerTool(BaseTool):
    """`set_model_response`: its arguments are the answer. The response to a call of it has the checked value."""

    checks_arguments = False  # it does so itself

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

    def _is_final_answer(self, response: Mapping[str, Any]) -> bool:
        return self.answer(response) is not None


class OutputRetries:
    """The answers of an agent that has an `output_schema`, in one run of it, and how many had another form."""

    def __init__(self, agent_name: str, output: OutputSchema, retries: int, invocation: Invocation) -> None:
        self._agent_name = agent_name
        self._output = output
        self._retries = retries
        self._prompts = invocation.program.prompts
        self._replayer = invocation.replayer
        self._misses = 0

    def refuse(self, event: Event, problems: Sequence[str]) -> str:
        """Return what the model is told of an answer that has these problems; raise if it has had its retries."""
        told = "\n".join(f"- {problem}" for problem in problems)
        self._miss(event, told)
        return self._prompts.output_invalid.format(problems=told)

    def answer_in(self, event: Event, tools: Mapping[str, BaseTool] | None) -> Answer | None:
        """
        Return the answer among the responses of *event*, the last one in call order that fits; None if there is none.

        *tools* are those of the last request; None if that is long ago.
        """
        responses = [item.response for item in event.get_function_responses() if item.name == NAME]
        tool = None if tools is None else tools.get(NAME)
        if not isinstance(tool, AnswerTool):
            tool = AnswerTool(self._output, self._prompts)
        answers = [tool.answer(response) for response in responses]
        answer = next((answer for answer in reversed(answers) if answer is not None), None)
        if responses and answer is None:
            self._miss(event, "see the responses to set_model_response")
        return answer

    def _miss(self, event: Event, problems: str) -> None:
        self._misses += 1
        if self._replayer is not None and self._replayer.record.tried_again.is_before(event):
            return  # somebody has gone on since: the model gets one more try
        if self._misses > self._retries:
            expected = f"expected an answer of agent {self._agent_name!r} in the form of its output_schema"
            raise OutputSchemaError(f"{expected}, found none in {self._misses} tries; at last: {problems}")
