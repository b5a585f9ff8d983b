"""
Promises P1 and P3 between real processes on one file: who may write, who waits, and what a killed process leaves.

What the other processes do is in processes.py.
"""

from __future__ import annotations

import json
import queue
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import Event, LlmAgent, RunConfig, Runner, SqliteSessionService
from minirun.errors import SessionBusyError
from minirun.sessions import InvocationStatus, Session
from minirun.testing import ScriptedLlm

from ..fork_server import program, start
from ..stores import HERE, append, get, texts
from .test_session_properties import check_file

ROOT = Path(__file__).parents[2]
# Far more than anything here takes; a shared machine may stall.
ANSWER_WAIT_S = 60.0


class Other:
    """Another process in a role."""

    def __init__(self, role: str, path: Path | str, **options: Any) -> None:
        self.process = start(program("tests.processes", role, path, json.dumps(options)))
        self._said: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._said.put(line.strip())
        self._said.put("(ended)")

    def says(self) -> str:
        """The next line that it says."""
        return self._said.get(timeout=ANSWER_WAIT_S)

    def is_silent(self) -> bool:
        """Whether it has said nothing more."""
        return self._said.empty()

    def hears(self, text: str = "go on") -> None:
        """Say something to it."""
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it as nothing can prevent."""
        self.process.kill()
        self.process.wait()

    def ends(self) -> str:
        """Wait for its end; return the last thing it said."""
        said = list(iter(self.says, "(ended)"))
        assert self.process.wait() == 0, self._errors()
        return said[-1]

    def _errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def close(self) -> None:
        """Leave nothing of it."""
        if self.process.poll() is None:
            self.kill()
        self._reader.join()
        with self.process:  # closes its streams
            pass


class Others(list[Other]):
    """The processes of a test."""

    def start(self, role: str, path: Path | str, **options: Any) -> Other:
        """Start one more."""
        self.append(Other(role, path, **options))
        return self[-1]


@pytest.fixture
def others() -> Iterator[Others]:
    """Other processes, all gone after the test."""
    started = Others()
    yield started
    for other in started:
        other.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with one session."""

    async def make() -> None:
        async with SqliteSessionService(tmp_path / "a.db") as service:
            await service.create_session(**HERE)

    trio.run(make)
    return tmp_path / "a.db"


def session_at(path: Path, session_id: str = "s") -> Session:
    """The session, as this process reads it."""

    async def read() -> Session:
        async with SqliteSessionService(path) as service:
            return await get(service, session_id)

    return trio.run(read)


# --- sharing ----------------------------------------------------------------------------------------------------------


def test_first_runs_that_race_all_succeed(tmp_path: Path, others: Others) -> None:
    """Three processes make the same sessions of a new file by their first runs: each run is there, none is mixed."""
    runners = [others.start("race", tmp_path / "a.db", name=name, sessions=6) for name in ("one", "two", "three")]
    for other in runners:
        assert other.says() == "ready"
    for other in runners:
        other.hears()
    assert [other.ends() for other in runners] == ["done"] * 3
    for number in range(6):
        said = texts(session_at(tmp_path / "a.db", str(number)))
        turns = [said[at : at + 3] for at in range(0, len(said), 3)]
        assert sorted(turns) == [[name, "hello", "bye"] for name in ("one", "three", "two")]
    assert session_at(tmp_path / "a.db", "0").state["user:runs"] == 18
    check_file(tmp_path / "a.db")


def test_files_that_several_processes_open_first_are_made_once(tmp_path: Path, others: Others) -> None:
    """Opening a file while other processes are making it works; each finds what the others have stored."""
    path = tmp_path / "a.db"
    openers = [others.start("open_new_files", path, name=name, files=8) for name in ("one", "two", "three")]
    for other in openers:
        assert other.says() == "ready"
    for other in openers:
        other.hears()
    assert [other.ends() for other in openers] == ["done"] * 3
    for number in range(8):
        for name in ("one", "two", "three"):
            assert session_at(tmp_path / f"a.db-{number}", name).revision == 0


