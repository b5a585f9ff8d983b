"""Which agents speak in a live run, and how: agents as tools, with logic of their own, and those that cannot."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import AgentTool, BaseAgent, Event, InMemoryRunner, InvocationContext, LlmAgent, LoopAgent, SequentialAgent
from minirun.errors import InvocationEndedError, NotSupportedError
from minirun.testing import LiveSent, ScriptedLive, ScriptedLlm, call, say
from minirun.testing._live_dialects import DialectName
from minirun.tools import FunctionTool

from ..live_client import both, conversing, is_over, lines, new_runner, sent_of, stored


@both
async def test_an_agent_as_a_tool_is_asked_in_writing(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Inside of a call nobody converses: its model answers a request, in a branch of its own."""
    inner = ScriptedLlm(["it is noon"])
    helper = LlmAgent(name="helper", description="Helps.", model=inner)
    model = ScriptedLive([[call("helper", request="what time is it?")], say("Noon.")], dialect=dialect)
    async with new_runner(model, tools=[AgentTool(helper)]) as runner:
        async with conversing(runner) as client:
            await client.live.send_text("time?")
            await client.until(lambda event: event.text == "Noon." and not event.partial)
        log = await stored(runner)
    assert lines(log) == [
        "user: time?", "root: helper()", "helper: it is noon", "root: helper=it is noon", "root: Noon.",
    ]  # fmt: skip
    assert [event.branch for event in log if event.author == "helper"] == ["helper@call-1"]
    assert [content.text for content in inner.requests[0].contents] == ["what time is it?"]


class Greeter(BaseAgent):
    """An agent that says what it says in a live run by itself."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="in writing"))

    async def _run_live_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="live"))


class Silent(BaseAgent):
    """An agent that only knows runs in writing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="in writing"))


def deciding(*arguments: Any, **named: Any) -> None:
    """Decide nothing."""


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (
            Silent(name="a"),
            "the Silent 'a' cannot converse in a live run: LlmAgents and SequentialAgents of them can",
        ),
        (
            LoopAgent(name="a", sub_agents=[LlmAgent(name="b", model=ScriptedLive([]))]),
            "the LoopAgent 'a' cannot converse in a live run",
        ),
        (
            SequentialAgent(name="s", sub_agents=[Silent(name="a")]),
            "the Silent 'a' cannot converse in a live run",
        ),
        (
            LlmAgent(name="a", model=ScriptedLive([]), output_schema={"type": "object"}),
            "output_schema of agent 'a' needs whole responses, and has no effect in a live run; leave it out, or use r",
        ),
        (
            LlmAgent(name="a", model=ScriptedLive([]), output_validator=lambda context, answer: None),
            "output_validator of agent 'a' needs whole responses",
        ),
        (
            LlmAgent(name="a", model=ScriptedLive([]), input_guardrails=[lambda context, content: None]),
            "input_guardrails of agent 'a' needs whole responses",
        ),
        (
            LlmAgent(name="a", model=ScriptedLive([]), on_model_error_callback=deciding),
            "on_model_error_callback of agent 'a' has no effect in a live run",
        ),
    ],
    ids=["own logic", "loop", "below", "schema", "validator", "guardrail", "hook"],
)
def test_what_cannot_speak_is_refused_before_the_run(agent: BaseAgent, message: str) -> None:
    """By its class and name, wherever it stands below the root."""
    with pytest.raises(NotSupportedError, match=message):
        InMemoryRunner(agent=agent).run_live(user_id="u", session_id="s")


async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def asking(sent: LiveSent) -> Any:
    """A model that pays first."""
    return [call("pay", amount=7)] if sent.text == "go" else say("Well.")


@both
async def test_an_agent_can_have_live_logic_of_its_own(dialect: DialectName, autojump_clock: MockClock) -> None:
    """`_run_live_impl` runs instead; in a sequence the next agent converses then, and is given what was said."""
    model = ScriptedLive([say("Hello."), say("Yes?")], dialect=dialect)
    agent = SequentialAgent(name="all", sub_agents=[Greeter(name="greeter"), LlmAgent(name="root", model=model)])
    async with InMemoryRunner(agent=agent, auto_create_session=True) as runner, conversing(runner) as client:
        await client.until(is_over)
        await client.ask("hi")
    assert lines(client.events) == ["greeter: live", "root: Hello.", "user: hi", "root: Yes?"]
    [history] = sent_of(model, "history")
    assert [content.text for content in history.contents] == ["[greeter] said: live"]


async def test_input_waits_while_another_call_delays_a_transfer(autojump_clock: MockClock) -> None:
    """From the call of the transfer on, the input waits for the next agent, whose connection it goes to."""

    async def slow() -> str:
        """Take two seconds."""
        await trio.sleep(2)
        return "done"

    front = ScriptedLive([[call("slow"), call("transfer_to_agent", agent_name="shop")]], dialect="gemini")
    back = ScriptedLive([say("Shop."), say("A hat.")], dialect="gemini")
    shop = LlmAgent(name="shop", model=back)
    agent = LlmAgent(name="root", model=front, sub_agents=[shop], tools=[slow])
    async with new_runner(front, agent=agent) as runner, conversing(runner) as client:
        began = trio.current_time()
        await client.live.send_text("buy")
        await trio.sleep(1)
        await client.live.send_text("a hat")
        await client.until(lambda event: event.text == "A hat." and event.turn_complete)
    assert [each.text for each in sent_of(front, "content")] == ["buy"]
    assert [(each.text, each.at - began) for each in sent_of(back, "content")] == [("a hat", 2.0)]


@both
async def test_a_reply_after_the_end_is_refused(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The run closes its open requests as cancelled when it ends, so a later reply finds none."""
    model = ScriptedLive(asking, dialect=dialect)
    tools = [FunctionTool(pay, require_confirmation=True)]
    async with new_runner(model, tools=tools) as runner, conversing(runner) as client:
        await client.live.send_text("go")
        await trio.sleep(5)
        [request] = client.live.pending
        await client.live.aclose()
        await client.hear_out()
        with pytest.raises(InvocationEndedError):
            await client.live.send(request.reply(True))
        log = await stored(runner)
    assert client.live.status.value == "completed"
    assert client.live.pending == []
    closed = [each.response["error"]["type"] for event in log for each in event.get_function_responses()]
    assert closed == ["cancelled", "cancelled"]
