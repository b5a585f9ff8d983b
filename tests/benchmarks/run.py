"""
What minirun costs, beside the floor.

    python tests/benchmarks/run.py [--quick] [--only NAME]

Rules of this file:

*   Every figure stands beside its *floor*, measured in the same run: what bare trio, sqlite3, attrs and json need for
    the unavoidable part of the same work. Machines and hours differ; the ratio is what counts.
*   Floor and subject take turns, round by round, and the median of the rounds is printed.
*   It prints and never judges: a target is printed with the figure, a test of the time would only be noise.
*   A scenario is a function that yields rows; `SCENARIOS` lists them, and later work adds to it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from minirun import (
    BaseAgent,
    Event,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    RunConfig,
    Runner,
    SqliteSessionService,
)
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call

HISTORIES = (0, 100, 1_000, 5_000)


@attrs.frozen
class Scale:
    """How much is measured: rounds, and repetitions in each."""

    rounds: int
    turns: int
    events: int
    histories: tuple[int, ...]
    imports: int


FULL = Scale(rounds=7, turns=60, events=1_000, histories=HISTORIES, imports=15)
QUICK = Scale(rounds=1, turns=3, events=20, histories=(0, 50), imports=1)


@attrs.frozen
class Row:
    """One line of the table: µs (or what `unit` says) of the subject and of its floor."""

    what: str
    subject: float
    floor: float
    target: str = ""
    unit: str = "µs"


Work = Callable[[], Awaitable[object]]


async def median_us(rounds: int, repeats: int, *works: Work) -> list[float]:
    """The median time of one repetition of each work, in µs; the works take turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):  # the first warms up
        for work, taken in zip(works, times, strict=True):
            gc.collect()
            start = time.perf_counter()
            for _ in range(repeats):
                await work()
            taken.append((time.perf_counter() - start) / repeats * 1e6)
    return [statistics.median(taken[1:]) for taken in times]


# --- floors ---------------------------------------------------------------------------------------------------------


class FloorMemory:
    """A list of frozen events, and a committer over a channel without a buffer: the path of an event, bare."""

    def __init__(self) -> None:
        self.events: list[FloorEvent] = []
        self.state: dict[str, object] = {}

    async def run(self, texts: list[str]) -> None:
        """One run that emits an event for each text."""
        send, receive = trio.open_memory_channel[tuple[FloorEvent, trio.Event]](0)

        async def agent() -> None:
            with send:
                for text in texts:
                    done = trio.Event()
                    await send.send((FloorEvent("a", text, len(self.events)), done))
                    await done.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent)
            async for event, done in receive:
                self.events.append(event)
                self.state["o"] = event.text
                done.set()


@attrs.frozen
class FloorEvent:
    """As little as an event can be."""

    author: str
    text: str
    seq: int


class FloorFile:
    """One table in WAL mode, one transaction for each event."""

    def __init__(self, path: Path, synchronous: str, *, in_thread: bool) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={synchronous}")
        self._db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, data TEXT)")
        self._db.execute("CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT)")
        self._in_thread = in_thread

    async def append(self, text: str = "hello") -> None:
        """Store one event and one key of state."""
        data = json.dumps({"author": "a", "text": text, "id": "0" * 24, "invocation_id": "e-" + "0" * 32})
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO events (data) VALUES (?)", (data,))
        self._db.execute("INSERT OR REPLACE INTO state VALUES ('o', ?)", (text,))
        if self._in_thread:
            await trio.to_thread.run_sync(partial(self._db.execute, "COMMIT"))
        else:
            await trio.lowlevel.checkpoint()
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


# --- subjects -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[BaseSessionService]:
    """A service: memory, process or power."""
    if kind == "memory":
        yield InMemorySessionService()
        return
    path = folder / f"{kind}-{time.monotonic_ns()}.db"
    async with SqliteSessionService(path, durability="power" if kind == "power" else "process") as service:
        yield service


async def preload(service: BaseSessionService, session_id: str, events: int) -> None:
    """A session with so many stored events."""
    session = await service.create_session(app_name="app", user_id="u", session_id=session_id)
    for number in range(events):
        author = "user" if number % 2 == 0 else "agent"
        await service.append_event(session, Event(author=author, message=f"message number {number}"))


