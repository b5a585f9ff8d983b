"""
A call of an MCP server that asks two things, killed at each of its events.

`python -m tests.mcp_kills FOLDER WAY LIVES EVERY WHEN...`: WAY is `in process`, `stdio`, `http` or `older`, a server of
the older protocol over stdio; LIVES are the numbers of those that are killed, at one of EVERY so many events; each WHEN
is `before` or `after`, of the storing of an event. What has come of it is printed as JSON, one list for each place.

Rules of this file:

*   The process that is told has imported everything and runs nothing. So another life of the asker, or of the server,
    costs a fork.
*   The server of each life is another one, which knows nothing of those before it. It notes in a file what it does.
*   Each life goes on with what the store has: an interrupted invocation, an open question, or nothing.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from minirun import LlmAgent, Runner, SqliteSessionService
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools.mcp import McpToolset, StdioServer

from .mcp_servers import desk, older

ANSWERS = {"How many nights": {"nights": 3}, "Which room": {"kind": "double"}}
LIVES_MAX = 8
EVENTS_MAX = 9

# Gives its standard input and output to the process that makes servers, and lives as long as the server.
RELAY = """
import socket, sys
there = socket.socket(socket.AF_UNIX)
there.connect(sys.argv[1])
socket.send_fds(there, [sys.argv[2].encode()], [0, 1])
there.recv(1)
"""


class Killer(BasePlugin):
    """Ends the process at an event, before or after it is stored."""

    def __init__(self, at: int, when: str) -> None:
        super().__init__("killer")
        self.at, self.when, self.count = at, when, 0

    def strike(self, when: str) -> None:
        """Do it, if it is time."""
        if when == self.when and self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def on_event_callback(self, *, invocation_context: Any, event: Any) -> None:
        """Count the event, which is about to be stored."""
        if not event.partial:
            self.count += 1
            self.strike("before")


# --- the server -------------------------------------------------------------------------------------------------------


def make_servers(way: str, listener: socket.socket) -> None:
    """Fork a server for each standard input and output that comes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        path, wire, _, _ = socket.recv_fds(connection, 4096, 2)
        if os.fork() == 0:
            for number, end in enumerate(wire):
                os.dup2(end, number)
                os.close(end)
            try:
                if way == "older":
                    anyio.run(older.main, Path(path.decode()), backend="trio")
                else:
                    desk.made(desk.note_in(Path(path.decode()))).run("stdio")
            finally:  # also where its client was killed, and there is nobody to tell
                os._exit(0)
        for end in (*wire, connection.detach()):
            os.close(end)


async def serve_http(listener: socket.socket, note: Path) -> None:
    """Serve at an address at which others have served before."""
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.errorlog = config.accesslog = None
    app: Any = desk.made(desk.note_in(note)).streamable_http_app()
    await serve(app, config)


def forked(work: Any) -> int:
    """The id of a process that does some work, and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(work() or 0)
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
    return pid


def end(pid: int) -> None:
    """Kill a process."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


# --- the asker --------------------------------------------------------------------------------------------------------


def agent(tools: McpToolset) -> LlmAgent:
    """Books a room."""

    def answer(request: Any) -> Any:
        last = request.contents[-1].parts[-1].function_response
        return call("book", city="Rome") if last is None else "Booked."

    return LlmAgent(name="clerk", tools=[tools], model=ScriptedLlm(answer))


async def live(path: Path, server: Any, killer: Killer) -> int:
    """Go on as far as it comes; 0 if the agent has come to its end."""
    async with SqliteSessionService(path, durability="process") as service:
        async with McpToolset(server, on_interrupted="rerun") as tools:
            runner = Runner(
                app_name="app", agent=agent(tools), session_service=service, auto_create_session=True, plugins=[killer]
            )
            pending = await service.list_pending(app_name="app")
            left = await service.list_invocations(app_name="app", status="interrupted")
            given: dict[str, Any] = {"new_message": "go"}
            if left:
                given = {"invocation_id": left[0].invocation_id}
            elif pending:
                answer = next(value for asked, value in ANSWERS.items() if asked in (pending[0].hint or ""))
                given = {"new_message": pending[0].reply(answer)}
            async with runner.run_async(user_id="u", session_id="s", **given) as run:
                async for _ in run:
                    killer.strike("after")
            return 0 if run.status.value == "completed" else 3


async def told(path: Path) -> tuple[list[str], list[Any]]:
    """What people were asked, and what the call was answered."""
    async with SqliteSessionService(path) as service:
        if await service.get_session(app_name="app", user_id="u", session_id="s") is None:
            return [], []
        events = await service.read_events(app_name="app", user_id="u", session_id="s", after_seq=0)
    asked = [each.args["message"] for event in events for each in event.get_function_calls() if each.name != "book"]
    answers = [each.response for event in events for each in event.get_function_responses() if each.name == "book"]
    return asked, [dict(each) for each in answers]


class World:
    """What the lives of one place have in common."""

    def __init__(self, folder: Path, way: str) -> None:
        self.folder, self.way = folder, way
        self.listener = socket.socket(socket.AF_INET if way == "http" else socket.AF_UNIX)
        self.listener.bind(("127.0.0.1", 0) if way == "http" else str(folder / "servers"))
        self.listener.listen()
        self.maker = 0 if way in ("http", "in process") else forked(partial(make_servers, way, self.listener))

    def life(self, path: Path, note: Path, killer: Killer) -> int:
        """How one life has ended, with a server of its own."""
        server: Any
        served = 0
        if self.way == "http":
            served = forked(partial(trio.run, serve_http, self.listener, note))
            server = f"http://127.0.0.1:{self.listener.getsockname()[1]}/mcp"
        elif self.way == "in process":
            server = desk.made(desk.note_in(note))
        else:
            server = StdioServer(sys.executable, ["-S", "-E", "-c", RELAY, str(self.folder / "servers"), str(note)])
        _, status = os.waitpid(forked(partial(trio.run, live, path, server, killer)), 0)
        if served:
            end(served)
        return os.waitstatus_to_exitcode(status)

    def place(self, which: int, when: str, at: int) -> dict[str, Any] | None:
        """What comes of a kill in life *which*, at an event of it; None if there is none so late."""
        path, note = self.folder / f"{which}{when}{at}.db", self.folder / f"{which}{when}{at}"
        note.touch()
        statuses: list[int] = []
        repeated = False
        while 0 not in statuses and len(statuses) < LIVES_MAX:
            done = note.read_text()
            is_answered = bool(path.exists() and trio.run(told, path)[1])
            statuses.append(self.life(path, note, Killer(at if len(statuses) == which else -1, when)))
            repeated = repeated or (is_answered and done != note.read_text())
        if -signal.SIGKILL not in statuses:
            return None
        asked, answers = trio.run(told, path)
        notes = note.read_text().splitlines()
        return {"statuses": statuses, "asked": asked, "answers": answers, "notes": notes, "repeated": repeated}


def main(folder: Path, way: str, lives: str, every: int, times: list[str]) -> None:
    """All places."""
    world = World(folder, way)
    found: list[Any] = []
    for which in map(int, lives):
        for when in times:
            for at in range(1, EVENTS_MAX, every):
                place = world.place(which, when, at)
                if place is None:
                    break
                found.append([f"life {which}, {when} event {at}", place])
    if world.maker:
        end(world.maker)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:])
