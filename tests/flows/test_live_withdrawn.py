"""Calls that the model takes back while they wait for somebody: nobody is asked any more."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from minirun.errors import InvalidMessageError
from minirun.testing import LiveSent, ScriptedLive, call, cancel_calls
from minirun.tools import FunctionTool, LongRunningFunctionTool

from ..live_runs import live_runner, sent
from .test_live_questions import Till, conversation, name_of, talkative


@pytest.mark.parametrize("kind", ["confirmation", "input", "long-running"])
async def test_a_call_that_is_withdrawn_while_it_waits_asks_nobody_any_more(
    kind: str, autojump_clock: trio.abc.Clock
) -> None:
    """Call and question are answered as cancelled, the model hears nothing more of them, and the run completes."""
    till, model = Till(), ScriptedLive(talkative)
    tools = {
        "confirmation": FunctionTool(till.pay, require_confirmation=True),
        "input": FunctionTool(name_of),
        "long-running": LongRunningFunctionTool(till.pay),
    }
    runner = live_runner(model, tools[kind])
    async with conversation(runner) as talk:
        await talk.live.send_text("call name_of" if kind == "input" else "call pay 7")
        await talk.quiet()
        (question,) = talk.live.pending
        told = sent(model)
        model.play(cancel_calls("call-1"))
        closed = await talk.quiet()
        assert talk.live.pending == []
        assert "the model has taken the call back" in closed[-1]
        with pytest.raises(InvalidMessageError):
            await talk.live.send(question.reply({"result": 1} if kind == "long-running" else True))
        assert sent(model) == told
    assert talk.live.status == "completed"
    assert till.paid == ([7] if kind == "long-running" else [])


async def test_a_call_may_be_withdrawn_while_another_one_of_its_answer_is_made(autojump_clock: trio.abc.Clock) -> None:
    """Its question is closed when those beside it are done; their results are told."""
    till = Till()

    async def look() -> str:
        """Look for a while."""
        await trio.sleep(20)
        return "seen"

    def script(each: LiveSent) -> Any:
        return [call("pay", amount=1), call("look")] if each.text == "go" else "hm"

    model = ScriptedLive(script)
    async with conversation(live_runner(model, FunctionTool(till.pay, require_confirmation=True), look)) as talk:
        await talk.live.send_text("go")
        await trio.sleep(5)
        model.play(cancel_calls("call-1"))
        await talk.quiet()
        assert talk.live.pending == []
    assert sent(model) == ["go", "look=seen"]
    assert talk.live.status == "completed"


async def test_calls_after_one_that_is_withdrawn_have_their_turn(autojump_clock: trio.abc.Clock) -> None:
    """Where calls are made one by one, the next one is made."""
    till = Till()

    async def look() -> str:
        """Look."""
        return "seen"

    def script(each: LiveSent) -> Any:
        return [call("pay", amount=1), call("look")] if each.text == "go" else "hm"

    model = ScriptedLive(script)
    tools = [FunctionTool(till.pay, require_confirmation=True), look]
    async with conversation(live_runner(model, *tools, parallel_tool_calls=False)) as talk:
        await talk.live.send_text("go")
        await talk.quiet()
        model.play(cancel_calls("call-1"))
        assert "guide: look=seen" in await talk.quiet()
    assert sent(model)[-1] == 'The call of look has returned: {"result": "seen"}'
    assert talk.live.status == "completed"
