"""
Nothing acknowledged is lost, nobody writes who may not, and every invocation comes to its end, whatever happens to the
workers of a database, their connections and its server (promises P1, P3, P4 and P6).

Four workers, real processes, run the invocations of a hundred sessions. What they do is in storms.py. How long anything
takes is not asked: what is waited for is that something more was acknowledged, and the bound on that is a watchdog's.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import attrs
import pytest
import trio

from minirun import Event
from minirun._codec import from_json
from minirun.errors import MinirunError
from minirun.sessions import DatabaseSessionService
from minirun.sessions._postgres import _statement

from ..ledger import Forker, forker
from ..postgres import PostgresServer, mortal_server, running_mortal
from ..postgres_sessions import check_database, name_of, sql
from ..storms import BROKEN, ToldService

__all__ = ["mortal_server"]  # a fixture

WORKERS = 4
SESSIONS = 25  # of each worker
FEW_SESSIONS = 6
# So many more events are acknowledged between two disturbances, at most.
EVENTS_BETWEEN = 30
# A machine, however busy, gets something done in this time.
WATCHDOG_S = 120.0
BROKEN_S = 0.3
"""What broken workers are given to end: they may never."""
TAKEOVER_S = 10.0
"""How long a stopped worker is left alone, if nobody takes a session of its: it may have had none."""


@pytest.fixture(scope="module")
def forks() -> Forker:
    """Where workers come from."""
    return forker("tests.storms")


# --- what was said ----------------------------------------------------------------------------------------------------


Place: TypeAlias = tuple[str, int]
"""A session, and the place of an event in its log."""


@attrs.define
class Book:
    """What the workers of a database have said of their appends: for each place, the events and what became of them."""

    attempts: dict[Place, dict[str, str]] = attrs.Factory(lambda: defaultdict(dict))
    said: Counter[str] = attrs.Factory(Counter)
    refused_as: Counter[str] = attrs.Factory(Counter)
    owners: dict[Path, str] = attrs.Factory(dict)
    done: set[Path] = attrs.Factory(set)
    failed: str = ""
    _read: Counter[Path] = attrs.Factory(Counter)

    def hear(self, said: Path) -> None:
        """Take in what a worker has said since the last time; a line that its death has cut off was not said."""
        if not said.exists():
            return
        with said.open("rb") as file:
            file.seek(self._read[said])
            new, _, _ = file.read().rpartition(b"\n")
        if not new:
            return
        self._read[said] += len(new) + 1
        for line in new.split(b"\n"):
            self._note(said, json.loads(line))

    def _note(self, said: Path, told: dict[str, Any]) -> None:
        what = told["what"]
        self.said[what] += 1
        if what == "failed":
            self.failed = told["why"]
        elif what == "owner":
            self.owners[said] = told["name"]
        elif what == "done":
            self.done.add(said)
        elif "event" in told:
            place = (told["session"], json.loads(told["event"])["seq"])
            self.attempts[place][told["event"]] = what
            if what == "refused":
                self.refused_as[told["why"]] += 1

    def check(self, url: str, *, is_ended: bool) -> None:
        """Each log is what was acknowledged, and else only what nobody knows of; if all *is_ended*, it is completed."""
        logs: dict[str, dict[int, str]] = defaultdict(dict)
        for session, place, text in sql(
            url,
            "SELECT s.session_id, e.seq, e.data FROM minirun.sessions s JOIN minirun.events e ON e.log = s.id"
            " WHERE e.seq > 0",
        ):
            logs[str(session)][int(place or 0)] = text or ""
        for (session_id, seq), events in self.attempts.items():
            stored = [event for event, what in events.items() if what == "stored"]
            assert len(stored) <= 1, f"two events were acknowledged as event {seq} of {session_id}"
            assert not stored or stored == [logs[session_id].get(seq)], f"event {seq} of {session_id} is lost"
        for session_id, log in logs.items():
            assert [*sorted(log)] == [*range(1, len(log) + 1)]
            for seq, data in log.items():
                what = self.attempts[session_id, seq].get(data, "never sent")
                assert what in ("stored", "sends", "uncertain"), f"event {seq} of {session_id} stands there: {what}"
            check_answers([from_json(Event, log[seq]) for seq in sorted(log)], is_ended=is_ended)
        check_database(url, is_whole=True)
        if not is_ended:
            return
        statuses = sql(url, "SELECT status, count(*) FROM minirun.invocations GROUP BY status")
        assert {status for status, _ in statuses} == {"completed"}, statuses


def check_answers(events: list[Event], *, is_ended: bool) -> None:
    """Every call is answered at most once, after it was made, and exactly once if all *is_ended* (P6)."""
    open_calls: set[str | None] = set()
    for event in events:
        for response in event.get_function_responses():
            assert response.id in open_calls, f"a response to {response.id}, which is not open, at {event.seq}"
            open_calls.remove(response.id)
        open_calls |= {one.id for one in event.get_function_calls()}
    assert not (is_ended and open_calls), f"{open_calls} are never answered"


# --- a storm ----------------------------------------------------------------------------------------------------------


class Storm:
    """Four workers of one database, and what happens to them."""

    def __init__(
        self, forks: Forker, server: PostgresServer, folder: Path, luck: Random, broken: str, sessions: int
    ) -> None:
        folder.mkdir()
        self.server, self.url = server, server.new_database()
        self.book, self.happened = Book(), Counter[str]()
        self.takeovers = 0
        self._forks, self._folder, self._luck = forks, folder, luck
        self._options = {"calm": str(folder / "calm"), "seed": luck.random(), "broken": broken}
        self._names = [[f"{worker}.{number}" for number in range(sessions)] for worker in range(WORKERS)]
        self._lives: dict[int, tuple[int, Path]] = {}
        self._born = 0
        trio.run(self._make_sessions)

    async def _make_sessions(self) -> None:
        async with DatabaseSessionService(self.url) as service:
            for session_id in (name for names in self._names for name in names):
                await service.create_session(app_name="app", user_id="u", session_id=session_id)

    def blow(self, disturbances: int) -> None:
        """Start the workers, and let so many things happen, one after the other."""
        for worker in range(WORKERS):
            self._start(worker)
        self._wait_for_more(20)
        kinds: tuple[Callable[[], None], ...] = {
            "": (
                *(self.kill_server, self.restart_server, self.stop, self.kill, self.cut, self.stop, self.kill),
                *(self.cut, self.kill, self.cut, self.stop, self.cut, self.kill, self.cut, self.cut),
            ),
            "fence dropped": (self.stop,),
            "counter beside the statement": (self.cut,),
            "acknowledges first": (self.cut, self.kill),
            "waits for no disk": (self.kill_server,),
        }[str(self._options["broken"])]
        order = [kinds[number % len(kinds)] for number in range(disturbances)]
        self._luck.shuffle(order)
        for happens in order:
            happens()
            self.happened[happens.__name__] += 1
            self._wait_for_more(self._luck.randrange(EVENTS_BETWEEN))

    def end(self) -> None:
        """Wait until the workers have brought everything to its end, and check what they leave."""
        (self._folder / "calm").touch()
        if self._options["broken"]:
            time.sleep(BROKEN_S)
            self.close()
            self._hear()
            self.book.check(self.url, is_ended=False)
            return
        deadline = time.monotonic() + WATCHDOG_S
        while not self.book.done >= {said for _, said in self._lives.values()}:
            time.sleep(0.05)
            self._hear()
            assert time.monotonic() < deadline, f"invocations have not ended: {self._unfinished()}"
        for pid, _ in self._lives.values():
            assert self._forks.ends(pid) == 0
        self._lives.clear()
        self._hear()
        self.book.check(self.url, is_ended=True)

    def close(self) -> None:
        """Leave no worker behind."""
        for worker in list(self._lives):
            self._kill(worker)

    # --- what happens

    def kill(self) -> None:
        """A worker is killed, and another one takes its place."""
        worker = self._luck.randrange(WORKERS)
        self._kill(worker)
        self._start(worker)

    def stop(self) -> None:
        """A worker stands still until its leases are over and somebody has taken a session of its; then it goes on."""
        holding = {name for (name,) in sql(self.url, "SELECT DISTINCT lease_owner FROM minirun.sessions")}
        self._hear()
        lives = sorted(self._lives.values())
        busy = [each for each in lives if self.book.owners.get(each[1]) in holding]
        pid, said = self._luck.choice(busy or lives)
        os.kill(pid, signal.SIGSTOP)
        self._hear()
        if owner := self.book.owners.get(said):
            held = f"FROM minirun.sessions WHERE lease_owner = '{owner}'"
            sql(self.url, f"UPDATE minirun.sessions SET lease_expires = now() - interval '1 s' {held[21:]}")
            before = sql(self.url, f"SELECT count(*) {held}")
            deadline = time.monotonic() + TAKEOVER_S
            while before != [("0",)] and time.monotonic() < deadline:
                if sql(self.url, f"SELECT count(*) {held}") != before:
                    self.takeovers += 1
                    break
                time.sleep(0.02)
        os.kill(pid, signal.SIGCONT)

    def cut(self) -> None:
        """The server ends some connections."""
        count = self._luck.choice([1, 1, 2, 3, 100])
        sql(
            self.url,
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            f" AND pid <> pg_backend_pid() ORDER BY random() LIMIT {count}) chosen",
        )

    def restart_server(self) -> None:
        """The server is shut down, and started again."""
        self.server.restart()

    def kill_server(self) -> None:
        """All processes of the server are killed; then it is started again."""
        self.server.kill()
        time.sleep(self._luck.random() * 0.1)
        self.server.start()

    # --- helpers

    def _start(self, worker: int) -> None:
        self._born += 1
        said = self._folder / f"{self._born}.said"
        options = {**self._options, "sessions": self._names[worker], "number": self._born}
        self._lives[worker] = (self._forks.start("live", self.url, said, **options), said)

    def _kill(self, worker: int) -> None:
        pid, _ = self._lives.pop(worker)
        os.kill(pid, signal.SIGKILL)
        self._forks.ends(pid)

    def _hear(self) -> None:
        for number in range(1, self._born + 1):
            self.book.hear(self._folder / f"{number}.said")
        assert not self.book.failed, self.book.failed

    def _wait_for_more(self, events: int) -> None:
        self._hear()
        enough = self.book.said["stored"] + events
        deadline = time.monotonic() + WATCHDOG_S
        while self.book.said["stored"] < enough:
            time.sleep(0.005)
            self._hear()
            assert time.monotonic() < deadline, f"nothing goes on: {self._unfinished()}"

    def _unfinished(self) -> str:
        found = sql(
            self.url,
            "SELECT s.session_id, i.status, i.seq, s.revision, s.lease_owner, s.lease_expires - now() FROM"
            " minirun.invocations i JOIN minirun.sessions s ON s.id = i.session WHERE i.status <> 'completed' LIMIT 20",
        )
        return f"{found}\n{self.book.said} {self.happened}"


def storm(
    forks: Forker,
    server: PostgresServer,
    folder: Path,
    disturbances: int,
    seed: int,
    broken: str = "",
    sessions: int = SESSIONS,
) -> tuple[Storm, str]:
    """One storm and its end; what the check has found, if the workers are *broken*."""
    made = Storm(forks, server, folder, Random(f"{seed} {broken}"), broken, sessions)
    violation = ""
    try:
        made.blow(disturbances)
        made.end()
    except (AssertionError, MinirunError) as error:
        if not broken:
            raise
        violation = f"{type(error).__name__}: {error}"
    finally:
        made.close()
    said, book = made.book.said, made.book
    print(f"{broken or 'sound'}: {dict(made.happened)} {dict(said)} {dict(book.refused_as)} takeovers {made.takeovers}")
    print(violation[:600])
    return made, violation


@pytest.fixture(scope="module")
def weathered(forks: Forker, tmp_path_factory: pytest.TempPathFactory) -> Storm:
    """A short storm with each kind of disturbance, and what it has left."""
    folder = tmp_path_factory.mktemp("storm") / "1"
    made, _ = storm(forks, running_mortal(), folder, 6, seed=1, sessions=FEW_SESSIONS)
    return made


def test_nothing_is_lost_in_a_storm(weathered: Storm) -> None:
    """Workers killed, stopped and cut off, a server restarted and killed: all logs are what was acknowledged."""
    assert weathered.happened.keys() == {"kill_server", "restart_server", "stop", "kill", "cut"}
    assert weathered.takeovers, "a stopped worker was replaced"
    assert weathered.book.said["stored"] > 50


LAST = (
    "e.log = (SELECT id FROM minirun.sessions WHERE session_id = '{session}')"
    " AND e.seq = (SELECT max(seq) FROM minirun.events o WHERE o.log = e.log)"
)
LEFT = {
    "lost, though acknowledged": (f"DELETE FROM minirun.events e WHERE {LAST}", "is lost"),
    "from somebody who may not write": (
        "INSERT INTO minirun.events SELECT log, seq + 1, (SELECT commit_no + 1 FROM minirun.store), chain, data"
        f" FROM minirun.events e WHERE {LAST}",
        "stands there: never sent",
    ),
    "another in its place": (
        f"UPDATE minirun.events e SET data = data || ' ' WHERE {LAST}",
        "is lost",
    ),
    "under a number that another has": (
        f"UPDATE minirun.events e SET commit_no = (SELECT min(commit_no) FROM minirun.events) WHERE {LAST}",
        None,
    ),
    "still running": ("UPDATE minirun.invocations SET status = 'running'", "running"),
}
"""What broken workers leave, and what the check says of it."""


def ended_for_sure(weathered: Storm) -> str:
    """A session whose last event was acknowledged: of another one nobody could say that it is lost."""
    rows = sql(weathered.url, "SELECT session_id, revision FROM minirun.sessions ORDER BY id")
    attempts = weathered.book.attempts
    return next(str(name) for name, last in rows if "stored" in attempts[str(name), int(last or 0)].values())


@pytest.mark.parametrize("what", LEFT)
def test_the_check_finds_what_broken_workers_leave(what: str, weathered: Storm) -> None:
    """An event lost, replaced, fenced or counted twice, or an invocation without an end: the check fails."""
    statement, told = LEFT[what]
    url = weathered.server.new_database(name_of(weathered.url))
    weathered.book.check(url, is_ended=True)
    sql(url, statement.replace("{session}", ended_for_sure(weathered)))
    with pytest.raises(AssertionError, match=told):
        weathered.book.check(url, is_ended=True)


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_workers_differ_from_sound_ones(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each control takes away stands where it says."""
    monkeypatch.setattr(_statement, "_APPEND", _statement._APPEND)
    monkeypatch.setattr(_statement, "_APPENDED", _statement._APPENDED)
    monkeypatch.setattr(ToldService, "acknowledges_first", False)
    before = _statement._APPEND, _statement._APPENDED, ToldService.acknowledges_first
    BROKEN[broken]()
    assert (_statement._APPEND, _statement._APPENDED, ToldService.acknowledges_first) != before


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_nothing_is_lost_in_a_long_storm(
    part: int, forks: Forker, mortal_server: PostgresServer, tmp_path: Path
) -> None:
    """The same for more than a thousand disturbances in all, often enough to hit what is rare."""
    made, _ = storm(forks, mortal_server, tmp_path / "storm", 130, seed=10 + part)
    assert made.book.refused_as["StaleSessionError"], "some were fenced"


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_workers_that_break_a_promise_are_found_out(
    broken: str, forks: Forker, mortal_server: PostgresServer, tmp_path: Path
) -> None:
    """Without the fence, with a counter beside the statement, or an acknowledgement too early: the check fails."""
    for seed in range(20):
        _, violation = storm(forks, mortal_server, tmp_path / f"{seed}", 4, seed, broken)
        if violation:
            return
    raise AssertionError(f"{broken}: nothing was found")
