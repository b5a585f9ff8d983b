"""The examples for hosts: FastAPI and Jupyter, which run on asyncio, and websockets. Each does what it says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from examples import fastapi_chat, load_test, websocket_chat
from minirun import Event, InMemoryRunner, LlmAgent, Runner, SqliteSessionService
from minirun.sessions import InvocationStatus

from .. import fork_server
from ..fork_server import Process
from .test_examples import EXAMPLES, SCRIPT_S_MAX, Interrupted, connect, free_port, read_until, start


@asynccontextmanager
async def served(app: Any) -> AsyncGenerator[int, None]:
    """The port at which an application is served by hypercorn under asyncio, until the block ends."""
    over = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config, port = Config(), listener.getsockname()[1]
        config.bind = [f"fd://{listener.detach()}"]
        config.errorlog = None
        server = asyncio.create_task(serve(app, config, shutdown_trigger=over.wait))
        try:
            yield port
        finally:
            over.set()
            await server


async def get(port: int, query: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /chat?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return reader, writer


def events_in(text: str) -> list[Event]:
    return [Event.from_json(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_fastapi_streams_and_a_client_that_goes_ends_its_run(tmp_path: Path) -> None:
    """Events come as they are made; when the client goes, so does its run, and the session takes a new turn."""
    model = Interrupted()
    sessions = SqliteSessionService(tmp_path / "web.db")
    agent = LlmAgent(name="a", model=model)
    runner = Runner(agent=agent, app_name="web", session_service=sessions, auto_create_session=True)

    async def main() -> None:
        async with asyncio.timeout(SCRIPT_S_MAX), served(fastapi_chat.application(runner)) as port:
            reader, writer = await get(port, "user=ada&message=hi")
            read = (await reader.readuntil(b'"two "')).decode()
            assert "content-type: text/event-stream" in read
            assert '"one "' in read
            writer.close()
            reader, writer = await get(port, "user=ada&message=hi")  # waits for the end of the other's run
            [answer] = events_in((await reader.read()).decode())
            assert (answer.text, answer.author, answer.partial) == ("again", "a", None)
            writer.close()
            reader, writer = await get(port, "user=ada&message=")
            assert "event: error" in (await reader.read()).decode()
            writer.close()

    asyncio.run(main())

    async def statuses() -> list[InvocationStatus]:
        async with SqliteSessionService(tmp_path / "web.db") as again:
            return [each.status for each in await again.list_invocations()]

    assert trio.run(statuses) == [InvocationStatus.CANCELLED, InvocationStatus.COMPLETED]


class Socket:
    """A client of an ASGI application's websocket, without a server between the two."""

    def __init__(self) -> None:
        self._to_app, self._of_app = trio.open_memory_channel[dict[str, Any]](10)
        self._to_client, self.messages = trio.open_memory_channel[dict[str, Any]](10)
        self._to_app.send_nowait({"type": "websocket.connect"})

    async def serve(self, app: Any, query: str) -> None:
        """Let the application serve this client."""
        scope = {"type": "websocket", "path": "/ws", "query_string": query.encode(), "headers": [], "subprotocols": []}
        await app(scope, self._of_app.receive, self._to_client.send)

    async def send(self, text: str) -> None:
        """Say something."""
        await self._to_app.send({"type": "websocket.receive", "text": text})

    async def receive(self) -> str:
        """The next text."""
        message = await self.messages.receive()
        if message["type"] == "websocket.accept":
            message = await self.messages.receive()
        text: str = message["text"]
        return text

    async def go(self) -> None:
        """Disconnect."""
        await self._to_app.send({"type": "websocket.disconnect", "code": 1001})


async def test_a_websocket_is_a_conversation() -> None:
    """Each text is answered with its events; an error is told, and the conversation goes on; going ends the run."""
    model = Interrupted()
    model.asked = 1  # not this time
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=model), app_name="web", auto_create_session=True)
    app = Starlette(routes=[WebSocketRoute("/ws", partial(websocket_chat.converse, runner))])
    async with trio.open_nursery() as nursery:
        first, second = Socket(), Socket()
        nursery.start_soon(first.serve, app, "user=ada")
        await first.send("hi")
        assert Event.from_json(await first.receive()).text == "again"
        await first.send("")
        assert "expected a new_message" in json.loads(await first.receive())["error"]
        model.asked = 0
        await first.send("hi")
        assert Event.from_json(await first.receive()).text == "one "
        await first.go()
        await model.ended.wait()
        nursery.start_soon(second.serve, app, "user=ada")
        await second.send("hi")
        assert Event.from_json(await second.receive()).text == "again"
        await second.go()
    found = await runner.session_service.list_invocations()
    assert [str(each.status) for each in found] == ["completed", "cancelled", "completed"]


UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
UPGRADE += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
# To each example: the path, headers, and what comes back of it.
REQUESTS = {
    "fastapi_chat.py": ("/chat?user=ada&message=hi", "", '"one "'),
    "live_echo.py": ("/live?user=ada", UPGRADE, " 101 "),
    "websocket_chat.py": ("/ws?user=ada", UPGRADE, " 101 "),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_host_ends_with_ctrl_c(name: str, tmp_path: Path) -> None:
    """Started as a script, each answers, and Ctrl-C ends it without anything else to complain about."""
    port = free_port()
    with start(name, tmp_path, str(port)) as process:
        try:
            async with await connect(process, port) as stream:
                path, headers, expected = REQUESTS[name]
                await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
                await read_until(stream, expected)
            with trio.fail_after(SCRIPT_S_MAX):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(press_ctrl_c, process)
                    _, error = await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
                    nursery.cancel_scope.cancel()
        finally:
            process.kill()
    assert "Error" not in error, error
    assert "Warning" not in error, error


async def press_ctrl_c(process: Process) -> None:
    """Once, and again if nothing has come of it: a web server may swallow one that meets it in the middle of things."""
    while True:
        process.send_signal(signal.SIGINT)
        await trio.sleep(SCRIPT_S_MAX / 4)


# Executes the notebook as a kernel does: cell after cell, in one namespace, in one running asyncio loop.
KERNEL = """
import asyncio, json, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

async def main():
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    for cell in json.loads(Path(sys.argv[1]).read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            done = await shell.run_cell_async(source, transformed_cell=shell.transform_cell(source))
            done.raise_error()

asyncio.run(main())
import threading
print([thread.name for thread in threading.enumerate() if thread.name.startswith("minirun")])
"""


def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path) -> None:
    """Under IPython's loop, with the bridge entered in one cell and left in another."""
    command = [sys.executable, "-c", KERNEL, str(EXAMPLES / "jupyter.ipynb")]
    env = {**os.environ, "IPYTHONDIR": str(tmp_path)}
    env.pop("VIRTUAL_ENV", None)  # of a shell: IPython warns if it is not the environment that runs the tests
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=SCRIPT_S_MAX)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    first, call, *others = done.stdout.splitlines()
    assert first == "It costs 5."
    assert call.startswith("2 [FunctionCall(name='price', args={'item': 'ink'}")
    assert others == [
        "3 {'result': 5}",
        "4 It costs 5.",
        "['It costs 5.', 'It costs 5.']",
        "['a', 'b', 's']",
        "cancelled",
        "[]",
    ]


def test_the_notebook_is_kept_without_outputs() -> None:
    """What the cells print is of whoever runs them; and it is a notebook of the present format."""
    notebook = json.loads((EXAMPLES / "jupyter.ipynb").read_text("utf-8"))
    assert notebook["nbformat"] == 4
    assert all(cell.get("outputs", []) == [] for cell in notebook["cells"])


async def test_a_client_counts_a_connection_that_is_broken() -> None:
    """A service that resets a connection has failed a request of the load test, and ends no other client."""

    async def reset(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"data: ")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    counts = Counter[str]()
    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, reset, 0, host="127.0.0.1"))
        await load_test.client(listener.socket.getsockname()[1], 0, 2, counts)
        nursery.cancel_scope.cancel()
    assert counts == {"failed": 2}


# The load test, whose services are forks of it: each would take a second to import what it is made of.
FORKING = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
from examples import load_test

class Service:
    def __init__(self, command, **options):
        kind, folder, descriptor = command[-3:]
        reading, writing = os.pipe()
        self.pid, self.status = os.fork(), None
        if self.pid == 0:
            os.dup2(writing, 2)
            try:
                load_test.serve(kind, Path(folder), int(descriptor))
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.close(writing)
        self.stderr = open(reading)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.communicate(None)

    def send_signal(self, number):
        if self.status is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout):
        error = "" if self.stderr.closed else self.stderr.read()
        self.stderr.close()
        if self.status is None:
            self.status = os.waitpid(self.pid, 0)[1]
        return None, error

load_test.subprocess = SimpleNamespace(Popen=Service, PIPE=-1)
sys.exit(load_test.main())
"""


@pytest.mark.parametrize(
    ("clients", "requests", "told"),
    [
        (6, 2, "10 answered, 2 left early"),
        pytest.param(200, 5, "750 answered, 250 left early", marks=pytest.mark.slow),
    ],
)
def test_a_load_leaves_nothing_open(clients: int, requests: int, told: str) -> None:
    """Clients stream and disconnect, and no run, thread or connection is left on either host."""
    options = "--clients", clients, "--requests", requests
    what = FORKING if clients < 100 else "examples.load_test"
    done = fork_server.run(fork_server.program(what, *options), timeout=10 * SCRIPT_S_MAX)
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["trio-plain", "trio-minirun", "fastapi-plain", "fastapi-minirun"]
    assert all(told in line for line in done.stdout.splitlines() if "minirun" in line)
