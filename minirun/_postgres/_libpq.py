"""
Connections to Postgres by libpq (`psycopg.pq`), which trio drives: no thread, no callback, no loop but trio's.

What is sent together is one *pipeline*: statements, then a Sync. They are one transaction, unless one was begun before,
and cost one round trip. The rules of this file:

*   Nothing blocks. libpq reads and writes what the socket takes; trio waits for the socket. Host names are looked up by
    trio before, in its thread, because libpq would block.
*   From the first byte of a pipeline to the answer of its Sync the connection is *busy*. Whatever ends that early,
    closes it. There is no third state.
*   A cancelled task waits for the answer, shielded, `Bounds.grace_s` at most. For what only reads it first asks the
    server to give up, so that this takes no time.
*   An outcome is known when the answer of Sync has come, or an error before it that is no FATAL one: the server rolls
    back. A connection that is lost before leaves it open.
*   Time is that of `Env.steady`: a clock that jumps ends no waiting.
*   Sign-in and TLS are libpq's. It reads `PG...` variables, the password file and the service file.
*   A fork of the process has a copy of the socket. It closes that, and says nothing on it.

What the server sends unasked (notifications, the reason why it closes a connection) is read whenever the connection is
used or looked at.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import attrs
import trio

from .._json import brief
from ..errors import ConfigurationError, StorageConnectionError
from ._connection import Bounds, ConnectionLostError, ServerError
from ._errors import ADVICE
from ._target import shown_url
from ._values import Call, Notification, Result, Statement, decoder, encode

try:
    import psycopg
    from psycopg import pq
except ImportError as _error:  # without the package, or without a libpq
    _msg = 'sessions in Postgres need psycopg with its libpq; run: pip install "minirun[postgres]"'
    raise ModuleNotFoundError(_msg, name=_error.name or "psycopg") from None

if TYPE_CHECKING:
    from psycopg.pq.abc import PGcancelConn, PGconn, PGresult

    from ..env import Env

__all__ = ["LibpqConnection", "connect", "options_of"]

BINARY: Final = 1

# A machine that has died sends nothing. The kernel asks after 10 s of silence, and gives up 10 s later.
KEEPALIVES: Final = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "2"}

PORT_MAX: Final = 65_535

_OK: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_ENDED_BY_SERVER: Final = (b"FATAL", b"PANIC")


async def connect(env: Env, url: str, bounds: Bounds) -> LibpqConnection:
    """
    Connect and sign in; `Connect` of this module, once *env* is given.

    The hosts of the URL are tried in turn, each with all its addresses, each for `Bounds.connect_s`, or for the
    URL's `connect_timeout`.

    Raises:
        StorageConnectionError: None has let us in.
        ConfigurationError: libpq cannot read the URL.
    """
    options = options_of(url, bounds)
    connect_s = _connect_s(options, bounds)
    problem = "there is no address to connect to"
    for host in _hosts(options):
        try:
            addresses = await _addresses(host)
        except OSError as error:
            problem = f"the name of host {brief(host['host'])} cannot be resolved: {error.strerror or error}"
            continue
        for address in addresses:
            connecting = pq.PGconn.connect_start(_conninfo(address))
            try:
                problem = await _connected(env, connecting, connect_s)
                if not problem:
                    return LibpqConnection(env, connecting, bounds)
            except BaseException:
                connecting.finish()
                raise
            connecting.finish()
    password = options.get("password", "")
    if len(password) > 3:  # libpq does not show it, and a shorter one would be found in any word
        problem = problem.replace(password, "***")
    msg = f"{shown_url(url)}: cannot connect: {problem}; {ADVICE[StorageConnectionError]}"
    raise StorageConnectionError(msg)


async def _connected(env: Env, connecting: PGconn, connect_s: float) -> str:
    """Wait until it is signed in, and return ""; or what is wrong."""
    until = env.steady() + connect_s
    while True:
        polled = connecting.connect_poll()
        if polled == pq.PollingStatus.OK:
            return ""
        if polled == pq.PollingStatus.FAILED or connecting.status == pq.ConnStatus.BAD:
            return _one_line(connecting.error_message)
        wait = _readable if polled == pq.PollingStatus.READING else _writable
        if not await _wait(env, partial(wait, connecting), until):
            return f"no answer within {connect_s:g} s"


def options_of(url: str, bounds: Bounds) -> dict[str, str]:
    """
    What the URL says, with what we add to it; libpq adds the environment's.

    Raises:
        ConfigurationError: libpq cannot read it, or could not use it.
    """
    try:
        parsed = pq.Conninfo.parse(url.encode())
    except psycopg.Error:  # whose message may have half of the password
        parsed = None
    if parsed is None:
        msg = f"{shown_url(url)}: libpq cannot read this URL{_unknown(url)}; expected postgresql://USER:PASSWORD@HOST"
        raise ConfigurationError(f"{msg}:PORT/DATABASE?OPTION=VALUE with options that libpq knows; a % is written %25")
    given = {each.keyword.decode(): each.val.decode() for each in parsed if each.val is not None}
    if given.get("load_balance_hosts", "disable") != "disable":
        msg = f"{shown_url(url)}: load_balance_hosts has no effect here: hosts are tried in turn; leave it out"
        raise ConfigurationError(msg)
    if any(int(port) > PORT_MAX for port in given.get("port", "").split(",") if port.isascii() and port.isdigit()):
        msg = f"{shown_url(url)}: expected a port from 1 to {PORT_MAX}, found a higher number; correct it"
        raise ConfigurationError(msg)
    unacknowledged_ms = str(round(1000 * bounds.answer_s))
    ours = {"tcp_user_timeout": unacknowledged_ms, **KEEPALIVES, "fallback_application_name": "minirun"}
    return {**ours, **given, "client_encoding": "UTF8"}


def _unknown(url: str) -> str:
    """Which option of the URL is none of libpq's, without showing it: it may be half of a password that has an &."""
    known = {each.keyword.decode() for each in pq.Conninfo.get_defaults()} | {"ssl", ""}
    for number, option in enumerate(url.partition("?")[2].split("&"), 1):
        if unquote(option.partition("=")[0]) not in known:
            return f" (its option number {number} is unknown)"
    return ""


