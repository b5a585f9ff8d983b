"""
Conversations over OpenAI's realtime API, with a server that refuses what the real one refuses.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio

from minirun.errors import (
    ConfigurationError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelRequestError,
    ModelTimeoutError,
    NotSupportedError,
)
from minirun.models import (
    ActivityEnd,
    ActivityStart,
    AudioStreamEnd,
    BaseLlmConnection,
    LiveConnectConfig,
    LlmRequest,
    LlmResponse,
)
from minirun.models.openai import OpenAIRealtime
from minirun.types import (
    Blob,
    Content,
    FunctionCall,
    FunctionDeclaration,
    FunctionResponse,
    GenerateContentConfig,
    Part,
)

from ..cancelled_steps import cancelled_everywhere
from ..contracts.live_contract import LiveBench, live_connection_checks
from ..provider_servers.openai_realtime import (
    KEY,
    Call,
    Close,
    Deaf,
    End,
    Hold,
    RealtimeServer,
    Reset,
    Say,
    Send,
    Step,
    refusal,
)
from ..provider_servers.sockets import websockets_at

PATIENCE_S = 120  # for what takes milliseconds
MANUAL = {"automatic_activity_detection": {"disabled": True}}
VOICE = b"\1\0" * 2400  # 100 ms
SILENCE = b"\0\0" * 2400


class Chat:
    """A connection, and what has come on it."""

    def __init__(self, connection: BaseLlmConnection) -> None:
        self.connection = connection
        self.responses: list[LlmResponse] = []
        self._incoming = connection.receive()

    async def aclose(self) -> None:
        await self._incoming.aclose()

    async def until(self, found: Callable[[LlmResponse], Any]) -> LlmResponse:
        """Receive up to a response of this kind."""
        with trio.fail_after(PATIENCE_S):
            async for response in self._incoming:
                self.responses.append(response)
                if found(response):
                    return response
        raise AssertionError("the connection has ended before that")

    async def turn(self) -> LlmResponse:
        """Receive up to the end of a turn."""
        return await self.until(lambda response: response.turn_complete)

    async def say(self, text: str, **options: Any) -> None:
        await self.connection.send_content(Content(role="user", parts=[Part(text=text)]), **options)

    async def speak(self, data: bytes = VOICE) -> None:
        await self.connection.send_realtime(Blob(data=data, mime_type="audio/pcm;rate=24000"))

    def told(self, field: str) -> list[Any]:
        """What of this field came."""
        found = [getattr(response, field) for response in self.responses]
        return [value for value in found if value not in (None, (), [])]

    @property
    def said(self) -> str:
        return "".join(each.text or "" for each in self.told("output_transcription"))


def model_at(url: str, **options: Any) -> OpenAIRealtime:
    given = {"base_url": url.replace("ws://", "http://") + "/v1", "api_key": KEY} | options
    return OpenAIRealtime("gpt-realtime-2", **given)


def asked(config: GenerateContentConfig | None = None, **live: Any) -> LlmRequest:
    return LlmRequest(contents=(), config=config or GenerateContentConfig(), live=LiveConnectConfig(**live))


@asynccontextmanager
async def chatting(
    server: RealtimeServer, config: GenerateContentConfig | None = None, *, model: Any = None, **live: Any
) -> AsyncIterator[Chat]:
    """A connection to the server; nothing may be refused but what the test expects."""
    async with websockets_at(server.handle, refusal) as url:
        async with model_at(url, **(model or {})).connect(asked(config, **live)) as connection:
            async with aclosing(Chat(connection)) as chat:
                yield chat


# --- the contract -----------------------------------------------------------------------------------------------------


class Bench(LiveBench):
    """The fake server, as the contract's checks bring it to do something."""

    def __init__(self, url: str, server: RealtimeServer) -> None:
        super().__init__(model_at(url))
        self.server = server

    def says(self, text: str) -> None:
        self.server.script.append([Say(text)])

    def calls(self, *ids: str) -> None:
        self.server.script.append([Call("look", f'{{"where": "{id}"}}', id) for id in ids])

    def goes_on(self) -> None:
        self.server.script.append([Say("well let me see"), Hold()])

    def hangs_up(self, *, in_order: bool) -> None:
        self.server.script.append([Close(1000) if in_order else Reset()])


