"""What a stranger has tried to break live runs with: odd servers, odd callers, odd stores. Each has broken one once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import RunConfig
from minirun.agents import LiveRequest
from minirun.errors import (
    IdleTimeoutError,
    InvalidMessageError,
    ModelConnectionError,
    ModelError,
    ModelRequestError,
)
from minirun.models import BaseLlm, BaseLlmConnection, LlmRequest, LlmResponse
from minirun.models._live import Realtime
from minirun.testing import ScriptedLive, call, drop, handle, pause, say
from minirun.testing._live_dialects import DialectName
from minirun.types import Blob, Content, FunctionResponse, Part, Transcription

from ..live_client import both, conversing, is_sound, lines, new_runner, sent_of, stored

Server = Callable[["Line"], AsyncGenerator[LlmResponse, None]]


class Line(BaseLlmConnection):
    """A connection to a server that is a generator; it counts what it is sent, by the names of the methods."""

    def __init__(self, number: int, server: Server) -> None:
        self.number = number
        self.sent: list[str] = []
        self._server = server
        self._news = trio.Event()

    async def asked(self, times: int = 1) -> None:
        """Wait for so many contents."""
        while self.sent.count("content") < times:
            await self._news.wait()

    async def _note(self, what: str) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(what)
        self._news.set()
        self._news = trio.Event()

    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        """Count it; a history that is to be answered as a content."""
        await self._note("content" if answer else "history")

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        """Count it."""
        await self._note("responses" if content.responses else "content")

    async def send_realtime(self, data: Realtime) -> None:
        """Count it."""
        await self._note("realtime")

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        """Say what the server says."""
        async for response in self._server(self):
            yield response

    async def aclose(self) -> None:
        """Close it."""
        await trio.lowlevel.checkpoint()


class Odd(BaseLlm):
    """A model whose server does what it likes."""

    def __init__(self, server: Server, line: type[Line] = Line) -> None:
        self.name = "odd"
        self.lines: list[Line] = []
        self._server, self._line = server, line

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer in writing."""
        yield LlmResponse(content=Content(role="model", parts=[Part(text="written")]), turn_complete=True)

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncIterator[Line]:
        """Open a connection; it is closed at the end of the block."""
        line = self._line(len(self.lines) + 1, self._server)
        self.lines.append(line)
        try:
            yield line
        finally:
            await line.aclose()


def piece(text: str) -> LlmResponse:
    """A piece of an answer."""
    return LlmResponse(content=Content(role="model", parts=[Part(text=text)]), partial=True, item_id="item")


OVER = LlmResponse(turn_complete=True, item_id="item")


# --- connections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_old", [False, True], ids=["refused", "too old"])
async def test_a_handle_that_is_refused_is_followed_by_a_new_session(is_old: bool, autojump_clock: MockClock) -> None:
    """A server that does not know its own handle any more is told the history, and the conversation goes on."""
    refused: list[Any] = [] if is_old else [[], [ModelRequestError("no such session", status=400)]]
    model = ScriptedLive([[handle("h1"), say("one")], say("two")], on_connect=refused, handle_s=10)
    async with new_runner(model) as runner, conversing(runner) as client:
        await client.ask("hi")
        await trio.sleep(20 * is_old)
        model.play(drop(1006))
        await client.until(lambda event: event.live and event.live.get("reason") == "lost")
        await client.ask("again")
    assert client.failure is None
    assert lines(client.events) == ["user: hi", "root: one", "user: again", "root: two"]
    (history,) = sent_of(model, "history")
    assert [content.text for content in history.contents] == ["hi", "one"]