def _connect_s(options: dict[str, str], bounds: Bounds) -> float:
    wanted = options.get("connect_timeout", "")
    return float(wanted) if wanted.isdigit() and int(wanted) > 0 else bounds.connect_s


def _hosts(options: dict[str, str]) -> list[dict[str, str]]:
    """The hosts to be tried, each as options for libpq."""
    defaults = {each.keyword.decode(): each.val.decode() for each in pq.Conninfo.get_defaults() if each.val is not None}
    whole = {**defaults, **options}
    hosts, ports = whole.get("host", "").split(","), whole.get("port", "").split(",")
    if "service" in whole or "hostaddr" in whole or hosts == [""]:  # libpq knows where, or it is the default socket
        return [options]
    if len(hosts) > 1 and "target_session_attrs" not in options:
        # Several hosts are a primary and its standbys, and which one is the primary changes.
        wanted = defaults.get("target_session_attrs", "any")
        options = {**options, "target_session_attrs": "read-write" if wanted == "any" else wanted}
    if len(ports) != len(hosts):
        ports = ports[:1] * len(hosts)
    return [
        {**options, "host": host} | ({"port": port} if port else {}) for host, port in zip(hosts, ports, strict=True)
    ]


async def _addresses(host: dict[str, str]) -> list[dict[str, str]]:
    """The addresses of a host; it raises OSError if its name is not known."""
    name = host.get("host", "")
    if "hostaddr" in host or not name or name[0] in "/@" or _is_address(name):
        return [host]
    found = await trio.socket.getaddrinfo(name, host.get("port"), type=socket.SOCK_STREAM)
    return [{**host, "hostaddr": str(address[0])} for *_, address in found]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _conninfo(options: dict[str, str]) -> bytes:
    quoted = (f"{key}='{_escaped(value)}'" for key, value in options.items())
    return " ".join(quoted).encode()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


