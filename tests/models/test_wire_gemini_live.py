"""
The wire of Gemini's Live API: what is sent for each thing, and what the server's messages say.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun.errors import (
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelRefusedError,
    ModelRequestError,
    NotSupportedError,
)
from minirun.models import (
    ActivityEnd,
    ActivityStart,
    AudioStreamEnd,
    LiveConnectConfig,
    LiveResumption,
    LlmRequest,
    LlmResponse,
)
from minirun.models._reading_gemini_live import GeminiLiveReader, GeminiLiveState, closed_error
from minirun.models._seals import sealed
from minirun.models._wire_gemini_live import GeminiLiveWire, GeminiLiveWriter, Message
from minirun.types import (
    Blob,
    Content,
    FileData,
    FunctionCall,
    FunctionDeclaration,
    FunctionResponse,
    GenerateContentConfig,
    Part,
    Transcription,
)

from ..provider_servers.gemini_live import problem_with_message

MODEL = "models/gemini-live"
MANUAL = {"automatic_activity_detection": {"disabled": True}}
SOUND = base64.b64encode(b"\1\2\3\4").decode()


def asked(live: dict[str, Any] | None = None, **config: Any) -> LlmRequest:
    return LlmRequest(contents=(), config=GenerateContentConfig(**config), live=LiveConnectConfig(**(live or {})))


def setup_of(request: LlmRequest, *, vertex: bool = False, new: bool = False, ignore: Any = ()) -> Message:
    message = GeminiLiveWire(ignore, vertex).setup(request, MODEL, new)
    assert problem_with_message(message) is None
    setup: Message = message["setup"]
    return setup


def opened(
    *, new: bool = False, vertex: bool = False, **live: Any
) -> tuple[GeminiLiveWriter, GeminiLiveReader, GeminiLiveState]:
    """Both halves of a connection."""
    state = GeminiLiveState(is_resumed=live.get("handle") is not None)
    writer = GeminiLiveWire((), vertex).writer(asked(live), state, new)
    return writer, GeminiLiveReader(state, "1"), state


def checked(messages: list[Message]) -> list[Message]:
    for message in messages:
        assert problem_with_message(message) is None
    return messages


def user(*parts: Any) -> Content:
    return Content(role="user", parts=[Part(text=part) if isinstance(part, str) else part for part in parts])


def model(*parts: Any) -> Content:
    return Content(role="model", parts=[Part(text=part) if isinstance(part, str) else part for part in parts])


def result(call_id: str | None, name: str = "look", **fields: Any) -> Part:
    return Part(function_response=FunctionResponse(id=call_id, name=name, response={"seen": 1}, **fields))


def told(response: LlmResponse) -> dict[str, Any]:
    """The fields of a response that are set."""
    fields = attrs.fields(LlmResponse)
    return {each.name: value for each in fields if (value := getattr(response, each.name)) != each.default}


def read(reader: GeminiLiveReader, **message: Any) -> list[dict[str, Any]]:
    return [told(response) for response in reader.read(message)]


def said(reader: GeminiLiveReader, **content: Any) -> list[dict[str, Any]]:
    return read(reader, serverContent=content)


def heard(text: str | None = None, finished: bool | None = None) -> Transcription:
    return Transcription(text=text, finished=finished)


# --- setup ------------------------------------------------------------------------------------------------------------


def test_the_smallest_setup_asks_for_sound_transcripts_and_handles() -> None:
    """Without any setting, a session speaks, transcribes both sides, and can be gone on with."""
    assert setup_of(asked()) == {
        "model": MODEL,
        "generationConfig": {"responseModalities": ["AUDIO"]},
        "sessionResumption": {},
        "inputAudioTranscription": {},
        "outputAudioTranscription": {},
    }


def test_a_setup_has_all_that_was_asked_for() -> None:
    """Settings of the request and of the live run go where the API has them, by its names."""
    tool = FunctionDeclaration(name="look", description="Look.", parameters={"type": "object"}, behavior="NON_BLOCKING")
    live = {
        "handle": "h",
        "speech_config": {"language_code": "de-DE", "voice_config": {"prebuilt_voice_config": {"voice_name": "Puck"}}},
        "input_audio_transcription": {"language_codes": ["de-DE"]},
        "realtime_input_config": {
            "automatic_activity_detection": {
                "start_of_speech_sensitivity": "START_SENSITIVITY_LOW",
                "end_of_speech_sensitivity": "END_SENSITIVITY_HIGH",
                "prefix_padding_ms": 20,
                "silence_duration_ms": 300,
                "disabled": None,
            },
            "activity_handling": "NO_INTERRUPTION",
        },
        "context_window_compression": {"trigger_tokens": 1000, "sliding_window": {"target_tokens": 500}},
        "session_resumption": {"transparent": True},
    }
    config = {
        "system_instruction": "Be brief.",
        "tools": [tool],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "max_output_tokens": 100,
        "seed": 1,
        "thinking_config": {"thinking_budget": 0},
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "extra_body": {"generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_LOW"}},
    }
    assert setup_of(asked(live, **config), vertex=True) == {
        "model": MODEL,
        "generationConfig": {
            "responseModalities": ["AUDIO"],
            "temperature": 0.5,
            "topP": 0.9,
            "topK": 3,
            "maxOutputTokens": 100,
            "seed": 1,
            "thinkingConfig": {"thinkingBudget": 0},
            "speechConfig": {
                "languageCode": "de-DE",
                "voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Puck"}},
            },
            "mediaResolution": "MEDIA_RESOLUTION_LOW",
        },
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "look",
                        "description": "Look.",
                        "parametersJsonSchema": {"type": "object"},
                        "behavior": "NON_BLOCKING",
                    }
                ]
            }
        ],
        "sessionResumption": {"handle": "h", "transparent": True},
        "inputAudioTranscription": {"languageCodes": ["de-DE"]},
        "outputAudioTranscription": {},
        "realtimeInputConfig": {
            "automaticActivityDetection": {
                "startOfSpeechSensitivity": "START_SENSITIVITY_LOW",
                "endOfSpeechSensitivity": "END_SENSITIVITY_HIGH",
                "prefixPaddingMs": 20,
                "silenceDurationMs": 300,
            },
            "activityHandling": "NO_INTERRUPTION",
        },
        "contextWindowCompression": {"triggerTokens": 1000, "slidingWindow": {"targetTokens": 500}},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    }


def test_a_session_in_text_has_no_transcript_of_its_answers() -> None:
    """Where nothing is spoken, nothing is transcribed; the user may speak all the same."""
    setup = setup_of(asked({"response_modalities": ["TEXT"]}))
    assert setup["generationConfig"] == {"responseModalities": ["TEXT"]}
    assert "outputAudioTranscription" not in setup
    assert "inputAudioTranscription" in setup


def test_transcripts_can_be_left_out() -> None:
    """None is no transcript."""
    setup = setup_of(asked({"output_audio_transcription": None, "input_audio_transcription": None}))
    assert not {"outputAudioTranscription", "inputAudioTranscription"} & setup.keys()


def test_models_since_3_are_told_that_a_history_comes() -> None:
    """They take a history only if the setup announces it; a session that is gone on with has its own."""
    announced = {"initialHistoryInClientContent": True}
    assert setup_of(asked(), new=True)["historyConfig"] == announced
    assert "historyConfig" not in setup_of(asked({"handle": "h"}), new=True)
    assert "historyConfig" not in setup_of(asked())


@pytest.mark.parametrize(
    ("live", "config", "vertex", "name"),
    [
        ({"session_resumption": {"transparent": True}}, {}, False, "session_resumption.transparent"),
        ({}, {"labels": {"a": "b"}}, True, "labels"),
        ({}, {"response_schema": {"type": "object"}}, False, "response_schema"),
        ({}, {"stop_sequences": ["a"]}, False, "stop_sequences"),
        ({}, {"cached_content": "c"}, False, "cached_content"),
    ],
)
def test_what_the_api_lacks_is_refused_by_name(
    live: dict[str, Any], config: dict[str, Any], vertex: bool, name: str
) -> None:
    """A setting that would have no effect is refused before anything is sent, unless the model is to ignore it."""
    request = asked(live, **config)
    with pytest.raises(NotSupportedError, match=name):
        setup_of(request, vertex=vertex)
    assert setup_of(request, vertex=vertex, ignore={name}) == setup_of(asked(), vertex=vertex)


# --- what is typed ----------------------------------------------------------------------------------------------------


def test_typed_text_is_content_before_3() -> None:
    """It is a turn of the user, which is complete or not."""
    writer, _, _ = opened()
    assert checked(writer.content(user("a", "b"), False, None)) == [
        {"clientContent": {"turns": [{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}], "turnComplete": False}}
    ]
    picture = Part(inline_data=Blob(data=b"PNG", mime_type="image/png"))
    parts = [{"inlineData": {"mimeType": "image/png", "data": "UE5H"}}, {"text": "c"}]
    assert checked(writer.content(user(picture, "c"), True, None)) == [
        {"clientContent": {"turns": [{"role": "user", "parts": parts}], "turnComplete": True}}
    ]


def test_typed_text_is_held_back_until_it_is_complete_since_3() -> None:
    """These models answer typed text at once: what is not complete waits for the rest. Pictures need not wait."""
    writer, _, _ = opened(new=True, handle="h")
    picture = Part(inline_data=Blob(data=b"PNG", mime_type="image/png"))
    assert checked(writer.content(user("a", picture), False, None)) == [
        {"realtimeInput": {"video": {"mimeType": "image/png", "data": "UE5H"}}}
    ]
    assert checked(writer.content(user("b"), True, None)) == [{"realtimeInput": {"text": "a\nb"}}]
    assert checked(writer.content(user("c"), True, None)) == [{"realtimeInput": {"text": "c"}}]


def test_typed_text_is_an_activity_where_the_client_says_when_the_user_speaks() -> None:
    """Since version 3 and without the server's detection, typed text stands between the signals."""
    writer, _, _ = opened(new=True, handle="h", realtime_input_config=MANUAL)
    start: Message = {"realtimeInput": {"activityStart": {}}}
    end: Message = {"realtimeInput": {"activityEnd": {}}}
    assert checked(writer.content(user("a"), True, None)) == [start, {"realtimeInput": {"text": "a"}}, end]
    assert writer.realtime(ActivityStart()) == [start]
    assert writer.content(user("b"), True, None) == [{"realtimeInput": {"text": "b"}}]
    assert writer.realtime(ActivityEnd()) == [end]


