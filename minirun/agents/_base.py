"""
What an agent is, and how its logic is driven.

An agent is a value: its fields are set when it is made, running it changes nothing, and one agent may run in many
invocations at once. Its logic is `_run_async_impl(self, ctx)`, in one of two forms:

*   `async def` that awaits `ctx.emit(event)`: the form that can handle every failure where it happens;
*   an async generator that yields events: `yield event` is `await ctx.emit(event)`, except that a failure or a
    cancellation closes the generator at the `yield`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial, wraps
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, dataclass_transform

import attrs

from .._fields import setting
from .._frozen import refuse_changes
from .._json import FrozenTuple, brief
from .._record import MUTABLE, fields_shown
from ..errors import ConfigurationError
from ..events import Event
from ..flows._turn import SET_MODEL_RESPONSE as SET_MODEL_RESPONSE
from ..runtime import InvocationContext
from ..runtime._failure import leaves
from ..runtime._hooks import Hook
from ..types import Content

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["BaseAgent", "Hooks", "hooks_field", "misfit"]

# Where the line of a live run stands in the memo of its invocation.
LINE = "live line"

# An identifier, as in the ADK documents: names stand in branches and prompts.
_NAME = re.compile(r"[^\W\d]\w*")

# The name of a tool that agents have besides their own.
TRANSFER_TO_AGENT = "transfer_to_agent"


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(attrs.field,))
class _AgentFields:
    """
    Makes every annotated subclass an attrs class whose fields are keyword arguments.

    One that has an `__init__` of its own sets its fields by `super().__init__(name=..., ...)`, all of them at once.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        is_made = cls.__init__ is object.__init__ or hasattr(cls.__init__, "__wrapped__")  # nobody has written one
        attrs.frozen(cls, slots=False, kw_only=True, eq=False, repr=False, init=is_made, field_transformer=_unshared)
        if is_made:
            cls.__init__ = _initialiser(cls.__init__)  # type: ignore[method-assign]  # it takes the same
        advice = "running never changes an agent; `agent.clone({'{name}': ...})` makes another, `ctx.state` can change"
        refuse_changes(cls, advice)

    @recursive_repr("...")
    def __repr__(self) -> str:
        return fields_shown(self)


