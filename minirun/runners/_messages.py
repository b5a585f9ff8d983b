"""
Messages into runs: sending one, and what the run does with those that wait.

A sender lets the message wait in the store (`sessions._messages`), and is done. The run that works on the invocation
looks for messages where it may take some, if there may be any (`LiveSession.has_messages`: what its last append has
seen, or a sender in this process). It may

*   before an agent that sees the conversation asks its model, while no call is open, but those that wait for somebody;
*   when the agents have come to their end: then the agent that would answer the user's next message answers the first
    of them, in another *round* of the same invocation. `ctx.user_content` is that message there. An LlmAgent takes the
    others with it, before it asks its model; for a workflow, which takes none inside of its nodes, each has a round;
*   when it is left in another way than paused, and nobody answers any more.

An invocation that is resumed replays its rounds: each begins with an event that says `"idle"` in `Replay.sent`. What
was taken before a question to a model needs no replay: the model that is asked now is shown the log as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from .._json import check_text, shown
from .._values import changed
from .._window import Window
from ..errors import InvalidMessageError, InvalidValueError
from ..events import Event, EventActions, Replay, seq_of
from ..flows._branches import is_visible
from ..flows._message import user_content
from ..runtime import InvocationContext
from ..sessions import SessionKey
from ..sessions._event_checks import checked_event

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..runtime._invocation import Invocation
    from ..runtime._run import Execution
    from ..sessions._store import SessionStore
    from ..types import Content

__all__ = ["answer_in", "answer_messages", "send", "send_into", "store_messages", "take_messages"]

NEXT_MODEL_CALL, IDLE = "next_model_call", "idle"


# --- sending ----------------------------------------------------------------------------------------------------------


@trio.lowlevel.enable_ki_protection
async def send(
    service: SessionStore, key: SessionKey, content: str | Content, when: str, invocation_id: str | None
) -> str:
    """See `Runner.send`."""
    if when not in (NEXT_MODEL_CALL, IDLE):
        raise InvalidValueError("when", f"expected {NEXT_MODEL_CALL!r} or {IDLE!r}, found {shown(when)}")
    if invocation_id is not None:
        check_text(invocation_id, "invocation_id")
    message_id = f"m-{service.env.new_id('message')}"
    message = Event(
        id=message_id,
        invocation_id=invocation_id,
        author="user",
        content=user_content(content, may_answer=False),
        actions=EventActions(replay=Replay(sent=when)),
    )
    with service._used():
        await service.env.point("send")
        await trio.lowlevel.checkpoint()
        await service.insert_message(key, checked_event(message))
    return message_id


async def send_into(invocation: Invocation, content: str | Content, when: str) -> str:
    """See `Run.send`."""
    message_id = await send(
        invocation.committer.session_service, invocation.live.key, content, when, invocation.id
    )
    invocation.live.has_messages = True
    return message_id


async def answer_in(invocation: Invocation, content: Content, event_id: str) -> Event:
    """
    Return the event of the user that answers questions of a run in progress with *content*; nothing is stored.

    Raises:
        InvalidMessageError: It answers no open question of this invocation, or not in its form.
    """
    from ._resume import check_answers  # few runs are answered while they go on

    answers = content.responses
    if len(answers) < len(content.parts):
        msg = "expected answers to open questions, or something new, found a mixture; send them one after the other"
        raise InvalidMessageError(msg)
    asked = await check_answers(invocation.program, invocation.pending(), answers, f"the run {invocation.id}")
    if len({question.call_id for question in asked}) < len(asked):
        raise InvalidMessageError("expected one answer to each question, found two; send one")
    if len({question.branch for question in asked}) > 1:
        raise InvalidMessageError("expected answers to questions of one agent, found several; send them one by one")
    event = Event(
        id=event_id, invocation_id=invocation.id, author="user", branch=asked[0].branch, content=content
    )
    if any("remember" in answer.response for answer in answers):
        from ._remembered import remembering  # few answers are for more than one call

        event = remembering(event, asked, answers)
    return event


# --- taking -----------------------------------------------------------------------------------------------------------


async def take_messages(context: InvocationContext) -> None:
    """
    Store what waits for the next question to a model, which the agent of *context* is about to ask.

    An agent inside of a call, or of a node, does not see the conversation: it leaves the messages to others.
    """
    invocation = context._invocation
    if context._position.inside is not None or not is_visible(None, context.branch):
        return
    if all(call.pending for call in invocation.open_calls()):
        await _take(invocation, NEXT_MODEL_CALL)


async def store_messages(context: InvocationContext) -> None:
    """Store what waits, at the end of a run whose agents answer nothing any more."""
    await _take(context._invocation, None)


async def answer_messages(execution: Execution) -> None:
    """Let the agents answer what has come until they had come to their end, and until they have again, and so on."""
    invocation = execution.invocation
    while (message := await _next_round(execution)) is not None:
        invocation.user_content = message.content
        await _speaker(invocation, message).run_async(InvocationContext.root(invocation))
        execution.rounds += 1


async def _next_round(execution: Execution) -> Event | None:
    """Return the message that the next round begins with; None if there is no other round."""
    invocation, replayer = execution.invocation, execution.invocation.replayer
    if replayer is not None:
        begun = [event for event in replayer.record.events if event.actions.replay.sent == IDLE]
        if execution.rounds <= len(begun):
            return begun[execution.rounds - 1]
    if not invocation.live.has_messages:
        return None
    return await _take(invocation, IDLE)


def _speaker(invocation: Invocation, message: Event) -> BaseAgent:
    """The agent that answers *message*, as if it was the user's next one."""
    history, live = invocation.history, invocation.live
    past = Window(live.events, live.index_of(history.prompt_seq), live.index_of(seq_of(message)))
    return invocation.program.tree.speaker(past, None if live.compaction is None else live.compaction.speaker)


async def _take(invocation: Invocation, when: str | None) -> Event | None:
    """
    Store the messages that wait, one after the other, and return the last that was stored, if there is one.

    Before a question to a model those are left that are to wait for the end. At the end the first is stored, and says
    that a round begins with it: each has a round, but those that are taken before the questions of another's. If nobody
    answers any more, which is None, all are stored, and stay as they were sent.
    """
    service, live = invocation.committer.session_service, invocation.live
    lock: trio.Lock = invocation.memo.setdefault("messages", trio.Lock())
    async with lock:  # agents in branches ask side by side
        live.has_messages, left = False, True
        try:
            found = await service.load_messages(live)
            waiting = [each for each in found if each.invocation_id == invocation.id]
            taken = [each for each in waiting if when != NEXT_MODEL_CALL or each.actions.replay.sent == when]
            if when == IDLE:
                taken = taken[:1]
            message: Event | None = None
            for each in taken:
                if when == IDLE:
                    replay = changed(each.actions.replay, sent=IDLE)
                    each = changed(each, actions=changed(each.actions, replay=replay))
                message = await _store(invocation, each, answers=when == IDLE)
            left = len(taken) < len(found)  # also those that wait for a paused invocation, which has the session next
        finally:
            live.has_messages = live.has_messages or left
    return message


async def _store(invocation: Invocation, message: Event, *, answers: bool) -> Event:
    context = InvocationContext.root(invocation)
    if answers:
        await invocation.emitter.leave_replay(context, "a message that was sent into the run")
    if "on_user_message_callback" in invocation.program.plugins:
        from ..runtime._on_message import apply_on_user_message  # few programs have such a plugin

        message = await apply_on_user_message(context, message)
    return await invocation.emitter.emit(context._for_run_hooks(), message, closing=True)
