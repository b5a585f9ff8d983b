"""A live model that follows a script behaves as the two providers do, and refuses what they would refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio

from minirun.models import (
    BaseLlmConnection,
    LiveConnectConfig,
    LlmRequest,
    LlmResponse,
)
from minirun.testing import (
    LiveBench,
    ScriptedLive,
    drop,
    live_connection_checks,
    pause,
    say,
    usage,
)
from minirun.types import Blob, Content, FunctionCall, FunctionResponse, Part

DIALECTS = ("gemini", "openai")
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
        self.error: Exception | None = None
        self.ended = False

    @property
    def told(self) -> list[str]:
        return [told(response) for response in self.responses]

    async def receive(self) -> None:
        try:
            async with aclosing(self.connection.receive()) as responses:
                async for response in responses:
                    self.responses.append(response)
        except Exception as problem:
            self.error = problem
        self.ended = True

    async def until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            await trio.sleep(0.01)

    async def quiet(self) -> list[str]:
        """Let everything be said that is on its way, and return it."""
        seen = self.told
        await trio.sleep(100)
        return self.told[len(seen) :]


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
    assert said == ["12000b", ">one ", "12000b", ">two", "generation_complete", "turn_complete"]


async def test_openai_says_an_answer_as_openai_does(autojump_clock: trio.abc.Clock) -> None:
    """Words come before their sound, the transcript is closed, and the turn ends when the answer is made."""
    async with conversation(ScriptedLive([["one two", usage(3, 4)]], dialect="openai")) as line:
        await line.connection.send_content(text("count"))
        said = await line.quiet()
    assert said == [">one ", "12000b", ">two", "12000b", ">.", "generation_complete turn_complete usage 7"]


# --- the contract -----------------------------------------------------------------------------------------------------


class ScriptedBench(LiveBench):
    """A ScriptedLive that is told from one answer to the next what to do."""

    def __init__(self, dialect: Any) -> None:
        self.entries: list[Any] = []
        super().__init__(ScriptedLive(lambda sent: self.entries.pop(0), dialect=dialect))

    def says(self, text: str) -> None:
        self.entries.append(say(text))

    def calls(self, *ids: str) -> None:
        calls = (FunctionCall(name="look", args={"where": id}, id=id) for id in ids)
        self.entries.append([Part(function_call=each) for each in calls])

    def goes_on(self) -> None:
        self.entries.append([say("on and on"), pause(1e6), say("and on")])

    def hangs_up(self, *, in_order: bool) -> None:
        self.entries.append(drop(1000 if in_order else 1006))


@both
@pytest.mark.parametrize("check", live_connection_checks().values(), ids=live_connection_checks())
async def test_it_keeps_the_contract(check: Any, dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """A scripted connection promises what every live connection does."""
    await check(lambda: ScriptedBench(dialect))
