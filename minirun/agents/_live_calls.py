"""
The calls of a live run. They are made beside the conversation: nobody waits for them but the model.

Each is an event before it is made, and is answered whatever happens, by the same machinery as everywhere
(`tools._batch`): calls of one answer are answered together. The model may take one back, and leaving the run does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from .._json import thaw
from .._values import changed
from ..events import Event
from ..flows._live import Input
from ..models import LlmResponse
from ..runtime._failure import is_pause
from ..tools import BaseTool, FunctionTool
from ..tools._batch import run_group
from ..tools._call import ToolCall
from ..tools._sequence import run_in_order
from ..types import Content, FunctionCall, FunctionDeclaration, Part
from ._base import TRANSFER_TO_AGENT
from ._call_ids import with_usable_ids
from ._composite import SequentialAgent
from ._turn_notes import with_notes

if TYPE_CHECKING:
    from ._live_talk import Talk

__all__ = ["Batch", "Calls"]


class Batch(NamedTuple):
    """The calls of an answer, and what came of them."""

    made: Event
    session: int
    """Which session of the model's side has made them."""
    answered: Sequence[Event]
    """The events with their responses."""


class Calls:
    """See the module; for one agent."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._nursery: trio.Nursery
        self._running = 0  # batches
        self.scopes: dict[str, trio.CancelScope] = {}
        """By the id of a call that is being made: what ends it."""
        self.provider_ids: dict[str, str | None] = {}
        """By the id of a call: what the model calls it."""
        self._withdrawn: set[str] = set()
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
        parent = self._talk.context.parent_agent
        if not isinstance(parent, SequentialAgent):
            return tools

        def task_completed() -> str:
            """Say that your task is done, so that the next agent goes on. Say nothing after it."""
            self.is_completed = True
            return "done"

        return {**tools, "task_completed": FunctionTool(task_completed)}

    def declarations(self, declared: Sequence[FunctionDeclaration]) -> Sequence[FunctionDeclaration]:
        """What the model is told of its tools: *declared*, and those that were added."""
        names = {each.name for each in declared}
        prompts = self._talk.context._invocation.program.prompts
        added = (tool._declared(prompts) for name, tool in self._talk.tools.items() if name not in names)
        return [*declared, *(each for each in added if each is not None)]

    # --- making them

    async def make(self, response: LlmResponse) -> None:
        """Store the calls of an answer, and begin to make them."""
        talk = self._talk
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
            live={} if response.item_id is None else {"item_id": response.item_id},
        )
        talk.speech.usage = None
        made = await talk.emit(with_notes(event, talk.tools, parallel=talk.agent.parallel_tool_calls))
        talk.speech.note_place(made)
        calls = made.get_function_calls()
        self.provider_ids.update(zip([call.id or "" for call in calls], given, strict=True))
        if any(call.name == TRANSFER_TO_AGENT for call in calls):
            talk.sending.hold()
        invocation.budgets.spend("max_tool_calls", len(calls))
        self._running += 1
        self._nursery.start_soon(self._run, made, calls, talk.sending.sessions, name=f"calls of {made.id}")

    async def _run(self, made: Event, calls: Sequence[FunctionCall], session: int) -> None:
        talk = self._talk
        context = talk.context._at(talk.context._state.layer())
        answered: list[Event] = []
        try:
            if made.actions.replay.alone:
                answered.append(await run_in_order(context, made, calls, talk.tools))
            else:
                answered.append(await run_group(context, calls, talk.tools, call_type=self._call))
        except BaseException as error:
            if not is_pause(error):
                raise
            from ._live_questions import tell_waiting  # few calls ask somebody

            await tell_waiting(talk, calls)
        self._running -= 1
        talk.inbox.post((Input.RESULTS, Batch(made, session, answered)))

    def _call(self, *args: object) -> ToolCall:
        return _LiveCall(self, *args)

    def cancel(self, provider_ids: Collection[str]) -> None:
        """End the calls that the model has taken back: their results are sent to nobody."""
        for call_id, scope in list(self.scopes.items()):
            if self.provider_ids.get(call_id) in provider_ids:
                self._withdrawn.add(call_id)
                scope.cancel()

    # --- telling the results

    async def tell(self, batch: Batch) -> None:
        """Send the results of a batch to the model, unless somebody else takes over."""
        talk = self._talk
        if talk.is_over:
            return
        talk.sending.go_on()
        if self.is_completed:
            talk.finish()
            return
        answers = [answer for event in batch.answered for answer in event.get_function_responses()]
        wanted = [answer for answer in answers if answer.id not in self._withdrawn]
        if not wanted:
            return
        told = [changed(answer, id=self.provider_ids.get(answer.id or "") or answer.id) for answer in wanted]
        if batch.session == talk.sending.sessions:
            parts = [Part(function_response=answer) for answer in told]
        else:  # the model's side has begun anew since, and knows of no such call
            texts = (f"The call of {each.name} has returned: {json.dumps(thaw(each.response))}" for each in told)
            parts = [Part(text=text) for text in texts]
        await talk.sending.deliver_results(Content(role="user", parts=parts), batch.answered[-1].id or "")


class _LiveCall(ToolCall):
    """A call that can be ended alone."""

    def __init__(self, calls: Calls, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # what `run_group` gives
        self._calls = calls

    async def run(self) -> None:
        with trio.CancelScope() as scope:
            self._calls.scopes[self.id] = scope
            try:
                await super().run()
            finally:
                del self._calls.scopes[self.id]
