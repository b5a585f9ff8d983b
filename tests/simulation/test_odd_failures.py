"""Failures that are no ordinary exceptions: what cannot say what it is, and what is no failure anywhere else."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import trio

from minirun import BaseAgent, InvocationContext, LlmAgent
from minirun.simulation import SeededChoices, UnreadableError, World, simulate
from minirun.simulation._explore import checked_options, explore
from minirun.testing import ScriptedLlm, call

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

    found = list(explore(with_kind, [0, 1], checked_options(MEMORY)))
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
