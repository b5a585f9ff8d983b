"""
The record of an invocation: what its earlier runs have stored, and how far this run has replayed it.

Who resumes an invocation runs its root agent from the start. Every event has an id that follows from where it was said
(path and counter), so an agent that comes to a place where it has spoken before finds its event in the record. Where
the record of its branch ends, it goes on. `_replay` stands in front of the agents and does that; here is what it knows.

Only what agents say in the course of their logic has an order. What hooks say, what is said at the end of a run, or
while something is unwound, is *detached* (`Replay.aside`): it is found by its id, and nobody waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from .._json import brief
from ..errors import ReplayError
from ..events import Event, seq_of
from ..types import FunctionResponse, id_of
from ._branches import calls_around, is_around, is_within
from ._going_on import TriedAgain, goes_on, is_said

__all__ = ["Record", "RecordedReads", "end_of_unchanged_run", "recorded_reads", "unattempted"]

_ATTEMPT = re.compile(r"\+\d+")


def unattempted(path: str) -> str:
    """
    *path* as it is in the first attempt of each workflow on it that is a node.

    The path of such a workflow has `+2` in its second attempt, which goes on with what has ended in the first.
    """
    return _ATTEMPT.sub("", path) if "+" in path else path


def end_of_unchanged_run(events: Sequence[Event]) -> Event | None:
    """Return the event that marks the last run in *events* as unchanged; None if its agents may have done something."""
    for event in reversed(events):
        if _ends_unchanged_run(event):
            return event
        if _begins_run(event):
            break
    return None


def _ends_unchanged_run(event: Event) -> bool:
    """Whether the run that stored *event* ended before the agents did anything new."""
    replay = event.actions.replay
    return replay.was_paused is not None and not replay.early


def _begins_run(event: Event) -> bool:
    """Whether *event* is the message that a run began with, and was not sent into it."""
    return event.author == "user" and event.actions.replay.sent is None


class RecordedReads:
    """How often one reader has read one key, as far as that is recorded, and what it got."""

    __slots__ = ("count", "values")

    def __init__(self) -> None:
        self.count = 0
        self.values: dict[int, tuple[Any, ...]] = {}
        """By the number of the read: (value,), or () where there was none. What is not here was the same as before."""


def recorded_reads(events: Iterable[Event]) -> dict[str, dict[str, RecordedReads]]:
    """What *events* have recorded, by the path of the reader and the key."""
    found: dict[str, dict[str, RecordedReads]] = {}
    for event in events:
        for reader, keys in event.actions.replay.reads.items():
            for key, (count, *values) in keys.items():
                record = found.setdefault(reader, {}).setdefault(key, RecordedReads())
                record.count = max(record.count, count)
                record.values.update((place, (*value,)) for place, *value in values)
    return found


class Record:
    """
    What an invocation has stored so far.

    Args:
        events: What it has stored, this run's message included, without what was undone.
        open_calls: The ids of the calls that are open when this run begins.
        was_paused: Whether the invocation had paused before this run, rather than being cut off: agents that had
            nothing more to do had come to their end then, hooks included.
    """

    def __init__(self, events: Sequence[Event], open_calls: Iterable[str], *, was_paused: bool) -> None:
        self.events = events
        self.open_before = set(open_calls)
        self.answered_now = self._new_replies()
        """The ids of the questions whose replies no run has acted on: see `_new_replies`."""
        self.inside = {call for event in events for call in calls_around(event.branch)}
        """The ids of the calls that agents have said something inside of."""
        self.responses: dict[str, Event] = {}
        """By the id of a call: the event that answers it."""
        self.saves: dict[str, int] = {}
        """The versions of artifacts that tools have saved, by the id of the save."""
        for event in events:
            self.responses.update((id_of(response), event) for response in event.get_function_responses())
            self.saves.update(event.actions.replay.saves)
        self._by_id = {event.id: event for event in events}
        self.tried_again = TriedAgain(events)
        """What is tried again, if somebody has gone on with the invocation after it had failed."""
        self.was_paused = self._was_at_rest(was_paused)
        self.ended: dict[str, Event] = {}
        """The events with which runs of nodes have ended, by their paths, without the hash that `ctx.run_node` adds."""
        self._ended_below: dict[str, list[Event]] = {}
        self._note_ended()
        self._first_below: dict[str, int] | None = None
        nobody_says = self.tried_again.events
        said = (event for event in events if is_said(event) and event.id not in nobody_says)
        self._said = [event for event in said if not self._is_of_ended(event)]
        self._next = 0  # in the said: everything before it is replayed
        self._replayed: dict[str | None, int] = {}  # by branch: the newest event that was replayed there
        self._left: set[str | None] = set()  # the branches in which something new was done
        self._running_branches: set[str] = set()
        self._running_calls: set[str] = set()
        self._ended_branches: set[str] = set()
        self._ended_calls: set[str] = set(self.responses)  # nor are those made again that are answered
        self._made_after = _made_after(events, self.responses)

    def _new_replies(self) -> set[str]:
        """
        The ids of the questions that are answered by this run's message, or by those of the runs just before it that
        ended before the agents did anything new.
        """
        replies: set[str] = set()
        is_kept = True  # the run that stored the event, seen from the end of the log, has not acted on its reply
        for event in reversed(self.events):
            if _ends_unchanged_run(event):
                is_kept = True
            elif _begins_run(event):
                if not is_kept:
                    break
                replies.update(id_of(response) for response in event.get_function_responses())
                is_kept = False
        return replies

    def _was_at_rest(self, was_paused: bool) -> bool:
        """
        Return whether the invocation was paused before the last run that did something new.

        A question asked out of recorded order keeps the status of the run before it, until an agent emits something. A
        run that ended before the agents did anything new keeps it for the next run.
        """
        before = self.events[:-1] if _begins_run(self.events[-1]) else self.events
        unchanged = end_of_unchanged_run(before)
        if unchanged is not None:
            return bool(unchanged.actions.replay.was_paused)
        for event in reversed(self.events):
            if event.actions.replay.early:
                return bool(event.actions.replay.was_paused)
            if is_said(event) or goes_on(event):
                break
        return was_paused

    def _note_ended(self) -> None:
        """Note which runs of nodes have ended: what was said in them is behind everybody."""
        self._ended_in: dict[str, int] = {}  # by branch: where the last that ran there has ended
        for event in self.events:
            path = event.actions.replay.ended
            if path is not None:
                above, _, run = unattempted(path).rpartition("/")
                self.ended[f"{above}/{run.partition('~')[0]}"] = event
                self._ended_below.setdefault(above, []).append(event)
                self._ended_in[event.branch or ""] = seq_of(event)

    def _is_of_ended(self, event: Event) -> bool:
        """Whether *event* was said in a run of a node that has ended since."""
        branch = event.branch if self._ended_in else None
        while branch:
            if self._ended_in.get(branch, 0) >= seq_of(event):
                return True
            branch = branch.rpartition(".")[0]
        return False

    def ended_below(self, path: str) -> Sequence[Event]:
        """The events with which runs of nodes of the workflow on *path* have ended, in order."""
        return self._ended_below.get(path, ())

    def first_below(self, branch: str) -> int | None:
        """Where the first thing stands that is recorded in *branch*."""
        if self._first_below is None:
            self._first_below = {}
            for event in self.events:
                at = event.branch
                while at:
                    self._first_below.setdefault(at, seq_of(event))
                    at = at.rpartition(".")[0]
        return self._first_below.get(branch)

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
            id_of(call): call.name
            for event in self.events
            if event.long_running_tool_ids and call_id in event.actions.suspended_calls
            for call in event.get_function_calls()
        }

    def has_asked_inside(self, call_id: str) -> bool:
        """Whether an agent inside of a call has asked something."""
        asked = (event for event in self.events if event.long_running_tool_ids and not event.actions.replay.at_work)
        return any(call_id in calls_around(event.branch) for event in asked)

    def next_in(self, branch: str | None) -> Event | None:
        """Return the next event of this branch, or of one within it, that is not replayed yet; None: there is none."""
        following = islice(self._said, self._next, None)
        return next((event for event in following if self._is_due(event) and is_around(branch, event.branch)), None)

    def is_replaying(self, branch: str | None) -> bool:
        """Whether an agent in *branch* does only what it has done before, hooks included."""
        if self.next_in(branch) is not None:
            return True
        return self.was_paused and not any(is_around(other, branch) for other in self._left)

    def is_waiting(self, path: str) -> bool:
        """Whether what asks on *path* has a question that is open, or was answered by this run's message."""
        asked = (event for event in self.events if event.actions.replay.asked_by == path)
        ids = {call.id for event in asked for call in event.get_function_calls()}
        return any(call_id not in self.responses or call_id in self.answered_now for call_id in ids)

    def is_asked_below(self, path: str, call_id: str) -> bool:
        """Whether a question, or another call, may have been asked by what runs on *path* or below, in this round."""
        asked, path = self.find(f"{call_id}-asked"), unattempted(path)
        by = None if asked is None else asked.actions.replay.asked_by
        return by is None or f"{unattempted(by)}/".startswith((f"{path}/", f"{path}!", f"{path}#"))

    def check_replayed(self, branch: str | None, found: str) -> None:
        """
        Refuse what was *found* in the place of what is recorded in this branch.

        Raises:
            ReplayError: Something is recorded that was not replayed.
        """
        missed = self.next_in(branch)
        if missed is not None:
            msg = (
                f"expected the agents to come to what they have said before, {missed.id!r} of {missed.author!r} next "
                f"({_shown(missed)}), found {found}; to go on with an invocation agents have to do as they have done: "
                "have them named and put together as they were, and let them decide by what is recorded"
            )
            raise ReplayError(msg)

    def steps(self, path: str) -> Iterator[str]:
        """The ids of the events that record steps on *path*, in order."""
        for event in self.events:
            step = event.actions.replay.step
            if step is not None and step.path == path:
                yield id_of(event)

    # --- how far the replay has come

    def mark_replayed(self, event: Event) -> None:
        """Note that an agent has come to *event*: what was stored until then in its branch is replayed."""
        self._replayed[event.branch] = max(seq_of(event), self._replayed.get(event.branch, 0))
        self._skip()

    def leave(self, branch: str | None) -> None:
        """Note that something new is done in *branch*: nothing of it is replayed any more, but inside of calls."""
        self._left.add(branch)
        self._skip()

    def join(self, branch: str | None, within: str) -> None:
        """
        Note that the branches of *branch* whose names begin with *within* have ended.

        If something new was done in one, what follows is new, too. What was said before the last thing that they have
        come to, by one that was stopped earlier than it was then, counts as replayed.
        """
        self._ended_branches = {each for each in self._ended_branches if not each.startswith(within)}  # the next round
        if any((other or "").startswith(within) for other in self._left):
            self.leave(branch)
        last = max((seq for other, seq in self._replayed.items() if (other or "").startswith(within)), default=0)
        for event in islice(self._said, self._next, None):
            if seq_of(event) < last and (event.branch or "").startswith(within) and self._is_due(event):
                self._replayed[event.branch] = seq_of(event)  # it is due, so nothing later was

    def first_inside(self, call_ids: Collection[str]) -> int | None:
        """Where the first thing stands that was said inside of these calls."""
        inside = (event.seq for event in self._said if not set(call_ids).isdisjoint(calls_around(event.branch)))
        return next(inside, None)

    # --- order between branches that run side by side

    def start_branches(self, branches: Iterable[str]) -> None:
        """Note that agents are going to run in *branches*: they will come to what is recorded there."""
        started = set(branches)
        self._running_branches |= started
        self._ended_branches -= started

    def end_branch(self, branch: str) -> None:
        """Note that the agent in *branch* has ended, and comes to nothing any more."""
        self._running_branches.discard(branch)
        self._ended_branches.add(branch)

    def start_calls(self, call_ids: Iterable[str]) -> None:
        """Note that calls are going to be made: agents inside of them will come to what is recorded there."""
        started = set(call_ids)
        self._running_calls |= started
        self._ended_calls -= started

    def end_call(self, call_id: str) -> None:
        """Note that a call has ended, is not made, or waits for its turn: nothing inside of it goes on."""
        self._ended_calls.add(call_id)

    def is_early(self, branch: str | None, seq: int, *, escalations: bool) -> bool:
        """
        Whether an agent that runs beside *branch* has yet to come to something recorded before *seq*; with
        *escalations*, to an event that has ended others.
        """
        for event in islice(self._said, self._next, None):
            if seq_of(event) >= seq:
                return False
            counts = event.actions.escalate or not escalations
            if counts and self._is_running_beside(branch, event.branch, seq) and self._is_due(event):
                return True
        return False

    def _is_running_beside(self, branch: str | None, other: str | None, seq: int) -> bool:
        """Whether an agent in *other* runs, or will before *seq*, and comes to what is recorded there."""
        if is_within(other, branch) or is_within(branch, other):
            return False
        if any(call in self._ended_calls or self._made_after.get(call, 0) >= seq for call in calls_around(other)):
            return False
        if any(is_within(other, each) for each in self._ended_branches):
            return False
        beside = (each for each in self._running_branches if not is_within(branch, each))
        if any(is_within(other, each) for each in beside):
            return True
        calls = self._running_calls.difference(calls_around(branch))
        return not calls.isdisjoint(calls_around(other))

    def _skip(self) -> None:
        while self._next < len(self._said) and not self._is_due(self._said[self._next]):
            self._next += 1

    def _is_due(self, event: Event) -> bool:
        """Whether nobody has come to *event*, nor to something later in its branch or around it."""
        if any(is_around(other, event.branch) for other in self._left):
            return False
        return not any(self._covers(other, seq, event) for other, seq in self._replayed.items())

    def _covers(self, outer: str | None, replayed: int, event: Event) -> bool:
        """Whether an agent that has come to the event *replayed* in the branch *outer* has *event* behind it."""
        if is_around(outer, event.branch):
            return replayed >= seq_of(event)
        if not is_within(event.branch, outer):
            return False
        around = calls_around((event.branch or "")[len(outer or "") :])
        answer = self.responses.get(around[0])  # what is inside of a call that is still open is behind nobody
        return answer is not None and replayed >= seq_of(answer)


def _made_after(events: Iterable[Event], responses: Mapping[str, Event]) -> dict[str, int]:
    """By the id of an open call: the last answer to others of its turn, which replay comes to before it is made."""
    after: dict[str, int] = {}
    for event in events:
        ids = [id_of(call) for call in event.get_function_calls()]
        answered = [seq_of(responses[call_id]) for call_id in ids if call_id in responses]
        if answered:
            after.update((call_id, max(answered)) for call_id in ids if call_id not in responses)
    return after


def _shown(event: Event) -> str:
    step = event.actions.replay.step
    if step is not None:
        return f"step {step.name!r}"
    return brief(event.text) if event.text else ", ".join(f"call of {c.name!r}" for c in event.get_function_calls())
