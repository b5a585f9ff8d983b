"""
A load test: clients that stream answers, a quarter of them gone in the middle; what it costs, and what it leaves open.

    python examples/load_test.py [--clients 200] [--requests 5]

Four services, each in a process of its own: hypercorn's trio worker, and FastAPI on hypercorn's asyncio worker; each
with agents on SQLite, and without minirun: the same answers, streamed by a plain generator. Printed are the processor
time of the service for each request, beside that of its plain twin, and what is left when the clients have gone: runs
that are going on, threads, connections. A service that leaves something ends this program with status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import hypercorn.asyncio
import hypercorn.trio
import trio
from fastapi import FastAPI
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from minirun import LlmAgent, RunConfig, Runner, SqliteSessionService, StreamingMode
from minirun.bridge import AsyncioBridge
from minirun.sessions import InvocationStatus
from minirun.testing import ScriptedLlm

KINDS = ("trio-plain", "trio-minirun", "fastapi-plain", "fastapi-minirun")
FRAGMENTS = ["Once ", "upon ", "a ", "time ", "there ", "was ", "a ", "load ", "test."]
END = b"\r\n0\r\n\r\n"  # of a chunked answer
GAP_S = 0.005  # between two fragments: a fast model
STREAMED = RunConfig(streaming_mode=StreamingMode.SSE)
LOAD_S_MAX = 300.0  # a service that has not answered all by then hangs
# How long a service may take to notice that clients have gone. It waits for no clock, but for the system.
SETTLE_S_MAX = 30.0

Sleep = Callable[[float], Awaitable[None]]


# --- the services -----------------------------------------------------------------------------------------------------


async def plain(sleep: Sleep) -> AsyncGenerator[str, None]:
    """The same answer without minirun."""
    for fragment in FRAGMENTS:
        await sleep(GAP_S)
        yield f"data: {json.dumps({'content': {'parts': [{'text': fragment}]}, 'partial': True})}\n\n"
    yield f"data: {json.dumps({'content': {'parts': [{'text': ''.join(FRAGMENTS)}]}})}\n\n"


def storyteller(folder: Path) -> Runner:
    """The agent, on a file of its own."""
    model = ScriptedLlm(lambda request: FRAGMENTS, latency_s=GAP_S)
    sessions = SqliteSessionService(folder / "load.db")
    agent = LlmAgent(name="teller", model=model)
    return Runner(agent=agent, app_name="load", session_service=sessions, auto_create_session=True)


async def left(sessions: SqliteSessionService | None, call: Callable[..., Awaitable[Any]]) -> dict[str, float]:
    """What this process has used, and what it holds; *call* calls where the agents run."""
    running = [] if sessions is None else await call(sessions.list_invocations, status=InvocationStatus.RUNNING)
    held = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            held += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
        except FileNotFoundError:
            pass  # that of this very listing
    # Workers that trio keeps for a few seconds, in case that somebody needs one, have nothing to do.
    threads = [each for each in threading.enumerate() if not each.name.startswith("Trio thread")]
    return {"cpu_s": time.process_time(), "running": len(running), "connections": held, "threads": len(threads)}


async def serve_on_trio(config: Config, runner: Runner | None) -> None:
    """Starlette on hypercorn's trio worker."""

    @trio.as_safe_channel
    async def told(user: str) -> AsyncGenerator[str, None]:
        if runner is None:
            async with aclosing(plain(trio.sleep)) as lines:
                async for line in lines:
                    yield line
        else:
            async with runner.run_async(user_id=user, session_id="s", new_message="go", run_config=STREAMED) as run:
                async for event in run:
                    yield f"data: {event.to_json()}\n\n"

    class Chat:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async with told(Request(scope).query_params["user"]) as lines:
                await StreamingResponse(lines, media_type="text/event-stream")(scope, receive, send)

    async def direct(function: Callable[..., Awaitable[Any]], **options: Any) -> Any:
        return await function(**options)

    async def look(request: Request) -> JSONResponse:
        return JSONResponse(await left(sessions, direct))

    sessions: Any = None if runner is None else runner.session_service
    app: Any = Starlette(routes=[Route("/chat", Chat()), Route("/left", look)])
    with trio.open_signal_receiver(signal.SIGTERM) as signals:

        async def asked_to_end() -> None:
            await anext(aiter(signals))

        await hypercorn.trio.serve(app, config, shutdown_trigger=asked_to_end)
    if sessions is not None:
        await sessions.aclose()


