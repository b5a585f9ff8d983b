# mypy: ignore-errors
"""
The side of google-adk where a graph is run: a `Workflow` of functions in a Runner.

Stores: `sqlite` (SqliteSessionService), `database` (DatabaseSessionService on sqlite+aiosqlite), and `normal`, the
latter on a file in WAL mode whose connections are told synchronous=NORMAL. It runs where google-adk is installed, so
nothing here is checked for types.
"""

from __future__ import annotations

import asyncio
from functools import partial

from google.adk.runners import Runner
from google.adk.workflow import START, JoinNode, Workflow, node
from google.genai.types import Content, Part
from sqlalchemy import event

from .google_adk import new_session, opened
from .protocol import QUESTION, given, serve


async def begin(node_input: str) -> int:
    return 1


async def add_one(node_input: int) -> int:
    return node_input + 1


async def measure(node_input: str) -> int:
    return len(node_input)


def chain(nodes):
    further = [node(add_one, name=f"node_{number}") for number in range(1, nodes)]
    return Workflow(name="chain", edges=[(START, begin, *further)])


def fan(nodes):
    side_by_side = tuple(node(measure, name=f"node_{number}") for number in range(nodes))
    return Workflow(name="fan", edges=[(START, side_by_side, JoinNode(name="all"))])


def mapped(items):
    async def listed(node_input: str) -> list[int]:
        return list(range(items))

    return Workflow(name="mapped", edges=[(START, listed, node(add_one, parallel_worker=True))])


def expected(task):
    if task.what == "chain":
        return task.size
    if task.what == "fan":
        return {f"node_{number}": len(QUESTION) for number in range(task.size)}
    return [item + 1 for item in range(task.size)]


WORKFLOWS = {"chain": chain, "fan": fan, "map": mapped}


async def run(runner, session_id, output):
    message = Content(role="user", parts=[Part(text=QUESTION)])
    last = None
    async for said in runner.run_async(user_id="u", session_id=session_id, new_message=message):
        last = said.output
    assert last == output, last


def be_normal(connection, record):
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


async def main(task):
    async with opened(task) as service:
        if task.store == "normal":
            event.listen(service.db_engine.sync_engine, "connect", be_normal)
        workflow = WORKFLOWS[task.what](task.size)
        runner = Runner(app_name="app", node=workflow, session_service=service)
        output = expected(task)

        async def make(steps):
            return [partial(run, runner, await new_session(service), output) for _ in range(steps)]

        await serve(task, make)


if __name__ == "__main__":
    asyncio.run(main(given()))
