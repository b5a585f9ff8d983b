"""
One agent's part of a live run: it converses with its model, connection after connection, until the line is closed or
it hands over.

Four things go on at once, each in a task of its own:

    read     connection ──► inbox; held back while too much sound is there
    take     inbox ──► the table (`flows._live`) ──► what is stored and shown (`_live_speech`)
    send     the queue of the line ──► what is stored (`_live_sending`) ──► connection
    calls    the calls of each answer, in a batch (`_live_calls`); results go to the inbox, and then to the connection

The first three live as long as their connection, the calls as long as the talk. Only *take* changes the state.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from .._values import changed
from .._window import Extended
from ..errors import ModelConnectionError, ModelError, ModelRequestError
from ..events import Event
from ..flows._live import Do, Input, State, step
from ..models import BaseLlmConnection, LiveResumption, LlmRequest, LlmResponse
from ..runtime import InvocationContext
from ..types import FunctionDeclaration, GenerateContentConfig
from ._live_calls import Calls
from ._live_inbox import Inbox, Item, inputs_of
from ._live_sending import Sending
from ._live_speech import Speech
from ._model_retry import RETRIED, is_retried
from ._request import Toolbox, setup, transcript_of

if TYPE_CHECKING:
    from ..tools import BaseTool
    from ._live_line import Line
    from ._llm import LlmAgent

__all__ = ["Talk"]

# Of a connection's lifetime, how much is used before another one is opened, between two turns.
_SHARE_OF_LIFETIME = 0.8

# While nobody has the word: how often somebody looks whether others have sent a message into the run.
_MESSAGE_LOOK_S = 0.5

# So many connections in a row that last for less are each followed by another one at once.
_SHORT_S = 1.0
_SHORT_IN_A_ROW = 5

# One that has lasted for so long was of use, even if nobody has said anything.
_LONG_S = 10.0

# A server that tells of so many errors in a row answers nothing any more.
_ERRORS_IN_A_ROW = 100

# How long a conversation that is over waits for the text of what was said last, which is understood by another model.
_TEXT_WAIT_S = 5.0

# What the program interrupts when no answer is being given: one that is over may be played by now.
_WHAT_IS_PLAYED: Final = object()


class Talk:
    """See the module."""

    def __init__(self, agent: LlmAgent, context: InvocationContext, line: Line) -> None:
        self.agent = agent
        self.context = context
        self.line = line
        self.state = State.LISTENING
        self.tools: dict[str, BaseTool] = {}
        self.connection: BaseLlmConnection | None = None
        """The present one; None while there is none."""
        self.inbox = Inbox(line.settings.audio_lag_s_max, rate=24000)
        self.speech: Speech = Speech(self)
        self.sending: Sending = Sending(self)
        self.calls: Calls = Calls(self)
        self.handle: str | None = None
        """By which the server's session can be gone on with."""
        self._nursery: trio.Nursery
        self._told: tuple[str | None, tuple[FunctionDeclaration, ...]] = (None, ())
        self._reason = "start" if line.connections == 0 else "transfer"  # of the next connection
        self._is_cut = False  # whether an answer was interrupted, and the server has yet to say that it is over
        self._has_progress = False  # whether the present connection was of any use
        self._attempts = 0  # to get one that is, since the last that was
        self._short = 0  # how many connections, one after the other, have lasted for hardly any time
        self._errors = 0  # that the server has told of, one after the other
        self._showing = 0  # how many events a caller has to make room for
        self._waits_until = float("inf")  # for what may still come, once the line is closing, while nobody speaks

    @property
    def is_busy(self) -> bool:
        """Whether an answer is played, or given to a slow caller, or a call is made: then nobody is idle."""
        return bool(self._showing) or self.calls.are_running or trio.current_time() < self.line.playing.until

    @property
    def hands_over(self) -> bool:
        """Whether another agent may speak after this one."""
        return self.context._position.handover.transfer_to is not None or self.calls.is_completed

    @property
    def finishes_transcripts(self) -> bool:
        """Whether the server says when it has understood all that the user said: at any time, even after the answer."""
        return self.connection is not None and self.connection.capabilities.finishes_transcripts

    async def run(self) -> None:
        """Converse. However it is left, what was heard by then is stored."""
        self.line.talk = self
        try:
            async with trio.open_nursery() as nursery:
                self.calls.run_in(nursery)
                self._nursery = nursery
                if self.line.playing.is_to_stop:  # somebody has said so while nobody spoke
                    nursery.start_soon(self.speech.cut_playing, name="interruption")
                with self.line.in_time():
                    while not self.is_over:
                        await self._connect_and_converse()
                self.finish()
                nursery.cancel_scope.cancel()
        finally:
            self.line.talk = None
            with trio.CancelScope(shield=True):
                await self.speech.keep_rest()

    @property
    def is_over(self) -> bool:
        """Whether this agent says nothing any more."""
        position = self.context._position
        return self.state is State.CLOSING or position.handover.transfer_to is not None or self.context.end_invocation

    # --- connections

    async def _connect_and_converse(self) -> None:
        connection: BaseLlmConnection | None = None
        error: ModelError | None = None
        self._has_progress, handle, began, has_ended = False, self.handle, trio.current_time(), False
        try:
            connection = await self._connect()
            began = trio.current_time()
            has_ended = await self._converse(connection)
        except ModelError as raised:
            error = raised
        finally:
            self.connection = None
            if connection is not None:
                with trio.CancelScope(shield=True), trio.move_on_after(self._cleanup_s), suppress(ModelError):
                    await connection.aclose()
        if self.is_over:
            return
        is_left = error is None and not has_ended
        is_of_use = connection is not None and self._is_of_use(began, is_left=is_left)
        if error is None and not is_of_use:
            error = ModelConnectionError("the server ends live connections before anything is said")
        if error is not None:
            is_refused = isinstance(error, ModelRequestError) and not is_of_use
            if handle is not None and handle == self.handle and is_refused:
                self.handle = None  # it does not lead back: a new session is told the history
            else:
                await self._get_over(error, is_of_use)
        for response in self.speech.drop_responses():  # of what it has said this stays
            await self.speech.hear(response)
        self.calls.withdrawn_unmade.clear()
        await self.happens(Input.LOST, None)
        self.line.queue.drop_audio_older(self.line.settings.resume_audio_s_max)
        if self.line.is_closing and self._is_at_rest:
            await self.happens(Input.CLOSE, None)

    @property
    def _cleanup_s(self) -> float:
        return self.context._invocation.program.cleanup_timeout_s

    async def _connect(self) -> BaseLlmConnection:
        """Open a connection, tell the model what it has to know, and store that there is one."""
        context, settings = self.context, self.line.settings
        box, config = await self._setup()
        self.tools = self.calls.with_own(box.tools)
        config = changed(config, tools=self.calls.declarations(config.tools))
        handle = self.handle or (settings.handle if self._reason == "start" else None)
        request = LlmRequest(
            contents=(), config=config, model=box.model.name, live=settings.connect_config(handle=handle)
        )
        self._told = (config.system_instruction, tuple(config.tools))
        first = self._reason in ("start", "transfer")
        await context._invocation.env.point(f"live {context._path}")
        connection = await self.line.open(box.model, request, first=first)
        reason, self._reason = self._reason, "lost"  # unless it is left for another one
        self.inbox.rate = connection.capabilities.output_rate
        lifetime = connection.capabilities.lifetime_s
        # When it is to be left, if the state allows it.
        self._leaves_at = float("inf") if lifetime is None else trio.current_time() + _SHARE_OF_LIFETIME * lifetime
        await self.speech.tell_connection(reason)
        self.speech.begins()
        self.sending.begins(is_resumed=handle is not None)
        if handle is None:
            contents = transcript_of(self.agent, context).contents(asks=False)
            if contents:
                said = contents.shared if isinstance(contents, Extended) else contents  # without what stands in
                owes_answer = bool(said) and said[-1].role == "user" and not self.calls.are_running
                await connection.send_history(list(contents), answer=owes_answer)
                if owes_answer:
                    self.inbox.post((Input.ASKED, None))
        return connection

    async def _setup(self) -> tuple[Toolbox, GenerateContentConfig]:
        """What the agent converses with. Of two instructions the model is told both at once, as there is no prompt."""
        box, config, instruction = await setup(self.agent, self.context)
        if self.agent.static_instruction is not None and instruction:
            config = changed(config, system_instruction=f"{config.system_instruction}\n\n{instruction}")
        return box, config

    async def _converse(self, connection: BaseLlmConnection) -> bool:
        """Send and receive, until the connection is to be left, or ends; return whether that was in good order."""
        self.connection, failure, has_ended = connection, None, False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, connection, name="live reader")
            nursery.start_soon(self.sending.run, connection, name="live sender")
            try:
                if has_ended := await self._take_all():
                    self._reason = "ended"
            except ModelError as error:  # raised by itself, and not in a group of the nursery's
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return has_ended

    def _is_of_use(self, began: float, *, is_left: bool) -> bool:
        """Whether the connection, which is over, is to be followed by another one at once."""
        lasted = trio.current_time() - began
        self._short = self._short + 1 if lasted < _SHORT_S else 0
        return self._short <= _SHORT_IN_A_ROW and (is_left or self._has_progress or lasted >= _LONG_S)

    async def _get_over(self, error: ModelError, is_of_use: bool) -> None:
        """Wait until it is time to connect again; raise *error* if nobody does."""
        if not isinstance(error, RETRIED):
            raise error
        if is_of_use:
            self._attempts = 0
            return  # at once: it went well until now
        self._attempts += 1
        event_id = self.context._following_id(f"{self.context._path}!again")
        if not await is_retried(self.agent, self.context, event_id, error, self._attempts):
            raise error

    # --- reading

    async def _read(self, connection: BaseLlmConnection) -> None:
        try:
            async with aclosing(connection.receive()) as responses:
                async for response in responses:
                    if response.resumption is not None:  # at once: what was said before may wait for the caller
                        self._note_resumption(response.resumption)
                    if response.interrupted:
                        self.speech.forget_unread()
                    if response.cancelled_calls:  # at once, too: results may be on their way by now
                        self.calls.cancel(response.cancelled_calls)
                    await self.inbox.bring(response)
        except ModelError as error:
            self.inbox.post((Input.LOST, error))
        else:
            self.inbox.post((Input.LOST, None))

    async def _take_all(self) -> bool:
        """Take what comes, one after the other; return whether the server has ended the connection in good order."""
        while not self.is_over:
            if self._is_to_leave():
                return False
            item: Item | None = None
            if not self._is_at_rest:
                self._waits_until = float("inf")
            deadline = self.line.closes_at
            if self._is_at_rest and not self.inbox.has_items:  # what has come is taken, however late it is
                deadline = min(deadline, self._leaves_at, self._waits_until, trio.current_time() + _MESSAGE_LOOK_S)
            if deadline == float("inf"):
                item = await self.inbox.take()
            else:
                with trio.move_on_at(deadline):
                    item = await self.inbox.take()
            if item is None:
                if trio.current_time() >= self.line.closes_at:
                    await self.happens(Input.LOST, None)  # of what is not finished by now
                    self.finish()
                elif trio.current_time() >= self._waits_until:
                    await self.happens(Input.CLOSE, None)
                elif self.context._invocation.live.has_messages or await self.sending.finds_messages():
                    await self.sending.take_messages()
            elif isinstance(item, LlmResponse):
                await self._take(item)
            elif item[0] is Input.CLOSE:
                self.line.is_closing = True  # all that came before is dealt with
            elif item[0] is not Input.LOST:
                await self.happens(*item)
            elif item[1] is None:
                return True
            else:
                raise item[1]
            if self.line.is_closing and self._is_at_rest and not self.inbox.has_items:
                await self._close()
        return False

    async def _close(self) -> None:
        """End the conversation, which is at rest; what the user has said last may still be noticed, or understood."""
        if self.speech.awaits_text:
            self._waits_until = min(self._waits_until, trio.current_time() + _TEXT_WAIT_S)
        elif trio.current_time() < self.sending.noticed_by:
            self._waits_until = min(self._waits_until, self.sending.noticed_by)
        else:
            await self.happens(Input.CLOSE, None)

    @property
    def _is_at_rest(self) -> bool:
        return self.state is State.LISTENING and not (self.calls.are_running or self.line.remaking)

    def _is_to_leave(self) -> bool:
        """Whether the connection is to be left for another one now: its time is over, and nobody says anything."""
        if trio.current_time() < self._leaves_at or not self._is_at_rest:
            return False
        if self._reason != "go_away":
            self._reason = "lifetime"
        return True

    async def _take(self, response: LlmResponse) -> None:
        """Take what the server says."""
        self._note(response)
        if self.inbox.missing_ms and self.speech.is_wanted(Input.PIECE, response):
            self.speech.note_missing(self.inbox.missing_ms, response.item_id)
        if response.speech_started or response.speech_stopped or response.input_transcription is not None:
            await self.speech.hear(response)
        if response.error_code is not None:
            await self.speech.tell_error(response)
            self._errors += 1
            if self._errors >= _ERRORS_IN_A_ROW:
                msg = f"the server has failed {self._errors} times in a row; the last was {response.error_code}"
                raise ModelError(f"{msg}: {response.error_message}")
        for what in inputs_of(response):
            if self.speech.is_wanted(what, response):
                await self.happens(what, response)
            elif what is Input.PIECE:
                self.inbox.dropped_ms += self.inbox.length_of(response)
        self.calls.withdrawn_unmade.difference_update(response.cancelled_calls)  # all before it are made by now

    def _note(self, response: LlmResponse) -> None:
        """Note what *response* says of the connection and of the budgets."""
        if response.go_away_s is not None:
            self._reason = "go_away"
            self._leaves_at = min(self._leaves_at, trio.current_time())
        if response.usage_metadata is not None:
            self.context._invocation.budgets.add_usage(response.usage_metadata)
            self.speech.usage = response.usage_metadata
        if response.content is not None or response.input_transcription is not None or response.turn_complete:
            self._has_progress = True
            self.line.is_active()

    def _note_resumption(self, resumption: LiveResumption) -> None:
        if resumption.resumable and resumption.handle is not None:
            self.handle = resumption.handle
        if resumption.last_taken_up is not None:
            self.sending.is_taken_up(resumption.last_taken_up)

    # --- what happens

    async def happens(self, what: Input, about: Any) -> None:
        """Go on in the table, and do what stands there."""
        if what is Input.RESULTS:
            told = await self.calls.tell(about)
            if self.calls.are_running:
                return
            what = Input.RESULTS if self.state is State.CALLING and told is Input.ASKED else told
        if what is Input.INTERRUPTED:
            await self.speech.cut_playing()
            if about is _WHAT_IS_PLAYED:
                return
            self.calls.interrupt()
        if what is Input.OVER and self._is_cut:
            self._is_cut = False  # of the answer that was interrupted: the next one may have been asked for already
            return
        was, (self.state, doings) = self.state, step(self.state, what)
        if Do.BEGIN in doings:
            self._is_cut = False
        elif what in (Input.INTERRUPTED, Input.LOST):
            self._is_cut = what is Input.INTERRUPTED
        for do in doings:
            await _DOINGS[do](self, about)
            if do is Do.KEEP_HEARD and what is Input.CALLS and self.speech.is_deaf:
                self.state = State.LISTENING  # a hook has answered what was heard: nothing comes of the model's calls
                break
        if what is Input.PIECE and not self.speech.is_deaf:
            await self.speech.show(about)
        if self.state is State.LISTENING and was is not State.LISTENING:
            await self._comes_to_rest()

    async def _comes_to_rest(self) -> None:
        """A turn is over: what was to wait for that."""
        if self.context._invocation.live.has_messages:
            await self.sending.take_messages()
        if self.line.settings.refresh_instruction:
            await self._refresh_instruction()

    async def _refresh_instruction(self) -> None:
        """Tell the model its instruction again, if the state has changed what it says."""
        _, config = await self._setup()
        told = (config.system_instruction, tuple(self.calls.declarations(config.tools)))
        if told != self._told and self.connection is not None:
            self._told = told
            async with self.sending.lock:
                await self.connection.update(*told)

    async def begin_answer(self) -> None:
        """Count an answer, before anything of it is shown."""
        try:
            self.line.begin_turn()
            self.context._invocation.budgets.spend_llm_call()
        except Exception:
            if self.connection is not None:
                with suppress(ModelError):  # what has gone wrong first is worth more
                    await self.connection.cancel()
            raise
        self.sending.is_answered()
        self.sending.noticed_by = 0.0
        self._errors = 0
        if self.agent._hooks(self.context, "before_model_callback"):
            await self.speech.keep_heard()  # they are asked before anything of the answer is shown

    def finish(self) -> None:
        """Say nothing more: what this agent is for is done."""
        self.state = State.CLOSING

    async def interrupt(self) -> None:
        """Stop the answer that is being given, or played, as the program wants it."""
        connection = self.connection
        if connection is None:  # what is being given is cut off as the line is lost; nobody reads the inbox by now
            self.speech.forget_unread()
            self._nursery.start_soon(self.speech.cut_playing, name="interruption")
        elif not self.speech.is_speaking:
            self.speech.forget_unread()  # of an answer whose end is on its way to the caller
            self.inbox.post((Input.INTERRUPTED, _WHAT_IS_PLAYED))
        else:
            self.speech.interrupt()
            self.inbox.post((Input.INTERRUPTED, None))
            with suppress(ModelError):  # it was lost, and `receive` says so
                async with self.sending.lock:
                    await connection.cancel()

    def take_dropped(self) -> dict[str, int]:
        """How much sound was dropped since it was last told, in milliseconds, and how many pictures."""
        inbox, queue = self.inbox, self.line.queue
        found = {
            "dropped_audio_ms": round(inbox.dropped_ms),
            "dropped_input_ms": queue.take_dropped_ms(),
            "dropped_pictures": queue.take_dropped_pictures(),
        }
        inbox.dropped_ms = 0.0
        return {name: count for name, count in found.items() if count}

    async def emit(self, event: Event, *, closing: bool = False) -> Event:
        """Store *event* as one of this agent's, or show it."""
        self._showing += 1
        try:
            return await self.context._invocation.emitter.emit(self.context, event, closing=closing)
        finally:
            self._showing -= 1


_DOINGS: Final[Mapping[Do, Callable[[Talk, Any], Coroutine[Any, Any, None]]]] = {
    Do.KEEP_HEARD: lambda talk, about: talk.speech.keep_heard(),
    Do.BEGIN: lambda talk, about: talk.begin_answer(),
    Do.KEEP: lambda talk, about: talk.speech.keep_answer(about),
    Do.CUT: lambda talk, about: talk.speech.cut_answer(),
    Do.CALL: lambda talk, about: talk.calls.make(about),
    Do.TURN: lambda talk, about: talk.line.count_turn(),
}
