"""
Tables of what is said over the wires of live models, in `tests/fixtures/wire/tables`, as `wire_tables.py` has them.

    python -m tests.live_wire_tables   write anew what is made of everything; read the difference before it is kept
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from openai.types.realtime.realtime_client_event_param import RealtimeClientEventParam
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import TypeAdapter

from minirun._json import dumps
from minirun.errors import MinirunError
from minirun.models import ActivityEnd, ActivityStart, AudioStreamEnd, LiveConnectConfig, LlmRequest
from minirun.models._reading_gemini_live import GeminiLiveState
from minirun.models._wire_gemini_live import GeminiLiveWire
from minirun.models._wire_openai_realtime import Conversation
from minirun.models._wire_openai_session import RealtimeApi
from minirun.types import Blob, Content, GenerateContentConfig, Part

from .provider_servers.gemini_live import problem_with_message
from .provider_servers.strict import problem_with
from .tables import kept, write
from .wire_tables import (
    ADD,
    IGNORED,
    NOW,
    again,
    by_case,
    call,
    changes,
    contents,
    plain,
    result,
    settings,
)

__all__ = ["KINDS", "asked_for", "said", "spoken", "talked"]

KINDS = {"gemini": (False, False), "gemini 3": (False, True), "vertex": (True, False)}  # is_vertex, types_in_real_time
# Of the contents in the tables for text, those that are nothing else here than others.
SAME = ("file-", "file_", "http:", "data:", "silence", "with a name", "Ada", "FAILED", "DEADLINE", "/webp", "/gif",
        "/x-wav", "/wave", "/mp3", "/mpeg", "font", "csv as", "None as", "sealed by responses")  # fmt: skip
PCM = "audio/pcm;rate=24000"
_server_event: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


# --- sessions ---------------------------------------------------------------------------------------------------------


def _window(trigger: int, target: int) -> dict[str, Any]:
    return {"context_window_compression": {"trigger_tokens": trigger, "sliding_window": {"target_tokens": target}}}


def _voice(prebuilt: dict[str, Any]) -> dict[str, Any]:
    return {"speech_config": {"voice_config": {"prebuilt_voice_config": prebuilt}}}


def _detection(fields: dict[str, Any]) -> dict[str, Any]:
    return {"automatic_activity_detection": fields}


def sessions() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Settings of live sessions, one at a time: a name, the config of the request, and that of the session."""
    yield "nothing", {}, {}
    for name, config in settings():
        yield name, config, {}
    for modalities in (["AUDIO"], ["TEXT"], ["AUDIO", "TEXT"], []):
        yield f"answers in {modalities}", {}, {"response_modalities": modalities}
    lives: dict[str, dict[str, Any]] = {
        "a handle": {"handle": "h"},
        "transparent resumption": {"session_resumption": {"transparent": True}},
        "resumption that is not transparent": {"session_resumption": {"transparent": False}},
        "resumption as it is": {"session_resumption": {"transparent": None}},
        "proactivity": {"proactivity": {"proactive_audio": True}},
        "affective dialog": {"enable_affective_dialog": True},
        "no affective dialog": {"enable_affective_dialog": False},
        "signals of speech": {"explicit_vad_signal": True},
        "transcripts of answers": {"output_audio_transcription": {}},
        "no transcripts of answers": {"output_audio_transcription": None},
        "transcripts of answers in a language": {"output_audio_transcription": {"language_codes": ["de"]}},
        "no transcripts": {"input_audio_transcription": None},
        "transcripts": {"input_audio_transcription": {}},
        "transcripts in a language": {"input_audio_transcription": {"language_codes": ["de-DE"]}},
        "transcripts in two languages": {"input_audio_transcription": {"language_codes": ["de-DE", "EN"]}},
        "transcripts of another kind": {"input_audio_transcription": {"hm": 1}},
        "a voice": _voice({"voice_name": "marin"}),
        "a voice of one's own": _voice({"voice_name": "voice_1"}),
        "a language to speak": {"speech_config": {"language_code": "de"}},
        "a voice that was cloned": {"speech_config": {"voice_config": {"replicated_voice_config": {"mime_type": "a"}}}},
        "a voice without a name": _voice({}),
        "a window": _window(100, 80),
        "a window of all": _window(9, 9),
        "a window of more": _window(9, 10),
        "a window of nothing": _window(9, 0),
        "a window without an end": {"context_window_compression": {"trigger_tokens": 100}},
        "a window without a beginning": {"context_window_compression": {"sliding_window": {"target_tokens": 80}}},
        "a window as it is": {"context_window_compression": {"sliding_window": {}}},
        "a window of another kind": {"context_window_compression": {"hm": 1}},
        "a history": {"history_config": {"initial_history_in_client_content": True}},
        "no history": {"history_config": {"initial_history_in_client_content": False}},
        "a history that is there": {"history_config": {"initial_history_in_client_content": True}, "handle": "h"},
    }
    absent: list[tuple[str, Any]] = [
        ("handle", "h"), ("session_resumption", {"transparent": True}), ("proactivity", {"proactive_audio": True}),
        ("enable_affective_dialog", True), ("output_audio_transcription", {"language_codes": ["de"]}),
    ]  # fmt: skip
    for first in range(4):
        yield f"all from {absent[first][0]} on", {}, dict(absent[first:])
    for name, live in lives.items():
        yield name, {}, live
    for name, told in {
        "speech that the client detects": _detection({"disabled": True}),
        "speech that the server detects": _detection({"disabled": False}),
        "how long silence is": _detection({"silence_duration_ms": 700}),
        "how long a beginning is": _detection({"prefix_padding_ms": 20, "silence_duration_ms": 0}),
        "how much silence counts": _detection({"end_of_speech_sensitivity": "END_SENSITIVITY_LOW"}),
        "no interruption": {"activity_handling": "NO_INTERRUPTION"},
        "no interruption of the client's": {
            "activity_handling": "NO_INTERRUPTION", "automatic_activity_detection": {"disabled": True}
        },
        "interruptions": {"activity_handling": "START_OF_ACTIVITY_INTERRUPTS"},
        "interruptions as they are": {"activity_handling": "ACTIVITY_HANDLING_UNSPECIFIED"},
        "turns of all": {"turn_coverage": "TURN_INCLUDES_ALL_INPUT"},
        "turns of speech": {"turn_coverage": "TURN_INCLUDES_ONLY_ACTIVITY"},
        "turns as they are": {"turn_coverage": "TURN_COVERAGE_UNSPECIFIED"},
        "speech of another kind": {"hm": 1},
    }.items():  # fmt: skip
        yield name, {}, {"realtime_input_config": told}
    bodies: dict[str, dict[str, Any]] = {
        "silence": {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 300}}}},
        "eagerness": {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}}},
        "low eagerness": {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "low"}}}},
        "medium eagerness": {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "medium"}}}},
        "some eagerness": {"audio": {"input": {"turn_detection": {"type": "semantic_vad"}}}},
        "new eagerness": {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "hm"}}}},
        "answers that are asked for": {"audio": {"input": {"turn_detection": {"create_response": False}}}},
        "answers that go on": {"audio": {"input": {"turn_detection": {"interrupt_response": False}}}},
        "no detection": {"audio": {"input": {"turn_detection": None}}},
        "a field of a field that is none": {"instructions": {"a": 1}, "audio": {"input": {"format": 3}}},
    }
    for name, body in bodies.items():
        yield f"in the body: {name}", {"extra_body": body}, {}


