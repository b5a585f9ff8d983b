"""Questions, their answers and late results, as lines; see `live_records`."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from minirun import LlmAgent, ToolContext
from minirun.testing import LiveSent, ScriptedLive, call, cancel_calls, drop, pause, say
from minirun.testing._live_dialects import DialectName
from minirun.tools import FunctionTool, LongRunningFunctionTool

from ..live_client import both, new_runner
from ..live_deeds import Slow, acting, answering, name_of, playing, slow
from ..live_records import recorded, records


@both
async def test_a_long_running_tool_and_the_result_that_comes_later(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """The model hears that somebody is asked; what the caller answers is the result."""

    async def order(what: str) -> None:
        """Order something."""

    def script(sent: LiveSent) -> Any:
        return [call("order", what="tea"), call("slow", n=1)] if sent.text == "go" else say("Well.")

    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[LongRunningFunctionTool(order), slow]) as runner:
        found = await recorded(runner, model, acting("go", 3, answering({"price": 7}), 4))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: order({'what': 'tea'}) slow({'n': 1}) live(item_id=answer-1, path=run/root)
            1.00 5 e4 root user: slow={'result': 'after 1'}
            1.00 6 e5 root
            1.25 7 e6 root model: 'Well.' out. over live(item_id=answer-1)
            3.00 8 e7 user user: order={'price': 7}
            3.25 9 e8 root model: 'Well.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            1.00 > responses user: slow(call-2)={'result': 'after 1'} order(call-1)={'status': 'somebody has been
                    asked about this call; its result will follow'} more ? id=e4
            3.00 > responses user: order(call-1)={'price': 7} ? id=e7
            7.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: order({'what': 'tea'}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: slow({'n': 1}) live(item_id=answer-1, path=run/root)
            0.00 6 e5 root
            1.00 7 e6 root user: slow={'result': 'after 1'}
            1.00 8 e7 root model: 'Well.' out. over live(item_id=answer-2)
            3.00 9 e8 user user: order={'price': 7}
            3.00 10 e9 root model: 'Well.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: order(call-1)={'status': 'somebody has been asked about this call; its result will
                    follow'} ? id=?
            1.00 > responses user: slow(call-2)={'result': 'after 1'} ? id=e6
            3.00 > content user: 'The call of order has returned: {"price": 7}' ? id=e8-told
            7.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_question_that_is_answered_while_calls_beside_it_are_made(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """Where one of the answer's calls is made alone, those that are made again wait until the others are done."""

    async def pay() -> str:
        """Pay."""
        return "paid"

    script: list[Any] = [[call("name_of"), call("slow", n=4), call("pay")], *([say("Well.")] * 4)]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[name_of, slow, FunctionTool(pay, sequential=True)]) as runner:
        found = await recorded(runner, model, acting("go", 2, answering("Ada"), 8))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: name_of({}) slow({'n': 4}) pay({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            2.00 6 e5 user user: adk_request_input={'result': 'Ada'}
            4.00 7 e6 root user: slow={'result': 'after 4'}
            4.00 8 e7 root
            4.00 9 e8 root user: name_of={'result': 'it is Ada'}
            4.00 10 e9 root user: pay={'result': 'paid'}
            4.25 11 e10 root model: 'Well.' out. over live(item_id=answer-1)
            4.50 12 e11 root model: 'Well.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            4.00 > responses user: slow(call-2)={'result': 'after 4'} name_of(call-1)={'status': 'somebody has been
                    asked about this call; its result will follow'} more pay(call-3)={'status': 'somebody has been
                    asked about this call; its result will follow'} more ? id=e6
            4.00 > responses user: name_of(call-1)={'result': 'it is Ada'} pay(call-3)={'result': 'paid'} ? id=e9
            10.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: slow({'n': 4}) live(item_id=answer-1, path=run/root)
            0.00 6 e5 root model: adk_request_input({'message': 'Whose?'})
            0.00 7 e6 root model: pay({}) live(item_id=answer-1, path=run/root)
            0.00 8 e7 root user: pay={'result': 'paid'}
            2.00 9 e8 user user: adk_request_input={'result': 'Ada'}
            2.00 10 e9 root user: name_of={'result': 'it is Ada'}
            2.00 11 e10 root model: 'Well.' out. over live(item_id=answer-2)
            4.00 12 e11 root user: slow={'result': 'after 4'}
            4.00 13 e12 root model: 'Well.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: name_of(call-1)={'status': 'somebody has been asked about this call; its result
                    will follow'} ? id=?
            0.00 > responses user: pay(call-3)={'result': 'paid'} ? id=e7
            2.00 > content user: 'The call of name_of has returned: {"result": "it is Ada"}' ? id=e9-told
            4.00 > responses user: slow(call-2)={'result': 'after 4'} ? id=e11
            10.00 > close
        """,
    }
    assert found == records(expected[dialect])


async def test_of_two_questions_one_is_taken_back_while_another_call_is_made(autojump_clock: MockClock) -> None:
    """The model is told of the other one, and of its result."""
    script: list[Any] = [[call("name_of"), call("name_of"), call("slow")], *([say("Well.")] * 4)]
    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model, tools=[name_of, slow]) as runner:
        deeds = ("go", 1, playing(model, cancel_calls("call-1")), 4, answering("Ada"), 3)
        found = await recorded(runner, model, acting(*deeds))
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: name_of({}) name_of({}) slow({}) live(item_id=answer-1, path=run/root)
        0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
        0.00 6 e5 root model: adk_request_input({'message': 'Whose?'})
        3.00 7 e6 root user: slow={'result': 'after 3'}
        3.00 8 e7 root user: adk_request_input={'error': {'type': 'cancelled', 'message': 'the model has taken
                the call back'}}
        3.00 9 e8 root user: name_of={'error': {'type': 'cancelled', 'message': 'the model has taken the call
                back'}}
        3.25 10 e9 root model: 'Well.' out. over live(item_id=answer-2)
        5.00 11 e10 user user: adk_request_input={'result': 'Ada'}
        5.00 12 e11 root user: name_of={'result': 'it is Ada'}
        5.25 13 e12 root model: 'Well.' out. over live(item_id=answer-3)
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        3.00 > responses user: slow(call-3)={'result': 'after 3'} name_of(call-2)={'status': 'somebody has been
                asked about this call; its result will follow'} more ? id=e6
        5.00 > responses user: name_of(call-2)={'result': 'it is Ada'} ? id=e11
        8.00 > close
    """)


@both
async def test_closing_waits_for_the_answer_to_a_late_result(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A result that the model did not wait for is one more thing that it answers, also when the line is closed."""
    model = ScriptedLive([[call("name_of")], say("Well."), [pause(2), say("Ada!")]], dialect=dialect)
    async with new_runner(model, tools=[name_of]) as runner:
        found = await recorded(runner, model, acting("go", 2, answering("Ada"), 0.5))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            0.25 6 e5 root model: 'Well.' out. over live(item_id=answer-1)
            2.00 7 e6 user user: adk_request_input={'result': 'Ada'}
            2.00 8 e7 root user: name_of={'result': 'it is Ada'}
            4.25 9 e8 root model: 'Ada!' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: name_of(call-1)={'status': 'somebody has been asked about this call; its result
                    will follow'} more ? id=?
            2.00 > responses user: name_of(call-1)={'result': 'it is Ada'} ? id=e7
            4.25 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            0.00 6 e5 root model: 'Well.' out. over live(item_id=answer-2)
            2.00 7 e6 user user: adk_request_input={'result': 'Ada'}
            2.00 8 e7 root user: name_of={'result': 'it is Ada'}
            4.00 9 e8 root model: 'Ada!' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: name_of(call-1)={'status': 'somebody has been asked about this call; its result
                    will follow'} ? id=?
            2.00 > content user: 'The call of name_of has returned: {"result": "it is Ada"}' ? id=e7-told
            4.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_question_of_an_agent_that_has_handed_over(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Its answer makes the call, and the agent that speaks by then is told the result in words."""

    def script(sent: LiveSent) -> Any:
        known: dict[str, Any] = {"ask": call("name_of"), "buy": call("transfer_to_agent", agent_name="shop")}
        return known.get(sent.text, say("Front."))

    front = ScriptedLive(script, dialect=dialect, name="front")
    back = ScriptedLive(lambda sent: say("Shop."), dialect=dialect, name="back")
    shop = LlmAgent(name="shop", model=back, description="Sells.")
    agent = LlmAgent(name="root", model=front, sub_agents=[shop], tools=[name_of])
    async with new_runner(front, agent=agent) as runner:
        found = await recorded(runner, front, acting("ask", 2, "buy", 2, answering("Ada"), 3), back)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'ask' live(after_seq=2)
            0.00 4 e3 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            0.25 6 e5 root model: 'Front.' out. over live(item_id=answer-1)
            2.00 7 e6 user user: 'buy' live(after_seq=6)
            2.00 8 e7 root model: transfer_to_agent({'agent_name': 'shop'}) live(item_id=answer-2, path=run/root)
            2.00 9 e8 root user: transfer_to_agent={'result': 'shop takes over'}
            2.00 10 e9 shop live(connection=2, reason=transfer)
            2.25 11 e10 shop model: 'Shop.' out. over live(item_id=answer-1)
            4.00 12 e11 user user: adk_request_input={'result': 'Ada'}
            4.00 13 e12 root user: name_of={'result': 'it is Ada'}
            4.25 14 e13 shop model: 'Shop.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'ask' ? id=e2
            0.00 > responses user: name_of(call-1)={'status': 'somebody has been asked about this call; its result
                    will follow'} more ? id=?
            2.00 > content user: 'buy' ? id=e6
            2.00 > close
            2.00 > connect 1
            2.00 > history ?
                user: 'ask'
                user: '[root] called name_of with {}'
                user: '[root] said: Front.'
                user: 'buy'
                user: '[root] called transfer_to_agent with {"agent_name":"shop"}'
                user: '[root] got from transfer_to_agent: {"result":"shop takes over"}'
            4.00 > content user: 'The call of name_of has returned: {"result": "it is Ada"}' ? id=e12-told
            7.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'ask' live(after_seq=2)
            0.00 4 e3 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            0.00 6 e5 root model: 'Front.' out. over live(item_id=answer-2)
            2.00 7 e6 user user: 'buy' live(after_seq=6)
            2.00 8 e7 root model: transfer_to_agent({'agent_name': 'shop'}) live(item_id=answer-3, path=run/root)
            2.00 9 e8 root user: transfer_to_agent={'result': 'shop takes over'}
            2.00 10 e9 shop live(connection=2, reason=transfer)
            2.00 11 e10 shop model: 'Shop.' out. over live(item_id=answer-1)
            4.00 12 e11 user user: adk_request_input={'result': 'Ada'}
            4.00 13 e12 root user: name_of={'result': 'it is Ada'}
            4.00 14 e13 shop model: 'Shop.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'ask' ? id=e2
            0.00 > responses user: name_of(call-1)={'status': 'somebody has been asked about this call; its result
                    will follow'} ? id=?
            2.00 > content user: 'buy' ? id=e6
            2.00 > close
            2.00 > connect 1
            2.00 > history ?
                user: 'ask'
                user: '[root] called name_of with {}'
                user: '[root] said: Front.'
                user: 'buy'
                user: '[root] called transfer_to_agent with {"agent_name":"shop"}'
                user: '[root] got from transfer_to_agent: {"result":"shop takes over"}'
            4.00 > content user: 'The call of name_of has returned: {"result": "it is Ada"}' ? id=e12-told
            7.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_question_that_is_answered_while_there_is_no_connection(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """The result stands in the history of the next session, which is not told it once more."""

    def script(sent: LiveSent) -> Any:
        return call("name_of") if sent.text == "go" else say("Well.")

    model = Slow(script, dialect=dialect)
    async with new_runner(model, tools=[name_of]) as runner:
        deeds = ("go", 2, playing(model, drop()), 2, answering("Ada"), 8, "hi", 2)
        found = await recorded(runner, model, acting(*deeds))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            0.25 6 e5 root model: 'Well.' out. over live(item_id=answer-1)
            4.00 7 e6 user user: adk_request_input={'result': 'Ada'}
            4.00 8 e7 root user: name_of={'result': 'it is Ada'}
            7.00 9 e8 root live(connection=2, reason=lost)
            7.25 10 e9 root model: 'Well.' out. over live(item_id=answer-2)
            12.00 11 e10 user user: 'hi' live(after_seq=10)
            12.25 12 e11 root model: 'Well.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: name_of(call-1)={'status': 'somebody has been asked about this call; its result
                    will follow'} more ? id=?
            2.00 > close
            7.00 > connect 2
            7.00 > history ?
                user: 'go'
                model: 'Well.'
                model: name_of({})
                user: name_of={'result': 'it is Ada'}
            12.00 > content user: 'hi' ? id=e10
            14.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: name_of({}) live(item_id=answer-1, path=run/root)
            0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            0.00 6 e5 root model: 'Well.' out. over live(item_id=answer-2)
            4.00 7 e6 user user: adk_request_input={'result': 'Ada'}
            4.00 8 e7 root user: name_of={'result': 'it is Ada'}
            7.00 9 e8 root live(connection=2, reason=lost)
            7.00 10 e9 root model: 'Well.' out. over live(item_id=answer-3)
            12.00 11 e10 user user: 'hi' live(after_seq=10)
            12.00 12 e11 root model: 'Well.' out. over live(item_id=answer-4)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            0.00 > responses user: name_of(call-1)={'status': 'somebody has been asked about this call; its result
                    will follow'} ? id=?
            2.00 > close
            7.00 > connect 2
            7.00 > history ?
                user: 'go'
                model: 'Well.'
                model: name_of({})
                user: name_of={'result': 'it is Ada'}
            12.00 > content user: 'hi' ? id=e10
            14.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_question_that_is_asked_while_there_is_no_connection(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """The next session has it in its history, and is told the result in words."""

    def script(sent: LiveSent) -> Any:
        return call("late") if sent.text == "go" else [pause(0.5), say("Well.")]

    async def late(tool_context: ToolContext) -> str:
        """Ask somebody, after a while."""
        await trio.sleep(3)
        return f"it is {await tool_context.request_input('Whose?')}"

    model = Slow(script, dialect=dialect)
    async with new_runner(model, tools=[late]) as runner:
        deeds = ("go", 2, playing(model, drop()), 8, "hi", 2, answering("Ada"), 6)
        found = await recorded(runner, model, acting(*deeds))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: late({}) live(item_id=answer-1, path=run/root)
            3.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            7.00 6 e5 root live(connection=2, reason=lost)
            7.75 7 e6 root model: 'Well.' out. over live(item_id=answer-3)
            10.00 8 e7 user user: 'hi' live(after_seq=7)
            10.75 9 e8 root model: 'Well.' out. over live(item_id=answer-4)
            12.00 10 e9 user user: adk_request_input={'result': 'Ada'}
            15.00 11 e10 root user: late={'result': 'it is Ada'}
            15.75 12 e11 root model: 'Well.' out. over live(item_id=answer-5)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            2.00 > close
            7.00 > connect 2
            7.00 > history ?
                user: 'go'
                model: late({})
                user: late={'status': 'the call is still running; its result will follow'}
            7.00 > content user: 'The call of late has returned: {"status": "somebody has been asked about this call;
                    its result will follow"}' ? id=?-told
            10.00 > content user: 'hi' ? id=e7
            15.00 > content user: 'The call of late has returned: {"result": "it is Ada"}' ? id=e10-told
            18.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'go' live(after_seq=2)
            0.00 4 e3 root model: late({}) live(item_id=answer-1, path=run/root)
            3.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
            7.00 6 e5 root live(connection=2, reason=lost)
            7.50 7 e6 root model: 'Well.' out. over live(item_id=answer-2)
            8.00 8 e7 root model: 'Well.' out. over live(item_id=answer-3)
            10.00 9 e8 user user: 'hi' live(after_seq=8)
            10.50 10 e9 root model: 'Well.' out. over live(item_id=answer-4)
            12.00 11 e10 user user: adk_request_input={'result': 'Ada'}
            15.00 12 e11 root user: late={'result': 'it is Ada'}
            15.50 13 e12 root model: 'Well.' out. over live(item_id=answer-5)
            0.00 > connect 1
            0.00 > content user: 'go' ? id=e2
            2.00 > close
            7.00 > connect 2
            7.00 > history ?
                user: 'go'
                model: late({})
                user: late={'status': 'the call is still running; its result will follow'}
            7.00 > content user: 'The call of late has returned: {"status": "somebody has been asked about this call;
                    its result will follow"}' ? id=?-told
            10.00 > content user: 'hi' ? id=e8
            15.00 > content user: 'The call of late has returned: {"result": "it is Ada"}' ? id=e11-told
            18.00 > close
        """,
    }
    assert found == records(expected[dialect])


async def test_a_call_that_waits_behind_a_question_and_is_taken_back(autojump_clock: MockClock) -> None:
    """The question is answered, and the calls are made one by one: one that is taken back meanwhile is not made."""
    made: list[int] = []

    async def late(tool_context: ToolContext) -> str:
        """Ask somebody, and take a while."""
        name = await tool_context.request_input("Whose?")
        await trio.sleep(3)
        return f"it is {name}"

    async def quick(n: int) -> str:
        """Be there at once."""
        made.append(n)
        return f"{n}"

    script: list[Any] = [[call("late"), call("quick", n=1), call("quick", n=2)], *([say("Well.")] * 3)]
    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model, tools=[late, quick], parallel_tool_calls=False) as runner:
        deeds = ("go", 2, answering("Ada"), 1, playing(model, cancel_calls("call-2")), 5)
        found = await recorded(runner, model, acting(*deeds))
    assert made == [2]
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'go' live(after_seq=2)
        0.00 4 e3 root model: late({}) quick({'n': 1}) quick({'n': 2}) live(item_id=answer-1, path=run/root)
        0.00 5 e4 root model: adk_request_input({'message': 'Whose?'})
        0.00 6 e5 root
        0.25 7 e6 root model: 'Well.' out. over live(item_id=answer-1)
        2.00 8 e7 user user: adk_request_input={'result': 'Ada'}
        5.00 9 e8 root user: late={'result': 'it is Ada'}
        5.00 10 e9 root user: quick={'error': {'type': 'cancelled', 'message': 'the model has taken the call
                back'}}
        5.00 11 e10 root user: quick={'result': '2'}
        5.25 12 e11 root model: 'Well.' out. over live(item_id=answer-2)
        0.00 > connect 1
        0.00 > content user: 'go' ? id=e2
        0.00 > responses user: late(call-1)={'status': 'somebody has been asked about this call; its result will
                follow'} more quick(call-2)={'status': 'somebody has been asked about this call; its result will
                follow'} more quick(call-3)={'status': 'somebody has been asked about this call; its result will
                follow'} more ? id=?
        5.00 > responses user: late(call-1)={'result': 'it is Ada'} quick(call-3)={'result': '2'} ? id=e10
        8.00 > close
    """)
