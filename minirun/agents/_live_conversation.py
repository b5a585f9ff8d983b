"""
The conversation of one agent with its model, connection after connection, until the input is closed or the agent
transfers.

Three tasks for each connection, and the calls of the run beside them (`_live_calls`):

    _read       connection ─► inbox; reads ahead of a slow caller by a bounded amount
    _take_all   inbox ─► events that are stored or shown; the only task that changes what was said
    _send_all   input queue ─► events of the user ─► connection

Rules
=====

* An utterance of either side is one event, stored when it is complete or cut off. Pieces are partial events.
* The order in the log is the order of the conversation. Where a server reports the end of a transcript (OpenAI), the
  end of a response waits for the transcript of the user's earlier utterances, for at most `TRANSCRIPT_WAIT_S`.
* An interruption is shown first, by a partial event. Before the caller requests the next event, it can report the audio
  that was played (`LiveRun.played`); the stored text ends there. Without a report all audio that the caller has counts.
* A content of the user is stored, then sent. Until the server has it, it is sent again over the next connection of the
  same session; a new session is given the log as its history.
* However the conversation is left, what was said by then is stored, without waiting for the caller.

Not handled: which words were played (providers do not say it), audio that was sent while the connection was lost (it is
dropped), and several responses that wait at the client's loudspeaker: an interruption is about the newest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from contextlib import aclosing, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._values import MAKE, changed
from .._window import Extended
from ..errors import (
    InvalidMessageError,
    MinirunError,
    ModelConnectionError,
    ModelError,
    ModelRequestError,
    StorageError,
)
from ..events import NO_ACTIONS, Event, EventActions, seq_of
from ..models import (
    ActivityEnd,
    ActivityStart,
    AudioStreamEnd,
    BaseLlmConnection,
    LlmRequest,
    LlmRequestDraft,
    LlmResponse,
)
from ..runtime import InvocationContext
from ..runtime._failure import leaves
from ..runtime._hook_calls import ask, expect
from ..types import Blob, Content, FunctionDeclaration, Part, Transcription, UsageMetadata, id_of
from . import _model_callbacks
from ._live_calls import ProviderSession, Results, own_tools
from ._live_transcript import Inbox, LiveResponse, Utterance, length_ms
from ._model_retry import RETRIED, is_retried
from ._request import Toolbox, setup, transcript_of

if TYPE_CHECKING:
    from ..tools import BaseTool
    from ._live_request_queue import LiveRequest
    from ._live_shared import LiveShared
    from ._llm import LlmAgent

__all__ = ["Conversation"]

# The share of a connection's lifetime after which another one is opened, while neither side speaks.
LIFETIME_SHARE = 0.8
# A connection over which something was said, or that has lasted for `LONG_S`, was of use: the next one is opened at
# once, unless so many in a row were shorter than `SHORT_S`.
LONG_S = 10.0
SHORT_S = 1.0
SHORT_IN_A_ROW = 5
# A run fails after so many errors of the server in a row.
ERRORS_IN_A_ROW = 100
# The wait for the transcript of the user's utterance, before the response to it is stored: OpenAI transcribes by
# another model, which takes about a second.
TRANSCRIPT_WAIT_S = 2.0
# After the input is closed: the wait for a transcript, and from the end of audio to a response.
LAST_TRANSCRIPT_S = 5.0
LAST_AUDIO_S = 2.0
# From the partial event that is `interrupted`: the time in which the caller can report the played audio.
REPORT_S = 2.0
# From a failure of the sender until it counts as a loss. The reader normally reports the loss earlier, after all
# responses that it has read.
LOSS_S = 2.0
# Between two looks for messages that other tasks and processes have sent into the run (`Runner.send`).
MESSAGES_S = 2.0


class Signal(Enum):
    """An input that is not from the server."""

    CLOSE = auto()  # the input queue is closed, and everything before is sent
    INTERRUPT = auto()  # by the program
    SPEECH = auto()  # the client reports that the user begins to speak
    ASKED = auto()  # a content is sent, so the user's utterances before it are complete


@attrs.frozen
class Lost:
    """The connection has ended; without an *error*, in good order."""

    error: ModelError | None


@attrs.define
class Sent:
    """A content on its way to the provider's session."""

    id: str
    content: Content | None
    """None once the calls that it responds to are taken back: its place in the order is kept."""
    turn_complete: bool
    is_sent: bool = False
    """True if it was sent over the present connection."""


