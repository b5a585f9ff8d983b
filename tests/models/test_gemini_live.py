"""
The adapter of Gemini's Live API, against a server that refuses what the real one refuses.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from minirun.errors import (
    ConfigurationError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRequestError,
    ModelTimeoutError,
    NotSupportedError,
)
from minirun.models import (
    ActivityEnd,
    ActivityStart,
    BaseLlmConnection,
    LiveConnectConfig,
    LiveResumption,
    LlmRequest,
    LlmResponse,
)
from minirun.models.gemini import GeminiLive
from minirun.types import Blob, Content, FunctionDeclaration, FunctionResponse, GenerateContentConfig, Part

from ..contracts.live_contract import LiveBench, live_connection_checks
from ..provider_servers.gemini_live import KEY, PROJECT, GeminiLiveServer, Line
from ..provider_servers.sockets import websockets_at

OLD, NEW = "gemini-2.5-flash-native-audio-preview-12-2025", "gemini-3.1-flash-live-preview"
SOUND = base64.b64encode(b"\1\2" * 240).decode()  # 10 ms


@asynccontextmanager
async def served(server: GeminiLiveServer, name: str = OLD, **options: Any) -> AsyncIterator[GeminiLive]:
    """A model whose server this is."""
    async with websockets_at(server) as url:
        path = f"v1/{PROJECT}" if server.is_vertex else "v1beta"
        options = {"base_url": f"{url.replace('ws', 'http', 1)}/{path}", "api_key": KEY, **options}
        yield GeminiLive(name, **options)


# --- the contract -----------------------------------------------------------------------------------------------------


class Bench(LiveBench):
    """The server's side of the contract: it answers what is owed an answer with the next of its entries."""

    def __init__(self, model: GeminiLive) -> None:
        super().__init__(model)
        self._entries: list[tuple[str, Any]] = []

    def says(self, text: str) -> None:
        self._entries.append(("says", text))

    def calls(self, *ids: str) -> None:
        self._entries.append(("calls", ids))

    def goes_on(self) -> None:
        self._entries.append(("goes on", None))

    def hangs_up(self, *, in_order: bool) -> None:
        self._entries.append(("hangs up", in_order))

    async def play(self, line: Line) -> None:
        """Play one connection."""
        answering: trio.CancelScope | None = None
        async with trio.open_nursery() as nursery:
            while True:
                message = await line.hear()
                if _interrupts(line, message) and answering is not None and not answering.cancel_called:
                    answering.cancel()
                    await line.content(interrupted=True)
                    await line.content(turnComplete=True)
                if _asks(line, message) and self._entries:
                    answering = trio.CancelScope()
                    nursery.start_soon(self._answer, line, answering, *self._entries.pop(0))

    async def _answer(self, line: Line, scope: trio.CancelScope, kind: str, what: Any) -> None:
        with scope:
            match kind:
                case "says":
                    await _say(line, what)
                    await line.content(generationComplete=True)
                    await line.content(turnComplete=True)
                case "goes on":
                    await _say(line, "and on and on")
                    await trio.sleep_forever()
                case "calls":
                    line.session.calls |= dict.fromkeys(what, "look")
                    calls = [{"id": call_id, "name": "look", "args": {"where": call_id}} for call_id in what]
                    await line.say(toolCall={"functionCalls": calls})
                    return
                case "hangs up" if what:
                    await line.peer.close(1000)
                case _:
                    line.peer.reset()
        scope.cancel()  # it is over


def _interrupts(line: Line, message: dict[str, Any]) -> bool:
    return "clientContent" in message or bool({"text", "activityStart"} & message.get("realtimeInput", {}).keys())


def _asks(line: Line, message: dict[str, Any]) -> bool:
    if "toolResponse" in message:
        return not line.session.calls
    if "clientContent" in message:
        return not line.is_new and bool(message["clientContent"]["turnComplete"])
    told = message.get("realtimeInput", {})
    return ("text" in told and line.detects) or "activityEnd" in told


async def _say(line: Line, text: str) -> None:
    for index, word in enumerate(text.split()):
        parts = [{"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": SOUND}}]
        spoken = {"text": word if index == 0 else f" {word}"}
        await line.content(modelTurn={"parts": parts}, outputTranscription=spoken)


