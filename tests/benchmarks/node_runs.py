"""
What a run of a node costs: beside what it takes at least, after many others, and when it is found in the log.

    python -m tests.benchmarks.node_runs ROUNDS RUNS

The benchmark starts it once; what is compared takes turns in it. Rules of this file:

*   A time is processor time. A file is one that a crash of the process does not harm: the processor time of waiting
    for the disk belongs to the disk.
*   What a node run is compared with is what makes it durable at least: an event that an agent emits, and a step.
*   Where a loop goes round so many times, its first runs are timed in a loop of their own, right behind the last ones
    of the long one: the same machine, and the same heap.
*   What is resumed ends with a question, so that it can be resumed again and again: each time a file is opened, all
    that is recorded is folded, and the question is found open. Beside it, the same file is opened and its events read.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import trio

from minirun import BaseAgent, Event, InvocationContext, RunConfig, Runner
from minirun.workflow import END, START, RequestInput, Workflow

from .details import Kind, opened
from .measuring import Row, Work, measure
from .programs.minirun import runner_of
from .programs.protocol import QUESTION

KINDS: tuple[Kind, ...] = ("memory", "process")
UNLIMITED = RunConfig(max_node_runs=0)
# A round of what is measured run by run: long enough for the clock.
RUNS_PER_ROUND = 200
# The first runs of a loop are not those to compare with: the first of them all fills what is kept.
FIRST = 10

AGAIN, ENOUGH = "again", "enough"


class Steps(BaseAgent):
    """Emits an event and takes a step, so many times."""

    times: int

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        async def give() -> int:
            return number

        for number in range(self.times):  # noqa: B007 - the step reads it
            await ctx.emit(Event(message=QUESTION))
            await ctx.step("count", give)


def loop(times: int, marks: dict[int, float] | None = None, *, asks: bool = False) -> Workflow:
    """A node that runs so many times, each time with what it gave before; *marks* are told when some runs began."""

    async def begin(node_input: str) -> int:
        return 0

    async def count(node_input: int) -> Event:
        if marks is not None and node_input in marks:
            marks[node_input] = time.process_time()
        return Event(output=node_input + 1, route=AGAIN if node_input + 1 < times else ENOUGH)

    async def ask(node_input: int) -> RequestInput:
        return RequestInput(message="Is it enough?")

    enough = ask if asks else END
    return Workflow(name="loop", edges=[(START, begin, count), (count, {AGAIN: count, ENOUGH: enough})])


async def run(runner: Runner, status: str = "completed") -> str:
    """Run it in a new session, whose id is returned, and read all events."""
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    async with runner.run_async(
        user_id="u", session_id=session.id, new_message=QUESTION, run_config=UNLIMITED
    ) as events:
        async for _ in events:
            pass
    assert events.status == status, events.status
    return session.id


async def beside_a_step(rounds: int, runs: int, folder: Path) -> list[Row]:
    """A run of a node beside an event and a step, on each kind of store."""
    some = min(RUNS_PER_ROUND, runs)
    rows = []
    for kind in KINDS:
        async with opened(kind, folder / f"beside {kind}.db") as service:
            looping = runner_of(loop(some), service)
            stepping = runner_of(Steps(name="agent", times=some), service)
            mine = Work("mine", partial(run, looping), units=some)
            bare = Work("bare", partial(run, stepping), units=some)
            times = await measure(rounds, mine, bare, clock=time.process_time)
        rows.append(Row(f"a node run, {kind}", times["mine"], "an event and a step", times["bare"]))
    return rows


async def after_many(rounds: int, runs: int, folder: Path) -> list[Row]:
    """The last runs of a long loop beside the first ones of another."""
    some = min(RUNS_PER_ROUND, (runs - FIRST) // 2)
    rows = []
    for kind in KINDS:
        late: list[float] = []
        early: list[float] = []
        async with opened(kind, folder / f"many {kind}.db") as service:
            for number in range(rounds + 1):
                for times, taken in ((runs, late), (FIRST + some + 1, early)):
                    first, last = times - some - 1, times - 1
                    marks = {first: 0.0, last: 0.0}
                    gc.collect()
                    await run(runner_of(loop(times, marks), service))
                    if number > 0:
                        taken.append((marks[last] - marks[first]) / some * 1e6)
        note = f"(node run {runs} beside {FIRST})"
        rows.append(Row(f"a late node run, {kind}", late, "an early one", early, note=note))
    return rows


async def found_in_the_log(rounds: int, runs: int, folder: Path) -> list[Row]:
    """Going on with an invocation that has ended so many node runs, beside reading its events."""
    path = folder / "resumed.db"
    workflow = loop(runs, asks=True)
    async with opened("process", path) as service:
        session_id = await run(runner_of(workflow, service), "paused")
        [*_, last] = await service.read_events(app_name="app", user_id="u", session_id=session_id)

    async def resume() -> None:
        async with opened("process", path) as service:
            events = runner_of(workflow, service).run_async(
                user_id="u", session_id=session_id, invocation_id=last.invocation_id, run_config=UNLIMITED
            )
            async with events as found:
                assert [event async for event in found] == []
            assert found.status == "paused"

    async def read() -> None:
        async with opened("process", path) as service:
            events = await service.read_events(app_name="app", user_id="u", session_id=session_id)
            assert len(events) > runs

    times = await measure(rounds, Work("mine", resume), Work("bare", read), clock=time.process_time)
    mine, bare = ([taken / 1e3 for taken in times[name]] for name in ("mine", "bare"))
    return [Row("resume of a loop", mine, "reading its events", bare, unit="ms", note=f"({runs} node runs)")]


async def rows(rounds: int, runs: int) -> Iterator[Row]:
    """All of them."""
    with tempfile.TemporaryDirectory(prefix="minirun-bench-") as name:
        folder = Path(name)
        beside = await beside_a_step(rounds, runs, folder)
        late = await after_many(rounds, runs, folder)
        return iter([*beside, *late, *await found_in_the_log(rounds, runs, folder)])


def main() -> None:
    """Do what the command line asks for, once."""
    parser = argparse.ArgumentParser(description="Runs of nodes, in a process of their own.")
    parser.add_argument("rounds", type=int)
    parser.add_argument("runs", type=int)
    options = parser.parse_args()
    print(json.dumps([attrs.asdict(row) for row in trio.run(rows, options.rounds, options.runs)]))


if __name__ == "__main__":
    main()
