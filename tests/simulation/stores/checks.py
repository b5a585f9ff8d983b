"""
What must hold in every world, whatever goes wrong: one property, one class.

They are told of what becomes true (`stored`, `ended`, `seen`, ...) and check that, not everything again; what needs a
look at everything is done when a process has died, and at the end. The truth they compare with is their own: the
*ledger* has what was acknowledged, in plain lists, and folds are computed here once more, in the most obvious way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from minirun._json import JSON
from minirun.events import Event
from minirun.flows._going_on import goes_on
from minirun.sessions import Invocation, InvocationStatus, SessionKey, SessionWriter
from minirun.simulation._mishaps import MODEL, TOOL
from minirun.simulation._store import FIRST

__all__ = ["Checkers", "Ledger", "State", "visible_of"]

Fail = Callable[[str, str], None]

# The points that the checkers are told of, by how they begin.
POINTS = (MODEL, TOOL)


class Ledger:
    """What was acknowledged, and what was found on the disk after a crash: the history as it must stay."""

    def __init__(self) -> None:
        self.logs: dict[SessionKey, list[Event]] = {}
        """The events of each session, by seq, its shared past included."""
        self.own: dict[SessionKey, int] = {}
        """From which seq on they are its own; what stands before belongs to the session it was forked from."""
        self.acknowledged: defaultdict[str, list[Event]] = defaultdict(list)
        """The events that were acknowledged to each invocation, without the message that began it."""
        self.begun: dict[str, tuple[SessionKey, str]] = {}
        """What was said, by its token: where, and in which invocation."""
        self.run_by: dict[str, tuple[int, SessionWriter]] = {}
        """Who runs an invocation, as far as anybody was told, and since which event."""
        self.ended: dict[str, InvocationStatus] = {}
        """How invocations have ended, or that they are paused."""
        self.doubtful: set[str] = set()
        """Invocations whose end a power cut may have taken: somebody may go on with them."""
        self.open_calls: dict[SessionKey, dict[str, str | None]] = {}
        """The calls that have no answer, and the invocations that make them."""
        self.branches: dict[str, str] = {}
        """Where calls are made."""
        self.waits: set[str] = set()
        """The calls that were said to wait for somebody."""
        self.suspended: set[str] = set()
        """The calls that were said to stay open until what waits is answered."""
        self.calls: set[str] = set()
        """The ids of all calls that were ever stored."""
        self.deleted: list[tuple[SessionKey, Event]] = []
        """The events of deleted sessions: what they wrote to shared scopes stays."""

    def end_of(self, invocation: Invocation) -> InvocationStatus | None:
        """How an invocation has ended, as far as anybody was told; None where a fork has it from its past."""
        key = SessionKey(invocation.app_name, invocation.user_id, invocation.session_id)
        if invocation.seq < self.own.get(key, 0):
            return None
        return self.ended.get(invocation.invocation_id)

    def left_open(self, key: SessionKey, resumed: str | None) -> list[str]:
        """
        The open calls that neither wait nor are to be settled by the invocation that is *resumed*.

        What is inside of a call, and waits, lets the call wait, and so does its question all that is suspended with it.
        """
        calls = self.open_calls.get(key, {})
        waiting = {call: of for call, of in calls.items() if call in self.waits}
        around = {step.rpartition("@")[2] for call in waiting for step in self.branches[call].split(".")}
        return [
            call
            for call, of in calls.items()
            if of != resumed
            and call not in waiting
            and call not in around
            and not (call in self.suspended and of in waiting.values())
        ]

    def begins(self, event: Event, writer: SessionWriter) -> bool:
        """
        Note that a run begins, or goes on, with *event*.

        Returns:
            False if this is told late: its process has stood still, and another one has gone on with the invocation.
        """
        invocation_id, seq = writer.invocation_id, event.seq or 0
        if seq < self.run_by.get(invocation_id, (0, writer))[0]:
            return False
        self.run_by[invocation_id] = (seq, writer)
        if self.may_go_on(invocation_id, event):
            del self.ended[invocation_id]
            self.doubtful.discard(invocation_id)
        return True

    def may_go_on(self, invocation_id: str, event: Event | None = None) -> bool:
        """
        Whether an invocation is paused, or has ended and nobody may remember it; or somebody goes on by *event* with
        one that has failed.
        """
        status = self.ended.get(invocation_id)
        if status in (InvocationStatus.FAILED, InvocationStatus.CANCELLED) and event is not None and goes_on(event):
            return True
        return status is InvocationStatus.PAUSED or (status is not None and invocation_id in self.doubtful)

    def create(self, key: SessionKey, events: Sequence[Event], *, own: int = 0) -> None:
        """Note a new session, with its past."""
        self.logs[key] = []
        self.own[key] = own
        self.open_calls[key] = {}
        for event in events:
            self.add(key, event, tracked=event.invocation_id is not None)

    def delete(self, key: SessionKey) -> None:
        """Note that a session is gone."""
        self.deleted.extend((key, event) for event in self.logs.pop(key)[self.own.pop(key) :])
        del self.open_calls[key]

    def add(self, key: SessionKey, event: Event, *, tracked: bool) -> None:
        """Note an event at the end of a session's log."""
        self.logs[key].append(event)
        if event.actions.rewind_before_seq is not None:
            self._undo(key, event.actions.rewind_before_seq)
        calls = self.open_calls[key]
        if not event.actions.replay.at_work:
            self.waits.update(event.long_running_tool_ids or ())
        self.suspended.update(event.actions.suspended_calls)
        if event.content is not None:
            made, answers = event.content.calls_and_responses
            if made:
                self.branches.update((call.id or "", event.branch or "") for call in made)
                self.calls.update(call.id or "" for call in made)
                if tracked:
                    calls.update((call.id, event.invocation_id) for call in made if call.id is not None)
            for response in answers:
                calls.pop(response.id or "", None)

    def _undo(self, key: SessionKey, target: int) -> None:
        """What has begun before is what it was then, and what has not ended is over; answered calls are open again."""
        log, calls = self.logs[key], self.open_calls[key]
        earlier = {event.invocation_id for event in log[:target]}
        for name in {event.invocation_id or "" for event in log[target:]}:
            if name in earlier or self.may_go_on(name):
                self.ended.pop(name, None)
        calls.clear()
        for event in visible_of(log):
            if event.invocation_id is not None:
                calls.update(
                    (call.id, event.invocation_id) for call in event.get_function_calls() if call.id is not None
                )
            for response in event.get_function_responses():
                calls.pop(response.id or "", None)


