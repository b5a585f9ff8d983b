"""Calls of all kinds, as lines; see `live_records`."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from minirun import RunConfig
from minirun.errors import ToolCallsLimitExceededError
from minirun.models import LiveCapabilities, LlmResponse
from minirun.testing import LiveSent, ScriptedLive, call, cancel_calls, pause, say, usage
from minirun.testing._live_dialects import DialectName
from minirun.types import Content, FunctionCall, Part

from ..live_client import both, conversing, new_runner, stored
from ..live_deeds import Deaf, Deed, acting, answering, name_of, playing, prices, slow
from ..live_records import recorded, records


def named(call_id: str, name: str, **args: Any) -> Part:
    """A call with an id of the server's choice."""
    return Part(function_call=FunctionCall(id=call_id, name=name, args=args))


@both
async def test_one_answer_that_makes_calls_of_all_kinds(dialect: DialectName, autojump_clock: MockClock) -> None:
    """One gives items, one asks somebody, one takes a while: the model is told of each as far as it has come."""
    tools = [prices, slow, name_of]
    script: list[Any] = [[call("prices", every=2), call("slow"), call("name_of")], *([say("Well.")] * 6)]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=tools) as runner:
        found = await recorded(runner, model, acting("go", 8, answering("Ada"), 4))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({'every': 2}) slow({}) name_of({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            2.00 ~ e5 root user: prices={'result': 1}
            3.00 6 e6 root user: slow={'result': 'after 3'}
            3.25 7 e7 root model: 'Well.' out. over live(item_id=answer-1)
            4.00 ~ e8 root user: prices={'result': 2}
            6.00 ~ e9 root user: prices={'result': 3}
            6.00 8 e10 root user: prices={'result': [1, 2, 3]}
            6.25 9 e11 root model: 'Well.' out. over live(item_id=answer-2)
            8.00 10 e12 user user: adk_request_input={'result': 'Ada'}
            8.00 11 e13 root user: name_of={'result': 'it is Ada'}
            8.25 12 e14 root model: 'Well.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                    more ? id=?
            2.00 > responses user: prices(call-1)={'result': 1} more SILENT ?
            3.00 > responses user: slow(call-2)={'result': 'after 3'} name_of(call-3)={'status': 'somebody has been
                    asked about this call; its result will follow'} more ? id=e6
            4.00 > responses user: prices(call-1)={'result': 2} more SILENT ?
            6.00 > responses user: prices(call-1)={'result': 3} more SILENT ?
            6.00 > responses user: prices(call-1)={'result': [1, 2, 3]} ? id=e10
            8.00 > responses user: name_of(call-3)={'result': 'it is Ada'} ? id=e13
            12.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({'every': 2}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: slow({}) live(item_id=answer-1, path=run/root)
            0.00 6 e5 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 7 e6 root model: adk_request_input({'message': 'Whose?'})
            2.00 ~ e7 root user: prices={'result': 1}
            3.00 8 e8 root user: slow={'result': 'after 3'}
            3.00 9 e9 root model: 'Well.' out. over live(item_id=answer-2)
            4.00 ~ e10 root user: prices={'result': 2}
            6.00 ~ e11 root user: prices={'result': 3}
            6.00 10 e12 root user: prices={'result': [1, 2, 3]}
            6.00 11 e13 root model: 'Well.' out. over live(item_id=answer-3)
            8.00 12 e14 user user: adk_request_input={'result': 'Ada'}
            8.00 13 e15 root user: name_of={'result': 'it is Ada'}
            8.00 14 e16 root model: 'Well.' out. over live(item_id=answer-4)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'} ?
                    id=?
            0.00 > responses user: name_of(call-3)={'status': 'somebody has been asked about this call; its result
                    will follow'} ? id=?
            3.00 > responses user: slow(call-2)={'result': 'after 3'} ? id=e8
            6.00 > content user: 'The call of prices has returned: {"result": [1, 2, 3]}' ? id=e12-told
            8.00 > content user: 'The call of name_of has returned: {"result": "it is Ada"}' ? id=e15-told
            12.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_calls_that_are_made_one_by_one(dialect: DialectName, autojump_clock: MockClock) -> None:
    """One that gives items has its turn as others have, and those after a question wait for its answer."""
    script: list[Any] = [[call("prices"), call("name_of"), call("slow", n=5)], *([say("Well.")] * 6)]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[prices, name_of, slow], parallel_tool_calls=False) as runner:
        found = await recorded(runner, model, acting("go", 8, answering("Ada"), 8))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({}) name_of({}) slow({'n': 5}) live(item_id=answer-1, path=run/root)
            1.00 ~ e4 root user: prices={'result': 1}
            2.00 ~ e5 root user: prices={'result': 2}
            3.00 ~ e6 root user: prices={'result': 3}
            3.00 5 e7 root user: prices={'result': [1, 2, 3]}
            3.00 6 e8 root model: adk_request_input({'message': 'Whose?'})
            3.00 7 e9 root
            3.25 8 e10 root model: 'Well.' out. over live(item_id=answer-1)
            8.00 9 e11 user user: adk_request_input={'result': 'Ada'}
            8.00 10 e12 root user: name_of={'result': 'it is Ada'}
            13.00 11 e13 root user: slow={'result': 'after 5'}
            13.25 12 e14 root model: 'Well.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            1.00 > responses user: prices(call-1)={'result': 1} more SILENT ?
            2.00 > responses user: prices(call-1)={'result': 2} more SILENT ?
            3.00 > responses user: prices(call-1)={'result': 3} more SILENT ?
            3.00 > responses user: prices(call-1)={'result': [1, 2, 3]} name_of(call-2)={'status': 'somebody has been
                    asked about this call; its result will follow'} more slow(call-3)={'status': 'somebody has been
                    asked about this call; its result will follow'} more ? id=e7
            13.00 > responses user: name_of(call-2)={'result': 'it is Ada'} slow(call-3)={'result': 'after 5'} ?
                    id=e13
            16.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 6 e5 root model: slow({'n': 5}) live(item_id=answer-1, path=run/root)
            0.00 7 e6 root model: adk_request_input({'message': 'Whose?'})
            1.00 ~ e7 root user: prices={'result': 1}
            2.00 ~ e8 root user: prices={'result': 2}
            3.00 ~ e9 root user: prices={'result': 3}
            3.00 8 e10 root user: prices={'result': [1, 2, 3]}
            3.00 9 e11 root model: 'Well.' out. over live(item_id=answer-2)
            5.00 10 e12 root user: slow={'result': 'after 5'}
            5.00 11 e13 root model: 'Well.' out. over live(item_id=answer-3)
            8.00 12 e14 user user: adk_request_input={'result': 'Ada'}
            8.00 13 e15 root user: name_of={'result': 'it is Ada'}
            8.00 14 e16 root model: 'Well.' out. over live(item_id=answer-4)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'} ?
                    id=?
            0.00 > responses user: name_of(call-2)={'status': 'somebody has been asked about this call; its result
                    will follow'} ? id=?
            3.00 > content user: 'The call of prices has returned: {"result": [1, 2, 3]}' ? id=e10-told
            5.00 > responses user: slow(call-3)={'result': 'after 5'} ? id=e12
            8.00 > content user: 'The call of name_of has returned: {"result": "it is Ada"}' ? id=e15-told
            16.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_what_calls_have_cost_stands_in_their_event(dialect: DialectName, autojump_clock: MockClock) -> None:
    """And not once more in that of the next answer."""
    script: list[Any] = [[usage(3, 1), call("slow", n=1)], say("Done."), [say("Bye."), usage(5, 2)]]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner:
        found = await recorded(runner, model, acting("go", 4, "bye", 4))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 1}) tokens=4 live(item_id=answer-1, path=run/root)
            1.00 5 e4 root user: slow={'result': 'after 1'}
            1.25 6 e5 root model: 'Done.' out. over live(item_id=answer-1)
            4.00 7 e6 user user: 'bye' live(after_seq=6)
            4.25 8 e7 root model: 'Bye.' out. over tokens=7 live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            1.00 > responses user: slow(call-1)={'result': 'after 1'} ? id=e4
            4.00 > content user: 'bye' ? id=e6
            8.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 1}) tokens=4 live(item_id=answer-1, path=run/root)
            1.00 5 e4 root user: slow={'result': 'after 1'}
            1.00 6 e5 root model: 'Done.' out. over live(item_id=answer-2)
            4.00 7 e6 user user: 'bye' live(after_seq=6)
            4.00 8 e7 root model: 'Bye.' out. over tokens=7 live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            1.00 > responses user: slow(call-1)={'result': 'after 1'} ? id=e4
            4.00 > content user: 'bye' ? id=e6
            8.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_ids_that_a_server_uses_twice(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Calls have ids of their own then, and results go out under those that the server knows."""

    def script(sent: LiveSent) -> Any:
        if sent.text.startswith("go"):
            return [named("same", "slow", n=1), named("other", "slow", n=2)]
        return say("Done.")

    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner:
        found = await recorded(runner, model, acting("go", 4, "go again", 4))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 1}) slow({'n': 2}) live(item_id=answer-1, path=run/root)
            2.00 5 e4 root user: slow={'result': 'after 1'} slow={'result': 'after 2'}
            2.25 6 e5 root model: 'Done.' out. over live(item_id=answer-1)
            4.00 7 e6 user user: 'go again' live(after_seq=6)
            4.00 8 e7 root model: slow({'n': 1}) slow({'n': 2}) live(item_id=answer-2, path=run/root)
            6.00 9 e8 root user: slow={'result': 'after 1'} slow={'result': 'after 2'}
            6.25 10 e9 root model: 'Done.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            2.00 > responses user: slow(same)={'result': 'after 1'} slow(other)={'result': 'after 2'} ? id=e4
            4.00 > content user: 'go again' ? id=e6
            6.00 > responses user: slow(same)={'result': 'after 1'} slow(other)={'result': 'after 2'} ? id=e8
            8.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 1}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: slow({'n': 2}) live(item_id=answer-1, path=run/root)
            1.00 6 e5 root user: slow={'result': 'after 1'}
            2.00 7 e6 root user: slow={'result': 'after 2'}
            2.00 8 e7 root model: 'Done.' out. over live(item_id=answer-2)
            4.00 9 e8 user user: 'go again' live(after_seq=8)
            4.00 10 e9 root model: slow({'n': 1}) live(item_id=answer-3, path=run/root)
            4.00 11 e10 root model: slow({'n': 2}) live(item_id=answer-3, path=run/root)
            5.00 12 e11 root user: slow={'result': 'after 1'}
            6.00 13 e12 root user: slow={'result': 'after 2'}
            6.00 14 e13 root model: 'Done.' out. over live(item_id=answer-4)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            1.00 > responses user: slow(same)={'result': 'after 1'} ? id=e5
            2.00 > responses user: slow(other)={'result': 'after 2'} ? id=e6
            4.00 > content user: 'go again' ? id=e8
            5.00 > responses user: slow(same)={'result': 'after 1'} ? id=e11
            6.00 > responses user: slow(other)={'result': 'after 2'} ? id=e12
            8.00 > close
        """,
    }
    assert found == records(expected[dialect])


async def test_calls_that_are_taken_back_one_after_the_other(autojump_clock: MockClock) -> None:
    """One that gives items, one that waits and one that is made: each is answered as cancelled, and never told."""

    def script(sent: LiveSent) -> Any:
        if sent.text == "go":
            return [call("prices", every=2), call("name_of"), call("slow", n=9), call("slow", n=8)]
        return say("Well.")

    model = ScriptedLive(script, dialect="gemini")

    def back(*ids: str) -> Deed:
        return playing(model, cancel_calls(*ids))

    deeds = ("go", 3, back("call-1"), 1, back("call-3"), 1, back("call-2"), 1, back("call-2", "call-1"), "hi", 6)
    async with new_runner(model, tools=[prices, slow, name_of]) as runner:
        found = await recorded(runner, model, acting(*deeds))
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: prices({'every': 2}) name_of({}) slow({'n': 9}) slow({'n': 8})
                live(item_id=answer-1, path=run/root)
        0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
        2.00 ~ e5 root user: prices={'result': 1}
        3.00 6 e6 root user: prices={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                ended'}}
        6.00 7 e7 user user: 'hi' live(after_seq=6)
        6.25 8 e8 root model: 'Well.' out. over live(item_id=answer-2)
        8.00 9 e9 root user: slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                ended'}} slow={'result': 'after 8'}
        8.00 10 e10 root user: adk_request_input={'error': {'type': 'cancelled', 'message': 'the model has taken
                the call back'}}
        8.00 11 e11 root user: name_of={'error': {'type': 'cancelled', 'message': 'the model has taken the call
                back'}}
        8.25 12 e12 root model: 'Well.' out. over live(item_id=answer-3)
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                more ? id=?
        2.00 > responses user: prices(call-1)={'result': 1} more SILENT ?
        6.00 > content user: 'hi' ? id=e7
        8.00 > responses user: slow(call-4)={'result': 'after 8'} ? id=e9
        12.00 > close
    """)


async def test_a_server_that_takes_no_interim_results(autojump_clock: MockClock) -> None:
    """It hears once that a call goes on, then what has come of it, in words; of items it hears nothing."""

    def script(sent: LiveSent) -> Any:
        return [call("prices"), call("name_of")] if sent.text == "go" else say("Well.")

    capabilities = LiveCapabilities(knows_playback=True, answers_by_itself=True, cancels_calls=True)
    model = ScriptedLive(script, dialect="gemini", live_capabilities=capabilities)
    async with new_runner(model, tools=[prices, name_of]) as runner:
        found = await recorded(runner, model, acting("go", 5, answering("Ada"), 4))
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: prices({}) name_of({}) live(item_id=answer-1, path=run/root)
        0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
        0.25 6 e5 root model: 'Well.' out. over live(item_id=answer-1)
        1.00 ~ e6 root user: prices={'result': 1}
        2.00 ~ e7 root user: prices={'result': 2}
        3.00 ~ e8 root user: prices={'result': 3}
        3.00 7 e9 root user: prices={'result': [1, 2, 3]}
        3.25 8 e10 root model: 'Well.' out. over live(item_id=answer-2)
        5.00 9 e11 user user: adk_request_input={'result': 'Ada'}
        5.00 10 e12 root user: name_of={'result': 'it is Ada'}
        5.25 11 e13 root model: 'Well.' out. over live(item_id=answer-3)
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'} ?
                id=?
        0.00 > responses user: name_of(call-2)={'status': 'somebody has been asked about this call; its result
                will follow'} ? id=?
        3.00 > content user: 'The call of prices has returned: {"result": [1, 2, 3]}' ? id=e9-told
        5.00 > content user: 'The call of name_of has returned: {"result": "it is Ada"}' ? id=e12-told
        9.00 > close
    """)


@both
async def test_streams_are_ended_by_their_names(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Only `stop_streaming` does so, and only where it names the tool; a tool that nobody has is told to be none."""

    async def stop_streaming(function_name: str) -> str:
        """Stop a tool that goes on."""
        await trio.sleep(0.5)
        return function_name

    async def look(function_name: str) -> str:
        """Look at a tool."""
        return function_name

    def script(sent: LiveSent) -> Any:
        calls: dict[str, Any] = {
            "go": call("prices", every=4),
            "look": [call("look", function_name="prices"), call("nobody")],
            "stop other": call("stop_streaming", function_name="look"),
            "stop": call("stop_streaming", function_name="prices"),
        }
        return calls.get(sent.text, say("Well."))

    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[prices, stop_streaming, look]) as runner:
        found = await recorded(runner, model, acting("go", 5, "look", 1, "stop other", 3, "stop", 8))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({'every': 4}) live(item_id=answer-1, path=run/root)
            0.25 5 e4 root model: 'Well.' out. over live(item_id=answer-1)
            4.00 ~ e5 root user: prices={'result': 1}
            5.00 6 e6 user user: 'look' live(after_seq=5)
            5.00 7 e7 root model: look({'function_name': 'prices'}) nobody({}) live(item_id=answer-2, path=run/root)
            5.00 8 e8 root user: look={'result': 'prices'} nobody={'error': {'type': 'UnknownToolError', 'message':
                    "there is no tool 'nobody'; the tools are: prices, stop_streaming, look"}}
            5.25 9 e9 root model: 'Well.' out. over live(item_id=answer-2)
            6.00 10 e10 user user: 'stop other' live(after_seq=9)
            6.00 11 e11 root model: stop_streaming({'function_name': 'look'}) live(item_id=answer-3, path=run/root)
            6.50 12 e12 root user: stop_streaming={'result': 'look'}
            6.75 13 e13 root model: 'Well.' out. over live(item_id=answer-3)
            8.00 ~ e14 root user: prices={'result': 2}
            9.00 14 e15 user user: 'stop' live(after_seq=13)
            9.00 15 e16 root model: stop_streaming({'function_name': 'prices'}) live(item_id=answer-4, path=run/root)
            9.00 16 e17 root user: prices={'result': [1, 2]}
            9.25 17 e18 root model: 'Well.' out. over live(item_id=answer-4)
            9.50 18 e19 root user: stop_streaming={'result': 'prices'}
            9.75 19 e20 root model: 'Well.' out. over live(item_id=answer-5)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                    more ? id=?
            4.00 > responses user: prices(call-1)={'result': 1} more SILENT ?
            5.00 > content user: 'look' ? id=e6
            5.00 > responses user: look(call-2)={'result': 'prices'} nobody(call-3)={'error': {'type':
                    'UnknownToolError', 'message': "there is no tool 'nobody'; the tools are: prices, stop_streaming,
                    look"}} ? id=e8
            6.00 > content user: 'stop other' ? id=e10
            6.50 > responses user: stop_streaming(call-4)={'result': 'look'} ? id=e12
            8.00 > responses user: prices(call-1)={'result': 2} more SILENT ?
            9.00 > content user: 'stop' ? id=e15
            9.00 > responses user: prices(call-1)={'result': [1, 2]} ? id=e17
            9.50 > responses user: stop_streaming(call-5)={'result': 'prices'} ? id=e19
            17.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({'every': 4}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: 'Well.' out. over live(item_id=answer-2)
            4.00 ~ e5 root user: prices={'result': 1}
            5.00 6 e6 user user: 'look' live(after_seq=5)
            5.00 7 e7 root model: look({'function_name': 'prices'}) live(item_id=answer-3, path=run/root)
            5.00 8 e8 root model: nobody({}) live(item_id=answer-3, path=run/root)
            5.00 9 e9 root user: look={'result': 'prices'}
            5.00 10 e10 root user: nobody={'error': {'type': 'UnknownToolError', 'message': "there is no tool
                    'nobody'; the tools are: prices, stop_streaming, look"}}
            5.00 11 e11 root model: 'Well.' out. over live(item_id=answer-4)
            6.00 12 e12 user user: 'stop other' live(after_seq=11)
            6.00 13 e13 root model: stop_streaming({'function_name': 'look'}) live(item_id=answer-5, path=run/root)
            6.50 14 e14 root user: stop_streaming={'result': 'look'}
            6.50 15 e15 root model: 'Well.' out. over live(item_id=answer-6)
            8.00 ~ e16 root user: prices={'result': 2}
            9.00 16 e17 user user: 'stop' live(after_seq=15)
            9.00 17 e18 root model: stop_streaming({'function_name': 'prices'}) live(item_id=answer-7, path=run/root)
            9.00 18 e19 root user: prices={'result': [1, 2]}
            9.00 19 e20 root model: 'Well.' out. over live(item_id=answer-8)
            9.50 20 e21 root user: stop_streaming={'result': 'prices'}
            9.50 21 e22 root model: 'Well.' out. over live(item_id=answer-9)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'} ?
                    id=?
            5.00 > content user: 'look' ? id=e6
            5.00 > responses user: look(call-2)={'result': 'prices'} ? id=e9
            5.00 > responses user: nobody(call-3)={'error': {'type': 'UnknownToolError', 'message': "there is no tool
                    'nobody'; the tools are: prices, stop_streaming, look"}} ? id=e10
            6.00 > content user: 'stop other' ? id=e12
            6.50 > responses user: stop_streaming(call-4)={'result': 'look'} ? id=e14
            9.00 > content user: 'stop' ? id=e17
            9.00 > content user: 'The call of prices has returned: {"result": [1, 2]}' ? id=e19-told
            9.50 > responses user: stop_streaming(call-5)={'result': 'prices'} ? id=e21
            17.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_items_that_get_lost(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Where the line fails for an item, nothing else does: the next connection hears of the result."""
    model = Deaf([call("prices", every=2), say("Well."), say("Bye.")], dialect=dialect)
    async with new_runner(model, tools=[prices]) as runner:
        found = await recorded(runner, model, acting("go", 9))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({'every': 2}) live(item_id=answer-1, path=run/root)
            0.25 5 e4 root model: 'Well.' out. over live(item_id=answer-1)
            2.00 ~ e5 root user: prices={'result': 1}
            2.00 6 e6 root live(connection=2, reason=lost)
            4.00 ~ e7 root user: prices={'result': 2}
            6.00 ~ e8 root user: prices={'result': 3}
            6.00 7 e9 root user: prices={'result': [1, 2, 3]}
            6.25 8 e10 root model: 'Bye.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                    more ? id=?
            2.00 > close
            2.00 > connect 2
            2.00 > history
                user: 'go'
                model: 'Well.'
                model: prices({'every': 2})
                user: prices={'status': 'the call is still running; its result will follow'}
            6.00 > content user: 'The call of prices has returned: {"result": [1, 2, 3]}' ? id=e9-told
            9.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({'every': 2}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: 'Well.' out. over live(item_id=answer-2)
            2.00 ~ e5 root user: prices={'result': 1}
            4.00 ~ e6 root user: prices={'result': 2}
            6.00 ~ e7 root user: prices={'result': 3}
            6.00 6 e8 root user: prices={'result': [1, 2, 3]}
            6.00 7 e9 root model: 'Bye.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'} ?
                    id=?
            6.00 > content user: 'The call of prices has returned: {"result": [1, 2, 3]}' ? id=e8-told
            9.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_calls_that_are_one_too_many(dialect: DialectName, autojump_clock: MockClock) -> None:
    """All calls of an answer count at once, and none of those beyond `max_tool_calls` is made."""
    model = ScriptedLive([[call("slow"), call("slow")], say("Well.")], dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner:
        async with conversing(runner, run_config=RunConfig(max_tool_calls=1)) as client:
            await client.live.send_text("go")
            await client.hear_out()
        assert isinstance(client.failure, ToolCallsLimitExceededError)
        responses = [each.response for event in await stored(runner) for each in event.get_function_responses()]
    assert all("error" in each for each in responses)


async def test_a_stream_goes_on_when_its_end_is_taken_back(autojump_clock: MockClock) -> None:
    """A call of `stop_streaming` that the server takes back in the same breath stops nothing."""

    async def stop_streaming(function_name: str) -> str:
        """Stop a tool that goes on."""
        return function_name

    stop = Content(role="model", parts=[named("stop", "stop_streaming", function_name="prices")])
    script: list[Any] = [
        [call("prices", every=2), pause(3), LlmResponse(content=stop, cancelled_calls=["stop"])],
        *([say("Well.")] * 3),
    ]
    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model, tools=[prices, stop_streaming]) as runner:
        found = await recorded(runner, model, acting("go", 9))
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: prices({'every': 2}) live(item_id=answer-1, path=run/root)
        2.00 ~ e4 root user: prices={'result': 1}
        3.00 5 e5 root model: stop_streaming({'function_name': 'prices'}) live(path=run/root)
        3.00 6 e6 root user: stop_streaming={'error': {'type': 'cancelled', 'message': 'the model has taken the
                call back'}}
        3.25 7 e7 root model: 'Well.' out. over live(item_id=answer-1)
        4.00 ~ e8 root user: prices={'result': 2}
        6.00 ~ e9 root user: prices={'result': 3}
        6.00 8 e10 root user: prices={'result': [1, 2, 3]}
        6.25 9 e11 root model: 'Well.' out. over live(item_id=answer-2)
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                more ? id=?
        2.00 > responses user: prices(call-1)={'result': 1} more SILENT ?
        4.00 > responses user: prices(call-1)={'result': 2} more SILENT ?
        6.00 > responses user: prices(call-1)={'result': 3} more SILENT ?
        6.00 > responses user: prices(call-1)={'result': [1, 2, 3]} ? id=e10
        9.00 > close
    """)


async def test_a_call_that_is_taken_back_before_its_turn(autojump_clock: MockClock) -> None:
    """Where calls are made one by one, it is not made, and answered as taken back."""
    script: list[Any] = [[call("slow", n=3), call("slow", n=2), call("slow", n=1)], say("Well.")]
    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model, tools=[slow], parallel_tool_calls=False) as runner:
        found = await recorded(runner, model, acting("go", 1, playing(model, cancel_calls("call-2")), 6))
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: slow({'n': 3}) slow({'n': 2}) slow({'n': 1}) live(item_id=answer-1, path=run/root)
        3.00 5 e4 root user: slow={'result': 'after 3'}
        3.00 6 e5 root user: slow={'error': {'type': 'cancelled', 'message': 'the model has taken the call
                back'}}
        4.00 7 e6 root user: slow={'result': 'after 1'}
        4.25 8 e7 root model: 'Well.' out. over live(item_id=answer-2)
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        4.00 > responses user: slow(call-1)={'result': 'after 3'} slow(call-3)={'result': 'after 1'} ? id=e6
        7.00 > close
    """)
