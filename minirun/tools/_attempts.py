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
from typing import Any, NamedTuple, TypeAlias

import trio

from .._json import FrozenDict, freeze, thaw
from .._values import changed
from ..errors import FatalError, InvalidValueError, ToolTimeoutError
from ..runtime import ToolContext
from ..runtime._failure import Pause, first_failure, leaves
from ..runtime._threads import LateOutcome
from ._base import BaseTool

__all__ = ["Attempts", "Failure", "Outcome", "Result", "result_of"]

UNKNOWN = "outcome_unknown"


class Result(NamedTuple):
    """What a tool has returned, and the response that it makes."""

    value: Any
    response: FrozenDict


def result_of(value: Any, name: str) -> Result:
    """
    Return what the tool *name* has returned as a result.

    Raises:
        InvalidValueError: It is no JSON.
    """
    return Result(value, freeze(value if isinstance(value, dict) else {"result": value}, f"result of {name!r}"))


class Failure(NamedTuple):
    """Why a call has no result: what the model is told, and the exception behind it, if there is one."""

    kind: str
    message: str
    error: Exception | None
    is_final: bool = False
    """Whether another attempt is out of the question: this one may still be at it, or has done its work."""


Outcome: TypeAlias = Result | Failure


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
        self._context = context
        self._tool = tool
        self._args: Mapping[str, Any] = {}
        self._slot = context._core.tool_limits.join(tool)

    def withdraw(self) -> None:
        """Do not make it after all."""
        self._slot.leave()

    async def run(self, args: Mapping[str, Any]) -> Outcome:
        """Make the call, as often as is worth it, and return the outcome. Each attempt gets a copy of *args*."""
        self._args = args
        core, retry = self._context._core, self._tool.retry
        try:
            while True:
                await self._slot.wait()
                outcome = await self._attempt()
                self._slot.leave()
                if retry is None or not isinstance(outcome, Failure) or not self._is_worth_another(outcome):
                    return outcome
                path = f"retry of {self._context._path}"
                await core.env.sleep(retry.delay_s(self.made, core.env.random(path)))
                if core.end_invocation:
                    return outcome
                self._slot = core.tool_limits.join(self._tool)
        finally:
            self._slot.leave()

    def _is_worth_another(self, failure: Failure) -> bool:
        retry = self._tool.retry
        if retry is None or failure.error is None or failure.is_final or self.made >= retry.max_attempts:
            return False
        return retry.covers(failure.error)

    async def _attempt(self) -> Outcome:
        self.made += 1
        self.outcome = None
        context = self._context._new_layer()
        context.actions = changed(self._context.actions)
        try:
            self.outcome = await self._within_time(context)
            if context._asked is not None and context.tool_confirmation is None:
                self._context._asked, self.outcome = context._asked, None  # somebody has to allow it first
                raise Pause("for a confirmation")
            if isinstance(self.outcome, Result):  # it stands, even if this is cancelled
                await context._core.env.point(f"result of {context._path}")
        except Exception as error:
            self.outcome = self._failed(error)
        except BaseException:
            if context.late is not None and self.outcome is None:
                self.outcome = self._ended_late(context.late)
            raise
        finally:
            context._close(f"the call {context.function_call_id} of {self._tool.name!r} has ended")
            if isinstance(self.outcome, Result):
                self._keep(context)
            else:
                context._start_over()
                from ..runtime._artifacts import give_up  # few attempts are given up

                give_up(context, self._context)
        return self.outcome

    async def _within_time(self, context: ToolContext) -> Outcome:
        """An attempt that its time has cancelled is a timeout; one that gave a result or an error is not, even then."""
        limit = self._tool.timeout_s
        also: Exception | None = None
        if limit is None:
            try:
                return await self._called(context)
            except Exception as error:
                return self._failed(error)
        try:
            with trio.CancelScope(deadline=trio.current_time() + limit) as scope:
                return await self._called(context)
        except Exception as error:
            also = self._first(error)
            if not scope.cancelled_caught:
                return self._failed(error)
        return self._timed_out(f"the call took longer than timeout_s={limit} seconds", context.late, also)

    async def _called(self, context: ToolContext) -> Outcome:
        label = "tool" if self.made == 1 else "retry of"
        await context._core.env.point(f"{label} {context._path}")
        return self._returned(await self._tool.run_async(args=thaw(self._args), tool_context=context))

    def _keep(self, context: ToolContext) -> None:
        try:
            self._context.state.merge(context.state.pending())
            self._context.actions = context.actions
        except InvalidValueError as error:
            self.outcome = self._failed(error)

    # --- what came of it

    def _returned(self, value: Any) -> Outcome:
        try:
            found, secrets = result_of(value, self._tool.name), self._context._core.secrets
            secrets.check_keys(found.response, f"result of {self._tool.name!r}")
            response = secrets.out_of(found.response)
            if response is found.response:
                return found
            return result_of(response if isinstance(value, dict) else response["result"], self._tool.name)
        except InvalidValueError as error:
            return self._failed(error)._replace(is_final=True)

    def _failed(self, error: Exception) -> Failure:
        first = self._first(error)
        self._context._core.secrets.out_of_error(error)
        for leaf in leaves(error):
            self._context._core.forget_failure(leaf)
        message = self._context._core.secrets.text_of(first) or type(first).__name__
        return self._failure(type(first).__name__, message, first)

    def _timed_out(self, took: str, late: LateOutcome | None, also: Exception | None) -> Failure:
        kind, is_final = ToolTimeoutError.__name__, False
        if late is None:
            message = f"{took} and was cancelled" + (f"; then it failed with {self._told(also)}" if also else "")
        elif late.finished:
            how = "with a result, which was dropped" if late.error is None else f"with {self._told(late.error)}"
            message = f"{took}; its thread has ended since, {how}"
        elif late.revoked:
            message = f"{took}, waiting for a thread; it was not begun"
        else:
            kind, is_final = UNKNOWN, True
            message = f"{took} and its thread did not end in time; it may still take effect"
        return self._failure(kind, message, ToolTimeoutError(message))._replace(is_final=is_final)

    def _ended_late(self, late: LateOutcome) -> Outcome | None:
        """What became of a thread after the call was cancelled; None if it had not begun."""
        if late.finished:
            return self._returned(late.value) if late.error is None else self._failed(late.error)
        if late.revoked:
            return None
        problem = "the call was cancelled and its thread did not end in time; it may still take effect"
        return self._failure(UNKNOWN, problem, None)

    def _first(self, error: Exception) -> Exception:
        """The exception that *error* is, or the first in a group; raises one that is fatal, or a hook's."""
        hooks = self._context._core.hook_failures
        for leaf in leaves(error):
            if isinstance(leaf, FatalError) or any(leaf is failure for failure in hooks):
                raise leaf
        first = first_failure(error)
        assert isinstance(first, Exception), "what is in a group that is an Exception is one, too"
        return first

    def _failure(self, kind: str, message: str, error: Exception | None) -> Failure:
        return Failure(kind, message if self.made == 1 else f"{message} ({self.made} attempts were made)", error)

    def _told(self, error: Exception) -> str:
        return f"{type(error).__name__}: {self._context._core.secrets.text_of(error)}"