class Checker:
    """One property. The methods do nothing here; each checker has those that it needs."""

    def __init__(self, ledger: Ledger, fail: Fail) -> None:
        self.ledger = ledger
        self._fail = fail

    def fail(self, message: str) -> None:
        """Say that the property does not hold."""
        self._fail(message, type(self).__name__)

    def storing(self, key: SessionKey, event: Event, *, by: str | None, begins: bool) -> None:
        """An append was acknowledged to the invocation *by*, if to one; the ledger does not have it yet."""

    def ended(self, key: SessionKey, invocation_id: str, status: InvocationStatus) -> None:
        """The end of an invocation was recorded."""

    def point(self, label: str, invocation_id: str | None) -> None:
        """A task of an invocation is about to ask a model, or to call a tool: a point of POINTS."""

    def seen(self, key: SessionKey, invocation_id: str, seen: list[Event], after: int) -> None:
        """A user has received the last of *seen* from a run that began, or went on, with event number *after*."""

    def left(self, invocation_id: str, living: Iterable[str]) -> None:
        """A user is through with a run; these tasks live."""

    def found(self, stored: Mapping[SessionKey, Mapping[int, str | None]]) -> None:
        """These event ids are on the disk: a process has died, or the world ends."""

    def closed(self, logs: Mapping[SessionKey, list[Event]], state: State) -> None:
        """The world ends; this is everything that is stored."""


@attrs.frozen
class State:
    """All state that is stored."""

    sessions: Mapping[SessionKey, Mapping[str, JSON]]
    shared: Mapping[tuple[str, str], Mapping[str, JSON]]
    """By app and user; the user of the app's own is empty."""


class AcknowledgedIsStored(Checker):
    """What was acknowledged is stored: after every crash, and at the end."""

    def found(self, stored: Mapping[SessionKey, Mapping[int, str | None]]) -> None:
        for key, log in self.ledger.logs.items():
            there = stored.get(key, {})
            for event in log[self.ledger.own.get(key, 0) :]:
                assert event.seq is not None
                if event.seq not in there or there[event.seq] != event.id:
                    self.fail(f"{key}: event {event.seq} ({event.id}) was acknowledged and is not stored")


