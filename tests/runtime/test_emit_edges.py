"""What may go wrong around one event, and must cost nobody else anything."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from minirun import App, Event, EventActions, InMemorySessionService, InvocationContext, LlmAgent, RunConfig, Runner
from minirun.agents import ParallelAgent, SequentialAgent
from minirun.artifacts import InMemoryArtifactService
from minirun.errors import DeadlineExceededError, InvalidEventError, InvocationNotFoundError
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..helpers import Logic, run_to_end, runner_for, stored_events

PLACE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
Act = Callable[[InvocationContext], Awaitable[None]]


def runner_of(logic: Act, *plugins: BasePlugin, **options: Any) -> Runner:
    app = App("app", Logic(name="a", logic=logic), plugins)
    return Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True, **options)


async def log_of(runner: Runner) -> list[Event]:
    return (await runner.session_service.read_events(app_name="app", **PLACE))[1:]


async def test_an_event_that_ends_the_invocation_ends_it_once_it_is_stored() -> None:
    """As `ctx.end_invocation` does: no agent is started after it, and what this one still says is stored."""
    seen: list[bool] = []

    async def first(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="enough", actions=EventActions(end_invocation=True)))
        seen.append(ctx.end_invocation)
        await ctx.emit(Event(message="one more"))

    async def second(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="never"))

    agents = [Logic(name="first", logic=first), Logic(name="second", logic=second)]
    runner = runner_for(SequentialAgent(name="all", sub_agents=agents))
    events, run = await run_to_end(runner)
    assert ([event.text for event in events], seen, run.status) == (["enough", "one more"], [True], "completed")
    assert [event.actions.end_invocation for event in events] == [True, True]


async def test_an_artifact_service_that_is_closed_meanwhile_leaves_nobody_asleep() -> None:
    """What is stored is stored, whatever becomes of the services beside it; the run can be left."""
    artifacts = InMemoryArtifactService()

    async def logic(ctx: InvocationContext) -> None:
        await ctx.save_artifact("first", Part(text="x"))
        await ctx.emit(Event(message="one"))

    runner = runner_of(logic, artifact_service=artifacts)
    with trio.fail_after(5):
        async with runner.run_async(**PLACE, new_message="go") as run:
            async for event in run:
                if event.actions.artifact_delta:
                    await artifacts.aclose()
    assert [event.text for event in await log_of(runner)][-1] == "one"


async def test_a_hook_that_asks_in_a_run_that_keeps_its_status_pauses_it() -> None:
    """A plugin answers in the place of a resumed invocation, and another hook asks: the run is paused, and says so."""
    runs: list[str] = []

    class Answers(BasePlugin):
        async def before_run_callback(self, *, invocation_context: InvocationContext) -> Content | None:
            runs.append(invocation_context.invocation_id)
            return Content(parts=[Part(text="not now")]) if len(runs) == 2 else None

        async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
            if len(runs) == 2:
                await invocation_context.request_input("really?")

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_input("?")

    runner = runner_of(logic, Answers(name="answers"))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as run:
        await run.wait()
    assert run.status == "paused"


async def test_a_step_whose_late_result_is_no_json_does_not_hide_the_cancellation(autojump_clock: MockClock) -> None:
    """The thread of a step ends after its time, with what cannot be stored: the scope around it has expired."""
    goes_on = threading.Event()
    expired: list[bool] = []

    def work() -> object:
        goes_on.wait(120)
        return object()

    async def logic(ctx: InvocationContext) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel, scope)
                await ctx.step("work", work)
        expired.append(scope.cancelled_caught)
        await ctx.emit(Event(message="after"))

    async def cancel(scope: trio.CancelScope) -> None:
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        scope.cancel()
        goes_on.set()

    runner = runner_of(logic)
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert expired == [True]
    assert [event.text for event in await log_of(runner)][-1] == "after"


async def test_a_hook_with_a_nursery_does_not_cost_a_step_its_record(autojump_clock: MockClock) -> None:
    """A run is left while a hook with tasks of its own looks at a step that was taken: it is recorded all the same."""

    class Looks(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
            if event.output is not None:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep, 1)

    async def work() -> int:
        return 1

    async def logic(ctx: InvocationContext) -> None:
        await ctx.step("work", work)

    runner = runner_of(logic, Looks(name="looks"))
    async with runner.run_async(**PLACE, new_message="go"):
        await trio.sleep(0.5)
    assert [event.output for event in await log_of(runner) if event.output is not None] == [1]


async def test_what_a_hook_writes_to_a_key_of_the_run_is_merged() -> None:
    """An agent and a hook that looks at its event add to the same `temp:` key: both count."""
    seen: list[int] = []

    class Adds(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
            invocation_context.state.add("temp:n", 1)

    async def logic(ctx: InvocationContext) -> None:
        ctx.state.add("temp:n", 1)
        await ctx.emit(Event(message="x"))
        seen.append(ctx.state["temp:n"])

    async with runner_of(logic, Adds(name="adds")).run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert seen == [2]


async def test_what_a_hook_writes_at_a_fragment_goes_with_the_next_event() -> None:
    """A fragment is not stored; what a hook has written when it looked at it is kept, and stored with what follows."""

    class Counts(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
            if event.partial:
                invocation_context.state.add("fragments", 1)

    async def logic(ctx: InvocationContext) -> None:
        for _ in range(2):
            await ctx.emit(Event(message="...", partial=True))
        await ctx.emit(Event(message="x"))

    async with runner_of(logic, Counts(name="counts")).run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert run.session.state["fragments"] == 2


async def test_events_are_stored_outside_of_what_their_agents_have_set() -> None:
    """A session service sees the contextvars of whoever has entered the run, not those of the first agent."""
    var: ContextVar[str] = ContextVar("var", default="outside")
    seen: list[str] = []

    class Watching(InMemorySessionService):
        async def commit_event(self, live: Any, event: Event, **options: Any) -> None:
            seen.append(var.get())
            await super().commit_event(live, event, **options)

    async def speak(ctx: InvocationContext) -> None:
        var.set(f"inside of {ctx.agent_name}")
        await ctx.emit(Event(message="x"))

    agent = ParallelAgent(name="both", sub_agents=[Logic(name=name, logic=speak) for name in "ab"])
    runner = Runner(agent=agent, app_name="app", session_service=Watching(), auto_create_session=True)
    var.set("entered")
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert seen == ["entered"] * 3


async def test_a_deleted_session_is_not_made_anew_to_resume_in() -> None:
    """There is nothing to go on with in a session that was deleted, and none is made."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_input("?")

    runner = runner_of(logic)
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    await runner.session_service.delete_session(app_name="app", **PLACE)
    with pytest.raises(InvocationNotFoundError):
        async with runner.run_async(**PLACE, invocation_id=run.invocation_id):
            pass
    assert await runner.session_service.get_session(app_name="app", **PLACE) is None


