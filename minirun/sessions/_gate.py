"""
Who may write a session, within one process: one at a time, in the order they asked.

Waiting for a session that can never become free would hang for ever, so it is refused at once. That is the case when
the waiting task runs *inside* the run that holds the session — below it in trio's tree of tasks, or in the body of
its `async with` — or when following "this run cannot end before that task gets its session" leads back to it.

Where a task stands is read off trio's public task tree. Going up from it, a run's owner is met through one of the
owner's nurseries; nurseries nest, so a task is inside the run if that nursery is the run's own or was opened after it.

All of this lives in one `trio.run` and disappears with it. Across processes the lease decides (see `_sqlite.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from contextvars import ContextVar
from typing import Any

import trio

from ..errors import SessionBusyError

__all__ = ["Hold", "acquire"]


class Hold:
    """The right to write one session. Release it exactly once."""

    __slots__ = ("_gate", "nursery", "task")

    def __init__(self, gate: _Gate, task: trio.lowlevel.Task) -> None:
        self._gate = gate
        self.task = task
        self.nursery: trio.Nursery | None = None  # the run's, once it has one

    def is_held(self) -> bool:
        """Whether it was not released yet."""
        return self._gate.holder is self

    def release(self) -> None:
        """Let the next one in."""
        self._gate.release()


class _Waiter:
    __slots__ = ("gate", "inside", "task")

    def __init__(self, gate: _Gate, task: trio.lowlevel.Task, inside: set[Hold]) -> None:
        self.gate = gate
        self.task = task
        self.inside = inside  # the runs that cannot end before this task goes on


class _Gate:
    __slots__ = ("holder", "key", "waiters")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.holder: Hold | None = None
        self.waiters: deque[_Waiter] = deque()

    def release(self) -> None:
        assert self.holder is not None
        if not self.waiters:
            self.holder = None
            del _gates()[self.key]
            return
        waiter = self.waiters.popleft()
        self.holder = Hold(self, waiter.task)
        trio.lowlevel.reschedule(waiter.task)


# The holds of the runs that the code belongs to. The tree of tasks does not show it for what a tool's thread calls with
# `trio.from_thread`: trio runs that as a system task, in the thread's copy of the context.
INSIDE: ContextVar[tuple[Hold, ...]] = ContextVar("minirun holds", default=())

_GATES: trio.lowlevel.RunVar[dict[Hashable, _Gate]] = trio.lowlevel.RunVar("minirun session gates")


def _gates() -> dict[Hashable, _Gate]:
    try:
        return _GATES.get()
    except LookupError:
        gates: dict[Hashable, _Gate] = {}
        _GATES.set(gates)
        return gates


async def acquire(key: Hashable, name: str, *, reject: bool = False) -> Hold:
    """
    Wait for the session's turn and take it. A checkpoint; cancelling it leaves nothing behind.

    Raises:
        SessionBusyError: It is held and *reject* is set, or waiting could never end.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    task = trio.lowlevel.current_task()
    gate = _gates().setdefault(key, _Gate(key))
    if gate.holder is None:
        gate.holder = Hold(gate, task)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return gate.holder
    inside = _holds_around(task)
    if _never_ends(gate, inside):
        msg = (
            f"{name} is being written by a run that cannot end before this call returns; "
            "call it after that run, use another session, or emit events through the run's own context"
        )
        raise SessionBusyError(msg)
    if reject:
        msg = f'{name} is being written by another run; wait with RunConfig(on_busy="wait") or try again later'
        raise SessionBusyError(msg)
    waiter = _Waiter(gate, task, inside)
    gate.waiters.append(waiter)

    def abort(_: Any) -> trio.lowlevel.Abort:
        gate.waiters.remove(waiter)
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)
    assert gate.holder is not None
    return gate.holder


def _holds_around(task: trio.lowlevel.Task) -> set[Hold]:
    """The holds of the runs that *task* is inside of."""
    held: dict[trio.lowlevel.Task, list[Hold]] = {}
    for gate in _gates().values():
        if gate.holder is not None:
            held.setdefault(gate.holder.task, []).append(gate.holder)
    around: set[Hold] = set()
    nursery: trio.Nursery | None = None
    step: trio.lowlevel.Task | None = task
    while step is not None:
        for hold in held.get(step, ()):
            if nursery is None or _opened_within(step, nursery, hold):
                around.add(hold)
        nursery = step.parent_nursery
        if nursery is not None and _is_systems(nursery):
            around.update(hold for hold in task.context.get(INSIDE, ()) if hold.is_held())
        step = nursery.parent_task if nursery is not None else None
    return around


def _is_systems(nursery: trio.Nursery) -> bool:
    """Whether its tasks stand beside the program's main task, as calls from threads that may be abandoned do."""
    root = trio.lowlevel.current_root_task()
    return root is not None and nursery.parent_task is root and nursery is not root.child_nurseries[-1]


def _opened_within(owner: trio.lowlevel.Task, nursery: trio.Nursery, hold: Hold) -> bool:
    nested = owner.child_nurseries
    return hold.nursery in nested and nursery in nested and nested.index(nursery) >= nested.index(hold.nursery)


def _never_ends(gate: _Gate, inside: set[Hold]) -> bool:
    """Whether what holds *gate* waits, through however many sessions, for a run in *inside*."""
    waiting = [waiter for other in _gates().values() for waiter in other.waiters]
    seen: set[Hold] = set()
    todo = [gate.holder]
    while todo:
        hold = todo.pop()
        if hold is None or hold in seen:
            continue
        if hold in inside:
            return True
        seen.add(hold)
        todo.extend(waiter.gate.holder for waiter in waiting if hold in waiter.inside)
    return False