def _one_line(message: bytes) -> str:
    return " ".join(message.decode("utf-8", "replace").split())


# --- waiting


async def _readable(connection: PGconn | PGcancelConn) -> None:
    await trio.lowlevel.wait_readable(connection.socket)


async def _writable(connection: PGconn | PGcancelConn) -> None:
    await trio.lowlevel.wait_writable(connection.socket)


async def _either(connection: PGconn) -> None:
    """Wait until the server has sent something, or takes more: it may want to be read before it reads on."""

    async def first(wait: Callable[[PGconn], Awaitable[None]]) -> None:
        await wait(connection)
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first, _readable)
            nursery.start_soon(first, _writable)
    except BaseExceptionGroup as group:
        # A cancelled nursery raises a group with one Cancelled per task. `run` must see a single exception: with an
        # uncaught group it closed the connection, PQfinish sent the rest of the pipeline, and the server committed.
        _, others = group.split(trio.Cancelled)
        if others is not None:
            raise others.exceptions[0] from None
        await trio.lowlevel.checkpoint_if_cancelled()


async def _wait(env: Env, wait: Callable[[], Awaitable[None]], until: float) -> bool:
    """Return whether *wait* has ended before the steady clock says *until*, whatever trio's clock says."""
    while (left := until - env.steady()) > 0:
        with trio.move_on_after(left):
            await wait()
            return True
    return False


# --- a connection


@attrs.define
class _Pipeline:
    """What was sent, and what has come of it."""

    expected: deque[tuple[Statement, bytes]]
    """Whose answers are still to come. With a name it is the answer of the preparation."""
    results: list[Result] = attrs.Factory(list)
    error: ServerError | None = None


