# mypy: ignore-errors
"""
The side of pydantic-ai with models over HTTP, by its adapters, which stand on the official SDKs.

It runs where pydantic-ai is installed, so nothing here is checked for types.
"""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from .protocol import QUESTION, given, serve
from .provider import provider


def model_of(task, url):
    if task.what == "messages":
        return AnthropicModel("claude-opus-4-5", provider=AnthropicProvider(base_url=url, api_key="key"))
    return OpenAIChatModel("gpt-5", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="key"))


async def main(task):
    with provider() as address:
        agent = Agent(model_of(task, f"{address}/{task.size}/1"), instructions="Be brief.")

        async def streamed():
            chunks = 0
            async with agent.run_stream(QUESTION) as result:
                async for _ in result.stream_text(delta=True, debounce_by=None):
                    chunks += 1
            assert chunks >= task.size - 1, chunks  # the first comes with what announces it

        async def make(steps):
            return [streamed] * steps

        await serve(task, make, units=task.size)


if __name__ == "__main__":
    asyncio.run(main(given()))
