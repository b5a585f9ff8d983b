"""
Going on, by its id, with an invocation that has failed or was cancelled: what failed is tried again, and nothing else.

`test_whatever_fails_comes_to_the_same` and the properties below compare with one undisturbed run; the others show one
rule each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import (
    App,
    BaseAgent,
    Event,
    FunctionTool,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SequentialAgent,
    SqliteSessionService,
)
from minirun.apps import EventsCompactionConfig, LlmEventSummarizer
from minirun.errors import (
    DeadlineExceededError,
    InvalidMessageError,
    LlmCallsLimitExceededError,
    NotResumableError,
    OutputSchemaError,
    ReplayError,
    ToolCallsLimitExceededError,
)
from minirun.events import EventActions, Replay
from minirun.flows._going_on import goes_on_event
from minirun.flows._record import Record
from minirun.models import LlmResponse
from minirun.plugins import BasePlugin
from minirun.runtime import Run
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig
from minirun.workflow import FAILED, START, JoinNode, Workflow, node

from ..examples import examples
from ..resuming import says
from ..runtime.test_prefixes import ANSWERS_MAX, cut, open_calls, reply_to, status_of, store
from ..runtime.test_resume import PLACE, log_of
from ..stores import Elsewhere
from ..workflow.test_workflow_runs import outcomes
from ..workflows import EVERY, WORKFLOWS


class Broken(Exception):
    """What fails here."""


class World:
    """What is outside: it counts what is done to it, and fails at the moments that are given."""

    def __init__(self, *fails_at: int) -> None:
        self.fails_at = set(fails_at)
        self.touched = 0
        self.effects: list[str] = []

    def touch(self) -> None:
        """Something is about to be done."""
        self.touched += 1
        if self.touched in self.fails_at:
            raise Broken(f"at {self.touched}")

    async def effect(self, what: str) -> str:
        """A step that may fail, and is done once if it does not."""
        self.touch()
        self.effects.append(what)
        return what

    def says(self, text: str) -> ScriptedLlm:
        """A model that may fail, and says one thing."""

        def answer(request: Any) -> str:
            self.touch()
            return text

        return ScriptedLlm(answer)


@pytest.fixture(params=["memory", "sqlite"])
async def service(request: pytest.FixtureRequest) -> AsyncIterator[BaseSessionService]:
    """Every kind of store."""
    kinds: dict[str, Callable[[], BaseSessionService]] = {
        "memory": InMemorySessionService,
        "sqlite": lambda: SqliteSessionService(":memory:", durability="process"),
    }
    async with kinds[request.param]() as found:
        yield found


def runner_of(agent: BaseAgent, service: BaseSessionService, *plugins: BasePlugin) -> Runner:
    """A runner as a new process would make it."""
    app = App("app", agent, plugins=plugins)
    return Runner(app=app, session_service=service, auto_create_session=True)


async def fails(runner: Runner, kind: type[Exception] = Broken, **what: Any) -> Run:
    """A run that fails like that."""
    what = what or {"new_message": "go"}
    with pytest.raises(kind):
        async with runner.run_async(**PLACE, **what) as run:
            await run.wait()
    assert run.status == "failed"
    return run


async def gone_on(runner: Runner, run: Run, **what: Any) -> tuple[Run, list[Event]]:
    """Go on with it; return the run and what it has shown."""
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id, **what) as again:
        events = [event async for event in again]
    return again, events


# --- what is tried again, and what is not -----------------------------------------------------------------------------


async def test_a_model_that_has_failed_is_asked_again(service: BaseSessionService) -> None:
    """The model is asked where it has failed; the call before is not made again, and nobody is shown it again."""
    world, made = World(2), []

    def note(what: str) -> str:
        """Note."""
        made.append(what)
        return "noted"

    def answer(request: Any) -> Any:
        world.touch()
        return call("note", what="a") if len(request.contents) == 1 else "done"

    agent = LlmAgent(name="a", model=ScriptedLlm(answer), tools=[FunctionTool(note, run_in="loop")])
    runner = runner_of(agent, service)
    run = await fails(runner)
    again, events = await gone_on(runner, run)
    assert (again.status, [event.text for event in events], made) == ("completed", ["done"], ["a"])
    assert again.answer is not None
    assert again.answer.text == "done"
    log = await log_of(runner)
    assert [event.error_code for event in log if event.error_code] == ["Broken"]
    assert open_calls(log) == set()


class Steps(BaseAgent):
    """Takes three steps, with words between them."""

    world: World

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for number in range(3):
            ctx.state["number"] = number
            await ctx.step("do", self.world.effect, f"{self.name} {number}")
            await ctx.emit(Event(message=f"{self.name} did {number}"))


async def test_a_step_that_has_failed_is_taken_again(service: BaseSessionService) -> None:
    """It is taken again as often as somebody goes on, the steps before it are not, and the log has each failure."""
    world = World(2, 3)
    runner = runner_of(Steps(name="s", world=world), service)
    run = await fails(runner)
    await fails(runner, invocation_id=run.invocation_id)
    again, events = await gone_on(runner, run)
    assert (again.status, world.effects) == ("completed", ["s 0", "s 1", "s 2"])
    assert [event.text for event in events if event.text] == ["s did 1", "s did 2"]
    log = await log_of(runner)
    assert [event.actions.replay.step is not None for event in log if event.error_code] == [True, False] * 2


class CleansUp(BaseAgent):
    """Says something in a `finally:`, whether it fails or not."""

    world: World
    way: str

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        try:
            await ctx.emit(Event(message="begins"))
            if self.way == "step":
                await ctx.step("do", self.world.effect, "once")
            elif self.way == "model":
                await LlmAgent(name="asked", model=self.world.says("asked")).run_async(ctx)
            else:
                self.world.touch()
            await ctx.emit(Event(message="did it"))
        finally:
            await ctx.emit(Event(message="cleans up"))


def placed(where: str, agent: BaseAgent) -> BaseAgent:
    """The agent as a root, as a node, or run by a node."""

    async def parent(ctx: InvocationContext) -> Any:
        return await ctx.run_node(agent, "go")

    if where == "root":
        return agent
    return Workflow(name="wf", edges=[(START, agent if where == "node" else parent)])


@pytest.mark.parametrize("where", ["root", "node", "run by a node"])
@pytest.mark.parametrize("way", ["step", "model", "nothing recorded"])
async def test_what_was_said_in_a_finally_is_in_nobodys_way(way: str, where: str, service: BaseSessionService) -> None:
    """What an agent has said while it failed stays in the log, and another run says what it says in its own place."""
    agent = CleansUp(name="a", world=World(1, 2), way=way)
    runner = runner_of(placed(where, agent), service)
    run = await fails(runner)
    await fails(runner, invocation_id=run.invocation_id)
    again, events = await gone_on(runner, run)
    assert again.status == "completed"
    assert [event.text for event in events if event.author == "a" and event.text][:2] == ["did it", "cleans up"]
    texts = [event.text for event in await log_of(runner) if event.author == "a" and event.text and not event.output]
    assert texts[:4] == ["begins", "cleans up", "did it", "cleans up"]


async def test_a_failed_step_of_a_node_that_a_node_runs_is_taken_again(service: BaseSessionService) -> None:
    """The failure of the child is recorded for its parent, too; both are tried again."""

    async def child(ctx: InvocationContext) -> Any:
        return await ctx.step("do", world.effect, "once")

    async def parent(ctx: InvocationContext) -> Any:
        return await ctx.run_node(child)

    world = World(1)
    runner = runner_of(Workflow(name="wf", edges=[(START, parent)]), service)
    again, _ = await gone_on(runner, await fails(runner))
    assert again.answer is not None
    assert (again.status, again.answer.output, world.effects) == ("completed", "once", ["once"])


class Catches(BaseAgent):
    """Does something else when a step fails, says so, and fails at a later step."""

    world: World

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        try:
            await ctx.step("first", self.world.effect, "first")
        except Broken:
            await ctx.step("instead", self.world.effect, "instead")
        await ctx.step("last", self.world.effect, "last")


async def test_a_failure_that_the_logic_has_dealt_with_is_not_tried_again(service: BaseSessionService) -> None:
    """A step that failed, and after which its agent did something that is recorded, fails as it did."""
    world = World(1, 3)
    runner = runner_of(Catches(name="c", world=world), service)
    run = await fails(runner)
    again, _ = await gone_on(runner, run)
    assert (again.status, world.effects) == ("completed", ["instead", "last"])


async def test_a_step_that_is_taken_again_has_its_key(service: BaseSessionService) -> None:
    """Another system knows it by the key that it had; steps inside of it are not taken again."""
    world, keys = World(2, 3), []

    class Nests(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            async def outer() -> str:
                keys.append(ctx.idempotency_key)
                await ctx.step("inner", world.effect, "inner")
                return await world.effect("outer")

            await ctx.step("outer", outer)
            await ctx.emit(Event(message="done"))

    runner = runner_of(Nests(name="nests"), service)
    run = await fails(runner)
    await fails(runner, invocation_id=run.invocation_id)
    again, _ = await gone_on(runner, run)
    assert (again.status, world.effects) == ("completed", ["inner", "outer"])
    assert (len(keys), len(set(keys))) == (3, 1)


class Asks(BaseAgent):
    """Asks, and says what it has heard."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="I ask"))
        heard = await ctx.request_input("What?")
        await ctx.emit(Event(message=f"heard {heard}", state={"heard": heard}))


