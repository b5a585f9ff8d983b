"""
What agents, tools and callbacks hold: their view of the invocation, and their way to speak.

Every context of an invocation shares one `InvocationCore`. What differs is who is speaking (agent, branch, function
call) and the layer of pending state that belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import attrs

from .._json import freeze
from ..env import Env
from ..errors import (
    InvalidEventError,
    InvalidValueError,
    InvocationEndedError,
    LlmCallsLimitExceededError,
    ToolCallsLimitExceededError,
)
from ..events import Event
from ..sessions import Session
from ..sessions._live import LiveSession, run_session
from ..sessions._service import checked_event
from ..sessions._state import Scope, State, Values, Write, apply_write, scope_of, with_writes, writes_of
from ..types import Content, changed
from ._committer import Committer
from ._config import RunConfig
from ._escalation import Escalation

__all__ = [
    "ActionsDraft",
    "CallbackContext",
    "InvocationContext",
    "InvocationCore",
    "ReadonlyContext",
    "ToolContext",
]


def derived_id(*path: object) -> str:
    """An id of 24 letters and digits that depends on nothing but *path*."""
    return blake2b("\x1f".join(map(str, path)).encode(), digest_size=12).hexdigest()


class InvocationCore:
    """What all contexts of one invocation share. Not for applications."""

    def __init__(
        self,
        *,
        invocation_id: str,
        live: LiveSession,
        committer: Committer,
        run_config: RunConfig,
        user_content: Content | None,
        env: Env,
        temp: Mapping[str, Any],
        tool_limits: Any,
    ) -> None:
        self.invocation_id = invocation_id
        self.live = live
        self.committer = committer
        self.run_config = run_config
        self.user_content = user_content
        self.env = env
        self.start_seq = live.start_seq(run_config.get_session_config)
        self.values: Values = live.values.with_temp()
        self.values.temp.update(temp)
        self.end_invocation = False
        self.ended = ""  # why nothing can be emitted any more
        self.tool_limits = tool_limits  # tools._limits.ToolLimits; this layer does not know it
        self.call_ids: set[str] = set()  # that models have given in this invocation, stored or on their way
        self._counters: dict[str, int] = {}
        self._llm_calls = 0
        self._tool_calls = 0

    def next_id(self, path: str) -> str:
        """The next id below *path*: the same in every run of the same steps."""
        count = self._counters[path] = self._counters.get(path, 0) + 1
        return derived_id(self.invocation_id, path, count)

    def check_calls(self, event: Event) -> None:
        """Each call is new, each response answers a call that is open: so none is answered twice (promise P6)."""
        live = self.live
        for call in event.get_function_calls():
            if call.id in live.call_ids:
                msg = f"expected a new id for the call of {call.name!r}, found {call.id!r}, which the session has"
                raise InvalidEventError(msg)
        for response in event.get_function_responses():
            if response.id not in live.open_calls:
                msg = f"expected the response of {response.name!r} to answer an open call, found id {response.id!r}"
                raise InvalidEventError(msg)

    def count_llm_call(self) -> None:
        """Count a question to a model, before it is asked."""
        limit = self.run_config.max_llm_calls
        if 0 < limit <= self._llm_calls:
            msg = f"the invocation has asked models {limit} times; raise RunConfig.max_llm_calls, or look for a loop"
            raise LlmCallsLimitExceededError(msg)
        self._llm_calls += 1

    def count_tool_calls(self, calls: int) -> None:
        """Count function calls, before they are made."""
        limit = self.run_config.max_tool_calls
        if 0 < limit < self._tool_calls + calls:
            msg = f"the invocation may call tools {limit} times; raise RunConfig.max_tool_calls, or look for a loop"
            raise ToolCallsLimitExceededError(msg)
        self._tool_calls += calls


@attrs.define
class ActionsDraft:
    """
    Actions to go with the next event of this context. For state write to `ctx.state`.

    `skip_summarization`: the tool's answer is shown as it is, and the model is not asked again. `escalate`: the
    enclosing loop is to end.
    """

    skip_summarization: bool | None = None
    escalate: bool | None = None


class ReadonlyContext:
    """What instruction functions get: to look at, not to change."""

    def __init__(self, core: InvocationCore, agent: Any, branch: str | None, state: State) -> None:
        self._core = core
        self._agent = agent
        self._branch = branch
        self._state = state

    @property
    def state(self) -> Mapping[str, Any]:
        """The state as this agent sees it, pending writes included."""
        return MappingProxyType(self._state)

    @property
    def invocation_id(self) -> str:
        """The id of the running invocation; all its events carry it."""
        return self._core.invocation_id

    @property
    def agent_name(self) -> str:
        """The name of the running agent."""
        name: str = self._agent.name
        return name

    @property
    def app_name(self) -> str:
        """The app the session belongs to."""
        return self._core.live.key.app_name

    @property
    def user_id(self) -> str:
        """The user the session belongs to."""
        return self._core.live.key.user_id

    @property
    def branch(self) -> str | None:
        """Which part of the agent tree this is, as a dotted path; None at the root."""
        return self._branch

    @property
    def user_content(self) -> Content | None:
        """The message that began the invocation."""
        return self._core.user_content

    @property
    def run_config(self) -> RunConfig:
        """The settings of the run."""
        return self._core.run_config


class _WritingContext(ReadonlyContext):
    """A context whose holder may write state and emit events."""

    def __init__(
        self,
        core: InvocationCore,
        agent: Any,
        branch: str | None,
        state: State,
        path: str,
        escalation: Escalation,
    ) -> None:
        super().__init__(core, agent, branch, state)
        self._path = path
        self._escalation = escalation
        self._session: Session | None = None
        self._closed = ""
        self.actions = ActionsDraft()

    @property
    def state(self) -> State:
        """The session's state, with the pending writes of this context; see `State`."""
        return self._state

    @property
    def session(self) -> Session:
        """The session being run. `session.state` is `ctx.state`."""
        if self._session is None:
            self._session = run_session(self._core.live, self._core.start_seq, self._state)
        return self._session

    @property
    def agent(self) -> Any:
        """The running agent. Running never changes it."""
        return self._agent

    @property
    def end_invocation(self) -> bool:
        """Set it to True to end the whole invocation after the current step: no model, tool or agent is started."""
        return self._core.end_invocation

    @end_invocation.setter
    def end_invocation(self, value: bool) -> None:
        self._core.end_invocation = value

    @property
    def escalated(self) -> bool:
        """Whether an event with `escalate` was stored since the innermost loop began its run: start nothing more."""
        return self._escalation.is_set

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
        return await self._emit(event)

    # --- for the runtime

    async def _emit(self, event: Event, *, closing: bool = False) -> Event:
        core = self._core
        self._check_open(event)
        if event.partial:
            shown = self._completed(event, event.actions)
            await core.committer.emit_partial(shown)
            return shown
        await core.env.point(f"emit {self._path}")
        flight = self._state.take(writes_of(event.actions))
        applied = False

        def apply() -> None:
            nonlocal applied
            applied = True
            flight.land()
            self._keep_temp(flight.writes)

        try:
            self._check_temp(flight.writes)
            lasting = {key: write for key, write in flight.writes.items() if scope_of(key) is not Scope.TEMP}
            complete = checked_event(self._completed(event, self._with_draft(with_writes(event.actions, lasting))))
            result = await core.committer.emit(complete, apply, closing=closing)
        finally:
            if not applied:
                flight.back()
        self.actions = ActionsDraft()
        if result.actions.escalate:
            self._escalation.set()
        return result

    async def _flush(self) -> None:
        """Store what is pending and no event has carried, as an event of its own."""
        pending = self._state.pending()
        if any(scope_of(key) is not Scope.TEMP for key in pending):
            await self._emit(Event())
        elif pending:
            flight = self._state.take({})
            flight.land()
            self._keep_temp(flight.writes)

    def _close(self, why: str) -> None:
        """Refuse everything from here on."""
        self._closed = why
        self._state.close(why)

    def _check_open(self, event: object) -> None:
        if not isinstance(event, Event):
            msg = f"expected an Event, found {type(event).__name__}; write `Event(message=...)`"
            raise TypeError(msg)
        why = self._closed or self._core.ended
        if why:
            raise InvocationEndedError(why)

    def _completed(self, event: Event, actions: Any) -> Event:
        core = self._core
        if event.invocation_id not in (None, core.invocation_id):
            msg = f"expected no invocation_id, or {core.invocation_id!r}, found {event.invocation_id!r}"
            raise InvalidEventError(msg)
        metadata = event.custom_metadata
        if core.run_config.custom_metadata:
            metadata = freeze({**core.run_config.custom_metadata, **(metadata or {})})
        event_id = event.id or core.next_id(self._path)
        return changed(
            event,
            id=event_id,
            invocation_id=core.invocation_id,
            author=event.author or self._agent.name,
            branch=event.branch or self._branch,
            content=event.content if event.partial else _with_call_ids(event.content, event_id),
            actions=actions,
            custom_metadata=metadata,
        )

    def _with_draft(self, actions: Any) -> Any:
        draft = {name: value for name, value in attrs.asdict(self.actions).items() if value is not None}
        return changed(actions, **draft) if draft else actions

    def _check_temp(self, writes: Mapping[str, Write]) -> None:
        """Refuse an operation that does not fit before the event is stored."""
        values = self._core.values
        for key, write in writes.items():
            if scope_of(key) is Scope.TEMP:
                apply_write(key, values.get(key), write)

    def _keep_temp(self, writes: Mapping[str, Write]) -> None:
        values = self._core.values
        for key, write in writes.items():
            if scope_of(key) is Scope.TEMP:
                try:
                    values.apply({key: apply_write(key, values.get(key), write)})
                except InvalidValueError:
                    pass  # a sibling has changed its kind since this was checked; the event is stored


