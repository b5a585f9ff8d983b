# mypy: ignore-errors
"""
The side of openai's SDK alone: a streamed answer, chunk by chunk.

It runs where the SDK is installed, so nothing here is checked for types.
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI

from .protocol import QUESTION, given, serve
from .provider import provider


async def stream(task, url):
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="key") as client:

        async def streamed():
            chunks = 0
            said = [{"role": "user", "content": QUESTION}]
            options = {"include_usage": True}
            stream = await client.chat.completions.create(
                model="gpt-5", messages=said, stream=True, stream_options=options
            )
            async with stream:
                async for chunk in stream:
                    if chunk.choices and chunk.choices[0].delta.content:
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
