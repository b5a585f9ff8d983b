"""A world: what goes wrong in it, what it checks, and what its users see of all that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

import pytest
import trio
import trio.lowlevel

from minirun import AgentTool, App, BaseAgent, Event, InMemoryRunner, InvocationContext, LlmAgent, RunConfig
from minirun.errors import (
    ConfigurationError,
    DeadlineExceededError,
    LlmCallsLimitExceededError,
    ModelContractError,
    ModelError,
)
from minirun.models import LLMRegistry
from minirun.plugins import BasePlugin
from minirun.sessions import InvocationStatus
from minirun.simulation import ChaosLlm, CheckError, LivelockError, SeededChoices, World, _schedule
from minirun.simulation._faults import FAULTS
from minirun.testing import ScriptedLlm, call
from minirun.types import FunctionCall, Part

from ..helpers import Logic
from .stores import Scenario, Storage, simulate, why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))


async def look_up(name: str, tool_context: Any) -> str:
    """A tool that counts."""
    tool_context.state.add("app:looked", 1)
    return name.upper()


def scripted(request: Any) -> Any:
    waiting = request.contents[-1].parts[-1].function_response is None
    return [call("look_up", name="a"), call("look_up", name="b")] if waiting else "done"


async def busy(world: World) -> None:
    """Three users, two of them on one session, with a model that calls tools."""
    runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(scripted), tools=[look_up]))

    async def talk(user: str, session: str) -> None:
        try:
            await world.say(runner, user, "hello", session_id=session)
        except (ModelContractError, ModelError):
            world.reached("told of the model's failure")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk, "ada", "one")
        nursery.start_soon(talk, "ada", "one")
        nursery.start_soon(talk, "bob", "two")


def coverage_of(
    seeds: int, wanted: Collection[str] = (), least: int = 0, begin: int = 0, **options: Any
) -> Counter[str]:
    """
    What *busy* has reached; it must not fail. Having reached all that is *wanted*, the *least* seeds are enough.

    If fewer than all are enough, they are those from *begin* on.
    """
    found: Counter[str] = Counter()
    begin = 0 if least == seeds else begin
    for seed in range(begin, begin + seeds):
        if wanted and seed >= begin + least and set(wanted) <= set(found):
            break
        outcome = simulate(busy, SeededChoices(seed), **options)
        assert outcome.failure is None, f"seed {seed} {options}: {outcome.failure!r}"
        found += outcome.coverage
    return found


REACHED = {
    "crash": {"crash", "crash in recovery", "power cut", "asked again after a crash"}
    | {"answer found when asking again", "clock set back", "clock set forward"},
    "storage": {
        "disk fault",
        "disk full",
        "disk full at a sync",
        "slow disk",
        "locked by another program",
        "asked again after StorageUncertainError",
        "asked again after StorageRolledBackError",
    },
    "model": {"model: raises", "model: stalls", "told of the model's failure"},
    "tools": {"tool: raises", "tool: slow", "tool: hangs", "tool: cancelled", "tool: raises after its work"},
    "users": {"user left", "double send", "cancel during commit"},
}
ALWAYS = {"group commit"}
OF_SEVERAL = {"stored and not told", "lease taken over", "conflict", "stall"}


# Where a few seeds reach all of it; once they do not any more, it only takes longer.
BEGIN = {"crash": 33, "storage": 4, "model": 0, "tools": 55, "users": 24}


LEAST = pytest.mark.parametrize(
    "least", [pytest.param(6, id="some"), pytest.param(150, id="many", marks=pytest.mark.slow)]
)


@LEAST
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_happens_where_it_is_asked_for_and_nowhere_else(fault: str, least: int) -> None:
    """Each name brings the troubles it stands for, all of them in a few seeds, and none of the others'."""
    found = coverage_of(150, REACHED[fault], least, BEGIN[fault], faults=fault)
    assert REACHED[fault] <= set(found), REACHED[fault] - set(found)
    others = set().union(*(REACHED[other] for other in FAULTS if other != fault)) - REACHED[fault]
    shared = {
        "answer found when asking again",
        "user left",
        "cancel during commit",
        "asked again after StorageUncertainError",
        "stored and not told",
    }
    assert not (others - shared) & set(found)


