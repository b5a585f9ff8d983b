"""Runs: order, failures, deadlines, budgets, waiting for a session, and what is refused before anything is stored."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
import trio
import trio.testing

from minirun import (
    App,
    BaseAgent,
    Content,
    Event,
    EventActions,
    GetSessionConfig,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Part,
    RunConfig,
    Runner,
    ToolContext,
)
from minirun.errors import (
    ConfigurationError,
    DeadlineExceededError,
    InvalidEventError,
    InvalidMessageError,
    InvalidValueError,
    InvocationEndedError,
    InvocationNotFoundError,
    LlmCallsLimitExceededError,
    MinirunError,
    NotSupportedError,
    ServiceClosedError,
    SessionBusyError,
    SessionNotFoundError,
    ToolCallsLimitExceededError,
    UnfinishedAgentError,
)
from minirun.sessions import InvocationStatus
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool
from minirun.types import FunctionCall, FunctionDeclaration, FunctionResponse

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events


def texts(events: list[Event]) -> list[str]:
    return [event.text for event in events]


async def three(ctx: InvocationContext) -> None:
    for number in range(3):
        await ctx.emit(Event(message=str(number)))


# --- the shape of a run -----------------------------------------------------------------------------------------------


async def test_emit_returns_the_stored_event() -> None:
    """What `emit` returns is complete, and is what the store has."""
    returned: list[Event] = []

    async def logic(ctx: InvocationContext) -> None:
        returned.append(await ctx.emit(Event(message="hi")))

    runner = runner_for(logic)
    events, run = await run_to_end(runner)
    assert returned == events == (await stored_events(runner))[1:]
    [event] = events
    assert (event.seq, event.author, event.invocation_id, event.branch) == (2, "agent", run.invocation_id, None)
    assert event.id is not None
    assert event.timestamp is not None
    assert run.invocation_id.startswith("e-")


async def test_a_bare_async_for_over_a_run_says_how_it_is_written() -> None:
    """`async for` over what run_async returns raises a TypeError that shows the right form."""
    with pytest.raises(TypeError, match=r"async with runner\.run_async"):
        async for _ in runner_for(three).run_async(**PLACE, new_message="go"):
            pass


async def test_wait_consumes_the_rest_and_returns_the_answer() -> None:
    """The answer is the last stored event that is final and has content; state-only events are not it."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="first"))
        await ctx.emit(Event(message="last"))
        await ctx.emit(Event(state={"k": 1}))

    async with runner_for(logic).run_async(**PLACE, new_message="go") as run:
        assert run.answer is None
        statuses = [run.status]
        first = await anext(run)
        answer = await run.wait()
    assert first.text == "first"
    assert answer is not None
    assert answer.text == "last"
    assert [*statuses, run.status] == ["running", "completed"]


async def test_the_user_message_is_shown_only_when_asked_for() -> None:
    """With yield_user_message the stored message is the first event."""
    events, _ = await run_to_end(runner_for(three), yield_user_message=True)
    assert [event.author for event in events] == ["user", "agent", "agent", "agent"]
    assert events[0].seq == 1


async def test_state_is_committed_when_the_logic_goes_on() -> None:
    """After `emit`, and in the caller that sees the event, the state has what the event carried."""

    async def logic(ctx: InvocationContext) -> None:
        ctx.state["a"] = 1
        assert ctx.session.state["a"] == 1, "a dirty read"
        await ctx.emit(Event(message="x", state={"b": 2}))
        assert (ctx.state["a"], ctx.state["b"]) == (1, 2)
        ctx.state["left over"] = 3

    runner = runner_for(logic)
    async with runner.run_async(**PLACE, new_message="go") as run:
        event = await anext(run)
        assert event.actions.state_delta == {"a": 1, "b": 2}
        assert dict(run.session.state) == {"a": 1, "b": 2}
        [rest] = [event async for event in run]
    assert rest.content is None
    assert rest.actions.state_delta == {"left over": 3}


async def test_the_event_wins_over_a_pending_write_of_the_same_key() -> None:
    """Where an event's own state_delta names a key that was written before, the event's value is stored."""

    async def logic(ctx: InvocationContext) -> None:
        ctx.state["k"] = "written"
        await ctx.emit(Event(state={"k": "event"}))
        assert ctx.state["k"] == "event"

    events, _ = await run_to_end(runner_for(logic))
    assert len(events) == 1


async def test_temp_state_lives_for_one_run() -> None:
    """`temp:` keys are seen in the run that set them, never stored, and gone in the next."""
    seen: list[Any] = []

    async def logic(ctx: InvocationContext) -> None:
        seen.append(ctx.state.get("temp:given"))
        seen.append(ctx.state.get("temp:made"))
        ctx.state["temp:made"] = 1
        event = await ctx.emit(Event(message="x"))
        assert ctx.state["temp:made"] == 1
        assert not event.actions.state_delta

    runner = runner_for(logic)
    await run_to_end(runner, state_delta={"temp:given": True, "kept": 1})
    await run_to_end(runner)
    assert seen == [True, None, None, None]
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    assert dict(session.state) == {"kept": 1}


