"""Synchronous code in worker threads, which nobody can stop: waited for a little while, then left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from .env import Env

__all__ = ["LateOutcome", "in_thread"]


class LateOutcome:
    """
    How the thread of a cancelled call has ended: with `value` or `error` if it is `finished`.

    If it is `revoked` instead, it had not begun and never does. Else nobody knows what it does.
    """

    def __init__(self) -> None:
        self.finished = False
        self.value: Any = None
        self.error: Exception | None = None
        self.revoked = False
        self._ticket = [None]  # for the thread that begins or the task that revokes, whoever takes it first

    def begin(self) -> bool:
        """Say that the thread begins; False if it must not any more."""
        return self._take_ticket()

    def revoke(self) -> bool:
        """Keep the thread from beginning; False if it has begun."""
        self.revoked = self._take_ticket()
        return self.revoked

    def _take_ticket(self) -> bool:
        try:
            self._ticket.pop()  # in CPython no other thread comes between
        except IndexError:
            return False
        return True


async def in_thread(
    env: Env,
    call: Callable[[], Any],
    on_cancel: Callable[[LateOutcome], None],
    *,
    limiter: trio.CapacityLimiter,
    grace_s: float,
) -> Any:
    """
    Run *call* in a worker thread.

    A thread cannot be stopped. When this is cancelled, the thread is waited for, up to *grace_s* seconds; what it gave
    by then is in what *on_cancel* was called with. After that it is abandoned, and nobody knows what it does. If it has
    not begun, because *limiter* has no thread left for it, it never does.
    """
    late, shield = LateOutcome(), trio.CancelScope(shield=True)
    done = trio.Event()

    def work() -> Any:
        return call() if late.begin() else None

    async def watch() -> None:
        with shield:
            try:
                late.value = await env.run_sync(work, limiter=limiter, abandon_on_cancel=True)
            except Exception as error:
                late.error = error
            late.finished = True
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        try:
            await done.wait()
        except trio.Cancelled:
            on_cancel(late)
            if late.revoke():
                shield.cancel()
            else:
                shield.deadline = trio.current_time() + grace_s
            raise
    if late.error is not None:
        raise late.error
    return late.value
