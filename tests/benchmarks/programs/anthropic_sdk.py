# mypy: ignore-errors
"""
The side of anthropic's SDK alone: a streamed answer, chunk by chunk.

It runs where the SDK is installed, so nothing here is checked for types.
"""

from __future__ import annotations

import asyncio

from anthropic import AsyncAnthropic

from .protocol import QUESTION, given, serve
from .provider import provider


async def stream(task, url):
    async with AsyncAnthropic(base_url=url, api_key="key") as client:

        async def streamed():
            chunks = 0
            said = [{"role": "user", "content": QUESTION}]
            stream = await client.messages.create(model="claude-opus-4-5", max_tokens=8192, messages=said, stream=True)
            async with stream:
                async for event in stream:
                    if event.type == "content_block_delta" and event.delta.text:
                        chunks += 1
            assert chunks == task.size, chunks

        async def make(steps):
            return [streamed] * steps

        await serve(task, make, units=task.size)


async def main(task):
    with provider() as address:
        await stream(task, f"{address}/{task.size}/1")


if __name__ == "__main__":
    asyncio.run(main(given()))
