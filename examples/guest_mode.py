"""
Agents in a program that runs on asyncio: trio's guest mode puts both loops into one thread.

The trio side is started once; asyncio code hands it questions through a memory channel and awaits futures. Both sides
share a thread, so neither needs a lock.
"""

from __future__ import annotations

import asyncio
from typing import Any

import trio

from minirun import Event, InMemoryRunner, LlmAgent
from minirun.testing import ScriptedLlm

Question = tuple[str, "asyncio.Future[Event | None]"]


async def serve_questions(questions: trio.MemoryReceiveChannel[Question]) -> None:
    """The trio side: answer questions, many at once, until there are no more."""
    agent = LlmAgent(name="parrot", model=ScriptedLlm(lambda request: f"{request.contents[-1].text}!", latency_s=0.1))
    runner = InMemoryRunner(agent=agent, auto_create_session=True)

    async def answer(text: str, future: asyncio.Future[Event | None]) -> None:
        try:
            async with runner.run_async(user_id="u", session_id=text, new_message=text) as run:
                event = await run.wait()
            future.set_result(event)
        except Exception as error:
            future.set_exception(error)

    async with trio.open_nursery() as nursery:
        async for question in questions:
            nursery.start_soon(answer, *question)


async def main() -> None:
    """The asyncio side: ask two questions at once, then end the trio side and wait for it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()
    send, receive = trio.open_memory_channel[Question](100)
    trio.lowlevel.start_guest_run(
        serve_questions,
        receive,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        done_callback=ended.set_result,
        host_uses_signal_set_wakeup_fd=True,
    )
    futures: list[asyncio.Future[Event | None]] = [loop.create_future() for _ in range(2)]
    for question in zip(["hello", "asyncio"], futures, strict=True):
        send.send_nowait(question)
    print([answer and answer.text for answer in await asyncio.gather(*futures)])
    send.close()
    (await ended).unwrap()  # raises what the trio side failed with, if it did


if __name__ == "__main__":
    asyncio.run(main())