@pytest.mark.parametrize("seeds", [pytest.param(8, id="some"), pytest.param(40, id="more", marks=pytest.mark.slow)])
def test_nothing_goes_wrong_unasked(seeds: int) -> None:
    """A plain simulation varies the order of things, delays and ids; no fault needs handling."""
    assert set(coverage_of(seeds)) <= ALWAYS


@LEAST
def test_several_processes_share_a_file(least: int) -> None:
    """Leases are taken over, runs meet conflicts and stand still, and every promise is kept."""
    wanted = OF_SEVERAL | ALWAYS | set().union(*REACHED.values())
    found = coverage_of(150, wanted, least, faults="all", processes=2)
    assert wanted <= set(found), wanted - set(found)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"faults": "fire"}, "crash, storage, model, tools, users"),
        ({"faults": ["crash", "fire"]}, "crash, storage, model, tools, users"),
        ({"processes": 0}, "1 to 8 processes"),
        ({"processes": True}, "1 to 8 processes"),
    ],
)
def test_settings_that_are_none_are_refused(options: dict[str, Any], problem: str) -> None:
    """Before anything runs, with what was expected."""
    with pytest.raises(ConfigurationError, match=problem):
        simulate(busy, SeededChoices(1), **options)


AGENT = LlmAgent(name="agent", model=ScriptedLlm([call("look_up", name="a"), "done"]), tools=[look_up])


def test_scripts_begin_anew_for_every_process() -> None:
    """An agent that is given as an object has its whole script in each seed, and after each restart."""

    async def scenario(world: World) -> None:
        runner = world.runner(AGENT)
        for _ in range(2):
            answer = await world.say(runner, "ada", "hello")
            assert answer is not None
            assert answer.text == "done"
            await world.restart()

    for seed in range(3):
        outcome = simulate(scenario, SeededChoices(seed), storage="memory")
        assert outcome.failure is None, outcome.failure


# --- what users see ---------------------------------------------------------------------------------------------------


