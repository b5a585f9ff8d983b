"""
Google's Live API, as its own API and Vertex AI have it: what is sent. What the server says is read in
`_reading_gemini_live`. No I/O here.

A connection begins with `setup`, and the server says `setupComplete`. Then both sides send JSON objects as they like,
each with one field that says what it is. Sessions outlive connections, by handles; what a session knows of calls does,
too. There is no message that stops an answer: `cancel` sends what interrupts it, where something does, and the reader
drops the rest.

Models before Gemini 3 take what is typed as `clientContent`. Later ones take that only for what was said before the
session: `setup` announces it, and they wait for it, if only for the word that there was nothing. What is typed to them
is `realtimeInput`, in one piece that is answered at once.

Messages are counted from 0, which is `setup`. If the server should begin later, it names fewer messages than there are
as taken up, so that one may be sent twice; none is lost.

Not handled: Google's own tools, avatars, translation, the API's short-lived keys.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from .._json import brief, dumps
from ..errors import ModelRequestError
from ..types import Blob, Content, FunctionDeclaration, FunctionResponse, GenerateContentConfig, Part
from ._base import LlmRequest
from ._live import ActivityEnd, ActivityStart, AudioStreamEnd, LiveConnectConfig, Realtime
from ._reading_gemini_live import GeminiLiveState
from ._wire import name_sent, text_of_unseen
from ._wire_gemini import GeminiWire, answer_sent, merged, part_sent, tool_sent

__all__ = ["GeminiLiveWire", "GeminiLiveWriter", "Message"]

Message: TypeAlias = dict[str, Any]

_SETTINGS = (
    "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed", "thinking_config",
    "safety_settings", "labels",
)  # fmt: skip
# What the API for text makes of settings that there are not in live sessions; they are here only if they are ignored.
_ONLY_TEXT = ("stopSequences", "responseMimeType", "responseJsonSchema")
_CAPITAL_NEXT = re.compile(r"_([a-z0-9])")
_PCM = ("audio/pcm", "audio/l16")


class GeminiLiveWire(GeminiWire):
    """
    `BidiGenerateContent`; its headers, settings and failures are those of the API for text, or fewer.

    Vertex AI has other fields here and there. `types_in_real_time` says that what is typed goes as `realtimeInput`.
    """

    api = "the Gemini Live API"
    settings = frozenset(_SETTINGS)
    more_settings = frozenset({"session_resumption.transparent"})

    def setup(self, request: LlmRequest, model: str, types_in_real_time: bool) -> Message:
        """
        Return the first message of a connection.

        Raises:
            NotSupportedError: The request asks for what the API does not have.
        """
        config, live = request.config, request.live or LiveConnectConfig()
        self.check_settings(config)
        if config.labels and self._is_vertex:
            self.leaves_out("labels", "Vertex AI has none in live sessions")
        made: Message = {
            "model": model,
            "generationConfig": self._live_generation(config, live),
            **_told(config),
            **self._of_vertex(live),
        }
        speaks = "AUDIO" in live.response_modalities
        given = {
            "inputAudioTranscription": live.input_audio_transcription,
            "outputAudioTranscription": live.output_audio_transcription if speaks else None,
            "realtimeInputConfig": live.realtime_input_config,
            "contextWindowCompression": live.context_window_compression,
            "historyConfig": _history(live, types_in_real_time),
        }
        made |= {name: _camel(value) for name, value in given.items() if value is not None}
        if config.safety_settings:
            made["safetySettings"] = [
                {"category": setting.category, "threshold": setting.threshold} for setting in config.safety_settings
            ]
        if config.labels and not self._is_vertex:
            made["labels"] = dict(config.labels)
        return {"setup": merged(made, config.extra_body or {})}

    def writer(self, request: LlmRequest, state: GeminiLiveState, types_in_real_time: bool) -> GeminiLiveWriter:
        """Return what makes the messages after the setup."""
        live = request.live or LiveConnectConfig()
        detection = (_camel(live.realtime_input_config) or {}).get("automaticActivityDetection") or {}
        return GeminiLiveWriter(
            state,
            is_vertex=self._is_vertex,
            types_in_real_time=types_in_real_time,
            detects_speech=not detection.get("disabled"),
            awaits_history=_history(live, types_in_real_time) is not None,
        )

    def _of_vertex(self, live: LiveConnectConfig) -> Message:
        """What only Vertex AI has."""
        made: Message = {}
        # Without this field, the server gives no handles; one that is null would be refused.
        made["sessionResumption"] = {} if live.handle is None else {"handle": live.handle}
        is_transparent = (live.session_resumption or {}).get("transparent")
        name = "session_resumption.transparent"
        if is_transparent and (self._is_vertex or not self.leaves_out(name, "only Vertex AI has it", "RunConfig")):
            made["sessionResumption"]["transparent"] = True
        return made

    def _live_generation(self, config: GenerateContentConfig, live: LiveConnectConfig) -> dict[str, Any]:
        generation = {name: value for name, value in self._generation(config).items() if name not in _ONLY_TEXT}
        made = {"responseModalities": list(live.response_modalities), **generation}
        if live.speech_config is not None:
            made["speechConfig"] = _camel(live.speech_config)
        return made


def _history(live: LiveConnectConfig, types_in_real_time: bool) -> Mapping[str, Any] | None:
    """How the server is to take what was said before. A session that is resumed has it."""
    return {"initial_history_in_client_content": True} if types_in_real_time and live.handle is None else None


def _told(config: GenerateContentConfig) -> Message:
    made: Message = {}
    if config.system_instruction:
        made["systemInstruction"] = {"parts": [{"text": config.system_instruction}]}
    if config.tools:
        made["tools"] = _tools(config.tools)
    return made


def _tools(tools: Iterable[FunctionDeclaration]) -> list[Message]:
    return [{"functionDeclarations": [{**tool_sent(tool), **_behavior(tool)} for tool in tools]}]


def _behavior(tool: FunctionDeclaration) -> Message:
    return {} if tool.behavior is None else {"behavior": tool.behavior}


def _camel(value: Any) -> Any:
    """A value with the names of its fields as the wire has them; fields that are None are left out."""
    if isinstance(value, Mapping):
        return {_CAPITAL_NEXT.sub(_upper, name): _camel(item) for name, item in value.items() if item is not None}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return [_camel(item) for item in value] if isinstance(value, (list, tuple)) else value


def _upper(found: re.Match[str]) -> str:
    return found[1].upper()


# --- one connection ---------------------------------------------------------------------------------------------------


class GeminiLiveWriter:
    """
    Makes the messages of one connection. Each method returns those to be sent, in this order; there may be none.

    Args:
        state: What is known of the connection; the reader has the same.
        is_vertex: Whether it is Vertex AI.
        types_in_real_time: Whether what is typed goes as `realtimeInput`.
        detects_speech: Whether the server finds out itself when the user speaks.
        awaits_history: Whether the server waits for what was said before.
    """

    def __init__(
        self,
        state: GeminiLiveState,
        *,
        is_vertex: bool,
        types_in_real_time: bool,
        detects_speech: bool,
        awaits_history: bool,
    ) -> None:
        self._state = state
        self._is_vertex = is_vertex
        self._types_in_real_time = types_in_real_time
        self._detects_speech = detects_speech
        self._awaits_history = awaits_history
        self._is_active = False  # the client has said that the user speaks
        self._held: list[str] = []  # what is typed and not to be answered yet, where all that is typed is answered

    def history(self, contents: Sequence[Content], answer: bool) -> list[Message]:
        """Tell what was said before; with *answer*, have the last of it answered if it is the user's."""
        answer = answer and bool(contents) and contents[-1].role != "model"
        if not self._types_in_real_time:
            turns = _turns(contents)
            if answer and turns:
                self._state.asked()
            return self._counted([_client_content(turns, answer)]) if turns else []
        turns = _turns(contents[:-1] if answer else contents)
        messages: list[Message] = []
        if turns or self._awaits_history:
            self._awaits_history = False
            messages = self._counted([_client_content(turns, turn_complete=True)])
        if answer:
            told = [part for part in map(_asked_of, contents[-1].parts) if part]
            messages += self._typed_text("\n".join(told))
        return messages

    def content(self, content: Content, turn_complete: bool, content_id: str | None) -> list[Message]:
        """
        Send what is typed, images, and responses to calls.

        Raises:
            ModelRequestError: The session has no such call, or it has its response.
        """
        responses, parts = self._sorted(content)
        messages: list[Message] = []
        if responses:
            messages += self._counted([{"toolResponse": {"functionResponses": responses}}])
            self._state.asked()
        if self._types_in_real_time:
            messages += self._in_real_time(parts, turn_complete)
        elif parts or (turn_complete and not responses):
            turn = [{"role": "user", "parts": parts}] if parts else []
            messages += self._counted([_client_content(turn, turn_complete)])
            if turn_complete:
                self._state.asked()
        self._state.name_last(content_id)
        return messages

    def realtime(self, data: Realtime) -> list[Message]:
        """
        Send what happens.

        Raises:
            ModelRequestError: The server would refuse it.
        """
        match data:
            case Blob():
                return self._media(data)
            case ActivityStart() | ActivityEnd():
                return self._activity(isinstance(data, ActivityStart))
            case AudioStreamEnd():
                return self._stream_end()
        raise ModelRequestError(f"expected a Blob or a signal, found {brief(data)}")

    def cancel(self) -> list[Message]:
        """Interrupt the answer; models from Gemini 3 on take nothing that does, and are silenced by the reader."""
        return [] if self._types_in_real_time else self._counted([_client_content([], turn_complete=False)])

    def _counted(self, messages: list[Message]) -> list[Message]:
        """The messages, with what they have to wait for; they are counted."""
        if self._awaits_history and messages:
            self._awaits_history = False
            messages = [_client_content([], turn_complete=True), *messages]
        self._state.sent += len(messages)
        return messages

    # --- typed, and responses

    def _sorted(self, content: Content) -> tuple[list[Message], list[Message]]:
        """The responses that go to the calls of this session, and the other parts."""
        responses: list[Message] = []
        parts: list[Message] = []
        for part in content.parts:
            answer = part.function_response
            if answer is None:
                parts += _shown(part)
            elif answer.id in self._state.withdrawn:
                continue
            elif not self._knows(answer):
                found = f"one to {answer.name!r} ({brief(answer.id)})"
                msg = f"expected responses to calls that wait for one in this session, found {found}; tell it as text"
                raise ModelRequestError(msg)
            else:
                responses.append(_response(answer))
        self._state.calls.difference_update(response.get("id") for response in responses)
        return responses, parts

    def _knows(self, answer: FunctionResponse) -> bool:
        """Whether the session has the call; one that was resumed may have it, and one without an id goes by name."""
        return self._state.is_resumed or answer.id in self._state.calls or "id" not in answer_sent(answer)

    def _in_real_time(self, parts: list[Message], turn_complete: bool) -> list[Message]:
        messages = self._counted(
            [{"realtimeInput": {"video": part["inlineData"]}} for part in parts if "inlineData" in part]
        )
        self._held += [part["text"] for part in parts if "text" in part]
        if not turn_complete:
            return messages
        text, self._held = "\n".join(self._held), []
        return messages + self._typed_text(text)

    def _typed_text(self, text: str) -> list[Message]:
        """Text that is answered at once. Where the client says when the user speaks, it has to say so of this, too."""
        if not text:
            return []
        self._state.asked()
        messages: list[Message] = [{"realtimeInput": {"text": text}}]
        if not self._detects_speech and not self._is_active:
            messages = [_signal("activityStart"), *messages, _signal("activityEnd")]
        return self._counted(messages)

    # --- as it happens

    def _media(self, blob: Blob) -> list[Message]:
        kind, _, rest = blob.mime_type.lower().partition(";")
        kind = kind.strip()
        if not blob.data:
            return []
        if kind in _PCM:
            rate = blob.mime_type if "rate=" in rest else "audio/pcm;rate=16000"
            return self._counted([{"realtimeInput": {"audio": _encoded(blob.data, rate)}}])
        if kind.startswith("image/"):
            return self._counted([{"realtimeInput": {"video": _encoded(blob.data, kind)}}])
        todo = "send sound as PCM16 ('audio/pcm;rate=16000') and video as single pictures ('image/jpeg')"
        raise ModelRequestError(f"expected sound or a picture, found {brief(blob.mime_type)}; {todo}")

    def _activity(self, begins: bool) -> list[Message]:
        name = "ActivityStart" if begins else "ActivityEnd"
        if self._detects_speech:
            todo = 'set realtime_input_config={"automatic_activity_detection": {"disabled": True}}'
            raise ModelRequestError(f"expected no {name} while the server detects speech itself, found one; {todo}")
        if begins == self._is_active:
            expected = "an ActivityEnd first" if begins else "an ActivityStart first"
            raise ModelRequestError(f"expected {expected}, found {name}; send them by turns")
        self._is_active = begins
        if not begins:
            self._state.asked()
        return self._counted([_signal("activityStart" if begins else "activityEnd")])

    def _stream_end(self) -> list[Message]:
        if not self._detects_speech:
            msg = "expected no AudioStreamEnd while the client says when the user speaks, found one; send ActivityEnd"
            raise ModelRequestError(msg)
        if self._is_vertex:
            msg = "expected no AudioStreamEnd, which Vertex AI does not have, found one; go on sending silence"
            raise ModelRequestError(msg)
        return self._counted([{"realtimeInput": {"audioStreamEnd": True}}])


