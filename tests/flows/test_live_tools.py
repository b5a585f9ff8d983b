"""Tools of live runs that go on beside the conversation: streams, calls that an interruption ends, handovers."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from minirun import LlmAgent, SequentialAgent
from minirun.testing import LiveSent, ScriptedLive, call

from ..live_runs import DIALECTS, runner_of, sent
from .test_live_questions import conversation

both = pytest.mark.parametrize("dialect", DIALECTS)


# --- streams ----------------------------------------------------------------------------------------------------------


# --- interruptions ----------------------------------------------------------------------------------------------------


# --- handovers --------------------------------------------------------------------------------------------------------


@both
async def test_what_is_said_during_a_handover_goes_to_the_new_agent(
    dialect: Any, autojump_clock: trio.abc.Clock
) -> None:
    """From the call on nothing goes to the agent that leaves; the new connection is open before the old one closes."""
    front = ScriptedLive(
        lambda each: [call("transfer_to_agent", agent_name="shop")] if each.text == "buy" else "front",
        dialect=dialect, name="front",
    )  # fmt: skip
    back = ScriptedLive(lambda each: f"shop: {each.text}", dialect=dialect, name="back")
    shop = LlmAgent(name="shop", model=back)
    runner = runner_of(LlmAgent(name="guide", model=front, sub_agents=[shop]))
    order: list[str] = []
    async with conversation(runner) as talk:
        await talk.live.send_text("buy")
        while not any("transfer_to_agent!" in line for line in talk.lines):
            await trio.lowlevel.checkpoint()
        await talk.live.send_text("a hat")
        await talk.quiet()
    order = [f"{model.name} {each.kind}" for model in (front, back) for each in model.sent]
    assert "a hat" not in sent(front)
    assert any("a hat" in each.text for each in back.sent)
    opened = next(each.at for each in back.sent if each.kind == "connect")
    closed = next(each.at for each in front.sent if each.kind == "close")
    assert opened <= closed, order
    assert any(line.startswith("shop: ") for line in talk.lines)


@both
async def test_a_failed_handover_releases_what_was_held(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Where the handover is refused, what was said meanwhile goes to the agent that has stayed."""

    def script(each: LiveSent) -> Any:
        return [call("transfer_to_agent", agent_name="nobody")] if each.text == "buy" else f"so: {each.text}"

    front = ScriptedLive(script, dialect=dialect)
    shop = LlmAgent(name="shop", model=ScriptedLive([], dialect=dialect))
    runner = runner_of(LlmAgent(name="guide", model=front, sub_agents=[shop]))
    async with conversation(runner) as talk:
        await talk.live.send_text("buy")
        while not any("transfer_to_agent!" in line for line in talk.lines):
            await trio.lowlevel.checkpoint()
        await talk.live.send_text("a hat")
        await talk.quiet()
        assert "guide: so: a hat" in talk.lines


@both
async def test_members_of_a_sequence_say_when_they_are_done(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """An agent of a SequentialAgent has `task_completed`; when it calls that the next one goes on."""
    first = ScriptedLive(lambda each: [call("task_completed")] if "name" in each.text else "Who?", dialect=dialect)
    second = ScriptedLive(lambda each: "What else?", dialect=dialect)
    agents = [LlmAgent(name="ask", model=first), LlmAgent(name="then", model=second)]
    async with conversation(runner_of(SequentialAgent(name="both", sub_agents=agents))) as talk:
        await talk.live.send_text("hello")
        await talk.quiet()
        await talk.live.send_text("my name is Ada")
        await talk.quiet()
        await talk.live.send_text("go on")
        await talk.quiet()
    assert "ask: task_completed=done" in talk.lines
    assert any(line.startswith("then: What else?") for line in talk.lines)


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"
