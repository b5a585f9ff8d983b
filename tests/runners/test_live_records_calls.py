"""Conversations with calls, handovers and early ends: all that the caller is given, and all that the server is sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import trio
from trio.testing import MockClock

from minirun import InMemoryRunner, LiveRequestQueue, LlmAgent, RunConfig, SequentialAgent
from minirun.runners import LiveRun
from minirun.testing import ScriptedLive, call, cancel_calls, hear, pause, say
from minirun.testing._live_dialects import DialectName
from minirun.tools import FunctionTool
from minirun.types import Blob

from ..live_client import both, new_runner
from ..live_records import recorded, records

OTHER = Blob(data=bytes(320), mime_type="audio/pcm;rate=8000")


async def slow(n: int = 3) -> str:
    """Take so many seconds."""
    await trio.sleep(n)
    return f"after {n}"


@both
async def test_calls_of_one_answer_are_told_together(dialect: DialectName, autojump_clock: MockClock) -> None:
    """One of two calls fails; the responses are one event, one content, and one answer follows."""

    async def fail() -> str:
        """Fail."""
        await trio.sleep(1)
        raise ValueError("no luck")

    async def act(live: LiveRun) -> None:
        await live.send_text("go")
        await trio.sleep(0.5)
        await live.send_text("meanwhile")
        await trio.sleep(8)

    script: list[Any] = [[call("slow", n=3), call("fail")], say("Done."), say("Well.")]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[slow, fail]) as runner:
        found = await recorded(runner, model, act)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 3}) fail({}) live(item_id=answer-1, path=run/root)
            0.50 5 e4 user user: 'meanwhile' live(after_seq=4)
            0.75 6 e5 root model: 'Done.' out. over live(item_id=answer-2)
            3.00 7 e6 root user: slow={'result': 'after 3'} fail={'error': {'type': 'ValueError', 'message': 'no
                    luck'}}
            3.25 8 e7 root model: 'Well.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.50 > content user: 'meanwhile' ? id=e4
            3.00 > responses user: slow(call-1)={'result': 'after 3'} fail(call-2)={'error': {'type': 'ValueError',
                    'message': 'no luck'}} ? id=e6
            8.50 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 3}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: fail({}) live(item_id=answer-1, path=run/root)
            0.50 6 e5 user user: 'meanwhile' live(after_seq=5)
            0.50 7 e6 root model: 'Done.' out. over live(item_id=answer-2)
            1.00 8 e7 root user: fail={'error': {'type': 'ValueError', 'message': 'no luck'}}
            3.00 9 e8 root user: slow={'result': 'after 3'}
            3.00 10 e9 root model: 'Well.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.50 > content user: 'meanwhile' ? id=e5
            1.00 > responses user: fail(call-2)={'error': {'type': 'ValueError', 'message': 'no luck'}} ? id=e7
            3.00 > responses user: slow(call-1)={'result': 'after 3'} ? id=e8
            8.50 > close
        """,
    }
    assert found == records(expected[dialect])


async def test_a_call_that_is_taken_back(autojump_clock: MockClock) -> None:
    """It is ended, its response is stored and told to nobody; the one beside it goes on."""

    async def act(live: LiveRun) -> None:
        await live.send_text("go")
        await trio.sleep(8)

    script: list[Any] = [
        [call("slow"), call("slow", n=4), pause(1), cancel_calls("call-1")],
        say("Done."),
    ]
    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model, tools=[slow]) as runner:
        found = await recorded(runner, model, act)
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: slow({}) slow({'n': 4}) live(item_id=answer-1, path=run/root)
        4.00 5 e4 root user: slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                ended'}} slow={'result': 'after 4'}
        4.25 6 e5 root model: 'Done.' out. over live(item_id=answer-1)
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        4.00 > responses user: slow(call-2)={'result': 'after 4'} ? id=e4
        8.00 > close
    """)


async def test_an_interruption_ends_the_calls_that_say_so(autojump_clock: MockClock) -> None:
    """One call goes on and the other is answered as cancelled; the model is told both."""

    async def other() -> str:
        """Take three seconds."""
        await trio.sleep(3)
        return "over"

    async def act(live: LiveRun) -> None:
        await live.send_text("go")
        await trio.sleep(1)
        await live.interrupt()
        await trio.sleep(8)

    tools = [FunctionTool(slow, cancel_on_interrupt=True), other]
    script: list[Any] = [[say("one two"), call("slow"), call("other"), say("three four"), pause(4)], say("Done.")]
    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model, tools=tools) as runner:
        found = await recorded(runner, model, act)
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: 'one two' out. live(item_id=answer-1)
        0.00 5 e4 root model: slow({}) other({}) live(item_id=answer-1, path=run/root)
        1.00 ~ e5 root cut live(item_id=answer-1)
        1.00 6 e5 root model: 'three four' out. cut live(item_id=answer-1)
        3.00 7 e6 root user: slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                ended'}} other={'result': 'over'}
        3.25 8 e7 root model: 'Done.' out. over live(item_id=answer-2)
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        1.00 > cancel
        3.00 > responses user: slow(call-1)={'error': {'type': 'cancelled', 'message': 'the call was cancelled
                before it ended'}} other(call-2)={'result': 'over'} ? id=e6
        9.00 > close
    """)


