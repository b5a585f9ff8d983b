"""What is refused when a database is opened, and with what to do; what URLs mean; and no password anywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from trio.testing import MockClock

from minirun._postgres._pool import Pool
from minirun._postgres._target import shown_url
from minirun._postgres._values import Statement
from minirun.env import REAL_ENV
from minirun.errors import ConfigurationError, StorageConnectionError, StorageFormatError

from ..postgres import LOCKED_PASSWORD, new_database, shared_server
from ..postgres_tables import PID, TrioTime, one_connection
from ..postgres_wire import silent, speaking, transaction_pooler, wire_to

ROOT = Path(__file__).parents[2]


async def use(url: str) -> None:
    """Open the database and ask something."""
    pool = Pool(url, REAL_ENV)
    try:
        await pool.read(PID())
    finally:
        pool.close()


# --- the server


async def test_a_server_before_14_is_refused() -> None:
    """
    The message has the version that was found.
    """
    server, url = shared_server(), new_database()
    async with wire_to(server, url) as wire:
        connection = await one_connection(wire.url)
        version = connection.parameter("server_version").encode()
        older = b"13.9".ljust(len(version), b" ")
        wire.rewrite = lambda data: data.replace(version, older)
        with pytest.raises(StorageFormatError, match=r"expected a Postgres .* version 14 or later, found 13\.9; up"):
            await use(wire.url)
        connection.close()


async def test_a_database_of_another_encoding_is_refused() -> None:
    """
    The message says how to make one that is not.
    """
    server = shared_server()
    server.execute("DROP DATABASE IF EXISTS latin")
    server.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StorageFormatError, match=r"expected .* UTF8, found LATIN1; make another one: CREATE DATABASE"):
        await use(server.url("latin"))


@pytest.mark.parametrize("first_out", [False, True])
async def test_a_pooler_in_transaction_mode_is_refused(first_out: bool) -> None:
    """
    Whichever of its connections it gives out next, it is found, and the message says how to go around it.
    """
    server, url = shared_server(), new_database()
    async with transaction_pooler(server, url, first_out=first_out) as pooled:
        with pytest.raises(StorageFormatError, match=r"found a pooler in transaction mode; .* pool_mode=session"):
            await use(pooled)


async def test_a_pooler_in_session_mode_is_as_good_as_the_server() -> None:
    """
    It tells another process id than the server has, and each connection keeps its own process: it is used.
    """
    server, url = shared_server(), new_database()
    async with wire_to(server, url) as wire:

        def another_process(data: bytes) -> bytes:
            key = data.find(b"K\0\0\0\x0c")
            return data if key < 0 else data[: key + 5] + b"\0\0\0\x07" + data[key + 9 :]

        wire.rewrite = another_process
        connection = await one_connection(wire.url)
        assert connection.backend_pid == 7
        connection.close()
        await use(wire.url)


async def test_what_is_no_postgres_is_refused() -> None:
    """
    A web server, say; libpq's words are in the message.
    """
    async with speaking(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        with pytest.raises(StorageConnectionError, match=r"cannot connect: .*received H"):
            await use(url)


@pytest.fixture
def jumping() -> MockClock:
    """Time that jumps when nothing has happened for 200 ms."""
    return MockClock(autojump_threshold=0.2)


async def test_what_says_nothing_is_given_up(jumping: MockClock) -> None:
    """
    After ten seconds, or after the `connect_timeout` of the URL.
    """
    for more, seconds in (("", 10), ("&connect_timeout=3", 3)):
        async with silent() as url:
            pool = Pool(url + more, TrioTime())
            with pytest.raises(StorageConnectionError, match=f"no answer within {seconds} s"):
                await pool.read(PID())


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://h:1/db", "Name or service|cannot be resolved|Temporary failure"),
        ("postgresql://127.0.0.1:1/db", "Connection refused"),
        ("postgresql:///db?host=/nowhere", "No such file"),
        ("postgresql://127.0.0.1:1,127.0.0.2:1/db", "Connection refused"),
    ],
)
async def test_an_unreachable_host_is_said(url: str, problem: str) -> None:
    """
    Nothing was stored, and the message says what to look at.
    """
    with pytest.raises(StorageConnectionError, match=rf"cannot connect: .*({problem}).*; look whether the") as error:
        await use(url.replace("//h:", "//no-such-host.invalid:"))
    assert error.value.stored is False


async def test_the_next_host_is_tried_and_a_standby_is_passed_over() -> None:
    """
    Of several hosts the first that can be written is used.
    """
    server, url = shared_server(), new_database()
    several = url.replace("host=", "host=/nowhere,")
    connection = await one_connection(several)
    assert connection.is_open
    connection.close()
    database = url.partition("@/")[2].partition("?")[0]
    server.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with pytest.raises(StorageConnectionError, match="session is read-only"):
        await one_connection(several)
    (await one_connection(url)).close()


# --- passwords

SIGNED_IN = Statement("signed_in", "SELECT current_user")


async def who(url: str) -> str:
    pool = Pool(url, REAL_ENV)
    [result] = await pool.read(SIGNED_IN())
    pool.close()
    name: str = result.rows[0][0]
    return name


async def test_a_password_of_the_url_lets_in() -> None:
    """
    Percent-encoded, as every URL has it.
    """
    url = new_database().replace("minirun@", f"locked:{LOCKED_PASSWORD.replace('/', '%2F').replace('@', '%40')}@")
    assert await who(url) == "locked"


async def test_the_environment_and_the_password_file_are_libpqs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    What the URL leaves out comes from PG variables, and the password from the password file.
    """
    server, url = shared_server(), new_database()
    (tmp_path / "pass").write_text(f"*:*:*:locked:{LOCKED_PASSWORD}\n")
    (tmp_path / "pass").chmod(0o600)
    monkeypatch.setenv("PGHOST", str(server.folder))
    monkeypatch.setenv("PGUSER", "locked")
    monkeypatch.setenv("PGDATABASE", url.partition("@/")[2].partition("?")[0])
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pass"))
    assert await who("postgresql://") == "locked"


