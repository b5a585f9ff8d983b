"""
What agents, tools and callbacks hold: their view of the invocation, and their way to speak.

Every context of an invocation shares one `InvocationCore`. What differs is who is speaking (agent, branch, function
call) and the layer of pending state that belongs to it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._codec import event_to_json
from .._json import freeze
from .._record import Record
from .._values import changed
from ..errors import (
    ConfigurationError,
    InvalidEventError,
    InvalidValueError,
    InvocationEndedError,
)
from ..events import READS_LEVEL, Event, EventActions
from ..sessions import InvocationStatus, Session
from ..sessions._event_checks import checked_event
from ..sessions._run_session import run_session
from ..sessions._state import Scope, State, Write, apply_write, scope_of, with_writes, writes_of
from ..types import Content, Part
from ._commits import CommitTimer, CommitWatcher
from ._config import RunConfig
from ._core import InvocationCore, derived_id
from ._durable import STEP_KEY, ask_for_input, run_step, sleep_until
from ._escalation import Escalation
from ._failure import is_pause
from ._on_event import heard
from ._place import Control, Inside, Place, Region
from ._reads import EVENTS, Reads
from ._threads import LateOutcome

if TYPE_CHECKING:
    from ..artifacts import ArtifactReader, ArtifactVersion, Chunks
    from ..credentials import AuthConfig, AuthCredential
    from ..memory import MemoryEntry, SearchMemoryResponse

__all__ = [
    "ActionsDraft",
    "CallbackContext",
    "InvocationContext",
    "ReadonlyContext",
    "ToolConfirmation",
    "ToolContext",
]


EMPTY: Mapping[str, Any] = MappingProxyType({})


@attrs.define
class ActionsDraft:
    """
    Actions to go with the next event of this context. For state write to `ctx.state`.

    `skip_summarization`: the tool's answer is shown as it is, and the model is not asked again. `escalate`: the
    enclosing loop is to end. `transfer_to_agent`: the name of the agent that takes over when this one has ended.
    `artifact_delta`: the versions of artifacts that the event names; `save_artifact` puts its own there.
    """

    skip_summarization: bool | None = None
    escalate: bool | None = None
    transfer_to_agent: str | None = None
    artifact_delta: Mapping[str, int] = EMPTY
    _saved: Mapping[str, frozenset[int]] = EMPTY  # all that was saved
    _saves: Mapping[str, int] = EMPTY  # the same, by the id of the save, for who runs a tool again

    def clear(self) -> None:
        """An event has carried them."""
        self.skip_summarization = self.escalate = self.transfer_to_agent = None
        self.forget_artifacts()

    def forget_artifacts(self) -> None:
        """An event has named them."""
        self.artifact_delta = self._saved = self._saves = EMPTY

    def take_over_artifacts(self, other: ActionsDraft) -> None:
        """What *other* names goes with this; the newest version of each."""
        newest = {
            name: max(number, self.artifact_delta.get(name, number)) for name, number in other.artifact_delta.items()
        }
        self.artifact_delta = {**self.artifact_delta, **newest}
        self.keep_saved(other)

    def keep_saved(self, other: ActionsDraft) -> None:
        """The event names all that *other* has saved, as versions that are not the newest."""
        more = {name: numbers | self._saved.get(name, frozenset()) for name, numbers in other._saved.items()}
        self._saved = {**self._saved, **more}

    def saved(self, filename: str, number: int, save_id: str | None) -> None:
        """A version was saved: it is the newest of its name."""
        self._saved = {**self._saved, filename: self._saved.get(filename, frozenset()) | {number}}
        newest = max(number, self.artifact_delta.get(filename, number))
        self.artifact_delta = {**self.artifact_delta, filename: newest}
        if save_id is not None:
            self._saves = {**self._saves, save_id: number}

    def deleted(self, filename: str) -> None:
        """All versions of an artifact were deleted."""
        self.artifact_delta = {name: number for name, number in self.artifact_delta.items() if name != filename}
        self._saved = {name: numbers for name, numbers in self._saved.items() if name != filename}

    def saved_since(self, earlier: ActionsDraft) -> dict[str, frozenset[int]]:
        """What was saved since this was the same as *earlier*."""
        return {name: numbers - earlier._saved.get(name, frozenset()) for name, numbers in self._saved.items()}

    def is_empty(self) -> bool:
        """Whether nothing has been set."""
        says_nothing = self.skip_summarization is None and self.escalate is None and self.transfer_to_agent is None
        return says_nothing and not (self.artifact_delta or self._saved)

    def on(self, actions: EventActions) -> EventActions:
        """What an event does that had *actions* of its own."""
        if self.is_empty():
            return actions
        flags = {name: value for name, value in self._flags().items() if value is not None}
        return self.named_in(changed(actions, **flags) if flags else actions)

    def named_in(self, actions: EventActions) -> EventActions:
        """What an event does that had *actions* of its own, which name other versions, or the same artifacts later."""
        if not (self.artifact_delta or self._saved):
            return actions
        delta = {**self.artifact_delta, **actions.artifact_delta}
        others = {name: sorted(numbers - {delta.get(name)}) for name, numbers in self._saved.items()}
        versions = {**{name: numbers for name, numbers in others.items() if numbers}, **actions.artifact_versions}
        return changed(actions, artifact_delta=freeze(delta), artifact_versions=freeze(versions))

    def _flags(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("skip_summarization", "escalate", "transfer_to_agent")}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ToolConfirmation(Record):
    """A question whether a tool may do what it was called for, and what somebody has answered."""

    hint: str = ""
    confirmed: bool = False
    payload: Any = None


class ReadonlyContext:
    """What instruction functions get: to look at, not to change."""

    def __init__(self, core: InvocationCore, agent: Any, place: Place, state: State) -> None:
        self._core = core
        self._agent = agent
        self._place = place
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
    def is_resumed(self) -> bool:
        """Whether this run goes on with an invocation that an earlier one has begun."""
        return self._core.journal is not None

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
        return self._place.branch

    @property
    def user_content(self) -> Content | None:
        """The message that began the invocation; inside an agent that is used as a tool, what it was asked."""
        inside = self._place.inside
        return self._core.user_content if inside is None else inside.content

    @property
    def run_config(self) -> RunConfig:
        """The settings of the run."""
        return self._core.run_config


class _WritingContext(ReadonlyContext):
    """A context whose holder may write state and emit events."""

    def __init__(
        self, core: InvocationCore, agent: Any, place: Place, state: State, reads: Reads | None = None
    ) -> None:
        """With *reads*, what is read is recorded, and there is a layer of its own on top of *state*."""
        if reads is not None:
            place = changed(place, readers=(*place.readers, reads))
            state = state.layer(reads.seen)
        super().__init__(core, agent, place, state)
        self._reads = reads
        self._session: Session | None = None
        self._closed = ""
        self._cannot_wait = ""  # why nobody can be asked from here
        self._tasks = {trio.lowlevel.current_task()}  # that its logic runs in, unless it starts others
        self._claims: list[str] = []  # the ids of its steps and questions
        self._is_aside = False  # whether what is emitted here is not said again when the agents are run again
        self._conflicts: list[str] = []  # keys that the next event has to name
        self.actions = ActionsDraft()

    @property
    def _path(self) -> str:
        return self._place.path

    @property
    def _has_own_logic(self) -> bool:
        """Whether this is for an agent whose logic is run again when the invocation goes on."""
        return self._reads is not None and self._call_id() is None

    @property
    def state(self) -> State:
        """The session's state, with the pending writes of this context; see `State`."""
        return self._state

    @property
    def session(self) -> Session:
        """The session being run. `session.state` is `ctx.state`."""
        if self._session is None:
            seen = None if self._reads is None else partial(self._reads.seen, EVENTS)
            self._session = run_session(self._core.live, self._core.start_seq, self._state, seen)
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
        return self._place.escalation.is_set

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

    async def progress(self, message: str, *, fraction: float | None = None) -> None:
        """
        Show the caller of the run what is going on: a partial event without content, which is not stored.

        Its `custom_metadata["progress"]` has the *message*, the *fraction* (0.0 to 1.0) if there is one, and the
        `function_call_id` of a tool. Waits while `RunConfig.partial_buffer` partial events are unread.

        Raises:
            InvalidValueError: *message* is no text, or *fraction* not such a number.
        """
        if not isinstance(message, str):
            raise InvalidValueError("message", f"expected a text, found {message!r:.80}")
        is_number = isinstance(fraction, (int, float)) and not isinstance(fraction, bool)
        if fraction is not None and not (is_number and 0 <= fraction <= 1):
            raise InvalidValueError("fraction", f"expected a number from 0 to 1, found {fraction!r:.80}")
        told = {"message": message, "fraction": fraction, "function_call_id": self._call_id()}
        progress = {name: value for name, value in told.items() if value is not None}
        await self._emit(Event(partial=True, custom_metadata={"progress": progress}))

    async def step(self, name: str, work: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """
        Do something once: `receipt = await ctx.step("charge", charge, order_id)`.

        Its result is stored as an event. An invocation that is resumed gets the result that is stored, and *work* is
        not called again. If the process dies between its effect and the store, it is called again: `idempotency_key`,
        inside of it, is the same then if the arguments are; so let those that others may change come from an event or
        a step before. Steps are told apart by the agent's place in the tree, their name, their arguments, and how often
        the agent has taken such a one. What *work* raises is recorded, too, and raised again from its type and `args`.
        A synchronous function runs in a worker thread; if the run is left meanwhile,
        the thread is waited for as long as that of a tool, and what it has come to by then is stored.

        Returns:
            The result, frozen: the same object shape as after a resume.

        Raises:
            InvalidValueError: The arguments or the result are no JSON.
            ReplayError: Something else is recorded in its place.
        """
        self._core.secrets.check_name(name, "name of the step")
        return await run_step(self, name, work, args, named)

    async def sleep_until(self, when: float) -> None:
        """
        Wait until the wall clock shows *when*, in seconds since the epoch: the invocation is paused until then.

        Nothing waits in this process. `Runner.resume_due` or `Runner.supervise` goes on with what is due; the agent is
        then run from its start, and what it has said and its steps are taken from the log.

        Raises:
            InvalidValueError: *when* is not such a number.
        """
        await sleep_until(self, when)

    async def request_input(self, message: str, *, response_schema: Any = None, payload: Any = None) -> Any:
        """
        Ask somebody outside, and return the answer; until there is one the invocation is paused.

        The question is one of `run.pending`; whoever has an answer sends `pending.reply(answer)` as the new message.
        The agent, or the tool, is then run from its start, and what it has said and its steps are taken from the log.
        What it waits with is no `Exception`: whoever catches it all the same, with `except BaseException`, gives the
        question up.

        Args:
            message: The question.
            response_schema: The form of the answer, as for `LlmAgent(output_schema=...)`. What does not fit is refused
                before it is stored, and can be given again.
            payload: Any JSON value for whoever shows the question.
        """
        return await ask_for_input(self, message, response_schema, payload)

    # --- artifacts; what few runs use is imported by the methods that do, here and below

    async def save_artifact(
        self, filename: str, artifact: Part, custom_metadata: Mapping[str, Any] | None = None
    ) -> int:
        """
        Store a part as the next version of an artifact of this session and return the version's number, from 0.

        The version is named in the `artifact_delta` of an event: an agent's own logic says it at once, as a step, and
        does not save again when it is resumed; of a tool it is the event with its result, of a callback the next one.
        What a failed attempt of a tool has saved is named by none. An artifact service that shares the file of the
        session service shows a version to others with that event and not before; others show it at once.

        Args:
            filename: A relative path; with `user:` before it the artifact belongs to the user, in all sessions.
            artifact: A part with text, bytes, or the URI of a file, of which the URI is kept.
            custom_metadata: A JSON object to be kept with the version.

        Raises:
            InvalidValueError: The name cannot be one, or the artifact is nothing that can be kept.
            SecretError: There is a secret in it that this run was given.
            ServiceNotConfiguredError: The runner has no artifact service.
            StorageError: The store failed.
        """
        from ._artifacts import check_artifact, save_artifact

        check_artifact(self, filename, artifact, custom_metadata)
        return await save_artifact(self, filename, self._core.artifacts.to_save(filename, artifact, custom_metadata))

    async def save_artifact_stream(
        self,
        filename: str,
        chunks: Chunks,
        mime_type: str = "application/octet-stream",
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """
        Store bytes that come in *chunks*, from an iterable or an async one; else as `save_artifact`.

        It loads as a part with `inline_data`. An error of the chunks is raised as it is, and leaves no version. The
        chunks are not searched for secrets.
        """
        from ._artifacts import check_artifact, save_artifact

        check_artifact(self, filename, None, custom_metadata)
        save = self._core.artifacts.to_save_stream(filename, chunks, mime_type, custom_metadata)
        return await save_artifact(self, filename, save)

    async def load_artifact(self, filename: str, version: int | None = None) -> Part | None:
        """
        Return the part of a version, by default the newest; None if there is no such version.

        What this run has saved is there, whatever event will name it.

        Raises:
            InvalidValueError: The name or the number cannot be one.
            ServiceNotConfiguredError: The runner has no artifact service.
            StorageCorruptError: What is stored is not what was saved.
        """
        from ._artifacts import load_artifact

        return await load_artifact(self, filename, version)

    @asynccontextmanager
    async def open_artifact(self, filename: str, version: int | None = None) -> AsyncIterator[ArtifactReader | None]:
        """Open a version, by default the newest, to be read in chunks; None if there is no such version."""
        from ._artifacts import open_artifact

        async with await open_artifact(self, filename, version) as reader:
            yield reader

    async def list_artifacts(self) -> list[str]:
        """Return the names of the session's artifacts and of its user's, sorted."""
        from ._artifacts import list_artifacts

        return await list_artifacts(self)

    async def get_artifact_version(self, filename: str, version: int | None = None) -> ArtifactVersion | None:
        """Return what is known of a version, by default the newest; None if there is no such version."""
        from ._artifacts import artifact_version

        return await artifact_version(self, filename, version)

    async def delete_artifact(self, filename: str) -> None:
        """Delete all versions of an artifact, at once; events that name them name nothing any more."""
        from ._artifacts import delete_artifact

        await delete_artifact(self, filename)

    # --- memory

    async def search_memory(
        self, query: str, *, limit: int | None = None, filter: Mapping[str, Any] | None = None
    ) -> SearchMemoryResponse:
        """
        Return what is remembered of the user and fits *query* best; see `BaseMemoryService.search_memory`.

        An agent's own logic, and a tool, get the same answer when they are run again: it is stored with their next
        event.

        Raises:
            InvalidValueError: An argument cannot be one.
            ServiceNotConfiguredError: The runner has no memory service.
            StorageError: The store failed.
        """
        from ._memory import search_memory

        return await search_memory(self, query, limit, filter)

    async def add_session_to_memory(self) -> None:
        """Remember what was said in the session, as far as this context sees it; what is known already stays."""
        from ._memory import add_events_to_memory

        await add_events_to_memory(self, self.session.events, None)

    async def add_events_to_memory(
        self, events: Iterable[Event], *, custom_metadata: Mapping[str, Any] | None = None
    ) -> None:
        """
        Remember what was said in some stored events of the session; see `BaseMemoryService.add_events_to_memory`.

        Raises:
            InvalidValueError: An argument cannot be one.
            InvocationEndedError: The invocation, or the tool call that this context belonged to, has ended.
            ServiceNotConfiguredError: The runner has no memory service.
        """
        from ._memory import add_events_to_memory

        await add_events_to_memory(self, events, custom_metadata)

    async def add_memory(
        self,
        memories: Iterable[MemoryEntry | Content | str],
        *,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """
        Remember something of the user that is no event, at once, and return its ids; see `BaseMemoryService`.

        What comes without an id or a time gets an id that is the same whenever this context adds the same, and the
        time at which the invocation began: what is run again adds nothing twice, and nothing that was deleted since.

        Raises:
            InvalidValueError: An argument cannot be one.
            SecretError: There is a secret in it that this run was given.
            InvocationEndedError: The invocation, or the tool call that this context belonged to, has ended.
            ServiceNotConfiguredError: The runner has no memory service.
        """
        from ._memory import add_memory

        return await add_memory(self, memories, custom_metadata)

    # --- credentials

    async def request_credential(self, auth_config: AuthConfig) -> AuthCredential:
        """
        Return the user's credential; if there is none that works, ask for it, and pause the invocation until there is.

        The question is one of `run.pending`, of the kind `"credential"`. The secret is never part of a message: who has
        it saves it, and answers that it is there (`Runner.provide_credential` does both), or `pending.reply(False)`.
        The agent, or the tool, is then run from its start, as with `request_input`.

        Nothing of the credential is recorded. So logic that is run again may get another one than before, and one that
        has expired since, or was deleted, is asked for again. Use it to get in somewhere, and decide nothing by it.

        From then on the run says `[secret]` in its place, in texts and values of events and logs. It is refused
        (SecretError) in what is written to `ctx.state`, in artifacts and memories, and in new names. A secret of fewer
        than 8 characters is found only where it is a whole text, as a part of one it is *not*; one of 6 digits or
        more is found as a number, a shorter one is not. What is encoded, or cut into pieces, is not found.

        Raises:
            CredentialRefusedError: There will be none. In a tool, the model is told.
            ServiceNotConfiguredError: The Runner has no credential service.
            CredentialServiceError: The service has failed.
        """
        from ._credentials import request_credential

        return await request_credential(self, auth_config)

    async def load_credential(self, auth_config: AuthConfig) -> AuthCredential | None:
        """
        Return the user's credential if there is one that works; nobody is asked, and nothing recorded.

        Raises:
            ServiceNotConfiguredError: The Runner has no credential service.
            CredentialServiceError: The service has failed.
        """
        from ._credentials import load_credential

        return await load_credential(self, auth_config)

    async def save_credential(self, auth_config: AuthConfig, credential: AuthCredential) -> None:
        """
        Keep a credential for the user, such as one that was renewed. Nothing is recorded of it.

        Raises:
            InvalidValueError: It is not what *auth_config* asks for, or has expired.
            ServiceNotConfiguredError: The Runner has no credential service.
            CredentialServiceError: The service has failed, and may have it or not.
        """
        from ._credentials import save_credential

        await save_credential(self, auth_config, credential)

    @property
    def idempotency_key(self) -> str:
        """What this step, or this call of a tool, has for itself, and keeps if it is done again."""
        key = STEP_KEY.get(None) or self._call_id()
        if key is None:
            raise InvocationEndedError("only a step and the call of a tool have an idempotency key; use `ctx.step`")
        return key

    # --- for the runtime

    def _readonly(self) -> ReadonlyContext:
        return ReadonlyContext(self._core, self._agent, self._place, self._state)

    def _is_in_order(self) -> bool:
        """Whether the caller is the logic itself, where one thing follows another, and no task beside it."""
        return trio.lowlevel.current_task() in self._tasks

    def _call_id(self) -> str | None:
        return None

    def _to_be_said(self, event: Event, *, closing: bool = False) -> Event:
        """*event* with an id, if it may be said here and now."""
        self._check_open(event)
        if not closing:
            self._core.secrets.check_event(event, None, "user", self._agent.name)
        return changed(event, id=self._id_of(event)) if event.id is None else event

    async def _emit(self, event: Event, *, closing: bool = False) -> Event:
        core = self._core
        event = self._to_be_said(event, closing=closing)
        assert event.id is not None
        if event.partial:
            return await self._show(event)
        recorded = core.find(event.id)
        if recorded is not None:
            return await self._replay(recorded, writes_of(event.actions))
        is_aside = closing or self._is_aside or STEP_KEY.get(None) is not None or is_pause(sys.exception())
        if not is_aside:
            await self._go_beyond(f"an event of {self._path}")
        await core.env.point(f"emit {self._path}")
        if closing:
            self.actions.transfer_to_agent = None  # nobody takes over any more
        flight = self._state.take(writes_of(event.actions))
        reads = {reader: fresh for reader in self._place.readers if (fresh := reader.fresh())}
        timer = CommitTimer() if core.commit_watchers else None
        applied = False

        def apply() -> None:
            nonlocal applied
            applied = True
            if timer is not None:
                timer.is_stored(core.committer.unread)
            flight.land()
            for reader, fresh in reads.items():
                reader.settle(fresh)
            self._keep_temp(flight.writes)
            for region, branch in self._place.regions:
                region.wrote(branch, lasting)

        def finish(event: Event) -> Event:
            if timer is not None:
                timer.has_turn()
            return self._with_conflicts(event, lasting)

        lasting: Mapping[str, Write] = {}
        try:
            self._check_temp(flight.writes)
            lasting = _lasting(flight.writes)
            actions = _with_notes(
                with_writes(event.actions, lasting), is_aside=is_aside, reads=reads, saves=self.actions._saves
            )
            complete = checked_event(core.secrets.out_of_event(self._completed(event, self._with_draft(actions))))
            if "on_event_callback" in core.plugins:
                complete, writes = await self._heard(complete, self._state.layer(), closing=closing)
                temp = {key: write for key, write in flight.writes.items() if key not in lasting}
                flight.writes, lasting = {**temp, **writes}, _lasting(writes)
                complete = changed(complete, actions=with_writes(complete.actions, lasting))
            if complete.actions.artifact_delta or complete.actions.artifact_versions:
                complete = changed(complete, actions=await core.artifacts.checked(complete.actions))
            target = None if closing else complete.actions.transfer_to_agent
            if target is not None:
                if complete.actions.escalate:
                    msg = "expected an event that escalates or hands over, found one that does both; nobody takes over"
                    raise InvalidEventError(msg)
                self._place.tree.check_transfer(self._agent, target)
                core.count_transfer()
            result = await core.committer.emit(complete, apply, finish, closing=closing)
        finally:
            if not applied:
                flight.back()
        self._said(result, closing=closing)
        if timer is not None:
            core.tell_commit(timer, result)
        if self._call_id() is not None:
            core.steps[event.id] = result
        return result

    async def _show(self, event: Event) -> Event:
        """Show a partial event to the caller, unless that was done when it was said first."""
        core = self._core
        if core.journal is not None and core.journal.first_ahead(self._place.branch) is not None:
            await trio.lowlevel.checkpoint()
            return event
        shown = core.secrets.out_of_event(self._completed(event, event.actions))
        if "on_event_callback" in core.plugins:
            state = self._state.layer()
            shown, _ = await self._heard(shown, state)
            self._state.merge(state.pending())
        await core.committer.emit_partial(shown)
        return shown

    def _said(self, event: Event, *, closing: bool = False) -> None:
        """What a stored event means for who goes on."""
        self.actions.clear()
        self._conflicts = []
        if self._reads is not None:
            self._reads.wrote(writes_of(event.actions))
        if event.actions.end_invocation:
            self._core.end_invocation = True
        if event.actions.escalate:
            self._place.escalation.set()
        if event.actions.transfer_to_agent is not None and not closing:
            self._place.control.transfer_to = event.actions.transfer_to_agent

    async def _replay(self, recorded: Event, own: Mapping[str, Write] = EMPTY) -> Event:
        """Come to what was said here before: it is stored, and nobody is shown it again."""
        core = self._core
        await trio.lowlevel.checkpoint()
        if core.journal is not None:
            await core.journal.turn(recorded.branch, recorded.seq or 0)
            core.journal.advance(recorded)
        flight = self._state.take(own)
        flight.land()
        self._keep_temp(flight.writes)
        if recorded.actions.transfer_to_agent is not None:
            core.count_transfer()
        self._said(recorded)
        return recorded

    def _next_id(self) -> str:
        """The id of what is said next: the same when the agents are run again, whatever is taken from the log."""
        step = STEP_KEY.get(None)
        return self._core.next_id(self._path if step is None else f"{self._path}!{step}")

    def _id_of(self, event: Event) -> str:
        """What *event* is to be known by: the same whenever the agents are run again and come to it."""
        if is_pause(sys.exception()):  # it is said while something that waits is unwound, and that in each run
            return self._core.next_id(f"{self._path}!{self._core.run_id}")
        if self._is_in_order() and self._call_id() is None:
            return self._next_id()
        # Of several tasks trio chooses which is first; and of several attempts none knows what the others have said.
        return self._claim(f"{self._path}!{STEP_KEY.get(None)} {event_to_json(event)}")

    async def _go_beyond(self, what: str) -> None:
        """
        Something is about to be done that is not recorded; others first come to what they have done.

        Raises:
            ReplayError: Something else is recorded in its place.
        """
        journal, branch = self._core.journal, self._place.branch
        if journal is None:
            return
        await trio.lowlevel.checkpoint_if_cancelled()
        await journal.turn(branch, self._core.live.revision + 1)
        if self._is_alone() and STEP_KEY.get(None) is None:
            journal.check_nothing_ahead(branch, what)
        journal.has_caught_up = True
        if not self._is_aside:  # a tool says nothing about what the agent comes to, nor other tools of its turn
            journal.catch_up(branch)

    def _beside(self) -> InvocationContext:
        """The same place, for what is said out of the order of its logic: what the logic has written stays with it."""
        context = InvocationContext(self._core, self._agent, self._place, self._state.layer())
        context._is_aside = True
        return context

    def _claim(self, path: str) -> str:
        """The id of a step or a question of this context."""
        claimed = self._core.claim(path)
        self._claims.append(claimed)
        return claimed

    def _start_over(self) -> None:
        """The logic is called once more: it comes to the same steps and questions."""
        core = self._core
        core.claimed.difference_update(self._claims)
        found = ((claimed, core.find(claimed)) for claimed in self._claims)
        core.overcome.update(claimed for claimed, event in found if event is not None and event.error_code is not None)
        self._claims.clear()

    def _is_behind(self) -> bool:
        """Whether what this context is for was done before: an agent comes to it again, and it has asked nothing."""
        journal = self._core.journal
        return journal is not None and journal.is_replaying(self.branch) and not journal.is_waiting(self._path)

    def _is_alone(self) -> bool:
        """Whether nothing else goes on in this branch, so that one thing follows the other."""
        task = trio.lowlevel.current_task()
        return task is self._place.strand and not any(nursery.child_tasks for nursery in task.child_nurseries)

    async def _replay_next(self) -> Event | None:
        """The next event that is recorded of this context, which is then behind it; None if there is none."""
        core = self._core
        recorded = None if core.journal is None else core.journal.find(core.next_id(self._path))
        return None if recorded is None else await self._replay(recorded)

    async def _heard(self, event: Event, state: State, *, closing: bool = False) -> tuple[Event, Mapping[str, Write]]:
        """What the plugins make of an event, and all that it writes; they write to *state*."""
        context = InvocationContext(self._core, self._agent, self._place, state)
        context._closed = "an on_event callback looks at an event, it cannot emit another; write to the state instead"
        return await heard(self._core.plugins["on_event_callback"], context, event, closing=closing)

    def _with_conflicts(self, event: Event, writes: Mapping[str, Write]) -> Event:
        keys = [key for key in self._conflicts if scope_of(key) is not Scope.TEMP]
        for region, branch in self._place.regions:
            keys += region.conflicts(branch, writes)
        if not keys:
            return event
        return changed(event, actions=changed(event.actions, state_conflicts=tuple(sorted(set(keys)))))

    async def _flush(self, *, closing: bool = False) -> None:
        """Store what is pending, state and actions, and no event has carried, as an event of its own."""
        if closing:
            self.actions.transfer_to_agent = None
        pending = self._state.pending()
        if _lasting(pending) or not self.actions.is_empty():
            await self._emit(Event(), closing=closing)
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

    def _check_writable(self) -> None:
        """Raise unless writes that are made here now go with an event."""
        why = self._state.closed or self._core.ended
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
        assert event.id is not None
        content = event.content if event.partial else _with_call_ids(event.content, event.id)
        branch = event.branch or self._place.branch
        is_as_before = actions is event.actions and content is event.content and metadata is event.custom_metadata
        if is_as_before and event.author and event.invocation_id is not None and event.branch == branch:
            return event
        return changed(
            event,
            invocation_id=core.invocation_id,
            author=event.author or self._agent.name,
            branch=branch,
            content=content,
            actions=actions,
            custom_metadata=metadata,
        )

    def _with_draft(self, actions: EventActions) -> EventActions:
        actions = self.actions.on(actions)
        return changed(actions, end_invocation=True) if self._core.end_invocation else actions

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

    @property
    def status(self) -> InvocationStatus:
        """
        `running`; for the hooks at the end of a run, how it ends: `run.status`, unless something else fails after them.
        """
        return self._core.status

    def watch_commits(self, watcher: CommitWatcher) -> None:
        """
        Have *watcher* called with a `Commit` for each event that is emitted in this run from now on, once it is stored.

        It is a plain function, called in the emitter's task, when `emit` returns; what it raises fails the run at its
        end, and the event is stored all the same. What a run begins with, and what it takes from the log, is not told.

        Raises:
            ConfigurationError: It is no function.
        """
        if not callable(watcher):
            raise ConfigurationError(f"expected a function of a Commit, found {watcher!r:.80}")
        self._core.commit_watchers.append(watcher)

    @classmethod
    def root(cls, core: InvocationCore, agent: Any) -> InvocationContext:
        """The context that a run begins with."""
        return cls(core, agent, Place("run", core.tree), State(core.values, check=core.secrets.check_write))

    def _for_agent(self, agent: Any) -> InvocationContext:
        """The context of an agent that this one calls."""
        path = f"{self._path}/{agent.name}"
        count = self._core.count_run(path)
        path = path if count == 1 else f"{path}*{count}"  # so that rounds have nothing to do with each other
        strand = self._place.strand or trio.lowlevel.current_task()
        place = changed(self._place, path=path, control=Control(), strand=strand)
        if not agent._has_own_logic:
            return InvocationContext(self._core, agent, place, self._state.layer())
        reads = self._core.reads(path)
        return InvocationContext(self._core, agent, place, self._state, reads)

    def _in_region(self, region: Region, index: int, branch: str) -> InvocationContext:
        """The same context, for an agent that runs in a branch of its own, beside others."""
        place = changed(self._place, branch=branch, regions=(*self._place.regions, (region, index)), strand=None)
        return InvocationContext(self._core, self._agent, place, self._state)

    def _in_loop(self) -> InvocationContext:
        """The same context, for agents whose escalation ends a loop and nothing beyond."""
        place = changed(self._place, escalation=Escalation())
        return InvocationContext(self._core, self._agent, place, self._state)

    def _for_call(self, call_id: str, name: str, region: Region, index: int) -> ToolContext:
        """The context of a tool that this agent calls, beside others."""
        regions = (*self._place.regions, (region, index))
        place = changed(self._place, path=f"{self._path}/{name}#{call_id}", regions=regions)
        reads = self._core.reads(place.path)
        return ToolContext(self._core, self._agent, place, self._state, call_id, reads)

    def _for_model_hooks(self, event_id: str) -> ToolContext:
        """The context of the hooks around this agent's model, for one answer: what they write and do is the agent's."""
        place = changed(self._place, path=f"{self._path}!{event_id}")
        context = ToolContext(self._core, self._agent, place, self._state, "")
        context.actions = self.actions
        return context

    def _for_agent_hooks(self, name: str) -> ToolContext:
        """The context of the hooks around this agent, whose events and writes are their own."""
        place = changed(self._place, path=f"{self._path}!{name}")
        return ToolContext(self._core, self._agent, place, self._state.layer(), "")

    def _for_run_hooks(self) -> InvocationContext:
        """The context of the hooks around a run, of which an invocation that goes on has several."""
        place = changed(self._place, path=f"run!{self._core.run_id}")
        context = InvocationContext(self._core, self._agent, place, self._state)
        context._is_aside = True
        return context


class ToolContext(_WritingContext):
    """
    What a tool gets, and a callback. For a tool `function_call_id` is also an idempotency key: it is stored before the
    tool starts, and is the same whenever this call is made again. For a callback of an agent or a model it is empty.
    """

    def __init__(
        self,
        core: InvocationCore,
        agent: Any,
        place: Place,
        state: State,
        function_call_id: str,
        reads: Reads | None = None,
    ) -> None:
        super().__init__(core, agent, place, state, reads)
        self._is_aside = True
        self.function_call_id = function_call_id
        self.tool_confirmation: ToolConfirmation | None = None
        """What somebody has said about this call, if it was asked for."""
        self._asked: ToolConfirmation | None = None
        self.late: LateOutcome | None = None  # how the thread of a cancelled call has ended after all

    def _ended_late(self, late: LateOutcome) -> None:
        self.late = late

    def _call_id(self) -> str | None:
        return self.function_call_id or None

    def request_confirmation(self, *, hint: str = "", payload: Any = None) -> None:
        """
        Ask somebody whether this call may be done: return after it, whatever you return.

        The result and what was written to the state are dropped, and the invocation is paused. Once somebody has
        confirmed, the tool is called again with the same arguments, and `tool_confirmation` says what they said; if
        they have not, it is not called, and the model is told.

        Raises:
            InvalidValueError: *payload* is no JSON.
        """
        self._asked = ToolConfirmation(hint=hint, payload=freeze(payload, "payload"))

    def _new_layer(self) -> ToolContext:
        """The same context for one attempt, with a layer of state on top of this one's."""
        reads = self._core.reads(f"{self._path}*")
        context = ToolContext(self._core, self._agent, self._place, self._state, self.function_call_id, reads)
        context.tool_confirmation = self.tool_confirmation
        return context

    def _for_agent_inside(self, agent: Any, tree: Any, content: Content, model: Any) -> InvocationContext:
        """
        The context of an agent that is used as a tool: its own branch, and a history that begins with *content*.

        *model* is for the agents in it that have none.
        """
        here = self._place
        step = f"{agent.name}@{self.function_call_id}"
        call = self._core.live.open_calls[self.function_call_id]  # it is being made
        place = Place(
            path=here.path,
            tree=tree,
            branch=f"{here.branch}.{step}" if here.branch else step,
            regions=here.regions,
            inside=Inside(content, call.seq + 1, model),
            readers=here.readers,
        )
        return InvocationContext(self._core, self._agent, place, self._state)


CallbackContext = ToolContext


def _with_notes(
    actions: EventActions, *, is_aside: bool, reads: Mapping[Reads, Mapping[str, Any]], saves: Mapping[str, int]
) -> EventActions:
    """What who runs the agents again has to know of an event."""
    notes: dict[str, Any] = {"aside": True} if is_aside else {}
    if saves:
        notes["saves"] = freeze(dict(saves))
    if reads:
        notes["reads"] = freeze({reader.reader: fresh for reader, fresh in reads.items()}, "reads", READS_LEVEL)
    return changed(actions, replay=changed(actions.replay, **notes)) if notes else actions


def _lasting(writes: Mapping[str, Write]) -> dict[str, Write]:
    """Those that are stored: `temp:` keys are not."""
    return {key: write for key, write in writes.items() if scope_of(key) is not Scope.TEMP}


def _with_call_ids(content: Content | None, event_id: str) -> Content | None:
    parts: list[Part] = []
    is_changed = False
    for place, part in enumerate(content.parts if content is not None else ()):
        if part.function_call is not None and part.function_call.id is None:
            call = changed(part.function_call, id=f"call-{derived_id(event_id, place)}")
            part, is_changed = changed(part, function_call=call), True
        parts.append(part)
    return changed(content, parts=tuple(parts)) if content is not None and is_changed else content