@pytest.mark.parametrize("check", live_connection_checks().values(), ids=live_connection_checks())
async def test_the_contract_is_kept(check: Callable[[Any], Awaitable[None]]) -> None:
    """
    A realtime connection keeps the contract of all live connections, and the server has nothing to refuse.
    """
    server = RealtimeServer(heard=["hm"] * 9)

    @asynccontextmanager
    async def bench() -> AsyncIterator[Bench]:
        async with websockets_at(server.handle, refusal) as url:
            yield Bench(url, server)

    await check(bench)
    races = {"response_cancel_not_active"}  # an answer may end on its own while it is being cancelled
    assert [error for error in server.errors if error["code"] not in races] == []


# --- an answer --------------------------------------------------------------------------------------------------------


async def test_an_answer_has_all_that_was_said() -> None:
    """
    Sound, its transcript and the end come, with usage, version, id, rates, and the content that was taken up.
    """
    server = RealtimeServer([Say("hello dear friend")])
    async with chatting(server) as chat:
        await chat.say("hi", id="c1")
        end = await chat.turn()
        assert chat.said == "hello dear friend"
        sound = [content.parts[0].inline_data for content in chat.told("content")]
        assert [(len(blob.data), blob.mime_type) for blob in sound] == [(4800, "audio/pcm;rate=24000")] * 3
        assert [each.last_taken_up for each in chat.told("resumption")] == ["c1"]
        assert end.usage_metadata is not None
        assert end.usage_metadata.prompt_token_count == 20
        assert end.usage_metadata.cached_content_token_count == 3
        assert (end.generation_complete, end.finish_reason, end.model_version) == (True, "STOP", "gpt-realtime-2")
        assert end.response_id is not None
        assert end.custom_metadata is not None
        assert end.custom_metadata["rate_limits"][0]["remaining"] == 970
    assert server.errors == []


async def test_text_is_said_once() -> None:
    """
    With the modality TEXT the pieces are texts, and the whole repeats nothing.
    """
    server = RealtimeServer([Say("one two three", audio=False)])
    async with chatting(server, response_modalities=["TEXT"]) as chat:
        await chat.say("count")
        await chat.turn()
        assert "".join(content.text for content in chat.told("content")) == "one two three"
    assert server.sent("session.update")[0]["session"]["output_modalities"] == ["text"]


async def test_a_question_while_it_answers_waits_for_the_end() -> None:
    """
    The server is asked for one answer at a time; several questions meanwhile are one.
    """
    hold = Hold()
    server = RealtimeServer([Say("one"), hold], [Say("two")])
    async with chatting(server) as chat:
        await chat.say("first")
        await chat.until(lambda response: response.output_transcription)
        await chat.say("second")
        await chat.say("third")
        hold.until.set()
        await chat.turn()
        await chat.turn()
        assert chat.said == "onetwo"
    assert len(server.sent("response.create")) == 2
    assert server.errors == []


async def test_calls_come_together_and_are_answered_once() -> None:
    """
    Two calls in one answer come in one content; the server is asked to go on once, when both have their results.
    """
    server = RealtimeServer([Call("add", '{"a": 1, "b": [2]}', "x"), Call("now", "{nonsense", "y")], [Say("three")])
    async with chatting(server) as chat:
        await chat.say("compute")
        made = await chat.until(lambda response: response.content)
        assert made.content is not None
        add, now = made.content.calls
        assert (add.name, add.id, dict(add.args)) == ("add", "x", {"a": 1, "b": [2]})
        assert (now.id, now.args_text) == ("y", "{nonsense")
        assert made.turn_complete is None
        for call in (now, add):
            response = FunctionResponse(id=call.id, name=call.name, response={"result": 3})
            await chat.connection.send_content(Content(role="user", parts=[Part(function_response=response)]))
        await chat.turn()
        assert chat.said == "three"
    order = [event["type"] for event in server.got[-3:]]
    assert order == ["conversation.item.create", "conversation.item.create", "response.create"]
    assert [event["item"]["output"] for event in server.got[-3:-1]] == ['{"result":3}'] * 2


# --- the user speaks --------------------------------------------------------------------------------------------------


