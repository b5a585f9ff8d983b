"""
How a run ends: each row of the table of endings as a fact, and a small program that ends in it.

In the programs an agent makes a call that nobody answers, and beside it another agent asks something, or nobody does.
What stops them differs. Then the status, the log, what is raised and what an `after_run` hook is told are compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import product
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from minirun import App, BaseAgent, Event, InvocationContext, ParallelAgent, RunConfig, Runner
from minirun.errors import (
    DeadlineExceededError,
    LlmCallsLimitExceededError,
    ReplayError,
    StorageBusyError,
    StorageConnectionError,
    StorageError,
    StorageUncertainError,
)
from minirun.plugins import BasePlugin
from minirun.runtime import Run
from minirun.runtime._endings import ENDINGS, Closes, Stop, ending_of, stopped_by
from minirun.runtime._failure import Pause
from minirun.sessions import (
    BaseSessionService,
    InMemorySessionService,
    InvocationStatus,
    LiveSession,
    SessionWriter,
    SqliteSessionService,
)
from minirun.types import Content, FunctionCall, Part

from ..helpers import PLACE, Logic
from .test_resume import cut_after

COMPLETED, CANCELLED, PAUSED = InvocationStatus.COMPLETED, InvocationStatus.CANCELLED, InvocationStatus.PAUSED
FAILED, INTERRUPTED = InvocationStatus.FAILED, InvocationStatus.INTERRUPTED

# --- the table --------------------------------------------------------------------------------------------------------


def test_the_table_has_every_combination_and_no_other() -> None:
    """Whatever has stopped the agents, and whether a question is open or not: there is one ending for it."""
    assert set(ENDINGS) == set(Stop)
    for stop, endings in ENDINGS.items():
        assert [ending_of(stop, waits=waits) for waits in (False, True)] == [*endings]


MEANING = {
    Stop.END: (COMPLETED, COMPLETED),
    Stop.PAUSE: (CANCELLED, PAUSED),
    Stop.LEAVING: (CANCELLED, PAUSED),
    Stop.SUPERVISOR: (INTERRUPTED, INTERRUPTED),
    Stop.INTERRUPT: (FAILED, PAUSED),
    Stop.FAILURE: (FAILED, FAILED),
    Stop.STORE: (INTERRUPTED, INTERRUPTED),
    Stop.NOTHING_NEW: (INTERRUPTED, PAUSED),
}
"""By what has stopped the agents: how the invocation is recorded without and with an open question."""


@pytest.mark.parametrize("stop", Stop)
@pytest.mark.parametrize("waits", [False, True])
def test_what_each_row_means(stop: Stop, waits: bool) -> None:
    """The status says what is closed: an end closes all, a pause what does not wait, and an interruption nothing."""
    ending = ENDINGS[stop][waits]
    assert ending.status is MEANING[stop][waits]
    if ending.status is INTERRUPTED or stop is Stop.NOTHING_NEW:  # a worker resumes it, or nothing has happened
        assert ending.closes is Closes.NONE
    else:
        assert ending.closes is (Closes.NOT_WAITING if ending.status is PAUSED else Closes.ALL)
    assert ending.stores_failure is (ending.status is FAILED)


# --- what has stopped them --------------------------------------------------------------------------------------------


async def cancellation() -> trio.Cancelled:
    """A real cancellation; there is no other way to make one."""
    found: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            found.append(error)
            raise
    return found[0]


def group(*errors: BaseException) -> BaseException:
    """What a nursery raises."""
    return BaseExceptionGroup("branches", list(errors))


def test_no_exception_is_the_end() -> None:
    """The agents have come to their end; it does not matter who has left meanwhile."""
    for has_left, is_supervised in product([False, True], repeat=2):
        assert stopped_by(None, has_left=has_left, is_supervised=is_supervised) is Stop.END


async def test_a_pause_is_one_however_deep_and_whatever_was_cancelled_for_it() -> None:
    """Alone, in groups, and with the cancellations that it has caused beside it; but not beside a failure."""
    cancelled = await cancellation()
    pauses = [Pause(), group(Pause()), group(Pause(), Pause()), group(group(Pause(), cancelled), cancelled)]
    for error, has_left in product(pauses, [False, True]):
        assert stopped_by(error, has_left=has_left, is_supervised=has_left) is Stop.PAUSE
    assert stopped_by(group(Pause(), ValueError()), has_left=False, is_supervised=False) is Stop.FAILURE
    assert stopped_by(group(Pause(), KeyboardInterrupt()), has_left=False, is_supervised=False) is Stop.INTERRUPT


async def test_a_cancellation_is_the_deadlines_unless_the_caller_has_left() -> None:
    """A caller that leaves ends the invocation; a supervisor that leaves leaves it to the next one."""
    cancelled = await cancellation()
    for error in (cancelled, group(cancelled), group(group(cancelled), cancelled)):
        assert stopped_by(error, has_left=False, is_supervised=False) is Stop.FAILURE
        assert stopped_by(error, has_left=False, is_supervised=True) is Stop.FAILURE
        assert stopped_by(error, has_left=True, is_supervised=False) is Stop.LEAVING
        assert stopped_by(error, has_left=True, is_supervised=True) is Stop.SUPERVISOR


async def test_an_exception_counts_more_than_a_cancellation_and_ctrl_c_more_than_an_exception() -> None:
    """What was raised is looked for among all that was raised, whoever has left."""
    cancelled = await cancellation()
    failures = [ValueError(), group(ValueError()), group(cancelled, ValueError()), group(OSError(), group(Pause()))]
    interrupts = [KeyboardInterrupt(), SystemExit(), group(ValueError(), KeyboardInterrupt())]
    interrupts += [group(cancelled, group(SystemExit(1), Pause())), GeneratorExit()]
    for has_left, is_supervised in product([False, True], repeat=2):
        for error in failures:
            assert stopped_by(error, has_left=has_left, is_supervised=is_supervised) is Stop.FAILURE
        for error in interrupts:
            assert stopped_by(error, has_left=has_left, is_supervised=is_supervised) is Stop.INTERRUPT


@pytest.mark.parametrize("kind", [StorageBusyError, StorageConnectionError, StorageUncertainError])
def test_a_transient_failure_of_the_store_is_told_from_others(kind: type[StorageError]) -> None:
    """If it is the failure that stands for the run; whoever has left."""
    for has_left, is_supervised in product([False, True], repeat=2):
        for error in (kind("x"), group(kind("x"), ValueError())):
            assert stopped_by(error, has_left=has_left, is_supervised=is_supervised) is Stop.STORE
        for error in (StorageError("x"), group(ValueError(), kind("x"))):
            assert stopped_by(error, has_left=has_left, is_supervised=is_supervised) is Stop.FAILURE


# --- programs that end so ---------------------------------------------------------------------------------------------

Act = Callable[[], Awaitable[None]]


class Told(BasePlugin):
    """Notes what its hook is told at the end of each run."""

    def __init__(self) -> None:
        super().__init__(name="told")
        self.statuses: list[InvocationStatus] = []

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self.statuses.append(invocation_context.status)


@attrs.frozen
class Found:
    """What is left of a run: in it, in the log, and in the store's list."""

    status: InvocationStatus
    raised: type[BaseException] | None
    answered: list[str]
    """The names of the calls that the log has a response to."""
    still_open: list[str]
    """The names of the others."""
    errors: list[str | None]
    """The error codes in the log."""
    listed: InvocationStatus
    pending: int
    """How many questions the store says are waiting."""


