"""
What goes from the caller to the model in a live run.

A content of the user is an event before it is sent. Until it is known to be part of the server's session, it is sent
again over the next connection, under the same id; a new session is told all of it as history. Sound is not kept.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from .._values import changed
from ..errors import InvalidMessageError, ModelError, StorageError
from ..events import NO_ACTIONS, Event, EventActions
from ..flows._live import Input, State
from ..models import ActivityEnd, ActivityStart, AudioStreamEnd, BaseLlmConnection
from ..runtime import InvocationContext
from ..types import Blob, Content, Part, id_of
from ._live_making import LiveSide

if TYPE_CHECKING:
    from ._live_request_queue import LiveRequest
    from ._live_talk import Talk

__all__ = ["Sending"]

# How long a server may take from the end of sound to saying that it has heard somebody, or to its answer.
_NOTICE_S = 2.0

# How often a run at rest looks into a store that it shares with other processes: what they send wakes nobody here.
_STORE_LOOK_S = 2.0


class _Sent(NamedTuple):
    """A content on its way."""

    id: str
    content: Content | None
    """None: it is not to be sent any more. Its place stays, as the server may say that it has all up to there."""
    turn_complete: bool


class Sending:
    """See the module; for one agent."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.lock = trio.Lock()
        """One task sends at a time."""
        self.side = LiveSide(0)
        """The present session of the model's side."""
        self._pending: list[_Sent] = []  # what may not be part of the server's session yet
        self._gone: set[str] = set()  # what has gone over the present connection
        self._refused: set[str] = set()  # types of sound and pictures of which the caller was told that over it none go
        self._is_told = False  # whether the server tells what is
        self._is_resumed: bool  # whether the connection goes on with the session of the one before
        self._may_send = trio.Event()
        self._may_send.set()
        self._has_sound = False  # whether sound has gone out since the client has said last that it was all
        self.noticed_by = 0.0
        """Until when the server may have noticed what the user has said last, and said is all, by trio's clock."""
        self._looks_at = 0.0  # into the store, for messages, by trio's clock

    # --- what is on its way

    def begins(self, *, is_resumed: bool) -> None:
        """Take note of a new connection; unless a session *is_resumed*, the model is told everything as history."""
        self._is_resumed = is_resumed
        self._gone.clear()
        self._refused.clear()
        if not is_resumed:
            self._pending.clear()
            self.side = LiveSide(self._talk.context._invocation.live.revision)

    def is_taken_up(self, content_id: str) -> None:
        """Note that the server has this content, and all before it: over each connection they go in one order."""
        self._is_told = True
        ids = [each.id for each in self._pending]
        if content_id in ids:
            del self._pending[: ids.index(content_id) + 1]

    def take_back(self, call_ids: Collection[str]) -> None:
        """Send no responses to these calls of the model's, which it has withdrawn."""
        for at, each in enumerate(self._pending):
            parts = () if each.content is None else each.content.parts
            left = [part for part in parts if not _is_answer_to(part, call_ids)]
            if len(left) < len(parts):
                self._pending[at] = each._replace(content=changed(each.content, parts=left) if left else None)

    def is_answered(self) -> None:
        """Note that an answer begins: where the server does not tell, it has what was sent before."""
        if not self._is_told:
            self._pending = [each for each in self._pending if each.content is not None and each.id not in self._gone]

    def hold(self) -> None:
        """Send nothing of the caller's until `go_on`: somebody else may take over."""
        if self._may_send.is_set():
            self._may_send = trio.Event()

    def go_on(self) -> None:
        """Send again."""
        self._may_send.set()

    # --- sending

    async def run(self, connection: BaseLlmConnection) -> None:
        """Send what may be missing over there, and then what the caller sends, until the line is closed."""
        line = self._talk.line
        try:
            await self._send_again(connection)
            if line.is_speaking:  # another connection was told
                async with self.lock:
                    await connection.send_realtime(ActivityStart())
            while True:
                if line.unsent is None:
                    line.unsent = await line.queue.take()
                    if line.inputs:
                        line.copy(line.unsent)
                if not self._may_send.is_set():
                    await self._may_send.wait()
                if isinstance(line.unsent, Blob):
                    await self._send_media(connection, line.unsent)
                    continue
                if line.unsent.close:
                    self._talk.inbox.post((Input.CLOSE, None))
                    return
                await self._send(connection, line.unsent)
                line.unsent = None
        except ModelError as error:
            self._talk.inbox.post((Input.LOST, error))

    async def _send_again(self, connection: BaseLlmConnection) -> None:
        """
        Send what may be missing over there.

        If the server has all of it, and has yet to answer, the answer was lost with the connection: it is asked to.
        """
        talk = self._talk
        for each in tuple(self._pending):
            await self._deliver(connection, each)
        has_all = all(each.content is None for each in self._pending)
        if self._is_resumed and has_all and talk.state is State.THINKING:
            go_on = Content(role="user", parts=[Part(text=talk.context._invocation.program.prompts.go_on)])
            async with self.lock:
                await connection.send_content(go_on)

    async def _send_media(self, connection: BaseLlmConnection, blob: Blob) -> None:
        line = self._talk.line
        try:
            connection.check_media(blob.mime_type)  # it may have been sent before there was this connection
        except InvalidMessageError as error:
            line.unsent = None
            line.queue.note_dropped(blob)
            if blob.mime_type not in self._refused:
                self._refused.add(blob.mime_type)
                await self._tell_refusal(error)
            return
        async with self.lock:
            await connection.send_realtime(blob)
        line.unsent = None
        self._has_sound = self._has_sound or not blob.mime_type.startswith("image/")
        await self._talk.speech.record(blob)

    async def _tell_refusal(self, error: InvalidMessageError) -> None:
        """Tell the caller what was wrong with what the queue has brought, as of all that happens."""
        event = Event(partial=True, error_code="INVALID_MESSAGE", error_message=str(error), live={})
        await self._talk.emit(event)

    async def _send(self, connection: BaseLlmConnection, request: LiveRequest) -> None:
        if request.content is not None or request.state_delta:
            await self._say(connection, request)
        ended = AudioStreamEnd() if request.audio_stream_end else None
        if (signal := request.activity_start or request.activity_end or ended) is None:
            return
        async with self.lock:
            await connection.send_realtime(signal)
        if ended is not None and self._has_sound:
            self._has_sound, self.noticed_by = False, trio.current_time() + _NOTICE_S
        if isinstance(signal, ActivityStart | ActivityEnd):
            self._talk.line.is_active()
            self._talk.line.is_speaking = isinstance(signal, ActivityStart)
        if isinstance(signal, ActivityEnd):
            self._talk.inbox.post((Input.ASKED, None))

    async def _say(self, connection: BaseLlmConnection, request: LiveRequest) -> None:
        talk, content = self._talk, request.content
        talk.line.is_active()
        if content is not None and content.responses:
            from ._live_questions import answer_question  # few conversations have questions

            try:
                await answer_question(talk.line, content, request.id or f"m-{talk.line.new_id()}")
            except InvalidMessageError as error:
                talk.line.unsent = None
                await self._tell_refusal(error)
            talk.line.unsent = None
            return
        stored = await self._store(content, request)
        talk.line.unsent = None  # whatever happens from here on, it is on its way
        if stored.content is None:
            return
        if await talk.speech.is_blocked(stored.content):
            return
        sent = _Sent(id_of(stored), stored.content, not request.partial)
        self._pending.append(sent)
        await self._deliver(connection, sent)

    async def _store(self, content: Content | None, request: LiveRequest) -> Event:
        """Store what the user has said, in writing. It waits for no caller: who sends may be the one that reads."""
        invocation = self._talk.context._invocation
        context = InvocationContext.root(invocation)._for_run_hooks()
        event = Event(
            id=request.id or context._following_id(f"{context._path}!said"),
            invocation_id=invocation.id,
            author="user",
            content=content,
            actions=EventActions(state_delta=request.state_delta) if request.state_delta else NO_ACTIONS,
            live={"after_seq": invocation.live.revision},
        )
        if content is not None and "on_user_message_callback" in invocation.program.plugins:
            from ..runtime._on_message import apply_on_user_message  # few programs have such a plugin

            event = await apply_on_user_message(InvocationContext.root(invocation), event)
        return await invocation.emitter.emit(context, event, closing=True)

    async def _deliver(self, connection: BaseLlmConnection, sent: _Sent, *, asks: bool = True) -> None:
        """
        Send it, unless the server has it, or another task has sent it over this connection.

        What stands before it, and has not gone over this connection, goes first: the server says how far it has come.
        """
        async with self.lock:
            ids = [each.id for each in self._pending]
            for content_id in ids[: ids.index(sent.id) + 1] if sent.id in ids else ():
                if connection is self._talk.connection and content_id not in self._gone:
                    await self._send_pending(connection, content_id, asks=asks or content_id != sent.id)

    async def _send_pending(self, connection: BaseLlmConnection, content_id: str, *, asks: bool) -> None:
        """Send what is left of it, if anything is."""
        found = next((each for each in self._pending if each.id == content_id), None)
        if found is None or found.content is None:
            return
        if found.turn_complete and asks:  # before it is sent: the answer is there sooner than this goes on
            self._talk.inbox.post((Input.ASKED, None))
        await connection.send_content(found.content, turn_complete=found.turn_complete, id=content_id)
        self._gone.add(content_id)

    async def deliver_results(self, content: Content, content_id: str) -> None:
        """Send responses to calls; over a connection that is lost meanwhile they go again."""
        sent = _Sent(content_id, content, turn_complete=True)
        self._pending.append(sent)
        if self._talk.connection is not None:
            await self._deliver(self._talk.connection, sent, asks=False)

    async def finds_messages(self) -> bool:
        """Look whether another process has sent something into the run, if it is time to: only the store knows."""
        invocation, now = self._talk.context._invocation, trio.current_time()
        service = invocation.committer.session_service
        if service.renew_every_s is None or now < self._looks_at:
            return False
        self._looks_at = now + _STORE_LOOK_S
        with suppress(StorageError):  # then the next look may find it
            return bool(await service.load_messages(invocation.live))
        return False

    async def take_messages(self) -> None:
        """Pass on what others have sent into the run (`Runner.send`)."""
        talk, live = self._talk, self._talk.context._invocation.live
        before = live.revision
        await talk.context._invocation.program.messages().store_messages(talk.context)
        for event in live.events[live.index_of(before + 1) :]:
            if event.author == "user" and event.content is not None and event.actions.replay.sent is not None:
                sent = _Sent(id_of(event), event.content, turn_complete=True)
                self._pending.append(sent)
                if talk.connection is not None:
                    await self._deliver(talk.connection, sent)


def _is_answer_to(part: Part, call_ids: Collection[str]) -> bool:
    return part.function_response is not None and part.function_response.id in call_ids
