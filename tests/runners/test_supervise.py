"""`Runner.supervise`: what was interrupted or is due goes on, a few at a time, whoever dies, fails or is cancelled."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Env,
    Event,
    FunctionTool,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SqliteSessionService,
)
from minirun.errors import ConfigurationError, InvalidValueError, ServiceClosedError, StorageError
from minirun.plugins import BasePlugin
from minirun.sessions import BaseSessionService, SessionKey
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool
from minirun.types import Content, ModelContent

from ..helpers import PLACE
from ..ledger import forker
from ..mortals import effects_beside
from ..resuming import steps
from ..sessions.test_session_properties import check_file

START = 1e9


class Watched(Env):
    """A world whose clock is trio's, and which has no threads, for which that would not wait."""

    def now(self) -> float:
        """What the wall clock would show."""
        return START + trio.current_time()

    async def run_sync(self, fn: Callable[[], Any], **options: Any) -> Any:
        """Run it here."""
        await trio.lowlevel.checkpoint()
        return fn()


@attrs.define
class Tally:
    """How many have been at work at once, and how often which has begun and ended its work."""

    now: int = 0
    most: int = 0
    begun: list[str] = attrs.Factory(list)
    ended: list[str] = attrs.Factory(list)


class Worker(BaseAgent):
    """Works for some time between two words; it fails in some sessions, and waits for a time before in others."""

    tally: Tally
    seconds: float = 1.0
    fails: str = "bad"

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        name, tally = ctx.session.id, self.tally
        await ctx.emit(Event(message="begun"))
        if name.startswith("timed"):
            await ctx.sleep_until(START + 60)

        async def work() -> str:
            tally.now += 1
            tally.most = max(tally.most, tally.now)
            tally.begun.append(name)
            try:
                await trio.sleep(self.seconds)
            finally:
                tally.now -= 1
            if name.startswith(self.fails):
                raise ValueError("poison")
            tally.ended.append(name)
            return name

        await ctx.step("work", work)
        await ctx.emit(Event(message="done"))


@pytest.fixture(params=["sqlite", "memory"])
async def service(request: pytest.FixtureRequest) -> AsyncIterator[BaseSessionService]:
    """A store in the watched world."""
    made: BaseSessionService = InMemorySessionService(env=Watched())
    if request.param == "sqlite":
        made = SqliteSessionService(":memory:", durability="process", env=Watched())
    async with made:
        yield made


def runner_of(service: BaseSessionService, tally: Tally, seconds: float = 1.0) -> Runner:
    """A runner as a new process would make it."""
    return Runner(agent=Worker(name="w", tally=tally, seconds=seconds), app_name="app", session_service=service)


async def interrupt(service: BaseSessionService, *sessions: str) -> None:
    """Let there be sessions whose process has died after the message."""
    for name in sessions:
        await service.create_session(app_name="app", user_id="u", session_id=name)
        writer = await service.open_writer(SessionKey("app", "u", name), f"e-{name}", None, reject=True)
        assert writer is not None
        message = Event(id=f"m-{name}", invocation_id=f"e-{name}", author="user", message="go")
        await writer.append(message, begins=True)
        await writer.finish(None)


async def statuses(service: BaseSessionService) -> dict[str, str]:
    """The status of each session's invocation."""
    return {one.session_id: str(one.status) for one in await service.list_invocations()}


async def texts(service: BaseSessionService, session: str) -> list[str]:
    """What is said in a session; nothing for a mark that somebody went on."""
    events = await service.read_events(app_name="app", user_id="u", session_id=session, after_seq=0)
    return [event.text for event in events if event.output is None]


async def test_what_was_interrupted_goes_on_a_few_at_a_time(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """Each comes to its end, once; never are more at work than allowed; the host goes on when it has looked."""
    tally, names = Tally(), [f"s{number}" for number in range(7)]
    await interrupt(service, *names)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(runner_of(service, tally).supervise, max_concurrent=3))
        assert autojump_clock.current_time() < 1, "nobody waits for those who have no place yet"
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert (sorted(tally.begun), sorted(tally.ended), tally.most) == (names, names, 3)
    assert await statuses(service) == dict.fromkeys(names, "completed")
    for name in names:
        assert await texts(service, name) == ["go", "", "begun", "done"]