async def end() -> None:
    """The agent has nothing more to do."""


async def hang() -> None:
    """The agent is stopped by somebody else."""
    await trio.sleep_forever()


def raising(error: BaseException) -> Act:
    """The agent fails."""

    async def act() -> None:
        raise error

    return act


def program(act: Act, *, asks: bool) -> BaseAgent:
    """An agent that makes a call and then acts, beside another one that asks, or not."""

    async def work(ctx: InvocationContext) -> None:
        await ctx.emit(Event(content=Content(parts=[Part(function_call=FunctionCall(id="c-work", name="work"))])))
        await trio.testing.wait_all_tasks_blocked()  # the question is open
        await act()

    async def ask(ctx: InvocationContext) -> None:
        await ctx.request_input("?")

    agents = [Logic(name="works", logic=work)] + ([Logic(name="asks", logic=ask)] if asks else [])
    return ParallelAgent(name="both", sub_agents=agents)


def swallowing(act: Act) -> BaseAgent:
    """An agent that makes a call, asks, does not let the pause pass, and acts."""

    async def work(ctx: InvocationContext) -> None:
        await ctx.emit(Event(content=Content(parts=[Part(function_call=FunctionCall(id="c-work", name="work"))])))
        try:
            await ctx.request_input("?")
        except Pause:
            pass
        await act()

    return Logic(name="works", logic=work)