@asynccontextmanager
async def bench(name: str) -> AsyncIterator[Bench]:
    made: list[Bench] = []

    async def play(line: Line) -> None:
        await made[0].play(line)

    server = GeminiLiveServer(*[play] * 100)
    async with served(server, name) as model:
        made.append(Bench(model))
        yield made[0]
    assert not server.problems


@pytest.mark.parametrize("name", [OLD, NEW])
@pytest.mark.parametrize("check", live_connection_checks().values(), ids=live_connection_checks())
async def test_it_keeps_the_contract(check: Any, name: str) -> None:
    """A connection to Gemini, before version 3 and since, promises what every live connection does."""
    await check(lambda: bench(name))


# --- connecting -------------------------------------------------------------------------------------------------------

LOOK = FunctionDeclaration(name="look", description="Look.", parameters={"type": "object"})
MANUAL = {"automatic_activity_detection": {"disabled": True}}


def asked(**live: Any) -> LlmRequest:
    config = GenerateContentConfig(system_instruction="Be brief.", tools=[LOOK])
    return LlmRequest(contents=(), config=config, live=LiveConnectConfig(**live))


def says(text: str) -> Content:
    return Content(role="user", parts=[Part(text=text)])


def result(call_id: str) -> Content:
    return Content(role="user", parts=[Part(function_response=FunctionResponse(id=call_id, name="look"))])


async def until(responses: Any, field: str) -> list[LlmResponse]:
    """What comes until a response has this field."""
    found: list[LlmResponse] = []
    while not found or not getattr(found[-1], field):
        found.append(await anext(responses))
    return found


async def all_of(connection: BaseLlmConnection) -> list[LlmResponse]:
    return [response async for response in connection.receive()]


