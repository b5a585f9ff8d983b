"""
How far the runs of nodes of an invocation have come, as its events tell it.

No graph takes part: what is told is what is stored, and so the same in the process that runs the nodes, in another one,
and after a crash. Which runs of nodes an event belongs to follows from the path of ids that the runtime has noted in it
(`run/wf/fetch@1`), which names them and nothing else with `@`. Where it has noted none, as in what a node only says, it
follows from the branch, whose last part is the innermost run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import attrs

from .._record import Record
from ..events import Event
from ..types import id_of
from ._invocation import InvocationStatus

__all__ = ["NodeRunInfo", "NodeRunStatus", "node_runs"]


class NodeRunStatus(StrEnum):
    """How far the run of a node has come."""

    READY = "ready"
    """
    It may begin, or has recorded nothing yet; or it is to be run again: its next attempt is to come, or the run of the
    invocation was cut off, or has paused.
    """
    RUNNING = "running"
    WAITING = "waiting"
    """It waits for somebody outside, or for a time; or what runs in it does."""
    ENDED = "ended"
    FAILED = "failed"
    """Its last attempt has failed. If a node handles that (the route FAILED), the workflow goes on."""
    SKIPPED = "skipped"
    """
    It was left, and nobody comes back to it: something beside it has failed, or has ended what it was part of; or it
    has never come, as no route has led there.
    """


@attrs.frozen(kw_only=True, eq=False, repr=False)
class NodeRunInfo(Record):
    """
    The run of a node, as the log has it.

    `path` is the one that its events have as `node_info.path`: `desk@1/lookup@2` is the second run of `lookup`.
    `attempts` is how many have begun. `seconds` is the time from the first thing that is recorded of the run, or in it,
    to its end; None if it has not ended, or nothing but its end is recorded.
    """

    path: str
    status: NodeRunStatus
    attempts: int
    seconds: float | None = None

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.path.rpartition("/")[2].partition("@")[0]

    @property
    def run_id(self) -> str:
        """Which run of the node it is."""
        return self.path.rpartition("/")[2].partition("@")[2]


@attrs.define(eq=False)
class _Run:
    """What was read of one run so far."""

    path: str
    begun: Event
    is_certain: bool = False
    noted: int = 0  # attempts that have failed, and after which another is to come
    is_between: bool = False  # whether nothing has come since the last of these
    last: Event | None = None  # what it has ended with, or failed

    @property
    def attempts(self) -> int:
        return self.noted + (not self.is_between)

    @property
    def seconds(self) -> float | None:
        if self.last is None or self.last is self.begun or self.last.timestamp is None or self.begun.timestamp is None:
            return None
        return max(0.0, self.last.timestamp - self.begun.timestamp)


def node_runs(events: Iterable[Event], invocation_id: str, status: InvocationStatus) -> list[NodeRunInfo]:
    """
    Return the runs of nodes that are recorded among *events*, in the order in which each is first mentioned.

    A run that nothing is recorded of, as it has only just begun, is not among them; nor is a node that no run was made
    of. Of an agent that runs others side by side, is a node and has not ended, each of those may be told as a run, too.

    Args:
        events: All stored events from the message of the invocation on; those of others are passed over.
        invocation_id: Which invocation.
        status: How far that has come.
    """
    runs: dict[str, _Run] = {}
    asked: dict[str, list[str]] = {}  # by the ids of open questions: the runs that wait for the answer
    for event in events:
        if event.invocation_id != invocation_id:
            continue
        for response in event.get_function_responses():
            asked.pop(id_of(response), None)
        if event.node_info.output_for is None:
            continue
        paths = list(_paths(event))
        for path, is_certain in paths:
            run = runs.setdefault(path, _Run(path, event))
            run.is_certain |= is_certain
            run.is_between, run.last = False, None
        _note_end(event, runs)
        if not event.actions.replay.at_work:
            for call_id in event.long_running_tool_ids or ():
                asked[call_id] = [path for path, _ in paths]
    waiting = {path for paths_of in asked.values() for path in paths_of}
    over = {path for path, run in runs.items() if run.last is not None}
    return [
        NodeRunInfo(
            path=run.path,
            status=_status(run, status, is_waiting=run.path in waiting, is_left=_is_below(run.path, over)),
            attempts=run.attempts,
            seconds=run.seconds,
        )
        for run in runs.values()
        if run.is_certain or not _is_below(run.path, over)
    ]


def _note_end(event: Event, runs: dict[str, _Run]) -> None:
    """Note in the run that *event* is about that it has ended, has failed, or is to be attempted again."""
    path, replay = event.node_info.path, event.actions.replay
    if replay.attempt is not None and path in runs:
        runs[path].noted += 1
        runs[path].is_between = True
    elif replay.ended is not None and path in runs:
        runs[path].last = event
    elif _is_failure(event):  # which fails all that the run is in
        for above in (*_above(path), path):
            if above in runs and runs[above].last is None:
                runs[above].last = event


def _is_failure(event: Event) -> bool:
    """Whether it is what the runtime stores of a failure that nothing has handled."""
    replay = event.actions.replay
    return event.error_code is not None and bool(replay.aside) and replay.step is None


def _status(run: _Run, invocation: InvocationStatus, *, is_waiting: bool, is_left: bool) -> NodeRunStatus:
    if run.last is not None:
        return NodeRunStatus.ENDED if run.last.error_code is None else NodeRunStatus.FAILED
    if is_left or invocation.has_ended:
        return NodeRunStatus.SKIPPED
    if is_waiting:
        return NodeRunStatus.WAITING
    is_at_work = invocation is InvocationStatus.RUNNING and not run.is_between
    return NodeRunStatus.RUNNING if is_at_work else NodeRunStatus.READY


def _is_below(path: str, paths: set[str]) -> bool:
    return any(above in paths for above in _above(path))


def _above(path: str) -> Iterator[str]:
    """The paths that a path begins with, without itself."""
    return (path[:place] for place, char in enumerate(path) if char == "/")


def _paths(event: Event) -> Iterator[tuple[str, bool]]:
    """The runs of nodes that an event is said in, from the outermost on, and whether that is certain of each."""
    path, replay = event.node_info.path, event.actions.replay
    steps, place = path.split("/"), 0
    ids = _ids_in(event)
    for name in ids:
        if name in steps[place:]:
            place = steps.index(name, place) + 1
            yield "/".join(steps[:place]), True
    if ids:
        return
    if replay.attempt is not None or _is_failure(event):
        yield path, True
        return
    name, _, number = (event.branch or "").rpartition(".")[2].partition("*")[0].replace("~", "#").partition("#")
    innermost = f"{name}@{number or 1}"
    if innermost in steps:
        place = len(steps) - steps[::-1].index(innermost)
        yield "/".join(steps[:place]), False


def _ids_in(event: Event) -> list[str]:
    """The runs of nodes that the event's path of ids names: `fetch@1`, from the outermost on."""
    replay = event.actions.replay
    attempt = None if replay.attempt is None else replay.attempt.get("run")
    step = None if replay.step is None else replay.step.path
    found = replay.ended or attempt or replay.asked_by or step
    if not isinstance(found, str):
        return []
    parts = (part.partition("~")[0].partition("*")[0].partition("!")[0].partition("+")[0] for part in found.split("/"))
    return [part for part in parts if "@" in part]
