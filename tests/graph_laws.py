"""What is true of the log of a workflow that follows a sketch (sketches.py)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from minirun import Content, Event
from minirun.flows._questions import REQUEST_CONFIRMATION
from minirun.workflow import DEFAULT_ROUTE, FAILED
from minirun.workflow._graph import NodeRun, Plan
from minirun.workflow._running import outcome_of

from .graphs import Ground, build, mark, told
from .laws import Log, expect
from .sketches import Draft, Sketch

__all__ = ["attempts_in", "check_graph_log", "folded", "outcomes_of"]


def outcomes_of(log: Log) -> dict[str, Event]:
    """The events that runs of nodes have ended with, by their paths; a run ends once."""
    found: dict[str, Event] = {}
    for event in log:
        path = event.actions.replay.ended
        if path is not None:
            expect(path not in found, f"the run {path} has ended twice")
            found[path] = event
    return found


def attempts_in(log: Iterable[Event]) -> list[tuple[str, int]]:
    """The attempts of nodes that have failed, as the log notes them: which run, and which of its attempts."""
    notes = (event.actions.replay.attempt for event in log if event.author != "user")
    return [(note["run"], note["number"]) for note in notes if note is not None]


def folded(sketch: Sketch, path: str, value: Any, log: Log) -> Plan:
    """The plan of the workflow on *path* that follows from the log."""
    plan = build(sketch, Ground())._graph.begin(value)
    for event in log:
        above, _, run_id = (event.actions.replay.ended or "").rpartition("/")
        if above == path:
            plan = plan.ended(run_id, outcome_of(event, _run(plan, run_id).input))
    return plan


def _run(plan: Plan, run_id: str) -> NodeRun:
    found = [run for run in plan.ready if run.id == run_id]
    expect(len(found) == 1, f"{run_id} has ended, and {plan.ready} are ready")
    return found[0]


def check_graph_log(sketch: Sketch, log: Log, *, is_over: bool) -> None:
    """
    Check the events of one invocation of a workflow; *is_over* if it has come to its end.

    What is expected follows from the sketch, and not from the plans of the package.
    """
    outcomes_of(log)
    attempts = attempts_in(log)
    expect(len(attempts) == len(set(attempts)), f"an attempt is noted twice: {attempts}")
    _Checking(sketch, f"run/{sketch.name}", log, is_over).check(log[0].content)


class _Checking:
    """Checks what one workflow has left in a log."""

    def __init__(self, sketch: Sketch, path: str, log: Log, is_over: bool) -> None:
        self._sketch = sketch
        self._path = path
        self._log = log
        self._is_over = is_over
        self._drafts = {draft.name: draft for draft in sketch.drafts}
        self._given: dict[str, list[Any]] = defaultdict(list)  # what each node is to be given, run by run
        self._came: dict[tuple[str, str], list[Any]] = defaultdict(list)  # what waits in joins, by predecessor
        self._ended: Counter[str] = Counter()

    def check(self, value: Any) -> None:
        for target in self._sketch.start:
            self._deliver("START", target, value)
        for event in self._log:
            above, _, run_id = (event.actions.replay.ended or "").rpartition("/")
            if above == self._path:
                self._check_outcome(run_id, event)
        if self._is_over:
            left = {key: values for key, values in self._came.items() if values}
            expect(not left, f"what has come to joins does not go on: {left}")
            for name, given in self._given.items():
                expect(self._ended[name] == len(given), f"{name} was to run {len(given)} times: {self._ended[name]}")
        folded(self._sketch, self._path, value, self._log)

    def _deliver(self, source: str, target: str, value: Any) -> None:
        if target == "END":
            return
        if self._drafts[target].kind == "join":
            self._came[target, source].append(value)
        else:
            self._given[target].append(value)

    def _check_outcome(self, run_id: str, event: Event) -> None:
        name, _, number = run_id.partition("@")
        draft = self._drafts[name]
        self._ended[name] += 1
        if draft.kind == "join":
            given: Any = self._joined(name, event)
        else:
            expect(int(number) <= len(self._given[name]), f"{run_id} has ended, and nothing has led to it")
            given = self._given[name][int(number) - 1]
            self._check_own(draft, run_id, given, event)
        for target in taken(draft, event):
            self._deliver(name, target, _handed_on(event, given))

    def _joined(self, name: str, event: Event) -> Any:
        """What a join is given: the first of each predecessor that could come, in order of declaration."""
        draft, predecessors = self._drafts[name], self._sketch.predecessors(name)
        expected = {each: self._came[name, each].pop(0) for each in predecessors if self._came[name, each]}
        if draft.is_strict and len(expected) < len(predecessors):
            expect(event.error_code == "WorkflowError", f"the join {name} lacks some, and has ended with {event}")
            return _shown(expected)
        given: Any = _shown(expected)
        given = list(given.values()) if draft.variant == 1 else given
        expect(
            event.error_code is None and told(event.output) == told(given),
            f"the join {name} was to give {given}, and gives {event.output}",
        )
        return event.output

    def _check_own(self, draft: Draft, run_id: str, given: Any, event: Event) -> None:
        written = set(event.actions.state_delta)
        if draft.kind in WRITES or (draft.kind == "agent" and draft.number in (1, 4, 5, 6)):
            expect(draft.name in written, f"{run_id} has ended without what it has written: {event}")
        if draft.kind == "fails":
            expect(draft.name not in written, f"{run_id} has failed, and what it has written stays: {event}")
            expect(event.error_code == FAILURES[draft.variant], f"{run_id} has failed, and has ended with {event}")
        if draft.kind == "says" and draft.reads is None:
            expect(event.output == mark(draft.name, given), f"{run_id} was given {given!r}, and gives {event.output}")
        if draft.kind in ("tool", "toolset"):
            self._check_used(draft, run_id, given, event)
        questions = questions_of(draft)
        if questions:
            self._check_answers(draft, run_id, event, questions)
        if draft.inner is not None:
            path = f"{self._path}/{run_id}/{draft.inner.name}"
            _Checking(draft.inner, path, self._log, True).check(given)

    def _inside(self, event: Event) -> list[Event]:
        """All that was said in the run that has ended with *event*."""
        branch = event.branch or ""
        return [each for each in self._log if each.branch == branch or (each.branch or "").startswith(f"{branch}.")]

    def _check_used(self, draft: Draft, run_id: str, given: Any, event: Event) -> None:
        """A tool was called with what the node was given, and what it has written is with its response."""
        value = given.text if isinstance(given, Content) else given
        if draft.kind == "toolset":
            value = (json.loads(value) if isinstance(value, str) else value)["args"]
        args = value if isinstance(value, dict) else {} if value is None else {"given": value}
        expect(event.output == mark(draft.name, args), f"{run_id} was given {given!r}, and gives {event.output}")
        inside = self._inside(event)  # what has failed, and was tried again when somebody has gone on, has no result
        responses = [each for each in inside if any("result" in one.response for one in each.get_function_responses())]
        expect(
            [draft.name in each.actions.state_delta for each in responses] == [True],
            f"the tool {run_id} was to write once, with its response: {responses}",
        )

    def _check_answers(self, draft: Draft, run_id: str, event: Event, questions: int) -> None:
        """What was asked in a run was asked once, and what was answered is what it gives."""
        said = self._inside(event)
        # what is not answered by a user was withdrawn, because something beside it had failed, and is asked anew
        answers = [
            one.response for each in said for one in each.get_function_responses()
            if each.author == "user" and one.name != REQUEST_CONFIRMATION
        ]
        asked = {one.id for each in said if each.author == "user" for one in each.get_function_responses()}
        is_agent = draft.kind == "agent"  # whose call may have been answered as cancelled: it is made, and asks, anew
        if not is_agent or draft.number == 4:
            is_asked = len(asked) == questions or (is_agent and len(asked) > questions)
            expect(is_asked, f"{run_id} was to ask {questions} times, and has asked {asked}")
        words: Any = [answer["result"] for answer in answers][-1 if is_agent else 0 :]
        if draft.kind in ("asks", "yields"):
            given: Any = [event.output[1] if draft.kind == "asks" else event.output]
        elif draft.kind == "task":
            given, words = event.output["result"], " ".join(words)
        elif draft.kind == "agent" and draft.number == 4:
            given = [event.text.removeprefix(f"{draft.name} has heard ")]
        else:
            return
        expect(given == words, f"{run_id} was answered {words!r}, and gives {given!r}")


def questions_of(draft: Draft) -> int:
    """How many questions a run of a node asks."""
    if draft.kind in ("asks", "yields"):
        return 1
    if draft.kind == "task":
        return draft.number
    if draft.kind == "maps":
        return draft.number if draft.variant == 3 else 0
    is_asking_agent = draft.kind == "agent" and draft.number in (4, 5)
    return int(is_asking_agent or (draft.kind, draft.variant) == ("parent", 2))


FAILURES = ("ValueError", "NodeTimeoutError", "StateSchemaError")
"""What a node of the kind `fails` fails with."""
WRITES = {"says", "acts", "maps", "asks", "waits", "retries", "parent", "rounds", "routes", "calls", "task"}


def taken(draft: Draft, event: Event) -> list[str]:
    """Where the outcome of a node leads, each target once."""
    if event.error_code is not None:
        return list(dict.fromkeys(target for route, target in draft.to if route is FAILED))
    found = event.actions.route
    routes = [] if found is None else list(found) if isinstance(found, (list, tuple)) else [found]
    keys = {(type(route), route) for route in routes}
    matched = [route for route, _ in draft.to if (type(route), route) in keys]
    return list(
        dict.fromkeys(
            target
            for route, target in draft.to
            if route is None or (type(route), route) in keys or (route is DEFAULT_ROUTE and not matched)
        )
    )


def _handed_on(event: Event, given: Any) -> Any:
    if event.error_code is not None:
        told = given.text if isinstance(given, Content) else given
        return {"type": event.error_code, "message": event.error_message, "input": told}
    if event.node_info.message_as_output:
        return event.text
    return given if event.output is None and event.actions.route is not None else event.output


def _shown(value: dict[str, Any]) -> dict[str, Any]:
    """Values as a join gives them on: the user's words are text there."""
    return {key: each.text if isinstance(each, Content) else each for key, each in value.items()}
