"""
Ask a model of Google: `pip install 'minirun[models]'`, then `python examples/hello_gemini.py KEY "What is 2 + 3?"`.

Without a key on the command line, the program itself takes it from GEMINI_API_KEY; minirun reads no variable.
"""

import argparse
import os

import trio

from minirun import InMemoryRunner, LlmAgent, RunConfig, StreamingMode
from minirun.models.gemini import BASE_URL, Gemini


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main(key: str, question: str, name: str, base_url: str) -> None:
    model = Gemini(name, api_key=key, base_url=base_url)
    agent = LlmAgent(name="helper", model=model, instruction="Be brief. Use your tools.", tools=[add])
    async with InMemoryRunner(agent=agent, auto_create_session=True) as runner:
        streaming = RunConfig(streaming_mode=StreamingMode.SSE)
        async with runner.run_async(user_id="u", session_id="s", new_message=question, run_config=streaming) as run:
            async for event in run:
                if event.partial:
                    print(event.text or "", end="", flush=True)
                for call in event.get_function_calls():
                    print(f"[{call.name} {dict(call.args)}]")
    print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("key", nargs="?", default=os.environ.get("GEMINI_API_KEY", ""))
    parser.add_argument("question", nargs="?", default="What is 2 + 3?")
    parser.add_argument("--model", default="gemini-3-pro")
    parser.add_argument("--base-url", default=BASE_URL)
    asked = parser.parse_args()
    trio.run(main, asked.key, asked.question, asked.model, asked.base_url)
