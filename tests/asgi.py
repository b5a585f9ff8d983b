"""Servers of the tests on 127.0.0.1: ASGI applications that get each request whole, behind hypercorn."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import attrs
import trio

__all__ = ["Receive", "Said", "Send", "request_of", "serving"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@attrs.frozen
class Said:
    """One request, read whole."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        pairs = parse_qsl(self.body.decode(), keep_blank_values=True, strict_parsing=True)
        assert len(dict(pairs)) == len(pairs), "a field came twice"
        return dict(pairs)


async def request_of(scope: Any, receive: Receive, send: Send) -> Said | None:
    """The request that an application is called for; None if it is none, or the client has gone."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return None
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
    return Said(scope["method"], scope["raw_path"].decode(), scope["query_string"].decode(), headers, body)


@asynccontextmanager
async def serving(app: Any) -> AsyncGenerator[str, None]:
    """The address at which an application is served, until the block ends; it is told, if it has a `url`."""
    from hypercorn.config import Config  # the worlds have no sockets
    from hypercorn.trio import serve

    config, over = Config(), trio.Event()
    quiet = logging.getLogger("a server of the tests")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    config.errorlog = quiet  # and no log of each access: it has the headers of the request
    config.graceful_timeout = 0
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        config.bind = [f"fd://{listener.detach()}"]
        async with trio.open_nursery() as nursery:
            task = trio.CancelScope()

            async def run(task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED) -> None:
                with task:
                    await serve(app, config, shutdown_trigger=over.wait, mode="asgi", task_status=task_status)

            (address,) = await nursery.start(run)
            if hasattr(app, "url"):
                app.url = str(address)
            try:
                yield str(address)
            finally:
                over.set()
                task.cancel()
