"""The inbox of a live run: what comes first, how much may wait, what an interruption and a lost connection leave."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from minirun.agents._live_inbox import Inbox, inputs_of
from minirun.flows._live import Input
from minirun.models import LlmResponse
from minirun.testing import call
from minirun.types import Blob, Content, Part, Transcription

TEXT = Part(text="so")
CALL = call("look")
SPOKEN = Transcription(text="so")
PIECE, CALLS, INTERRUPTED, OVER = Input.PIECE, Input.CALLS, Input.INTERRUPTED, Input.OVER


def sound(ms: int) -> Part:
    """A piece of sound of 1 kHz, which is as fast as the inboxes here."""
    return Part(inline_data=Blob(data=bytes(2 * ms), mime_type="audio/pcm"))


def says(*parts: Part, **fields: Any) -> LlmResponse:
    """What a server says."""
    return LlmResponse(content=Content(role="model", parts=parts) if parts else None, partial=True, **fields)


async def all_of(inbox: Inbox) -> list[Any]:
    """What is in it: of what the server says the parts' lengths and texts, else what has happened."""
    found: list[Any] = []
    while inbox.has_items:
        item = await inbox.take()
        if isinstance(item, LlmResponse):
            parts = () if item.content is None else item.content.parts
            found.append([len(part.inline_data.data) // 2 if part.inline_data else part.text for part in parts])
        else:
            found.append(item[0].name)
    return found


@pytest.mark.parametrize(
    ("response", "inputs"),
    [
        (says(), []),
        (says(TEXT), [PIECE]),
        (says(sound(1)), [PIECE]),
        (says(CALL), [CALLS]),
        (says(TEXT, CALL), [CALLS]),
        (says(output_transcription=SPOKEN), [PIECE]),
        (says(sound(1), output_transcription=SPOKEN), [PIECE]),
        (says(CALL, output_transcription=SPOKEN), [PIECE, CALLS]),
        (says(interrupted=True), [INTERRUPTED]),
        (says(turn_complete=True), [OVER]),
        (says(interrupted=True, turn_complete=True), [INTERRUPTED, OVER]),
        (says(TEXT, interrupted=True, turn_complete=True), [PIECE, INTERRUPTED, OVER]),
        (says(CALL, output_transcription=SPOKEN, turn_complete=True), [PIECE, CALLS, OVER]),
        (LlmResponse(content=Content(role="model", parts=[]), turn_complete=True), [OVER]),
        (says(input_transcription=SPOKEN, speech_started=True, speech_stopped=True), []),
    ],
)
def test_what_a_response_means(response: LlmResponse, inputs: list[Input]) -> None:
    """Each thing once: what is said, then its calls, then the interruption, then the end of the turn."""
    assert inputs_of(response) == inputs


@pytest.mark.parametrize(
    ("waiting", "comes", "is_held"),
    [
        ([], sound(500), False),  # however long it is: there would never be room
        ([sound(60)], sound(40), False),
        ([sound(60)], sound(41), True),
        ([sound(50), sound(50)], sound(1), True),
        ([sound(50), sound(50)], TEXT, False),
        ([TEXT], sound(500), False),
        ([TEXT] * 999, TEXT, False),
        ([TEXT] * 1000, TEXT, True),
    ],
)
async def test_who_brings_more_than_may_wait_is_held_back(
    waiting: list[Part], comes: Part, is_held: bool, autojump_clock: MockClock
) -> None:
    """Until something is taken: a tenth of a second of sound may wait, and a thousand of anything."""
    inbox = Inbox(0.1, rate=1000)
    for part in waiting:
        await inbox.bring(says(part))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.bring, says(comes))
        await wait_all_tasks_blocked()
        inbox.post((Input.ASKED, None))  # what happens here is never held back
        place = len(waiting) + (not is_held)
        assert inbox._items[place][0] == (Input.ASKED, None)
        for _ in range(2):
            await inbox.take()
            await wait_all_tasks_blocked()
        assert len(inbox._items) == len(waiting)
    assert inbox.dropped_ms == 0


async def test_several_that_are_held_back_go_on_as_there_is_room(autojump_clock: MockClock) -> None:
    """Each takes its place when its sound fits; nothing is lost, and nothing is counted as dropped."""
    inbox = Inbox(0.1, rate=1000)
    await inbox.bring(says(sound(100)))
    async with trio.open_nursery() as nursery:
        for ms in (90, 80, 10):
            nursery.start_soon(inbox.bring, says(sound(ms)))
            await wait_all_tasks_blocked()
        found = []
        for _ in range(4):
            found.append(inbox.length_of(await inbox.take()))  # type: ignore[arg-type]  # nothing else is in it
            await wait_all_tasks_blocked()
    assert sorted(found) == [10, 80, 90, 100]
    assert (inbox.has_items, inbox.dropped_ms) == (False, 0)


async def test_what_nobody_hears_any_more_is_counted(autojump_clock: MockClock) -> None:
    """Who waits to bring sound and is cancelled counts it; cancelled before, it brings and counts nothing."""
    inbox = Inbox(0.1, rate=1000)
    await inbox.bring(says(sound(100)))
    with trio.move_on_after(1):
        await inbox.bring(says(TEXT, sound(30)))
    assert inbox.dropped_ms == 30
    with trio.CancelScope() as scope:
        scope.cancel()
        await inbox.bring(says(TEXT))
    assert (inbox.dropped_ms, await all_of(inbox)) == (30, [[100]])


async def test_an_interruption_drops_the_sound_before_it_and_nothing_else(autojump_clock: MockClock) -> None:
    """Texts stay, and what has happened; sound that is held back goes on, behind the interruption."""
    inbox = Inbox(0.1, rate=1000)
    await inbox.bring(says(sound(40)))
    await inbox.bring(says(TEXT, sound(60)))
    inbox.post((Input.ASKED, None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.bring, says(sound(70)))
        await wait_all_tasks_blocked()
        await inbox.bring(says(interrupted=True))
        await wait_all_tasks_blocked()
        assert inbox.dropped_ms == 100
        await inbox.bring(says(sound(30)))  # there is room for that beside the other
        with trio.move_on_after(1) as scope:
            await inbox.bring(says(sound(1)))
        assert scope.cancelled_caught
    assert await all_of(inbox) == [[], ["so"], "ASKED", [], [70], [30]]
    assert inbox.dropped_ms == 101
    with trio.fail_after(1):
        await inbox.bring(says(sound(100)))


async def test_pictures_are_no_sound(autojump_clock: MockClock) -> None:
    """They take none of the time that sound may wait, and an interruption leaves them where they are."""
    picture = Part(inline_data=Blob(data=bytes(600), mime_type="image/png"))
    inbox = Inbox(0.1, rate=1000)
    assert inbox.length_of(says(picture)) == 0.0
    assert inbox.length_of(says(picture, sound(30), TEXT, sound(40))) == 70.0
    await inbox.bring(says(sound(100), picture))
    with trio.fail_after(1):
        await inbox.bring(says(picture, picture))
    await inbox.bring(says(interrupted=True))
    assert inbox.dropped_ms == 100
    assert await all_of(inbox) == [[300], [300, 300], []]


async def test_a_connection_that_is_gone_leaves_what_has_happened_here(autojump_clock: MockClock) -> None:
    """Its responses are returned in order, their sound is dropped; its loss and its interruption are forgotten."""
    inbox = Inbox(0.1, rate=1000)
    first, second = says(sound(40)), says(TEXT, sound(60))
    await inbox.bring(first)
    inbox.post((Input.LOST, None))
    inbox.post((Input.ASKED, None))
    await inbox.bring(second)
    inbox.post((Input.INTERRUPTED, None))
    inbox.post((Input.INTERRUPTED, "what is played"))
    inbox.post((Input.CLOSE, None))
    assert inbox.drop_responses() == [first, second]
    assert inbox.dropped_ms == 100
    assert await all_of(inbox) == ["ASKED", "INTERRUPTED", "CLOSE"]
    with trio.fail_after(1):
        await inbox.bring(says(sound(100)))
    assert inbox.drop_responses() == [says(sound(100))]
    assert inbox.dropped_ms == 200


async def test_taking_is_a_checkpoint_that_loses_nothing(autojump_clock: MockClock) -> None:
    """Cancelled, it has taken nothing; waiting, it gets what is posted and what is brought."""
    inbox = Inbox(0.1, rate=1000)
    inbox.post((Input.ASKED, None))
    with trio.CancelScope() as scope:
        scope.cancel()
        await inbox.take()
    assert scope.cancelled_caught
    assert await all_of(inbox) == ["ASKED"]
    taken: list[Any] = []

    async def take() -> None:
        taken.append(await inbox.take())

    for item in ((Input.CLOSE, None), says(TEXT)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            await wait_all_tasks_blocked()
            if isinstance(item, LlmResponse):
                await inbox.bring(item)
            else:
                inbox.post(item)
            with trio.fail_after(1):
                await wait_all_tasks_blocked()
        assert taken.pop() == item