async def test_a_question_that_the_end_has_withdrawn_is_asked_anew(service: BaseSessionService) -> None:
    """It has another id, in every process that comes to it, and is answered as any other."""
    world = World(1)
    model = world.says("said")

    def agent() -> BaseAgent:
        return ParallelAgent(
            name="both", sub_agents=[Asks(name="asks"), LlmAgent(name="says", model=model)], on_failure="collect"
        )

    run = await fails(runner_of(agent(), service))
    assert await service.list_pending() == []
    again, events = await gone_on(runner_of(agent(), service), run)
    assert (again.status, [event.text for event in events if event.text]) == ("paused", ["said"])
    [question] = await service.list_pending()
    async with runner_of(agent(), service).run_async(**PLACE, new_message=question.reply("this")) as last:
        await last.wait()
    assert last.status == "completed"
    session = await service.get_session(app_name="app", **PLACE)
    assert session is not None
    assert session.state["heard"] == "this"
    log = await log_of(runner_of(agent(), service))
    assert [event.text for event in log].count("I ask") == 1
    assert open_calls(log) == set()


async def test_a_call_that_the_end_has_answered_is_not_made_again(
    service: BaseSessionService, autojump_clock: trio.testing.MockClock
) -> None:
    """The model is told that it was cancelled, and decides."""
    requests, made = [], []

    async def work(number: int) -> str:
        """Work."""
        made.append(number)
        await trio.sleep(number)
        return "done"

    def answer(request: Any) -> Any:
        requests.append(request)
        responses = [part.function_response for part in request.contents[-1].parts if part.function_response]
        return str(responses[0].response["error"]["type"]) if responses else call("work", number=100)

    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(answer), tools=[work]), service)
    with trio.move_on_after(1):
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    assert run.status == "cancelled"
    again, events = await gone_on(runner, run)
    assert (again.status, [event.text for event in events], made) == ("completed", ["cancelled"], [100])