@both
async def test_a_tool_that_gives_items_hears_what_is_sent(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Items are partial events; contents, signals and sound reach the tool while it runs, and nothing before."""
    heard: list[Any] = []

    async def listen(input_stream: LiveRequestQueue) -> AsyncGenerator[str, None]:
        """Listen."""
        while not (request := await input_stream.get()).close:
            heard.append(request.content.text if request.content else "off" if request.audio_stream_end else "sound")
            await trio.sleep(0.5)
            if heard[-1] == "stop":
                return
            if request.content is not None:
                yield request.content.text

    async def act(live: LiveRun) -> None:
        await live.send_text("go")
        await trio.sleep(1)
        await live.send_text("a")
        await trio.sleep(2)
        await live.send_audio(bytes(3_200))
        await trio.sleep(1)
        await live.send_audio_stream_end()
        await trio.sleep(2)
        await live.send_text("stop")
        await trio.sleep(3)

    def script(sent: Any) -> Any:
        return [call("listen")] if sent.text == "go" else say("hm")

    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[listen]) as runner:
        found = await recorded(runner, model, act)
    assert heard == ["a", "sound", "off", "stop"]
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: listen({}) live(item_id=answer-1, path=run/root)
            0.25 5 e4 root model: 'hm' out. over live(item_id=answer-1)
            1.00 6 e5 user user: 'a' live(after_seq=5)
            1.25 7 e6 root model: 'hm' out. over live(item_id=answer-2)
            1.50 ~ e7 root user: listen={'result': 'a'}
            4.25 8 e8 root model: 'hm' out. over live(item_id=answer-3)
            6.00 9 e9 user user: 'stop' live(after_seq=8)
            6.25 10 e10 root model: 'hm' out. over live(item_id=answer-4)
            6.50 11 e11 root user: listen={'result': ['a']}
            6.75 12 e12 root model: 'hm' out. over live(item_id=answer-5)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: listen(call-1)={'status': 'the call is still running; its result will follow'}
                    more ? id=?
            1.00 > content user: 'a' ? id=e5
            1.50 > responses user: listen(call-1)={'result': 'a'} more SILENT ?
            4.00 > audio_stream_end
            6.00 > content user: 'stop' ? id=e9
            6.50 > responses user: listen(call-1)={'result': ['a']} ? id=e11
            9.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: listen({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: 'hm' out. over live(item_id=answer-2)
            1.00 6 e5 user user: 'a' live(after_seq=5)
            1.00 7 e6 root model: 'hm' out. over live(item_id=answer-3)
            1.50 ~ e7 root user: listen={'result': 'a'}
            4.00 8 e8 root model: 'hm' out. over live(item_id=answer-4)
            6.00 9 e9 user user: 'stop' live(after_seq=8)
            6.00 10 e10 root model: 'hm' out. over live(item_id=answer-5)
            6.50 11 e11 root user: listen={'result': ['a']}
            6.50 12 e12 root model: 'hm' out. over live(item_id=answer-6)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: listen(call-1)={'status': 'the call is still running; its result will follow'} ?
                    id=?
            1.00 > content user: 'a' ? id=e5
            4.00 > audio_stream_end
            6.00 > content user: 'stop' ? id=e9
            6.50 > content user: 'The call of listen has returned: {"result": ["a"]}' ? id=e11-told
            9.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_handover(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The next agent's server is told the conversation, as its agent sees it, and the user goes on with it."""

    async def act(live: LiveRun) -> None:
        await live.send_text("hi")
        await trio.sleep(2)
        await live.send_text("buy")
        await trio.sleep(2)
        await live.send_text("a hat")
        await trio.sleep(4)

    def script(sent: Any) -> Any:
        return [say("Wait."), call("transfer_to_agent", agent_name="shop")] if sent.text == "buy" else say("Front.")

    front = ScriptedLive(script, dialect=dialect, name="front")
    back = ScriptedLive(lambda sent: say("Shop."), dialect=dialect, name="back")
    shop = LlmAgent(name="shop", model=back, description="Sells.")
    agent = LlmAgent(name="root", model=front, sub_agents=[shop])
    async with new_runner(front, agent=agent) as runner:
        found = await recorded(runner, front, act, back)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'hi' live(after_seq=2)
            0.25 4 e3 root model: 'Front.' out. over live(item_id=answer-1)
            2.00 5 e4 user user: 'buy' live(after_seq=4)
            2.00 6 e5 root model: 'Wait.' out. live(item_id=answer-2)
            2.00 7 e6 root model: transfer_to_agent({'agent_name': 'shop'}) live(item_id=answer-2, path=run/root)
            2.00 8 e7 root user: transfer_to_agent={'result': 'shop takes over'}
            2.00 9 e8 shop live(connection=2, reason=transfer)
            2.25 10 e9 shop model: 'Shop.' out. over live(item_id=answer-1)
            4.00 11 e10 user user: 'a hat' live(after_seq=10)
            4.25 12 e11 shop model: 'Shop.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'hi' ? id=e2
            2.00 > content user: 'buy' ? id=e4
            2.00 > close
            2.00 > connect 1
            2.00 > history ?
                user: 'hi'
                user: '[root] said: Front.'
                user: 'buy'
                user: '[root] said: Wait.'
                user: '[root] called transfer_to_agent with {"agent_name":"shop"}'
                user: '[root] got from transfer_to_agent: {"result":"shop takes over"}'
            4.00 > content user: 'a hat' ? id=e10
            8.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'hi' live(after_seq=2)
            0.00 4 e3 root model: 'Front.' out. over live(item_id=answer-1)
            2.00 5 e4 user user: 'buy' live(after_seq=4)
            2.00 6 e5 root model: 'Wait.' out. live(item_id=answer-2)
            2.00 7 e6 root model: transfer_to_agent({'agent_name': 'shop'}) live(item_id=answer-2, path=run/root)
            2.00 8 e7 root user: transfer_to_agent={'result': 'shop takes over'}
            2.00 9 e8 shop live(connection=2, reason=transfer)
            2.00 10 e9 shop model: 'Shop.' out. over live(item_id=answer-1)
            4.00 11 e10 user user: 'a hat' live(after_seq=10)
            4.00 12 e11 shop model: 'Shop.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'hi' ? id=e2
            2.00 > content user: 'buy' ? id=e4
            2.00 > close
            2.00 > connect 1
            2.00 > history ?
                user: 'hi'
                user: '[root] said: Front.'
                user: 'buy'
                user: '[root] said: Wait.'
                user: '[root] called transfer_to_agent with {"agent_name":"shop"}'
                user: '[root] got from transfer_to_agent: {"result":"shop takes over"}'
            4.00 > content user: 'a hat' ? id=e10
            8.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_sequence_of_agents(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The first says that its task is done; the second goes on, and the run ends when it says so, too."""

    async def act(live: LiveRun) -> None:
        await live.send_text("hi")
        await trio.sleep(3)
        await live.send_text("go on")
        await trio.sleep(3)

    first = ScriptedLive([[say("Bye."), call("task_completed")]], dialect=dialect, name="first")
    second = ScriptedLive([say("Hello."), [call("task_completed")]], dialect=dialect, name="second")
    agents = [LlmAgent(name="one", model=first), LlmAgent(name="two", model=second)]
    agent = SequentialAgent(name="both", sub_agents=agents)
    async with InMemoryRunner(agent=agent, auto_create_session=True) as runner:
        found = await recorded(runner, first, act, second)
    expected = {
        "gemini": """
            0.00 2 e1 one live(connection=1, reason=start)
            0.00 3 e2 user user: 'hi' live(after_seq=2)
            0.00 4 e3 one model: 'Bye.' out. live(item_id=answer-1)
            0.00 5 e4 one model: task_completed({}) live(item_id=answer-1, path=run/both/one)
            0.00 6 e5 one user: task_completed={'result': 'done'}
            0.00 7 e6 two live(connection=2, reason=transfer)
            0.25 8 e7 two model: 'Hello.' out. over live(item_id=answer-1)
            3.00 9 e8 user user: 'go on' live(after_seq=8)
            3.00 10 e9 two model: task_completed({}) live(item_id=answer-2, path=run/both/two)
            3.00 11 e10 two user: task_completed={'result': 'done'}
            0.00 > connect 1
            0.00 > content user: 'hi' ? id=e2
            0.00 > close
            0.00 > connect 1
            0.00 > history ?
                user: 'hi'
                user: '[one] said: Bye.'
                user: '[one] called task_completed with {}'
                user: '[one] got from task_completed: {"result":"done"}'
            3.00 > content user: 'go on' ? id=e8
            3.00 > close
        """,
        "openai": """
            0.00 2 e1 one live(connection=1, reason=start)
            0.00 3 e2 user user: 'hi' live(after_seq=2)
            0.00 4 e3 one model: 'Bye.' out. live(item_id=answer-1)
            0.00 5 e4 one model: task_completed({}) live(item_id=answer-1, path=run/both/one)
            0.00 6 e5 one user: task_completed={'result': 'done'}
            0.00 7 e6 two live(connection=2, reason=transfer)
            0.00 8 e7 two model: 'Hello.' out. over live(item_id=answer-1)
            3.00 9 e8 user user: 'go on' live(after_seq=8)
            3.00 10 e9 two model: task_completed({}) live(item_id=answer-2, path=run/both/two)
            3.00 11 e10 two user: task_completed={'result': 'done'}
            0.00 > connect 1
            0.00 > content user: 'hi' ? id=e2
            0.00 > close
            0.00 > connect 1
            0.00 > history ?
                user: 'hi'
                user: '[one] said: Bye.'
                user: '[one] called task_completed with {}'
                user: '[one] got from task_completed: {"result":"done"}'
            3.00 > content user: 'go on' ? id=e8
            3.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_question_and_its_answer(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The model is told that somebody is asked, and then the result; the answer is an event of the user."""

    async def act(live: LiveRun) -> None:
        await live.send_text("go")
        await trio.sleep(3)
        [question] = live.pending
        await live.send(question.reply(True))
        await trio.sleep(5)

    script: list[Any] = [[call("slow", n=1)], say("Wait."), say("Done.")]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[FunctionTool(slow, require_confirmation=True)]) as runner:
        found = await recorded(runner, model, act)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 1}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_confirmation({'originalFunctionCall': {'id': 'call-1', 'name': 'slow',
                    'args': {'n': 1}}, 'toolConfirmation': {'hint': '', 'confirmed': False, 'payload': None}})
            0.25 6 e5 root model: 'Wait.' out. over live(item_id=answer-1)
            3.00 7 e6 user user: adk_request_confirmation={'confirmed': True, 'payload': None}
            4.00 8 e7 root user: slow={'result': 'after 1'}
            4.25 9 e8 root model: 'Done.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: slow(call-1)={'status': 'somebody has been asked about this call; its result will
                    follow'} more ? id=?
            4.00 > responses user: slow(call-1)={'result': 'after 1'} ? id=e7
            8.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 1}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_confirmation({'originalFunctionCall': {'id': 'call-1', 'name': 'slow',
                    'args': {'n': 1}}, 'toolConfirmation': {'hint': '', 'confirmed': False, 'payload': None}})
            0.00 6 e5 root model: 'Wait.' out. over live(item_id=answer-2)
            3.00 7 e6 user user: adk_request_confirmation={'confirmed': True, 'payload': None}
            4.00 8 e7 root user: slow={'result': 'after 1'}
            4.00 9 e8 root model: 'Done.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: slow(call-1)={'status': 'somebody has been asked about this call; its result will
                    follow'} ? id=?
            4.00 > content user: 'The call of slow has returned: {"result": "after 1"}' ? id=e7-told
            8.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_an_answer_that_takes_longer_than_closing_allows(dialect: DialectName, autojump_clock: MockClock) -> None:
    """It is cut off after `finish_turn_s`, as far as it was given."""

    async def act(live: LiveRun) -> None:
        await live.send_text("count")
        await trio.sleep(1)
        await live.aclose(finish_turn_s=2.5)
        await live.aclose(finish_turn_s=5)

    model = ScriptedLive([[say("one two"), pause(10), say("three")]], dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, act)
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'count' live(after_seq=2)
        3.50 ~ e3 root cut live(item_id=answer-1)
        3.50 4 e3 root model: 'one two' out. cut live(item_id=answer-1)
        0.00 > connect 1
        0.00 > content user: 'count' ? id=e2
        3.50 > close
    """)


@both
async def test_a_call_that_takes_longer_than_closing_allows(dialect: DialectName, autojump_clock: MockClock) -> None:
    """It is answered as cancelled after `finish_turn_s`."""

    async def act(live: LiveRun) -> None:
        await live.send_text("go")
        await trio.sleep(1)
        await live.aclose(finish_turn_s=2.5)

    model = ScriptedLive([[say("one"), call("slow", n=30)]], dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner:
        found = await recorded(runner, model, act)
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: 'one' out. live(item_id=answer-1)
        0.00 5 e4 root model: slow({'n': 30}) live(item_id=answer-1, path=run/root)
        3.50 6 e5 root user: slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                ended'}}
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        3.50 > close
    """)


async def test_words_that_are_understood_late(autojump_clock: MockClock) -> None:
    """Closing waits for them, and they say before which event they were said."""

    async def act(live: LiveRun) -> None:
        await trio.sleep(1)
        await live.send_audio(b"\1\1" * 8_000)
        await live.send_audio(bytes(48_000))
        await trio.sleep(0.1)

    model = ScriptedLive([[hear("what time is it?", late=True), say("Noon."), pause(1)]], dialect="openai")
    async with new_runner(model) as runner:
        found = await recorded(runner, model, act)
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        2.00 3 e2 root model: 'Noon.' out. over live(item_id=answer-1)
        2.00 4 e3 user user: 'what time is it?' in. live(before_seq=3, item_id=heard-1)
        0.00 > connect 1
        2.00 > close
    """)


@both
async def test_answers_in_text(dialect: DialectName, autojump_clock: MockClock) -> None:
    """There is no sound and no transcription; what nobody was given of an answer that is cut off is told."""

    async def act(live: LiveRun) -> None:
        await live.send_text("hi")
        await trio.sleep(2)
        await live.send_text("count")
        await trio.sleep(1)
        await live.interrupt()
        await trio.sleep(2)

    model = ScriptedLive([say("Hello you."), [say("one two"), pause(3), say("three")]], dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, act, pieces=True, run_config=RunConfig(response_modalities=["TEXT"]))
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'hi' live(after_seq=2)
        0.00 ~ e3 root model: 'Hello ' live(item_id=answer-1)
        0.00 ~ e3 root model: 'you.' live(item_id=answer-1)
        0.00 4 e3 root model: 'Hello you.' over live(item_id=answer-1)
        2.00 5 e4 user user: 'count' live(after_seq=4)
        2.00 ~ e5 root model: 'one ' live(item_id=answer-2)
        2.00 ~ e5 root model: 'two' live(item_id=answer-2)
        3.00 ~ e5 root cut live(item_id=answer-2)
        3.00 6 e5 root model: 'one two' cut live(item_id=answer-2)
        0.00 > connect 1
        0.00 > content user: 'hi' ? id=e2
        2.00 > content user: 'count' ? id=e4
        3.00 > cancel
        5.00 > close
    """)


@both
async def test_sound_that_the_server_does_not_take(dialect: DialectName, autojump_clock: MockClock) -> None:
    """It was sent before there was a connection: the caller is told once what was wrong, and how much was dropped."""

    async def act(live: LiveRun) -> None:
        await trio.sleep(1)
        await live.send_text("hi")
        await trio.sleep(2)

    queue = LiveRequestQueue()
    for _ in range(3):
        queue.send_realtime(OTHER)
    model = ScriptedLive([say("Yes?")], dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, act, live_request_queue=queue)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 ~ e2 root INVALID_MESSAGE: expected sound as 'audio/pcm;rate=16000' (LiveCapabilities.input_rate),
                    found 'audio/pcm;rate=8000'; record at that rate, or convert it live()
            1.00 3 e3 user user: 'hi' live(after_seq=2)
            1.25 4 e4 root model: 'Yes?' out. over live(dropped_input_ms=60, item_id=answer-1)
            0.00 > connect 1
            1.00 > content user: 'hi' ? id=e3
            3.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 ~ e2 root INVALID_MESSAGE: expected sound as 'audio/pcm;rate=24000' (LiveCapabilities.input_rate),
                    found 'audio/pcm;rate=8000'; record at that rate, or convert it live()
            1.00 3 e3 user user: 'hi' live(after_seq=2)
            1.00 4 e4 root model: 'Yes?' out. over live(dropped_input_ms=60, item_id=answer-1)
            0.00 > connect 1
            1.00 > content user: 'hi' ? id=e3
            3.00 > close
        """,
    }
    assert found == records(expected[dialect])