class Desk:
    """A service in which one program is run again and again."""

    def __init__(self, service: BaseSessionService) -> None:
        self.service = service
        self.told = Told()
        self.has_failed_late = False  # whether something has failed after the hooks were told

    async def run(self, agent: BaseAgent, *, supervised: bool = False, **what: Any) -> Found:
        """Run it until it ends, or until nothing comes for a while; say what is left."""
        app = App(name="app", root_agent=agent, plugins=[self.told])
        runner = Runner(app=app, session_service=self.service, auto_create_session=True)
        raised: type[BaseException] | None = None
        run: Run | None = None
        scope = runner.run_async(**PLACE, **(what or {"new_message": "go"}))
        try:
            async with scope.supervised(None) if supervised else scope as run:
                with trio.move_on_after(1):
                    await run.wait()
        except BaseException as error:
            raised = type(error)
            if isinstance(error, trio.Cancelled):
                raise
        assert run is not None
        log = await self.service.read_events(app_name="app", **PLACE, after_seq=0)
        calls = {call.id: call.name for event in log for call in event.get_function_calls()}
        answered = [answer.id for event in log for answer in event.get_function_responses()]
        assert len(set(answered)) == len(answered)
        [listed] = await self.service.list_invocations(app_name="app")
        if not self.has_failed_late:
            assert self.told.statuses[-1:] == [run.status]
        return Found(
            run.status,
            raised,
            sorted(calls[call_id] for call_id in answered),
            sorted(name for call_id, name in calls.items() if call_id not in answered),
            [event.error_code for event in log if event.error_code],
            listed.status,
            len(await self.service.list_pending(app_name="app")),
        )