async def test_custom_metadata_is_merged_under_every_events_own() -> None:
    """RunConfig.custom_metadata is on every event, the message too; an event's own values win."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="x", custom_metadata={"a": "mine"}))

    runner = runner_for(logic)
    await run_to_end(runner, run_config=RunConfig(custom_metadata={"a": "run", "b": 1}))
    assert [event.custom_metadata for event in await stored_events(runner)] == [
        {"a": "run", "b": 1},
        {"a": "mine", "b": 1},
    ]


async def test_a_window_limits_the_events_of_a_run_never_its_state() -> None:
    """With get_session_config a run sees the newest events and what it adds, and the whole state."""
    seen: list[list[str]] = []

    async def logic(ctx: InvocationContext) -> None:
        seen.append(texts(list(ctx.session.events)))
        await ctx.emit(Event(message="reply", state={"n": ctx.state.get("n", 0) + 1}))
        seen.append(texts(list(ctx.session.events)))

    runner = runner_for(logic)
    await run_to_end(runner, "one")
    await run_to_end(runner, "two", run_config=RunConfig(get_session_config=GetSessionConfig(num_recent_events=2)))
    assert seen[2:] == [["one", "reply", "two"], ["one", "reply", "two", "reply"]]


async def test_partial_events_are_shown_and_never_stored() -> None:
    """A partial event reaches the caller in order; it is not stored and its state is ignored."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="a", partial=True, state={"k": 1}))
        await ctx.emit(Event(message="ab"))
        assert "k" not in ctx.state

    runner = runner_for(logic)
    events, _ = await run_to_end(runner)
    assert [(event.text, event.partial) for event in events] == [("a", True), ("ab", None)]
    assert texts(await stored_events(runner)) == ["go", "ab"]


async def test_fragments_are_handed_over_by_the_buffer() -> None:
    """A task that emits fragments and the one that reads them take turns once for each full buffer, not for each."""

    class Turns(trio.abc.Instrument):
        count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += 1

    async def logic(ctx: InvocationContext) -> None:
        for _ in range(800):
            await ctx.emit(Event(message="x", partial=True))

    turns = Turns()
    trio.lowlevel.add_instrument(turns)
    events, _ = await run_to_end(runner_for(logic), run_config=RunConfig(partial_buffer=16))
    trio.lowlevel.remove_instrument(turns)
    assert len(events) == 800
    assert turns.count < 3 * 800 / 16


async def test_unread_partial_events_hold_their_emitter_back() -> None:
    """At most partial_buffer partial events are ahead of the caller."""
    emitted = 0

    async def logic(ctx: InvocationContext) -> None:
        nonlocal emitted
        for _ in range(100):
            await ctx.emit(Event(message="x", partial=True))
            emitted += 1

    runner = runner_for(logic)
    async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(partial_buffer=5)) as run:
        for read in range(1, 20):
            await anext(run)
            await trio.testing.wait_all_tasks_blocked()
            assert emitted <= read + 5
    assert emitted < 30


@pytest.mark.parametrize("script", [["an answer"], [call("look"), "an answer"]], ids=["text", "tool"])
async def test_a_run_leaves_nothing_to_the_garbage_collector(script: list[Any]) -> None:
    """What a run has made is gone with its scope: nothing of it is in a cycle, which only the collector would find."""

    async def look() -> str:
        return "seen"

    runner = runner_for(LlmAgent(name="agent", model=ScriptedLlm(script), tools=[look]))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await run_to_end(runner)
        gc.collect()
        left = {type(found).__qualname__ for found in gc.garbage if type(found).__module__.startswith("minirun")}
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()
    assert left == set()


@pytest.mark.parametrize("partial_buffer", [1, 16])
async def test_fragments_go_on_after_an_event_that_stood_behind_them(
    partial_buffer: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Who waits for room in the buffer has it when the buffer is empty, whatever was the last thing in it."""

    async def fragments(ctx: InvocationContext) -> None:
        for _ in range(partial_buffer + 2):
            await ctx.emit(Event(message="x", partial=True))

    async def logic(ctx: InvocationContext) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fragments, ctx)
            await trio.testing.wait_all_tasks_blocked()
            await ctx.emit(Event(message="beside"))

    runner = runner_for(logic)
    config = RunConfig(partial_buffer=partial_buffer)
    async with runner.run_async(**PLACE, new_message="go", run_config=config) as run:
        await trio.testing.wait_all_tasks_blocked(0.1)  # the buffer is full, somebody waits for room, and an event came
        with trio.fail_after(5):
            events = [event async for event in run]
    assert texts(events) == [*["x"] * partial_buffer, "beside", "x", "x"]


# --- failures: one exception, with its own type -----------------------------------------------------------------------


class OddError(Exception):
    pass


@pytest.mark.parametrize("error", [OddError("x"), OddError(""), KeyError("k"), TimeoutError("t")])
async def test_a_failing_agent_raises_its_own_exception_from_the_next_ask(error: Exception) -> None:
    """The events before it come first, then an error event, then the exception itself, once."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="before"))
        raise error

    seen: list[Event] = []
    with pytest.raises(type(error)) as caught:
        async with runner_for(logic).run_async(**PLACE, new_message="go") as run:
            async for event in run:
                seen.append(event)
    assert caught.value is error
    assert [event.error_code for event in seen] == [None, type(error).__name__]
    assert seen[1].error_message
    assert run.status is InvocationStatus.FAILED


async def test_two_failures_at_once_are_one_exception_with_a_note() -> None:
    """Of two branches that fail the first is raised; the other is a note, the group the cause; both are in the log."""

    async def logic(ctx: InvocationContext) -> None:
        async def fail(error: Exception) -> None:
            raise error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, OddError("one"))
            nursery.start_soon(fail, KeyError("two"))

    runner = runner_for(logic)
    with pytest.raises((OddError, KeyError)) as caught:
        await run_to_end(runner)
    assert len(caught.value.__notes__) == 1
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    told = [event.error_code for event in await stored_events(runner) if event.error_code]
    assert told[0] == type(caught.value).__name__
    assert sorted(told) == ["KeyError", "OddError"]


