"""
What the client still plays of answers that are over: some servers make them faster than they are played (OpenAI).

Answers are played one behind the other. Each begins when its sound has come, or when the one before it is played to its
end, whichever is later. An interruption cuts the answer that is heard at that moment; of those that wait behind it
nothing was heard. They are stored already, so an event of its own says of each how much was heard.

The client plays on while agents hand over and connections are made anew, so this belongs to the line.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from ..errors import ModelError
from ..events import Event
from ..flows._utterances import Answer
from ..models import BaseLlmConnection

if TYPE_CHECKING:
    from ._live_talk import Talk

__all__ = ["Playing", "ask_what_was_played", "truncate"]

# How long a caller that hears of an interruption may take to say what was played.
_TELLING_S = 2.0

# What is left of an answer that was played to its end, as the clock and the sound are counted in fractions.
_NOTHING_MS = 1.0


class _Over(NamedTuple):
    """An answer that is over and stored."""

    answer: Answer
    seq: int
    connection: BaseLlmConnection | None
    """Over which it came: no other one knows it."""


class Playing:
    """See the module. *told* has how much of an answer's sound was played, in milliseconds, as the client says."""

    def __init__(self, told: dict[str, float]) -> None:
        self.until = 0.0
        """When all sound that has come is played, by trio's clock."""
        self.is_to_stop = False
        """Whether the program has interrupted it while no agent spoke that could say so."""
        self._told = told
        self._over: list[_Over] = []
        self._cut: list[tuple[_Over, float]] = []  # which is to be stored, with how much was played as far as is known
        self._lock = trio.Lock()  # held by the task that asks the client, and stores what it says

    def add(self, length_ms: float) -> None:
        """Note that the caller was given so much sound."""
        self.until = max(self.until, trio.current_time()) + length_ms / 1000

    def take_back(self, length_ms: float) -> None:
        """Note that the caller is not given so much of that."""
        self.until -= length_ms / 1000

    def fall_silent(self) -> None:
        """Note that the client plays nothing any more."""
        self.until = min(self.until, trio.current_time())

    def note_over(self, answer: Answer, seq: int, connection: BaseLlmConnection | None) -> None:
        """Take note that *answer* is over and stored; what was played to its end is forgotten."""
        self._over = [over for over, played in self._played(answer) if _is_left(over.answer, played)]
        if answer.audio_ms and (self._over or not _knows_playback(connection)):
            self._over.append(_Over(answer, seq, connection))

    def _played(self, last: Answer | None) -> list[tuple[_Over, float]]:
        """How much of each was played by now. Of what is left, *last*, which is not over, is the end."""
        left_ms = max(0.0, self.until - trio.current_time()) * 1000
        left_ms = max(0.0, left_ms - (last.shown_ms if last is not None else 0.0))
        found: list[tuple[_Over, float]] = []
        for over in reversed(self._over):
            unplayed = min(left_ms, over.answer.shown_ms)
            left_ms -= unplayed
            found.append((over, over.answer.shown_ms - unplayed))
        return found[::-1]

    async def cut(self, talk: Talk, current: Answer | None) -> None:
        """
        Cut what is still played of answers that are over, and store what was heard of each, as the client says.

        *current* is the answer that is being given: what the caller has of it waits behind them, and is not heard.
        Cancelled, it leaves what is not stored yet to `keep_rest`.
        """
        cut = [(over, played) for over, played in self._played(current) if _is_left(over.answer, played)]
        self._over, self.is_to_stop = [], False
        if cut:
            self._cut += cut
            self.fall_silent()
            if current is not None:
                current.skipped_ms = current.shown_ms
        if not self._cut:
            return
        async with self._lock:
            while self._cut:
                over, known = self._cut[0]
                event_id = _next_id(talk)
                played = await ask_what_was_played(talk, over.answer, event_id, known)
                await self._tell(talk, over, event_id, played)
                del self._cut[0]  # not before it is stored: who leaves meanwhile was told that it is interrupted
                await truncate(talk, over.connection, over.answer, played)

    async def keep_rest(self, talk: Talk, *, is_left: bool) -> bool:
        """
        Store what is not stored yet. Where the run *is_left* it counts, too, what the client has said that was played.

        Returns:
            Whether something was cut: then nothing was heard of what waited behind it.
        """
        rest = [(over, self._told.get(over.answer.item_id, known)) for over, known in self._cut]
        is_cut = bool(rest)
        for over in self._over if is_left else ():
            played = self._told.get(over.answer.item_id, 0.0 if is_cut else over.answer.audio_ms)
            if _is_left(over.answer, played):
                is_cut = True
                rest.append((over, played))
        self._cut = []
        for over, played in rest:
            await self._tell(talk, over, _next_id(talk), played, closing=True)
        return is_cut

    async def _tell(self, talk: Talk, over: _Over, event_id: str, played_ms: float, *, closing: bool = False) -> None:
        heard, unheard = over.answer.parted(played_ms)
        if unheard:
            live = {"item_id": over.answer.item_id, "cut_seq": over.seq, **talk.take_dropped()}
            told = {"heard": heard, "unheard": unheard}
            event = Event(id=event_id, interrupted=True, live=live, custom_metadata=told)
            await talk.emit(event, closing=closing)


async def ask_what_was_played(talk: Talk, answer: Answer, event_id: str, known_ms: float) -> float:
    """
    Show that an answer is interrupted; return how much of it was played, as the caller says, or *known_ms*.

    A caller that does not ask for the next event is waited for, but not for long: it may be sending, and wait for this.
    """
    await talk.emit(Event(id=event_id, partial=True, interrupted=True, live=answer.live))
    with trio.move_on_after(_TELLING_S):
        await talk.context._invocation.committer.delivered()
    return talk.line.played.pop(answer.item_id, known_ms)


async def truncate(talk: Talk, connection: BaseLlmConnection | None, answer: Answer, played_ms: float) -> None:
    """Tell the server over *connection*, if it cannot know it and still is there, how much of an answer was heard."""
    if connection is not talk.connection or _knows_playback(connection) or answer.item_id == answer.event_id:
        return
    assert connection is not None
    if answer.audio_ms >= 1 and played_ms < answer.audio_ms:
        with suppress(ModelError):  # it was lost, and `receive` says so
            async with talk.sending.lock:
                await connection.truncate(answer.item_id, max(1, int(played_ms)))


def _knows_playback(connection: BaseLlmConnection | None) -> bool:
    return connection is None or connection.capabilities.knows_playback


def _is_left(answer: Answer, played_ms: float) -> bool:
    return answer.audio_ms - played_ms >= _NOTHING_MS


def _next_id(talk: Talk) -> str:
    return talk.context._following_id(f"{talk.context._path}!cut")
