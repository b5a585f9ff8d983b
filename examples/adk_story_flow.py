"""
An agent with logic of its own: a story is written, revised, checked, and written anew if its tone is wrong.

After storyflow_agent.py of google/adk-docs (examples/python/snippets/agents/custom-agent). Different: the models follow
scripts; the logic awaits its agents and passes no events on; the topic comes with the run; less is logged.
"""

from __future__ import annotations

import trio

from minirun import BaseAgent, InMemoryRunner, InvocationContext, LlmAgent, LoopAgent, SequentialAgent
from minirun.testing import ScriptedLlm


class StoryFlowAgent(BaseAgent):
    generator: LlmAgent
    loop: LoopAgent
    post: SequentialAgent

    def __init__(self, name: str, generator: LlmAgent, critic: LlmAgent, reviser: LlmAgent, *checks: LlmAgent) -> None:
        loop = LoopAgent(name="CriticReviserLoop", sub_agents=[critic, reviser], max_iterations=2)
        post = SequentialAgent(name="PostProcessing", sub_agents=checks)
        subs = [generator, loop, post]
        super().__init__(name=name, generator=generator, loop=loop, post=post, sub_agents=subs)  # type: ignore[call-arg]

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await self.generator.run_async(ctx)
        if ctx.session.state.get("current_story"):
            await self.loop.run_async(ctx)
            await self.post.run_async(ctx)
            if ctx.session.state.get("tone_check_result") == "negative":
                await self.generator.run_async(ctx)


def agent(name: str, instruction: str, key: str, *answers: str) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedLlm([*answers]), instruction=instruction, output_key=key)


root_agent = StoryFlowAgent(
    "StoryFlowAgent",
    agent("StoryGenerator", "Write about a cat and {topic}.", "current_story", "A sad cat.", "A happy cat."),
    agent("Critic", "Criticise: {current_story}", "criticism", "Too short.", "Too sad."),
    agent("Reviser", "{criticism} Revise: {current_story}", "current_story", "A very sad cat.", "An old sad cat."),
    agent("GrammarCheck", "Check: {current_story}", "grammar_suggestions", "Fine."),
    agent("ToneCheck", "Positive or negative? {current_story}", "tone_check_result", "negative"),
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, auto_create_session=True)
    topic = {"topic": "a clock"}
    async with runner.run_async(user_id="u", session_id="s", new_message="Write!", state_delta=topic) as run:
        print(*[f"{event.author}: {event.text}" async for event in run], sep="\n")
    print(list(run.session.state))


if __name__ == "__main__":
    trio.run(main)