def test_shared_keys_of_all_processes_survive(path: Path, others: Others) -> None:
    """Keys that three processes write into the same scopes, through sessions of their own, are all there; sums too."""
    writers = [others.start("write_keys", path, name=name, keys=40) for name in ("a", "b", "c")]
    for other in writers:
        assert other.says() == "ready"
    for other in writers:
        other.hears()
    assert [other.ends() for other in writers] == ["done"] * 3
    state = session_at(path).state
    names = {f"{name}{number}" for name in "abc" for number in range(40)}
    assert {key for key in state if key.startswith("user:")} == {f"user:{name}" for name in names} | {"user:count"}
    assert {key for key in state if key.startswith("app:")} == {f"app:{name}" for name in names} | {"app:log"}
    assert state["user:count"] == 120
    assert set(state["app:log"]) == names
    for name in "abc":
        mine = [entry for entry in state["app:log"] if entry.startswith(name)]
        assert mine == [f"{name}{number}" for number in range(40)], "each process's own order is kept"
    check_file(path)


def test_a_stale_writer_of_another_process_is_refused(path: Path, others: Others) -> None:
    """Who appends to a session that another process has written since gets StaleSessionError, and stores nothing."""
    other = others.start("append_when_told", path)
    assert other.says() == "read"

    async def write() -> None:
        async with SqliteSessionService(path) as service:
            await append(service, await get(service), "faster")

    trio.run(write)
    other.hears()
    assert other.ends() == "StaleSessionError"
    session = session_at(path)
    assert texts(session) == ["faster"]
    assert dict(session.state) == {}


# --- one run at a time ------------------------------------------------------------------------------------------------


async def try_to_enter(service: SqliteSessionService, message: str = "me") -> None:
    agent = LlmAgent(name="a", model=ScriptedLlm(["hello"]))
    runner = Runner(agent=agent, app_name="app", session_service=service)
    config = RunConfig(on_busy="reject")
    async with runner.run_async(user_id="u", session_id="s", new_message=message, run_config=config) as run:
        await run.wait()


def test_a_run_of_another_process_is_waited_for_or_refused(path: Path, others: Others) -> None:
    """While one process runs a session, another's run is refused before anything is stored, or waits for its turn."""
    holder = others.start("run_agent", path, agent="holder", message="hold")
    assert holder.says() == "holding"
    waiting = others.start("run_agent", path, agent="greeter", message="wait", wait=True)
    outside = others.start("append_when_told", path)
    assert (waiting.says(), outside.says()) == ("ready", "read")
    waiting.hears()
    outside.hears()

    async def refused() -> None:
        async with SqliteSessionService(path) as service:
            with pytest.raises(SessionBusyError, match="another process is running session 's'"):
                await try_to_enter(service)
            assert texts(await get(service)) == ["hold", "first"], "reading goes on, and nothing was stored"
            [running] = await service.list_invocations()
            assert running.status == InvocationStatus.RUNNING

    trio.run(refused)
    assert waiting.is_silent()
    assert outside.is_silent()
    holder.hears()
    assert holder.ends() == "done"
    assert waiting.ends() == "done"
    assert outside.ends() == "StaleSessionError", "the run went on while it waited"
    assert texts(session_at(path)) == ["hold", "first", "second", "wait", "hello", "bye"]


def test_a_delete_waits_for_the_run_of_another_process(path: Path, others: Others) -> None:
    """delete_session waits for the other process's run, which ends undisturbed; then the session is gone."""
    holder = others.start("run_agent", path, agent="holder", message="hold")
    assert holder.says() == "holding"
    deleter = others.start("delete", path)
    assert deleter.says() == "deleting"
    assert session_at(path).revision == 2
    assert deleter.is_silent()
    holder.hears()
    assert holder.ends() == "done"
    assert deleter.ends() == "done"

    async def gone() -> None:
        async with SqliteSessionService(path) as service:
            assert await service.get_session(**HERE) is None

    trio.run(gone)


# --- killed, stopped, slow --------------------------------------------------------------------------------------------