async def test_speech_is_answered_and_transcribed() -> None:
    """
    The server hears the user begin and end, and answers by itself; the transcript names the same utterance.
    """
    server = RealtimeServer([Say("yes")], heard=["are you there"])
    async with chatting(server) as chat:
        await chat.speak()
        for _ in range(5):
            await chat.speak(SILENCE)
        await chat.turn()
        heard = [each for each in chat.responses if each.speech_started or each.speech_stopped]
        words = [each for each in chat.responses if each.input_transcription is not None]
        assert [each.speech_started for each in heard] == [True, None]
        assert len({each.item_id for each in heard + words}) == 1
        assert "".join(each.text or "" for each in chat.told("input_transcription")) == "are you there"
        assert [each.finished for each in chat.told("input_transcription")] == [None, True]
    assert server.sent("response.create") == []


async def test_a_transcript_may_be_late_or_fail() -> None:
    """
    A transcript after the answer names its utterance; one that has failed is closed, and says why.
    """
    server = RealtimeServer([Say("yes")], heard=[None], transcript_late=True)
    async with chatting(server) as chat:
        await chat.speak()
        await chat.connection.send_realtime(AudioStreamEnd())
        await chat.turn()
        failed = await chat.until(lambda response: response.input_transcription)
        assert failed.item_id == next(each for each in chat.responses if each.speech_started).item_id
        assert failed.input_transcription is not None
        assert (failed.input_transcription.text, failed.input_transcription.finished) == (None, True)
        assert failed.custom_metadata == {
            "transcription_error": {"code": "audio_unintelligible", "message": "Mumbling."}
        }
        assert failed.error_code is None


async def test_the_users_voice_cuts_the_answer_off() -> None:
    """
    `interrupted` comes with the voice, nothing of the answer after it, and the turn is over once; it can be truncated.
    """
    hold = Hold()
    server = RealtimeServer([Say("one two three"), hold], [Say("sorry")], heard=["stop"])
    async with chatting(server) as chat:
        await chat.say("count")
        await chat.until(lambda response: response.output_transcription and response.output_transcription.finished)
        await chat.speak()
        cut = await chat.until(lambda response: response.interrupted)
        assert cut.item_id is not None
        for played_ms in (10**9, 250, 0):
            await chat.connection.truncate(cut.item_id, played_ms)
        await chat.connection.truncate("item_of_nobody", 100)
        over = await chat.turn()
        assert (over.interrupted, over.content) == (None, None)
        await chat.connection.send_realtime(AudioStreamEnd())
        await chat.turn()
        assert chat.said == "one two threesorry"
        assert len(chat.told("interrupted")) == 1
    assert [event["audio_end_ms"] for event in server.sent("conversation.item.truncate")] == [300, 250, 1]
    assert server.errors == []


async def test_the_users_voice_need_not_interrupt() -> None:
    """
    With NO_INTERRUPTION the answer goes on while the user speaks.
    """
    hold = Hold()
    server = RealtimeServer([Say("one"), hold, Say("two")], [Say("three")], heard=["and?"])
    async with chatting(server, realtime_input_config={"activity_handling": "NO_INTERRUPTION"}) as chat:
        await chat.say("count")
        await chat.until(lambda response: response.output_transcription)
        await chat.speak()
        await chat.until(lambda response: response.speech_started)
        hold.until.set()
        await chat.turn()
        assert (chat.said, chat.told("interrupted")) == ("onetwo", [])


async def test_the_client_may_say_when_the_user_speaks() -> None:
    """
    Without the server's detection, the end of an activity is an utterance, and its beginning stops the answer.
    """
    server = RealtimeServer([Say("one"), Hold()], [Say("two")], heard=["go", "stop"])
    async with chatting(server, realtime_input_config=MANUAL) as chat:
        for number in (1, 2):
            await chat.connection.send_realtime(ActivityStart())
            await chat.speak()
            await chat.connection.send_realtime(ActivityEnd())
            if number == 1:
                await chat.until(lambda response: response.output_transcription)
        cut = await chat.turn()
        assert cut.interrupted
        await chat.turn()
        assert chat.said == "onetwo"
        stopped = [each.item_id for each in chat.responses if each.speech_stopped]
        heard = [each.item_id for each in chat.responses if each.input_transcription]
        assert len(stopped) == 2
        assert list(dict.fromkeys(heard)) == stopped
    assert server.errors == []


