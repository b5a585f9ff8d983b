"""
The contract of live connections: the scripted one keeps it in both dialects, and what breaks it is named.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from minirun.errors import ModelConnectionError
from minirun.models import BaseLlmConnection, LlmRequest, LlmResponse
from minirun.models._live import Realtime
from minirun.testing import LiveSent, ScriptedLive, drop, pause, say
from minirun.types import Content, FunctionCall, FunctionDeclaration, Part

from ..contracts.live_contract import LiveBench, check_live_connection, live_connection_checks


class ScriptedBench(LiveBench):
    """A ScriptedLive that is told from one answer to the next what to do."""

    def __init__(self, dialect: Any, kind: type[ScriptedLive] = ScriptedLive) -> None:
        self.entries: list[Any] = []
        super().__init__(kind(self._entry, dialect=dialect))

    def _entry(self, sent: LiveSent) -> Any:
        assert self.entries, f"nothing is to be said to {sent}"
        return self.entries.pop(0)

    def says(self, text: str) -> None:
        self.entries.append(say(text))

    def calls(self, *ids: str) -> None:
        calls = (FunctionCall(name="look", args={"where": id}, id=id) for id in ids)
        self.entries.append([Part(function_call=each) for each in calls])

    def goes_on(self) -> None:
        self.entries.append([say("on and on"), pause(1e6), say("and on")])

    def hangs_up(self, *, in_order: bool) -> None:
        self.entries.append(drop(1000 if in_order else 1006))


@pytest.mark.parametrize("dialect", ["gemini", "openai"])
@pytest.mark.parametrize("check", live_connection_checks().values(), ids=live_connection_checks())
async def test_it_keeps_the_contract(check: Any, dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """A scripted connection promises what every live connection does."""
    await check(lambda: ScriptedBench(dialect))


class Wrapped(BaseLlmConnection):
    """A connection that hands everything on to another one; subclasses make one mistake."""

    def __init__(self, inner: BaseLlmConnection) -> None:
        self.inner = inner
        self.capabilities = inner.capabilities

    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        await self.inner.send_history(contents, answer=answer)

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        await self.inner.send_content(content, turn_complete=turn_complete, id=id)

    async def send_realtime(self, data: Realtime) -> None:
        await self.inner.send_realtime(data)

    async def cancel(self) -> None:
        await self.inner.cancel()

    async def truncate(self, item_id: str, played_ms: int) -> None:
        await self.inner.truncate(item_id, played_ms)

    async def update(self, system_instruction: str | None, tools: Sequence[FunctionDeclaration]) -> None:
        await self.inner.update(system_instruction, tools)

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        async with aclosing(self.inner.receive()) as responses:
            async for response in responses:
                for changed in self.changed(response):
                    yield changed

    def changed(self, response: LlmResponse) -> list[LlmResponse]:
        return [response]

    async def aclose(self) -> None:
        await self.inner.aclose()


class OverTwice(Wrapped):
    def changed(self, response: LlmResponse) -> list[LlmResponse]:
        return [response] * 2 if response.turn_complete else [response]


class Nameless(Wrapped):
    def changed(self, response: LlmResponse) -> list[LlmResponse]:
        return [attrs.evolve(response, item_id=None)]


class OtherRate(Wrapped):
    def __init__(self, inner: BaseLlmConnection) -> None:
        super().__init__(inner)
        self.capabilities = attrs.evolve(inner.capabilities, output_rate=8000)


class Eager(Wrapped):
    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        await self.inner.send_content(content)


class Deaf(Wrapped):
    async def cancel(self) -> None:
        await trio.lowlevel.checkpoint()


class Forgetful(Wrapped):
    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        await self.inner.send_history(contents, answer=False)


class Mute(Wrapped):
    async def send_realtime(self, data: Realtime) -> None:
        await trio.lowlevel.checkpoint()


class Patient(Wrapped):
    """Its `receive` does not end when it is closed."""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Raising(Wrapped):
    """Its `receive` takes every end for an error."""

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        async with aclosing(self.inner.receive()) as responses:
            async for response in responses:
                yield response
        raise ModelConnectionError("over")


class Swallowing(Wrapped):
    """It says nothing of what it could not send."""

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        try:
            await self.inner.send_content(content, turn_complete=turn_complete, id=id)
        except ModelConnectionError:
            return


class Scoped(Wrapped):
    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        with trio.CancelScope():
            async with aclosing(self.inner.receive()) as responses:
                async for response in responses:
                    yield response  # that is the mistake


class Uncancellable(Wrapped):
    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        responses = self.inner.receive()
        while True:
            with trio.CancelScope(shield=True):
                response = await anext(responses, None)
            if response is None:
                return
            yield response


@pytest.mark.parametrize(
    ("mistake", "promise"),
    [
        (OverTwice, "an answer comes in pieces and is over once"),
        (Nameless, "pieces of one answer have one item"),
        (OtherRate, "sound is pcm of its rate"),
        (Eager, "nobody answers what is not complete"),
        (Deaf, "an answer can be cancelled"),
        (Forgetful, "history is taken"),
        (Mute, "the client may detect the voice"),
        (Patient, "it closes at any time"),
        (Raising, "it closes at any time"),
        (Swallowing, "nothing is sent after closing"),
        (Scoped, "an answer comes in pieces and is over once"),
        (Uncancellable, "it may be cancelled anywhere"),
    ],
)
async def test_a_connection_that_breaks_the_contract_is_named(
    mistake: type[Wrapped], promise: str, autojump_clock: trio.abc.Clock
) -> None:
    """Each promise that a connection can break is found broken, and a note names it."""

    class Broken(ScriptedLive):
        @asynccontextmanager
        async def connect(self, request: LlmRequest) -> AsyncIterator[Any]:
            async with super().connect(request) as connection:
                yield mistake(connection)

    with pytest.raises((AssertionError, trio.TooSlowError)) as caught:
        await check_live_connection(lambda: ScriptedBench("openai", Broken))
    assert caught.value.__notes__ == [f"this breaks the live connection's promise: {promise}"]
