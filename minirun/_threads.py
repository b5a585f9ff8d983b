"""Synchronous code in worker threads, which nobody can stop: waited for a little while, then left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from .env import Env

__all__ = ["LateOutcome", "Threads", "in_thread"]


class Threads:
    """
    The worker threads of one runner.

    Args:
        at_once: How many calls may run at once; and how many threads that nobody waits for any more may still run
            beside them when another one begins.
    """

    def __init__(self, at_once: int) -> None:
        self.limiter = trio.CapacityLimiter(at_once)
        self.abandoned: set[LateOutcome] = set()
        """The threads that nobody waits for any more, and that still run."""

    async def take(self) -> None:
        """Take a place for a thread; its holder releases `limiter`. A checkpoint only if it has to wait."""
        try:
            self.limiter.acquire_nowait()
        except trio.WouldBlock:
            await self.limiter.acquire()

    def check(self) -> None:
        """Raise ThreadsExhaustedError if so many abandoned threads still run that no other may begin."""
        if len(self.abandoned) >= self.limiter.total_tokens:
            from ._abandoned import exhausted  # few threads are abandoned

            raise exhausted(len(self.abandoned))


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
        self.has_returned = False
        """Whether nothing runs in the thread any more, be it after everybody has gone."""
        self._ticket = [None]  # for the thread that begins or the task that revokes: the first of them takes it

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
    threads: Threads,
    grace_s: float,
    on_abandoned: Callable[[], None],
) -> Any:
    """
    Run *call* in a worker thread.

    A thread cannot be stopped. When this is cancelled, the thread is waited for, up to *grace_s* seconds; what it gave
    by then is in what *on_cancel* was called with. After that it is abandoned, and nobody knows what it does: it gives
    its place to the next one, counts as abandoned until it has returned, and *on_abandoned* is called. If it has not
    begun, because all *threads* are taken, it never does.

    Raises:
        ThreadsExhaustedError: Too many abandoned threads still run. The call has not begun.
    """
    late, shield = LateOutcome(), trio.CancelScope(shield=True)
    done = trio.Event()

    def work() -> Any:
        try:
            return call() if late.begin() else None
        finally:
            late.has_returned = True
            threads.abandoned.discard(late)

    async def watch() -> None:
        with shield:
            try:
                threads.check()
                await threads.take()
                try:
                    threads.check()  # there may have been a wait
                    own = trio.CapacityLimiter(1)  # in a shared one a thread that is abandoned would keep its place
                    late.value = await env.run_sync(work, limiter=own, abandon_on_cancel=True)
                finally:
                    threads.limiter.release()
            except Exception as error:
                late.error = error
            late.finished = True
        if shield.cancelled_caught and not late.revoked:
            from ._abandoned import note_abandoned  # few threads go on alone

            note_abandoned(threads, late, call, grace_s)
            on_abandoned()
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