class NoGaps(Checker):
    """The events of a session are numbered without gaps, and no number is given twice."""

    def storing(self, key: SessionKey, event: Event, *, by: str | None, begins: bool) -> None:
        expected = len(self.ledger.logs[key])
        if event.seq != expected:
            self.fail(f"{key}: expected event {expected} to be next, found {event.seq}")

    def found(self, stored: Mapping[SessionKey, Mapping[int, str | None]]) -> None:
        for key, there in stored.items():
            first = min(there, default=0)
            if sorted(there) != list(range(first, first + len(there))):
                self.fail(f"{key}: its log has gaps: {sorted(there)}")


class SeenInOrder(Checker):
    """A user sees what was stored, in that order, nothing before it is stored, and nothing twice."""

    def seen(self, key: SessionKey, invocation_id: str, seen: list[Event], after: int) -> None:
        acknowledged = self.ledger.acknowledged[invocation_id]
        stored = sorted((event for event in acknowledged if (event.seq or 0) > after), key=lambda event: event.seq or 0)
        place = len(seen) - 1
        if place >= len(stored) or stored[place].id != seen[place].id:
            is_stored = any(event.id == seen[place].id for event in stored)
            what = "in another order than it was stored" if is_stored else "before it is stored"
            self.fail(f"{key}: event {seen[place].seq} ({seen[place].id}) was seen {what}")


class CallsAreAnswered(Checker):
    """
    Every call is stored before its tool begins, and answered once; none is open when a run begins or has ended well.

    When a run begins, those may be open that wait for somebody, and those of the invocation that it goes on with.
    """

    def storing(self, key: SessionKey, event: Event, *, by: str | None, begins: bool) -> None:
        calls = self.ledger.open_calls.get(key, {})
        left = self.ledger.left_open(key, by) if begins else ()
        if left:
            self.fail(f"{key}: the calls {sorted(left)} are open while a new message is stored")
        for response in () if by is None else event.get_function_responses():
            if response.id not in calls:
                self.fail(f"{key}: event {event.seq} answers the call {response.id}, which is not open")

    def ended(self, key: SessionKey, invocation_id: str, status: InvocationStatus) -> None:
        calls = [call for call, by in self.ledger.open_calls.get(key, {}).items() if by == invocation_id]
        if status is InvocationStatus.COMPLETED and calls:
            self.fail(f"{key}: {invocation_id} is recorded as completed while the calls {calls} are open")

    def point(self, label: str, invocation_id: str | None) -> None:
        if label.startswith(TOOL):
            call = label.rpartition("#")[2]
            if call not in self.ledger.calls:
                self.fail(f"a tool begins while its call {call} is not stored")


class InsideOfItsCall(Checker):
    """
    What is said inside of a call (`helper@<call id>`) is said between the call and its answer.

    Only what the run has failed with is told at its end, wherever that was.
    """

    def storing(self, key: SessionKey, event: Event, *, by: str | None, begins: bool) -> None:
        is_report = event.content is None and event.error_code is not None
        if by is None or event.branch is None or "@" not in event.branch or is_report:
            return
        calls = self.ledger.open_calls.get(key, {})
        around = [step.rpartition("@")[2] for step in event.branch.split(".") if "@" in step]
        closed = [call for call in around if call not in calls]
        if closed:
            self.fail(f"{key}: event {event.seq} is said in {event.branch}, and the calls {closed} are not open")


class OneEnd(Checker):
    """
    An invocation ends once, after everything that belongs to it, and nothing that has ended is running.

    Only a summary may follow: the end is recorded before it is made. One that is paused has not ended, and one
    whose end a power cut may have taken may be gone on with.
    """

    def storing(self, key: SessionKey, event: Event, *, by: str | None, begins: bool) -> None:
        status = self.ledger.ended.get(by or "")
        is_own = event.invocation_id == by  # else it answers the calls of a dead run, before it begins itself
        is_late = by in self.ledger.run_by and (event.seq or 0) < self.ledger.run_by[by][0]  # told after another's
        if event.actions.compaction is not None and status is InvocationStatus.COMPLETED:
            return
        if status is not None and is_own and not is_late and not (begins and self.ledger.may_go_on(by or "", event)):
            self.fail(f"{key}: {by} stores event {event.seq} after its end ({status})")

    def ended(self, key: SessionKey, invocation_id: str, status: InvocationStatus) -> None:
        before = self.ledger.ended.get(invocation_id)
        if before is not None and not self.ledger.may_go_on(invocation_id):
            self.fail(f"{key}: {invocation_id} is recorded as {status}, and was {before}")