async def test_who_is_cancelled_while_the_caller_holds_its_event_lets_nobody_ahead() -> None:
    """Its `emit` returns at once, but the next event is stored when the caller asks for it, whoever says it."""
    scopes: list[trio.CancelScope] = []

    async def first(ctx: InvocationContext) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await ctx.emit(Event(message="a"))
        assert not scope.cancelled_caught

    async def second(ctx: InvocationContext) -> None:
        while not scopes:
            await trio.lowlevel.checkpoint()
        await ctx.emit(Event(message="b"))

    agents = [Logic(name="first", logic=first), Logic(name="second", logic=second)]
    runner = runner_for(ParallelAgent(name="both", sub_agents=agents))
    async with runner.run_async(**PLACE, new_message="go") as run:
        assert (await anext(run)).text == "a"
        scopes[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert [event.text for event in await stored_events(runner)] == ["go", "a"]
        assert [event.text async for event in run] == ["b"]


async def test_who_is_shielded_when_the_caller_has_left_waits_for_nobody(autojump_clock: MockClock) -> None:
    """What it says then is stored, one thing after the other, and fragments find room for ever."""

    async def logic(ctx: InvocationContext) -> None:
        try:
            while True:
                await ctx.emit(Event(message="...", partial=True))
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                for text in ("one", "two"):
                    await ctx.emit(Event(message="...", partial=True))
                    await ctx.emit(Event(message=text))

    runner = runner_for(logic)
    async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(partial_buffer=1)) as run:
        await anext(run)
        await trio.testing.wait_all_tasks_blocked()
    assert [event.text for event in await stored_events(runner)] == ["go", "one", "two"]
    assert trio.current_time() < 1


async def test_what_closes_something_takes_no_turn(autojump_clock: MockClock) -> None:
    """A call that is cut off by the deadline is answered in the log, although the caller still holds the call."""

    async def logic(ctx: InvocationContext) -> None:
        made = Part(function_call=FunctionCall(id="c1", name="pay", args={}))
        await ctx.emit(Event(content=Content(role="model", parts=[made])))
        await trio.sleep_forever()

    runner = runner_for(logic)
    with pytest.raises(DeadlineExceededError):
        async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(deadline_s=1)) as run:
            await anext(run)
            await trio.sleep(5)
            log = await stored_events(runner)
            await run.wait()
    assert [response.id for event in log for response in event.get_function_responses()] == ["c1"]


