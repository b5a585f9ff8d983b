"""
Sessions in a store of one's own: a map in memory, and a file with one JSON line for each change of it.
A line that a kill has cut counts for nothing. The lock keeps other processes out, so a look and a change are one step.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path

import trio

from minirun import LlmAgent, Runner
from minirun.sessions import KeyValueSessionService, KeyValueStore
from minirun.testing import ScriptedLlm


class JsonLines(KeyValueStore):
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: another process has it
        self._values: dict[str, str | None] = {}
        *lines, cut = path.read_bytes().split(b"\n")
        os.truncate(self._file, os.fstat(self._file).st_size - len(cut))
        for line in lines:
            self._values |= json.loads(line)

    async def read(self, first: str, end: str, limit: int) -> list[tuple[str, str]]:
        return sorted((k, v) for k, v in self._values.items() if first <= k < end and v is not None)[:limit]

    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        if self._values.get(owner[0]) != owner[1]:
            return False
        await trio.to_thread.run_sync(self._append, json.dumps(changes).encode() + b"\n")
        self._values |= changes
        return True

    def _append(self, line: bytes) -> None:
        size = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError:
            os.truncate(self._file, size)
            raise

    async def aclose(self) -> None:
        os.close(self._file)


async def main() -> None:
    agent = LlmAgent(name="counter", model=ScriptedLlm(lambda request: f"message {len(request.contents)}"))
    async with KeyValueSessionService(JsonLines(Path("sessions.jsonl"))) as sessions:
        await Runner(app_name="app", agent=agent, session_service=sessions).run_debug("hi")


if __name__ == "__main__":
    trio.run(main)
