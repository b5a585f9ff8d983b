"""
The contract of a live connection: the checks of `BaseLlmConnection` that each adapter, and the scripted one, passes.

A bench has the model, and tells the fake server behind it what to do; a check opens some ten connections, and closes
and loses them. Nothing waits but for what must come, so the checks hold on any clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeAlias

import trio

from minirun.errors import ModelError
from minirun.models import ActivityEnd, ActivityStart, AudioStreamEnd, LiveCapabilities
from minirun.types import Blob

from .live_bench import (
    HISTORY,
    MANUAL,
    Line,
    LiveBench,
    is_piece,
    opened,
    refused,
    results,
    says,
    sound,
)

__all__ = ["LiveBench", "live_connection_checks"]

# Of real time or of a mock clock, for one check: a connection that hangs is named.
CHECK_S_MAX = 60.0

# More than any send or receive has checkpoints of its own before it waits for the other side.
CHECKPOINTS = 12

MakeBench: TypeAlias = Callable[[], LiveBench | AbstractAsyncContextManager[LiveBench]]
Body: TypeAlias = Callable[[LiveBench], Awaitable[None]]

CHECKS: dict[str, Body] = {}


def expect(what: str, found: object, expected: object) -> None:
    """What was found is what was expected."""
    assert found == expected, f"{what}: expected {expected!r}, found {found!r}"


def check(body: Body) -> Body:
    """Put a check into the table, under its name."""
    CHECKS[body.__name__.strip("_")] = body
    return body


def live_connection_checks() -> dict[str, Callable[[MakeBench], Awaitable[None]]]:
    """Return the checks by name, to be run one by one."""
    return {name: partial(_run, name, body) for name, body in CHECKS.items()}


async def _run(name: str, body: Body, make_bench: MakeBench) -> None:
    try:
        with trio.fail_after(CHECK_S_MAX):
            made = make_bench()
            if isinstance(made, LiveBench):
                await body(made)
            else:
                async with made as bench:
                    await body(bench)
    except Exception as error:
        alone = _alone(error)
        alone.add_note(f"this breaks the live connection's promise: {name.replace('_', ' ')}")
        raise alone from None


def _alone(error: Exception) -> Exception:
    """The error that a nursery has wrapped, if it is the only one."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


# --- the checks -------------------------------------------------------------------------------------------------------


@check
async def _it_says_what_it_is_able_to_do(bench: LiveBench) -> None:
    """It has LiveCapabilities, with rates of sound."""
    async with opened(bench) as line:
        found = line.connection.capabilities
        expect("whether it has LiveCapabilities", isinstance(found, LiveCapabilities), True)
        expect("whether it has rates", found.input_rate > 0 and found.output_rate > 0, True)


@check
async def _an_answer_comes_in_pieces_and_is_over_once(bench: LiveBench) -> None:
    """Pieces, joined, are what was said; then the turn is over, once, and no piece comes after it."""
    bench.says("one two three")
    bench.says("four five")
    async with opened(bench) as line:
        for turn in (1, 2):
            await line.connection.send_content(says("count"))
            await line.turns(turn)
        expect("what was said", line.answers(), ["one two three", "four five"])
        expect("how many turns are over", line.count("turn_complete"), 2)
        expect("how many answers are made", line.count("generation_complete"), 2)
        expect("how many were interrupted", line.count("interrupted"), 0)


@check
async def _pieces_of_one_answer_have_one_item(bench: LiveBench) -> None:
    """Each piece names the answer it belongs to; two answers have two names."""
    bench.says("one two three")
    bench.says("four five")
    async with opened(bench) as line:
        names: list[set[str | None]] = []
        for turn in (1, 2):
            before = len(line.responses)
            await line.connection.send_content(says("count"))
            await line.turns(turn)
            names.append({each.item_id for each in line.responses[before:] if is_piece(each)})
        expect("how many names each answer has", [len(each) for each in names], [1, 1])
        expect("whether they have names", None in names[0] | names[1], False)
        expect("how many names there are", len(names[0] | names[1]), 2)


