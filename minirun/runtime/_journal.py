"""
Going on with an invocation: what it has done is read from the log, not done again.

Who resumes runs the root agent from its start. Every event of an invocation has an id that follows from where it was
said (path and counter), so an agent that comes to a place where it has spoken before finds its event there: it is not
stored again, and nobody is asked again for it. That is *replaying*. Where the log ends, the agents go on.

What its own logic reads of the state while it replays is what it has read then; see `_reads`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import trio

from ..errors import ReplayError
from ..events import Event
from ..sessions import LiveSession
from ..types import FunctionResponse
from ._place import calls_around
from ._reads import ReadRecord, recorded_reads

__all__ = ["Journal"]

# How many turns of the scheduler may pass without anybody coming to something that is recorded.
PATIENCE = 20


class Journal:
    """
    What an invocation has recorded so far.

    Args:
        invocation_id: The invocation.
        live: The session as it is now, this run's message included, loaded from the invocation's message on. What was
            undone is not in it.
        seq: Where the invocation's message stands.
        was_paused: Whether the invocation had paused before this run, rather than being cut off: then who had nothing
            more to do had come to its end, hooks included.
    """

    def __init__(self, invocation_id: str, live: LiveSession, seq: int, *, was_paused: bool) -> None:
        mine = [event for event in live.window(seq) if event.invocation_id == invocation_id]
        self.recorded = mine
        self.open_before = set(live.open_calls)
        self.fresh = {response.id for response in mine[-1].get_function_responses()}  # what this run's message answers
        self.responses: dict[str, Event] = {}  # by call id: the event that answers it
        for event in mine:
            self.responses.update((response.id or "", event) for response in event.get_function_responses())
        self._by_id = {event.id: event for event in mine}
        self._reached: dict[str | None, int] = {}  # by branch: the newest event that was replayed there
        self.was_paused = self._was_at_rest(was_paused)
        self._caught_up: set[str | None] = set()  # the branches in which something new was done
        self._reads = recorded_reads(mine)
        self.saves: dict[str, int] = {}
        """The versions of artifacts that tools have saved, by the id of the save."""
        for event in mine:
            self.saves.update(event.actions.replay.saves)
        self._said = [event for event in mine if _is_said(event)]
        self._next = 0  # in the said: nothing before it is open
        self._progress = 0
        self._not_awaited = 0  # what was said before this: somebody has waited for it in vain
        self.has_caught_up = False
        """Whether somebody has done something new."""

    def _was_at_rest(self, was_paused: bool) -> bool:
        """An early question pauses who has not come to where the last run was: what that one was counts."""
        for event in reversed(self.recorded):
            if event.actions.replay.early:
                return bool(event.actions.replay.was_paused)
            if _is_said(event):
                break
        return was_paused

    def reads(self, reader: str) -> Mapping[str, ReadRecord]:
        """What is recorded of what *reader* has read, by key."""
        return self._reads.get(reader, {})

    def find(self, event_id: str) -> Event | None:
        """The event of this id, if it was recorded."""
        return self._by_id.get(event_id)

    def response_to(self, call_id: str) -> FunctionResponse | None:
        """What the call of this id was answered with before this run, or with its message."""
        event = self.responses.get(call_id)
        if event is None:
            return None
        return next(response for response in event.get_function_responses() if response.id == call_id)

    def questions(self, call_id: str) -> dict[str, str]:
        """What a call has asked, but not agents inside of it: the names of the questions, by their ids."""
        return {
            call.id or "": call.name
            for event in self.recorded
            if event.long_running_tool_ids and call_id in event.actions.suspended_calls
            for call in event.get_function_calls()
        }

    def has_asked_inside(self, call_id: str) -> bool:
        """Whether an agent inside of a call has asked something."""
        return any(event.long_running_tool_ids and call_id in calls_around(event.branch) for event in self.recorded)

    def first_ahead(self, branch: str | None) -> Event | None:
        """What agents have said next in this branch, or in one within it, and have not come to again; None: nothing."""
        ahead = islice(self._said, self._next, None)
        return next((event for event in ahead if self._is_open(event) and _is_around(branch, event.branch)), None)

    def is_replaying(self, branch: str | None) -> bool:
        """Whether an agent in *branch* only comes to what it has done before, hooks included."""
        if self.first_ahead(branch) is not None:
            return True
        return self.was_paused and not any(_is_around(other, branch) for other in self._caught_up)

    def is_waiting(self, path: str) -> bool:
        """Whether who asks on *path* has asked something that is open, or was answered by this run's message."""
        asked = (event for event in self.recorded if event.actions.replay.asked_by == path)
        ids = {call.id for event in asked for call in event.get_function_calls()}
        return any(call_id not in self.responses or call_id in self.fresh for call_id in ids)

    def check_nothing_ahead(self, branch: str | None, found: str) -> None:
        """
        Refuse what was *found* in the place of what was recorded in this branch.

        Raises:
            ReplayError: There is something that nobody has come to again.
        """
        missed = self.first_ahead(branch)
        if missed is not None:
            msg = (
                f"expected the agents to come to what they have said before, {missed.id!r} of {missed.author!r} next "
                f"({_shown(missed)}), found {found}; to go on with an invocation agents have to do as they have done: "
                "have them named and put together as they were, and let them decide by what is recorded"
            )
            raise ReplayError(msg)

    def advance(self, event: Event) -> None:
        """An agent has come to *event*: what was stored until then in its branch is behind it."""
        self._progress += 1
        self._reached[event.branch] = max(event.seq or 0, self._reached.get(event.branch, 0))
        self._skip()

    def catch_up(self, branch: str | None) -> None:
        """Somebody in *branch* does something new: nothing is ahead of it any more, but inside of calls."""
        self._caught_up.add(branch)
        self._skip()

    def join(self, branch: str | None, within: str) -> None:
        """
        The branches of *branch* whose names begin with *within* have ended.

        If something new was done in one, what follows is new, too. What was said before the last thing that they have
        come to, by one that was stopped earlier than it was then, is behind them.
        """
        if any((other or "").startswith(within) for other in self._caught_up):
            self.catch_up(branch)
        last = max((seq for other, seq in self._reached.items() if (other or "").startswith(within)), default=0)
        for event in islice(self._said, self._next, None):
            if (event.seq or 0) < last and (event.branch or "").startswith(within) and self._is_open(event):
                self._reached[event.branch] = max(event.seq or 0, self._reached.get(event.branch, 0))
        self._skip()

    async def turn(self, branch: str | None, seq: int) -> None:
        """
        Wait for agents in branches beside *branch* to come to what they have said before *seq*.

        So things happen in the order in which they have happened before: an agent whose escalation has stopped others
        does not stop them before they are as far as they were. Who does not come to anything any more is not waited
        for; it may have been cancelled.
        """
        idle = 0
        while idle < PATIENCE and self._is_early(branch, seq):
            progress = self._progress
            await trio.lowlevel.checkpoint()
            idle = idle + 1 if progress == self._progress else 0
        if idle == PATIENCE:
            self._not_awaited = max(seq, self._not_awaited)

    def steps(self, path: str) -> Iterator[str]:
        """The ids of the events that record steps on *path*, in order."""
        for event in self.recorded:
            step = event.actions.replay.step
            if step is not None and step.path == path:
                yield event.id or ""

    def _skip(self) -> None:
        while self._next < len(self._said) and not self._is_open(self._said[self._next]):
            self._next += 1

    def _is_early(self, branch: str | None, seq: int) -> bool:
        for event in islice(self._said, self._next, None):
            if (event.seq or 0) >= seq:
                return False
            if (event.seq or 0) < self._not_awaited:
                continue
            is_beside = not _is_within(event.branch, branch) and not _is_within(branch, event.branch)
            if is_beside and self._is_open(event):
                return True
        return False

    def _is_open(self, event: Event) -> bool:
        """Whether nobody has come to *event*, nor to something later in its branch or around it."""
        if any(_is_around(other, event.branch) for other in self._caught_up):
            return False
        return not any(self._covers(other, reached, event) for other, reached in self._reached.items())

    def _covers(self, outer: str | None, reached: int, event: Event) -> bool:
        """Whether who has come to event *reached* in the branch *outer* has *event* behind it."""
        if _is_around(outer, event.branch):
            return reached >= (event.seq or 0)
        if not _is_within(event.branch, outer):
            return False
        around = calls_around((event.branch or "")[len(outer or "") :])
        answer = self.responses.get(around[0])  # what is inside of a call that is still open is not behind anybody
        return answer is not None and reached >= (answer.seq or 0)


def _is_within(branch: str | None, outer: str | None) -> bool:
    return outer is None or branch == outer or (branch is not None and branch.startswith(f"{outer}."))


def _is_around(outer: str | None, branch: str | None) -> bool:
    """Whether *branch* is this one, or a branch of it, but not inside of a call."""
    return _is_within(branch, outer) and "@" not in (branch or "")[len(outer or "") :]


def _is_said(event: Event) -> bool:
    """Whether an agent has said *event* in the course of its logic: it does so again whenever it is run."""
    replay = event.actions.replay
    is_something = event.content is not None or event.output is not None or replay.step is not None
    return event.author != "user" and not replay.aside and is_something


def _shown(event: Event) -> str:
    step = event.actions.replay.step
    if step is not None:
        return f"step {step.name!r}"
    return f"{event.text!r:.80}" if event.text else ", ".join(f"call of {c.name!r}" for c in event.get_function_calls())
