"""Live requests and their queue at their bounds: rates, room, waiting senders of sound, and what was not sent."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from minirun import LiveRequestQueue
from minirun.agents import LiveRequest
from minirun.errors import InvalidMessageError, InvocationEndedError, LiveQueueFullError
from minirun.types import ActivityEnd, ActivityStart, Blob, Content, FunctionResponse, Part

CLOSE = LiveRequest(close=True)
ANSWER = Content(role="user", parts=[Part(function_response=FunctionResponse(name="f", id="c-1"))])


def sound(samples: int, mime_type: str = "audio/pcm;rate=1000", mark: int = 0) -> Blob:
    """So many samples of 16 bits, all alike; of this type each is a millisecond."""
    return Blob(data=mark.to_bytes(2, "little") * samples, mime_type=mime_type)


def picture(mark: int = 0) -> Blob:
    return Blob(data=bytes([mark]), mime_type="image/jpeg")


def refusing_pictures(mime_type: str) -> None:
    """What a line does that takes no pictures."""
    if mime_type.startswith("image/"):
        raise InvalidMessageError("no pictures")


async def rest(queue: LiveRequestQueue) -> list[Any]:
    """What is in the queue, which is closed."""
    queue.close()
    taken: list[Any] = []
    while (each := await queue.take()) != CLOSE:
        taken.append(each)
    return taken


# --- types of sound ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mime_type", "samples", "expected_ms"),
    [
        ("audio/pcm", 16_000, 1_000),
        ("audio/pcm;rate=16000", 1_600, 100),
        (" Audio/PCM ; Rate = 24000 ", 2_400, 100),
        ("audio/pcm;rate=1", 2, 2_000),
        ("audio/pcm;rate=384000", 384, 1),
        ("audio/pcm;rate=000008000", 8, 1),
        ("audio/pcm;channels=1;rate=8000", 8_000, 1_000),
        ("audio/pcm; channels= 1 ", 16, 1),
        ("audio/pcm;encoding=signed-int", 16, 1),
    ],
)
def test_the_length_of_sound_is_that_of_its_samples(mime_type: str, samples: int, expected_ms: int) -> None:
    """The rate and the one channel are read from the type, wherever there are spaces and capitals in it."""
    queue = LiveRequestQueue()
    queue.send_realtime(sound(samples, mime_type))
    assert queue.audio_ms == expected_ms


@pytest.mark.parametrize(
    ("mime_type", "message"),
    [
        ("audio/pcm;rate=0", "expected a rate from 1 to 384000 samples a second, found 'audio/pcm;rate=0'"),
        ("audio/pcm;rate=384001", "expected a rate from 1 to 384000"),
        ("audio/pcm;rate=0000016000", "expected a rate from 1 to 384000"),
        ("audio/pcm;rate=-1", "expected a rate from 1 to 384000"),
        ("audio/pcm;rate=\u0661", "expected a rate from 1 to 384000"),
        ("audio/pcm;rate=", "expected a rate from 1 to 384000"),
        ("audio/pcm;rate=8000;rate=8000", "expected each parameter once, found"),
        ("audio/pcm;channels=2", "expected sound of one channel, found 'audio/pcm;channels=2'; mix them"),
        ("audio/pcm;rate=8000;channels=", "expected sound of one channel"),
        ("audio/l16", "expected a Blob of 'audio/pcm;rate=16000' or 'image/...', found 'audio/l16'"),
    ],
)
def test_sound_of_another_kind_is_refused(mime_type: str, message: str) -> None:
    """The bounds of a rate are 1 and 384 000, in nine digits of ASCII at most; each parameter stands there once."""
    with pytest.raises(InvalidMessageError, match=message):
        LiveRequest(blob=sound(16, mime_type))


def test_half_a_sample_is_refused() -> None:
    """A sample has two bytes; the error says what to do with the odd one."""
    with pytest.raises(InvalidMessageError, match="whole samples of 2 bytes, found 3 bytes; keep the last byte for"):
        LiveRequest(blob=Blob(data=b"\0\0\0", mime_type="audio/pcm"))


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({}, []),
        ({"close": True}, []),
        ({"content": "a"}, [{"content": "a"}]),
        ({"content": "a", "close": True}, [{"content": "a"}]),
        ({"state_delta": {"n": 1}}, [{"state_delta": {"n": 1}}]),
        ({"content": ANSWER, "id": "m"}, [{"content": ANSWER, "id": "m"}]),
        (
            {"content": "a", "blob": picture(), "partial": True, "id": "m"},
            [{"blob": picture()}, {"content": "a", "partial": True, "id": "m"}],
        ),
        (
            {"audio_stream_end": True, "activity_end": ActivityEnd(), "activity_start": ActivityStart()},
            [{"activity_start": ActivityStart()}, {"activity_end": ActivityEnd()}, {"audio_stream_end": True}],
        ),
    ],
)
def test_a_request_is_taken_apart_into_requests_of_one_thing(
    fields: dict[str, Any], parts: list[dict[str, Any]]
) -> None:
    """In the documented order, each with what belongs to it; that nothing follows is no thing of its own."""
    assert LiveRequest(**fields).split() == [LiveRequest(**each) for each in parts]


@pytest.mark.parametrize("others", [{"partial": True}, {"state_delta": {"n": 1}}])
def test_an_answer_to_a_question_comes_with_nothing_else(others: dict[str, Any]) -> None:
    """More of the turn, and a change of the state, would have no effect there, and are refused."""
    with pytest.raises(InvalidMessageError, match="without partial and state_delta, which have no effect there; send"):
        LiveRequest(content=ANSWER, **others)
    assert LiveRequest(content=ANSWER, state_delta={}).state_delta is None


# --- room -------------------------------------------------------------------------------------------------------------


def test_a_queue_has_room_for_64_contents_and_10_seconds_of_sound() -> None:
    """What does not fit is refused, or drops the oldest; one millisecond more than the room costs one piece."""
    queue = LiveRequestQueue()
    for _ in range(64):
        queue.send_activity_start()
    with pytest.raises(LiveQueueFullError, match="found 64 waiting"):
        queue.send_activity_end()
    for _ in range(10):
        queue.send_realtime(sound(1_000))
    assert (queue.audio_ms, queue.dropped_audio_ms) == (10_000, 0)
    queue.send_realtime(sound(1))
    assert (queue.audio_ms, queue.dropped_audio_ms) == (9_001, 1_000)


def test_the_room_may_be_small() -> None:
    """One content, and a fraction of a second."""
    queue = LiveRequestQueue(max_contents=1, audio_s_max=0.001)
    assert not queue.closed
    queue.send_content("a")
    queue.send_realtime(sound(1))
    queue.send_realtime(sound(1))
    assert (queue.audio_ms, queue.dropped_audio_ms) == (1, 1)
    with pytest.raises(LiveQueueFullError):
        queue.send_content("b")


@pytest.mark.parametrize(("rate", "samples", "kept"), [(1_000, 101, 100), (1_000, 100, 100), (999, 101, 99), (1, 2, 1)])
def test_of_a_long_piece_as_many_samples_are_kept_as_there_is_room_for(rate: int, samples: int, kept: int) -> None:
    """The room is 100 ms; one sample is kept however long it lasts, and the rest is counted."""
    queue = LiveRequestQueue(audio_s_max=0.1)
    data = b"".join(number.to_bytes(2, "little") for number in range(samples))
    queue.send_realtime(Blob(data=data, mime_type=f"audio/pcm;rate={rate}"))
    [blob] = trio.run(rest, queue)
    assert blob == Blob(data=data[-2 * kept :], mime_type=f"audio/pcm;rate={rate}")
    lost_ns = samples * 1_000_000_000 // rate - min(kept * 1_000_000_000 // rate, 100_000_000)
    assert queue.dropped_audio_ms == lost_ns // 1_000_000


def test_what_could_not_be_sent_is_counted_with_what_was_dropped() -> None:
    """Sound by its length, a picture as one; each is told once."""
    queue = LiveRequestQueue()
    for blob in (sound(30), picture(), sound(12), picture(1), picture(2)):
        queue.note_dropped(blob)
    assert (queue.dropped_audio_ms, queue.dropped_pictures) == (42, 3)
    assert (queue.take_dropped_ms(), queue.take_dropped_pictures()) == (42, 3)
    queue.note_dropped(sound(5))
    queue.note_dropped(picture())
    assert (queue.take_dropped_ms(), queue.take_dropped_pictures()) == (5, 1)
    assert (queue.take_dropped_ms(), queue.take_dropped_pictures()) == (0, 0)


def test_of_old_sound_what_fits_exactly_is_kept() -> None:
    """A piece that would be too much by a millisecond goes; without any time all of it does."""
    queue = LiveRequestQueue()
    for _ in range(3):
        queue.send_realtime(sound(20))
    assert [queue.drop_audio_older(s) for s in (0.06, 0.04, 0.039, 0, 0)] == [0, 20, 20, 20, 0]
    assert (queue.audio_ms, queue.dropped_audio_ms) == (0, 60)


# --- waiting senders --------------------------------------------------------------------------------------------------


async def test_sound_is_put_at_once_where_there_is_room() -> None:
    """A waiting reader is woken, a picture takes the place of the one before it, and nothing without samples comes."""
    queue, taken = LiveRequestQueue(audio_s_max=0.1), []

    async def take() -> None:
        taken.append(await queue.take())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        await queue.put_realtime(sound(100, mark=1))
    assert taken == [sound(100, mark=1)]
    await queue.put_realtime(picture(1))
    await queue.put_realtime(sound(0))
    await queue.put_realtime(sound(100, mark=2))
    await queue.put_realtime(picture(2))
    assert queue.dropped_pictures == 1
    assert await rest(queue) == [sound(100, mark=2), picture(2)]
    assert queue.dropped_audio_ms == 0


async def test_sound_that_is_put_waits_behind_other_sound_and_for_room() -> None:
    """It keeps its order, which a picture that is put has, too, and takes exactly the room that there is."""
    queue, done = LiveRequestQueue(audio_s_max=0.1), []

    async def put(blob: Blob, name: str) -> None:
        await queue.put_realtime(blob)
        done.append(name)

    queue.send_realtime(sound(60))
    async with trio.open_nursery() as nursery:
        for name, ms in (("41", 41), ("1", 1)):
            nursery.start_soon(put, sound(ms), name)
            await trio.testing.wait_all_tasks_blocked()
        assert (done, queue.audio_ms) == ([], 60)
        nursery.start_soon(queue.put_realtime, picture())
        await trio.testing.wait_all_tasks_blocked()
        assert await queue.take() == sound(60)
    assert done == ["41", "1"]
    assert await rest(queue) == [sound(41), sound(1), picture()]
    assert queue.dropped_audio_ms == 0


async def test_putting_sound_refuses_what_sending_it_refuses() -> None:
    """What is no blob, what the line does not take, what never fits, and everything once the queue is closed."""
    queue = LiveRequestQueue(audio_s_max=0.1)
    queue.check_media = refusing_pictures
    for send in (queue.send_realtime, lambda blob: queue.send(LiveRequest(blob=blob, content="a"))):
        with pytest.raises(InvalidMessageError, match="no pictures"):
            send(picture())
    with pytest.raises(InvalidMessageError, match="no pictures"):
        await queue.put_realtime(picture())
    with pytest.raises(InvalidMessageError, match="no pictures"):
        await queue.put(LiveRequest(blob=picture()))
    with pytest.raises(InvalidMessageError, match="expected a Blob of sound or of a picture, found 'a'"):
        await queue.put_realtime("a")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(LiveQueueFullError, match=r"at most 0\.1 seconds, found one of 0\.101; cut it up"):
        await queue.put_realtime(sound(101))
    await queue.put_realtime(sound(100))
    assert await rest(queue) == [sound(100)]
    with pytest.raises(InvocationEndedError):
        await queue.put_realtime(sound(1))


async def test_put_wakes_the_reader_and_counts_all_that_it_brings() -> None:
    """A request of two contents waits until both fit; one of sound and a content waits for both kinds of room."""
    queue, done = LiveRequestQueue(max_contents=2, audio_s_max=0.1), []

    async def put(request: LiveRequest, name: str) -> None:
        await queue.put(request)
        done.append(name)

    queue.send_content("a")
    queue.send_realtime(sound(60))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(put, LiveRequest(activity_start=ActivityStart(), content="b"), "two")
        await trio.testing.wait_all_tasks_blocked()
        assert done == []
        assert await queue.take() == LiveRequest(content="a")
        await trio.testing.wait_all_tasks_blocked()
        assert done == ["two"]
        nursery.start_soon(put, LiveRequest(content="c", blob=sound(50)), "both")
        await trio.testing.wait_all_tasks_blocked()
        assert await queue.take() == sound(60)
        await trio.testing.wait_all_tasks_blocked()
        assert done == ["two"]
        assert await queue.take() == LiveRequest(activity_start=ActivityStart())
    assert done == ["two", "both"]
    assert await rest(queue) == [LiveRequest(content="b"), sound(50), LiveRequest(content="c")]


async def test_taking_lets_others_run_only_while_it_waits() -> None:
    """What is there is given at once, so that sound is not held up behind other work."""
    queue, ran = LiveRequestQueue(), []

    async def other() -> None:
        ran.append("other")

    queue.send_content("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await queue.take() == LiveRequest(content="a")
        assert ran == []
        await queue.put(LiveRequest(content="b"))
        await queue.put_realtime(sound(1))
        assert ran == []