async def test_who_has_left_can_come_back(service: BaseSessionService) -> None:
    """An invocation that its caller has left is cancelled, and goes on where it was."""
    world = World()
    runner = runner_of(Steps(name="s", world=world), service)
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.text == "s did 1":
                break
    assert run.status == "cancelled"
    again, _ = await gone_on(runner, run)
    assert (again.status, world.effects) == ("completed", ["s 0", "s 1", "s 2"])


async def test_what_was_written_and_not_stored_is_gone(service: BaseSessionService) -> None:
    """State that a failed part has not stored is written again, once."""
    world = World(1)

    class Adds(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            ctx.state.add("count", 1)
            world.touch()
            await ctx.emit(Event(message="added"))

    runner = runner_of(Adds(name="adds"), service)
    run = await fails(runner)
    session = await service.get_session(app_name="app", **PLACE)
    assert session is not None
    before = session.state.get("count", 0)
    await gone_on(runner, run)
    session = await service.get_session(app_name="app", **PLACE)
    assert session is not None
    assert (before, session.state["count"]) == (0, 1)


async def test_one_that_is_completed_yields_nothing(service: BaseSessionService) -> None:
    """Also one that somebody has gone on with; its answer is the recorded one, and nothing is stored."""
    runner = runner_of(Steps(name="s", world=World(2)), service)
    run = await fails(runner)
    await gone_on(runner, run)
    before = await log_of(runner)
    again, events = await gone_on(runner, run)
    assert (again.status, events) == ("completed", [])
    assert again.answer is not None
    assert again.answer.text == "s did 2"
    with pytest.raises(InvalidMessageError, match="would be lost"):
        await gone_on(runner, run, state_delta={"a": 1})
    assert await log_of(runner) == before


async def test_one_that_had_failed_with_everything_done_has_its_answer(service: BaseSessionService) -> None:
    """A hook at the end fails: who goes on is shown nothing, and `run.answer` is the recorded one."""
    world = World(1)

    class AtTheEnd(BasePlugin):
        async def after_run_callback(self, *, invocation_context: Any) -> None:
            world.touch()

    runner = runner_of(LlmAgent(name="a", model=says("said")), service, AtTheEnd("end"))
    run = await fails(runner)
    again, events = await gone_on(runner, run)
    assert (again.status, events) == ("completed", [])
    assert again.answer is not None
    assert again.answer.text == "said"


async def test_state_can_be_sent_with_it(service: BaseSessionService) -> None:
    """A `state_delta` is stored with going on, and what is done then reads it."""

    class Needs(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="begun"))
            await ctx.emit(Event(message=f"key {ctx.state['key']}"))

    runner = runner_of(Needs(name="needs"), service)
    run = await fails(runner, KeyError)
    _, events = await gone_on(runner, run, state_delta={"key": 1})
    assert [event.text for event in events] == ["key 1"]


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_budgets_count_on_and_can_be_raised(service: BaseSessionService) -> None:
    """What ended by a budget ends by it again, and goes on by so much as a new RunConfig allows more."""
    asked = []

    def answer(request: Any) -> Any:
        asked.append(1)
        return call("noted", what=str(len(asked))) if len(asked) < 5 else "done"

    def noted(what: str) -> str:
        """Note."""
        return what

    agent = LlmAgent(name="a", model=ScriptedLlm(answer), tools=[FunctionTool(noted, run_in="loop")])
    runner = runner_of(agent, service)
    limits: dict[str, Any] = {"kind": LlmCallsLimitExceededError}
    run = await fails(runner, new_message="go", run_config=RunConfig(max_llm_calls=2), **limits)
    for limit in (2, 3):
        config = RunConfig(max_llm_calls=limit)
        await fails(runner, invocation_id=run.invocation_id, run_config=config, **limits)
        assert len(asked) == limit
    again, _ = await gone_on(runner, run, run_config=RunConfig(max_llm_calls=5))
    assert (again.status, len(asked)) == ("completed", 5)


