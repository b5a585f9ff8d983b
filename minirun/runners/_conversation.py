"""Plain messages to an agent that is in a conversation: they answer it, and begin no invocation."""

from __future__ import annotations

import attrs
import trio

from .._values import changed
from ..errors import InvalidMessageError
from ..events import Event
from ..flows._questions import REQUEST_MESSAGE
from ..runtime import Program, RunRequest
from ..sessions import BaseSessionService, GetSessionConfig, SessionWriter
from ..types import Content, FunctionResponse, Part
from ._opener import SessionOpener
from ._resume import ResumedInvocation

__all__ = ["answering"]


async def answering(
    opener: SessionOpener, program: Program, writer: SessionWriter, request: RunRequest
) -> tuple[SessionWriter, RunRequest]:
    """Return what a run goes on with whose *request* has a new message, in the session that *writer* has opened."""
    key = writer.live.key
    while (message := await asked_for_message(opener.service, writer, request.message)) is not None:
        resumed = ResumedInvocation(opener, program, key, None, False)
        try:
            return await resumed.open(attrs.evolve(request, message=message))
        except InvalidMessageError:  # somebody else has answered meanwhile: it answers what is asked now, or begins
            writer = await opener.open(key, request, auto_create=False)
    return writer, request


async def asked_for_message(service: BaseSessionService, writer: SessionWriter, message: Event) -> Event | None:
    """
    Return what the new *message* is if it answers a question, and let go of the session; None if it begins something.

    It answers if it is text, and the invocation that was last at work in the session waits for what the user says
    next, and for nothing else.
    """
    try:
        parts = () if message.content is None else message.content.parts
        text = "".join(part.text or "" for part in parts)
        if not text.strip() or any(part.text is None for part in parts):
            return None
        call_id = await _asked(service, writer)
        if call_id is None:
            return None
    except BaseException:
        with trio.CancelScope(shield=True):
            await writer.finish(None)
        raise
    with trio.CancelScope(shield=True):
        await writer.finish(None)
    response = FunctionResponse(id=call_id, name=REQUEST_MESSAGE, response={"result": text})
    return changed(message, content=Content(role="user", parts=[Part(function_response=response)]))


async def _asked(service: BaseSessionService, writer: SessionWriter) -> str | None:
    """The id of the question that a plain message answers."""
    live = writer.live
    waiting = [call for call in live.open_calls.values() if call.pending == "waits"]
    if all(call.name != REQUEST_MESSAGE for call in waiting):
        return None
    if not live.events:
        await service.load_session(live.key, GetSessionConfig(num_recent_events=1))
    last = next((event.invocation_id for event in reversed(live.events) if event.invocation_id is not None), None)
    of_last = [call for call in waiting if call.invocation_id == last]
    return of_last[0].call_id if len(of_last) == 1 and of_last[0].name == REQUEST_MESSAGE else None
