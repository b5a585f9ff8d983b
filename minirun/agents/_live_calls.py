"""
The calls of a live run. They are made beside the conversation: nobody waits for them but the model.

Each is an event before it is made, and is answered whatever happens, by the same machinery as everywhere
(`tools._batch`): calls of one answer are answered together. The model may take one back, and leaving the run does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence, Set
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import trio

from .._json import freeze, thaw
from .._values import changed
from ..errors import ModelError
from ..events import Event, seq_of
from ..flows._live import Input
from ..flows._prompts import Prompts
from ..models import LlmResponse
from ..runtime import InvocationContext
from ..tools import BaseTool, FunctionTool
from ..tools._call import ToolCall
from ..tools._outcome import Failure
from ..types import Content, FunctionCall, FunctionDeclaration, FunctionResponse, Part, id_of
from ._answered import make
from ._base import TRANSFER_TO_AGENT
from ._call_ids import with_usable_ids
from ._composite import SequentialAgent
from ._live_making import Batch, Calling, Making
from ._turn_notes import with_notes

if TYPE_CHECKING:
    from ._live_talk import Talk

__all__ = ["Calls"]


# The name that ADK gives to the tool by which a model ends what another one gives.
STOP_STREAMING = "stop_streaming"


class Calls:
    """See the module; for one agent."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self._nursery: trio.Nursery
        self._running = 0  # batches
        self.making: dict[str, Making] = {}
        """By their ids: the calls that are being made."""
        self.provider_ids: dict[str, str | None] = {}
        """By the id of a call: what the model calls it."""
        self._withdrawn: set[str] = set()
        self.withdrawn_unmade: set[str] = set()
        """What the model calls those that it has taken back: they may wait to be made, until that is taken, too."""
        self._in_hand: set[str] = set()  # of batches that are being made: a call in one may wait by now
        self.is_completed = False
        """Whether the model has said that this agent's task is done."""

    def run_in(self, nursery: trio.Nursery) -> None:
        """Say where calls are to run."""
        self._nursery = nursery

    @property
    def are_running(self) -> bool:
        """Whether the model waits for results."""
        return self._running > 0

    # --- what the model may call

    def with_own(self, tools: dict[str, BaseTool]) -> dict[str, BaseTool]:
        """*tools*, and what the conversation itself needs."""
        parent = self.talk.context.parent_agent
        if not isinstance(parent, SequentialAgent):
            return tools

        async def task_completed() -> str:
            """Say that your task is done, so that the next agent goes on. Say nothing after it."""
            self.is_completed = True
            return "done"

        return {**tools, "task_completed": FunctionTool(task_completed)}

    def declarations(self, declared: Sequence[FunctionDeclaration]) -> Sequence[FunctionDeclaration]:
        """What the model is told of its tools: *declared*, and those that were added."""
        names = {each.name for each in declared}
        prompts = self.talk.context._invocation.program.prompts
        added = (tool._declared(prompts) for name, tool in self.talk.tools.items() if name not in names)
        told = [*declared, *(each for each in added if each is not None)]
        return [changed(each, behavior="NON_BLOCKING") if self._goes_on(each.name) else each for each in told]

    def _goes_on(self, name: str) -> bool:
        """Whether the model goes on before a call of this tool has its result, as far as that is known now."""
        tool = self.talk.tools.get(name)
        return tool is not None and (tool.streams or tool.is_long_running or tool.require_confirmation is not False)

    # --- making them

    async def make(self, response: LlmResponse) -> None:
        """Store the calls of an answer, and begin to make them."""
        talk = self.talk
        talk.speech.begin_with_calls()
        content = response.content
        assert content is not None
        invocation = talk.context._invocation
        given = [call.id for call in content.calls]
        content = with_usable_ids(changed(content, role="model"), invocation.has_call, invocation.ids.call_ids)
        event = Event(
            id=talk.context._following_id(f"{talk.context._path}!calls"),
            content=content,
            usage_metadata=talk.speech.usage,
            live={"path": talk.context._path} | ({} if response.item_id is None else {"item_id": response.item_id}),
        )
        talk.speech.usage = None
        if any(call.name == TRANSFER_TO_AGENT for call in content.calls):
            talk.sending.hold()  # before anybody sees it, and says something to the next agent
        made = await talk.emit(with_notes(event, talk.tools, parallel=talk.agent.parallel_tool_calls))
        talk.speech.note_place(made)
        calls = made.get_function_calls()
        provider_ids = dict(zip([id_of(call) for call in calls], given, strict=True))
        self.provider_ids |= provider_ids
        self._withdrawn.update(call_id for call_id, given in provider_ids.items() if given in self.withdrawn_unmade)
        invocation.budgets.spend("max_tool_calls", len(calls))
        calling = Calling(self, made, talk.sending.side, trio.Lock())
        beside = [] if made.actions.replay.alone else [call for call in calls if self._streams(call)]
        if beside:  # nobody waits for the end of these
            self._nursery.start_soon(self._run, calling, beside, name=f"streams of {made.id}")
            talk.inbox.post((Input.RESULTS, Batch(beside, calling.side, (), beside)))
        others = [call for call in calls if call not in beside]
        if others:
            self._running += 1
            self._nursery.start_soon(self._run_awaited, calling, others, name=f"calls of {made.id}")

    def _streams(self, call: FunctionCall) -> bool:
        tool = self.talk.tools.get(call.name)
        return tool is not None and tool.streams

    async def _run_awaited(self, calling: Calling, calls: Sequence[FunctionCall]) -> None:
        for call in calls:
            if call.name == STOP_STREAMING and call.id not in self._withdrawn:
                self.talk.line.stop_streams(call.args.get("function_name"))
        await self._run(calling, calls, counts=True)

    async def _run(self, calling: Calling, calls: Sequence[FunctionCall], counts: bool = False) -> None:
        context = self.talk.context._at(self.talk.context._state.layer())
        async with calling.lock if calling.made.actions.replay.alone else nullcontext():
            batch = await self.run(context, calling, calls)
        self._running -= counts
        self.talk.line.is_active()
        self.talk.inbox.post((Input.RESULTS, batch))

    async def run(self, context: InvocationContext, calling: Calling, calls: Sequence[FunctionCall]) -> Batch:
        """Make *calls* of one event; the line knows of those that are open, as each may be asking somebody by now."""
        unanswered = self.talk.line.unanswered
        unanswered.update((id_of(call), calling) for call in calls)
        ids = {id_of(call) for call in calls}
        self._in_hand |= ids
        try:
            answered, waiting = await make(context, calling.made, calls, self.talk.tools, self._call)
        finally:
            self._in_hand -= ids
        gone = self._withdrawn & {id_of(call) for call in waiting}
        if gone:
            await self._withdraw(gone)
            waiting = [call for call in waiting if call.id not in gone]
        for call in calls:
            if call not in waiting:
                unanswered.pop(id_of(call), None)
        return Batch(calls, calling.side, answered, waiting)

    def _call(self, *args: object) -> ToolCall:
        return _LiveCall(self, *args)

    def cancel(self, provider_ids: Collection[str]) -> None:
        """
        End the calls that the model has taken back: their results are sent to nobody.

        This is known as soon as it is read. A call may still wait behind sound then, and is not made later.
        """
        self.withdrawn_unmade.update(provider_ids)
        self.talk.sending.take_back(provider_ids)
        ids = {call_id for call_id, given in self.provider_ids.items() if given in provider_ids} - self._withdrawn
        self._withdrawn |= ids
        for call_id in ids & self.making.keys():
            self.making[call_id].scope.cancel()
        waiting = (ids & self.talk.line.unanswered.keys()) - self._in_hand
        if waiting:
            self.talk.line.answers.start_soon(self._withdraw, waiting)

    async def _withdraw(self, call_ids: Set[str]) -> None:
        from ._live_questions import withdraw  # few calls wait

        await withdraw(self.talk.line, call_ids)

    def is_withdrawn(self, call_id: str) -> bool:
        """Whether the model has taken back this call, maybe before it began."""
        return call_id in self._withdrawn

    def interrupt(self) -> None:
        """End the calls that are not to go on when the answer is interrupted; they are answered as cancelled."""
        for making in list(self.making.values()):
            if making.tool.cancel_on_interrupt:
                making.scope.cancel()

    # --- telling the results

    async def tell(self, batch: Batch) -> Input:
        """Send what has come of a batch to the model, unless somebody else takes over; return what that means."""
        talk, side = self.talk, self.talk.sending.side
        if talk.is_over:
            return Input.RESULTS
        if any(call.name == TRANSFER_TO_AGENT for call in batch.calls):
            talk.sending.go_on()
        if self.is_completed:
            talk.finish()
            return Input.RESULTS
        known = 0 if batch.side is side else side.history_seq
        ids = {call.id for call in batch.calls} - self._withdrawn
        events = [event for event in batch.answered if seq_of(event) > known]
        answers = [answer for event in events for answer in event.get_function_responses() if answer.id in ids]
        content_id = events[-1].id if answers else talk.context._following_id(f"{talk.context._path}!asked")
        told = [*answers, *(self._interim(call) for call in batch.waiting if call.id in ids - side.told)]
        return await self._send(told, content_id or "", is_known=batch.side is side) if told else Input.DROPPED

    async def tell_item(self, calling: Calling, answer: FunctionResponse) -> None:
        """Tell the model an item of a call that goes on, which it need not speak of."""
        sending, connection = self.talk.sending, self.talk.connection
        if calling.side is not sending.side or not self._takes_interim:
            return
        assert connection is not None, "it takes interim results"
        call_id = self.provider_ids.get(id_of(answer)) or answer.id
        item = changed(answer, id=call_id, will_continue=True, scheduling="SILENT")
        with suppress(ModelError):  # the reader of the connection hears of that
            async with sending.lock:
                if connection is self.talk.connection:
                    await connection.send_content(Content(role="user", parts=[Part(function_response=item)]))
                    sending.side.told.add(id_of(answer))

    def _interim(self, call: FunctionCall) -> FunctionResponse:
        """What the model is told of a call that waits for somebody."""
        text = self._prompts.still_running if self._streams(call) else self._prompts.asked
        status = freeze({"status": text})
        return FunctionResponse(id=call.id, name=call.name, response=status, will_continue=self._takes_interim or None)

    async def _send(self, answers: Sequence[FunctionResponse], content_id: str, *, is_known: bool) -> Input:
        """Send *answers* as responses where the model's side knows the calls, and takes one more; else in words."""
        sending, told = self.talk.sending, self.talk.sending.side.told
        as_they_are = [each for each in answers if is_known and (self._takes_interim or each.id not in told)]
        if as_they_are:
            named = [changed(each, id=self.provider_ids.get(id_of(each)) or each.id) for each in as_they_are]
            parts = [Part(function_response=each) for each in named]
            await sending.deliver_results(Content(role="user", parts=parts), content_id)
        in_words = [each for each in answers if each not in as_they_are]
        if in_words:
            parts = [Part(text=self._in_words(each)) for each in in_words]
            await sending.deliver_results(Content(role="user", parts=parts), f"{content_id}-told")
        is_new = in_words or any(each.id in told for each in as_they_are)  # it does not wait for that, but answers
        told.update(id_of(each) for each in answers)
        return Input.ASKED if is_new else Input.RESULTS

    def _in_words(self, answer: FunctionResponse) -> str:
        return self._prompts.returned.format(name=answer.name, response=json.dumps(thaw(answer.response)))

    @property
    def _takes_interim(self) -> bool:
        connection = self.talk.connection
        return connection is not None and connection.capabilities.takes_interim_results

    @property
    def _prompts(self) -> Prompts:
        return self.talk.context._invocation.program.prompts


class _LiveCall(ToolCall):
    """A call that can be ended alone."""

    def __init__(self, calls: Calls, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # what `run_group` gives
        self._calls = calls

    async def run(self) -> None:
        with trio.CancelScope() as scope:
            making = self._calls.making[self.id] = Making(scope, trio.Event(), self.tool)
            if self._calls.is_withdrawn(self.id):
                scope.cancel()
            try:
                await super().run()
            finally:
                del self._calls.making[self.id]
                making.is_over.set()

    async def _make(self) -> None:
        open_call = self.context._invocation.live.open_calls.get(self.id)
        is_asking = open_call is not None and open_call.pending == "waits"
        if self._calls.is_withdrawn(self.id) and not is_asking:  # a function would run until it waits for something
            self.outcome = Failure("cancelled", "the model has taken the call back")
        else:
            await super()._make()