def _client_content(turns: list[Message], turn_complete: bool) -> Message:
    told: Message = {"turns": turns} if turns else {}
    return {"clientContent": {**told, "turnComplete": turn_complete}}


def _signal(name: str) -> Message:
    return {"realtimeInput": {name: {}}}


def _encoded(data: bytes, mime_type: str) -> Message:
    return {"mimeType": mime_type, "data": base64.b64encode(data).decode()}


def _response(answer: FunctionResponse) -> Message:
    made = answer_sent(answer)
    made.pop("parts", None)  # there are no media in it here
    return made


def _in_words(answer: FunctionResponse) -> str:
    """What asks the model to go on with a response whose call is only part of the history."""
    return f"[the function {name_sent(answer.name)} has answered: {dumps(answer.response)}]"


def _shown(part: Part) -> list[Message]:
    """A part of what the user sends: an image, or text; other media are told in words, as everywhere."""
    blob = part.inline_data
    if blob is not None and blob.data and blob.mime_type.lower().startswith("image/"):
        return [{"inlineData": _encoded(blob.data, blob.mime_type.partition(";")[0].strip().lower())}]
    if blob is not None or part.file_data is not None:
        return [{"text": text_of_unseen(part)}]
    return [{"text": made["text"]} for made in part_sent(part) if made.get("text") and not part.thought]


