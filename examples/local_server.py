"""
Ask a model on a server of yours (Ollama, vLLM, llama.cpp, LM Studio …): `pip install 'minirun[models]'`, then
`python examples/local_server.py qwen3 "What is 2 + 3?" --base-url http://localhost:11434/v1`. It needs no key.
"""

import argparse

import trio

from minirun import InMemoryRunner, LlmAgent
from minirun.models.openai import OpenAIChat


async def main(name: str, question: str, base_url: str) -> None:
    agent = LlmAgent(name="helper", model=OpenAIChat(name, base_url=base_url), instruction="Be brief.")
    async with InMemoryRunner(agent=agent, auto_create_session=True) as runner:
        async with runner.run_async(user_id="u", session_id="s", new_message=question) as run:
            answer = await run.wait()
    if answer is not None:
        print(answer.text)
        print(answer.model_version, answer.usage_metadata.total_token_count if answer.usage_metadata else "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("question", nargs="?", default="What is 2 + 3?")
    parser.add_argument("--base-url", default="http://localhost:11434/v1")
    asked = parser.parse_args()
    trio.run(main, asked.model, asked.question, asked.base_url)
