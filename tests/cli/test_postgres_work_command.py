"""
`minirun work FILE.py --db postgresql://…` in real processes: killed in any phase of a turn with a tool, stopped for
longer than a lease, with the server restarted below it, or with its connections ended.

That SIGTERM lets a worker end what it has begun is in test_cli_database.py.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from minirun import Event
from minirun.sessions import DatabaseSessionService, Session

from ..fork_server import start as start_process
from ..postgres import PostgresServer, mortal_server, new_database
from ..postgres_sessions import check_database, sql
from ..runners.test_supervise import interrupt, statuses

__all__ = ["mortal_server"]  # a fixture

ROOT = Path(__file__).parents[2]
# Far more than anything here takes, on a machine that is as busy as can be.
PATIENCE_S = 120.0

# It says when it comes to a phase; where it is told to stay there, it does so until the file `go` is there.
PROGRAM = """
import os
from pathlib import Path

import trio
from minirun import App, LlmAgent
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call

async def reach(phase):
    print("at", phase, flush=True)
    while phase == os.environ.get("STAY") and not Path("go").exists():
        await trio.sleep(0.02)

async def work():
    await reach("tool")
    return "worked"

class Says(BasePlugin):
    async def before_model_callback(self, *, callback_context, llm_request):
        await reach("answer" if llm_request.contents[-1].parts[-1].function_response else "question")

    async def after_tool_callback(self, **rest):
        await reach("result")

    async def on_run_error_callback(self, *, invocation_context, error):
        print("failed with", type(error).__name__, flush=True)

    async def after_run_callback(self, *, invocation_context):
        await reach("end")

def answer(request):
    return "done" if request.contents[-1].parts[-1].function_response else call("work")

worker = LlmAgent(name="worker", model=ScriptedLlm(answer), tools=[work])
app = App(name="app", root_agent=worker, plugins=[Says(name="says")])
"""
# As if a minute had passed for the database, which decides by its clock what a lease and a claim are worth.
LATER = """
WITH leases AS (UPDATE minirun.sessions SET lease_expires = lease_expires - interval '60 s')
UPDATE minirun.claims SET until = until - interval '60 s'
"""
PHASES = ("question", "tool", "result", "answer", "end")


class Worker:
    """A process that works."""

    def __init__(self, folder: Path, url: str, stay: str = "") -> None:
        command = ["-m", "minirun", "work", "program.py", "--db", url, "--every", "0.2"]
        environment = {"STAY": stay, "PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT)}
        self.process = start_process(command, cwd=folder, env=environment, merged=True)
        self._said: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._said.put(line.strip())
        self._said.put("(ended)")

    def says(self, expected: str) -> None:
        """Wait until it says this."""
        heard: list[str] = []
        while not heard or expected not in heard[-1]:
            try:
                heard.append(self._said.get(timeout=PATIENCE_S))
            except queue.Empty:
                heard.append("(nothing)")
            assert heard[-1] not in ("(ended)", "(nothing)"), f"expected {expected!r}, heard {heard}"

    def send(self, what: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, what)

    def leave(self) -> None:
        """Kill it, if it has not ended, and close what it was heard by."""
        self.process.kill()
        with self.process:
            self._reader.join(PATIENCE_S)

    def ends(self) -> int:
        """Tell it to end, and wait until it has."""
        self.send(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers; none is left behind."""
    (tmp_path / "program.py").write_text(PROGRAM)
    begun: list[Worker] = []

    def start(url: str, stay: str = "") -> Worker:
        begun.append(Worker(tmp_path, url, stay))
        return begun[-1]

    yield start
    for each in begun:
        each.leave()


def leave_work(url: str, *sessions: str) -> None:
    """Let there be sessions with a message that nobody has gone on with."""

    async def leave() -> None:
        async with DatabaseSessionService(url) as service:
            await interrupt(service, *sessions)

    trio.run(leave)


