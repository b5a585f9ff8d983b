"""Tools of live runs that go on beside the conversation: streams, calls that an interruption ends, handovers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio

from minirun import LiveRequestQueue, LlmAgent, SequentialAgent
from minirun.errors import ConfigurationError, FatalError
from minirun.testing import LiveSent, ScriptedLive, ScriptedLlm, call, hear, pause, say
from minirun.tools import FunctionTool, LongRunningFunctionTool

from ..live_runs import DIALECTS, PLACE, live_runner, log, runner_of, sent, stored
from .test_live_questions import conversation, talkative

both = pytest.mark.parametrize("dialect", DIALECTS)


async def prices(symbol: str = "ACME") -> AsyncGenerator[dict[str, int], None]:
    """Tell the price again and again."""
    for price in (1, 2, 3):
        await trio.sleep(10)
        yield {"price": price}


async def stop_streaming(function_name: str) -> None:
    """Stop a tool that goes on."""


# --- streams ----------------------------------------------------------------------------------------------------------


@both
async def test_a_stream_shows_its_items_and_stores_one_response(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Each item is a partial event; the model goes on meanwhile; the response that is stored has all of them."""
    model, items = ScriptedLive(talkative, dialect=dialect), []
    runner, response = live_runner(model, prices), None
    async with runner.run_live(**PLACE) as live:
        await live.send_text("call prices")
        async for event in live:
            if event.partial:
                items += [each.response for each in event.get_function_responses()]
            elif event.text == "hm" and not items:
                await live.send_text("and?")
            elif event.get_function_responses():
                (response,) = event.get_function_responses()
            elif response is not None and event.turn_complete:
                await live.aclose()
    assert items == [{"price": 1}, {"price": 2}, {"price": 3}]
    assert response is not None
    assert response.response == {"result": items}
    lines = log(await stored(runner))
    assert lines.index("guide: so: and?") < next(at for at, line in enumerate(lines) if "prices=" in line)
    told = sent(model)
    assert told[1] == "prices=the call is still running; its result will follow"
    interim = [f"prices={{'price': {price}}}" for price in (1, 2, 3)]
    assert [line for line in told if line.partition("=")[2] == "{'price': 1}"] == (
        interim[:1] if dialect == "gemini" else []
    )
    assert "3" in told[-1]


@pytest.mark.parametrize("count", [100, 101])
async def test_a_long_stream_keeps_its_last_hundred_items(count: int, autojump_clock: trio.abc.Clock) -> None:
    """The response has the newest hundred items, and says how many it leaves out; all of them were shown."""

    async def numbers() -> AsyncGenerator[int, None]:
        """Count."""
        for number in range(count):
            yield number

    runner = live_runner(ScriptedLive(talkative), numbers)
    async with conversation(runner) as talk:
        await talk.live.send_text("call numbers")
        await trio.sleep(5)
    [answer] = [each for event in await stored(runner) for each in event.get_function_responses()]
    kept = list(range(count))[-100:]
    assert answer.response == ({"result": kept} if count == 100 else {"result": kept, "left_out": 1})


