"""
What single parts of minirun cost, beside the floor, in this process or in one of its own.

These are for whoever works on a part: they have no peers, and stand below the contest. A scenario is an async function
that returns rows. Kinds of store: `memory`, and one SQLite file with durability `process` or `power`; the floor of a
file is WAL at the same `synchronous`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from minirun import (
    BaseAgent,
    Event,
    InMemorySessionService,
    InvocationContext,
    RunConfig,
    Runner,
    SqliteSessionService,
)
from minirun.sessions import BaseSessionService, Session

from .floors import FloorFile, FloorMemory, FloorStore, floor_run
from .measuring import Row, Times, Work, measure
from .programs.minirun import SSE, Seats, runner_of, table_agent, text_agent, turn
from .programs.protocol import ANSWER, SHORT_HISTORY_EVENTS
from .scale import Scale

Kind: TypeAlias = Literal["memory", "process", "power"]
KINDS: tuple[Kind, ...] = ("memory", "process", "power")

INLINE = "WAL at FULL, COMMIT inline"
THREAD = "WAL at FULL, COMMIT in a thread"
NORMAL = "WAL at NORMAL"
CHANNELS = "list and channels"
GROUPS = "WAL at FULL, shared COMMITs"
NO_TARGETS: Mapping[str, str] = {}

# --- what is compared -----------------------------------------------------------------------------------------------


async def stored(store: FloorStore, events: int) -> None:
    """Store so many events, one after another."""
    for _ in range(events):
        await store.append(0, ANSWER, last=True)


def floors(kind: Kind, folder: Path, stack: AsyncExitStack, events: int, repeats: int, units: int = 1) -> list[Work]:
    """What a run that stores so many events, the user's first, is compared with on this kind of store."""
    if kind == "memory":
        run = partial(floor_run, FloorMemory(), 0, [ANSWER] * (events - 1), last=True)
        return [Work(CHANNELS, run, repeats, units)]
    settings = {NORMAL: ("NORMAL", False)} if kind == "process" else {INLINE: ("FULL", False), THREAD: ("FULL", True)}
    works = []
    for name, (synchronous, in_thread) in settings.items():
        file = FloorFile(folder / f"floor {name} {time.monotonic_ns()}.db", synchronous, in_thread=in_thread)
        stack.callback(file.close)
        works.append(Work(name, partial(stored, file, events), repeats, units))
    return works


def beside(
    what: str, rounds: list[float], works: list[Work], times: Times, targets: Mapping[str, str] = NO_TARGETS
) -> list[Row]:
    """A row for each floor."""
    return [Row(what, rounds, work.name, times[work.name], targets.get(work.name, "")) for work in works]


@asynccontextmanager
async def opened(kind: Kind, path: Path) -> AsyncIterator[BaseSessionService]:
    """A service of this kind."""
    if kind == "memory":
        yield InMemorySessionService()
    else:
        async with SqliteSessionService(path, durability=kind) as service:
            yield service


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


# --- one session ----------------------------------------------------------------------------------------------------


async def process(scale: Scale, folder: Path) -> list[Row]:
    """A text turn in a file that a crash of the process does not harm, at growing histories of such turns."""
    async with opened("process", folder / "mine.db") as service, AsyncExitStack() as stack:
        bare = floors("process", folder, stack, events=2, repeats=scale.turns)
        mine = []
        for history in scale.histories:
            talk = Conversation(runner_of(text_agent(), service), history)
            mine.append(Work(f"at {history} events", talk.turn, scale.turns, prepare=talk.prepare))
        times = await measure(scale.rounds, *bare, *mine)
    first, *later = mine
    rows = beside(f"text turn, process, {first.name}", times[first.name], bare, times)
    for work in later:
        name = f"text turn, process, {work.name}"
        rows.append(Row(name, times[work.name], f"the same {first.name}", times[first.name], "<= 1.5"))
    return rows


