# mypy: ignore-errors
"""
The side of openai-agents: Runner.run with a SQLiteSession, the session its documentation begins with; tracing is off.

Stores: `memory` (a SQLiteSession in ":memory:" for each session) and `sqlite` (one file). It has no session state, and
several agents at once are `asyncio.gather`, as its documentation says. Histories are one real turn, its items repeated.
It runs where openai-agents is installed, so nothing here is checked for types.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count

from agents import (
    Agent,
    ModelResponse,
    RunConfig,
    Runner,
    SessionSettings,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from .protocol import (
    ANSWER,
    CHUNK,
    CROWD_TURNS,
    QUESTION,
    SHORT_HISTORY_EVENTS,
    TOOL,
    TOOL_RESULT,
    WINDOW_EVENTS,
    Crowd,
    allow_many_files,
    given,
    serve,
)

set_tracing_disabled(True)
PLAIN = RunConfig(tracing_disabled=True)
LAST = RunConfig(tracing_disabled=True, session_settings=SessionSettings(limit=WINDOW_EVENTS))
NUMBERS = count()


def said(text):
    part = ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])


class Text(Model):
    """Answers, in chunks if it is asked to stream."""

    def __init__(self, chunks=0):
        self._chunks = chunks

    async def get_response(self, *arguments, **more):
        return ModelResponse(output=[said(ANSWER)], usage=Usage(), response_id=None)

    async def stream_response(self, *arguments, **more):
        for number in range(self._chunks):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                content_index=0,
                delta=CHUNK,
                item_id="m",
                output_index=0,
                sequence_number=number,
                logprobs=[],
            )
        response = Response(
            id="r",
            created_at=0,
            model="fake",
            object="response",
            output=[said(CHUNK * self._chunks)],
            tool_choice="none",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(type="response.completed", sequence_number=self._chunks, response=response)


class CallsOnce(Text):
    """Calls the tool, and answers when it has the response."""

    async def get_response(self, system_instructions, input, *arguments, **more):
        if isinstance(input, list) and input[-1].get("type") == "function_call_output":
            return await super().get_response()
        number = next(NUMBERS)
        call = ResponseFunctionToolCall(
            id=f"f{number}", call_id=f"c{number}", type="function_call", name=TOOL, arguments='{"city": "Lisbon"}'
        )
        return ModelResponse(output=[call], usage=Usage(), response_id=None)


@function_tool
async def weather(city: str) -> dict:
    """Tell the weather of a city."""
    return dict(TOOL_RESULT)


def agent_of(task):
    if task.what in ("tool", "crowd"):
        return Agent(name="agent", instructions="Be brief.", model=CallsOnce(), tools=[weather])
    return Agent(name="agent", instructions="Be brief.", model=Text(task.size if task.what == "stream" else 0))


OPENED = []


def new_session(task):
    name = f"s{next(NUMBERS)}"
    OPENED.append(SQLiteSession(name) if task.store == "memory" else SQLiteSession(name, task.file))
    return OPENED[-1]


def close_all(*, but=None):
    """Close what earlier rounds have used: each session has a database of its own."""
    while OPENED:
        session = OPENED.pop()
        if session is not but:
            session.close()


async def turn(agent, session, config=PLAIN):
    result = await Runner.run(agent, QUESTION, session=session, run_config=config)
    assert result.final_output == ANSWER


async def talked(agent, session, history):
    await turn(agent, session)
    made = await session.get_items()
    items = []
    for number in range(len(made), history):
        item = dict(made[number % len(made)])
        if "call_id" in item:
            item["call_id"] += f"_{number // len(made)}"
        if item.get("type") == "function_call":
            item["id"] = f"again{number}"
        items.append(item)
    await session.add_items(items)
    return session


async def turns(task):
    agent = agent_of(task)
    long = await talked(agent, new_session(task), task.size) if task.size > SHORT_HISTORY_EVENTS else None

    async def make(steps):
        close_all(but=long)
        if task.size == 0:
            return [partial(turn, agent, new_session(task)) for _ in range(steps)]
        return [partial(turn, agent, long or await talked(agent, new_session(task), task.size))] * steps

    await serve(task, make)


async def crowd(task):
    allow_many_files()
    agent = agent_of(task)

    async def make(steps):
        await turn(agent, new_session(task))
        sessions = [new_session(task) for _ in range(task.size)]

        async def all_at_once():
            members = Crowd(partial(turn, agent))
            await asyncio.gather(*(members.member(session) for session in sessions))
            return members.told()

        return [all_at_once]

    await serve(task, make, units=task.size * CROWD_TURNS)


async def stream(task):
    agent = agent_of(task)

    async def streamed(session):
        result = Runner.run_streamed(agent, QUESTION, session=session, run_config=PLAIN)
        events = 0
        async for _ in result.stream_events():
            events += 1
        assert events > task.size

    async def make(steps):
        close_all()
        return [partial(streamed, new_session(task)) for _ in range(steps)]

    await serve(task, make, units=task.size)


async def parallel(task):
    agents = [Agent(name=f"agent_{n}", instructions="Be brief.", model=Text()) for n in range(task.size)]

    async def all_at_once(sessions):
        await asyncio.gather(*(turn(agent, session) for agent, session in zip(agents, sessions, strict=True)))

    async def make(steps):
        close_all()
        steps = min(steps, 5)  # each has as many databases as there are agents
        return [partial(all_at_once, [new_session(task) for _ in agents]) for _ in range(steps)]

    await serve(task, make)


async def window(task):
    agent = agent_of(task)
    first = await talked(agent, new_session(task), task.size)
    name = first.session_id
    first.close()
    sessions = []

    async def opened_and_turned():
        sessions.append(SQLiteSession(name, task.file))
        await turn(agent, sessions[0], LAST)

    async def close():
        sessions.pop().close()

    async def make(steps):
        return [opened_and_turned] * steps

    await serve(task, make, after=close)


SCENARIOS = {
    "text": turns,
    "tool": turns,
    "crowd": crowd,
    "stream": stream,
    "parallel": parallel,
    "window": window,
}

if __name__ == "__main__":
    asyncio.run(SCENARIOS[given().what](given()))