async def test_an_utterance_without_sound_is_an_error_and_no_question() -> None:
    """
    The end of an activity in which nothing was said ends the turn with the server's error; the model is not asked.
    """
    server = RealtimeServer()
    async with chatting(server, realtime_input_config=MANUAL) as chat:
        await chat.connection.send_realtime(ActivityStart())
        await chat.speak(VOICE[:2000])
        await chat.connection.send_realtime(ActivityEnd())
        refused = await chat.turn()
        assert refused.error_code == "input_audio_buffer_commit_empty"
    assert server.sent("response.create") == []


async def test_the_microphone_is_off_once() -> None:
    """
    The end of the sound is as much silence as the server waits for, once, and only after sound.
    """
    server = RealtimeServer([Say("yes")], heard=["hm"])
    detection = {"automatic_activity_detection": {"silence_duration_ms": 900, "prefix_padding_ms": 10}}
    async with chatting(server, realtime_input_config=detection) as chat:
        await chat.connection.send_realtime(AudioStreamEnd())
        await chat.speak()
        await chat.connection.send_realtime(AudioStreamEnd())
        await chat.connection.send_realtime(AudioStreamEnd())
        await chat.turn()
    sizes = [len(base64.b64decode(event["audio"])) for event in server.sent("input_audio_buffer.append")]
    assert sizes == [4800, 1000 * 48]


@pytest.mark.parametrize(
    "data",
    [
        Blob(data=VOICE, mime_type="audio/pcm;rate=16000"),
        Blob(data=VOICE, mime_type="audio/wav"),
        Blob(data=b"", mime_type="audio/pcm"),
        Blob(data=b"GIF89a", mime_type="image/gif"),
        Blob(data=bytes(12 * 2**20), mime_type="audio/pcm"),
        ActivityStart(),
        ActivityEnd(),
    ],
    ids=lambda data: getattr(data, "mime_type", type(data).__name__),
)
async def test_what_the_server_cannot_hear_is_refused(data: Any) -> None:
    """
    Sound of another rate or form, other pictures, and signals while the server detects the voice are refused unsent.
    """
    server = RealtimeServer()
    async with chatting(server) as chat:
        with pytest.raises(ModelRequestError, match="expected"):
            await chat.connection.send_realtime(data)
    assert [event["type"] for event in server.got] == ["session.update"]


# --- the session ------------------------------------------------------------------------------------------------------


async def test_a_session_is_as_it_was_asked_for() -> None:
    """
    Instruction, tools, voice, transcription, voice detection, truncation and what else is said reach the server.
    """
    tool = FunctionDeclaration(name="look", description="Look.", parameters={"type": "object", "properties": {}})
    config = GenerateContentConfig(
        system_instruction="Be brief.", tools=[tool, FunctionDeclaration(name="bare")], max_output_tokens=100,
        extra_body={"tracing": "auto", "audio": {"input": {"noise_reduction": {"type": "far_field"}}}},
    )  # fmt: skip
    live = {
        "speech_config": {"voice_config": {"prebuilt_voice_config": {"voice_name": "cedar"}}},
        "input_audio_transcription": {"language_codes": ["de-DE"]},
        "context_window_compression": {"trigger_tokens": 8000, "sliding_window": {"target_tokens": 4000}},
        "realtime_input_config": {"turn_coverage": "TURN_INCLUDES_ONLY_ACTIVITY"},
    }
    server = RealtimeServer()
    model = {"turn_detection": {"type": "semantic_vad", "eagerness": "low"}, "transcription": {"model": "whisper-1"}}
    async with chatting(server, config, model=model, **live):
        pass
    pcm = {"type": "audio/pcm", "rate": 24000}
    assert server.sent("session.update")[0]["session"] == {
        "type": "realtime",
        "output_modalities": ["audio"],
        "instructions": "Be brief.",
        "tools": [
            {"type": "function", "name": "look", "description": "Look.", "parameters": dict(tool.parameters or {})},
            {"type": "function", "name": "bare", "parameters": {"type": "object", "properties": {}}},
        ],
        "max_output_tokens": 100,
        "tracing": "auto",
        "truncation": {"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": {"post_instructions": 8000}},
        "audio": {
            "input": {
                "format": pcm,
                "transcription": {"model": "whisper-1", "language": "de"},
                "turn_detection": {"type": "semantic_vad", "eagerness": "low"},
                "noise_reduction": {"type": "far_field"},
            },
            "output": {"format": pcm, "voice": "cedar"},
        },
    }
    assert server.errors == []


