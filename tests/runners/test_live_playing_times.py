"""What was heard of answers when they are interrupted, by the clock alone; and which sound is of which utterance."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from minirun import RunConfig, Runner
from minirun.testing import ScriptedLive, hear, pause, say
from minirun.testing._live_dialects import DialectName

from ..live_client import both, conversing, new_runner, sent_of, stored

FOUR, TWO, ONE = "one two three four", "five six", "seven"  # a second for each word, which was heard if half of it was
VOICE, SILENCE = b"\1\1" * 8_000, bytes(48_000)

CASES: dict[str, tuple[list[tuple[float, str | None]], list[tuple[str, str]], list[tuple[str, int]]]] = {
    "the first": ([(0, "a"), (2.5, None)], [("one two", "three four")], [("answer-1", 2_500)]),
    "at its begin": ([(0, "a"), (0.0, None)], [("", FOUR)], [("answer-1", 1)]),
    "at its end": ([(0, "a"), (4.0, None)], [], []),
    "a hair before": ([(0, "a"), (4 - 1 / 512, None)], [], [("answer-1", 3_998)]),
    "half a hair before": ([(0, "a"), (4 - 1 / 1_024, None)], [], []),
    "again at once": ([(0, "a"), (2.5, None), (2.75, None)], [("one two", "three four")], [("answer-1", 2_500)]),
    "the next one, at once": (
        [(0, "a"), (1.25, None), (1.375, "b"), (2.625, None)],
        [("one", "two three four"), ("five", "six")],
        [("answer-1", 1_250), ("answer-2", 1_250)],
    ),
    "the next one, later": ([(0, "a"), (5, "b"), (6.25, None)], [("five", "six")], [("answer-2", 1_250)]),
    "one behind the other": (
        [(0, "a"), (1, "b"), (3.25, None)],
        [("one two three", "four"), ("", TWO)],
        [("answer-1", 3_250), ("answer-2", 1)],
    ),
    "the one behind": ([(0, "a"), (1, "b"), (5.25, None)], [("five", "six")], [("answer-2", 1_250)]),
    "three": (
        [(0, "a"), (1, "b"), (2, "c"), (4.5, None)],
        [("", TWO), ("", ONE)],
        [("answer-2", 500), ("answer-3", 1)],
    ),
    "the last of three": ([(0, "a"), (1, "b"), (2, "c"), (6.5, None)], [("", ONE)], [("answer-3", 500)]),
    "none of three": ([(0, "a"), (1, "b"), (2, "c"), (7, None)], [], []),
    "two of three, twice": (
        [(0, "a"), (2.5, None), (3, "b"), (4, "c"), (5.5, None)],
        [("one two", "three four"), ("", ONE)],
        [("answer-1", 2_500), ("answer-3", 500)],
    ),
}  # fmt: skip


async def recorded(runner: Runner) -> dict[str, bytes]:
    """What was recorded of each utterance, by its text: the samples of its WAV file."""
    files: dict[str, bytes] = {}
    for event in await stored(runner):
        for name in event.actions.artifact_delta:
            assert runner.artifact_service is not None
            part = await runner.artifact_service.load_artifact(
                app_name=runner.app_name, user_id="u", session_id="s", filename=name
            )
            assert part is not None
            assert part.inline_data is not None
            assert part.inline_data.data.startswith(b"RIFF")
            files[event.text] = part.inline_data.data[44:]
    return files


@pytest.mark.parametrize("case", CASES)
async def test_what_was_heard_is_reckoned_by_the_clock(case: str, autojump_clock: MockClock) -> None:
    """Answers play one behind the other, from when they come; the event says it in words, and the server is told."""
    steps, heard, told = CASES[case]
    model = ScriptedLive([FOUR, TWO, ONE], dialect="openai", word_ms=1_000)
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            began = trio.current_time()
            for at_s, text in steps:
                await trio.sleep_until(began + at_s)
                await (client.live.interrupt() if text is None else client.ask(text))
            await trio.sleep(1)
        cuts = [event.custom_metadata for event in await stored(runner) if event.live and "cut_seq" in event.live]
    assert cuts == [{"heard": before, "unheard": after} for before, after in heard]
    assert [(each.item_id, each.played_ms) for each in sent_of(model, "truncate")] == told


@both
async def test_each_utterance_has_its_own_sound(dialect: DialectName, autojump_clock: MockClock) -> None:
    """What is recorded of the user after one utterance belongs to the next one; the files have all of it."""
    model = ScriptedLive([[hear("one"), say("Yes.")], [hear("two"), say("No.")]], dialect=dialect)
    async with new_runner(model) as runner:
        async with conversing(runner, run_config=RunConfig(save_live_blob=True)) as client:
            for voice in (VOICE, VOICE + VOICE):
                await client.live.send_audio(voice)
                await client.live.send_audio(SILENCE)
                await trio.sleep(5)
        files = await recorded(runner)
    sizes = {said: len(samples) for said, samples in files.items()}
    assert sizes == {"one": 64_000, "Yes.": 12_000, "two": 80_000, "No.": 12_000}


async def test_what_is_said_before_the_last_words_are_understood_has_a_file_of_its_own(
    autojump_clock: MockClock,
) -> None:
    """The words of an utterance may come when the next one is recorded already: each keeps its own sound."""
    script = [[hear("one", late=True), pause(3), say("Yes.")], [hear("two"), say("No.")]]
    model = ScriptedLive(script, dialect="openai")
    async with new_runner(model) as runner:
        async with conversing(runner, run_config=RunConfig(save_live_blob=True)) as client:
            for sample, pieces in ((b"\1\1", 1), (b"\2\2", 2)):
                await client.live.send_audio(sample * 8_000 * pieces)
                await client.live.send_audio(SILENCE)
                await trio.sleep(0.5)
            await trio.sleep(9)
        files = await recorded(runner)
    assert files["one"] == b"\1\1" * 8_000 + SILENCE
    assert files["two"] == b"\2\2" * 16_000 + SILENCE
