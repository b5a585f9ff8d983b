"""
What minirun costs, beside the floor.

    python tests/benchmarks/run.py [--quick] [--large] [--only NAME]

Rules of this file:

*   No figure stands alone. Beside it stands its *floor*, measured in the same run: what bare trio, sqlite3, attrs and
    json need for the unavoidable part of the same work; or, where the question is growth, the same turn without a
    history. Machines and hours differ by a factor of two; the ratio is what counts.
*   Works take turns, round by round, in changing order, with a collected heap; the first round warms up. Times are
    medians of the rounds. A ratio is the median of the rounds' own ratios, so that a machine that is slow for a while
    is slow for both sides; it may differ a little from the quotient of the medians. Its spread, the least and the
    greatest, stands in brackets.
*   It prints and never judges. A target is printed beside the ratio; a test of the time would only be noise.
*   What prepares a round (sessions, histories, files) is not measured, and histories are made by real turns.
*   A scenario is an async function that returns rows. `SCENARIOS` lists them, and later work adds to it.
*   What is asked of a process as a whole (its import, its memory, many sessions at once) is measured in one of its own:
    `crowd.py` is the program of those that do many things at once, `seeds.py` that of simulations, each of which has a
    `trio.run` of its own, `memories.py` that of searching among many memories; `--large` makes it a million, too.

Kinds of store: `memory`, and one SQLite file with durability `process` or `power`. The floor of a file is WAL at the
same `synchronous`; for `power` twice, with COMMIT inline (the limit of the disk) and in a worker thread (the limit of a
loop that must not wait for the disk, as minirun does it).
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
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias

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
    StreamingMode,
)
from minirun.models import LlmRequest
from minirun.sessions import BaseSessionService, Session
from minirun.testing import ScriptedLlm, call
from minirun.types import Part

Kind: TypeAlias = Literal["memory", "process", "power"]
KINDS: tuple[Kind, ...] = ("memory", "process", "power")

# Sessions with a history up to this many events are made anew for each round, because the measured turns would soon
# double them; longer ones go on.
SHORT_HISTORY_EVENTS = 100


# --- measuring ------------------------------------------------------------------------------------------------------


@attrs.frozen
class Scale:
    """
    How much is measured: rounds (and those of slow scenarios), turns, events and appends in each, stored events before,
    sessions that append at once and that take turns at once, simulated seeds in each round, memories in memory
    and on disk, and, if not 0, on disk alone.
    """

    rounds: int
    slow_rounds: int
    turns: int
    events: int
    appends: int
    histories: tuple[int, ...]
    crowd: int
    turning_crowd: int
    seeds: int
    memories: int
    memories_on_disk: int = 0


FULL = Scale(
    rounds=15,
    slow_rounds=5,
    turns=20,
    events=1_000,
    appends=100,
    histories=(0, 100, 1_000, 5_000),
    crowd=16,
    turning_crowd=1_000,
    seeds=50,
    memories=20_000,
)
QUICK = Scale(
    rounds=1,
    slow_rounds=1,
    turns=2,
    events=20,
    appends=10,
    histories=(0, 10),
    crowd=2,
    turning_crowd=3,
    seeds=1,
    memories=300,
)


@attrs.frozen
class Work:
    """
    Something to measure: `step`, done `repeats` times in each round, doing `units` of what is counted each time.

    `prepare` is called before each round and not measured.
    """

    name: str
    step: Callable[[], Awaitable[object]]
    repeats: int = 1
    units: int = 1
    prepare: Callable[[], Awaitable[object]] | None = None


Times: TypeAlias = dict[str, list[float]]
"""For each work its µs per unit, round by round."""


async def measure(rounds: int, *works: Work) -> Times:
    """Let the works take turns."""
    times: Times = {work.name: [] for work in works}
    for number in range(rounds + 1):
        for work in works if number % 2 == 0 else works[::-1]:
            if work.prepare is not None:
                await work.prepare()
            gc.collect()
            start = time.perf_counter()
            for _ in range(work.repeats):
                await work.step()
            times[work.name].append((time.perf_counter() - start) / (work.repeats * work.units) * 1e6)
    return {name: taken[1:] for name, taken in times.items()}


@attrs.frozen
class Row:
    """One line of the table: the rounds of one work, and those of what it is compared with."""

    what: str
    rounds: list[float]
    beside: str
    floor_rounds: list[float]
    target: str = ""
    unit: str = "µs"
    note: str = ""

    def __str__(self) -> str:
        ratios = [a / b for a, b in zip(self.rounds, self.floor_rounds, strict=True)]
        ratio = f"{statistics.median(ratios):6.2f} [{min(ratios):.2f}–{max(ratios):.2f}]"
        figure, floor = statistics.median(self.rounds), statistics.median(self.floor_rounds)
        target = f" target {self.target}" if self.target else ""
        note = f" {self.note}" if self.note else ""
        return (
            f"{self.what:42}{figure:9.1f} {self.unit:3} | {self.beside:32}{floor:9.1f} {self.unit:3}"
            f" | ratio {ratio}{target}{note}"
        )


# --- floors ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class FloorPart:
    """A piece of a message."""

    text: str


@attrs.frozen
class FloorContent:
    """A message."""

    role: str
    parts: tuple[FloorPart, ...]


@attrs.frozen
class FloorEvent:
    """As little as an event can be: who has said what, when, in which invocation, at which place."""

    id: str
    invocation_id: str
    author: str
    seq: int
    timestamp: float
    content: FloorContent


# What json.dumps would make anew for each call, and without the blanks that minirun does not write either.
floor_dumps = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def floor_event(seq: int, text: str) -> FloorEvent:
    """Make one."""
    content = FloorContent("model", (FloorPart(text),))
    return FloorEvent(os.urandom(12).hex(), "e-0123456789abcdef", "agent", seq, time.time(), content)


def floor_line(event: FloorEvent) -> str:
    """The event as a line of JSON, field by field."""
    content = {"role": event.content.role, "parts": [{"text": part.text} for part in event.content.parts]}
    return floor_dumps(
        {
            "id": event.id,
            "invocation_id": event.invocation_id,
            "author": event.author,
            "seq": event.seq,
            "timestamp": event.timestamp,
            "content": content,
        }
    )


async def floor_model(text: str) -> AsyncIterator[str]:
    """A model that answers at once."""
    await trio.lowlevel.checkpoint()
    yield text


class FloorMemory:
    """A list of frozen events, and one handover with an answer for each: a committer, bare."""

    def __init__(self) -> None:
        self.events: list[FloorEvent] = []
        self.state: dict[str, object] = {}

    def append(self, event: FloorEvent) -> None:
        """Store one event and one key of state."""
        self.events.append(event)
        self.state["last"] = event.content.parts[0].text

    async def run(self, texts: list[str]) -> None:
        """One run: the user's message, then an agent that says *texts*."""
        self.append(floor_event(len(self.events), "hi"))
        send, receive = trio.open_memory_channel[tuple[FloorEvent, trio.Event]](0)

        async def agent() -> None:
            with send:
                for said in texts:
                    async for text in floor_model(said):
                        done = trio.Event()
                        await send.send((floor_event(len(self.events), text), done))
                        await done.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent)
            async for event, done in receive:
                self.append(event)
                done.set()