@pytest.mark.parametrize("new", [False, True])
def test_media_that_cannot_be_shown_are_told_in_words(new: bool) -> None:
    """The API takes pictures only; the model is told that there is something else."""
    writer, _, _ = opened(new=new, handle="h")
    film = Part(inline_data=Blob(data=b"1", mime_type="video/mp4"))
    file = Part(file_data=FileData(file_uri="gs://a/b"))
    sent = json.dumps(checked(writer.content(user(film, file), True, None)))
    assert "[a file of type video/mp4, which you are not shown]" in sent
    assert "[the file gs://a/b, which you are not shown]" in sent


# --- history ----------------------------------------------------------------------------------------------------------

HISTORY = (
    user("hello", Part(inline_data=Blob(data=b"PNG", mime_type="image/png"))),
    model(
        Part(text="hm", thought=True),
        Part(text="Hi. ", thought_signature=sealed("gemini", "signature", "xyz")),
        Part(function_call=FunctionCall(id="a", name="look", args={"at": 1})),
        Part(function_call=FunctionCall(id="open", name="look")),
    ),
    user(result("a", parts=[Part(inline_data=Blob(data=b"PNG", mime_type="image/png"))])),
    user(Part(inline_data=Blob(data=b"1", mime_type="audio/pcm;rate=16000"))),
    model("Yes."),
    user("And this?"),
)
TURNS = [
    {"role": "user", "parts": [{"text": "hello"}]},
    {
        "role": "model",
        "parts": [{"text": "Hi. "}, {"functionCall": {"name": "look", "args": {"at": 1}, "id": "a"}}],
    },
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"seen": 1}, "id": "a"}}]},
    {"role": "model", "parts": [{"text": "Yes."}]},
]
LAST = {"role": "user", "parts": [{"text": "And this?"}]}


