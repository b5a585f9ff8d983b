"""A live model that follows a script behaves as the two providers do, and refuses what they would refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from minirun.errors import (
    ConfigurationError,
    ModelConnectionError,
    ModelRequestError,
    ModelTimeoutError,
    NotSupportedError,
    ScriptError,
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
from minirun.testing import (
    LiveSent,
    ScriptedLive,
    ScriptedLlm,
    call,
    cancel_calls,
    drop,
    error,
    go_away,
    handle,
    hear,
    interrupted,
    pause,
    say,
    usage,
)
from minirun.testing._live_dialects import DialectName
from minirun.types import Blob, Content, FunctionResponse, Part

DIALECTS: tuple[DialectName, ...] = ("gemini", "openai")
MANUAL = {"automatic_activity_detection": {"disabled": True}}

both = pytest.mark.parametrize("dialect", DIALECTS)


def text(words: str) -> Content:
    return Content(role="user", parts=[Part(text=words)])


def result(id: str, name: str = "look", **answer: Any) -> Content:
    return Content(role="user", parts=[Part(function_response=FunctionResponse(id=id, name=name, response=answer))])


def asked(**live: Any) -> LlmRequest:
    return LlmRequest(contents=(), live=LiveConnectConfig(**live))


def sound(ms: int, rate: int, silent: bool = False) -> Blob:
    return Blob(data=(b"\0\0" if silent else b"\1\0") * (rate * ms // 1000), mime_type=f"audio/pcm;rate={rate}")


def told(response: LlmResponse) -> str:
    """What a response says, in a word or two."""
    found = []
    for field in ("speech_started", "speech_stopped"):
        if getattr(response, field):
            found.append(field)
    for mark, transcript in (("<", response.input_transcription), (">", response.output_transcription)):
        if transcript is not None:
            found.append(mark + (transcript.text or "") + ("." if transcript.finished else ""))
    for part in response.content.parts if response.content is not None else ():
        if part.text is not None:
            found.append(part.text)
        if part.inline_data is not None:
            found.append(f"{len(part.inline_data.data)}b")
        if part.function_call is not None:
            found.append(f"{part.function_call.name}#{part.function_call.id}")
    for field in ("interrupted", "generation_complete", "turn_complete"):
        if getattr(response, field):
            found.append(field)
    if response.error_code is not None:
        found.append(f"error {response.error_code}")
    if response.usage_metadata is not None:
        found.append(f"usage {response.usage_metadata.total_token_count}")
    if response.cancelled_calls:
        found.append("cancelled " + ",".join(response.cancelled_calls))
    if response.go_away_s is not None:
        found.append(f"go_away {response.go_away_s:g}")
    if response.resumption is not None:
        found.append(f"handle {response.resumption.handle} {response.resumption.last_taken_up}")
    return " ".join(found)


class Line:
    """A connection, and all that was received on it so far."""

    def __init__(self, connection: BaseLlmConnection) -> None:
        self.connection = connection
        self.responses: list[LlmResponse] = []
        self.at: list[float] = []  # when each came
        self.error: Exception | None = None
        self.ended = False
        self._seen = 0

    @property
    def told(self) -> list[str]:
        return [told(response) for response in self.responses]

    async def receive(self) -> None:
        try:
            async with aclosing(self.connection.receive()) as responses:
                async for response in responses:
                    self.responses.append(response)
                    self.at.append(trio.current_time())
        except Exception as problem:
            self.error = problem
        self.ended = True

    async def quiet(self) -> list[str]:
        """Let everything be said that is on its way, and return what was said since the last time."""
        seen = self._seen
        await trio.sleep(100)
        self._seen = len(self.responses)
        return self.told[seen:]


@asynccontextmanager
async def conversation(live: ScriptedLive, request: LlmRequest | None = None) -> AsyncIterator[Line]:
    async with live.connect(request or asked()) as connection, trio.open_nursery() as nursery:
        line = Line(connection)
        nursery.start_soon(line.receive)
        yield line
        nursery.cancel_scope.cancel()


# --- what is said -----------------------------------------------------------------------------------------------------


async def test_gemini_says_an_answer_as_gemini_does(autojump_clock: trio.abc.Clock) -> None:
    """Sound comes before its words, nothing says that a transcript ends, and the turn ends when it was played."""
    async with conversation(ScriptedLive(["one two"])) as line:
        await line.connection.send_content(text("count"))
        said = await line.quiet()
        assert line.at[-1] - line.at[0] == 0.5
    assert said == ["12000b", ">one ", "12000b", ">two", "generation_complete", "turn_complete"]


async def test_openai_says_an_answer_as_openai_does(autojump_clock: trio.abc.Clock) -> None:
    """Words come before their sound, the transcript is closed, and the turn ends when the answer is made."""
    async with conversation(ScriptedLive([["one two", usage(3, 4)]], dialect="openai")) as line:
        await line.connection.send_content(text("count"))
        said = await line.quiet()
        assert line.at[-1] == line.at[0]
    assert said == [">one ", "12000b", ">two", "12000b", ">.", "generation_complete turn_complete usage 7"]


async def test_gemini_tells_usage_where_the_script_does(autojump_clock: trio.abc.Clock) -> None:
    """It comes in a response of its own."""
    async with conversation(ScriptedLive([["one", usage(3, 4)]])) as line:
        await line.connection.send_content(text("count"))
        assert (await line.quiet())[2:] == ["usage 7", "generation_complete", "turn_complete"]


@both
async def test_an_answer_is_text_where_the_request_wants_text(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """`response_modalities` decides, unless `say` does; without transcription there are no words beside the sound."""
    live = ScriptedLive([["one two"], [say("three", audio=True)]], dialect=dialect)
    request = asked(response_modalities=["TEXT"], output_audio_transcription=None)
    async with conversation(live, request) as line:
        await line.connection.send_content(text("count"))
        assert (await line.quiet())[:2] == ["one ", "two"]
        await line.connection.send_content(text("on"))
        assert (await line.quiet())[0] == "12000b"


async def test_what_is_said_in_several_steps_is_one_answer(autojump_clock: trio.abc.Clock) -> None:
    """Its pieces have one item, and it is over with its entry."""
    live = ScriptedLive([[say("one"), pause(3), say("two")], "three"], dialect="openai")
    async with conversation(live) as line:
        await line.connection.send_content(text("count"))
        await line.connection.send_content(text("on"))
        said = await line.quiet()
    assert said[:6] == [">one", "12000b", ">two", "12000b", ">.", "generation_complete turn_complete"]
    assert [each.item_id for each in line.responses] == ["answer-1"] * 6 + ["answer-2"] * 4
    assert line.at[2] - line.at[1] == 3


async def test_calls_come_at_once_or_one_by_one(autojump_clock: trio.abc.Clock) -> None:
    """Gemini makes the calls of an answer in one response, and the turn goes on; OpenAI ends the answer."""
    entry: list[Any] = ["so", call("look", where="up"), call("look")]
    seen = {}
    for dialect in DIALECTS:
        async with conversation(ScriptedLive([entry], dialect=dialect)) as line:
            await line.connection.send_content(text("look"))
            seen[dialect] = await line.quiet()
    assert seen["gemini"] == ["12000b", ">so", "look#call-1 look#call-2"]
    assert seen["openai"] == [">so", "12000b", ">.", "look#call-1", "look#call-2", "generation_complete"]


@both
async def test_it_goes_on_when_all_calls_have_responses(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """The next entry is played after the last response of an answer's calls."""
    live = ScriptedLive([[call("look"), call("look")], "seen"], dialect=dialect)
    async with conversation(live) as line:
        await line.connection.send_content(text("look"))
        await line.quiet()
        await line.connection.send_content(result("call-2"))
        assert await line.quiet() == []
        await line.connection.send_content(result("call-1"))
        assert ">seen" in await line.quiet()
    live.assert_done()


