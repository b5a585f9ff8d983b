"""Messages into runs: `run.send`, `runner.send`. Each becomes an event once, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from minirun import (
    AgentTool,
    BaseAgent,
    Content,
    Event,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    Part,
    Runner,
    SequentialAgent,
)
from minirun.errors import (
    InvalidMessageError,
    InvalidValueError,
    InvocationEndedError,
    InvocationNotFoundError,
    StorageCorruptError,
)
from minirun.plugins import BasePlugin
from minirun.sessions import BaseSessionService, InvocationStatus
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, LongRunningFunctionTool
from minirun.types import FunctionResponse
from minirun.workflow import START, Workflow

from ..helpers import PLACE, Logic, Place, look, run_to_end, runner_for, shown, stored_events
from ..interruptions import QUIET_RUNS, CancelAtStep
from ..postgres import execute
from ..stores import HERE, KINDS, database_of, services, sql


async def log_of(service: BaseSessionService) -> list[str]:
    """The texts and calls of the log, each with its author."""
    found = []
    for event in await service.read_events(**HERE, after_seq=0):
        calls = [f"{each.name}?" for each in event.get_function_calls()]
        answers = [f"{each.name}!" for each in event.get_function_responses()]
        if event.content is not None or event.error_code:
            found.append(f"{event.author}: {event.text or ' '.join([*calls, *answers]) or event.error_code}")
    return found


# --- where a message is taken -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_are_stored_before_the_next_question_to_the_model(kind: str, tmp_path: Path) -> None:
    """They stand in the order of sending, after the response to the open call, and the next request shows them."""
    model = ScriptedLlm([call("look"), "done"])
    async with services(tmp_path)[kind]() as service:
        agent = LlmAgent(name="a", model=model, tools=[look])
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        ids = []
        async with runner.run_async(**PLACE, new_message="go") as run:
            async for event in run:
                if event.get_function_calls():
                    ids.append(await run.send("also this"))
                    ids.append(await runner.send("and that", **PLACE))
        assert await log_of(service) == [
            "user: go", "a: look?", "a: look!", "user: also this", "user: and that", "a: done",
        ]  # fmt: skip
        assert shown(model) == ["user: go", "model: look!", "user: look!", "user: also this", "user: and that"]
        sent = [event for event in await service.read_events(**HERE) if event.actions.replay.sent]
        assert [event.id for event in sent] == ids
        assert {event.invocation_id for event in sent} == {run.invocation_id}
        assert run.status is InvocationStatus.COMPLETED
        assert [content.text for content in (run.session.events[3].content, run.session.events[4].content) if content]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_at_the_end_is_answered(kind: str, tmp_path: Path) -> None:
    """What comes while the caller holds the last answer is stored, and the agent goes on with another question."""
    model = ScriptedLlm(["one", "two", "three"])
    async with services(tmp_path)[kind]() as service:
        agent = LlmAgent(name="a", model=model)
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with runner.run_async(**PLACE, new_message="go") as run:
            async for event in run:
                if event.text in ("one", "two"):
                    await runner.send(f"after {event.text}", **PLACE)
        assert await log_of(service) == [
            "user: go", "a: one", "user: after one", "a: two", "user: after two", "a: three",
        ]  # fmt: skip
        assert run.answer is not None
        assert run.answer.text == "three"
        [found] = await service.list_invocations(**HERE)
        assert found.status is InvocationStatus.COMPLETED


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_in_the_very_moment_of_the_end_is_answered_or_refused(kind: str, tmp_path: Path) -> None:
    """Sent just before the end is recorded, the run goes on with it; just after, it is refused."""
    model = ScriptedLlm(["one", "two"])
    async with services(tmp_path)[kind]() as service:
        agent = LlmAgent(name="a", model=model)
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        finish, sent = service.finish_invocation, 0

        async def before_and_after(*arguments: Any) -> Any:
            nonlocal sent
            sent += 1
            if sent == 1:
                await runner.send("before", **PLACE)
            is_left = await finish(*arguments)
            if is_left:
                with pytest.raises(InvocationEndedError, match=r"completed.*run_async"):
                    await runner.send("after", **PLACE)
            return is_left

        service.finish_invocation = before_and_after  # type: ignore[method-assign,assignment]
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
        assert sent == 2
        assert await log_of(service) == ["user: go", "a: one", "user: before", "a: two"]
        assert run.answer is not None
        assert run.answer.text == "two"
        assert run.status is InvocationStatus.COMPLETED


async def test_each_message_to_a_workflow_has_a_round() -> None:
    """No node takes messages, so each that has come by the end is the input of a round, in the order of sending."""
    model = ScriptedLlm(lambda request: f"heard {request.contents[-1].parts[-1].text}")
    clerk = LlmAgent(name="clerk", model=model)
    runner = runner_for(Workflow(name="desk", edges=[(START, clerk)]))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.send("a")
        await run.send("b", when="idle")
        await run.send("c")
        await run.wait()
    assert [line for line in await log_of(runner.session_service) if not line.endswith(": ")] == [
        "user: go", "clerk: heard go", "user: a", "clerk: heard a", "user: b", "clerk: heard b",
        "user: c", "clerk: heard c",
    ]  # fmt: skip


async def test_an_idle_message_waits_until_the_agent_has_ended() -> None:
    """`when="idle"` is as if it was the user's next message, and those for the next question pass it."""
    model = ScriptedLlm([call("look"), "done", "that, too"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[look]))
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.get_function_calls():
                await run.send("later", when="idle")
                await run.send("now")
    assert await log_of(runner.session_service) == [
        "user: go", "a: look?", "a: look!", "user: now", "a: done", "user: later", "a: that, too",
    ]  # fmt: skip