async def goes_away(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Say at once that the connection ends at once."""
    yield LlmResponse(go_away_s=0)
    await trio.sleep_forever()


async def is_over_at_once(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Say that an answer is over, and end."""
    yield OVER


async def hears_and_breaks(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Understand a word, and break."""
    yield LlmResponse(input_transcription=Transcription(text="oh"))
    raise ModelConnectionError("it broke")


async def speaks_and_breaks(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Say a word, and break."""
    yield piece("oh")
    raise ModelConnectionError("it broke")


@pytest.mark.parametrize("server", [goes_away, is_over_at_once, hears_and_breaks, speaks_and_breaks])
async def test_connections_that_end_at_once_again_and_again_end_the_run(
    server: Server, autojump_clock: MockClock
) -> None:
    """Some are made anew at once; then it is a failure, whatever was said over them, and nobody connects for ever."""
    model = Odd(server)
    async with new_runner(model) as runner:
        with pytest.raises(ModelConnectionError):
            async with runner.run_live(user_id="u", session_id="s") as live:
                async for _ in live:
                    pass
    assert 2 < len(model.lines) < 10


async def hears_a_word_a_minute(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Last for a minute, in which nobody says anything; the fourth connection goes on."""
    if line.number < 4:
        await trio.sleep(60)
        return
    await line.asked()
    yield piece("here")
    yield OVER
    await trio.sleep_forever()


async def test_a_connection_that_was_silent_for_long_is_made_anew(autojump_clock: MockClock) -> None:
    """A server may end connections over which nobody says anything: they were no failures."""
    model = Odd(hears_a_word_a_minute)
    async with new_runner(model) as runner, conversing(runner) as client:
        await trio.sleep(200)
        await client.ask("hi")
    assert client.failure is None
    assert lines(client.events) == ["user: hi", "root: here"]


class NeverClosed(Line):
    """A connection whose closing hangs."""

    async def aclose(self) -> None:
        """Hang."""
        await trio.sleep_forever()


class BrokenClosing(Line):
    """A connection that cannot say farewell any more."""

    async def aclose(self) -> None:
        """Fail."""
        raise ModelConnectionError("it is gone already")


async def answers_once(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Answer a content, and break."""
    await line.asked()
    yield piece("yes")
    yield OVER
    raise ModelConnectionError("it broke")


@pytest.mark.parametrize("line", [NeverClosed, BrokenClosing])
async def test_a_connection_that_cannot_be_closed_costs_nothing(line: type[Line], autojump_clock: MockClock) -> None:
    """Whether closing a connection hangs or fails: the next one is opened, and the run comes to its end."""
    async with new_runner(Odd(answers_once, line)) as runner:
        with trio.fail_after(100):
            async with conversing(runner) as client:
                await client.ask("a")
                await client.ask("b")
        assert lines(await stored(runner)) == ["user: a", "root: yes", "user: b", "root: yes"]
    assert client.failure is None


# --- closing ----------------------------------------------------------------------------------------------------------


class NeverThere(Odd):
    """A model that nobody gets a connection to."""

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncIterator[Line]:
        """Hang."""
        await trio.sleep_forever()
        yield Line(1, self._server)


class Stuck(Line):
    """A connection that takes nothing."""

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        """Hang."""
        await trio.sleep_forever()


async def says_nothing(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Say nothing."""
    await trio.sleep_forever()
    yield OVER


@pytest.mark.parametrize("model", [NeverThere(says_nothing), Odd(says_nothing, Stuck)], ids=["connect", "send"])
async def test_closing_waits_for_nothing_that_is_stuck(model: Odd, autojump_clock: MockClock) -> None:
    """`finish_turn_s` ends what hangs, too: there is no connection yet, or it takes nothing."""
    async with new_runner(model) as runner:
        began = trio.current_time()
        async with runner.run_live(user_id="u", session_id="s", run_config=RunConfig(idle_s=None)) as live:
            await live.send_text("hi")
            await live.aclose(finish_turn_s=3)
            with trio.fail_after(100):
                async for _ in live:
                    pass
        assert trio.current_time() - began < 5
        assert live.status.value == "completed"


@both
async def test_what_was_sent_before_closing_is_answered_to_a_slow_caller(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """What is sent, and then closed, while the caller is behind with reading, is answered as well."""
    model = ScriptedLive([say("A"), say("B")], dialect=dialect)
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s") as live:
            await live.send_text("a")
            async for event in live:
                if is_sound(event) and not live.answer and len(model.sent) < 4:
                    await live.send_text("b")
                    await live.aclose()
                    await trio.sleep(3)
        log = lines(await stored(runner))
    assert log[-1] == "root: B"
    model.assert_done()


async def speaks_and_falls_silent(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Begin an answer, and say nothing more."""
    yield piece("well")
    await trio.sleep_forever()


async def test_a_server_that_falls_silent_in_an_answer_is_not_waited_for_for_ever(autojump_clock: MockClock) -> None:
    """An answer that does not go on is silence like any other: `idle_s` ends the run, with what was heard of it."""
    async with new_runner(Odd(speaks_and_falls_silent)) as runner:
        with pytest.raises(IdleTimeoutError), trio.fail_after(1000):
            async with runner.run_live(user_id="u", session_id="s", run_config=RunConfig(idle_s=60)) as live:
                async for _ in live:
                    pass
        assert lines(await stored(runner)) == ["root: well -", "root: !IdleTimeoutError"]




# --- what is said -----------------------------------------------------------------------------------------------------


async def says_more_afterwards(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Go on with the transcript of an answer that is over."""
    await line.asked()
    yield piece("hello ")
    yield OVER
    yield LlmResponse(output_transcription=Transcription(text="world"), item_id="item")
    await trio.sleep_forever()


async def test_what_comes_of_an_answer_that_is_over_begins_no_other_one(autojump_clock: MockClock) -> None:
    """A piece that is late begins no answer, for whose end closing would wait."""
    async with new_runner(Odd(says_more_afterwards)) as runner:
        async with conversing(runner) as client:
            await client.ask("hi")
            await trio.sleep(1)
            began = trio.current_time()
        assert trio.current_time() - began < 1
        assert lines(await stored(runner)) == ["user: hi", "root: hello"]


async def sounds_odd(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Say something of no samples a second, which is no whole number of samples either."""
    await line.asked()
    sound = Part(inline_data=Blob(data=b"abc", mime_type="audio/pcm;rate=0"))
    yield LlmResponse(content=Content(role="model", parts=[sound]), partial=True, item_id="item")
    yield OVER
    await trio.sleep_forever()


async def test_sound_of_no_rate_is_of_the_rate_of_the_connection(autojump_clock: MockClock) -> None:
    """A server that tells an impossible rate is taken to mean its usual one."""
    async with new_runner(Odd(sounds_odd)) as runner, conversing(runner) as client:
        await client.ask("hi")
    assert client.failure is None


async def fails_always(line: Line) -> AsyncGenerator[LlmResponse, None]:
    """Tell of errors without an end."""
    while True:
        await trio.sleep(0.01)
        yield LlmResponse(error_code="BROKEN", error_message="no")


async def test_errors_without_an_end_end_the_run(autojump_clock: MockClock) -> None:
    """A server that fails again and again does not fill the log: that is a failure of the run."""
    async with new_runner(Odd(fails_always)) as runner:
        with pytest.raises(ModelError, match="BROKEN"):
            async with runner.run_live(user_id="u", session_id="s", run_config=RunConfig(idle_s=None)) as live:
                await live.send_text("hi")
                async for _ in live:
                    pass
        assert len(await stored(runner)) < 200


async def slow() -> str:
    """Take twenty seconds."""
    await trio.sleep(20)
    return "done"


@both
async def test_an_answer_is_interrupted_while_a_call_is_made(dialect: DialectName, autojump_clock: MockClock) -> None:
    """`interrupt` stops what the model says beside a call, and the call goes on."""
    model = ScriptedLive([[call("slow")], say("so")], dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner, conversing(runner) as client:
        await client.live.send_text("do it")
        await client.until(lambda event: event.get_function_calls())
        model.play(say("one moment please"), pause(10), say("more"))
        await client.until(is_sound)
        await client.live.interrupt()
        with trio.fail_after(1):
            cut = await client.until(lambda event: event.interrupted and not event.partial)
        await client.until(lambda event: event.turn_complete and not event.partial)
    assert "more" not in cut.text
    assert lines(client.events)[-2:] == ["root: slow=done", "root: so"]


def test_an_answer_to_a_question_comes_alone() -> None:
    """What would have no effect beside it is refused, before anything is sent."""
    response = Part(function_response=FunctionResponse(id="q", name="adk_request_confirmation", response={}))
    for also in ({"partial": True}, {"state_delta": {"a": 1}}):
        with pytest.raises(InvalidMessageError):
            LiveRequest(content=Content(role="user", parts=[response]), **also)
