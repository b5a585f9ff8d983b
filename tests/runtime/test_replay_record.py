"""
What a replay knows of a record, against a model that keeps plain sets: random logs, and random ways through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import Event, EventActions
from minirun.events import Replay
from minirun.flows._record import Record
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..examples import examples

BRANCHES = [None, "p.a", "p.b", "p.b.q.x", "in@c1", "p.a.in@c2"]
CALLS = ["c1", "c2"]
PATHS = ["one", "two"]

PARALLEL = [(None, "p."), ("p.b", "p.b.q.")]  # where branches set out, and how these begin

spoken = st.tuples(st.just("said"), st.sampled_from(BRANCHES), st.booleans())  # and whether it escalates
calling = st.tuples(st.just("calls"), st.sampled_from(BRANCHES[:3]), st.sets(st.sampled_from(CALLS), min_size=1))
answering = st.tuples(st.just("answers"), st.sampled_from(BRANCHES[:3]), st.sampled_from(CALLS))
logs = st.lists(st.one_of(spoken, spoken, calling, answering), min_size=1, max_size=7)

branches, calls = st.sampled_from(["p.a", "p.b"]), st.sampled_from(CALLS)
idle = st.sets(st.sampled_from(["p.a", "p.b", *CALLS]), max_size=2)
moves = st.one_of(
    st.tuples(st.just("mark_replayed"), st.integers(1, 7)),
    st.tuples(st.just("leave"), st.sampled_from(BRANCHES[1:])),
    st.tuples(st.just("join"), st.sampled_from(PARALLEL)),
    st.tuples(st.sampled_from(["start_branches", "end_branch"]), branches),
    st.tuples(st.sampled_from(["start_calls", "end_call"]), calls),
)

START, END = [("start_branches", each) for each in ("p.a", "p.b")], [("end_branch", each) for each in ("p.a", "p.b")]
ends = st.sampled_from([[], [*END, *START], [*END, ("join", PARALLEL[0])], [*END, ("join", PARALLEL[0]), *START[:1]]])


def made(log: Sequence[Any]) -> list[Event]:
    """The message, and the events of this log: a call is made once, and answered once after that."""
    found = [Event(id="e0", seq=0, author="user", message="go")]
    new, still_open = set(CALLS), set[str]()
    for kind, branch, more in log:
        parts, actions = [Part(text="said")], EventActions()
        if kind == "said":
            actions = EventActions(escalate=more or None)
        elif kind == "calls" and more & new:
            parts = [Part(function_call=FunctionCall(id=each, name="work")) for each in sorted(more & new)]
            still_open |= more & new
            new -= more
        elif kind == "answers" and more in still_open:
            parts = [Part(function_response=FunctionResponse(id=more, name="work", response={}))]
            still_open.remove(more)
        seq, content = len(found), Content(role="model", parts=parts)
        found.append(Event(id=f"e{seq}", seq=seq, author="a", branch=branch, content=content, actions=actions))
    return found


def steps_of(branch: str | None) -> list[str]:
    return branch.split(".") if branch else []


def is_in(branch: str | None, outer: str | None) -> bool:
    """Whether *branch* is *outer*, or below it."""
    return steps_of(branch)[: len(steps_of(outer))] == steps_of(outer)


def calls_of(branch: str | None, outer: str | None = None) -> list[str]:
    """The calls that *branch*, which is in *outer*, is inside of there."""
    return [step.partition("@")[2] for step in steps_of(branch)[len(steps_of(outer)) :] if "@" in step]


class Model:
    """The same by looking at everything each time: which events are behind, and what has become of whom."""

    def __init__(self, log: Sequence[Event]) -> None:
        self.said = log[1:]
        self.behind: set[str | None] = set()
        self.come_to: list[tuple[str, int]] = []
        self.left: list[str | None] = []
        self.answers = {one.id or "": event.seq or 0 for event in log for one in event.get_function_responses()}
        self.branches: dict[str, str] = {}
        self.calls = dict.fromkeys(self.answers, "ended")

    def all_of(self, branch: str | None) -> list[Event]:
        return [one for one in self.said if is_in(one.branch, branch) and not calls_of(one.branch, branch)]

    def mark_replayed(self, event: Event) -> None:
        seq = event.seq or 0
        self.come_to.append((event.branch or "", seq))
        for one in self.said:
            if is_in(one.branch, event.branch):
                inside = calls_of(one.branch, event.branch)
                at = self.answers.get(inside[0]) if inside else one.seq
                if at is not None and at <= seq:
                    self.behind.add(one.id)

    def leave(self, branch: str | None) -> None:
        self.left.append(branch)
        self.behind |= {one.id for one in self.all_of(branch)}

    def join(self, branch: str | None, within: str) -> None:
        ended = [each for each, what in self.branches.items() if what == "ended" and each.startswith(within)]
        for each in ended:
            del self.branches[each]
        if any((each or "").startswith(within) for each in self.left):
            self.leave(branch)
        last = max([seq for each, seq in self.come_to if each.startswith(within)], default=0)
        for one in self.said[: max(last - 1, 0)]:
            if one.id not in self.behind and (one.branch or "").startswith(within):
                self.mark_replayed(one)

    def next_in(self, branch: str | None) -> Event | None:
        return next((one for one in self.all_of(branch) if one.id not in self.behind), None)

    def is_replaying(self, branch: str | None) -> bool:
        has_left = any(is_in(branch, each) and not calls_of(branch, each) for each in self.left)
        return self.next_in(branch) is not None or not has_left

    def made_after(self, call: str) -> int:
        """Where the last answer stands to another call of its turn; 0 if it is answered itself."""
        [turn] = [ids for ids in ({c.id or "" for c in one.get_function_calls()} for one in self.said) if call in ids]
        return 0 if call in self.answers else max([self.answers.get(each, 0) for each in turn])

    def comes(self, one: Event, branch: str | None, seq: int) -> bool:
        """Whether somebody beside *branch* runs, or will before *seq*, who comes to this event."""
        around = calls_of(one.branch)
        known = {call.id for each in self.said for call in each.get_function_calls()}
        if is_in(one.branch, branch) or is_in(branch, one.branch):
            return False
        if any(self.calls.get(call) == "ended" for call in around):
            return False
        if any(self.made_after(call) >= seq for call in around if call in known):
            return False
        if any(what == "ended" and is_in(one.branch, each) for each, what in self.branches.items()):
            return False
        running = [each for each, what in self.branches.items() if what == "running" and is_in(one.branch, each)]
        making = [call for call in around if self.calls.get(call) == "running"]
        return any(not is_in(branch, each) for each in running) or any(call not in calls_of(branch) for call in making)

    def is_early(self, branch: str | None, seq: int, escalations: bool) -> bool:
        earlier = [one for one in self.said[: seq - 1] if one.id not in self.behind]
        return any(self.comes(one, branch, seq) for one in earlier if one.actions.escalate or not escalations)


@settings(max_examples=examples(300))
@given(logs, idle, st.lists(moves, max_size=6), ends)
def test_a_record_knows_what_comes_next_and_whom_it_waits_for(log: Any, idle: set[str], way: Any, end: Any) -> None:
    """However agents have come to what is recorded, left it, begun and ended: as a model says that notes everything."""
    events = made(log)
    record, model = Record(events, (), was_paused=True), Model(events)
    begins = [("start_calls" if each in CALLS else "start_branches", each) for each in ("p.a", "p.b", *CALLS)]
    for name, what in [*(each for each in begins if each[1] not in idle), *way, *end]:
        if name == "mark_replayed" and what >= len(events):
            continue
        if name == "join":
            record.join(*what)
            model.join(*what)
        elif name == "mark_replayed":
            record.mark_replayed(events[what])
            model.mark_replayed(events[what])
        elif name == "leave":
            record.leave(what)
            model.leave(what)
        elif name == "start_branches":
            record.start_branches([what])
            model.branches[what] = "running"
        elif name == "end_branch":
            record.end_branch(what)
            model.branches[what] = "ended"
        elif name == "start_calls":
            record.start_calls([what])
            model.calls[what] = "running"
        else:
            record.end_call(what)
            model.calls[what] = "ended"
    for branch in BRANCHES:
        assert record.next_in(branch) == model.next_in(branch)
        assert record.is_replaying(branch) == model.is_replaying(branch)
        for seq in range(1, len(events) + 1):
            for escalations in (False, True):
                found = record.is_early(branch, seq, escalations=escalations)
                assert found == model.is_early(branch, seq, escalations), (branch, seq, escalations)


@given(logs)
def test_what_is_answered_next_is_the_order_recorded(log: Sequence[Any]) -> None:
    """Who comes to one event after the other in a branch is told each in turn, and then that nothing is left."""
    events = made(log)
    for branch in BRANCHES:
        record, found = Record(events, (), was_paused=True), []
        while (event := record.next_in(branch)) is not None:
            found.append(event)
            record.mark_replayed(event)
        assert found == Model(events).all_of(branch)


@given(st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(["open", "before", "now"])), max_size=5))
def test_what_waits_has_a_question_that_is_not_answered_or_only_now(asked: Sequence[tuple[str, str]]) -> None:
    """By the paths of who has asked: a question answered before this run keeps nobody waiting."""
    events = [Event(id="e0", seq=0, author="user", message="go")]
    answers: dict[str, list[Part]] = {"open": [], "before": [Part(text="well")], "now": [Part(text="yes")]}
    for number, (path, when) in enumerate(asked):
        part = Part(function_call=FunctionCall(id=f"q{number}", name="adk_request_input"))
        actions = EventActions(replay=Replay(asked_by=path))
        events.append(Event(author="a", content=Content(role="model", parts=[part]), actions=actions))
        response = FunctionResponse(id=f"q{number}", name="adk_request_input", response={})
        answers[when].append(Part(function_response=response))
    events += [Event(author="user", content=Content(parts=answers[when])) for when in ("before", "now")]
    record = Record(events, (), was_paused=True)
    for path in PATHS:
        assert record.is_waiting(path) == any(each == path and when != "before" for each, when in asked)
