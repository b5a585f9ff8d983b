# mypy: ignore-errors
"""
The side of google-adk: a Runner with an LlmAgent, as its documentation builds one.

Stores: `memory` (InMemorySessionService), `sqlite` (SqliteSessionService) and `database` (DatabaseSessionService on
sqlite+aiosqlite). Histories are one real turn, its events repeated under new ids, because real ones would take minutes.
It runs where google-adk is installed, so nothing here is checked for types.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Content, FunctionCall, Part

from .protocol import (
    ANSWER,
    CHUNK,
    CROWD_TURNS,
    QUESTION,
    SHORT_HISTORY_EVENTS,
    TOOL,
    TOOL_ARGUMENTS,
    TOOL_RESULT,
    WINDOW_EVENTS,
    Crowd,
    allow_many_files,
    given,
    serve,
)

LAST = RunConfig(get_session_config=GetSessionConfig(num_recent_events=WINDOW_EVENTS))
SSE = RunConfig(streaming_mode=StreamingMode.SSE)


def content(*parts):
    return Content(role="model", parts=list(parts))


class Text(BaseLlm):
    """Answers."""

    async def generate_content_async(self, llm_request, stream=False):
        yield LlmResponse(content=content(Part(text=ANSWER)))


class CallsOnce(BaseLlm):
    """Calls the tool, and answers when it has the response."""

    async def generate_content_async(self, llm_request, stream=False):
        if any(part.function_response for part in llm_request.contents[-1].parts):
            yield LlmResponse(content=content(Part(text=ANSWER)))
        else:
            call = FunctionCall(name=TOOL, args=dict(TOOL_ARGUMENTS))
            yield LlmResponse(content=content(Part(function_call=call)))


class Chunks(BaseLlm):
    """Answers in chunks."""

    chunks: int

    async def generate_content_async(self, llm_request, stream=False):
        for _ in range(self.chunks):
            yield LlmResponse(content=content(Part(text=CHUNK)), partial=True)
        yield LlmResponse(content=content(Part(text=CHUNK * self.chunks)), partial=False)


async def weather(city: str) -> dict:
    """Tell the weather of a city."""
    return dict(TOOL_RESULT)


def agent(what, size):
    if what in ("tool", "crowd"):
        return LlmAgent(name="agent", model=CallsOnce(model="fake"), instruction="Be brief.", tools=[weather])
    if what == "stream":
        return LlmAgent(name="agent", model=Chunks(model="fake", chunks=size), instruction="Be brief.")
    if what == "parallel":
        names = [f"agent_{number}" for number in range(size)]
        several = [LlmAgent(name=name, model=Text(model="fake"), instruction="Be brief.") for name in names]
        return ParallelAgent(name="all", sub_agents=several)
    return LlmAgent(name="agent", model=Text(model="fake"), instruction="Be brief.", output_key="last")


@asynccontextmanager
async def opened(task):
    """The session service of the task."""
    if task.store == "memory":
        yield InMemorySessionService()
    elif task.store == "sqlite":
        from google.adk.sessions.sqlite_session_service import SqliteSessionService

        yield SqliteSessionService(str(task.file))
    else:
        from google.adk.sessions import DatabaseSessionService

        service = DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{task.file}")
        yield service
        await service.close()


async def turn(runner, session_id, config=None):
    message = Content(role="user", parts=[Part(text=QUESTION)])
    events = 0
    async for _ in runner.run_async(user_id="u", session_id=session_id, new_message=message, run_config=config):
        events += 1
    return events


async def new_session(service, **state):
    return (await service.create_session(app_name="app", user_id="u", state=state)).id


async def talked(task, runner, history):
    """A session with so many events: those of one real turn, again and again."""
    service = runner.session_service
    session_id = await new_session(service)
    await turn(runner, session_id)
    if task.store == "memory":
        events = service.sessions["app"]["u"][session_id].events
        made = list(events)
        while len(events) < history:
            again = made[len(events) % len(made)]
            events.append(again.model_copy(deep=True, update={"id": Event.new_id()}))
    else:
        repeat_rows(task.file, session_id, history)
    return session_id


def repeat_rows(file, session_id, history):
    """Insert the rows of the session's events again, under new ids."""
    with sqlite3.connect(file) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(events)")]
        query = f"SELECT {','.join(names)} FROM events WHERE session_id = ? ORDER BY timestamp, rowid"
        made = [dict(zip(names, row, strict=True)) for row in db.execute(query, (session_id,))]
        rows = []
        for number in range(len(made), history):
            row = dict(made[number % len(made)])
            old, new = row["id"], Event.new_id()
            rows.append([v.replace(old, new) if isinstance(v, str) else v for v in row.values()])
        db.executemany(f"INSERT INTO events ({','.join(names)}) VALUES ({','.join('?' * len(names))})", rows)
    db.close()


