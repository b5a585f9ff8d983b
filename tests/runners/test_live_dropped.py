"""Sound that an interruption has dropped: it is counted, wherever it waited for the caller."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from minirun import RunConfig
from minirun.testing import ScriptedLive, interrupted, say
from minirun.testing._live_dialects import DialectName
from minirun.testing._live_protocol import Conversation

from ..live_client import both, new_runner

VOICE = b"\1\0" * 2_400  # 0.1 s


class Counting(ScriptedLive):
    """A model that says how much sound its server has sent."""

    def _conversation(self) -> Conversation:
        self.conversation = super()._conversation()
        return self.conversation


@both
@pytest.mark.parametrize("partial_buffer", [1, 16, 64])
@pytest.mark.parametrize("speaks", [False, True])
async def test_all_sound_is_given_or_told_as_dropped(
    speaks: bool, partial_buffer: int, dialect: DialectName, autojump_clock: MockClock
) -> None:
    """What was read, in the inbox, on its way to a slow caller, or came too late, is told by the next stored events."""
    model = Counting([" ".join(["word"] * 40), "Fine."], dialect=dialect, in_flight=0)
    given = dropped = pieces = 0.0
    config = RunConfig(partial_buffer=partial_buffer)
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s", run_config=config) as live:
            await live.send_text("count")
            async for event in live:
                dropped += 0 if event.partial else (event.live or {}).get("dropped_audio_ms", 0)
                if event.audio:
                    given, pieces = given + len(event.audio) / 48, pieces + 1
                if pieces == 3 and event.audio:
                    await trio.sleep(1)
                    if speaks:
                        await live.send_audio(VOICE)
                        await trio.sleep(0.1)
                    else:
                        await live.interrupt()
                elif event.interrupted and not event.partial:
                    await live.send_text("go on")
                elif event.turn_complete and event.text == "Fine.":
                    await live.aclose()
    assert given + dropped == sum(model.conversation.said_ms.values())


@both
async def test_words_whose_sound_was_dropped_were_not_heard(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The server cuts its answer while a slow caller has two words of it; the text of the others comes nevertheless."""
    words = [say(f"w{number} ") for number in range(8)]
    model = ScriptedLive([[*words, interrupted()]], dialect=dialect, in_flight=0)
    given, cut = 0.0, []
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s", run_config=RunConfig(partial_buffer=1)) as live:
            await live.send_text("count")
            async for event in live:
                given += len(event.audio or b"") / 48
                if event.audio and given < 400:
                    await trio.sleep(1)
                elif event.interrupted and not event.partial:
                    cut.append((event.text, event.custom_metadata, (event.live or {})["dropped_audio_ms"]))
                    await live.aclose()
    assert (given, cut) == (500.0, [("w0 w1", {"unheard": "w2 w3 w4 w5 w6 w7"}, 1500)])


async def test_sound_that_nobody_wants_any_more_is_not_missing_in_the_answer(autojump_clock: MockClock) -> None:
    """Of what comes after the program has interrupted neither the words nor the sound belong to what could be heard."""
    model = ScriptedLive([[say(f"w{number} ") for number in range(8)]], dialect="gemini", in_flight=0)
    given, cut = 0.0, []
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s", run_config=RunConfig(partial_buffer=2)) as live:
            await live.send_text("count")
            async for event in live:
                given += len(event.audio or b"") / 48
                if event.audio and given == 250:
                    await trio.sleep(1)
                    await live.interrupt()
                    await trio.sleep(1)
                elif event.interrupted and not event.partial:
                    cut.append((event.text, (event.custom_metadata or {})["unheard"]))
                    await live.aclose()
    assert given == 250
    assert cut in ([("w0", "w1")], [("", "w0")]), "trio chooses whether the second word has come by then"
