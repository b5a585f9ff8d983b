"""
The calls of one turn: they run together, and are answered together, in call order, by one event.

Each call was stored before this begins, and each is answered whatever happens: with its result, its error, that it
was cancelled, or that nobody knows (promise P6). A cancelled batch stores what there is and lets the cancellation go
on. Every tool writes to a layer of its own; the layers of those that succeeded are merged in call order. So of two
calls that write one key the later one wins, if both leave it to the batch to store; what a call stores by an event of
its own, as an agent that is a tool does, counts from that commit on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from .._json import freeze, thaw
from ..errors import InvalidEventError, InvalidValueError, TransfersLimitExceededError, UnknownToolError
from ..events import Event
from ..runtime import InvocationContext, ToolContext
from ..runtime._hooks import Hook, ask
from ..runtime._place import Region
from ..runtime._recovery import failure_response
from ..types import Content, FunctionCall, FunctionDeclaration, FunctionResponse, Part
from ._attempts import Attempts, Failure, Outcome, Result, result_of
from ._base import BaseTool

__all__ = ["run_calls"]


async def run_calls(context: InvocationContext, calls: Sequence[FunctionCall], tools: Mapping[str, BaseTool]) -> Event:
    """
    Run *calls* and return the stored event that answers them.

    Raises:
        FatalError: A tool has met a limit of the run. The calls are answered all the same.
    """
    context._core.count_tool_calls(len(calls))
    region = Region()
    batch = [_Call(context, call, tools, region, index) for index, call in enumerate(calls)]
    try:
        async with trio.open_nursery() as nursery:
            for each in batch:
                nursery.start_soon(each.run, name=f"tool {each.call.name}")
        event = await context._emit(_answer(context, batch))
    except BaseException:
        with trio.CancelScope(shield=True):
            await _close(context, batch)
        raise
    for each in batch:
        if isinstance(each.outcome, Failure) and isinstance(each.outcome.error, TransfersLimitExceededError):
            raise each.outcome.error
    return event


async def _close(context: InvocationContext, batch: Sequence[_Call]) -> None:
    if any(each.call.id in context._core.live.open_calls for each in batch):
        try:
            await context._emit(_answer(context, batch), closing=True)
        except Exception:  # the store fails: the end of the run tries again and reports it
            context._core.unrecorded.update(each.call.id for each in batch if each.began)


class _Call:
    """
    One call: its context while it runs, its response afterwards.

    The hooks around it share the call's context; each attempt of the tool has its own on top of it. `outcome` is what
    the call is answered with, whatever stops it; None: it was cancelled.
    """

    def __init__(
        self,
        context: InvocationContext,
        call: FunctionCall,
        tools: Mapping[str, BaseTool],
        region: Region,
        index: int,
    ) -> None:
        self.call = call
        self.outcome: Outcome | None = None
        self.context: ToolContext = context._for_call(call.id or "", call.name, region, index)
        tool = tools.get(call.name)
        self._tool = UnknownTool(call.name, tools) if tool is None else tool
        self._attempts = Attempts(self.context, self._tool)

    async def run(self) -> None:
        """Run the tool and the hooks around it. What a hook raises leaves; of a tool only a FatalError does."""
        hooks, context = _Hooks(self.context), self.context
        args: dict[str, Any] = thaw(self.call.args)
        try:
            value = await hooks.before(self._tool, args)
            if value is not None:
                self.outcome = result_of(value, self.call.name)
            elif context.end_invocation:
                self.outcome = Failure("cancelled", "the invocation was ended before the call began", None)
            else:
                try:
                    await self._attempts.run(freeze(args, "args") if hooks.changes_args else args)
                finally:
                    self.outcome = self._attempts.outcome
                await self._recover(hooks, args)
            if isinstance(self.outcome, Result):
                value = await hooks.after(self._tool, args, self.outcome.value)
                if value is not None or hooks.sees_value:
                    self.outcome = result_of(self.outcome.value if value is None else value, self.call.name)
        finally:
            self._attempts.withdraw()
            context._close(f"the call {self.call.id} of {self.call.name!r} has ended")

    async def _recover(self, hooks: _Hooks, args: dict[str, Any]) -> None:
        if isinstance(self.outcome, Failure) and self.outcome.error is not None:
            value = await hooks.on_error(self._tool, args, self.outcome.error)
            if value is not None:
                self.outcome = result_of(value, self.call.name)

    @property
    def began(self) -> bool:
        """Whether the tool was called."""
        return self._attempts.made > 0

    def fail(self, error: Exception) -> None:
        """Answer it with an error after all."""
        self.outcome = Failure(type(error).__name__, str(error), error)

    def response(self) -> FunctionResponse:
        """What it is answered with."""
        outcome = self.outcome or Failure("cancelled", "the call was cancelled before it ended", None)
        if isinstance(outcome, Result):
            response = outcome.response
        else:
            text = outcome.message.encode("utf-8", "replace").decode()
            response = freeze(failure_response(outcome.kind, text))
        return FunctionResponse(id=self.call.id, name=self.call.name, response=response)

    def is_last_word(self) -> bool:
        """Whether its result is the agent's final answer."""
        return isinstance(self.outcome, Result) and self._tool._is_last_word(self.outcome.response)


