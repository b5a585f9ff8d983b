"""
OpenAI's realtime API: what a session is set to, and how contents become items of its conversation. No I/O here.

What of `RunConfig` the API has, under another name, is translated where it is the same thing; what it has not is
refused by name. `extra_body` goes into the session as it is, field by field, so that everything else can be said, too.

Not handled: tools that OpenAI runs itself, prompts that are stored there, and G.711.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._json import dumps
from ..types import Blob, Content, FunctionDeclaration, FunctionResponse, GenerateContentConfig, Part
from ._live import LiveConnectConfig
from ._wire import Api, choice_of, name_sent, text_of_other, thinking_of

__all__ = [
    "RATE", "RealtimeApi", "Session", "history_items", "image_piece", "is_image", "response_item", "tools_of",
    "user_pieces",
]  # fmt: skip

# Samples a second; the API has no other for PCM16.
RATE = 24000

# What the voice detection does by itself, in milliseconds of silence that end an utterance.
SILENCE_MS = 500
# The longest that it waits, in milliseconds, when it goes by the meaning of what was said; of others as of "low".
_EAGERNESS_MS = {"medium": 4000, "auto": 4000, "high": 2000}
_EAGERNESS_MS_MAX = 8000

_EFFORTS = ("minimal", "low", "medium", "high", "xhigh")
IMAGES = ("image/png", "image/jpeg")
# What the API takes as the name of an item or a call; minirun's are up to 40.
ID_CHARS_MAX = 32


class Session(NamedTuple):
    """A session as it is asked for, and what follows from it."""

    body: dict[str, Any]
    is_manual: bool  # the client says when the user begins and ends to speak
    interrupts: bool  # the user's voice cuts an answer off
    answers_speech: bool  # the server answers an utterance without being asked
    transcribes: bool  # whether the transcript of answers is wanted
    silence_ms: int  # so much silence ends an utterance


class RealtimeApi(Api):
    """
    The settings of sessions.

    Args:
        ignore: Settings that are left out instead of being refused where the API does not have them.
        transcription: What transcribes the user's speech, as the API has it: `{"model": ...}`.
        turn_detection: How the server detects the user's voice, as the API has it; None: as `RunConfig` says.
    """

    api = "OpenAI's realtime API"
    settings = frozenset({"tool_config", "thinking_config"})
    more_settings = frozenset(
        {
            *("context_window_compression", "input_audio_transcription", "output_audio_transcription"),
            *("realtime_input_config", "session_resumption", "speech_config"),
        }
    )

    def __init__(
        self, ignore: Collection[str], transcription: Mapping[str, Any], turn_detection: Mapping[str, Any] | None
    ) -> None:
        super().__init__(ignore)
        self._transcription = transcription
        self._turn_detection = turn_detection

    def session(self, config: GenerateContentConfig, live: LiveConnectConfig) -> Session:
        """
        Return the session to ask for.

        Raises:
            NotSupportedError: It would be set to what the API does not have.
        """
        self.check_settings(config)
        self._check_absent(live)
        body: dict[str, Any] = {"type": "realtime", "output_modalities": self._modalities(live)}
        body["instructions"] = config.system_instruction or ""  # else the server has its own
        body["tools"] = tools_of(config.tools)
        body |= self._choice(config) | self._reasoning(config) | self._truncation(live)
        if config.max_output_tokens is not None:
            body["max_output_tokens"] = config.max_output_tokens
        pcm = {"type": "audio/pcm", "rate": RATE}
        hears, says = {"format": pcm, **self._hearing(live)}, {"format": pcm, **self._voice(live)}
        body["audio"] = {"input": hears, "output": says}
        body = _merged(body, config.extra_body or {})
        return _session(body, _interrupts(live), live.output_audio_transcription is not None)

    # --- what is refused ---

    def _refuse(self, name: str, why: str = "") -> None:
        self.leaves_out(name, why, "RunConfig")

    def _refuse_fields(self, name: str, given: Mapping[str, Any] | None, known: frozenset[str] = frozenset()) -> None:
        """Refuse what a field of `RunConfig` says beside what is known."""
        for field, value in (given or {}).items():
            if value is not None and field not in known:
                self._refuse(f"{name}.{field}")

    def _check_absent(self, live: LiveConnectConfig) -> None:
        if live.handle is not None:
            self._refuse("session_resumption.handle", "its sessions end with their connections")
        self._refuse_fields("session_resumption", live.session_resumption)
        self._refuse_fields("output_audio_transcription", live.output_audio_transcription)

    # --- what is said ---

    def _modalities(self, live: LiveConnectConfig) -> list[str]:
        found = [str(each).lower() for each in live.response_modalities]
        if found not in (["audio"], ["text"]):
            raise self.unsupported("response_modalities", f"{found}; it has ['AUDIO'] or ['TEXT']", "RunConfig")
        return found

    def _choice(self, config: GenerateContentConfig) -> dict[str, Any]:
        choice = choice_of(config)
        if choice is None:
            return {}
        if len(choice.names) == 1:
            return {"tool_choice": {"type": "function", "name": choice.names[0]}}
        if choice.names or choice.mode == "VALIDATED":
            self.leaves_out("tool_config", "one function, or all of them; AUTO, ANY or NONE")
            return {}
        return {"tool_choice": {"AUTO": "auto", "ANY": "required", "NONE": "none"}[choice.mode]}

    def _reasoning(self, config: GenerateContentConfig) -> dict[str, Any]:
        thinking = thinking_of(config)
        if thinking.budget is not None:
            self.leaves_out("thinking_config.thinking_budget", "it has levels; write thinking_level='low'")
        if thinking.level is None:
            return {}
        if thinking.level not in _EFFORTS:
            self.leaves_out("thinking_config.thinking_level", f"{thinking.level!r}; it has {', '.join(_EFFORTS)}")
            return {}
        return {"reasoning": {"effort": thinking.level}}

    def _truncation(self, live: LiveConnectConfig) -> dict[str, Any]:
        """How a conversation that has become too long is shortened: the API drops the oldest items by itself."""
        given = live.context_window_compression or {}
        window = given.get("sliding_window") or {}
        self._refuse_fields("context_window_compression", given, frozenset({"trigger_tokens", "sliding_window"}))
        self._refuse_fields("context_window_compression.sliding_window", window, frozenset({"target_tokens"}))
        trigger, target = given.get("trigger_tokens"), window.get("target_tokens")
        if trigger is None and target is None:
            return {}
        if trigger is None or target is None or not 0 < int(target) <= int(trigger):
            self._refuse("context_window_compression", "trigger_tokens and a target_tokens that is not above it")
            return {}
        ratio = {"type": "retention_ratio", "retention_ratio": int(target) / int(trigger)}
        return {"truncation": {**ratio, "token_limits": {"post_instructions": int(trigger)}}}

    def _voice(self, live: LiveConnectConfig) -> dict[str, Any]:
        speech = live.speech_config or {}
        voice = speech.get("voice_config") or {}
        prebuilt = voice.get("prebuilt_voice_config") or {}
        self._refuse_fields("speech_config", speech, frozenset({"voice_config"}))
        self._refuse_fields("speech_config.voice_config", voice, frozenset({"prebuilt_voice_config"}))
        name = prebuilt.get("voice_name")
        if name is None:
            return {}
        return {"voice": {"id": name} if name.startswith("voice_") else name}

    def _hearing(self, live: LiveConnectConfig) -> dict[str, Any]:
        hearing: dict[str, Any] = {}
        wanted = live.input_audio_transcription
        if wanted is not None:
            self._refuse_fields("input_audio_transcription", wanted, frozenset({"language_codes"}))
            codes = [str(code).partition("-")[0].lower() for code in wanted.get("language_codes") or ()]
            if len(codes) > 1:
                self._refuse("input_audio_transcription.language_codes", "one language")
            language = {"language": codes[0]} if len(codes) == 1 else {}
            hearing["transcription"] = {**self._transcription, **language}
        return hearing | self._turns(live)

    def _turns(self, live: LiveConnectConfig) -> dict[str, Any]:
        """How the server finds out when the user speaks; without a word of ours, as it does by itself."""
        given = live.realtime_input_config or {}
        known = frozenset({"automatic_activity_detection", "activity_handling", "turn_coverage"})
        self._refuse_fields("realtime_input_config", given, known)
        if _named(given.get("turn_coverage")) not in (None, "TURN_INCLUDES_ONLY_ACTIVITY"):
            self._refuse("realtime_input_config.turn_coverage", "it is TURN_INCLUDES_ONLY_ACTIVITY")
        automatic = given.get("automatic_activity_detection") or {}
        inner = "realtime_input_config.automatic_activity_detection"
        times = {name: automatic[name] for name in ("prefix_padding_ms", "silence_duration_ms") if automatic.get(name)}
        if automatic.get("disabled"):
            return {"turn_detection": None}
        if self._turn_detection is not None:
            self._refuse_fields(inner, automatic, frozenset({"disabled"}))
        else:
            self._refuse_fields(inner, automatic, frozenset({"disabled", *times}))
        handling = {} if _interrupts(live) else {"interrupt_response": False}
        if self._turn_detection is not None:
            return {"turn_detection": {**self._turn_detection, **handling}}
        return {"turn_detection": {"type": "server_vad", **times, **handling}} if times or handling else {}


def _interrupts(live: LiveConnectConfig) -> bool:
    """Whether the user's voice is to cut an answer off."""
    return _named((live.realtime_input_config or {}).get("activity_handling")) != "NO_INTERRUPTION"


