"""`LiveRequestQueue`: order, bounds, waiting and closing. It needs no live run."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from minirun.agents import LiveRequest, LiveRequestQueue
from minirun.errors import (
    ConfigurationError,
    InvalidMessageError,
    InvalidValueError,
    InvocationEndedError,
    LiveQueueFullError,
    ServiceInUseError,
)
from minirun.types import ActivityEnd, ActivityStart, Blob, Content, FunctionCall, Part


def sound(ms: int, rate: int = 16_000) -> Blob:
    """Audio of this length."""
    return Blob(data=b"\1\0" * (ms * rate // 1000), mime_type=f"audio/pcm;rate={rate}")


CALL = Content(role="user", parts=[Part(function_call=FunctionCall(name="f"))])
IMAGE = Blob(data=b"jpeg", mime_type="image/jpeg")


async def drained(queue: LiveRequestQueue) -> list[str]:
    """Close the queue, and say what was in it, a word for each entry."""
    queue.close()
    found: list[str] = []
    while not (entry := await queue.get()).close:
        if entry.blob is not None:
            found.append("image" if entry.blob is IMAGE else f"{len(entry.blob.data) // 32}ms")
        elif entry.content is not None:
            found.append(entry.content.text + ("..." if entry.partial else ""))
        else:
            names = ("activity_start", "activity_end", "audio_stream_end", "state_delta")
            found += [name for name in names if getattr(entry, name)]
    return found


async def test_entries_come_out_in_the_order_in_which_they_were_sent() -> None:
    """ADK's methods, whatever they send; a request with several fields becomes several entries."""
    queue = LiveRequestQueue()
    queue.send_content("a", partial=True)
    queue.send_realtime(sound(10))
    queue.send_activity_start()
    queue.send_realtime(IMAGE)
    queue.send_content(Content(role="user", parts=[Part(text="b")]))
    queue.send_activity_end()
    queue.send_audio_stream_end()
    everything: dict[str, Any] = {"activity_start": ActivityStart(), "activity_end": ActivityEnd()}
    queue.send(LiveRequest(**everything, audio_stream_end=True, blob=sound(5), content="c", state_delta={"k": 1}))
    queue.send(LiveRequest(state_delta={"k": 2}, close=True))
    assert queue.closed
    assert await drained(queue) == [
        "a...", "10ms", "activity_start", "image", "b", "activity_end", "audio_stream_end",
        "activity_start", "activity_end", "audio_stream_end", "5ms", "c", "state_delta",
    ]  # fmt: skip


async def test_one_content_too_many_is_refused_and_nothing_is_taken() -> None:
    """Contents, images and signals share `max_contents`; audio does not count. A request is taken whole or not."""
    queue = LiveRequestQueue(max_contents=2)
    queue.send_content("a")
    queue.send_realtime(sound(10))
    queue.send_realtime(IMAGE)
    for send in (queue.send_activity_start, lambda: queue.send_content("b"), lambda: queue.send_realtime(IMAGE)):
        with pytest.raises(LiveQueueFullError, match="2 contents, images and signals wait"):
            send()
    with pytest.raises(LiveQueueFullError):
        queue.send(LiveRequest(content="c", blob=sound(10)))
    assert await drained(queue) == ["a", "10ms", "image"]


async def test_a_request_with_more_than_fits_is_taken_if_nothing_waits() -> None:
    """Otherwise it could never be sent."""
    queue = LiveRequestQueue(max_contents=1)
    queue.send(LiveRequest(activity_start=ActivityStart(), content="a"))
    assert await drained(queue) == ["activity_start", "a"]


@given(st.lists(st.integers(1, 700), max_size=30), st.integers(0, 5))
def test_the_newest_audio_stays_and_the_rest_is_counted(lengths: list[int], contents: int) -> None:
    """At most `audio_s_max` waits, but for one piece that is longer; contents stay; nothing else is dropped."""

    async def check() -> None:
        queue = LiveRequestQueue(audio_s_max=0.5)
        for number, ms in enumerate(lengths):
            queue.send_realtime(sound(ms))
            if number < contents:
                queue.send_content(f"c{number}")
        found = await drained(queue)
        left = [int(each.removesuffix("ms")) for each in found if each.endswith("ms")]
        assert [each for each in found if not each.endswith("ms")] == [
            f"c{number}" for number in range(min(contents, len(lengths)))
        ]
        assert left == lengths[len(lengths) - len(left) :]
        assert sum(left) <= 500 or len(left) == 1
        assert queue.dropped_audio_ms == pytest.approx(sum(lengths) - sum(left), abs=1)

    trio.run(check)


