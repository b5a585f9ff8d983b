"""A form for answers (ADK: fields_output_schema): what the model says is checked, and is a value in the state."""

from __future__ import annotations

import attrs
import trio

from minirun import Agent, InMemoryRunner
from minirun.testing import ScriptedLlm, call


@attrs.define
class WeatherData:
    """What the agent answers with; ADK has a pydantic model here."""

    temperature: str
    humidity: str


def get_current_year() -> str:
    """Tell the year."""
    return "2026"


root_agent = Agent(
    name="root_agent",
    model=ScriptedLlm(
        [call("get_current_year"), call("set_model_response", temperature="20 C", humidity="41 %")]
    ),
    instruction="Answer with the weather.",
    tools=[get_current_year],
    output_schema=WeatherData,
    output_key="weather_data",
)


async def main() -> None:
    events = await InMemoryRunner(agent=root_agent).run_debug("How is it?", quiet=True)
    print(events[-1].text)
    print(events[-1].actions.state_delta["weather_data"]["temperature"])


if __name__ == "__main__":
    trio.run(main)
