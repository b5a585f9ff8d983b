"""
The side of the floor: the same scenarios with bare trio, sqlite3, attrs and json.

Stores: `channels`, in memory, every event handed over to the task that stores it; `inline` and `thread`, a file with
a writer of its own that stores directly; `groups`, a file whose writers share COMMITs, events handed over; `normal`,
a file at synchronous=NORMAL, stored directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count

import trio

from ..floors import FloorFile, FloorGroups, FloorMemory, floor_model, floor_run, floor_stream
from .protocol import (
    ANSWER,
    CHUNK,
    CROWD_TURNS,
    PARTIAL_BUFFER,
    QUESTION,
    SHORT_HISTORY_EVENTS,
    TOOL,
    WINDOW_EVENTS,
    Crowd,
    Step,
    Task,
    Told,
    given,
    serve,
)

# What the agent says in a turn: the model's words, or a call, its response and the model's words.
TEXT = [ANSWER]
CALL = f'{{"name":"{TOOL}","args":{{"city":"Lisbon"}}}}'
RESPONSE = '{"city":"Lisbon","sky":"a few clouds","degrees":21,"rain_mm":0.0}'
TOOL_TURN = [CALL, RESPONSE, ANSWER]

Store = FloorMemory | FloorFile


def opened(task: Task) -> Store:
    """The store of the task."""
    if task.store == "channels":
        return FloorMemory()
    if task.store == "groups":
        return FloorGroups(task.file)
    synchronous = "NORMAL" if task.store == "normal" else "FULL"
    return FloorFile(task.file, synchronous, in_thread=task.store == "thread")


async def turn(store: Store, session: int, texts: list[str], last: bool) -> None:
    """One turn: over channels, or stored directly where one session has the file to itself."""
    if isinstance(store, FloorMemory | FloorGroups):
        await floor_run(store, session, texts, last)
        return
    await store.append(session, QUESTION)
    for said in texts:
        async for text in floor_model(said):
            await store.append(session, text, last)


async def fill(store: Store, session: int, history: int) -> None:
    """Store as many events before."""
    texts = [(QUESTION, ANSWER)[number % 2] for number in range(history)]
    if isinstance(store, FloorFile):
        store.fill(session, texts)
    else:
        for text in texts:
            await store.append(session, text)


async def turns(task: Task, texts: list[str], last: bool = False) -> None:
    """A turn in a session with a history."""
    store, numbers = opened(task), count()
    long = next(numbers) if task.size > SHORT_HISTORY_EVENTS else None
    if long is not None:
        await fill(store, long, task.size)

    async def make(steps: int) -> list[Step]:
        if task.size == 0:
            return [partial(turn, store, next(numbers), texts, last) for _ in range(steps)]
        session = next(numbers) if long is None else long
        if long is None:
            await fill(store, session, task.size)
        return [partial(turn, store, session, texts, last)] * steps

    await serve(task, make)


async def crowd(task: Task) -> None:
    """Many sessions that take tool turns at once."""
    store, numbers = opened(task), count()

    async def take_turn(session: int) -> None:
        await turn(store, session, TOOL_TURN, last=False)

    async def make(steps: int) -> list[Step]:
        await take_turn(next(numbers))
        sessions = [next(numbers) for _ in range(task.size)]

        async def all_at_once() -> Told:
            members = Crowd(take_turn)
            async with trio.open_nursery() as nursery:
                for session in sessions:
                    nursery.start_soon(members.member, session)
            return members.told()

        return [all_at_once]

    await serve(task, make, units=task.size * CROWD_TURNS)


async def stream(task: Task) -> None:
    """Chunks through a buffer as large as minirun's, without a handoff for each."""

    async def streamed() -> None:
        assert await floor_stream(task.size, CHUNK, PARTIAL_BUFFER) == task.size

    async def make(steps: int) -> list[Step]:
        return [streamed] * steps

    await serve(task, make, units=task.size)


async def window(task: Task) -> None:
    """A file is opened, its newest events read, and two stored."""
    filling = FloorFile(task.file, "OFF")
    await fill(filling, 0, task.size)
    filling.close()
    files: list[FloorFile] = []

    async def opened_and_turned() -> None:
        file = FloorFile(task.file, in_thread=True)
        files.append(file)
        events = file.load(0, last=WINDOW_EVENTS)
        assert len(events) == min(WINDOW_EVENTS, task.size)
        await turn(file, 0, TEXT, last=True)

    async def close() -> None:
        files.pop().close()

    async def make(steps: int) -> list[Step]:
        return [opened_and_turned] * steps

    await serve(task, make, after=close)


async def keys(task: Task) -> None:
    """An event and one key of a large state."""
    store, numbers = opened(task), count()
    if isinstance(store, FloorFile):
        store.fill_state(0, {f"key {number}": "a value" for number in range(task.size)})

    async def change() -> None:
        await store.append(0, ANSWER, last=True, key=f"key {next(numbers) % task.size}")

    async def make(steps: int) -> list[Step]:
        return [change] * steps

    await serve(task, make)


async def parallel(task: Task) -> None:
    """Many agents that answer at once, each handing over its event."""
    store, numbers = FloorMemory(), count()

    async def run(session: int) -> None:
        await store.append(session, QUESTION)
        send, receive = trio.open_memory_channel[tuple[str, trio.Event]](0)

        async def agent(sending: trio.MemorySendChannel[tuple[str, trio.Event]]) -> None:
            with sending:
                async for text in floor_model(ANSWER):
                    done = trio.Event()
                    await sending.send((text, done))
                    await done.wait()

        async with trio.open_nursery() as nursery:
            with send:
                for _ in range(task.size):
                    nursery.start_soon(agent, send.clone())
            async for text, done in receive:
                await store.append(session, text)
                done.set()

    async def make(steps: int) -> list[Step]:
        return [partial(run, next(numbers)) for _ in range(steps)]

    await serve(task, make)


async def nodes(task: Task) -> None:
    """The events of a graph, one for each node: one after another, or, where COMMITs are shared, all at once."""
    store, numbers = opened(task), count()

    async def chain(session: int) -> None:
        await turn(store, session, [ANSWER] * task.size, last=False)

    async def at_once(session: int) -> None:
        await store.append(session, QUESTION)
        async with trio.open_nursery() as nursery:
            for _ in range(task.size):
                nursery.start_soon(store.append, session, ANSWER)
        await store.append(session, ANSWER)

    async def make(steps: int) -> list[Step]:
        run = at_once if isinstance(store, FloorGroups) else chain
        return [partial(run, next(numbers)) for _ in range(steps)]

    await serve(task, make)


SCENARIOS: dict[str, Callable[[Task], Awaitable[None]]] = {
    "text": partial(turns, texts=TEXT, last=True),
    "tool": partial(turns, texts=TOOL_TURN),
    "crowd": crowd,
    "stream": stream,
    "window": window,
    "keys": keys,
    "parallel": parallel,
    "chain": nodes,
    "fan": nodes,
    "map": nodes,
}

if __name__ == "__main__":
    trio.run(SCENARIOS[given().what], given())
