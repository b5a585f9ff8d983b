"""
A conversation that is recorded once and replayed afterwards: only the first run calls the model.

The fixture `cassette` of pytest does the same for tests. Put a real model where `provider` is made. Run it twice in one
folder: `python examples/recorded_model.py`.
"""

from __future__ import annotations

import trio

from minirun import InMemoryRunner, LlmAgent, RunConfig
from minirun.models import RecordedLlm
from minirun.runtime import StreamingMode
from minirun.testing import ScriptedLlm, call

CASSETTE = "capital.json"


async def population(city: str) -> dict[str, float]:
    """How many people live in a city, in millions."""
    return {"millions": {"Lima": 10.2, "Quito": 1.9}.get(city, 0.0)}


async def main() -> None:
    """Ask two questions, and tell how often the model was asked."""
    provider = ScriptedLlm(
        [call("population", city="Lima"), ["Ten ", "million."], call("population", city="Quito"), ["Two ", "million."]],
        latency_s=0.1,
    )
    is_recorded = await trio.Path(CASSETTE).exists()
    model = RecordedLlm(provider, CASSETTE, mode="replay" if is_recorded else "record")
    agent = LlmAgent(name="geographer", model=model, instruction="Answer in two words.", tools=[population])
    runner = InMemoryRunner(agent=agent, auto_create_session=True)
    streaming = RunConfig(streaming_mode=StreamingMode.SSE)
    for question in ("How large is Lima?", "And Quito?"):
        async with runner.run_async(
            user_id="ada", session_id="atlas", new_message=question, run_config=streaming
        ) as run:
            pieces = [event.text async for event in run if event.partial]
        print(question, pieces)
    await model.aclose()
    print(f"the model was asked {len(provider.requests)} times")


if __name__ == "__main__":
    trio.run(main)
