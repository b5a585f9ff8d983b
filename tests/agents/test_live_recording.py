"""The sound of an utterance as it is kept: the file, what a slow or failing store costs, and what is dropped."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from minirun.agents._live_recording import Recording, finished, rest_of
from minirun.artifacts import InMemoryArtifactService
from minirun.artifacts._run import RunArtifacts
from minirun.errors import StorageError
from minirun.events import NO_ACTIONS
from minirun.types import Part

WHERE: Any = {"app_name": "app", "user_id": "u", "session_id": "s"}


class Store(InMemoryArtifactService):
    """One that takes so long to open a file, and fails after the first piece if it is to."""

    def __init__(self, *, slow_s: float = 0.0, fails: bool = False) -> None:
        super().__init__()
        self.slow_s = slow_s
        self.fails = fails

    async def _save(self, key: Any, chunks: Any, *args: Any, **options: Any) -> int:
        await trio.sleep(self.slow_s)
        if self.fails:
            await anext(chunks)
            raise StorageError("no room")
        return await super()._save(key, chunks, *args, **options)

    async def saved(self, name: str) -> bytes | None:
        """What is kept under this name."""
        part = await self.load_artifact(filename=name, **WHERE)
        return None if part is None or part.inline_data is None else part.inline_data.data


def new_recording(store: Store, rate: int = 24000) -> Recording:
    """A recording of the utterance `e1`."""
    return Recording(RunArtifacts(store, "app", "u", "s", staged=False, past=list), "e1", rate)


@pytest.mark.parametrize(
    ("rate", "told"), [(24000, "c05d0000 80bb0000"), (16000, "803e0000 007d0000"), (8000, "401f0000 803e0000")]
)
async def test_the_file_is_a_wav_of_unknown_length(rate: int, told: str, autojump_clock: MockClock) -> None:
    """PCM of 16 bits in one channel; the header has the samples and the bytes a second, and no length."""
    store = Store()
    recording = new_recording(store, rate)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recording.run)
        await recording.add(b"\x01\x02")
        await recording.add(b"\x03\x04")
        actions = await finished(recording)
    header = f"52494646 ffffffff 57415645 666d7420 10000000 0100 0100 {told} 0200 1000 64617461 ffffffff"
    assert await store.saved("e1.wav") == bytes.fromhex(header) + b"\x01\x02\x03\x04"
    assert actions.artifact_delta == {"e1.wav": 0}
    part = await store.load_artifact(filename="e1.wav", **WHERE)
    assert part is not None
    assert part.inline_data is not None
    assert part.inline_data.mime_type == "audio/wav"


async def test_the_actions_name_the_version_that_was_saved(autojump_clock: MockClock) -> None:
    """It is the second one where there was a file of this name; and it is done only when it is saved."""
    store = Store(slow_s=3)
    await store.save_artifact(filename="e1.wav", artifact=Part(text="before"), **WHERE)
    recording = new_recording(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recording.run)
        await wait_all_tasks_blocked()
        assert not recording.is_done
        began = trio.current_time()
        assert (await recording.finish()).artifact_delta == {"e1.wav": 1}
        assert trio.current_time() - began == 3
        assert recording.is_done


async def test_who_adds_waits_for_a_slow_store(autojump_clock: MockClock) -> None:
    """So many pieces may wait; the next one waits until the store takes some."""
    recording = new_recording(Store(slow_s=5))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recording.run)
        began = trio.current_time()
        for _ in range(64):
            await recording.add(b"..")
        assert trio.current_time() == began
        await recording.add(b"..")
        assert trio.current_time() - began == 5
        await recording.finish()


async def test_what_comes_after_a_failure_of_the_store_is_dropped(autojump_clock: MockClock) -> None:
    """Who adds hears nothing of it, and can be cancelled there; who finishes gets the store's error."""
    recording = new_recording(Store(fails=True))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recording.run)
        await wait_all_tasks_blocked()
        assert recording.is_done
        await recording.add(b"..")
        with trio.CancelScope() as scope:
            scope.cancel()
            await recording.add(b"..")
        assert scope.cancelled_caught
        with pytest.raises(StorageError, match="no room"):
            await finished(recording)


async def test_where_a_run_is_left_a_failure_of_the_store_costs_only_the_file(autojump_clock: MockClock) -> None:
    """Nothing is named; and nothing is where nothing was recorded."""
    recording = new_recording(Store(fails=True))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recording.run)
        assert await rest_of(recording) is NO_ACTIONS
    assert await rest_of(None) is NO_ACTIONS
    assert await finished(None) is NO_ACTIONS


async def test_a_recording_goes_on_although_the_run_is_left(autojump_clock: MockClock) -> None:
    """It is saved in the time that it is given, of which the shortest counts."""
    store = Store(slow_s=5)
    recording = new_recording(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recording.run)
        await recording.add(b"..")
        await wait_all_tasks_blocked()
        recording.hurry(6)
        recording.hurry(9)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            assert (await rest_of(recording)).artifact_delta == {"e1.wav": 0}
    assert await store.saved("e1.wav") is not None


class InNursery(Store):
    """A store that works in a nursery: its cancellation is a group."""

    async def _save(self, key: Any, chunks: Any, *args: Any, **options: Any) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, self.slow_s)
        return await super()._save(key, chunks, *args, **options)


@pytest.mark.parametrize("kind", [Store, InNursery])
async def test_a_store_that_takes_too_long_is_given_up(kind: type[Store], autojump_clock: MockClock) -> None:
    """After the time that it was given, counted from then: the error names the file."""
    recording = new_recording(kind(slow_s=50))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recording.run)
        await trio.sleep(1)
        recording.hurry(9)
        recording.hurry(6)
        with pytest.raises(StorageError) as caught:
            await recording.finish()
        assert trio.current_time() - began == 7
    assert str(caught.value) == "saving 'e1.wav' took too long, and was given up"


@pytest.mark.parametrize("fails", [False, True])
async def test_what_no_event_names_is_dropped(fails: bool, autojump_clock: MockClock) -> None:
    """What was saved is deleted; a failure of the store is nobody's then, and what was there before stays."""
    store = Store()
    await store.save_artifact(filename="e1.wav", artifact=Part(text="before"), **WHERE)
    store.fails = fails
    recording = new_recording(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recording.run)
        await recording.add(b"..")
        await recording.drop()
        assert recording.is_done
    there = await store.load_artifact(filename="e1.wav", **WHERE)
    assert (there is None) == (not fails)
