"""What has come over a live connection, and from the calls beside it, in order, until somebody takes it."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

import trio

from .._values import changed
from ..flows._live import Input
from ..flows._utterances import audio_ms
from ..models import LlmResponse
from ..types import Part

__all__ = ["Inbox", "Item", "inputs_of"]

Item: TypeAlias = LlmResponse | tuple[Input, Any]
"""What the server says, or what else happens, with what belongs to it."""


# How much that is no sound may wait, or is sound in tiny pieces: several answers of texts, a word a piece.
_ITEMS_MAX = 1000


class Inbox:
    """
    A queue of one reader that holds back who brings sound, and what else the server says if that is very much.

    So the server is held back, too, as the connection is not read meanwhile. But an interruption that has come does not
    wait behind sound that nobody is to hear any more: that is dropped.

    Args:
        ahead_s: How much sound may wait, in seconds.
        rate: The samples a second of sound that does not tell.
    """

    def __init__(self, ahead_s: float, rate: int) -> None:
        self._items: deque[tuple[Item, float]] = deque()  # with how much sound is in it, in ms; below 0: dropped of it
        self._ahead_ms = ahead_s * 1000
        self.rate = rate
        self._audio_ms = 0.0
        self._readers = trio.lowlevel.ParkingLot()
        self._bringers = trio.lowlevel.ParkingLot()
        self.dropped_ms = 0.0
        """How much sound was dropped, in milliseconds."""
        self.missing_ms = 0.0
        """How much of that the item had that was taken last."""

    def post(self, item: tuple[Input, Any]) -> None:
        """Add what has happened here; nobody is held back."""
        self._items.append((item, 0.0))
        if self._readers:
            self._readers.unpark()

    async def bring(self, response: LlmResponse) -> None:
        """Add what the server says; wait while too much sound is there. A checkpoint of cancellation."""
        await trio.lowlevel.checkpoint_if_cancelled()
        length = self.length_of(response)
        try:
            while self._is_full(length):
                await self._bringers.park()
        except trio.Cancelled:
            self.dropped_ms += length
            raise
        if response.interrupted:
            self._drop_audio()
        self._audio_ms += length
        self._items.append((response, length))
        if self._readers:
            self._readers.unpark()

    async def take(self) -> Item:
        """Return the next item; wait for it. A checkpoint."""
        if self._items:
            await trio.lowlevel.checkpoint_if_cancelled()
        while not self._items:
            await self._readers.park()
        item, length = self._items.popleft()
        self._audio_ms -= max(0.0, length)
        self.missing_ms = max(0.0, -length)
        if self._bringers:
            self._bringers.unpark_all()
        return item

    @property
    def has_items(self) -> bool:
        """Whether something waits to be taken."""
        return bool(self._items)

    def _is_full(self, length: float) -> bool:
        too_long = length and self._audio_ms and self._audio_ms + length > self._ahead_ms
        return bool(too_long) or len(self._items) >= _ITEMS_MAX

    def drop_responses(self) -> list[LlmResponse]:
        """
        Take out what a connection that is gone has said, and return it; what concerns it is forgotten, too.

        What else has happened here stays.
        """
        dropped = [item for item, *_ in self._items if isinstance(item, LlmResponse)]
        self._items = deque(
            each for each in self._items if isinstance(each[0], tuple) and not _is_of_connection(*each[0])
        )
        self.dropped_ms += self._audio_ms
        self._audio_ms = 0.0
        return dropped

    def _drop_audio(self) -> None:
        self._items = deque(
            (self._without_audio(item), -length) if isinstance(item, LlmResponse) and length > 0 else (item, length)
            for item, length in self._items
        )
        self.dropped_ms += self._audio_ms
        self._audio_ms = 0.0
        if self._bringers:
            self._bringers.unpark_all()

    def _without_audio(self, response: LlmResponse) -> LlmResponse:
        assert response.content is not None
        left = [part for part in response.content.parts if not _is_audio(part)]
        return changed(response, content=changed(response.content, parts=tuple(left)) if left else None)

    def length_of(self, response: LlmResponse) -> float:
        """How much sound is in it, in milliseconds."""
        if response.content is None:
            return 0.0
        return sum(
            audio_ms(part.inline_data, self.rate)
            for part in response.content.parts
            if part.inline_data is not None and _is_audio(part)
        )


def _is_of_connection(what: Input, about: object) -> bool:
    """A drop may be noticed by reading and by sending: the second is not about the next one. What is played goes on."""
    return what is Input.LOST or (what is Input.INTERRUPTED and about is None)


def _is_audio(part: Part) -> bool:
    return part.inline_data is not None and part.inline_data.mime_type.startswith("audio/")


def inputs_of(response: LlmResponse) -> list[Input]:
    """Say what *response* means for the conversation, in order; what is heard of the user means nothing here."""
    found: list[Input] = []
    content = response.content
    if content is not None:
        if content.calls:
            found.append(Input.CALLS)
        elif content.parts:
            found.append(Input.PIECE)
    if response.output_transcription is not None and Input.PIECE not in found:
        found.insert(0, Input.PIECE)
    if response.interrupted:
        found.append(Input.INTERRUPTED)
    if response.turn_complete:
        found.append(Input.OVER)
    return found
