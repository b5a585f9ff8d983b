"""
The side of minirun: its public interface, as an application uses it.

Stores: `memory`, and `power`, one SQLite file that survives a power cut. Histories are made by real turns; those of
windows, which are long, by an agent that says so many things in each run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from functools import partial
from itertools import count
from typing import Any, Literal, TypedDict

import trio

from minirun import (
    BaseAgent,
    Event,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SqliteSessionService,
    StreamingMode,
)
from minirun.models import BaseLlm, LlmRequest, LlmResponse
from minirun.sessions import BaseSessionService, GetSessionConfig
from minirun.types import Content, FunctionCall, Part

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
    Step,
    Task,
    Told,
    given,
    serve,
)

LAST = RunConfig(get_session_config=GetSessionConfig(num_recent_events=WINDOW_EVENTS))
SSE = RunConfig(streaming_mode=StreamingMode.SSE)
# So many events are made by one run of a long history, because a live session keeps those of its run.
EVENTS_PER_LONG_RUN = 20_000
LONG = "long"  # the session that has one
# Of a table in JSON; models send so much at a time, about.
PIECE_CHARS = 20

# --- agents ---------------------------------------------------------------------------------------------------------


class Answers(BaseLlm):
    """Answers, and does no more than an adapter does. (ScriptedLlm, which checks what it is asked, is for tests.)"""

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        await trio.lowlevel.checkpoint()
        yield LlmResponse(content=Content(role="model", parts=[Part(text=ANSWER)]))


class CallsOnce(BaseLlm):
    """Calls the tool, and answers when it has the response."""

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        await trio.lowlevel.checkpoint()
        answered = request.contents[-1].parts[-1].function_response
        part = Part(text=ANSWER) if answered else Part(function_call=FunctionCall(name=TOOL, args=TOOL_ARGUMENTS))
        yield LlmResponse(content=Content(role="model", parts=[part]))


class Chunks(BaseLlm):
    """Answers in so many chunks."""

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        for _ in range(self._chunks):
            yield LlmResponse(content=Content(role="model", parts=[Part(text=CHUNK)]), partial=True)
        yield LlmResponse(content=Content(role="model", parts=[Part(text=CHUNK * self._chunks)]))


class Pieces(BaseLlm):
    """Answers with a table, in so many pieces of its JSON text."""

    def __init__(self, pieces: int) -> None:
        row = json.dumps({"name": "TP 571 to Porto", "seats": 12})
        text = f"[{', '.join([row] * (pieces * PIECE_CHARS // len(row)))}]"
        self._pieces = [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        for piece in self._pieces:
            yield LlmResponse(content=Content(role="model", parts=[Part(text=piece)]), partial=True)
        yield LlmResponse(content=Content(role="model", parts=[Part(text="".join(self._pieces))]))


class Seats(TypedDict):
    """A row of that table."""

    name: str
    seats: int


async def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return dict(TOOL_RESULT)


def text_agent() -> LlmAgent:
    """One that answers, and writes its answer into the state."""
    return LlmAgent(name="agent", model=Answers(), instruction="Be brief.", output_key="last")


def plain_agent(name: str) -> LlmAgent:
    """One that answers and writes nothing into the state."""
    return LlmAgent(name=name, model=Answers(), instruction="Be brief.")


def tool_agent() -> LlmAgent:
    """One that asks its tool first."""
    return LlmAgent(name="agent", model=CallsOnce(), instruction="Be brief.", tools=[weather])


def chunk_agent(chunks: int) -> LlmAgent:
    """One that answers in chunks."""
    return LlmAgent(name="agent", model=Chunks(chunks), instruction="Be brief.")


def table_agent(pieces: int, output_schema: Any = None) -> LlmAgent:
    """One that answers with a table in pieces; with a schema such as `list[Seats]` each shows the rows so far."""
    return LlmAgent(name="agent", model=Pieces(pieces), instruction="Be brief.", output_schema=output_schema)


class Talkative(BaseAgent):
    """Says so many things in one run."""

    times: int

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for _ in range(self.times):
            await ctx.emit(Event(message=ANSWER))


def runner_of(agent: BaseAgent, service: BaseSessionService) -> Runner:
    """A runner of this agent."""
    return Runner(agent=agent, app_name="app", session_service=service)


async def turn(runner: Runner, session_id: str, config: RunConfig | None = None) -> int:
    """One turn, read to its end; returns how many events it gave, the user's not among them."""
    events = 0
    async with runner.run_async(user_id="u", session_id=session_id, new_message=QUESTION, run_config=config) as run:
        async for _ in run:
            events += 1
    return events


# --- stores ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(task: Task, durability: Literal["power", "process"] = "power") -> AsyncIterator[BaseSessionService]:
    """The store of the task."""
    if task.store == "memory":
        yield InMemorySessionService()
    else:
        async with SqliteSessionService(task.file, durability=durability) as service:
            yield service


