"""
What a scripted live server says next: a queue of what it has made so far, and what an interruption leaves of it.

The rules of this file. Entries are played in the order of their triggers; a step becomes *moves* when it is reached: a
response, a wait, an end of the connection. A move is looked at by `next` and has its effect with `take`, so what
drives this may wait in between. When an entry has ended, the answer that it has opened is closed as the dialect does
it. An interruption ends its entry: what is in flight still comes, then what it was interrupted by, then the end.

There is neither a clock nor a wait in here; `next` is told what time it is.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TypeAlias

import attrs

from ..models import LiveConnectConfig, LiveResumption, LlmResponse
from ..types import Blob, Content, FunctionCall, Part, Transcription, UsageMetadata
from ._live_dialects import Dialect
from ._live_protocol import Conversation
from ._live_steps import (
    CancelCalls,
    Drop,
    Error,
    GoAway,
    Handle,
    Hear,
    Interrupted,
    Pause,
    Say,
    Usage,
)

__all__ = ["Move", "Play", "Until"]


@attrs.frozen
class Until:
    """Nothing is said before this time, in seconds on the clock."""

    time: float


@attrs.frozen
class Played:
    """Nothing is said before the sound of the answer has been played, as the server reckons."""


Move: TypeAlias = LlmResponse | Until | Drop | BaseException
_Queued: TypeAlias = LlmResponse | Pause | Played | Drop | BaseException


@attrs.define
class Answer:
    """The answer that is being given."""

    item_id: str
    audio_ms: float = 0.0
    began: float | None = None  # when its first sound was sent
    has_transcript: bool = False  # one that is not finished
    has_calls: bool = False
    cut: bool = False  # its end is on its way


@attrs.frozen
class Triggered:
    """An entry whose turn has not come; *content_id* is what has triggered it, *heard* the utterance that has."""

    steps: list[object]
    content_id: str | None = None
    heard: str | None = None


class Play:
    """
    What the server says on one connection.

    Args:
        dialect: What the provider does.
        live: How to converse, as the connection was asked.
        conversation: The session.
        automatic: Whether the server detects the user's voice.
        word_ms: How long the sound of a word is, in milliseconds.
        in_flight: How many pieces of an answer still come after an interruption.
        new_id: Makes a name: `new_id("call")`.
    """

    def __init__(
        self,
        *,
        dialect: Dialect,
        live: LiveConnectConfig,
        conversation: Conversation,
        automatic: bool,
        rate: int,
        word_ms: int,
        in_flight: int,
        new_id: Callable[[str], str],
    ) -> None:
        self._dialect = dialect
        self._live = live
        self._conversation = conversation
        self._automatic = automatic
        self._rate = rate
        self._word_ms = word_ms
        self._in_flight = in_flight
        self._new_id = new_id
        self._entries: deque[Triggered] = deque()
        self._steps: deque[object] = deque()
        self._moves: deque[_Queued] = deque()
        self._urgent: deque[LlmResponse] = deque()  # said before the moves: what an interruption has made
        self._late: list[LlmResponse] = []  # transcripts that come after the answer
        self._playing = False
        self._answer: Answer | None = None
        self._batch = 0
        self._heard: str | None = None
        self._usage: UsageMetadata | None = None
        self._until: float | None = None  # of the wait that comes first in the moves
        self._withdrawn: list[str] = []  # what the client is just being told

    # --- what happens to it ---

    def trigger(self, steps: list[object], *, content_id: str | None = None, heard: str | None = None) -> None:
        """Play *steps*, after what is being played."""
        self._entries.append(Triggered(steps, content_id, heard))
        if not (self._playing or self._moves or self._urgent):
            self._begin()

    @property
    def is_answering(self) -> bool:
        """Whether there is an answer that can be interrupted, or is going to be."""
        if self._answer is not None:
            return not self._answer.cut
        return self._playing and any(isinstance(step, Say | Part | Content | LlmResponse) for step in self._steps)

    def interrupt(self, *first: LlmResponse) -> None:
        """Cut off the answer, if there is one; *first* is what the client is told before."""
        if not self.is_answering:
            self._urgent.extend(first)
            return
        answer = self._opened()
        coming: list[_Queued] = [*self._urgent, *self._moves]
        pieces = takewhile(_is_piece, coming[: self._in_flight])
        flying = [each for each in pieces if isinstance(each, LlmResponse)]
        answer.has_transcript |= any(each.output_transcription is not None for each in flying)
        self._moves.clear()
        self._steps.clear()
        self._until = None
        self._playing = False
        self._urgent = deque([*flying, *first, *self._cut(answer)])

    def say_now(self, response: LlmResponse) -> None:
        """Say *response* before everything else, but after what an interruption has made."""
        self._urgent.append(response)

    # --- what it says ---

    def next(self, now: float) -> Move | None:
        """What comes next, which is kept until `take`; None if nothing does before something is sent."""
        self._conversation.withdraw(self._withdrawn)  # the client has come back for more: it knows by now
        self._withdrawn = []
        while not self._urgent:
            if not self._moves:
                if not self._load():
                    return None
                continue
            move = self._moves[0]
            if not isinstance(move, Pause | Played):
                return move
            if self._until is None:
                self._until = self._end_of(move, now)
            if now < self._until:
                return Until(self._until)
            self._moves.popleft()
            self._until = None
        return self._urgent[0]

    def take(self, now: float) -> None:
        """What came next is said."""
        move = self._urgent.popleft() if self._urgent else self._moves.popleft()
        if isinstance(move, LlmResponse):
            self._note(move, now)

    def _end_of(self, wait: Pause | Played, now: float) -> float:
        if isinstance(wait, Pause):
            return now + wait.seconds
        answer = self._answer
        return now if answer is None or answer.began is None else answer.began + answer.audio_ms / 1000

    def _note(self, response: LlmResponse, now: float) -> None:
        """Keep in mind what the client is told."""
        answer = self._answer
        content = response.content
        if content is not None:
            calls = list(content.calls)
            if calls:
                self._conversation.made(calls, self._batch)
            ms = sum(len(part.inline_data.data) for part in content.parts if part.inline_data is not None)
            if ms and answer is not None:
                ms_said = ms / 2 / self._rate * 1000
                answer.audio_ms += ms_said
                answer.began = now if answer.began is None else answer.began
                said = self._conversation.said_ms
                item_id = response.item_id or answer.item_id
                said[item_id] = said.get(item_id, 0.0) + ms_said
        if response.output_transcription is not None and answer is not None:
            answer.has_transcript = not response.output_transcription.finished
        self._withdrawn.extend(response.cancelled_calls)
        if response.turn_complete or (response.generation_complete and self._dialect.over_when_made):
            self._answer = None

    # --- how an entry becomes moves ---

    def _load(self) -> bool:
        """Make the next moves; False if there is nothing to play."""
        if self._steps:
            self._moves.extend(self._moves_of(self._steps.popleft()))
        elif self._playing:
            self._playing = False
            self._moves.extend(self._closing())
            self._moves.extend(self._late)
            self._late = []
        elif self._late:
            self._moves.extend(self._late)
            self._late = []
        elif self._entries:
            self._begin()
        else:
            return False
        return True

    def _begin(self) -> None:
        entry = self._entries.popleft()
        self._conversation.take_up(entry.content_id)
        self._steps = deque(entry.steps)
        self._heard = entry.heard
        self._playing = True
        self._batch += 1
        if self._answer is not None:
            self._answer.has_calls = False

    def _opened(self) -> Answer:
        if self._answer is None:
            self._answer = Answer(self._new_id("answer"))
        return self._answer

    def _moves_of(self, step: object) -> Sequence[_Queued]:
        match step:
            case Pause() | Drop() | BaseException():
                return [step]
            case LlmResponse():
                return [self._given(step)]
            case Say():
                return self._said(step)
            case Hear():
                return self._understood(step)
            case Part():
                return self._part(step)
            case Content():
                piece = not step.calls
                return [LlmResponse(content=step, partial=piece or None, item_id=self._opened().item_id)]
            case Interrupted():
                return self._cut(self._opened())
            case Handle():
                return [self._handle(step)]
            case GoAway():
                return [LlmResponse(go_away_s=step.seconds)]
            case CancelCalls():
                return [LlmResponse(cancelled_calls=step.ids or self._conversation.open_calls())]
            case Error():
                is_over = True if self._answer is not None else None
                return [LlmResponse(error_code=step.code, error_message=step.message, turn_complete=is_over)]
            case Usage():
                return self._used(step)
        raise AssertionError(step)

    def _given(self, response: LlmResponse) -> LlmResponse:
        if response.content is not None or response.output_transcription is not None:
            self._opened()
        return response

    def _said(self, step: Say) -> Sequence[_Queued]:
        item_id = self._opened().item_id
        audio = step.audio if step.audio is not None else "AUDIO" in self._live.response_modalities
        moves: list[_Queued] = []
        for word in _words(step.text):
            if not audio:
                moves.append(LlmResponse(content=_model(Part(text=word)), partial=True, item_id=item_id))
                continue
            sound = LlmResponse(content=_model(self._sound(word)), partial=True, item_id=item_id)
            moves.append(sound)
            if self._live.output_audio_transcription is not None:
                text = LlmResponse(output_transcription=Transcription(text=word), item_id=item_id)
                moves.insert(len(moves) - self._dialect.transcript_first, text)
        return moves

    def _sound(self, word: str) -> Part:
        """The sound of a word: its length on every sample, so that a test can tell it from silence."""
        samples = self._rate * self._word_ms // 1000
        data = min(len(word), 127).to_bytes(2, "little") * samples
        return Part(inline_data=Blob(data=data, mime_type=f"audio/pcm;rate={self._rate}"))

    def _understood(self, step: Hear) -> Sequence[_Queued]:
        item_id, self._heard = self._heard, None
        moves: list[_Queued] = []
        if item_id is None:
            item_id = self._new_id("heard")
            tells = self._automatic and self.tells_speech
            if tells:
                moves.append(LlmResponse(speech_started=True, item_id=item_id))
            if self._answer is not None:
                moves.extend(self._cut(self._answer))
            if tells:
                moves.append(LlmResponse(speech_stopped=True, item_id=item_id))
        if self._live.input_audio_transcription is not None:
            pieces = [Transcription(text=word) for word in _words(step.text)]
            if self._dialect.finishes:
                pieces.append(Transcription(finished=True))
            told = [LlmResponse(input_transcription=piece, item_id=item_id) for piece in pieces]
            if step.late:
                self._late.extend(told)
            else:
                moves.extend(told)
        return moves

    @property
    def tells_speech(self) -> bool:
        """Whether the client is told when the server hears the user's voice."""
        return self._dialect.tells_speech

    def _part(self, step: Part) -> Sequence[_Queued]:
        answer = self._opened()
        if step.function_call is None:
            return [LlmResponse(content=_model(step), partial=True, item_id=answer.item_id)]
        calls = [self._named(step.function_call)]
        while self._dialect.calls_at_once and self._steps and isinstance(part := self._steps[0], Part):
            if part.function_call is None:
                break
            calls.append(self._named(part.function_call))
            self._steps.popleft()
        answer.has_calls = True
        content = _model(*(Part(function_call=call) for call in calls))
        return [*self._finish(answer), LlmResponse(content=content, item_id=answer.item_id)]

    def _named(self, call: FunctionCall) -> FunctionCall:
        return call if call.id else FunctionCall(name=call.name, args=call.args, id=self._new_id("call"))

    def _handle(self, step: Handle) -> LlmResponse:
        taken_up = self._conversation.tell_taken_up() if step.taken_up else None
        handle = step.handle if step.resumable else None
        resumption = LiveResumption(handle=handle, resumable=step.resumable, last_taken_up=taken_up)
        return LlmResponse(resumption=resumption)

    def _used(self, step: Usage) -> Sequence[_Queued]:
        if self._dialect.over_when_made and self._answer is not None:
            self._usage = step.tokens
            return []
        return [LlmResponse(usage_metadata=step.tokens)]

    # --- how an answer ends ---

    def _finish(self, answer: Answer) -> list[LlmResponse]:
        """Close the transcript of the answer, where the dialect does."""
        if not (answer.has_transcript and self._dialect.finishes):
            return []
        return [LlmResponse(output_transcription=Transcription(finished=True), item_id=answer.item_id)]

    def _closing(self) -> Sequence[_Queued]:
        """The end of an answer that has come to its end."""
        answer = self._answer
        if answer is None or answer.cut:
            return []
        item_id = answer.item_id
        if self._dialect.over_when_made:
            used, self._usage = self._usage, None
            is_over = None if answer.has_calls else True
            end = LlmResponse(generation_complete=True, turn_complete=is_over, usage_metadata=used, item_id=item_id)
            return [*self._finish(answer), end]
        if answer.has_calls:
            return []
        made = LlmResponse(generation_complete=True, item_id=item_id)
        return [made, Played(), LlmResponse(turn_complete=True, item_id=item_id)]

    def _cut(self, answer: Answer) -> list[LlmResponse]:
        """The end of an answer that is interrupted."""
        answer.cut = True
        item_id = answer.item_id
        if self._dialect.over_when_made:
            used, self._usage = self._usage, None
            end = LlmResponse(interrupted=True, turn_complete=True, usage_metadata=used, item_id=item_id)
            return [*self._finish(answer), end]
        return [LlmResponse(interrupted=True, item_id=item_id), LlmResponse(turn_complete=True, item_id=item_id)]


def _is_piece(move: _Queued) -> bool:
    if not isinstance(move, LlmResponse):
        return False
    return bool(move.partial and move.content is not None) or move.output_transcription is not None


def _words(text: str) -> list[str]:
    """The words of *text*, with the space that follows them; joined they are the text."""
    return re.findall(r"\S+\s*|\s+", text)


def _model(*parts: Part) -> Content:
    return Content(role="model", parts=parts)
