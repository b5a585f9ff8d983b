"""Settings of live sessions that OpenAI's realtime API does not have are refused; others are sent."""

from __future__ import annotations

from typing import Any

import pytest

from minirun.errors import NotSupportedError
from minirun.models import LiveConnectConfig
from minirun.models._wire_openai_session import RealtimeApi
from minirun.types import FunctionDeclaration, GenerateContentConfig


def session(*ignored: str, turn_detection: Any = None, **live: Any) -> Any:
    """The session that is asked for with these settings of `RunConfig`."""
    api = RealtimeApi(ignored, {"model": "gpt-transcribe"}, turn_detection)
    return api.session(GenerateContentConfig(), LiveConnectConfig(**live))


DETECTION = "automatic_activity_detection"
LOW = {DETECTION: {"start_of_speech_sensitivity": "START_SENSITIVITY_LOW"}}
BOTH = " (trigger_tokens and a target_tokens that is not above it)"


@pytest.mark.parametrize(
    ("live", "named", "why"),
    [
        ({"handle": "h1"}, "session_resumption.handle", " (its sessions end with their connections)"),
        ({"session_resumption": {"transparent": True}}, "session_resumption.transparent", ""),
        (
            {"output_audio_transcription": {"language_codes": ["de"]}}, "output_audio_transcription.language_codes", "",
        ),
        ({"context_window_compression": {"more": 1}}, "context_window_compression.more", ""),
        (
            {"context_window_compression": {"sliding_window": {"more": 1}}},
            "context_window_compression.sliding_window.more", "",
        ),
        ({"context_window_compression": {"trigger_tokens": 10}}, "context_window_compression", BOTH),
        (
            {"context_window_compression": {"sliding_window": {"target_tokens": 5}}},
            "context_window_compression", BOTH,
        ),
        (
            {"context_window_compression": {"trigger_tokens": 10, "sliding_window": {"target_tokens": 11}}},
            "context_window_compression", BOTH,
        ),
        (
            {"context_window_compression": {"trigger_tokens": 10, "sliding_window": {"target_tokens": 0}}},
            "context_window_compression", BOTH,
        ),
        ({"speech_config": {"language_code": "de"}}, "speech_config.language_code", ""),
        ({"speech_config": {"voice_config": {"more": 1}}}, "speech_config.voice_config.more", ""),
        ({"input_audio_transcription": {"more": 1}}, "input_audio_transcription.more", ""),
        (
            {"input_audio_transcription": {"language_codes": ["de", "en"]}},
            "input_audio_transcription.language_codes", " (one language)",
        ),
        (
            {"realtime_input_config": {"turn_coverage": "TURN_INCLUDES_ALL_INPUT"}},
            "realtime_input_config.turn_coverage", " (it is TURN_INCLUDES_ONLY_ACTIVITY)",
        ),
        ({"realtime_input_config": {"more": 1}}, "realtime_input_config.more", ""),
        ({"realtime_input_config": LOW}, f"realtime_input_config.{DETECTION}.start_of_speech_sensitivity", ""),
    ],
)  # fmt: skip
def test_a_setting_that_the_api_does_not_have_is_refused_unless_it_is_ignored(
    live: dict[str, Any], named: str, why: str
) -> None:
    """The error names it, and what can be ignored: done so, the session is asked for as without the setting."""
    with pytest.raises(NotSupportedError) as caught:
        session(**live)
    top = named.partition(".")[0]
    todo = f"leave it out, or give the model `ignore={{{top!r}}}`"
    assert str(caught.value) == f"RunConfig.{named} is not supported by OpenAI's realtime API{why}; {todo}"
    without: dict[str, Any] = {"input_audio_transcription": {}} if "input_audio_transcription" in live else {}
    assert session(top, **live) == session(**without)


def test_how_tools_are_chosen_and_how_much_to_think_are_settings_of_sessions() -> None:
    """
    Beside what every API has, a session takes the choice of tools and the effort.
    """
    choice = {"function_calling_config": {"mode": "ANY"}}
    config = GenerateContentConfig(
        tools=[FunctionDeclaration(name="add")], tool_config=choice, thinking_config={"thinking_level": "low"}
    )
    body = RealtimeApi((), {"model": "t"}, None).session(config, LiveConnectConfig()).body
    assert (body["tool_choice"], body["reasoning"]) == ("required", {"effort": "low"})


@pytest.mark.parametrize(
    ("live", "detection", "asked"),
    [
        ({}, None, None),
        ({"activity_handling": "NO_INTERRUPTION"}, None, {"type": "server_vad", "interrupt_response": False}),
        ({"activity_handling": "START_OF_ACTIVITY_INTERRUPTS"}, None, None),
        ({DETECTION: {"silence_duration_ms": 300}}, None, {"type": "server_vad", "silence_duration_ms": 300}),
        ({DETECTION: {"prefix_padding_ms": 20}}, None, {"type": "server_vad", "prefix_padding_ms": 20}),
        ({DETECTION: {"disabled": True, "silence_duration_ms": 300}}, None, "none"),
        ({DETECTION: {"disabled": True}}, {"type": "semantic_vad"}, "none"),
        ({}, {"type": "semantic_vad"}, {"type": "semantic_vad"}),
        (
            {"activity_handling": "NO_INTERRUPTION"},
            {"type": "semantic_vad"},
            {"type": "semantic_vad", "interrupt_response": False},
        ),
    ],
)
def test_how_the_server_is_to_find_out_when_the_user_speaks(live: dict[str, Any], detection: Any, asked: Any) -> None:
    """By itself where nothing is said; what the model was given counts; `disabled` is the client's own detection."""
    made = session(turn_detection=detection, realtime_input_config=live).body["audio"]["input"]
    expected = {} if asked is None else {"turn_detection": None if asked == "none" else asked}
    assert {name: value for name, value in made.items() if name == "turn_detection"} == expected