async def new_session(service: BaseSessionService, **state: object) -> str:
    """Make a session."""
    return (await service.create_session(app_name="app", user_id="u", state=state)).id


async def talked(runner: Runner, history: int) -> str:
    """A session in which as many events were stored by real turns."""
    session_id = await new_session(runner.session_service)
    stored = 0
    while stored < history:
        stored += 1 + await turn(runner, session_id)
    return session_id


# --- scenarios ------------------------------------------------------------------------------------------------------


async def turns(task: Task, agent: Callable[[], LlmAgent]) -> None:
    """A turn in a session with a history."""
    long_id = ""
    async with AsyncExitStack() as stack:
        if task.store == "memory":
            service = await stack.enter_async_context(opened(task))
            if task.size > SHORT_HISTORY_EVENTS:
                long_id = await talked(runner_of(agent(), service), task.size)
        else:
            if task.size > SHORT_HISTORY_EVENTS:
                async with opened(task, "process") as filling:
                    long_id = await talked(runner_of(agent(), filling), task.size)
            service = await stack.enter_async_context(opened(task))
        runner = runner_of(agent(), service)

        async def make(steps: int) -> list[Step]:
            if task.size == 0:
                return [partial(turn, runner, await new_session(service)) for _ in range(steps)]
            return [partial(turn, runner, long_id or await talked(runner, task.size))] * steps

        await serve(task, make)


async def crowd(task: Task) -> None:
    """Many sessions that take tool turns at once."""
    async with opened(task) as service:
        runner = runner_of(tool_agent(), service)

        async def make(steps: int) -> list[Step]:
            await turn(runner, await new_session(service))
            sessions = [await new_session(service) for _ in range(task.size)]

            async def all_at_once() -> Told:
                members = Crowd(partial(turn, runner))
                async with trio.open_nursery() as nursery:
                    for session in sessions:
                        nursery.start_soon(members.member, session)
                return members.told()

            return [all_at_once]

        await serve(task, make, units=task.size * CROWD_TURNS)


async def stream(task: Task) -> None:
    """A turn whose model answers in chunks, each of which the caller sees."""
    async with opened(task) as service:
        runner = runner_of(chunk_agent(task.size), service)

        async def streamed(session_id: str) -> None:
            events = await turn(runner, session_id, SSE)
            assert events == task.size + 1

        async def make(steps: int) -> list[Step]:
            return [partial(streamed, await new_session(service)) for _ in range(steps)]

        await serve(task, make, units=task.size)


async def fill(task: Task) -> None:
    """Make a session with a long history, for `window`."""
    async with opened(task, "process") as service:
        await service.create_session(app_name="app", user_id="u", session_id=LONG)
    for first in range(0, task.size, EVENTS_PER_LONG_RUN):
        times = min(EVENTS_PER_LONG_RUN, task.size - first) - 1  # and the user's message
        async with opened(task, "process") as service:
            await turn(runner_of(Talkative(name="agent", times=times), service), LONG, LAST)


async def window(task: Task) -> None:
    """A store is opened, and a turn taken that sees the newest events."""
    filling = json.dumps({**asdict(task), "what": "fill"})  # elsewhere: it takes memory that this one must not show
    await trio.run_process([sys.executable, "-m", "tests.benchmarks.programs.minirun", filling])
    stack = AsyncExitStack()

    async def opened_and_turned() -> None:
        service = await stack.enter_async_context(opened(task))
        await turn(runner_of(text_agent(), service), LONG, LAST)

    async def make(steps: int) -> list[Step]:
        return [opened_and_turned] * steps

    await serve(task, make, after=stack.aclose)


async def keys(task: Task) -> None:
    """An event that changes one key of a large state."""
    async with opened(task) as service:
        state = {f"key {number}": "a value" for number in range(task.size)}
        session = await service.create_session(app_name="app", user_id="u", state=state)
        numbers = count()

        async def change() -> None:
            number = next(numbers)
            event = Event(author="agent", message=ANSWER, state={f"key {number % task.size}": number})
            await service.append_event(session, event)

        async def make(steps: int) -> list[Step]:
            return [change] * steps

        await serve(task, make)


async def parallel(task: Task) -> None:
    """A run in which many agents answer at once."""
    async with opened(task) as service:
        agents = [plain_agent(f"agent_{number}") for number in range(task.size)]
        runner = runner_of(ParallelAgent(name="all", sub_agents=agents), service)

        async def make(steps: int) -> list[Step]:
            return [partial(turn, runner, await new_session(service)) for _ in range(steps)]

        await serve(task, make)


SCENARIOS: dict[str, Callable[[Task], Awaitable[None]]] = {
    "text": partial(turns, agent=text_agent),
    "tool": partial(turns, agent=tool_agent),
    "crowd": crowd,
    "stream": stream,
    "window": window,
    "fill": fill,
    "keys": keys,
    "parallel": parallel,
}

if __name__ == "__main__":
    trio.run(SCENARIOS[given().what], given())