@pytest.fixture(params=["memory", "sqlite"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """In memory and on SQLite."""
    sqlite = SqliteSessionService(":memory:", durability="process")
    async with InMemorySessionService() if request.param == "memory" else sqlite as service:
        yield Desk(service)


def closed(status: InvocationStatus, *, asks: bool, **more: Any) -> Found:
    """All calls are answered, the question, too."""
    answered = ["adk_request_input", "work"] if asks else ["work"]
    return attrs.evolve(Found(status, None, answered, [], [], status, 0), **more)


def kept(status: InvocationStatus, *, asks: bool, **more: Any) -> Found:
    """No call is answered."""
    names = ["adk_request_input", "work"] if asks else ["work"]
    return attrs.evolve(Found(status, None, [], names, [], status, int(asks)), **more)


def waiting(**more: Any) -> Found:
    """Only the question is open."""
    return attrs.evolve(Found(PAUSED, None, ["work"], ["adk_request_input"], [], PAUSED, 1), **more)


async def test_agents_that_come_to_their_end_complete_the_invocation(desk: Desk) -> None:
    """What they have left open is answered."""
    assert await desk.run(program(end, asks=False)) == closed(COMPLETED, asks=False)


async def test_an_agent_that_ends_although_it_has_asked_takes_its_question_back(desk: Desk) -> None:
    """It has not let the pause pass, and comes to its end: nobody waits for an answer."""
    assert await desk.run(swallowing(end)) == closed(COMPLETED, asks=True)


async def test_a_question_pauses_the_invocation(desk: Desk) -> None:
    """The question stays open; the call beside it, which does not wait, is answered."""
    assert await desk.run(program(end, asks=True)) == waiting()


async def test_an_agent_that_waits_for_what_was_withdrawn_is_cancelled(desk: Desk) -> None:
    """A process died while it ended a failing invocation: the question is withdrawn, its asker goes no further."""
    errors: list[BaseException] = [ValueError("once")]

    async def fail_once() -> None:
        if errors:
            raise errors.pop()

    await desk.run(swallowing(fail_once))
    log = await desk.service.read_events(app_name="app", **PLACE, after_seq=0)
    withdrawn = next(number for number, event in enumerate(log) if event.get_function_responses())
    assert [one.name for one in log[withdrawn].get_function_responses()] == ["adk_request_input"]
    other = Desk(await cut_after(log, withdrawn + 1))
    found = await other.run(program_of_withdrawn(), invocation_id=log[0].invocation_id)
    assert found == closed(CANCELLED, asks=True)


def program_of_withdrawn() -> BaseAgent:
    """The same, but it lets the pause pass."""

    async def work(ctx: InvocationContext) -> None:
        await ctx.emit(Event(content=Content(parts=[Part(function_call=FunctionCall(id="c-work", name="work"))])))
        await ctx.request_input("?")

    return Logic(name="works", logic=work)


async def test_a_caller_that_leaves_cancels_the_invocation(desk: Desk, autojump_clock: MockClock) -> None:
    """What is open is answered, and nothing is raised."""
    assert await desk.run(program(hang, asks=False)) == closed(CANCELLED, asks=False)


async def test_a_caller_that_leaves_does_not_take_questions_back(desk: Desk, autojump_clock: MockClock) -> None:
    """The question goes on waiting; the agent beside it was stopped."""
    assert await desk.run(program(hang, asks=True)) == waiting()


@pytest.mark.parametrize("asks", [False, True])
async def test_a_supervisor_that_leaves_leaves_all_as_it_is(desk: Desk, autojump_clock: MockClock, asks: bool) -> None:
    """Nothing is answered: the next one goes on from there."""
    assert await desk.run(program(hang, asks=asks), supervised=True) == kept(INTERRUPTED, asks=asks)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_ctrl_c_fails_the_invocation(desk: Desk, error: type[BaseException]) -> None:
    """It is raised as it is, and stands in the log."""
    expected = closed(FAILED, asks=False, raised=error, errors=[error.__name__])
    assert await desk.run(program(raising(error()), asks=False)) == expected


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_ctrl_c_does_not_take_questions_back(desk: Desk, error: type[BaseException]) -> None:
    """The invocation is paused as if it had not been hit; it is raised, and not in the log."""
    assert await desk.run(program(raising(error()), asks=True)) == waiting(raised=error)


async def test_an_exception_fails_the_invocation(desk: Desk) -> None:
    """It is raised with its own type, and stands in the log after the answers."""
    expected = closed(FAILED, asks=False, raised=ValueError, errors=["ValueError"])
    assert await desk.run(program(raising(ValueError("no luck")), asks=False)) == expected


@pytest.mark.parametrize("beside", [False, True])
async def test_an_exception_takes_questions_back(desk: Desk, beside: bool) -> None:
    """Whether it was raised beside the one who waits, or by it: nothing waits any more."""
    act = raising(ValueError("no luck"))
    agent = program(act, asks=True) if beside else swallowing(act)
    assert await desk.run(agent) == closed(FAILED, asks=True, raised=ValueError, errors=["ValueError"])


@pytest.mark.parametrize("asks", [False, True])
async def test_the_deadline_fails_the_invocation(desk: Desk, autojump_clock: MockClock, asks: bool) -> None:
    """As an exception does, questions included."""
    found = await desk.run(program(hang, asks=asks), new_message="go", run_config=RunConfig(deadline_s=0.5))
    error = DeadlineExceededError
    assert found == closed(FAILED, asks=asks, raised=error, errors=[error.__name__])


async def test_an_agent_that_fails_to_clean_up_at_the_deadline_has_met_the_deadline(
    desk: Desk, autojump_clock: MockClock
) -> None:
    """The deadline is what is raised; what the clean-up has raised stands in the log after it, and in a note."""

    async def clean_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("while it was cleaning up")

    found = await desk.run(program(clean_up, asks=False), new_message="go", run_config=RunConfig(deadline_s=0.5))
    assert (found.status, found.raised, found.answered) == (FAILED, DeadlineExceededError, ["work"])
    assert found.errors == ["DeadlineExceededError", "OSError"]


async def test_who_fails_to_clean_up_in_a_time_of_its_own_has_not_met_the_deadline(
    desk: Desk, autojump_clock: MockClock
) -> None:
    """The agent's own scope was cancelled, not the run: its error is raised, and nothing beside it."""

    async def clean_up() -> None:
        with trio.move_on_after(0.1):
            try:
                await trio.sleep_forever()
            finally:
                raise OSError("while it was cleaning up")

    found = await desk.run(program(clean_up, asks=False), new_message="go", run_config=RunConfig(deadline_s=0.5))
    assert found == closed(FAILED, asks=False, raised=OSError, errors=["OSError"])


async def test_who_fails_by_itself_after_the_deadline_has_not_met_it(desk: Desk, autojump_clock: MockClock) -> None:
    """It was shielded, and no cancellation has come to it: what it fails with has another cause, and is raised."""

    async def fail_late() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.9)
        raise OSError("by itself")

    found = await desk.run(program(fail_late, asks=False), new_message="go", run_config=RunConfig(deadline_s=0.5))
    assert found == closed(FAILED, asks=False, raised=OSError, errors=["OSError"])


async def test_a_cancellation_of_somewhere_else_that_leaves_the_agents_fails_the_invocation(desk: Desk) -> None:
    """Nobody has cancelled the run: what an agent has kept of its own scope, and raises, does not end it quietly."""

    async def raise_kept(ctx: InvocationContext) -> None:
        kept: list[BaseException] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                kept.append(error)
        raise kept[0]

    with pytest.raises(trio.Cancelled):
        await desk.run(Logic(name="agent", logic=raise_kept))
    [listed] = await desk.service.list_invocations(app_name="app")
    assert [listed.status, *desk.told.statuses] == [FAILED, FAILED]


async def test_an_agent_that_fails_while_the_caller_leaves_fails_the_invocation(
    desk: Desk, autojump_clock: MockClock
) -> None:
    """A cancellation does not hide an error: it is raised from leaving."""

    async def clean_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("while it was cleaning up")

    expected = closed(FAILED, asks=False, raised=OSError, errors=["OSError"])
    assert await desk.run(program(clean_up, asks=False)) == expected


# --- going on, and not getting anywhere -------------------------------------------------------------------------------


def another() -> BaseAgent:
    """An agent that has nothing to do with what is recorded."""

    async def act(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="who are you?"))

    return Logic(name="another", logic=act)


