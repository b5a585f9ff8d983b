"""
Whether a task that asks for a session would wait for ever.

It would if it runs *inside* the run that holds the session — below it in trio's tree of tasks, or in the body of its
`async with` — or if following "this run cannot end before that task gets its session" leads back to it.

Where a task stands is read off trio's public task tree. Going up from it, a run's owner is met through one of the
owner's nurseries; nurseries nest, so a task is inside the run if that nursery is the run's own or was opened after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol, TypeVar
from weakref import WeakSet

import trio

__all__ = ["OF_THREADS", "holds_around", "never_ends"]

# Nurseries of calls that a thread waits for, as it does for those of `trio.from_thread`.
OF_THREADS: WeakSet[trio.Nursery] = WeakSet()


class _Held(Hashable, Protocol):
    """The right to write one session, as its holder has it."""

    @property
    def task(self) -> trio.lowlevel.Task:
        """The task that has it."""

    @property
    def nursery(self) -> trio.Nursery | None:
        """The run's, once it has one."""


H = TypeVar("H", bound=_Held)


def holds_around(task: trio.lowlevel.Task, holds: Iterable[H], noted: Iterable[H]) -> set[H]:
    """
    The holds of the runs that *task* is inside of, out of all *holds*.

    *noted* are those that the context of the task knows of: trio's tree does not show them for what a tool's thread
    calls with `trio.from_thread`, which trio runs as a system task.
    """
    held: dict[trio.lowlevel.Task, list[H]] = {}
    for hold in holds:
        held.setdefault(hold.task, []).append(hold)
    around: set[H] = set()
    nursery: trio.Nursery | None = None
    step: trio.lowlevel.Task | None = task
    while step is not None:
        for hold in held.get(step, ()):
            if nursery is None or _opened_within(step, nursery, hold):
                around.add(hold)
        nursery = step.parent_nursery
        if nursery is not None and (nursery in OF_THREADS or _is_systems(nursery)):
            around.update(noted)
        step = nursery.parent_task if nursery is not None else None
    return around


def _is_systems(nursery: trio.Nursery) -> bool:
    """Whether its tasks stand beside the program's main task, as calls from threads that may be abandoned do."""
    root = trio.lowlevel.current_root_task()
    return root is not None and nursery.parent_task is root and nursery is not root.child_nurseries[-1]


def _opened_within(owner: trio.lowlevel.Task, nursery: trio.Nursery, hold: _Held) -> bool:
    nested = owner.child_nurseries
    return hold.nursery in nested and nursery in nested and nested.index(nursery) >= nested.index(hold.nursery)


def never_ends(holder: H, waiting: Sequence[tuple[H, set[H]]], inside: set[H]) -> bool:
    """
    Whether *holder* waits, through however many sessions, for a run in *inside*.

    *waiting* has, for each task that waits, who holds what it waits for and which runs cannot end before it goes on.
    """
    seen: set[H] = set()
    todo = [holder]
    while todo:
        hold = todo.pop()
        if hold in inside:
            return True
        if hold not in seen:
            seen.add(hold)
            todo.extend(wanted for wanted, blocked in waiting if hold in blocked)
    return False
