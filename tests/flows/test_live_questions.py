"""Questions in live runs: somebody is asked, the conversation goes on, and the answer makes the call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import Event, InMemorySessionService, LlmAgent, RunConfig, Runner, SqliteSessionService, ToolContext
from minirun.errors import IdleTimeoutError, InvalidMessageError, NotResumableError
from minirun.runners._live_run import LiveRun
from minirun.sessions import BaseSessionService, InvocationStatus
from minirun.testing import LiveSent, ScriptedLive, ScriptedLlm, call, drop
from minirun.tools import FunctionTool, LongRunningFunctionTool
from minirun.types import Content, FunctionResponse, Part

from ..live_runs import DIALECTS, PLACE, live_runner, log, sent, stored

both = pytest.mark.parametrize("dialect", DIALECTS)

ASKED = "somebody has been asked about this call; its result will follow"


@pytest.fixture(params=["memory", "sqlite"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BaseSessionService]:
    """A store of each kind."""
    if request.param == "memory":
        yield InMemorySessionService()
        return
    async with SqliteSessionService(tmp_path / "sessions.db") as sqlite:
        yield sqlite


class Till:
    """A tool that pays, and what it has paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    async def pay(self, amount: int) -> str:
        """Pay somebody."""
        self.paid.append(amount)
        return f"paid {amount}"


async def name_of(tool_context: ToolContext) -> str:
    """Find out a name."""
    return f"it is {await tool_context.request_input('Whose?')}"


def talkative(sent: LiveSent) -> Any:
    """A model that makes the call that a text names, and says what it has heard otherwise."""
    name, _, rest = sent.text.partition(" ")
    if name == "call":
        tool, *amount = rest.split()
        return [call(tool, amount=int(amount[0])) if amount else call(tool)]
    return f"so: {sent.text}" if sent.text else "hm"


class Talk:
    """A live run, whose events are read all the time."""

    def __init__(self, live: LiveRun) -> None:
        self.live = live
        self.lines: list[str] = []
        self.errors: list[str] = []

    async def read(self) -> None:
        async for event in self.live:
            self.lines += log([event])
            self.errors += [event.error_message or ""] if event.error_code else []

    async def quiet(self) -> list[str]:
        """Let everything be said that is on its way, and return it."""
        seen = len(self.lines)
        await trio.sleep(30)
        return self.lines[seen:]


@asynccontextmanager
async def conversation(runner: Runner, *, closes: bool = True, **options: Any) -> AsyncIterator[Talk]:
    async with trio.open_nursery() as nursery, runner.run_live(**PLACE, **options) as live:
        talk = Talk(live)
        nursery.start_soon(talk.read)
        yield talk
        if closes:
            await live.aclose()
            await trio.sleep(30)
        nursery.cancel_scope.cancel()


