"""
One long connection of a process: for LISTEN, and as its sign of life.

What it hears only wakes somebody who looks then: a notification may be lost with the connection, and everybody looks
now and then without one. So a server that is away fails nobody here.

There is no task. Of those who wait, one reads for all; when it leaves, the next one does.

A sign of life is what holds as long as the connection does, such as an advisory lock: the *hello*, which is executed on
each new connection before anything else. The server ends it when the process has died. While nobody waits, nobody
notices that the connection was lost: `ensure` looks.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from ..errors import StorageError
from ._connection import Connection, ConnectionLostError, ServerError
from ._errors import typed_error
from ._values import Call, Notification, Result, Statement

if TYPE_CHECKING:
    from ._pool import Pool

__all__ = ["Bell", "Listener"]

# Who hears more than that between two looks looks at everything.
PAYLOADS_MAX: Final = 1_000


class Bell:
    """A place to wait for notifications of a channel; see `Listener.hearing`."""

    def __init__(self, listener: Listener, channel: str) -> None:
        self.channel = channel
        self._listener = listener
        self._payloads: set[str] | None = None  # None: something may have been missed
        self.rings = True  # before LISTEN was answered, who knows
        self._asleep: trio.Event | None = None  # while another one reads for it

    async def wait(self, poll_s: float) -> frozenset[str] | None:
        """
        Wait for something to look at, for *poll_s* at most, and return the payloads that have come since the last time.

        None says to look at everything: the time is over, the connection is new, or this is the first call. A
        cancellation loses nothing. A checkpoint.
        """
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(poll_s):
            while not self.rings:
                await self._listener._serve(self)
        payloads, rings = self._payloads, self.rings
        self._payloads, self.rings = set(), False
        return frozenset(payloads) if rings and payloads is not None else None

    async def sleep(self) -> None:
        """Let another one read, and wait until it has something."""
        self._asleep = trio.Event()
        try:
            await self._asleep.wait()
        finally:
            self._asleep = None

    def ring(self, payload: str | None) -> None:
        """Wake the task that waits. With None something may have been missed."""
        self.rings = True
        if payload is None or self._payloads is None or len(self._payloads) >= PAYLOADS_MAX:
            self._payloads = None
        else:
            self._payloads.add(payload)
        self.nudge()

    def nudge(self) -> bool:
        """Wake the task that waits, if it sleeps, so that it looks whether it rings; return whether it did."""
        if self._asleep is None or self._asleep.is_set():
            return False
        self._asleep.set()
        return True


class Listener:
    """
    The long connection beside a pool.

    Args:
        hello: What is executed on each new connection.
    """

    def __init__(self, pool: Pool, hello: Sequence[Call] = ()) -> None:
        self._pool = pool
        self._hello = tuple(hello)
        self.generation = 0
        """Counts the connections. One more says that the sign of life was interrupted."""
        self.hello_results: list[Result] = []
        """What the hello has answered on the newest one."""
        self._connection: Connection | None = None
        self.begin_here()

    def begin_here(self) -> None:
        """Serve this process, which may be a fork of the one that has opened the connection."""
        if self._connection is not None:
            self._connection.abandon()
        self._process = os.getpid()
        self._connection = None
        self._heard: set[str] = set()  # the channels that the connection listens to
        self._bells: dict[Bell, None] = {}
        self._lock = trio.Lock()  # of the connection
        self._reader: Bell | None = None
        self._reading: trio.CancelScope | None = None  # around its waiting; cancelled by who needs the connection

    @asynccontextmanager
    async def hearing(self, channel: str) -> AsyncIterator[Bell]:
        """Listen to a channel, a plain identifier, as long as the block lasts. Nothing is asked of the server here."""
        assert channel.replace("_", "").isalnum(), channel
        bell = Bell(self, channel)
        self._bells[bell] = None
        try:
            yield bell
        finally:
            self._bells.pop(bell, None)

    async def ensure(self) -> int:
        """
        Have a connection that is alive and listens to what is waited for, and return its `generation`.

        Raises:
            StorageError: There is none. Its `stored` is False.
        """
        wanted = {bell.channel for bell in self._bells}
        if self._reading is not None:
            if wanted <= self._heard:
                return self.generation  # the one who reads would have noticed its end
            self._reading.cancel()
        async with self._lock:
            if self._connection is None or not self._connection.is_alive():
                await self._reconnect()
            connection = self._connection
            assert connection is not None
            new = sorted({bell.channel for bell in self._bells} - self._heard)
            if new:
                await self._run(connection, [Statement("listen", f"LISTEN {channel}", once=True)() for channel in new])
                self._heard.update(new)
                self._ring_all({*new})
        return self.generation

    def close(self) -> None:
        """Close the connection, which ends the sign of life. Those who wait go on by the clock."""
        connection, self._connection = self._connection, None
        self._heard.clear()
        if connection is not None:
            self._pool.release(connection)

    # --- the connection

    async def _reconnect(self) -> None:
        self.close()
        connection = await self._pool.connect()
        try:
            if self._hello:
                self.hello_results = await self._run(connection, self._hello)
        except BaseException:
            self._pool.release(connection)
            raise
        self._connection = connection
        self.generation += 1

    async def _run(self, connection: Connection, calls: Sequence[Call]) -> list[Result]:
        try:
            return await connection.run(calls, withdraw=True)
        except (ConnectionLostError, ServerError) as error:
            raise typed_error(error, self._pool.name, "listening", writes=False) from error

    # --- hearing

    async def _serve(self, bell: Bell) -> None:
        """Read for all until there is something for somebody; or sleep, if another one reads."""
        try:
            if self._reader is None:
                await self._read_for_all(bell)
            elif bell.channel in self._heard:
                await bell.sleep()
            else:
                await self.ensure()
        except StorageError:
            await trio.sleep_forever()  # the caller goes on by the clock

    async def _read_for_all(self, bell: Bell) -> None:
        self._reader = bell
        try:
            await self.ensure()
            if not bell.rings:
                self._hand_out(await self._read())
        except ConnectionLostError:
            self._ring_all(None)
        finally:
            self._reader = None
            any(each.nudge() for each in self._bells)  # the next one reads

    async def _read(self) -> list[Notification]:
        async with self._lock:
            connection = self._connection
            if connection is None:
                return []
            try:
                with trio.CancelScope() as self._reading:
                    return await connection.notified()
            finally:
                self._reading = None
        return []

    def _hand_out(self, found: list[Notification]) -> None:
        for each in found:
            for bell in self._bells:
                if bell.channel == each.channel:
                    bell.ring(each.payload)

    def _ring_all(self, channels: set[str] | None) -> None:
        for bell in self._bells:
            if channels is None or bell.channel in channels:
                bell.ring(None)