def test_a_history_has_no_media_no_thoughts_and_no_open_calls() -> None:
    """What the API does not take is left out; calls go with their responses."""
    writer, _, _ = opened()
    assert checked(writer.history(HISTORY, answer=True)) == [
        {"clientContent": {"turns": [*TURNS, LAST], "turnComplete": True}}
    ]
    assert checked(writer.history(HISTORY, answer=False)) == [
        {"clientContent": {"turns": [*TURNS, LAST], "turnComplete": False}}
    ]


def test_the_models_own_last_words_are_no_question() -> None:
    """With nothing of the user's at its end, a history is answered by nobody."""
    writer, _, _ = opened()
    assert writer.history(HISTORY[:-1], answer=True) == [{"clientContent": {"turns": TURNS, "turnComplete": False}}]
    assert writer.history([], answer=True) == []


def test_the_last_words_of_a_history_are_typed_since_3() -> None:
    """A history that was announced is never answered, so its last content is typed after it."""
    writer, _, _ = opened(new=True)
    assert checked(writer.history(HISTORY, answer=True)) == [
        {"clientContent": {"turns": TURNS, "turnComplete": True}},
        {"realtimeInput": {"text": "And this?"}},
    ]
    writer, _, _ = opened(new=True)
    assert checked(writer.history(HISTORY, answer=False)) == [
        {"clientContent": {"turns": [*TURNS, LAST], "turnComplete": True}}
    ]


def test_a_response_at_the_end_of_a_history_is_told_in_words_since_3() -> None:
    """The model is asked to go on with it; the call without a response is left out."""
    writer, _, _ = opened(new=True)
    contents = [user("hello"), model(Part(function_call=FunctionCall(id="a", name="look"))), user(result("a"))]
    assert checked(writer.history(contents, answer=True)) == [
        {"clientContent": {"turns": [TURNS[0]], "turnComplete": True}},
        {"realtimeInput": {"text": '[the function look has answered: {"seen":1}]'}},
    ]


