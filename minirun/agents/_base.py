"""
What an agent is, and how its logic is driven.

An agent is a value: its fields are set when it is made, running it changes nothing, and one agent may run in many
invocations at once. Its logic is `_run_async_impl(self, ctx)`, in one of two forms:

*   `async def` that awaits `ctx.emit(event)`: the form that can handle every failure where it happens;
*   an async generator that yields events: `yield event` is `await ctx.emit(event)`, except that a failure or a
    cancellation closes the generator at the `yield`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from typing import Any, dataclass_transform

import attrs
import trio

from ..errors import ConfigurationError, UnfinishedAgentError
from ..events import Event
from ..runtime import InvocationContext
from ..runtime._failure import first_failure
from ..tools import BaseTool

__all__ = ["BaseAgent", "check_tree"]

# An identifier, as in the ADK documents: names stand in branches and prompts.
_NAME = re.compile(r"[^\W\d]\w*")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(attrs.field,))
class _AgentFields:
    """Makes every annotated subclass an attrs class whose fields are keyword arguments."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        attrs.frozen(cls, slots=False, kw_only=True, eq=False, auto_detect=True)


def _checked_name(instance: object, attribute: attrs.Attribute[str], name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "user":
        msg = f"expected an agent name that is an identifier and not 'user', found {name!r:.80}"
        raise ConfigurationError(msg)


def _agents(value: Sequence[BaseAgent]) -> tuple[BaseAgent, ...]:
    agents = tuple(value)
    for agent in agents:
        if not isinstance(agent, BaseAgent):
            msg = f"expected agents in sub_agents, found {agent!r:.80}"
            raise ConfigurationError(msg)
    return agents


class BaseAgent(_AgentFields):
    """
    The base of all agents. An annotated subclass gets its fields as keyword arguments:

        class Limiter(BaseAgent):
            limit: int = 3

            async def _run_async_impl(self, ctx):
                await ctx.emit(Event(message=f"at most {self.limit}"))

    Args:
        name: An identifier, unique in the tree of agents, and not `user`.
        description: What other agents' models are told about it.
        sub_agents: The agents below it; an agent stands in one place of one tree.
    """

    name: str = attrs.field(validator=_checked_name)
    description: str = ""
    sub_agents: Sequence[BaseAgent] = attrs.field(default=(), converter=_agents)

    async def run_async(self, parent_context: InvocationContext) -> None:
        """
        Run the agent as part of the invocation of *parent_context*: `await child.run_async(ctx)`.

        Its events are emitted by itself; there is nothing to pass on. State that it wrote and no event has carried
        is stored at its end.
        """
        if parent_context.end_invocation:
            return
        context = parent_context._for_agent(self)
        await _drive(self, context)
        await context._flush()

    def _run_async_impl(self, ctx: InvocationContext) -> Awaitable[None] | AsyncGenerator[Event, None]:
        """The agent's logic; override it with `async def`, as a coroutine or as an async generator of events."""
        msg = f"{type(self).__name__} has no logic: override `async def _run_async_impl(self, ctx)`"
        raise NotImplementedError(msg)

    def find_agent(self, name: str) -> BaseAgent | None:
        """Return the agent of this name in the tree below, this one included, or None."""
        return next((agent for agent in self._tree() if agent.name == name), None)

    def _tree(self) -> Iterator[BaseAgent]:
        yield self
        for agent in self.sub_agents:
            yield from agent._tree()


def check_tree(root: BaseAgent) -> None:
    """
    Check that the agents under *root* are different ones with different names.

    Raises:
        ConfigurationError: An agent stands in two places, or two have one name.
    """
    by_name: dict[str, BaseAgent] = {}
    for agent in root._tree():
        other = by_name.setdefault(agent.name, agent)
        if other is not agent:
            msg = f"expected agents with different names, found two named {agent.name!r}; rename one"
            raise ConfigurationError(msg)
    if len(by_name) < len(list(root._tree())):
        twice = [agent.name for agent in root._tree()]
        name = next(name for name in twice if twice.count(name) > 1)
        msg = f"expected every agent in one place of the tree, found {name!r} in two; make a second agent"
        raise ConfigurationError(msg)


def tools_of(root: BaseAgent) -> list[BaseTool]:
    """The tools of all agents under *root*, each once."""
    tools = [tool for agent in root._tree() for tool in getattr(agent, "tools", ()) if isinstance(tool, BaseTool)]
    return list(dict.fromkeys(tools))


async def _drive(agent: BaseAgent, context: InvocationContext) -> None:
    logic = agent._run_async_impl(context)
    if isinstance(logic, AsyncGenerator):
        await _drive_generator(agent, context, logic)
    elif isinstance(logic, Awaitable):
        await logic
    else:
        msg = (
            f"expected {type(agent).__name__}._run_async_impl to be `async def` or an async generator, "
            f"found a function that returned {logic!r:.80}"
        )
        raise TypeError(msg)


async def _drive_generator(
    agent: BaseAgent, context: InvocationContext, logic: AsyncGenerator[Event, None]
) -> None:
    """Emit what the generator yields. It runs in a task of its own, as trio needs it."""
    finished = False

    @trio.as_safe_channel
    async def events() -> AsyncGenerator[Event, None]:
        nonlocal finished
        try:
            async for event in logic:
                yield event
            finished = True
        finally:
            await logic.aclose()

    try:
        async with events() as channel:
            async for event in channel:
                await context.emit(event)
    except BaseException as error:
        if not isinstance(first_failure(error), GeneratorExit):
            raise
        # trio 0.30 lets the closing of a generator leave it, where the generator had opened a nursery
        await trio.lowlevel.checkpoint_if_cancelled()
    if not finished:  # a cancel scope around a `yield` has ended the generator, which looks like success here
        msg = (
            f"the generator of agent {agent.name!r} was stopped inside a `yield`, by a cancel scope around it or by "
            "itself; in such a place write `await ctx.emit(event)` in a coroutine instead"
        )
        raise UnfinishedAgentError(msg)