REFUSED: dict[str, dict[str, Any]] = {
    "temperature": {"config": GenerateContentConfig(temperature=0.5)},
    "response_modalities": {"response_modalities": ["AUDIO", "TEXT"]},
    "session_resumption": {"session_resumption": {"transparent": True}},
    "session_resumption.handle": {"handle": "h"},
    "speech_config.language_code": {"speech_config": {"language_code": "de"}},
    "output_audio_transcription.language_codes": {"output_audio_transcription": {"language_codes": ["de"]}},
    "input_audio_transcription.language_codes": {"input_audio_transcription": {"language_codes": ["de", "en"]}},
    "context_window_compression": {"context_window_compression": {"trigger_tokens": 5}},
    "realtime_input_config.turn_coverage": {"realtime_input_config": {"turn_coverage": "TURN_INCLUDES_ALL_INPUT"}},
    "realtime_input_config.automatic_activity_detection.start_of_speech_sensitivity": {
        "realtime_input_config": {"automatic_activity_detection": {"start_of_speech_sensitivity": "HIGH"}}
    },
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_the_api_does_not_have_is_refused_by_name(name: str) -> None:
    """
    A setting without effect is refused before anything is sent; `ignore` leaves it out, where there is another way.
    """
    given = dict(REFUSED[name])
    server = RealtimeServer()
    with pytest.raises(NotSupportedError, match=f"{name}.*realtime API"):
        async with chatting(server, **given):
            pass
    assert server.connections == []
    if name != "response_modalities":
        async with chatting(server, model={"ignore": {name.partition(".")[0]}}, **given):
            pass
        assert server.errors == []


async def test_history_is_told_without_sound() -> None:
    """
    Texts, pictures, calls and results become items; sound and thoughts are left out; long ids are made shorter.
    """
    long_id = "call-0123456789-0123456789-0123456789-x"
    history = [
        Content(role="user", parts=[Part(text="hi"), Part(inline_data=Blob(data=b"\x89PNG", mime_type="image/png"))]),
        Content(role="user", parts=[Part(inline_data=Blob(data=VOICE, mime_type="audio/pcm"))]),
        Content(
            role="model",
            parts=[
                Part(text="hm", thought=True),
                Part(text="hello"),
                Part(inline_data=Blob(data=VOICE, mime_type="audio/pcm")),
                Part(function_call=FunctionCall(id=long_id, name="look")),
            ],
        ),
        Content(role="user", parts=[Part(function_response=FunctionResponse(id=long_id, name="look", response={}))]),
    ]
    server = RealtimeServer([Say("yes")])
    async with chatting(server) as chat:
        await chat.connection.send_history(history, answer=True)
        await chat.turn()
    items = [event["item"] for event in server.sent("conversation.item.create")]
    assert [item.get("role", item["type"]) for item in items] == [
        "user", "assistant", "function_call", "function_call_output",
    ]  # fmt: skip
    assert [piece["type"] for piece in items[0]["content"]] == ["input_text", "input_image"]
    assert items[2]["call_id"] == items[3]["call_id"] != long_id
    assert server.errors == []


async def test_results_on_a_new_connection_are_answered_together() -> None:
    """
    Calls that the history ends with are waited for: the server is asked when all of them have their results.
    """
    calls = [Part(function_call=FunctionCall(id=id, name="look")) for id in ("a", "b")]
    history = [Content(role="user", parts=[Part(text="look")]), Content(role="model", parts=calls)]
    server = RealtimeServer([Say("seen")])
    async with chatting(server) as chat:
        await chat.connection.send_history(history, answer=False)
        for id in ("a", "b"):
            response = FunctionResponse(id=id, name="look", response={})
            await chat.connection.send_content(Content(role="user", parts=[Part(function_response=response)]))
        await chat.turn()
    assert len(server.sent("response.create")) == 1
    assert server.got[-1]["type"] == "response.create"


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (
            End("failed", {"type": "failed", "error": {"type": "server_error", "code": "boom"}}),
            {"error_code": "boom", "finish_reason": None},
        ),
        (
            End("incomplete", {"type": "incomplete", "reason": "max_output_tokens"}),
            {"error_code": None, "finish_reason": "MAX_TOKENS"},
        ),
        (
            End("incomplete", {"type": "incomplete", "reason": "content_filter"}),
            {"error_code": "SAFETY", "finish_reason": "SAFETY"},
        ),
    ],
    ids=["failed", "too long", "filtered"],
)
async def test_an_answer_that_fails_is_over(end: End, expected: dict[str, Any]) -> None:
    """
    An answer that did not end well says why, makes no calls, and the conversation goes on.
    """
    server = RealtimeServer([Say("well"), Call("look"), end], [Say("again")])
    async with chatting(server) as chat:
        await chat.say("hi")
        over = await chat.turn()
        assert {name: getattr(over, name) for name in expected} == expected
        assert over.content is None
        await chat.say("hi")
        await chat.turn()