def test_models_since_3_are_told_that_there_was_nothing_before() -> None:
    """They wait for the history that the setup has announced: before anything else, it is said to be over."""
    nothing = {"clientContent": {"turnComplete": True}}
    sound = Blob(data=b"12", mime_type="audio/pcm;rate=16000")
    writer, _, _ = opened(new=True)
    assert [*map(list, checked(writer.realtime(sound)))] == [["clientContent"], ["realtimeInput"]]
    assert len(writer.realtime(sound)) == 1
    writer, _, _ = opened(new=True)
    assert writer.content(user("a"), True, None) == [nothing, {"realtimeInput": {"text": "a"}}]
    writer, _, _ = opened(new=True)
    assert writer.history([], answer=False) == [nothing]
    assert writer.content(user("a"), True, None) == [{"realtimeInput": {"text": "a"}}]


# --- as it happens ----------------------------------------------------------------------------------------------------


def test_sound_and_pictures_go_as_they_come() -> None:
    """Sound keeps its rate, or is taken for 16 kHz; a picture is a frame; nothing is sent of what is empty."""
    writer, _, _ = opened()
    for mime_type, sent in (
        ("audio/pcm;rate=8000", "audio/pcm;rate=8000"),
        ("audio/pcm", "audio/pcm;rate=16000"),
        ("audio/L16;rate=16000", "audio/L16;rate=16000"),
    ):
        messages = writer.realtime(Blob(data=b"12", mime_type=mime_type))
        assert messages == [{"realtimeInput": {"audio": {"mimeType": sent, "data": "MTI="}}}]
    assert checked(writer.realtime(Blob(data=b"JPG", mime_type="image/jpeg"))) == [
        {"realtimeInput": {"video": {"mimeType": "image/jpeg", "data": "SlBH"}}}
    ]
    assert writer.realtime(Blob(data=b"", mime_type="audio/pcm")) == []
    assert checked(writer.realtime(AudioStreamEnd())) == [{"realtimeInput": {"audioStreamEnd": True}}]


@pytest.mark.parametrize("mime_type", ["audio/mpeg", "video/mp4", "text/plain", ""])
def test_media_that_are_neither_pcm_nor_a_picture_are_refused(mime_type: str) -> None:
    """The server would end the connection."""
    writer, _, _ = opened()
    with pytest.raises(ModelRequestError, match="audio/pcm;rate=16000"):
        writer.realtime(Blob(data=b"1", mime_type=mime_type))


def test_signals_that_the_server_would_refuse_are_refused() -> None:
    """Either the server detects speech, or the client says when the user speaks; and then by turns."""
    writer, _, _ = opened()
    for signal in (ActivityStart(), ActivityEnd()):
        with pytest.raises(ModelRequestError, match="automatic_activity_detection"):
            writer.realtime(signal)
    writer, _, _ = opened(realtime_input_config=MANUAL)
    with pytest.raises(ModelRequestError, match="ActivityStart first"):
        writer.realtime(ActivityEnd())
    writer.realtime(ActivityStart())
    with pytest.raises(ModelRequestError, match="ActivityEnd first"):
        writer.realtime(ActivityStart())
    with pytest.raises(ModelRequestError, match="send ActivityEnd"):
        writer.realtime(AudioStreamEnd())
    with pytest.raises(ModelRequestError, match="expected a Blob or a signal, found 'hello'"):
        writer.realtime("hello")  # type: ignore[arg-type]  # what is tested
    writer, _, _ = opened(vertex=True)
    with pytest.raises(ModelRequestError, match="silence"):
        writer.realtime(AudioStreamEnd())


# --- calls ------------------------------------------------------------------------------------------------------------


def called(*ids: str) -> dict[str, Any]:
    return {"functionCalls": [{"id": call_id, "name": "look", "args": {"at": call_id}} for call_id in ids]}


def test_calls_and_their_responses() -> None:
    """Calls come whole; responses go by their ids, without media."""
    writer, reader, _ = opened()
    assert read(reader, toolCall=called("a", "b")) == [
        {
            "content": model(
                *(Part(function_call=FunctionCall(id=each, name="look", args={"at": each})) for each in "ab")
            ),
            "item_id": "answer-1-1",
        }
    ]
    media = [Part(inline_data=Blob(data=b"PNG", mime_type="image/png"))]
    first = {"id": "a", "name": "look", "response": {"seen": 1}}
    assert checked(writer.content(user(result("a", parts=media)), True, None)) == [
        {"toolResponse": {"functionResponses": [first]}}
    ]
    writer.content(user(result("b")), True, None)
    with pytest.raises(ModelRequestError, match="'b'"):
        writer.content(user(result("b")), True, None)


def test_a_call_that_the_server_repeats_is_told_once() -> None:
    """A call with the id of one of this turn, or of one that has no response yet, is the same call."""
    writer, reader, _ = opened()
    ((told,),) = [read(reader, toolCall=called("a", "a", "b"))]
    assert [call.id for call in told["content"].calls] == ["a", "b"]
    writer.content(user(result("a")), True, None)
    assert read(reader, toolCall=called("a")) == []
    read(reader, serverContent={"turnComplete": True})
    ((told,),) = [read(reader, toolCall=called("b", "a"))]
    assert [call.id for call in told["content"].calls] == ["a"]