async def test_what_is_due_goes_on_at_its_time(service: BaseSessionService, autojump_clock: MockClock) -> None:
    """A timer is waited for by nobody until it is due; then the next look finds it."""
    tally = Tally()
    await interrupt(service, "timed")
    async with trio.open_nursery() as nursery:
        await nursery.start(runner_of(service, tally).supervise)
        await trio.sleep(59)
        assert (await statuses(service), tally.begun) == ({"timed": "paused"}, [])
        await trio.sleep(4)
        assert (await statuses(service), tally.ended) == ({"timed": "completed"}, ["timed"])
        nursery.cancel_scope.cancel()
    assert [text for text in await texts(service, "timed") if text] == ["go", "begun", "done"]


async def test_one_that_fails_does_not_stop_the_others(service: BaseSessionService, autojump_clock: MockClock) -> None:
    """It is tried once, and its failure stands in its log; what is interrupted later is found, too."""
    tally = Tally()
    await interrupt(service, "bad", "good")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(runner_of(service, tally).supervise, max_concurrent=1))
        await trio.sleep(10)
        await interrupt(service, "later")
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert await statuses(service) == {"bad": "failed", "good": "completed", "later": "completed"}
    assert tally.begun == ["bad", "good", "later"]
    events = await service.read_events(app_name="app", user_id="u", session_id="bad")
    assert (events[-1].error_code, events[-1].error_message) == ("ValueError", "poison")