def text_runner(service: BaseSessionService) -> Runner:
    """A runner whose agent answers with one text."""
    agent = LlmAgent(name="agent", model=ScriptedLlm(lambda request: "hello"), instruction="Be brief.", output_key="o")
    return Runner(agent=agent, app_name="app", session_service=service)


async def turn(runner: Runner, session_id: str) -> None:
    """One turn, read to its end."""
    async with runner.run_async(user_id="u", session_id=session_id, new_message="hi") as run:
        async for _ in run:
            pass


# --- scenarios ------------------------------------------------------------------------------------------------------


async def imports(scale: Scale, folder: Path) -> list[Row]:
    """What `from minirun import …` costs in a fresh interpreter, beside importing what it stands on."""
    subject = "from minirun import Runner, LlmAgent, InMemorySessionService, SqliteSessionService"
    floor = "import trio, attrs, sqlite3, json"

    # Both sides compiled, in a folder of their own: whether a machine keeps bytecode is not what is measured.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}

    def once(statement: str) -> tuple[float, float, int]:
        program = [sys.executable, "-c", f"{statement}\nimport sys; print(len(sys.modules))"]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(program, check=True, capture_output=True, env=environment)
        after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return cpu_s * 1e3, (end - start) * 1e3, int(done.stdout)

    runs: dict[str, list[tuple[float, float, int]]] = {subject: [], floor: []}
    for _ in range(scale.imports + 1):  # the first compiles
        for statement, taken in runs.items():
            taken.append(once(statement))

    def median(statement: str, column: int) -> float:
        return statistics.median(figures[column] for figures in runs[statement][1:])

    return [
        Row("a process that imports it, processor time", median(subject, 0), median(floor, 0), "<= 1.35", "ms"),
        Row("a process that imports it, wall time", median(subject, 1), median(floor, 1), "<= 1.35", "ms"),
        Row("modules imported", median(subject, 2), median(floor, 2), "", ""),
    ]


async def growth(scale: Scale, folder: Path, kind: str, target: str) -> list[Row]:
    """A text turn at growing histories; the floor of each row but the first is the turn at the shortest."""
    async with opened(kind, folder) as service:
        runner = text_runner(service)
        for history in scale.histories:
            await preload(service, f"s{history}", history)
        floor_memory = FloorMemory()
        works: list[Work] = [partial(turn, runner, f"s{history}") for history in scale.histories]
        bare: list[Work] = [partial(floor_memory.run, ["hi", "hello"])]
        files: list[FloorFile] = []
        if kind != "memory":
            synchronous = "FULL" if kind == "power" else "NORMAL"
            files.append(FloorFile(folder / f"floor-{kind}.db", synchronous, in_thread=kind == "power"))
            bare = [partial(_two_appends, files[0])]
        times = await median_us(scale.rounds, scale.turns, *bare, *works)
        for file in files:
            file.close()
    rows = [Row(f"text turn on {kind}, at {scale.histories[0]} events, beside the bare path", times[1], times[0])]
    for history, taken in zip(scale.histories[1:], times[2:], strict=True):
        rows.append(Row(f"text turn on {kind}, at {history} events, beside one at 0", taken, times[1], target))
    return rows


async def _two_appends(file: FloorFile) -> None:
    await file.append()
    await file.append()


async def tool_turn(scale: Scale, folder: Path) -> list[Row]:
    """Model, tool, model: four events, three of them the agent's."""

    async def tool(x: int) -> int:
        return x

    rows = []
    for kind in ("memory", "process", "power"):
        async with opened(kind, folder) as service:
            model = ScriptedLlm(
                lambda request: "done" if request.contents[-1].parts[-1].function_response else call("tool", x=1)
            )
            agent = LlmAgent(name="agent", model=model, tools=[tool])
            runner = Runner(agent=agent, app_name="app", session_service=service)
            await preload(service, "s", 0)
            floor = FloorMemory()
            bare: Work = partial(floor.run, ["hi", "call", "answer", "done"])
            file = None
            if kind != "memory":
                synchronous = "FULL" if kind == "power" else "NORMAL"
                file = FloorFile(folder / f"tool-{kind}.db", synchronous, in_thread=kind == "power")

                async def four(file: FloorFile = file) -> None:
                    await _two_appends(file)
                    await _two_appends(file)

                bare = four
            times = await median_us(scale.rounds, scale.turns, bare, partial(turn, runner, "s"))
            if file is not None:
                file.close()
        rows.append(Row(f"tool turn on {kind}", times[1], times[0]))
    return rows