async def test_an_unread_failure_is_raised_from_leaving() -> None:
    """A run that failed while nobody asked raises when the block is left."""

    async def logic(ctx: InvocationContext) -> None:
        raise OddError

    with pytest.raises(OddError):
        async with runner_for(logic).run_async(**PLACE, new_message="go"):
            await trio.testing.wait_all_tasks_blocked()


async def test_of_a_failing_run_and_a_failing_caller_the_first_is_raised() -> None:
    """The run failed first: its exception leaves, with the caller's as a note. The caller first: the other way."""

    async def fails(ctx: InvocationContext) -> None:
        raise OddError("run")

    async def fails_in_clean_up(ctx: InvocationContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OddError("run")

    with pytest.raises(OddError) as first:
        async with runner_for(fails).run_async(**PLACE, new_message="go"):
            await trio.testing.wait_all_tasks_blocked()
            raise KeyError("caller")
    assert any("KeyError" in note for note in first.value.__notes__)
    with pytest.raises(KeyError) as second:
        async with runner_for(fails_in_clean_up).run_async(**PLACE, new_message="go"):
            await trio.testing.wait_all_tasks_blocked()
            raise KeyError("caller")
    assert any("OddError" in note for note in second.value.__notes__)


async def test_a_failure_that_the_caller_has_handled_is_not_raised_again() -> None:
    """What an ask has raised and the block has caught does not come back when the block is left."""

    async def logic(ctx: InvocationContext) -> None:
        raise OddError

    async with runner_for(logic).run_async(**PLACE, new_message="go") as run:
        with pytest.raises(OddError):
            await run.wait()


async def test_a_cancellation_from_outside_does_not_hide_an_error() -> None:
    """The block is cancelled, and the clean-up of the agent fails: the error leaves."""

    async def logic(ctx: InvocationContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OddError

    with pytest.raises(OddError), trio.CancelScope() as scope:
        async with runner_for(logic).run_async(**PLACE, new_message="go"):
            scope.cancel()
            await trio.sleep_forever()


async def test_keyboard_interrupt_in_an_agent_reaches_a_caller_that_does_not_ask() -> None:
    """KeyboardInterrupt ends the caller's block at once, as itself."""

    async def logic(ctx: InvocationContext) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        async with runner_for(logic).run_async(**PLACE, new_message="go"):
            await trio.sleep_forever()


@pytest.mark.parametrize("error", [StopAsyncIteration("x"), GeneratorExit("x")])
async def test_an_exception_that_means_the_end_of_an_iteration_does_not_look_like_success(error: BaseException) -> None:
    """What would silently end the caller's `async for` is raised as a RuntimeError with the cause."""

    async def logic(ctx: InvocationContext) -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__) as caught:
        await run_to_end(runner_for(logic))
    assert caught.value.__cause__ is error


async def test_a_generator_that_fails_is_closed_and_its_error_leaves() -> None:
    """The generator form raises its own exception; what it yielded before is stored."""

    class Failing(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
            yield Event(message="x")
            raise OddError

    runner = runner_for(Failing(name="agent"))
    with pytest.raises(OddError):
        await run_to_end(runner)
    assert texts(await stored_events(runner))[:2] == ["go", "x"]


@pytest.mark.parametrize("scope", ["move_on", "fail", "nursery"])
async def test_a_generator_that_was_stopped_inside_a_yield_fails_the_run(scope: str, autojump_clock: object) -> None:
    """A cancel scope around a `yield` that expires fails the run, naming the form to write instead."""

    class Stopped(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
            if scope == "move_on":
                with trio.move_on_after(1):
                    yield Event(message="x")
                    await trio.sleep(5)
            elif scope == "fail":
                with trio.fail_after(1):
                    yield Event(message="x")
            else:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep, 1)
                    yield Event(message="x")
                    nursery.cancel_scope.cancel()
                    yield Event(message="y")

    with pytest.raises(UnfinishedAgentError, match=r"ctx\.emit"):
        async with runner_for(Stopped(name="agent")).run_async(**PLACE, new_message="go") as run:
            async for _ in run:
                await trio.sleep(3)


# --- deadlines and budgets --------------------------------------------------------------------------------------------


async def test_the_deadline_counts_the_time_the_caller_holds_events(autojump_clock: object) -> None:
    """A caller that is slow runs into deadline_s; the run ends with a stored error event and a typed exception."""
    runner = runner_for(three)
    seen = []
    with pytest.raises(DeadlineExceededError, match="deadline_s=10"):
        async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(deadline_s=10)) as run:
            async for event in run:
                seen.append(event)
                await trio.sleep(7)
    assert seen[-1].error_code == "DeadlineExceededError"
    assert run.status is InvocationStatus.FAILED
    assert (await stored_events(runner))[-1] == seen[-1]


async def test_a_deadline_passes_while_a_model_thinks(autojump_clock: object) -> None:
    """A model that takes too long is cancelled at the deadline."""
    agent = LlmAgent(name="slow", model=ScriptedLlm(["x"], latency_s=100))
    with pytest.raises(TimeoutError):
        await run_to_end(runner_for(agent), run_config=RunConfig(deadline_s=5))
    assert trio.current_time() < 10


async def test_the_llm_call_limit_is_a_stored_event_and_a_typed_exception() -> None:
    """The model is asked max_llm_calls times, not once more."""
    model = ScriptedLlm(lambda request: call("again"))

    async def again() -> str:
        return "x"

    runner = runner_for(LlmAgent(name="looper", model=model, tools=[again]))
    with pytest.raises(LlmCallsLimitExceededError):
        await run_to_end(runner, run_config=RunConfig(max_llm_calls=3))
    assert len(model.requests) == 3
    assert (await stored_events(runner))[-1].error_code == "LlmCallsLimitExceededError"


async def test_the_tool_call_limit_answers_the_calls_that_are_not_made() -> None:
    """A batch beyond max_tool_calls is not started; its calls are answered, and the run fails."""
    ran = []

    async def work() -> None:
        ran.append(1)

    model = ScriptedLlm(lambda request: [call("work"), call("work")])
    runner = runner_for(LlmAgent(name="worker", model=model, tools=[work]))
    with pytest.raises(ToolCallsLimitExceededError):
        await run_to_end(runner, run_config=RunConfig(max_tool_calls=3))
    assert len(ran) == 2
    events = await stored_events(runner)
    assert sum(len(event.get_function_responses()) for event in events) == 4


async def test_a_limit_of_zero_is_no_limit() -> None:
    """`<=0` disables a budget."""
    model = ScriptedLlm([call("work"), call("work"), "done"])

    async def work() -> None: ...

    runner = runner_for(LlmAgent(name="worker", model=model, tools=[work]))
    await run_to_end(runner, run_config=RunConfig(max_llm_calls=0, max_tool_calls=-1))


async def test_end_invocation_ends_it_after_the_current_step() -> None:
    """A tool sets end_invocation: its answer is stored, the model is not asked again."""

    async def stop(tool_context: Any) -> str:
        tool_context.end_invocation = True
        return "stopped"

    model = ScriptedLlm([call("stop")])
    events, run = await run_to_end(runner_for(LlmAgent(name="agent", model=model, tools=[stop])))
    model.assert_done()
    assert events[-1].get_function_responses()[0].response == {"result": "stopped"}
    assert run.status is InvocationStatus.COMPLETED


# --- calls of custom agents -------------------------------------------------------------------------------------------


async def test_calls_left_open_are_answered_when_the_run_ends() -> None:
    """A custom agent emits a call and no response: the runtime stores one."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(content=Content(parts=[call("f")])))

    runner = runner_for(logic)
    events, _ = await run_to_end(runner)
    [answer] = events[-1].get_function_responses()
    assert answer.id == events[0].get_function_calls()[0].id
    assert answer.response["error"]["type"] == "cancelled"


async def test_a_response_answers_an_open_call_once() -> None:
    """A response to no open call, or a second one, is refused, and not stored."""

    async def logic(ctx: InvocationContext) -> None:
        event = await ctx.emit(Event(content=Content(parts=[call("f")])))
        [made] = event.get_function_calls()
        response = Part(function_response=FunctionResponse(id=made.id, name="f", response={}))
        await ctx.emit(Event(content=Content(parts=[response])))
        for again in (response, Part(function_response=FunctionResponse(id="nix", name="f", response={}))):
            with pytest.raises(InvalidEventError, match="open call"):
                await ctx.emit(Event(content=Content(parts=[again])))
        with pytest.raises(InvalidEventError, match="new id"):
            await ctx.emit(Event(content=Content(parts=[Part(function_call=FunctionCall(id=made.id, name="f"))])))

    events, _ = await run_to_end(runner_for(logic))
    assert len(events) == 2


async def test_nothing_can_be_emitted_or_written_after_the_end() -> None:
    """A context that outlives its invocation is refused."""
    kept: list[InvocationContext] = []

    async def logic(ctx: InvocationContext) -> None:
        kept.append(ctx)

    runner = runner_for(logic)
    await run_to_end(runner)
    with pytest.raises(InvocationEndedError):
        await kept[0].emit(Event(message="late"))


@pytest.mark.parametrize(
    "event",
    [
        Event(actions=EventActions(transfer_to_agent="x")),
        Event(actions=EventActions(artifact_delta={"a": 1})),
        Event(message="x", long_running_tool_ids=["a"]),
        Event(message="x", invocation_id="e-other"),
    ],
)
async def test_events_that_would_have_no_effect_are_refused_by_name(event: Event) -> None:
    """An event whose actions nothing would act on raises, and is not stored."""

    async def logic(ctx: InvocationContext) -> None:
        with pytest.raises(MinirunError):
            await ctx.emit(event)
        with pytest.raises(TypeError):
            await ctx.emit(cast(Any, "text"))

    events, _ = await run_to_end(runner_for(logic))
    assert events == []


# --- waiting for a session --------------------------------------------------------------------------------------------


async def test_a_second_run_waits_for_the_first_in_order() -> None:
    """Runs on one session go one after another, in the order they asked."""
    order: list[str] = []
    gate = trio.Event()

    async def logic(ctx: InvocationContext) -> None:
        assert ctx.user_content is not None
        order.append(ctx.user_content.text)
        await gate.wait()

    runner = runner_for(logic)
    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(run_to_end, runner, name)
            await trio.testing.wait_all_tasks_blocked()
        assert order == ["a"]
        gate.set()
    assert order == ["a", "b", "c"]
    assert texts(await stored_events(runner)) == ["a", "b", "c"]


async def test_a_busy_session_may_be_rejected() -> None:
    """With on_busy="reject" a second run raises at once, and its message is not stored."""
    runner = runner_for(three)
    rejected = trio.Event()

    async def second() -> None:
        with pytest.raises(SessionBusyError, match="on_busy"):
            await run_to_end(runner, run_config=RunConfig(on_busy="reject"))
        rejected.set()

    async with trio.open_nursery() as nursery:
        async with runner.run_async(**PLACE, new_message="go"):
            nursery.start_soon(second)
            await rejected.wait()
    assert [event.text for event in await stored_events(runner) if event.author == "user"] == ["go"]


async def test_a_run_from_inside_a_run_on_the_same_session_is_refused() -> None:
    """From an agent, a task below it, the caller's block or a nursery in it: a wait that could never end raises."""
    runner: Runner

    async def again() -> None:
        with pytest.raises(SessionBusyError, match="cannot end before this call returns"):
            await run_to_end(runner)
        session = await runner.session_service.get_session(app_name="app", **PLACE)
        assert session is not None
        with pytest.raises(SessionBusyError):
            await runner.session_service.append_event(session, Event(author="x", message="y"))
        with pytest.raises(SessionBusyError):
            await runner.session_service.delete_session(app_name="app", **PLACE)

    async def logic(ctx: InvocationContext) -> None:
        await again()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(again)
        await ctx.emit(Event(message="x"))

    runner = runner_for(logic)
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for _ in run:
            await again()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(again)


async def test_a_task_beside_a_run_may_wait_for_it() -> None:
    """A nursery that was open before the run does not keep it from ending: its tasks may wait."""
    runner = runner_for(three)
    async with trio.open_nursery() as nursery:
        async with runner.run_async(**PLACE, new_message="one") as run:
            nursery.start_soon(run_to_end, runner, "two")
            await trio.testing.wait_all_tasks_blocked()
            await run.wait()
    assert [e.text for e in await stored_events(runner) if e.author == "user"] == ["one", "two"]


async def test_a_cycle_of_waits_across_sessions_is_refused() -> None:
    """Two runs that each want the other's session: the one that closes the cycle gets SessionBusyError."""
    service = InMemorySessionService()
    both = trio.Event()
    begun = 0
    outcomes: list[str] = []

    async def cross(ctx: InvocationContext) -> None:
        nonlocal begun
        begun += 1
        if begun == 2:
            both.set()
        await both.wait()
        other = {"a": "b", "b": "a"}[ctx.session.id]
        try:
            async with leaf.run_async(user_id="u", session_id=other, new_message="hi") as run:
                await run.wait()
            outcomes.append("ran")
        except SessionBusyError:
            outcomes.append("refused")

    async def nothing(ctx: InvocationContext) -> None: ...

    def runner_over(logic: Any) -> Runner:
        agent = runner_for(logic).agent
        return Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)

    runner, leaf = runner_over(cross), runner_over(nothing)

    async def begin(session: str) -> None:
        async with runner.run_async(user_id="u", session_id=session, new_message="go") as run:
            await run.wait()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin, "a")
            nursery.start_soon(begin, "b")
    assert outcomes == ["refused", "ran"]


