"""
Who may write a session, within one process: one at a time, in the order they asked.

Waiting for a session that can never become free would hang for ever, so it is refused at once: see `_gate_line`.

All of this lives in one `trio.run` and disappears with it. Across processes the lease decides (see `_sqlite`).
"""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from ._gate_line import Waiter

__all__ = ["INSIDE", "Gate", "Hold", "acquire", "acquire_free"]


class Hold:
    """The right to write one session. Release it exactly once."""

    __slots__ = ("_gate", "nursery", "task")

    def __init__(self, gate: Gate, task: trio.lowlevel.Task) -> None:
        self._gate = gate
        self.task = task
        self.nursery: trio.Nursery | None = None  # the run's, once it has one

    def is_held(self) -> bool:
        """Whether it was not released yet."""
        return self._gate.holder is self

    def release(self) -> None:
        """Let the next one in."""
        self._gate.release()


class Gate:
    """The holder of a session, and the tasks that wait for it, in order."""

    __slots__ = ("holder", "key", "waiters")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.holder: Hold | None = None
        self.waiters: list[Waiter] = []

    def release(self) -> None:
        """Let the next one in, if there is one."""
        assert self.holder is not None
        if not self.waiters:
            self.holder = None
            del _gates()[self.key]
            return
        waiter = self.waiters.pop(0)
        self.holder = Hold(self, waiter.task)
        trio.lowlevel.reschedule(waiter.task)


# The holds of the runs that the code belongs to. The tree of tasks does not show it for what a tool's thread calls with
# `trio.from_thread`: trio runs that as a system task, in the thread's copy of the context.
INSIDE: ContextVar[tuple[Hold, ...]] = ContextVar("minirun holds", default=())

_GATES: trio.lowlevel.RunVar[dict[Hashable, Gate]] = trio.lowlevel.RunVar("minirun session gates")


def _gates() -> dict[Hashable, Gate]:
    try:
        return _GATES.get()
    except LookupError:
        gates: dict[Hashable, Gate] = {}
        _GATES.set(gates)
        return gates


def acquire_free(key: Hashable) -> Hold | None:
    """Take the session's turn if nobody has it, without a checkpoint; else return None."""
    gate = _gates().setdefault(key, Gate(key))
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
    from ._gate_line import wait_for_turn  # few programs ask for a session that is being written

    noted = [hold for hold in INSIDE.get() if hold.is_held()]
    return await wait_for_turn(_gates()[key], _gates().values(), noted, name, reject=reject)
