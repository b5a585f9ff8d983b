"""
Questions in a live run: somebody is asked, the conversation goes on, and the call is made again with the answer.

    a call waits      it is noted on the line, and the model is told that somebody is asked (`_live_calls`)
    an answer comes   it is checked and stored, and the call begins: nothing in between can be cancelled
    the call is made  beside the agent that speaks by then, and its result is told to that agent's model
    it is withdrawn   by the model, while it waits: it is answered as cancelled, and nobody is asked any more

From the answer on the call belongs to the line, so neither a reconnection nor a transfer ends it. If the line ends
before that, the question stays open, and the invocation is paused: a later run takes the answer.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import nullcontext
from typing import TYPE_CHECKING

import trio

from ..errors import InvalidEventError, InvalidMessageError, InvocationEndedError, MinirunError
from ..events import Event
from ..flows._live import Input
from ..runtime import InvocationContext
from ..sessions import OpenCall
from ..sessions._recovery import by_event, closing_event
from ..types import Content, FunctionCall, id_of
from ._answered import AnsweredInvocation, calls_asking
from ._live_making import Batch, Calling

if TYPE_CHECKING:
    from ._live_line import Line

__all__ = ["answer_question", "withdraw"]


async def answer_question(line: Line, content: Content, event_id: str) -> None:
    """
    Take the user's answer to questions of this run: it is stored, and the calls that have asked begin again.

    Cancelled, it has done all of that or nothing.

    Raises:
        InvalidMessageError: It answers no open question, or one that was answered; or not in its form.
        InvocationEndedError: The conversation is over. The question is open, and a later run takes the answer.
    """
    invocation = line.invocation
    async with line.answering:
        if line.ended.is_set():
            msg = f"the live run {invocation.id} has ended; answer by run_async(new_message=...), which goes on with it"
            raise InvocationEndedError(msg)
        event = await invocation.program.messages().answer_in(invocation, content, event_id)
        questions = [invocation.live.open_calls[id_of(each)] for each in content.responses]
        context = InvocationContext.root(invocation)._for_run_hooks()
        try:
            stored = await invocation.emitter.emit(context, event, closing=True)
        except InvalidEventError:
            if all(each.call_id in invocation.live.open_calls for each in questions):
                raise
            raise InvalidMessageError("the question was withdrawn while it was answered") from None
        _go_on(line, stored, questions)


def _go_on(line: Line, stored: Event, questions: Sequence[OpenCall]) -> None:
    """Let those calls go on whose questions *stored* has answered. Nothing is waited for here."""
    line.is_active()
    live = line.invocation.live
    again = {*calls_asking(live, (live.events[live.index_of(each.seq)] for each in questions))}
    answered = {each.call_id for each in questions}  # of long-running tools, among others
    found = {call_id: line.unanswered.pop(call_id) for call_id in again | answered if call_id in line.unanswered}
    for calling in {calling.made.id: calling for calling in found.values()}.values():
        line.remaking += 1
        name = f"calls of {calling.made.id} again"
        line.answers.start_soon(_make_again, line, calling, again, answered, stored, name=name)


async def withdraw(line: Line, call_ids: Set[str]) -> None:
    """Answer calls that wait, and what they have asked, as cancelled: the model has taken them back."""
    live, stored = line.invocation.live, None
    context = InvocationContext.root(line.invocation)._for_run_hooks()
    async with line.answering:
        waiting = [each for each in live.open_calls.values() if call_ids & {each.call_id, *_askers(line, each)}]
        with trio.CancelScope(shield=True):
            for calls in by_event(waiting):
                event = closing_event(calls, "cancelled", "the model has taken the call back")
                try:
                    stored = await line.invocation.emitter.emit(context, event, closing=True)
                except MinirunError:  # the store fails: the end of the run tries again and reports it
                    return
        found = {calling.made.id: calling for each in call_ids if (calling := line.unanswered.pop(each, None))}
    for calling in found.values():
        if stored is not None and calling.made.actions.replay.alone:  # it was the turn of those after it
            line.remaking += 1
            line.answers.start_soon(_make_again, line, calling, set(), set(), stored)


def _askers(line: Line, question: OpenCall) -> set[str]:
    live = line.invocation.live
    return {*calls_asking(live, [live.events[live.index_of(question.seq)]])}


async def _make_again(line: Line, calling: Calling, again: set[str], answered: set[str], stored: Event) -> None:
    """Make the calls *again* of an event, and tell what has come of them, and of those that *stored* has *answered*."""
    calls, in_order = calling.made.get_function_calls(), bool(calling.made.actions.replay.alone)
    batches = [Batch([call for call in calls if call.id in answered], calling.side, [stored])]
    for call_id in again & calling.by.making.keys():  # it has asked, and has not come to its end
        await calling.by.making[call_id].is_over.wait()
    async with calling.lock if in_order else nullcontext():
        opened = line.invocation.live.open_calls
        to_make = [call for call in calls if call.id in opened and (in_order or call.id in again)]
        if to_make:
            batches.append(await _made_again(line, calling, to_make, stored))
    line.remaking -= 1
    for batch in batches:
        if line.talk is not None and batch.calls:  # else it stands in the history of who speaks next
            line.talk.inbox.post((Input.RESULTS, batch))


async def _made_again(line: Line, calling: Calling, calls: Sequence[FunctionCall], stored: Event) -> Batch:
    talk = calling.by.talk
    invocation = AnsweredInvocation(talk.context._invocation, calling.made, stored)
    context = InvocationContext(invocation, talk.agent, talk.context._position, talk.context._state.layer())
    return await calling.by.run(context, calling, calls)