class InvocationContext(_WritingContext):
    """What an agent gets when it runs."""

    @classmethod
    def root(cls, core: InvocationCore, agent: Any) -> InvocationContext:
        """The context that a run begins with."""
        return cls(core, agent, None, State(core.values), "run", Escalation())

    def _for_agent(self, agent: Any) -> InvocationContext:
        """The context of an agent that this one calls."""
        path = f"{self._path}/{agent.name}"
        return InvocationContext(self._core, agent, self._branch, self._state.layer(), path, self._escalation)

    def _in_branch(self, branch: str) -> InvocationContext:
        """The same context, for agents that run in a branch of their own."""
        return InvocationContext(self._core, self._agent, branch, self._state, self._path, self._escalation)

    def _in_loop(self) -> InvocationContext:
        """The same context, for agents whose escalation ends a loop and nothing beyond."""
        return InvocationContext(self._core, self._agent, self._branch, self._state, self._path, Escalation())

    def _readonly(self) -> ReadonlyContext:
        return ReadonlyContext(self._core, self._agent, self._branch, self._state)

    def _for_call(self, call_id: str, name: str) -> ToolContext:
        """The context of a tool that this agent calls."""
        path = f"{self._path}/{name}#{call_id}"
        return ToolContext(self._core, self._agent, self._branch, self._state.layer(), path, self._escalation, call_id)


class ToolContext(_WritingContext):
    """
    What a tool gets. `function_call_id` is also an idempotency key: it is stored before the tool starts, and is the
    same whenever this call is made again.
    """

    def __init__(
        self,
        core: InvocationCore,
        agent: Any,
        branch: str | None,
        state: State,
        path: str,
        escalation: Escalation,
        function_call_id: str,
    ) -> None:
        super().__init__(core, agent, branch, state, path, escalation)
        self.function_call_id = function_call_id
        self.late: Any = None  # how a cancelled call ended after all; see tools/_function.py


CallbackContext = ToolContext


def _with_call_ids(content: Content | None, event_id: str) -> Content | None:
    if content is None or all(p.function_call is None or p.function_call.id is not None for p in content.parts):
        return content
    parts = []
    for place, part in enumerate(content.parts):
        if part.function_call is not None and part.function_call.id is None:
            call = changed(part.function_call, id=f"call-{derived_id(event_id, place)}")
            part = changed(part, function_call=call)
        parts.append(part)
    return changed(content, parts=tuple(parts))