async def test_calls_that_a_budget_has_refused_are_the_models_to_make_again(service: BaseSessionService) -> None:
    """They are answered as cancelled when the invocation fails; the model is told, and calls again."""
    made = []

    def noted(what: str) -> str:
        """Note."""
        made.append(what)
        return what

    model = ScriptedLlm([call("noted", what="a"), call("noted", what="b"), call("noted", what="again"), "done"])
    runner = runner_of(LlmAgent(name="a", model=model, tools=[FunctionTool(noted, run_in="loop")]), service)
    kind = ToolCallsLimitExceededError
    run = await fails(runner, kind, new_message="go", run_config=RunConfig(max_tool_calls=1))
    again, _ = await gone_on(runner, run, run_config=RunConfig(max_tool_calls=5))
    assert (again.status, made) == ("completed", ["a", "again"])


async def test_the_deadline_begins_anew(service: BaseSessionService, autojump_clock: trio.testing.MockClock) -> None:
    """Each run has its own: what has taken its time is over, and what was being done is done again."""

    class Slow(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for number in range(3):
                await ctx.step("sleep", trio.sleep, 4)
                await ctx.emit(Event(message=str(number)))

    runner = runner_of(Slow(name="slow"), service)
    config = RunConfig(deadline_s=5)
    run = await fails(runner, DeadlineExceededError, new_message="go", run_config=config)
    await fails(runner, DeadlineExceededError, invocation_id=run.invocation_id, run_config=config)
    again, events = await gone_on(runner, run, run_config=config)
    assert (again.status, [event.text for event in events if event.text]) == ("completed", ["2"])


# --- who may, and when ------------------------------------------------------------------------------------------------


async def test_only_the_newest_of_a_session(service: BaseSessionService) -> None:
    """One that another has begun after is refused before anything is stored; not so when that one is undone."""
    world = World(2)
    runner = runner_of(Steps(name="s", world=world), service)
    run = await fails(runner)
    async with runner.run_async(**PLACE, new_message="something else") as newer:
        await newer.wait()
    before = await log_of(runner)
    with pytest.raises(NotResumableError, match="only the newest"):
        await gone_on(runner, run)
    assert await log_of(runner) == before
    assert await status_of(service, run.invocation_id) == "failed"  # type: ignore[arg-type]
    await runner.rewind_async(**PLACE, rewind_before_invocation_id=newer.invocation_id)
    again, _ = await gone_on(runner, run)
    assert again.status == "completed"


async def test_an_older_one_that_waits_is_not_in_its_way(service: BaseSessionService) -> None:
    """What was begun before, and goes on meanwhile, leaves the newest the newest."""
    async with runner_of(Asks(name="asks"), service).run_async(**PLACE, new_message="ask") as older:
        await older.wait()
    runner = runner_of(Steps(name="s", world=World(2)), service)
    run = await fails(runner)
    [question] = await service.list_pending()
    async with runner_of(Asks(name="asks"), service).run_async(**PLACE, new_message=question.reply("x")) as older:
        await older.wait()
    again, _ = await gone_on(runner, run)
    assert (older.status, again.status) == ("completed", "completed")


async def test_one_that_was_undone_is_not_there(service: BaseSessionService) -> None:
    """After a rewind to before it there is nothing to go on with, whether somebody had gone on with it or not."""
    runner = runner_of(Steps(name="s", world=World(2, 3)), service)
    run = await fails(runner)
    await fails(runner, invocation_id=run.invocation_id)
    await runner.rewind_async(**PLACE, rewind_before_invocation_id=run.invocation_id)
    with pytest.raises(ValueError, match="undone by a rewind"):
        await gone_on(runner, run)


async def test_one_that_is_summed_up_is_refused(
    service: BaseSessionService, autojump_clock: trio.testing.MockClock
) -> None:
    """Its agents would have to read what a summary has taken the place of."""
    summarizer = ScriptedLlm(lambda request: "what was said")
    config = EventsCompactionConfig(
        compaction_interval=1, overlap_size=0, summarizer=LlmEventSummarizer(llm=summarizer)
    )
    agent = Steps(name="s", world=World(2))
    app = App("app", agent, events_compaction_config=config)
    runner = Runner(app=app, session_service=service, auto_create_session=True)
    run = await fails(runner)
    with trio.move_on_after(60):
        await runner.supervise()
    before = await log_of(runner)
    assert any(event.actions.compaction for event in before)
    with pytest.raises(NotResumableError, match="summary"):
        await gone_on(runner, run)
    assert await log_of(runner) == before


async def test_no_supervisor_does_so_by_itself(
    service: BaseSessionService, autojump_clock: trio.testing.MockClock
) -> None:
    """Supervisors and `resume_due` leave it alone; one that is cut off while somebody goes on with it they resume."""
    world = World(2)
    runner = runner_of(Steps(name="s", world=world), service)
    run = await fails(runner)
    before = await log_of(runner)
    assert await runner.resume_due(now=9e9) == []
    with trio.move_on_after(60):
        await runner.supervise()
    assert await log_of(runner) == before
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id).supervised(None) as again:
        await anext(again)
    assert again.status == "interrupted"
    with trio.move_on_after(60):
        await runner.supervise()
    assert await status_of(service, run.invocation_id) == "completed"  # type: ignore[arg-type]
    assert world.effects == ["s 0", "s 1", "s 2"]