async def test_an_outside_append_waits_for_the_run_and_never_makes_it_stale() -> None:
    """append_event and delete_session of another task wait until the run has ended."""
    runner = runner_for(three)
    service = runner.session_service
    session = await service.create_session(app_name="app", **PLACE)
    outcome: list[str] = []

    async def outside() -> None:
        try:
            await service.append_event(session, Event(author="x", message="outside"))
        except MinirunError as error:
            outcome.append(type(error).__name__)
        fresh = await service.get_session(app_name="app", **PLACE)
        assert fresh is not None
        await service.append_event(fresh, Event(author="x", message="outside"))

    async with trio.open_nursery() as nursery:
        async with runner.run_async(**PLACE, new_message="go") as run:
            nursery.start_soon(outside)
            await trio.testing.wait_all_tasks_blocked()
            await run.wait()
    assert outcome == ["StaleSessionError"]
    assert texts(await stored_events(runner)) == ["go", "0", "1", "2", "outside"]


async def test_a_waiting_run_that_is_cancelled_leaves_nothing_behind() -> None:
    """Cancelling the wait for a session stores nothing, and the next in line gets its turn."""
    runner = runner_for(three)
    async with trio.open_nursery() as nursery:
        async with runner.run_async(**PLACE, new_message="one") as run:
            scope = trio.CancelScope()

            async def second() -> None:
                with scope:
                    await run_to_end(runner, "two")

            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(run_to_end, runner, "three")
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            await run.wait()
    assert [e.text for e in await stored_events(runner) if e.author == "user"] == ["one", "three"]


