"""
Lanes: what runs side by side below one agent, each in a branch of its own.

A ParallelAgent has one for each of its agents, a Workflow one for each run of a node. What is written in two of them is
noted as a conflict; what waits in one lets the others come to their end; what fails in one ends the others, at once or
when they have come to theirs; and when all have ended, nobody waits for what one of them has asked, unless the
invocation is paused by it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from .._workflow_errors import StrayCancellationError
from ..errors import MinirunError, ReplayError
from ..runtime import InvocationContext
from ..runtime._failure import first_failure, is_only_cancelled, is_pause, leading_failure
from ..sessions._concurrent import ConcurrentWrites

__all__ = ["ON_FAILURE", "Lanes", "no_stray_cancellation"]

ON_FAILURE = ("cancel_others", "collect")


class no_stray_cancellation:  # it is used like a function; that of contextlib writes to exceptions
    """
    Refuse a Cancelled that leaves *where* although nothing around it is cancelled: a nursery would take it for its own.

    Raises:
        StrayCancellationError: There is one.
    """

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        """Nothing is done."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and is_only_cancelled(error) and trio.current_effective_deadline() > -math.inf:
            said = f"{self._where} has raised trio.Cancelled, and nothing has cancelled it"
            raise StrayCancellationError(f"{said}; let a Cancelled go where it arises") from error


class Lanes:
    """
    The lanes below the agent of this *name*, which runs in *ctx*.

    *on_failure* is one of `ON_FAILURE`. The branch of each lane begins with `within`.
    """

    def __init__(self, ctx: InvocationContext, name: str, on_failure: str) -> None:
        self.within = f"{ctx.branch}.{name}." if ctx.branch else f"{name}."
        self.concurrent = ConcurrentWrites()
        self.failures: list[Exception] = []
        self.pauses: list[BaseException] = []
        self._ctx = ctx
        self._name = name
        self._on_failure = on_failure

    async def run(self, begin: Callable[[trio.Nursery], None]) -> None:
        """
        Let *begin* start lanes in a nursery, by `lane`, and wait until they, and those that they start, have ended.

        Raises what has failed in them; Pause, if nothing has and one waits.
        """
        failures, message = self.failures, f"branches of {self._name!r} failed"
        try:
            async with trio.open_nursery() as nursery:
                begin(nursery)
        except BaseException as error:
            found = [*failures, error]  # a cancellation does not hide them
            if isinstance(first_failure(error), Exception):
                found += await self._refused(found[0])
            if len(found) > 1:
                raise BaseExceptionGroup(message, found) from None
            raise
        if self.pauses and not (failures or self._ctx.escalated):
            raise self.pauses[0]
        failures += await self._refused(failures[0] if failures else None)
        if failures:
            raise failures[0] if len(failures) == 1 else ExceptionGroup(message, failures)

    async def lane(self, branch: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do *work*, which says what it says in *branch*, as one of the lanes: in a task of its own."""
        escalation, replayer = self._ctx._position.escalation, self._ctx._invocation.replayer
        with trio.CancelScope() as scope:
            token = escalation.enter(scope)
            try:
                with no_stray_cancellation(f"branch {branch!r}"):
                    await work()
            except Exception as error:
                if self._on_failure == "cancel_others":
                    raise
                self.failures.append(error)
            except BaseException as error:  # one that waits lets the others come to their end
                if not is_pause(error):
                    raise
                self.pauses.append(error)
            finally:
                escalation.leave(scope, token)
                if replayer is not None:
                    replayer.end_branch(branch)

    async def _refused(self, failure: BaseException | None) -> list[MinirunError]:
        """
        Withdraw the open questions of the lanes, and return the error of a store that refuses this.

        After a ReplayError they stay open: the invocation stays as it was.
        """
        if failure is not None and isinstance(leading_failure(failure), ReplayError):
            return []
        try:
            await self.withdraw()
        except MinirunError as error:
            return [error]
        return []

    async def withdraw(self) -> None:
        """
        Nobody waits any more for what a lane has asked: the others have ended them all.

        Raises:
            StorageError, StaleSessionError: See `close_calls`.
        """
        ctx, replayer = self._ctx, self._ctx._invocation.replayer
        if replayer is not None:
            replayer.join(ctx.branch, self.within)
            if replayer.record.next_in(ctx.branch) is not None:
                return  # that was then; what is open is of a later round
        still_open = [call for call in ctx._invocation.open_calls() if (call.branch or "").startswith(self.within)]
        if replayer is not None:  # also what is open of such a round that has asked before it has said anything
            still_open = [call for call in still_open if replayer.record.is_asked_below(ctx._path, call.call_id)]
        if still_open:
            from ..runtime._closing import close_calls  # few lanes leave something open

            await close_calls(ctx, still_open)
