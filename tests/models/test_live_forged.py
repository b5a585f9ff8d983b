"""Messages of live servers that are not as they should be: they mean nothing, or are a ModelError, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from minirun.errors import ModelError
from minirun.models import LiveConnectConfig
from minirun.models._reading_gemini_live import GeminiLiveReader, GeminiLiveState
from minirun.models._wire_openai_realtime import Conversation
from minirun.models._wire_openai_session import RealtimeApi
from minirun.types import GenerateContentConfig

HALF = "\ud800"  # of a pair
TEXT = "response.output_text.delta"
HEARD = "conversation.item.input_audio_transcription"


@pytest.mark.parametrize(
    "event",
    [
        {"type": TEXT, "item_id": "i", "response_id": "r", "content_index": [], "delta": "a"},
        {"type": TEXT, "item_id": "i", "response_id": "r", "content_index": {"a": 1}, "delta": "a"},
        {"type": TEXT, "item_id": HALF, "response_id": "r", "content_index": 0, "delta": "a"},
        {"type": "input_audio_buffer.speech_started", "item_id": HALF},
        {"type": f"{HEARD}.delta", "item_id": HALF, "delta": "a"},
        {"type": f"{HEARD}.failed", "item_id": "i", "error": {"code": HALF}},
        {"type": "response.done", "response": {"id": HALF, "status": "completed"}},
        {"type": "response.done", "response": {"id": "r", "status": "failed", "error": {"code": HALF}}},
        {"type": "error", "error": {"code": HALF, "message": HALF}},
    ],
)
def test_openai_events_of_odd_values_are_read(event: dict[str, Any]) -> None:
    """Lists where numbers belong, and texts that UTF-8 cannot write."""
    session = RealtimeApi((), {"model": "m"}, None).session(GenerateContentConfig(), LiveConnectConfig())
    conversation = Conversation(session)
    with suppress(ModelError):
        conversation.take({"type": "response.created", "response": {"id": "r"}})
        conversation.take(event)


@pytest.mark.parametrize(
    "message",
    [
        {"sessionResumptionUpdate": {"newHandle": "h", "lastConsumedClientMessageIndex": "9" * 5000}},
        {"serverContent": {"turnComplete": True, "groundingMetadata": {"a": [float("nan"), {"b": float("inf")}]}}},
    ],
)
def test_gemini_messages_of_odd_numbers_are_read(message: dict[str, Any]) -> None:
    """More digits than any number has, and numbers that are none."""
    with suppress(ModelError):
        GeminiLiveReader(GeminiLiveState(), "1").read(message)
