"""
Sessions in a store of one's own: InMemorySessionService, with a line of JSON in a file for each change.

A change is written before it is made. A new process reads the lines and makes the same changes again, in the same
order. A last line that a kill has cut was never acknowledged, and is dropped. The lock keeps other processes out.
"""

import fcntl
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from minirun import Event, InMemorySessionService, LlmAgent, Runner
from minirun.errors import MinirunError, ServiceInUseError, StorageRolledBackError
from minirun.sessions import InvocationStatus, LiveSession, SessionKey, SessionWriter
from minirun.testing import ScriptedLlm

T = TypeVar("T")


class JsonLinesSessionService(InMemorySessionService):
    """Use it with `async with`, which reads the file, in one process at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file = -1
        self._process = os.getpid()
        self._in_order = trio.Lock()  # the lines are in the order of the changes
        self._replays = False

    async def __aenter__(self) -> "JsonLinesSessionService":
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: another process has the file
        *lines, torn = self._path.read_bytes().split(b"\n")
        os.ftruncate(self._file, os.fstat(self._file).st_size - len(torn))
        self._replays, writers = True, _Writers(self)
        for line in lines:
            with suppress(MinirunError):  # the change was refused then, for the same reason
                await self._replay(json.loads(line), writers)
        self._replays = False
        await writers.interrupt()
        return await super().__aenter__()

    async def aclose(self) -> None:
        await super().aclose()
        if self._file >= 0 and self._process == os.getpid():
            os.close(self._file)
        self._file = -1

    # --- the primitives that change something ---------------------------------

    async def insert_session(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        line = {"insert": attrs.astuple(key), "events": [event.to_json() for event in events]}
        make = super().insert_session
        return await self._change(line, lambda: make(key, events))

    async def insert_fork(self, key: SessionKey, at_seq: int | None, new: SessionKey, create_time: float) -> None:
        line = {"fork": attrs.astuple(key), "at": at_seq, "new": attrs.astuple(new), "time": create_time}
        make = super().insert_fork
        await self._change(line, lambda: make(key, at_seq, new, create_time))

    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        run = None if writer is None else writer.invocation_id
        line = {"commit": attrs.astuple(live.key), "event": event.to_json(), "run": run, "begins": begins}
        make = super().commit_event
        await self._change(line, lambda: make(live, event, writer=writer, begins=begins))

    async def insert_message(self, key: SessionKey, message: Event) -> None:
        line = {"message": attrs.astuple(key), "event": message.to_json()}
        make = super().insert_message
        await self._change(line, lambda: make(key, message))

    async def remove_session(self, key: SessionKey) -> None:
        make = super().remove_session
        await self._change({"remove": attrs.astuple(key)}, lambda: make(key))

    async def record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        line = {"record": attrs.astuple(writer.live.key), "run": writer.invocation_id, "status": status}
        make = super().record_end
        return await self._change(line, lambda: make(writer, status))

    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        line = {"finish": attrs.astuple(writer.live.key), "run": writer.invocation_id, "status": status}
        make = super().finish_invocation
        return await self._change(line, lambda: make(writer, status))

    # --- the file -------------------------------------------------------------

    async def _change(self, line: dict[str, Any], make: Callable[[], Awaitable[T]]) -> T:
        """Write the line, then make the change. No checkpoint follows the write: `make` has none."""
        if self._replays:
            return await make()
        async with self._in_order:
            if self._process != os.getpid():
                raise ServiceInUseError("the file belongs to the process that opened it; open another one in a fork")
            await trio.to_thread.run_sync(self._write, json.dumps(line).encode() + b"\n")
            return await make()

    def _write(self, line: bytes) -> None:
        size = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size)
            raise StorageRolledBackError(f"{self._path}: {error}") from error

    async def _replay(self, line: dict[str, Any], writers: "_Writers") -> None:
        match line:
            case {"insert": key, "events": events}:
                await self.insert_session(SessionKey(*key), [Event.from_json(event) for event in events])
            case {"fork": key, "at": at_seq, "new": new, "time": time}:
                await self.insert_fork(SessionKey(*key), at_seq, SessionKey(*new), time)
            case {"commit": key, "event": event, "run": None}:
                live = await self.load_session(SessionKey(*key), None)
                assert live is not None, "an append from outside is committed to a session that is there"
                await self.commit_event(live, Event.from_json(event), writer=None, begins=False)
            case {"commit": key, "event": event, "run": run, "begins": begins}:
                await writers.commit(SessionKey(*key), run, Event.from_json(event), begins=begins)
            case {"message": key, "event": event}:
                await self.insert_message(SessionKey(*key), Event.from_json(event))
            case {"record": key, "run": run, "status": status}:
                await writers.open[SessionKey(*key)].record_end(InvocationStatus(status))
            case {"finish": key, "run": run, "status": status}:
                await writers.finish(SessionKey(*key), status and InvocationStatus(status))
            case {"remove": key}:
                await self.remove_session(SessionKey(*key))


class _Writers:
    """The writers of the runs that are replayed: one for each session at a time."""

    def __init__(self, service: JsonLinesSessionService) -> None:
        self._service = service
        self.open: dict[SessionKey, SessionWriter] = {}

    async def commit(self, key: SessionKey, run: str, event: Event, *, begins: bool) -> None:
        writer = self.open.get(key)
        if writer is not None and writer.invocation_id != run:  # its first event was refused
            await self.finish(key, None)
        if key not in self.open:
            opened = await self._service.open_writer(key, run, None, reject=True)
            assert opened is not None, "a run is in a session that is there"
            self.open[key] = opened
        writer = self.open[key]
        await self._service.commit_event(writer.live, event, writer=writer, begins=begins)

    async def finish(self, key: SessionKey, status: InvocationStatus | None) -> None:
        if await self.open[key].finish(status):
            del self.open[key]

    async def interrupt(self) -> None:
        """End the runs of the last process: their invocations are interrupted, and can be resumed."""
        for key in list(self.open):
            await self.finish(key, None)


async def main() -> None:
    agent = LlmAgent(name="counter", model=ScriptedLlm(lambda request: f"message {len(request.contents)}"))
    async with JsonLinesSessionService(Path("sessions.jsonl")) as sessions:
        await Runner(app_name="app", agent=agent, session_service=sessions).run_debug("hi")


if __name__ == "__main__":
    trio.run(main)