async def test_answers_of_models_carry_the_metadata_of_their_run() -> None:
    """They are complete when they are made, but for that."""
    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm(["hi"])))
    async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(custom_metadata={"tag": 1})) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.custom_metadata == {"tag": 1}


@pytest.mark.parametrize("name", ["author", "branch", "invocation_id"])
async def test_what_an_event_lacks_is_filled_in_although_it_has_an_id_and_a_node(name: str) -> None:
    """As a copy of an earlier event has, which somebody has changed and emits again."""
    said: list[Event] = []

    async def logic(ctx: InvocationContext) -> None:
        said.append(await ctx.emit(Event(message="one")))
        changes: dict[str, Any] = {"id": "again", "seq": None, "timestamp": None, name: None}
        said.append(await ctx.emit(attrs.evolve(said[0], **changes)))

    agent = ParallelAgent(name="sides", sub_agents=[Logic(name="a", logic=logic)])
    async with runner_for(agent).run_async(**PLACE, new_message="go") as run:
        await run.wait()
    first, second = (getattr(event, name) for event in said)
    assert first is not None
    assert second == first


@pytest.mark.parametrize("actions", [{"artifact_delta": {"a": 7}}, {"artifact_versions": {"a": [7]}}])
async def test_an_event_names_no_version_of_an_artifact_that_is_not_there(actions: dict[str, Any]) -> None:
    """Neither as the newest nor as another one: it is refused, and not stored."""

    async def logic(ctx: InvocationContext) -> None:
        with pytest.raises(InvalidEventError, match="'a' version 7"):
            await ctx.emit(Event(message="one", actions=EventActions(**actions)))

    runner = runner_of(logic, artifact_service=InMemoryArtifactService())
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert [event.text for event in await log_of(runner)] == ["go"]


async def test_one_event_answers_a_call_once() -> None:
    """With two responses to a call it is refused, and the call stays open for a right one (P6)."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(content=Content(role="model", parts=[Part(function_call=FunctionCall(name="f", id="c"))])))
        answer = Part(function_response=FunctionResponse(name="f", id="c", response={"result": 1}))
        with pytest.raises(InvalidEventError, match="responses to differ"):
            await ctx.emit(Event(content=Content(role="user", parts=[answer, answer])))
        await ctx.emit(Event(content=Content(role="user", parts=[answer])))

    runner = runner_of(logic)
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert [len(event.get_function_responses()) for event in await log_of(runner)] == [0, 0, 1]


async def test_what_a_task_sets_while_an_event_is_on_its_way_goes_with_the_next_one() -> None:
    """An event carries the actions and the state of the moment when it is emitted; later ones are not lost with it."""

    async def logic(ctx: InvocationContext) -> None:
        async def speak() -> None:
            await ctx.emit(Event(message="one"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(speak)
            await trio.testing.wait_all_tasks_blocked()  # it is stored, and its emitter waits for the caller
            ctx.actions.skip_summarization = True
            ctx.state["k"] = 1
        await ctx.emit(Event(message="two"))
        await ctx.emit(Event(message="three"))

    runner = runner_of(logic)
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.text == "one":
                await trio.testing.wait_all_tasks_blocked()
    said = (await log_of(runner))[1:]
    assert [(event.text, event.actions.skip_summarization, event.actions.state_delta) for event in said] == [
        ("one", None, {}), ("two", True, {"k": 1}), ("three", None, {})
    ]  # fmt: skip


async def test_actions_of_an_event_that_is_refused_go_with_the_next_one() -> None:
    """What was set for an event that is not stored is carried by the next, unless it was set again meanwhile."""

    class Refuses(BasePlugin):
        async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
            if event.text == "no":
                raise OSError("refused")

    async def logic(ctx: InvocationContext) -> None:
        ctx.actions.skip_summarization = True
        with pytest.raises(OSError, match="refused"):
            await ctx.emit(Event(message="no"))
        assert ctx.actions.skip_summarization
        await ctx.emit(Event(message="yes"))
        assert ctx.actions.skip_summarization is None

    runner = runner_of(logic, Refuses(name="refuses"))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    said = (await log_of(runner))[1:]
    assert [(event.text, event.actions.skip_summarization) for event in said] == [("yes", True)]
