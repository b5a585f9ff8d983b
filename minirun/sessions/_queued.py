"""Group commit: how a task waits until what it wants written is stored, or until it is its turn to lead a group."""

from __future__ import annotations

from collections import deque
from typing import Any

import trio

__all__ = ["Queued"]


class Queued:
    """What one task wants written. Its task sleeps until it is answered, or until it is its turn to lead."""

    __slots__ = ("begun", "done", "error", "task")

    def __init__(self) -> None:
        self.begun = False
        self.done = False
        self.error: BaseException | None = None
        self.task: trio.lowlevel.Task | None = None

    async def wait(self, queue: deque[Any]) -> None:
        """Sleep; a cancellation takes it out of the *queue*, if it is not begun."""
        self.task = trio.lowlevel.current_task()

        def abort(_: Any) -> trio.lowlevel.Abort:
            if self.begun:
                return trio.lowlevel.Abort.FAILED
            queue.remove(self)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self) -> None:
        """End the sleep, if it sleeps."""
        if self.task is not None:
            task, self.task = self.task, None
            trio.lowlevel.reschedule(task)
