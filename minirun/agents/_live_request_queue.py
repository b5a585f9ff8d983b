"""
What goes into a live run: `LiveRequestQueue`, which has ADK's methods, and waiting ones beside them.

One task takes out what others have put in, in their order. Memory is bounded, even if nobody reads and a microphone
never stops; how depends on what an entry is worth when it is late:

*   Contents and signals are owed to the model. There is room for so many; another one is refused, or waits (`put`).
*   Sound is worth nothing once it is old. There is room for so many seconds; the oldest goes, and is counted.
*   A picture shows how things are now. The newest takes the place of the one before it, which is counted.

So there are three lists, and each entry has its place in the order of all: dropping sound leaves no holes behind.

Nothing here may be called from another thread; there it is `trio.from_thread.run_sync(queue.send_realtime, blob)`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import attrs
import trio

from .._json import brief, check_id, freeze, is_count, is_seconds, shown
from .._live_errors import LiveQueueFullError
from .._live_types import ActivityEnd, ActivityStart
from .._record import Record
from ..errors import ConfigurationError, InvalidMessageError, InvalidValueError, InvocationEndedError, ServiceInUseError
from ..flows._message import user_content
from ..sessions._state import check_key
from ..types import Blob, Content

__all__ = ["LiveRequest", "LiveRequestQueue"]

# What ADK's clients send that give no rate, which is what Gemini takes.
DEFAULT_RATE = 16_000
# Of samples a second. Nobody records faster; and it gives each sample a length in nanoseconds.
RATE_MAX = 384_000
SAMPLE_BYTES = 2
_NS_OF_SECOND = 1_000_000_000
_NS_OF_MS = 1_000_000
_NOWHERE = sys.maxsize


# --- what is sent -----------------------------------------------------------------------------------------------------


def _content(value: object) -> Content | None:
    return None if value is None else user_content(value, may_answer=True, name="content")


def _blob(value: object) -> Blob | None:
    if value is None:
        return None
    if not isinstance(value, Blob):
        msg = f"expected a Blob of sound or of a picture, found {shown(value)}; texts are sent by send_content"
        raise InvalidMessageError(msg)
    _sound_ns(value)
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
    One thing, or several, to be told to a live run.

    What several fields say is taken in this order, and all of it: `activity_start`, `activity_end`, `audio_stream_end`,
    `blob`, `content` with its `state_delta`, `close`.

    Args:
        content: What the user says in writing; a text is one. Responses to open calls are a content, too.
        partial: More of the user's turn follows: the model does not answer yet.
        blob: Sound (`audio/pcm;rate=16000`: samples of 16 bits, one channel) or a picture (`image/*`), as it happens.
        activity_start: The user begins to speak, where the client has the voice detection.
        activity_end: The user has ended to speak.
        audio_stream_end: The microphone is off for now.
        state_delta: What is written to the state: with the content, or by itself if there is none.
        close: Nothing follows.
        id: The id of the event that the content becomes; None: the runtime gives it one.

    Raises:
        InvalidMessageError: A field has no such value.
        InvalidValueError: The state_delta cannot be stored, or the id is none.
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
            raise InvalidMessageError("expected partial, and an id, with a content, found none; leave them out")
        if self.content is not None and self.content.responses and (self.partial or self.state_delta):
            msg = "expected an answer to a question without partial and state_delta, which have no effect there"
            raise InvalidMessageError(f"{msg}; send them with another content")

    def split(self) -> list[LiveRequest]:
        """Return what this says as requests of one thing each, in their order; `close` is none of them."""
        said: list[dict[str, Any]] = []
        if self.activity_start is not None:
            said.append({"activity_start": self.activity_start})
        if self.activity_end is not None:
            said.append({"activity_end": self.activity_end})
        if self.audio_stream_end:
            said.append({"audio_stream_end": True})
        if self.blob is not None:
            said.append({"blob": self.blob})
        if self.content is not None or self.state_delta is not None:
            content = {"content": self.content, "partial": self.partial, "id": self.id}
            said.append({**content, "state_delta": self.state_delta})
        return [self] if len(said) == 1 and not self.close else [LiveRequest(**each) for each in said]


@lru_cache(maxsize=64)
def _rate(mime_type: str) -> int | None:
    """The samples a second of sound of this type; None for pictures."""
    kind, *parameters = (each.strip().lower() for each in mime_type.split(";"))
    if kind.startswith("image/"):
        return None
    if kind != "audio/pcm":
        msg = (
            f"expected a Blob of 'audio/pcm;rate=16000' or 'image/...', found {brief(mime_type)}; "
            "convert it to samples of 16 bits in one channel"
        )
        raise InvalidMessageError(msg)
    pairs = (each.partition("=") for each in parameters)
    given = {name.strip(): text.strip() for name, _, text in pairs}
    if len(given) < len(parameters):
        raise InvalidMessageError(f"expected each parameter once, found {brief(mime_type)}; name one rate")
    rate = given.get("rate", str(DEFAULT_RATE))
    if not (rate.isascii() and rate.isdigit() and len(rate) <= 9 and 1 <= int(rate) <= RATE_MAX):
        raise InvalidMessageError(f"expected a rate from 1 to {RATE_MAX} samples a second, found {brief(mime_type)}")
    if given.get("channels", "1") != "1":
        raise InvalidMessageError(f"expected sound of one channel, found {brief(mime_type)}; mix them")
    return int(rate)


def _sound_ns(blob: Blob) -> int:
    """How long a piece of sound is, in nanoseconds; -1 for a picture."""
    rate = _rate(blob.mime_type)
    if rate is None:
        return -1
    length = len(blob.data)
    if length % SAMPLE_BYTES:
        msg = f"expected whole samples of {SAMPLE_BYTES} bytes, found {length} bytes; keep the last byte for the next"
        raise InvalidMessageError(msg)
    return length // SAMPLE_BYTES * _NS_OF_SECOND // rate


# --- the queue --------------------------------------------------------------------------------------------------------


class LiveRequestQueue:
    """
    What users, clients and tools tell a live run, in the order in which they do: `run_live(live_request_queue=...)`.

    The methods `send...` never wait, and may be called before the run begins. `put` waits until there is room.

    Args:
        max_contents: How many contents and signals may wait. A request with several is taken if nothing waits.
        audio_s_max: How many seconds of sound may wait.

    Raises:
        ConfigurationError: They are no such numbers.
    """

    def __init__(self, *, max_contents: int = 64, audio_s_max: float = 10.0) -> None:
        if not is_count(max_contents, 1):
            raise ConfigurationError(f"max_contents: expected an integer above 0, found {brief(max_contents)}")
        if not is_seconds(audio_s_max, above=0):
            raise ConfigurationError(f"audio_s_max: expected seconds above 0, found {brief(audio_s_max)}")
        self._max_contents = max_contents
        self._audio_ns_max = int(audio_s_max * _NS_OF_SECOND)
        self._next_place = 0
        self._others: deque[tuple[int, LiveRequest]] = deque()
        self._audio: deque[tuple[int, Blob, int]] = deque()
        self._audio_ns = 0
        self._picture: tuple[int, Blob] | None = None
        self._dropped_ns = 0
        self._dropped_pictures = 0
        self._told_ms = self._told_pictures = 0
        self.check_media: Callable[[str], None] | None = None
        """Refuses types of sound and pictures that the line does not take; None: there is no line yet."""
        self._is_closed = False
        self._is_used = False
        self._arrival: trio.Event | None = None
        """Set when something comes, or nothing will; there while the reader waits."""
        self._room: trio.Event | None = None
        """Set when something goes, or nothing will; there while somebody waits in `put`."""
        self._contents_line = trio.StrictFIFOLock()
        self._audio_line = trio.StrictFIFOLock()

    # --- what is here

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more. What was sent before can still be taken out."""
        return self._is_closed

    @property
    def audio_ms(self) -> int:
        """How much sound waits, in milliseconds."""
        return self._audio_ns // _NS_OF_MS

    @property
    def dropped_audio_ms(self) -> int:
        """How much sound has been dropped since the queue was made, in milliseconds."""
        return self._dropped_ns // _NS_OF_MS

    @property
    def dropped_pictures(self) -> int:
        """How many pictures have been dropped since the queue was made."""
        return self._dropped_pictures

    # --- sending

    def send_content(self, content: Content | str, partial: bool = False) -> None:
        """
        Say something in writing; a text will do. The model answers, unless it is *partial*.

        Raises:
            LiveQueueFullError: So many contents and signals wait already; nothing was taken.
            InvalidMessageError: It is neither a text nor a Content, is empty, or has calls.
            InvocationEndedError: The queue is closed.
        """
        self.send(LiveRequest(content=content, partial=partial))

    def send_realtime(self, blob: Blob) -> None:
        """
        Give a piece of sound or a picture, as it happens. The oldest sound goes if there is no room for it.

        Of a piece that is longer than all the room the end is kept. One without samples is nothing.

        Raises:
            InvalidMessageError: It is no Blob of `audio/pcm` or `image/...`, or the model takes none of this type, as
                far as that is known: of what was sent before there was a connection the caller hears by an event.
            InvocationEndedError: The queue is closed.
        """
        if not isinstance(blob, Blob):
            _blob(blob)
        self._check_open()
        self._check_media(blob)
        self._take_blob(blob)
        if self._arrival is not None:
            self._arrival.set()

    def send_activity_start(self) -> None:
        """Say that the user begins to speak; raises as `send_content` does."""
        self.send(LiveRequest(activity_start=ActivityStart()))

    def send_activity_end(self) -> None:
        """Say that the user has ended to speak; raises as `send_content` does."""
        self.send(LiveRequest(activity_end=ActivityEnd()))

    def send_audio_stream_end(self) -> None:
        """Say that the microphone is off for now; raises as `send_content` does."""
        self.send(LiveRequest(audio_stream_end=True))

    def send(self, request: LiveRequest) -> None:
        """
        Send what a request says: all of it, or nothing if this raises.

        Raises:
            LiveQueueFullError: So many contents and signals wait already.
            InvalidMessageError: It is no LiveRequest, says nothing, or has a blob that `send_realtime` would refuse.
            InvocationEndedError: The queue is closed.
        """
        parts = self._checked_parts(request)
        if not self._has_room(_contents_in(parts), 0):
            msg = (
                f"expected room for another content or signal, found {len(self._others)} waiting in the "
                "LiveRequestQueue; send less, wait with `await queue.put(...)`, or raise max_contents"
            )
            raise LiveQueueFullError(msg)
        self._take(request, parts)

    async def put_realtime(self, blob: Blob) -> None:
        """As `put`, for a piece of sound or a picture."""
        if isinstance(blob, Blob):
            self._check_open()
            self._check_media(blob)
            ns = max(_sound_ns(blob), 0)
            if ns <= self._audio_ns_max and self._has_room(0, ns) and not self._audio_line.locked():
                await trio.lowlevel.checkpoint_if_cancelled()
                self._take_blob(blob)
                if self._arrival is not None:
                    self._arrival.set()
                return
        await self.put(LiveRequest(blob=blob))

    async def put(self, request: LiveRequest) -> None:
        """
        Send what a request says, once there is room for it: no sound is dropped.

        Those that wait with contents are served in their order, and so are those with sound alone. If this is
        cancelled, nothing was taken.

        Raises:
            LiveQueueFullError: It is a piece of sound for which there will never be room.
            InvalidMessageError: It is no LiveRequest, says nothing, or has a blob that `send_realtime` would refuse.
            InvocationEndedError: The queue is closed, or is while this waits.
        """
        parts = self._checked_parts(request)
        contents = _contents_in(parts)
        ns = 0 if request.blob is None else max(_sound_ns(request.blob), 0)
        if ns > self._audio_ns_max:
            room_s, found_s = self._audio_ns_max / _NS_OF_SECOND, ns / _NS_OF_SECOND
            msg = f"expected a piece of sound of at most {room_s:g} seconds, found one of {found_s:g}; cut it up"
            raise LiveQueueFullError(msg)
        line = self._contents_line if contents else self._audio_line
        if self._has_room(contents, ns) and not line.locked():
            await trio.lowlevel.checkpoint_if_cancelled()
            self._take(request, parts)
            return
        async with line:
            while not self._has_room(contents, ns):
                self._check_open()
                if self._room is None:
                    self._room = trio.Event()
                await self._room.wait()
            self._check_open()
            self._take(request, parts)

    def close(self) -> None:
        """Say that nothing follows. What was sent before is taken out first; closing twice is harmless."""
        self._is_closed = True
        self._tell_room()
        if self._arrival is not None:
            self._arrival.set()

    # --- taking out

    def begin_use(self) -> None:
        """
        Take the queue for one live run; there is no other for it, as nobody would know whom a content was meant for.

        Raises:
            InvocationEndedError: It is closed: the run would be over before it begins.
            ServiceInUseError: It was taken for another run.
        """
        self._check_open()
        if self._is_used:
            raise ServiceInUseError("another live run has this LiveRequestQueue; make one for each run")
        self._is_used = True

    def give_back(self) -> None:
        """Note that the run has not begun: there may be another one for it."""
        self._is_used = False

    async def get(self) -> LiveRequest:
        """Take out what comes next, as `take` does; a piece of sound and a picture come in a request, too."""
        taken = await self.take()
        return LiveRequest(blob=taken) if isinstance(taken, Blob) else taken

    async def take(self) -> LiveRequest | Blob:
        """
        Take out what comes next, and wait for it; `close` is the last, and comes again and again.

        If this is cancelled, nothing was taken. It lets other tasks run only while it waits: what is here can be taken
        at once, and is bounded.

        Raises:
            ServiceInUseError: Another task waits here.
        """
        if self._arrival is not None:
            msg = "another task waits for what comes out of this LiveRequestQueue; only one may, as each takes it away"
            raise ServiceInUseError(msg)
        await trio.lowlevel.checkpoint_if_cancelled()
        while not (self._others or self._audio or self._picture or self._is_closed):
            self._arrival = trio.Event()
            try:
                await self._arrival.wait()
            finally:
                self._arrival = None
        taken = self._pop()
        if self._room is not None:
            self._tell_room()
        return taken

    def drop_audio_older(self, seconds: float) -> int:
        """
        Keep so many seconds of the newest sound at most; return how much was dropped, in milliseconds.

        For a connection that could not be sent to for a while. Everything else stays, and in its order.

        Raises:
            ConfigurationError: It is no number of seconds from 0 up.
        """
        if not is_seconds(seconds):
            raise ConfigurationError(f"expected seconds from 0 up, found {brief(seconds)}")
        before = self._dropped_ns
        self._make_room(int(seconds * _NS_OF_SECOND))
        self._tell_room()
        return (self._dropped_ns - before) // _NS_OF_MS

    def note_dropped(self, blob: Blob) -> None:
        """Note that what was taken out could not be sent."""
        ns = _sound_ns(blob)
        self._dropped_ns += max(ns, 0)
        self._dropped_pictures += ns < 0

    def take_dropped_ms(self) -> int:
        """Return how much sound was dropped since this was asked last, in milliseconds."""
        before, self._told_ms = self._told_ms, self.dropped_audio_ms
        return self._told_ms - before

    def take_dropped_pictures(self) -> int:
        """Return how many pictures were dropped since this was asked last."""
        before, self._told_pictures = self._told_pictures, self._dropped_pictures
        return self._told_pictures - before

    # --- within

    def _check_open(self) -> None:
        if self._is_closed:
            msg = (
                "the LiveRequestQueue is closed: close() was called, or the live run is over; make another queue for "
                "another run"
            )
            raise InvocationEndedError(msg)

    def _checked_parts(self, request: LiveRequest) -> list[LiveRequest]:
        if not isinstance(request, LiveRequest):
            msg = f"expected a LiveRequest, found {shown(request)}; texts are sent by send_content"
            raise InvalidMessageError(msg)
        parts = request.split()
        if not parts and not request.close:
            raise InvalidMessageError("expected a LiveRequest with something in it, found an empty one")
        self._check_open()
        if request.blob is not None:
            self._check_media(request.blob)
        return parts

    def _check_media(self, blob: Blob) -> None:
        if self.check_media is not None:
            self.check_media(blob.mime_type)

    def _has_room(self, contents: int, ns: int) -> bool:
        fits_contents = not contents or not self._others or len(self._others) + contents <= self._max_contents
        return fits_contents and (not ns or not self._audio or self._audio_ns + ns <= self._audio_ns_max)

    def _take(self, request: LiveRequest, parts: list[LiveRequest]) -> None:
        for part in parts:
            if part.blob is not None:
                self._take_blob(part.blob)
            else:
                self._others.append((self._place(), part))
        if request.close:
            self.close()
        elif self._arrival is not None:
            self._arrival.set()

    def _take_blob(self, blob: Blob) -> None:
        ns = _sound_ns(blob)
        if ns < 0:
            self._dropped_pictures += self._picture is not None
            self._picture = (self._place(), blob)
            return
        if not ns:
            return
        if self._audio_ns + ns > self._audio_ns_max:
            blob, ns = self._shortened(blob, ns)
            self._make_room(self._audio_ns_max - ns)
        self._audio.append((self._place(), blob, ns))
        self._audio_ns += ns

    def _shortened(self, blob: Blob, ns: int) -> tuple[Blob, int]:
        """The end of a piece of sound, as much of it as there would be room for."""
        if ns <= self._audio_ns_max:
            return blob, ns
        samples = len(blob.data) // SAMPLE_BYTES
        kept = max(1, samples * self._audio_ns_max // ns)
        blob = attrs.evolve(blob, data=blob.data[-kept * SAMPLE_BYTES :])
        kept_ns = min(_sound_ns(blob), self._audio_ns_max)
        self._dropped_ns += ns - kept_ns
        return blob, kept_ns

    def _make_room(self, ns_max: int) -> None:
        """Drop the oldest sound until there is so much of it at most."""
        while self._audio and self._audio_ns > ns_max:
            _, _, ns = self._audio.popleft()
            self._audio_ns -= ns
            self._dropped_ns += ns

    def _place(self) -> int:
        self._next_place += 1
        return self._next_place

    def _pop(self) -> LiveRequest | Blob:
        other = self._others[0][0] if self._others else _NOWHERE
        sound = self._audio[0][0] if self._audio else _NOWHERE
        if self._picture is not None and self._picture[0] < min(other, sound):
            blob = self._picture[1]
            self._picture = None
            return blob
        if sound < other:
            _, blob, ns = self._audio.popleft()
            self._audio_ns -= ns
            return blob
        return self._others.popleft()[1] if self._others else LiveRequest(close=True)

    def _tell_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None


def _contents_in(parts: list[LiveRequest]) -> int:
    return sum(part.blob is None for part in parts)
