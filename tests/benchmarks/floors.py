"""
The floor: as little as bare trio, sqlite3, attrs and json can do for the same events.

Rules of this file:

*   Only the unavoidable: an event is made, encoded where it is stored, and handed to whoever stores it; a commit at
    `synchronous=FULL` where a power cut must not take it. No callbacks, no checks, no budgets, no recovery.
*   A floor that is cheating would make every ratio a lie: what is stored can be read back and has the same texts.
*   The floor of a file exists three times: with COMMIT inline (the limit of the disk), in a worker thread (the limit of
    a loop that must not wait for the disk), and with COMMITs that all who wait share (the limit under concurrency).
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Protocol

import attrs
import trio

from .programs.protocol import QUESTION


@attrs.frozen
class FloorPart:
    """A piece of a message."""

    text: str


@attrs.frozen
class FloorContent:
    """A message."""

    role: str
    parts: tuple[FloorPart, ...]


@attrs.frozen
class FloorEvent:
    """As little as an event can be: who has said what, when, in which invocation, at which place."""

    id: str
    invocation_id: str
    author: str
    seq: int
    timestamp: float
    content: FloorContent


# What json.dumps would make anew for each call, and without the blanks that minirun does not write either.
floor_dumps = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def floor_event(seq: int, text: str) -> FloorEvent:
    """Make one."""
    content = FloorContent("model", (FloorPart(text),))
    return FloorEvent(os.urandom(12).hex(), "e-0123456789abcdef", "agent", seq, time.time(), content)


def floor_fragment(seq: int, text: str) -> FloorEvent:
    """Make the event of a chunk: all of an answer share an id, and nobody asks when each was said."""
    content = FloorContent("model", (FloorPart(text),))
    return FloorEvent("0123456789abcdef01234567", "e-0123456789abcdef", "agent", seq, 0.0, content)


def floor_line(event: FloorEvent) -> str:
    """The event as a line of JSON, field by field."""
    content = {"role": event.content.role, "parts": [{"text": part.text} for part in event.content.parts]}
    return floor_dumps(
        {
            "id": event.id,
            "invocation_id": event.invocation_id,
            "author": event.author,
            "seq": event.seq,
            "timestamp": event.timestamp,
            "content": content,
        }
    )


def floor_from_line(line: str) -> FloorEvent:
    """The event of a line."""
    fields = json.loads(line)
    content = fields.pop("content")
    parts = tuple(FloorPart(part["text"]) for part in content["parts"])
    return FloorEvent(**fields, content=FloorContent(content["role"], parts))


async def floor_model(text: str) -> AsyncIterator[str]:
    """A model that answers at once."""
    await trio.lowlevel.checkpoint()
    yield text


# --- stores ---------------------------------------------------------------------------------------------------------


class FloorStore(Protocol):
    """What stores an event, and its text as a key of state if it is told to."""

    async def append(self, session: int, text: str, last: bool = False, key: str = "last") -> None:
        """Store an event of a session."""


class FloorMemory:
    """A list of frozen events and a dict of state for each session."""

    def __init__(self) -> None:
        self.events: dict[int, list[FloorEvent]] = {}
        self.state: dict[int, dict[str, str]] = {}

    async def append(self, session: int, text: str, last: bool = False, key: str = "last") -> None:
        """Store an event of a session."""
        events = self.events.setdefault(session, [])
        events.append(floor_event(len(events) + 1, text))
        if last:
            self.state.setdefault(session, {})[key] = text


SCHEMA = """
CREATE TABLE IF NOT EXISTS events (session, seq, data TEXT, PRIMARY KEY (session, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (session, key, value TEXT, PRIMARY KEY (session, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (id INTEGER PRIMARY KEY, revision INTEGER);
"""


class FloorFile:
    """A file in WAL mode, one transaction for each event: the event, its session's revision, perhaps a key of state."""

    def __init__(self, path: Path, synchronous: str = "FULL", *, in_thread: bool = False) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={synchronous}")
        self._db.executescript(SCHEMA)
        self._in_thread = in_thread
        self._revisions: dict[int, int] = dict(self._db.execute("SELECT id, revision FROM sessions"))

    async def append(self, session: int, text: str, last: bool = False, key: str = "last") -> None:
        """Store an event of a session."""
        self._db.execute("BEGIN IMMEDIATE")
        self._write(session, text, last, key)
        if self._in_thread:
            await trio.to_thread.run_sync(partial(self._db.execute, "COMMIT"))
        else:
            await trio.lowlevel.checkpoint()
            self._db.execute("COMMIT")

    def _write(self, session: int, text: str, last: bool = False, key: str = "last") -> None:
        """The statements of one event."""
        seq = self._revisions[session] = self._revisions.get(session, 0) + 1
        event = floor_event(seq, text)
        self._db.execute("INSERT INTO events VALUES (?, ?, ?)", (session, seq, floor_line(event)))
        if last:
            self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", (session, key, text))
        self._db.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?)", (session, seq))

    def fill(self, session: int, texts: list[str]) -> None:
        """Store many events in one transaction; no part of what is measured."""
        self._db.execute("BEGIN IMMEDIATE")
        for text in texts:
            self._write(session, text)
        self._db.execute("COMMIT")

    def fill_state(self, session: int, state: dict[str, str]) -> None:
        """Store many keys of state in one transaction; no part of what is measured."""
        self._db.execute("BEGIN IMMEDIATE")
        rows = [(session, key, value) for key, value in state.items()]
        self._db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def load(self, session: int, last: int = -1) -> list[FloorEvent]:
        """Read the newest events, or all."""
        query = "SELECT data FROM events WHERE session = ? ORDER BY seq DESC LIMIT ?"
        return [floor_from_line(line) for (line,) in self._db.execute(query, (session, last))][::-1]

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class FloorGroup:
    """The events of one transaction, and when it is done."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str, bool, str]] = []
        self.done = trio.Event()


class FloorGroups(FloorFile):
    """One file and many writers, with one transaction for all who waited for the one before."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = trio.Lock()
        self._next = FloorGroup()

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, for whoever counts."""
        return self._db

    async def append(self, session: int, text: str, last: bool = False, key: str = "last") -> None:
        """Store an event of a session."""
        group = self._next
        group.events.append((session, text, last, key))
        if len(group.events) > 1:
            await group.done.wait()
            return
        async with self._lock:  # the first of a group commits for all who join until it can begin
            self._next = FloorGroup()
            self._db.execute("BEGIN IMMEDIATE")
            for event in group.events:
                self._write(*event)
            await trio.to_thread.run_sync(partial(self._db.execute, "COMMIT"))
        group.done.set()


# --- a stream ------------------------------------------------------------------------------------------------------


async def floor_stream(chunks: int, text: str, buffer: int) -> int:
    """
    Chunks through a bounded buffer, without a handoff for each: who fills it goes on until it is full, and who empties
    it until it is empty. Returns how many came.
    """
    queue: deque[FloorEvent] = deque()
    filled, emptied = trio.lowlevel.ParkingLot(), trio.lowlevel.ParkingLot()
    came = 0

    async def fill() -> None:
        for number in range(chunks):
            if len(queue) == buffer:
                filled.unpark_all()
                await emptied.park()
            queue.append(floor_fragment(number, text))
        filled.unpark_all()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fill)
        while came < chunks:
            if not queue:
                emptied.unpark_all()
                await filled.park()
            while queue:
                queue.popleft()
                came += 1
    return came


# --- a run ----------------------------------------------------------------------------------------------------------


async def floor_run(store: FloorStore, session: int, texts: list[str], last: bool = False) -> None:
    """
    One run: the user's message, then an agent that says *texts*, each of which it hands over and waits for.

    This is a committer, bare: what is said goes through a channel without a buffer to the task that stores it, and the
    agent goes on when that is done.
    """
    await store.append(session, QUESTION)
    send, receive = trio.open_memory_channel[tuple[str, trio.Event]](0)

    async def agent() -> None:
        with send:
            for said in texts:
                async for text in floor_model(said):
                    done = trio.Event()
                    await send.send((text, done))
                    await done.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent)
        async for text, done in receive:
            await store.append(session, text, last)
            done.set()