async def test_a_message_is_sent_while_the_model_answers() -> None:
    """Who sends waits neither for the model nor for the caller of the run."""
    asked, go_on = trio.Event(), trio.Event()

    async def slow(request: Any) -> Any:
        if len(request.contents) > 1:
            return "both"
        asked.set()
        await go_on.wait()
        return "first"

    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm(slow)))

    async def send() -> None:
        await asked.wait()
        await runner.send("second", **PLACE)
        go_on.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        events, _ = await run_to_end(runner)
    assert [event.text for event in events] == ["first", "second", "both"]


# --- every kind of agent ----------------------------------------------------------------------------------------------


async def sent_during(agent: BaseAgent, *, of: str, message: str = "also this") -> tuple[Runner, list[str]]:
    """Run an agent, and send a message when the text *of* is delivered; return what was said by whom."""
    runner = runner_for(agent)
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.text == of:
                await run.send(message)
    assert run.status is InvocationStatus.COMPLETED
    return runner, [f"{event.author}: {event.text}" for event in await stored_events(runner) if event.content]


async def test_an_agent_of_ones_own_runs_again_with_the_message() -> None:
    """It asks no model: when it has ended it is run again, and the message is its `user_content`."""

    async def echo(ctx: InvocationContext) -> None:
        assert ctx.user_content is not None
        await ctx.emit(Event(message=f"heard {ctx.user_content.text}"))

    _, said = await sent_during(Logic(name="agent", logic=echo), of="heard go")
    assert said == ["user: go", "agent: heard go", "user: also this", "agent: heard also this"]


async def test_in_a_sequence_the_next_agent_is_shown_it() -> None:
    """A message that comes while the first works is taken by the second; after the last, the sequence runs again."""
    models = ScriptedLlm(["one"]), ScriptedLlm(["two"])
    agents = [LlmAgent(name=name, model=model) for name, model in zip("ab", models, strict=True)]
    _, said = await sent_during(SequentialAgent(name="s", sub_agents=agents), of="one")
    assert said == ["user: go", "a: one", "user: also this", "b: two"]
    models = ScriptedLlm(["one", "three"]), ScriptedLlm(["two", "four"])
    agents = [LlmAgent(name=name, model=model) for name, model in zip("ab", models, strict=True)]
    _, said = await sent_during(SequentialAgent(name="s", sub_agents=agents), of="two")
    assert said == ["user: go", "a: one", "b: two", "user: also this", "a: three", "b: four"]