async def serve_on_asyncio(config: Config, runner: Runner | None) -> None:
    """FastAPI on hypercorn's asyncio worker."""
    app = FastAPI()
    sessions: Any = None if runner is None else runner.session_service

    async with AsyncExitStack() as stack:
        chat = None if runner is None else await stack.enter_async_context(AsyncioBridge(runner))

        async def told(user: str) -> AsyncGenerator[str, None]:
            if chat is None:
                async for line in plain(asyncio.sleep):
                    yield line
            else:
                async with chat.run_async(user_id=user, session_id="s", new_message="go", run_config=STREAMED) as run:
                    async for event in run:
                        yield f"data: {event.to_json()}\n\n"

        @app.get("/chat")
        async def stream(user: str) -> StreamingResponse:
            return StreamingResponse(told(user), media_type="text/event-stream")

        @app.get("/left")
        async def look() -> dict[str, float]:
            return await left(sessions, chat.call if chat is not None else asyncio.sleep)

        await hypercorn.asyncio.serve(app, config)  # type: ignore[arg-type]  # their types of an app differ
        if chat is not None:
            await chat.call(sessions.aclose)


def serve(kind: str, folder: Path, descriptor: int) -> None:
    """Be one of the services, on a socket that listens already, until SIGTERM."""
    host, _, what = kind.partition("-")
    config = Config()
    config.bind = [f"fd://{descriptor}"]
    config.errorlog = None
    runner = storyteller(folder) if what == "minirun" else None
    if host == "trio":
        trio.run(serve_on_trio, config, runner)
    else:
        asyncio.run(serve_on_asyncio(config, runner))


# --- the clients ------------------------------------------------------------------------------------------------------


async def get(port: int, path: str) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return stream


async def client(port: int, number: int, requests: int, counts: Counter[str]) -> None:
    """One user, who asks again and again; every fourth request is left after its second fragment."""
    for request in range(requests):
        leaves = (number + request) % 4 == 3
        read = b""
        try:
            async with await get(port, f"/chat?user=u{number}") as stream:
                async for chunk in stream:
                    read += chunk
                    if read.endswith(END) or (leaves and read.count(b"data: ") >= 2):
                        break
        except (OSError, trio.BrokenResourceError):
            pass  # the service has broken the connection: what was read is not whole
        is_whole = "".join(FRAGMENTS).encode() in read
        counts["left" if leaves else "answered" if is_whole else "failed"] += 1


async def look(port: int) -> dict[str, float]:
    async with await get(port, "/left") as stream:
        read = b"".join([chunk async for chunk in stream])
    found: dict[str, float] = json.loads(read[read.index(b"{") : read.rindex(b"}") + 1])
    return found


async def load(kind: str, port: int, clients: int, requests: int) -> dict[str, float]:
    """Put the load on one service; return what it has cost, and what it holds more than before."""
    before = await look(port)
    counts: Counter[str] = Counter()
    with trio.fail_after(LOAD_S_MAX):
        async with trio.open_nursery() as nursery:
            for number in range(clients):
                nursery.start_soon(client, port, number, requests, counts)
    with trio.move_on_after(SETTLE_S_MAX):
        while True:
            after = await look(port)
            more = {name: after[name] - before[name] for name in ("running", "connections", "threads")}
            if not any(more.values()):
                break
            await trio.sleep(0.05)
    cpu_ms = (after["cpu_s"] - before["cpu_s"]) / (clients * requests) * 1e3
    return {"cpu_ms": cpu_ms, **more, **counts}


def measure(kind: str, clients: int, requests: int) -> dict[str, float]:
    """Start a service, put the load on it, ask it to end, and see that it ends in order."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        command = [sys.executable, "-W", "error", __file__, "--serve", kind, folder, str(listener.fileno())]
        with subprocess.Popen(command, pass_fds=[listener.fileno()], stderr=subprocess.PIPE, text=True) as service:
            try:
                found = trio.run(load, kind, listener.getsockname()[1], clients, requests)
                service.send_signal(signal.SIGTERM)
                _, error = service.communicate(timeout=SETTLE_S_MAX)
            finally:
                service.kill()
        print(error, end="", file=sys.stderr)
        return {**found, "complaints": len(error.splitlines())}


def main() -> int:
    """Do what the command line says, and return the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=5)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        kind, folder, descriptor = options.serve
        serve(kind, Path(folder), int(descriptor))
        return 0
    is_clean, plain_ms = True, 0.0
    for kind in KINDS:
        found = measure(kind, options.clients, options.requests)
        beside = f"{found['cpu_ms'] / plain_ms:5.1f} times" if kind.endswith("minirun") else "           "
        plain_ms = found["cpu_ms"]
        rest = {name: found.get(name, 0) for name in ("failed", "running", "connections", "threads", "complaints")}
        forgiven = rest["failed"] if kind.endswith("plain") else 0  # hypercorn's own, now and then
        is_clean = is_clean and sum(rest.values()) == forgiven
        shown = ", ".join(f"{count:.0f} {name}" for name, count in rest.items())
        told = f"{found.get('answered', 0)} answered, {found.get('left', 0)} left early"
        print(f"{kind:16} {plain_ms:6.2f} ms a request {beside}; {told}; {shown}")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
