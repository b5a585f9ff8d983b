"""
Guardrails: a word is blocked before the model is asked, an argument before the tool is called.

After step 6 of ADK's tutorial of an agent team (google/adk-docs, examples/python/tutorial/agent_team). Different: the
model follows a script; what the earlier steps of the tutorial are about is left out (units of temperature, sub-agents
that greet); a hook gets a draft of the request, because requests themselves do not change.
"""

from __future__ import annotations

from typing import Any

import trio

from minirun import Agent, InMemoryRunner, types
from minirun.agents import CallbackContext
from minirun.models import LlmRequestDraft, LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, ToolContext


def get_weather(city: str) -> dict[str, str]:
    """Tell the weather of a city."""
    return {"status": "success", "report": f"Sunny in {city}."}


def block_keyword(callback_context: CallbackContext, llm_request: LlmRequestDraft) -> LlmResponse | None:
    """Answer in the model's place if the user's last text says BLOCK."""
    said = next(each.text for each in reversed(llm_request.contents) if each.role == "user" and each.text)
    if "BLOCK" not in said.upper():
        return None
    callback_context.state["guardrail_block_keyword_triggered"] = True
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="I do not answer that.")]))


def block_paris(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str] | None:
    """Answer in the tool's place if it is asked about Paris."""
    if tool.name != "get_weather" or args.get("city", "").lower() != "paris":
        return None
    tool_context.state["guardrail_tool_block_triggered"] = True
    return {"status": "error", "error_message": "Paris is not looked up."}


script: list[Any] = [call("get_weather", city="London"), "Sunny.", call("get_weather", city="Paris"), "I cannot tell."]
callbacks: Any = {"before_model_callback": block_keyword, "before_tool_callback": block_paris}
root_agent = Agent(
    name="weather_agent", model=ScriptedLlm(script), tools=[get_weather], output_key="last_weather_report", **callbacks
)


async def main() -> None:
    for event in await InMemoryRunner(agent=root_agent).run_debug(["London?", "block this", "Paris?"], quiet=True):
        for response in event.get_function_responses():
            print("tool:", dict(response.response))
        if event.text:
            print("agent:", event.text, list(event.actions.state_delta))


if __name__ == "__main__":
    trio.run(main)
