"""
What every context is: a view of the invocation from one position in it, with a layer of pending writes of its own.

Every context of an invocation shares one `Invocation`. What differs is who speaks (agent, branch, function call) and
the layer of state that belongs to it. What contexts can do stands above this file, each in its own: steps and timers,
questions, artifacts, memory, credentials. All of it takes a `ContextBase`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import trio

from .._codec import to_json
from .._values import changed
from ..env import derived_id
from ..errors import InvocationEndedError, NotSupportedError
from ..events import NO_ACTIONS, Event
from ..sessions import Session
from ..sessions._reads import EVENTS, Reads
from ..sessions._run_session import run_session
from ..sessions._state import State, parted, writes_of
from ..types import Content
from ._config import RunConfig
from ._failure import is_pause
from ._ids import STEP_ID
from ._invocation import Invocation
from ._position import Position

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..flows._actions import ActionsDraft
    from ..sessions._state_delta import StateDelta

__all__ = ["ContextBase", "ReadonlyContext"]

T = TypeVar("T")


class ReadonlyContext:
    """What instruction functions get: to look at, not to change."""

    # With slots an attribute that a context does not have cannot be set: it would have no effect.
    __slots__ = ("__weakref__", "_agent", "_invocation", "_position", "_state")

    def __init__(self, invocation: Invocation, agent: BaseAgent, position: Position, state: State) -> None:
        self._invocation = invocation
        self._agent = agent
        self._position = position
        self._state = state

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> NoReturn:
            from .._adk import no_attribute  # few programs ask for what is not there

            raise no_attribute(type(self), name)

    @property
    def state(self) -> Mapping[str, Any]:
        """The state as this agent sees it, pending writes included."""
        return MappingProxyType(self._state)

    @property
    def session(self) -> Session:
        """The session being run, with the state as this agent sees it."""
        return run_session(self._invocation.live, self._invocation.history.start_seq, self.state)

    @property
    def parent_agent(self) -> BaseAgent | None:
        """The agent above the running one, or None."""
        return self._position.tree.parent_of(self._agent)

    @property
    def root_agent(self) -> BaseAgent:
        """The agent at the top of the tree."""
        return self._position.tree.root

    @property
    def invocation_id(self) -> str:
        """The id of the running invocation; all its events carry it."""
        return self._invocation.id

    @property
    def is_resumed(self) -> bool:
        """Whether this run goes on with an invocation that an earlier one has begun."""
        return self._invocation.replayer is not None

    @property
    def agent_name(self) -> str:
        """The name of the running agent."""
        return self._agent.name

    @property
    def app_name(self) -> str:
        """The app the session belongs to."""
        return self._invocation.live.key.app_name

    @property
    def user_id(self) -> str:
        """The user the session belongs to."""
        return self._invocation.live.key.user_id

    @property
    def branch(self) -> str | None:
        """Which part of the agent tree this is, as a dotted path; None at the root."""
        return self._position.branch

    @property
    def user_content(self) -> Content | None:
        """The message that began the invocation; inside an agent that is used as a tool, what it was asked."""
        inside = self._position.inside
        return self._invocation.user_content if inside is None else inside.content

    @property
    def deps(self) -> Any:
        """What the run was given as `run_async(deps=...)`, such as a database handle; None if that was nothing."""
        return self._invocation.deps

    def deps_as(self, kind: type[T]) -> T:
        """
        Return `deps` as what it is to be: `database = ctx.deps_as(Database)`.

        Raises:
            MissingDepsError: The run was given nothing of this kind.
            NotSupportedError: *kind* is no class (a union, `dict[str, int]`), or one that `isinstance` cannot ask for,
                such as a protocol that is not `runtime_checkable`.
        """
        from ..flows._deps import deps_of_kind  # few runs are given something

        return deps_of_kind(self._invocation.deps, kind)

    def state_as(self, schema: type[T]) -> T:
        """
        Return a copy of the state as an instance of *schema*, with its defaults: `desk = ctx.state_as(Desk)`.

        A change of the copy changes no state; write to `ctx.state`. *schema* is an attrs class, a dataclass, a
        TypedDict or a pydantic model; it needs not be a `state_schema`, and sees nothing but its own fields.

        Raises:
            ConfigurationError: *schema* is no such class.
            StateSchemaError: A field without a default is missing in the state, or a value does not fit.
        """
        from ..flows._state_schema import instance_of  # few programs give their state a schema

        return instance_of(schema, self.state)

    @property
    def run_config(self) -> RunConfig:
        """The settings of the run."""
        return self._invocation.run_config


class ContextBase(ReadonlyContext):
    """A context whose holder may write state and emit events."""

    __slots__ = ("_cannot_wait", "_claims", "_closed", "_conflicts", "_draft", "_is_detached", "_reads", "_session",
                 "_tasks")  # fmt: skip

    def __init__(
        self, invocation: Invocation, agent: BaseAgent, position: Position, state: State, reads: Reads | None = None
    ) -> None:
        """With *reads*, what is read is recorded, and there is a layer of its own on top of *state*."""
        if reads is not None:
            position = changed(position, readers=(*position.readers, reads))
            state = state.layer(reads.value)
        super().__init__(invocation, agent, position, state)
        self._reads = reads
        self._session: Session | None = None
        self._closed = ""  # why nothing can be emitted from here
        self._cannot_wait = ""  # why nobody can be asked from here
        self._tasks: tuple[trio.lowlevel.Task, ...] = (trio.lowlevel.current_task(),)  # in which its logic runs
        self._claims: list[str] = []  # the ids of its steps and questions
        self._is_detached = False  # whether what is emitted here takes no part in the order of what its agent says
        self._conflicts: list[str] = []  # keys that the next event has to name
        self._draft: ActionsDraft | None = None  # the actions for the next event, if there are any

    # --- what its holder sees

    @property
    def state(self) -> State:
        """The session's state, with the pending writes of this context; see `State`."""
        return self._state

    @property
    def session(self) -> Session:
        """The session being run. `session.state` is `ctx.state`."""
        if self._session is None:
            shown = None if self._reads is None else partial(self._reads.value, EVENTS)
            invocation = self._invocation
            self._session = run_session(invocation.live, invocation.history.start_seq, self._state, shown)
        return self._session

    @property
    def agent(self) -> BaseAgent:
        """The running agent. Running never changes it."""
        return self._agent

    @property
    def actions(self) -> ActionsDraft:
        """Actions to go with the next event of this context."""
        if self._draft is None:
            from ..flows._actions import ActionsDraft  # few programs set actions

            self._draft = ActionsDraft(delta=self._state_delta(), check=self._writable_check())
        return self._draft

    @property
    def end_invocation(self) -> bool:
        """Set it to True to end the whole invocation after the current step: no model, tool or agent is started."""
        return self._invocation.end_invocation

    @end_invocation.setter
    def end_invocation(self, value: bool) -> None:
        self._check_writable()
        self._invocation.end_invocation = value

    @property
    def escalated(self) -> bool:
        """Whether an event with `escalate` was stored since the innermost loop began its run: start nothing more."""
        return self._position.escalation.is_set

    async def emit(self, event: Event) -> Event:
        """
        Say *event*: store it, show it to the caller, and return it, stored, when the caller asks for the next one.

        What is missing is filled in (`id`, `timestamp`, `author`, `invocation_id`, `branch`, ids of calls), and the
        pending writes of this context go with it. A partial event is only shown; it carries no writes.

        If `emit` returns, the event is stored, at the durability of the service. If it raises `Cancelled`, it is not.
        If it raises StorageError, that is unknown until the session is opened again, except where the error says
        otherwise. Any other exception: it is not stored.

        Raises:
            InvocationEndedError: The invocation, or the tool call that this context belonged to, has ended.
            InvalidEventError, InvalidValueError, NotSupportedError: The event cannot be stored.
        """
        return await self._invocation.emitter.emit(self, event)

    # --- other contexts, which stand above this file

    def _detached(self, state: State) -> ContextBase:
        """The same position, for what is said out of the order of its logic; what that has written is below *state*."""
        raise NotImplementedError

    def _for_on_event(self, state: State) -> ContextBase:
        """The context of the hooks that look at an event from here; what they write is in *state*."""
        context = self._detached(state)
        context._closed = "an on_event callback looks at an event, it cannot emit another; write to the state instead"
        return context

    # --- who speaks, and under which id

    @property
    def _path(self) -> str:
        return self._position.path

    @property
    def _call_id(self) -> str | None:
        """The id of the call that this is for, if it is for one."""
        return None

    @property
    def _has_own_logic(self) -> bool:
        """Whether this is for an agent whose logic is run again when the invocation is resumed."""
        return self._reads is not None and self._call_id is None

    def _readonly(self) -> ReadonlyContext:
        return ReadonlyContext(self._invocation, self._agent, self._position, self._state)

    def _identify(self, event: Event, *, closing: bool) -> str:
        """
        Return the id of *event*: the same whenever the agents are run again.

        Raises:
            InvocationEndedError, SecretError, TypeError: It cannot be emitted here and now.
        """
        invocation = self._invocation
        if not isinstance(event, Event):
            msg = f"expected an Event, found {type(event).__name__}; write `Event(message=...)`"
            raise TypeError(msg)
        why = self._closed or invocation.ended
        if why:
            raise InvocationEndedError(why)
        if not closing and invocation.secrets.are_known:
            invocation.secrets.check_event(event, None, "user", self._agent.name)
        if event.id is not None:
            return event.id
        handled = sys.exception()
        if handled is not None and is_pause(handled):  # something that waits is unwound, in each run anew
            return self._following_id(f"{self._path}!{invocation.run_id}")
        step = STEP_ID.get()
        if self._is_in_order() and self._call_id is None:
            handling = "!handling" if handled is not None and self._has_own_logic else ""  # another run may not fail
            if handling and invocation.replayer is not None:
                following = derived_id(invocation.id, self._path, invocation.ids.counts.get(self._path, 0) + 1)
                said = invocation.replayer.record.find(following)
                handling = "" if said is not None and said.content == event.content else handling  # an older log
            return self._following_id(f"{self._path}{handling}" if step is None else f"{self._path}!{step}")
        # Of several tasks trio chooses which is first; and of several attempts none knows what the others have said.
        return self._claim(f"{self._path}!{step} {to_json(event)}")

    def _following_id(self, path: str) -> str:
        """Return the id of what is said next below *path*, where one thing follows another."""
        counts = self._invocation.ids.counts
        counts[path] = count = counts.get(path, 0) + 1
        return derived_id(self._invocation.id, path, count)

    def _claim(self, path: str) -> str:
        """Return the id of a step, a question or an event of this context, whatever order they come in."""
        claimed = self._invocation.ids.claim(path)
        self._claims.append(claimed)
        return claimed

    def _is_in_order(self) -> bool:
        """Whether the caller is the logic itself, where one thing follows another, and no task beside it."""
        return trio.lowlevel.current_task() in self._tasks

    def _is_alone(self) -> bool:
        """Whether nothing else goes on in this branch, so that one thing follows the other."""
        task = trio.lowlevel.current_task()
        has_children = any(nursery.child_tasks for nursery in task.child_nurseries)
        return task is self._position.main_task and not has_children

    # --- what is pending

    def _after_commit(self, event: Event, *, closing: bool) -> None:
        """Let a stored event of this context have its effect on what follows."""
        actions = event.actions
        self._conflicts = []
        if self._reads is not None and actions is not NO_ACTIONS:
            self._reads.written.update(writes_of(actions))
        if actions.end_invocation:
            self._invocation.end_invocation = True
        if actions.escalate:
            self._position.escalation.set()
        if actions.transfer_to_agent is not None and not closing:
            self._position.handover.transfer_to = actions.transfer_to_agent

    async def _flush(self, *, closing: bool = False) -> None:
        """Store what is pending, state and actions, and no event has carried, as an event of its own."""
        if closing and self._draft is not None:
            self._draft.transfer_to_agent = None
        lasting, temp = parted(self._state.pending())
        if lasting or self._has_actions():
            await self._invocation.emitter.emit(self, Event(), closing=closing)
        elif temp:
            self._state.take({}).commit()
            self._invocation.keep_temp(temp)

    def _has_actions(self) -> bool:
        """Whether actions wait for the next event of this context."""
        return not (self._draft is None or self._draft.is_empty())

    def _close(self, why: str) -> None:
        """Refuse everything from here on."""
        self._closed = why
        self._state.close(why)

    def _check_writable(self) -> None:
        """Raise InvocationEndedError unless what is done here now belongs to an invocation, or a call, that goes on."""
        _refuse_late(self._state, self._invocation)

    def _writable_check(self) -> Callable[[], None]:
        """The same for what the context holds, without the context: else the two would hold each other."""
        return partial(_refuse_late, self._state, self._invocation)

    def _state_delta(self) -> StateDelta:
        """The pending writes of this context, for its `actions`."""
        from ..sessions._state_delta import StateDelta  # few programs set actions

        return StateDelta(self._state)

    def _check_can_wait(self) -> None:
        """Raise where nobody can be asked."""
        if self._cannot_wait:
            raise NotSupportedError(f"nobody can be asked, and no time waited for, {self._cannot_wait}")


def _refuse_late(state: State, invocation: Invocation) -> None:
    if why := state.closed or invocation.ended:
        raise InvocationEndedError(why)
