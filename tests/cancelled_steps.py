"""Cancels what a test does at each of its steps in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

__all__ = ["cancelled_everywhere"]

STEPS_MAX = 400
PATIENCE_S = 120  # for what takes milliseconds


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when the task that runs in it is scheduled for the n-th time."""

    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, number: int) -> None:
        self._task, self._scope, self.left = task, scope, number

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self.left -= 1
            if self.left == 0:
                self._scope.cancel()


async def cancelled_everywhere(run: Callable[[], Awaitable[None]]) -> int:
    """Run again and again, cancelled at each of its steps in turn, until it is through before; how many there were."""
    for number in range(1, STEPS_MAX):
        with trio.fail_after(PATIENCE_S), trio.CancelScope() as scope:
            instrument = CancelAt(trio.lowlevel.current_task(), scope, number)
            trio.lowlevel.add_instrument(instrument)
            try:
                await run()
            finally:
                trio.lowlevel.remove_instrument(instrument)
        if instrument.left > 0:
            return number - 1
    raise AssertionError("it never gets through")
