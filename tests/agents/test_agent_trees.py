"""
Trees of agents under every schedule: what a simulation draws, what hypothesis draws, and the small ones exhausted.

The worlds are in trees.py. What they have found in minirun stands at the end, each as the shortest program that
shows it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import (
    AgentTool,
    App,
    Content,
    Event,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Part,
    RunConfig,
    Runner,
    ToolContext,
)
from minirun.errors import StorageRolledBackError, ToolCallsLimitExceededError
from minirun.events import EventActions
from minirun.flows._transcript import Transcript
from minirun.models import LlmRequest
from minirun.models._check import RequestChecker
from minirun.plugins import BasePlugin
from minirun.sessions import OpenCall, SessionKey, SessionWriter
from minirun.sessions._recovery import by_event, closing_event
from minirun.simulation import Choices, SeededChoices, World
from minirun.testing import ScriptedLlm, call
from minirun.types import FunctionCall

from ..examples import examples
from ..exhausting import all_outcomes, outcomes_until
from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events
from ..laws import check_calls, read_logs
from ..simulation.stores import Scenario, Storage, simulate, why_unavailable
from ..simulation.stores.strategy import worlds
from ..trees import DEEDS, HookError, Plan, grow, trees

# --- what simulations draw --------------------------------------------------------------------------------------------

REACHED = (
    "a transfer",
    "an agent ran as a tool",
    "an agent ran as a tool of a tool",
    "an escalation",
    "a conflict",
    "an attempt failed",
    "a tool ran out of time",
    "a tool ended the invocation",
    *(f"a hook {deed}" for deed in DEEDS[1:]),
    "a hook was cut off",
    "the run failed: HookError",
    "the run failed: LlmCallsLimitExceededError",
    "the run failed: ToolCallsLimitExceededError",
)
REACHED_IN_TROUBLE = (
    "crash",
    "crash in recovery",
    "cancelled inside of an agent tool",
    "a transfer was cut by a crash",
    "model: wrong form",
    "model: wrong transfer",
    "user left",
)

Swarm = tuple[int, Storage, tuple[str, ...], int, tuple[str, ...]]
SWARMS: dict[str, Swarm] = {
    "calm": (20, "memory", (), 1, ()),
    "in trouble": (15, "memory", ("crash", "model", "tools", "users"), 1, ("crash", "user left")),
    "on disk": (5, "sqlite", ("crash", "storage", "users"), 2, ("crash", "disk fault")),
    "calm, many": (4_000, "memory", (), 1, REACHED),
    "in trouble, many": (4_000, "memory", ("crash", "model", "tools", "users"), 1, (*REACHED, *REACHED_IN_TROUBLE)),
    "on disk, many": (1_000, "sqlite", ("crash", "storage", "model", "tools", "users"), 2, REACHED_IN_TROUBLE),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if "many" in name else []) for name in SWARMS]
)
def test_trees_of_agents_keep_their_laws(name: str) -> None:
    """No seed breaks a promise or a law of the trees, and together they reach what they are for."""
    seeds, storage, faults, processes, reached = SWARMS[name]
    if storage == "sqlite" and why_unavailable() is not None:
        pytest.skip(str(why_unavailable()))
    coverage: Counter[str] = Counter()
    for seed in range(seeds):
        outcome = simulate(trees, SeededChoices(seed), storage=storage, faults=faults, processes=processes)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        coverage += outcome.coverage
    assert [what for what in reached if not coverage[what]] == []


# --- what hypothesis draws --------------------------------------------------------------------------------------------


def grown(choices: Choices, faults: tuple[str, ...]) -> tuple[Plan, list[list[Event]]]:
    """The plan of a world, and the logs of its sessions at the end; what it fails with is raised."""
    found: list[Any] = []

    async def scenario(world: World) -> None:
        forest, runner = await grow(world)
        found.extend((forest.plan, list((await read_logs(world, runner)).values())))

    simulate(scenario, choices, storage="memory", faults=faults).check()
    return found[0], found[1]


@settings(max_examples=examples(25), deadline=None)
@given(choices=worlds(), calm=st.booleans())
def test_every_prefix_of_a_log_can_be_asked_about(choices: Choices, calm: bool) -> None:
    """
    Whatever the tree and what happens in it, all promises hold; and after every event of the log, were it the last one
    before a crash, every agent could be asked in every branch: the strictest provider takes what it is shown.
    """
    plan, logs = grown(choices, () if calm else ("crash", "model", "tools", "users"))
    names = [each.name for each in plan.all()]
    for log in logs:
        branches = dict.fromkeys(event.branch for event in log)
        for length in range(2, len(log) + 1):
            history = recovered(log[:length])
            for name in names:
                for branch in branches:
                    check_shown_to(name, branch, history)


def recovered(log: list[Event]) -> list[Event]:
    """A log as the next run finds it: the calls that are open are answered, those inside of others first."""
    calls: dict[str | None, OpenCall] = {}
    for event in log:
        for made in event.get_function_calls():
            place = (made.id or "", made.name, event.seq or 0, event.invocation_id or "", event.author or "")
            calls[made.id] = OpenCall(*place, event.branch)
        for response in event.get_function_responses():
            calls.pop(response.id, None)
    closing = [closing_event(group, "outcome_unknown", "?") for group in by_event(calls.values())]
    return [*log, *(attrs.evolve(event, seq=len(log) + place) for place, event in enumerate(closing))]


def check_shown_to(name: str, branch: str | None, history: list[Event]) -> None:
    """Render a history for an agent in a branch, and have it checked."""
    opening = Content(role="user", parts=[Part(text="go")]) if branch and "@" in branch else None
    transcript = Transcript(name, 1, branch, opening=opening)
    transcript.read(history[1:])
    if len(transcript.contents()):
        problem = RequestChecker().check(LlmRequest(contents=transcript.contents()))
        assert problem is None, f"{name} in {branch} after {len(history)} events: {problem}"


# --- small ones, exhausted --------------------------------------------------------------------------------------------


async def transfer_and_crash(world: World) -> None:
    """Two agents, of which the first hands over to the second, in a process that dies at any step."""

    def agent() -> LlmAgent:
        second = LlmAgent(name="second", model=ScriptedLlm(lambda request: "done"))
        first = ScriptedLlm(lambda request: call("transfer_to_agent", agent_name="second"))
        return LlmAgent(name="first", model=first, sub_agents=[second])

    runner = world.runner(agent)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.say, runner, "ada", "go")
        await world.schedule.point("dying")
        await world.restart()
    await tell(world, runner)


async def parallel_and_failure(world: World) -> None:
    """Two agents side by side, of which one fails at any step."""

    async def speak(ctx: InvocationContext) -> None:
        ctx.state["k"] = ctx.agent_name
        await ctx.emit(Event(message="one"))
        await ctx.emit(Event(message="two"))

    async def fail(ctx: InvocationContext) -> None:
        ctx.state["k"] = ctx.agent_name
        await world.schedule.point("failing")
        raise HookError("broken")

    def agent() -> ParallelAgent:
        return ParallelAgent(name="all", sub_agents=[Logic(name="a", logic=speak), Logic(name="b", logic=fail)])

    runner = world.runner(agent)
    with pytest.raises(HookError):
        await world.say(runner, "ada", "go")
    await tell(world, runner)


async def agent_tool_and_cancellation(world: World) -> None:
    """An agent asks another one as a tool, and its user leaves at any step; then the user asks again."""

    def lead(request: LlmRequest) -> Any:
        return call("helper", request="go") if request.contents[-1].parts[-1].function_response is None else "done"

    def agent() -> LlmAgent:
        helper = LlmAgent(name="helper", model=ScriptedLlm(lambda request: "helped"))
        return LlmAgent(name="leader", model=ScriptedLlm(lead), tools=[AgentTool(helper)])

    runner = world.runner(agent)

    async def ask(scope: trio.CancelScope) -> None:
        with scope:
            await world.say(runner, "ada", "x")

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(ask, scope)
        await world.schedule.point("leaving")
        scope.cancel()
    await world.say(runner, "ada", "y")
    await tell(world, runner)


async def tell(world: World, runner: Runner) -> None:
    """Note who has said what."""
    log = await runner.session_service.read_events(app_name="app", user_id="ada", session_id="ada")
    check_calls(world, log)
    said = [f"{event.author}{'!' if event.error_code else ''}" for event in log if event.text or event.error_code]
    answers = [
        "error" if "error" in one.response else "result" for event in log for one in event.get_function_responses()
    ]
    world.note("told", " ".join([*said, *answers]))


Small = tuple[Scenario, set[str]]
SMALL: dict[str, Small] = {
    "a transfer and a crash": (
        transfer_and_crash,
        {"user second result", "user user second result", "user user second error result"},
    ),
    "two in parallel and a failure": (parallel_and_failure, {"user b!", "user a b!", "user a a b!"}),
    "an agent tool, cancelled anywhere": (
        agent_tool_and_cancellation,
        {
            "user helper leader result",
            "user user helper leader result",
            "user user helper leader error result",
            "user helper user helper leader result result",
            "user helper leader user helper leader result result",
        },
    ),
}


# The first has twenty times the schedules of the others.
ALL_OF = [name if number else pytest.param(name, marks=pytest.mark.slow) for number, name in enumerate(SMALL)]


def test_what_can_come_of_a_transfer_and_a_crash_does() -> None:
    """In some schedules: nothing else comes of any of them."""
    scenario, possible = SMALL["a transfer and a crash"]
    assert set(outcomes_until(possible, scenario, "memory", told_by="told", only="step ")) == possible


@pytest.mark.parametrize("name", ALL_OF)
def test_a_small_tree_is_exhausted(name: str) -> None:
    """Every schedule there is: none fails, and what can come of them all does."""
    scenario, possible = SMALL[name]
    found = all_outcomes(scenario, "memory", told_by="told", only="step ")
    print(f"{name}: {found.total()} schedules: {dict(found)}")
    assert set(found) == possible


# --- what was found ---------------------------------------------------------------------------------------------------


def form_agent(script: list[Any], **hooks: Any) -> LlmAgent:
    """An agent that has to answer by tool, for it has another one."""

    def look() -> str:
        """Look."""
        return "seen"

    return LlmAgent(name="root", model=ScriptedLlm(script), tools=[look], output_schema={"type": "integer"}, **hooks)


async def test_a_hook_that_answers_set_model_response_is_checked() -> None:
    """What a hook puts in the place of an answer counts if it has the form; else the model is asked again."""
    answers: list[Any] = [{"result": 5}]
    agent = form_agent([call("set_model_response", result=1)], before_tool_callback=lambda **_: answers.pop())
    events, _ = await run_to_end(runner_for(agent))
    assert events[-1].output == 5

    answers = [None, {"instead": True}]
    script = [call("set_model_response", result=1), call("set_model_response", result=2)]
    agent = form_agent(script, before_tool_callback=lambda **_: answers.pop())
    events, _ = await run_to_end(runner_for(agent))
    assert events[-1].output == 2


class Fussy(BasePlugin):
    """Refuses an event that says something."""

    def __init__(self, text: str) -> None:
        super().__init__("fussy")
        self._text = text

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        if event.text == self._text:
            raise HookError(self._text)
        return None


@pytest.mark.parametrize("where", ["a tool", "an agent tool"])
async def test_a_hook_that_fails_inside_of_a_tool_fails_the_run(where: str) -> None:
    """It is nothing that a model is told, nor a hook for the errors of tools."""

    async def tell(tool_context: ToolContext) -> str:
        """Tell."""
        await tool_context.emit(Event(message="words"))
        return "told"

    told: list[Exception] = []
    tool: Any = tell if where == "a tool" else AgentTool(LlmAgent(name="tell", model=ScriptedLlm(["words"])))
    args = {} if where == "a tool" else {"request": "go"}
    agent = LlmAgent(
        name="root",
        model=ScriptedLlm([call("tell", **args), "unreachable"]),
        tools=[tool],
        on_tool_error_callback=lambda tool, args, tool_context, error: told.append(error),
    )
    runner = InMemoryRunner(app=App("app", agent, [Fussy("words")]), auto_create_session=True)
    with pytest.raises(HookError, match="words"):
        await run_to_end(runner)
    assert told == []
    assert [event.error_code for event in await stored_events(runner) if event.error_code] == ["HookError"]


async def test_what_is_open_inside_of_a_call_is_answered_before_the_call() -> None:
    """A limit is hit by the calls of an agent that is a tool: they are answered, then its own call is."""

    def look() -> str:
        """Look."""
        return "seen"

    below = LlmAgent(name="below", model=ScriptedLlm([[call("look"), call("look")]]), tools=[look])
    agent = LlmAgent(name="root", model=ScriptedLlm([call("below", request="go")]), tools=[AgentTool(below)])
    runner = runner_for(agent)
    with pytest.raises(ToolCallsLimitExceededError):
        await run_to_end(runner, run_config=RunConfig(max_tool_calls=2))
    answered = [[one.name for one in event.get_function_responses()] for event in await stored_events(runner)]
    assert [names for names in answered if names] == [["look", "look"], ["below"]]


async def test_a_result_that_could_not_be_stored_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store refuses the results twice, then goes on: a call that took effect is not told to be cancelled."""

    def charge() -> str:
        """Charge."""
        return "charged"

    append = SessionWriter.append

    async def refuse(self: SessionWriter, event: Event, *, begins: bool = False) -> Event:
        if any("result" in one.response for one in event.get_function_responses()):
            raise StorageRolledBackError("the disk is full")
        return await append(self, event, begins=begins)

    monkeypatch.setattr(SessionWriter, "append", refuse)
    runner = runner_for(LlmAgent(name="root", model=ScriptedLlm([call("charge"), "done"]), tools=[charge]))
    with pytest.raises(StorageRolledBackError):
        await run_to_end(runner)
    [answer] = [one.response for event in await stored_events(runner) for one in event.get_function_responses()]
    assert answer["error"]["type"] == "outcome_unknown"


