"""
What the tests that kill processes have in common: the writers, and whether their file keeps what was promised.

A `Ledger` collects what writers were told to be stored, and compares it with the file after their deaths. It looks at
a copy, so that the next writer, and not the check, is the one who recovers the file.
"""

from __future__ import annotations

import atexit
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import trio

from minirun import Event, SqliteSessionService
from minirun._codec import from_json
from minirun.sessions import InvocationStatus, Session
from minirun.sessions._fold import fold
from minirun.sessions._state import Scope, Values, scope_of

from .fork_server import program, start
from .kills import planned
from .sessions.test_session_properties import check_file, only

__all__ = ["Forker", "Ledger", "forker"]


class Forker:
    """The process that starts writers; see kills.py. *of* is another program of its kind."""

    def __init__(self, of: str = "tests.kills") -> None:
        self.process = start(program(of), errors=2)

    def _ask(self, **options: Any) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(options) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def start(self, role: str, path: Path | str, said: Path, **options: Any) -> int:
        """Start a writer and return its process id once it is about to write; with `early=True`, before."""
        pid: int = self._ask(do="start", role=role, path=str(path), said=str(said), **options)["pid"]
        return pid

    def ends(self, pid: int) -> int:
        """Wait for a writer's end and return its status; below zero, what signal it was."""
        status: int = self._ask(do="end", pid=pid)["status"]
        return status

    def close(self) -> None:
        """End it; it leaves no writer behind."""
        with self.process:
            pass  # that its input ends tells it to end


@cache
def forker(of: str = "tests.kills") -> Forker:
    """The forker of a program, for all tests of this process."""
    from .trust import keep  # pytest's process alone has it

    made = Forker(of)
    keep(made.process.pid)
    keep(made.process.keeper)
    atexit.register(made.close)
    return made


def is_closing(event: Event) -> bool:
    """Whether the event is how recovery answers the calls that a dead run has left open."""
    responses = event.get_function_responses()
    return bool(responses) and all(
        (one.response.get("error") or {}).get("type") == "outcome_unknown" for one in responses
    )


@attrs.define
class Ledger:
    """
    What is known of one file.

    `acknowledged` counts events that writers were told to be stored; `unheard`, those that are stored although a
    writer died before it was told.
    """

    path: Path
    tasks: dict[str, int] = attrs.Factory(dict)
    """For sessions on which several tasks of a process write: how many."""
    fenced: bool = False
    """Whether processes stood still, so that runs may have failed."""
    acknowledged: int = 0
    unheard: int = 0
    known: dict[str, list[Event]] = attrs.Factory(dict)
    said: Counter[str] = attrs.Factory(Counter)
    ended: dict[str, str] = attrs.Factory(dict)
    _new: dict[str, dict[int, Event]] = attrs.Factory(lambda: defaultdict(dict))

    def hear(self, said: Path) -> None:
        """Take in what a writer has said until its end; a line that the end has cut off was not said."""
        for line in said.read_text().split("\n")[:-1] if said.exists() else ():
            told = json.loads(line)
            self.said[told["what"]] += 1
            assert told["what"] != "failed", told["why"]
            if told["what"] == "stored":
                event = from_json(Event, told["event"])
                assert event.seq is not None
                assert event.seq not in self._new[told["session"]], f"{event} was acknowledged twice"
                self._new[told["session"]][event.seq] = event
                self.acknowledged += 1
            elif told["what"] == "ended":
                self.ended[told["invocation"]] = told["status"]

    def check(self, *, dead: int = 1) -> None:
        """Compare a copy of the file with what was heard. All writers are dead, *dead* of them since the last time."""
        copy = self.path.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for file in self.path.parent.glob(f"{self.path.name}*"):
            if not file.name.endswith("-shm"):  # SQLite makes it anew
                shutil.copy(file, copy)
        path = copy / self.path.name
        if not path.exists():  # killed before it was there
            assert not self.acknowledged
            return
        logs, sessions, statuses = trio.run(self._read, path)
        for name in {*self._new, *self.known}:
            assert name in logs, f"session {name} is gone"
        for name, events in logs.items():
            self._check_log(name, events, dead)
            check_state(sessions[name], events)
            check_calls(events)
        check_sums([event for events in logs.values() for event in events], sessions.values())
        self._check_statuses(statuses)
        check_file(path)
        self.known = logs
        self._new.clear()

    async def _read(self, path: Path) -> tuple[dict[str, list[Event]], dict[str, Session], dict[str, str]]:
        logs, sessions = {}, {}
        async with SqliteSessionService(path, durability="process") as service:
            for one in (await service.list_sessions(app_name="app")).sessions:
                session = await service.get_session(app_name="app", user_id="u", session_id=one.id)
                assert session is not None
                assert session.revision == one.revision
                sessions[one.id] = session
                logs[one.id] = await service.read_events(app_name="app", user_id="u", session_id=one.id)
            statuses = {one.invocation_id: str(one.status) for one in await service.list_invocations()}
        return logs, sessions, statuses

    def _check_log(self, name: str, events: Sequence[Event], dead: int) -> None:
        """What was acknowledged is there, as it was; nothing is there by half; nothing that was there is gone."""
        assert [event.seq for event in events] == list(range(len(events))), f"{name} has gaps"
        known, told = self.known.get(name, []), self._new.get(name, {})
        assert events[: len(known)] == known, f"{name} has another past than before"
        for seq, event in told.items():
            assert seq < len(events), f"event {seq} of {name} was acknowledged and is lost"
            assert events[seq] == event, f"event {seq} of {name} was acknowledged otherwise"
        unheard = [
            event
            for event in events[max(1, len(known)) :]
            if event.seq not in told and event.author != "user" and not is_closing(event)
        ]
        assert len(unheard) <= dead * self.tasks.get(name, 1), f"{name} has more than a writer can have left: {unheard}"
        self.unheard += len(unheard)
        for event in events[1:]:
            if event.author == "writer":
                plan = planned(name, event.seq or 0)
                assert (event.content, event.actions) == (plan.content, plan.actions), f"{name}: {event} is not whole"

    def _check_statuses(self, statuses: dict[str, str]) -> None:
        """A run that has ended is listed as it ended; one whose process is dead was interrupted, or just ended."""
        for invocation, status in self.ended.items():
            assert statuses[invocation] == status
        rest = {status for invocation, status in statuses.items() if invocation not in self.ended}
        expected = {InvocationStatus.INTERRUPTED, InvocationStatus.COMPLETED}
        assert rest <= (expected | {InvocationStatus.FAILED} if self.fenced else expected)