def _named(value: object) -> str | None:
    """The name of a value of an enumeration, without those that mean none."""
    name = None if value is None else str(getattr(value, "value", value)).upper()
    return None if name is None or name.endswith("_UNSPECIFIED") else name


def _merged(mine: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both, field by field; where both say something, *more* counts."""
    merged = dict(mine)
    for name, value in more.items():
        here = merged.get(name)
        merged[name] = _merged(here, value) if isinstance(here, dict) and isinstance(value, Mapping) else value
    return merged


def _session(body: dict[str, Any], interrupts: bool, transcribes: bool) -> Session:
    hears = body["audio"]["input"]
    turns = hears.get("turn_detection", {})
    if turns is None:
        return Session(body, True, interrupts, False, transcribes, 0)
    if turns.get("type") == "semantic_vad":
        silence_ms = _EAGERNESS_MS.get(turns.get("eagerness", "auto"), _EAGERNESS_MS_MAX)
    else:
        silence_ms = int(turns.get("silence_duration_ms") or SILENCE_MS)
    interrupts, answers = bool(turns.get("interrupt_response", True)), bool(turns.get("create_response", True))
    return Session(body, False, interrupts, answers, transcribes, silence_ms)


def tools_of(tools: Sequence[FunctionDeclaration]) -> list[dict[str, Any]]:
    """The tools as a session has them."""
    return [_tool(tool) for tool in tools]


def _tool(tool: FunctionDeclaration) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "name": tool.name, **described, "parameters": parameters}


# --- items ------------------------------------------------------------------------------------------------------------


def history_items(contents: Sequence[Content]) -> Iterator[dict[str, Any]]:
    """
    The items of what was said before. Sound is left out, and so are thoughts: the API takes back neither.
    """
    for content in contents:
        if content.role == "model":
            yield from _said_by_model(content)
            continue
        for response in content.responses:
            yield response_item(response)
        pieces = user_pieces(content.parts)
        if pieces:
            yield {"type": "message", "role": "user", "content": pieces}


def _said_by_model(content: Content) -> Iterator[dict[str, Any]]:
    for part in content.parts:
        call = part.function_call
        if call is not None:
            made = {"call_id": _id_sent(call.id), "name": name_sent(call.name), "arguments": dumps(call.args)}
            yield {"type": "function_call", **made}
        elif not part.thought and not _is_sound(part) and (text := text_of_other(part)):
            yield {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def response_item(response: FunctionResponse) -> dict[str, Any]:
    """The item of a tool's answer, which is text; of media in it the model is told in words."""
    unseen = [text for part in response.parts for text in [text_of_other(part)] if text]
    output = "\n".join([dumps(response.response), *unseen])
    return {"type": "function_call_output", "call_id": _id_sent(response.id), "output": output}


def user_pieces(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The pieces of a user's message: texts and pictures. Sound is left out, of other media it is told in words."""
    pieces = []
    for part in parts:
        blob = part.inline_data
        shown = image_piece(blob) if blob is not None else None
        if shown is not None:
            pieces.append(shown)
        elif not part.thought and not _is_sound(part):
            text = text_of_other(part)
            if text:
                pieces.append({"type": "input_text", "text": text})
    return pieces


def image_piece(blob: Blob) -> dict[str, Any] | None:
    """The piece of a picture; None: it is none that the API takes."""
    kind = _kind_of(blob.mime_type)
    if kind not in IMAGES or not blob.data:
        return None
    return {"type": "input_image", "image_url": f"data:{kind};base64,{base64.b64encode(blob.data).decode()}"}


def is_image(mime_type: str) -> bool:
    """Whether the API takes pictures of this type."""
    return _kind_of(mime_type) in IMAGES


def _kind_of(mime_type: str) -> str:
    return mime_type.partition(";")[0].strip().lower().replace("image/jpg", "image/jpeg")


def _is_sound(part: Part) -> bool:
    media = part.inline_data or part.file_data
    return media is not None and (media.mime_type or "").startswith("audio/")


def _id_sent(id: str | None) -> str:
    """The id of a call as the API takes it: of a longer one, always the same short one."""
    if id is None or len(id) <= ID_CHARS_MAX:
        return id or ""
    return hashlib.sha256(id.encode()).hexdigest()[:ID_CHARS_MAX]
