"""
P1, P2 and P5, by enumeration: whatever interrupts a run, and wherever, what the promises say holds.

Each scenario runs on each service, and is interrupted at every step that trio takes in it, after every event, and by
a failure of every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from itertools import product
from pathlib import Path

import pytest
import trio

from minirun import Runner
from minirun.errors import StorageError

from ..fork_server import program, run
from ..interruptions import (
    AGENTS,
    KINDS,
    PLACE,
    Diary,
    Store,
    cancel_at_every_step,
    check_aftermath,
    check_new_turn,
    check_reopened,
    enumerate_steps,
    failing_commit,
    failing_operation,
    interrupted_run,
    open_calls,
    read_run,
)

# What costs most is done by the larger form of the tests. In each run of them the small scenario is interrupted
# everywhere on every service, each scenario on one, and those with the most to go wrong on a file too. A server takes
# ten times as long as a file: there a cancellation comes at some steps only, and one scenario with tools meets only the
# failure of which nobody is told.
LARGE = {("tool turn", "process"), ("two emitters", "process")}
STEPS_ON_A_SERVER = 7
UNKNOWN = ("tool turn", "postgres", "stored")


def is_common(agent: str, kind: str) -> bool:
    """Whether the scenario is run on that service in each run of the tests."""
    return agent == "one agent" or kind == "memory" or (agent, kind) in LARGE


def in_all(is_common: Callable[[str, str], bool]) -> pytest.MarkDecorator:
    """Each scenario on each service, some of them seldom."""
    both = [
        pytest.param(agent, kind, marks=[] if is_common(agent, kind) else [pytest.mark.slow])
        for agent in AGENTS
        for kind in KINDS
    ]
    return pytest.mark.parametrize(("agent", "kind"), both)


scenarios = in_all(is_common)
failures = pytest.mark.parametrize(
    ("agent", "kind", "mode"),
    [
        pytest.param(*each, marks=[] if is_common(*each[:2]) or each == UNKNOWN else [pytest.mark.slow])
        for each in product(AGENTS, KINDS, ("refused", "lost", "stored"))
    ],
)


# How often a cancellation comes in each run of the tests: at each step in memory, and in the small scenario on a file.
EVERY = {("tool turn", "process"): 3, ("two emitters", "process"): 3, ("one agent", "process"): 1}
CANCELLED = [
    *(pytest.param(agent, "memory", 1) for agent in AGENTS),
    *(pytest.param(*each, every, id=f"{each[0]}-{each[1]}-some") for each, every in EVERY.items()),
    *(pytest.param(agent, kind, 1, marks=pytest.mark.slow) for agent, kind in product(AGENTS, KINDS[1:])),
]


@pytest.mark.parametrize(("agent", "kind", "every"), CANCELLED)
def test_a_run_that_is_cancelled_at_any_step_keeps_its_promises(
    agent: str, kind: str, every: int, tmp_path: Path
) -> None:
    """After a cancellation at any step, what returned is stored, what raised is not, and a new turn works."""
    interrupted, uninterrupted = cancel_at_every_step(Store(kind, tmp_path), agent, every=every)
    print(f"{agent} on {kind}: {interrupted} interruption points, {uninterrupted} steps uninterrupted")
    assert interrupted >= uninterrupted


def test_a_run_that_is_cancelled_at_some_steps_keeps_its_promises_on_a_server(tmp_path: Path) -> None:
    """After a cancellation at each of some steps the same holds in Postgres."""
    interrupted, uninterrupted = cancel_at_every_step(
        Store("postgres", tmp_path), "one agent", every=STEPS_ON_A_SERVER
    )
    assert interrupted >= uninterrupted


@pytest.mark.parametrize(
    ("kind", "agents"), [("memory", ["two emitters"]), pytest.param("process", AGENTS, marks=pytest.mark.slow)]
)
def test_the_same_holds_under_trios_ordinary_scheduling(kind: str, agents: Iterable[str], tmp_path: Path) -> None:
    """Importing pytest_trio makes trio's order of tasks reproducible; a process without it keeps the promises too."""
    done = run(program("tests.interruptions", tmp_path, kind, *agents))
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert done.stdout.count("interruption points") == len([*agents])


@scenarios
def test_nobody_goes_on_while_the_caller_holds_an_event(agent: str, kind: str, tmp_path: Path) -> None:
    """While the caller holds an event, no emitter of the run has gone on."""
    store, diary = Store(kind, tmp_path).fresh(), Diary()

    async def main() -> None:
        async with store.opened() as service:
            runner = Runner(agent=AGENTS[agent](diary), app_name="app", session_service=service)
            async with runner.run_async(**PLACE, new_message="go") as run:
                await read_run(run, diary, check_held=True)
            await check_aftermath(service, diary)

    trio.run(main)