async def test_logic_that_has_changed_leaves_it_failed(service: BaseSessionService) -> None:
    """A ReplayError changes nothing: it is failed as before, no supervisor takes it, and later it goes on."""
    world = World(2)
    runner = runner_of(Steps(name="s", world=world), service)
    run = await fails(runner)
    changed = runner_of(Steps(name="renamed", world=world), service)
    await fails(changed, ReplayError, invocation_id=run.invocation_id)
    assert await status_of(service, run.invocation_id) == "failed"  # type: ignore[arg-type]
    again, _ = await gone_on(runner, run)
    assert (again.status, world.effects) == ("completed", ["s 0", "s 1", "s 2"])


async def test_a_fork_has_its_own_end(service: BaseSessionService) -> None:
    """A failed invocation is gone on with in the session and in a fork of it, each once."""
    world = World(2)
    runner = runner_of(Steps(name="s", world=world), service)
    run = await fails(runner)
    await service.fork_session(app_name="app", **PLACE, new_session_id="fork")
    for session_id in ("fork", "s"):
        place = {**PLACE, "session_id": session_id}
        async with runner.run_async(**place, invocation_id=run.invocation_id) as again:
            await again.wait()
        assert again.status == "completed"
    assert Counter(world.effects) == {"s 0": 1, "s 1": 2, "s 2": 2}