def _unshared(cls: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Let each agent have its own copy of a default that can be changed, as with pydantic: `items: list = []`."""
    return [
        field.evolve(default=attrs.Factory(partial(deepcopy, field.default)))
        if isinstance(field.default, MUTABLE)
        else field
        for field in fields
    ]


def _initialiser(initialise: Callable[..., None]) -> Callable[..., None]:
    """What sets the fields of a class, or of a subclass whose own `__init__` calls it."""

    @wraps(initialise)
    def __init__(self: Any, *args: Any, **fields: Any) -> None:
        construct = vars(type(self)).get("__attrs_init__", initialise)
        try:
            construct(self, *args, **fields)
        except TypeError:
            from .._adk import check_arguments  # few programs make this mistake

            check_arguments(type(self), construct, fields)
            raise

    return __init__


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and name != "user"


def _agents(value: Sequence[BaseAgent]) -> tuple[BaseAgent, ...]:
    if not isinstance(value, Iterable):
        raise ConfigurationError(f"expected sub_agents to be a list of agents, found {brief(value)}; write [...]")
    agents = FrozenTuple(value)
    for agent in agents:
        if not isinstance(agent, BaseAgent):
            raise ConfigurationError(f"expected agents in sub_agents, found {brief(agent)}")
    return agents


def hooks_field(name: str, *parameters: str) -> Any:
    """A field for callbacks, one or a list of them, that are called with these arguments by name."""
    return attrs.field(default=None, converter=lambda value: _hooks(value, name, parameters))


def _hooks(value: Hooks, name: str, parameters: Sequence[str]) -> tuple[Hook, ...]:
    """Return the hooks of one field; raises ConfigurationError if one cannot be called with these parameters."""
    given = value if isinstance(value, Iterable) and not callable(value) else (value,)
    hooks: tuple[Any, ...] = FrozenTuple(() if value is None else given)
    for hook in hooks:
        if not callable(hook):
            raise ConfigurationError(f"expected {name} to be a function or a list of functions, found {brief(hook)}")
        if (error := misfit(hook, **dict.fromkeys(parameters))) is not None:
            msg = f"expected {name} to take the arguments {', '.join(parameters)} by name, found {brief(hook)}: {error}"
            raise ConfigurationError(msg)
    return hooks


def misfit(function: Callable[..., object], *args: object, **kwargs: object) -> TypeError | None:
    """Why *function* cannot be called with such arguments; None if it can, or is a builtin that does not tell."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        return error
    except ValueError:
        pass
    return None


Hooks: TypeAlias = Hook | Sequence[Hook] | None

# What agents and plugins have hooks for, around an agent; it is plugins only that are told of its failure.
_AROUND = ("before_agent_callback", "after_agent_callback", "on_agent_error_callback")


class _AgentRun(Coroutine[Any, Any, None]):
    """What `BaseAgent.run_async` returns: a coroutine, which says so where it is iterated over as ADK's is."""

    def __init__(self, run: Coroutine[Any, Any, None]) -> None:
        self._run = run

    def __await__(self) -> Generator[Any, Any, None]:
        return self._run.__await__()

    def send(self, value: Any) -> Any:
        return self._run.send(value)

    def throw(self, *raised: Any) -> Any:
        return self._run.throw(*raised)

    def close(self) -> None:
        self._run.close()

    def __aiter__(self) -> NoReturn:
        self.close()
        msg = "an agent emits its events itself, and there is nothing to pass on; write `await agent.run_async(ctx)`"
        raise TypeError(msg)


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

    name: str = attrs.field(validator=setting("an identifier that is not 'user'", _is_name))
    description: str = attrs.field(
        default="", validator=setting("a string", lambda text: isinstance(text, str))
    )
    sub_agents: Sequence[BaseAgent] = attrs.field(default=(), converter=_agents)
    before_agent_callback: Hooks = hooks_field("before_agent_callback", "callback_context")
    after_agent_callback: Hooks = hooks_field("after_agent_callback", "callback_context")

    def run_async(self, parent_context: InvocationContext) -> Coroutine[Any, Any, None]:
        """
        Run the agent as part of the invocation of *parent_context*: `await child.run_async(ctx)`.

        Its events are emitted by itself; there is nothing to pass on. State that it wrote and no event has carried
        is stored at its end. If it hands over to another agent, that one runs in its place.
        """
        if not isinstance(parent_context, InvocationContext):
            msg = f"expected the context of an agent, found {brief(parent_context)}; a tool calls an agent by AgentTool"
            raise TypeError(msg)
        return _AgentRun(self._run_below(parent_context))

    async def _run_below(self, parent_context: InvocationContext) -> None:
        parent_context._check_writable()
        agent: BaseAgent | None = self
        while agent is not None and not parent_context.end_invocation:
            context = parent_context._for_agent(agent)
            await agent._run_once(context)
            position = context._position
            agent = None if context.escalated else position.tree.target(agent, position.handover.transfer_to)

    async def _run_once(self, context: InvocationContext) -> None:
        """Run it once, between its hooks."""
        before, after, on_error = (_hooks_of(self, context, name) for name in _AROUND)
        try:
            if before or after or on_error:
                from ._callbacks import run_with_callbacks  # few agents have any

                await run_with_callbacks(self, context, before, after, on_error)
            else:
                await self._run_to_its_end(context)
        except Exception as error:
            for leaf in leaves(error):
                node = context._position.node_info
                context._invocation.failures.note_origin(leaf, self.name, context.branch, node)
            raise

    async def _run_to_its_end(self, context: InvocationContext) -> None:
        if not context.end_invocation:
            try:
                line = context._invocation.memo.get(LINE)
                logic = self._run_async_impl(context) if line is None else line.logic_of(self, context)
                if isinstance(logic, AsyncGenerator):
                    from ._generator import emit_from  # most logic awaits `emit` itself

                    await emit_from(f"agent {self.name!r}", context, logic, context.emit)
                elif isinstance(logic, Awaitable):
                    result: Any = await logic
                    if isinstance(result, Event) and result.seq is None and not result.partial:
                        msg = f"{type(self).__name__}._run_async_impl returned an Event that nobody has emitted"
                        raise TypeError(f"{msg}; write `await ctx.emit(event)` instead of `return event`")
                else:
                    expected = f"expected {type(self).__name__}._run_async_impl to be `async def` or an async generator"
                    raise TypeError(f"{expected}, found a function that returned {brief(logic)}")
            except Exception as error:
                context._invocation.secrets.out_of_error(error)
                raise
            await context._flush()
            if context._reads is not None and context._reads.fresh:
                context._invocation.silent_readers += (context._reads,)

    def _event_of(self, content: Content) -> Event:
        """What is emitted when a callback speaks in the agent's place."""
        return Event(content=content)

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

    def clone(self, update: Mapping[str, Any] | None = None) -> Self:
        """
        Return a copy with the fields in *update* changed; the agents below are copied, too, unless they are in it.

        Raises:
            ConfigurationError: A name in *update* is no field.
        """
        from ._clone import clone  # few agents are copied

        return clone(self, update)

    def _tree(self) -> Iterator[BaseAgent]:
        yield self
        for agent in self.sub_agents:
            yield from agent._tree()


def _hooks_of(agent: BaseAgent, context: InvocationContext, name: str) -> Sequence[Hook]:
    """The hooks around an agent: the plugins', which are told which one it is, then its own."""
    plugins, own = context._invocation.program.plugins.get(name), getattr(agent, name, ())
    return [*(partial(hook, agent=agent) for hook in plugins), *own] if plugins else own
