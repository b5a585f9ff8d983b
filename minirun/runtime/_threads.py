"""Synchronous code in worker threads, which nobody can stop: waited for a little while, then left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from ._invocation import Invocation

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
        self.has_returned = False
        """Whether nothing runs in the thread any more, be it after everybody has gone."""
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
    invocation: Invocation, call: Callable[[], Any], on_cancel: Callable[[LateOutcome], None]
) -> Any:
    """
    Run *call* in a worker thread.

    A thread cannot be stopped. When this is cancelled, the thread is waited for, up to `RunConfig.thread_grace_s`; what
    it gave by then is in what *on_cancel* was called with. After that it is abandoned, and nobody knows what it does:
    it gives its place to the next one, and counts as abandoned until it has returned.
    If it has not begun, because all threads are taken, it never does.

    Raises:
        ThreadsExhaustedError: Too many abandoned threads still run. The call has not begun.
    """
    late, limits = LateOutcome(), invocation.program.tool_limits
    shield = trio.CancelScope(shield=True)
    done = trio.Event()

    def work() -> Any:
        try:
            return call() if late.begin() else None
        finally:
            late.has_returned = True
            limits.abandoned.discard(late)

    async def watch() -> None:
        with shield:
            try:
                limits.check_threads()
                await limits.take_thread()
                try:
                    limits.check_threads()  # there may have been a wait
                    own = trio.CapacityLimiter(1)  # in a shared one a thread that is abandoned would keep its place
                    late.value = await invocation.env.run_sync(work, limiter=own, abandon_on_cancel=True)
                finally:
                    limits.threads.release()
            except Exception as error:
                late.error = error
            late.finished = True
        if shield.cancelled_caught and not late.revoked:
            from ._abandoned import note_abandoned  # few threads go on alone

            note_abandoned(invocation, late, call)
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
                shield.deadline = trio.current_time() + invocation.run_config.thread_grace_s
            raise
    if late.error is not None:
        raise late.error
    return late.value
