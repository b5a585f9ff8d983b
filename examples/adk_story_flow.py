"""An agent with logic of its own (ADK: custom agents): a loop of critic and reviser inside, and an `__init__`."""

from __future__ import annotations

import trio

from minirun import BaseAgent, InMemoryRunner, InvocationContext, LlmAgent, LoopAgent
from minirun.testing import ScriptedLlm, call
from minirun.tools import exit_loop


class StoryFlowAgent(BaseAgent):
    """Writes a story, has it revised, and writes another one if the tone is wrong."""

    generator: LlmAgent
    loop: LoopAgent
    tone: LlmAgent

    def __init__(self, name: str, generator: LlmAgent, critic: LlmAgent, reviser: LlmAgent, tone: LlmAgent) -> None:
        loop = LoopAgent(name="critic_reviser", sub_agents=[critic, reviser], max_iterations=3)
        subs: list[BaseAgent] = [generator, loop, tone]
        super().__init__(name=name, generator=generator, loop=loop, tone=tone, sub_agents=subs)  # type: ignore[call-arg]

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await self.generator.run_async(ctx)
        await self.loop.run_async(ctx)
        await self.tone.run_async(ctx)
        if ctx.session.state["tone"] == "negative":
            await self.generator.run_async(ctx)


root_agent = StoryFlowAgent(
    "story_flow",
    LlmAgent(name="generator", model=ScriptedLlm(["A sad cat.", "A happy cat."]), output_key="story"),
    LlmAgent(name="critic", model=ScriptedLlm(["Too short.", call("exit_loop")]), tools=[exit_loop]),
    LlmAgent(name="reviser", model=ScriptedLlm(["A very sad cat."]), output_key="story"),
    LlmAgent(name="tone_check", model=ScriptedLlm(["negative"]), instruction="Tone of {story}?", output_key="tone"),
)


async def main() -> None:
    for event in await InMemoryRunner(agent=root_agent).run_debug("Write about a cat.", quiet=True):
        if event.text:
            print(f"{event.author}: {event.text}")


if __name__ == "__main__":
    trio.run(main)