@check
async def _sound_is_pcm_of_its_rate(bench: LiveBench) -> None:
    """Sound comes as `audio/pcm;rate=...` of the rate that the capabilities say, in whole samples."""
    bench.says("one two three")
    async with opened(bench) as line:
        await line.connection.send_content(says("count"))
        await line.turns(1)
        parts = [part for each in line.responses if each.content is not None for part in each.content.parts]
        blobs = [part.inline_data for part in parts if part.inline_data is not None]
        expect("whether there is sound", bool(blobs), True)
        rate = line.connection.capabilities.output_rate
        expect("the kinds of sound", {blob.mime_type for blob in blobs}, {f"audio/pcm;rate={rate}"})
        expect("halves of samples", [len(blob.data) for blob in blobs if len(blob.data) % 2], [])
        contents = [each for each in line.responses if each.content is not None]
        expect("whether they are fragments", [bool(each.partial) for each in contents], [True] * len(contents))


@check
async def _nobody_answers_what_is_not_complete(bench: LiveBench) -> None:
    """A content without `turn_complete` waits for one that has it; both get one answer."""
    async with opened(bench) as line:
        await line.connection.send_content(says("look at this"), turn_complete=False)
        bench.says("one two")
        bench.says("three four")
        await line.connection.send_content(says("and count"))
        await line.turns(1)
        await line.connection.send_content(says("go on"))
        await line.turns(2)
        expect("what was said", line.answers(), ["one two", "three four"])


@check
async def _calls_are_complete_and_named(bench: LiveBench) -> None:
    """Calls come whole, with the ids that the server gave, and in their order."""
    bench.calls("a", "b")
    async with opened(bench) as line:
        await line.connection.send_content(says("look"))
        await line.until("two calls", lambda: len(line.calls()) >= 2)
        found = [(call.name, call.id, dict(call.args)) for call in line.calls()]
        expect("the calls", found, [("look", id, {"where": id}) for id in "ab"])
        partial = [each.partial for each in line.responses if each.content is not None and each.content.calls]
        expect("whether they are fragments", any(partial), False)


@check
async def _the_model_goes_on_after_all_responses(bench: LiveBench) -> None:
    """Two calls are answered in one content, or in two; the model goes on once, after the last."""
    for together in (True, False):
        bench.calls("a", "b")
        bench.says("one two")
        bench.says("three four")
        async with opened(bench) as line:
            await line.connection.send_content(says("look"))
            await line.until("two calls", lambda line=line: len(line.calls()) >= 2)  # type: ignore[misc]  # bound here
            for content in [results("a", "b")] if together else [results("b"), results("a")]:
                await line.connection.send_content(content)
            await line.until("an answer to the results", lambda line=line: "one two" in line.answers())  # type: ignore[misc]
            await line.connection.send_content(says("go on"))
            await line.until("another answer", lambda line=line: line.answers()[-1] == "three four")  # type: ignore[misc]


@check
async def _a_content_may_come_while_it_answers(bench: LiveBench) -> None:
    """What the user says meanwhile is answered, after the answer or instead of the rest of it."""
    bench.says("one two three four")
    bench.says("five six")
    async with opened(bench) as line:
        await line.connection.send_content(says("count"))
        await line.until("a piece", lambda: any(map(is_piece, line.responses)))
        await line.connection.send_content(says("on"))
        await line.until("the second answer", lambda: "five six" in line.answers())
        expect("how many turns are over", len(line.answers()), 2)


@check
async def _an_answer_can_be_cancelled(bench: LiveBench) -> None:
    """`cancel` ends the answer as interrupted, once; the turn is over, and the next content is answered."""
    bench.goes_on()
    bench.says("one two")
    async with opened(bench) as line:
        await line.connection.send_content(says("count"))
        await line.until("a piece", lambda: any(map(is_piece, line.responses)))
        await line.connection.cancel()
        await line.turns(1)
        expect("how many answers were interrupted", line.count("interrupted"), 1)
        await line.connection.send_content(says("again"))
        await line.turns(2)
        expect("the answer after it", line.answers()[1], "one two")
        expect("how many answers were interrupted", line.count("interrupted"), 1)