def test_responses_go_before_what_is_said_with_them() -> None:
    """One content may have both."""
    writer, reader, _ = opened()
    read(reader, toolCall=called("a"))
    messages = checked(writer.content(user("and", result("a")), True, None))
    assert [next(iter(message)) for message in messages] == ["toolResponse", "clientContent"]


def test_a_response_to_a_call_that_nobody_has_made_is_refused() -> None:
    """The server would end the connection; a session that was gone on with may know of it, and is asked."""
    writer, _, _ = opened()
    with pytest.raises(ModelRequestError, match="tell it as text"):
        writer.content(user(result("a")), True, None)
    writer, _, _ = opened(handle="h")
    assert "toolResponse" in writer.content(user(result("a")), True, None)[0]


def test_calls_without_ids_are_answered_by_name() -> None:
    """The ids that minirun gives to calls are not told to the server."""
    writer, reader, _ = opened()
    ((answer),) = read(reader, toolCall={"functionCalls": [{"name": "look"}]})
    assert answer["content"].calls[0].id is None
    (message,) = writer.content(user(result("call-0123456789abcdef01234567")), True, None)
    assert message == {"toolResponse": {"functionResponses": [{"name": "look", "response": {"seen": 1}}]}}


def test_withdrawn_calls_are_told_and_not_answered() -> None:
    """A response that was on its way when its call was withdrawn is not sent."""
    writer, reader, _ = opened()
    read(reader, toolCall=called("a", "b"))
    assert read(reader, toolCallCancellation={"ids": ["a"]}) == [{"cancelled_calls": ("a",)}]
    assert writer.content(user(result("a")), False, None) == []
    messages = writer.content(user(result("a"), result("b")), True, None)
    assert [each["id"] for each in messages[0]["toolResponse"]["functionResponses"]] == ["b"]


# --- what the server says ---------------------------------------------------------------------------------------------


def test_pieces_of_an_answer() -> None:
    """Texts and sounds are partial, with their transcript; thoughts are marked; all have the name of the answer."""
    _, reader, _ = opened()
    parts = [{"text": "hm", "thought": True}, {"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": SOUND}}]
    name = {"item_id": "answer-1-1", "partial": True}
    blob = Blob(data=b"\1\2\3\4", mime_type="audio/pcm;rate=24000")
    assert said(reader, modelTurn={"parts": parts}, outputTranscription={"text": "Hi"}) == [
        {"content": model(Part(text="hm", thought=True)), **name},
        {"content": model(Part(inline_data=blob)), "output_transcription": heard("Hi"), **name},
    ]
    assert said(reader, modelTurn={"parts": [{"text": "Hi"}, {"text": ""}]}) == [{"content": model("Hi"), **name}]


def test_an_answer_from_its_first_word_to_its_end() -> None:
    """Its transcript is closed when it is made, the turn is over when it was played, and the next has another name."""
    _, reader, _ = opened()
    said(reader, outputTranscription={"text": "Hi"})
    assert said(reader, generationComplete=True) == [
        {"generation_complete": True, "output_transcription": heard(finished=True), "item_id": "answer-1-1"}
    ]
    assert said(reader, turnComplete=True) == [{"turn_complete": True, "item_id": "answer-1-1"}]
    assert said(reader, outputTranscription={"text": "Hi"}) == [
        {"output_transcription": heard("Hi"), "item_id": "answer-1-2"}
    ]


def test_one_message_may_say_all_of_it() -> None:
    """Piece, transcript, end and tokens come in the order of the fields."""
    _, reader, _ = opened()
    content = {
        "inputTranscription": {"text": "Hello"},
        "modelTurn": {"parts": [{"text": "Hi"}]},
        "generationComplete": True,
        "turnComplete": True,
    }
    usage = {
        "promptTokenCount": 3,
        "toolUsePromptTokenCount": 1,
        "responseTokenCount": 2,
        "thoughtsTokenCount": 5,
        "cachedContentTokenCount": 2,
        "totalTokenCount": 11,
    }
    first, second, closed, third = reader.read({"serverContent": content, "usageMetadata": usage, "unheardOf": 1})
    assert told(first) == {"input_transcription": heard("Hello"), "item_id": "heard-1-1"}
    assert told(second) == {"content": model("Hi"), "partial": True, "item_id": "answer-1-2"}
    assert told(closed) == {"input_transcription": heard(finished=True), "item_id": "heard-1-1"}
    assert third.generation_complete
    assert third.turn_complete
    assert third.usage_metadata is not None
    assert third.usage_metadata.prompt_token_count == 4
    assert third.usage_metadata.candidates_token_count == 2
    assert third.usage_metadata.total_token_count == 11


