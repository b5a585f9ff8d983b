"""
One call of a turn, with the hooks around it: those of the plugins, then the agent's own.

They share the call's context; each attempt of the tool has its own on top of it. Whatever stops the call, `outcome` is
what it is answered with; None: it was cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._json import freeze, thaw
from ..errors import InvalidValueError
from ..runtime import InvocationContext, ToolContext
from ..runtime._failure import is_pause
from ..runtime._hooks import Hook
from ..sessions._concurrent import ConcurrentWrites
from ..types import FunctionCall, FunctionResponse, Part, id_of
from ._attempts import Attempts
from ._base import BaseTool
from ._outcome import Failure, Outcome, Result, result_of

if TYPE_CHECKING:
    from ._permission import Permission

__all__ = ["ToolCall"]


class ToolCall:
    """See the module. *index* is its place among the calls of its turn."""

    def __init__(
        self,
        context: InvocationContext,
        call: FunctionCall,
        tools: Mapping[str, BaseTool],
        concurrent: ConcurrentWrites,
        index: int,
    ) -> None:
        self.call = call
        self.id = id_of(call)
        self.outcome: Outcome | None = None
        self.is_waiting = False
        """Whether it stays open, until somebody outside has answered."""
        self.is_begun = False
        """Whether the tool has returned, and the result comes later, from somebody else."""
        self.initial_result: Any = None
        """What it has returned then."""
        self.context: ToolContext = context._for_call(self.id, call.name, concurrent, index)
        tool = tools.get(call.name)
        if tool is None:
            from ._unknown import UnknownTool  # few models make up tools

            tool = UnknownTool(call.name, tools)
        elif call.args_text is not None:
            from ._unreadable import UnreadableCall  # few models write what is no JSON

            tool = UnreadableCall(call)
        self.tool = tool
        self.attempts = Attempts(self.context, self.tool)

    @cached_property
    def _permission(self) -> Permission:
        from ._permission import Permission  # few calls need one

        return Permission(self.context, self.call, self.tool)

    @property
    def was_made(self) -> bool:
        """Whether the tool was called."""
        return self.attempts.made > 0

    async def run(self) -> None:
        """Run the tool and the hooks around it. What a hook raises leaves; of a tool only a FatalError does."""
        replayer = self.context._invocation.replayer
        try:
            await self.make()
            if self.context._requested is not None and self.is_waiting:
                await self._permission.ask_unless_remembered(self)
        finally:
            if replayer is not None:
                replayer.end_call(self.id)
            if self.attempts.start is not None:
                self.attempts.start.begin()
            self.attempts.withdraw()
            self.context._close(f"the call {self.call.id} of {self.call.name!r} has ended")

    async def make(self) -> None:
        """Do what the module says, until there is an outcome, or it waits."""
        try:
            await self._make()
            if isinstance(self.outcome, Failure) and self.outcome.error is not None:
                from ._failed import end_failed  # few tools fail

                end_failed(self, self.outcome.error)
        except BaseException as error:
            if not is_pause(error):
                if self.outcome is None and not self.is_waiting:
                    from ..runtime._questions import has_asked  # few calls are stopped

                    self.is_waiting = has_asked(self.context)
                raise
            self.is_waiting, self.outcome = True, None

    async def _make(self) -> None:
        context = self.context
        replayer, before = context._invocation.replayer, context._invocation.live.open_calls.get(self.id)
        self.is_waiting = before is not None and before.pending == "waits"  # since an earlier run
        if self.is_waiting:
            return
        if replayer is not None:
            replayer.has_new = True  # a run that ends from here on may have made the call
        if replayer is not None and self.id in replayer.record.open_before:
            self.outcome = await self._permission.to_make_again()
            if self.outcome is not None:
                return
        args: dict[str, Any] = thaw(self.call.args) if replayer is None else self._permission.edited_args()
        value = await self.ask_hooks("before_tool_callback", args)
        if value is not None:
            self.outcome = result_of(value, self.call.name)
        elif context.end_invocation:
            self.outcome = Failure("cancelled", "the invocation was ended before the call began")
        elif await self._is_allowed(args):
            if replayer is not None:
                args = self._permission.allowed_args(args)
            try:
                await self.attempts.run(freeze(args, "args") if any(self._hooks("before_tool_callback")) else args)
            finally:
                self.outcome = self.attempts.outcome
            context._cannot_wait = "after a tool has been called: the call would be made again"
            if isinstance(self.outcome, Failure) and self.outcome.error is not None:
                from ._failed import ask_about  # few tools fail

                await ask_about(self, args, self.outcome.error)
        if isinstance(self.outcome, Result) and any(self._hooks("after_tool_callback")):
            returned = self.outcome.value
            value = await self.ask_hooks("after_tool_callback", args, tool_response=returned)
            if value is not None or returned is not self.outcome.told:  # what is not frozen may be changed by now
                self.outcome = result_of(returned if value is None else value, self.call.name)
        if isinstance(self.outcome, Result) and self.tool.is_long_running:
            self.initial_result, self.outcome = self.outcome.told, None
            self.is_begun = self.is_waiting = True

    async def _is_allowed(self, args: dict[str, Any]) -> bool:
        """Whether the call may be made; if not, it has its outcome."""
        try:
            required = await self.tool.needs_confirmation(args, self.context)
        except Exception as error:
            self.fail(error)
            return False
        if required or self.context._requested is not None or self.context.is_resumed:
            self.outcome = await self._permission.to_make(args, is_required=required)
        return self.outcome is None

    def _hooks(self, name: str) -> tuple[Sequence[Hook], Sequence[Hook]]:
        return self.context._invocation.program.plugins.get(name, ()), getattr(self.context._agent, name)

    async def ask_hooks(self, name: str, args: dict[str, Any], **more: Any) -> Any:
        """Ask the hooks of this name; those of plugins call two arguments by other names."""
        plugins, own = self._hooks(name)
        if not (plugins or own):
            return None
        from ._hooks_around import ask_around  # few calls have hooks around them

        return await ask_around(self, plugins, own, args, more)

    # --- when it has ended

    def fail(self, error: Exception) -> None:
        """Answer it with an error after all."""
        self.is_waiting = False
        self.outcome = Failure(type(error).__name__, str(error), error)

    def merge_into(self, context: InvocationContext) -> None:
        """
        Merge what it has written and saved into the context of its agent; where it does not fit, the call has failed.

        A key whose value replaces what another call has written is a conflict, which the next event names.
        """
        try:
            writes = self.context.state.pending()
            context.state.merge(writes)
        except (InvalidValueError, TypeError) as error:  # the latter by a schema
            from ._failed import tell_failed  # few tools write what does not fit

            tell_failed(self.context, self.call.name, error)
            self.fail(error)
            writes = {}
        concurrent, index = self.context._position.concurrent[-1]
        context._conflicts += concurrent.conflicts(index, writes)
        concurrent.add(index, writes)
        self.context.state.settle(self.context.state.pending())
        if self.context._draft is not None:
            context.actions.merge_artifacts(self.context._draft)

    def response(self) -> FunctionResponse:
        """What it is answered with."""
        outcome = self.outcome or Failure("cancelled", "the call was cancelled before it ended")
        parts: Sequence[Part] = ()
        if isinstance(outcome, Result):
            response, parts = outcome.response, outcome.parts
        else:
            from ..sessions._recovery import failure_response  # few calls fail

            text = outcome.message.encode("utf-8", "replace").decode()
            response = freeze(failure_response(outcome.kind, text))
        return FunctionResponse(id=self.call.id, name=self.call.name, response=response, parts=parts)