class FloorFile:
    """A file in WAL mode, one transaction for each event: the event, its session's revision, one key of state."""

    def __init__(self, path: Path, synchronous: str, *, in_thread: bool = False) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={synchronous}")
        self._db.execute("CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, data TEXT)")
        self._db.execute("CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT)")
        self._db.execute("CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, revision INTEGER)")
        self._db.execute("INSERT OR IGNORE INTO sessions VALUES ('s', 0)")
        self._in_thread = in_thread
        [self._revision] = self._db.execute("SELECT revision FROM sessions").fetchone()

    async def append(self, count: int = 1) -> None:
        """Store so many events, one after another."""
        for _ in range(count):
            self._revision += 1
            event = floor_event(self._revision, "hello")
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT INTO events VALUES (?, ?)", (event.seq, floor_line(event)))
            self._db.execute("INSERT OR REPLACE INTO state VALUES ('last', ?)", (event.content.parts[0].text,))
            self._db.execute("UPDATE sessions SET revision = ?", (event.seq,))
            if self._in_thread:
                await trio.to_thread.run_sync(partial(self._db.execute, "COMMIT"))
            else:
                await trio.lowlevel.checkpoint()
                self._db.execute("COMMIT")

    def load(self) -> list[FloorEvent]:
        """Read all events."""
        events = []
        for (data,) in self._db.execute("SELECT data FROM events ORDER BY seq"):
            fields = json.loads(data)
            content = fields.pop("content")
            parts = tuple(FloorPart(part["text"]) for part in content["parts"])
            events.append(FloorEvent(**fields, content=FloorContent(content["role"], parts)))
        return events

    def close(self) -> None:
        """Close the file."""
        self._db.close()


