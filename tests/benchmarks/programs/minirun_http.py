"""
The side of minirun with models over HTTP: from the socket to the event that the caller of `Runner.run_async` sees.
"""

from __future__ import annotations

from functools import partial

import trio

from minirun import InMemorySessionService, LlmAgent, Runner
from minirun.models.anthropic import Claude
from minirun.models.openai import OpenAIChat

from .minirun import SSE, new_session, runner_of, turn
from .protocol import STREAM_CHUNKS, Crowd, Step, Task, Told, allow_many_files, given, serve
from .provider import provider


def runner_over(what: str, url: str) -> Runner:
    """A runner whose agent asks the model there."""
    if what == "messages":
        model: OpenAIChat | Claude = Claude("claude-opus-4-5", base_url=url, api_key="key")
    else:
        model = OpenAIChat("gpt-5", base_url=f"{url}/v1", api_key="key")
    agent = LlmAgent(name="agent", model=model, instruction="Be brief.")
    return runner_of(agent, InMemorySessionService())


async def streamed(runner: Runner, chunks: int, session_id: str) -> None:
    """A turn whose model answers in so many chunks, each of which the caller sees."""
    assert await turn(runner, session_id, SSE) == chunks + 1


async def stream(task: Task, address: str) -> None:
    """One turn after another."""
    async with runner_over(task.what, f"{address}/{task.size}/1") as runner:

        async def make(steps: int) -> list[Step]:
            ids = [await new_session(runner.session_service) for _ in range(steps)]
            return [partial(streamed, runner, task.size, session_id) for session_id in ids]

        await serve(task, make, units=task.size)


async def streams(task: Task, address: str) -> None:
    """Turns of many sessions at once."""
    alone = runner_over("chat", f"{address}/{STREAM_CHUNKS}/1")
    async with alone, runner_over("chat", f"{address}/{STREAM_CHUNKS}/{task.size}") as runner:

        async def make(steps: int) -> list[Step]:
            await streamed(alone, STREAM_CHUNKS, await new_session(alone.session_service))
            ids = [await new_session(runner.session_service) for _ in range(task.size)]

            async def all_at_once() -> Told:
                members = Crowd(partial(streamed, runner, STREAM_CHUNKS), turns=1)
                async with trio.open_nursery() as nursery:
                    for session_id in ids:
                        nursery.start_soon(members.member, session_id)
                return members.told()

            return [all_at_once]

        await serve(task, make, units=task.size * STREAM_CHUNKS)


async def main(task: Task) -> None:
    """Play the scenario."""
    allow_many_files()
    with provider() as address:
        await (streams if task.what == "streams" else stream)(task, address)


if __name__ == "__main__":
    trio.run(main, given())
