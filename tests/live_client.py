"""What tests of live runs have in common: a client that reads while it speaks, and the log as lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from minirun import InMemoryRunner, LlmAgent, Runner
from minirun.events import Event
from minirun.runners import LiveRun
from minirun.testing import LiveSent, ScriptedLive
from minirun.testing._live_dialects import DialectName

__all__ = [
    "Client",
    "both",
    "converse",
    "conversing",
    "is_over",
    "is_sound",
    "lines",
    "new_runner",
    "sent_of",
    "sound_of",
    "stored",
]  # fmt: skip

DIALECTS: tuple[DialectName, ...] = ("gemini", "openai")
both = pytest.mark.parametrize("dialect", DIALECTS)


def new_runner(model: Any, *, agent: Any = None, **fields: Any) -> InMemoryRunner:
    """A runner of an agent that converses with *model*; fields of plugins and services are the runner's."""
    own = {name: fields.pop(name) for name in ("plugins", "env", "artifact_service") if name in fields}
    root = agent or LlmAgent(name="root", model=model, **fields)
    return InMemoryRunner(agent=root, auto_create_session=True, **own)


class Client:
    """A user: reads all the time, and waits for what is said."""

    def __init__(self, live: LiveRun) -> None:
        self.live = live
        self.events: list[Event] = []
        self.failure: Exception | None = None
        self.is_over = False
        self._place = 0
        self._news = trio.Event()

    async def read(self) -> None:
        """Read what is said, to the end."""
        try:
            async for event in self.live:
                self.events.append(event)
                self._tell()
        except Exception as error:
            self.failure = error
        self.is_over = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def until(self, fits: Callable[[Event], Any]) -> Event:
        """Wait for the next event that fits, after the one that was waited for last."""
        while True:
            for place in range(self._place, len(self.events)):
                if fits(self.events[place]):
                    self._place = place + 1
                    return self.events[place]
            assert not self.is_over, f"the run has ended: {self.failure!r}, {lines(self.events)}"
            await self._news.wait()

    async def ask(self, text: str) -> Event:
        """Say something in writing, and wait until the answer is over."""
        await self.live.send_text(text)
        return await self.until(is_over)

    async def hear_out(self) -> None:
        """Wait for the end of the run."""
        while not self.is_over:
            await self._news.wait()


@asynccontextmanager
async def conversing(runner: Runner, **options: Any) -> AsyncIterator[Client]:
    """Converse; at the end of the block the run is closed, and heard out. `client.failure` is what it raises."""
    options = {"user_id": "u", "session_id": "s", **options}
    async with runner.run_live(**options) as live, trio.open_nursery() as nursery:
        client = Client(live)
        nursery.start_soon(client.read)
        yield client
        await live.aclose()
        await client.hear_out()


async def converse(runner: Runner, *texts: str, **options: Any) -> Client:
    """Say *texts*, each after the answer to the one before; return the client when all is over."""
    async with conversing(runner, **options) as client:
        for text in texts:
            await client.ask(text)
    return client


async def stored(runner: Runner, session_id: str = "s") -> list[Event]:
    """The session's events."""
    service = runner.session_service
    session = await service.get_session(app_name=runner.app_name, user_id="u", session_id=session_id)
    assert session is not None
    return list(session.events)


def lines(events: Iterable[Event], *, connections: bool = False) -> list[str]:
    """What is stored of *events*, a line each: `root: Hi`; `-` at the end of what was cut off, `[..]` a connection."""
    return [line for event in events if not event.partial and (line := _line(event, connections=connections))]


def _line(event: Event, *, connections: bool) -> str:
    if event.live and "connection" in event.live:
        return f"[{event.live['reason']}]" if connections else ""
    if event.live and event.live.get("begins"):
        return ""
    calls = [f"{call.name}()" for call in event.get_function_calls()]
    returned = [f"{each.name}={_result(each.response)}" for each in event.get_function_responses()]
    text = event.text if event.content is not None else ""
    error = [f"!{event.error_code}"] if event.error_code else []
    end = ["-"] if event.interrupted else []
    return " ".join([f"{event.author}:", *([text] if text else []), *calls, *returned, *error, *end])


def _result(response: Any) -> Any:
    return response.get("result", response.get("error", dict(response)))


def is_over(event: Event) -> bool:
    """Whether it ends a turn of the model."""
    return bool(event.turn_complete or event.interrupted) and not event.partial


def is_sound(event: Event) -> bool:
    """Whether it is a piece of sound."""
    return bool(event.partial and event.audio)


def sound_of(events: Iterable[Event]) -> int:
    """How much sound is in them, in milliseconds of 24 kHz."""
    return sum(len(event.audio or b"") for event in events) // 48


def sent_of(model: ScriptedLive, *kinds: str) -> list[LiveSent]:
    """What the model was sent of these kinds; of none, all but sound."""
    return [each for each in model.sent if (each.kind in kinds if kinds else each.kind != "audio")]
