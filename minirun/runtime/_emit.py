"""
The way of one event
====================

    ctx.emit(event)                                                            this file, in the emitter's task
      identify     the event's id follows from where it is said; what has ended says nothing any more
      take         the pending writes of the context, which go with it
      prepare      one pure function: author, branch, actions, writes, ids of calls; secrets taken out; checked; copied
      on_event     the hooks of plugins, if there are any; then artifacts and transfers that it names are checked
      hand over ─────────► the committer's task (`_committer`), over a channel without a buffer
                             store      SessionWriter.append: the service stores it, or raises
                             apply      `Emission.apply`: what was pending is committed
                             publish    into the caller's queue
      return  ◄───────────── when the caller asks for the next event

What the pass finds travels with the event, as an `Emission`; nobody looks for it again. A partial event takes the short
way: it is completed, and shown. The user's message goes another way: `_scope._append_message`.

While an invocation is resumed, a `Replayer` (`_replay`) stands in the place of the `Emitter`, and answers from the
record.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from .._json import FrozenTuple, freeze
from .._values import changed
from ..env import derived_id
from ..errors import InvalidEventError
from ..events import READS_LEVEL, Event, EventActions, Replay
from ..sessions._event_checks import checked_event
from ..sessions._state import TEMP_PREFIX, TakenWrites, Write, apply_write, parted, with_writes, writes_of
from ..types import NO_CALLS, Content, FunctionCall, Part
from ._failure import is_pause
from ._ids import STEP_ID

if TYPE_CHECKING:
    from ..flows._actions import ActionsDraft
    from ..sessions._reads import Reads
    from ..sessions._state_schema import StateSchemas
    from ._base_context import ContextBase
    from ._invocation import Invocation
    from ._position import Position

__all__ = ["LIVE", "Emission", "Emitter", "prepare"]


class Emitter:
    """The way in for events: the live one, which has no state of its own."""

    __slots__ = ()

    async def emit(self, context: ContextBase, event: Event, *, closing: bool = False) -> Event:
        """
        Store *event*, show it, and return it as stored: see `InvocationContext.emit`.

        One that is *closing* something is stored whatever happens: it waits for no caller, and no hook stops it.
        """
        event_id = context._identify(event, closing=closing)
        if event.partial:
            return await self._show(context, event, event_id)
        invocation = context._invocation
        if context._call_id is not None and (recorded := invocation.tool_events.get(event_id)) is not None:
            return await self.repeat(context, recorded, writes_of(event.actions))  # an earlier attempt has said it
        return await self._store(context, event, event_id, closing=closing)

    async def _store(self, context: ContextBase, event: Event, event_id: str, *, closing: bool) -> Event:
        invocation, draft = context._invocation, context._draft
        await invocation.env.point(f"emit {context._path}")
        if closing and draft is not None:
            draft.transfer_to_agent = None  # nobody takes over any more
        pending = context._state.take(writes_of(event.actions))
        emission = Emission(invocation, context._position, pending, context._conflicts)
        if draft is not None:
            emission.draft = draft.take()
        try:
            for key, write in emission.temp.items():  # one that does not fit is refused before anything is stored
                apply_write(key, invocation.values.get(key), write)
            for reader in context._position.readers + invocation.silent_readers:
                if reader.fresh:
                    emission.reads[reader] = reader.unrecorded()
            complete = prepare(context, event, event_id, emission, detached=is_aside(context, event, closing=closing))
            if "on_event_callback" in invocation.program.plugins:
                from ._on_event import after_hooks  # few programs have a plugin that looks at events

                complete = await after_hooks(context, complete, emission, closing=closing)
            if complete.actions.artifact_delta or complete.actions.artifact_versions:
                complete = changed(complete, actions=await invocation.artifacts.checked(complete.actions))
            if complete.actions.transfer_to_agent is not None and not closing:
                from ..flows._transfers import check_handover  # few events hand over

                check_handover(context._position.tree, context._agent, complete.actions)
                invocation.budgets.spend("max_transfers")
            if complete.actions.escalate:
                emission.escalates_from = context._position.escalation.own_branches()
            emission.event, emission.schemas = complete, context._state.schemas and context._state.schemas.at(closing)
            stored = await invocation.committer.emit(emission, closing=closing)
        finally:
            # Withdrawn, or refused: what was pending is pending again, for the next event. After a StorageError that
            # does not know (`stored` is None) it may be in the store as well. It is not stored twice: the committer
            # refuses all that follows in this run, and a later run begins with what the store has.
            if emission.stored is None:
                emission.pending.rollback()
                if emission.draft is not None:
                    context.actions.put_back(emission.draft)
        context._after_commit(stored, closing=closing)
        for watcher in invocation.commit_watchers:
            try:
                watcher(stored)
            except Exception as error:  # the event stays stored, and the run fails at its end
                invocation.failures.late.append(error)
        if context._call_id is not None or stored.actions.replay.step is not None:
            invocation.tool_events[event_id] = stored
        return stored

    async def repeat(self, context: ContextBase, recorded: Event, own: Mapping[str, Write]) -> Event:
        """Return the event recorded at this position. It is stored already, and the caller has received it."""
        await trio.lowlevel.checkpoint()
        self._take_over(context, recorded, own)
        return recorded

    def find(self, context: ContextBase, event_id: str) -> Event | None:
        """Return the event of this id, if a tool has said it in this run, or it records a step."""
        return context._invocation.tool_events.get(event_id)

    async def leave_replay(self, context: ContextBase, what: str, calls: Sequence[FunctionCall] = ()) -> None:
        """Come to *what* is about to be done and is not recorded. Nothing is replayed here."""

    def _take_over(self, context: ContextBase, recorded: Event, own: Mapping[str, Write]) -> None:
        pending = context._state.take(own)
        pending.commit()
        context._invocation.keep_temp(parted(pending.writes)[1])
        if context._draft is not None:
            context._draft.take()
        context._after_commit(recorded, closing=False)

    async def _show(self, context: ContextBase, event: Event, event_id: str) -> Event:
        """Show a partial event to the caller. Its actions are ignored; what hooks write is kept."""
        invocation = context._invocation
        shown = completed(context, event, event_id, event.actions, event.content)
        if invocation.secrets.are_known:
            shown = invocation.secrets.out_of_event(shown)
        if "on_event_callback" in invocation.program.plugins:
            state = context._state.layer()
            from ._on_event import apply_on_event  # few programs have a plugin that looks at events

            shown, _ = await apply_on_event(context._for_on_event(state), shown, closing=False)
            context._state.merge(state.pending())
        await invocation.committer.emit_partial(shown)
        return shown


LIVE = Emitter()
"""Of every invocation that is not resumed."""


def is_aside(context: ContextBase, event: Event, *, closing: bool) -> bool:
    """
    Whether what is emitted now takes no part in the order of what the agent says: a replay does not wait for it.

    So it is with what an agent's own logic says while it handles an exception: what failed may go well another time.
    """
    handled = sys.exception()
    unwinds = handled is not None and (is_pause(handled) or (event.id is None and context._has_own_logic))
    return closing or context._is_detached or STEP_ID.get() is not None or unwinds


class Emission:
    """
    An event on its way to the store and to the caller, with all that was found out about it, and its emitter, asleep.

    Once it has its turn, the emitter sleeps once: until the store has refused the event, or else until the caller asks
    for the next one.
    """

    __slots__ = (
        "_conflicts", "_invocation", "_position", "_raise_cancel", "draft", "error", "escalates_from", "event",
        "has_credit", "is_settled", "is_turn_over", "pending", "reads", "schemas", "stored", "task", "temp", "writes",
    )

    def __init__(self, invocation: Invocation, position: Position, pending: TakenWrites, conflicts: list[str]) -> None:
        self._invocation = invocation
        self._position = position
        self._conflicts = conflicts  # keys that the event has to name, whatever is stored before it
        self._raise_cancel: Any = None  # raises the cancellation that has asked for the event to be withdrawn
        self.event: Event
        self.schemas: StateSchemas | None
        """What the state may become: from an event that closes something what does not fit is left out."""
        self.draft: ActionsDraft | None = None
        """What the emitter had set as actions, taken from it for this event."""
        self.pending = pending
        self.writes, self.temp = parted(pending.writes)
        """What is stored of the writes, and what lives for this run."""
        self.reads: dict[Reads, Mapping[str, Any]] = {}
        self.escalates_from: tuple[trio.CancelScope, ...] | None = None
        """The branches of the emitter, if the event escalates."""
        # on the way
        self.has_credit = False
        self.is_turn_over = False  # whether the caller has asked for the next event, or left
        self.is_settled = False  # whether the store has answered, or the event was withdrawn
        self.stored: Event | None = None
        self.error: BaseException | None = None
        self.task: trio.lowlevel.Task | None = None  # that sleeps

    def to_store(self) -> Event:
        """Return the event as it is stored in its turn: with the keys that it and events before it have written."""
        if self.schemas is not None:
            self.event, self.writes = self.schemas.checked(self._invocation.values, self.event, self.writes)
        self._invocation.live.carried = self.event.id, self.pending
        if not (self._position.concurrent or self._conflicts):
            return self.event
        keys = [key for key in self._conflicts if not key.startswith(TEMP_PREFIX)]
        for others, index in self._position.concurrent:
            keys += others.conflicts(index, self.writes)
        if not keys:
            return self.event
        actions = changed(self.event.actions, state_conflicts=FrozenTuple(sorted(set(keys))))
        return changed(self.event, actions=actions)

    def apply(self, stored: Event) -> None:
        """Let what was pending be committed: *stored* is in the store, and nobody has seen it yet."""
        self.stored = stored
        if self.escalates_from is not None:  # at once: whom it ends has said nothing after it
            self._position.escalation.set(self.escalates_from)
        self.pending.commit()
        for reader, recorded in self.reads.items():
            reader.settle(recorded)
        if self._invocation.silent_readers:
            self._invocation.silent_readers = tuple(each for each in self._invocation.silent_readers if each.fresh)
        if self.temp:
            self._invocation.keep_temp(self.temp)
        for others, index in self._position.concurrent:
            others.add(index, self.writes)
        if self._invocation.run_artifacts is not None:
            self._invocation.run_artifacts.named(stored.actions)

    async def answered(self, withdrawal: trio.CancelScope) -> Event:
        """
        Sleep, and return the stored event.

        A cancellation asks for the event to be withdrawn, and waits on until the store has answered.
        """
        if not self._is_over:
            self.task = trio.lowlevel.current_task()

            def abort(raise_cancel: Any) -> trio.lowlevel.Abort:
                if self.is_settled:
                    self.wake()  # it is stored: the cancellation arrives at the next checkpoint
                else:
                    self._raise_cancel = raise_cancel
                    withdrawal.cancel()
                return trio.lowlevel.Abort.FAILED

            await trio.lowlevel.wait_task_rescheduled(abort)
        if self.error is not None:
            raise self.error
        if self.stored is None:  # withdrawn before the store had begun
            self._raise_cancel()
        assert self.stored is not None
        return self.stored

    @property
    def _is_over(self) -> bool:
        """Whether its emitter waits for nothing: the store has refused it, or the caller has asked for the next one."""
        return self.is_settled and (self.stored is None or self.is_turn_over or not self.has_credit)

    def settle(self) -> None:
        """Note that the store has answered, or that the event was withdrawn."""
        self.is_settled = True
        if self._is_over or self._raise_cancel is not None:
            self.wake()

    def end_turn(self) -> None:
        """Do not wait for the caller any more."""
        self.is_turn_over = True
        if self.is_settled:
            self.wake()

    def wake(self) -> None:
        """Let the emitter go on, if it sleeps."""
        if self.task is not None:
            task, self.task = self.task, None
            trio.lowlevel.reschedule(task)


# --- preparing --------------------------------------------------------------------------------------------------------


def prepare(context: ContextBase, event: Event, event_id: str, emission: Emission, *, detached: bool) -> Event:
    """
    Return *event* as it may be stored: complete, without secrets, checked. It changes nothing.

    Raises:
        InvalidEventError, InvalidValueError, NotSupportedError: It cannot be stored.
    """
    invocation, actions, draft = context._invocation, event.actions, emission.draft
    changes = {} if draft is None else draft.changes_to(actions)
    if invocation.end_invocation:
        changes["end_invocation"] = True
    saves = {} if draft is None else draft.saves
    if detached or saves or emission.reads:
        changes["replay"] = _with_notes(actions.replay, emission.reads, saves, detached=detached)
    if changes or emission.writes is not writes_of(actions):
        actions = with_writes(actions, emission.writes, **changes)
    content = event.content
    calls, responses = NO_CALLS if content is None else content.calls_and_responses
    if content is not None and calls:
        content = with_call_ids(content, event_id)
    complete = completed(context, event, event_id, actions, content)
    if invocation.secrets.are_known:
        complete = invocation.secrets.out_of_event(complete)
    if calls or responses or event.long_running_tool_ids or not actions.is_only_state:
        return checked_event(complete)
    return complete  # it has an author, and what it writes was checked when it was derived


def completed(
    context: ContextBase, event: Event, event_id: str, actions: EventActions, content: Content | None
) -> Event:
    """Return *event* with all that follows from where it is said; itself, if it says so already."""
    invocation = context._invocation
    if event.invocation_id not in (None, invocation.id):
        msg = f"expected no invocation_id, or {invocation.id!r}, found {event.invocation_id!r}"
        raise InvalidEventError(msg)
    metadata, added = event.custom_metadata, invocation.run_config.custom_metadata
    if added:
        metadata = freeze({**added, **(metadata or {})})
    branch = event.branch or context._position.branch
    node = event.node_info if event.node_info.path else context._position.node_info
    is_as_before = actions is event.actions and content is event.content and metadata is event.custom_metadata
    is_complete = event.id == event_id and event.author and event.invocation_id and event.branch == branch
    if is_as_before and is_complete and node is event.node_info:
        return event
    return changed(
        event, id=event_id, invocation_id=invocation.id, author=event.author or context._agent.name, branch=branch,
        content=content, actions=actions, node_info=node, custom_metadata=metadata,
    )  # fmt: skip


def with_call_ids(content: Content, event_id: str) -> Content:
    """Return *content* with an id for each call that has none: it follows from that of the event."""
    parts: list[Part] = []
    for place, part in enumerate(content.parts):
        if part.function_call is not None and part.function_call.id is None:
            call = changed(part.function_call, id=f"call-{derived_id(event_id, place)}")
            part = changed(part, function_call=call)
        parts.append(part)
    is_same = all(new is old for new, old in zip(parts, content.parts, strict=True))
    return content if is_same else changed(content, parts=FrozenTuple(parts))


def _with_notes(
    replay: Replay, reads: Mapping[Reads, Mapping[str, Any]], saves: Mapping[str, int], *, detached: bool
) -> Replay:
    """Add what a later run has to know of the event when it replays the invocation."""
    notes: dict[str, Any] = {"aside": True} if detached else {}
    if saves:
        notes["saves"] = freeze(dict(saves))
    if reads:
        notes["reads"] = freeze({reader.path: recorded for reader, recorded in reads.items()}, "reads", READS_LEVEL)
    return changed(replay, **notes)