@both
async def test_an_error_ends_the_answer_and_not_the_connection(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """The turn is over if an answer had begun, and the next content is answered."""
    live = ScriptedLive([["one", error("server_error", "sorry")], error("bad"), "two"], dialect=dialect)
    async with conversation(live) as line:
        for expected in ("turn_complete error server_error", "error bad"):
            await line.connection.send_content(text("count"))
            assert (await line.quiet())[-1] == expected
        await line.connection.send_content(text("count"))
        assert ">two" in await line.quiet()


@both
async def test_responses_are_played_as_they_are(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """A script may say what no helper says, such as a turn's end twice; the end is not added where it is given."""
    over = LlmResponse(turn_complete=True)
    piece = LlmResponse(content=Content(role="model", parts=[Part(text="hm")]), partial=True)
    async with conversation(ScriptedLive([[piece, over, over]], dialect=dialect)) as line:
        await line.connection.send_content(text("count"))
        assert await line.quiet() == ["hm", "turn_complete", "turn_complete"]


@both
async def test_an_exception_is_what_receiving_raises(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Sending raises a ModelError from then on."""
    async with conversation(ScriptedLive([["one", ModelTimeoutError("slow")]], dialect=dialect)) as line:
        await line.connection.send_content(text("count"))
        await line.quiet()
        assert isinstance(line.error, ModelTimeoutError)
        with pytest.raises(ModelTimeoutError, match="slow"):
            await line.connection.send_content(text("count"))


async def test_the_server_may_speak_unasked(autojump_clock: trio.abc.Clock) -> None:
    """`play` says something on the newest connection; without one it is refused."""
    live = ScriptedLive([])
    with pytest.raises(ScriptError, match="connect first"):
        live.play("hello")
    async with conversation(live) as line:
        live.play("hello", pause(1), handle("h1"))
        assert (await line.quiet())[:3] == ["12000b", ">hello", "handle h1 None"]


async def test_each_connection_may_begin_with_something(autojump_clock: trio.abc.Clock) -> None:
    """`on_connect` has an entry for each connection, and an exception is raised by connecting."""
    refusal = ModelConnectionError("no")
    live = ScriptedLive([], on_connect=[handle("h1"), refusal, []])
    async with conversation(live) as line:
        assert await line.quiet() == ["handle h1 None"]
    with pytest.raises(ModelConnectionError, match="no"):
        async with conversation(live):
            pass
    async with conversation(live) as line:
        assert await line.quiet() == []
    assert [sent.kind for sent in live.sent] == ["connect", "close", "connect", "connect", "close"]


# --- what is heard ----------------------------------------------------------------------------------------------------


async def test_what_is_heard_comes_before_the_answer_or_after(autojump_clock: trio.abc.Clock) -> None:
    """A late transcript comes after the end of the answer, by the item of what was said."""
    live = ScriptedLive([[hear("go on"), "one"], [hear("and", late=True), "two"]], dialect="openai")
    async with conversation(live) as line:
        await line.connection.send_realtime(AudioStreamEnd())
        first = await line.quiet()
        await line.connection.send_realtime(AudioStreamEnd())
        second = await line.quiet()
    end = "generation_complete turn_complete"
    assert first == ["speech_started", "speech_stopped", "<go ", "<on", "<.", ">one", "12000b", ">.", end]
    assert second == ["speech_started", "speech_stopped", ">two", "12000b", ">.", end, "<and", "<."]
    late = line.responses[len(first) :]
    assert {each.item_id for each in late if each.input_transcription or each.speech_started} == {"heard-2"}


@both
async def test_an_utterance_ends_with_silence(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """Sound that is not all zeros is speech; half a second of zeros after it is answered, and no other silence is."""
    live = ScriptedLive([[hear("hm"), "one"]], dialect=dialect)
    async with conversation(live, asked()) as line:
        rate = line.connection.capabilities.input_rate
        for silent in [True] * 10 + [False, True, False] + [True] * 4:
            await line.connection.send_realtime(sound(100, rate, silent))
        tells = dialect == "openai"
        assert await line.quiet() == ["speech_started"] * tells
        for _ in range(10):
            await line.connection.send_realtime(sound(100, rate, silent=True))
        said = await line.quiet()
    assert said[:2] == (["speech_stopped", "<hm"] if tells else ["<hm", said[1]])
    assert {each.item_id for each in line.responses if each.input_transcription} == {"heard-1"}
    live.assert_done()


# --- interruptions ----------------------------------------------------------------------------------------------------

CUT = {"gemini": ["interrupted", "turn_complete"], "openai": [">.", "interrupted turn_complete"]}
LONG = [say("one two three"), pause(10), say("four five"), pause(10), "six"]


@both
async def test_cancelling_cuts_the_answer_off(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """The rest of the entry is not played, and cancelling once more has no effect."""
    async with conversation(ScriptedLive([LONG], dialect=dialect)) as line:
        await line.connection.send_content(text("count"))
        await trio.sleep(1)
        await line.connection.cancel()
        await line.connection.cancel()
        assert (await line.quiet())[6:] == CUT[dialect]
        await line.connection.cancel()
        assert await line.quiet() == []


@both
async def test_what_is_in_flight_still_comes(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """A client that reads slowly gets so many pieces after it has cancelled."""
    live = ScriptedLive(["one two three four"], dialect=dialect, in_flight=3)
    async with live.connect(asked()) as connection, aclosing(connection.receive()) as responses:
        await connection.send_content(text("count"))
        found = [told(await anext(responses))]
        await connection.cancel()
        found += [told(await anext(responses)) for _ in range(3 + len(CUT[dialect]))]
    assert found[-len(CUT[dialect]) :] == CUT[dialect]
    assert [each for each in found if each.startswith(">") and each != ">."] == [">one ", ">two "]


async def test_gemini_can_be_interrupted_while_an_answer_plays(autojump_clock: trio.abc.Clock) -> None:
    """It reckons how long the sound plays: until then, the answer that is made already can be cut off."""
    async with conversation(ScriptedLive(["one two three four"])) as line:
        await line.connection.send_content(text("count"))
        await trio.sleep(0.6)
        before = line.told
        await line.connection.cancel()
        await line.quiet()
    assert before[-1] == "generation_complete"
    assert line.told[len(before) :] == CUT["gemini"]


async def test_openai_is_not_interrupted_when_the_answer_is_made(autojump_clock: trio.abc.Clock) -> None:
    """The user's voice is told of, but nothing is cut off: the client alone knows that it still plays."""
    async with conversation(ScriptedLive(["one two three four"], dialect="openai")) as line:
        await line.connection.send_content(text("count"))
        await trio.sleep(0.6)
        before = line.told
        await line.connection.cancel()
        await line.connection.send_realtime(sound(20, 24000))
        await line.quiet()
    assert before[-1] == "generation_complete turn_complete"
    assert line.told[len(before) :] == ["speech_started"]


async def test_a_content_interrupts_gemini_and_waits_for_openai(autojump_clock: trio.abc.Clock) -> None:
    """OpenAI's answer is played to its end, then the content's."""
    seen = {}
    for dialect in DIALECTS:
        async with conversation(ScriptedLive([LONG, "seven"], dialect=dialect)) as line:
            await line.connection.send_content(text("count"))
            await trio.sleep(1)
            await line.connection.send_content(text("stop"))
            await line.quiet()
        seen[dialect] = [each for each in line.told if not each.endswith("b")]
    assert seen["gemini"][3:] == ["interrupted", "turn_complete", ">seven", "generation_complete", "turn_complete"]
    end = "generation_complete turn_complete"
    assert seen["openai"][3:] == [">four ", ">five", ">six", ">.", end, ">seven", ">.", end]


@both
async def test_the_users_voice_interrupts(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """As the server hears it, or as the client says."""
    async with conversation(ScriptedLive([LONG], dialect=dialect), asked()) as line:
        await line.connection.send_content(text("count"))
        await trio.sleep(1)
        await line.connection.send_realtime(sound(20, line.connection.capabilities.input_rate))
        assert (await line.quiet())[6:] == [*["speech_started"] * (dialect == "openai"), *CUT[dialect]]
    async with conversation(ScriptedLive([LONG], dialect=dialect), asked(realtime_input_config=MANUAL)) as line:
        await line.connection.send_content(text("count"))
        await trio.sleep(1)
        await line.connection.send_realtime(ActivityStart())
        assert (await line.quiet())[6:] == CUT[dialect]


@both
async def test_a_script_can_interrupt(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """`interrupted`, and `hear` in the middle of an answer, cut it off; the entry goes on."""
    for step in (interrupted(), hear("stop")):
        request = asked(input_audio_transcription=None)
        async with conversation(ScriptedLive([["one", step, "two"]], dialect=dialect), request) as line:
            await line.connection.send_content(text("count"))
            said = [each for each in await line.quiet() if not each.startswith(("speech", "12000"))]
        assert said[:4] == [">one", *CUT[dialect], ">two"]


# --- how it ends, and goes on -----------------------------------------------------------------------------------------


@both
async def test_a_drop_is_an_error_with_its_code(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """1000 is an end in good order, 1007 says that what was sent was bad; the script goes on with the next one."""
    live = ScriptedLive([["one", drop()], drop(1007), drop(1000), "two"], dialect=dialect)
    for kind, code in ((ModelConnectionError, "1006"), (ModelRequestError, "1007"), (None, "1000")):
        async with conversation(live) as line:
            await line.connection.send_content(text("count"))
            await line.quiet()
            assert line.ended
            assert type(line.error) is (kind or type(None))
            assert kind is None or code in str(line.error)
            with pytest.raises(kind or ModelConnectionError, match=code):
                await line.connection.send_content(text("more"), id="late")
    assert [sent.connection for sent in live.sent if sent.lost and sent.id == "late"] == [1, 2, 3]
    async with conversation(live) as line:
        await line.connection.send_content(text("count"))
        assert ">two" in await line.quiet()


async def test_gemini_goes_away_when_it_has_said_so(autojump_clock: trio.abc.Clock) -> None:
    """The connection ends after that time, whatever else is said."""
    async with conversation(ScriptedLive([[go_away(30), "one", pause(60), "two"]])) as line:
        await line.connection.send_content(text("count"))
        await line.quiet()
    assert line.told == ["go_away 30", "12000b", ">one"]
    assert "1001" in str(line.error)


@both
async def test_a_connection_has_a_lifetime(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """It ends when the time is over that its capabilities tell."""
    async with conversation(ScriptedLive([], dialect=dialect)) as line:
        lifetime_s = line.connection.capabilities.lifetime_s
        assert lifetime_s is not None
        await trio.sleep(lifetime_s - 1)
        assert not line.ended
        await trio.sleep(2)
        assert isinstance(line.error, ModelConnectionError)


async def test_a_session_goes_on_by_its_handle(autojump_clock: trio.abc.Clock) -> None:
    """Calls of the old connection are answered on the new one; what was taken up is told, and is not sent again."""
    live = ScriptedLive([[handle("h1"), call("look"), drop()], "seen"])
    async with conversation(live) as line:
        await line.connection.send_content(text("look"), id="e1")
        assert await line.quiet() == ["handle h1 e1", "look#call-1"]
    async with conversation(live, asked(handle="h1")) as line:
        with pytest.raises(ScriptError, match="'e1' again"):
            await line.connection.send_content(text("look"), id="e1")
        await line.connection.send_content(result("call-1"), id="e2")
        assert ">seen" in await line.quiet()
    live.assert_done()


async def test_what_came_after_the_handle_is_sent_again(autojump_clock: trio.abc.Clock) -> None:
    """A content that the server has not told to be taken up may come twice; where it does not tell, any may."""
    live = ScriptedLive([[handle("h1", taken_up=False)], drop(), "one", "two"])
    async with conversation(live) as line:
        await line.connection.send_content(text("a"), id="e1")
        await line.connection.send_content(text("b"), id="e2")
        assert await line.quiet() == ["handle h1 None"]
    async with conversation(live, asked(handle="h1")) as line:
        await line.connection.send_content(text("a"), id="e1")
        await line.connection.send_content(text("b"), id="e2")
    live.assert_done()


async def test_a_handle_has_to_be_known_and_good(autojump_clock: trio.abc.Clock) -> None:
    """One that was never given out, or not as resumable, or too long ago, is refused as a server refuses it."""
    live = ScriptedLive([[handle("h1"), handle("h2", resumable=False)]], handles=["h0"], handle_s=50)
    async with conversation(live, asked(handle="h0")) as line:
        await line.connection.send_content(text("a"))
        await line.quiet()
        assert [each.resumption.resumable for each in line.responses if each.resumption] == [True, False]
    for bad, why in (("h1", "too old"), ("h2", "never"), ("h3", "never")):
        with pytest.raises(ModelRequestError, match=why):
            async with live.connect(asked(handle=bad)):
                pass


async def test_the_old_connection_is_closed_first(autojump_clock: trio.abc.Clock) -> None:
    """Going on with a session whose connection is open is refused; a new session beside it is not."""
    live = ScriptedLive([handle("h1")])
    async with conversation(live) as line:
        await line.connection.send_content(text("a"))
        await line.quiet()
        with pytest.raises(ScriptError, match="connection 1 to be closed"):
            async with live.connect(asked(handle="h1")):
                pass
        async with live.connect(asked()):
            pass


# --- what is refused --------------------------------------------------------------------------------------------------


async def _history_late(line: Line) -> None:
    await line.connection.send_content(text("a"))
    await line.connection.send_history([text("a")], answer=False)


async def _history_to_answer(line: Line) -> None:
    await line.connection.send_history([Content(role="model", parts=[Part(text="a")])], answer=True)


async def _words_of_the_model(line: Line) -> None:
    await line.connection.send_content(Content(role="model", parts=[Part(text="a")]))


async def _words_and_responses(line: Line) -> None:
    parts = [*result("call-1").parts, Part(text="so")]
    await line.connection.send_content(Content(role="user", parts=parts))


async def _unknown_call(line: Line) -> None:
    await line.connection.send_content(result("call-9"))


async def _other_tool(line: Line) -> None:
    await line.connection.send_content(text("a"))
    await line.quiet()
    await line.connection.send_content(result("call-1", name="listen"))


async def _signal_without_being_asked(line: Line) -> None:
    await line.connection.send_realtime(ActivityStart())


async def _other_rate(line: Line) -> None:
    await line.connection.send_realtime(sound(20, 8000))


async def _half_a_sample(line: Line) -> None:
    await line.connection.send_realtime(Blob(data=b"\0\0\0", mime_type="audio/pcm"))


async def _two_senders(line: Line) -> None:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.connection.send_content, text("a"))
            nursery.start_soon(line.connection.send_content, text("b"))
    except ExceptionGroup as group:
        (error,) = group.exceptions
        raise error from None


async def _received_twice(line: Line) -> None:
    async for _ in line.connection.receive():
        pass


@both
@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (_history_late, "the first thing"),
        (_history_to_answer, "end with the user's"),
        (_words_of_the_model, "belongs into a history"),
        (_words_and_responses, "send two contents"),
        (_unknown_call, "'call-9'"),
        (_other_tool, "the name 'look'"),
        (_signal_without_being_asked, "automatic_activity_detection"),
        (_other_rate, "input_rate"),
        (_half_a_sample, "two bytes"),
        (_two_senders, "one task"),
        (_received_twice, "once"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
async def test_what_a_server_would_refuse(
    refused: Callable[[Line], Any], words: str, dialect: DialectName, autojump_clock: trio.abc.Clock
) -> None:
    """It raises ScriptError, which no hook can swallow."""
    async with conversation(ScriptedLive([call("look"), "b"], dialect=dialect)) as line:
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ScriptError, match=words):
            await refused(line)


async def test_a_call_takes_one_response(autojump_clock: trio.abc.Clock) -> None:
    """A second one is refused."""
    for dialect in DIALECTS:
        live = ScriptedLive([call("look"), "seen"], dialect=dialect)
        async with conversation(live) as line:
            await line.connection.send_content(text("a"))
            await line.quiet()
            await line.connection.send_content(result("call-1", n=1))
            with pytest.raises(ScriptError, match="another one"):
                await line.connection.send_content(result("call-1", n=2))
        assert [sent.kind for sent in live.sent].count("responses") == 1


async def test_a_withdrawn_call_takes_no_response(autojump_clock: trio.abc.Clock) -> None:
    """Once the client knows; the other calls do."""
    live = ScriptedLive([[call("look"), call("look"), pause(1), cancel_calls("call-1")], "seen"])
    async with conversation(live) as line:
        await line.connection.send_content(text("a"))
        assert (await line.quiet())[-1] == "cancelled call-1"
        with pytest.raises(ScriptError, match="withdrawn"):
            await line.connection.send_content(result("call-1"))
        await line.connection.send_content(result("call-2"))
        assert ">seen" in await line.quiet()


async def test_a_response_may_cross_with_the_withdrawal_of_its_call(autojump_clock: trio.abc.Clock) -> None:
    """What the client learns after it has begun to send is no fault of it: the response is of no effect."""
    live = ScriptedLive([[call("look"), call("look")], "seen"])
    async with conversation(live) as line:
        await line.connection.send_content(text("a"))
        await line.quiet()
        session, crossing = live.connections[0].conversation, result("call-1").responses
        known = session.known()
        session.withdraw(["call-1"])
        session.check_responses(crossing, known, None)
        assert not session.answered(crossing, None)
        with pytest.raises(ScriptError, match="withdrawn"):
            await line.connection.send_content(result("call-1"))
        await line.connection.send_content(result("call-2"))
        assert ">seen" in await line.quiet()


async def test_openai_truncates_what_was_sent(autojump_clock: trio.abc.Clock) -> None:
    """From 1 ms up to as much as was sent of an item with sound."""
    async with conversation(ScriptedLive(["one two"], dialect="openai")) as line:
        await line.connection.send_content(text("a"))
        await line.quiet()
        for item_id, played_ms in (("answer-1", 0), ("answer-1", 501), ("answer-2", 1)):
            with pytest.raises(ScriptError, match="expected"):
                await line.connection.truncate(item_id, played_ms)
        await line.connection.truncate("answer-1", 500)
        await line.connection.truncate("answer-1", 1)
    async with conversation(ScriptedLive([])) as line:
        await line.connection.truncate("answer-1", 0)  # Gemini knows by itself what was played


@both
async def test_the_clients_signals_come_in_turns(dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """A start, then an end; and the end of the sound is the server's to hear, or the client's."""
    live = ScriptedLive([[hear("go"), "one"]], dialect=dialect)
    async with conversation(live, asked(realtime_input_config=MANUAL)) as line:
        with pytest.raises(ScriptError, match="in turns"):
            await line.connection.send_realtime(ActivityEnd())
        await line.connection.send_realtime(ActivityStart())
        with pytest.raises(ScriptError, match="in turns"):
            await line.connection.send_realtime(ActivityStart())
        with pytest.raises(ScriptError, match="send ActivityEnd"):
            await line.connection.send_realtime(AudioStreamEnd())
        await line.connection.send_realtime(ActivityEnd())
        assert (await line.quiet())[0] == "<go"


@pytest.mark.parametrize("step", [go_away(1), handle("h1"), cancel_calls()], ids=lambda step: type(step).__name__)
async def test_openais_dialect_lacks_what_openai_lacks(step: Any, autojump_clock: trio.abc.Clock) -> None:
    """Handles, withdrawn calls and announced ends are refused by name, in a list and from a function."""
    with pytest.raises(ScriptError, match="dialect='gemini'"):
        ScriptedLive([[step]], dialect="openai")
    async with conversation(ScriptedLive(lambda sent: step, dialect="openai")) as line:
        with pytest.raises(ScriptError, match="dialect='gemini'"):
            await line.connection.send_content(text("a"))


# --- the script -------------------------------------------------------------------------------------------------------


async def test_a_script_may_be_a_function(autojump_clock: trio.abc.Clock) -> None:
    """It is given what is owed an answer, and may give none."""
    seen: list[str] = []

    def answer(sent: LiveSent) -> Any:
        seen.append(sent.kind)
        return None if sent.text == "nothing" else f"you said {sent.text}"

    async with conversation(ScriptedLive(answer), asked(response_modalities=["TEXT"])) as line:
        await line.connection.send_history([text("a"), text("hello")], answer=True)
        assert (await line.quiet())[:3] == ["you ", "said ", "hello"]
        await line.connection.send_content(text("nothing"))
        await line.connection.send_content(text("part"), turn_complete=False)
        await line.connection.send_realtime(sound(20, 16000, silent=True))
        assert await line.quiet() == []
    assert seen == ["history", "content"]


async def test_the_script_is_asked_for_exactly(autojump_clock: trio.abc.Clock) -> None:
    """One question too many is an error, and so is an entry that is left over; `restart` begins again."""
    live = ScriptedLive(["one"])
    for _ in range(2):
        with pytest.raises(ScriptError, match="left over"):
            live.assert_done()
        async with conversation(live) as line:
            await line.connection.send_content(text("a"))
            live.assert_done()
            with pytest.raises(ScriptError, match="one more: content 'b'"):
                await line.connection.send_content(text("b"))
        live.restart()
    assert (live.sent, live.requests) == ([], [])


async def test_it_answers_requests_by_another_model(autojump_clock: trio.abc.Clock) -> None:
    """`text` serves them; without it they are refused."""
    request = LlmRequest(contents=[text("a")])
    async with aclosing(ScriptedLive([], text=ScriptedLlm(["b"])).generate_content_async(request)) as responses:
        assert [told(response) async for response in responses] == ["b"]
    with pytest.raises(NotSupportedError, match="text="):
        async with aclosing(ScriptedLive([]).generate_content_async(request)) as responses:
            await anext(responses)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"script": "one"}, "list of entries"),
        ({"script": [], "dialect": "azure"}, "'gemini', 'openai'"),
        ({"script": [], "dialect": "openai", "handles": ["h"]}, "no handles"),
        ({"script": [], "word_ms": 0}, "word_ms"),
        ({"script": [], "in_flight": True}, "in_flight"),
        ({"script": [], "silence_ms": float("nan")}, "silence_ms"),
        ({"script": [], "handle_s": -1}, "handle_s"),
    ],
)
def test_what_it_is_made_of(arguments: dict[str, Any], words: str) -> None:
    """A script that is a text, another provider, handles where there are none, and odd numbers are refused."""
    with pytest.raises(ConfigurationError, match=words):
        ScriptedLive(**arguments)


@pytest.mark.parametrize("make", [lambda: pause(-1), lambda: go_away(float("nan")), lambda: ScriptedLive([[3]])])  # type: ignore[list-item]
def test_what_a_script_is_made_of(make: Callable[[], object]) -> None:
    """Times are from 0 up, and an entry has steps that are known."""
    with pytest.raises(ScriptError, match="expected"):
        make()