INLINE = "WAL at FULL, COMMIT inline"
THREAD = "WAL at FULL, COMMIT in a thread"
NORMAL = "WAL at NORMAL"
CHANNELS = "list and channels"
GROUPS = "WAL at FULL, shared COMMITs"
NO_TARGETS: Mapping[str, str] = {}


def floors(kind: Kind, folder: Path, stack: AsyncExitStack, events: int, repeats: int, units: int = 1) -> list[Work]:
    """What a run that stores so many events, the user's first, is compared with on this kind of store."""
    if kind == "memory":
        return [Work(CHANNELS, partial(FloorMemory().run, ["hello"] * (events - 1)), repeats, units)]
    settings = {NORMAL: ("NORMAL", False)} if kind == "process" else {INLINE: ("FULL", False), THREAD: ("FULL", True)}
    works = []
    for name, (synchronous, in_thread) in settings.items():
        file = FloorFile(folder / f"floor {name} {time.monotonic_ns()}.db", synchronous, in_thread=in_thread)
        stack.callback(file.close)
        works.append(Work(name, partial(file.append, events), repeats, units))
    return works


def beside(
    what: str, rounds: list[float], works: list[Work], times: Times, targets: Mapping[str, str] = NO_TARGETS
) -> list[Row]:
    """A row for each floor."""
    return [Row(what, rounds, work.name, times[work.name], targets.get(work.name, "")) for work in works]


# --- subjects -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(kind: Kind, path: Path) -> AsyncIterator[BaseSessionService]:
    """A service of this kind."""
    if kind == "memory":
        yield InMemorySessionService()
    else:
        async with SqliteSessionService(path, durability=kind) as service:
            yield service


def text_runner(service: BaseSessionService) -> Runner:
    """A runner whose agent answers with one text."""
    model = ScriptedLlm(lambda request: "hello")
    return runner_of(LlmAgent(name="agent", model=model, instruction="Be brief.", output_key="last"), service)


def calls_once(request: LlmRequest) -> str | Part:
    """A model that calls the tool, and answers when it has the response."""
    return "done" if request.contents[-1].parts[-1].function_response else call("double", x=21)


async def double(x: int) -> int:
    """Double a number."""
    await trio.lowlevel.checkpoint()
    return 2 * x


EVENTS_PER_TOOL_TURN = 4  # the user's message, the call, the response, the answer


def tool_runner(service: BaseSessionService) -> Runner:
    """A runner whose agent calls a tool and answers."""
    agent = LlmAgent(name="agent", model=ScriptedLlm(calls_once), instruction="Be brief.", tools=[double])
    return runner_of(agent, service)


def runner_of(agent: BaseAgent, service: BaseSessionService) -> Runner:
    """A runner of this agent."""
    return Runner(agent=agent, app_name="app", session_service=service)


async def turn(runner: Runner, session_id: str, config: RunConfig | None = None) -> int:
    """One turn, read to its end; returns how many events it gave, without the user's."""
    events = 0
    async with runner.run_async(user_id="u", session_id=session_id, new_message="hi", run_config=config) as run:
        async for _ in run:
            events += 1
    return events


class Conversation:
    """A session with a history, for a work that takes turns in it."""

    def __init__(self, runner: Runner, history: int = 0, config: RunConfig | None = None) -> None:
        self.session_id = ""
        self._config = config
        self._runner = runner
        self._history = history

    async def prepare(self) -> None:
        """Make the session, or make it anew if its history is short."""
        if not self.session_id or self._history <= SHORT_HISTORY_EVENTS:
            service = self._runner.session_service
            self.session_id = (await service.create_session(app_name="app", user_id="u")).id
            stored = 0
            while stored < self._history:
                stored += 1 + await turn(self._runner, self.session_id)

    async def turn(self) -> None:
        """Take a turn."""
        await turn(self._runner, self.session_id, self._config)


