"""An agent as a node: what it is given is the user's message there, what it answers is the output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from .._json import dumps, freeze
from .._values import changed
from ..agents import BaseAgent, LlmAgent
from ..agents._answers import last_answer, value_of
from ..agents._request import find_model
from ..agents._tree import AgentTree
from ..events import Event
from ..flows._branches import is_within
from ..runtime import InvocationContext
from ..runtime._position import CallScope
from ..types import Content, Part
from ._nodes import Node
from ._scope import NodeScope

if TYPE_CHECKING:
    from ..runtime._hooks import PluginHooks

__all__ = ["AgentNode"]


class AgentNode(Node):
    """
    An agent as a node, which is what an agent in `edges` becomes.

    Its input is the user's message there, and all that it sees of the conversation: what was said before, or is said
    beside it, is not shown to its model. Its output is its answer: the `output` of an agent with an `output_schema`,
    else the text. To whom it hands over stays inside of the node. What it answers with an error fails the node.
    """

    agent: BaseAgent

    _ends_with_questions = False

    def __init__(self, agent: BaseAgent, name: str | None = None, **fields: Any) -> None:
        given: dict[str, Any] = {"agent": agent, **fields}
        super().__init__(name=agent.name if name is None else name, **given)

    @cached_property
    def tree(self) -> AgentTree:
        """The agent and those below it."""
        return AgentTree(self.agent, is_node=True)

    @property
    def attempt_marker(self) -> str:
        return "+" if getattr(self.agent, "_goes_on", False) else "*"

    def agent_that_ends(self, plugins: PluginHooks) -> BaseAgent | None:
        agent = self.agent
        if not isinstance(agent, LlmAgent) or agent.after_agent_callback:
            return None
        follows = any(plugins.get(name) for name in ("after_agent_callback", "on_agent_error_callback"))
        return None if follows or self.require_confirmation or self.parallel_worker else agent

    async def _once(self, context: InvocationContext, scope: NodeScope) -> Event:
        below = self._inside(context, scope)
        await self.agent.run_async(below)
        if scope.ended_by is not None:
            return scope.ended_by
        if scope.output is not None:  # of a workflow
            return Event(author=self.agent.name, output=scope.output)
        answer = last_answer(below, scope.start_seq)
        value = None if answer is None else value_of(answer, self.tree)
        output = None if value == "" else freeze(value, f"output of {self.name!r}")  # an agent without words
        return Event(author=self.agent.name, output=output)

    def _inside(self, context: InvocationContext, scope: NodeScope) -> InvocationContext:
        """What the agent is run in."""
        position = context._position
        suffix = "" if scope.attempt == 1 else f"{self.attempt_marker}{scope.attempt}"
        model, node = find_model(context.agent, context), (context.invocation_id, context.branch)
        inside = NodeInside(_message(scope.input), scope.start_seq, model, node=node)
        path = f"{position.path}{suffix}"
        position = changed(position, tree=self.tree, inside=inside, path=path, node_of=self.tree.root)
        return InvocationContext(context._invocation, context.agent, position, context._state)


@attrs.frozen(eq=False, repr=False)
class NodeInside(CallScope):
    """The inside of a node: its invocation and its branch, which other invocations of the session have, too."""

    node: tuple[str, str | None] = attrs.field(kw_only=True)

    def shown(self, events: Sequence[Event]) -> Sequence[Event]:
        """What was said in this run of the node: nothing of the conversation around it, which goes on meanwhile."""
        invocation_id, branch = self.node
        return [each for each in events if each.invocation_id == invocation_id and is_within(each.branch, branch)]


def _message(value: Any) -> Content:
    """What an agent is given as the user's message."""
    if isinstance(value, Content):
        return changed(value, role="user")
    text = value if isinstance(value, str) else dumps(value)
    return Content(role="user", parts=[Part(text=text)])
