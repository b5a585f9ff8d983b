"""
An agent that works on a task, as a node: `LlmAgent(mode="task")`.

It is run again and again, in one branch: what it says without a call is for the user, and the node waits for what the
user says next (`"message"` in `run.pending`). It ends when a call of `finish_task` was accepted, whose arguments are
the output. All of that is in the log, so where a conversation stands follows from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._json import freeze
from ..agents import LlmAgent
from ..agents._answers import is_told_as_answer, value_of
from ..agents._tree import AgentTree
from ..agents._validators import in_its_place
from ..errors import ConfigurationError, ModelRetry, OutputSchemaError
from ..events import Event
from ..flows._output import Outcome, OutputSchema
from ..flows._prompts import Prompts
from ..flows._questions import REQUEST_MESSAGE
from ..models import LlmRequestDraft
from ..runtime import CallbackContext, InvocationContext, ToolContext
from ..runtime._failure import Pause
from ..runtime._questions import pose, question_id, replayed_answer
from ..sessions._asking import Question
from ..tools import BaseTool
from ..types import Content, FunctionDeclaration, Part
from ._agent_node import AgentNode
from ._scope import NodeScope

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..runtime._hooks import PluginHooks

__all__ = ["FINISH_TASK", "TaskNode"]

FINISH_TASK = "finish_task"

_TEXT = {
    "type": "object",
    "properties": {"result": {"type": "string"}},
    "required": ["result"],
    "additionalProperties": False,
}
"""What a task comes to whose agent has no `output_schema`."""


class TaskNode(AgentNode):
    """
    An agent of mode `task` as a node.

    Its input is the user's first message there. What its model says without a call pauses the run with a question of
    kind `"message"`, and the node goes on with the answer. Its output is the arguments of `finish_task`: the fields of
    the `output_schema`, or `{"result": text}`. Arguments of another form are told to the model, `output_retries` times
    between two messages of the user, and then the node fails with OutputSchemaError.
    """

    def __init__(self, agent: LlmAgent, name: str | None = None, **fields: Any) -> None:
        if agent.sub_agents:
            msg = f"agent {agent.name!r}: expected an agent of mode 'task' without sub_agents, found some"
            raise ConfigurationError(f"{msg}; make them nodes of their own, or tools, with AgentTool")
        super().__init__(agent, name, **fields)
        self.worker  # noqa: B018 # what it cannot have is refused when it is made

    @cached_property
    def worker(self) -> LlmAgent:
        """The agent that is run: with the tool, and without what only final answers have."""
        agent: Any = self.agent
        form = OutputSchema.of(_TEXT if agent.output_schema is None else agent.output_schema)
        tools = [*agent.tools, FinishTask(form, agent)]
        without = dict.fromkeys(("output_schema", "output_validator", "output_key", "mode"))
        worker: LlmAgent = agent.clone({"tools": tools, **without})
        return worker

    @cached_property
    def tree(self) -> AgentTree:
        """The agent that is run."""
        return AgentTree(self.worker)

    def agent_that_ends(self, plugins: PluginHooks) -> BaseAgent | None:
        return None

    async def _once(self, context: InvocationContext, scope: NodeScope) -> Event:
        below, worker = self._inside(context, scope), self.worker
        scope.heard_seq = scope.start_seq
        while True:
            await worker.run_async(below)
            if context.end_invocation or context.escalated:
                return Event(author=worker.name)
            said = _said_since(below, scope.heard_seq)
            responses = _responses(said)
            if responses and "result" in responses[-1]:
                return self._finished(responses[-1]["result"])
            if _misses(responses) > worker.output_retries:
                expected = f"expected agent {worker.name!r} to call finish_task with what its output_schema asks for"
                raise OutputSchemaError(f"{expected}, found another form each time; at last: {responses[-1]['error']}")
            answer = next((event for event in reversed(said) if is_told_as_answer(event)), None)
            reply = await _next_message(context, None if answer is None else value_of(answer, self.tree))
            heard = Content(role="user", parts=[Part(text=reply)])
            told = await context.emit(Event(author=worker.name, content=heard))
            assert told.seq is not None, "it is stored"
            scope.heard_seq = told.seq + 1

    def _finished(self, value: Any) -> Event:
        agent: Any = self.agent
        output = freeze(value, f"output of {self.name!r}")
        state = None if agent.output_key is None else {agent.output_key: output}
        return Event(author=agent.name, output=output, state=state)


async def _next_message(context: InvocationContext, said: Any) -> str:
    """What the user says next to an agent that has *said* this."""
    args: Mapping[str, Any] = freeze({} if said is None else {"message": said}, "question")
    question = Question(question_id(context, REQUEST_MESSAGE, args), REQUEST_MESSAGE, args)
    response = await replayed_answer(context, question.id)
    if response is None:
        context._check_can_wait()
        await pose(context, question)
        raise Pause(f"for what the user says to {question.id}")
    return str(response.get("result"))


def _said_since(context: InvocationContext | ToolContext, since: int) -> list[Event]:
    """What was said in the branch of *context* from *since* on until the user was asked for a message, if that was."""
    live, branch = context._invocation.live, context.branch
    found = []
    for event in live.events[live.index_of(since) :]:
        if event.branch == branch and event.invocation_id == context.invocation_id:
            if any(call.name == REQUEST_MESSAGE for call in event.get_function_calls()):
                break
            found.append(event)
    return found


def _responses(events: list[Event]) -> list[Mapping[str, Any]]:
    """The responses to calls of finish_task."""
    return [item.response for event in events for item in event.get_function_responses() if item.name == FINISH_TASK]


def _misses(responses: list[Mapping[str, Any]]) -> int:
    return sum("error" in response for response in responses)


class FinishTask(BaseTool):
    """`finish_task`: its arguments are what the task has come to."""

    checks_arguments = False  # it does so itself

    def __init__(self, form: OutputSchema, agent: LlmAgent) -> None:
        super().__init__(name=FINISH_TASK, description=Prompts().finish_task, on_interrupted="rerun")
        self._form = form
        self._retries = agent.output_retries
        self._validator = agent.output_validator

    @property
    def declaration(self) -> FunctionDeclaration:
        """The form of the outcome as that of a call."""
        return self._declared(Prompts())

    def _declared(self, prompts: Prompts) -> FunctionDeclaration:
        parameters = freeze(dict(self._form.tool_parameters), FINISH_TASK)
        return FunctionDeclaration(name=FINISH_TASK, description=prompts.finish_task, parameters=parameters)

    async def process_llm_request(self, *, tool_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """Tell the model that it works on a task."""
        llm_request.append_instructions([tool_context._invocation.program.prompts.task])

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Take the outcome. What is wrong with it is told to the model, which tries again if it may."""
        outcome = self._form.parse_args(args)
        kind = "ArgumentError"
        if self._validator is not None and not outcome.problems:
            try:
                value = await in_its_place(self._validator, self._form, tool_context, outcome.value)
                outcome = Outcome(value)
            except ModelRetry as retry:
                kind, outcome = "ModelRetry", Outcome(problems=[tool_context._invocation.secrets.text_of(retry)])
        scope = tool_context._position.node
        since = 0 if scope is None else scope.heard_seq
        if not outcome.problems or _misses(_responses(_said_since(tool_context, since))) >= self._retries:
            tool_context.actions.skip_summarization = True  # the agent ends with this
        if outcome.problems:
            return {"error": {"type": kind, "message": "\n".join(outcome.problems)}}
        return {"result": outcome.value}