async def test_of_two_processes_one_goes_on(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """The other waits for it, and then finds the invocation completed."""
    world = World(2)
    async with Elsewhere(tmp_path / "a.db", durability="process") as one:
        async with Elsewhere(tmp_path / "a.db", durability="process") as two:
            runners = [runner_of(Steps(name="s", world=world), each) for each in (one, two)]
            run = await fails(runners[0])
            found: list[tuple[str, int]] = []

            async def go_on(runner: Runner) -> None:
                again, events = await gone_on(runner, run)
                found.append((again.status, len(events)))

            async with trio.open_nursery() as nursery:
                for runner in runners:
                    nursery.start_soon(go_on, runner)
    assert sorted(found) == [("completed", 0), ("completed", 4)]
    assert world.effects == ["s 0", "s 1", "s 2"]


# --- workflows --------------------------------------------------------------------------------------------------------


async def test_a_node_that_has_failed_is_run_again_and_its_siblings_are_not(service: BaseSessionService) -> None:
    """What has ended stays as it is recorded, the way of a handled failure included."""
    world, ran = World(), Counter[str]()

    async def good(node_input: str) -> str:
        ran["good"] += 1
        return "good"

    async def bad(node_input: str, ctx: InvocationContext) -> str:
        ran["bad"] += 1
        await ctx.step("do", world.effect, "done")
        if ran["bad"] < 3:
            raise Broken("bad")
        return "good at last"

    async def handled(node_input: str) -> str:
        ran["handled"] += 1
        raise ValueError("handled")

    async def instead(node_input: Any) -> str:
        ran["instead"] += 1
        return f"instead of {node_input['message']}"

    async def last(node_input: Any) -> Any:
        ran["last"] += 1
        return node_input

    graph = Workflow(
        name="wf",
        output=last,
        on_failure="collect",
        edges=[
            (START, (good, bad, handled)),
            (handled, {FAILED: instead}),
            ((good, bad, instead), JoinNode(name="all"), last),
        ],
    )
    runner = runner_of(graph, service)
    run = await fails(runner)
    await fails(runner, invocation_id=run.invocation_id)
    again, _ = await gone_on(runner, run)
    assert again.answer is not None
    assert again.answer.output == {"good": "good", "bad": "good at last", "instead": "instead of handled"}
    assert (ran["good"], ran["bad"], ran["handled"], world.effects) == (1, 3, 1, ["done"])


async def test_each_going_on_gives_a_node_one_more_attempt(service: BaseSessionService) -> None:
    """Attempts that the log has count; the last one is made anew, with the same number."""
    numbers = []

    async def tries(ctx: InvocationContext) -> str:
        numbers.append(ctx.attempt_count)
        if len(numbers) < 5:
            raise Broken("again")
        return "done"

    retry = RetryConfig(max_attempts=3, initial_delay=0, jitter=0)
    runner = runner_of(Workflow(name="wf", edges=[(START, node(tries, retry=retry))]), service)
    run = await fails(runner)
    await fails(runner, invocation_id=run.invocation_id)
    again, _ = await gone_on(runner, run)
    assert (again.status, numbers) == ("completed", [1, 2, 3, 3, 3])


async def test_a_tool_that_is_a_node_is_called_again(service: BaseSessionService) -> None:
    """By another call: the first one has its answer, which is that it has failed."""
    world = World(1, 2)

    def fetch(what: str) -> str:
        """Fetch."""
        world.touch()
        return f"fetched {what}"

    graph = Workflow(name="wf", edges=[(START, FunctionTool(fetch, run_in="loop"))])
    runner = runner_of(graph, service)
    kind = Exception
    run = await fails(runner, kind, new_message="it")
    await fails(runner, kind, invocation_id=run.invocation_id)
    again, _ = await gone_on(runner, run)
    assert again.answer is not None
    assert (again.status, again.answer.output, world.touched) == ("completed", "fetched it", 3)
    log = await log_of(runner)
    calls = [one.id for event in log for one in event.get_function_calls()]
    assert (len(set(calls)), open_calls(log)) == (3, set())


async def test_each_attempt_of_a_tool_that_is_a_node_has_a_call_of_its_own(service: BaseSessionService) -> None:
    """No call is stored twice, and a tool that fails once is called again by the next attempt of its node."""
    world = World(1)

    def fetch(what: str) -> str:
        """Fetch."""
        world.touch()
        return f"fetched {what}"

    retry = RetryConfig(max_attempts=2, initial_delay=0, jitter=0)
    graph = Workflow(name="wf", edges=[(START, node(FunctionTool(fetch, run_in="loop"), retry=retry))])
    runner = runner_of(graph, service)
    async with runner.run_async(**PLACE, new_message="it") as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.output == "fetched it"
    calls = [one.id for event in await log_of(runner) for one in event.get_function_calls()]
    assert (len(calls), len(set(calls))) == (2, 2)


async def test_an_agent_that_has_answered_with_an_error_is_asked_again(service: BaseSessionService) -> None:
    """An answer that is an error fails its node; who goes on has the model asked once more each time."""
    asked = []

    def answer(request: Any) -> LlmResponse | str:
        asked.append(1)
        return LlmResponse(error_code="BUSY", error_message="later") if len(asked) < 3 else "said"

    graph = Workflow(name="wf", edges=[(START, LlmAgent(name="a", model=ScriptedLlm(answer)))])
    runner = runner_of(graph, service)
    run = await fails(runner, Exception, new_message="go")
    await fails(runner, Exception, invocation_id=run.invocation_id)
    again, _ = await gone_on(runner, run)
    assert again.answer is not None
    assert (again.status, again.answer.text, len(asked)) == ("completed", "said", 3)


async def test_a_failure_that_was_told_at_the_end_is_no_answer(service: BaseSessionService) -> None:
    """What a run has failed with stands in the log, in the branch of its agent; the answer before it counts."""
    world, asked = World(1), []

    def answer(request: Any) -> str:
        asked.append(1)
        return "said"

    def after(callback_context: Any) -> None:
        world.touch()

    agent = LlmAgent(name="a", model=ScriptedLlm(answer), after_agent_callback=after)
    runner = runner_of(Workflow(name="wf", edges=[(START, agent)]), service)
    run = await fails(runner)
    again, _ = await gone_on(runner, run)
    assert again.answer is not None
    assert (again.status, again.answer.output, len(asked)) == ("completed", "said", 1)


def test_agents_were_not_at_rest_when_it_failed() -> None:
    """A question out of order says that the run before it had paused; an invocation that failed since has not."""
    early = Event(id="q-1-asked", author="a", seq=2, actions=EventActions(replay=Replay(early=True, was_paused=True)))
    message = Event(id="m", author="user", seq=1, message="go")
    mark = goes_on_event(Event(id="m2", author="user", seq=3), "failed")
    assert Record([message, early], (), was_paused=False).was_paused
    assert not Record([message, early, mark], (), was_paused=False).was_paused
    assert Record([message, early, mark], (), was_paused=True).was_paused


@pytest.mark.parametrize("with_tool", [False, True])
async def test_each_going_on_gives_a_model_one_more_answer_of_a_form(
    service: BaseSessionService, with_tool: bool
) -> None:
    """It is told of the last problem, and may answer once more, if it has had its `output_retries`."""
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(request.contents[-1].text)
        value = {"number": 1} if len(asked) == 4 else {"number": "one"}
        return call("set_model_response", **value) if with_tool else str(value).replace("'", '"')

    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}

    def other() -> str:
        """Something else."""
        return "other"

    tools = [FunctionTool(other, run_in="loop")] if with_tool else []
    model = ScriptedLlm(answer)
    agent = LlmAgent(name="a", model=model, output_schema=schema, output_retries=1, tools=tools)
    runner = runner_of(agent, service)
    run = await fails(runner, OutputSchemaError, new_message="go")
    assert len(asked) == 2
    await fails(runner, OutputSchemaError, invocation_id=run.invocation_id)
    again, _ = await gone_on(runner, run)
    assert (again.status, again.output, len(asked)) == ("completed", {"number": 1}, 4)