def test_a_killed_owner_is_known_at_once_and_its_call_is_answered(path: Path, others: Others) -> None:
    """After kill -9 in a tool the next run enters at once, and answers the open call before it asks its model."""
    worker = others.start("run_agent", path, agent="worker", message="work")
    assert worker.says() == "in tool"
    worker.kill()
    model = ScriptedLlm(["all right"])

    async def next_run() -> list[Event]:
        async with SqliteSessionService(path) as service:
            [dead] = await service.list_invocations()
            assert dead.status == InvocationStatus.INTERRUPTED
            agent = LlmAgent(name="worker", model=model)
            runner = Runner(agent=agent, app_name="app", session_service=service)
            config = RunConfig(on_busy="reject")  # the lease has not expired: it would be refused
            async with runner.run_async(user_id="u", session_id="s", new_message="next", run_config=config) as run:
                await run.wait()
            statuses = [one.status for one in await service.list_invocations()]
            assert statuses == [InvocationStatus.INTERRUPTED, InvocationStatus.COMPLETED]
            return await service.read_events(**HERE, after_seq=0)

    events = trio.run(next_run)
    [called] = events[1].get_function_calls()
    [answered] = events[2].get_function_responses()
    assert answered.id == called.id
    assert answered.response["error"]["type"] == "outcome_unknown"
    assert events[2].invocation_id == events[1].invocation_id
    assert [event.text for event in events[3:]] == ["next", "all right"]
    assert [content.role for content in model.requests[0].contents] == ["user", "model", "user", "user"]
    assert not list(path.parent.glob("*-owner-*")), "what the dead process left was swept up"


@pytest.mark.slow  # leases of other processes are over in real time; test_renewals.py has this with a clock
def test_a_call_of_a_living_owner_is_never_closed_however_long_it_takes(path: Path, others: Others) -> None:
    """While a tool runs for many times the length of a lease, others keep being refused and nothing is answered."""
    worker = others.start("run_agent", path, agent="worker", message="work", lease_s=1.2)
    assert worker.says() == "in tool"
    intruder = others.start("try_often", path, seconds=3.0)
    assert intruder.says() == "refused True"
    assert intruder.ends() == "done"
    worker.hears("at last")
    assert worker.ends() == "done"
    session = session_at(path)
    [answer] = session.events[2].get_function_responses()
    assert answer.response == {"result": "at last"}
    assert texts(session) == ["work", "", "", "the tool has answered"]


def test_a_stopped_owner_loses_its_lease_and_is_fenced(path: Path, others: Others) -> None:
    """A process that stood still past its lease is replaced; when it goes on, its next emit fails, not stored."""
    holder = others.start("run_agent", path, agent="holder", message="hold", lease_s=0.4)
    assert holder.says() == "holding"
    holder.process.send_signal(signal.SIGSTOP)
    other = others.start("run_agent", path, agent="greeter", message="instead")
    assert other.ends() == "done"
    holder.process.send_signal(signal.SIGCONT)
    holder.hears()
    assert holder.ends() == "StaleSessionError"
    assert texts(session_at(path)) == ["hold", "first", "instead", "hello", "bye"]
    check_file(path)


@pytest.mark.parametrize("durability", ["power", "process"])
def test_what_a_killed_process_had_stored_is_there(durability: str, path: Path, others: Others) -> None:
    """Whenever writers are killed, each event that append_event returned is there, at most one more, none by half."""
    for number in range(3):
        writers = [
            others.start("append_for_ever", path, session=f"{number}-{name}", durability=durability) for name in "ab"
        ]
        last = {}
        for writer, name in zip(writers, "ab", strict=True):
            for _ in range(7 * number + 3):
                last[name] = int(writer.says())
        writers[0].kill()
        for _ in range(5):
            last["b"] = int(writers[1].says())
        writers[1].kill()
        for writer, name in zip(writers, "ab", strict=True):
            for line in iter(writer.says, "(ended)"):
                last[name] = int(line)
            session = session_at(path, f"{number}-{name}")
            assert session.revision in (last[name], last[name] + 1)
            assert session.state["n"] == session.revision == len(session.events)
        check_file(path)

    async def total() -> None:
        async with SqliteSessionService(path) as service:
            listed = (await service.list_sessions(app_name="app")).sessions
            state = (await get(service)).state
            assert state["user:n"] == sum(session.revision for session in listed)

    trio.run(total)
