"""
Who may write a session, within one process: one at a time, in the order they asked.

Waiting for a session that can never become free would hang for ever, so it is refused at once (see `_deadlocks.py`).

All of this lives in one `trio.run` and disappears with it. Across processes the lease decides (see `_sqlite`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from contextvars import ContextVar
from typing import Any

import trio

from ..errors import SessionBusyError

__all__ = ["INSIDE", "Hold", "acquire", "acquire_free"]


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
    __slots__ = ("inside", "task")

    def __init__(self, task: trio.lowlevel.Task, inside: set[Hold]) -> None:
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


def _waits() -> list[tuple[Hold, set[Hold]]]:
    """Who holds what each waiting task waits for, and the runs that cannot end before it goes on."""
    gates = _gates().values()
    return [(gate.holder, waiter.inside) for gate in gates if gate.holder is not None for waiter in gate.waiters]


def acquire_free(key: Hashable) -> Hold | None:
    """Take the session's turn if nobody has it, without a checkpoint; else return None."""
    gate = _gates().setdefault(key, _Gate(key))
    if gate.holder is not None:
        return None
    gate.holder = Hold(gate, trio.lowlevel.current_task())
    return gate.holder


async def acquire(key: Hashable, name: str, *, reject: bool = False) -> Hold:
    """
    Wait for the session's turn and take it. A checkpoint; cancelling it leaves nothing behind.

    Raises:
        SessionBusyError: It is held and *reject* is set, or waiting could never end.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    hold = acquire_free(key)
    if hold is not None:
        await trio.lowlevel.cancel_shielded_checkpoint()
        return hold
    task, gate = trio.lowlevel.current_task(), _gates()[key]
    assert gate.holder is not None, "else its turn was free"
    from ._deadlocks import holds_around, never_ends  # few programs ask for a session that is being written

    holds = [other.holder for other in _gates().values() if other.holder is not None]
    inside = holds_around(task, holds, [hold for hold in task.context.get(INSIDE, ()) if hold.is_held()])
    if never_ends(gate.holder, _waits(), inside):
        msg = (
            f"{name} is being written by a run that cannot end before this call returns; "
            "call it after that run, use another session, or emit events through the run's own context"
        )
        raise SessionBusyError(msg)
    if reject:
        msg = f'{name} is being written by another run; wait with RunConfig(on_busy="wait") or try again later'
        raise SessionBusyError(msg)
    waiter = _Waiter(task, inside)
    gate.waiters.append(waiter)

    def abort(_: Any) -> trio.lowlevel.Abort:
        gate.waiters.remove(waiter)
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)
    assert gate.holder is not None
    return gate.holder
