"""
The floor of models over HTTP: httpx2, a plain reader of server-sent events, and json; the text of each chunk is taken.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import trio

from .protocol import CHUNK, QUESTION, STREAM_CHUNKS, Crowd, Step, Task, Told, allow_many_files, given, serve
from .provider import provider

CHAT = "chat"
PATHS = {CHAT: "/chat/completions", "messages": "/messages"}


def text_of(what: str, event: dict[str, Any]) -> str | None:
    """What a chunk says; None if it says nothing."""
    if what == "messages":
        return event["delta"]["text"] if event["type"] == "content_block_delta" else None
    return event["choices"][0]["delta"].get("content") or None if event["choices"] else None


async def data_of(response: httpx2.Response) -> AsyncIterator[str]:
    """The data of the events, as a plain reader has it: lines up to a blank one."""
    rest = b""
    async for piece in response.aiter_bytes():
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data: "):
                    yield line[6:].decode()


async def streamed(client: httpx2.AsyncClient, what: str, url: str) -> int:
    """Ask once; returns how many chunks came."""
    said = {"model": "m", "stream": True, "messages": [{"role": "user", "content": QUESTION}]}
    chunks = 0
    async with client.stream("POST", url + PATHS[what], json=said) as response:
        async for data in data_of(response):
            if data == "[DONE]":
                continue
            text = text_of(what, json.loads(data))
            if text is not None:
                assert text == CHUNK
                chunks += 1
    return chunks


@asynccontextmanager
async def opened() -> AsyncIterator[httpx2.AsyncClient]:
    """A client like that of minirun."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    async with httpx2.AsyncClient(trust_env=False, limits=limits, timeout=600) as client:
        yield client


async def stream(task: Task, client: httpx2.AsyncClient, address: str) -> None:
    """One answer after another."""

    async def once() -> None:
        assert await streamed(client, task.what, f"{address}/{task.size}/1/v1") == task.size

    async def make(steps: int) -> list[Step]:
        return [once] * steps

    await serve(task, make, units=task.size)


async def streams(task: Task, client: httpx2.AsyncClient, address: str) -> None:
    """Many answers at once."""

    async def once(together: int) -> None:
        assert await streamed(client, CHAT, f"{address}/{STREAM_CHUNKS}/{together}/v1") == STREAM_CHUNKS

    async def make(steps: int) -> list[Step]:
        await once(1)

        async def all_at_once() -> Told:
            members = Crowd(once, turns=1)
            async with trio.open_nursery() as nursery:
                for _ in range(task.size):
                    nursery.start_soon(members.member, task.size)
            return members.told()

        return [all_at_once]

    await serve(task, make, units=task.size * STREAM_CHUNKS)


async def main(task: Task) -> None:
    """Play the scenario."""
    allow_many_files()
    with provider() as address:
        async with opened() as client:
            await (streams if task.what == "streams" else stream)(task, client, address)


if __name__ == "__main__":
    trio.run(main, given())