async def test_in_branches_it_is_taken_once() -> None:
    """Agents side by side store a message once, while none of them has a call open; who asks then is shown it."""
    models = ScriptedLlm([call("look"), "one", "three"]), ScriptedLlm([call("look"), "two", "four"])
    agents = [LlmAgent(name=name, model=model, tools=[look]) for name, model in zip("ab", models, strict=True)]
    runner = runner_for(ParallelAgent(name="p", sub_agents=agents))
    async with runner.run_async(**PLACE, new_message="go") as run:
        sent = False
        async for event in run:
            if event.get_function_calls() and not sent:
                sent = True
                await run.send("also this")
    log = await log_of(runner.session_service)
    assert log.count("user: also this") == 1
    before = log[: log.index("user: also this")]
    assert [text[3:] for text in before].count("look?") == [text[3:] for text in before].count("look!")
    assert any("user: also this" in shown(model) for model in models)


async def test_a_loop_runs_again() -> None:
    """A loop that has escalated begins anew with the message."""

    async def speak(ctx: InvocationContext) -> None:
        assert ctx.user_content is not None
        ctx.actions.escalate = True
        await ctx.emit(Event(message=f"heard {ctx.user_content.text}"))

    loop = LoopAgent(name="loop", sub_agents=[Logic(name="agent", logic=speak)], max_iterations=3)
    _, said = await sent_during(loop, of="heard go")
    assert said == ["user: go", "agent: heard go", "user: also this", "agent: heard also this"]


async def test_a_workflow_runs_again_with_the_message_as_its_input() -> None:
    """What a workflow has ended with is not what it says to a message that comes then: its nodes run again."""

    async def hear(node_input: Any) -> str:
        return f"heard {node_input.text}"

    flow = Workflow(name="flow", edges=[(START, hear)])
    runner = runner_for(flow)
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.output == "heard go":
                await run.send("also this")
    outputs = [event.output for event in await stored_events(runner) if event.output is not None]
    assert outputs == ["heard go", "heard also this"]
    assert run.output == "heard also this"


async def test_inside_of_a_call_nobody_takes_it() -> None:
    """An agent that is used as a tool does not see the conversation: the agent that has called it takes the message."""
    inner = LlmAgent(name="inner", model=ScriptedLlm([call("look"), "in"]), tools=[look])
    model = ScriptedLlm([call("inner", request="do"), "done"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[AgentTool(agent=inner)]))
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.author == "inner" and event.get_function_calls():
                await run.send("also this")
    assert await log_of(runner.session_service) == [
        "user: go", "a: inner?", "inner: look?", "inner: look!", "inner: in", "a: inner!", "user: also this", "a: done",
    ]  # fmt: skip


async def test_after_a_transfer_the_agent_that_has_control_goes_on() -> None:
    """A message at the end is answered by the agent that would answer the user's next message."""
    helper = LlmAgent(name="helper", model=ScriptedLlm(["hello", "again"]))
    root = LlmAgent(
        name="root", model=ScriptedLlm([call("transfer_to_agent", agent_name="helper")]), sub_agents=[helper]
    )
    _, said = await sent_during(root, of="hello")
    assert [text for text in said if text.endswith((" go", "hello", "this", "again"))] == [
        "user: go", "helper: hello", "user: also this", "helper: again",
    ]  # fmt: skip


async def test_plugins_are_asked_about_the_message() -> None:
    """`on_user_message_callback` may change it before it is stored, and `on_event_callback` sees the event."""

    class Polite(BasePlugin):
        def __init__(self) -> None:
            super().__init__("polite")
            self.seen: list[str] = []

        async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> Content:
            return Content(role="user", parts=[Part(text=f"please {user_message.text}")])

        async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
            self.seen.append(event.text)

    plugin = Polite()
    runner = InMemoryRunner(
        agent=LlmAgent(name="a", model=ScriptedLlm(["one", "two"])), app_name="app", plugins=[plugin],
        auto_create_session=True,
    )  # fmt: skip
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.text == "one":
                await run.send("wait")
    assert [event.text for event in await stored_events(runner)] == ["please go", "one", "please wait", "two"]
    assert plugin.seen == ["one", "please wait", "two"]


