"""
What simulations know of trio's internals. The only place that touches them.

The second layer: trio's own randomness, made to follow from a seed.

trio runs the tasks that are ready in a random order, on purpose, and offers no public way to fix it. Two names have
been in `trio._core._run` in every version since 0.12: the generator `_r`, and the flag that sorts ready tasks by age
before they are shuffled (hypothesis's and pytest-trio's plugins set it, too). Where one is missing, this says so once
and changes nothing: the schedule's gates alone still decide between two points of minirun's own.

Cancel scopes: the deadline that a task has, and whether it is shielded; and taking its shields away, so that a world
can end in which something shielded waits for ever. The clock: a `MockClock` asks itself for the time, and makes its own
jumps through `jump`. Where one of these is missing, less is told, and a world that does not end is left behind instead
of being ended.

Threads: the cache of those that wait for work, which is beside all runs. Where it is missing, one that is used by a
function that was imported by name is not seen.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
import trio._core._run as trio_run
import trio._core._thread_cache as trio_threads
from trio.testing import MockClock

__all__ = [
    "deadline_of",
    "is_cancelled",
    "is_quiet",
    "is_shielded",
    "seeded_trio",
    "stop_loop",
    "tell_turns",
    "thread_cache",
    "unshield",
    "why_not_seeded",
]

FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"


def why_not_seeded() -> str | None:
    """Why trio's order of ready tasks cannot be made to follow from a seed here; None if it can."""
    if not isinstance(getattr(trio_run, "_r", None), random.Random):
        return "trio has no generator named _r any more"
    if not hasattr(trio_run, FLAG):
        return f"trio has no flag {FLAG} any more"
    return None


class _Order(random.Random):
    """Shuffles as `random.Random` does; most of what trio lets it shuffle has one item: the tasks that get a turn."""

    told: Callable[[int], None] | None = None

    def shuffle(self, x: Any) -> None:
        """Shuffle in place."""
        if self.told is not None:
            self.told(len(x))
        if len(x) > 1:
            super().shuffle(x)


@contextmanager
def seeded_trio(seed: int | str) -> Iterator[None]:
    """In the block, let the order in which trio runs ready tasks follow from *seed*; then as it was before."""
    problem = why_not_seeded()
    if problem is not None:
        warnings.warn(f"simulations may differ between runs of one seed: {problem}", RuntimeWarning, stacklevel=3)
        yield
        return
    before = (trio_run._r, getattr(trio_run, FLAG))
    trio_run._r = _Order(f"minirun {seed}")
    setattr(trio_run, FLAG, True)
    try:
        yield
    finally:
        trio_run._r = before[0]
        setattr(trio_run, FLAG, before[1])


def tell_turns(told: Callable[[int], None] | None) -> bool:
    """
    In a `seeded_trio` block, let *told* know how many tasks get a turn, in each round of trio's loop, before they do.

    It costs less than an instrument, which is called for each of them. False where nobody can be told.
    """
    order = getattr(trio_run, "_r", None)
    if not isinstance(order, _Order):
        return False
    order.told = told
    return True


# --- cancel scopes ----------------------------------------------------------------------------------------------------


def _statuses(task: trio.lowlevel.Task) -> Iterator[Any]:
    """The states of the cancel scopes around a task, innermost first."""
    status = getattr(task, "_cancel_status", None)
    while status is not None:
        yield status
        status = getattr(status, "_parent", None)


def _scopes(task: trio.lowlevel.Task) -> Iterator[trio.CancelScope]:
    """The cancel scopes around a task, innermost first."""
    for status in _statuses(task):
        scope = getattr(status, "_scope", None)
        if isinstance(scope, trio.CancelScope):
            yield scope


def deadline_of(task: trio.lowlevel.Task) -> float | None:
    """When the task is cancelled by a deadline, in trio's time; `inf` for never, None where that cannot be known."""
    status = next(_statuses(task), None)
    effective = getattr(status, "effective_deadline", None)
    return effective() if callable(effective) else None


def is_cancelled(task: trio.lowlevel.Task) -> bool:
    """Whether what a task waits for next is cancelled; it is looked up where trio has noted it, if it has."""
    status = getattr(task, "_cancel_status", None)
    cancelled = getattr(status, "effectively_cancelled", None)
    return bool(deadline_of(task) == -float("inf") if cancelled is None else cancelled)


def is_shielded(task: trio.lowlevel.Task) -> bool:
    """Whether a shield is around a task; False also where that cannot be known."""
    return any(scope.shield for scope in _scopes(task))


def unshield(task: trio.lowlevel.Task) -> bool:
    """Take the shields around a task away; return whether there was one."""
    shields = [scope for scope in _scopes(task) if scope.shield]
    for scope in shields:
        scope.shield = False
    return bool(shields)


# --- the clock and the loop -------------------------------------------------------------------------------------------


def stop_loop(clock: MockClock, why: Callable[[], BaseException]) -> None:
    """Let `trio.run` end at once, with a TrioInternalError, and leave its tasks behind where they stand."""

    def refuse() -> float:
        raise why()

    clock.current_time = refuse  # type: ignore[method-assign]


def is_quiet() -> bool:
    """
    Whether nothing is left for the next round of trio's loop but to ask the clock: no task is ready, no deadline has
    passed, no other thread or signal wants something. False also where that cannot be known.
    """
    try:
        runner: Any = trio_run.GLOBAL_RUN_CONTEXT.runner
        queue = runner.entry_queue
        if runner.runq or queue.queue or queue.idempotent_queue:
            return False
        return bool(runner.deadlines.next_deadline() > runner.clock.current_time())
    except AttributeError:
        return False


def thread_cache() -> type | None:
    """The type of what keeps threads that wait for work; None if trio has none any more."""
    return getattr(trio_threads, "ThreadCache", None)