class BudgetIsKept(Checker):
    """No invocation asks models, calls tools and hands over more often than its RunConfig allows."""

    def __init__(self, ledger: Ledger, fail: Fail) -> None:
        super().__init__(ledger, fail)
        self.limits: dict[str, tuple[int, int, int]] = {}
        """By invocation: how many questions to models, calls of tools and transfers."""
        self._counts: defaultdict[tuple[str, str], int] = defaultdict(int)

    def point(self, label: str, invocation_id: str | None) -> None:
        for place, kind in enumerate((MODEL, TOOL)):
            if label.startswith(kind):
                self._count(invocation_id, f"{kind}calls", place)

    def storing(self, key: SessionKey, event: Event, *, by: str | None, begins: bool) -> None:
        if by is not None and event.invocation_id == by and event.actions.transfer_to_agent is not None:
            self._count(by, "transfers", 2)

    def _count(self, invocation_id: str | None, kind: str, place: int) -> None:
        if invocation_id is None or invocation_id not in self.limits:
            return
        limit = self.limits[invocation_id][place]
        self._counts[invocation_id, kind] += 1
        if 0 < limit < self._counts[invocation_id, kind]:
            self.fail(f"{invocation_id} may use {limit} {kind}, and begins one more")


class NothingIsLeft(Checker):
    """When a user is through with a run, no task of it lives."""

    def left(self, invocation_id: str, living: Iterable[str]) -> None:
        left = [name for name in living if name.endswith(f" of {invocation_id}") or f" of {invocation_id}/" in name]
        if left:
            self.fail(f"the run {invocation_id} was left, and these tasks live: {sorted(left)}")


class SummariesGoOn(Checker):
    """
    A summary covers a beginning of what is visible, goes on from the one before it, and ends inside of no call.

    An invocation that it covers has ended: it says nothing more, but for its calls that are closed.
    """

    def __init__(self, ledger: Ledger, fail: Fail) -> None:
        super().__init__(ledger, fail)
        self._covered: defaultdict[SessionKey, set[str]] = defaultdict(set)

    def storing(self, key: SessionKey, event: Event, *, by: str | None, begins: bool) -> None:
        if event.actions.rewind_before_seq is not None:
            self._covered[key].clear()  # what it undoes may be a summary
        if event.actions.compaction is not None:
            self._check(key, event, event.actions.compaction)
        elif event.content is not None and event.invocation_id == by and by in self._covered[key]:
            self.fail(f"{key}: {by} says event {event.seq}, and a summary covers what it has said before")

    def _check(self, key: SessionKey, event: Event, summary: Mapping[str, Any]) -> None:
        visible = visible_of(self.ledger.logs[key])
        earlier = [one for one in visible if one.actions.compaction is not None][-1:]
        previous, covered_until = (earlier[0].seq, _end_of(earlier[0])) if earlier else (0, 0)
        past = [one for one in visible if (one.seq or 0) <= summary["end_seq"]]
        if summary["start_seq"] != 1 or summary["previous_seq"] != previous:
            self.fail(f"{key}: event {event.seq} goes on from {summary['previous_seq']}, and {previous} is in force")
        if not covered_until < summary["end_seq"] < (event.seq or 0):
            self.fail(f"{key}: event {event.seq} covers all up to {summary['end_seq']}, after {covered_until}")
        answered = {response.id for one in past for response in one.get_function_responses()}
        calls = [call.id for one in past for call in one.get_function_calls() if call.id not in answered]
        if calls:
            self.fail(f"{key}: event {event.seq} covers the calls {calls}, and not their responses")
        self._covered[key].update(one.invocation_id or "" for one in past if one.invocation_id != event.invocation_id)


def _end_of(event: Event) -> int:
    summary = event.actions.compaction
    assert summary is not None
    end: int = summary["end_seq"]
    return end


