"""PCM16 audio of one channel: the rate that a MIME type names, and the length of a piece."""

from __future__ import annotations

from functools import lru_cache

from .._json import brief
from ..errors import InvalidMessageError
from ..types import Blob

__all__ = ["DEFAULT_RATE", "audio_ms", "check_media", "is_audio", "rate_of"]

# The rate of ADK's clients, which name none, and of Gemini's input.
DEFAULT_RATE = 16_000
# Samples a second. No microphone records faster, and a header with more is a mistake.
RATE_MAX = 384_000
SAMPLE_BYTES = 2


def is_audio(blob: Blob) -> bool:
    """True for audio of any type."""
    return blob.mime_type.lower().startswith("audio/")


@lru_cache(maxsize=64)
def rate_of(mime_type: str, default: int) -> int | None:
    """Return the samples a second of `audio/pcm`; *default* if the type names none, None if it is another type."""
    kind, *parameters = (piece.strip() for piece in mime_type.lower().split(";"))
    if kind != "audio/pcm":
        return None
    named = {name.strip(): text.strip() for name, _, text in (each.partition("=") for each in parameters)}
    rate = named.get("rate", str(default))
    is_rate = rate.isascii() and rate.isdigit() and len(rate) <= 9 and 1 <= int(rate) <= RATE_MAX
    is_mono = len(named) == len(parameters) and named.get("channels", "1") == "1"
    return int(rate) if is_rate and is_mono else None


def audio_ms(blob: Blob, default: int) -> float:
    """Return the length of audio in milliseconds; audio of an unknown type counts as PCM16 of the *default* rate."""
    return len(blob.data) * 1000 / (SAMPLE_BYTES * (rate_of(blob.mime_type, default) or default))


def check_media(blob: Blob) -> None:
    """
    Refuse a blob that no live connection takes.

    Raises:
        InvalidMessageError: It is neither whole samples of `audio/pcm` nor an image.
    """
    if blob.mime_type.lower().startswith("image/"):
        return
    if rate_of(blob.mime_type, DEFAULT_RATE) is None:
        takes = "a live run takes 'audio/pcm;rate=16000' (PCM16, one channel) or 'image/...'"
        raise InvalidMessageError(f"{takes}, not {brief(blob.mime_type)}; convert the audio")
    if len(blob.data) % SAMPLE_BYTES:
        msg = f"{len(blob.data)} bytes are not whole samples of {SAMPLE_BYTES} bytes"
        raise InvalidMessageError(f"{msg}; keep the last byte for the next piece")
