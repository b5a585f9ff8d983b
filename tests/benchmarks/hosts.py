"""
The ways from an asyncio program to minirun, side by side: what an event costs, as microseconds of processor time.

    python -m tests.benchmarks.hosts [--events 2000] [--rounds 5]

An agent emits so many events, in memory; somebody reads them:

    trio     in the same trio task: what minirun itself takes
    guest    in asyncio, with trio as a guest of its loop, through a memory channel and futures, one event at a time
    bridge   in asyncio, through the bridge, one event at a time

Each round does all three in turn, and the best of each counts: the others were disturbed.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Any

import trio

from minirun import BaseAgent, Event, InMemoryRunner, InvocationContext
from minirun.bridge import AsyncioBridge

EVENTS = 2_000
ROUNDS = 5


class Counts(BaseAgent):
    """Emits so many events."""

    events: int

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for number in range(self.events):
            await ctx.emit(Event(message=str(number)))


def runner_of(events: int) -> InMemoryRunner:
    return InMemoryRunner(agent=Counts(name="counts", events=events), auto_create_session=True)


def in_trio(events: int) -> float:
    """Read them where they are made."""
    runner = runner_of(events)

    async def main() -> float:
        began = time.process_time()
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
            assert len([event async for event in run]) == events
        return time.process_time() - began

    return trio.run(main)


def as_guest(events: int) -> float:
    """Read them in asyncio, in the thread in which trio is a guest."""
    runner = runner_of(events)

    async def serve(asks: trio.MemoryReceiveChannel[asyncio.Future[Event | None]]) -> None:
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
            async for future in asks:
                future.set_result(await anext(run, None))

    async def main() -> float:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        send, receive = trio.open_memory_channel[asyncio.Future[Event | None]](1)
        trio.lowlevel.start_guest_run(
            serve,
            receive,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        began, count = time.process_time(), 0
        while True:
            future: asyncio.Future[Event | None] = loop.create_future()
            send.send_nowait(future)
            if await future is None:
                break
            count += 1
        took = time.process_time() - began
        send.close()
        (await ended).unwrap()
        assert count == events
        return took

    return asyncio.run(main())


def over_bridge(events: int) -> float:
    """Read them in asyncio, from the bridge's thread."""

    async def main() -> float:
        async with AsyncioBridge(runner_of(events)) as chat:
            began = time.process_time()
            run = chat.run_async(user_id="u", session_id="s", new_message="go")
            assert len([event async for event in run]) == events
            return time.process_time() - began

    return asyncio.run(main())


WAYS: dict[str, Callable[[int], float]] = {"trio": in_trio, "guest": as_guest, "bridge": over_bridge}


def measure(events: int, rounds: int) -> dict[str, float]:
    """The microseconds of an event, by the way that it takes; the best of so many rounds."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, read in WAYS.items():
            took = read(events) / events * 1e6
            best[name] = min(best.get(name, took), took)
    return best


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="What an event costs on its way to asyncio.")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    found = measure(options.events, options.rounds)
    for name, took in found.items():
        print(f"{name:8} {took:7.1f} us an event, {took / found['trio']:5.2f} of trio alone")
    print(f"the bridge takes {found['bridge'] / found['guest']:.2f} of what guest mode does")


if __name__ == "__main__":
    main()