async def cold(scale: Scale, folder: Path) -> list[Row]:
    """A text turn in a file that was just opened: opening, reading the whole history, the turn, closing."""
    works = []
    for history in scale.histories:
        mine, floor = folder / f"mine {history}.db", folder / f"floor {history}.db"
        async with opened("process", mine) as service:
            talk = Conversation(runner_of(text_agent(), service), history)
            await talk.prepare()
        file = FloorFile(floor, "NORMAL")
        file.fill(0, [ANSWER] * history)
        file.close()

        async def reopened(path: Path = mine, session_id: str = talk.session_id) -> None:
            async with opened("process", path) as service:
                await turn(runner_of(text_agent(), service), session_id)

        async def floor_reopened(path: Path = floor) -> None:
            file = FloorFile(path, "NORMAL")
            file.load(0)
            await stored(file, 2)
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


async def emits(scale: Scale, folder: Path) -> list[Row]:
    """A run that emits many events, each with a change of state: per event."""

    class Counting(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for number in range(scale.events):
                await ctx.emit(Event(message=ANSWER, state={"last": number}))

    rows = []
    for kind in KINDS:
        async with opened(kind, folder / f"{kind}.db") as service, AsyncExitStack() as stack:
            talk = Conversation(runner_of(Counting(name="agent"), service))
            bare = floors(kind, folder, stack, events=scale.events + 1, repeats=1, units=scale.events)
            mine = Work("mine", talk.turn, units=scale.events, prepare=talk.prepare)
            times = await measure(scale.slow_rounds, *bare, mine)
        rows += beside(f"emit, {kind}, per event", times["mine"], bare, times)
    return rows


async def chunks(scale: Scale, folder: Path) -> list[Row]:
    """Fragments that an agent of one's own emits: what a stream costs without a model, per fragment."""

    class Streaming(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for _ in range(scale.events):
                await ctx.emit(Event(message="x", partial=True))

    emitting = Conversation(runner_of(Streaming(name="agent"), InMemorySessionService()))
    bare = Work(CHANNELS, partial(floor_run, FloorMemory(), 0, ["x"] * scale.events), units=scale.events)
    mine = Work("mine", emitting.turn, units=scale.events, prepare=emitting.prepare)
    times = await measure(scale.rounds, bare, mine)
    rows = beside("emit, partial, per fragment", times["mine"], [bare], times)
    works = []
    for name, tp in (("as text", None), ("mine", list[Seats])):
        talk = Conversation(runner_of(table_agent(scale.events, tp), InMemorySessionService()), config=SSE)
        works.append(Work(name, talk.turn, units=scale.events, prepare=talk.prepare))
    times = await measure(scale.rounds, *works)
    return [*rows, *beside("partial output of a table, per fragment", times["mine"], works[:1], times)]


async def appends(scale: Scale, folder: Path) -> list[Row]:
    """`append_event` from outside a run, one writer."""
    rows = []
    numbers = count()
    for kind in KINDS:
        async with opened(kind, folder / f"{kind}.db") as service, AsyncExitStack() as stack:
            session = await service.create_session(app_name="app", user_id="u")
            if kind == "memory":
                bare = [Work("list", partial(stored, FloorMemory(), 1), scale.appends)]
            else:
                bare = floors(kind, folder, stack, events=1, repeats=scale.appends)

            async def append(service: BaseSessionService = service, session: Session = session) -> None:
                event = Event(author="agent", message=ANSWER, state={"last": next(numbers)})
                await service.append_event(session, event)

            times = await measure(scale.rounds, *bare, Work("mine", append, scale.appends))
        rows += beside(f"append_event, {kind}", times["mine"], bare, times, {THREAD: "<= 1.3"})
    return rows


# --- many sessions at once ------------------------------------------------------------------------------------------


@attrs.frozen
class Took:
    """What a crowd took, see `crowd.py`; `commits` is 0 where nobody looked."""

    steps_per_s: float
    p50_ms: float
    p99_ms: float
    commits: int


@attrs.frozen
class Crowd:
    """So many sessions at once, each of which appends so many times in a row."""

    side: Literal["minirun", "floor"]
    sessions: int
    times: int
    looks: tuple[str, ...] = ()

    def once(self) -> Took:
        """Let them, in a process and a file of their own."""
        with tempfile.TemporaryDirectory() as folder:
            size = str(self.sessions), str(self.times)
            return Took(**told_by("crowd", self.side, *size, str(Path(folder) / "crowd.db"), *self.looks))


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


async def groups(scale: Scale, folder: Path) -> list[Row]:
    """Appends of many sessions at once, beside one session and beside the floor that shares its commits."""
    several = Crowd("minirun", scale.writers, scale.appends)
    one, floor = attrs.evolve(several, sessions=1), attrs.evolve(several, side="floor")
    counted = attrs.evolve(several, looks=("--commits",)), attrs.evolve(floor, looks=("--commits",))
    mine, single, bare, *commits = in_turns(scale.slow_rounds, several, one, floor, *counted)
    rates = [[took.steps_per_s for took in rounds] for rounds in (mine, single, bare)]
    per_commit = [[scale.writers * scale.appends / took.commits for took in rounds] for rounds in commits]
    what = f"append_event, power, {scale.writers} sessions"
    return [
        Row(what, rates[0], "one session", rates[1], ">= 4", "/s"),
        Row(what, rates[0], GROUPS, rates[2], unit="/s"),
        Row("    events per COMMIT", per_commit[0], GROUPS, per_commit[1], unit=""),
    ]


async def waits(scale: Scale, folder: Path) -> list[Row]:
    """How long an append waits among those of many other sessions: the slowest hundredth beside the median."""
    several = Crowd("minirun", 2 * scale.writers, max(2, scale.appends // 5))
    mine, bare = in_turns(scale.slow_rounds, several, attrs.evolve(several, side="floor"))
    what = f"{several.sessions} sessions x {several.times} appends"
    slowest, medians = [took.p99_ms for took in mine], [took.p50_ms for took in mine]
    return [
        Row(f"{what}, p99", slowest, "their p50", medians, "<= 3", "ms"),
        Row(f"{what}, p99", slowest, GROUPS, [took.p99_ms for took in bare], unit="ms"),
        Row(f"{what}, p50", medians, GROUPS, [took.p50_ms for took in bare], unit="ms"),
    ]


async def postgres(scale: Scale, folder: Path) -> list[Row]:
    """Sessions in a Postgres database."""
    from .databases import databases  # it needs a server

    return await databases(scale, folder)


async def seeds(scale: Scale, folder: Path) -> list[Row]:
    """Simulated seeds in a second, and the parts of one."""
    return [Row(**row) for row in told_by("seeds", str(scale.slow_rounds), str(scale.seeds))]


async def memories(scale: Scale, folder: Path) -> list[Row]:
    """Searching among many memories of one user."""
    sizes: list[tuple[str, ...]] = [(str(scale.memories), "memory", "disk")]
    if scale.memories_on_disk:
        sizes.append((str(scale.memories_on_disk), "disk"))
    return [Row(**row) for size in sizes for row in told_by("memories", str(scale.slow_rounds), *size)]


async def node_runs(scale: Scale, folder: Path) -> list[Row]:
    """Runs of nodes: beside an event and a step, after many others, and found in the log."""
    return [Row(**row) for row in told_by("node_runs", str(scale.slow_rounds), str(scale.node_runs))]


Detail: TypeAlias = Callable[[Scale, Path], Awaitable[list[Row]]]
async def mcp(scale: Scale, folder: Path) -> list[Row]:
    """What a call of a tool of an MCP server costs."""
    from .mcp_calls import mcp_calls  # the official package takes a second to import

    return await mcp_calls(scale, folder)


async def live(scale: Scale, folder: Path) -> list[Row]:
    """What a piece of sound costs in live runs."""
    from .live_talks import live_talks  # few look at it

    return await live_talks(scale)


DETAILS: dict[str, Detail] = {
    "process": process,
    "cold": cold,
    "emit": emits,
    "partial": chunks,
    "append": appends,
    "groups": groups,
    "waits": waits,
    "postgres": postgres,
    "seeds": seeds,
    "memories": memories,
    "nodes": node_runs,
    "mcp": mcp,
    "live": live,
    # A scenario of another part has its place here: an async function of the scale and a folder that returns rows.
}