async def test_first_calls_that_race_to_make_the_session_both_succeed() -> None:
    """With auto_create_session any number of first calls at once all run."""
    runner = runner_for(three)
    async with trio.open_nursery() as nursery:
        for name in "abcd":
            nursery.start_soon(run_to_end, runner, name)
    users = [e.text for e in await stored_events(runner) if e.author == "user"]
    assert sorted(users) == ["a", "b", "c", "d"]


# --- what is refused before anything is stored ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"new_message": ""}, InvalidMessageError),
        ({"new_message": "  \n"}, InvalidMessageError),
        ({"new_message": None}, InvalidMessageError),
        ({"new_message": Content(parts=[])}, InvalidMessageError),
        ({"new_message": 5}, InvalidMessageError),
        ({"new_message": Content(parts=[call("f")])}, InvalidMessageError),
        (
            {"new_message": Content(parts=[Part(function_response=FunctionResponse(id="a", name="f"))])},
            InvalidMessageError,
        ),
        ({"new_message": None, "invocation_id": "e-nix"}, InvocationNotFoundError),
        ({"new_message": "x", "session_id": "nix"}, SessionNotFoundError),
        ({"new_message": "x", "session_id": "a\0b"}, InvalidValueError),
        ({"new_message": "x", "user_id": ""}, InvalidValueError),
        ({"new_message": "x", "state_delta": {"k": object()}}, InvalidValueError),
        ({"new_message": "x", "state_delta": {"app:": 1}}, InvalidValueError),
        ({"new_message": "x", "run_config": {}}, ConfigurationError),
        ({"new_message": "\ud800"}, InvalidValueError),
    ],
)
async def test_a_bad_message_or_argument_is_refused_and_nothing_is_stored(options: dict[str, Any], error: type) -> None:
    """Each bad argument of run_async raises its own typed error before anything is stored."""
    runner = runner_for(three)
    runner.auto_create_session = False
    await runner.session_service.create_session(app_name="app", **PLACE)
    with pytest.raises(error) as caught:
        async with runner.run_async(**{**PLACE, **options}):
            pass
    assert isinstance(caught.value, (MinirunError, TypeError))
    assert await stored_events(runner) == []
    assert await runner.session_service.list_invocations() == []


