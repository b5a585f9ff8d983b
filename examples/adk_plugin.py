"""A plugin (ADK: plugin_basic): it counts agents and questions to models, for all agents of the runner."""

from __future__ import annotations

import trio

from minirun import Agent, BaseAgent, InMemoryRunner
from minirun.agents import CallbackContext
from minirun.models import LlmRequestDraft
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call


async def hello_world(query: str) -> str:
    """Say it."""
    return f"Hello {query}"


class CountInvocationPlugin(BasePlugin):
    """Counts."""

    def __init__(self) -> None:
        super().__init__(name="count_invocation")
        self.agent_count = 0
        self.llm_request_count = 0

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        self.agent_count += 1
        print(f"[Plugin] Agent run count: {self.agent_count}")

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft
    ) -> None:
        self.llm_request_count += 1
        print(f"[Plugin] LLM request count: {self.llm_request_count}")


root_agent = Agent(
    name="hello_world", model=ScriptedLlm([call("hello_world", query="Ada"), "Hello Ada!"]), tools=[hello_world]
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name="plugins", plugins=[CountInvocationPlugin()])
    events = await runner.run_debug("Say hello to Ada.", quiet=True)
    print(events[-1].text)


if __name__ == "__main__":
    trio.run(main)