def wait_until_completed(url: str, *sessions: str) -> None:
    """Wait until all invocations are."""

    async def are_completed() -> bool:
        async with DatabaseSessionService(url) as service:
            return await statuses(service) == dict.fromkeys(sessions, "completed")

    deadline = time.monotonic() + PATIENCE_S
    while not trio.run(are_completed):
        assert time.monotonic() < deadline, "nobody has completed them"
        time.sleep(0.05)


def events_of(url: str, session: str) -> list[Event]:
    """What stands in the log of a session."""

    async def read() -> Session | None:
        async with DatabaseSessionService(url) as service:
            return await service.get_session(app_name="app", user_id="u", session_id=session)

    found = trio.run(read)
    assert found is not None
    return list(found.events)


def check_turn(url: str, session: str) -> None:
    """The turn has its end, and every call one response."""
    events = events_of(url, session)
    calls = [call.id for event in events for call in event.get_function_calls()]
    assert calls == [response.id for event in events for response in event.get_function_responses()]
    assert len(calls) == len({*calls}) >= 1
    assert [event.text for event in events if event.text] == ["go", "done"]  # a mark that somebody went on has none
    check_database(url, is_whole=True)


@pytest.mark.parametrize("phase", PHASES)
def test_another_worker_goes_on_where_one_is_killed(phase: str, start: Start) -> None:
    """kill -9 in any phase of a turn: an idle worker completes it long before the lease is over."""
    url = new_database()
    leave_work(url, "s")
    killed = start(url, stay=phase)
    killed.says(f"at {phase}")
    idle = start(url)
    idle.says("working on")
    assert sql(url, "SELECT lease_expires > now() + interval '10 s' FROM minirun.sessions") == [("t",)]
    killed.send(signal.SIGKILL)
    wait_until_completed(url, "s")
    check_turn(url, "s")
    assert idle.ends() == 0


def test_a_stopped_worker_that_wakes_is_fenced_and_says_so(start: Start, tmp_path: Path) -> None:
    """SIGSTOP past the lease: another worker completes the turn. Woken up, the first one fails and writes nothing."""
    url = new_database()
    leave_work(url, "s")
    stopped = start(url, stay="tool")
    stopped.says("at tool")
    stopped.send(signal.SIGSTOP)
    other = start(url)
    sql(url, LATER)
    wait_until_completed(url, "s")
    check_turn(url, "s")
    before = [event.id for event in events_of(url, "s")]
    (tmp_path / "go").touch()
    stopped.send(signal.SIGCONT)
    stopped.says("failed with StaleSessionError")
    stopped.says("WARNING: invocation 'e-s' of session 's' of user 'u' in app 'app' was taken over by another worker")
    assert [event.id for event in events_of(url, "s")] == before
    leave_work(url, "t")
    wait_until_completed(url, "s", "t")  # by either of them: it goes on working
    assert (stopped.ends(), other.ends()) == (0, 0)


def test_an_idle_worker_outlives_a_restart_of_the_server(start: Start, mortal_server: PostgresServer) -> None:
    """Also one that is killed and comes back; work that is there by then is found."""
    url = mortal_server.new_database()
    leave_work(url, "a")
    worker = start(url)
    wait_until_completed(url, "a")
    mortal_server.restart()
    leave_work(url, "b")
    wait_until_completed(url, "a", "b")
    mortal_server.kill()
    time.sleep(0.5)  # it finds nobody
    mortal_server.start()
    leave_work(url, "c")
    wait_until_completed(url, "a", "b", "c")
    assert worker.ends() == 0


def test_a_worker_whose_connections_are_ended_finds_work_by_looking(start: Start) -> None:
    """The one that it hears by, too: it makes new ones, and nobody has to tell it of what is there meanwhile."""
    url = new_database()
    leave_work(url, "a")
    worker = start(url)
    wait_until_completed(url, "a")
    for number in range(5):
        ended = sql(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        assert ended
        leave_work(url, f"b{number}")
        wait_until_completed(url, "a", *(f"b{each}" for each in range(number + 1)))
    assert worker.ends() == 0
