"""
The queue of what is told to a live run: order, bounds, what is dropped, who waits, and what is refused at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from minirun import LiveRequestQueue
from minirun.agents import LiveRequest
from minirun.errors import (
    ConfigurationError,
    InvalidMessageError,
    InvalidValueError,
    InvocationEndedError,
    LiveQueueFullError,
    ServiceInUseError,
)
from minirun.testing import call
from minirun.types import ActivityEnd, ActivityStart, Blob, Content, FunctionResponse, Part

START = LiveRequest(activity_start=ActivityStart())
END = LiveRequest(activity_end=ActivityEnd())
OFF = LiveRequest(audio_stream_end=True)
CLOSE = LiveRequest(close=True)


def sound(ms: int, mark: int = 0, rate: int | None = 16_000) -> Blob:
    """Some milliseconds of samples of 16 bits, all alike."""
    samples = (rate or 16_000) * ms // 1000
    mime_type = "audio/pcm" if rate is None else f"audio/pcm;rate={rate}"
    return Blob(data=mark.to_bytes(2, "little") * samples, mime_type=mime_type)


def picture(mark: int = 0) -> Blob:
    return Blob(data=bytes([mark]), mime_type="image/jpeg")


def said(text: str) -> LiveRequest:
    return LiveRequest(content=Content(role="user", parts=[Part(text=text)]))


async def all_of(queue: LiveRequestQueue) -> list[LiveRequest]:
    """What is in the queue, which is closed."""
    queue.close()
    taken = []
    while (request := await queue.get()) != CLOSE:
        taken.append(request)
    return taken


# --- order ------------------------------------------------------------------------------------------------------------


async def test_what_is_sent_comes_out_in_its_order() -> None:
    """
    ADK's methods make requests of one thing each; texts are contents of the user; `close` is the last, again and again.
    """
    queue = LiveRequestQueue()
    queue.send_content(Content(role="user", parts=[Part(text="a")]))
    queue.send_activity_start()
    queue.send_realtime(sound(20))
    queue.send_content("b", partial=True)
    queue.send_realtime(picture())
    queue.send_realtime(sound(20, 1))
    queue.send_activity_end()
    queue.send_audio_stream_end()
    assert await all_of(queue) == [
        said("a"), START, LiveRequest(blob=sound(20)), LiveRequest(content="b", partial=True),
        LiveRequest(blob=picture()), LiveRequest(blob=sound(20, 1)), END, OFF,
    ]  # fmt: skip
    assert [await queue.get() for _ in range(2)] == [CLOSE, CLOSE]


async def test_a_request_of_several_things_is_taken_apart() -> None:
    """
    ADK's order holds among them, and nothing of them is lost; the state goes with the content, or by itself.
    """
    queue = LiveRequestQueue()
    everything = LiveRequest(
        content="a", partial=True, blob=sound(20), activity_start=ActivityStart(), activity_end=ActivityEnd(),
        audio_stream_end=True, state_delta={"mood": [1]}, close=True, id="m-1",
    )  # fmt: skip
    queue.send(LiveRequest(state_delta={"n": 1}))
    queue.send(everything)
    assert queue.closed
    assert await all_of(queue) == [
        LiveRequest(state_delta={"n": 1}), START, END, OFF, LiveRequest(blob=sound(20)),
        LiveRequest(content="a", partial=True, state_delta={"mood": [1]}, id="m-1"),
    ]  # fmt: skip


async def test_responses_to_calls_are_a_content() -> None:
    """
    Answers to open questions go in as contents of the user do, whatever role they were given.
    """
    answer = Content(role="function", parts=[Part(function_response=FunctionResponse(name="f", id="c-1"))])
    queue = LiveRequestQueue()
    queue.send_content(answer)
    [request] = await all_of(queue)
    assert request.content is not None
    assert (request.content.role, request.content.parts) == ("user", answer.parts)


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_contents_and_signals_that_do_not_fit_are_refused_whole() -> None:
    """
    Nothing of such a request is taken, its sound included; once something is taken out there is room again.
    """
    queue = LiveRequestQueue(max_contents=2)
    queue.send_content("a")
    queue.send_activity_start()
    tries: list[Callable[[], None]] = [
        lambda: queue.send_content("b"), queue.send_activity_end, queue.send_audio_stream_end,
        lambda: queue.send(LiveRequest(blob=sound(20), state_delta={"n": 1})),
    ]  # fmt: skip
    for send in tries:
        with pytest.raises(LiveQueueFullError, match=r"expected room .*found 2 waiting .*await queue\.put"):
            send()
    queue.send_realtime(sound(20))
    assert queue.audio_ms == 20
    assert await queue.get() == said("a")
    queue.send_content("c")
    assert await all_of(queue) == [START, LiveRequest(blob=sound(20)), said("c")]


def test_a_request_of_several_contents_fits_if_nothing_waits() -> None:
    """
    Otherwise it would never be taken, however long it waits.
    """
    queue = LiveRequestQueue(max_contents=1)
    queue.send(LiveRequest(activity_start=ActivityStart(), content="a"))
    with pytest.raises(LiveQueueFullError):
        queue.send_activity_end()


async def test_the_oldest_sound_goes_first_and_is_counted() -> None:
    """
    In milliseconds, each piece by its own rate; signals and contents among it stay where they were.
    """
    queue = LiveRequestQueue(audio_s_max=0.1)
    queue.send_activity_start()
    queue.send_realtime(sound(40, 1, rate=24_000))
    queue.send_content("a")
    queue.send_realtime(sound(40, 2, rate=None))
    queue.send_realtime(sound(40, 3))
    queue.send_activity_end()
    assert (queue.audio_ms, queue.dropped_audio_ms) == (80, 40)
    queue.send_realtime(sound(10, 4, rate=8_000))
    queue.send_realtime(sound(20, 5, rate=48_000))
    assert (queue.take_dropped_ms(), queue.take_dropped_ms(), queue.dropped_audio_ms) == (80, 0, 80)
    assert await all_of(queue) == [
        START, said("a"), LiveRequest(blob=sound(40, 3)), END, LiveRequest(blob=sound(10, 4, rate=8_000)),
        LiveRequest(blob=sound(20, 5, rate=48_000)),
    ]  # fmt: skip
    assert queue.audio_ms == 0


async def test_of_a_piece_longer_than_all_the_room_the_end_is_kept() -> None:
    """
    Everything before it is dropped with its beginning; `put`, which drops nothing, refuses it.
    """
    queue = LiveRequestQueue(audio_s_max=0.1)
    queue.send_realtime(sound(20, 1))
    long = Blob(data=sound(150, 2).data + sound(100, 3).data, mime_type="audio/pcm;rate=16000")
    with pytest.raises(LiveQueueFullError, match=r"at most 0\.1 seconds, found one of 0\.25; cut it up"):
        await queue.put(LiveRequest(blob=long))
    queue.send_realtime(long)
    assert queue.take_dropped_ms() == 170
    assert await all_of(queue) == [LiveRequest(blob=sound(100, 3))]


async def test_only_the_newest_picture_waits() -> None:
    """
    It has its own place in the order; those before it are counted.
    """
    queue = LiveRequestQueue()
    queue.send_realtime(picture(1))
    queue.send_content("a")
    queue.send_realtime(picture(2))
    queue.send_content("b")
    assert (queue.dropped_pictures, queue.take_dropped_pictures(), queue.take_dropped_pictures()) == (1, 1, 0)
    assert await all_of(queue) == [said("a"), LiveRequest(blob=picture(2)), said("b")]
    assert queue.dropped_pictures == 1


async def test_old_sound_can_be_dropped_after_a_pause() -> None:
    """
    So much of the newest is kept at most, in whole pieces; everything else stays; a bad time is refused.
    """
    queue = LiveRequestQueue()
    for mark in range(10):
        queue.send_realtime(sound(20, mark))
    queue.send_content("a")
    assert queue.drop_audio_older(0.05) == 160
    assert (queue.audio_ms, queue.take_dropped_ms()) == (40, 160)
    assert queue.drop_audio_older(2.0) == 0
    for bad in (-1, math.nan, "1"):
        with pytest.raises(ConfigurationError, match="expected seconds from 0 up"):
            queue.drop_audio_older(bad)  # type: ignore[arg-type]  # that is the point
    assert await all_of(queue) == [LiveRequest(blob=sound(20, 8)), LiveRequest(blob=sound(20, 9)), said("a")]


def test_no_sound_is_nothing() -> None:
    """
    A piece without samples takes no room, however many there are.
    """
    queue = LiveRequestQueue()
    for _ in range(1000):
        queue.send_realtime(sound(0))
    queue.close()
    assert trio.run(queue.get) == CLOSE


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        ("hello", "expected a Blob of sound or of a picture, found 'hello'.*send_content"),
        (b"\0\0", "expected a Blob"),
        (Blob(data=b"\0\0", mime_type="audio/webm"), "found 'audio/webm'; convert it to samples of 16 bits"),
        (Blob(data=b"\0\0", mime_type="video/mp4"), "expected a Blob of 'audio/pcm;rate=16000' or 'image/...'"),
        (Blob(data=b"\0", mime_type="audio/pcm"), "expected whole samples of 2 bytes, found 1 bytes"),
        (Blob(data=b"\0\0", mime_type="audio/pcm;rate=fast"), "expected a rate from 1 to 384000"),
        (Blob(data=b"\0\0", mime_type="audio/pcm;rate=0"), "expected a rate"),
        (Blob(data=b"\0\0", mime_type="audio/pcm;rate=10000000"), "expected a rate"),
        (Blob(data=b"\0\0", mime_type="audio/pcm; channels=2"), "expected sound of one channel"),
    ],
)
async def test_what_is_neither_sound_nor_picture_is_refused_at_once(blob: Any, message: str) -> None:
    """
    `send_realtime`, `send` and `put` all do so, and take nothing.
    """
    queue = LiveRequestQueue()
    with pytest.raises(InvalidMessageError, match=message):
        queue.send_realtime(blob)
    with pytest.raises(InvalidMessageError, match=message):
        LiveRequest(blob=blob)
    assert await all_of(queue) == []


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"content": ""}, InvalidMessageError, "expected a content with something in it"),
        ({"content": 5}, InvalidMessageError, "expected content to be a string or a Content, found int"),
        ({"content": Content(role="user", parts=[call("f")])}, InvalidMessageError, "without function calls"),
        ({"partial": True}, InvalidMessageError, "expected partial, and an id, with a content"),
        ({"id": "m-1"}, InvalidMessageError, "expected partial, and an id, with a content"),
        ({"content": "a", "id": " "}, InvalidValueError, r"LiveRequest\.id: expected"),
        ({"content": "a", "partial": 1}, InvalidMessageError, r"LiveRequest\.partial to be True or False, found 1"),
        ({"activity_start": True}, InvalidMessageError, r"expected ActivityStart\(\), or None, found True"),
        ({"activity_end": ActivityStart()}, InvalidMessageError, r"expected ActivityEnd\(\), or None"),
        ({"audio_stream_end": None}, InvalidMessageError, r"LiveRequest\.audio_stream_end to be True or False"),
        ({"state_delta": [1]}, InvalidValueError, "state_delta: expected a mapping, found list"),
        ({"state_delta": {"a": object()}}, InvalidValueError, r"state_delta\['a'\]"),
        ({"state_delta": {"app:": 1}}, InvalidValueError, "state_delta"),
        ({"close": "yes"}, InvalidMessageError, r"LiveRequest\.close to be True or False"),
    ],
)
def test_a_request_that_makes_no_sense_cannot_be_made(
    fields: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """
    The error says which field it is, before anything is sent.
    """
    with pytest.raises(kind, match=message):
        LiveRequest(**fields)


async def test_what_is_no_request_or_says_nothing_is_refused() -> None:
    """
    So that no client waits for an answer to it.
    """
    queue = LiveRequestQueue()
    for bad, message in ((LiveRequest(), "found an empty one"), ("hi", "expected a LiveRequest, found 'hi'")):
        with pytest.raises(InvalidMessageError, match=message):
            queue.send(bad)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(InvalidMessageError, match=message):
            await queue.put(bad)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("options", [{"max_contents": 0}, {"audio_s_max": 0}, {"audio_s_max": math.inf}])
def test_a_queue_without_room_is_not_made(options: dict[str, Any]) -> None:
    """
    The bounds are numbers above 0.
    """
    with pytest.raises(ConfigurationError, match=f"{next(iter(options))}: expected .* above 0"):
        LiveRequestQueue(**options)


# --- closing, and who takes out ---------------------------------------------------------------------------------------


async def test_a_closed_queue_takes_nothing_more() -> None:
    """
    Each way of sending raises, with what to do; what was sent before comes out; closing again is harmless.
    """
    queue = LiveRequestQueue()
    queue.send_content("a")
    queue.close()
    queue.close()
    tries: list[Callable[[], None]] = [
        lambda: queue.send_content("b"), lambda: queue.send_realtime(sound(20)), lambda: queue.send(CLOSE),
        queue.send_activity_start, queue.send_activity_end, queue.send_audio_stream_end, queue.begin_use,
    ]  # fmt: skip
    for send in tries:
        with pytest.raises(InvocationEndedError, match=r"is closed.*make another queue"):
            send()
    with pytest.raises(InvocationEndedError, match="is closed"):
        await queue.put(said("b"))
    assert await all_of(queue) == [said("a")]


def test_a_queue_serves_one_run() -> None:
    """
    Another run is refused, unless the first one has given it back, as it has not begun.
    """
    queue = LiveRequestQueue()
    queue.begin_use()
    with pytest.raises(ServiceInUseError, match="make one for each run"):
        queue.begin_use()
    queue.give_back()
    queue.begin_use()


async def test_only_one_task_takes_out() -> None:
    """
    A second one that waits is refused; the first is served.
    """
    queue, taken = LiveRequestQueue(), []

    async def take() -> None:
        taken.append(await queue.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ServiceInUseError, match="only one may"):
            await queue.get()
        queue.send_content("a")
    assert taken == [said("a")]


async def test_a_reader_that_is_cancelled_has_taken_nothing() -> None:
    """
    Neither while it waits, nor if it is cancelled before it begins; the next one gets everything.
    """
    queue = LiveRequestQueue()
    with trio.move_on_after(0) as scope:
        await queue.get()
    assert scope.cancelled_caught
    with trio.CancelScope() as scope:
        queue.send_content("a")
        scope.cancel()
        await queue.get()
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.get)
        await trio.testing.wait_all_tasks_blocked()
    assert await all_of(queue) == []


async def test_a_reader_wakes_for_whatever_comes() -> None:
    """
    A content, a signal, sound, a picture and the end of all; not for sound that is dropped before it can look.
    """
    queue, taken = LiveRequestQueue(), []

    async def take_all() -> None:
        while (request := await queue.get()) != CLOSE:
            taken.append(request)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_all)
        sends: list[Callable[[], None]] = [
            lambda: queue.send_content("a"), queue.send_activity_end, lambda: queue.send_realtime(sound(20)),
            lambda: queue.send_realtime(picture()), queue.close,
        ]  # fmt: skip
        for send in sends:
            await trio.testing.wait_all_tasks_blocked()
            before = len(taken)
            queue.send_realtime(sound(20, 9))
            queue.drop_audio_older(0)
            await trio.testing.wait_all_tasks_blocked()
            assert len(taken) == before
            send()
    assert taken == [said("a"), END, LiveRequest(blob=sound(20)), LiveRequest(blob=picture())]


# --- waiting for room -------------------------------------------------------------------------------------------------


async def test_put_waits_for_room_and_drops_nothing() -> None:
    """
    Contents wait for contents and sound for sound, each in their order; nobody waits for the other kind.
    """
    queue, done = LiveRequestQueue(max_contents=1, audio_s_max=0.05), []

    async def put(request: LiveRequest, name: str) -> None:
        await queue.put(request)
        done.append(name)

    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "c"):
            nursery.start_soon(put, said(name), name)
            await trio.testing.wait_all_tasks_blocked()
        for mark in range(4):
            nursery.start_soon(put, LiveRequest(blob=sound(20, mark)), str(mark))
            await trio.testing.wait_all_tasks_blocked()
        assert done == ["a", "0", "1"]
        taken = []
        for _ in range(7):
            taken.append(await queue.get())
            await trio.testing.wait_all_tasks_blocked()
    assert [each for each in done if each in "abc"] == ["a", "b", "c"]
    assert [each for each in done if each in "0123"] == ["0", "1", "2", "3"]
    assert [each for each in taken if each.content] == [said(name) for name in "abc"]
    assert [each.blob for each in taken if each.blob] == [sound(20, mark) for mark in range(4)]
    assert queue.dropped_audio_ms == 0


async def test_put_that_is_cancelled_has_sent_nothing() -> None:
    """
    Neither the first that waits, nor one behind it, nor one that would not have had to wait; others go on.
    """
    queue = LiveRequestQueue(max_contents=1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await queue.put(said("at once"))
    assert scope.cancelled_caught
    queue.send_content("a")
    async with trio.open_nursery() as nursery:
        for name in ("first", "second"):
            nursery.start_soon(queue.put, said(name))
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.put, said("b"))
        await trio.testing.wait_all_tasks_blocked()
        assert await queue.get() == said("a")
    assert await all_of(queue) == [said("b")]


async def test_closing_wakes_all_that_wait_for_room() -> None:
    """
    They are told that the queue is closed, the sender of sound, too; and nothing of theirs was taken.
    """
    queue, told = LiveRequestQueue(max_contents=1, audio_s_max=0.02), []

    async def put(request: LiveRequest) -> None:
        with pytest.raises(InvocationEndedError):
            await queue.put(request)
        told.append(request)

    queue.send(LiveRequest(content="a", blob=sound(20)))
    async with trio.open_nursery() as nursery:
        for request in (said("b"), said("c"), LiveRequest(blob=sound(20)), LiveRequest(blob=sound(10))):
            nursery.start_soon(put, request)
        await trio.testing.wait_all_tasks_blocked()
        queue.close()
    assert len(told) == 4
    assert await all_of(queue) == [LiveRequest(blob=sound(20)), said("a")]


async def test_a_short_piece_does_not_overtake_a_long_one_that_waits() -> None:
    """
    Sound that is put stays in its order, even where there would be room for what comes later.
    """
    queue = LiveRequestQueue(audio_s_max=0.05)
    queue.send_realtime(sound(20))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.put, LiveRequest(blob=sound(40, 1)))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(queue.put, LiveRequest(blob=sound(10, 2)))
        await trio.testing.wait_all_tasks_blocked()
        assert queue.audio_ms == 20
        assert await queue.get() == LiveRequest(blob=sound(20))
    assert await all_of(queue) == [LiveRequest(blob=sound(40, 1)), LiveRequest(blob=sound(10, 2))]


async def test_room_that_comes_with_the_end_is_no_room() -> None:
    """
    Who waits in `put` while something is taken out, and the queue is closed at once, is told so.
    """
    queue = LiveRequestQueue(max_contents=1)
    queue.send_content("a")
    async with trio.open_nursery() as nursery:

        async def put() -> None:
            with pytest.raises(InvocationEndedError):
                await queue.put(said("b"))

        nursery.start_soon(put)
        await trio.testing.wait_all_tasks_blocked()
        assert await queue.get() == said("a")
        queue.close()
    assert await all_of(queue) == []


async def test_other_threads_send_through_trio() -> None:
    """
    A callback of a sound driver hands its pieces over as the module says.
    """
    queue = LiveRequestQueue()

    def record() -> None:
        assert threading.current_thread() is not threading.main_thread()
        for mark in range(3):
            trio.from_thread.run_sync(queue.send_realtime, sound(20, mark))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, record)
        taken = [await queue.get() for _ in range(3)]
    assert taken == [LiveRequest(blob=sound(20, mark)) for mark in range(3)]


# --- the law ----------------------------------------------------------------------------------------------------------

CONTENTS_MAX, AUDIO_MS_MAX = 3, 100
STEPS = st.one_of(
    st.tuples(st.just("content"), st.just(0)),
    st.tuples(st.just("signal"), st.just(0)),
    st.tuples(st.just("sound"), st.integers(0, 250)),
    st.tuples(st.just("picture"), st.just(0)),
    st.tuples(st.just("take"), st.just(0)),
    st.tuples(st.just("keep"), st.integers(0, 120)),
)


@given(st.lists(STEPS, max_size=60))
def test_order_holds_bounds_hold_and_all_that_is_missing_is_counted(steps: list[tuple[str, int]]) -> None:
    """
    What comes out is what went in, in order, but for what the counts of drops say; a reader without anything waits.
    """
    trio.run(follow, steps, clock=trio.testing.MockClock(autojump_threshold=0))


async def follow(steps: list[tuple[str, int]]) -> None:
    queue = LiveRequestQueue(max_contents=CONTENTS_MAX, audio_s_max=AUDIO_MS_MAX / 1000)
    sent: list[LiveRequest] = []  # what has to come out, or to be counted
    taken: list[LiveRequest] = []
    for number, (step, ms) in enumerate(steps):
        waiting = sum(each.blob is None for each in sent) - sum(each.blob is None for each in taken)
        if step == "sound":
            queue.send_realtime(sound(ms, number))
            sent += [LiveRequest(blob=sound(ms, number))] if ms else []
        elif step == "picture":
            queue.send_realtime(picture(number))
            sent.append(LiveRequest(blob=picture(number)))
        elif step == "keep":
            before = queue.audio_ms
            dropped = queue.drop_audio_older(ms / 1000)
            assert queue.audio_ms == before - dropped <= max(ms, 0)
        elif step == "take":
            with trio.move_on_after(1):
                taken.append(await queue.get())
        elif waiting < CONTENTS_MAX:
            request = said(str(number)) if step == "content" else END
            queue.send(request)
            sent.append(request)
        else:
            with pytest.raises(LiveQueueFullError):
                queue.send(END)
        assert queue.audio_ms <= AUDIO_MS_MAX
    taken += await all_of(queue)
    check(queue, sent, taken)


def is_picture(request: LiveRequest) -> bool:
    return request.blob is not None and request.blob.mime_type == "image/jpeg"


def check(queue: LiveRequestQueue, sent: list[LiveRequest], taken: list[LiveRequest]) -> None:
    """Match what came out against what went in, from the front."""
    missing_ms = missing_pictures = 0
    rest = iter(taken)
    here = next(rest, None)
    for each in sent:
        if here is not None and is_end_of(here, each):
            missing_ms += length_ms(each) - length_ms(here)
            here = next(rest, None)
        else:
            assert each.blob is not None, "no content and no signal is ever lost"
            missing_pictures += is_picture(each)
            missing_ms += length_ms(each)
    assert here is None, "nothing comes out that has not gone in, and nothing out of order"
    assert (missing_ms, missing_pictures) == (queue.dropped_audio_ms, queue.dropped_pictures)


def is_end_of(taken: LiveRequest, sent: LiveRequest) -> bool:
    """Whether it is the same, or the end of a piece of sound that was longer than all the room."""
    if taken.blob is None or sent.blob is None or is_picture(taken) or is_picture(sent):
        return taken == sent
    is_cut = length_ms(sent) > AUDIO_MS_MAX and length_ms(taken) == AUDIO_MS_MAX
    return taken == sent or (is_cut and sent.blob.data.endswith(taken.blob.data))


def length_ms(request: LiveRequest) -> int:
    return 0 if request.blob is None or is_picture(request) else len(request.blob.data) // 2 // 16