@both
async def test_a_stream_is_stopped_by_name(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """`stop_streaming` ends the calls of a function; what they have given until then is their result."""

    def script(each: LiveSent) -> Any:
        return [call("stop_streaming", function_name="prices")] if each.text == "stop" else talkative(each)

    model = ScriptedLive(script, dialect=dialect)
    async with conversation(live_runner(model, prices, stop_streaming)) as talk:
        await talk.live.send_text("call prices")
        await trio.sleep(15)
        await talk.live.send_text("stop")
        await trio.sleep(1)
        assert "guide: prices=({'price': 1},)" in talk.lines or "guide: prices=[{'price': 1}]" in talk.lines


@both
async def test_a_stream_hears_what_the_caller_sends(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """A parameter `input_stream` has what is sent while the tool runs, and nothing of its own."""
    heard: list[str] = []

    async def listen(input_stream: LiveRequestQueue) -> AsyncGenerator[str, None]:
        """Listen."""
        while not (request := await input_stream.get()).close:
            if request.content is not None:
                heard.append(request.content.text)
                yield request.content.text

    model = ScriptedLive(talkative, dialect=dialect)
    runner = live_runner(model, listen)
    async with conversation(runner) as talk:
        await talk.live.send_text("call listen")
        await trio.sleep(1)
        await talk.live.send_text("hello")
        await trio.sleep(1)
        await talk.live.send_text("bye")
        await trio.sleep(1)
    assert heard == ["hello", "bye"]
    assert all(call.id for event in await stored(runner) for call in event.get_function_responses())


@both
async def test_leaving_ends_a_stream_and_answers_it(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """A stream that never ends does not hold up the end of the run, and its call is answered."""

    async def forever() -> AsyncGenerator[int, None]:
        """Go on."""
        while True:
            await trio.sleep(1)
            yield 1

    runner = live_runner(ScriptedLive(talkative, dialect=dialect), forever)
    async with conversation(runner) as talk:
        await talk.live.send_text("call forever")
        await trio.sleep(5)
        await talk.live.aclose()
        await trio.sleep(1)
        assert talk.live.status == "completed"
    answers = [each for event in await stored(runner) for each in event.get_function_responses()]
    assert [each.response["error"]["type"] for each in answers] == ["cancelled"]


async def test_a_stream_is_no_tool_of_a_run_in_writing() -> None:
    """Where nobody hears its items a call of a generator ends the run, which says so."""
    agent = LlmAgent(name="guide", model=ScriptedLlm([call("prices")]), tools=[prices])
    with pytest.raises(FatalError, match="live runs only"):
        async with runner_of(agent).run_async(**PLACE, new_message="go") as run:
            await run.wait()


# --- interruptions ----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("cancels", [False, True])
async def test_an_interruption_cancels_calls_that_say_so(
    dialect: Any, cancels: bool, autojump_clock: trio.abc.Clock
) -> None:
    """By default a call goes on when the answer is interrupted; one with `cancel_on_interrupt` is cancelled."""

    async def slow() -> str:
        """Take a while."""
        await trio.sleep(20)
        return "done"

    def script(each: LiveSent) -> Any:
        if each.text == "go":
            return [say("I look, and it will take a while"), call("slow"), pause(1), say("still"), pause(9)]
        return [hear("stop it"), "yes"] if each.kind == "activity_end" else "hm"

    settings = {"automatic_activity_detection": {"disabled": True}}
    from minirun import RunConfig

    config = RunConfig(realtime_input_config=settings)
    model = ScriptedLive(script, dialect=dialect)
    runner = live_runner(model, FunctionTool(slow, cancel_on_interrupt=cancels))
    async with conversation(runner, run_config=config) as talk:
        await talk.live.send_text("go")
        await trio.sleep(5)
        await talk.live.send_activity_start()
        await trio.sleep(1)
        await talk.live.send_activity_end()
        await trio.sleep(40)
    answers = [each.response for event in await stored(runner) for each in event.get_function_responses()]
    assert len(answers) == 1
    assert ("error" in answers[0]) == cancels
    if cancels:
        assert answers[0]["error"]["type"] == "cancelled"


def test_what_cannot_be_cancelled_is_refused_by_name() -> None:
    """A sync function in trio's own thread cannot be cancelled, and another value than a bool is none."""

    def look() -> str:
        """Look."""
        return "seen"

    with pytest.raises(ConfigurationError, match="cancel_on_interrupt"):
        FunctionTool(look, run_in="loop", cancel_on_interrupt=True)
    with pytest.raises(ConfigurationError, match="cancel_on_interrupt"):
        FunctionTool(look, cancel_on_interrupt="yes")  # type: ignore[arg-type]


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


@both
async def test_the_model_is_told_which_tools_it_need_not_wait_for(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Those that give items, take long or ask somebody go on beside the conversation; it waits for all others."""
    tools: list[Any] = [
        prices,
        pay,
        FunctionTool(stop_streaming, require_confirmation=False),
        FunctionTool(lambda: "x", name="asks", description="Asks.", require_confirmation=True),
        FunctionTool(lambda: "x", name="may_ask", description="Asks.", require_confirmation=lambda: False),
        LongRunningFunctionTool(lambda: None, name="order", description="Orders."),
    ]
    model = ScriptedLive([], dialect=dialect)
    clerk = LlmAgent(name="clerk", model=model, tools=tools)
    async with conversation(runner_of(SequentialAgent(name="all", sub_agents=[clerk]))) as talk:
        await talk.quiet()
    [connect] = [each for each in model.sent if each.kind == "connect"]
    assert connect.request is not None
    told = {each.name: each.behavior for each in connect.request.config.tools}
    beside = dict.fromkeys(("prices", "asks", "may_ask", "order"), "NON_BLOCKING")
    assert told == {**beside, "pay": None, "stop_streaming": None, "task_completed": None}