async def test_an_error_does_not_end_the_conversation() -> None:
    """
    An `error` event is told, and what follows is answered.
    """
    odd = {"type": "error", "event_id": "e", "error": {"type": "server_error", "message": "Hiccup.", "code": None}}
    server = RealtimeServer([Send([odd, {"type": "of.tomorrow", "new": 1}]), Say("yes")])
    async with chatting(server) as chat:
        await chat.say("hi")
        error = await chat.until(lambda response: response.error_code)
        assert (error.error_code, error.error_message, error.turn_complete) == ("server_error", "Hiccup.", None)
        await chat.turn()
        assert chat.said == "yes"


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Send(["no JSON"]), ModelError),
        (Send(["[1]"]), ModelError),
        (Send([{"event_id": "e"}]), ModelError),
        (Send([{"type": "response.output_audio.delta", "item_id": "i", "delta": "?"}]), ModelError),
        (Send([{"type": "response.output_text.delta", "item_id": "i", "delta": 7}]), ModelError),
        (Send([{"type": "error", "error": {"code": "session_expired", "message": "60 min"}}]), ModelConnectionError),
        (Close(1011, "internal"), ModelConnectionError),
        (Close(1008, "policy"), ModelRequestError),
        (Reset(), ModelConnectionError),
    ],
    ids=["text", "list", "no type", "no base64", "no text", "expired", "1011", "1008", "reset"],
)
async def test_what_ends_a_conversation_is_a_typed_error(step: Step, error: type[ModelError]) -> None:
    """
    Events that are none, the end of the session and a lost connection end `receive` with an error of the family.
    """
    server = RealtimeServer([Say("one"), step, Hold()])
    async with chatting(server) as chat:
        await chat.say("hi")
        with pytest.raises(ModelError) as caught:
            await chat.turn()
        assert type(caught.value) is error
        assert chat.said == "one"


REPEATED = {"code": f"\x1b[31m{KEY}", "message": f"no such key: {KEY}\x07"}


@pytest.mark.parametrize(
    "step",
    [
        Send([{"type": "error", "error": REPEATED}]),
        Send([{"type": "error", "error": {**REPEATED, "code": "session_expired"}}]),
        Send([{
            "type": "conversation.item.input_audio_transcription.failed", "item_id": "i", "error": REPEATED,
        }]),
        End("failed", {"error": REPEATED}),
        Close(1011, f"\x1b[31m{KEY}"),
    ],
    ids=["error", "expired", "transcription", "failed", "close"],
)  # fmt: skip
async def test_a_key_that_the_server_repeats_is_told_nowhere(step: Step) -> None:
    """
    What a server says of a failure is told without the key, and with its control characters escaped.
    """
    async with chatting(RealtimeServer([step])) as chat:
        await chat.say("hi")
        said = []
        try:
            await chat.until(lambda response: response.error_code or response.custom_metadata)
        except ModelError as error:
            said.append(str(error))
            if isinstance(step, Close):  # the sender is told the same
                with pytest.raises(ModelConnectionError) as caught:
                    await chat.say("still there?")
                said.append(str(caught.value))
        for each in chat.responses:
            said += [each.error_code or "", each.error_message or "", *map(str, (each.custom_metadata or {}).values())]
    told = "".join(said)
    assert "[the key]" in told
    assert KEY not in told
    assert not {"\x1b", "\x07"} & set(told)


