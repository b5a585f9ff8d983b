"""Answers of a form: the tool to give one by, where a model cannot be told the form otherwise, and how often it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._json import freeze
from .._values import changed
from ..errors import ArgumentError, OutputSchemaError
from ..events import Event
from ..flows._prompts import Prompts
from ..flows._turn import INVALID_OUTPUT, REFUSED_OUTPUT
from ..runtime import ToolContext
from ..tools import BaseTool
from ..types import Content, FunctionDeclaration, Part
from ._answer_fields import with_output
from ._base import SET_MODEL_RESPONSE as NAME

if TYPE_CHECKING:
    from ..models import LlmResponse
    from ..runtime._invocation import Invocation
    from ._llm import LlmAgent

__all__ = ["Answer", "AnswerTool", "OutputRetries", "in_form"]


def in_form(agent: LlmAgent, event: Event) -> tuple[Event, list[str]]:
    """Return the event of a final answer with its value where the agent's fields want it, or with what is wrong."""
    if agent._output is None:
        return with_output(agent, event, event.text), []
    outcome = agent._output.parse_text(event.text)
    if outcome.problems:
        message = "; ".join(outcome.problems)
        return changed(event, error_code=INVALID_OUTPUT, error_message=message), list(outcome.problems)
    return with_output(agent, event, outcome.value), []


class Answer(NamedTuple):
    """A final answer: its value, and the same as JSON text."""

    value: Any
    text: str


class AnswerTool(BaseTool):
    """`set_model_response`: its arguments are the answer. The response to a call of it has the checked value."""

    checks_arguments = False  # it does so itself

    def __init__(self, agent: LlmAgent, prompts: Prompts) -> None:
        about = prompts.output_tool_description
        super().__init__(name=NAME, description=about, on_interrupted="rerun", retries=None)  # it has output_retries
        assert agent._output is not None
        self._output = agent._output
        self._validator = agent.output_validator
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
        value = outcome.value
        if self._validator is not None:
            from ._validators import in_its_place  # few agents have one

            value = await in_its_place(self._validator, self._output, tool_context, value)
        self._checked.append(value)
        return {"result": value}

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
    """The answers of an agent with a form or a validator, in one run of it, and how many were not taken."""

    def __init__(self, agent: LlmAgent, invocation: Invocation) -> None:
        self._agent = agent
        self._prompts = invocation.program.prompts
        self._replayer = invocation.replayer
        self._live = invocation.live
        self._misses = 0

    def refuse(self, event: Event, problems: Sequence[str], answer: LlmResponse | None) -> str:
        """
        Return what the model is told of an answer that is not taken; raise if it has had its retries.

        *answer* is what the model or a hook has just said; None where it is told by the log.
        """
        again = event.actions.replay.again
        if again is None:
            told = "\n".join(f"- {problem}" for problem in problems)
            self._miss(event, told)
            prompts, is_refused = self._prompts, event.error_code == REFUSED_OUTPUT
            return (prompts.output_refused if is_refused else prompts.output_invalid).format(problems=told)
        if answer is not None:
            most = self._agent.output_retries if answer.ask_again_max is None else answer.ask_again_max
            tries = self._asked_again(event)
            if tries > most:
                expected = f"expected an answer of agent {self._agent.name!r} that a hook takes, found none"
                raise OutputSchemaError(f"{expected} in {tries} tries; at last it was to be told: {again}")
        return again

    def _asked_again(self, last: Event) -> int:
        """How many answers in a row hooks have not taken, up to the *last* one; from the log, so over a resume, too."""
        events, found = self._live.events, 0
        for index in range(len(events) - 1, -1, -1):
            event = events[index]
            if event.invocation_id != last.invocation_id:
                break
            is_told = event.content is not None and event.content.role == "user" and not event.get_function_responses()
            if event.author != last.author or event.branch != last.branch or is_told:
                continue
            if event.actions.replay.again is None:
                break
            found += 1
        return found

    def final_in(self, event: Event, tools: Mapping[str, BaseTool] | None) -> Event | None:
        """
        Return what the agent says of the answer among the responses of *event*, the last one in call order that fits;
        None if there is none.

        *tools* are those of the last request; None if that is long ago.
        """
        if self._agent._output is None:
            return None
        responses = [item.response for item in event.get_function_responses() if item.name == NAME]
        tool = None if tools is None else tools.get(NAME)
        if not isinstance(tool, AnswerTool):
            tool = AnswerTool(self._agent, self._prompts)
        answers = [tool.answer(response) for response in responses]
        answer = next((answer for answer in reversed(answers) if answer is not None), None)
        if responses and answer is None:
            self._miss(event, "see the responses to set_model_response")
        if answer is None:
            return None
        said = Content(role="model", parts=[Part(text=answer.text)])
        return with_output(self._agent, Event(content=said), answer.value)

    def _miss(self, event: Event, problems: str) -> None:
        self._misses += 1
        if self._replayer is not None and self._replayer.record.tried_again.is_before(event):
            return  # somebody has gone on since: the model gets one more try
        if self._misses > self._agent.output_retries:
            wanted = "in the form of its output_schema" if self._agent.output_validator is None else "that is accepted"
            expected = f"expected an answer of agent {self._agent.name!r} {wanted}"
            raise OutputSchemaError(f"{expected}, found none in {self._misses} tries; at last: {problems}")