async def emits(scale: Scale, folder: Path) -> list[Row]:
    """Many events of one run, each with a state delta: per event."""

    class Counter(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for number in range(scale.events):
                await ctx.emit(Event(message="x", state={"n": number}))

    rows = []
    for kind in ("memory", "process", "power"):
        async with opened(kind, folder) as service:
            runner = Runner(agent=Counter(name="agent"), app_name="app", session_service=service)
            await preload(service, "s", 0)
            floor = FloorMemory()
            bare: Work = partial(floor.run, ["x"] * scale.events)
            file = None
            if kind != "memory":
                synchronous = "FULL" if kind == "power" else "NORMAL"
                file = FloorFile(folder / f"emit-{kind}.db", synchronous, in_thread=kind == "power")

                async def many(file: FloorFile = file) -> None:
                    for _ in range(scale.events):
                        await file.append()

                bare = many
            times = await median_us(min(scale.rounds, 3), 1, bare, partial(turn, runner, "s"))
            if file is not None:
                file.close()
        rows.append(Row(f"emit on {kind}, per event", times[1] / scale.events, times[0] / scale.events))
    return rows


async def streaming(scale: Scale, folder: Path) -> list[Row]:
    """Partial events: per fragment, beside a memory channel with the same buffer."""

    class Streamer(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for _ in range(scale.events):
                await ctx.emit(Event(message="x", partial=True))

    service = InMemorySessionService()
    runner = Runner(agent=Streamer(name="agent"), app_name="app", session_service=service)
    await preload(service, "s", 0)

    async def bare() -> None:
        send, receive = trio.open_memory_channel[FloorEvent](RunConfig().partial_buffer)

        async def feed() -> None:
            with send:
                for number in range(scale.events):
                    await send.send(FloorEvent("a", "x", number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            async for _ in receive:
                pass

    times = await median_us(scale.rounds, 1, bare, partial(turn, runner, "s"))
    return [Row("streaming, per fragment", times[1] / scale.events, times[0] / scale.events)]


async def appends(scale: Scale, folder: Path) -> list[Row]:
    """append_event from outside, one writer."""
    rows = []
    for kind, synchronous in (("process", "NORMAL"), ("power", "FULL")):
        async with opened(kind, folder) as service:
            session = await service.create_session(app_name="app", user_id="u", session_id="s")
            file = FloorFile(folder / f"append-{kind}.db", synchronous, in_thread=kind == "power")
            event = Event(author="agent", message="hello", state={"o": "hello"})
            times = await median_us(
                scale.rounds, scale.turns, file.append, partial(service.append_event, session, event)
            )
            file.close()
        rows.append(Row(f"append_event on {kind}", times[1], times[0]))
    return rows


Scenario = Callable[[Scale, Path], Awaitable[list[Row]]]
SCENARIOS: dict[str, Scenario] = {
    "import": imports,
    "growth-memory": partial(growth, kind="memory", target="<= 1.25"),
    "growth-process": partial(growth, kind="process", target="<= 1.5"),
    "growth-power": partial(growth, kind="power", target="<= 1.5"),
    "tool": tool_turn,
    "emit": emits,
    "stream": streaming,
    "append": appends,
}


def table(rows: list[Row]) -> Iterator[str]:
    """The rows as lines of text."""
    for row in rows:
        ratio = row.subject / row.floor if row.floor else float("nan")
        target = f"  (target {row.target})" if row.target else ""
        yield f"{row.what:62} {row.subject:10.1f} {row.unit:2} floor {row.floor:10.1f}  ratio {ratio:6.2f}{target}"


def main() -> None:
    """Measure what the command line asks for, and print it."""
    parser = argparse.ArgumentParser(description="What minirun costs, beside the floor.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: to see that it works, not to measure")
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    print(f"Python {sys.version.split()[0]}, trio {trio.__version__}, SQLite {sqlite3.sqlite_version}")
    for name, scenario in SCENARIOS.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                for line in table(trio.run(scenario, scale, Path(folder))):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
