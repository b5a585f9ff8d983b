"""
The calls of one turn: they run together, and are answered together, in call order, by one event.

Each call was stored before this begins, and each is answered whatever happens: with its result, its error, that it
was cancelled, or that nobody knows (promise P6). A cancelled batch stores what there is and lets the cancellation go
on. Every tool writes to a layer of its own; the layers of those that succeeded are merged in call order. So of two
calls that write one key the later one wins, if both leave it to the batch to store; what a call stores by an event of
its own, as an agent that is a tool does, counts from that commit on.

A call may have to wait for somebody outside: for permission, for an answer, for a result that comes later. Those that
are done are answered; the others stay open, and the invocation is paused. When it is resumed, only they are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from .._json import freeze, thaw
from ..errors import InvalidEventError, InvalidValueError, TransfersLimitExceededError, UnknownToolError
from ..events import Event, EventActions
from ..flows._questions import REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, REQUEST_INPUT
from ..runtime import InvocationContext, ToolContext
from ..runtime._context import ToolConfirmation
from ..runtime._core import derived_id
from ..runtime._failure import Pause, is_pause
from ..runtime._hooks import Hook, ask
from ..runtime._place import Region, calls_around
from ..runtime._recovery import INTERRUPTED_MESSAGE, close_calls, failure_response
from ..types import Content, FunctionCall, FunctionDeclaration, FunctionResponse, Part
from ._attempts import UNKNOWN, Attempts, Failure, Outcome, Result, result_of
from ._base import BaseTool
from ._permission import Permission

__all__ = ["run_calls"]


async def run_calls(context: InvocationContext, calls: Sequence[FunctionCall], tools: Mapping[str, BaseTool]) -> Event:
    """
    Run *calls* and return the stored event that answers them.

    Raises:
        Pause: Some wait. The others are answered.
        FatalError: A tool has met a limit of the run. The calls are answered all the same.
    """
    context._core.count_tool_calls(len(calls))
    region = Region()
    batch = [_Call(context, call, tools, region, index) for index, call in enumerate(calls)]
    try:
        async with trio.open_nursery() as nursery:
            for each in batch:
                nursery.start_soon(each.run, name=f"tool {each.call.name}")
        settled = [each for each in batch if not each.waits]
        await _close_inside(context, settled)
        event = await context._emit(_answer(context, settled)) if settled else Event()
        failed = await _mark(context, [each for each in batch if each.waits])
        if failed:
            event = await context._emit(_answer(context, failed))
    except BaseException:
        with trio.CancelScope(shield=True):
            await _close(context, batch)
        raise
    for each in batch:
        if isinstance(each.outcome, Failure) and isinstance(each.outcome.error, TransfersLimitExceededError):
            raise each.outcome.error
    if any(each.waits for each in batch):
        raise Pause("for a tool")
    return event


async def _mark(context: InvocationContext, waiting: Sequence[_Call], *, closing: bool = False) -> list[_Call]:
    """
    Say which calls wait, unless it is said already; what long-running tools have written and saved goes with it. Their
    results come later, and not from them. Return those that have failed instead, because that does not fit.
    """
    calls = context._core.live.open_calls
    fresh = [each for each in waiting if each.call.id in calls and not calls[each.call.id].pending]
    _take_over(context, [each for each in fresh if each.is_long_running])
    failed, fresh = [each for each in fresh if not each.waits], [each for each in fresh if each.waits]
    if not fresh:
        return failed
    outside = [each for each in fresh if each.is_long_running]
    interim = {each.call.id or "": each.interim for each in outside if each.interim is not None}
    event = Event(
        id=derived_id(context.invocation_id, "waits", *(each.call.id for each in fresh)),
        long_running_tool_ids=[each.call.id or "" for each in outside],
        actions=EventActions(suspended_calls=[each.call.id or "" for each in fresh if not each.is_long_running]),
        custom_metadata={"interim": interim} if interim else None,
    )
    await context._emit(event, closing=closing)
    return failed


async def _close_inside(context: InvocationContext, batch: Sequence[_Call]) -> None:
    """What agents have left open inside of calls that are to be answered is answered before."""
    ids = {each.call.id for each in batch}
    inside = [call for call in context._core.open_calls() if not ids.isdisjoint(calls_around(call.branch))]
    await close_calls(context, inside)


async def _close(context: InvocationContext, batch: Sequence[_Call]) -> None:
    settled = [each for each in batch if not each.waits]
    if any(each.call.id in context._core.live.open_calls for each in settled):
        try:
            await _close_inside(context, settled)
            await context._emit(_answer(context, settled), closing=True)
        except Exception:  # the store fails: the end of the run tries again and reports it
            context._core.unrecorded.update(each.call.id for each in batch if each.began)
            return
    await _mark(context, [each for each in batch if each.waits], closing=True)


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
        self.waits = False
        self.interim: Any = None  # what a tool has said whose result comes later
        self.context: ToolContext = context._for_call(call.id or "", call.name, region, index)
        tool = tools.get(call.name)
        self._tool = UnknownTool(call.name, tools) if tool is None else tool
        self._attempts = Attempts(self.context, self._tool)
        self._permission = Permission(self.context, call)

    @property
    def is_long_running(self) -> bool:
        """Whether its result comes from outside."""
        return self._tool.is_long_running

    async def run(self) -> None:
        """Run the tool and the hooks around it. What a hook raises leaves; of a tool only a FatalError does."""
        try:
            try:
                await self._settle()
            except BaseException as error:
                if not is_pause(error):
                    self.waits = self.waits or (self.outcome is None and self._has_asked())
                    raise
                self.waits, self.outcome = True, None
            if self.context._asked is not None and self.waits:
                await self._permission.ask("confirm", self.context._asked)
        finally:
            self._attempts.withdraw()
            self.context._close(f"the call {self.call.id} of {self.call.name!r} has ended")

    async def _settle(self) -> None:
        hooks, context = _Hooks(self.context), self.context
        args: dict[str, Any] = thaw(self.call.args)
        self.waits = self._state() == "waits"
        if self.waits or not await self._is_to_be_made():
            return
        value = await hooks.before(self._tool, args)
        if value is not None:
            self.outcome = result_of(value, self.call.name)
        elif context.end_invocation:
            self.outcome = Failure("cancelled", "the invocation was ended before the call began", None)
        elif await self._is_allowed(args):
            args = self._permission.allowed_args(args)
            try:
                await self._attempts.run(freeze(args, "args") if hooks.changes_args else args)
            finally:
                self.outcome = self._attempts.outcome
            context._cannot_wait = "after a tool has been called: the call would be made again"
            await self._recover(hooks, args)
        if isinstance(self.outcome, Result):
            value = await hooks.after(self._tool, args, self.outcome.value)
            if value is not None or hooks.sees_value:
                self.outcome = result_of(self.outcome.value if value is None else value, self.call.name)
        if isinstance(self.outcome, Result) and self.is_long_running:
            self.interim, self.waits, self.outcome = self.outcome.value, True, None

    def _has_asked(self) -> bool:
        """Whether something inside of the call waits; then a cancellation does not take the question back."""
        calls = self.context._core.open_calls()
        own = next((str(call.pending) for call in calls if call.call_id == self.call.id), "")
        return bool(own) or any(call.pending == "waits" and self.call.id in calls_around(call.branch) for call in calls)

    def _state(self) -> str:
        """Whether the call waits already, or is suspended, from before this run."""
        call = self.context._core.live.open_calls.get(self.call.id or "")
        return "" if call is None else str(call.pending)

    async def _is_to_be_made(self) -> bool:
        """Whether to make a call that an earlier process may have made; if not, it has its outcome."""
        journal = self.context._core.journal
        if journal is None or self.call.id not in journal.open_before:
            return True
        asked = journal.questions(self.call.id or "")
        open_still = [name for question, name in asked.items() if question not in journal.responses]
        if not {REQUEST_INPUT, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL}.isdisjoint(open_still):
            self.waits = True
            return False
        times = sum(name == REQUEST_CONFIRMATION for name in asked.values())  # each crash is a question of its own
        fresh = any(question in journal.fresh for question in asked)  # it has waited for what has just been answered
        again = next((what for what in map("again{}".format, range(times)) if self._permission.is_fresh(what)), None)
        if again is None and (fresh or open_still or journal.has_asked_inside(self.call.id or "")):
            return True
        if again is None and self._tool.on_interrupted == "ask":
            again = f"again{times}"
        if self._tool.on_interrupted == "rerun":
            return True
        if again is not None:
            answer = await self._permission.given(again, ToolConfirmation(hint=INTERRUPTED_MESSAGE))
            if answer.confirmed:
                return True
        self.outcome = Failure(UNKNOWN, INTERRUPTED_MESSAGE, None)
        return False

    async def _is_allowed(self, args: dict[str, Any]) -> bool:
        """Whether the call may be made; if not, it has its outcome."""
        try:
            required = await self._tool.needs_confirmation(args, self.context)
        except Exception as error:
            self.fail(error)
            return False
        asked = self.context._asked  # by a callback before it
        if not required and asked is None and self._permission.answer_to("confirm") is None:
            return True
        confirmation = await self._permission.given("confirm", asked or ToolConfirmation(), args)
        self.context.tool_confirmation = confirmation
        if not confirmation.confirmed:
            self.outcome = Failure("rejected", "the call was not allowed; it was not made", None)
        return confirmation.confirmed

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
        self.waits = False
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


def _answer(context: InvocationContext, settled: Sequence[_Call]) -> Event:
    """The event that answers the calls, with what they have written and saved, in their order."""
    _choose_target(context, settled)
    _take_over(context, settled)
    context.actions.skip_summarization = all(each.context.actions.skip_summarization for each in settled) or None
    context.actions.escalate = any(each.context.actions.escalate for each in settled) or None
    parts = [Part(function_response=each.response()) for each in settled]
    event_id = derived_id(context.invocation_id, "responses", *(each.call.id for each in settled))
    return Event(id=event_id, content=Content(role="user", parts=parts))


def _take_over(context: InvocationContext, calls: Sequence[_Call]) -> None:
    """
    Merge what the calls have written into the agent's state, in their order; a key whose value replaces what another
    call has written is a conflict, which the event names. A call whose writes do not fit has failed.
    """
    for each in calls:
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
        context.actions.take_over_artifacts(each.context.actions)