async def test_recovery_answers_what_is_inside_of_a_call_first() -> None:
    """A run that has died inside of an agent tool leaves two calls; the inner one is answered before the outer one."""

    async def nothing(ctx: InvocationContext) -> None:
        pass

    runner = runner_for(nothing)
    service = runner.session_service
    await service.create_session(app_name="app", **PLACE)
    writer = await service.open_writer(SessionKey("app", **PLACE), "e-1", None, reject=False)
    assert writer is not None
    await writer.append(Event(id="1", invocation_id="e-1", author="user", message="go"), begins=True)
    for call_id, branch in (("outer", None), ("inner", "below@outer")):
        content = Content(role="model", parts=[Part(function_call=FunctionCall(id=call_id, name=call_id))])
        await writer.append(Event(id=call_id, invocation_id="e-1", author="root", branch=branch, content=content))
    await writer.finish(None)
    await run_to_end(runner)
    answered = [one.name for event in await stored_events(runner) for one in event.get_function_responses()]
    assert answered == ["inner", "outer"]


async def test_a_conflict_is_named_by_what_is_stored() -> None:
    """Of two branches that write a key, the one whose event was withdrawn and stored at its end names the conflict."""

    begun: list[str] = []

    async def put(tool_context: ToolContext) -> str:
        """Put, once both have been called."""
        begun.append(tool_context.agent_name)
        while len(begun) < 2:
            await trio.lowlevel.checkpoint()
        tool_context.state["k"] = 1
        return "put"

    is_seen, has_failed = trio.Event(), trio.Event()

    async def fail(ctx: InvocationContext) -> None:
        await is_seen.wait()
        await trio.testing.wait_all_tasks_blocked()
        has_failed.set()
        raise ValueError("enough")

    def writer(name: str) -> LlmAgent:
        return LlmAgent(name=name, model=ScriptedLlm([call("put"), "done"]), tools=[put])

    agent = ParallelAgent(name="all", sub_agents=[writer("a"), writer("b"), Logic(name="c", logic=fail)])
    runner = runner_for(agent)
    with pytest.raises(ValueError, match="enough"):
        async with runner.run_async(**PLACE, new_message="go") as run:
            async for event in run:
                if event.get_function_responses():
                    is_seen.set()
                    await has_failed.wait()
                    await trio.testing.wait_all_tasks_blocked()
    written = [event for event in await stored_events(runner) if "k" in event.actions.state_delta]
    assert [list(event.actions.state_conflicts) for event in written] == [[], ["k"]]


async def test_an_escalation_does_not_hide_what_a_parallel_agent_has_collected() -> None:
    """One branch has failed, another is cancelled from outside: the failure is raised."""
    is_failed = trio.Event()

    async def fail(ctx: InvocationContext) -> None:
        is_failed.set()
        raise ValueError("the failure")

    async def wait(ctx: InvocationContext) -> None:
        await trio.sleep_forever()

    async def escalate(ctx: InvocationContext) -> None:
        await is_failed.wait()
        await ctx.emit(Event(message="enough", actions=EventActions(escalate=True)))

    inner = ParallelAgent(
        name="inner", on_failure="collect", sub_agents=[Logic(name="one", logic=fail), Logic(name="two", logic=wait)]
    )
    outer = ParallelAgent(name="outer", sub_agents=[inner, Logic(name="three", logic=escalate)])
    with pytest.raises(ValueError, match="the failure"):
        await run_to_end(runner_for(outer))