@check
async def _cancel_and_truncate_may_come_at_any_time(bench: LiveBench) -> None:
    """Before anything, while it answers, and after it; cancelling nothing has no effect on what follows."""

    async def disturb(line: Line) -> None:
        sounds = [each for each in line.responses if each.content is not None and each.item_id is not None]
        if sounds:
            item_id = sounds[0].item_id
            assert item_id is not None
            await line.connection.truncate(item_id, 1)
            await line.connection.truncate(item_id, 1)

    bench.says("one two")
    bench.goes_on()
    bench.says("three four")
    async with opened(bench) as line:
        await line.connection.cancel()
        await disturb(line)
        await line.connection.send_content(says("count"))
        await line.turns(1)
        await disturb(line)
        await line.connection.cancel()
        await line.connection.send_content(says("on"))
        await line.until("a piece", lambda: line.responses and is_piece(line.responses[-1]))
        await disturb(line)
        await line.connection.cancel()
        await line.connection.cancel()
        await line.turns(2)
        await disturb(line)
        await line.connection.send_content(says("on"))
        await line.until("the last answer", lambda: line.answers()[-1] == "three four")


@check
async def _history_is_taken(bench: LiveBench) -> None:
    """A history with calls and a picture is no question without *answer*, and one with it."""
    bench.says("one two")
    async with opened(bench) as line:
        await line.connection.send_history(HISTORY[:4], answer=False)
        await line.connection.send_content(says("count"))
        await line.turns(1)
        expect("what was said", line.answers(), ["one two"])
    bench.says("three four")
    async with opened(bench) as line:
        await line.connection.send_history(HISTORY, answer=True)
        await line.turns(1)
        expect("what was said", line.answers(), ["three four"])


@check
async def _sound_and_pictures_are_taken(bench: LiveBench) -> None:
    """Sound, a picture and the end of the sound are sent; nobody has to wait for an answer."""
    bench.says("one two")
    async with opened(bench) as line:
        for _ in range(10):
            await line.connection.send_realtime(sound(line))
        await line.connection.send_realtime(Blob(data=b"\x89PNG", mime_type="image/png"))
        await line.connection.send_content(says("count"))
        await line.turns(1)
        expect("what was said", line.answers(), ["one two"])


@check
async def _the_client_may_detect_the_voice(bench: LiveBench) -> None:
    """With the server's detection disabled, what was said between two signals is answered."""
    bench.says("one two")
    async with opened(bench, realtime_input_config=MANUAL) as line:
        await line.connection.send_realtime(ActivityStart())
        for _ in range(10):
            await line.connection.send_realtime(sound(line, sample=b"\1\1"))
        await line.connection.send_realtime(ActivityEnd())
        await line.turns(1)
        expect("what was said", line.answers(), ["one two"])


@check
async def _it_closes_at_any_time(bench: LiveBench) -> None:
    """Closing ends `receive` without an error, while it waits and while it is told something; twice is harmless."""
    for talking in (False, True):
        bench.goes_on()
        async with opened(bench) as line:
            if talking:
                await line.connection.send_content(says("count"))
                await line.until("a piece", lambda line=line: any(map(is_piece, line.responses)))  # type: ignore[misc]
            await line.connection.aclose()
            await line.connection.aclose()
            await line.end()
            expect("what `receive` raises", line.error, None)
    async with bench.model.connect(bench.request()) as connection:
        await connection.aclose()
        line = Line(connection)
        await line.receive()
        expect("what is received after closing", (line.responses, line.error), ([], None))


@check
async def _nothing_is_sent_after_closing(bench: LiveBench) -> None:
    """All that sends raises a ModelError once the connection is closed."""
    async with opened(bench) as line:
        await line.connection.aclose()
        await _all_refused(line)