@both
async def test_a_call_is_made_once_somebody_has_allowed_it(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """The question is stored and the model told; with the answer the call is made, and its result told, too."""
    till, model = Till(), ScriptedLive(talkative, dialect=dialect)
    runner = live_runner(model, FunctionTool(till.pay, require_confirmation=True))
    async with conversation(runner) as talk:
        await talk.live.send_text("call pay 7")
        assert (await talk.quiet())[1:] == ["guide: pay!", "guide: adk_request_confirmation!", "guide: hm"]
        assert till.paid == []
        await talk.live.send_text("how are you?")
        assert await talk.quiet() == ["user: how are you?", "guide: so: how are you?"]
        (question,) = talk.live.pending
        await talk.live.send(question.reply(True))
        await talk.quiet()
        assert talk.lines[-3].startswith("user: adk_request_confirmation=")
        assert talk.lines[-2] == "guide: pay=paid 7"
        assert talk.live.pending == []
    assert till.paid == [7]
    told = sent(model)
    assert told[:3] == ["call pay 7", f"pay={ASKED}", "how are you?"]
    assert told[3:] == ['The call of pay has returned: {"result": "paid 7"}']  # it has its one response already
    assert talk.live.status == "completed"


@both
async def test_what_is_not_allowed_is_told_and_not_done(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """An answer of no is the result of the call: the tool is not called."""
    till, model = Till(), ScriptedLive(talkative, dialect=dialect)
    async with conversation(live_runner(model, FunctionTool(till.pay, require_confirmation=True))) as talk:
        await talk.live.send_text("call pay 7")
        await talk.quiet()
        await talk.live.send(talk.live.pending[0].reply(False, message="too much"))
        await talk.quiet()
    assert till.paid == []
    assert "too much" in sent(model)[-1]


@both
async def test_a_tool_that_asks_gets_the_answer(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """`request_input` is answered while the conversation goes on, and the tool is called again with the answer."""
    model = ScriptedLive(talkative, dialect=dialect)
    async with conversation(live_runner(model, name_of)) as talk:
        await talk.live.send_text("call name_of")
        await talk.quiet()
        await talk.live.send(talk.live.pending[0].reply("Ada's"))
        assert "guide: name_of=it is Ada's" in await talk.quiet()


@both
async def test_a_call_may_ask_more_than_once(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """One that asks again, when it was answered, waits again; the model is not told twice that somebody is asked."""

    async def pay(amount: int, tool_context: ToolContext) -> str:
        """Pay somebody."""
        return f"paid {amount} to {await tool_context.request_input('Whom?')}"

    model = ScriptedLive(talkative, dialect=dialect)
    async with conversation(live_runner(model, FunctionTool(pay, require_confirmation=True))) as talk:
        await talk.live.send_text("call pay 7")
        await talk.quiet()
        await talk.live.send(talk.live.pending[0].reply(True))
        await talk.quiet()
        assert sent(model)[1:] == [f"pay={ASKED}"]
        await talk.live.send(talk.live.pending[0].reply("Ada"))
        assert "guide: pay=paid 7 to Ada" in await talk.quiet()


@both
async def test_the_result_of_a_long_running_call_comes_later(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """The answer to its question is the result of the call; the tool is not called again."""
    begun: list[int] = []

    async def order(amount: int) -> dict[str, str]:
        """Order something."""
        begun.append(amount)
        return {"ticket": "t-1"}

    model = ScriptedLive(talkative, dialect=dialect)
    async with conversation(live_runner(model, LongRunningFunctionTool(order))) as talk:
        await talk.live.send_text("call order 3")
        assert (await talk.quiet())[-1] == "guide: hm"
        (question,) = talk.live.pending
        assert question.hint == {"ticket": "t-1"}
        await talk.live.send(question.reply({"result": "it is here"}))
        await talk.quiet()
        assert "user: order=it is here" in talk.lines
    assert begun == [3]
    assert "it is here" in sent(model)[-1]


@both
async def test_an_answer_may_come_at_once(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """One who answers while reading the question's event has the call made, and told once."""
    till, model = Till(), ScriptedLive(talkative, dialect=dialect)
    runner = live_runner(model, FunctionTool(till.pay, require_confirmation=True))
    async with runner.run_live(**PLACE) as live:
        await live.send_text("call pay 7")
        async for event in live:
            if event.long_running_tool_ids:
                await live.send(live.pending[0].reply(True))
                await live.aclose()
    assert till.paid == [7]
    assert live.status == "completed"
    assert sum("paid 7" in line for line in sent(model)) == 1


@both
async def test_calls_beside_one_that_waits_are_answered(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Of two calls one waits: the model gets the result of the other, and word of the first."""
    till = Till()

    async def look() -> str:
        """Look."""
        return "seen"

    def script(each: LiveSent) -> Any:
        return [call("pay", amount=1), call("look")] if each.text == "go" else "hm"

    model = ScriptedLive(script, dialect=dialect)
    async with conversation(live_runner(model, FunctionTool(till.pay, require_confirmation=True), look)) as talk:
        await talk.live.send_text("go")
        lines = await talk.quiet()
        assert "guide: look=seen" in lines
        await talk.live.send(talk.live.pending[0].reply(True))
        assert "guide: pay=paid 1" in await talk.quiet()
    assert "look=seen" in " ".join(sent(model))


@both
async def test_two_questions_are_answered_in_any_order(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Each answer makes its own call, while the other one goes on waiting."""
    till = Till()

    def script(each: LiveSent) -> Any:
        return [call("pay", amount=1), call("pay", amount=2)] if each.text == "go" else "hm"

    model = ScriptedLive(script, dialect=dialect)
    async with conversation(live_runner(model, FunctionTool(till.pay, require_confirmation=True))) as talk:
        await talk.live.send_text("go")
        await talk.quiet()
        first, second = talk.live.pending
        await talk.live.send(second.reply(True))
        await talk.quiet()
        assert till.paid == [2]
        assert [each.call_id for each in talk.live.pending] == [first.call_id]
        await talk.live.send(first.reply(True))
        await talk.quiet()
    assert till.paid == [2, 1]


@both
async def test_calls_in_order_wait_for_one_that_asks(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Where calls are made one by one, those after a call that waits are made after it."""
    done: list[str] = []

    async def ask(tool_context: ToolContext) -> str:
        """Ask."""
        answer = str(await tool_context.request_input("Well?"))
        done.append(answer)
        return answer

    async def look() -> str:
        """Look."""
        done.append("look")
        return "seen"

    def script(each: LiveSent) -> Any:
        return [call("ask"), call("look")] if each.text == "go" else "hm"

    model = ScriptedLive(script, dialect=dialect)
    runner = live_runner(model, ask, look, parallel_tool_calls=False)
    async with conversation(runner) as talk:
        await talk.live.send_text("go")
        await talk.quiet()
        await talk.live.send(talk.live.pending[0].reply("yes"))
        await talk.quiet()
    expected = ["yes", "look"] if dialect == "gemini" else ["look", "yes"]  # OpenAI's calls come one by one
    assert done == expected
    told = " ".join(sent(model))
    assert "yes" in told
    assert told.count("seen") == 1


@both
async def test_wrong_answers_are_refused_and_not_stored(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """An answer in another form, to another question, a second one, or a mixture raises out of `send`."""
    till, model = Till(), ScriptedLive(talkative, dialect=dialect)
    runner = live_runner(model, FunctionTool(till.pay, require_confirmation=True))
    async with conversation(runner) as talk:
        await talk.live.send_text("call pay 7")
        await talk.quiet()
        (question,) = talk.live.pending
        good = question.reply(True)
        response = good.responses[0]

        def answer(**changes: Any) -> Content:
            fields = {"id": response.id, "name": response.name, "response": response.response, **changes}
            return Content(role="user", parts=[Part(function_response=FunctionResponse(**fields))])

        before = await stored(runner)
        for odd in (
            answer(response={"confirmed": "perhaps"}),
            answer(id="q-1"),
            answer(name="pay"),
            Content(role="user", parts=[*good.parts, Part(text="and now?")]),
            Content(role="user", parts=[*good.parts, *good.parts]),
        ):
            with pytest.raises(InvalidMessageError):
                await talk.live.send(odd)
        assert await stored(runner) == before
        await talk.live.send(good)
        with pytest.raises(InvalidMessageError, match="answered already"):
            await talk.live.send(good)
        await talk.quiet()
    assert till.paid == [7]


@both
async def test_of_two_answers_at_once_one_counts(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Two tasks that answer a question: one is refused, and the call is made once."""
    till, model, refused = Till(), ScriptedLive(talkative, dialect=dialect), []
    async with conversation(live_runner(model, FunctionTool(till.pay, require_confirmation=True))) as talk:
        await talk.live.send_text("call pay 7")
        await talk.quiet()
        reply = talk.live.pending[0].reply(True)

        async def answer() -> None:
            try:
                await talk.live.send(reply)
            except InvalidMessageError:
                refused.append(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            nursery.start_soon(answer)
        await talk.quiet()
    assert (till.paid, refused) == ([7], [1])


@both
async def test_an_answer_by_the_queue_counts(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """What a ported client sends as a content answers the question; a wrong one is told by an event of the run."""
    from minirun.agents import LiveRequestQueue

    till, model, queue = Till(), ScriptedLive(talkative, dialect=dialect), LiveRequestQueue()
    runner = live_runner(model, FunctionTool(till.pay, require_confirmation=True))
    async with conversation(runner, live_request_queue=queue) as talk:
        queue.send_content("call pay 7")
        await talk.quiet()
        good = talk.live.pending[0].reply(True)
        queue.send_content(good)
        queue.send_content(good)
        await talk.quiet()
        assert till.paid == [7]
        assert len(talk.errors) == 1
        assert "answered already" in talk.errors[0]
        queue.send_content("still there?")
        assert "guide: so: still there?" in await talk.quiet()
    assert all(event.error_code is None for event in await stored(runner))


@both
async def test_a_question_survives_a_lost_connection(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """It is answered on the next connection, whose session knows of no such call: the result is told in words."""
    till = Till()

    def script(each: LiveSent) -> Any:
        return drop() if each.text == "bye" else talkative(each)

    model = ScriptedLive(script, dialect=dialect)
    async with conversation(live_runner(model, FunctionTool(till.pay, require_confirmation=True))) as talk:
        await talk.live.send_text("call pay 7")
        await talk.quiet()
        await talk.live.send_text("bye")
        await trio.sleep(1)
        await talk.live.send(talk.live.pending[0].reply(True))
        await talk.quiet()
    assert till.paid == [7]
    assert len(model.connections) == 2 or "bye" in sent(model)
    assert 'has returned: {"result": "paid 7"}' in " ".join(sent(model))


# --- after the end ----------------------------------------------------------------------------------------------------


# --- cancelled anywhere -----------------------------------------------------------------------------------------------


class CancelAt(trio.abc.Instrument):
    """Cancels a scope before the n-th step of the tasks that are meant: of one task, or of all."""

    def __init__(self, scope: trio.CancelScope, n: int, task: trio.lowlevel.Task | None) -> None:
        self._scope, self._left, self._task = scope, n, task

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._task in (None, task):
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


def checked_calls(events: list[Event]) -> None:
    """Check that no call was answered twice, and that nobody was answered who had not been called."""
    made = [each.id for event in events for each in event.get_function_calls()]
    answered = [each.id for event in events for each in event.get_function_responses()]
    assert len(set(made)) == len(made)
    assert len(set(answered)) == len(answered)
    assert set(answered) <= set(made)


@both
async def test_an_answer_is_taken_as_a_whole_or_not(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Wherever `send` is cancelled, the answer is stored and the call made, or it can be given again."""
    n, was_cancelled, outcomes = 0, True, set()
    while was_cancelled:
        n += 1
        till, model = Till(), ScriptedLive(talkative, dialect=dialect)
        runner = live_runner(model, FunctionTool(till.pay, require_confirmation=True))
        async with conversation(runner) as talk:
            await talk.live.send_text("call pay 7")
            await talk.quiet()
            reply, is_sent = talk.live.pending[0].reply(True), False
            with trio.CancelScope() as scope:
                cancel = CancelAt(scope, n, trio.lowlevel.current_task())
                trio.lowlevel.add_instrument(cancel)
                try:
                    await talk.live.send(reply)
                    is_sent = True
                finally:
                    trio.lowlevel.remove_instrument(cancel)
                await trio.lowlevel.checkpoint_if_cancelled()
            was_cancelled = scope.cancelled_caught
            await talk.quiet()
            if talk.live.pending:
                assert (till.paid, is_sent) == ([], False)
                await talk.live.send(reply)
                await talk.quiet()
            outcomes.add(is_sent)
        assert till.paid == [7]
        checked_calls(await stored(runner))
        assert sum(line.startswith("guide: pay=") for line in talk.lines) == 1
    assert outcomes == {True, False}
    assert n >= 3


@both
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
async def test_leaving_anywhere_after_an_answer_loses_nothing(
    dialect: Any, every: int, autojump_clock: trio.abc.Clock
) -> None:
    """Wherever the run is left while it takes a reply, every call is closed, and the tool ran at most once."""
    n, is_over, seen = 1 - every, False, set()
    while not is_over:
        n += every
        till = Till()
        model = ScriptedLive(talkative, dialect=dialect, text=ScriptedLlm(lambda request: "It is paid."))
        runner = live_runner(model, FunctionTool(till.pay, require_confirmation=True))
        with trio.CancelScope() as scope:
            async with conversation(runner) as talk:
                await talk.live.send_text("call pay 7")
                await talk.quiet()
                cancel = CancelAt(scope, n, None)
                trio.lowlevel.add_instrument(cancel)
                try:
                    await talk.live.send(talk.live.pending[0].reply(True))
                    await talk.quiet()
                finally:
                    trio.lowlevel.remove_instrument(cancel)
        is_over = not scope.cancelled_caught
        seen.add(str(talk.live.status))
        events = await stored(runner)
        checked_calls(events)
        assert len(till.paid) <= 1
        calls = {each.id for event in events for each in event.get_function_calls()}
        answers = {each.id for event in await stored(runner) for each in event.get_function_responses()}
        assert calls <= answers
    assert seen == {"cancelled", "completed"}


async def test_supervisors_leave_live_runs_alone(tmp_path: Path) -> None:
    """One whose process has died is listed as interrupted; nobody replays it, and the next run answers its calls."""
    till, path = Till(), tmp_path / "sessions.db"
    hung = trio.Event()

    async def hang() -> str:
        """Never return."""
        hung.set()
        await trio.sleep_forever()
        return ""

    model = ScriptedLive(talkative, text=ScriptedLlm(["Here I am."]), word_ms=1)
    agent = LlmAgent(name="guide", model=model, tools=[hang, till.pay])
    async with SqliteSessionService(path) as service:
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with trio.open_nursery() as nursery, runner.run_live(**PLACE).supervised(None) as live:
            nursery.start_soon(Talk(live).read)  # type: ignore[arg-type]
            await live.send("call hang")
            await hung.wait()
            nursery.cancel_scope.cancel()
        (found,) = await service.list_invocations(app_name="app", status=InvocationStatus.INTERRUPTED)
        before = await stored(runner)
        with trio.move_on_after(0.5):
            await runner.supervise(every_s=0.05)
        assert await stored(runner) == before
        with pytest.raises(NotResumableError, match="live run"):
            async with runner.run_async(**PLACE, invocation_id=found.invocation_id):
                pass
        async with runner.run_async(**PLACE, new_message="are you there?") as run:
            assert (await run.wait()).text == "Here I am."  # type: ignore[union-attr]
        assert any(line.startswith("guide: hang=") for line in log(await stored(runner)))


async def test_nobody_is_idle_while_somebody_is_asked(autojump_clock: trio.abc.Clock) -> None:
    """A question may be answered long after `idle_s`; the seconds without a word count from then on."""
    till, model = Till(), ScriptedLive(talkative)
    runner = live_runner(model, FunctionTool(till.pay, require_confirmation=True))
    async with runner.run_live(**PLACE, run_config=RunConfig(idle_s=60)) as live, trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(IdleTimeoutError):
                await live.wait()

        nursery.start_soon(read)
        await live.send_text("call pay 7")
        await trio.sleep(1000)
        await live.send(live.pending[0].reply(True))
        answered_at = trio.current_time()
    assert till.paid == [7]
    assert 60 <= trio.current_time() - answered_at < 130


@both
async def test_leaving_closes_open_requests_as_cancelled(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """No later run can reply to a request of a live run, so the run itself closes it when it is left."""
    model = ScriptedLive(talkative, dialect=dialect, text=ScriptedLlm(["Hello."]))
    runner = live_runner(model, FunctionTool(Till().pay, require_confirmation=True))
    async with conversation(runner, closes=False) as talk:
        await talk.live.send_text("call pay 7")
        await talk.quiet()
        (request,) = talk.live.pending
    assert (talk.live.status, talk.live.pending) == ("cancelled", [])
    answers = [each for event in await stored(runner) for each in event.get_function_responses()]
    assert [(each.name, each.response["error"]["type"]) for each in answers] == [
        ("adk_request_confirmation", "cancelled"), ("pay", "cancelled"),
    ]  # fmt: skip
    with pytest.raises((InvalidMessageError, NotResumableError)):
        async with runner.run_async(**PLACE, new_message=request.reply(True)):
            pass


async def test_recovery_closes_the_requests_of_a_live_run_that_died(tmp_path: Path) -> None:
    """A process dies while a person is asked: the next run closes request and call before its model is called (P6)."""
    model = ScriptedLive(talkative, text=ScriptedLlm(["Here I am."]), word_ms=1)
    agent = LlmAgent(name="guide", model=model, tools=[FunctionTool(Till().pay, require_confirmation=True)])
    async with SqliteSessionService(tmp_path / "sessions.db") as service:
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with trio.open_nursery() as nursery, runner.run_live(**PLACE).supervised(None) as live:
            await live.send("call pay 7")
            async for _ in live:
                if live.pending:
                    break
            (request,) = live.pending
            nursery.cancel_scope.cancel()
        (dead,) = await service.list_invocations(app_name="app", status=InvocationStatus.INTERRUPTED)
        with pytest.raises(NotResumableError, match="live run"):
            async with runner.run_async(**PLACE, new_message=request.reply(True)):
                pass
        async with runner.run_async(**PLACE, new_message="are you there?") as run:
            assert (await run.wait()).text == "Here I am."  # type: ignore[union-attr]
        events = await stored(runner)
        begins = next(place for place, event in enumerate(events) if event.text == "are you there?")
        closed = [place for place, event in enumerate(events) if event.get_function_responses()]
        assert len(closed) == 2
        assert max(closed) < begins
        assert await runner.session_service.list_pending(app_name="app", **PLACE) == []
        assert dead.invocation_id == live.invocation_id


async def test_requests_of_other_runs_stay_open_when_a_live_run_begins(autojump_clock: trio.abc.Clock) -> None:
    """Recovery closes only the requests of live runs: a paused run keeps its own."""
    text = ScriptedLlm([call("pay", amount=3)])
    runner = live_runner(ScriptedLive(talkative, text=text), FunctionTool(Till().pay, require_confirmation=True))
    async with runner.run_async(**PLACE, new_message="pay") as run:
        await run.wait()
    assert run.status == "paused"
    async with conversation(runner) as talk:
        await talk.live.send_text("hello")
        await talk.quiet()
    (still,) = await runner.session_service.list_pending(app_name="app", **PLACE)
    assert still.invocation_id == run.invocation_id
