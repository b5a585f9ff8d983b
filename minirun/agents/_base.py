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
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from reprlib import recursive_repr
from typing import Any, dataclass_transform

import attrs
import trio

from .._record import fields_shown
from .._values import changed
from ..errors import ConfigurationError, UnfinishedAgentError
from ..events import Event
from ..runtime import InvocationContext
from ..runtime._failure import first_failure, is_pause, leaves
from ..runtime._hooks import Hook, ask, expect, hooks_field_value, tell, with_cleanup
from ..types import Content

__all__ = ["BaseAgent", "as_answer", "hooks_field"]

# An identifier, as in the ADK documents: names stand in branches and prompts.
_NAME = re.compile(r"[^\W\d]\w*")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(attrs.field,))
class _AgentFields:
    """Makes every annotated subclass an attrs class whose fields are keyword arguments."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        attrs.frozen(cls, slots=False, kw_only=True, eq=False, repr=False, auto_detect=True)

    @recursive_repr("...")
    def __repr__(self) -> str:
        return fields_shown(self)


def _checked_name(instance: object, attribute: attrs.Attribute[str], name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "user":
        msg = f"expected an agent name that is an identifier and not 'user', found {name!r:.80}"
        raise ConfigurationError(msg)


def _checked_description(instance: object, attribute: attrs.Attribute[str], description: object) -> None:
    if not isinstance(description, str):
        raise ConfigurationError(f"expected the description of an agent to be a string, found {description!r:.80}")


def _agents(value: Sequence[BaseAgent]) -> tuple[BaseAgent, ...]:
    if not isinstance(value, Iterable):
        raise ConfigurationError(f"expected sub_agents to be a list of agents, found {value!r:.80}; write [...]")
    agents = tuple(value)
    for agent in agents:
        if not isinstance(agent, BaseAgent):
            msg = f"expected agents in sub_agents, found {agent!r:.80}"
            raise ConfigurationError(msg)
    return agents


def hooks_field(name: str, *parameters: str) -> Any:
    """A field for callbacks, one or a list of them, that are called with these arguments by name."""
    return attrs.field(default=None, converter=lambda value: hooks_field_value(value, name, parameters))


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
        before_agent_callback: Called with `callback_context` before the agent runs: a function, sync or async, or a
            list of them. A Content that it returns is said instead, and the agent does not run.
        after_agent_callback: Called with `callback_context` when it has run, failed or been cancelled. A Content that
            it returns is said, too, unless the agent did not come to its end.
    """

    name: str = attrs.field(validator=_checked_name)
    description: str = attrs.field(default="", validator=_checked_description)
    sub_agents: Sequence[BaseAgent] = attrs.field(default=(), converter=_agents)
    before_agent_callback: Hook | Sequence[Hook] | None = hooks_field("before_agent_callback", "callback_context")
    after_agent_callback: Hook | Sequence[Hook] | None = hooks_field("after_agent_callback", "callback_context")

    async def run_async(self, parent_context: InvocationContext) -> None:
        """
        Run the agent as part of the invocation of *parent_context*: `await child.run_async(ctx)`.

        Its events are emitted by itself; there is nothing to pass on. State that it wrote and no event has carried
        is stored at its end. If it hands over to another agent, that one runs in its place.
        """
        if not isinstance(parent_context, InvocationContext):
            msg = f"expected the context of an agent, found {parent_context!r:.80}; a tool calls an agent by AgentTool"
            raise TypeError(msg)
        agent: BaseAgent | None = self
        while agent is not None and not parent_context.end_invocation:
            context = parent_context._for_agent(agent)
            await agent._run(context)
            place = context._place
            agent = None if context.escalated else place.tree.target(agent, place.control.transfer_to)

    async def _run(self, context: InvocationContext) -> None:
        """Run it once, between its hooks."""
        before, after, on_error = (
            _hooks_of(self, context, name)
            for name in ("before_agent_callback", "after_agent_callback", "on_agent_error_callback")
        )
        try:
            if before and await self._is_answered_before(context, before):
                return
            if after or on_error:
                await self._run_with_cleanup(context, after, on_error)
            else:
                await self._run_to_its_end(context)
        except Exception as error:
            for leaf in leaves(error):
                context._core.failed(leaf, self.name, context.branch)
            raise

    async def _run_to_its_end(self, context: InvocationContext) -> None:
        if not context.end_invocation:
            try:
                await _drive(self, context)
            except Exception as error:
                context._core.secrets.out_of_error(error)
                raise
            await context._flush()

    async def _is_answered_before(self, context: InvocationContext, before: Sequence[Hook]) -> bool:
        callback_context = context._for_agent_hooks("before")
        if callback_context._is_behind():  # they were asked: it had begun
            recorded = await callback_context._replay_next()
            return recorded is not None and recorded.content is not None
        answer = await ask(before, callback_context=callback_context)
        content = expect(answer, Content, "before_agent_callback")
        if content is None:
            await callback_context._flush()
            return False
        await callback_context.emit(self._event_of(content))
        return True

    def _event_of(self, content: Content) -> Event:
        """What is emitted when a callback speaks in the agent's place."""
        return Event(content=as_answer(content))

    async def _run_with_cleanup(
        self, context: InvocationContext, after: Sequence[Hook], on_error: Sequence[Hook]
    ) -> None:
        callback_context = context._for_agent_hooks("after")

        async def cleanup(failure: BaseException | None) -> None:
            if is_pause(failure):
                return  # it is not over
            if failure is None and callback_context._is_behind():
                await callback_context._replay_next()  # it was over then, and they have been asked
                return
            error = None if failure is None else first_failure(failure)
            grace_s, what = context._core.cleanup_s, f"a cleanup hook of agent {self.name!r}"
            try:
                try:
                    if isinstance(error, Exception):
                        await tell(on_error, grace_s, what, callback_context=callback_context, error=error)
                finally:
                    well = failure is None
                    answer = await tell(after, grace_s, what, first_answer=well, callback_context=callback_context)
                content = expect(answer, Content, "after_agent_callback")
                if content is not None:
                    await callback_context.emit(Event(content=as_answer(content)))
                elif failure is None:
                    await callback_context._flush()
            finally:  # what the hooks have written is kept, although nobody may be there to hear of it
                with trio.CancelScope(shield=True):
                    await callback_context._flush(closing=True)

        await with_cleanup(lambda: self._run_to_its_end(context), cleanup)

    @property
    def _has_own_logic(self) -> bool:
        """Whether its logic is not one of this package's, which decide by what is in the log and nothing else."""
        return not type(self)._run_async_impl.__module__.startswith(f"{__package__}.")

    def _run_async_impl(self, ctx: InvocationContext) -> Awaitable[None] | AsyncGenerator[Event, None]:
        """The agent's logic; override it with `async def`, as a coroutine or as an async generator of events."""
        msg = f"{type(self).__name__} has no logic: override `async def _run_async_impl(self, ctx)`"
        raise NotImplementedError(msg)

    def find_agent(self, name: str) -> BaseAgent | None:
        """Return the agent of this name in the tree below, this one included, or None."""
        return next((agent for agent in self._tree() if agent.name == name), None)

    def find_sub_agent(self, name: str) -> BaseAgent | None:
        """Return the agent of this name in the tree below, or None."""
        return next((agent for agent in self._tree() if agent.name == name and agent is not self), None)

    def clone(self, update: Mapping[str, Any] | None = None) -> BaseAgent:
        """
        Return a copy with the fields in *update* changed; the agents below are copied, too, unless they are in it.

        Raises:
            ConfigurationError: A name in *update* is no field.
        """
        fields = {field.name for field in attrs.fields(type(self))}  # type: ignore[arg-type]  # as below
        changes = dict(update or {})
        strange = sorted(set(changes) - fields)
        if strange:
            msg = f"expected fields of {type(self).__name__} in update, found {strange[0]!r}"
            raise ConfigurationError(msg)
        changes.setdefault("sub_agents", [agent.clone() for agent in self.sub_agents])
        copy: BaseAgent = attrs.evolve(self, **changes)  # type: ignore[misc]  # mypy does not see that it is an attrs class
        return copy

    def _tree(self) -> Iterator[BaseAgent]:
        yield self
        for agent in self.sub_agents:
            yield from agent._tree()


def as_answer(content: Content) -> Content:
    """What a hook says in the place of an agent: in the agent's role, whatever role it has."""
    return content if content.role == "model" else changed(content, role="model")


def _hooks_of(agent: BaseAgent, context: InvocationContext, name: str) -> list[Hook]:
    """The hooks around an agent: the plugins', which are told which one it is, then its own."""
    plugins = context._core.plugins.get(name, ())
    return [*(partial(hook, agent=agent) for hook in plugins), *getattr(agent, name, ())]


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


async def _drive_generator(agent: BaseAgent, context: InvocationContext, logic: AsyncGenerator[Event, None]) -> None:
    """Emit what the generator yields. It runs in a task of its own, as trio needs it."""
    finished = False

    @trio.as_safe_channel
    async def events() -> AsyncGenerator[Event, None]:
        nonlocal finished
        context._tasks.add(trio.lowlevel.current_task())
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
