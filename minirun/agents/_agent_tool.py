"""An agent as a tool of another agent."""

from __future__ import annotations

from typing import Any

from .._json import brief, dumps, freeze
from .._values import changed
from ..errors import ArgumentError, ConfigurationError
from ..flows._output import OutputSchema
from ..flows._prompts import Prompts
from ..models import BaseLlm
from ..runtime import InvocationContext, ToolContext
from ..runtime._position import CallScope, Position
from ..tools import BaseTool
from ..tools._declared import declared
from ..types import Content, FunctionDeclaration, Part
from ._answers import last_answer, value_of
from ._base import BaseAgent
from ._request import find_model
from ._tree import AgentTree

__all__ = ["AgentTool"]


class AgentTool(BaseTool):
    """
    A tool that lets an agent answer, and returns what it said last.

    It runs as a part of the invocation: its events are stored and shown to the caller of the run as they come, in a
    branch of their own (`helper@<call id>`), and what it does counts towards the limits of the run. It sees what it was
    asked, and nothing else of the conversation; the agent that asks sees the result, and nothing of how it came about.
    It reads and writes the same state. What it fails with is the failure of the tool. It has as many calls as models
    ask for, at once, too.

    Args:
        agent: The agent; its description is that of the tool. Its `input_schema`, or that of its first
            sub-agent if it has none, is what it is called with: else a text, `request`. An agent in it without a model
            uses that of the agent that has the tool.
        skip_summarization: Its answer is shown as it is, and the model of the agent that has the tool is not asked
            again in this turn.
        name: What models call it, if that is not to be the agent's name, or cannot be: see `BaseTool`.
        options: `timeout_s`, `retry`, `max_concurrency`, `require_confirmation` and `on_interrupted`, as for every
            tool. A call that is interrupted goes on where the agent was: `on_interrupted="rerun"` is the default here.
    """

    checks_arguments = False  # it does so itself

    def __init__(
        self, agent: BaseAgent, *, skip_summarization: bool = False, name: str | None = None, **options: Any
    ) -> None:
        if not isinstance(agent, BaseAgent):
            raise ConfigurationError(f"expected an agent, found {brief(agent)}")
        options.setdefault("on_interrupted", "rerun")
        super().__init__(name=agent.name if name is None else name, description=agent.description, **options)
        self.agent = agent
        self.skip_summarization = skip_summarization
        self.tree = AgentTree(agent)
        self._input = _input_of(agent)

    @property
    def declaration(self) -> FunctionDeclaration:
        """The agent as the model sees it."""
        return self._declared(Prompts())

    def _declared(self, prompts: Prompts) -> FunctionDeclaration:
        if self._input is None:
            return declared(self.name, self.description, request={"type": "string", "description": prompts.request})
        parameters = freeze(dict(self._input.tool_parameters), self.name)
        return FunctionDeclaration(name=self.name, description=self.description, parameters=parameters)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """
        Run the agent on the request; return its last answer: an output, a result that is shown as it is, or its text.
        """
        content = Content(role="user", parts=[Part(text=self._request(args))])
        model = find_model(tool_context.agent, tool_context)
        context = _inside(tool_context, self.tree, content, model)
        await self.agent.run_async(context)
        if self.skip_summarization:
            tool_context.actions.skip_summarization = True
        assert context._position.inside is not None
        event = last_answer(context, context._position.inside.start_seq)
        return None if event is None else value_of(event, self.tree)

    def _request(self, args: dict[str, Any]) -> str:
        if self._input is not None:
            outcome = self._input.parse_args(args)
            if outcome.problems:
                raise ArgumentError("\n".join(outcome.problems))
            return dumps(outcome.value)
        request = args.get("request")
        if not isinstance(request, str) or len(args) != 1:
            raise ArgumentError(f"expected one argument, request, a text, found {brief(args, 200)}")
        return request


def _input_of(agent: BaseAgent) -> OutputSchema | None:
    at: BaseAgent | None = agent
    while at is not None:
        schema = getattr(at, "input_schema", None)
        if schema is not None:
            return OutputSchema.of(schema, "input_schema")
        at = at.sub_agents[0] if at.sub_agents and not hasattr(at, "model") else None
    return None


def _inside(above: ToolContext, tree: AgentTree, content: Content, model: BaseLlm | None) -> InvocationContext:
    """
    The context of the agents in *tree*, in the call of *above*: a branch of its own, whose history begins with
    *content*; *model* is for those that have none.
    """
    here, invocation, call_id = above._position, above._invocation, above.function_call_id
    invocation.inside |= {call_id}
    name = f"{tree.root.name}@{call_id}"
    call = invocation.live.open_calls[call_id]  # it is being made
    position = Position(
        path=here.path,
        tree=tree,
        branch=f"{here.branch}.{name}" if here.branch else name,
        node_info=changed(here.node_info, path=f"{here.node_info.path}/{name}"),
        node_of=tree.root,
        concurrent=here.concurrent,
        inside=CallScope(content, call.seq + 1, model),
        readers=here.readers,
    )
    return InvocationContext(invocation, above.agent, position, above.state)