# --- whatever fails ---------------------------------------------------------------------------------------------------

Build: TypeAlias = Callable[[], BaseAgent]


class FailsOnce(BasePlugin):
    """Refuses the event that would be stored as the n-th in a run; the run fails, and that event is not stored."""

    def __init__(self, number: int) -> None:
        super().__init__("fails_once")
        self.left = number

    async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
        if event.partial or event.actions.replay.aside:
            return
        self.left -= 1
        if self.left == 0:
            raise Broken("once")


async def to_the_end(
    build: Build, service: BaseSessionService, invocation_id: str, plugins: Sequence[BasePlugin]
) -> None:
    """Go on with it, answer what it asks, and let its times come, each in a new process, until it is completed."""
    for _ in range(ANSWERS_MAX):
        status = await status_of(service, invocation_id)  # type: ignore[arg-type]
        if status == "completed":
            return
        runner = runner_of(build(), service, *plugins)
        waiting = await service.list_pending(include_timers=True)
        if status == "paused" and waiting[0].kind == "timer":
            await runner.resume_due(5e9)
            continue
        what = {"new_message": reply_to(waiting[0])} if status == "paused" else {"invocation_id": invocation_id}
        try:
            async with runner.run_async(**PLACE, **what) as run:
                await run.wait()
        except Broken:  # while it was replayed, which leaves it as it was, or later
            assert run.status in ("failed", "interrupted", "paused")
    raise AssertionError("it comes to no end")


async def failing_log(build: Build, number: int) -> tuple[list[Event], bool]:
    """The log of an invocation that fails at that event, and is gone on with; and whether there was such an event."""
    async with store() as service:
        plugin = FailsOnce(number)
        runner = runner_of(build(), service, plugin)
        try:
            async with runner.run_async(**PLACE, new_message="go") as run:
                await run.wait()
        except Broken:
            pass
        await to_the_end(build, service, run.invocation_id, [plugin])
        return await log_of(runner), plugin.left <= 0


def done(log: Sequence[Event]) -> dict[str, Any]:
    """What the runs of nodes have ended with, without what differs with the order in which they end."""
    return {re.sub(r"~[0-9a-f]{8}|\+\d+", "", path): found[:2] for path, found in outcomes(log).items()}


@pytest.mark.parametrize(("name", "every"), EVERY)
async def test_whatever_fails_comes_to_the_same(name: str, every: int) -> None:
    """Any event of a workflow may fail once: who goes on comes to the outcomes of nobody disturbed."""
    build = WORKFLOWS[name]
    undisturbed, _ = await failing_log(build, 10_000)
    number, has_failed = 1, True
    while has_failed:
        log, has_failed = await failing_log(build, number)
        assert done(log) == done(undisturbed), number
        assert open_calls(log) == set()
        number += every
    assert number > 3


