"""
The calls of one turn: they run together, and are answered together, in call order, by one event.

Each call was stored before this begins, and each is answered whatever happens: with its result, its error, that it
was cancelled, or that nobody knows (promise P6). A cancelled batch stores what there is and lets the cancellation go
on. Every tool writes to a layer of its own; the layers of those that succeeded are merged in call order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from .._json import FrozenDict, freeze
from ..errors import InvalidValueError
from ..events import Event
from ..runtime import InvocationContext, ToolContext
from ..runtime._recovery import failure_response
from ..types import Content, FunctionCall, FunctionResponse, Part
from ._attempts import Attempts, Failure, Outcome
from ._base import BaseTool

__all__ = ["run_calls"]


async def run_calls(context: InvocationContext, calls: Sequence[FunctionCall], tools: Mapping[str, BaseTool]) -> Event:
    """
    Run *calls* and return the stored event that answers them.

    Raises:
        FatalError: A tool has met a limit of the run. The calls are answered all the same.
    """
    context._core.count_tool_calls(len(calls))
    batch = [_Call(context, call, tools) for call in calls]
    try:
        async with trio.open_nursery() as nursery:
            for each in batch:
                nursery.start_soon(each.run, name=f"tool {each.call.name}")
        return await context._emit(_answer(context, batch))
    except BaseException:
        with trio.CancelScope(shield=True):
            await _close(context, batch)
        raise


async def _close(context: InvocationContext, batch: Sequence[_Call]) -> None:
    if any(each.call.id in context._core.live.open_calls for each in batch):
        try:
            await context._emit(_answer(context, batch), closing=True)
        except Exception:  # the store fails: the end of the run tries again and reports it
            pass


class _Call:
    """One call: its context while it runs, its response afterwards."""

    def __init__(self, context: InvocationContext, call: FunctionCall, tools: Mapping[str, BaseTool]) -> None:
        self.call = call
        self.response: FrozenDict = freeze(failure_response("cancelled", "the call was cancelled before it ended"))
        self.succeeded = False
        self.context: ToolContext = context._for_call(call.id or "", call.name)
        tool = tools.get(call.name)
        self._attempts = None if tool is None else Attempts(self.context, tool, call.args)
        if tool is None:
            known = ", ".join(tools) or "none"
            self._failed("unknown_tool", f"there is no tool {call.name!r}; the tools are: {known}")

    async def run(self) -> None:
        """Run the tool; only a FatalError and what is no `Exception` leave."""
        try:
            if self._attempts is not None:
                await self._attempts.run()
        finally:
            self._ended(None if self._attempts is None else self._attempts.outcome)
            self.context._close(f"the call {self.call.id} of {self.call.name!r} has ended")

    def _ended(self, outcome: Outcome | None) -> None:
        if isinstance(outcome, Failure):
            self._failed(outcome.kind, outcome.message)
        elif outcome is not None:
            value = outcome.value
            try:
                response = value if isinstance(value, dict) else {"result": value}
                self.response = freeze(response, f"result of {self.call.name!r}")
                self.succeeded = True
            except InvalidValueError as error:
                self._failed(type(error).__name__, str(error))

    def _failed(self, kind: str, message: str) -> None:
        text = message.encode("utf-8", "replace").decode()
        self.response = freeze(failure_response(kind, text))
        self.succeeded = False


def _answer(context: InvocationContext, batch: Sequence[_Call]) -> Event:
    """The event that answers the batch; the state of the successful calls is merged into the agent's."""
    for each in batch:
        if each.succeeded:
            writes = each.context.state.pending()
            try:
                context.state.merge(writes)
            except InvalidValueError as error:
                each._failed(type(error).__name__, str(error))
            each.context.state.settle(writes)
    context.actions.skip_summarization = all(each.context.actions.skip_summarization for each in batch) or None
    context.actions.escalate = any(each.context.actions.escalate for each in batch) or None
    parts = [
        Part(function_response=FunctionResponse(id=each.call.id, name=each.call.name, response=each.response))
        for each in batch
    ]
    return Event(content=Content(role="user", parts=parts))
