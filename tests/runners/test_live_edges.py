"""Where several things of a live run meet: hooks and calls, limits and calls, sending and an interruption."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import InMemoryRunner, LiveRequestQueue, LlmAgent, RunConfig
from minirun.errors import LlmCallsLimitExceededError, NotSupportedError
from minirun.models import LlmResponse
from minirun.plugins import GuardrailPlugin
from minirun.testing import ScriptedLive, call, drop, hear, pause, say
from minirun.testing._live_dialects import DialectName
from minirun.types import Content, Part

from ..live_client import Client, both, conversing, new_runner, stored


@both
async def test_a_blocked_utterance_makes_no_calls(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Words that a hook has answered itself lead to no call, whatever the model makes of them."""
    made: list[str] = []

    async def pay(to: str) -> str:
        """Pay."""
        made.append(to)
        return "paid"

    def block(callback_context: Any, llm_request: Any) -> LlmResponse | None:
        said = llm_request.contents[-1].text
        return LlmResponse(content=Content(role="model", parts=[Part(text="No.")])) if "pay" in said else None

    model = ScriptedLive([[hear("pay eve"), call("pay", to="eve")]], dialect=dialect)
    agent = LlmAgent(name="root", model=model, tools=[pay], before_model_callback=block)
    async with new_runner(model, agent=agent) as runner:
        async with conversing(runner) as client:
            for chunk in (b"\1\1" * 8000, bytes(48000)):
                await client.live.send_audio(chunk)
            await client.until(lambda event: event.text == "No.")
            await trio.sleep(1)
        log = await stored(runner)
    assert made == []
    assert not [event for event in log if event.get_function_calls()]


@both
async def test_what_is_said_beside_calls_counts(dialect: DialectName, autojump_clock: MockClock) -> None:
    """An answer that the model gives while it waits for a tool is one of `max_llm_calls`."""

    async def look() -> str:
        """Look."""
        await trio.sleep(5)
        return "seen"

    model = ScriptedLive([[say("One moment."), call("look"), say("Still looking.")], say("Seen.")], dialect=dialect)
    agent = LlmAgent(name="root", model=model, tools=[look])
    ends: list[type[Exception] | None] = []
    for limit in (1, 5):
        model.restart()
        config = RunConfig(max_llm_calls=limit)
        async with new_runner(model, agent=agent) as runner:
            async with runner.run_live(user_id="u", session_id="s", run_config=config) as live:
                await live.send_text("look")
                client = Client(live)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.read)
                    while not (client.is_over or any("Seen." in event.text for event in client.events)):  # noqa: ASYNC110 # virtual time
                        await trio.sleep(1)
                    nursery.cancel_scope.cancel()
                ends.append(None if client.failure is None else type(client.failure))
    assert ends == [LlmCallsLimitExceededError, None]


@both
async def test_a_caller_that_sends_between_two_events_is_not_waited_for(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """One task that reads and sends: a queue that is full while there is no connection holds nothing up."""
    model = ScriptedLive([[say("one two three"), pause(1), drop(1006)], say("four")], dialect=dialect)
    queue = LiveRequestQueue(audio_s_max=0.5)
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s", live_request_queue=queue) as live:
            await live.send_text("count")
            with trio.fail_after(100):
                async for event in live:
                    if event.interrupted and event.partial:
                        for _ in range(20):
                            await live.send_audio(bytes(4800), rate=model.live_capabilities.input_rate)
                        await live.send_text("go on")
                    if event.text == "four" and not event.partial:
                        await live.aclose()
        texts = [event.text for event in await stored(runner) if event.author == "root" and event.text]
    assert texts[-1] == "four"


@both
async def test_an_answer_is_kept_under_the_key_of_its_agent(dialect: DialectName, autojump_clock: MockClock) -> None:
    """`output_key` gets the text of each whole answer, with its event."""
    model = ScriptedLive([say("Noon."), say("One.")], dialect=dialect)
    agent = LlmAgent(name="root", model=model, output_key="said")
    async with new_runner(model, agent=agent) as runner:
        async with conversing(runner) as client:
            await client.ask("when?")
            await client.ask("and then?")
        answers = [event for event in await stored(runner) if event.author == "root" and event.text]
    assert [event.actions.state_delta for event in answers] == [{"said": "Noon."}, {"said": "One."}]


@pytest.mark.parametrize("what", ["plugin", "output_guardrails", "on_model_error_callback"])
def test_what_would_have_no_effect_is_refused(what: str) -> None:
    """Guardrails, which need whole answers, and a hook for a model that fails are refused by name."""

    def check(*arguments: object, **named: object) -> None:
        raise AssertionError

    fields: dict[str, Any] = {} if what == "plugin" else {what: [check] if what.startswith("output") else check}
    plugins = [GuardrailPlugin(output=[check])] if what == "plugin" else []
    agent = LlmAgent(name="root", model=ScriptedLive([]), **fields)
    runner = InMemoryRunner(agent=agent, plugins=plugins)
    with pytest.raises(NotSupportedError, match="GuardrailPlugin" if what == "plugin" else what):
        runner.run_live(user_id="u", session_id="s")
