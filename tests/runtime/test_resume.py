"""An invocation goes on from its log: cut off after every event, paused at any depth, answered, never done twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from minirun import (
    AgentTool,
    BaseAgent,
    Event,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Runner,
    SequentialAgent,
    ToolContext,
)
from minirun._values import changed
from minirun.errors import InvalidMessageError, InvocationNotFoundError, NotSupportedError, ReplayError
from minirun.sessions import BaseSessionService, InMemorySessionService, PendingCall, SessionKey
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool, get_user_choice

from ..resuming import agent_inside, handing_over, noting, rounds_of, side_by_side, steps

PLACE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("app", "u", "s")


def runner_of(agent: BaseAgent, service: BaseSessionService | None = None) -> Runner:
    """A runner as a new process would make it."""
    service = InMemorySessionService() if service is None else service
    return Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)


async def log_of(runner: Runner) -> list[Event]:
    """The session's events, without the creation record."""
    return await runner.session_service.read_events(app_name="app", **PLACE, after_seq=0)


async def cut_after(log: Sequence[Event], count: int) -> InMemorySessionService:
    """A store whose process died when it had stored so many events of a run."""
    service = InMemorySessionService()
    await service.create_session(app_name="app", **PLACE)
    writer = await service.open_writer(KEY, log[0].invocation_id or "", None, reject=False)
    assert writer is not None
    for number, event in enumerate(log[:count]):
        await writer.append(changed(event, seq=None), begins=number == 0)
    await writer.finish(None)
    return service


def said(log: Sequence[Event]) -> list[Any]:
    """What stands in a log, without what a recovery has added."""
    return [
        (event.author, event.branch, event.node_info, event.content, event.actions, event.output)
        for event in log
        if event.author != "user" or event.content is not None
    ]


# --- agents to cut off ------------------------------------------------------------------------------------------------

DONE: list[str] = []
"""The effects of tools and steps."""


def note(what: str, tool_context: ToolContext) -> str:
    """Note something."""
    DONE.append(tool_context.idempotency_key)
    tool_context.state.extend("notes", [what])
    return f"noted {what}"


def tool() -> FunctionTool:
    """The tool that may be done again."""
    return FunctionTool(note, run_in="loop", on_interrupted="rerun")


def two_tools() -> BaseAgent:
    """Two calls in one turn, then one more."""
    return noting(tool())


def sequence() -> BaseAgent:
    """One after the other; the second sees what the first has written."""
    first = LlmAgent(name="first", model=ScriptedLlm(lambda request: "one"), output_key="first")
    second = LlmAgent(name="second", model=ScriptedLlm(lambda request: "two"), instruction="After {first}.")
    return SequentialAgent(name="all", sub_agents=[first, second])


def parallel() -> BaseAgent:
    """Two at once, each with a tool, then a third."""
    return side_by_side(tool())