async def silent(line: Line) -> None:
    """Say nothing."""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name of a model"),
        ({"api_key": None}, "expected api_key, found none"),
        ({"api_key": "with\nline"}, "a text that no header can hold"),
        ({"base_url": "wss://host/v1beta"}, "expected base_url"),
        ({"base_url": "https://host"}, "end with a version"),
        ({"base_url": "https://host/v1beta/models"}, "end with a version"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"headers": {"a b": "c"}}, "headers"),
        ({"ignore": {"nonsense"}}, "nonsense"),
        ({"types_in_real_time": "yes"}, "types_in_real_time"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    """A mistake is told where it is made, and before anything is sent."""
    given: dict[str, Any] = {"name": OLD, "api_key": KEY, **options}
    with pytest.raises(ConfigurationError, match=message):
        GeminiLive(given.pop("name"), **given)


def test_a_question_in_text_is_refused() -> None:
    """The model converses only; the error says which class answers questions."""
    model = GeminiLive(OLD, api_key=KEY)
    with pytest.raises(NotSupportedError, match=r"minirun\.models\.gemini\.Gemini "):
        model.generate_content_async(asked())


@pytest.mark.parametrize("name", [OLD, NEW])
async def test_a_setup_with_everything_is_accepted(name: str) -> None:
    """The strict server takes all settings that its API has."""
    server = GeminiLiveServer(silent)
    live = {
        "speech_config": {"voice_config": {"prebuilt_voice_config": {"voice_name": "Puck"}}},
        "realtime_input_config": MANUAL,
        "context_window_compression": {"trigger_tokens": 1000, "sliding_window": {"target_tokens": 500}},
        "session_resumption": {},
    }
    async with served(server, name) as model, model.connect(asked(**live)) as connection:
        assert connection.capabilities.knows_playback
    assert server.problems == []
    assert server.lines[0].setup["model"] == f"models/{name}"


async def test_vertex_ai_has_other_addresses_keys_and_fields() -> None:
    """The project of the base URL is that of the model; handles say what was taken up."""

    async def play(line: Line) -> None:
        await line.hear()
        await line.handle("h1")

    server = GeminiLiveServer(play, is_vertex=True)
    live = {"session_resumption": {"transparent": True}}
    async with served(server) as model, model.connect(asked(**live)) as connection:
        await connection.send_content(says("hello"), id="a")
        async with aclosing(connection.receive()) as responses:
            (response,) = await until(responses, "resumption")
    assert response.resumption == LiveResumption(handle="h1", resumable=True, last_taken_up="a")
    assert server.problems == []
    assert server.lines[0].setup["model"] == f"{PROJECT}/models/{OLD}"


async def test_a_wrong_key_is_told_without_the_key() -> None:
    """The server repeats it, and the error does not; a key function is asked for each connection."""
    keys = iter(["AIza-first", "AIza-second"])
    server = GeminiLiveServer()
    async with served(server, api_key=lambda: next(keys)) as model:
        for _ in range(2):
            with pytest.raises(ModelAuthenticationError, match=r"not \[the key\]") as caught:
                async with model.connect(asked()):
                    pass
            assert "AIza" not in repr(caught.value)
    assert [problem[-7:] for problem in server.problems] == ["-first.", "second."]


@pytest.mark.parametrize("how", ["error", "close", "end of a turn"])
async def test_a_key_that_the_server_repeats_is_told_nowhere(how: str) -> None:
    """What a server says of a failure is told without the key, and with its control characters escaped."""
    header = "token-of-a-gateway"
    repeated = f"\x1b[31m{KEY} {header}\x07"

    async def play(line: Line) -> None:
        if how == "error":
            await line.say(error={"code": 503, "message": repeated, "status": repeated})
        elif how == "close":
            await line.peer.close(1011, repeated)
        else:
            await line.content(turnComplete=True, turnCompleteReason=repeated)

    told = ""
    headers = {"x-gateway-authorization": f"Bearer {header}"}
    async with served(GeminiLiveServer(play), headers=headers) as model:
        async with model.connect(asked()) as connection, aclosing(connection.receive()) as responses:
            try:
                response = await anext(responses)
                told = f"{response.error_code} {response.error_message}"
            except ModelOverloadedError as error:
                told = str(error)  # as it is caught inside of the block
    assert "[the key] [the key]" in told
    assert not {"\x1b", "\x07"} & set(told)


async def test_a_server_that_does_not_accept_the_setup_is_not_waited_for() -> None:
    """It may be silent, close, or not be there; each is an error of its own."""

    async def mute(peer: Any) -> None:
        async for _ in peer.messages():
            pass

    async def closes(peer: Any) -> None:
        async for _ in peer.messages():
            await peer.close(1000)

    for handle, kind in ((mute, ModelTimeoutError), (closes, ModelConnectionError)):
        async with websockets_at(handle) as url:
            model = GeminiLive(OLD, base_url=f"{url.replace('ws', 'http')}/v1beta", timeout_s=0.1)
            with pytest.raises(kind):
                async with model.connect(asked()):
                    pass
    with pytest.raises(ModelConnectionError):
        async with model.connect(asked()):
            pass


async def test_what_comes_with_the_setup_is_received() -> None:
    """A handle that is told before the setup is accepted is not lost."""

    async def eager(peer: Any) -> None:
        async for _ in peer.messages():
            await peer.send(b'{"sessionResumptionUpdate": {"newHandle": "h0", "resumable": true}}')
            await peer.send(b'{"setupComplete": {}, "usageMetadata": {"totalTokenCount": 1}}')
            await peer.close(1000)

    async with websockets_at(eager) as url:
        model = GeminiLive(OLD, base_url=f"{url.replace('ws', 'http')}/v1beta")
        async with model.connect(asked()) as connection:
            first, second = await all_of(connection)
    assert first.resumption == LiveResumption(handle="h0", resumable=True)
    assert second.usage_metadata is not None


@pytest.mark.parametrize("data", [b"nonsense", b"[]", b"\xff", b'{"serverContent": 1}'])
async def test_what_is_no_message_is_an_error(data: bytes) -> None:
    """Everything else that was said before it is received."""

    async def play(line: Line) -> None:
        await line.content(turnComplete=True)
        await line.peer.send(data)

    async with served(GeminiLiveServer(play)) as model, model.connect(asked()) as connection:
        responses = connection.receive()
        assert (await anext(responses)).turn_complete
        with pytest.raises(ModelError, match="message"):
            await anext(responses)


async def test_connecting_can_be_cancelled_at_every_checkpoint() -> None:
    """It is left as it was begun: nothing is raised but what is cancelled, and no connection stays open."""
    server = GeminiLiveServer(*[silent] * 200)

    async def cancel_after(checkpoints: int, scope: trio.CancelScope) -> None:
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async with served(server) as model:
        reached = 0
        for checkpoints in range(200):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_after, checkpoints, nursery.cancel_scope)
                async with model.connect(asked()):
                    reached += 1
                    nursery.cancel_scope.cancel()
            if reached >= 3:
                break
        with trio.fail_after(60):
            for line in server.lines:
                await line.closed.wait()
    assert reached == 3
    assert server.problems == []