class UnknownTool(BaseTool):
    """Stands for a tool that the model has made up."""

    def __init__(self, name: str, tools: Mapping[str, BaseTool]) -> None:
        super().__init__(name="unknown", description="")
        self.name = name
        self._known = ", ".join(tools) or "none"

    @property
    def declaration(self) -> FunctionDeclaration:
        """It has a name, and nothing else is known."""
        return FunctionDeclaration(name=self.name)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Raise UnknownToolError."""
        raise UnknownToolError(f"there is no tool {self.name!r}; the tools are: {self._known}")


class _Hooks:
    """The hooks around a call: those of the plugins, then the agent's own, which call two arguments by other names."""

    def __init__(self, context: ToolContext) -> None:
        plugins, agent = context._core.plugins, context.agent
        self._context = context
        self._before = plugins.get("before_tool_callback", ()), agent.before_tool_callback
        self._after = plugins.get("after_tool_callback", ()), agent.after_tool_callback
        self._on_error = plugins.get("on_tool_error_callback", ()), agent.on_tool_error_callback
        self.changes_args = any(self._before)
        self.sees_value = any(self._after)

    async def before(self, tool: BaseTool, args: dict[str, Any]) -> Any:
        return await self._ask(self._before, tool, args, {}, {})

    async def after(self, tool: BaseTool, args: dict[str, Any], value: Any) -> Any:
        return await self._ask(self._after, tool, args, {"result": value}, {"tool_response": value})

    async def on_error(self, tool: BaseTool, args: dict[str, Any], error: Exception) -> Any:
        return await self._ask(self._on_error, tool, args, {"error": error}, {"error": error})

    async def _ask(
        self,
        hooks: tuple[Sequence[Hook], Sequence[Hook]],
        tool: BaseTool,
        args: dict[str, Any],
        for_plugins: Mapping[str, Any],
        for_own: Mapping[str, Any],
    ) -> Any:
        plugins, own = hooks
        answer = await ask(plugins, tool=tool, tool_args=args, tool_context=self._context, **for_plugins)
        if answer is None:
            answer = await ask(own, tool=tool, args=args, tool_context=self._context, **for_own)
        return answer


def _choose_target(context: InvocationContext, batch: Sequence[_Call]) -> None:
    """Let the last call that may hand over do so; the others that would have are answered with an error."""
    context.actions.transfer_to_agent = None
    escalates = context.escalated or any(each.context.actions.escalate for each in batch)
    answers = any(each.is_last_word() for each in batch)
    for each in reversed(batch):
        target = each.context.actions.transfer_to_agent
        if target is None:
            continue
        try:
            if context.actions.transfer_to_agent is not None:
                msg = f"a later call of this turn hands over to {context.actions.transfer_to_agent!r}"
                raise InvalidEventError(msg)
            if escalates:
                raise InvalidEventError("a call of this agent ends what it works in (escalate); nobody takes over")
            if answers:
                raise InvalidEventError("a call of this turn gives the final answer; nobody takes over")
            context._place.tree.check_transfer(context.agent, target)
            context._core.check_transfers_left()
            context.actions.transfer_to_agent = target
        except (InvalidEventError, TransfersLimitExceededError) as error:
            each.fail(error)


def _answer(context: InvocationContext, batch: Sequence[_Call]) -> Event:
    """
    The event that answers the batch. What the calls have written is merged into the agent's state, in their order; a
    key whose value replaces what another call has written is a conflict, which the event names.
    """
    _choose_target(context, batch)
    for each in batch:
        try:
            writes = each.context.state.pending()
            context.state.merge(writes)
        except InvalidValueError as error:
            each.fail(error)
            writes = {}
        region, index = each.context._place.regions[-1]
        context._conflicts += region.conflicts(index, writes)
        region.wrote(index, writes)
        each.context.state.settle(each.context.state.pending())
    context.actions.skip_summarization = all(each.context.actions.skip_summarization for each in batch) or None
    context.actions.escalate = any(each.context.actions.escalate for each in batch) or None
    parts = [Part(function_response=each.response()) for each in batch]
    return Event(content=Content(role="user", parts=parts))
