"""The command line with a database as --db: every command works there, no password is shown; workers shut down."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from minirun import DatabaseSessionService
from minirun.cli._db import shown_url
from minirun.sessions import BaseSessionService, SqliteSessionService
from minirun.sessions._postgres._verify import verify_database

from ..fork_server import Process, start
from ..postgres import new_database
from ..runners.test_postgres_workers import execute
from ..runners.test_supervise import interrupt, statuses
from .test_cli import AGENT, minirun

SLOW = """
import os, trio
from minirun import App, BaseAgent, Event

class Slow(BaseAgent):
    async def _run_async_impl(self, ctx):
        async def work():
            print("at work", flush=True)
            await trio.sleep(float(os.environ.get("SECONDS", "0")))
        await ctx.step("work", work)

app = App(name="app", root_agent=Slow(name="slow"))
"""

PATIENCE_S = 120


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the agents are."""
    (tmp_path / "echo.py").write_text(AGENT)
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def test_every_command_takes_the_url_of_a_database(folder: Path) -> None:
    """Run, list, show, export, import, verify, delete; a password in the URL is in nothing that is printed."""
    url = new_database().replace("minirun@", "minirun:s3cret@", 1)
    place = ("echo", "local", "default")
    said = minirun(folder, "run", "echo.py", "--db", url, "hello", "set")
    assert said.returncode == 0, said.stderr
    listed = minirun(folder, "sessions", "list", "--db", url)
    assert "echo" in listed.stdout
    shown = minirun(folder, "sessions", "show", "--db", url, *place)
    assert "you said hello" in shown.stdout
    exported = minirun(folder, "sessions", "export", "--db", url, *place)
    made = minirun(folder, "sessions", "import", "--db", url, "echo", "other", "copy", stdin=exported.stdout)
    assert made.returncode == 0, made.stderr
    again = minirun(folder, "sessions", "export", "--db", url, "echo", "other", "copy")
    assert again.stdout == exported.stdout
    verified = minirun(folder, "sessions", "verify", "--db", url)
    assert (verified.returncode, verified.stdout.endswith(": sound\n")) == (0, True), verified.stderr
    deleted = minirun(folder, "sessions", "delete", "--yes", "--db", url, *place)
    assert deleted.returncode == 0
    done = (said, listed, shown, exported, made, again, verified, deleted)
    assert not any("s3cret" in each.stdout + each.stderr for each in done)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h:5/d?sslmode=require", "postgresql://u@h:5/d?sslmode=require"),
        ("postgresql://h/d?user=u&password=p&sslpassword=q", "postgresql://h/d?user=u"),
        ("postgresql://u:p@ss@h/d", "postgresql://u@h/d"),
        ("postgresql://u:p/p@h/d", "the database"),
        ("postgresql://u:p#p@h/d", "the database"),
        ("postgresql://u:p?p@h/d", "the database"),
        ("postgresql:///d?host=/tmp/x", "postgresql:///d?host=/tmp/x"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    """Where nobody knows which part that is, nothing is shown."""
    assert shown_url(url) == shown


async def test_damage_in_a_database_is_found() -> None:
    """Whatever is derived, and a text that was changed; a sound database with forks and deletions has none."""
    from ..runners.test_supervise import Tally, runner_of

    async with DatabaseSessionService(new_database()) as service:
        await interrupt(service, "a", "b")
        await service.create_session(
            app_name="app", user_id="u", session_id="s", state={"k": 1, "user:n": 1.5, "app:l": [1]}
        )
        await service.fork_session(app_name="app", user_id="u", session_id="a", new_session_id="fork")
        await service.delete_session(app_name="app", user_id="u", session_id="a")
        runner = runner_of(service, Tally(), seconds=0)
        async with runner.run_async(user_id="u", session_id="s", new_message="x") as run:
            await run.wait()
        assert await verify_database(service) == []
        for sql, told in (
            ("UPDATE minirun.session_state SET value = '2'", "expected 1, found 2"),
            ("UPDATE minirun.shared_state SET value = '2.5' WHERE key = '=user:n'", "expected 1.5, found 2.5"),
            ("UPDATE minirun.invocations SET seq = 0 WHERE status = 'completed'", "noted to begin here"),
            ("UPDATE minirun.events SET data = replace(data, 'begun', 'began')", "link in the hash chain"),
            ("DELETE FROM minirun.shared_pasts", "it is missing"),
        ):
            await execute(service, sql)
            assert told in "\n".join(map(str, await verify_database(service)))


@pytest.fixture(params=["file", "database"])
def place(request: pytest.FixtureRequest, folder: Path) -> str:
    """What a worker is given as --db."""
    return str(folder / "s.db") if request.param == "file" else new_database()


def service_of(place: str) -> BaseSessionService:
    """The sessions there."""
    return DatabaseSessionService(place) if "://" in place else SqliteSessionService(place)


@pytest.fixture
def seconds() -> str:
    """How long a run of the worker takes."""
    return "1.5"


@pytest.fixture
def worker(place: str, folder: Path, seconds: str) -> Iterator[Process]:
    """A worker with an interrupted invocation to go on with, which has begun to work on it."""

    async def make() -> None:
        async with service_of(place) as service:
            await interrupt(service, "a")

    trio.run(make)
    program = ["-W", "error", "-m", "minirun", "work", "slow.py", "--db", place, "--drain", "20"]
    environment = {"SECONDS": seconds, "PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])}
    process = start(program, cwd=folder, env=environment)
    assert process.stdout.readline() == "at work\n"
    yield process
    process.kill()
    process.communicate()


def found(place: str) -> dict[str, str]:
    """The status of each session's invocation."""

    async def look() -> dict[str, str]:
        async with service_of(place) as service:
            return await statuses(service)

    return trio.run(look)


def test_a_worker_drains_when_it_is_told_to_end(worker: Process, place: str) -> None:
    """After SIGTERM what runs comes to its end, and the process ends with 0."""
    worker.send_signal(signal.SIGTERM)
    _, told = worker.communicate()
    assert (worker.returncode, told.endswith("\nended\n")) == (0, True), told
    assert found(place) == {"a": "completed"}


@pytest.mark.parametrize("seconds", ["600"])
def test_a_second_signal_leaves_at_once(worker: Process, place: str, seconds: str) -> None:
    """What runs is interrupted, for another worker."""
    assert worker.stderr is not None
    worker.send_signal(signal.SIGTERM)
    while "stopping: " not in (line := worker.stderr.readline()):  # else the two may arrive as one
        assert line, "it has ended at the first one"
    worker.send_signal(signal.SIGTERM)
    _, told = worker.communicate()
    assert (worker.returncode, "left what was running to other workers" in told) == (0, True), told
    assert found(place) == {"a": "interrupted"}


@pytest.mark.parametrize("own_logging", [False, True])
def test_a_worker_without_its_database_says_so_on_standard_error(own_logging: bool, folder: Path) -> None:
    """Once, while it goes on trying, in the form of the program's own logging if it has any; stdout stays empty."""
    if own_logging:
        own = "import logging\nlogging.basicConfig(format='own: %(message)s')\n"
        (folder / "slow.py").write_text(own + SLOW)
    url = f"postgresql:///nowhere?host={folder}&password=s3cret"
    program = ["-W", "error", "-m", "minirun", "work", "slow.py", "--every", "0.05", "--db", url]
    process = start(program, cwd=folder)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("working on app in ")
    told = process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    rest = process.communicate()
    before, warning, _ = told.partition("cannot look for work of 'app': StorageConnectionError: ")
    assert warning, told
    assert before == "own: " if own_logging else before.endswith(" WARNING: ")
    assert (process.returncode, rest[0], "cannot look" in rest[1], "s3cret" in told) == (0, "", False, False)
