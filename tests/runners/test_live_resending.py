"""What is sent again over another connection: all that the server may not have, in the order in which it was meant."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from minirun.errors import ModelConnectionError
from minirun.testing import LiveSent, ScriptedLive, call, cancel_calls, drop, handle, say

from ..live_client import conversing, new_runner, sent_of


async def work() -> str:
    """Work for a moment."""
    await trio.sleep(0.7)
    return "done"


async def test_a_result_does_not_overtake_what_waits_to_be_sent_again(autojump_clock: MockClock) -> None:
    """
    A call ends while nobody is connected. The server that then says that it has its result has what the user said, too.

    So the user's content goes first, though the result is there to be told as soon as there is a connection.
    """

    def script(sent: LiveSent) -> Any:
        if sent.text == "first":
            return [handle("h1"), call("work")]
        if sent.connection == 1:
            return [drop()]  # without having taken it up
        return [handle("h2"), drop()] if sent.kind == "responses" else [say(f"answer to {sent.text}")]

    refused: list[Any] = [[], [ModelConnectionError("not yet")], []]
    model = ScriptedLive(script, word_ms=1, on_connect=refused)
    async with new_runner(model, tools=[work]) as runner, conversing(runner) as client:
        await client.live.send_text("first")
        await client.until(lambda event: event.get_function_calls())
        await client.live.send_text("second")
        await client.until(lambda event: "second" in event.text and event.turn_complete)
        await client.until(lambda event: event.live and event.live.get("connection") == 3)
    assert client.failure is None
    told = [(each.connection, each.text or each.kind) for each in sent_of(model, "content", "responses")]
    assert told[2:4] == [(3, "second"), (3, "responses")]


async def test_a_result_that_is_taken_back_after_it_was_sent_still_says_what_the_server_has(
    autojump_clock: MockClock,
) -> None:
    """The server names the result as the last that it has taken up: what came before that is not sent again."""
    model = ScriptedLive([[handle("h0"), say("Hm.")], call("work"), "Done.", "Yes."], word_ms=1)
    async with new_runner(model, tools=[work]) as runner, conversing(runner) as client:
        await client.ask("hello")
        await client.ask("first")
        await trio.sleep(1)
        model.play(cancel_calls("call-1"), handle("h1"), drop())
        await client.until(lambda event: event.live and event.live.get("connection") == 2)
        await client.ask("second")
    assert client.failure is None
    told = [(each.connection, each.text or each.kind) for each in sent_of(model, "content", "responses")]
    assert told == [(1, "hello"), (1, "first"), (1, "responses"), (2, "second")]


async def test_a_result_that_was_sent_is_not_sent_again_once_its_call_is_taken_back(autojump_clock: MockClock) -> None:
    """The server may not have it, nor what was said before: that is said again, and nothing in the result's place."""

    def script(each: LiveSent) -> Any:
        if each.text == "hello":
            return [handle("h0"), say("Hm.")]
        return call("work") if (each.text, each.connection) == ("first", 1) else say(f"to {each.text or each.kind}")

    model = ScriptedLive(script, word_ms=1)
    async with new_runner(model, tools=[work]) as runner, conversing(runner) as client:
        await client.ask("hello")
        await client.ask("first")
        await trio.sleep(1)
        model.play(cancel_calls("call-1"), handle("h1", taken_up=False), drop())
        await client.until(lambda event: event.live and event.live.get("connection") == 2)
        await client.until(lambda event: event.text == "to first" and event.turn_complete)
        await client.ask("second")
    assert client.failure is None
    told = [(each.connection, each.text or each.kind) for each in sent_of(model, "content", "responses")]
    assert told == [(1, "hello"), (1, "first"), (1, "responses"), (2, "first"), (2, "second")]