@pytest.mark.parametrize("asks", [False, True])
async def test_what_fails_before_anything_new_is_done_ends_nothing(
    desk: Desk, autojump_clock: MockClock, asks: bool
) -> None:
    """Another agent goes on with it, and is told so: it stays interrupted, or paused, and all is kept."""
    before = await desk.run(program(end if asks else hang, asks=asks), supervised=True)
    expected = waiting() if asks else kept(INTERRUPTED, asks=False)
    assert before == expected
    [invocation] = await desk.service.list_invocations(app_name="app")
    found = await desk.run(another(), invocation_id=invocation.invocation_id)
    assert found == attrs.evolve(expected, raised=ReplayError)


@pytest.mark.parametrize("in_a_group", [False, True])
async def test_what_goes_on_and_fails_before_the_end_of_the_record_keeps_its_status(
    desk: Desk, autojump_clock: MockClock, in_a_group: bool
) -> None:
    """An exception of the agent's own counts no more than that it is not there: the call is repeated, then it fails."""
    before = await desk.run(program(hang, asks=True), supervised=True)
    assert before == kept(INTERRUPTED, asks=True)
    [invocation] = await desk.service.list_invocations(app_name="app")

    async def fail(ctx: InvocationContext) -> None:
        error = LlmCallsLimitExceededError("before anything is repeated")
        raise BaseExceptionGroup("of a nursery", [Pause("beside it"), error]) if in_a_group else error

    found = await desk.run(Logic(name="both", logic=fail), invocation_id=invocation.invocation_id)
    question_open = kept(PAUSED, asks=True, raised=LlmCallsLimitExceededError)
    assert found == question_open


