# mypy: ignore-errors
"""
The side of pydantic-ai: Agent.run with `message_history`, which its documentation has the application keep.

Stores: `memory` (lists in a dict) and `sqlite`, built as the chat application among its examples builds it: the
messages of each turn as one row of JSON, written in a thread of its own, all of them read and validated before the
next turn. It has no session state, and several agents at once are `asyncio.gather`.
It runs where pydantic-ai is installed, so nothing here is checked for types.
"""

from __future__ import annotations

import asyncio
import copy
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from .protocol import (
    ANSWER,
    CHUNK,
    CROWD_TURNS,
    QUESTION,
    SHORT_HISTORY_EVENTS,
    TOOL,
    TOOL_ARGUMENTS,
    TOOL_RESULT,
    Crowd,
    given,
    serve,
)

NUMBERS = count()


def response(part):
    """A model's answer with its usage, as providers tell it: else the library would count the words of all history."""
    return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=10, output_tokens=10))


async def answers(messages, info):
    return response(TextPart(ANSWER))


async def calls_once(messages, info):
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return response(TextPart(ANSWER))
    return response(ToolCallPart(TOOL, dict(TOOL_ARGUMENTS), tool_call_id=f"c{next(NUMBERS)}"))


async def weather(city: str) -> dict:
    """Tell the weather of a city."""
    return dict(TOOL_RESULT)


def agent_of(task):
    if task.what in ("tool", "crowd"):
        return Agent(FunctionModel(calls_once), instructions="Be brief.", tools=[weather])

    async def chunks(messages, info):
        for _ in range(task.size):
            yield CHUNK

    return Agent(FunctionModel(answers, stream_function=chunks), instructions="Be brief.")


class Memory:
    """The messages of each session."""

    def __init__(self):
        self._sessions = {}

    async def load(self, session):
        return self._sessions.get(session, [])

    async def add(self, session, result):
        self._sessions[session] = result.all_messages()

    async def fill(self, session, turns):
        self._sessions[session] = [message for turn in turns for message in turn]


class File:
    """The same in a file, which has a thread."""

    def __init__(self, path):
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._db = self._thread.submit(partial(sqlite3.connect, path)).result()
        self._thread.submit(self._make).result()

    def _make(self):
        self._db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session TEXT, message_list TEXT)")
        self._db.execute("CREATE INDEX by_session ON messages (session, id)")
        self._db.commit()

    async def _do(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _rows(self, session):
        query = "SELECT message_list FROM messages WHERE session = ? ORDER BY id"
        return self._db.execute(query, (session,)).fetchall()

    def _insert(self, rows):
        self._db.executemany("INSERT INTO messages (session, message_list) VALUES (?, ?)", rows)
        self._db.commit()

    async def load(self, session):
        messages = []
        for (row,) in await self._do(self._rows, session):
            messages.extend(ModelMessagesTypeAdapter.validate_json(row))
        return messages

    async def add(self, session, result):
        await self._do(self._insert, [(session, result.new_messages_json())])

    async def fill(self, session, turns):
        await self._do(self._insert, [(session, ModelMessagesTypeAdapter.dump_json(turn)) for turn in turns])


async def turn(agent, store, session):
    result = await agent.run(QUESTION, message_history=await store.load(session))
    await store.add(session, result)


async def talked(agent, store, history):
    """A session with so many messages: those of one real turn, again and again."""
    session, stored, again = f"s{next(NUMBERS)}", 0, []
    made = (await agent.run(QUESTION)).all_messages()
    while stored < history:
        again.append(copy.deepcopy(made))
        for message in again[-1]:
            for part in message.parts:
                if hasattr(part, "tool_call_id"):
                    part.tool_call_id = f"again{stored}"
        stored += len(made)
    await store.fill(session, again)
    return session


async def turns(task, store):
    agent = agent_of(task)
    long = await talked(agent, store, task.size) if task.size > SHORT_HISTORY_EVENTS else ""

    async def make(steps):
        if task.size == 0:
            return [partial(turn, agent, store, f"s{next(NUMBERS)}") for _ in range(steps)]
        return [partial(turn, agent, store, long or await talked(agent, store, task.size))] * steps

    await serve(task, make)


async def crowd(task, store):
    agent = agent_of(task)

    async def make(steps):
        await turn(agent, store, "warm")

        async def all_at_once():
            members = Crowd(partial(turn, agent, store))
            await asyncio.gather(*(members.member(f"s{number}") for number in range(task.size)))
            return members.told()

        return [all_at_once]

    await serve(task, make, units=task.size * CROWD_TURNS)


async def stream(task, store):
    agent = agent_of(task)

    async def streamed():
        chunks = 0
        async with agent.run_stream(QUESTION) as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                chunks += 1
        assert chunks >= task.size - 1, chunks  # the first comes with what announces it

    async def make(steps):
        return [streamed] * steps

    await serve(task, make, units=task.size)


async def parallel(task, store):
    agents = [agent_of(task) for _ in range(task.size)]

    async def all_at_once(sessions):
        await asyncio.gather(*(turn(agent, store, name) for agent, name in zip(agents, sessions, strict=True)))

    async def make(steps):
        return [partial(all_at_once, [f"s{next(NUMBERS)}" for _ in agents]) for _ in range(steps)]

    await serve(task, make)


SCENARIOS = {"text": turns, "tool": turns, "crowd": crowd, "stream": stream, "parallel": parallel}


async def main(task):
    await SCENARIOS[task.what](task, Memory() if task.store == "memory" else File(task.file))


if __name__ == "__main__":
    asyncio.run(main(given()))