# --- what was said before ---------------------------------------------------------------------------------------------


def _without_open_calls(contents: Sequence[Content]) -> list[Content]:
    """The contents without calls that have no response, which the server would refuse; it comes later, in words."""
    answered = {part.function_response.id for content in contents for part in content.parts if part.function_response}
    return [
        Content(role=content.role, parts=parts)
        for content in contents
        if (parts := [part for part in content.parts if not part.function_call or part.function_call.id in answered])
    ]


def _turns(contents: Sequence[Content]) -> list[Message]:
    """What is told of contents: texts, calls and responses; no thoughts, no media."""
    turns = []
    for content in _without_open_calls(contents):
        parts = [made for part in content.parts for made in _told_again(part)]
        if parts:
            turns.append({"role": "model" if content.role == "model" else "user", "parts": parts})
    return turns


def _told_again(part: Part) -> Iterable[Message]:
    if part.thought or part.inline_data is not None or part.file_data is not None:
        return
    for made in part_sent(part):
        made.pop("thoughtSignature", None)
        made.get("functionResponse", {}).pop("parts", None)
        if made.get("text") != "":
            yield made


def _asked_of(part: Part) -> str:
    """What the last content before a session asks, as text."""
    answer = part.function_response
    return _in_words(answer) if answer is not None else "\n".join(made.get("text", "") for made in _told_again(part))