async def test_a_supervisor_that_is_cancelled_leaves_what_it_did_to_the_next(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """What was under way is interrupted, not cancelled; a later supervisor takes it to its end."""
    tally = Tally()
    await interrupt(service, "a", "b")
    with trio.move_on_after(5):
        await runner_of(service, tally, seconds=100).supervise()
    assert (tally.begun, tally.now) == (["a", "b"], 0) or (tally.begun, tally.now) == (["b", "a"], 0)
    assert await statuses(service) == {"a": "interrupted", "b": "interrupted"}
    with trio.move_on_after(5):
        await runner_of(service, tally).supervise()
    assert await statuses(service) == {"a": "completed", "b": "completed"}
    assert await texts(service, "a") == ["go", "", "begun", "", "done"]


@pytest.mark.parametrize("policy", ["rerun", "report"])
async def test_calls_that_a_cancelled_supervisor_leaves_are_left_open(
    policy: Any, service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """As by a killed process: one that has ended is answered, and what becomes of the other its tool says later."""
    begun: list[str] = []

    async def quick() -> str:
        """Take no time."""
        begun.append("quick")
        return "was quick"

    async def slow() -> str:
        """Take a minute."""
        begun.append("slow")
        await trio.sleep(60)
        return "was slow"

    async def supervise(seconds: float) -> None:
        model = steps([call("quick"), call("slow")], "done")
        agent = LlmAgent(name="a", model=model, tools=[quick, FunctionTool(slow, on_interrupted=policy)])
        with trio.move_on_after(seconds):
            await Runner(agent=agent, app_name="app", session_service=service).supervise()

    await interrupt(service, "s")
    await supervise(30)
    assert await statuses(service) == {"s": "interrupted"}
    log = await service.read_events(app_name="app", user_id="u", session_id="s")
    assert [each.response for event in log for each in event.get_function_responses()] == [{"result": "was quick"}]
    await supervise(100)
    assert await statuses(service) == {"s": "completed"}
    assert begun == (["quick", "slow", "slow"] if policy == "rerun" else ["quick", "slow"])
    log = await service.read_events(app_name="app", user_id="u", session_id="s")
    [_, found] = [each.response for event in log for each in event.get_function_responses()]
    assert found == {"result": "was slow"} if policy == "rerun" else found["error"]["type"] == "outcome_unknown"


async def test_an_agent_inside_of_a_call_goes_on_after_its_supervisor_was_cancelled(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """What it has said is not said again, and it comes to its end."""
    tally = Tally()
    worker = Worker(name="w", tally=tally, seconds=100)
    await interrupt(service, "s")
    for patience in (5, 200):
        agent = LlmAgent(name="a", model=steps(call("w", request="work"), "all done"), tools=[AgentTool(worker)])
        with trio.move_on_after(patience):
            await Runner(agent=agent, app_name="app", session_service=service).supervise()
    assert await statuses(service) == {"s": "completed"}
    assert [text for text in await texts(service, "s") if text] == ["go", "begun", "done", "all done"]


async def test_a_busy_session_takes_nobodys_place(service: BaseSessionService, autojump_clock: MockClock) -> None:
    """While something new runs on a session, its interrupted invocation is left for later, and others go on."""
    tally = Tally()
    await interrupt(service, "busy", "free")
    key = SessionKey("app", "u", "busy")
    writer = await service.open_writer(key, "e-new", None, reject=True)
    assert writer is not None
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(runner_of(service, tally).supervise, max_concurrent=1))
        await trio.sleep(10)
        assert await statuses(service) == {"busy": "interrupted", "free": "completed"}
        await writer.finish(None)
        await trio.sleep(10)
        assert await statuses(service) == {"busy": "completed", "free": "completed"}
        nursery.cancel_scope.cancel()


async def test_what_somebody_else_has_taken_to_a_pause_is_not_woken(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """A supervisor without a free place looks again before it begins: the invocation may wait by then."""
    tally = Tally()
    await interrupt(service, "long", "timed")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(runner_of(service, tally, seconds=10).supervise, max_concurrent=1))
        await trio.sleep(1)
        async with runner_of(service, tally).run_async(user_id="u", session_id="timed", invocation_id="e-timed") as run:
            await run.wait()
        assert run.status == "paused"
        before = await service.read_events(app_name="app", user_id="u", session_id="timed")
        await trio.sleep(30)
        assert await service.read_events(app_name="app", user_id="u", session_id="timed") == before
        nursery.cancel_scope.cancel()


async def test_two_supervisors_in_one_process_share_the_work(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """Nothing is done twice."""
    tally, names = Tally(), [f"s{number}" for number in range(6)]
    await interrupt(service, *names)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(partial(runner_of(service, tally).supervise, max_concurrent=2))
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert (sorted(tally.begun), sorted(tally.ended)) == (names, names)
    for name in names:
        assert await texts(service, name) == ["go", "", "begun", "done"]


async def test_runs_of_a_supervisor_have_its_settings(service: BaseSessionService, autojump_clock: MockClock) -> None:
    """A deadline in its RunConfig is one for each; numbers that make no sense are refused."""
    tally = Tally()
    await interrupt(service, "a")
    with trio.move_on_after(10):
        await runner_of(service, tally, seconds=100).supervise(run_config=RunConfig(deadline_s=2))
    assert await statuses(service) == {"a": "failed"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"max_concurrent": 0}, "max_concurrent to be an integer above 0"),
        ({"max_concurrent": True}, "max_concurrent"),
        ({"max_concurrent": 1.5}, "max_concurrent"),
        ({"every_s": 0}, "every_s to be seconds above 0, and not for ever, found 0"),
        ({"every_s": "1"}, "every_s"),
        ({"every_s": True}, "every_s"),
        ({"every_s": float("inf")}, "every_s"),
        ({"every_s": float("nan")}, "every_s"),
        ({"every_s": 10**400}, "every_s"),
        ({"run_config": {"deadline_s": 1}}, "RunConfig"),
        ({"stop": True}, "stop to be a trio.Event, found True"),
    ],
)
async def test_how_to_supervise_is_checked_first(
    arguments: dict[str, Any], told: str, service: BaseSessionService
) -> None:
    """Numbers that make no sense, and settings that are none, are refused before anything goes on."""
    tally = Tally()
    await interrupt(service, "a")
    with pytest.raises(ConfigurationError, match=told):
        await runner_of(service, tally).supervise(**arguments)
    assert (await statuses(service), tally.begun) == ({"a": "interrupted"}, [])