@check
async def _a_lost_connection_is_an_error(bench: LiveBench) -> None:
    """`receive` raises a ModelError after what came before, sending raises one, too, and closing is harmless."""
    bench.says("one two")
    bench.hangs_up(in_order=False)
    async with opened(bench) as line:
        await line.connection.send_content(says("count"))
        await line.turns(1)
        await line.connection.send_content(says("on"))
        await line.end()
        expect("whether `receive` raises", isinstance(line.error, ModelError), True)
        await _all_refused(line)
        await line.connection.aclose()


@check
async def _an_end_in_good_order_is_none(bench: LiveBench) -> None:
    """`receive` ends if the server closes the connection in good order, and sending raises a ModelError."""
    bench.hangs_up(in_order=True)
    async with opened(bench) as line:
        await line.connection.send_content(says("count"))
        await line.end()
        expect("what `receive` raises", line.error, None)
        await _all_refused(line)


async def _all_refused(line: Line) -> None:
    connection = line.connection
    await refused("send_content", lambda: connection.send_content(says("more")))
    await refused("send_realtime", lambda: connection.send_realtime(sound(line)))
    await refused("send_realtime", lambda: connection.send_realtime(AudioStreamEnd()))


@check
async def _it_may_be_cancelled_anywhere(bench: LiveBench) -> None:
    """A task that is cancelled at any checkpoint of a send or of `receive` leaves a connection that closes."""

    async def send(line: Line) -> None:
        await line.connection.send_realtime(sound(line))
        await line.connection.send_content(says("count"))

    async def receive(line: Line) -> None:
        await line.connection.send_content(says("count"))
        await line.receive()

    async def cancel_after(checkpoints: int, scope: trio.CancelScope) -> None:
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    for body in (send, receive):
        for checkpoints in range(CHECKPOINTS):
            bench.goes_on()
            async with bench.model.connect(bench.request()) as connection:
                line = Line(connection)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cancel_after, checkpoints, nursery.cancel_scope)
                    await body(line)
                    nursery.cancel_scope.cancel()
                await connection.aclose()
    bench.says("one two")
    said = ""
    while said != "one two":  # the contents of some connections were never sent, so the server still goes on for them
        async with opened(bench) as line:
            await line.connection.send_content(says("count"))
            await line.until("a word", lambda line=line: line.said())  # type: ignore[misc]
            if line.said().startswith("one"):
                await line.turns(1)
                said = line.answers()[0]
            await line.connection.aclose()


@check
async def _whoever_leaves_takes_the_connection_along(bench: LiveBench) -> None:
    """An exception in the block comes out as it is, and the connection is closed by then."""
    lines: list[Line] = []
    error = ValueError("mine")
    try:
        async with bench.model.connect(bench.request()) as connection:
            lines.append(Line(connection))
            raise error
    except ValueError as found:
        expect("the exception", found is error, True)
    await _all_refused(lines[0])
    with trio.CancelScope() as scope:
        async with bench.model.connect(bench.request()) as connection:
            lines.append(Line(connection))
            scope.cancel()
            await trio.lowlevel.checkpoint()
    expect("whether it was cancelled", scope.cancelled_caught, True)
    await _all_refused(lines[1])


@check
async def _connections_stand_side_by_side(bench: LiveBench) -> None:
    """One model has several connections at once, and closing one leaves the others."""
    bench.says("one two")
    bench.says("three four")
    async with opened(bench) as first, opened(bench) as second:
        await first.connection.send_content(says("count"))
        await first.turns(1)
        await first.connection.aclose()
        await second.connection.send_content(says("count"))
        await second.turns(1)
        expect("what was said", [first.answers(), second.answers()], [["one two"], ["three four"]])


@check
async def _the_request_stays_as_it_was(bench: LiveBench) -> None:
    """Neither the request nor anything in it is changed."""
    bench.says("one two")
    request = bench.request()
    before = repr(request)
    async with bench.model.connect(request) as connection, trio.open_nursery() as nursery:
        line = Line(connection)
        nursery.start_soon(line.receive)
        await connection.send_content(says("count"))
        await line.turns(1)
        expect("the request", repr(request), before)
        await connection.aclose()