class Slow(BaseAgent):
    """Takes its time, and says how often it has run."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        ctx.state.add("app:runs", 1)
        await ctx.emit(Event(message="working"))
        await trio.sleep(10)
        await ctx.emit(Event(message="done"))


def test_a_user_whose_answer_was_stored_does_not_ask_again() -> None:
    """After a crash that came too late to matter, the answer is read from the log; the agent runs once."""
    runs: Counter[int] = Counter()

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: Slow(name="slow"))
        answer = await world.say(runner, "ada", "go")
        assert answer is not None
        assert answer.text == "done"
        count = world.state(runner)["app:runs"]
        assert count == 1 or world.coverage["asked again after a crash"] > 0
        if world.coverage["answer found when asking again"] and not world.coverage["asked again after a crash"] > 1:
            assert count == 1
        runs[count] += 1

    for seed in range(150):
        if seed >= 30 and runs[1] and len(runs) > 1:
            break
        outcome = simulate(scenario, SeededChoices(seed), storage="memory", faults="crash")
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
    assert runs[1] > 0
    assert len(runs) > 1


def test_time_passes_without_anybody_waiting() -> None:
    """Virtual time is what the processes see, too; a restart takes none of it, and a day is over at once."""

    async def scenario(world: World) -> None:
        before = world.now
        await world.restart()
        await world.sleep(86_400)
        assert world.now == before + 86_400

    assert simulate(scenario, SeededChoices(1), storage="memory").failure is None


def test_what_must_come_true_in_the_end_has_time_for_it() -> None:
    """`eventually` waits for an hour of virtual time, whether the check returns False or asserts."""

    async def scenario(world: World, patience_s: float) -> None:
        until = world.now + patience_s
        world.eventually(lambda: world.now >= until)

        def asserts() -> None:
            assert world.now >= until, "not yet"

        world.eventually(asserts)

    async def short(world: World) -> None:
        await scenario(world, 1800)

    async def long(world: World) -> None:
        await scenario(world, 86_400)

    assert simulate(short, SeededChoices(1), storage="memory").failure is None
    assert isinstance(simulate(long, SeededChoices(1), storage="memory").failure, CheckError)


def test_budgets_and_deadlines_are_those_of_the_run_config() -> None:
    """A run that says so gets them: a model that never stops meets its limit, a hanging one the deadline."""

    def never_stops(request: Any) -> Any:
        return call("look_up", name="again")

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(never_stops), tools=[look_up]))
        with pytest.raises((LlmCallsLimitExceededError, DeadlineExceededError)) as caught:
            await world.say(runner, "ada", "go", run_config=RunConfig(max_llm_calls=3, deadline_s=60))
        world.reached(type(caught.value).__name__)

    found: Counter[str] = Counter()
    wanted = {"LlmCallsLimitExceededError", "DeadlineExceededError"}
    for seed in range(150):
        if seed >= 10 and wanted <= set(found):
            break
        outcome = simulate(scenario, SeededChoices(seed), storage="memory", faults="tools")
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        found += outcome.coverage
    assert wanted <= set(found)


def test_state_is_what_is_committed() -> None:
    """Of the app, of a user, of a session; initial state is there before anything runs, and outlives crashes."""

    class Writer(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            ctx.state["app:a"], ctx.state["user:u"], ctx.state["s"] = 1, 2, 3
            await ctx.emit(Event(message="written"))

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: Writer(name="writer"), state={"app:b": 0})
        assert world.state(runner) == {"app:b": 0}
        await world.say(runner, "ada", "go", session_id="x")
        await world.restart()
        assert world.state(runner) == {"app:a": 1, "app:b": 0}
        assert world.state(runner, user_id="ada") == {"app:a": 1, "app:b": 0, "user:u": 2}
        assert world.state(runner, user_id="ada", session_id="x") == {"app:a": 1, "app:b": 0, "user:u": 2, "s": 3}
        assert world.state(runner, user_id="bob", session_id="x") == {"app:a": 1, "app:b": 0}
        [invocation] = await runner.session_service.list_invocations()
        assert invocation.status is InvocationStatus.COMPLETED

    for storage in ("memory", "sqlite"):
        assert simulate(scenario, SeededChoices(1), storage=storage).failure is None


@pytest.mark.parametrize("least", [pytest.param(12, id="some"), pytest.param(80, id="more", marks=pytest.mark.slow)])
def test_a_model_without_a_script_needs_no_more(least: int) -> None:
    """ChaosLlm in every world there is: nothing it does breaks a promise, and what it may say comes up."""
    found: Counter[str] = Counter()

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: LlmAgent(name="agent", model=ChaosLlm(), tools=[look_up]))
        for _ in range(2):
            try:
                await world.say(runner, "ada", "hello")
            except (ModelContractError, ModelError, DeadlineExceededError):
                world.reached("told of a failure")

    storages: Sequence[dict[str, Any]] = ({"storage": "memory"}, {"storage": "sqlite", "processes": 2})
    wanted = {"model: unknown tool", "model: same ids", "model: cut stream"}
    for seed in range(80):
        if seed >= least and wanted <= set(found):
            break
        outcome = simulate(scenario, SeededChoices(seed), faults="all", **storages[seed % 2])
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        found += outcome.coverage
    assert wanted <= set(found)


class Counted(BasePlugin):
    """Counts the runs that it has seen."""

    def __init__(self) -> None:
        super().__init__("counted")
        self.runs = 0

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self.runs += 1


def test_a_new_process_has_models_and_plugins_of_its_own() -> None:
    """Scripts begin anew, also of models that are registered by name or lead an agent that is a tool; so do plugins."""
    pattern = "a model for a test of worlds"
    made: list[Counted] = []

    def app() -> App:
        helper = LlmAgent(name="helper", model=pattern)
        agent = LlmAgent(
            name="agent", model=ScriptedLlm([call("helper", request="go"), "done"]), tools=[AgentTool(helper)]
        )
        made.append(Counted())
        return App("app", agent, [made[-1]])

    async def scenario(world: World) -> None:
        for what in (app, app()):
            runner = world.runner(what, app_name="app")
            for _ in range(2):
                await world.say(runner, "ada", "hello")
                await world.restart()

    LLMRegistry.register(pattern, lambda name: ScriptedLlm(["helped"], name=name))
    try:
        for _ in range(2):
            made.clear()
            assert simulate(scenario, SeededChoices(1), storage="memory").failure is None
            runs = sorted(counted.runs for counted in made if counted.runs)
            assert runs == [1, 1, 2]  # two apps that a function has made, and the one that was given as an object
    finally:
        LLMRegistry.unregister(pattern)


# --- what a reviewer found --------------------------------------------------------------------------------------------


def failures_of(scenario: Scenario, seeds: int = 30, *, enough: int = 1000, **options: Any) -> list[BaseException]:
    """What so many seeds fail with, or the first of them until so many failures are *enough*."""
    outcomes = (simulate(scenario, SeededChoices(seed), **options) for seed in range(seeds))
    return [*islice((outcome.failure for outcome in outcomes if outcome.failure is not None), enough)]


@pytest.mark.parametrize(
    "gap",
    ["sleep(0)", "checkpoint", "lock", "channel", "nursery"],
)
def test_a_race_at_any_checkpoint_is_found(gap: str) -> None:
    """Check, then act: whatever the tool awaits in between, some seed lets another user in."""
    lock = trio.Lock()

    async def wait() -> None:
        if gap == "sleep(0)" or gap == "checkpoint":
            await trio.lowlevel.checkpoint()
        elif gap == "lock":
            async with lock:
                pass
        elif gap == "channel":
            send, receive = trio.open_memory_channel[int](1)
            await send.send(1)
            await receive.receive()
        else:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.lowlevel.checkpoint)

    async def scenario(world: World) -> None:
        left = [1]

        async def buy() -> str:
            """Buy the last one."""
            if not left[0]:
                return "sold out"
            await wait()
            left[0] -= 1
            return "bought"

        def answer(request: Any) -> Any:
            return "done" if request.contents[-1].parts[-1].function_response else call("buy")

        runner = world.runner(lambda: LlmAgent(name="shop", model=ScriptedLlm(answer), tools=[buy]))
        world.always(lambda: left[0] >= 0)
        async with trio.open_nursery() as nursery:
            for user in ("ada", "bob"):
                nursery.start_soon(world.say, runner, user, "buy")

    found = failures_of(scenario, 200, enough=3, storage="memory")
    assert found
    assert {type(failure) for failure in found} == {CheckError}


class Adder(BaseAgent):
    """Adds fractions and notes what was said."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        ctx.state.add("app:sum", 0.1 * len(ctx.user_id))
        ctx.state.extend("notes", ["a"])
        ctx.state.extend("app:notes", [ctx.user_id])
        await ctx.emit(Event(message="added"))


