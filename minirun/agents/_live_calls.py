"""
The calls of a live run.

    calls       the model asks for calls: they are stored, and run beside the conversation, together (`tools._batch`)
    result      it is stored, and told to the model of the agent that speaks by then
    request     a call that waits for a person (or is long-running): the model is told so; the conversation continues
    reply       it is checked and stored, and the call is made again with it (`_answered`): this cannot be cancelled
    withdrawal  the model takes a call back: it is cancelled, with its open request

Every call is stored before it begins and has one response. What is open at the end of the run is closed as cancelled by
the run (P6); after a crash, recovery closes it. The calls belong to the run: a reconnection and a transfer do not end
them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs
import trio

from .._json import freeze, thaw
from .._values import changed
from ..errors import InvalidEventError, InvalidMessageError, InvocationEndedError, MinirunError
from ..events import Event, seq_of
from ..flows._prompts import Prompts
from ..models import LlmResponse
from ..runtime import InvocationContext
from ..sessions import OpenCall
from ..sessions._recovery import by_event, closing_event
from ..tools import BaseTool, FunctionTool
from ..tools._call import ToolCall
from ..tools._outcome import Failure
from ..types import Content, FunctionCall, FunctionResponse, Part, id_of
from ._answered import AnsweredInvocation, calls_asking, make
from ._base import TRANSFER_TO_AGENT
from ._call_ids import with_usable_ids
from ._composite import SequentialAgent
from ._turn_notes import with_notes

if TYPE_CHECKING:
    from ._live_conversation import Conversation
    from ._live_shared import LiveShared

__all__ = ["LiveCalls", "ProviderSession", "Results", "own_tools"]

_TAKEN_BACK = "the model has taken the call back"


class ProviderSession:
    """A session of the provider; several connections, one after the other, can continue it."""

    def __init__(self, history_seq: int) -> None:
        self.history_seq = history_seq
        """It was given the log up to this event when it began."""
        self.told: set[str] = set()
        """The calls to which it was sent a response."""


@attrs.frozen(eq=False)
class Batch:
    """The calls of one event, and what is needed to make them again."""

    made: Event
    context: InvocationContext
    tools: dict[str, BaseTool]
    session: ProviderSession
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    """Held while calls are made that have to be made in order."""


class Results(NamedTuple):
    """What calls have come to: an input of the conversation."""

    batch: Batch
    calls: Sequence[FunctionCall]
    answered: Sequence[Event]
    """The events with their responses, among others."""
    waiting: Sequence[FunctionCall] = ()
    """The calls that wait for a person."""


def own_tools(conversation: Conversation) -> dict[str, BaseTool]:
    """Return the tools that a conversation needs itself: a member of a SequentialAgent ends its part by one."""
    if not isinstance(conversation.context.parent_agent, SequentialAgent):
        return {}

    async def task_completed() -> str:
        """Report that your task is done, so that the next agent continues. Say nothing after it."""
        conversation.is_completed = True
        return "done"

    return {"task_completed": FunctionTool(task_completed)}


class LiveCalls:
    """See the module."""

    def __init__(self, shared: LiveShared) -> None:
        self._shared = shared
        self.nursery: trio.Nursery
        self.running = 0
        """How many batches are being made: the conversation does not end before they have results."""
        self.replying = trio.Lock()
        """Held while a reply is taken, one at a time."""
        self._batches: dict[str, Batch] = {}  # by the ids of the calls that have no response yet
        self._made: dict[str, tuple[trio.CancelScope, trio.Event]] = {}  # calls that run, and the event of their end
        self._given_ids: dict[str, str | None] = {}  # the provider's ids of calls
        self._withdrawn: set[str] = set()
        self._early: set[str] = set()  # provider's ids of calls that were taken back, and may wait to be stored

    async def start(self, conversation: Conversation, response: LlmResponse) -> None:
        """Store the calls of a response, and begin to make them."""
        context, invocation = conversation.context, self._shared.invocation
        assert response.content is not None
        given = [call.id for call in response.content.calls]
        content = changed(response.content, role="model")
        content = with_usable_ids(content, invocation.has_call, invocation.ids.call_ids)
        event = Event(
            id=conversation.next_id("calls"),
            content=content,
            usage_metadata=conversation.take_usage(),
            live={} if response.item_id is None else {"item_id": response.item_id},
        )
        if any(call.name == TRANSFER_TO_AGENT for call in content.calls):
            conversation.pause_sending()  # before the caller sees the call, and sends something to the next agent
        event = with_notes(event, conversation.tools, parallel=conversation.agent.parallel_tool_calls)
        made = await conversation.emit(event)
        calls = made.get_function_calls()
        self._given_ids.update(zip([id_of(call) for call in calls], given, strict=True))
        self._withdrawn.update(id_of(call) for call in calls if self._given_ids[id_of(call)] in self._early)
        invocation.budgets.spend("max_tool_calls", len(calls))
        batch = Batch(made, context, conversation.tools, conversation.session)
        self._start(made, partial(self._make, batch, calls))

    def _start(self, event: Event, work: Callable[[], Awaitable[list[Results]]]) -> None:
        self.running += 1
        self.nursery.start_soon(self._run, work, name=f"calls by {event.id}")

    async def _run(self, work: Callable[[], Awaitable[list[Results]]]) -> None:
        try:
            for results in await work():
                if self._shared.conversation is not None:  # else the next agent finds it in the history
                    self._shared.conversation.inbox.post(results)
        finally:
            self.running -= 1
        self._shared.is_active()

    async def _make(self, batch: Batch, calls: Sequence[FunctionCall]) -> list[Results]:
        context = batch.context._at(batch.context._state.layer())
        async with batch.lock if batch.made.actions.replay.alone else nullcontext():
            return [await self._made_in(context, batch, calls)]

    async def _made_in(self, context: InvocationContext, batch: Batch, calls: Sequence[FunctionCall]) -> Results:
        self._batches.update((id_of(call), batch) for call in calls)
        answered, waiting = await make(context, batch.made, calls, batch.tools, self._new_call)
        withdrawn = self._withdrawn & {id_of(call) for call in waiting}
        if withdrawn:
            await self._close_withdrawn(withdrawn)
        left = [call for call in waiting if id_of(call) not in withdrawn]
        for call in calls:
            if call not in left:
                self._batches.pop(id_of(call), None)
        return Results(batch, calls, answered, left)

    def _new_call(self, *args: object) -> ToolCall:
        return _LiveCall(self, *args)

    # --- replies to requests

    async def reply(self, content: Content, event_id: str) -> None:
        """
        Store the user's reply to requests of this run, and make their calls again. Cancelled, it has done nothing.

        Raises:
            InvalidMessageError: It replies to no open request, or not in its form.
            InvocationEndedError: The conversation has ended.
        """
        invocation = self._shared.invocation
        async with self.replying:
            if self._shared.ended:
                raise InvocationEndedError(f"the live run {invocation.id} has ended, and its requests are closed")
            event = await invocation.program.messages().answer_in(invocation, content, event_id)
            requests = [invocation.live.open_calls[id_of(each)] for each in content.responses]
            context = InvocationContext.root(invocation)._for_run_hooks()
            try:
                stored = await invocation.emitter.emit(context, event, closing=True)
            except InvalidEventError:
                if all(each.call_id in invocation.live.open_calls for each in requests):
                    raise
                raise InvalidMessageError("the request was withdrawn while the reply was stored") from None
        self._make_replied(stored, requests)

    def _make_replied(self, stored: Event, requests: Sequence[OpenCall]) -> None:
        """Start the calls that *stored* lets continue. There is no checkpoint between the commit and their start."""
        self._shared.is_active()
        live = self._shared.invocation.live
        again = set(calls_asking(live, (live.events[live.index_of(each.seq)] for each in requests)))
        replied = {each.call_id for each in requests}  # a long-running call is its own request
        found = [batch for call_id in again | replied if (batch := self._batches.pop(call_id, None)) is not None]
        for batch in {id_of(batch.made): batch for batch in found}.values():
            self._start(stored, partial(self._make_again, batch, again, replied, stored))

    async def _make_again(
        self, batch: Batch, again: Collection[str], replied: Collection[str], stored: Event
    ) -> list[Results]:
        """Make the calls *again* of a batch, after *stored*, which is the response of those that were *replied* to."""
        calls, in_order = batch.made.get_function_calls(), bool(batch.made.actions.replay.alone)
        answered = [call for call in calls if call.id in replied]
        results = [Results(batch, answered, [stored])] if answered else []
        for call_id in set(again) & self._made.keys():  # it has posed its request, and its task has not ended
            await self._made[call_id][1].wait()
        async with batch.lock if in_order else nullcontext():
            opened = self._shared.invocation.live.open_calls
            to_make = [call for call in calls if call.id in opened and (in_order or call.id in again)]
            if to_make:
                invocation = AnsweredInvocation(self._shared.invocation, batch.made, stored)
                by = batch.context
                context = InvocationContext(invocation, by._agent, by._position, by._state.layer())
                results.append(await self._made_in(context, batch, to_make))
        return results

    # --- calls that are taken back

    def withdraw(self, given_ids: Collection[str]) -> None:
        """
        Cancel the calls that the model has taken back, by the provider's ids, as soon as that is read.

        A call can still wait behind audio then; it is not made later. `are_withdrawn` ends that.
        """
        self._early.update(given_ids)
        ids = {call_id for call_id, given in self._given_ids.items() if given in given_ids} - self._withdrawn
        self._withdrawn |= ids
        for call_id in ids & self._made.keys():
            self._made[call_id][0].cancel()
        waiting = ids & self._batches.keys() - self._made.keys()
        if waiting:
            self.nursery.start_soon(self._close_withdrawn, waiting, name="withdrawn calls")

    def are_withdrawn(self, given_ids: Collection[str]) -> None:
        """The withdrawal of these calls was taken in its turn: all calls before it are stored."""
        self._early.difference_update(given_ids)

    def is_withdrawn(self, call_id: str | None) -> bool:
        """True if the model has taken the call back."""
        return call_id in self._withdrawn

    async def _close_withdrawn(self, call_ids: Collection[str]) -> None:
        """Close calls that wait, and their requests, as cancelled."""
        invocation, stored = self._shared.invocation, None
        live = invocation.live
        async with self.replying:
            asked = [each for each in live.open_calls.values() if each.pending == "waits"]
            requests = [each for each in asked if not set(call_ids).isdisjoint(self._askers(each))]
            calls = [each for each in live.open_calls.values() if each.call_id in call_ids]
            context = InvocationContext.root(invocation)._for_run_hooks()
            with trio.CancelScope(shield=True), suppress(MinirunError):  # the end of the run would try again
                for group in by_event({each.call_id: each for each in (*requests, *calls)}.values()):
                    closing = closing_event(group, "cancelled", _TAKEN_BACK)
                    stored = await invocation.emitter.emit(context, closing, closing=True)
        found = [batch for call_id in call_ids if (batch := self._batches.pop(call_id, None)) is not None]
        for batch in {id_of(batch.made): batch for batch in found}.values():
            if stored is not None and batch.made.actions.replay.alone:  # it was the turn of the calls after it
                self._start(stored, partial(self._make_again, batch, (), (), stored))

    def _askers(self, request: OpenCall) -> set[str]:
        live = self._shared.invocation.live
        return set(calls_asking(live, [live.events[live.index_of(request.seq)]]))

    # --- telling the model

    async def tell(self, conversation: Conversation, results: Results) -> None:
        """Send results to the model of *conversation*, unless it ends, or was given them as history."""
        if conversation.is_over:
            return
        if any(call.name == TRANSFER_TO_AGENT for call in results.calls):
            conversation.resume_sending()  # the transfer has failed
        session, is_known = conversation.session, results.batch.session is conversation.session
        known_seq = 0 if is_known else session.history_seq
        ids = {call.id for call in results.calls} - self._withdrawn
        events = [event for event in results.answered if seq_of(event) > known_seq]
        responses = [each for event in events for each in event.get_function_responses() if each.id in ids]
        content_id = id_of(events[-1]) if responses else conversation.next_id("waits")
        status = freeze({"status": self._prompts.asked})
        waits = [call for call in results.waiting if call.id in ids - session.told]
        told = [*responses, *(FunctionResponse(id=call.id, name=call.name, response=status) for call in waits)]
        # A session takes one response to a call that it knows; everything else is told in words.
        as_response = [each for each in told if is_known and each.id not in session.told]
        in_words = [each for each in told if each not in as_response]
        session.told.update(id_of(each) for each in told)
        if as_response:
            named = [changed(each, id=self._given_ids.get(id_of(each)) or each.id) for each in as_response]
            parts = [Part(function_response=each) for each in named]
            await conversation.send_content(Content(role="user", parts=parts), content_id)
        if in_words:
            texts = [self._prompts.returned.format(name=each.name, response=_as_json(each)) for each in in_words]
            content = Content(role="user", parts=[Part(text=text) for text in texts])
            await conversation.send_content(content, f"{content_id}-told")

    @property
    def _prompts(self) -> Prompts:
        return self._shared.invocation.program.prompts


def _as_json(response: FunctionResponse) -> str:
    return json.dumps(thaw(response.response))


class _LiveCall(ToolCall):
    """A call that can be cancelled alone."""

    def __init__(self, calls: LiveCalls, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # the arguments that `run_group` gives
        self._calls = calls

    async def run(self) -> None:
        with trio.CancelScope() as scope:
            ended = trio.Event()
            self._calls._made[self.id] = scope, ended
            if self._calls.is_withdrawn(self.id):
                scope.cancel()
            try:
                await super().run()
            finally:
                del self._calls._made[self.id]
                ended.set()

    async def _make(self) -> None:
        if self._calls.is_withdrawn(self.id):  # a sync function would run, as it has no checkpoint before
            self.outcome = Failure("cancelled", _TAKEN_BACK)
        else:
            await super()._make()
