"""
What may stand between a client and a Postgres server: a wire that cuts and holds, a pooler, and what is no Postgres.

Each listens on a socket in a folder of its own, as tasks of the test's nursery; its URL takes the place of the
server's.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from .postgres import PostgresServer

__all__ = ["Wire", "silent", "speaking", "transaction_pooler"]

SOCKET = ".s.PGSQL.5432"


class Wire:
    """
    A wire to a server.

    `client_bytes` and `server_bytes` count what has passed in each direction since they were set to 0. It is cut when
    one of them would pass its `…_max`, as if a machine between had died: the rest is lost, and both ends see a closed
    socket. While `is_held` nothing passes to the client.
    """

    def __init__(self, server: PostgresServer, url: str, folder: Path, nursery: trio.Nursery) -> None:
        self.url = url.replace(str(server.folder), str(folder))
        self._server = str(server.folder / SOCKET)
        self._nursery = nursery
        self.client_bytes = self.server_bytes = 0
        self.client_max = self.server_max = float("inf")
        self.rewrite: Callable[[bytes], bytes] = bytes
        """What the server says is passed on as this makes it."""
        self.connections = 0
        self._open = trio.Event()
        self._open.set()

    def reset(self) -> None:
        """Count from 0, and let all pass."""
        self.client_bytes = self.server_bytes = 0
        self.client_max = self.server_max = float("inf")

    def hold(self) -> None:
        """Keep back what the server says."""
        self._open = trio.Event()

    def release(self) -> None:
        """Let it pass."""
        self._open.set()

    async def serve(self, client: trio.SocketStream) -> None:
        self.connections += 1
        server = await trio.open_unix_socket(self._server)
        async with client, server:
            with trio.CancelScope() as both:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pass_on, client, server, True, both)
                    nursery.start_soon(self._pass_on, server, client, False, both)

    async def _pass_on(
        self, source: trio.SocketStream, target: trio.SocketStream, is_client: bool, both: trio.CancelScope
    ) -> None:
        try:
            async for data in source:
                data = bytes(data)
                if is_client:
                    room = self.client_max - self.client_bytes
                    self.client_bytes += len(data)
                else:
                    await self._open.wait()
                    data = self.rewrite(data)
                    room = self.server_max - self.server_bytes
                    self.server_bytes += len(data)
                await target.send_all(data[: int(min(room, len(data)))])
                if len(data) > room:
                    break
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        both.cancel()


@asynccontextmanager
async def wire_to(server: PostgresServer, url: str) -> AsyncIterator[Wire]:
    """Lay a wire to the database of this URL."""
    async with _listening() as (folder, listener, nursery):
        wire = Wire(server, url, folder, nursery)
        nursery.start_soon(_serve, listener, wire.serve)
        yield wire


@asynccontextmanager
async def _listening() -> AsyncIterator[tuple[Path, trio.SocketListener, trio.Nursery]]:
    folder = Path(tempfile.mkdtemp(prefix="mr-wire-"))
    try:
        listening = trio.socket.socket(trio.socket.AF_UNIX)
        await listening.bind(str(folder / SOCKET))
        listening.listen()
        async with trio.open_nursery() as nursery:
            yield folder, trio.SocketListener(listening), nursery
            nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(folder)


async def _serve(listener: trio.SocketListener, handler: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
    await trio.serve_listeners(handler, [listener])


@asynccontextmanager
async def speaking(words: bytes) -> AsyncIterator[str]:
    """The URL of what answers everybody with these words, and closes."""

    async def answer(client: trio.SocketStream) -> None:
        async with client:
            await client.receive_some()
            await client.send_all(words)

    async with _listening() as (folder, listener, nursery):
        nursery.start_soon(_serve, listener, answer)
        yield f"postgresql:///db?host={folder}"


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """The URL of what accepts connections and says nothing."""

    async def listen(client: trio.SocketStream) -> None:
        async with client:
            async for _ in client:
                pass

    async with _listening() as (folder, listener, nursery):
        nursery.start_soon(_serve, listener, listen)
        yield f"postgresql:///db?host={folder}"


# --- a pooler


class _Upstream:
    """A connection to the server, signed in by the pooler, of which nobody is in a transaction."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.buffer = b""
        self.hello: list[bytes] = []

    async def message(self) -> bytes:
        while len(self.buffer) < 5 or len(self.buffer) < 1 + struct.unpack("!I", self.buffer[1:5])[0]:
            data = await self.stream.receive_some()
            assert data, "the server has closed the connection of the pooler"
            self.buffer += data
        size = 1 + struct.unpack("!I", self.buffer[1:5])[0]
        message, self.buffer = self.buffer[:size], self.buffer[size:]
        return message


@asynccontextmanager
async def transaction_pooler(server: PostgresServer, url: str, *, first_out: bool = False) -> AsyncIterator[str]:
    """
    The URL of a pooler that gives a connection to the server to each transaction.

    It gives out the one that was used last; with *first_out* the one that waits longest. As real ones do, it tells its
    clients a process id of its own.
    """
    database = url.partition("@/")[2].partition("?")[0]
    idle: list[_Upstream] = []

    async def upstream() -> _Upstream:
        one = _Upstream(await trio.open_unix_socket(server.folder / SOCKET))
        body = struct.pack("!I", 196608) + f"user\0minirun\0database\0{database}\0\0".encode()
        await one.stream.send_all(struct.pack("!I", len(body) + 4) + body)
        while (message := await one.message())[:1] != b"Z":
            one.hello.append(message)
        return one

    async def pool(client: trio.SocketStream) -> None:
        async with client:
            await client.receive_some()  # its StartupMessage
            newest = await upstream()
            idle.append(newest)
            told = [each for each in newest.hello if each[:1] != b"K"]
            key = b"K" + struct.pack("!III", 12, 999_999, 1)
            await client.send_all(b"".join([*told, key, b"Z" + struct.pack("!I", 5) + b"I"]))
            async for data in client:
                if data[:1] == b"X":
                    return
                one = idle.pop(0) if first_out else idle.pop()
                await one.stream.send_all(data)
                while True:
                    message = await one.message()
                    await client.send_all(message)
                    if message[:1] == b"Z":
                        break  # of transactions over several round trips the tests have none
                idle.append(one)

    async with _listening() as (folder, listener, nursery):
        nursery.start_soon(_serve, listener, pool)
        yield url.replace(str(server.folder), str(folder))
    for one in idle:
        await one.stream.aclose()