# --- what is refused --------------------------------------------------------------------------------------------------


async def test_what_cannot_be_a_message_is_refused() -> None:
    """Empty messages, calls and responses, and words for `when` that mean nothing: nothing is stored."""
    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm(["one"])))
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for _ in run:
            with pytest.raises(InvalidMessageError, match="empty"):
                await run.send(" ")
            with pytest.raises(InvalidValueError, match="when"):
                await run.send("x", when="soon")
            with pytest.raises(InvocationNotFoundError, match="e-9"):
                await runner.send("x", **PLACE, invocation_id="e-9")
            response = Part(function_response=FunctionResponse(name="look", id="c1"))
            with pytest.raises(InvalidMessageError, match="responses"):
                await run.send(Content(parts=[response]))
    assert [event.text for event in await stored_events(runner)] == ["go", "one"]


async def test_a_run_that_has_ended_says_how() -> None:
    """The error names the invocation, how it has ended, and what to do instead."""
    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm(["one"])))
    with pytest.raises(InvocationNotFoundError, match="run_async"):
        await runner.session_service.create_session(**HERE)
        await runner.send("x", **PLACE)
    _, run = await run_to_end(runner)
    with pytest.raises(InvocationEndedError, match="has ended"):
        await run.send("x")
    with pytest.raises(InvocationEndedError, match=r"completed.*run_async"):
        await runner.send("x", **PLACE)


# --- other endings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_paused_takes_the_message_when_it_goes_on(kind: str, tmp_path: Path) -> None:
    """A message answers no question: it waits with the invocation, in the store, and is taken after the answer."""

    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedLlm([call("pay", amount=3), "done"])
    async with services(tmp_path)[kind]() as service:
        agent = LlmAgent(name="a", model=model, tools=[FunctionTool(pay, require_confirmation=True)])
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with runner.run_async(**PLACE, new_message="go") as run:
            async for event in run:
                if event.get_function_calls() and not event.long_running_tool_ids:
                    await run.send("before the question")
        assert run.status is InvocationStatus.PAUSED
        await runner.send("while it waits", **PLACE)
        [question] = run.pending
        async with runner.run_async(**PLACE, new_message=question.reply(True)) as run:
            await run.wait()
        assert shown(model) == [
            "user: go", "model: pay!", "user: pay!", "user: before the question", "user: while it waits",
        ]  # fmt: skip
        assert run.status is InvocationStatus.COMPLETED


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_has_paused_takes_messages_for_its_invocation(kind: str, tmp_path: Path) -> None:
    """Its caller may send as everybody else may; once somebody has gone on to the end, that is refused."""
    model = ScriptedLlm([call("slow"), "done"])
    async with services(tmp_path)[kind]() as service:
        agent = LlmAgent(name="a", model=model, tools=[LongRunningFunctionTool(slow)])
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with runner.run_async(**PLACE, new_message="go") as paused:
            await paused.wait()
            await paused.send("now")
        await paused.send("later")
        async with runner.run_async(**PLACE, new_message=paused.pending[0].reply("it")) as run:
            await run.wait()
        assert await log_of(service) == ["user: go", "a: slow?", "user: slow!", "user: now", "user: later", "a: done"]
        with pytest.raises(InvocationEndedError, match="completed"):
            await paused.send("too late")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["next_model_call", "idle"])