@pytest.mark.parametrize("seeds", [pytest.param(8, id="some"), pytest.param(40, id="more", marks=pytest.mark.slow)])
@pytest.mark.parametrize("storage", ["memory", "sqlite"])
def test_no_false_alarm_about_lists_and_fractions(storage: Storage, seeds: int) -> None:
    """Fractions are added in another order than they are checked; lists are lists."""

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: Adder(name="adder"), state={"app:sum": 0.7})
        async with trio.open_nursery() as nursery:
            for user in ("ada", "bo", "x", "anna", "ada"):
                nursery.start_soon(world.say, runner, user, "add")

    assert failures_of(scenario, seeds, storage=storage) == []


def test_who_goes_on_without_a_step_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling that never ends, in a scenario or in a tool, is a livelock, although it passes no point."""
    monkeypatch.setattr(_schedule, "TURNS_MAX", 3_000)

    async def polls(world: World) -> None:
        while True:  # noqa: ASYNC110 # this is what is to be found
            await trio.sleep(1)

    class Spins(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            while True:
                await trio.lowlevel.checkpoint()

    async def spins(world: World) -> None:
        await world.say(world.runner(lambda: Spins(name="spins")), "ada", "go")

    for scenario in (polls, spins):
        [failure] = failures_of(scenario, 1, storage="memory")
        assert isinstance(failure, LivelockError)
        assert "the tasks:" in str(failure)


def test_a_failure_of_pytest_is_one_wherever_it_is_raised() -> None:
    """`pytest.fail` in a check or an agent is a failure of the simulation, which can be shrunk and told."""

    def check() -> None:
        pytest.fail("from the check")

    async def checks(world: World) -> None:
        world.always(check)
        await world.sleep(1)

    class Fails(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            pytest.fail("from the agent")

    async def agents(world: World) -> None:
        await world.say(world.runner(lambda: Fails(name="fails")), "ada", "go")

    assert [str(failures_of(one, 1, storage="memory")[0]) for one in (checks, agents)] == [
        "from the check",
        "from the agent",
    ]


def test_checks_that_cannot_be_checked_are_refused() -> None:
    """An async check would never fail; what is false does, whatever its type."""

    async def never() -> bool:
        return False

    async def asynchronous(world: World) -> None:
        world.always(never)
        await world.sleep(1)

    async def falsy(world: World) -> None:
        world.always(lambda: 0)
        await world.sleep(1)

    assert isinstance(failures_of(asynchronous, 1, storage="memory")[0], ConfigurationError)
    [failure] = failures_of(falsy, 1, storage="memory")
    assert isinstance(failure, CheckError)
    where = f"test_simulation_world.py:{falsy.__code__.co_firstlineno + 1}"
    assert str(failure).endswith(f"falsy.<locals>.<lambda>, {where}) does not hold")


def test_what_a_world_is_asked_wrongly_it_refuses() -> None:
    """A session without its user, a runner of no world, state that is no app's; two runners may share an app."""

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: Slow(name="slow"), state={"app:a": 1})
        with pytest.raises(ConfigurationError, match="expected a user_id"):
            world.state(runner, session_id="x")
        with pytest.raises(ConfigurationError, match="expected a runner of this world"):
            world.state(InMemoryRunner(agent=Slow(name="slow")))
        with pytest.raises(ConfigurationError, match="expected `app:` keys"):
            world.runner(lambda: Slow(name="slow"), state={"x": 1})
        second = world.runner(lambda: Slow(name="slow"), state={"app:b": 2})
        assert world.state(second) == {"app:a": 1, "app:b": 2}
        assert (await runner.session_service.list_sessions(app_name=None)).sessions == []

    for storage in ("memory", "sqlite"):
        assert failures_of(scenario, 3, storage=storage) == []