@pytest.mark.parametrize("password", ["wrong-one", ""])
async def test_a_wrong_password_is_refused_and_not_shown(password: str) -> None:
    """
    Neither in the message nor in that of the cause, nor in what stands in a pool's repr.
    """
    url = new_database().replace("minirun@", f"locked:{password}@" if password else "locked@")
    with pytest.raises(StorageConnectionError, match="password") as error:
        await use(url)
    shown: BaseException | None = error.value
    while shown is not None:
        assert "wrong-one" not in f"{shown} {shown!r}"
        shown = shown.__cause__ or shown.__context__
    assert "wrong-one" not in repr(Pool(url, REAL_ENV))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@db.example.com:5433/app?sslpassword=secret", "postgresql://db.example.com:5433/app"),
        ("postgres://ada:secret@h/app", "postgresql://h/app"),
        ("postgresql://ada:secret@h1:1,[::1]:2/app?application_name=x", "postgresql://h1:1,[::1]:2/app"),
        ("postgresql://ada:sec%40ret@%2Ftmp%2Fsocket/app", "postgresql:///tmp/socket/app"),
        ("postgresql:///app?host=/tmp&password=secret&user=ada", "postgresql:///tmp/app"),
        ("postgresql://?host=h&dbname=app&password=secret", "postgresql://h/app"),
        ("postgresql://", "postgresql:///"),
    ],
)
def test_a_url_is_shown_without_who_signs_in(url: str, shown: str) -> None:
    """
    Hosts and database are shown, and nothing else.
    """
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://ada:se@cret@h/app", "has an @"),
        ("postgresql://ada:se/cret@h/app", "has an @"),
        ("postgresql://ada:s3cret:12/app", "cannot be read|port"),
        ("postgresql://h:se-cret/app", "port that is no number"),
        ("mysql://ada:secret@h/app", "does not begin with postgresql"),
        ("host=h password=secret", "does not begin with postgresql"),
        ("postgresql://[secret@h/app", "cannot be read"),
        ("postgresql://h/app\0", "NUL"),
        ("postgresql://h/app?sslmode=allow&secret=1", r"libpq cannot read this URL \(its option number 2 is unknown\)"),
        ("postgresql://ada:se%cret@h/app", "libpq cannot read this URL; .*a % is written %25"),
        ("postgresql://h:99999/app?password=secret", "a port from 1 to 65535, found a higher number"),
        ("postgresql://h/app?password=secret&port=5432,65536", "a port from 1 to 65535, found a higher number"),
        ("postgresql://h/app?password=secret&load_balance_hosts=random", "load_balance_hosts has no effect"),
    ],
)
def test_a_url_that_cannot_be_read_is_not_shown(url: str, problem: str) -> None:
    """
    It is refused where it is given, with the form that was expected, and without what may be half of a password.
    """
    with pytest.raises(ConfigurationError, match=problem) as error:
        Pool(url, REAL_ENV)
    assert "cret" not in str(error.value)


# --- the extra


def test_without_psycopg_the_extra_is_named() -> None:
    """
    The pool is refused when it is made; importing it needs nothing.
    """
    program = """
import sys
sys.modules["psycopg"] = None
from minirun._postgres._pool import Pool
from minirun.env import REAL_ENV
try:
    Pool("postgresql://h/db", REAL_ENV)
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == 'sessions in Postgres need psycopg with its libpq; run: pip install "minirun[postgres]"\n'
    assert done.stderr == ""
