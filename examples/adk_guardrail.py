"""Callbacks (ADK: callbacks, safety): a word is blocked before the model, an argument before the tool."""

from __future__ import annotations

from typing import Any

import trio

from minirun import Agent, InMemoryRunner, types
from minirun.agents import CallbackContext
from minirun.models import LlmRequestDraft, LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, ToolContext


def get_weather(city: str) -> dict[str, str]:
    """Tell the weather."""
    return {"report": f"Sunny in {city}."}


def block_keyword(callback_context: CallbackContext, llm_request: LlmRequestDraft) -> LlmResponse | None:
    """Answer in the model's place if the user says BLOCK."""
    if "BLOCK" not in llm_request.contents[-1].text:
        return None
    callback_context.state["guardrail_triggered"] = True
    return LlmResponse(content=types.ModelContent("I cannot process this request."))


def block_paris(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str] | None:
    """Answer in the tool's place if it is asked about Paris."""
    return {"error": "Checks for Paris are disabled."} if args.get("city", "").lower() == "paris" else None


root_agent = Agent(
    name="weather_agent",
    model=ScriptedLlm([call("get_weather", city="London"), "Sunny.", call("get_weather", city="Paris"), "No idea."]),
    tools=[get_weather],
    before_model_callback=block_keyword,
    before_tool_callback=block_paris,
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent)
    for event in await runner.run_debug(["London?", "BLOCK this", "Paris?"], quiet=True):
        for response in event.get_function_responses():
            print("tool:", dict(response.response))
        if event.text:
            print("agent:", event.text)


if __name__ == "__main__":
    trio.run(main)