def check_state(session: Session, events: Sequence[Event]) -> None:
    """The session's own state is the fold of its log (P4)."""
    values = fold(Values({}, {}, {}), [only(Scope.SESSION, event) for event in events])
    assert {key: value for key, value in session.state.items() if scope_of(key) is Scope.SESSION} == values.session


def check_sums(events: Sequence[Event], sessions: Iterable[Session]) -> None:
    """What is only ever added to is the sum of what events add; what only one event writes is there (P4)."""
    sums: Counter[str] = Counter()
    keys: dict[str, Any] = {}
    for event in events:
        for key, operation in event.actions.state_ops.items():
            if "add" in operation and scope_of(key) is not Scope.SESSION:
                sums[key] += operation["add"]
        for key, value in event.actions.state_delta.items():
            if scope_of(key) is not Scope.SESSION:
                keys[key] = value  # of one session's events, in their order
    for session in sessions:
        shared = {key: value for key, value in session.state.items() if scope_of(key) is not Scope.SESSION}
        assert shared == {**sums, **keys}


def check_calls(events: Sequence[Event], *, ended: bool = False) -> None:
    """Every call has at most one response, and exactly one before the next run's message and when all *ended* (P6)."""
    open_calls: set[str | None] = set()
    for event in events:
        if event.author == "user":
            assert not open_calls, f"{open_calls} are open where the next run begins, at {event.seq}"
        for response in event.get_function_responses():
            assert response.id in open_calls, f"a response to {response.id}, which is not open"
            open_calls.remove(response.id)
        open_calls |= {one.id for one in event.get_function_calls()}
    assert not (ended and open_calls)


def check_turns(events: Sequence[Event]) -> None:
    """One run at a time: a run's events stand together, its closing events apart, and all speak with one voice (P3)."""
    runs: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.invocation_id is not None and not is_closing(event):
            runs[event.invocation_id].append(event)
    for run in runs.values():
        first, last = run[0], run[-1]
        assert first.seq is not None
        assert last.seq is not None
        assert last.seq - first.seq == len(run) - 1, f"the run of {first} is interleaved with others"
        assert first.author == "user"
        for event in run[1:]:
            answers = [response.response["result"] for response in event.get_function_responses()]
            assert {event.text, *answers} <= {"", first.text}, f"{event} is in the run of {first}"
