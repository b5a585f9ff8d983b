"""
A world in which guardrails look at messages and at answers, beside the models that give them.

Its laws: nobody is shown, and no log has, an answer to a message that was refused, nor one that was refused itself; no
model is shown a refused message later, or one that was replaced; and a verdict that is stored is not given again.
"""

from __future__ import annotations

from typing import Any

import trio

from minirun import App, Event, LlmAgent, ParallelAgent, RunConfig, SequentialAgent, StreamingMode
from minirun.agents import BaseAgent, Guardrail
from minirun.errors import GuardrailTripwireError, ModelContractError, ModelError, ModelRetry
from minirun.models import LlmRequest
from minirun.plugins import BasePlugin, GuardrailPlugin
from minirun.runtime import CallbackContext
from minirun.simulation import World
from minirun.testing import ScriptedLlm, call
from minirun.types import Content

from .laws import check_calls, expect, read_logs

__all__ = ["gate"]

MESSAGES = ("hello", "bad news", "my card", "be rude", "hm")
# What nobody may ever be shown, or find in a log, of what the models say.
FORBIDDEN = ("answer to bad", "answer to my card", "rude answer")


async def gate(world: World) -> None:
    """Two users say what may pass, or not; what their models answer meanwhile is held."""

    def is_refused(text: str) -> bool:
        return any(words in text for words in FORBIDDEN)

    class Watching(BasePlugin):
        async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
            expect(event.author == "user" or not is_refused(event.text), f"{event.text!r} is shown")

        async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
            content = llm_response.content
            expect(content is None or not is_refused(content.text), f"a hook was told {content}")

    async def at_door(ctx: CallbackContext, content: Content) -> str | None:
        events = ctx.session.events
        asked = [event.id for event in events if event.author == "user" and event.text == content.text]
        steps = [event.actions.replay.step for event in events]
        paths = {step.path for step in steps if step is not None and step.path.startswith("plugin guardrails")}
        given = [path for path in paths if path.rpartition(" ")[2] in asked]
        expect(len(given) < len(asked), "a verdict that is stored is given again")
        await world.sleep(world.choices.choose(3, "the guardrail takes its time"))
        if "bad" in content.text:
            raise GuardrailTripwireError({"refused": True})
        if "hm" in content.text:
            raise ModelRetry("note this")
        return content.text.replace("card", "[hidden]") if "card" in content.text else None

    async def at_exit(ctx: CallbackContext, content: Content) -> str | None:
        await world.sleep(0)
        return "a polite answer" if "rude" in content.text else None

    async def look() -> str:
        await world.sleep(0)
        return "seen"

    def script(request: LlmRequest) -> Any:
        texts = [content.text for content in request.contents if content.role == "user" and content.text]
        for text in texts[:-1]:
            expect("bad" not in text and "card" not in text, f"a model is shown {text!r} in a later turn")
        last = "rude" if "be rude" in texts[-1] else texts[-1]
        if not request.contents[-1].responses and "hello" in last:
            return call("look")
        return ["rude answer ", "indeed"] if last == "rude" else [f"answer to {last} ", "and so on"]

    def agent() -> BaseAgent:
        own = [Guardrail(lambda ctx, content: None, name="own")]
        first = LlmAgent(name="first", model=ScriptedLlm(script), tools=[look], input_guardrails=own)
        second = LlmAgent(name="second", model=ScriptedLlm(script), tools=[look])
        if kind == 0:
            return first
        return (ParallelAgent if kind == 1 else SequentialAgent)(name="both", sub_agents=[first, second])

    def app() -> App:
        guardrails = GuardrailPlugin(input=[at_door], output=[at_exit])
        return App("app", agent(), plugins=[guardrails, Watching("watching")])

    async def talk(user: str) -> None:
        for number in range(3):
            text = MESSAGES[world.choices.choose(len(MESSAGES), "what is said")]
            try:
                await world.say(runner, user, f"{text} {number}", run_config=config)
            except GuardrailTripwireError as error:
                expect("bad" in text, f"{text!r} was refused")
                expect(error.info == {"refused": True}, f"the info is {error.info}")
                world.reached("a message was refused")
            except (ModelContractError, ModelError):
                world.reached("the model has failed")

    config = RunConfig(streaming_mode=StreamingMode.SSE)
    kind = world.choices.choose(3, "which agents there are")
    runner = world.runner(app)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk, "ada")
        nursery.start_soon(talk, "bob")
    for (user, _), log in (await read_logs(world, runner)).items():
        check_calls(world, log)
        for event in log:
            text = f"{event.text} {event.output}"
            expect(event.author == "user" or not is_refused(text), f"the log of {user} has {text!r}")
            if event.output is not None and event.output["verdict"] != "passed":
                world.reached(f"a message was {event.output['verdict']}")
        places = [event.actions.replay.step.path for event in log if event.actions.replay.step is not None]
        expect(len(places) == len(set(places)), "a verdict is stored twice")