def test_calls_are_answered_in_their_order_after_a_crash() -> None:
    """Recovery answers the calls of one event as they stand in it, whatever their ids."""

    async def hang() -> str:
        """A tool that does not come back."""
        await trio.sleep(50)
        return "back"

    def answer(request: Any) -> Any:
        if request.contents[-1].parts[-1].function_response:
            return "done"
        return [Part(function_call=FunctionCall(id=name, name="hang", args={})) for name in ("z", "a", "m")]

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(answer), tools=[hang]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.say, runner, "ada", "go")
            await world.sleep(10)
            await world.restart()
        log = await runner.session_service.read_events(app_name="app", user_id="ada", session_id="ada")
        answers = [[response.id for response in event.get_function_responses()] for event in log]
        assert ["z", "a", "m"] in answers

    for storage in ("memory", "sqlite"):
        assert failures_of(scenario, 3, storage=storage) == []


async def deleted_meanwhile(world: World) -> None:
    """Somebody deletes a session in one process while its user says things to others."""
    runner = world.runner(lambda: Adder(name="adder"))

    async def delete() -> None:
        for _ in range(3):
            await runner.session_service.delete_session(app_name="app", user_id="ada", session_id="ada")
            await world.schedule.point("deleted")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        for _ in range(3):
            nursery.start_soon(world.say, runner, "ada", "add")


@pytest.mark.parametrize("seeds", [pytest.param(15, id="some"), pytest.param(60, id="more", marks=pytest.mark.slow)])
def test_a_session_that_is_deleted_by_another_process_is_made_again(seeds: int) -> None:
    """Where sessions are made on first use, no message fails because somebody deletes its session."""
    assert failures_of(deleted_meanwhile, seeds, processes=2) == []


async def forked_while_it_waits(world: World) -> None:
    """A user is asked, somebody forks the session, and then the user answers."""

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=str(await ctx.request_input("which"))))

    runner = world.runner(lambda: Logic(name="asker", logic=ask))
    await world.say(runner, "ada", "go")
    service = runner.session_service
    await service.fork_session(app_name="app", user_id="ada", session_id="ada", new_session_id="fork")
    [question] = await service.list_pending(app_name="app", user_id="ada", session_id="ada")
    await world.say(runner, "ada", question.reply("this"))
    statuses = {one.session_id: str(one.status) for one in await service.list_invocations(app_name="app")}
    assert statuses == {"ada": "completed", "fork": "paused"}


@pytest.mark.parametrize("storage", ["memory", "sqlite"])
def test_what_waits_in_a_fork_is_not_what_has_ended_in_its_past(storage: Storage) -> None:
    """An invocation stands in both sessions under one id; it may end in one, and wait in the other."""
    assert failures_of(forked_while_it_waits, 2, storage=storage) == []