async def test_a_closed_runner_supervises_nothing(service: BaseSessionService, autojump_clock: MockClock) -> None:
    """It says so, also if it is closed meanwhile; and it does not go on with what is due."""
    runner = runner_of(service, Tally())
    async with trio.open_nursery() as nursery:

        async def close() -> None:
            await trio.sleep(5)
            await runner.close()

        nursery.start_soon(close)
        with trio.fail_after(10), pytest.raises(ServiceClosedError):
            await runner.supervise()
    with pytest.raises(ServiceClosedError):
        await runner.supervise()
    with pytest.raises(ServiceClosedError):
        await runner.resume_due()


async def test_what_goes_on_is_interrupted_when_the_runner_is_closed(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """The supervisor does not wait for it: it says that the runner was closed, and the next one goes on."""
    tally = Tally()
    await interrupt(service, "a")
    runner = runner_of(service, tally, seconds=1000)
    async with trio.open_nursery() as nursery:

        async def close() -> None:
            await trio.sleep(5)
            await runner.close()

        nursery.start_soon(close)
        with trio.fail_after(10), pytest.raises(ServiceClosedError):
            await runner.supervise()
    assert (await statuses(service), tally.begun, tally.now) == ({"a": "interrupted"}, ["a"], 0)


async def test_a_supervisor_that_is_told_to_stop_begins_nothing_new(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """What is under way comes to its end; what has no place yet stays for the next supervisor."""
    tally, stop = Tally(), trio.Event()
    await interrupt(service, "a", "b", "c")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(runner_of(service, tally, seconds=10).supervise, max_concurrent=2, stop=stop))
        await trio.sleep(5)
        stop.set()
    assert autojump_clock.current_time() < 12, "it ends with what was under way"
    assert sorted(tally.ended) == sorted(tally.begun)
    assert sorted((await statuses(service)).values()) == ["completed", "completed", "interrupted"]


async def test_a_supervisor_that_is_stopped_before_it_looks_ends(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """It begins nothing, and who starts it goes on."""
    tally, stop = Tally(), trio.Event()
    await interrupt(service, "a")
    stop.set()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(runner_of(service, tally).supervise, stop=stop))
    assert (tally.begun, await statuses(service)) == ([], {"a": "interrupted"})


class Failing(InMemorySessionService):
    """A store that raises once, or always, when it is asked for one invocation, or for all."""

    is_broken: bool = False
    error: Exception | None = None
    where: str = "load_invocation"
    raised: int = 0

    def _fail(self, where: str) -> None:
        if self.error is not None and where == self.where:
            error, self.error = self.error, self.error if self.is_broken else None
            self.raised += 1
            raise error

    async def load_invocation(self, *arguments: Any) -> Any:
        self._fail("load_invocation")
        return await super().load_invocation(*arguments)

    async def list_invocations(self, **arguments: Any) -> Any:
        self._fail("list_invocations")
        return await super().list_invocations(**arguments)


TOLD = {
    "load_invocation": [
        "invocation 'e-a' of session 'a' of user 'u' in app 'app' could not be begun: StorageError: no luck",
    ],
    "list_invocations": [
        "cannot look for work of 'app': StorageError: no luck",
        "can look for work of 'app' again",
    ],
}


@pytest.mark.parametrize("where", TOLD)
async def test_a_store_that_fails_is_asked_again(
    where: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """At the next look, whether it fails in the look itself or as an invocation is about to go on; it is told once."""
    service, tally = Failing(env=Watched()), Tally()
    await interrupt(service, "a")
    service.error, service.where = StorageError("no luck"), where
    with trio.move_on_after(5):
        await runner_of(service, tally).supervise()
    assert (service.raised, tally.ended) == (1, ["a"])
    assert [record.getMessage() for record in caplog.records] == TOLD[where]


async def test_what_fails_in_the_same_way_again_is_told_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An invocation that cannot be begun at any look is one warning, and so is a store that is away for long."""
    service, tally = Failing(env=Watched()), Tally()
    service.is_broken = True
    await interrupt(service, "a")
    for where in TOLD:
        caplog.clear()
        service.error, service.where = StorageError("no luck"), where
        with trio.move_on_after(20):
            await runner_of(service, tally).supervise()
        assert [record.getMessage() for record in caplog.records] == TOLD[where][:1]


async def test_a_session_that_somebody_else_is_faster_with_is_no_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Two supervisors of one store without claims find the same work: who comes too late says nothing of it."""
    service, tally = InMemorySessionService(env=Watched()), Tally()
    await interrupt(service, "a", "b", "c")
    with trio.move_on_after(20):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(runner_of(service, tally).supervise)
    assert (sorted(tally.ended), caplog.records) == (["a", "b", "c"], [])


async def test_a_bug_of_the_store_is_not_taken_for_its_failure(autojump_clock: MockClock) -> None:
    """What no store is to raise leaves `resume_due`, before anything has gone on; a failure of the store does not."""
    service, tally = Failing(env=Watched()), Tally()
    runner = await wait_in(service, tally, "timed")
    service.error = StorageError("no luck")
    assert await runner.resume_due(START + 60) == []
    service.error = TypeError("a bug")
    with pytest.raises(TypeError, match="a bug"):
        await runner.resume_due(START + 60)
    assert await statuses(service) == {"timed": "paused"}
    assert [one.session_id for one in await runner.resume_due(START + 60)] == ["timed"]


class Stranger(BaseAgent):
    """Not the agent that has written the log."""

    tries: list[float]

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        self.tries.append(trio.current_time())
        await ctx.step("other work", lambda: None)


async def test_what_cannot_go_on_is_tried_later_and_later(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """An agent that its log does not fit fails without an end; neither the log nor the supervisor is filled with it."""
    tally = Tally()
    await interrupt(service, "a")
    with trio.move_on_after(5):
        await runner_of(service, tally, seconds=100).supervise()
    tries: list[float] = []
    stranger = Runner(agent=Stranger(name="w", tries=tries), app_name="app", session_service=service)
    begun = trio.current_time()
    with trio.move_on_after(4 * 3600):
        await stranger.supervise(every_s=10)
    assert await statuses(service) == {"a": "interrupted"}
    waits = [round(later - earlier) for earlier, later in zip([begun, *tries], tries, strict=False)]
    assert waits == [0, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]
    with trio.move_on_after(5):
        await runner_of(service, tally).supervise()
    assert await statuses(service) == {"a": "completed"}


class OverBudget(BasePlugin):
    """Answers in the place of what is resumed, as long as there is no budget."""

    def __init__(self) -> None:
        super().__init__("over_budget")
        self.has_budget = False
        self.asked: list[float] = []

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> Content | None:
        if self.has_budget or not invocation_context.is_resumed:
            return None
        self.asked.append(trio.current_time())
        return ModelContent("over budget")


@pytest.mark.parametrize("session", ["cut off", "timed"])
async def test_what_a_plugin_answers_instead_of_is_tried_later_and_later(
    session: str, service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """It is stored once that a plugin has answered; later tries wait as after failures, and store nothing."""
    tally, plugin = Tally(), OverBudget()
    app = App("app", Worker(name="w", tally=tally), plugins=[plugin])
    runner = Runner(app=app, session_service=service)
    await interrupt(service, session)
    if session == "timed":
        plugin.has_budget = True
        await resume(runner, session)
        plugin.has_budget = False
        await trio.sleep(60)
    [before] = (await statuses(service)).values()
    length, begun = len(await texts(service, session)), trio.current_time()
    with trio.move_on_after(3600):
        await runner.supervise(every_s=10)
    waits = [round(later - earlier) for earlier, later in zip([begun, *plugin.asked], plugin.asked, strict=False)]
    assert waits == [0, 20, 40, 80, 160, 320, 640, 1280]
    assert (await texts(service, session))[length:] == ["", "over budget"]
    assert await statuses(service) == {session: before}
    assert await runner.resume_due() == []
    plugin.has_budget = True
    with trio.move_on_after(20):
        await runner.supervise()
    assert (await statuses(service), tally.ended) == ({session: "completed"}, [session])


async def resume(runner: Runner, session: str) -> None:
    """Go on with the invocation that was interrupted."""
    async with runner.run_async(user_id="u", session_id=session, invocation_id=f"e-{session}") as run:
        await run.wait()


# --- what is due ------------------------------------------------------------------------------------------------------


async def wait_in(service: BaseSessionService, tally: Tally, *sessions: str) -> Runner:
    """Let there be sessions that wait for a time, the first of them longest; return a runner."""
    runner = runner_of(service, tally)
    for name in sessions:
        await service.create_session(app_name="app", user_id="u", session_id=name)
        async with runner.run_async(user_id="u", session_id=name, new_message="go") as run:
            await run.wait()
        assert run.status == "paused"
    return runner


class Sleeper(BaseAgent):
    """Waits for a time."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.sleep_until(START + 60)


class Deleting(Worker):
    """A worker beside which somebody deletes the session that would be next."""

    service: BaseSessionService

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        if ctx.session.id == "timed 1" and len(ctx.session.events) > 2:
            await self.service.delete_session(app_name="app", user_id="u", session_id="timed 2")
        await super()._run_async_impl(ctx)


async def test_what_is_due_goes_on_whatever_happens_to_the_others(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """One that fails, one whose session somebody deletes, and one that is busy keep no other from its turn."""
    tally = Tally()
    names = ["timed 1", "timed 2", "timed 3", "timed 4", "timed 5"]
    await wait_in(service, tally, *names)
    agent = Deleting(name="w", tally=tally, service=service, fails="timed 3")
    runner = Runner(agent=agent, app_name="app", session_service=service)
    assert await runner.resume_due(START + 59) == []
    busy = await service.open_writer(SessionKey("app", "u", "timed 4"), "e-new", None, reject=True)
    assert busy is not None
    went_on = await runner.resume_due(START + 60, run_config=RunConfig(on_busy="reject"))
    assert [(one.session_id, str(one.status)) for one in went_on] == [
        ("timed 1", "completed"),
        ("timed 3", "failed"),
        ("timed 5", "completed"),
    ]
    await busy.finish(None)
    assert [one.session_id for one in await runner.resume_due(START + 60)] == ["timed 4"]
    assert await runner.resume_due(START + 60) == []


async def test_what_was_interrupted_while_it_waits_for_a_time_goes_on(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """One branch waits for a time that has come, the other was cut off: it is taken for the interrupted one it is."""
    tally = Tally()
    await interrupt(service, "both")

    def runner(seconds: float) -> Runner:
        branches = [Sleeper(name="s"), Worker(name="w", tally=tally, seconds=seconds)]
        agent = ParallelAgent(name="p", sub_agents=branches)
        return Runner(agent=agent, app_name="app", session_service=service)

    with trio.move_on_after(5):
        await runner(100).supervise()
    assert await statuses(service) == {"both": "interrupted"}
    assert [call.due for call in await service.list_pending(include_timers=True)] == [START + 60]
    await trio.sleep(60)
    with trio.move_on_after(5):
        await runner(1).supervise()
    assert await statuses(service) == {"both": "completed"}


async def test_what_is_due_and_fails_before_it_goes_on_has_not_gone_on(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """Where the agent does not fit the log, the invocation is as it was, and `resume_due` does not return it."""
    await wait_in(service, Tally(), "timed")
    stranger = Runner(agent=Stranger(name="w", tries=[]), app_name="app", session_service=service)
    assert await stranger.resume_due(START + 60) == []
    assert await statuses(service) == {"timed": "paused"}


@pytest.mark.parametrize("now", ["x", True, float("nan"), float("inf"), 10**400, (1,)])
async def test_when_it_is_is_checked_first(now: Any, service: BaseSessionService, autojump_clock: MockClock) -> None:
    """What is no time is refused, whether anything is due or not, and so are settings that are none."""
    tally, settings = Tally(), {"deadline_s": 1}
    runner: Any = runner_of(service, tally)
    for _ in range(2):
        with pytest.raises(InvalidValueError, match="now: expected seconds since the epoch, found"):
            await runner.resume_due(now)
        with pytest.raises(ConfigurationError, match="RunConfig"):
            await runner.resume_due(START + 60, run_config=settings)
        if not tally.begun and not await statuses(service):
            await wait_in(service, tally, "timed")
    assert (await statuses(service), tally.begun) == ({"timed": "paused"}, [])


# --- processes --------------------------------------------------------------------------------------------------------


async def logs(path: Path) -> list[list[Event]]:
    """The logs of the sessions."""
    async with SqliteSessionService(path) as service:
        sessions = (await service.list_sessions(app_name="app")).sessions
        return [
            await service.read_events(app_name="app", user_id="u", session_id=session.id, after_seq=0)
            for session in sessions
        ]


@pytest.mark.parametrize("scenario", ["two_tools", "custom"])
def test_two_supervising_processes_do_each_thing_once(scenario: str, tmp_path: Path) -> None:
    """What killed processes have left is taken to its end by two at once: each invocation by one of them."""
    path, sessions = tmp_path / "a.db", [f"s{number}" for number in range(5)]
    forks = forker("tests.mortals")
    options = {"scenario": [scenario], "durability": "power", "answers_at_once": True}
    for number, name in enumerate(sessions):
        fate = {"moment": "stored", "number": number + 1, "session": name}
        pid = forks.start("live", path, tmp_path / name, **options, **fate)
        assert forks.ends(pid) == -signal.SIGKILL
    fates = [{"moment": "", "number": number} for number in (100, 200)]
    pids = [forks.start("supervise", path, tmp_path / f"{fate['number']}", **options, **fate) for fate in fates]
    assert [forks.ends(pid) for pid in pids] == [0, 0]
    found = trio.run(logs, path)
    assert len(found) == len(sessions)
    for log in found:
        assert words(log) == words(found[0])
        assert len([event for event in log if event.author == "user" and event.content is None]) == 1
    effects = effects_beside(path).read_text("utf-8").splitlines()
    assert len(set(effects)) == len(effects), "all died before an effect, or after its record"
    assert len(effects) == 3 * len(sessions)
    check_file(path)


def words(log: Sequence[Event]) -> list[str]:
    """What was said."""
    return [event.text for event in log if event.text]


async def test_a_supervisor_leaves_a_message_with_its_paused_invocation(autojump_clock: MockClock) -> None:
    """It begins no other invocation for the message; the paused invocation takes it when it is resumed."""

    async def slow() -> None:
        """Begin work whose result comes later."""

    model = ScriptedLlm([call("slow"), "done"])
    service = InMemorySessionService()
    agent = LlmAgent(name="a", model=model, tools=[LongRunningFunctionTool(slow)])
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="go") as paused:
        await paused.wait()
    await runner.send("also this", **PLACE)
    with trio.move_on_after(10):
        await runner.supervise()
    assert len(model.requests) == 1
    async with runner.run_async(**PLACE, new_message=paused.pending[0].reply("it")) as run:
        await run.wait()
    [invocation] = await service.list_invocations()
    assert (invocation.invocation_id, invocation.status) == (paused.invocation_id, "completed")
    assert [event.text for event in model.requests[-1].contents if event.text] == ["go", "also this"]
