"""What a model is to a live run: a connection over which both sides speak at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from .._json import brief
from .._live_types import ActivityEnd, ActivityStart, AudioStreamEnd, LiveResumption
from .._record import Record
from ..errors import InvalidMessageError
from ..types import Blob, Content
from ._base import LlmResponse
from ._pcm import rate_of

__all__ = [
    "ActivityEnd", "ActivityStart", "AudioStreamEnd", "BaseLlmConnection", "LiveCapabilities", "LiveConnectConfig",
    "LiveResumption", "Realtime",
]


Realtime: TypeAlias = Blob | ActivityStart | ActivityEnd | AudioStreamEnd
"""What is sent as it happens, and owed no answer."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LiveCapabilities(Record):
    """
    What a live connection is able to do.

    Args:
        knows_playback: The server reckons itself how much of an answer was played; `truncate` has no effect.
        finishes_transcripts: It says when it has understood all of what the user said (`Transcription.finished`), maybe
            after the answer. Else the runtime takes what has come by then.
        lifetime_s: How long a connection lasts, in seconds; None: nobody knows.
        input_rate: The samples a second of PCM16 that it is to be sent.
        output_rate: The samples a second of PCM16 that it sends.
    """

    knows_playback: bool = False
    finishes_transcripts: bool = False
    lifetime_s: float | None = None
    input_rate: int = 16000
    output_rate: int = 24000


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LiveConnectConfig(Record):
    """
    How to converse: what `RunConfig` says of it, and the handle of a session to go on with.

    The fields that are mappings have the fields of ADK's types of these names, by their names there; None is what the
    provider does by itself. `output_audio_transcription` and `input_audio_transcription`: None for none.
    """

    handle: str | None = None
    response_modalities: Sequence[str] = ("AUDIO",)
    speech_config: Mapping[str, Any] | None = None
    output_audio_transcription: Mapping[str, Any] | None = attrs.field(factory=dict)
    input_audio_transcription: Mapping[str, Any] | None = attrs.field(factory=dict)
    realtime_input_config: Mapping[str, Any] | None = None
    session_resumption: Mapping[str, Any] | None = None
    context_window_compression: Mapping[str, Any] | None = None


class BaseLlmConnection(ABC):
    """
    A live connection to a model. One task sends and another receives; only they use it, but for `cancel`.

    The sending methods return when the transport has taken what is sent; a slow line is waited for. Everything raises
    a ModelError if the connection is lost, or ModelRequestError for what the server would refuse.
    """

    capabilities: LiveCapabilities = LiveCapabilities()

    @abstractmethod
    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        """
        Tell what was said before, right after connecting. With *answer* the model is to answer the last content.

        What it cannot be told, such as media, is left out.
        """

    @abstractmethod
    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        """
        Send texts and images of the user, or responses to calls; *id* is what `LiveResumption.last_taken_up` names.

        Responses to the calls of one answer come in one content, or in several; each call has one response.
        Without *turn_complete* the model does not respond yet.
        """

    @abstractmethod
    async def send_realtime(self, data: Realtime) -> None:
        """Send what happens: a piece of sound (PCM16 of `capabilities.input_rate`), a picture, a signal."""

    def check_media(self, mime_type: str) -> None:
        """
        Refuse sound and pictures of a type that `send_realtime` would refuse: called for each one, where it is sent.

        As it is, sound has `capabilities.input_rate` samples a second, unless its type tells none; pictures are free.

        Raises:
            InvalidMessageError: It is another type.
        """
        rate = self.capabilities.input_rate
        if mime_type.lower().startswith("audio/") and rate_of(mime_type, rate) != rate:
            expected = f"expected sound as 'audio/pcm;rate={rate}' (LiveCapabilities.input_rate)"
            raise InvalidMessageError(f"{expected}, found {brief(mime_type)}; record at that rate, or convert it")

    async def cancel(self) -> None:
        """Stop the answer that is being given, if there is one; the server says `interrupted`."""

    async def truncate(self, item_id: str, played_ms: int) -> None:
        """
        Say how much of an answer was heard, at least 1 and at most what was sent of it, in milliseconds.

        It has no effect if the connection `knows_playback`.
        """

    @abstractmethod
    def receive(self) -> AsyncGenerator[LlmResponse, None]:
        """
        What the server says, until it closes the connection in good order; called once.

        Each response says one thing or several, in this order of fields:

        *   `speech_started`, `speech_stopped`: what the server hears of the user; `item_id` is the user's utterance.
        *   `input_transcription`: a piece of what the user has said, `item_id` their utterance. It may come after the
            answer. `finished` closes the utterance; where that is never said, the runtime does it.
        *   `content` with `partial=True`: a piece of the answer, text or sound (`inline_data`, PCM16). `item_id` is the
            answer's. `output_transcription`: a piece of what is said in its sound.
        *   `content` with calls, complete; other parts of a complete content repeat nothing.
        *   `cancelled_calls`: ids of calls whose results nobody wants any more.
        *   `generation_complete`: the answer is made, and may still be playing; `interrupted`: it was cut off by the
            user, or by `cancel`; `turn_complete`: the answer is over, and the user's turn comes. One that was cut off
            or has failed is over, too.
        *   `usage_metadata`: of the answer; `error_code`, `error_message`: the answer, or what was sent last, has
            failed, and the connection goes on.
        *   `resumption`, `go_away_s`: see LiveResumption; the server ends the connection in so many seconds.

        Raises:
            ModelError: The connection is lost: ModelConnectionError, ModelTimeoutError, ModelOverloadedError if another
                one may go well, others if not.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close it. Closing twice is harmless; `receive` ends."""
