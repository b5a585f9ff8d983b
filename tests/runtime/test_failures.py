"""Which exception stands for a run that fails (promise P7): the first failure, with the others as notes on it."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import trio

from minirun import App, BaseAgent, InMemoryRunner, InvocationContext
from minirun.errors import CleanupTimeoutError, InvocationEndedError
from minirun.events import NO_NODE, NodeInfo
from minirun.plugins import BasePlugin
from minirun.runtime._failure import (
    Failures,
    Pause,
    add_note,
    came_of_cancellation,
    first_failure,
    is_only_cancelled,
    is_pause,
    leading_failure,
    leaves,
)

from .test_endings import cancellation, group

FIRST, SECOND = ValueError("first"), OSError("second")
STOP, EXIT, PAUSE = KeyboardInterrupt(), SystemExit(3), Pause("it waits")


def test_the_leaves_of_a_group_are_its_exceptions_in_order() -> None:
    """However deep they stand; one that is no group is its own leaf."""
    assert [*leaves(group(FIRST, group(SECOND, group(PAUSE)), STOP))] == [FIRST, SECOND, PAUSE, STOP]
    assert [*leaves(FIRST)] == [FIRST]


@pytest.mark.parametrize(
    ("errors", "leading"),
    [
        ([FIRST], FIRST),
        ([FIRST, SECOND], FIRST),
        ([SECOND, FIRST], SECOND),
        ([PAUSE, FIRST], FIRST),
        ([FIRST, STOP], STOP),
        ([FIRST, EXIT, STOP], EXIT),
        ([PAUSE, STOP, FIRST], STOP),
        ([PAUSE], PAUSE),
    ],
)
async def test_ctrl_c_leads_then_the_first_failure_then_what_else_there_is(
    errors: list[BaseException], leading: BaseException
) -> None:
    """Cancellations and pauses lead only where there is nothing else: then the first one."""
    cancelled = await cancellation()
    for error in (group(*errors), group(*errors, cancelled), group(group(*errors), group(cancelled))):
        assert leading_failure(error) is leading
    if leading is not PAUSE:
        assert leading_failure(group(cancelled, *errors)) is leading
    assert leading_failure(group(cancelled)) is cancelled


async def test_what_is_a_pause_and_what_a_cancellation() -> None:
    """Beside each other they are a pause; a failure makes neither of them."""
    cancelled = await cancellation()
    table: list[tuple[BaseException | None, bool, bool]] = [
        (cancelled, False, True), (group(cancelled, group(cancelled)), False, True), (PAUSE, True, False),
        (group(PAUSE, cancelled), True, False), (group(cancelled, group(PAUSE)), True, False),
        (group(PAUSE, FIRST), False, False), (group(cancelled, FIRST), False, False), (FIRST, False, False),
        (group(PAUSE, STOP), False, False), (None, False, False),
    ]  # fmt: skip
    for error, pauses, is_cancelled in table:
        assert is_pause(error) is pauses
        assert error is None or is_only_cancelled(error) is is_cancelled


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


async def test_the_others_are_notes_and_the_group_is_the_cause() -> None:
    """Cancellations and pauses are no failures, and stand in no note; a cause that was there stays."""
    cancelled, first, second, stop = await cancellation(), ValueError("first"), OSError("second"), KeyboardInterrupt()
    whole = group(cancelled, group(first, PAUSE), second, stop)
    assert first_failure(whole) is stop
    assert notes(stop) == ["also failed: ValueError: first", "also failed: OSError: second"]
    assert stop.__cause__ is whole
    caused = ValueError("caused")
    caused.__cause__ = second
    assert first_failure(group(caused, first)) is caused
    assert caused.__cause__ is second
    assert notes(caused) == ["also failed: ValueError: first"]
    assert notes(first) == []
    for alone in (first, PAUSE, cancelled):
        assert first_failure(alone) is alone
        assert first_failure(group(alone)) is alone
    assert (first.__cause__ is not None, PAUSE.__cause__, cancelled.__cause__) == (True, None, None)


class Frozen(Exception):
    """One that refuses to be changed, and does not say what it is."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)

    def add_note(self, note: str) -> NoReturn:
        raise TypeError(note)

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_that_refuses_to_be_changed_is_the_failure_all_the_same() -> None:
    """Nothing of that is raised in its place."""
    frozen, other = Frozen(), ValueError("other")
    assert first_failure(group(frozen, other)) is frozen
    add_note(other, frozen)
    assert notes(other) == []


async def test_what_a_cancellation_has_caused_is_known_by_its_contexts() -> None:
    """However far away; also in a group, and where a cleanup was cut off."""

    def while_handling(first: BaseException, *others: Exception) -> BaseException:
        for error in others:
            error.__context__, first = first, error
        return first

    cancelled = await cancellation()
    assert came_of_cancellation(cancelled)
    assert came_of_cancellation(while_handling(cancelled, ValueError()))
    assert came_of_cancellation(while_handling(group(ValueError(), cancelled), ValueError(), OSError()))
    assert came_of_cancellation(while_handling(CleanupTimeoutError("cut off"), ValueError()))
    assert not came_of_cancellation(while_handling(OSError(), ValueError()))
    assert not came_of_cancellation(group(ValueError(), PAUSE))


def test_a_failure_comes_from_the_first_agent_and_the_innermost_node_that_it_leaves() -> None:
    """What leaves several is noted by the first; the node of a later one is noted if the first had none."""
    failures, error, other = Failures(), ValueError(), ValueError()
    inner, outer = NodeInfo(path="w@1/a@1"), NodeInfo(path="w@1")
    nothing = (None, None, NO_NODE)
    assert failures.origin(error) == nothing
    failures.note_origin(error, "inner", "b.1")
    assert failures.origin(error) == ("inner", "b.1", NO_NODE)
    failures.note_origin(error, "outer", None, inner)
    failures.note_origin(error, "root", None, outer)
    failures.note_origin(other, "root", None, outer)
    assert failures.origin(error) == ("inner", "b.1", inner)
    failures.forget_origin(error)
    failures.forget_origin(error)
    assert (failures.origin(error), failures.origin(other)) == (nothing, ("root", None, outer))
    assert failures.abandoned_threads == 0
    for count in (1, 2):
        failures.count_abandoned()
        assert failures.abandoned_threads == count


# --- in a run


class Asks(BaseAgent):
    """Asks for what only a step has."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        async def look() -> str:
            return ctx.idempotency_key

        assert await ctx.step("inside", look)
        await look()


async def test_only_a_step_has_an_idempotency_key() -> None:
    """Outside of one there is nothing that is done again by itself."""
    async with InMemoryRunner(agent=Asks(name="a"), app_name="app") as runner:
        with pytest.raises(InvocationEndedError, match="only a step and the call of a tool have an idempotency key"):
            await runner.run_debug("go")


class Breaks(BasePlugin):
    """Fails at the end of a run."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name=name)
        self.error = error

    async def after_run_callback(self, **arguments: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise self.error


class Quiet(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        pass


async def test_of_several_hooks_that_fail_the_first_is_raised_and_all_are_called() -> None:
    """The others are notes on it, in their order."""
    errors = [ValueError("one"), OSError("two"), KeyError("three")]
    plugins = [Breaks(f"p{number}", error) for number, error in enumerate(errors)]
    async with InMemoryRunner(app=App(name="app", root_agent=Quiet(name="a"), plugins=plugins)) as runner:
        with pytest.raises(ValueError, match="one") as caught:
            await runner.run_debug("go")
    assert caught.value is errors[0]
    assert notes(errors[0]) == ["also failed: OSError: two", "also failed: KeyError: 'three'"]
