"""
One call of a tool, attempted until it has an outcome to stand by.

    wait for the turn ─► attempt, for at most timeout_s ─► a result: keep its state and actions
          ▲                    │
          │                    ▼
          └───── delay ◄── a failure, if its RetryConfig has another attempt for it

Every attempt has a context of its own, on top of the call's: it starts from the state as it was, and what a failed one
wrote is gone, except what its own events have carried. All of them have one `function_call_id`.

`outcome` is always what the call is to be answered with, were it cancelled now; None says just that it was. Only a
FatalError, what a hook has raised, and what is no `Exception`, is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._json import thaw
from ..errors import InvalidValueError
from ..runtime import ToolContext
from ..runtime._failure import Pause
from ._base import BaseTool
from ._outcome import Failure, Outcome, Result, result_of

if TYPE_CHECKING:
    from ._starts import Start

__all__ = ["Attempts"]


class Attempts:
    """
    A call that is about to be made. It stands in line for its tool from here on, so it has to `run`.

    Args:
        context: The call's own context. What the successful attempt has written is merged into it.
        tool: The tool.
    """

    def __init__(self, context: ToolContext, tool: BaseTool) -> None:
        self.outcome: Outcome | None = None
        self.made = 0
        self.start: Start | None = None
        """If there are other calls in the turn: its place among them."""
        self._context = context
        self._tool = tool
        self._slot = context._invocation.program.tool_limits.join(tool)

    def withdraw(self) -> None:
        """Do not make it after all."""
        self._slot.leave()

    async def run(self, args: Mapping[str, Any]) -> None:
        """Make the call, as often as is worth it. Each attempt gets a copy of *args*."""
        invocation, retry = self._context._invocation, self._tool.retry
        try:
            while True:
                if not self._slot.is_free:
                    from ._starts import wait_for_slot  # few tools have a limit

                    await wait_for_slot(self._context, self._slot, self.start)
                await self._attempt(args)
                if self.start is not None:
                    self.start.begin()  # also where it has failed before: nobody waits for another attempt
                self._slot.leave()
                failure = self.outcome
                if retry is None or not isinstance(failure, Failure) or failure.is_final or failure.error is None:
                    return
                if self.made >= retry.max_attempts or not retry.covers(failure.error):
                    return
                from ._failed import tell_retried  # few attempts fail

                tell_retried(self._context, self._tool.name, failure.error, self.made)
                path = f"retry of {self._context._path}"
                await invocation.env.sleep(retry.delay_s(self.made, invocation.env.random(path)))
                if invocation.end_invocation:
                    return
                self._slot = invocation.program.tool_limits.join(self._tool)
        finally:
            self._slot.leave()

    async def _attempt(self, args: Mapping[str, Any]) -> None:
        self.made += 1
        self.outcome = None
        context = self._context._for_attempt()
        try:
            await self._begin(context)
            self.outcome = await self._call_within_time(context, args)
            if context._requested is not None and context.tool_confirmation is None:
                self._context._requested, self.outcome = context._requested, None  # somebody has to allow it first
                raise Pause("for a confirmation")
            if isinstance(self.outcome, Result):  # it stands, even if this is cancelled
                await context._invocation.env.point(f"result of {context._path}")
        except Exception as error:
            self.outcome = self._failed(error)
        except BaseException:
            if context.late is not None and self.outcome is None:
                from ._timeouts import ended_late  # few threads are left alone

                self.outcome = ended_late(self, context.late)
            raise
        finally:
            context._close(f"the call {context.function_call_id} of {self._tool.name!r} has ended")
            if isinstance(self.outcome, Result):
                self._keep(context)
            else:
                from ._failed import give_up  # few attempts fail

                give_up(context, self._context)

    async def _call_within_time(self, context: ToolContext, args: Mapping[str, Any]) -> Outcome:
        if self._tool.timeout_s is not None:
            from ._timeouts import called_within  # few tools have a limit

            return await called_within(self, self._tool.timeout_s, context, args)
        try:
            return await self._called(context, args)
        except Exception as error:
            return self._failed(error)

    async def _begin(self, context: ToolContext) -> None:
        """Wait for the calls before this one to begin. All calls of a turn can be at their points at the same time."""
        await context._invocation.env.point(f"{'tool' if self.made == 1 else 'retry of'} {context._path}")
        if self.start is not None:
            if not self.start.is_open:
                from ._starts import wait_for_turn  # most calls follow in their order

                await wait_for_turn(self._context, self.start)
            self.start.begin()

    async def _called(self, context: ToolContext, args: Mapping[str, Any]) -> Outcome:
        return self._returned(await self._tool._run(thaw(args), context))

    def _keep(self, context: ToolContext) -> None:
        try:
            self._context.state.merge(context.state.pending())
            if context._draft is not None:  # few tools set actions
                call = self._context
                call._draft = context._draft.taken_over(call._state_delta(), call._writable_check())
        except (InvalidValueError, TypeError) as error:  # the latter by a schema of the state
            self.outcome = self._failed(error)

    # --- what came of it

    def _returned(self, value: Any) -> Outcome:
        try:
            found, secrets = result_of(value, self._tool.name), self._context._invocation.secrets
            secrets.check_keys(found.response, f"result of {self._tool.name!r}")
            response = secrets.out_of(found.response)
            if response is found.response:
                return found
            return found._replace(value=response if found.is_whole else response["result"], response=response)
        except InvalidValueError as error:
            return self._failed(error)._replace(is_final=True)

    def _failed(self, error: Exception) -> Failure:
        from ._failed import failure_of  # few attempts fail

        return failure_of(self._context, error, self.made)