def test_an_interruption_closes_what_was_said_before_it() -> None:
    """What the user says from then on belongs to the next answer: the end of the old turn does not close it."""
    _, reader, _ = opened()
    said(reader, inputTranscription={"text": "Tell me"})
    said(reader, outputTranscription={"text": "Once"})
    assert said(reader, interrupted=True) == [
        {"input_transcription": heard(finished=True), "item_id": "heard-1-1"},
        {"interrupted": True, "output_transcription": heard(finished=True), "item_id": "answer-1-2"},
    ]
    assert said(reader, inputTranscription={"text": "Stop"}) == [
        {"input_transcription": heard("Stop"), "item_id": "heard-1-3"}
    ]
    assert said(reader, turnComplete=True) == [{"turn_complete": True, "item_id": "answer-1-2"}]
    said(reader, outputTranscription={"text": "Yes"})
    closed, _ = said(reader, turnComplete=True)
    assert closed == {"input_transcription": heard(finished=True), "item_id": "heard-1-3"}


def test_calls_close_what_was_said_before_them() -> None:
    """The calls stand after it; what the model says later has another name."""
    _, reader, _ = opened()
    said(reader, inputTranscription={"text": "Look"})
    said(reader, outputTranscription={"text": "Wait"})
    heard_end, said_end, calls = read(reader, toolCall=called("a"))
    assert heard_end == {"input_transcription": heard(finished=True), "item_id": "heard-1-1"}
    assert said_end == {"output_transcription": heard(finished=True), "item_id": "answer-1-2"}
    assert calls["item_id"] == "answer-1-2"
    assert said(reader, outputTranscription={"text": "I see"})[0]["item_id"] == "answer-1-3"


def test_transcripts_that_the_server_closes_are_not_closed_again() -> None:
    """`finished` is said once for each."""
    _, reader, _ = opened()
    assert said(reader, inputTranscription={"text": "Hello", "finished": True}) == [
        {"input_transcription": heard("Hello", finished=True), "item_id": "heard-1-1"}
    ]
    said(reader, outputTranscription={"text": "Hi", "finished": True})
    assert said(reader, generationComplete=True) == [{"generation_complete": True, "item_id": "answer-1-2"}]
    assert said(reader, inputTranscription={"text": "And"})[0]["item_id"] == "heard-1-3"


STEPS: dict[str, dict[str, Any]] = {
    "heard": {"serverContent": {"inputTranscription": {"text": "a"}}},
    "said": {"serverContent": {"outputTranscription": {"text": "a"}}},
    "made": {"serverContent": {"generationComplete": True}},
    "cut": {"serverContent": {"interrupted": True}},
    "over": {"serverContent": {"turnComplete": True}},
    "call": {"toolCall": {"functionCalls": [{"id": "a", "name": "look"}]}},
}


@given(st.lists(st.sampled_from([*STEPS, "stop"])))
def test_what_was_closed_is_not_gone_on_with(steps: list[str]) -> None:
    """Whatever comes: after `finished` no piece has the name of what was closed, unless it is still the same answer."""
    _, reader, _ = opened()
    closed: set[str | None] = set()
    heard_names: set[str | None] = set()
    for step in steps:
        for response in reader.stop() if step == "stop" else reader.read(STEPS[step]):
            piece = response.input_transcription
            if piece is not None:
                assert response.item_id is not None
                assert response.item_id not in closed
                heard_names.add(response.item_id)
                if piece.finished:
                    closed.add(response.item_id)
    assert closed <= heard_names


@given(st.lists(st.sampled_from([*STEPS, "stop"])))
def test_turns_end_as_often_as_they_are_told_to_be_over(steps: list[str]) -> None:
    """However often an answer is stopped: `interrupted` comes once a turn at most, and nothing of it comes later."""
    _, reader, _ = opened()
    over: set[str | None] = set()
    cuts = 0
    for step in steps:
        for response in reader.stop() if step == "stop" else reader.read(STEPS[step]):
            if response.output_transcription is not None or response.content is not None:
                assert response.item_id not in over
            cuts += bool(response.interrupted)
            assert cuts <= 1 or step == "stop"
            if response.turn_complete:
                over.add(response.item_id)
                cuts = 0


def test_speech_begins_and_ends_as_the_server_says() -> None:
    """Two kinds of messages say so; if both come, it is told once. The transcript after it has the same name."""
    _, reader, _ = opened()
    assert read(reader, voiceActivity={"voiceActivityType": "ACTIVITY_START"}) == [
        {"speech_started": True, "item_id": "heard-1-1"}
    ]
    assert read(reader, voiceActivityDetectionSignal={"vadSignalType": "VAD_SIGNAL_TYPE_SOS"}) == []
    assert read(reader, voiceActivity={"type": "ACTIVITY_END"}) == [{"speech_stopped": True, "item_id": "heard-1-1"}]
    assert said(reader, inputTranscription={"text": "Hello"})[0]["item_id"] == "heard-1-1"