def loop() -> BaseAgent:
    """Rounds until one escalates."""

    class Round(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            ctx.state["round"] = ctx.state.get("round", 0) + 1
            await ctx.emit(Event(message=f"round {ctx.state['round']}"))

    return rounds_of(Round(name="round"))


def transfer() -> BaseAgent:
    """One hands over to another, which uses a tool."""
    return handing_over(tool())


def agent_tool() -> BaseAgent:
    """An agent inside of a call, with a tool of its own."""
    return agent_inside(tool())


def custom() -> BaseAgent:
    """Three steps, with words and state between them."""

    class Order(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            async def charge(amount: int) -> dict[str, Any]:
                DONE.append(ctx.idempotency_key)
                return {"charged": amount}

            total = 0
            for amount in (1, 2, 3):
                assert ctx.state.get("total", 0) == total
                total += (await ctx.step("charge", charge, amount))["charged"]
                ctx.state["total"] = total
                await ctx.emit(Event(message=f"so far {total}"))

    return Order(name="order")


SCENARIOS: list[Callable[[], BaseAgent]] = [two_tools, sequence, parallel, loop, transfer, agent_tool, custom]


@pytest.mark.parametrize("build", SCENARIOS, ids=lambda build: build.__name__)
async def test_an_invocation_that_is_cut_off_anywhere_goes_on(build: Callable[[], BaseAgent]) -> None:
    """After every event the log becomes that of a run that nobody disturbed; what is recorded is not done again."""
    undisturbed = runner_of(build())
    async with undisturbed.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    log = await log_of(undisturbed)
    for count in range(1, len(log)):
        service = await cut_after(log, count)
        runner = runner_of(build(), service)
        DONE.clear()
        async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
            fresh = [event async for event in run]
        assert run.status == "completed"
        found = await log_of(runner)
        if build is parallel:  # what runs side by side may come in another order
            assert sorted(map(str, said(found))) == sorted(map(str, said(log))), count
        else:
            assert said(found) == said(log), count
        assert len(set(DONE)) == len(DONE)
        recorded = {event.id for event in log[:count]}
        assert not recorded & {event.id for event in fresh}
        session = await service.get_session(app_name="app", **PLACE)
        original = await undisturbed.session_service.get_session(app_name="app", **PLACE)
        assert session is not None
        assert original is not None
        assert {**session.state, "notes": 0} == {**original.state, "notes": 0}


async def test_what_has_ended_is_not_begun_again() -> None:
    """Going on with it yields nothing, says how it ended and what its answer was, and stores nothing."""
    runner = runner_of(two_tools())
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    before = await log_of(runner)
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
        assert [event async for event in again] == []
    assert (again.status, again.answer) == ("completed", run.answer)
    assert await log_of(runner) == before
    with pytest.raises(InvocationNotFoundError):
        async with runner.run_async(**PLACE, invocation_id="e-nothing"):
            pass
    with pytest.raises(InvalidMessageError, match="without it"):
        async with runner.run_async(**PLACE, invocation_id=run.invocation_id, new_message="hello"):
            pass


async def test_a_tool_says_what_becomes_of_a_call_that_was_interrupted() -> None:
    """By default the model is told that nobody knows; it may be made again, or somebody is asked whether to."""
    made: list[str] = []

    async def pay(tool_context: ToolContext) -> str:
        """Pay."""
        made.append(tool_context.function_call_id)
        return "paid"

    def agent(policy: Any) -> LlmAgent:
        return LlmAgent(name="a", model=steps(call("pay"), "done"), tools=[FunctionTool(pay, on_interrupted=policy)])

    first = runner_of(agent("report"))
    async with first.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    log = await log_of(first)
    call_id = made.pop()

    async def resumed(policy: str, *replies: bool) -> Any:
        service = await cut_after(log, 2)
        runner = runner_of(agent(policy), service)
        async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
            await run.wait()
        for reply in replies:
            [question] = run.pending
            assert (question.kind, question.tool) == ("confirmation", "pay")
            async with runner.run_async(**PLACE, new_message=question.reply(reply)) as run:
                await run.wait()
        [answer] = [part.response for event in await log_of(runner) for part in event.get_function_responses()][-1:]
        return answer

    assert (await resumed("report"))["error"]["type"] == "outcome_unknown"
    assert made == []
    assert await resumed("rerun") == {"result": "paid"}
    assert made == [call_id]
    assert await resumed("ask", True) == {"result": "paid"}
    assert (await resumed("ask", False))["error"]["type"] == "outcome_unknown"
    assert made == [call_id, call_id]


# --- waiting for somebody ---------------------------------------------------------------------------------------------


async def paused(runner: Runner, message: Any, **options: Any) -> tuple[list[Event], list[PendingCall], str]:
    """The events of a run, what it waits for, and how it ended."""
    async with runner.run_async(**PLACE, new_message=message, **options) as run:
        events = [event async for event in run]
    return events, run.pending, str(run.status)


async def test_a_call_that_needs_permission_waits_for_it() -> None:
    """The others of its turn are made and answered; the model is not asked before somebody has answered."""
    made: list[dict[str, Any]] = []

    def send(to: str, amount: int, tool_context: ToolContext) -> str:
        """Send money."""
        confirmation = tool_context.tool_confirmation
        made.append({"to": to, "amount": amount, "payload": confirmation.payload if confirmation else None})
        return "sent"

    def look() -> str:
        """Look."""
        return "seen"

    model = steps([call("send", to="bob", amount=5), call("look"), call("send", to="eve", amount=500)], "done")
    sender = FunctionTool(send, require_confirmation=lambda amount, **_: amount > 100)

    def runner(service: Any = None) -> Runner:
        return runner_of(LlmAgent(name="a", model=model, tools=[sender, look]), service)

    first = runner()
    events, pending, status = await paused(first, "go")
    assert status == "paused"
    [question] = pending
    assert (question.kind, question.tool, question.args) == ("confirmation", "send", {"to": "eve", "amount": 500})
    assert [item.response for event in events for item in event.get_function_responses()] == [
        {"result": "sent"},
        {"result": "seen"},
    ]
    assert len(model.requests) == 1
    assert await first.session_service.list_pending(app_name="app") == pending

    second = runner(first.session_service)
    events, pending, status = await paused(second, question.reply(True, payload="by ada"))
    assert (status, pending, events[-1].text) == ("completed", [], "done")
    assert made[-1] == {"to": "eve", "amount": 500, "payload": "by ada"}
    assert len(made) == 2
    with pytest.raises(InvalidMessageError, match="answered already"):
        await paused(second, question.reply(True))


async def test_a_permission_is_for_the_run_that_brings_it() -> None:
    """A process that dies after it was allowed to make the call may have made it: the tool's policy decides again."""
    made: list[str] = []

    async def pay(tool_context: ToolContext) -> str:
        """Pay."""
        made.append(tool_context.function_call_id)
        return "paid"

    def agent(policy: Any = "report") -> LlmAgent:
        tool = FunctionTool(pay, require_confirmation=True, on_interrupted=policy)
        return LlmAgent(name="a", model=steps(call("pay"), "done"), tools=[tool])

    first = runner_of(agent())
    _, [question], _ = await paused(first, "go")
    await paused(first, question.reply(True))
    assert len(made) == 1
    log = await log_of(first)
    [allowed] = [n for n, event in enumerate(log) if event.author == "user" and event.get_function_responses()]

    async def resumed(policy: str) -> dict[str, Any]:
        runner = runner_of(agent(policy), await cut_after(log, allowed + 1))
        async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
            await run.wait()
        for _ in run.pending:
            async with runner.run_async(**PLACE, new_message=run.pending[0].reply(True)) as again:
                await again.wait()
        *_, last = [part for event in await log_of(runner) for part in event.get_function_responses()]
        return dict(last.response)

    assert (await resumed("report"))["error"]["type"] == "outcome_unknown"
    assert len(made) == 1
    assert await resumed("ask") == {"result": "paid"}
    assert await resumed("rerun") == {"result": "paid"}
    assert len(made) == 3


async def test_what_was_allowed_is_what_is_done() -> None:
    """The question shows the arguments that callbacks have made, and no callback changes them afterwards."""
    paid: list[int] = []

    def pay(amount: int) -> None:
        """Pay."""
        paid.append(amount)

    grows = iter((7, 500))

    def change(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> None:
        args["amount"] = next(grows)

    def ask(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> None:
        tool_context.request_confirmation(hint="sure?")

    tool = FunctionTool(pay, require_confirmation=True)
    model = steps(call("pay", amount=5), "done")
    runner = runner_of(LlmAgent(name="a", model=model, tools=[tool], before_tool_callback=change))
    _, [question], _ = await paused(runner, "go")
    assert question.args == {"amount": 7}
    await paused(runner, question.reply(True))
    assert paid == [7]
    other = runner_of(LlmAgent(name="a", model=model, tools=[pay], before_tool_callback=ask))
    _, [question], _ = await paused(other, "go")
    assert (question.hint, question.args) == ("sure?", {"amount": 5})
    await paused(other, question.reply(False))
    assert paid == [7]


async def test_callbacks_around_a_model_may_ask() -> None:
    """Each question is for one answer of the model; what they say is theirs, also when the invocation goes on."""

    async def allow(callback_context: Any, llm_request: Any) -> None:
        if not await callback_context.request_input(f"ask the model, {len(llm_request.contents)}?"):
            callback_context.end_invocation = True

    def agent() -> LlmAgent:
        return LlmAgent(name="a", model=steps(call("look"), "done"), tools=[look], before_model_callback=allow)

    def look() -> str:
        """Look."""
        return "seen"

    service = InMemorySessionService()
    _, [first], _ = await paused(runner_of(agent(), service), "go")
    _, [second], _ = await paused(runner_of(agent(), service), first.reply(True))
    assert (first.hint, second.hint) == ("ask the model, 1?", "ask the model, 3?")
    events, pending, status = await paused(runner_of(agent(), service), second.reply(True))
    assert (status, pending, events[-1].text) == ("completed", [], "done")


async def test_nobody_can_be_asked_after_a_call() -> None:
    """A callback after a tool that asks would have the tool called twice; it is refused, and the result is stored."""

    async def ask(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> None:
        await tool_context.request_input("was it good?")

    def look() -> str:
        """Look."""
        return "seen"

    runner = runner_of(LlmAgent(name="a", model=steps(call("look"), "done"), tools=[look], after_tool_callback=ask))
    with pytest.raises(NotSupportedError, match="after a tool has been called"):
        await paused(runner, "go")
    assert [item.response for event in await log_of(runner) for item in event.get_function_responses()] == [
        {"result": "seen"}
    ]


async def test_a_call_that_is_not_allowed_is_not_made() -> None:
    """The model is told; so it is where the tool itself has asked, whose first result and writes are dropped."""
    tried: list[bool] = []

    def drop(tool_context: ToolContext) -> str:
        """Drop the table."""
        tried.append(tool_context.tool_confirmation is not None)
        tool_context.state["dropped"] = True
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="really?", payload={"rows": 5})
        return "dropped"

    for answer, last in ((False, "rejected"), (True, None)):
        runner = runner_of(LlmAgent(name="a", model=steps(call("drop"), "done"), tools=[drop]))
        _, [question], _ = await paused(runner, "go")
        assert (question.hint, question.payload) == ("really?", {"rows": 5})
        await paused(runner, question.reply(answer))
        log = await log_of(runner)
        [response] = [item.response for event in log for item in event.get_function_responses() if item.name == "drop"]
        assert response.get("error", {}).get("type") == last
        session = await runner.session_service.get_session(app_name="app", **PLACE)
        assert session is not None
        assert ("dropped" in session.state) is answer
    assert tried == [False, False, True]


async def test_a_long_running_call_is_answered_from_outside() -> None:
    """What its function returns is shown with the question; the result is what somebody sends."""
    tool = LongRunningFunctionTool(lambda: {"ticket": 7}, name="order", description="Order.")
    runner = runner_of(LlmAgent(name="a", model=steps(call("order"), "it came"), tools=[tool]))
    events, [question], status = await paused(runner, "go")
    assert (status, question.kind, question.tool, question.hint) == ("paused", "long_running", "order", {"ticket": 7})
    assert events[-1].long_running_tool_ids == frozenset({question.call_id})
    events, _, status = await paused(runner, question.reply({"parcel": "red"}))
    assert (status, events[-1].text) == ("completed", "it came")


async def test_the_user_chooses() -> None:
    """`get_user_choice` waits for one of the options."""
    model = steps(call("get_user_choice", options=["tea", "coffee"]), "here you are")
    runner = runner_of(LlmAgent(name="a", model=model, tools=[get_user_choice]))
    _, [question], _ = await paused(runner, "go")
    assert question.args == {"options": ["tea", "coffee"]}
    events, _, _ = await paused(runner, question.reply("tea"))
    assert events[-1].text == "here you are"


async def test_an_answer_that_does_not_fit_is_refused_and_may_be_given_again() -> None:
    """It is an error before anything is stored; a later one that fits counts."""

    class Size(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            size = await ctx.request_input("Which size?", response_schema=int)
            await ctx.emit(Event(message=f"size {size}"))

    runner = runner_of(Size(name="size"))
    _, [question], status = await paused(runner, "go")
    assert (status, question.hint, question.schema) == ("paused", "Which size?", {"type": "integer"})
    before = await log_of(runner)
    with pytest.raises(InvalidMessageError, match="integer"):
        await paused(runner, question.reply("large"))
    assert await log_of(runner) == before
    events, _, status = await paused(runner, question.reply(42))
    assert (status, events[-1].text) == ("completed", "size 42")


class Asks(BaseAgent):
    """Asks so many questions, one after the other, with a step between."""

    times: int = 1

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for number in range(self.times):
            answer = await ctx.request_input(f"{self.name} {number}")
            await ctx.step("keep", DONE.append, f"{self.name} {answer}")
        await ctx.emit(Event(message=f"{self.name} done"))


def nested(depth: int, times: int) -> BaseAgent:
    """Something that asks, inside of a sequence, a parallel agent, a transfer and a call, so many levels deep."""
    if depth == 0:
        return Asks(name="asks", times=times)
    inner = nested(depth - 1, times)
    after = LlmAgent(name=f"after{depth}", model=ScriptedLlm(lambda request: "after"))
    if depth % 3 == 1:
        return SequentialAgent(name=f"sequence{depth}", sub_agents=[inner, after])
    if depth % 3 == 2:
        return ParallelAgent(name=f"parallel{depth}", sub_agents=[inner, after])
    model = steps(call(inner.name, request="go"), "called")
    return LlmAgent(name=f"caller{depth}", model=model, tools=[AgentTool(inner)])


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_pausing_works_at_any_depth_and_any_number_of_times(depth: int, times: int) -> None:
    """Each answer comes to a new process; every step is taken once, and what follows happens once."""
    DONE.clear()
    service = InMemorySessionService()
    message: Any = "go"
    for number in range(times):
        _, pending, status = await paused(runner_of(nested(depth, times), service), message)
        assert status == "paused"
        [question] = pending
        message = question.reply(number)
    _, pending, status = await paused(runner_of(nested(depth, times), service), message)
    assert (status, pending) == ("completed", [])
    assert [f"asks {number}" for number in range(times)] == DONE
    log = await log_of(runner_of(nested(depth, times), service))
    texts = [event.text for event in log if event.text and event.author != "user"]
    assert texts.count("asks done") == 1
    assert all(texts.count(text) == 1 for text in texts if text == "called")
    calls = [item.id for event in log for item in event.get_function_calls()]
    answers = [item.id for event in log for item in event.get_function_responses()]
    assert sorted(map(str, calls)) == sorted(map(str, answers))


async def test_two_that_wait_are_answered_one_by_one() -> None:
    """The other goes on waiting; both branches come to their end."""
    DONE.clear()
    service = InMemorySessionService()

    def agent() -> BaseAgent:
        return ParallelAgent(name="both", sub_agents=[Asks(name="one"), Asks(name="two")])

    _, pending, _ = await paused(runner_of(agent(), service), "go")
    assert {question.author for question in pending} == {"one", "two"}
    _, left, status = await paused(runner_of(agent(), service), pending[1].reply("x"))
    assert (status, left) == ("paused", pending[:1])
    _, left, status = await paused(runner_of(agent(), service), pending[0].reply("y"))
    assert (status, left) == ("completed", [])


async def test_a_new_message_meanwhile_begins_something_new() -> None:
    """The open call is shown to the model with a stand-in; the question can be answered afterwards."""
    tool = LongRunningFunctionTool(lambda: None, name="order", description="Order.")
    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm([call("order"), "hello", "it came"]), tools=[tool]))
    _, [question], _ = await paused(runner, "go")
    events, _, status = await paused(runner, "by the way")
    assert (status, events[-1].text) == ("completed", "hello")
    assert await runner.session_service.list_pending(app_name="app") == [question]
    events, _, status = await paused(runner, question.reply("parcel"))
    assert (status, events[-1].text) == ("completed", "it came")


async def test_who_leaves_a_run_that_waits_does_not_take_its_question_back() -> None:
    """A caller that breaks off at the question can answer it later."""
    runner = runner_of(ParallelAgent(name="both", sub_agents=[Asks(name="one"), Asks(name="two")]))
    DONE.clear()
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.long_running_tool_ids:
                break
    assert run.status == "paused"
    while pending := await runner.session_service.list_pending(app_name="app"):
        _, _, status = await paused(runner, pending[0].reply("x"))
    assert status == "completed"


async def test_time_is_waited_for_durably(autojump_clock: trio.testing.MockClock) -> None:
    """`sleep_until` pauses; nothing is due before its time, and what is due goes on."""
    import time

    class Reminds(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            async def soon() -> float:
                return time.time() + 60

            when = await ctx.step("when", soon)
            await ctx.sleep_until(when)
            await ctx.emit(Event(message="now"))

    runner = runner_of(Reminds(name="r"))
    _, pending, status = await paused(runner, "go")
    assert (status, pending) == ("paused", [])
    assert await runner.resume_due(time.time()) == []
    [ended] = await runner.resume_due(time.time() + 61)
    assert ended.status == "completed"
    assert [event.text for event in await log_of(runner)][-1] == "now"


async def test_other_steps_than_those_recorded_are_refused() -> None:
    """A step that was recorded with other arguments names itself; nothing new is stored."""

    class Steps(BaseAgent):
        argument: int

        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.step("work", abs, self.argument)
            await ctx.request_input("go on?")

    first = runner_of(Steps(name="s", argument=1))
    _, [question], _ = await paused(first, "go")
    other = runner_of(Steps(name="s", argument=2), first.session_service)
    with pytest.raises(ReplayError, match=r"'work'.*other arguments"):
        await paused(other, question.reply(True))


async def test_steps_are_told_apart_by_what_they_do(autojump_clock: trio.testing.MockClock) -> None:
    """Side by side, one in another, tried again after a failure: each is taken once, and none is taken for another."""
    taken: list[str] = []

    class Steps(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            async def work(what: str) -> str:
                taken.append(what)
                if what == "fails" and taken.count(what) == 1:
                    raise OSError("once")
                return what

            async def outer() -> str:
                return str(await ctx.step("work", work, "a"))

            async with trio.open_nursery() as nursery:
                for what in "abc":
                    nursery.start_soon(ctx.step, "work", work, what)
            assert await ctx.step("outer", outer) == "a"
            try:
                await ctx.step("work", work, "fails")
            except OSError:
                await ctx.step("work", work, "fails")
            assert await ctx.step("work", work, "a") == "a"
            await ctx.request_input("go on?")

    runner = runner_of(Steps(name="s"))
    _, [question], _ = await paused(runner, "go")
    assert sorted(taken) == ["a", "a", "a", "b", "c", "fails", "fails"]
    before = len(taken)
    async with runner.run_async(**PLACE, new_message=question.reply(True)) as run:
        await run.wait()
    assert (run.status, len(taken)) == ("completed", before)


async def test_an_answer_comes_to_the_question_it_was_given_to() -> None:
    """Two agents' tasks that ask side by side each get their own, in whatever order they ask."""

    class Both(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            answers: dict[str, Any] = {}

            async def ask(what: str) -> None:
                answers[what] = await ctx.request_input(what)

            for what in ("left", "right"):
                await ask(what)
            await ctx.emit(Event(message=str(sorted(answers.items()))))

    service = InMemorySessionService()
    message: Any = "go"
    for _ in range(2):
        _, [question], _ = await paused(runner_of(Both(name="b"), service), message)
        message = question.reply(f"the {question.hint}")
    events, _, _ = await paused(runner_of(Both(name="b"), service), message)
    assert events[-1].text == "[('left', 'the left'), ('right', 'the right')]"
