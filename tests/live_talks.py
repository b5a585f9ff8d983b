"""
Carrying out a planned live conversation (`live_plans.py`): a scripted server, a line that is listened to, a client.

What was said on the line, what the client has seen and done, and how it has ended are written into a `Book`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import attrs
import trio

from minirun import Event, LlmAgent, RunConfig, Runner
from minirun.errors import (
    IdleTimeoutError,
    InvocationEndedError,
    InvocationNotFoundError,
    ModelError,
    StaleSessionError,
    StorageError,
)
from minirun.models import (
    ActivityEnd,
    ActivityStart,
    AudioStreamEnd,
    BaseLlmConnection,
    LiveCapabilities,
    LlmRequest,
    LlmResponse,
)
from minirun.runners import LiveRun
from minirun.runtime import Run
from minirun.testing import LiveSent, ScriptedLive
from minirun.tools import RetryConfig
from minirun.types import Blob, Content, FunctionDeclaration

from .helpers import Place
from .live_plans import Plan

__all__ = ["Book", "agent_of", "book_of", "talk"]

SPEECH_MS = 100
Sleep = Callable[[float], Awaitable[None]]


class TooSlowError(Exception):
    """The tool has failed."""


@attrs.define
class Line:
    """A connection, as seen from beside it."""

    number: int
    inner: Any
    handle: str | None
    received: list[LlmResponse] = attrs.Factory(list)


@attrs.define
class Book:
    """What has happened in one conversation."""

    plan: Plan
    model: ScriptedLive
    lines: list[Line] = attrs.Factory(list)
    seen: list[Event] = attrs.Factory(list)
    """What the client has seen, in order."""
    typed: dict[str, str] = attrs.Factory(dict)
    """By the id of the event that it is to be: what the client has said in writing."""
    doubtful: set[str] = attrs.Factory(set)
    """What it has said in writing, and nobody knows whether that was taken."""
    sent_in: set[str] = attrs.Factory(set)
    """What somebody else has sent; if it comes too late for this run, the next one stores it."""
    run: Run | None = None
    failure: BaseException | None = None
    """What the run has failed with, for the client."""
    may_lose: bool = False
    """Whether its process may stand still until its time is over, so that what waits is lost."""
    trouble: Exception | None = None
    """What the store has failed with."""
    left_at: int | None = None
    """How many events were stored when the client left."""
    waiting_max: tuple[float, int] = (0.0, 0)
    """The most sound and the most responses that have waited for the client, in milliseconds and pieces."""
    leaves: bool = False
    """Whether the client has done all that it wants, and leaves."""


class _Wire(BaseLlmConnection):
    """A connection that is listened to."""

    def __init__(self, line: Line, book: Book) -> None:
        self._line = line
        self._inner = line.inner
        self._book = book

    @property
    def capabilities(self) -> LiveCapabilities:  # type: ignore[override]  # it has those of another one
        return self._line.inner.capabilities  # type: ignore[no-any-return]

    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        await self._inner.send_history(contents, answer=answer)

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        await self._inner.send_content(content, turn_complete=turn_complete, id=id)

    async def send_realtime(self, data: Blob | ActivityStart | ActivityEnd | AudioStreamEnd) -> None:
        await self._inner.send_realtime(data)

    async def cancel(self) -> None:
        await self._inner.cancel()

    async def truncate(self, item_id: str, played_ms: int) -> None:
        await self._inner.truncate(item_id, played_ms)

    async def update(self, system_instruction: str | None, tools: Sequence[FunctionDeclaration]) -> None:
        await self._inner.update(system_instruction, tools)

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        async with aclosing(self._inner.receive()) as responses:
            async for response in responses:
                self._line.received.append(response)
                yield response
                self._book_waiting()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _book_waiting(self) -> None:
        run = self._book.run
        found = None if run is None else run._line.talk  # type: ignore[attr-defined]
        if found is not None:
            ms, count = self._book.waiting_max
            self._book.waiting_max = (max(ms, found.inbox._audio_ms), max(count, len(found.inbox._items)))


class _Model(ScriptedLive):
    """A scripted model whose connections are listened to."""

    book: Book

    def connect(self, request: LlmRequest) -> Any:
        return self._listened_to(request)

    @asynccontextmanager
    async def _listened_to(self, request: LlmRequest) -> AsyncIterator[BaseLlmConnection]:
        async with super().connect(request) as inner:
            handle = None if request.live is None else request.live.handle
            line = Line(inner.number, inner, handle)
            self.book.lines.append(line)
            yield _Wire(line, self.book)


def book_of(plan: Plan) -> Book:
    """A server that plays the plan, and an empty book."""
    played = iter(plan.entries)

    def script(sent: LiveSent) -> Any:
        return next(played, "ok")

    model = _Model(
        script, dialect=plan.dialect, on_connect=plan.on_connect, in_flight=plan.in_flight, silence_ms=SPEECH_MS
    )
    model.book = Book(plan, model)
    return model.book


def agent_of(book: Book, sleep: Sleep = trio.sleep) -> LlmAgent:
    """The agent that converses with the server of the book."""

    async def work(seconds: float, fails: bool) -> str:
        """Work."""
        await sleep(seconds)
        if fails:
            raise TooSlowError("it does not work")
        return "worked"

    retry = RetryConfig(max_attempts=8, initial_delay=0.5, jitter=0)
    return LlmAgent(name="desk", model=book.model, tools=[work], model_retry=retry)


def config_of(plan: Plan) -> RunConfig:
    """The settings of the conversation."""
    manual = {"automatic_activity_detection": {"disabled": True}} if plan.is_manual else None
    return RunConfig(
        response_modalities=[plan.modality], realtime_input_config=manual, audio_lag_s_max=plan.lag_s, idle_s=120.0
    )


class Caller:
    """A client."""

    def __init__(self, book: Book, live: LiveRun, runner: Runner, place: Place, sleep: Sleep) -> None:
        self.book = book
        self.live = live
        self._runner = runner
        self._place = place
        self._sleep = sleep

    async def act(self) -> None:
        """Do what is planned, and end the conversation as planned."""
        try:
            for name, how in self.book.plan.deeds:
                await getattr(self, f"_{name.replace(' ', '_')}")(how)
            await self._leave_or_close()
        except InvocationEndedError:
            return
        except (StorageError, StaleSessionError) as error:
            self.book.trouble = error

    async def _say(self, text: str) -> None:
        message_id = await self.live.send_text(text)
        self.book.typed[message_id] = text

    async def _half(self, text: str) -> None:
        """A part of what the user has to say; the rest follows at once."""
        for part in (f"{text} (half)", f"{text} (whole)"):
            await self._say(part)

    async def _idle(self, text: str) -> None:
        """Somebody else has something to say."""
        self.book.doubtful.add(text)
        self.book.sent_in.add(text)
        try:
            message_id = await self._runner.send(text, **self._place, when="idle")
        except InvocationNotFoundError:
            return
        self.book.typed[message_id] = text
        self.book.doubtful.discard(text)

    async def _wait(self, seconds: float) -> None:
        await self._sleep(seconds)

    async def _begin_to_speak(self, _: None) -> None:
        await self.live.send_activity_start()

    async def _end_to_speak(self, _: None) -> None:
        await self.live.send_activity_end()

    async def _leave_or_close(self) -> None:
        plan = self.book.plan
        if plan.ending == "leave":
            self.book.leaves = True
        elif plan.ending == "close the queue":
            self.live._line.queue.close()
        else:
            await self.live.aclose(finish_turn_s=0.5 if plan.ending == "aclose soon" else 60.0)

    async def _speak(self, chunks: int) -> None:
        rate = 16000 if self.book.plan.dialect == "gemini" else 24000
        size = rate * SPEECH_MS // 1000 * 2
        for data in [b"\1" * size] * chunks + [b"\0" * size] * (not self.book.plan.is_manual):
            await self.live.send_audio(data)

    async def _microphone_off(self, _: None) -> None:
        await self.live.send_audio_stream_end()

    async def _interrupt(self, _: None) -> None:
        await self.live.interrupt()

    async def _played(self, ms: float) -> None:
        said = [event for event in self.book.seen if event.author == "desk" and (event.live or {}).get("item_id")]
        if said:
            await self.live.played(said[-1], ms)


async def talk(book: Book, runner: Runner, place: Place, sleep: Sleep = trio.sleep) -> None:
    """Converse as planned; what comes of it is in the book."""
    plan = book.plan
    scope = runner.run_live(user_id=place["user_id"], session_id=place["session_id"], run_config=config_of(plan))
    try:
        async with scope as live:
            book.run = live
            async with trio.open_nursery() as nursery:
                caller = Caller(book, live, runner, place, sleep)
                nursery.start_soon(_act_and_leave, caller, nursery.cancel_scope, name="client acts")
                await _read(book, live, sleep)
                nursery.cancel_scope.cancel()
            book.left_at = live.session.revision
    except (ModelError, IdleTimeoutError) as error:  # it has failed just as the client has left
        book.failure = error


async def _act_and_leave(caller: Caller, scope: trio.CancelScope) -> None:
    await caller.act()
    if caller.book.leaves:
        scope.cancel()


async def _read(book: Book, live: LiveRun, sleep: Sleep) -> None:
    plan = book.plan
    while plan.leaves_after is None or len(book.seen) < plan.leaves_after:
        try:
            event = await anext(live, None)
        except (ModelError, IdleTimeoutError) as error:
            book.failure = error
            return
        except (StorageError, StaleSessionError) as error:
            book.trouble = error
            return
        if event is None:
            return
        book.seen.append(event)
        await sleep(plan.reads_s[len(book.seen) % len(plan.reads_s)])