def test_handles_and_what_was_taken_up() -> None:
    """A handle says how to go on; without one, nothing is resumable. Contents are told by the ids they were given."""
    writer, reader, _ = opened()
    assert read(reader, sessionResumptionUpdate={"newHandle": "h", "resumable": True}) == [
        {"resumption": LiveResumption(handle="h", resumable=True)}
    ]
    for update in ({}, {"newHandle": "", "resumable": False}, {"resumable": True}):
        assert read(reader, sessionResumptionUpdate=update) == [{"resumption": LiveResumption()}]

    sound = Blob(data=b"12", mime_type="audio/pcm")
    for content_id in ("a", "b"):  # messages 1 to 3, and 4 to 6; 0 is the setup
        writer.realtime(sound)
        writer.content(user("x"), True, content_id)
        writer.realtime(sound)
    taken = [
        reader.read({"sessionResumptionUpdate": {"lastConsumedClientMessageIndex": index}})[0].resumption
        for index in (0, 1, "2", 4, 5, 6)
    ]
    assert [each.last_taken_up for each in taken if each] == [None, None, "a", "a", "b", "b"]


@pytest.mark.parametrize(("left", "seconds"), [("50s", 50.0), ("9.5s", 9.5), ("soon", 0.0), (None, 0.0)])
def test_the_server_goes_away(left: str | None, seconds: float) -> None:
    """It says in how many seconds; if that cannot be read, at once."""
    _, reader, _ = opened()
    assert read(reader, goAway={} if left is None else {"timeLeft": left}) == [{"go_away_s": seconds}]


def test_a_turn_that_fails_says_why() -> None:
    """The connection goes on. That the model waits for more is no failure."""
    _, reader, _ = opened()
    (end,) = said(reader, turnComplete=True, turnCompleteReason="GENERATED_AUDIO_SAFETY")
    assert end["error_code"] == "GENERATED_AUDIO_SAFETY"
    assert said(reader, turnComplete=True, turnCompleteReason="NEED_MORE_INPUT") == [{"turn_complete": True}]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"setupComplete": {"sessionId": "s"}},
        {"unheardOf": {"a": 1}},
        {"serverContent": {"waitingForInput": True, "interimInputTranscription": {"text": "a"}}},
        {"serverContent": {"modelTurn": {"parts": [{"unheardOf": 1}]}, "inputTranscription": {"text": ""}}},
        {"voiceActivity": {"voiceActivityType": "TYPE_UNSPECIFIED"}},
    ],
)
def test_what_is_not_known_is_read_over(message: dict[str, Any]) -> None:
    """A later version of the API may say more."""
    _, reader, _ = opened()
    assert reader.read(message) == []


