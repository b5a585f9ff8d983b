"""
The seam: what a connection to Postgres does for the rest, how it fails, and how long it waits.

The real one is in `_libpq`. A simulation has another, which executes statements, known by their names, on a model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

import attrs

from ._values import Call, Notification, Result

__all__ = ["Bounds", "Connect", "Connection", "ConnectionLostError", "ServerError"]


@attrs.frozen
class Bounds:
    """
    How long what waits, in seconds.

    The server keeps `statement_s`, `lock_s` and `idle_transaction_s`; the others are kept here. An answer that is not
    there after `answer_s` does not come: the server has given the statement up before, or is stopped, or the network
    is cut. A lease (30 s) outlives it, so that a task that waits in vain knows it before another worker goes on.
    """

    connect_s: float = 10.0
    statement_s: float = 15.0
    lock_s: float = 5.0
    idle_transaction_s: float = 4.0
    """Less than `lock_s`: a worker that stands still in a transaction must not fail those who wait for its locks."""
    answer_s: float = 20.0
    grace_s: float = 2.0
    """For the answer of a statement whose task was cancelled. After that the connection is closed."""


class ServerError(Exception):
    """
    The server has refused a statement, and has rolled back what was sent with it. The connection is usable.

    `sqlstate` is the code of five characters; `constraint` the name of a constraint that would not have held.
    """

    def __init__(self, sqlstate: str, message: str, *, statement: str = "", constraint: str = "") -> None:
        super().__init__(f"{message} (SQLSTATE {sqlstate}{f', statement {statement}' if statement else ''})")
        self.sqlstate = sqlstate
        self.constraint = constraint


class ConnectionLostError(Exception):
    """The connection is gone. Unless `sent` is set, the server has not seen what was to be executed."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Connection(Protocol):
    """
    One connection. One task at a time uses it.

    Its state is always known: it is open and nothing is going on, or it is closed. Whatever interrupts a statement, a
    cancellation too, leaves it in one of these two.
    """

    @property
    def is_open(self) -> bool:
        """Whether it can be used, as far as is known without asking the server."""

    @property
    def in_transaction(self) -> bool:
        """Whether a BEGIN has no COMMIT yet, or none that the server has confirmed."""

    @property
    def server_version(self) -> int:
        """For example 150004, which is 15.4."""

    @property
    def backend_pid(self) -> int:
        """The process of the server that it was told when it connected."""

    def parameter(self, name: str) -> str:
        """What the server has reported of a setting, such as `server_encoding`; "" for one that it does not report."""

    async def run(self, calls: Sequence[Call], *, withdraw: bool, answer_s: float | None = None) -> list[Result]:
        """
        Execute these statements in one round trip, and return a result for each.

        Outside of a transaction they are one: all of them are stored, or none. A cancellation before they are sent
        sends nothing. After that it depends: with *withdraw*, for what only reads, the server is asked to give up and
        `Cancelled` is raised. Without, the answer is waited for, for `Bounds.grace_s` more, and returned.

        Raises:
            ServerError: One was refused; all were rolled back, but for a transaction begun before, which has failed.
            ConnectionLostError: The connection is closed.
        """

    async def notified(self) -> list[Notification]:
        """
        Wait for notifications, and return those that have come, at least one. A cancellation loses none.

        Raises:
            ConnectionLostError: The connection is closed.
        """

    def is_alive(self) -> bool:
        """Look, without waiting and without asking the server, whether it has closed the connection; then it is."""

    def close(self) -> None:
        """Close it. What was sent and not answered may be stored or not."""

    def abandon(self) -> None:
        """Give up the copy of a connection that a fork of the process has, and say nothing to the server."""


# (URL, bounds) → a connection. It raises StorageConnectionError, or ConfigurationError for a URL that is none.
Connect: TypeAlias = Callable[[str, Bounds], Awaitable[Connection]]