def asked_for() -> dict[str, dict[str, Any]]:
    """What each wire asks for: of OpenAI's the session, of Gemini's the setup; what is other than with no settings."""
    made: dict[str, dict[str, Any]] = {"openai": {}, **{kind: {} for kind in KINDS}}
    for name, config, live in sessions():
        request = LlmRequest(contents=(), config=GenerateContentConfig(**config), live=LiveConnectConfig(**live))
        for kind, cases in made.items():
            cases[name] = _asked(kind, request, "another kind" in name or "extra_body" in config)
    plain = {kind: dict(cases["nothing"]) for kind, cases in made.items()}
    return {
        kind: {name: changes(plain[kind] if name != "nothing" else {}, told) for name, told in cases.items()}
        for kind, cases in made.items()
    }


def _asked(kind: str, request: LlmRequest, unknown: bool) -> Any:
    found: dict[str, Any] = {}
    more = RealtimeApi.more_settings if kind == "openai" else GeminiLiveWire.more_settings
    for ignore in ((), {*IGNORED, *more}):
        try:
            if kind == "openai":
                assert request.live is not None
                session = RealtimeApi(ignore, {"model": "t"}, None).session(request.config, request.live)
                event = Conversation(session).update(session.body)
                assert unknown or problem_with(event, RealtimeClientEventParam) is None, event
                return {**found, **json.loads(dumps(session._asdict()))}
            is_vertex, types = KINDS[kind]
            message = GeminiLiveWire(ignore, is_vertex).setup(request, "models/m", types)
            assert unknown or problem_with_message(message) is None, message
            return {**found, **json.loads(dumps(message["setup"]))}
        except MinirunError as error:
            found = {"refused": str(error)}
    return found