@scenarios
@pytest.mark.parametrize("how", ["break", "raise"])
def test_a_caller_may_leave_after_any_event(agent: str, kind: str, how: str, tmp_path: Path) -> None:
    """Leaving after the n-th event, by `break` or with an exception, keeps the promises and the exception's type."""
    stores = Store(kind, tmp_path)

    async def main(store: Store, diary: Diary, events: int) -> bool:
        async with store.opened() as service:
            runner = Runner(agent=AGENTS[agent](diary), app_name="app", session_service=service)
            tasks_before = trio.lowlevel.current_statistics().tasks_living
            left = events == 0
            with pytest.raises(KeyError) if how == "raise" else nullcontext():
                async with runner.run_async(**PLACE, new_message="go") as run:
                    while not left and (event := await anext(run, None)) is not None:
                        diary.seen.append(event)
                        left = len(diary.seen) == events
                    if how == "raise":
                        raise KeyError(events)
            assert trio.lowlevel.current_statistics().tasks_living == tasks_before
            await check_aftermath(service, diary)
            return left

    events = 0
    left = True
    while left:
        store, diary = stores.fresh(), Diary()
        left = trio.run(main, store, diary, events)
        trio.run(check_reopened, store)
        events += 1
    assert events > 3


@failures
def test_a_store_that_fails_at_any_commit_fails_the_run(agent: str, kind: str, mode: str, tmp_path: Path) -> None:
    """The n-th commit fails: the run raises that error with its own type, and the session is usable again."""
    stores = Store(kind, tmp_path)

    async def main(store: Store, diary: Diary, number: int) -> int:
        counters: list[list[int]] = []
        async with store.opened(lambda service: counters.append(failing_commit(service, number, mode))) as service:
            runner = Runner(agent=AGENTS[agent](diary), app_name="app", session_service=service)
            try:
                async with runner.run_async(**PLACE, new_message="go") as run:
                    await read_run(run, diary)
            except StorageError:
                pass
            else:
                # a tool's failed emit is told to the model, and the run goes on
                assert counters[0][0] < number or (agent == "tool turn" and mode == "refused")
            commits = counters[0][0]
            counters[0][0] = 1_000_000  # from here on the store works
            await check_aftermath(service, diary)
            return commits

    number = 1
    while True:
        store, diary = stores.fresh(), Diary()
        commits = trio.run(main, store, diary, number)
        trio.run(check_reopened, store)
        if commits < number:
            break
        number += 1
    assert number > 3


@scenarios
def test_a_store_that_fails_at_any_operation_leaves_a_usable_session(agent: str, kind: str, tmp_path: Path) -> None:
    """Opening, storing or finishing fails: only a failing commit or opening is raised, and the next turn works."""
    stores = Store(kind, tmp_path)

    async def main(store: Store, diary: Diary, number: int) -> int:
        counters: list[list[int]] = []
        async with store.opened(lambda service: counters.append(failing_operation(service, number))) as service:
            runner = Runner(agent=AGENTS[agent](diary), app_name="app", session_service=service)
            tasks_before = trio.lowlevel.current_statistics().tasks_living
            with suppress(StorageError):
                async with runner.run_async(**PLACE, new_message="go") as run:
                    await read_run(run, diary)
            assert trio.lowlevel.current_statistics().tasks_living == tasks_before
            operations = counters[0][0]
            counters[0][0] = 1_000_000
            await check_aftermath(service, diary)
            return operations

    number = 1
    while trio.run(main, store := stores.fresh(), Diary(), number) >= number:
        trio.run(check_reopened, store)
        number += 1
    assert number > 5


@pytest.mark.parametrize(
    ("kind", "every"),
    [("memory", 1), ("process", 4), *(pytest.param(kind, 1, marks=pytest.mark.slow) for kind in KINDS[1:])],
)
def test_the_recovery_of_the_next_run_may_be_interrupted_at_any_step(kind: str, every: int, tmp_path: Path) -> None:
    """A run died with open calls; the next is cancelled at each step of its recovery, and the one after it works."""
    stores = Store(kind, tmp_path)

    async def die(store: Store) -> None:
        """The store fails for good after the calls are stored: they stay open, as after the death of a process."""
        async with store.opened(lambda service: failing_commit(service, 3, "refused", for_good=True)) as service:
            runner = Runner(agent=AGENTS["tool turn"](Diary()), app_name="app", session_service=service)
            with pytest.raises(StorageError):
                async with runner.run_async(**PLACE, new_message="go") as run:
                    await run.wait()
            events = await service.read_events(app_name="app", **PLACE)
            assert len(open_calls(events)) == 3

    def attempt(step: int) -> int:
        store, diary = stores.fresh(), Diary()
        trio.run(die, store)
        steps = trio.run(interrupted_run, store, "one agent", diary, step)
        trio.run(_check_recovered, store)
        store.remove()
        return steps

    interrupted, uninterrupted = enumerate_steps(attempt, every=every)
    print(f"recovery on {kind}: {interrupted} interruption points, {uninterrupted} steps uninterrupted")
    assert interrupted >= uninterrupted


async def _check_recovered(store: Store) -> None:
    async with store.opened() as service:
        await check_new_turn(service)
        events = await service.read_events(app_name="app", **PLACE)
        assert [event.seq for event in events] == list(range(len(events)))
        kinds = [
            response.response["error"]["type"] for event in events for response in event.get_function_responses()
        ]
        assert kinds == ["outcome_unknown"] * 3
