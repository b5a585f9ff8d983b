"""Results that come when another connection, or another agent, has taken over, as lines; see `live_records`."""

from __future__ import annotations

from typing import Any

from trio.testing import MockClock

from minirun import LlmAgent, SequentialAgent
from minirun.testing import LiveSent, ScriptedLive, call, drop, handle, pause, say
from minirun.testing._live_dialects import DialectName

from ..live_client import both, new_runner
from ..live_deeds import Slow, acting, answering, name_of, playing, prices, slow
from ..live_records import recorded, records


@both
async def test_results_that_come_after_the_connection_of_their_calls(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """The new session knows no such call: it has what was known as history, and is told the rest in words."""

    def script(sent: LiveSent) -> Any:
        if sent.text == "go":
            return [call("prices", every=2), call("slow", n=5), call("name_of")]
        return drop() if sent.text == "drop" else say("Well.")

    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[prices, slow, name_of]) as runner:
        found = await recorded(runner, model, acting("go", 1, "drop", 8, answering("Ada"), 4))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({'every': 2}) slow({'n': 5}) name_of({}) live(item_id=answer-1,
                    path=run/root)
            0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            1.00 6 e5 user user: 'drop' live(after_seq=5)
            1.00 7 e6 root live(connection=2, reason=lost)
            2.00 ~ e7 root user: prices={'result': 1}
            4.00 ~ e8 root user: prices={'result': 2}
            5.00 8 e9 root user: slow={'result': 'after 5'}
            5.25 9 e10 root model: 'Well.' out. over live(item_id=answer-2)
            6.00 ~ e11 root user: prices={'result': 3}
            6.00 10 e12 root user: prices={'result': [1, 2, 3]}
            6.25 11 e13 root model: 'Well.' out. over live(item_id=answer-3)
            9.00 12 e14 user user: adk_request_input={'result': 'Ada'}
            9.00 13 e15 root user: name_of={'result': 'it is Ada'}
            9.25 14 e16 root model: 'Well.' out. over live(item_id=answer-4)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                    more ? id=?
            1.00 > content user: 'drop' ? id=e5
            1.00 > close
            1.00 > connect 2
            1.00 > history
                user: 'go'
                user: 'drop'
                model: prices({'every': 2}) slow({'n': 5}) name_of({})
                user: prices={'status': 'the call is still running; its result will follow'} slow={'status': 'the
                    call is still running; its result will follow'} name_of={'status': 'the call is still running;
                    its result will follow'}
            5.00 > content user: 'The call of slow has returned: {"result": "after 5"}' 'The call of name_of has
                    returned: {"status": "somebody has been asked about this call; its result will follow"}' ?
                    id=e9-told
            6.00 > content user: 'The call of prices has returned: {"result": [1, 2, 3]}' ? id=e12-told
            9.00 > content user: 'The call of name_of has returned: {"result": "it is Ada"}' ? id=e15-told
            13.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({'every': 2}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: slow({'n': 5}) live(item_id=answer-1, path=run/root)
            0.00 6 e5 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 7 e6 root model: adk_request_input({'message': 'Whose?'})
            1.00 8 e7 user user: 'drop' live(after_seq=7)
            1.00 9 e8 root live(connection=2, reason=lost)
            2.00 ~ e9 root user: prices={'result': 1}
            4.00 ~ e10 root user: prices={'result': 2}
            5.00 10 e11 root user: slow={'result': 'after 5'}
            5.00 11 e12 root model: 'Well.' out. over live(item_id=answer-2)
            6.00 ~ e13 root user: prices={'result': 3}
            6.00 12 e14 root user: prices={'result': [1, 2, 3]}
            6.00 13 e15 root model: 'Well.' out. over live(item_id=answer-3)
            9.00 14 e16 user user: adk_request_input={'result': 'Ada'}
            9.00 15 e17 root user: name_of={'result': 'it is Ada'}
            9.00 16 e18 root model: 'Well.' out. over live(item_id=answer-4)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'} ?
                    id=?
            0.00 > responses user: name_of(call-3)={'status': 'somebody has been asked about this call; its result
                    will follow'} ? id=?
            1.00 > content user: 'drop' ? id=e7
            1.00 > close
            1.00 > connect 2
            1.00 > history
                user: 'go'
                user: 'drop'
                model: prices({'every': 2})
                user: prices={'status': 'the call is still running; its result will follow'}
                model: slow({'n': 5})
                user: slow={'status': 'the call is still running; its result will follow'}
                model: name_of({})
                user: name_of={'status': 'the call is still running; its result will follow'}
            5.00 > content user: 'The call of slow has returned: {"result": "after 5"}' ? id=e11-told
            6.00 > content user: 'The call of prices has returned: {"result": [1, 2, 3]}' ? id=e14-told
            9.00 > content user: 'The call of name_of has returned: {"result": "it is Ada"}' ? id=e17-told
            13.00 > close
        """,
    }
    assert found == records(expected[dialect])


async def test_results_over_a_connection_that_goes_on_with_the_session(autojump_clock: MockClock) -> None:
    """The session knows the calls, so it is told items and results as responses."""

    def script(sent: LiveSent) -> Any:
        if sent.text == "go":
            return [handle("h"), call("prices", every=2), call("slow", n=5), call("name_of")]
        return say("Well.")

    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model, tools=[prices, slow, name_of]) as runner:
        found = await recorded(runner, model, acting("go", 1, playing(model, drop()), 8, answering("Ada"), 4))
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: prices({'every': 2}) slow({'n': 5}) name_of({}) live(item_id=answer-1,
                path=run/root)
        0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
        1.00 6 e5 root live(connection=2, reason=lost)
        1.25 7 e6 root model: 'Well.' out. over live(item_id=answer-2)
        2.00 ~ e7 root user: prices={'result': 1}
        4.00 ~ e8 root user: prices={'result': 2}
        5.00 8 e9 root user: slow={'result': 'after 5'}
        5.25 9 e10 root model: 'Well.' out. over live(item_id=answer-3)
        6.00 ~ e11 root user: prices={'result': 3}
        6.00 10 e12 root user: prices={'result': [1, 2, 3]}
        6.25 11 e13 root model: 'Well.' out. over live(item_id=answer-4)
        9.00 12 e14 user user: adk_request_input={'result': 'Ada'}
        9.00 13 e15 root user: name_of={'result': 'it is Ada'}
        9.25 14 e16 root model: 'Well.' out. over live(item_id=answer-5)
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                more ? id=?
        1.00 > close
        1.00 > connect 2 handle=h
        1.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                more ? id=?
        2.00 > responses user: prices(call-1)={'result': 1} more SILENT ?
        4.00 > responses user: prices(call-1)={'result': 2} more SILENT ?
        5.00 > responses user: slow(call-2)={'result': 'after 5'} name_of(call-3)={'status': 'somebody has been
                asked about this call; its result will follow'} more ? id=e9
        6.00 > responses user: prices(call-1)={'result': 3} more SILENT ?
        6.00 > responses user: prices(call-1)={'result': [1, 2, 3]} ? id=e12
        9.00 > responses user: name_of(call-3)={'result': 'it is Ada'} ? id=e15
        13.00 > close
    """)


@both
async def test_results_that_come_while_there_is_no_connection(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """They stand in the history that the next session begins with, and are not told once more."""

    def script(sent: LiveSent) -> Any:
        if sent.text == "go":
            return [call("prices"), call("slow", n=4), say("one two"), pause(0.5), drop()]
        return say("Well.")

    model = Slow(script, dialect=dialect)
    async with new_runner(model, tools=[prices, slow]) as runner:
        found = await recorded(runner, model, acting("go", 12))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({}) slow({'n': 4}) live(item_id=answer-1, path=run/root)
            0.50 ~ e4 root cut live(item_id=answer-1)
            0.50 5 e4 root model: 'one two' out. cut live(item_id=answer-1)
            1.00 ~ e5 root user: prices={'result': 1}
            2.00 ~ e6 root user: prices={'result': 2}
            3.00 ~ e7 root user: prices={'result': 3}
            3.00 6 e8 root user: prices={'result': [1, 2, 3]}
            4.00 7 e9 root user: slow={'result': 'after 4'}
            5.50 8 e10 root live(connection=2, reason=lost)
            5.75 9 e11 root model: 'Well.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                    more ? id=?
            0.50 > close
            5.50 > connect 2
            5.50 > history ?
                user: 'go'
                model: 'one two'
                model: prices({}) slow({'n': 4})
                user: prices={'result': [1, 2, 3]} slow={'result': 'after 4'}
            12.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: slow({'n': 4}) live(item_id=answer-1, path=run/root)
            0.50 ~ e5 root cut live(item_id=answer-1)
            0.50 6 e5 root model: 'one two' out. cut live(item_id=answer-1)
            1.00 ~ e6 root user: prices={'result': 1}
            2.00 ~ e7 root user: prices={'result': 2}
            3.00 ~ e8 root user: prices={'result': 3}
            3.00 7 e9 root user: prices={'result': [1, 2, 3]}
            4.00 8 e10 root user: slow={'result': 'after 4'}
            5.50 9 e11 root live(connection=2, reason=lost)
            5.50 10 e12 root model: 'Well.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'} ?
                    id=?
            0.50 > close
            5.50 > connect 2
            5.50 > history ?
                user: 'go'
                model: 'one two'
                model: prices({})
                user: prices={'result': [1, 2, 3]}
                model: slow({'n': 4})
                user: slow={'result': 'after 4'}
            12.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_handover_beside_another_call(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Both are answered before the next agent begins, at the latest as it does: its history has them."""

    def script(sent: LiveSent) -> Any:
        known: Any = [call("slow", n=2), call("transfer_to_agent", agent_name="shop")]
        return known if sent.text == "buy" else say("Front.")

    front = ScriptedLive(script, dialect=dialect, name="front")
    back = ScriptedLive(lambda sent: say("Shop."), dialect=dialect, name="back")
    shop = LlmAgent(name="shop", model=back, description="Sells.")
    agent = LlmAgent(name="root", model=front, sub_agents=[shop], tools=[slow])
    async with new_runner(front, agent=agent) as runner:
        found = await recorded(runner, front, acting("buy", 1, "a hat", 6), back)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'buy' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 2}) transfer_to_agent({'agent_name': 'shop'}) live(item_id=answer-1,
                    path=run/root)
            2.00 5 e4 root user: slow={'result': 'after 2'} transfer_to_agent={'result': 'shop takes over'}
            2.00 6 e5 shop live(connection=2, reason=transfer)
            2.00 7 e6 user user: 'a hat' live(after_seq=6)
            2.00 ~ e7 shop cut live(item_id=answer-1)
            2.00 8 e7 shop model: 'Shop.' out. cut live(item_id=answer-1)
            2.25 9 e8 shop model: 'Shop.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'buy' ? id=e2
            2.00 > close
            2.00 > connect 1
            2.00 > history ?
                user: 'buy'
                user: '[root] called slow with {"n":2}' '[root] called transfer_to_agent with {"agent_name":"shop"}'
                user: '[root] got from slow: {"result":"after 2"}' '[root] got from transfer_to_agent:
                    {"result":"shop takes over"}'
            2.00 > content user: 'a hat' ? id=e6
            7.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'buy' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 2}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: transfer_to_agent({'agent_name': 'shop'}) live(item_id=answer-1, path=run/root)
            0.00 6 e5 root user: transfer_to_agent={'result': 'shop takes over'}
            0.00 7 e6 root user: slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                    ended'}}
            0.00 8 e7 shop live(connection=2, reason=transfer)
            0.00 9 e8 shop model: 'Shop.' out. over live(item_id=answer-1)
            1.00 10 e9 user user: 'a hat' live(after_seq=9)
            1.00 11 e10 shop model: 'Shop.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'buy' ? id=e2
            0.00 > close
            0.00 > connect 1
            0.00 > history ?
                user: 'buy'
                user: '[root] called slow with {"n":2}'
                user: '[root] called transfer_to_agent with {"agent_name":"shop"}'
                user: '[root] got from transfer_to_agent: {"result":"shop takes over"}'
                user: '[root] got from slow: {"error":{"type":"cancelled","message":"the call was cancelled before it
                    ended"}}'
            1.00 > content user: 'a hat' ? id=e9
            7.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_task_that_is_completed_beside_another_call(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Both are answered before the next agent begins, at the latest as it does; nobody tells the first one's model."""
    first = ScriptedLive([[call("task_completed"), call("slow", n=2)]], dialect=dialect, name="first")
    second = ScriptedLive([say("Hello.")], dialect=dialect, name="second")
    agents = [LlmAgent(name="one", model=first, tools=[slow]), LlmAgent(name="two", model=second)]
    agent = SequentialAgent(name="both", sub_agents=agents)
    async with new_runner(first, agent=agent) as runner:
        found = await recorded(runner, first, acting("hi", 6), second)
    expected = {
        "gemini": """
            0.00 2 e1 one live(connection=1, reason=start)
            0.00 3 e2 user user: 'hi' live(after_seq=2)
            0.00 4 e3 one model: task_completed({}) slow({'n': 2}) live(item_id=answer-1, path=run/both/one)
            2.00 5 e4 one user: task_completed={'result': 'done'} slow={'result': 'after 2'}
            2.00 6 e5 two live(connection=2, reason=transfer)
            2.25 7 e6 two model: 'Hello.' out. over live(item_id=answer-1)
            0.00 > connect 1
            0.00 > content user: 'hi' ? id=e2
            2.00 > close
            2.00 > connect 1
            2.00 > history ?
                user: 'hi'
                user: '[one] called task_completed with {}' '[one] called slow with {"n":2}'
                user: '[one] got from task_completed: {"result":"done"}' '[one] got from slow: {"result":"after 2"}'
            6.00 > close
        """,
        "openai": """
            0.00 2 e1 one live(connection=1, reason=start)
            0.00 3 e2 user user: 'hi' live(after_seq=2)
            0.00 4 e3 one model: task_completed({}) live(item_id=answer-1, path=run/both/one)
            0.00 5 e4 one model: slow({'n': 2}) live(item_id=answer-1, path=run/both/one)
            0.00 6 e5 one user: task_completed={'result': 'done'}
            0.00 7 e6 one user: slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                    ended'}}
            0.00 8 e7 two live(connection=2, reason=transfer)
            0.00 9 e8 two model: 'Hello.' out. over live(item_id=answer-1)
            0.00 > connect 1
            0.00 > content user: 'hi' ? id=e2
            0.00 > close
            0.00 > connect 1
            0.00 > history ?
                user: 'hi'
                user: '[one] called task_completed with {}'
                user: '[one] called slow with {"n":2}'
                user: '[one] got from task_completed: {"result":"done"}'
                user: '[one] got from slow: {"error":{"type":"cancelled","message":"the call was cancelled before it
                    ended"}}'
            6.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_handover_that_fails_beside_another_call(dialect: DialectName, autojump_clock: MockClock) -> None:
    """What was said while it was tried goes to the agent that has stayed."""

    def script(sent: LiveSent) -> Any:
        known: Any = [call("slow", n=2), call("transfer_to_agent", agent_name="nobody")]
        return known if sent.text == "buy" else [pause(0.5), say("Front.")]

    front = ScriptedLive(script, dialect=dialect, name="front")
    shop = LlmAgent(name="shop", model=ScriptedLive([], dialect=dialect), description="Sells.")
    agent = LlmAgent(name="root", model=front, sub_agents=[shop], tools=[slow])
    async with new_runner(front, agent=agent) as runner:
        found = await recorded(runner, front, acting("buy", 1, "a hat", 6))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'buy' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 2}) transfer_to_agent({'agent_name': 'nobody'}) live(item_id=answer-1,
                    path=run/root)
            2.00 5 e4 root user: slow={'result': 'after 2'} transfer_to_agent={'error': {'type': 'ArgumentError',
                    'message': "expected agent_name, one of shop, found {'agent_name': 'nobody'}"}}
            2.00 6 e5 user user: 'a hat' live(after_seq=5)
            2.75 7 e6 root model: 'Front.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'buy' ? id=e2
            2.00 > responses user: slow(call-1)={'result': 'after 2'} transfer_to_agent(call-2)={'error': {'type':
                    'ArgumentError', 'message': "expected agent_name, one of shop, found {'agent_name': 'nobody'}"}}
                    ? id=e4
            2.00 > content user: 'a hat' ? id=e5
            7.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'buy' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 2}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: transfer_to_agent({'agent_name': 'nobody'}) live(item_id=answer-1, path=run/root)
            0.00 6 e5 root user: transfer_to_agent={'error': {'type': 'ArgumentError', 'message': "expected
                    agent_name, one of shop, found {'agent_name': 'nobody'}"}}
            1.00 7 e6 user user: 'a hat' live(after_seq=6)
            1.50 8 e7 root model: 'Front.' out. over live(item_id=answer-2)
            2.00 9 e8 root user: slow={'result': 'after 2'}
            2.50 10 e9 root model: 'Front.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'buy' ? id=e2
            0.00 > responses user: transfer_to_agent(call-2)={'error': {'type': 'ArgumentError', 'message': "expected
                    agent_name, one of shop, found {'agent_name': 'nobody'}"}} ? id=e5
            1.00 > content user: 'a hat' ? id=e6
            2.00 > responses user: slow(call-1)={'result': 'after 2'} ? id=e8
            7.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_new_session_while_a_call_is_made_after_a_stream_has_ended(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """The history is not to be answered before the call has its result: that is awaited, as if none had streamed."""

    def script(sent: LiveSent) -> Any:
        return {"go": call("prices"), "look": call("slow", n=4)}.get(sent.text, say("Well."))

    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[prices, slow]) as runner:
        deeds = ("go", 5, "look", 1, playing(model, drop()), 6)
        found = await recorded(runner, model, acting(*deeds))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({}) live(item_id=answer-1, path=run/root)
            0.25 5 e4 root model: 'Well.' out. over live(item_id=answer-1)
            1.00 ~ e5 root user: prices={'result': 1}
            2.00 ~ e6 root user: prices={'result': 2}
            3.00 ~ e7 root user: prices={'result': 3}
            3.00 6 e8 root user: prices={'result': [1, 2, 3]}
            3.25 7 e9 root model: 'Well.' out. over live(item_id=answer-2)
            5.00 8 e10 user user: 'look' live(after_seq=7)
            5.00 9 e11 root model: slow({'n': 4}) live(item_id=answer-3, path=run/root)
            6.00 10 e12 root live(connection=2, reason=lost)
            9.00 11 e13 root user: slow={'result': 'after 4'}
            9.25 12 e14 root model: 'Well.' out. over live(item_id=answer-4)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'}
                    more ? id=?
            1.00 > responses user: prices(call-1)={'result': 1} more SILENT ?
            2.00 > responses user: prices(call-1)={'result': 2} more SILENT ?
            3.00 > responses user: prices(call-1)={'result': 3} more SILENT ?
            3.00 > responses user: prices(call-1)={'result': [1, 2, 3]} ? id=e8
            5.00 > content user: 'look' ? id=e10
            6.00 > close
            6.00 > connect 2
            6.00 > history
                user: 'go'
                model: 'Well.'
                model: prices({})
                user: prices={'result': [1, 2, 3]}
                model: 'Well.'
                user: 'look'
                model: slow({'n': 4})
                user: slow={'status': 'the call is still running; its result will follow'}
            9.00 > content user: 'The call of slow has returned: {"result": "after 4"}' ? id=e13-told
            12.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: prices({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: 'Well.' out. over live(item_id=answer-2)
            1.00 ~ e5 root user: prices={'result': 1}
            2.00 ~ e6 root user: prices={'result': 2}
            3.00 ~ e7 root user: prices={'result': 3}
            3.00 6 e8 root user: prices={'result': [1, 2, 3]}
            3.00 7 e9 root model: 'Well.' out. over live(item_id=answer-3)
            5.00 8 e10 user user: 'look' live(after_seq=7)
            5.00 9 e11 root model: slow({'n': 4}) live(item_id=answer-4, path=run/root)
            6.00 10 e12 root live(connection=2, reason=lost)
            9.00 11 e13 root user: slow={'result': 'after 4'}
            9.00 12 e14 root model: 'Well.' out. over live(item_id=answer-5)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: prices(call-1)={'status': 'the call is still running; its result will follow'} ?
                    id=?
            3.00 > content user: 'The call of prices has returned: {"result": [1, 2, 3]}' ? id=e8-told
            5.00 > content user: 'look' ? id=e10
            6.00 > close
            6.00 > connect 2
            6.00 > history
                user: 'go'
                model: 'Well.'
                model: prices({})
                user: prices={'result': [1, 2, 3]}
                model: 'Well.'
                user: 'look'
                model: slow({'n': 4})
                user: slow={'status': 'the call is still running; its result will follow'}
            9.00 > content user: 'The call of slow has returned: {"result": "after 4"}' ? id=e13-told
            12.00 > close
        """,
    }
    assert found == records(expected[dialect])