async def test_an_invocation_id_that_is_known_is_refused_by_its_status() -> None:
    """New text on a finished invocation is an error; going on with one yields nothing and stores nothing."""
    runner = runner_for(three)
    _, run = await run_to_end(runner)
    stored = await stored_events(runner)
    with pytest.raises(InvalidMessageError, match="has ended"):
        await run_to_end(runner, "more", invocation_id=run.invocation_id)
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
        assert [event async for event in again] == []
    assert await stored_events(runner) == stored


async def test_a_missing_session_names_the_apps_that_have_it() -> None:
    """SessionNotFoundError says in which apps there is a session of this user and id."""
    service = InMemorySessionService()
    await service.create_session(app_name="other-app", **PLACE)
    runner = Runner(agent=runner_for(three).agent, app_name="app", session_service=service)
    with pytest.raises(SessionNotFoundError, match="other-app"):
        await run_to_end(runner)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"agent": True, "app": True},
        {"agent": True},
        {"agent": True, "app_name": "two words"},
        {"agent": True, "app_name": "user"},
        {"agent": True, "app_name": "a", "artifact_service": object()},
        {"agent": True, "app_name": "a", "memory_service": object()},
        {"agent": True, "app_name": "a", "credential_service": object()},
        {"agent": True, "app_name": "a", "session_service": object()},
    ],
)
def test_a_runner_that_cannot_work_is_refused(arguments: dict[str, Any]) -> None:
    """Exactly one of app and agent, an app_name with agent, no service without effect."""
    agent = runner_for(three).agent
    given = {
        "agent": agent if arguments.get("agent") else None,
        "app": App("a", agent) if arguments.get("app") else None,
        "session_service": InMemorySessionService(),
    }
    with pytest.raises(MinirunError):
        Runner(**{**given, **{k: v for k, v in arguments.items() if k not in ("agent", "app")}})


