"""Answers of which there is no text: sound that nobody writes down, pictures, thoughts."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from minirun import RunConfig
from minirun._codec import to_json
from minirun.testing import ScriptedLive, ScriptedLlm, drop, say
from minirun.testing._live_dialects import DialectName
from minirun.types import Blob, Part

from ..live_client import both, converse, conversing, is_over, new_runner, sent_of, stored

PICTURE = Part(inline_data=Blob(data=b"a picture", mime_type="image/png"))
UNWRITTEN = RunConfig(output_audio_transcription=None)


@both
@pytest.mark.parametrize(
    ("answer", "media", "shown"),
    [(say("Here you are."), None, "..."), (PICTURE, ["image/png"], "..."), (Part(text="Hm", thought=True), None, None)],
    ids=["sound", "picture", "thought"],
)
async def test_an_answer_without_text_is_an_event_and_stands_in_later_prompts(
    answer: Part, media: list[str] | None, shown: str | None, dialect: DialectName, autojump_clock: MockClock
) -> None:
    """It says that the model's turn is over, and what kind of media it was, but has nothing of the media themselves."""
    text = ScriptedLlm(["written"])
    model = ScriptedLive([answer], dialect=dialect, text=text, word_ms=10)
    async with new_runner(model) as runner:
        client = await converse(runner, "show me", run_config=UNWRITTEN)
        async with runner.run_async(user_id="u", session_id="s", new_message="thanks") as run:
            await run.wait()
        (event,) = [event for event in await stored(runner) if event.turn_complete and event.live]
    assert client.failure is None
    assert (event.author, event.content) == ("root", None)
    assert (event.output_transcription is not None) == (shown is not None and media is None)
    assert (event.live or {}).get("media") == media
    assert len(to_json(event)) < 500
    told = [(content.role, content.text) for content in text.requests[0].contents]
    said = [("model", shown)] if shown else []
    assert told == [("user", "show me"), *said, ("user", "thanks")]


@both
async def test_what_was_answered_in_sound_alone_is_not_asked_again_over_a_new_connection(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """The history that a new session is told ends with the answer, so the model owes none."""
    model = ScriptedLive([say("Here you are.")], dialect=dialect, word_ms=10)
    async with new_runner(model) as runner, conversing(runner, run_config=UNWRITTEN) as client:
        await client.live.send_text("show me")
        await client.until(is_over)
        await trio.sleep(20)
        model.play(drop())
        await client.until(lambda event: (event.live or {}).get("connection") == 2)
        await trio.sleep(1)
    (history,) = sent_of(model, "history")
    assert [(each.role, each.text) for each in history.contents] == [("user", "show me"), ("model", "...")]
    assert not history.turn_complete