# --- reconnecting -----------------------------------------------------------------------------------------------------


async def test_a_session_is_gone_on_with_by_its_handle() -> None:
    """After a drop, another connection has the session: a call that was made before is answered there."""

    async def first(line: Line) -> None:
        await line.hear()
        await line.call("c1", "look")
        await line.handle("h1")
        await line.say(sessionResumptionUpdate={"resumable": False})
        line.peer.reset()

    async def second(line: Line) -> None:
        assert "toolResponse" in await line.hear()
        await line.content(outputTranscription={"text": "I see."})
        await line.content(turnComplete=True)

    server = GeminiLiveServer(first, second)
    async with served(server) as model:
        resumptions = []
        async with model.connect(asked()) as connection:
            await connection.send_content(says("look"))
            with pytest.raises(ModelConnectionError):
                async for response in connection.receive():
                    if response.resumption is not None:
                        resumptions.append(response.resumption)
        assert resumptions == [LiveResumption(handle="h1", resumable=True), LiveResumption()]
        async with model.connect(asked(handle="h1")) as connection:
            await connection.send_content(result("c1"))
            async with aclosing(connection.receive()) as responses:
                found = await until(responses, "turn_complete")
    assert found[0].output_transcription is not None
    assert server.lines[1].setup["sessionResumption"] == {"handle": "h1"}
    assert server.problems == []


async def test_a_session_cannot_be_gone_on_with_while_its_connection_is_open() -> None:
    """The server refuses it; once the old connection is closed, it does not."""

    async def play(line: Line) -> None:
        await line.handle("h1")

    server = GeminiLiveServer(play, silent)
    async with served(server) as model:
        async with model.connect(asked()) as connection:
            async with aclosing(connection.receive()) as responses:
                await until(responses, "resumption")
            with pytest.raises(ModelRequestError, match="in use"):
                async with model.connect(asked(handle="h1")):
                    pass
        async with model.connect(asked(handle="h1")):
            pass
        with pytest.raises(ModelRequestError, match="not found"):
            async with model.connect(asked(handle="unknown")):
                pass


async def test_the_server_goes_away_and_closes() -> None:
    """It says when; what it says until then is received, and the end in good order is no error."""

    async def play(line: Line) -> None:
        await line.say(goAway={"timeLeft": "1.5s"})
        await line.content(outputTranscription={"text": "Bye."})
        await line.peer.close(1000)

    async with served(GeminiLiveServer(play)) as model, model.connect(asked()) as connection:
        going, bye = await all_of(connection)
    assert going.go_away_s == 1.5
    assert bye.output_transcription is not None


@pytest.mark.parametrize(
    ("code", "kind"), [(1011, ModelOverloadedError), (1008, ModelRequestError), (1001, ModelConnectionError)]
)
async def test_an_answer_that_is_cut_off_by_the_end_of_the_connection(code: int, kind: type[ModelError]) -> None:
    """What was said by then is received; then the code says what went wrong."""

    async def play(line: Line) -> None:
        await line.content(outputTranscription={"text": "On"})
        await line.peer.close(code, "for a reason")

    async with served(GeminiLiveServer(play)) as model, model.connect(asked()) as connection:
        responses = connection.receive()
        assert (await anext(responses)).output_transcription is not None
        with pytest.raises(kind, match="for a reason"):
            await anext(responses)


# --- both sides at once -----------------------------------------------------------------------------------------------