async def test_a_closed_runner_refuses_to_run_and_leaves_its_service_open() -> None:
    """close() closes the runner, not the service that was handed to it."""
    runner = runner_for(three)
    async with runner:
        await run_to_end(runner)
    with pytest.raises(ServiceClosedError):
        await run_to_end(runner)
    assert len(await stored_events(runner)) == 4


def test_a_runner_serves_one_trio_run_after_another() -> None:
    """The same runner and service work in a second trio.run."""
    runner = runner_for(three)
    for _ in range(2):
        trio.run(run_to_end, runner)
    assert len(trio.run(stored_events, runner)) == 8


async def test_run_debug_continues_its_session_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """run_debug takes one message or several, prints what is said, and goes on in the same session."""
    model = ScriptedLlm(["one", "two", "three"])
    runner = InMemoryRunner(agent=LlmAgent(name="bot", model=model))
    assert texts(await runner.run_debug(["a", "b"])) == ["one", "two"]
    assert texts(await runner.run_debug("c", quiet=True)) == ["three"]
    assert capsys.readouterr().out == "user > a\nbot > one\nuser > b\nbot > two\n"
    assert len(model.requests[-1].contents) == 5


def test_run_config_refuses_what_would_have_no_effect() -> None:
    """Fields of the ADK documents that do nothing here are refused by name; unknown ones are a TypeError."""
    for field in ("avatar_config", "translation_config", "support_cfc", "tool_thread_pool_config", "save_live_audio"):
        with pytest.raises(NotSupportedError, match=field):
            RunConfig(**{field: cast(Any, None)})
    with pytest.raises(TypeError, match="nonsense"):
        RunConfig(nonsense=1)  # that is the point
    wrong: list[dict[str, Any]] = [{"deadline_s": 0}, {"max_llm_calls": "3"}, {"on_busy": "no"}, {"partial_buffer": 0}]
    wrong += [{"max_transfers": 1.5}, {"max_tokens": "many"}]
    for bad in wrong:
        with pytest.raises(ConfigurationError, match=next(iter(bad))):
            RunConfig(**bad)


async def test_after_leaving_a_run_gives_no_more_events() -> None:
    """What was stored and not read is in the session; the run itself is over."""
    async with runner_for(three).run_async(**PLACE, new_message="go") as run:
        await trio.testing.wait_all_tasks_blocked()
    assert [event async for event in run] == []


async def test_closing_the_runner_closes_its_tools_in_bounded_time(autojump_clock: object) -> None:
    """Each tool is closed once; one that hangs is given up, one that raises does not keep the others from closing."""
    closed: list[str] = []

    class Closing(BaseTool):
        def __init__(self, name: str) -> None:
            super().__init__(name=name, description="")

        @property
        def declaration(self) -> FunctionDeclaration:
            return FunctionDeclaration(name=self.name)

        async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> None: ...

        async def close(self) -> None:
            if self.name == "hangs":
                await trio.sleep_forever()
            closed.append(self.name)
            if self.name == "fails":
                raise OddError

    tools = [Closing(name) for name in ("fails", "hangs", "fine")]
    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm([]), tools=tools))
    with pytest.raises(OddError) as caught:
        await runner.close()
    assert "closing 'hangs' took longer than Runner(cleanup_timeout_s=5.0)" in caught.value.__notes__[0]
    await runner.close()
    assert closed == ["fails", "fine"]
    assert trio.current_time() == pytest.approx(runner.cleanup_timeout_s)


# --- state that several hold at once ----------------------------------------------------------------------------------


async def test_what_a_child_commits_is_newer_than_what_its_parent_has_pending() -> None:
    """A child's writes lie on top of the parent's pending ones on the same keys, and take them along."""
    child = LlmAgent(name="child", model=ScriptedLlm(["answer"]), output_key="status")

    async def adds(ctx: InvocationContext) -> None:
        ctx.state.add("n", 1)
        del ctx.state["gone"]
        await ctx.emit(Event(message="x"))
        assert ctx.state["n"] == 11

    async def logic(ctx: InvocationContext) -> None:
        ctx.state.update({"status": "started", "n": 10, "gone": True, "other": 1})
        await child.run_async(ctx)
        await Logic(name="adds", logic=adds).run_async(ctx)
        assert dict(ctx.state) == {"status": "answer", "n": 11, "other": 1}

    _, run = await run_to_end(runner_for(logic))
    assert dict(run.session.state) == {"status": "answer", "n": 11, "other": 1}


