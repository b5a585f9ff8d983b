"""
Sessions in a journal: what the author of a store of one's own builds on.

A journal is a list of texts that only grows. Whoever can keep one — in a table, a file, a stream — has a session
service: `JournalSessionService` with two methods. Each text is one step, stored as a whole or not at all: a session
that was made, an event, an end of a run, a deletion. Opening the service plays all of them again, in order, so state,
open calls and invocations are what they were; what was running then is interrupted.

Everything is in memory while the service lives, and one process at a time may use a journal. For many processes, or
more than fits into memory, use `SqliteSessionService`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import attrs
import trio

from .._codec import event_from_json, event_to_json
from .._json import loads
from ..env import Env
from ..errors import (
    MinirunError,
    StorageCorruptError,
    StorageError,
    StorageRolledBackError,
    StorageUncertainError,
)
from ..events import Event
from ._calls import OpenCall
from ._fold import fold
from ._in_memory import InMemorySessionService
from ._invocation import Invocation, InvocationStatus
from ._key import SessionKey
from ._live import LiveSession
from ._past import check_fork_seq
from ._session import GetSessionConfig, Session
from ._state import Values, apply_writes, writes_of
from ._store import SessionWriter

__all__ = ["JournalSessionService"]

UNCERTAIN = "what this service wrote last may be stored or not; make a new one, which reads what is there"


class JournalSessionService(InMemorySessionService, ABC):
    """
    Keeps sessions in memory, and each step in a journal that a subclass keeps.

    A subclass implements `read_journal` and `write_journal`; `minirun.testing.check_session_service` tells whether it
    is right.

    Args:
        env: Where time and ids come from.
    """

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._turn = trio.Lock()  # one step at a time, in the order in which they take effect
        self._is_read = False
        self._broken = ""

    @abstractmethod
    def read_journal(self) -> AsyncGenerator[str, None]:
        """Yield the steps that `write_journal` has stored, in order. Called once, before anything else."""

    @abstractmethod
    async def write_journal(self, step: str) -> None:
        """
        Store one more step, behind all others, and return once it will outlive the process.

        Never called twice at once, and never cancelled. The step is one line of JSON, in ASCII.

        Raises:
            StorageError: One whose `stored` is False: it is certainly not stored. After any other exception nobody
                knows, and the service is used no more; a new one reads what is there.
        """

    # --- playing what is there

    async def _read_once(self) -> None:
        if self._broken:
            raise StorageRolledBackError(self._broken)
        if self._is_read:
            return
        async with self._turn:
            if self._is_read:
                return
            number = 0
            async with aclosing(self.read_journal()) as steps:
                async for text in steps:
                    number += 1
                    try:
                        await self._play(loads(text))
                    except (MinirunError, ValueError, TypeError, KeyError) as error:
                        self._broken = f"step {number} of the journal cannot be played: {error}"
                        raise StorageCorruptError(f"{self._broken}; restore the journal, or cut it there") from error
            self._interrupt_runs()
            self._is_read = True

    async def _play(self, step: Any) -> None:
        key = SessionKey(*step["session"])
        what = step["step"]
        if what == "create":
            await super()._create(key, [event_from_json(each) for each in step["events"]])
        elif what == "fork":
            await super()._fork(key, step["at_seq"], SessionKey(*step["new"]))
            self._sessions[SessionKey(*step["new"])].create_time = step["time"]
        elif what == "delete":
            await super()._delete(key)
        elif what == "event":
            live, name = self._sessions[key], step["invocation"]
            writer: Any = None if name is None else _Writer(live, name)
            await super()._commit(live, event_from_json(step["event"]), writer=writer, begins=step["begins"])
        elif what == "end":
            status = None if step["status"] is None else InvocationStatus(step["status"])
            self._end(_Writer(self._sessions[key], step["invocation"]), status)  # type: ignore[arg-type]
        else:
            msg = f"expected a step of this version, found {what!r:.80}"
            raise ValueError(msg)

    # --- writing steps: what is checked, stored and applied under one lock has the order of the journal

    async def _write(self, key: SessionKey, what: str, **said: Any) -> None:
        step = json.dumps({"step": what, "session": [*attrs.astuple(key)], **said})
        if self._broken:
            raise StorageRolledBackError(self._broken)
        try:
            with trio.CancelScope(shield=True):
                await self.write_journal(step)
        except StorageError as error:
            if error.stored is None:
                self._broken = UNCERTAIN
            raise
        except BaseException as error:
            self._broken = UNCERTAIN
            if not isinstance(error, Exception):
                raise
            msg = f"write_journal of {type(self).__name__} failed: {error}; the step may or may not be stored"
            raise StorageUncertainError(f"{msg}; make a new service and look") from error

    async def _create(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        await self._read_once()
        async with self._turn:
            if key not in self._sessions:  # else it is refused
                values = self._values(key, {})
                fold(Values({}, dict(values.user), dict(values.app)), events)
                await self._write(key, "create", events=[event_to_json(event) for event in events])
            return await super()._create(key, events)

    async def _fork(self, key: SessionKey, at_seq: int | None, new: SessionKey) -> None:
        await self._read_once()
        async with self._turn:
            source = self._sessions.get(key)
            if source is not None and new not in self._sessions:
                check_fork_seq(key, at_seq, source.revision)
                await self._write(key, "fork", at_seq=at_seq, new=[*attrs.astuple(new)], time=self._env.now())
            await super()._fork(key, at_seq, new)

    async def _commit(self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        async with self._turn:
            self._check_commit(live, writer, begins=begins)
            apply_writes(live.values, writes_of(event.actions))  # which raises where it cannot be
            name = None if writer is None else writer.invocation_id
            await self._write(live.key, "event", event=event_to_json(event), invocation=name, begins=begins)
            await super()._commit(live, event, writer=writer, begins=begins)

    async def _delete(self, key: SessionKey) -> None:
        async with self._turn:
            if key in self._sessions:
                await self._write(key, "delete")
            await super()._delete(key)

    async def _record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        await self._finish(writer, status)
        return True

    async def _finish(self, writer: SessionWriter, status: InvocationStatus | None) -> None:
        async with self._turn:
            run = self._invocations.get((writer.live.incarnation, writer.invocation_id))
            if status is not None and run is not None and run.status is InvocationStatus.RUNNING:
                await self._write(writer.live.key, "end", invocation=writer.invocation_id, status=status)
            self._end(writer, status)

    # --- reading: of what is in memory, once it is there

    async def _open(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        await self._read_once()
        return await super()._open(key, config)

    async def _list(self, app_name: str | None, user_id: str | None, limit: int | None, after: int) -> list[Session]:
        await self._read_once()
        return await super()._list(app_name, user_id, limit, after)

    async def _read(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        await self._read_once()
        return await super()._read(key, after_seq, limit)

    async def _list_invocations(self, app_name: str | None, status: InvocationStatus | None) -> list[Invocation]:
        await self._read_once()
        return await super()._list_invocations(app_name, status)

    async def _invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        await self._read_once()
        return await super()._invocation(key, invocation_id)

    async def _list_waiting(
        self, app_name: str | None, user_id: str | None, session_id: str | None
    ) -> list[tuple[SessionKey, OpenCall, Event, Event]]:
        await self._read_once()
        return await super()._list_waiting(app_name, user_id, session_id)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._turn = trio.Lock()
        if self._is_read:
            self._broken = "this service reads and writes in the process that this one was forked from; make a new one"


@attrs.define
class _Writer:
    """Who wrote a step that is played again."""

    live: LiveSession
    invocation_id: str
    epoch: int | None = None
