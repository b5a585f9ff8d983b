"""Failures that are no ordinary exceptions: what cannot say what it is, and what is no failure anywhere else."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import trio

from minirun import BaseAgent, InvocationContext, LlmAgent, Runner
from minirun.errors import StrayCancellationError
from minirun.simulation import SeededChoices, UnreadableError, World
from minirun.testing import ScriptedLlm, call

from .stores import explore, simulate

MEMORY = {"storage": "memory"}


class Unreadable(Exception):
    """Cannot say what it is."""

    raises: type[BaseException] = ValueError

    def __repr__(self) -> str:
        raise self.raises("no text")


class Exiting(Unreadable):
    """Exits where it is to say what it is."""

    raises = SystemExit


class Interrupting(Unreadable):
    """Raises what Ctrl-C does."""

    raises = KeyboardInterrupt


FAILURE: ContextVar[type[Unreadable]] = ContextVar("what the scenario fails with")


async def fails(world: World) -> None:
    raise FAILURE.get()


async def fails_in_a_nursery(world: World) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, world)


async def fails_in_an_agent(world: World) -> None:
    class Failing(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await fails(world)

    await world.say(world.runner(lambda: Failing(name="failing")), "ada", "hello")


async def fails_beside_another(world: World) -> None:
    async def fail() -> None:
        raise FAILURE.get()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)
        nursery.start_soon(fail)


@pytest.mark.parametrize("kind", [Unreadable, Exiting, Interrupting])
@pytest.mark.parametrize("scenario", [fails, fails_in_a_nursery, fails_in_an_agent, fails_beside_another])
def test_an_exception_that_cannot_say_what_it_is_is_told_by_its_type(
    scenario: Callable[[World], Any], kind: type[Unreadable]
) -> None:
    """
    trio calls its nurseries corrupted, for it puts the `repr` of what a task fails with into its reasons. What exits or
    interrupts there ends no search: the next seeds are tried.
    """

    async def with_kind(world: World) -> None:
        FAILURE.set(kind)
        await scenario(world)

    found = list(explore(with_kind, [0, 1], MEMORY))
    assert len(found) == 2
    for explored in found:
        failure = explored.outcome.failure
        assert isinstance(failure, UnreadableError)
        assert isinstance(failure.__cause__, kind)
        assert f"failed with {kind.__name__}, which cannot say what it is" in str(failure)
        assert "no text" in str(failure)
        assert not any(explored.outcome.picks)


@pytest.mark.parametrize("raises", [SystemExit, KeyboardInterrupt])
def test_a_tool_whose_exception_exits_where_it_says_what_it_is_fails_its_seed(raises: type[BaseException]) -> None:
    """The model is told what a tool fails with; so it is asked in the middle of a run."""

    class SilentError(Exception):
        def __str__(self) -> str:
            raise raises

    def fail() -> None:
        """Fail."""
        raise SilentError

    async def scenario(world: World) -> None:
        agent = LlmAgent(name="a", model=ScriptedLlm([call("fail")]), tools=[fail])
        await world.say(world.runner(agent), "ada", "hello")

    failure = simulate(scenario, SeededChoices(1), storage="memory").failure
    assert isinstance(failure, UnreadableError)
    assert isinstance(failure.__cause__, SilentError)


def test_what_fails_while_an_unreadable_one_is_handled_is_told_itself() -> None:
    """Only what trio has made of such an exception is replaced."""

    async def scenario(world: World) -> None:
        try:
            raise Unreadable
        except Unreadable:
            raise KeyError("told")  # noqa: B904 - it is the context that matters

    failure = simulate(scenario, SeededChoices(1), storage="memory").failure
    assert repr(failure) == "KeyError('told')"


# --- a cancellation that nobody has asked for -------------------------------------------------------------------------


async def kept_cancelled() -> trio.Cancelled:
    """What a scope has raised that is over."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            return cancelled
    raise AssertionError


async def strays(world: World) -> None:
    raise await kept_cancelled()


async def strays_in_a_group(world: World) -> None:
    raise BaseExceptionGroup("no nursery's", [await kept_cancelled()])


async def strays_where_it_is_hosted(world: World) -> None:
    async def work(runner: Runner) -> None:
        raise await kept_cancelled()

    world.host(world.runner(LlmAgent(name="a", model=ScriptedLlm([]))), work)
    await trio.sleep_forever()


async def strays_in_a_check(world: World) -> None:
    cancelled = await kept_cancelled()

    def check() -> None:
        raise cancelled

    world.always(check)
    await world.sleep(1)


async def strays_in_a_check_at_the_end(world: World) -> None:
    cancelled = await kept_cancelled()

    def check() -> None:
        raise cancelled

    world.eventually(check)


async def cancels_the_world(world: World) -> None:
    nursery = trio.lowlevel.current_task().parent_nursery
    assert nursery is not None
    nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    "scenario",
    [
        strays,
        strays_in_a_group,
        strays_where_it_is_hosted,
        strays_in_a_check,
        strays_in_a_check_at_the_end,
        cancels_the_world,
    ],
)
def test_a_cancelled_that_nothing_has_asked_for_fails_its_seed(scenario: Callable[[World], Any]) -> None:
    """The nurseries around a scenario would take it for their own, so the seed would pass in the middle of its test."""
    found = list(explore(scenario, [0, 1], MEMORY))
    assert [type(each.outcome.failure) for each in found] == [StrayCancellationError, StrayCancellationError]
    outcome = simulate(scenario, SeededChoices(3), storage="memory")
    assert isinstance(outcome.failure, StrayCancellationError)


def test_a_scenario_may_cancel_what_it_likes() -> None:
    """Where a scope of its own has asked for it, a Cancelled goes as far as that, and the seed passes."""

    async def scenario(world: World) -> None:
        with trio.move_on_after(1) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await world.sleep(1)
            nursery.cancel_scope.cancel()

    assert simulate(scenario, SeededChoices(1), storage="memory").failure is None


def test_causes_that_go_in_a_circle_are_told_as_they_are() -> None:
    """The failure is the one that was raised, however its causes lead back to it."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    async def scenario(world: World) -> None:
        raise first

    outcome = simulate(scenario, SeededChoices(0), storage="memory")
    assert outcome.failure is first
    with pytest.raises(ValueError, match="first"):
        outcome.check()


class Recursive(Exception):
    """Says itself what it is, for ever."""

    def __str__(self) -> str:
        return str(self)


def test_an_exception_that_recurses_where_it_says_what_it_is_fails_alike_at_every_depth() -> None:
    """Two runs with stacks of different depths come to the same failure."""

    async def scenario(world: World) -> None:
        raise Recursive

    def digest_at(depth: int) -> str:
        if depth:
            return digest_at(depth - 1)
        return simulate(scenario, SeededChoices(0), storage="memory").digest

    assert len({digest_at(depth) for depth in range(5)}) == 1
    [explored] = explore(scenario, [0], MEMORY)
    assert isinstance(explored.outcome.failure, UnreadableError)
