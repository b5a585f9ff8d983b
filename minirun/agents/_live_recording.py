"""
The sound of an utterance, kept as an artifact while it is said: `RunConfig(save_live_blob=True)`.

It is a WAV file, which is called after the event of the utterance and named by it (`artifact_delta`). It goes to the
store piece by piece; its header does not know how long it will be, and says so as streams do. What there is of an
utterance that is cut off stays.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator

import trio

from ..artifacts._run import RunArtifacts
from ..errors import StorageError
from ..events import NO_ACTIONS, EventActions
from ..runtime._failure import is_only_cancelled

__all__ = ["Recording", "finished"]

_UNKNOWN = 0xFFFF_FFFF  # of a length, as in streams
_PIECES = 64  # how many may wait for the store


class Recording:
    """
    One file.

    Args:
        artifacts: Where it goes.
        event_id: The id of the utterance's event.
        rate: Samples a second, of PCM16 in one channel.
    """

    def __init__(self, artifacts: RunArtifacts, event_id: str, rate: int) -> None:
        self.event_id = event_id
        self.filename = f"{event_id}.wav"
        self._artifacts = artifacts
        self._rate = rate
        self._send, self._receive = trio.open_memory_channel[bytes](_PIECES)
        self._is_done = trio.Event()
        self._version: int
        self._failure: Exception | None = None
        self._scope = trio.CancelScope(shield=True)

    async def run(self) -> None:
        """Save it, until it is finished: also when the run is left meanwhile."""
        with self._scope:
            try:
                self._version = await self._artifacts.to_save_stream(self.filename, self._file(), "audio/wav", None)()
            except Exception as error:  # it belongs to the one that finishes it
                self._failure = error
            except BaseException as error:
                if is_only_cancelled(error):  # also a group: a service may have opened a nursery
                    self._failure = StorageError(f"saving {self.filename!r} took too long, and was given up")
                raise
            finally:
                self._receive.close()
                self._is_done.set()

    @property
    def is_done(self) -> bool:
        """Whether it is saved, or has failed."""
        return self._is_done.is_set()

    def hurry(self, seconds: float) -> None:
        """Give the store so long from now on: the run is left."""
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + seconds)

    async def add(self, sound: bytes) -> None:
        """Add a piece; wait for a slow store. What comes after a failure of the store is dropped."""
        try:
            await self._send.send(sound)
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint_if_cancelled()

    async def finish(self) -> EventActions:
        """
        Say that this was all, and return the actions that name it.

        Raises:
            StorageError: It could not be saved.
        """
        self._send.close()
        await self._is_done.wait()
        if self._failure is not None:
            raise self._failure
        return EventActions(artifact_delta={self.filename: self._version})

    async def drop(self) -> None:
        """End it, and keep nothing: no event names it."""
        self._send.close()
        await self._is_done.wait()
        if self._failure is None:
            await self._artifacts.delete(self.filename)

    async def _file(self) -> AsyncGenerator[bytes, None]:
        yield _header(self._rate)
        async for piece in self._receive:
            yield piece


async def rest_of(recording: Recording | None) -> EventActions:
    """As `finished`, where a run is left: what could not be saved is not named, and costs nothing else."""
    try:
        return await finished(recording)
    except Exception:
        await trio.lowlevel.checkpoint_if_cancelled()
        return NO_ACTIONS


async def finished(recording: Recording | None) -> EventActions:
    """The actions that name a recording, if there is one."""
    return NO_ACTIONS if recording is None else await recording.finish()


def _header(rate: int) -> bytes:
    """The header of a WAV file: PCM16, one channel, of unknown length."""
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * 2, 2, 16)
    return b"RIFF" + struct.pack("<I", _UNKNOWN) + b"WAVEfmt " + form + b"data" + struct.pack("<I", _UNKNOWN)
