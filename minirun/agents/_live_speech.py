"""
What is said in a live run, by the user and by the model: shown piece by piece, and stored when it is whole, or cut off.

Pieces are partial events: in order with the rest, and never stored. An utterance is one event, with its text as
content. That of the user may be understood only when what was said after it is stored already, an answer or another
utterance: it says so then (`live["before_seq"]`), and prompts have it in its place. Of an answer that is cut off the
event has what was played.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from .._values import MAKE, changed
from ..errors import MinirunError
from ..events import Event, seq_of
from ..flows._live import Input, State
from ..flows._utterances import Answer, Heard, Order, audio_ms, is_sound, rate_of, said
from ..models import LlmResponse
from ..runtime._committer import Committer
from ..types import Blob, Content, Part, Transcription, UsageMetadata
from ._live_playing import ask_what_was_played, truncate
from ._live_recording import Recording, finished, rest_of

if TYPE_CHECKING:
    from ._live_talk import Talk

__all__ = ["Speech"]


class Speech:
    """See the module; for one agent."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._heard: dict[str | None, Heard] = {}  # by item, in the order in which they began
        self._order = Order()
        self._answer: Answer | None = None
        self._begun = 0  # how many answers
        self._places: dict[int, int] = {}  # of answers in the log, by their number
        self._cut: str | None  # the item that was cut off last
        self._over: str | None  # the one that is over
        self._recorded: dict[str | None, Recording] = {}  # utterances of the user, by item; None: what comes next
        self._recording: Recording | None = None  # of the answer
        self._recordings: list[Recording] = []  # that may not be saved yet
        self.is_deaf: bool  # whether what comes belongs to an answer that the program has interrupted
        self._is_interrupted: bool  # by the program, and the server has not said so yet
        self._is_ending: bool  # whether the server has said that it is interrupted, and not yet that it is over
        self.usage: UsageMetadata | None = None
        """What the model says it has used since the last answer."""

    # --- the user

    async def hear(self, response: LlmResponse) -> None:
        """Take what the server hears of the user."""
        talk, item = self._talk, response.item_id
        talk.line.is_active()
        if response.speech_started:
            await self.cut_playing()
        heard = self._note_heard(response)
        if heard is None:
            return
        spoken = response.input_transcription
        if spoken is not None and spoken.text:
            content = Content(role="user", parts=[Part(text=spoken.text)])
            live = None if item is None else {"item_id": item}
            event = Event(author="user", content=content, partial=True, input_transcription=spoken, live=live)
            await talk.emit(event)
        if response.speech_stopped and self._recorded.get(None) is self._recorded.get(item):
            self._recorded.pop(None, None)  # what follows is another utterance
        is_finished = spoken is not None and bool(spoken.finished)
        if is_finished:
            await self._keep(heard, is_answered=heard.answers < self._begun and self._answer is None)
        has_stopped = response.speech_stopped or (is_finished and not talk.finishes_transcripts)
        if has_stopped and heard.answers == self._begun:
            await talk.happens(Input.ASKED, None)

    def _note_heard(self, response: LlmResponse) -> Heard | None:
        """Add what the server hears of the user to its utterance; None: that is stored already, and this is its end."""
        item, spoken = response.item_id, response.input_transcription
        heard = self._heard.get(item)
        if heard is None and not _says_something(response):
            return None
        if heard is None:
            heard = self._heard[item] = self._order.begin(item, self._begun)
            if item is not None and None in self._recorded:
                self._recorded[item] = self._recorded[None]
        if spoken is not None and spoken.text:
            heard.pieces.append(spoken.text)
        return heard

    def drop_responses(self) -> list[LlmResponse]:
        """
        Take what waits in the inbox, and return what is left of it: the text of what the user has said.

        What it is of begins here, in the order in which it was said: the text may have come in another one.
        """
        dropped = self._talk.inbox.drop_responses()
        left = [response for response in dropped if response.input_transcription is not None]
        understood = {response.item_id for response in left}
        for response in dropped:
            if response.speech_started and response.item_id in understood:
                self._note_heard(response)
        return left

    @property
    def awaits_text(self) -> bool:
        """Whether the server still has to say what the user has said."""
        return bool(self._heard) and self._talk.finishes_transcripts

    async def keep_heard(self) -> None:
        """Store what was heard of the user, unless the server says itself when it is all there, maybe later."""
        if not self._talk.finishes_transcripts:
            speaks = self._talk.state in (State.SPEAKING, State.ASKED, State.CALLING)
            for heard in list(self._heard.values()):
                await self._keep(heard, is_answered=not speaks)  # as far as anybody can know

    async def _keep(self, heard: Heard, *, is_answered: bool = False, closing: bool = False) -> None:
        if not heard.text:
            self._heard.pop(heard.item_id, None)
            return
        recording = self._recorded.get(heard.item_id)
        live: dict[str, Any] = {} if heard.item_id is None else {"item_id": heard.item_id}
        if (before := self._order.follower(heard, self._places.get(heard.answers))) is not None:
            live["before_seq"] = before
        event = Event(
            id=self._next_id("heard") if recording is None else recording.event_id,
            author="user",
            content=said("user", heard.text),
            actions=await (rest_of if closing else finished)(recording),
            input_transcription=Transcription(text=heard.text, finished=True),
            live=live,
        )
        stored = await self._talk.emit(event, closing=closing)
        self._heard.pop(heard.item_id, None)  # not before: who leaves meanwhile has said it (`keep_rest`)
        self._order.note_stored(heard, seq_of(stored), self._heard.values())
        self._recorded.pop(heard.item_id, None)
        if self._recorded.get(None) is recording:
            self._recorded.pop(None, None)
        assert stored.content is not None
        if closing or not await self.is_blocked(stored.content):
            return
        if self._talk.connection is not None and not is_answered:
            self.stop_showing()
            async with self._talk.sending.lock:
                await self._talk.connection.cancel()

    async def is_blocked(self, content: Content) -> bool:
        """Ask the hooks before the model about what the user has said; True: one has answered, and said so."""
        talk = self._talk
        hooks = talk.agent._hooks(talk.context, "before_model_callback")
        if not hooks:
            return False
        from ._live_hooks import before_model  # few agents have any

        return await before_model(talk, hooks, content, self._next_id("answer"))

    # --- the model

    def is_wanted(self, what: Input, response: LlmResponse) -> bool:
        """Whether *what* concerns anybody: pieces of an answer that was cut off may still be on their way."""
        if what is Input.PIECE:
            return not (self.is_deaf or (response.item_id and response.item_id in (self._cut, self._over)))
        if what not in (Input.INTERRUPTED, Input.OVER):
            return True
        is_known = self._is_interrupted or (self._is_ending and what is Input.OVER)
        self.is_deaf, self._is_interrupted, self._is_ending = False, False, what is Input.INTERRUPTED
        return not (is_known and self._talk.state is State.THINKING)  # which waits for the next answer by now

    def begins(self) -> None:
        """Take note of a new connection: what was cut off before does not come over it."""
        self.is_deaf, self._cut, self._over = False, None, None
        self._is_interrupted = self._is_ending = False

    def interrupt(self) -> None:
        """Take note that the program interrupts the answer; the server says so, too, later."""
        self.stop_showing()
        self.forget_unread()
        self._is_interrupted = True

    def stop_showing(self) -> None:
        """Show nothing more of the answer that is being given, until the server says that it is over."""
        self.is_deaf = True

    async def show(self, response: LlmResponse) -> None:
        """Show a piece of the answer."""
        if self._answer is not None and self._answer.is_other(response.item_id):
            await self.keep_answer(None)  # the model says something else, while it waits for results
        if self._answer is None and self._talk.state is State.CALLING:
            await self._talk.begin_answer()  # beside the calls, where the table has no answer that begins
        answer = self._answer or self._begin(response.item_id)
        self._is_ending = False
        content, spoken = response.content, response.output_transcription
        rate = self._talk.inbox.rate
        length = answer.add(content, spoken, rate)
        if length and self._talk.line.settings.save_live_blob:
            for part in () if content is None else content.parts:
                if is_sound(part) and part.inline_data is not None:
                    if self._recording is None:
                        self._recording = self._record(answer.event_id, rate_of(part.inline_data, rate))
                    await self._recording.add(part.inline_data.data)
        context = self._talk.context
        event: Event = MAKE[Event](  # complete already; its fields were checked when the response was made
            id=answer.event_id,
            invocation_id=context.invocation_id,
            author=context.agent_name,
            branch=context.branch,
            node_info=context._position.node_info,
            content=content,
            partial=True,
            output_transcription=spoken,
            live=answer.live,
        )
        await self._talk.emit(event)
        answer.shown_ms += length
        self._talk.line.playing.add(length)

    def _begin(self, item_id: str | None) -> Answer:
        event_id = self._next_id("answer")
        answer = self._answer = Answer(item_id or event_id, event_id)
        self._begun += 1
        return answer

    @property
    def is_speaking(self) -> bool:
        """Whether an answer is being given, and is not over: the server would say nothing of an interruption."""
        return self._answer is not None and self._answer.item_id != self._over

    async def keep_answer(self, response: LlmResponse | None) -> None:
        """Store the answer, which has come to its end."""
        answer = self._answer
        if answer is None or answer.is_empty:
            self._answer = None
            return
        over = response is not None and bool(response.turn_complete)
        self._over = answer.item_id if over else None
        event = self._event(answer, answer.text, turn_complete=over or None)
        stored = await self._store(await self._with_recording(event), is_whole=True)
        self._answer = None  # not before it is stored: who leaves meanwhile was shown it (`keep_rest`)
        self._talk.line.playing.note_over(answer, seq_of(stored), self._talk.connection)

    async def cut_answer(self) -> None:
        """Show that the answer is cut off, let the caller say what was played of it, and store that."""
        answer = self._answer
        if answer is None:
            return
        self._take_back(answer, lambda event: True)
        self._cut = answer.item_id
        await self.cut_playing()  # the client falls silent, whatever it plays
        self._talk.line.playing.fall_silent()
        played = await ask_what_was_played(self._talk, answer, answer.event_id, answer.heard_ms)
        await self._store(await self._with_recording(self._cut_event(answer, played)))
        self._answer = None
        await truncate(self._talk, self._talk.connection, answer, played)

    def note_missing(self, length: float, item_id: str | None) -> None:
        """So much sound of an answer came, and was dropped before the caller was given it, as it is interrupted."""
        if self._answer is not None and not self._answer.is_other(item_id):
            self._answer.missing_ms += length

    def forget_unread(self) -> None:
        """Take back the sound that nobody has been given yet: it is interrupted, and that is not to wait behind it."""
        if self._answer is not None:
            self._take_back(self._answer, lambda event: bool(event.audio))

    def _take_back(self, answer: Answer, fits: Callable[[Event], bool]) -> None:
        committer = self._talk.context._invocation.committer
        unread = withdraw_partial(committer, lambda event: event.id == answer.event_id and fits(event))
        length = sum(_length_of(event, self._talk.inbox.rate) for event in unread)
        answer.shown_ms -= length
        self._talk.line.playing.take_back(length)
        self._talk.inbox.dropped_ms += length
        answer.unread_chars += sum(len(event.text) for event in unread)

    async def cut_playing(self) -> None:
        """Cut off what is still being played of answers that are over; see `Playing.cut`."""
        await self._talk.line.playing.cut(self._talk, self._answer)

    def _cut_event(self, answer: Answer, played_ms: float) -> Event:
        heard, unheard = answer.parted(played_ms)
        event = self._event(answer, heard, interrupted=True)
        return changed(event, custom_metadata={"unheard": unheard}) if unheard else event

    def _event(self, answer: Answer, text: str, **flags: Any) -> Event:
        spoken = Transcription(text=text, finished=True) if answer.spoken or answer.audio_ms else None
        live: dict[str, Any] = {"item_id": answer.item_id, **self._talk.take_dropped()}
        if answer.media:
            live["media"] = answer.media
        content = said("model", text)
        return Event(
            id=answer.event_id,
            content=content,
            output_transcription=spoken,
            usage_metadata=self.usage,
            live=live,
            **flags,
        )

    async def _store(self, event: Event, *, is_whole: bool = False) -> Event:
        talk = self._talk
        hooks = talk.agent._hooks(talk.context, "after_model_callback")
        if hooks:
            from ._live_hooks import after_model  # few agents have any

            event = await after_model(talk, hooks, event)
        if is_whole:
            event, _ = talk.agent._with_checked_output(event)  # it may be kept under a key
        stored = await talk.emit(event)
        self.usage = None
        self.note_place(stored)
        return stored

    def note_place(self, stored: Event) -> None:
        """Note where an answer stands in the log: with the first event of it."""
        self._places.setdefault(self._begun - 1, seq_of(stored))

    def begin_with_calls(self) -> None:
        """Note that an answer has begun that says nothing before it makes calls."""
        if self._answer is None:
            self._begun += 1

    # --- what is recorded

    async def record(self, blob: Blob) -> None:
        """Keep sound of the user, if it is to be kept; it belongs to the utterance that is heard next."""
        if self._talk.line.settings.save_live_blob and blob.mime_type.startswith("audio/"):
            recording = self._recorded.get(None)
            if recording is None:
                rate = self._talk.line.input_rate
                recording = self._recorded[None] = self._record(self._next_id("heard"), rate_of(blob, rate))
            await recording.add(blob.data)

    def _record(self, event_id: str, rate: int) -> Recording:
        recording = Recording(self._talk.context._invocation.artifacts, event_id, rate)
        self._talk.line.start(recording.run)
        self._recordings = [*(each for each in self._recordings if not each.is_done), recording]
        return recording

    async def _with_recording(self, event: Event, finish: Any = finished) -> Event:
        if self._recording is None:
            return event
        named = await finish(self._recording)
        self._recording = None
        return changed(event, actions=changed(event.actions, artifact_delta=named.artifact_delta))

    # --- other events

    async def tell_connection(self, reason: str) -> None:
        """Store that there is a connection."""
        live = {"connection": self._talk.line.connections, "reason": reason, **self._talk.take_dropped()}
        await self._talk.emit(Event(id=self._next_id("connection"), live=live))

    async def tell_error(self, response: LlmResponse) -> None:
        """Store that an answer has failed, or what was sent last; the connection goes on."""
        event = Event(
            id=self._next_id("error"),
            error_code=response.error_code,
            error_message=response.error_message,
            live=self._talk.take_dropped(),
        )
        await self._talk.emit(event)

    async def keep_rest(self) -> None:
        """Store what is unfinished: nobody says anything more. It waits for no caller."""
        for each in self._recordings:
            each.hurry(self._talk.context._invocation.program.cleanup_timeout_s)
        for response in self.drop_responses():  # nobody takes it any more
            self._note_heard(response)
        try:
            for heard in list(self._heard.values()):
                await self._keep(heard, closing=True)
            is_cut = await self._talk.line.playing.keep_rest(self._talk, is_left=not self._talk.hands_over)
            answer, self._answer = self._answer, None
            if answer is not None and not answer.is_empty:
                self._take_back(answer, lambda event: True)
                known = 0.0 if is_cut else answer.heard_ms
                event = self._cut_event(answer, self._talk.line.played.get(answer.item_id, known))
                await self._talk.emit(await self._with_recording(event, rest_of), closing=True)
        except MinirunError as error:  # the store fails: the end of the run says so
            self._talk.context._invocation.failures.late.append(error)
            await trio.lowlevel.checkpoint_if_cancelled()
        finally:
            for recording in {*self._recorded.values(), *([self._recording] if self._recording else [])}:
                await recording.drop()

    def _next_id(self, what: str) -> str:
        context = self._talk.context
        return context._following_id(f"{context._path}!{what}")


def _length_of(event: Event, rate: int) -> float:
    parts = () if event.content is None else event.content.parts
    blobs = (part.inline_data for part in parts if part.inline_data is not None)
    return sum(audio_ms(blob, rate) for blob in blobs if blob.mime_type.startswith("audio/"))


def _says_something(response: LlmResponse) -> bool:
    """Whether something is heard of the user, and not only that it was all."""
    spoken = response.input_transcription
    return bool(response.speech_started or response.speech_stopped or (spoken is not None and spoken.text))


def withdraw_partial(committer: Committer, fits: Callable[[Event], bool]) -> list[Event]:
    """Take those partial events back that nobody has read, and return them. What waits for room waits on."""
    taken = [event for event, _ in committer._queue if event.partial and fits(event)]
    committer._queue = [each for each in committer._queue if not (each[0].partial and fits(each[0]))]
    committer._room += len(taken)
    return taken
