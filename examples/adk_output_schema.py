"""
A form for answers: what the model says is checked, and is a value in the state.

After fields_output_schema of google/adk-python. Different: the model follows a script; the form is an attrs class, so
that the program needs no pydantic (whose models work, too); the sample has no `main`, because `adk web` shows it.
"""

from __future__ import annotations

import attrs
import trio

from minirun import Agent, InMemoryRunner
from minirun.testing import ScriptedLlm


@attrs.define
class WeatherData:
    temperature: str
    humidity: str
    wind_speed: str


root_agent = Agent(
    name="root_agent",
    model=ScriptedLlm(['{"temperature": "26 C", "humidity": "20%", "wind_speed": "29 mph"}']),
    instruction="Answer from what is known. San Jose: 26 C, 20%, 29 mph. Cupertino: 16 C, 10%, 13 mph.",
    output_schema=WeatherData,
    output_key="weather_data",
)


async def main() -> None:
    [event] = await InMemoryRunner(agent=root_agent).run_debug("What is it like in San Jose?", quiet=True)
    print(event.text)
    print(event.actions.state_delta["weather_data"]["wind_speed"])


if __name__ == "__main__":
    trio.run(main)
