"""Leaving a live run ends all that it has begun, whatever it is doing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun.errors import StorageError
from minirun.models import BaseLlm, BaseLlmConnection, LlmRequest, LlmResponse
from minirun.sessions import InvocationStatus
from minirun.testing import ScriptedLive, hear, pause, say
from minirun.types import Blob, Content, Part

from ..live_client import both, is_over, lines, new_runner, stored

SECOND = Part(inline_data=Blob(data=b"\1\0" * 24_000, mime_type="audio/pcm;rate=24000"))


class Endless(BaseLlm):
    """A model that does not stop to talk, and notes what is over."""

    name = "endless"

    def __init__(self) -> None:
        self.over: list[str] = []
        self.said = 0

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncGenerator[EndlessConnection, None]:
        try:
            yield EndlessConnection(self)
        finally:
            self.over.append("connection")

    def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        raise NotImplementedError


class EndlessConnection(BaseLlmConnection):
    """Its connection."""

    def __init__(self, model: Endless) -> None:
        self.model = model

    async def send_history(self, contents: Any, *, answer: bool) -> None:
        await trio.lowlevel.checkpoint()

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        await trio.lowlevel.checkpoint()

    async def send_realtime(self, data: Any) -> None:
        await trio.lowlevel.checkpoint()

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        try:
            while True:
                await trio.lowlevel.checkpoint()
                self.model.said += 1
                yield LlmResponse(content=Content(role="model", parts=[SECOND]), partial=True)
        finally:
            self.model.over.append("receive")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_caller_that_does_not_read_holds_the_server_back_and_may_leave(autojump_clock: MockClock) -> None:
    """A few pieces wait in memory; `receive` is closed then and there, not by the garbage collector."""
    model = Endless()
    async with new_runner(model) as runner, runner.run_live(user_id="u", session_id="s") as live:
        async for event in live:
            if event.audio:
                await trio.sleep(100)
                assert model.said < 30
                break
    assert sorted(model.over) == ["connection", "receive"]


@both
async def test_who_leaves_is_told_that_the_rest_could_not_be_stored(
    dialect: Any, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that was cut off by leaving meets a store that fails: that ends the run, and is not passed over."""

    async def fail(*arguments: object, **options: object) -> None:
        raise StorageError("the disk is gone")

    model = ScriptedLive([[say("one two"), pause(60)]], dialect=dialect)
    async with new_runner(model) as runner:
        with pytest.raises(StorageError, match="the disk is gone"):
            async with runner.run_live(user_id="u", session_id="s") as live:
                await live.send_text("count")
                async for event in live:
                    if event.output_transcription:
                        monkeypatch.setattr(runner.session_service, "commit_event", fail)
                        break
        assert live.status is InvocationStatus.FAILED
        assert all(event.output_transcription is None for event in await stored(runner))


@both
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "closes"])
async def test_what_was_understood_behind_a_slow_caller_is_stored(
    dialect: Any, leaves: bool, autojump_clock: MockClock
) -> None:
    """The text of what the user has said has come, and waits for a caller that leaves, or takes until time is over."""
    model = ScriptedLive([say("Hello.")], dialect=dialect)
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s") as live:
            await live.send_text("hi")
            async for event in live:
                if is_over(event):
                    model.play(hear("so long"), say("Bye."))
                    await live.aclose(finish_turn_s=1)
                    await trio.sleep(5)
                    if leaves:
                        break
        log = lines(await stored(runner))
    assert log == ["user: hi", "root: Hello.", "user: so long"]