async def test_what_goes_on_and_fails_after_the_record_has_failed(desk: Desk, autojump_clock: MockClock) -> None:
    """Something new was done, or all that is recorded was repeated: then it ends as any other."""
    await desk.run(program(hang, asks=False), supervised=True)
    [invocation] = await desk.service.list_invocations(app_name="app")
    found = await desk.run(program(raising(ValueError()), asks=False), invocation_id=invocation.invocation_id)
    assert found == closed(FAILED, asks=False, raised=ValueError, errors=["ValueError"])


# --- stores that refuse -----------------------------------------------------------------------------------------------


def refuse(service: BaseSessionService, is_refused: Callable[[Event], bool]) -> None:
    """Let the store refuse some events, and store nothing of them."""
    real = service.commit_event

    async def commit(live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        if is_refused(event):
            raise StorageBusyError("planted")
        await real(live, event, writer=writer, begins=begins)

    service.commit_event = commit  # type: ignore[method-assign]  # a store that fails, at one place


ENDS: list[tuple[Act, type[BaseException]]] = [
    (end, StorageBusyError),
    (hang, StorageBusyError),
    (raising(ValueError("no luck")), ValueError),
    (raising(KeyboardInterrupt()), KeyboardInterrupt),
]


@pytest.mark.parametrize(("act", "raised"), ENDS, ids=["end", "leaving", "failure", "ctrl-c"])
async def test_a_store_that_refuses_the_answers_leaves_the_invocation_interrupted(
    desk: Desk, autojump_clock: MockClock, act: Act, raised: type[BaseException]
) -> None:
    """The first exception is raised; the next run answers what is open."""
    desk.has_failed_late = True
    refuse(desk.service, lambda event: bool(event.get_function_responses()))
    found = await desk.run(program(act, asks=False))
    assert found == kept(INTERRUPTED, asks=False, raised=raised)
    del desk.service.commit_event  # it works again
    [invocation] = await desk.service.list_invocations(app_name="app")
    again = await desk.run(program(end, asks=False), invocation_id=invocation.invocation_id)
    assert again == closed(COMPLETED, asks=False)


async def test_a_store_that_refuses_answers_beside_a_question_leaves_it_waiting(desk: Desk) -> None:
    """The run fails with that; its question is open, and all of it is interrupted."""
    desk.has_failed_late = True
    refuse(desk.service, lambda event: bool(event.get_function_responses()))
    assert await desk.run(program(end, asks=True)) == kept(INTERRUPTED, asks=True, raised=StorageBusyError)


async def test_a_store_that_refuses_the_error_event_has_failed_all_the_same(desk: Desk) -> None:
    """Everything is answered, so there is nothing to go on with."""
    refuse(desk.service, lambda event: event.error_code is not None)
    found = await desk.run(program(raising(ValueError("no luck")), asks=False))
    assert found == closed(FAILED, asks=False, raised=ValueError)


# --- and the others ---------------------------------------------------------------------------------------------------


async def test_every_exception_of_a_group_stands_in_the_log(desk: Desk, autojump_clock: MockClock) -> None:
    """The first is raised; the others come after it, and answers before them all."""
    both: Sequence[BaseAgent] = [
        Logic(name=name, logic=logic) for name, logic in (("a", _fail_with(ValueError)), ("b", _fail_with(OSError)))
    ]
    found = await desk.run(ParallelAgent(name="both", sub_agents=both, on_failure="collect"))
    assert (found.status, found.raised, found.errors) == (FAILED, ValueError, ["ValueError", "OSError"])


async def test_who_waits_beside_a_failure_does_not_stand_in_the_log_as_one(desk: Desk) -> None:
    """An agent that asks in a nursery of its own leaves a pause in the group: that is nothing that has failed."""

    async def logic(ctx: InvocationContext) -> None:
        raise BaseExceptionGroup("of a nursery", [Pause("beside it"), OSError("no luck")])

    found = await desk.run(Logic(name="agent", logic=logic))
    assert (found.status, found.raised, found.errors) == (FAILED, OSError, ["OSError"])


def _fail_with(error: type[Exception]) -> Callable[[InvocationContext], Awaitable[None]]:
    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=ctx.agent_name))
        if ctx.agent_name == "b":
            await trio.sleep(0.1)
        raise error(ctx.agent_name)

    return logic