async def turns(task):
    async with opened(task) as service:
        runner = Runner(app_name="app", agent=agent(task.what, 0), session_service=service)
        long_id = await talked(task, runner, task.size) if task.size > SHORT_HISTORY_EVENTS else ""

        async def make(steps):
            if task.size == 0:
                return [partial(turn, runner, await new_session(service)) for _ in range(steps)]
            return [partial(turn, runner, long_id or await talked(task, runner, task.size))] * steps

        await serve(task, make)


async def fresh_sessions(task, units=1):
    """A turn in a session of its own: a stream, or agents in parallel."""
    config = SSE if task.what == "stream" else None
    async with opened(task) as service:
        runner = Runner(app_name="app", agent=agent(task.what, task.size), session_service=service)

        async def whole(session_id):
            events = await turn(runner, session_id, config)
            assert events == task.size + (task.what == "stream"), events

        async def make(steps):
            return [partial(whole, await new_session(service)) for _ in range(steps)]

        await serve(task, make, units=units)


async def crowd(task):
    allow_many_files()
    async with opened(task) as service:
        runner = Runner(app_name="app", agent=agent(task.what, 0), session_service=service)

        async def make(steps):
            await turn(runner, await new_session(service))
            sessions = [await new_session(service) for _ in range(task.size)]

            async def all_at_once():
                members = Crowd(partial(turn, runner))
                await asyncio.gather(*(members.member(session) for session in sessions))
                return members.told()

            return [all_at_once]

        await serve(task, make, units=task.size * CROWD_TURNS)


async def window(task):
    async with opened(task) as service:
        runner = Runner(app_name="app", agent=agent(task.what, 0), session_service=service)
        session_id = await talked(task, runner, task.size)
    files = []

    async def opened_and_turned():
        files.append(opened(task))
        service = await files[0].__aenter__()
        await turn(Runner(app_name="app", agent=agent(task.what, 0), session_service=service), session_id, LAST)

    async def close():
        await files.pop().__aexit__(None, None, None)

    async def make(steps):
        return [opened_and_turned] * steps

    await serve(task, make, after=close)


async def keys(task):
    async with opened(task) as service:
        state = {f"key {number}": "a value" for number in range(task.size)}
        session = await service.create_session(app_name="app", user_id="u", state=state)
        numbers = count()

        async def change():
            number = next(numbers)
            delta = {f"key {number % task.size}": number}
            event = Event(author="agent", content=content(Part(text=ANSWER)), actions=EventActions(state_delta=delta))
            await service.append_event(session, event)

        async def make(steps):
            return [change] * steps

        await serve(task, make)


async def main(task):
    scenarios = {
        "text": turns,
        "tool": turns,
        "crowd": crowd,
        "stream": partial(fresh_sessions, units=task.size),
        "parallel": fresh_sessions,
        "window": window,
        "keys": keys,
    }
    await scenarios[task.what](task)


if __name__ == "__main__":
    asyncio.run(main(given()))