async def test_a_slow_reader_holds_the_server_back_and_loses_nothing() -> None:
    """The server can send no more than the network holds; when the reader goes on, all of it comes, in order."""
    piece = base64.b64encode(bytes(48000)).decode()
    count = 400  # 25 MB

    async def play(line: Line) -> None:
        for _ in range(count):
            part = {"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": piece}}
            await line.content(modelTurn={"parts": [part]})
        await line.content(turnComplete=True)

    server = GeminiLiveServer(play)
    async with served(server) as model, model.connect(asked()) as connection:
        before = -1
        while server.lines[0].peer.bytes_sent != before:
            before = server.lines[0].peer.bytes_sent
            await trio.testing.wait_all_tasks_blocked(0.05)
        assert before < count * len(piece) / 2
        async with aclosing(connection.receive()) as responses:
            found = await until(responses, "turn_complete")
    assert len(found) == count + 1


async def test_the_user_speaks_while_the_model_answers() -> None:
    """Sound goes out as it is given, whatever comes in; an interruption comes as soon as the server says so."""

    async def play(line: Line) -> None:
        await line.hear()
        await line.content(outputTranscription={"text": "Once upon"})
        for _ in range(100):
            assert line.detects
            assert (await line.hear())["realtimeInput"]["audio"]["mimeType"] == "audio/pcm;rate=16000"
        await line.content(interrupted=True)
        await line.content(inputTranscription={"text": "Stop"})
        await line.content(turnComplete=True)

    server = GeminiLiveServer(play)
    async with served(server) as model, model.connect(asked()) as connection, trio.open_nursery() as nursery:
        await connection.send_content(says("tell me"))

        async def speak() -> None:
            for _ in range(100):
                await connection.send_realtime(Blob(data=bytes(640), mime_type="audio/pcm"))

        nursery.start_soon(speak)
        async with aclosing(connection.receive()) as responses:
            found = await until(responses, "turn_complete")
    assert [each.interrupted for each in found] == [None, True, None, None]
    assert server.problems == []


async def test_an_answer_is_stopped_while_the_server_is_silent() -> None:
    """Its end is received at once: the server may wait for as long as the answer plays."""

    async def play(line: Line) -> None:
        await line.hear()
        await line.hear()
        await line.content(outputTranscription={"text": "Once upon"})
        await line.content(generationComplete=True)

    async with served(GeminiLiveServer(play), NEW) as model, model.connect(asked()) as connection:
        await connection.send_content(says("tell me"))
        async with aclosing(connection.receive()) as responses, trio.open_nursery() as nursery:
            await until(responses, "generation_complete")

            async def stop() -> None:
                await trio.testing.wait_all_tasks_blocked()
                await connection.cancel()

            nursery.start_soon(stop)
            with trio.fail_after(60):
                (end,) = await until(responses, "turn_complete")
    assert end.interrupted


async def test_the_client_says_when_the_user_speaks() -> None:
    """With the server's detection off, the strict server takes the signals and what stands between them."""

    async def play(line: Line) -> None:
        while "activityEnd" not in (await line.hear())["realtimeInput"]:
            pass
        await line.content(turnComplete=True)

    server = GeminiLiveServer(play)
    async with served(server) as model, model.connect(asked(realtime_input_config=MANUAL)) as connection:
        await connection.send_realtime(ActivityStart())
        await connection.send_realtime(Blob(data=bytes(640), mime_type="audio/pcm"))
        with pytest.raises(ModelRequestError):
            await connection.send_realtime(ActivityStart())
        await connection.send_realtime(ActivityEnd())
        async with aclosing(connection.receive()) as responses:
            await until(responses, "turn_complete")
    assert server.problems == []


async def test_items_have_different_names_on_each_connection() -> None:
    """What is said on the second connection is not taken for what was said on the first."""

    async def play(line: Line) -> None:
        await line.content(outputTranscription={"text": "Hi"})

    async with served(GeminiLiveServer(play, play)) as model:
        names = []
        for _ in range(2):
            async with model.connect(asked()) as connection, aclosing(connection.receive()) as responses:
                names.append((await anext(responses)).item_id)
    assert len(set(names)) == 2
