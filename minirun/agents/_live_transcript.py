"""The utterances of a live run while they are incomplete, and the queue between a connection and the agent."""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

import trio

from .._json import freeze
from .._values import changed
from ..models import LlmResponse
from ..models._pcm import audio_ms, is_audio
from ..types import Content, Part, Transcription

__all__ = ["Inbox", "LiveResponse", "Utterance"]

# A reader of the connection waits while so much is not taken: audio in milliseconds, and responses of all kinds. It
# reads ahead of a slow caller so that an interruption is found behind audio that waits.
_AHEAD_MS = 10_000.0
_ITEMS_MAX = 1000


class Utterance:
    """
    What the user says.

    Args:
        item_id: The provider's id; None if it has none.
        number: Its position among the user's utterances.
        responses: How many responses of the model had begun before it.
    """

    __slots__ = ("item_id", "number", "pieces", "responses")

    def __init__(self, item_id: str | None, number: int, responses: int) -> None:
        self.item_id = item_id
        self.number = number
        self.responses = responses
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        """The transcript so far."""
        return "".join(self.pieces).strip()


class LiveResponse:
    """
    A response of the model.

    Args:
        item_id: The provider's id, or else that of the event.
        event_id: The id of the event that it becomes.
        after: How many utterances of the user had begun before it.
        session: The provider's session that knows it.
    """

    __slots__ = (
        "after", "audio_ms", "event_id", "item_id", "live", "session", "spoken", "unread_chars", "unread_ms", "written",
    )  # fmt: skip

    def __init__(self, item_id: str, event_id: str, after: int, session: object = None) -> None:
        self.item_id = item_id
        self.event_id = event_id
        self.after = after
        self.session = session
        self.live = freeze({"item_id": item_id})
        self.spoken: list[str] = []
        """Pieces of the transcript of its audio."""
        self.written: list[str] = []
        self.audio_ms = 0.0
        """How much audio the server has sent."""
        self.unread_ms = 0.0
        """How much of it was dropped before the caller received it."""
        self.unread_chars = 0
        """How much of the written text, likewise, at its end."""

    @property
    def text(self) -> str:
        """The text so far."""
        return ("".join(self.written) or "".join(self.spoken)).strip()

    @property
    def is_spoken(self) -> bool:
        """True if it has audio, or a transcript of audio."""
        return bool(self.spoken or self.audio_ms)

    def is_other(self, item_id: str | None) -> bool:
        """True if the provider's *item_id* names another response."""
        return item_id is not None and item_id not in (self.item_id, self.event_id)

    def add(self, content: Content | None, spoken: Transcription | None, rate: int) -> None:
        """Add a piece, whose audio has *rate* samples a second unless its type names another rate."""
        for part in () if content is None else content.parts:
            if part.text is not None and not part.thought:
                self.written.append(part.text)
        self.audio_ms += length_ms(content, rate)
        if spoken is not None and spoken.text:
            self.spoken.append(spoken.text)

    def split(self, played_ms: float) -> tuple[str, str]:
        """
        Return the text that the user has heard, and the rest, if *played_ms* of the audio were played.

        No provider says when a word is spoken, so the words are divided as the audio is. Written text was seen if the
        caller has received it.
        """
        if self.written or not self.audio_ms:
            seen = max(0, len(self.text) - self.unread_chars)
            return self.text[:seen].strip(), self.text[seen:].strip()
        words = re.findall(r"\S+\s*", self.text)
        count = round(len(words) * min(1.0, played_ms / self.audio_ms))
        return "".join(words[:count]).strip(), "".join(words[count:]).strip()


def length_ms(content: Content | None, rate: int) -> float:
    """Return the milliseconds of audio in *content*."""
    blobs = [part.inline_data for part in (() if content is None else content.parts) if part.inline_data is not None]
    return sum(audio_ms(blob, rate) for blob in blobs if is_audio(blob))


class _Entry(NamedTuple):
    item: object
    ms: float


class Inbox:
    """
    A single-reader queue of responses and of other inputs, in the order in which they came.

    `bring`, for responses of a server, waits while too much is queued, so that TCP holds the server back. `post` does
    not wait. *rate* is the samples a second of audio whose type names none.
    """

    def __init__(self) -> None:
        self.rate = 24_000
        self._entries: deque[_Entry] = deque()
        self._audio_ms = 0.0
        self._readers = trio.lowlevel.ParkingLot()
        self._bringers = trio.lowlevel.ParkingLot()

    @property
    def has_items(self) -> bool:
        """True if an item can be taken without a wait."""
        return bool(self._entries)

    def post(self, item: object) -> None:
        """Add an item."""
        self._entries.append(_Entry(item, 0.0))
        self._readers.unpark()

    async def bring(self, response: LlmResponse) -> None:
        """Add a response of the server, once there is room. Cancelled, it has added nothing."""
        ms = length_ms(response.content, self.rate)
        await trio.lowlevel.checkpoint_if_cancelled()
        while (ms and self._audio_ms and self._audio_ms + ms > _AHEAD_MS) or len(self._entries) >= _ITEMS_MAX:
            await self._bringers.park()
        self._audio_ms += ms
        self._entries.append(_Entry(response, ms))
        self._readers.unpark()

    async def take(self) -> object:
        """Return the next item; wait for it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._entries:
            await self._readers.park()
        item, ms = self._entries.popleft()
        self._audio_ms = self._audio_ms - ms if self._entries else 0.0
        self._bringers.unpark_all()
        return item

    def drop_audio(self) -> float:
        """Drop the audio that waits: its response is interrupted. Return its length in milliseconds."""
        self._entries = deque(
            _Entry(_without_audio(item) if ms and isinstance(item, LlmResponse) else item, 0.0)
            for item, ms in self._entries
        )
        dropped, self._audio_ms = self._audio_ms, 0.0
        self._bringers.unpark_all()
        return dropped

    def drop_responses(self) -> list[LlmResponse]:
        """Take out and return what a connection that is closed has brought; other inputs stay."""
        found = [item for item, _ in self._entries if isinstance(item, LlmResponse)]
        self._entries = deque(each for each in self._entries if not isinstance(each.item, LlmResponse))
        self._audio_ms = 0.0
        return found


def _without_audio(response: LlmResponse) -> LlmResponse:
    assert response.content is not None
    left: list[Part] = [
        part for part in response.content.parts if part.inline_data is None or not is_audio(part.inline_data)
    ]
    return changed(response, content=changed(response.content, parts=tuple(left)) if left else None)
