"""
The side of minirun where a graph is run: a `Workflow` of functions, as the guide builds one.

Stores: one SQLite file that survives a power cut (`power`), or a crash of the process (`process`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import trio

from minirun import RunConfig, Runner, SqliteSessionService
from minirun.workflow import START, JoinNode, Workflow, node

from .minirun import new_session, runner_of
from .protocol import QUESTION, Step, Task, given, serve

DURABILITY: dict[str, Literal["power", "process"]] = {"power": "power", "process": "process"}
# More nodes than the default budget allows.
UNLIMITED = RunConfig(max_node_runs=0)


async def begin(node_input: str) -> int:
    """The first node of a chain."""
    return 1


async def add_one(node_input: int) -> int:
    """Each further node of a chain."""
    return node_input + 1


async def measure(node_input: str) -> int:
    """Each node of a fan-out."""
    return len(node_input)


def chain(nodes: int) -> Workflow:
    """So many nodes, one after another, each of which gets what the one before has given."""
    further = [node(add_one, name=f"node_{number}") for number in range(1, nodes)]
    return Workflow(name="chain", edges=[(START, begin, *further)])


def fan(nodes: int) -> Workflow:
    """So many nodes side by side, and a join."""
    side_by_side = tuple(node(measure, name=f"node_{number}") for number in range(nodes))
    return Workflow(name="fan", edges=[(START, side_by_side, JoinNode(name="all"))])


def mapped(items: int) -> Workflow:
    """A node that is run for so many items side by side."""

    async def listed(node_input: str) -> list[int]:
        return list(range(items))

    return Workflow(name="mapped", edges=[(START, listed, node(add_one, parallel_worker=True))])


def expected(task: Task) -> object:
    """What the workflow gives."""
    if task.what == "chain":
        return task.size
    if task.what == "fan":
        return {f"node_{number}": len(QUESTION) for number in range(task.size)}
    return [item + 1 for item in range(task.size)]


WORKFLOWS: dict[str, Callable[[int], Workflow]] = {"chain": chain, "fan": fan, "map": mapped}


async def run(runner: Runner, session_id: str, output: object) -> None:
    """Run the workflow once, and read its events to their end."""
    last = None
    async with runner.run_async(
        user_id="u", session_id=session_id, new_message=QUESTION, run_config=UNLIMITED
    ) as events:
        async for event in events:
            last = event.output
    assert last == output


async def main(task: Task) -> None:
    """Run the workflow of the task, each time in a session of its own."""
    async with SqliteSessionService(task.file, durability=DURABILITY[task.store]) as service:
        runner = runner_of(WORKFLOWS[task.what](task.size), service)
        output = expected(task)

        async def make(steps: int) -> list[Step]:
            return [partial(run, runner, await new_session(service), output) for _ in range(steps)]

        await serve(task, make)


if __name__ == "__main__":
    trio.run(main, given())