@pytest.mark.parametrize(("name", "every"), EVERY)
async def test_every_prefix_of_a_failing_log_comes_to_the_same(name: str, every: int) -> None:
    """A process may die after any event: of what failed, of its end, and of who goes on after that."""
    build = WORKFLOWS[name]
    undisturbed, _ = await failing_log(build, 10_000)
    log, has_failed = await failing_log(build, len(undisturbed) // 2)
    assert has_failed
    retried = [(event.custom_metadata or {}).get("node_retry", {}).get("error") for event in log]
    assert "Broken" in [*(event.error_code for event in log), *retried]
    for count in range(1, len(log), every):
        async with store() as service:
            invocation_id = await cut(service, log[:count])
            await to_the_end(build, service, invocation_id, [])
            found = await log_of(runner_of(build(), service))
        assert done(found) == done(undisturbed), count
        assert open_calls(found) == set(), count


# --- trees of agents --------------------------------------------------------------------------------------------------


class Touches(BaseAgent):
    """Does something outside of steps, and says so."""

    world: World

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for number in range(2):
            self.world.touch()
            await ctx.emit(Event(message=f"{self.name} touched {number}"))


class Waits(BaseAgent):
    """Asks, does something, and waits for a time."""

    world: World

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        heard = await ctx.request_input(f"{self.name}?")
        await ctx.step("heard", self.world.effect, f"{self.name} {heard}")
        await ctx.sleep_until(4e9)
        self.world.touch()
        await ctx.emit(Event(message=f"{self.name} waited"))


def notes(name: str, world: World) -> LlmAgent:
    """An agent with a tool, whose model may fail."""

    async def note(what: str) -> str:
        """Note."""
        world.effects.append(f"tool {what}")
        return what

    answers = (call("note", what=f"{name} a"), call("note", what=f"{name} b"), f"{name} noted")

    def answer(request: Any) -> Any:
        world.touch()
        return answers[min(2, sum(content.role == "model" for content in request.contents))]

    return LlmAgent(name=name, model=ScriptedLlm(answer), tools=[note], include_contents="none")


LEAVES: dict[str, Callable[[str, World], BaseAgent]] = {
    "says": lambda name, world: LlmAgent(name=name, model=world.says(f"{name} said")),
    "steps": lambda name, world: Steps(name=name, world=world),
    "touches": lambda name, world: Touches(name=name, world=world),
    "waits": lambda name, world: Waits(name=name, world=world),
    "notes": notes,
}
NODES = ("sequence", "parallel", "collect", "loop", "transfer", "workflow")

Tree: TypeAlias = Any
"""The name of a leaf, or that of a node with its children."""


def trees() -> st.SearchStrategy[Tree]:
    """Trees of agents, small ones."""
    return st.recursive(
        st.sampled_from(sorted(LEAVES)),
        lambda inner: st.tuples(st.sampled_from(NODES), st.lists(inner, min_size=1, max_size=3)),
        max_leaves=4,
    )


def agent_of(tree: Tree, world: World, name: str = "a") -> BaseAgent:
    """The agents of a tree; each is named after its place."""
    if isinstance(tree, str):
        return LEAVES[tree](name, world)
    kind, children = tree
    agents = [agent_of(child, world, f"{name}{number}") for number, child in enumerate(children)]
    if kind == "transfer":
        model = ScriptedLlm(lambda request: call("transfer_to_agent", agent_name=agents[0].name))
        return LlmAgent(name=name, model=model, sub_agents=agents[:1])
    if kind in ("parallel", "collect"):
        how = "collect" if kind == "collect" else "cancel_others"
        return ParallelAgent(name=name, sub_agents=agents, on_failure=how)
    if kind == "loop":
        return LoopAgent(name=name, sub_agents=agents, max_iterations=2)
    if kind == "workflow":
        joined = (JoinNode(name=f"{name}_all"),) if agents[1:] else ()
        return Workflow(name=name, edges=[(START, tuple(agents), *joined)])
    return SequentialAgent(name=name, sub_agents=agents)


def said(log: Sequence[Event]) -> Counter[tuple[str | None, str]]:
    """What agents have said, in no order."""
    return Counter((event.author, event.text) for event in log if event.author != "user" and event.text)


async def log_of_tree(tree: Tree, world: World) -> list[Event]:
    """The log of an invocation that is gone on with whenever it fails."""
    async with store() as service:
        runner = runner_of(agent_of(tree, world), service)
        try:
            async with runner.run_async(**PLACE, new_message="go") as run:
                await run.wait()
        except Broken:
            assert run.status == "failed"
        await to_the_end(lambda: agent_of(tree, world), service, run.invocation_id, [])
        return await log_of(runner)


@given(trees(), st.data())
@settings(max_examples=examples(60))
def test_random_trees_that_fail_come_to_the_same(tree: Tree, data: st.DataObject) -> None:
    """Wherever something fails, once or twice: what is said is what nobody disturbed says, each step done once."""
    undisturbed = World()
    log = trio.run(log_of_tree, tree, undisturbed)
    moments = st.integers(1, max(1, undisturbed.touched + 1))
    world = World(*data.draw(st.lists(moments, min_size=1, max_size=2)))
    found = trio.run(log_of_tree, tree, world)
    assert said(found) == said(log)
    assert open_calls(found) == set()
    of_steps = [effect for effect in world.effects if not effect.startswith("tool")]
    assert Counter(of_steps) == Counter(effect for effect in undisturbed.effects if not effect.startswith("tool"))
    assert not Counter(world.effects) - Counter(undisturbed.effects), "no call of a tool is made twice"
