"""
Going on with an invocation: what it has done is taken from its record, not done again.

A `Replayer` stands in front of the agents of an invocation that is resumed, in the place of the live `Emitter`. What
they say and what is recorded at the same position is returned as it was stored: nothing is stored again, and no caller
is shown it again. Where the record of a branch ends, the replayer lets what is said go the live way.

An escalation ends those that run beside it, so it happens in the order in which it has happened before: an agent that
comes to its escalation waits for those beside it to come to what they have said earlier, and one that is about to do
something new waits for the escalations beside it that are recorded, which may end it. Everything else may come in
another order, as every agent takes what it says and reads from the record. Only agents that are running are waited for:
those of a branch that has ended, of a call that is not made or that waits for its turn, come to nothing any more.

Not handled: an agent that waits for an escalation keeps the locks that it has. If the agent that escalates needs one of
them, both wait until the run's deadline. To end the first at once, it would have to be known that the escalation
reaches it, and no event tells which loop that ended.

What the agents' own logic reads of the state meanwhile is what it has read then; see `sessions._reads`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from .._values import changed
from ..events import Event, seq_of
from ..flows._budgets import count_answer
from ..flows._record import Record, recorded_reads
from ..sessions import LiveSession
from ..sessions._state import Write, writes_of
from ..types import FunctionCall, id_of
from ._emit import Emitter, is_aside

if TYPE_CHECKING:
    from ._base_context import ContextBase

__all__ = ["Replayer"]


class Replayer(Emitter):
    """
    The way in for the events of an invocation that is resumed.

    Args:
        invocation_id: The invocation.
        live: The session as it is now, this run's message included, loaded from the invocation's message on. What was
            undone is not in it.
        seq: Where the invocation's message stands.
        was_paused: Whether the invocation had paused before this run, rather than being cut off: agents that had
            nothing more to do had come to their end then, hooks included.
    """

    __slots__ = ("_progress", "has_new", "reads", "record")

    def __init__(self, invocation_id: str, live: LiveSession, seq: int, *, was_paused: bool) -> None:
        events = [event for event in live.window(seq) if event.invocation_id == invocation_id]
        self.record = Record(events, live.open_calls, was_paused=was_paused)
        self.reads = recorded_reads(events)
        """What the agents' logic, and tools, have read, by their paths."""
        self.has_new = False
        """Whether something new was done in this run."""
        self._progress = trio.lowlevel.ParkingLot()

    # --- in the place of the live emitter

    async def emit(self, context: ContextBase, event: Event, *, closing: bool = False) -> Event:
        """Return what is recorded in the place of *event*; where nothing is, emit it."""
        event_id = context._identify(event, closing=closing)
        if event.partial:
            if self.record.next_in(context.branch) is None:
                return await self._show(context, event, event_id)
            await trio.lowlevel.checkpoint()  # the caller was shown it when it was said first
            return changed(event, id=event_id)
        recorded = self.find(context, event_id)
        if recorded is not None:
            return await self.repeat(context, recorded, writes_of(event.actions))
        if not is_aside(context, event, closing=closing):
            await self.leave_replay(context, f"an event of {context._path}")
        return await self._store(context, event, event_id, closing=closing)

    def find(self, context: ContextBase, event_id: str) -> Event | None:
        """Return the event of this id: of this run, or recorded by an earlier one."""
        return super().find(context, event_id) or self.record.find(event_id)

    async def repeat(self, context: ContextBase, recorded: Event, own: Mapping[str, Write]) -> Event:
        """Return the event recorded at this position, when its turn has come."""
        await trio.lowlevel.checkpoint()  # before its turn has come, so that nothing is between that and its effect
        if recorded.actions.escalate:
            await self._wait_for_turn(recorded.branch, seq_of(recorded))
        self.record.mark_replayed(recorded)
        self._progress.unpark_all()  # they go on after this has had its effect: an escalation ends them first
        self._take_over(context, recorded, own)
        return recorded

    async def leave_replay(self, context: ContextBase, what: str, calls: Sequence[FunctionCall] = ()) -> None:
        """
        Come to *what* is about to be done and is not recorded; what has ended the branch then ends it first.

        Calls that are made again were made before the first thing that is recorded inside of them.

        Raises:
            ReplayError: Something else is recorded in its place.
        """
        branch = context.branch
        await trio.lowlevel.checkpoint_if_cancelled()
        if context._is_alone():
            missed = self.record.next_in(branch)
            if missed is not None:
                await self._wait_for_turn(branch, seq_of(missed), escalations=True)  # one of these has ended it then
                self.record.check_replayed(branch, what)
        inside = self.record.first_inside({id_of(call) for call in calls}) if calls else None
        seq = context._invocation.live.revision + 1 if inside is None else inside
        await self._wait_for_turn(branch, seq, escalations=True)
        self.has_new = True
        if not context._is_detached:  # a tool decides nothing about its agent, nor about other tools of its turn
            self.leave(branch)

    # --- for the logic of this package, which knows what it has to take from the record

    def is_replaying(self, context: ContextBase) -> bool:
        """Whether what *context* is for was done before: its agent comes to it again, and it waits for nothing."""
        return self.record.is_replaying(context.branch) and not self.record.is_waiting(context._path)

    async def repeat_following(self, context: ContextBase) -> Event | None:
        """Return the next event that is recorded of *context*; None if there is none."""
        recorded = self.record.find(context._following_id(context._path))
        return None if recorded is None else await self.repeat(context, recorded, {})

    async def repeat_answer(self, context: ContextBase, event_id: str) -> tuple[str, Event | None]:
        """Return the answer of a model that is recorded under this id, or None, and the id of what is asked for now."""
        while (recorded := self.record.find(event_id)) is not None:
            count_answer(context._invocation.budgets, recorded, self.record.responses)
            answer = await self.repeat(context, recorded, {})
            if event_id not in self.record.tried_again.answers:
                return event_id, answer
            event_id = context._following_id(context._path)
        return event_id, None

    async def repeat_responses(
        self, context: ContextBase, calls: Sequence[FunctionCall]
    ) -> tuple[Event | None, list[FunctionCall]]:
        """Return the last event that has answered some of *calls*, and the calls that have no response yet."""
        responses = self.record.responses
        answers = (responses[id_of(call)] for call in calls if call.id in responses)
        events = {seq_of(event): event for event in answers}
        event: Event | None = None
        for seq in sorted(events):
            event = await self.repeat(context, events[seq], {})
        return event, [call for call in calls if call.id not in responses]

    def leave(self, branch: str | None) -> None:
        """Note that something new is done in *branch*."""
        self.record.leave(branch)
        self._progress.unpark_all()

    def join(self, branch: str | None, within: str) -> None:
        """Note that the branches of *branch* whose names begin with *within* have ended."""
        self.record.join(branch, within)
        self._progress.unpark_all()

    def end_branch(self, branch: str) -> None:
        """Note that the agent in *branch* has ended."""
        self.record.end_branch(branch)
        self._progress.unpark_all()

    def end_call(self, call_id: str) -> None:
        """Note that a call has ended, is not made, or waits for its turn."""
        self.record.end_call(call_id)
        self._progress.unpark_all()

    async def _wait_for_turn(self, branch: str | None, seq: int, *, escalations: bool = False) -> None:
        """Wait for the agents that run beside *branch* to come to what they have said, or escalated, before *seq*."""
        while self.record.is_early(branch, seq, escalations=escalations):
            await self._progress.park()
            await trio.lowlevel.checkpoint_if_cancelled()  # what has let it go on may have ended it