class StateIsTheFold(Checker):
    """The state of a session is what its events make of it; sums and lists of shared scopes miss nothing."""

    def closed(self, logs: Mapping[SessionKey, list[Event]], state: State) -> None:
        for key, log in logs.items():
            folded = _own_state(log)
            stored = dict(state.sessions.get(key, {}))
            if stored != folded:
                self.fail(f"{key}: its state is {stored}; its events make {folded}")
        own = [(key, event) for key, log in logs.items() for event in log[self.ledger.own.get(key, 0) :]]
        shared: defaultdict[tuple[str, str, str], list[tuple[str, Any]]] = defaultdict(list)
        for key, event in (*own, *self.ledger.deleted):
            for name, kind, value in _writes(event):
                if name.startswith("app:"):
                    shared[key.app_name, "", name].append(("first" if event.id == FIRST else kind, value))
                elif name.startswith("user:"):
                    shared[key.app_name, key.user_id, name].append((kind, value))
        for (app, user, name), writes in shared.items():
            now = state.shared.get((app, user), {}).get(name)
            problem = _shared_problem(writes, now)
            if problem:
                self.fail(f"{app}: {name} of {user or 'all'} is {now!r}; {problem}")


def _writes(event: Event) -> list[tuple[str, str, Any]]:
    """What an event writes: key, kind, value."""
    actions = event.actions
    return [
        *((key, "remove", None) for key in actions.state_removed),
        *((key, "set", value) for key, value in actions.state_delta.items()),
        *((key, kind, value) for key, op in actions.state_ops.items() for kind, value in op.items()),
    ]


def visible_of(log: Sequence[Event]) -> list[Event]:
    """What no rewind has undone, without the rewinds."""
    visible: list[Event] = []
    for event in log:
        target = event.actions.rewind_before_seq
        if target is not None:
            visible = [earlier for earlier in visible if (earlier.seq or 0) < target]
        else:
            visible.append(event)
    return visible


def _own_state(log: list[Event]) -> dict[str, Any]:
    """The session-scoped state after *log*, folded in the most obvious way."""
    state: dict[str, Any] = {}
    for event in visible_of(log):
        for name, kind, value in _writes(event):
            if not name.startswith(("app:", "user:")):
                _apply(state, name, kind, value)
    return state


def _apply(state: dict[str, Any], name: str, kind: str, value: Any) -> None:
    if kind == "add":
        state[name] = state.get(name, 0) + value
    elif kind == "extend":
        state[name] = [*state.get(name, ()), *value]
    elif kind == "remove":
        state.pop(name, None)
    else:
        state[name] = value


def _shared_problem(writes: list[tuple[str, Any]], now: Any) -> str:
    """Why a value cannot be what concurrent *writes* have made, in whatever order."""
    kinds = {kind for kind, _ in writes}
    values = [value for _, value in writes]
    if "add" in kinds and kinds <= {"add", "first"} and not math.isclose(now or 0, sum(values), abs_tol=1e-9):
        return f"what was added makes {sum(values)}"
    if "extend" in kinds and kinds <= {"extend", "first"}:
        items = sorted(repr(item) for value in values for item in value)
        if sorted(repr(item) for item in now or ()) != items:
            return f"what was added are {items}"
    if kinds <= {"set", "first"} and now not in values:
        return f"what was written are {values}"
    return ""


_ALL: Final[tuple[type[Checker], ...]] = (
    AcknowledgedIsStored,
    NoGaps,
    SeenInOrder,
    CallsAreAnswered,
    InsideOfItsCall,
    OneEnd,
    BudgetIsKept,
    NothingIsLeft,
    SummariesGoOn,
    StateIsTheFold,
)
# By what they are told, those that want to know; found once, for each world has all of them.
_WHO_WANTS: Final = {
    name: [place for place, kind in enumerate(_ALL) if name in vars(kind)]
    for name in ("storing", "ended", "point", "seen", "left", "found", "closed")
}


class Checkers:
    """All of them; each method tells those that want to know."""

    def __init__(self, ledger: Ledger, fail: Fail) -> None:
        checkers = [kind(ledger, fail) for kind in _ALL]
        [self.budget] = (checker for checker in checkers if isinstance(checker, BudgetIsKept))
        self.storing = _all(checkers, "storing")
        self.ended = _all(checkers, "ended")
        self.point = _all(checkers, "point")
        self.seen = _all(checkers, "seen")
        self.left = _all(checkers, "left")
        self.found = _all(checkers, "found")
        self.closed = _all(checkers, "closed")


def _all(checkers: Sequence[Checker], name: str) -> Callable[..., None]:
    wanted = [getattr(checkers[place], name) for place in _WHO_WANTS[name]]
    if len(wanted) == 1:
        only: Callable[..., None] = wanted[0]
        return only

    def tell(*arguments: Any, **options: Any) -> None:
        for checker in wanted:
            checker(*arguments, **options)

    return tell