async def test_put_waits_for_room_and_drops_nothing(autojump_clock: MockClock) -> None:
    """A microphone that is faster than the connection is held back; its audio comes out whole, in order."""
    queue = LiveRequestQueue(audio_s_max=0.1)

    async def microphone() -> None:
        for ms in (60, 30, 50, 90, 10):
            await queue.put(sound(ms))
        await queue.put(LiveRequest(audio_stream_end=True))
        queue.close()

    found: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(microphone)
        await wait_all_tasks_blocked()
        while isinstance(entry := await queue.take(), Blob):
            found.append(len(entry.data) // 32)
            await trio.sleep(0.1)
    assert (found, queue.dropped_audio_ms) == ([60, 30, 50, 90, 10], 0)


async def test_a_cancelled_put_has_sent_nothing(autojump_clock: MockClock) -> None:
    """It waits for room; the entry is not taken later."""
    queue = LiveRequestQueue(max_contents=1)
    queue.send_content("a")
    with trio.move_on_after(1) as scope:
        await queue.put(LiveRequest(content="b"))
    assert scope.cancelled_caught
    assert await drained(queue) == ["a"]


async def test_closing_wakes_those_that_wait() -> None:
    """Who waits for room is told that the queue is closed; who reads gets what was sent before, then `close`."""
    queue, errors = LiveRequestQueue(max_contents=1), []
    queue.send_content("a")

    async def put() -> None:
        with pytest.raises(InvocationEndedError) as raised:
            await queue.put(LiveRequest(content="b"))
        errors.append(raised.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put)
        await wait_all_tasks_blocked()
        queue.close()
    assert len(errors) == 1
    queue.close()
    assert (await queue.get()).content is not None
    assert [(await queue.get()).close for _ in range(2)] == [True, True]
    with pytest.raises(InvocationEndedError):
        queue.send_realtime(sound(10))


async def test_one_task_takes_entries_out() -> None:
    """A second one would take away what the first waits for. A cancelled `take` has taken nothing."""
    queue = LiveRequestQueue()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.take)
        await wait_all_tasks_blocked()
        with pytest.raises(ServiceInUseError):
            await queue.take()
        nursery.cancel_scope.cancel()
    queue.send_content("a")
    assert await drained(queue) == ["a"]


def test_a_queue_serves_one_run() -> None:
    """Unless that run has not begun."""
    queue = LiveRequestQueue()
    queue.begin_use()
    with pytest.raises(ServiceInUseError):
        queue.begin_use()
    queue.give_back()
    queue.begin_use()


@pytest.mark.parametrize(
    ("fields", "error", "found"),
    [
        ({"content": 3}, InvalidMessageError, "content"),
        ({"content": CALL}, InvalidMessageError, "call"),
        ({"blob": b"x"}, InvalidMessageError, "send_content"),
        ({"blob": Blob(data=b"x", mime_type="video/mp4")}, InvalidMessageError, "video/mp4"),
        ({"blob": Blob(data=b"x", mime_type="audio/pcm")}, InvalidMessageError, "whole samples"),
        ({"blob": Blob(data=b"xx", mime_type="audio/pcm;rate=0")}, InvalidMessageError, "rate=0"),
        ({"blob": Blob(data=b"xx", mime_type="audio/pcm;channels=2")}, InvalidMessageError, "one channel"),
        ({"activity_start": True}, InvalidMessageError, "ActivityStart"),
        ({"close": 1}, InvalidMessageError, "LiveRequest.close"),
        ({"partial": True}, InvalidMessageError, "belong to a content"),
        ({"state_delta": {"a": object()}}, InvalidValueError, "a"),
        ({"state_delta": [1]}, InvalidValueError, "mapping"),
    ],
)
def test_a_bad_request_is_refused_where_it_is_made(fields: Any, error: type[Exception], found: str) -> None:
    """The error names the field or the value."""
    with pytest.raises(error, match=found):
        LiveRequest(**fields)


@pytest.mark.parametrize("fields", [{"max_contents": 0}, {"max_contents": True}, {"audio_s_max": 0}])
def test_bad_bounds_are_refused(fields: Any) -> None:
    """They are numbers above 0."""
    with pytest.raises(ConfigurationError, match=next(iter(fields))):
        LiveRequestQueue(**fields)


def test_what_is_no_request_is_refused() -> None:
    """And an empty request, and audio without samples is nothing."""
    queue = LiveRequestQueue()
    for wrong in ("text", LiveRequest()):
        with pytest.raises(InvalidMessageError):
            queue.send(wrong)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidMessageError):
        queue.send_realtime(b"x")  # type: ignore[arg-type]  # that is the point
    queue.send_realtime(Blob(data=b"", mime_type="audio/pcm"))
    assert trio.run(drained, queue) == []