class Conversation:
    """See the module."""

    def __init__(self, agent: LlmAgent, context: InvocationContext, shared: LiveShared) -> None:
        self.agent = agent
        self.context = context
        self.shared = shared
        self.inbox = Inbox()
        self.tools: dict[str, BaseTool] = {}
        self.session = ProviderSession(0)
        self.is_completed = False
        """True once the model has reported that the task of this agent is done."""
        self.is_showing = 0
        """How many events are on their way to the store or to a slow caller."""
        self._connection: BaseLlmConnection | None = None
        self._handle: str | None = None
        self._is_resumed = False  # the connection continues the provider's session
        self._reason = "start" if shared.connections == 0 else "transfer"  # of the next connection
        self._leaves_at = float("inf")
        self._has_progress = False  # something was said over the present connection
        self._short = 0  # connections in a row that were short
        self._attempts = 0  # in a row, to open one that is of use
        self._errors = 0  # that the server has reported in a row
        # --- what was said
        self._response: LiveResponse | None = None  # that is being given
        self._is_owed = False  # the model was asked, and its response has not begun
        self._begun = 0  # responses
        self._ended_item: str | None = None  # the response that has ended; pieces of it can still be in flight
        self._awaits_end = False  # of a response that was cut off
        self._discards = False  # what comes belongs to a response that the program has interrupted
        self._newest: tuple[LiveResponse, int] | None = None  # complete, with its `seq`; may still be playing
        self._unread_ms = 0.0  # audio of an interrupted response that was dropped before it was taken
        self._usage: UsageMetadata | None = None
        self._utterances: dict[str | None, Utterance] = {}  # of the user, not stored yet, in order
        self._utterance_count = 0
        self._held: deque[LlmResponse] = deque()  # that wait for a transcript
        self._held_until = float("inf")
        self._held_after = 0  # the number of the last utterance whose transcript they wait for
        self._quiet_at = 0.0  # when the end of audio will have led to a response, on trio's clock
        self._closed_at = 0.0
        self._has_audio = False  # was sent since the client has reported its end
        # --- what is sent
        self._lock = trio.Lock()  # one task sends at a time
        self._outbox: list[Sent] = []  # contents that the provider's session may not have
        self._tells_taken_up = False
        self._may_send = trio.Event()
        self._may_send.set()
        self._messages_at = 0.0

    async def run(self) -> None:
        """Converse, until the input is closed or the agent transfers."""
        self.shared.conversation = self
        try:
            with self.shared.in_time():
                while not self.is_over:
                    await self._connect_and_converse()
        finally:
            self.shared.conversation = None
            with trio.CancelScope(shield=True):
                await self._store_rest()

    @property
    def is_over(self) -> bool:
        """True once this agent says nothing more."""
        has_transferred = self.context._position.handover.transfer_to is not None
        return self.is_completed or has_transferred or self.shared.is_over or self.context.end_invocation

    @property
    def _is_at_rest(self) -> bool:
        is_quiet = self._response is None and not self._is_owed and not self._held
        return is_quiet and not self.shared.calls.running

    # --- connections

    async def _connect_and_converse(self) -> None:
        """Open one connection, and converse over it until it ends; wait before the next attempt if it has failed."""
        handle = self._handle or (self.shared.settings.handle if self._reason == "start" else None)
        failure: Exception | None = None
        began_at, is_planned, self._has_progress = trio.current_time(), False, False
        try:
            box, request = await self._request(handle)
            await self.context._invocation.env.point(f"live {self.context._path}")
            with trio.CancelScope() as scope:
                async with box.model.connect(request) as connection:
                    try:  # no error leaves this block: a connection with tasks of its own would wrap it into a group
                        is_planned = await self._converse(connection, handle)
                    except Exception as error:
                        failure = error
                    finally:
                        self._connection = None
                        grace_s = self.context._invocation.program.cleanup_timeout_s
                        scope.deadline = trio.current_time() + grace_s  # closing can hang
                        with trio.CancelScope(shield=True), trio.move_on_after(grace_s), suppress(ModelError):
                            await connection.aclose()
        except Exception as error:
            failure = failure or error
        found = [] if failure is None else list(leaves(failure))
        if failure is not None and not all(isinstance(leaf, ModelError) for leaf in found):
            raise failure
        if self.is_over:
            return
        await self._lose()
        lasted_s = trio.current_time() - began_at
        self._short = self._short + 1 if lasted_s < SHORT_S else 0
        is_of_use = is_planned or self._has_progress or lasted_s >= LONG_S
        if not is_planned:
            self.shared.queue.drop_audio()
        cause: Exception = ModelConnectionError("the server ends live connections at once")
        if found and isinstance(found[0], ModelError):  # as all are
            cause = found[0]
        is_again = isinstance(cause, RETRIED)
        if is_of_use and self._short <= SHORT_IN_A_ROW:
            self._attempts = 0
            if is_again:
                return
        elif handle is not None and handle == self._handle and isinstance(cause, ModelRequestError):
            self._handle = None  # it does not lead back: a new session is given the history
            return
        self._attempts += 1
        if not is_again or not await is_retried(self.agent, self.context, self.next_id("again"), cause, self._attempts):
            raise cause

    async def _request(self, handle: str | None) -> tuple[Toolbox, LlmRequest]:
        box, config, instruction = await setup(self.agent, self.context)
        if self.agent.static_instruction is not None and instruction:  # a live model has one instruction
            config = changed(config, system_instruction=f"{config.system_instruction}\n\n{instruction}")
        own = own_tools(self)
        self.tools = {**box.tools, **own}
        prompts = self.context._invocation.program.prompts
        told = [declared for tool in own.values() if (declared := tool._declared(prompts)) is not None]
        declarations: list[FunctionDeclaration] = [*config.tools, *told]
        config = changed(config, tools=declarations)
        live = self.shared.settings.connect_config(handle=handle)
        return box, LlmRequest(contents=(), config=config, model=box.model.name, live=live)

    async def _converse(self, connection: BaseLlmConnection, handle: str | None) -> bool:
        """Send and receive until the connection ends; True if this side leaves it, between two turns."""
        await self._begin(connection, handle)
        failure: Exception | None = None
        is_planned = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, connection, name="live reader")
            nursery.start_soon(self._send_all, connection, name="live sender")
            try:
                is_planned = await self._take_all()
            except Exception as error:  # raised below, outside of the nursery's group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return is_planned

    async def _begin(self, connection: BaseLlmConnection, handle: str | None) -> None:
        """Store an event for the connection, and send the history to a new session."""
        shared, capabilities = self.shared, connection.capabilities
        shared.connections += 1
        shared.input_rate = capabilities.input_rate
        shared.queue.check_media = connection.check_media
        shared.connected.set()
        self._connection = connection
        self.inbox.rate = capabilities.output_rate
        lifetime = capabilities.lifetime_s
        self._leaves_at = float("inf") if lifetime is None else trio.current_time() + LIFETIME_SHARE * lifetime
        reason, self._reason = self._reason, "lost"  # unless it is left for another reason
        self._awaits_end = self._discards = False
        self._ended_item = None
        for sent in self._outbox:
            sent.is_sent = False
        await self.emit(Event(id=self.next_id("connection"), live={"connection": shared.connections, "reason": reason}))
        self._is_resumed = handle is not None
        if self._is_resumed:
            return
        self._outbox.clear()
        self.session = ProviderSession(self.context._invocation.live.revision)
        contents = transcript_of(self.agent, self.context).contents(asks=False)
        said = contents.shared if isinstance(contents, Extended) else contents  # without responses of open calls
        self._is_owed = bool(said) and said[-1].role == "user" and not shared.calls.running
        if contents:
            await connection.send_history(list(contents), answer=self._is_owed)

    async def _lose(self) -> None:
        """Store the utterances and the response that a lost connection has left incomplete."""
        await self._release()
        for response in self.inbox.drop_responses():  # of a connection that this side has left
            if response.input_transcription is not None:
                await self._hear(response)
        await self._store_utterances(can_cancel=False)
        await self._cut()

    # --- reading

    async def _read(self, connection: BaseLlmConnection) -> None:
        error: ModelError | None = None
        try:
            async with aclosing(connection.receive()) as responses:
                async for response in responses:
                    if response.interrupted:  # audio that waits is not played any more
                        self._drop_unread()
                    if response.cancelled_calls:  # at once: their results may be on their way
                        self._withdraw(response.cancelled_calls)
                    await self.inbox.bring(response)
        except ModelError as raised:
            error = raised
        self.inbox.post(Lost(error))

    def _drop_unread(self) -> None:
        """Drop the audio of an interrupted response that neither this task nor the caller has taken."""
        dropped_ms = self.inbox.drop_audio()
        if not self._discards:  # else it came after the response was cut
            self._unread_ms += dropped_ms
        self._withdraw_unread()

    def _withdraw_unread(self) -> None:
        response = self._response
        if response is not None:
            committer = self.context._invocation.committer
            dropped = committer.withdraw_partials(
                lambda event: event.id == response.event_id
                and not (event.interrupted or event.output_transcription is not None)
            )
            response.unread_ms += sum(length_ms(event.content, self.inbox.rate) for event in dropped)
            response.unread_chars += sum(len(event.text) for event in dropped)

    async def _take_all(self) -> bool:
        """Take the inputs one after the other; see `_converse`."""
        shared = self.shared
        while not self.is_over:
            if trio.current_time() >= self._leaves_at and self._is_at_rest and not self.inbox.has_items:
                self._reason = "go_away" if self._reason == "go_away" else "lifetime"
                return True
            item: object = None
            with trio.move_on_at(self._looks_at()):
                item = await self.inbox.take()
            if item is None:
                await self._take_time()
            elif isinstance(item, LlmResponse):
                await self._take(item)
            elif isinstance(item, Results):
                await shared.calls.tell(self, item)
            elif isinstance(item, Lost):
                if item.error is not None:
                    raise item.error
                self._reason = "ended"
                return False
            elif item is Signal.INTERRUPT:
                await self._interrupt_response()
            elif item is Signal.SPEECH:
                await self._cut_newest()
            elif item is Signal.ASKED:
                if self._response is None and not shared.calls.running:
                    await self._store_utterances(can_cancel=False)
            else:
                shared.is_closing, self._closed_at = True, trio.current_time()
            if shared.is_closing and self._is_at_rest and not self.inbox.has_items:
                await self._close_when_quiet()
        return False

    async def _close_when_quiet(self) -> None:
        """End the run, unless the user's last utterance can still lead to a transcript or a response."""
        if trio.current_time() >= self._quiet_until:
            await self._store_utterances()
            self.shared.is_over = True

    @property
    def _quiet_until(self) -> float:
        awaits = self._awaits_transcript(self._utterance_count)
        return max(self._quiet_at, self._closed_at + LAST_TRANSCRIPT_S if awaits else 0.0)

    def _looks_at(self) -> float:
        """Return when something is due although no input comes, on trio's clock."""
        due = min(self.shared.closes_at, self._held_until)
        if not self._is_at_rest or self.inbox.has_items:  # an input that is there is taken, however late it is
            return due if not self.inbox.has_items else float("inf")
        closing = self._quiet_until if self.shared.is_closing else float("inf")
        return min(due, self._leaves_at, closing, trio.current_time() + MESSAGES_S)

    async def _take_time(self) -> None:
        """Handle a deadline of `_looks_at`."""
        if trio.current_time() >= self.shared.closes_at:
            await self._lose()
            self.shared.is_over = True
        elif trio.current_time() >= self._held_until:
            await self._release()
        elif self._is_at_rest:
            await self._take_messages()

    # --- what the server says

    async def _take(self, response: LlmResponse) -> None:
        """Take a response, or hold it back: nothing overtakes one that waits for a transcript, but transcripts."""
        if response.content is not None or response.input_transcription is not None or response.turn_complete:
            self._has_progress = True
        if response.speech_started:
            await self._release()  # the next utterance begins: the wait for the previous one ends
        is_heard = response.speech_started or response.speech_stopped or response.input_transcription is not None
        if is_heard:
            await self._hear(response)
        if self._held:
            if not is_heard:
                self._held.append(response)
            if not self._awaits_transcript(self._held_after):
                await self._release()
            return
        calls = response.content is not None and bool(response.content.calls)
        self._held_after = self._utterance_count if self._response is None else self._response.after
        if (calls or response.interrupted or response.turn_complete) and self._awaits_transcript(self._held_after):
            self._held.append(response)
            self._held_until = trio.current_time() + TRANSCRIPT_WAIT_S
            return
        await self._take_now(response)

    async def _release(self) -> None:
        """Take the responses that were held back."""
        self._held_until = float("inf")
        while self._held:
            await self._take_now(self._held[0])
            self._held.popleft()  # not before: `_store_rest` looks here for the end of a response

    async def _take_now(self, response: LlmResponse) -> None:
        resumption = response.resumption
        if resumption is not None:
            if resumption.resumable and resumption.handle is not None:
                self._handle = resumption.handle
            if resumption.last_taken_up is not None:
                self._note_taken_up(resumption.last_taken_up)
        if response.go_away_s is not None:
            self._reason, self._leaves_at = "go_away", trio.current_time()
        if response.usage_metadata is not None:
            self.context._invocation.budgets.add_usage(response.usage_metadata)
            self._usage = response.usage_metadata
        is_over = bool(response.turn_complete)
        if response.error_code is not None:
            await self._store_error(response)
            if is_over and self._response is None and not self._awaits_end:
                return
        content = response.content
        if response.output_transcription is not None or (content is not None and content.parts and not content.calls):
            await self._show(response)
        if content is not None and content.calls:
            await self._take_calls(response)
        if response.interrupted:
            await self._take_interruption()
        if is_over:
            await self._take_end(response)
        self.shared.calls.are_withdrawn(response.cancelled_calls)

    async def _show(self, response: LlmResponse) -> None:
        """Show a piece of the response that is being given."""
        item_id, spoken = response.item_id, response.output_transcription
        if self._discards or (item_id is not None and item_id == self._ended_item):
            return
        if self._response is not None and self._response.is_other(item_id):
            await self._store_response(None)  # another item of the same turn
        if self._response is None:
            await self._begin_response()
            if self._discards:
                return  # a hook has answered what the user said
            event_id = self.next_id("response")
            self._response = LiveResponse(item_id or event_id, event_id, self._utterance_count, self.session)
        shown = self._response
        shown.add(response.content, spoken, self.inbox.rate)
        self.shared.is_active()
        context = self.context
        event: Event = MAKE[Event](  # complete; its fields were checked when the response was made
            id=shown.event_id,
            invocation_id=context.invocation_id,
            author=context.agent_name,
            branch=context.branch,
            node_info=context._position.node_info,
            content=response.content,
            partial=True,
            output_transcription=spoken,
            live=shown.live,
        )
        await self.emit(event)

    async def _begin_response(self) -> None:
        """Count a response, before any of it is shown or its calls are stored."""
        try:
            self.context._invocation.budgets.spend_llm_call()
        except Exception:
            await self._cancel_response()  # the limit is reached
            raise
        self._errors, self._unread_ms, self._quiet_at = 0, 0.0, 0.0
        self._awaits_end = False
        self._newest = None
        if not self._tells_taken_up:  # the server has what was sent before
            self._outbox = [sent for sent in self._outbox if sent.content is not None and not sent.is_sent]
        if self.agent._hooks(self.context, "before_model_callback"):
            await self._store_utterances()  # the hooks are called before anything of the response is shown
        self._begun += 1
        self._is_owed = False

    async def _take_calls(self, response: LlmResponse) -> None:
        await self._store_utterances()
        if self._discards:
            return
        if self._response is None:
            await self._begin_response()
        else:
            await self._store_response(None)
        await self.shared.calls.start(self, response)

    async def _take_end(self, response: LlmResponse) -> None:
        """The turn of the model is over."""
        if self._awaits_end:
            self._awaits_end = self._discards = False
            return
        await self._store_utterances(can_cancel=False)
        if self._response is not None:
            await self._store_response(response)
        elif self._is_owed:
            self._is_owed = False  # the response is empty: callers that count turns see its end
            usage = self.take_usage()
            await self.emit(Event(id=self.next_id("response"), turn_complete=True, usage_metadata=usage, live={}))
        if self.context._invocation.live.has_messages:
            await self._take_messages()

    async def _store_response(self, end: LlmResponse | None) -> None:
        """Store the response, which is complete; *end* ends the turn, too."""
        response = self._response
        assert response is not None
        stored = await self._store(self._event(response, response.text, turn_complete=True if end else None))
        self._response = None  # not before it is stored: `_store_rest` stores it if the caller leaves meanwhile
        self._ended_item = response.item_id if end else None
        if response.audio_ms and self._connection is not None and not self._connection.capabilities.knows_playback:
            self._newest = response, seq_of(stored)

    def _event(self, response: LiveResponse, text: str, **flags: Any) -> Event:
        spoken = Transcription(text=text, finished=True) if response.is_spoken else None
        content = Content(role="model", parts=[Part(text=text)]) if text else None
        return Event(
            id=response.event_id, content=content, output_transcription=spoken, usage_metadata=self.take_usage(),
            live=response.live, **flags,
        )  # fmt: skip

    async def _store(self, event: Event, *, closing: bool = False) -> Event:
        """Store a response, as the hooks after the model change it."""
        hooks = self.agent._hooks(self.context, "after_model_callback")
        if hooks and not closing:
            context = self.context._for_model_hooks(id_of(event))
            said = LlmResponse(
                content=event.content, interrupted=event.interrupted, usage_metadata=event.usage_metadata
            )
            other = await _model_callbacks.after_model(hooks, context, said)
            if other is not said:
                told = {"error_code": other.error_code, "error_message": other.error_message}
                event = changed(event, content=other.content, **told)
        if not event.interrupted:
            event, _ = self.agent._with_checked_output(event)  # `output_key`
        return await self.emit(event, closing=closing)

    async def _store_error(self, response: LlmResponse) -> None:
        """Store the failure of a response, or of the last message. The connection stays open."""
        is_over = bool(response.turn_complete) and self._response is None and not self._awaits_end
        self._is_owed = self._is_owed and not is_over
        event = Event(
            id=self.next_id("error"), error_code=response.error_code, error_message=response.error_message,
            turn_complete=is_over or None, live={},
        )  # fmt: skip
        await self.emit(event)
        self._errors += 1
        if self._errors >= ERRORS_IN_A_ROW:
            msg = f"the server has reported {self._errors} errors in a row; the last was {response.error_code}"
            raise ModelError(f"{msg}: {response.error_message}")

    # --- interruptions

    async def interrupt(self) -> None:
        """Stop the response that is being given or played."""
        self._drop_unread()
        self.inbox.post(Signal.INTERRUPT)

    async def _interrupt_response(self) -> None:
        if self._response is None and not self._is_owed:
            await self._cut_newest()
            return
        await self._cancel_response()
        await self._cut()

    async def _cancel_response(self) -> None:
        """Ask the server to stop; what still comes of the response is dropped, until its end."""
        self._discards = self._awaits_end = True
        self._is_owed = False
        if self._connection is not None:
            with suppress(ModelError):  # the reader reports the loss
                async with self._lock:
                    await self._connection.cancel()

    async def _take_interruption(self) -> None:
        """The server has stopped the response, because the user speaks or the program has asked for it."""
        if self._discards:
            return
        self._is_owed = self._is_owed and self._response is not None
        self._awaits_end = True
        await self._store_utterances(can_cancel=False)
        await self._cut()

    async def _cut(self) -> None:
        """Store the response that is being given, as far as the client has played it."""
        response = self._response
        if response is None:
            return
        self._withdraw_unread()
        played_ms = await self._ask_played(response)
        event = self._cut_event(response, played_ms)
        await self._store(event)
        self._response, self._ended_item = None, response.item_id
        await self._truncate(response, played_ms)

    def _cut_event(self, response: LiveResponse, played_ms: float | None) -> Event:
        came_ms = response.audio_ms - response.unread_ms
        response.audio_ms += self._unread_ms  # its transcript may have come
        heard, unheard = response.split(came_ms if played_ms is None else played_ms)
        event = self._event(response, heard, interrupted=True)
        return changed(event, custom_metadata={"unheard": unheard}) if unheard else event

    async def _cut_newest(self) -> None:
        """
        Interrupt the newest complete response, which the client may still play: OpenAI makes audio faster than that.

        Its event is stored, so a second event has the client's report, if there is one.
        """
        newest, self._newest = self._newest, None
        if newest is None:
            return
        response, seq = newest
        played_ms = await self._ask_played(response)
        if played_ms is not None and played_ms < response.audio_ms:
            await self._store_cut(response, seq, played_ms)
            await self._truncate(response, played_ms)

    async def _store_cut(self, response: LiveResponse, seq: int, played_ms: float, *, closing: bool = False) -> None:
        """Store the played part of a response that is stored already, as event *seq*."""
        heard, unheard = response.split(played_ms)
        live = {"item_id": response.item_id, "cut_seq": seq}
        told = {"heard": heard, "unheard": unheard}
        event = Event(id=self.next_id("cut"), interrupted=True, live=live, custom_metadata=told)
        await self.emit(event, closing=closing)

    async def _ask_played(self, response: LiveResponse) -> float | None:
        """Show that a response is interrupted; return the client's report, which it makes before the next event."""
        await self.emit(Event(id=response.event_id, partial=True, interrupted=True, live=response.live))
        with trio.move_on_after(REPORT_S):
            await self.context._invocation.committer.delivered()
        return self.shared.played_ms(response.item_id)

    async def _truncate(self, response: LiveResponse, played_ms: float | None) -> None:
        """Report the played length to a server that does not know it."""
        connection = self._connection
        is_known = response.session is self.session and response.item_id != response.event_id
        if connection is None or connection.capabilities.knows_playback or not is_known:
            return
        ms = response.audio_ms - response.unread_ms if played_ms is None else played_ms
        if response.audio_ms >= 1 and ms < response.audio_ms:
            with suppress(ModelError):  # the reader reports the loss
                async with self._lock:
                    await connection.truncate(response.item_id, max(1, int(ms)))

    # --- the user

    async def _hear(self, response: LlmResponse) -> None:
        """Handle the server's report of the user's speech."""
        item_id, spoken = response.item_id, response.input_transcription
        self.shared.is_active()
        if response.speech_started:
            await self._cut_newest()
        utterance = self._utterance_of(response)
        if utterance is None:
            return
        if spoken is not None and spoken.text:
            content = Content(role="user", parts=[Part(text=spoken.text)])
            live = {} if item_id is None else {"item_id": item_id}
            await self.emit(
                Event(author="user", content=content, partial=True, input_transcription=spoken, live=live)
            )
        is_finished = spoken is not None and bool(spoken.finished)
        if is_finished:
            await self._store_utterance(utterance)
        is_stopped = response.speech_stopped or (is_finished and not self._finishes_transcripts)
        if is_stopped and utterance.responses == self._begun:
            self._is_owed = True

    def _utterance_of(self, response: LlmResponse) -> Utterance | None:
        """Add a piece of transcript to its utterance; None if the response only ends a stored one."""
        item_id, spoken = response.item_id, response.input_transcription
        text = None if spoken is None else spoken.text
        if item_id not in self._utterances:
            if not (response.speech_started or response.speech_stopped or text):
                return None
            self._utterance_count += 1
            self._utterances[item_id] = Utterance(item_id, self._utterance_count, self._begun)
        if text:
            self._utterances[item_id].pieces.append(text)
        return self._utterances[item_id]

    @property
    def _finishes_transcripts(self) -> bool:
        return self._connection is not None and self._connection.capabilities.finishes_transcripts

    def _awaits_transcript(self, number: int) -> bool:
        """True if the server will still report the end of one of the user's utterances up to this one."""
        if not self._finishes_transcripts or self.shared.settings.input_audio_transcription is None:
            return False
        return any(utterance.number <= number for utterance in self._utterances.values())

    async def _store_utterances(self, *, can_cancel: bool = True) -> None:
        """Store the user's utterances, where the server does not report their end."""
        if not self._finishes_transcripts:
            for utterance in list(self._utterances.values()):
                await self._store_utterance(utterance, can_cancel=can_cancel)

    async def _store_utterance(
        self, utterance: Utterance, *, can_cancel: bool = True, closing: bool = False
    ) -> None:
        """Store an utterance; a hook before the model can answer it, and cancel the response if that is not over."""
        item_id, text = utterance.item_id, utterance.text
        if text:
            event = Event(
                id=self.next_id("heard"),
                author="user",
                content=Content(role="user", parts=[Part(text=text)]),
                input_transcription=Transcription(text=text, finished=True),
                live={} if item_id is None else {"item_id": item_id},
            )
            stored = await self.emit(event, closing=closing)
        self._utterances.pop(item_id, None)  # not before: `_store_rest` stores it if the caller leaves meanwhile
        if text and not closing:
            assert stored.content is not None
            is_over = utterance.responses < self._begun and self._response is None and not self._is_owed
            if await self._is_blocked(stored.content) and can_cancel and not is_over:
                await self._cancel_response()
                await self._cut()

    async def _is_blocked(self, content: Content) -> bool:
        """Call the hooks before the model with an utterance of the user; True if one has answered, and it is stored."""
        hooks = self.agent._hooks(self.context, "before_model_callback")
        if not hooks:
            return False
        box, config, _ = await setup(self.agent, self.context)
        draft = LlmRequestDraft.of(LlmRequest(contents=[content], config=config, model=box.model.name))
        event_id = self.next_id("response")
        context = self.context._for_model_hooks(event_id)
        answer: LlmResponse | None = expect(
            await ask(hooks, callback_context=context, llm_request=draft), LlmResponse, "before_model_callback"
        )
        if answer is None:
            return False
        event = Event(id=event_id, content=answer.content, error_code=answer.error_code, turn_complete=True, live={})
        await self.emit(changed(event, error_message=answer.error_message), closing=True)
        return True

    # --- sending

    def pause_sending(self) -> None:
        """Keep the input in the queue: another agent may take over."""
        if self._may_send.is_set():
            self._may_send = trio.Event()

    def resume_sending(self) -> None:
        """Send the input again."""
        self._may_send.set()

    async def _send_all(self, connection: BaseLlmConnection) -> None:
        """Send the outbox, then the input, until the queue is closed."""
        shared = self.shared
        try:
            await self._send_again(connection)
            if shared.is_speaking:  # it was sent over an earlier connection
                async with self._lock:
                    await connection.send_realtime(ActivityStart())
            while True:
                if shared.unsent is None:
                    shared.unsent = await shared.queue.take()
                await self._may_send.wait()
                entry = shared.unsent
                if isinstance(entry, Blob):
                    connection.check_media(entry.mime_type)  # it may have been sent before there was a connection
                    async with self._lock:
                        await connection.send_realtime(entry)
                    self._has_audio = self._has_audio or not entry.mime_type.startswith("image/")
                elif entry.close:
                    self.inbox.post(Signal.CLOSE)
                    return
                elif entry.content is not None or entry.state_delta:
                    await self._send_message(entry)
                else:
                    await self._send_signal(connection, entry)
                shared.unsent = None
        except ModelError as error:
            await trio.sleep(LOSS_S)
            self.inbox.post(Lost(error))

    async def _send_signal(self, connection: BaseLlmConnection, entry: LiveRequest) -> None:
        signal = entry.activity_start or entry.activity_end or AudioStreamEnd()
        if isinstance(signal, ActivityEnd):
            self._is_owed = True  # before it is sent: the response can come before this task continues
        async with self._lock:
            await connection.send_realtime(signal)
        if isinstance(signal, AudioStreamEnd):
            if self._has_audio:
                self._quiet_at, self._has_audio = trio.current_time() + LAST_AUDIO_S, False
            return
        self.shared.is_active()
        self.shared.is_speaking = isinstance(signal, ActivityStart)
        if self.shared.is_speaking:
            self.inbox.post(Signal.SPEECH)

    async def _send_message(self, entry: LiveRequest) -> None:
        """Store a content of the user, and send it."""
        shared, content = self.shared, entry.content
        shared.is_active()
        if content is not None and content.responses:
            try:
                await shared.calls.reply(content, entry.id or f"m-{self.context._invocation.env.new_id('message')}")
            except InvalidMessageError as error:
                told = Event(partial=True, error_code="INVALID_MESSAGE", error_message=str(error), live={})
                await self.emit(told)
            return
        stored = await self._store_message(content, entry)
        shared.unsent = None  # it is stored: from here on it is in the history, or in the outbox
        self.inbox.post(Signal.ASKED)
        if stored.content is not None and not await self._is_blocked(stored.content):
            await self.send_content(stored.content, id_of(stored), turn_complete=not entry.partial)

    async def _store_message(self, content: Content | None, entry: LiveRequest) -> Event:
        """Store an event of the user. It does not wait for the caller, who can be the task that sends."""
        invocation = self.context._invocation
        context = InvocationContext.root(invocation)
        event = Event(
            id=entry.id or self.next_id("said"),
            invocation_id=invocation.id,
            author="user",
            content=content,
            actions=EventActions(state_delta=entry.state_delta) if entry.state_delta else NO_ACTIONS,
            live={},
        )
        if content is not None and "on_user_message_callback" in invocation.program.plugins:
            from ..runtime._on_message import apply_on_user_message  # few programs have such a plugin

            event = await apply_on_user_message(context, event)
        return await invocation.emitter.emit(context._for_run_hooks(), event, closing=True)

    async def send_content(self, content: Content, content_id: str, *, turn_complete: bool = True) -> None:
        """Send a content, now or over the next connection of the session."""
        self._outbox.append(Sent(content_id, content, turn_complete))
        if self._connection is not None:
            with suppress(ModelError):  # the reader reports the loss, and it is sent again
                await self._send_outbox(self._connection)

    async def _send_outbox(self, connection: BaseLlmConnection) -> None:
        async with self._lock:
            for sent in list(self._outbox):
                if connection is self._connection and sent in self._outbox and not sent.is_sent and sent.content:
                    self._is_owed = self._is_owed or sent.turn_complete
                    await connection.send_content(sent.content, turn_complete=sent.turn_complete, id=sent.id)
                    sent.is_sent = True

    async def _send_again(self, connection: BaseLlmConnection) -> None:
        """Send the outbox. If it is empty, but a response was lost, the model is asked to continue."""
        is_lost = self._is_resumed and self._is_owed and all(sent.content is None for sent in self._outbox)
        await self._send_outbox(connection)
        if is_lost:
            text = self.context._invocation.program.prompts.go_on
            async with self._lock:
                await connection.send_content(Content(role="user", parts=[Part(text=text)]))

    def _note_taken_up(self, content_id: str) -> None:
        """The session has this content, and everything that was sent before it."""
        self._tells_taken_up = True
        ids = [sent.id for sent in self._outbox]
        if content_id in ids:
            del self._outbox[: ids.index(content_id) + 1]

    def _withdraw(self, given_ids: Collection[str]) -> None:
        """The model has taken calls back: cancel them, and do not send their responses."""
        self.shared.calls.withdraw(given_ids)
        for sent in self._outbox:
            parts = () if sent.content is None else sent.content.parts
            left = [p for p in parts if p.function_response is None or p.function_response.id not in given_ids]
            if len(left) < len(parts):
                sent.content = changed(sent.content, parts=tuple(left)) if left else None

    async def _take_messages(self) -> None:
        """Send what other tasks and processes have sent into the run (`Runner.send`)."""
        invocation, live = self.context._invocation, self.context._invocation.live
        service = invocation.committer.session_service
        if not live.has_messages and service.renew_every_s is not None:  # other processes share the store
            with suppress(StorageError):  # the next look may succeed
                live.has_messages = bool(await service.load_messages(live))
        if not live.has_messages:
            return
        before = live.revision
        await invocation.program.messages().store_messages(self.context)
        for event in live.events[live.index_of(before + 1) :]:
            if event.author == "user" and event.content is not None and event.actions.replay.sent is not None:
                await self.send_content(event.content, id_of(event))

    # --- small helpers

    def next_id(self, what: str) -> str:
        """Return the id of the next event of this kind."""
        return self.context._following_id(f"{self.context._path}!{what}")

    def take_usage(self) -> UsageMetadata | None:
        """Return the tokens that the model has reported since the last event with tokens."""
        usage, self._usage = self._usage, None
        return usage

    async def emit(self, event: Event, *, closing: bool = False) -> Event:
        """Store *event* as one of this agent's, or show it."""
        self.is_showing += 1
        try:
            return await self.context._invocation.emitter.emit(self.context, event, closing=closing)
        finally:
            self.is_showing -= 1

    async def _store_rest(self) -> None:
        """Store incomplete utterances when the conversation is left, without waiting for the caller."""
        for left in self.inbox.drop_responses():
            self._utterance_of(left)
        try:
            for utterance in list(self._utterances.values()):
                await self._store_utterance(utterance, closing=True)
            if self._newest is not None and not self.is_over:  # the caller leaves, perhaps after a report
                newest, seq = self._newest
                played_ms = self.shared.played_ms(newest.item_id)
                if played_ms is not None and played_ms < newest.audio_ms:
                    await self._store_cut(newest, seq, played_ms, closing=True)
            response = self._response
            if response is not None and (response.text or response.is_spoken):
                played_ms = self.shared.played_ms(response.item_id)
                has_ended = any(held.turn_complete and not held.interrupted for held in self._held)
                if has_ended and (played_ms is None or played_ms >= response.audio_ms):
                    event = self._event(response, response.text, turn_complete=True)
                else:
                    self._withdraw_unread()
                    event = self._cut_event(response, played_ms)
                await self._store(event, closing=True)
                self._response = None
        except MinirunError as error:  # the store fails: the end of the run raises it
            self.context._invocation.failures.late.append(error)
            await trio.lowlevel.checkpoint_if_cancelled()