# --- what is said before and meanwhile --------------------------------------------------------------------------------


def said() -> dict[str, dict[str, Any]]:
    """What each wire tells of a conversation before the session, and of its last content as one that is typed."""
    made: dict[str, dict[str, Any]] = {"openai": {}, "gemini": {}, "gemini 3": {}}
    more: list[tuple[str, Sequence[Content]]] = [
        ("a call that waits", [Content(role="model", parts=[call(), Part(text="so")])]),
        ("an id that is long", [Content(role="model", parts=[call(id="c" * 33)]),
                                Content(role="user", parts=[result("c" * 33)])]),
        ("an id that is just short enough", [Content(role="model", parts=[call(id="c" * 32)]),
                                             Content(role="user", parts=[result("c" * 32)])]),
    ]  # fmt: skip
    for name, told in [*contents(), *more]:
        if any(word in name for word in SAME):
            continue
        for kind, cases in made.items():
            cases[name] = _told_by_openai(told) if kind == "openai" else _told_by_gemini(told, *KINDS[kind])
    return made


def _told_by_openai(told: Sequence[Content]) -> Any:
    talk = _conversation()
    before = [_of(event) for event in talk.history(told)]
    waits = bool(talk._open_calls)
    try:
        typed: Any = [_of(event) for event in talk.items_of(told[-1], "m1")]
    except MinirunError as error:
        typed = str(error)
    return {"before": before, "waits": waits, "typed": typed}


def _of(event: Mapping[str, Any]) -> Any:
    assert problem_with(event, RealtimeClientEventParam, "event") is None, event
    return {name: value for name, value in event.get("item", event).items() if name != "id"}


def _told_by_gemini(told: Sequence[Content], is_vertex: bool, types: bool) -> Any:
    found: dict[str, Any] = {}
    for name in ("before", "asked", "typed", "begun"):
        state = GeminiLiveState(is_resumed=True)
        request = LlmRequest(contents=(), live=LiveConnectConfig())
        writer = GeminiLiveWire((), is_vertex).writer(request, state, types)
        if name in ("before", "asked"):
            messages = writer.history(told, name == "asked")
        else:
            messages = writer.content(told[-1], name == "typed", "m1")
        assert [problem_with_message(each) for each in messages if problem_with_message(each)] == []
        found[name] = {"sent": messages, "counted": state.sent, "may_answer": state.may_answer}
    return json.loads(dumps(found))


def spoken() -> dict[str, dict[str, Any]]:
    """What each wire makes of what happens, where the server detects speech (automatic) and where the client does."""
    media = [(name, told[0].parts[0].inline_data) for name, told in contents() if "/" in name and told[0].parts]
    happens: list[tuple[str, Any]] = [(name, data) for name, data in media if data is not None]
    happens += [(kind, Blob(data=b"ab", mime_type=kind)) for kind in (
        PCM, "audio/pcm", "audio/pcm;rate=16000", "AUDIO/PCM ; RATE = 24000", "audio/L16;rate=8000", "audio/pcm;rate=x",
    )]  # fmt: skip
    happens += [("silence", Blob(data=b"", mime_type=PCM)), ("start", ActivityStart()), ("end", ActivityEnd())]
    happens += [("off", AudioStreamEnd())]
    made: dict[str, dict[str, Any]] = {"openai": {}, **{kind: {} for kind in KINDS}}
    for name, data in happens:
        for manual in (False, True):
            for kind, cases in made.items():
                cases[f"{name}, {'manual' if manual else 'automatic'}"] = _spoken(kind, data, manual)
    return made