async def test_runs_in_between_leave_the_message_of_what_is_paused(kind: str, when: str, tmp_path: Path) -> None:
    """Another invocation runs and takes a message of its own; the paused one has its message when it goes on."""
    model = ScriptedLlm([call("slow"), call("look"), "other", "done", "more"])
    async with services(tmp_path)[kind]() as service:
        agent = LlmAgent(name="a", model=model, tools=[look, LongRunningFunctionTool(slow)])
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
        assert run.status is InvocationStatus.PAUSED
        [question] = run.pending
        await runner.send("for the paused one", **PLACE, when=when)
        async with runner.run_async(**PLACE, new_message="new") as run:
            async for event in run:
                if event.get_function_calls():
                    await run.send("for the other")
        async with runner.run_async(**PLACE, new_message=question.reply("it")) as run:
            await run.wait()
        assert run.status is InvocationStatus.COMPLETED
        start = ["user: go", "a: slow?", "user: new", "a: look?", "a: look!", "user: for the other", "a: other"]
        end = ["user: slow!", "user: for the paused one", "a: done"]
        if when == "idle":
            end = ["user: slow!", "a: done", "user: for the paused one", "a: more"]
        assert await log_of(service) == [*start, *end]


def slow() -> None:
    """Begin something whose result comes later."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_what_nobody_answers_any_more_is_stored(kind: str, end: str, tmp_path: Path) -> None:
    """Where the run fails or is left, the messages that it has not taken are stored at its end, once, in order."""

    async def broken() -> str:
        """Fail, at some time."""
        if end == "failed":
            raise MemoryError("broken")
        await trio.sleep_forever()
        return ""

    model = ScriptedLlm([call("broken")])
    async with services(tmp_path)[kind]() as service:
        runner = Runner(
            agent=LlmAgent(name="a", model=model, tools=[broken], on_tool_error_callback=raising),
            app_name="app", session_service=service, auto_create_session=True,
        )  # fmt: skip
        with trio.CancelScope() as scope:
            try:
                async with runner.run_async(**PLACE, new_message="go") as run:
                    async for event in run:
                        if event.get_function_calls():
                            await run.send("one")
                            await run.send("two", when="idle")
                            if end == "cancelled":
                                scope.cancel()
            except MemoryError:
                assert end == "failed"
        log = await log_of(service)
        assert [text for text in log if text in ("user: one", "user: two")] == ["user: one", "user: two"]
        with pytest.raises(InvocationEndedError, match=end):
            await runner.send("three", **PLACE)
        model = ScriptedLlm(["next"])
        again = Runner(agent=LlmAgent(name="a", model=model), app_name="app", session_service=service)
        await run_to_end(again, "new")
        assert shown(model)[-3:] == ["user: one", "user: two", "user: new"]


def raising(tool: Any, args: Any, tool_context: Any, error: Exception) -> None:
    """Let the failure of a tool be one of the run."""
    raise error


# --- going on after a crash -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(1, 9))
async def test_a_run_that_is_cut_off_takes_each_message_once(at: int, tmp_path: Path) -> None:
    """
    Left by a supervisor after its *at*-th event, the invocation goes on: what was taken stays, what waits is taken.
    """
    expected = ["user: go", "a: look?", "a: look!", "user: now", "a: done", "user: later", "a: that, too"]
    async with services(tmp_path)["sqlite process"]() as service:

        def answers(request: Any) -> Any:
            return {1: call("look"), 4: "done", 6: "that, too"}[len(request.contents)]

        agent = LlmAgent(name="a", model=ScriptedLlm(answers), tools=[look])
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        scope = runner.run_async(**PLACE, new_message="go").supervised(None)
        async with scope as run:
            count = 0
            async for event in run:
                count += 1
                if event.get_function_calls():
                    await run.send("now")
                    await run.send("later", when="idle")
                if count == at:
                    break
        if run.status is InvocationStatus.INTERRUPTED:
            async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as run:
                await run.wait()
        assert run.status is InvocationStatus.COMPLETED
        assert await log_of(service) == expected


async def test_rounds_are_replayed() -> None:
    """An invocation that is resumed in its third round replays the first two, each with its own `user_content`."""
    heard: list[str] = []

    async def echo(ctx: InvocationContext) -> None:
        assert ctx.user_content is not None
        heard.append(ctx.user_content.text)
        if ctx.user_content.text == "three" and not ctx.is_resumed:
            await trio.sleep_forever()
        await ctx.emit(Event(message=f"heard {ctx.user_content.text}"))

    runner = runner_for(echo)
    scope = runner.run_async(**PLACE, new_message="one").supervised(None)
    async with scope as run:
        async for event in run:
            if event.text == "heard one":
                await run.send("two")
            if event.text == "heard two":
                await run.send("three")
            if event.text == "three":
                break
    heard.clear()
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
        events = [event.text async for event in again]
    assert heard == ["one", "two", "three"]
    assert events == ["heard three"]
    assert again.status is InvocationStatus.COMPLETED


# Every step in memory and on one file; on the others, which share what matters with one of them, every third.
STEPS = [
    pytest.param(kind, every, id=f"{kind}-{every}", marks=[pytest.mark.slow] * (every == 1 and kind not in KINDS[:3]))
    for kind in KINDS
    for every in (1, 3)
    if every == 1 or kind not in KINDS[:3]
]


@pytest.mark.parametrize(("kind", "every"), STEPS)
async def test_cancelling_anything_at_any_step_loses_no_message(kind: str, every: int, tmp_path: Path) -> None:
    """
    Sender and run are cancelled together at each step. What `send` has returned for is in the log once, or waits to be;
    what was cancelled is in neither. The next run stores what still waits, and its model takes the request.
    """
    if kind.startswith("postgres"):
        pytest.skip("many runs in one process say no more there")
    steps, quiet = 0, 0
    async with services(tmp_path)[kind]() as service:
        while quiet < QUIET_RUNS:
            steps += every
            is_over = await _interrupted(service, f"s-{steps}-{quiet}", steps)
            quiet, steps = (quiet + 1, steps - every) if is_over else (0, steps)
    assert steps > 10


async def _interrupted(service: BaseSessionService, session: str, step: int) -> bool:
    """One run with its sender, cancelled at this step; return whether it was over before."""
    model = ScriptedLlm(lambda request: call("look") if len(request.contents) == 1 else "done")
    runner = Runner(
        agent=LlmAgent(name="a", model=model, tools=[FunctionTool(look, run_in="loop")]), app_name="app",
        session_service=service, auto_create_session=True,
    )  # fmt: skip
    place: Place = {"user_id": "u", "session_id": session}
    returned: list[str] = []
    begun: list[str] = []
    with trio.CancelScope() as scope:
        instrument = CancelAtStep(scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            async with runner.run_async(**place, new_message="go") as run:
                async for event in run:
                    if event.author == "a":
                        text = f"m{len(begun)}"
                        begun.append(text)
                        if len(begun) < 4:
                            await run.send(text)
                            returned.append(text)
        finally:
            trio.lowlevel.remove_instrument(instrument)
    await run_to_session(runner, session)
    events = await service.read_events(app_name="app", user_id="u", session_id=session)
    sent = [event.text for event in events if event.actions.replay.sent]
    assert sent == returned, f"cancelled at step {step}"
    return not scope.cancel_called


async def run_to_session(runner: Runner, session: str) -> None:
    """Take another turn in a session, which may not be there yet."""
    async with runner.run_async(user_id="u", session_id=session, new_message="next") as run:
        await run.wait()


@pytest.mark.parametrize("kind", ["sqlite process", "postgres"])
async def test_a_stored_message_without_an_invocation_is_corrupt(kind: str, tmp_path: Path) -> None:
    """The next run of the session raises StorageCorruptError and names the row."""
    async with services(tmp_path)[kind]() as service:
        agent = LlmAgent(name="a", model=ScriptedLlm([call("slow")]), tools=[LongRunningFunctionTool(slow)])
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
        await run.send("later")
    if kind == "postgres":
        erased = "UPDATE minirun.events SET data = (data::jsonb - 'invocation_id')::text WHERE log < 0"
        execute(database_of(tmp_path), erased)
    else:
        sql(tmp_path / "process.db", "UPDATE events SET data = json_remove(data, '$.invocation_id') WHERE log < 0")
    async with services(tmp_path)[kind]() as service:
        runner = Runner(agent=agent, app_name="app", session_service=service)
        with pytest.raises(StorageCorruptError, match=r"a message of session row 1: .* sent into an invocation"):
            async with runner.run_async(**PLACE, new_message="more"):
                raise AssertionError
