"""What the checks of a live connection stand on: a bench with the other side, and a line with all that was received."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import trio

from minirun.errors import ModelError
from minirun.models import (
    BaseLlm,
    BaseLlmConnection,
    LiveConnectConfig,
    LlmRequest,
    LlmResponse,
)
from minirun.testing._llm_contract import next_response
from minirun.types import (
    Blob,
    Content,
    FunctionCall,
    FunctionDeclaration,
    FunctionResponse,
    GenerateContentConfig,
    Part,
)

__all__ = [
    "HISTORY", "MANUAL", "TOOL", "Line", "LiveBench", "is_piece", "opened", "refused", "results", "says", "sound",
    "spoken",
]

TOOL = FunctionDeclaration(
    name="look", description="Look.", parameters={"type": "object", "properties": {"where": {"type": "string"}}}
)
MANUAL = {"automatic_activity_detection": {"disabled": True}}


class LiveBench(ABC):
    """
    A live model under test, and the other side of its connections.

    The methods say what the server is to do for the next thing that is owed an answer; called several times, for the
    next ones, in this order, on whichever connection they come. A server that is to answer and was not told what fails
    the check, by any exception.
    """

    def __init__(self, model: BaseLlm) -> None:
        self.model = model

    @abstractmethod
    def says(self, text: str) -> None:
        """The server answers with *text*, in two pieces or more: sound and its transcript."""

    @abstractmethod
    def calls(self, *ids: str) -> None:
        """The server calls the tool `look` once for each id, with the arguments `{"where": id}` and this id."""

    @abstractmethod
    def goes_on(self) -> None:
        """The server says some words, none of them "one", and comes to no end unless it is interrupted."""

    @abstractmethod
    def hangs_up(self, *, in_order: bool) -> None:
        """The server closes the connection: *in_order* (1000), or as if the network were gone."""

    def request(self, **live: Any) -> LlmRequest:
        """What a connection is asked for; *live* are fields of its LiveConnectConfig."""
        config = GenerateContentConfig(system_instruction="Be brief.", tools=[TOOL])
        return LlmRequest(contents=(), config=config, model=self.model.model, live=LiveConnectConfig(**live))


class Line:
    """A connection, and all that was received on it so far."""

    def __init__(self, connection: BaseLlmConnection) -> None:
        self.connection = connection
        self.responses: list[LlmResponse] = []
        self.error: Exception | None = None
        self.ended = False
        self._more = trio.Event()

    async def receive(self) -> None:
        """Receive until the connection ends, each step in a cancel scope of its own, as a run may have it."""
        try:
            async with aclosing(self.connection.receive()) as responses:
                while (response := await next_response(responses, "`receive`")) is not None:
                    self.responses.append(response)
                    self._wake_up()
        except ModelError as error:
            self.error = error
        self.ended = True
        self._wake_up()

    def _wake_up(self) -> None:
        self._more.set()
        self._more = trio.Event()

    async def until(self, what: str, found: Callable[[], object]) -> None:
        """Wait until *found* is true, which it has to become before the connection ends."""
        while not found():
            if self.ended:
                raise AssertionError(f"expected {what} before the connection ends, found {self.error or 'its end'!r}")
            await self._more.wait()

    async def end(self) -> None:
        """Wait until there is nothing more to receive."""
        while not self.ended:
            await self._more.wait()

    async def turns(self, count: int) -> None:
        """Wait until so many turns are over."""
        await self.until(f"turn {count} to be over", lambda: self.count("turn_complete") >= count)

    def count(self, field: str) -> int:
        """How many responses have this field."""
        return sum(bool(getattr(response, field)) for response in self.responses)

    def said(self) -> str:
        """What was said so far, as text."""
        return "".join(map(spoken, self.responses))

    def answers(self) -> list[str]:
        """What was said in each turn that is over, as text."""
        found, text = [], ""
        for response in self.responses:
            text += spoken(response)
            if response.turn_complete:
                found.append(text)
                text = ""
        return found

    def calls(self) -> list[FunctionCall]:
        """The calls so far."""
        return [call for response in self.responses if response.content for call in response.content.calls]


def spoken(response: LlmResponse) -> str:
    """The text of a piece of an answer."""
    transcript = response.output_transcription
    text = (transcript.text or "") if transcript is not None else ""
    return text + (response.content.text if response.content is not None else "")


def is_piece(response: LlmResponse) -> bool:
    """Whether it is a piece of an answer: text, sound or transcript."""
    return bool(response.content is not None and response.partial) or response.output_transcription is not None


@asynccontextmanager
async def opened(bench: LiveBench, **live: Any) -> AsyncIterator[Line]:
    """A connection that is received from as long as the block lasts."""
    async with trio.open_nursery() as nursery:
        async with bench.model.connect(bench.request(**live)) as connection:
            line = Line(connection)
            nursery.start_soon(line.receive)
            yield line
        await line.end()


def says(text: str) -> Content:
    return Content(role="user", parts=[Part(text=text)])


def results(*ids: str) -> Content:
    answers = (FunctionResponse(id=id, name="look", response={"seen": id}) for id in ids)
    return Content(role="user", parts=[Part(function_response=answer) for answer in answers])


def sound(line: Line, ms: int = 20, sample: bytes = b"\0\0") -> Blob:
    """A chunk of sound of the rate that the connection takes."""
    rate = line.connection.capabilities.input_rate
    return Blob(data=sample * (rate * ms // 1000), mime_type=f"audio/pcm;rate={rate}")


HISTORY = (
    Content(role="user", parts=[Part(text="hello")]),
    Content(role="model", parts=[Part(text="Hello. "), Part(function_call=FunctionCall(id="old", name="look"))]),
    Content(role="user", parts=[Part(function_response=FunctionResponse(id="old", name="look"))]),
    Content(role="model", parts=[Part(text="I see.")]),
    Content(
        role="user",
        parts=[Part(text="And this?"), Part(inline_data=Blob(data=b"\x89PNG", mime_type="image/png"))],
    ),
)


async def refused(what: str, send: Callable[[], Awaitable[None]]) -> None:
    """Sending raises a ModelError."""
    try:
        await send()
    except ModelError:
        return
    raise AssertionError(f"{what} on a connection that is over: expected a ModelError, found no error")
