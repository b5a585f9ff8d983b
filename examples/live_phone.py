"""
Calls by telephone, in simulated worlds: the caller speaks, interrupts and hangs up at random.

The phone plays what it gets at the speed of sound. Whatever happens, the session has of each answer what was played of
it, to a word. The argument is how many seeds are tried, for each of two providers.
"""

import sys
from collections import Counter, deque
from functools import partial
from typing import Any

import trio

from minirun import LlmAgent
from minirun.simulation import SeededChoices, World, simulate
from minirun.testing import ScriptedLive

WORD_MS, TICK_MS, TICK_BYTES = 250, 50, 2_400  # sound has 24 000 samples a second, of 16 bits
STORY = "Once upon a time there was a telephone, and nobody who used it had heard a sentence to its end."


async def call(world: World, dialect: Any) -> None:
    """A call, and a look at what the session has of it."""
    model = ScriptedLive(lambda sent: STORY, dialect=dialect, word_ms=WORD_MS)
    runner = world.runner(LlmAgent(name="teller", model=model))
    waiting = deque[str]()  # for each tick that is to be played, of which answer it is
    played_ms = Counter[str]()

    async def play() -> None:
        while True:
            await world.sleep(TICK_MS / 1000)
            if waiting:
                played_ms[waiting.popleft()] += TICK_MS

    async with runner.run_live(user_id="ada", session_id="call") as live, trio.open_nursery() as nursery:

        async def speak() -> None:
            for _ in range(1 + world.choices.choose(4, "sentences")):
                await live.send_audio(b"\1\0" * 1_600)
                await live.send_audio(b"\0\0" * 16_000)  # after so much silence the teller is asked
                await world.sleep(world.choices.choose(80, "patience") / 10)
            for answer, ms in played_ms.items():
                await live.played(answer, ms)
            nursery.cancel_scope.cancel()

        nursery.start_soon(play)
        nursery.start_soon(speak)
        async for event in live:
            answer = (event.live or {}).get("item_id", "")
            if event.partial and event.interrupted:
                world.reached("interruption")
                waiting.clear()
                await live.played(answer, played_ms[answer])
            elif event.audio:
                played_ms[answer] += 0
                waiting.extend([answer] * (len(event.audio) // TICK_BYTES))

    heard: dict[str, str] = {}
    for event in await runner.session_service.read_events(app_name="app", user_id="ada", session_id="call"):
        if event.live is not None and "item_id" in event.live:  # an answer, or what was heard of one that was over
            heard[event.live["item_id"]] = (event.custom_metadata or {}).get("heard", event.text)
    assert all(abs(len(text.split()) - played_ms[answer] / WORD_MS) <= 1 for answer, text in heard.items()), heard


if __name__ == "__main__":
    for dialect in ("gemini", "openai"):
        for seed in range(int(sys.argv[1])):
            simulate(partial(call, dialect=dialect), SeededChoices(seed)).check()