async def test_what_connecting_fails_with() -> None:
    """
    A wrong key (which the error does not show), a session that is refused, or never comes, are errors on entering.
    """
    server = RealtimeServer()
    with pytest.raises(ModelAuthenticationError) as wrong:
        async with chatting(server, model={"api_key": "sk-wrong"}):
            pass
    assert "sk-wrong" not in str(wrong.value)
    with pytest.raises(ModelRequestError, match="integer_above_max_value"):
        async with chatting(server, GenerateContentConfig(max_output_tokens=5000)):
            pass
    server.ignores_session = True
    with pytest.raises(ModelTimeoutError, match="a session"):
        async with chatting(server, model={"timeout_s": 0.3}):
            pass


async def test_cancelled_at_any_step_no_connection_is_left() -> None:
    """
    Cancelled at whatever step, a conversation leaves no connection open.
    """
    server = RealtimeServer()
    server.script = Endless()
    async with websockets_at(server.handle, refusal) as url:
        model = model_at(url)

        async def converse() -> None:
            async with model.connect(asked()) as connection, aclosing(Chat(connection)) as chat:
                await chat.say("hi")
                await chat.turn()
                await chat.speak(SILENCE)
                await connection.cancel()

        steps = await cancelled_everywhere(converse)
        with trio.fail_after(PATIENCE_S):
            for connection in server.connections:
                await connection.over.wait()
    assert steps > 20


class Endless(list[Any]):
    """A script that always has the same answer."""

    def pop(self, index: object = 0) -> Any:
        return [Say("yes yes")]


async def test_a_slow_listener_holds_the_server_back() -> None:
    """
    While nobody receives, the server cannot send more than the kernel keeps; then all of it comes, in order.
    """
    words = " ".join(f"{number:03}" for number in range(900))
    server = RealtimeServer([Say(words)])
    async with websockets_at(server.handle, refusal, sent_bytes_max=65536) as url:
        async with model_at(url).connect(asked()) as connection, aclosing(Chat(connection)) as chat:
            await chat.say("count")
            peer, before = server.connections[0].peer, -1
            with trio.fail_after(PATIENCE_S):
                while peer.bytes_sent != before:
                    before = peer.bytes_sent
                    await trio.sleep(0.2)
            assert before < 5_000_000 < 900 * 6400
            await chat.turn()
            assert chat.said == words


async def test_whoever_listens_never_waits_for_the_line() -> None:
    """
    A server that reads nothing is listened to all the same, also where its answer leads to another question.
    """
    hold = Hold()
    server = RealtimeServer([Say("one"), Deaf(), hold])
    async with chatting(server) as chat, trio.open_nursery() as nursery:
        await chat.say("first")
        await chat.until(lambda response: response.output_transcription and response.output_transcription.finished)
        await hold.began.wait()
        await chat.say("second")

        async def flood() -> None:
            while True:
                await chat.speak(bytes(2**20))

        nursery.start_soon(flood)
        await trio.sleep(0.3)
        hold.until.set()
        await chat.turn()
        nursery.cancel_scope.cancel()


# --- the model --------------------------------------------------------------------------------------------------------


async def test_a_single_question_is_refused() -> None:
    """
    Asked a single question, the model says which ones answer those.
    """
    model = OpenAIRealtime("gpt-realtime-2", api_key="k")
    with pytest.raises(NotSupportedError, match="OpenAIResponses or OpenAIChat"):
        await anext(model.generate_content_async(asked()))


@pytest.mark.parametrize(
    "options",
    [
        {"name": " "},
        {"api_key": None},
        {"api_key": "k\n"},
        {"timeout_s": 0},
        {"base_url": "ftp://x"},
        {"headers": {"a b": "c"}},
        {"ignore": {"volume"}},
        {"transcription": "whisper"},
        {"turn_detection": {1: 2}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_a_model_cannot_be_made_of(options: dict[str, Any]) -> None:
    """
    Arguments that cannot be meant are refused when the model is made.
    """
    given = {"name": "gpt-realtime-2", "api_key": "k\x01"[:1]} | options
    with pytest.raises(ConfigurationError):
        OpenAIRealtime(given.pop("name"), **given)