# --- scenarios ------------------------------------------------------------------------------------------------------

MINIRUN_IMPORT = "from minirun import Runner, LlmAgent, InMemorySessionService, SqliteSessionService"
FLOOR_IMPORT = "import trio, attrs, sqlite3, json"

# Measures the statement from inside, so that the start of the interpreter, which is the same for both, does not hide
# what is measured.
TIMED_IMPORT = """
import sys, time
cpu, wall = time.process_time(), time.perf_counter()
{statement}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(cpu * 1e3, wall * 1e3, *sorted(sys.modules))
"""


@attrs.frozen
class Import:
    """What one fresh interpreter took: the statement alone, and the whole process; in ms."""

    cpu_ms: float
    wall_ms: float
    process_user_ms: float
    process_wall_ms: float
    modules: tuple[str, ...]


def import_once(statement: str, environment: dict[str, str]) -> Import:
    """Run *statement* in a fresh interpreter."""
    program = [sys.executable, "-c", TIMED_IMPORT.format(statement=statement)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(program, check=True, capture_output=True, text=True, env=environment)
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_ms, wall_ms, *modules = done.stdout.split()
    user_ms = (after.ru_utime - before.ru_utime) * 1e3
    return Import(float(cpu_ms), float(wall_ms), user_ms, wall_s * 1e3, tuple(modules))


async def imports(scale: Scale, folder: Path) -> list[Row]:
    """What importing minirun costs in a fresh interpreter, beside importing what it stands on."""
    # Both sides compiled, in a folder of their own: whether a machine keeps bytecode is not what is measured.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    mine, floor = [], []
    for _ in range(2 * scale.rounds + 1):
        mine.append(import_once(MINIRUN_IMPORT, environment))
        floor.append(import_once(FLOOR_IMPORT, environment))
    del mine[0], floor[0]  # these have compiled
    rows = []
    for name, what, target in (
        ("cpu_ms", "the statement, processor time", "<= 1.35"),
        ("wall_ms", "the statement, wall time", "<= 1.35"),
        ("process_user_ms", "a whole process, user time", ""),
        ("process_wall_ms", "a whole process, wall time", ""),
    ):
        taken, others = [getattr(one, name) for one in mine], [getattr(one, name) for one in floor]
        rows.append(Row(f"import: {what}", taken, "the same for the floor", others, target, "ms"))
        least = [min(taken)], [min(others)]
        rows.append(Row("    the least of all", least[0], "the least of the floor", least[1], target, "ms"))
    extra = set(mine[0].modules) - set(floor[0].modules)
    packages = Counter(name.partition(".")[0] for name in extra)
    note = "(" + ", ".join(f"{name} {modules}" for name, modules in packages.most_common()) + ")"
    modules = [float(len(mine[0].modules))], [float(len(floor[0].modules))]
    rows.append(Row("import: modules", modules[0], "the same for the floor", modules[1], unit="", note=note))
    return rows


async def growth(scale: Scale, folder: Path, kind: Kind, what: Literal["text", "tool"], target: str) -> list[Row]:
    """A turn, warm, at growing histories of such turns: beside the floor, and beside the turn at no history."""
    async with opened(kind, folder / "mine.db") as service, AsyncExitStack() as stack:
        runner = text_runner(service) if what == "text" else tool_runner(service)
        bare = floors(kind, folder, stack, events=2 if what == "text" else EVENTS_PER_TOOL_TURN, repeats=scale.turns)
        mine = []
        for history in scale.histories:
            talk = Conversation(runner, history)
            mine.append(Work(f"at {history} events", talk.turn, scale.turns, prepare=talk.prepare))
        times = await measure(scale.rounds, *bare, *mine)
    first, *later = mine
    rows = beside(f"{what} turn, {kind}, {first.name}", times[first.name], bare, times)
    for work in later:
        name = f"{what} turn, {kind}, {work.name}"
        rows.append(Row(name, times[work.name], f"the same {first.name}", times[first.name], target))
    return rows


async def cold(scale: Scale, folder: Path) -> list[Row]:
    """A text turn in a file that was just opened: opening, reading the whole history, the turn, closing."""
    works = []
    for history in scale.histories:
        mine, floor = folder / f"mine {history}.db", folder / f"floor {history}.db"
        async with opened("process", mine) as service:
            talk = Conversation(text_runner(service), history)
            await talk.prepare()
        file = FloorFile(floor, "NORMAL")
        await file.append(history)
        file.close()

        async def reopened(path: Path = mine, session_id: str = talk.session_id) -> None:
            async with opened("process", path) as service:
                await turn(text_runner(service), session_id)

        async def floor_reopened(path: Path = floor) -> None:
            file = FloorFile(path, "NORMAL")
            file.load()
            await file.append(2)
            file.close()

        works += [Work(f"mine {history}", reopened), Work(f"floor {history}", floor_reopened)]
    times = await measure(2 * scale.slow_rounds, *works)
    return [
        Row(
            f"text turn, reopened file, at {history} events",
            times[f"mine {history}"],
            "open, read, WAL at NORMAL, close",
            times[f"floor {history}"],
        )
        for history in scale.histories
    ]


async def tool_turn(scale: Scale, folder: Path) -> list[Row]:
    """Model, tool, model, each turn in a session of its own: four events, three of them the agent's."""
    rows = []
    for kind in KINDS:
        async with opened(kind, folder / f"{kind}.db") as service, AsyncExitStack() as stack:
            talk = Conversation(tool_runner(service))
            bare = floors(kind, folder, stack, events=EVENTS_PER_TOOL_TURN, repeats=scale.turns)
            times = await measure(scale.rounds, *bare, Work("mine", talk.turn, scale.turns, prepare=talk.prepare))
        rows += beside(f"tool turn, {kind}", times["mine"], bare, times)
    return rows


async def emits(scale: Scale, folder: Path) -> list[Row]:
    """A run that emits many events, each with a change of state: per event."""

    class Counting(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for number in range(scale.events):
                await ctx.emit(Event(message="hello", state={"last": number}))

    rows = []
    for kind in KINDS:
        async with opened(kind, folder / f"{kind}.db") as service, AsyncExitStack() as stack:
            talk = Conversation(runner_of(Counting(name="agent"), service))
            bare = floors(kind, folder, stack, events=scale.events + 1, repeats=1, units=scale.events)
            mine = Work("mine", talk.turn, units=scale.events, prepare=talk.prepare)
            times = await measure(scale.slow_rounds, *bare, mine)
        rows += beside(f"emit, {kind}, per event", times["mine"], bare, times)
    return rows


async def streaming(scale: Scale, folder: Path) -> list[Row]:
    """Fragments that are shown and never stored: per fragment, beside a channel with the same buffer."""

    class Streaming(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for _ in range(scale.events):
                await ctx.emit(Event(message="x", partial=True))

    async def bare() -> None:
        send, receive = trio.open_memory_channel[FloorEvent](RunConfig().partial_buffer)

        async def feed() -> None:
            with send:
                for number in range(scale.events):
                    await send.send(floor_event(number, "x"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            async for _ in receive:
                pass

    service = InMemorySessionService()
    emitting = Conversation(runner_of(Streaming(name="agent"), service))
    model = ScriptedLlm(lambda request: ["x"] * scale.events)
    sse = RunConfig(streaming_mode=StreamingMode.SSE)
    asking = Conversation(runner_of(LlmAgent(name="agent", model=model), service), config=sse)
    channel = Work("a channel with the same buffer", bare, units=scale.events)
    times = await measure(
        scale.rounds,
        channel,
        Work("emit", emitting.turn, units=scale.events, prepare=emitting.prepare),
        Work("model", asking.turn, units=scale.events, prepare=asking.prepare),
    )
    return [
        *beside("streaming, custom agent, per fragment", times["emit"], [channel], times),
        *beside("streaming, model, per fragment", times["model"], [channel], times),
    ]


async def appends(scale: Scale, folder: Path) -> list[Row]:
    """`append_event` from outside a run, one writer."""
    rows = []
    numbers = count()
    for kind in KINDS:
        async with opened(kind, folder / f"{kind}.db") as service, AsyncExitStack() as stack:
            session = await service.create_session(app_name="app", user_id="u")
            if kind == "memory":
                bare = [Work("list", _list_append(FloorMemory()), scale.appends)]
            else:
                bare = floors(kind, folder, stack, events=1, repeats=scale.appends)

            async def append(service: BaseSessionService = service, session: Session = session) -> None:
                event = Event(author="agent", message="hello", state={"last": next(numbers)})
                await service.append_event(session, event)

            times = await measure(scale.rounds, *bare, Work("mine", append, scale.appends))
        targets = {THREAD: "<= 1.3"}
        rows += beside(f"append_event, {kind}", times["mine"], bare, times, targets)
    return rows


def _list_append(floor: FloorMemory) -> Callable[[], Awaitable[object]]:
    async def append() -> None:
        await trio.lowlevel.checkpoint()
        floor.append(floor_event(len(floor.events), "hello"))

    return append


# --- many sessions at once


@attrs.frozen
class Took:
    """What a crowd took, see `crowd.py`; `commits` and `traced_mib` are 0 where nobody looked."""

    steps_per_s: float
    taken_s: float
    failed: int
    p50_ms: float
    p99_ms: float
    commits: int
    peak_mib: float
    traced_mib: float


@attrs.frozen
class Crowd:
    """So many sessions at once, each of which appends or takes a tool turn so many times in a row."""

    side: Literal["minirun", "floor"]
    what: Literal["append", "turn"]
    sessions: int
    times: int
    looks: tuple[str, ...] = ()

    def once(self) -> Took:
        """Let them, in a process and a file of their own."""
        with tempfile.TemporaryDirectory() as folder:
            size = str(self.sessions), str(self.times)
            return Took(**told_by("crowd", self.side, self.what, *size, str(Path(folder) / "crowd.db"), *self.looks))


def told_by(program: str, *arguments: str) -> Any:
    """What a program beside this one tells, in a process of its own."""
    started = [sys.executable, "-m", f"tests.benchmarks.{program}", *arguments]
    done = subprocess.run(started, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    return json.loads(done.stdout)


def in_turns(rounds: int, *crowds: Crowd) -> list[list[Took]]:
    """What each of the crowds took, round by round."""
    taken: dict[Crowd, list[Took]] = {crowd: [] for crowd in crowds}
    for number in range(rounds):
        for crowd in crowds if number % 2 == 0 else crowds[::-1]:
            taken[crowd].append(crowd.once())
    return list(taken.values())


async def crowds(scale: Scale, folder: Path) -> list[Row]:
    """Appends of many sessions at once, beside one session and beside the floor that shares its commits."""
    several = Crowd("minirun", "append", scale.crowd, scale.appends)
    one, floor = attrs.evolve(several, sessions=1), attrs.evolve(several, side="floor")
    counted = attrs.evolve(several, looks=("--commits",)), attrs.evolve(floor, looks=("--commits",))
    mine, single, bare, *commits = in_turns(scale.slow_rounds, several, one, floor, *counted)
    rates = [[took.steps_per_s for took in rounds] for rounds in (mine, single, bare)]
    groups = [[scale.crowd * scale.appends / took.commits for took in rounds] for rounds in commits]
    what = f"append_event, power, {scale.crowd} sessions"
    return [
        Row(what, rates[0], "one session", rates[1], ">= 4", "/s"),
        Row(what, rates[0], GROUPS, rates[2], unit="/s"),
        Row("    events per COMMIT", groups[0], GROUPS, groups[1], unit=""),
    ]


async def waits(scale: Scale, folder: Path) -> list[Row]:
    """How long an append waits among those of many other sessions: the slowest hundredth beside the median."""
    several = Crowd("minirun", "append", 2 * scale.crowd, scale.turns)
    mine, bare = in_turns(scale.slow_rounds, several, attrs.evolve(several, side="floor"))
    what = f"{several.sessions} sessions x {several.times} appends"
    slowest, medians = [took.p99_ms for took in mine], [took.p50_ms for took in mine]
    return [
        Row(f"{what}, p99", slowest, "their p50", medians, "<= 3", "ms"),
        Row(f"{what}, p99", slowest, GROUPS, [took.p99_ms for took in bare], unit="ms"),
        Row(f"{what}, p50", medians, GROUPS, [took.p50_ms for took in bare], unit="ms"),
    ]


async def turning(scale: Scale, folder: Path) -> list[Row]:
    """Many sessions that take tool turns at once: time, and the most memory, above that of the process before."""
    several = Crowd("minirun", "turn", scale.turning_crowd, 5)
    floor = attrs.evolve(several, side="floor")
    traced = attrs.evolve(several, looks=("--traced",)), attrs.evolve(floor, looks=("--traced",))
    mine, bare = in_turns(scale.slow_rounds, several, floor)
    traces = in_turns(1, *traced)  # which is slow, and the same each time
    what = f"{several.sessions} sessions x {several.times} tool turns"
    failed = f"({sum(took.failed for took in mine)} failed)"
    times = [[took.taken_s * 1e3 for took in rounds] for rounds in (mine, bare)]
    peaks = [[took.peak_mib for took in rounds] for rounds in (mine, bare)]
    allocated = [[took.traced_mib for took in rounds] for rounds in traces]
    return [
        Row(what, times[0], GROUPS, times[1], unit="ms", note=failed),
        Row("    peak memory, resident", peaks[0], GROUPS, peaks[1], "<= 100 MiB", "MiB"),
        Row("    peak memory, allocated by Python", allocated[0], GROUPS, allocated[1], "<= 100 MiB", "MiB"),
    ]


async def seeds(scale: Scale, folder: Path) -> list[Row]:
    """Simulated seeds in a second, and the parts of one."""
    return [Row(**row) for row in told_by("seeds", str(scale.slow_rounds), str(scale.seeds))]


async def memories(scale: Scale, folder: Path) -> list[Row]:
    """Searching among many memories of one user."""
    sizes: list[tuple[str, ...]] = [(str(scale.memories), "memory", "disk")]
    if scale.memories_on_disk:
        sizes.append((str(scale.memories_on_disk), "disk"))
    return [Row(**row) for size in sizes for row in told_by("memories", str(scale.slow_rounds), *size)]


Scenario: TypeAlias = Callable[[Scale, Path], Awaitable[list[Row]]]
SCENARIOS: dict[str, Scenario] = {
    "import": imports,
    "growth-memory": partial(growth, kind="memory", what="text", target="<= 1.25"),
    "growth-process": partial(growth, kind="process", what="text", target="<= 1.5"),
    "growth-power": partial(growth, kind="power", what="text", target="<= 1.5"),
    "growth-tools": partial(growth, kind="memory", what="tool", target="<= 1.25"),
    "cold": cold,
    "tool": tool_turn,
    "emit": emits,
    "stream": streaming,
    "append": appends,
    "crowd": crowds,
    "waits": waits,
    "turning": turning,
    "seeds": seeds,
    "memories": memories,
}


def file_system(folder: str) -> str:
    """The kind of file system below *folder*, where the machine tells; on a `tmpfs`, COMMIT waits for no disk."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    places = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    folder = os.path.realpath(folder)
    return max((len(place), kind) for place, kind in places if Path(folder).is_relative_to(place))[1]


def rows_of(scenario: Scenario, scale: Scale) -> Iterator[Row]:
    """Run a scenario in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield from trio.run(scenario, scale, Path(folder))


def main() -> None:
    """Measure what the command line asks for, and print it."""
    parser = argparse.ArgumentParser(description="What minirun costs, beside the floor.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: to see that it works, not to measure")
    parser.add_argument("--large", action="store_true", help="also a million memories, which takes minutes")
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    if options.large:
        scale = attrs.evolve(scale, memories_on_disk=1_000_000)
    versions = f"Python {sys.version.split()[0]}, trio {trio.__version__}, SQLite {sqlite3.sqlite_version}"
    place = tempfile.gettempdir()
    print(f"{versions}; files in {place}, on {file_system(place)}")
    for name, scenario in SCENARIOS.items():
        if options.only in (None, name):
            for row in rows_of(scenario, scale):
                print(row, flush=True)


if __name__ == "__main__":
    main()