@pytest.mark.parametrize(
    "message",
    [
        {"serverContent": []},
        {"serverContent": {"modelTurn": {"parts": {"text": "a"}}}},
        {"serverContent": {"modelTurn": {"parts": ["a"]}}},
        {"serverContent": {"modelTurn": {"parts": [{"inlineData": {"data": "?"}}]}}},
        {"serverContent": {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm"}}]}}},
        {"toolCall": None},
        {"toolCall": {"functionCalls": ["a"]}},
        {"toolCall": {"functionCalls": [{"id": "a"}]}},
        {"goAway": "1s"},
    ],
)
def test_what_is_malformed_is_an_error(message: dict[str, Any]) -> None:
    """A piece that is read over would be a word that nobody hears."""
    _, reader, _ = opened()
    with pytest.raises(ModelError, match="server's message"):
        reader.read(message)


def test_an_error_in_words_is_one() -> None:
    """Some gateways send an error as a message."""
    _, reader, _ = opened()
    with pytest.raises(ModelRateLimitedError, match="too much"):
        reader.read({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "too much"}})


# --- stopping an answer -----------------------------------------------------------------------------------------------


def test_a_stopped_answer_ends_at_once_and_the_rest_of_it_is_dropped() -> None:
    """Its end is told once; pieces, the server's own end of it, and nothing of the next answer are dropped."""
    writer, reader, _ = opened()
    said(reader, outputTranscription={"text": "One"})
    assert [told(each) for each in reader.stop()] == [
        {
            "interrupted": True,
            "turn_complete": True,
            "output_transcription": heard(finished=True),
            "item_id": "answer-1-1",
        }
    ]
    assert reader.stop() == []
    assert checked(writer.cancel()) == [{"clientContent": {"turnComplete": False}}]
    assert said(reader, outputTranscription={"text": " two"}) == []
    assert said(reader, interrupted=True) == []
    assert said(reader, turnComplete=True) == []
    assert said(reader, outputTranscription={"text": "Two"})[0]["item_id"] == "answer-1-2"
    assert said(reader, turnComplete=True)[0]["turn_complete"]


def test_what_is_asked_after_a_stop_is_answered() -> None:
    """The end of the stopped answer is still dropped, and the answer after it is not."""
    writer, reader, _ = opened(new=True)
    assert reader.stop() == []
    writer.content(user("a"), True, None)
    said(reader, outputTranscription={"text": "One"})
    reader.stop()
    assert writer.cancel() == []
    writer.content(user("b"), True, None)
    for content in ({"outputTranscription": {"text": " two"}}, {"generationComplete": True}, {"turnComplete": True}):
        assert said(reader, **content) == []
    assert said(reader, outputTranscription={"text": "Two"})


ASKING: dict[str, Callable[[GeminiLiveWriter], object]] = {
    "typed": lambda writer: writer.content(user("b"), True, None),
    "typed, not complete": lambda writer: writer.content(user("b"), False, None),
    "history": lambda writer: writer.history([user("b")], True),
    "history alone": lambda writer: writer.history([user("b")], False),
    "result": lambda writer: writer.content(user(result("c")), False, None),
    "speech": lambda writer: (writer.realtime(ActivityStart()), writer.realtime(ActivityEnd())),
    "speech that has begun": lambda writer: writer.realtime(ActivityStart()),
    "sound": lambda writer: writer.realtime(Blob(data=b"12", mime_type="audio/pcm")),
}
ASKS = {"typed", "history", "result", "speech"}


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("what", ASKING)
def test_what_asks_for_an_answer_ends_a_stop(what: str, new: bool) -> None:
    """Behind a stop before any answer, the next answer is heard if it was asked for since, and else dropped."""
    writer, reader, _ = opened(new=new, handle="h", realtime_input_config=MANUAL)
    writer.content(user("a"), True, None)
    reader.stop()
    ASKING[what](writer)
    assert bool(said(reader, outputTranscription={"text": "Two"})) == (what in ASKS)


def test_bytes_in_settings_are_sent_as_base64() -> None:
    """A voice that is cloned comes with a sample of it; names are the API's, and what is None is left out."""
    sample = {"mime_type": "audio/wav", "voice_sample_audio": b"\1\2\3\4", "consent": None}
    live = {"speech_config": {"voice_config": {"replicated_voice_config": sample}}}
    message = GeminiLiveWire(()).setup(asked(live), MODEL, False)
    assert message["setup"]["generationConfig"]["speechConfig"] == {
        "voiceConfig": {"replicatedVoiceConfig": {"mimeType": "audio/wav", "voiceSampleAudio": SOUND}}
    }


def test_an_answer_that_has_not_begun_is_stopped_unless_another_is_asked_for() -> None:
    """Who knows which of the two it is that comes; then it is better heard."""
    writer, reader, _ = opened()
    writer.content(user("a"), True, None)
    assert len(reader.stop()) == 1
    assert said(reader, outputTranscription={"text": "One"}) == []
    assert said(reader, turnComplete=True) == []
    writer.content(user("a"), True, None)
    reader.stop()
    writer.content(user("b"), True, None)
    assert said(reader, outputTranscription={"text": "Two"})


def test_the_answer_to_what_has_interrupted_can_be_stopped() -> None:
    """The end of what was cut off comes first, and is not its end."""
    _, reader, _ = opened()
    said(reader, outputTranscription={"text": "One"})
    said(reader, interrupted=True)
    assert len(reader.stop()) == 1
    assert said(reader, turnComplete=True) == []
    assert said(reader, outputTranscription={"text": "Two"}) == []
    assert said(reader, turnComplete=True) == []
    assert said(reader, outputTranscription={"text": "Three"})


# --- the end of a connection ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (1006, "", ModelConnectionError),
        (1001, "going away", ModelConnectionError),
        (1007, "Request contains an invalid argument.", ModelRequestError),
        (1007, "API key not valid. Please pass a valid API key.", ModelAuthenticationError),
        (1008, "models/x is not found for API version v1beta", ModelRequestError),
        (1008, "API key expired", ModelAuthenticationError),
        (1008, "Blocked by safety settings", ModelRefusedError),
        (1009, "", ModelRequestError),
        (1011, "Internal error encountered.", ModelOverloadedError),
        (1011, "You exceeded your current quota", ModelRateLimitedError),
        (1013, "", ModelOverloadedError),
    ],
)
def test_how_a_connection_was_closed_says_what_went_wrong(code: int, reason: str, kind: type[ModelError]) -> None:
    """The code says whose fault it is, and the reason tells keys and quotas from the rest."""
    error = closed_error(code, reason)
    assert type(error) is kind
    assert str(code) in str(error)
    assert reason in str(error)


def test_an_end_in_good_order_is_no_error() -> None:
    """With its code, or without any."""
    assert closed_error(1000, "") is None
    assert closed_error(1005, "") is None