async def test_pending_writes_ride_on_one_event_however_many_are_emitted_at_once() -> None:
    """One `add` before three parallel emits counts once, and is read as one while it is on its way."""
    seen: list[int] = []

    async def logic(ctx: InvocationContext) -> None:
        ctx.state.add("n", 1)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ctx.emit, Event(message="x"))
            for _ in range(20):
                await trio.lowlevel.checkpoint()
                seen.append(ctx.state["n"])

    _, run = await run_to_end(runner_for(logic))
    assert run.session.state["n"] == 1
    assert set(seen) == {1}


async def test_an_operation_of_an_event_lies_on_top_of_what_is_pending() -> None:
    """Only an event's own state_delta wins over a pending write; its operations merge with it."""

    async def logic(ctx: InvocationContext) -> None:
        ctx.state["n"] = 5
        await ctx.emit(Event(actions=EventActions(state_ops={"n": {"add": 1}})))
        ctx.state.add("n", 5)
        await ctx.emit(Event(actions=EventActions(state_ops={"n": {"add": 1}})))

    _, run = await run_to_end(runner_for(logic))
    assert run.session.state["n"] == 12


async def test_writes_of_an_event_that_was_not_stored_are_pending_again() -> None:
    """After an emit that was refused, the next one carries what was pending, below what was written since."""

    async def logic(ctx: InvocationContext) -> None:
        ctx.state["a"] = 1
        ctx.state.add("n", 1)
        for refused in (Event(message="x", long_running_tool_ids=["a"]), Event(state={"temp:": 1})):
            with pytest.raises(MinirunError):
                await ctx.emit(refused)
        ctx.state["temp:x"] = "text"
        await ctx.emit(Event(partial=True, message="p"))
        ctx.state.add("n", 1)
        await ctx.emit(Event(message="y"))
        with pytest.raises(InvalidValueError):
            await ctx.emit(Event(message="z", actions=EventActions(state_ops={"temp:x": {"add": 1}})))

    events, run = await run_to_end(runner_for(logic))
    assert dict(run.session.state) == {"a": 1, "n": 2, "temp:x": "text"}
    assert texts(events) == ["p", "y"]


async def test_two_tasks_cannot_both_answer_one_call() -> None:
    """The check that a call is answered once is made where events are stored one after another."""
    refused: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        event = await ctx.emit(Event(content=Content(parts=[call("f")])))
        [made] = event.get_function_calls()

        async def answer() -> None:
            response = Part(function_response=FunctionResponse(id=made.id, name="f", response={}))
            try:
                await ctx.emit(Event(content=Content(parts=[response])))
            except InvalidEventError as error:
                refused.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            nursery.start_soon(answer)

    events, run = await run_to_end(runner_for(logic))
    assert len(refused) == 1
    assert sum(len(event.get_function_responses()) for event in events) == 1
    assert run.status is InvocationStatus.COMPLETED


async def test_parallel_models_may_give_the_same_call_id() -> None:
    """Two agents at once whose models both say `call_0`: each call has an id of its own, and its answer."""

    async def work() -> str:
        return "done"

    def script() -> ScriptedLlm:
        return ScriptedLlm([Part(function_call=FunctionCall(id="call_0", name="work")), "done"])

    async def logic(ctx: InvocationContext) -> None:
        async with trio.open_nursery() as nursery:
            for name in ("one", "two"):
                nursery.start_soon(LlmAgent(name=name, model=script(), tools=[work]).run_async, ctx)

    events, run = await run_to_end(runner_for(logic))
    calls = [made.id for event in events for made in event.get_function_calls()]
    assert len(set(calls)) == 2
    assert run.status is InvocationStatus.COMPLETED


async def test_a_nested_run_from_the_thread_of_a_tool_is_refused() -> None:
    """What a sync tool starts with trio.from_thread on its own session is inside the run, and raises at once."""
    runner: Runner

    def again() -> str:
        try:
            trio.from_thread.run(run_to_end, runner)
        except SessionBusyError:
            return "refused"
        return "ran"

    model = ScriptedLlm([call("again"), "done"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[again]))
    with trio.fail_after(10):
        events, _ = await run_to_end(runner)
    assert events[1].get_function_responses()[0].response == {"result": "refused"}


async def test_the_caller_may_raise_the_exception_that_the_agent_has_raised() -> None:
    """The same object from both sides leaves once."""
    error = OddError("both")

    async def logic(ctx: InvocationContext) -> None:
        raise error

    with pytest.raises(OddError) as caught:
        async with runner_for(logic).run_async(**PLACE, new_message="go"):
            await trio.testing.wait_all_tasks_blocked()
            raise error
    assert caught.value is error


async def test_writes_are_stored_in_the_order_they_were_made() -> None:
    """The keys of a state_delta stand as they were written, the event's own last, in every process (promise P10)."""
    keys = [f"key {number * 7919 % 101}" for number in range(40)]

    async def logic(ctx: InvocationContext) -> None:
        for key in keys:
            ctx.state[key] = 1
        await ctx.emit(Event(message="x", state={"own": 1}))

    [event], _ = await run_to_end(runner_for(logic))
    assert list(event.actions.state_delta) == [*keys, "own"]