class LibpqConnection:
    """A signed-in connection; see `Connection`."""

    def __init__(self, env: Env, connected: PGconn, bounds: Bounds) -> None:
        connected.nonblocking = 1
        connected.notice_handler = self._on_notice
        self._env = env
        self._pg = connected
        self._bounds = bounds
        self._prepared: dict[Statement, bytes] = {}
        self._numbers = count(1)
        self._notifications: list[Notification] = []
        self._process = os.getpid()
        self._is_open = True
        self._is_busy = False  # a pipeline is on its way
        self._last_words = ""  # why the server has closed the connection, or the system has

    @property
    def is_open(self) -> bool:
        """See `Connection.is_open`."""
        return self._is_open and self._process == os.getpid()

    @property
    def in_transaction(self) -> bool:
        """See `Connection.in_transaction`."""
        return self._is_open and self._pg.transaction_status != pq.TransactionStatus.IDLE

    @property
    def server_version(self) -> int:
        """See `Connection.server_version`."""
        return self._pg.server_version

    @property
    def backend_pid(self) -> int:
        """See `Connection.backend_pid`."""
        return self._pg.backend_pid

    def parameter(self, name: str) -> str:
        """See `Connection.parameter`."""
        return (self._pg.parameter_status(name.encode()) or b"").decode()

    @trio.lowlevel.enable_ki_protection
    async def run(self, calls: Sequence[Call], *, withdraw: bool, answer_s: float | None = None) -> list[Result]:
        """See `Connection.run`."""
        assert calls
        assert not self._is_busy
        parameters = [encode(call) for call in calls]  # a value that does not fit is refused before anything is sent
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.is_open:
            raise ConnectionLostError(self._last_words or "it was closed", sent=False)
        self._is_busy = True
        try:
            pipeline = self._send(calls, parameters)
            try:
                await self._exchange(pipeline, self._bounds.answer_s if answer_s is None else answer_s)
            except trio.Cancelled:
                await self._end_cancelled(pipeline, withdraw=withdraw)
                if withdraw:
                    raise
            self._leave_pipeline()
        except psycopg.Error as error:
            raise ConnectionLostError(_one_line(str(error).encode()), sent=True) from error
        finally:
            if self._is_busy:
                self.close()
        if pipeline.error is not None:
            raise pipeline.error
        return pipeline.results

    def _send(self, calls: Sequence[Call], parameters: list[list[bytes | None]]) -> _Pipeline:
        """Hand over a pipeline to libpq, which sends what the socket takes now."""
        pg = self._pg
        pg.enter_pipeline_mode()
        expected: deque[tuple[Statement, bytes]] = deque()
        preparing: dict[Statement, bytes] = {}
        for call, values in zip(calls, parameters, strict=True):
            statement = call.statement
            formats = [BINARY] * len(values)
            if statement.once:
                pg.send_query_params(statement.sql.encode(), values, statement.oids, formats, BINARY)
            else:
                name = self._prepared.get(statement) or preparing.get(statement)
                if name is None:
                    name = preparing[statement] = f"{statement.name}_{next(self._numbers)}".encode()
                    pg.send_prepare(name, statement.sql.encode(), statement.oids)
                    expected.append((statement, name))
                pg.send_query_prepared(name, values, formats, BINARY)
            expected.append((statement, b""))
        pg.pipeline_sync()
        return _Pipeline(expected)

    async def _exchange(self, pipeline: _Pipeline, answer_s: float) -> None:
        """Send the rest, and read all answers. It can be called again where it was cancelled."""
        while self._pg.flush():
            await self._wait(_either, answer_s)
            self._read()
        while not self._take(pipeline):
            if self._last_words:
                raise ConnectionLostError(self._last_words, sent=True)
            await self._wait(_readable, answer_s)
            self._read()

    async def _wait(self, wait: Callable[[PGconn], Awaitable[None]], answer_s: float) -> None:
        if not await _wait(self._env, partial(wait, self._pg), self._env.steady() + answer_s):
            raise ConnectionLostError(f"no answer within {answer_s:g} s", sent=True)

    def _read(self) -> None:
        """Read what has come. Where the connection has ended, what came before counts, so this does not raise."""
        try:
            self._pg.consume_input()
        except psycopg.Error as error:
            self._last_words = self._last_words or _one_line(str(error).encode())

    def _take(self, pipeline: _Pipeline) -> bool:
        """Take the answers that have come, and return whether that of Sync is among them, the last one."""
        pg = self._pg
        while not pg.is_busy():
            result = pg.get_result()
            if result is None:  # the end of the answers to one statement
                if not pipeline.expected:
                    raise ConnectionLostError(self._last_words or "it has ended", sent=True)
                pipeline.expected.popleft()
            elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                return True
            else:
                self._take_one(pipeline, result)
        return False

    def _take_one(self, pipeline: _Pipeline, result: PGresult) -> None:
        statement, name = pipeline.expected[0] if pipeline.expected else (None, b"")
        if result.status == pq.ExecStatus.FATAL_ERROR:
            error = _server_error(result, statement)
            if error is None:
                # Where one statement has failed before, all of them have.
                self._last_words = _one_line(result.error_message)
                raise pipeline.error or ConnectionLostError(self._last_words, sent=True)
            pipeline.error = pipeline.error or error
        elif result.status in _OK and statement is not None:
            if name:
                self._prepared[statement] = name
            else:
                pipeline.results.append(Result(list(_rows(result)), result.command_tuples or 0))
        else:
            assert result.status == pq.ExecStatus.PIPELINE_ABORTED, result.status

    async def _end_cancelled(self, pipeline: _Pipeline, *, withdraw: bool) -> None:
        """
        Wait for the end of a pipeline whose task was cancelled, within the bound; else the connection is closed.

        Raises:
            ConnectionLostError: It is closed, and what was sent may be stored. Not with *withdraw*.
        """
        with trio.CancelScope(shield=True):
            try:
                if withdraw:
                    await self._ask_to_cancel()
                await self._exchange(pipeline, self._bounds.grace_s)
                self._leave_pipeline()
            except (ConnectionLostError, ServerError, psycopg.Error):
                if not withdraw:
                    raise

    def _leave_pipeline(self) -> None:
        if self._is_busy:
            self._pg.exit_pipeline_mode()
            self._is_busy = False

    async def _ask_to_cancel(self) -> None:
        """Ask the server to give up what it does, on a connection of its own. What comes of it shows here."""
        until = self._env.steady() + self._bounds.grace_s
        try:
            asking = self._pg.cancel_conn()
        except psycopg.NotSupportedError:  # a libpq before 17 can only do so by blocking
            return
        try:
            asking.start()
            while (polled := asking.poll()) not in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
                wait = _readable if polled == pq.PollingStatus.READING else _writable
                if not await _wait(self._env, partial(wait, asking), until):
                    return
        finally:
            asking.finish()

    # --- what comes unasked

    @trio.lowlevel.enable_ki_protection
    async def notified(self) -> list[Notification]:
        """See `Connection.notified`."""
        assert not self._is_busy
        while True:
            if not self.is_alive():
                raise ConnectionLostError(self._last_words or "it was closed", sent=False)
            if self._notifications:
                await trio.lowlevel.checkpoint()
                found, self._notifications = self._notifications, []
                return found
            try:
                await _readable(self._pg)
            except trio.ClosedResourceError:
                raise ConnectionLostError("it was closed", sent=False) from None

    def is_alive(self) -> bool:
        """See `Connection.is_alive`."""
        assert not self._is_busy
        if not self.is_open:
            return False
        self._read()
        while (each := self._pg.notifies()) is not None:  # which makes libpq look at what was read
            self._notifications.append(Notification(each.relname.decode(), each.extra.decode()))
        if self._last_words:
            self.close()
        return self.is_open

    def _on_notice(self, notice: PGresult) -> None:
        if notice.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) in _ENDED_BY_SERVER:
            self._last_words = _one_line(notice.error_message)

    # --- closing

    def close(self) -> None:
        """See `Connection.close`. What is not sent yet is never sent."""
        if self._process != os.getpid():
            self.abandon()
        elif self._is_open:
            was_busy = self._is_busy
            self._is_open = self._is_busy = False
            if self._pg.status == pq.ConnStatus.OK:
                if was_busy:
                    self._send_no_more()
                if trio.lowlevel.in_trio_run():
                    trio.lowlevel.notify_closing(self._pg.socket)
            self._pg.finish()

    def _send_no_more(self) -> None:
        """
        Shut the socket down for sending.

        PQfinish flushes its buffer: the rest of a pipeline, whose Sync would commit what the caller was told is not
        stored. The server rolls an incomplete pipeline back when the connection ends.
        """
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._pg.socket)) as copy:
            copy.shutdown(socket.SHUT_WR)

    def abandon(self) -> None:
        """See `Connection.abandon`."""
        if self._is_open:
            self._is_open = self._is_busy = False
            if self._pg.status == pq.ConnStatus.OK:
                os.close(self._pg.socket)  # else the server would take our parent for alive when it has died


def _server_error(result: PGresult, statement: Statement | None) -> ServerError | None:
    """The error that a statement ended with; None if the connection has ended."""
    sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE)
    if sqlstate is None or result.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) in _ENDED_BY_SERVER:
        return None
    primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
    constraint = result.error_field(pq.DiagnosticField.CONSTRAINT_NAME) or b""
    name = "" if statement is None else statement.name
    return ServerError(sqlstate.decode(), _one_line(primary), statement=name, constraint=constraint.decode())


def _rows(result: PGresult) -> Iterator[tuple[Any, ...]]:
    columns = [(number, decoder(result.ftype(number))) for number in range(result.nfields)]
    get_value = result.get_value
    for row in range(result.ntuples):
        cells = ((get_value(row, number), read) for number, read in columns)
        yield tuple(None if cell is None else read(cell) for cell, read in cells)
