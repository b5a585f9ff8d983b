"""
The input of a live run: `LiveRequestQueue`, which has ADK's methods.

One task takes entries out in the order in which they were sent. Memory is bounded: contents, images and signals by
their number (one more is refused, or `put` waits), audio by its length (the oldest is dropped and counted, or `put`
waits).

No method can be called from another thread; there, use `trio.from_thread.run_sync(queue.send_realtime, blob)`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from .._json import brief, check_id, freeze, is_count, is_seconds, shown
from .._live_types import ActivityEnd, ActivityStart
from .._record import Record
from ..errors import (
    ConfigurationError,
    InvalidMessageError,
    InvalidValueError,
    InvocationEndedError,
    LiveQueueFullError,
    ServiceInUseError,
)
from ..flows._message import user_content
from ..models._pcm import DEFAULT_RATE, audio_ms, check_media, is_audio
from ..sessions._state import check_key
from ..types import Blob, Content

__all__ = ["LiveRequest", "LiveRequestQueue"]


def _content(value: object) -> Content | None:
    return None if value is None else user_content(value, may_answer=True, name="content")


def _blob(value: object) -> Blob | None:
    if value is None:
        return None
    if not isinstance(value, Blob):
        msg = f"expected a Blob of audio or of an image, found {shown(value)}; send texts by send_content"
        raise InvalidMessageError(msg)
    check_media(value)
    return value


def _delta(value: object) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidValueError("state_delta", f"expected a mapping, found {type(value).__name__}")
    delta: Mapping[str, Any] = freeze(dict(value), "state_delta")
    for key in delta:
        check_key(key, "state_delta")
    return delta or None


def _signal(kind: type[ActivityStart | ActivityEnd]) -> Any:
    def convert(value: object) -> ActivityStart | ActivityEnd | None:
        if value is None or isinstance(value, kind):
            return value
        raise InvalidMessageError(f"expected {kind.__name__}(), or None, found {shown(value)}")

    return attrs.field(default=None, converter=convert)


def _flag() -> Any:
    def check(request: object, field: attrs.Attribute[Any], value: object) -> None:
        if not (value is True or value is False):
            raise InvalidMessageError(f"expected LiveRequest.{field.name} to be True or False, found {shown(value)}")

    return attrs.field(default=False, validator=check)


def _id(value: str | None) -> str | None:
    return None if value is None else check_id("LiveRequest.id", value)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LiveRequest(Record):
    """
    Input for a live run.

    Several fields are taken in this order: `activity_start`, `activity_end`, `audio_stream_end`, `blob`, `content` with
    its `state_delta`, `close`.

    Args:
        content: A message of the user, or replies to open requests; a text becomes a content.
        partial: The user's turn continues: the model does not respond yet.
        blob: Audio (`audio/pcm;rate=16000`: PCM16, one channel) or an image (`image/*`).
        activity_start: The user begins to speak, where the client detects the voice.
        activity_end: The user has stopped speaking.
        audio_stream_end: The microphone is off.
        state_delta: Written to the state with the content, or by an event of its own.
        close: The last request.
        id: The id of the content's event; None: the runtime chooses one.

    Raises:
        InvalidMessageError: A field has a value of another type, or fields contradict each other.
        InvalidValueError: The state_delta cannot be stored, or the id is not valid.
    """

    content: Content | None = attrs.field(default=None, converter=_content)
    partial: bool = _flag()
    blob: Blob | None = attrs.field(default=None, converter=_blob)
    activity_start: ActivityStart | None = _signal(ActivityStart)
    activity_end: ActivityEnd | None = _signal(ActivityEnd)
    audio_stream_end: bool = _flag()
    state_delta: Mapping[str, Any] | None = attrs.field(default=None, converter=_delta)
    close: bool = _flag()
    id: str | None = attrs.field(default=None, converter=_id)

    def __attrs_post_init__(self) -> None:
        if self.content is None and (self.partial or self.id is not None):
            raise InvalidMessageError("partial and id belong to a content, and there is none; leave them out")
        if self.content is not None and self.content.responses and (self.partial or self.state_delta):
            msg = "partial and state_delta have no effect with a reply to a request"
            raise InvalidMessageError(f"{msg}; send them with another content")

    def split(self) -> list[LiveRequest | Blob]:
        """Return one entry for each thing that this request has, without `close`."""
        said: list[LiveRequest | Blob] = []
        if self.activity_start is not None:
            said.append(LiveRequest(activity_start=self.activity_start))
        if self.activity_end is not None:
            said.append(LiveRequest(activity_end=self.activity_end))
        if self.audio_stream_end:
            said.append(LiveRequest(audio_stream_end=True))
        if self.blob is not None:
            said.append(self.blob)
        if self.content is not None or self.state_delta is not None:
            content: dict[str, Any] = {"content": self.content, "partial": self.partial, "id": self.id}
            said.append(LiveRequest(**content, state_delta=self.state_delta))
        return said


class LiveRequestQueue:
    """
    The input of one live run, in the order in which it was sent: `run_live(live_request_queue=...)`.

    The methods `send...` never wait, and can be called before the run begins. `put` waits until there is room.

    Args:
        max_contents: Contents, images and signals that can wait. A request with more is taken if none waits.
        audio_s_max: Seconds of audio that can wait.

    Raises:
        ConfigurationError: An argument is not such a number.
    """

    def __init__(self, *, max_contents: int = 64, audio_s_max: float = 10.0) -> None:
        if not is_count(max_contents, 1):
            raise ConfigurationError(f"max_contents: expected an integer above 0, found {brief(max_contents)}")
        if not is_seconds(audio_s_max, above=0):
            raise ConfigurationError(f"audio_s_max: expected seconds above 0, found {brief(audio_s_max)}")
        self._max_contents = max_contents
        self._audio_ms_max = audio_s_max * 1000
        self._entries: deque[tuple[LiveRequest | Blob, float]] = deque()  # with their audio in milliseconds
        self._contents = 0
        self._audio_ms = 0.0
        self._dropped_ms = 0.0
        self.check_media: Callable[[str], None] | None = None
        """Refuses media types that the connection does not take; None before the first connection."""
        self._is_closed = False
        self._is_used = False
        self._readers = trio.lowlevel.ParkingLot()
        self._putters = trio.lowlevel.ParkingLot()

    @property
    def closed(self) -> bool:
        """True after `close`. Entries that were sent before can still be taken out."""
        return self._is_closed

    @property
    def dropped_audio_ms(self) -> int:
        """Milliseconds of audio that were dropped since the queue was made."""
        return int(self._dropped_ms)

    # --- sending

    def send_content(self, content: Content | str, partial: bool = False) -> None:
        """
        Send a message of the user. The model responds, unless it is *partial*.

        Raises:
            LiveQueueFullError: `max_contents` entries wait; nothing was taken.
            InvalidMessageError: It is neither a text nor a Content, is empty, or has calls.
            InvocationEndedError: The queue is closed.
        """
        self.send(LiveRequest(content=content, partial=partial))

    def send_realtime(self, blob: Blob) -> None:
        """
        Send a piece of audio or an image. If there is no room for audio, the oldest audio is dropped.

        Raises:
            InvalidMessageError: It is not a Blob of `audio/pcm` or `image/...`, or not of a type that the model takes.
            LiveQueueFullError: It is an image, and `max_contents` entries wait.
            InvocationEndedError: The queue is closed.
        """
        if not isinstance(blob, Blob):
            raise InvalidMessageError(f"expected a Blob of audio or of an image, found {shown(blob)}")
        check_media(blob)
        self._add([blob])

    def send_activity_start(self) -> None:
        """Report that the user begins to speak; raises as `send_content` does."""
        self.send(LiveRequest(activity_start=ActivityStart()))

    def send_activity_end(self) -> None:
        """Report that the user has stopped speaking; raises as `send_content` does."""
        self.send(LiveRequest(activity_end=ActivityEnd()))

    def send_audio_stream_end(self) -> None:
        """Report that the microphone is off; raises as `send_content` does."""
        self.send(LiveRequest(audio_stream_end=True))

    def send(self, request: LiveRequest) -> None:
        """
        Send all of a request, or nothing if this raises.

        Raises:
            LiveQueueFullError: `max_contents` entries wait.
            InvalidMessageError: It is not a LiveRequest, is empty, or has a blob that `send_realtime` would refuse.
            InvocationEndedError: The queue is closed.
        """
        self._add(_checked(request).split(), close=request.close)

    async def put(self, request: LiveRequest | Blob) -> None:
        """
        Send all of a request once there is room for it; no audio is dropped. Cancelled, it has sent nothing.

        Raises:
            InvalidMessageError: See `send`.
            InvocationEndedError: The queue is closed, or is closed during the wait.
        """
        if isinstance(request, Blob):
            check_media(request)
            entries: list[LiveRequest | Blob] = [request]
        else:
            entries = _checked(request).split()
        contents, ms = _sizes(entries)
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._is_closed and not (self._has_room(contents) and self._has_audio_room(ms)):
            await self._putters.park()
        self._add(entries, close=not isinstance(request, Blob) and request.close)

    def close(self) -> None:
        """End the input. Entries that were sent before are taken out first; closing twice is harmless."""
        self._is_closed = True
        self._putters.unpark_all()
        self._readers.unpark_all()

    # --- taking out

    def begin_use(self) -> None:
        """
        Reserve the queue for one live run.

        Raises:
            InvocationEndedError: It is closed.
            ServiceInUseError: Another run has it.
        """
        self._check_open()
        if self._is_used:
            raise ServiceInUseError("another live run has this LiveRequestQueue; make one for each run")
        self._is_used = True

    def give_back(self) -> None:
        """Undo `begin_use`: the run has not begun."""
        self._is_used = False

    async def get(self) -> LiveRequest:
        """Take out the next entry, as `take` does, always as a request."""
        taken = await self.take()
        return LiveRequest(blob=taken) if isinstance(taken, Blob) else taken

    async def take(self) -> LiveRequest | Blob:
        """
        Take out the next entry; wait for it. After `close`, the last one is `close`, again and again.

        Cancelled, it has taken nothing. It runs without a schedule point while entries are there, which are bounded.

        Raises:
            ServiceInUseError: Another task waits here.
        """
        if self._readers:
            raise ServiceInUseError("another task waits for entries of this LiveRequestQueue; only one can take them")
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._entries:
            if self._is_closed:
                return LiveRequest(close=True)
            await self._readers.park()
        entry, ms = self._entries.popleft()
        self._audio_ms = max(0.0, self._audio_ms - ms) if self._entries else 0.0
        self._contents -= not ms
        self._putters.unpark_all()
        return entry

    def drop_audio(self) -> None:
        """Drop and count the audio that waits: it is too old for a connection that was lost in between."""
        self._make_room(0.0)
        self._putters.unpark_all()

    # --- within

    def _check_open(self) -> None:
        if self._is_closed:
            msg = "the LiveRequestQueue is closed, by close() or by the end of its live run; make one for each run"
            raise InvocationEndedError(msg)

    def _has_room(self, contents: int) -> bool:
        return not contents or not self._contents or self._contents + contents <= self._max_contents

    def _has_audio_room(self, ms: float) -> bool:
        return not ms or not self._audio_ms or self._audio_ms + ms <= self._audio_ms_max

    def _add(self, entries: list[LiveRequest | Blob], *, close: bool = False) -> None:
        self._check_open()
        contents, ms = _sizes(entries)
        for entry in entries:
            if isinstance(entry, Blob) and self.check_media is not None:
                self.check_media(entry.mime_type)
        if not self._has_room(contents):
            msg = f"{self._contents} contents, images and signals wait in the LiveRequestQueue"
            raise LiveQueueFullError(f"{msg}; send less, wait with `await queue.put(...)`, or raise max_contents")
        if not self._has_audio_room(ms):
            self._make_room(self._audio_ms_max - ms)
        for entry in entries:
            ms = audio_ms(entry, DEFAULT_RATE) if isinstance(entry, Blob) and is_audio(entry) else 0.0
            if ms or not isinstance(entry, Blob) or not is_audio(entry):  # audio without samples is nothing
                self._entries.append((entry, ms))
                self._audio_ms += ms
                self._contents += not ms
        if close:
            self.close()
        self._readers.unpark_all()

    def _make_room(self, ms_max: float) -> None:
        """Drop the oldest audio until at most so much of it is left."""
        kept: deque[tuple[LiveRequest | Blob, float]] = deque()
        while self._entries and self._audio_ms > max(0.0, ms_max):
            entry, ms = self._entries.popleft()
            if ms:
                self._audio_ms = max(0.0, self._audio_ms - ms)
                self._dropped_ms += ms
            else:
                kept.append((entry, ms))
        self._entries.extendleft(reversed(kept))


def _checked(request: object) -> LiveRequest:
    if not isinstance(request, LiveRequest):
        raise InvalidMessageError(f"expected a LiveRequest, found {shown(request)}; send texts by send_content")
    if not request.split() and not request.close:
        raise InvalidMessageError("the LiveRequest is empty; give it a content, a blob or a signal")
    return request


def _sizes(entries: list[LiveRequest | Blob]) -> tuple[int, float]:
    """Return the number of entries that are not audio, and the milliseconds of audio."""
    audio = [entry for entry in entries if isinstance(entry, Blob) and is_audio(entry)]
    return len(entries) - len(audio), sum(audio_ms(blob, DEFAULT_RATE) for blob in audio)