def _spoken(kind: str, data: Any, manual: bool) -> Any:
    live = LiveConnectConfig(realtime_input_config={"automatic_activity_detection": {"disabled": manual}})
    try:
        if kind == "openai":
            talk = _conversation(live)
            return [_short(event) for event in talk.realtime(data)]
        request = LlmRequest(contents=(), live=live)
        writer = GeminiLiveWire((), KINDS[kind][0]).writer(request, GeminiLiveState(), KINDS[kind][1])
        return json.loads(dumps([_short(message) for message in writer.realtime(data)]))
    except MinirunError as error:
        return str(error)


def _short(message: Any) -> Any:
    """Without what the sound is, which is long."""
    return {**message, "audio": len(message["audio"])} if "audio" in message else message


# --- a conversation with OpenAI ---------------------------------------------------------------------------------------


def _conversation(live: LiveConnectConfig | None = None) -> Conversation:
    session = RealtimeApi((), {"model": "t"}, None).session(GenerateContentConfig(), live or LiveConnectConfig())
    return Conversation(session)


def talked(name: str, given: Mapping[str, Any]) -> list[Any]:
    """What a conversation means and sends, step by step: what the server says, or what this side does."""
    session = RealtimeApi((), {"model": "t"}, None).session(
        GenerateContentConfig(extra_body=given.get("body")), LiveConnectConfig(**given.get("live", {}))
    )
    talk, found = Conversation(session), []
    for step in given["steps"]:
        try:
            found.append(_step(talk, step))
        except MinirunError as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def _step(talk: Conversation, step: Any) -> Any:
    if isinstance(step, Mapping):
        if not step.get("odd"):
            _server_event.validate_python({"event_id": "e", **step})
        if str(step.get("delta")).startswith("@"):  # so many bytes of sound
            step = {**step, "delta": base64.b64encode(bytes(int(step["delta"][1:]))).decode()}
        responses, events = talk.take(step)
        told = [plain(response) for response in responses]
        for part in (part for response in told for part in response.get("content", {}).get("parts", [])):
            if "inline_data" in part:
                part["inline_data"]["data"] = len(part["inline_data"]["data"])
        return [told, [_short(event) for event in events]]
    what, *about = step
    made: dict[str, Callable[[], Iterable[Any]]] = {
        "say": lambda: talk.items_of(Content(role="user", parts=[Part(text=about[0])]), about[1]),
        "answer": lambda: talk.items_of(Content(role="user", parts=[result(about[0])]), None),
        "want": lambda: talk.want(*about),
        "cancel": talk.cancel,
        "truncate": lambda: [*talk.truncate(*about)],
        "sound": lambda: talk.realtime(Blob(data=bytes(about[0]), mime_type=PCM)),
        "start": lambda: talk.realtime(ActivityStart()),
        "end": lambda: talk.realtime(ActivityEnd()),
        "off": lambda: talk.realtime(AudioStreamEnd()),
        "ends": lambda: [{"ends": talk.ends_utterance(ActivityEnd())}, {"ends": talk.ends_utterance(ActivityStart())}],
        "change": lambda: [talk.changed(about[0], [ADD, NOW])],
    }
    return [_short(event) for event in made[what]()]


if __name__ == "__main__":
    write("wire/tables/live-sessions", by_case(asked_for()), 2)
    write("wire/tables/live-contents", by_case(said()), 2)
    write("wire/tables/live-happenings", by_case(spoken()), 2)
    write("wire/tables/live-talks", {"openai": again("openai", kept("wire/tables/live-talks")["openai"], talked)}, 2)
