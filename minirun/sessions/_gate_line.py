"""Waiting for a session that somebody else in this process writes: the line at its gate. See `_gate`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import trio

from ..errors import SessionBusyError
from ._deadlocks import holds_around, never_ends

if TYPE_CHECKING:
    from ._gate import Gate, Hold

__all__ = ["Waiter", "wait_for_turn"]


class Waiter:
    """A task that waits for a session."""

    __slots__ = ("inside", "task")

    def __init__(self, task: trio.lowlevel.Task, inside: set[Hold]) -> None:
        self.task = task
        self.inside = inside  # the runs that cannot end before this task goes on


async def wait_for_turn(gate: Gate, gates: Collection[Gate], noted: Iterable[Hold], name: str, *, reject: bool) -> Hold:
    """
    Wait at a *gate* that somebody holds, and take it; cancelling it leaves nothing behind.

    Args:
        gate: That of the session.
        gates: All that there are, this one included.
        noted: The holds of the runs that the context of this task is inside of.
        name: What messages call the session.
        reject: Whether to raise instead of waiting.

    Raises:
        SessionBusyError: *reject* is set, or waiting could never end.
    """
    assert gate.holder is not None, "else its turn was free"
    task, holds = trio.lowlevel.current_task(), [each.holder for each in gates if each.holder is not None]
    inside = holds_around(task, holds, noted)
    # Who holds what each waiting task waits for, and the runs that cannot end before it goes on.
    waits = [(each.holder, waiter.inside) for each in gates if each.holder is not None for waiter in each.waiters]
    if never_ends(gate.holder, waits, inside):
        msg = (
            f"{name} is being written by a run that cannot end before this call returns; "
            "call it after that run, use another session, or emit events through the run's own context"
        )
        raise SessionBusyError(msg)
    if reject:
        msg = f'{name} is being written by another run; wait with RunConfig(on_busy="wait") or try again later'
        raise SessionBusyError(msg)
    waiter = Waiter(task, inside)
    gate.waiters.append(waiter)

    def abort(_: Any) -> trio.lowlevel.Abort:
        gate.waiters.remove(waiter)
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)
    assert gate.holder is not None
    return gate.holder
