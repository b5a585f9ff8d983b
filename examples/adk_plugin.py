"""
A plugin: it counts how often agents run and models are asked, for all agents of the runner.

After plugin_basic of google/adk-python. Different: the model follows a script; program and plugin are one file; a hook
gets a draft of the request, because requests themselves do not change.
"""

from __future__ import annotations

import trio

from minirun import Agent, BaseAgent, InMemoryRunner, types
from minirun.agents import CallbackContext
from minirun.models import LlmRequestDraft
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext


class CountInvocationPlugin(BasePlugin):
    def __init__(self) -> None:
        super().__init__(name="count_invocation")
        self.agent_count = 0
        self.llm_request_count = 0

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        self.agent_count += 1
        print(f"plugin: {self.agent_count} runs of agents")

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        self.llm_request_count += 1
        print(f"plugin: {self.llm_request_count} requests")


async def hello_world(tool_context: ToolContext, query: str) -> None:
    """Print what the user says."""
    print(f"the user said {query!r}")


root_agent = Agent(
    name="hello_world",
    model=ScriptedLlm([call("hello_world", query="hello world"), "Printed."]),
    description="Prints queries.",
    instruction="Print the user's query with hello_world.",
    tools=[hello_world],
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name="plugins", plugins=[CountInvocationPlugin()])
    session = await runner.session_service.create_session(app_name="plugins", user_id="user")
    message = types.Content(role="user", parts=[types.Part.from_text(text="hello world")])
    async with runner.run_async(user_id="user", session_id=session.id, new_message=message) as run:
        async for event in run:
            print(f"an event of {event.author}")


if __name__ == "__main__":
    trio.run(main)
