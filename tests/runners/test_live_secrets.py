"""Secrets that are said aloud in a live run: they stand in nothing that is stored, and in no piece that is shown."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import InMemorySessionService, LlmAgent, Runner
from minirun._codec import to_json
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.credentials._secrets import HIDDEN
from minirun.testing import ScriptedLive, call, error, hear, pause, say
from minirun.testing._live_dialects import DialectName
from minirun.tools import ToolContext

from ..live_client import both, conversing, is_over, stored

SECRET = "s3cret-t0ken"


async def look(tool_context: ToolContext) -> str:
    """Look into the mail."""
    await tool_context.request_credential(AuthConfig("mail", "bearer"))
    return "nothing new"


async def runner_with_secret(model: ScriptedLive) -> Runner:
    """A runner whose tool is given the secret when it is called."""
    credentials = InMemoryCredentialService()
    where = {"app_name": "app", "user_id": "u", "credential_key": "mail"}
    await credentials.save_credential(**where, credential=AuthCredential("bearer", token=SECRET))
    agent = LlmAgent(name="root", model=model, tools=[look])
    service = InMemorySessionService()
    return Runner(
        agent=agent, app_name="app", session_service=service, credential_service=credentials, auto_create_session=True
    )


@both
@pytest.mark.parametrize(
    ("steps", "places"),
    [
        ([say(f"It is {SECRET} as ever.")], {"content", "output_transcription"}),
        ([hear(f"is it {SECRET} now?"), say("Yes.")], {"content", "input_transcription"}),
        ([say(f"One two {SECRET} four"), pause(60)], {"custom_metadata"}),
        ([error("bad", f"refused {SECRET}")], {"error_message"}),
    ],
    ids=["the model", "the user", "cut off", "an error"],
)
async def test_a_secret_that_is_said_is_neither_stored_nor_shown(
    steps: list[Any], places: set[str], dialect: DialectName, autojump_clock: MockClock
) -> None:
    """In texts, transcripts, words that nobody heard and errors something else stands in its place."""
    model = ScriptedLive([[call("look")], say("Nothing.")], dialect=dialect, word_ms=1000)
    async with await runner_with_secret(model) as runner:
        async with conversing(runner) as client:
            await client.ask("any mail?")
            await trio.sleep(5)
            model.play(*steps)
            if places == {"custom_metadata"}:
                last = await client.until(lambda event: "four" in str(event.output_transcription))
                await client.live.played(last, 1000)
                await client.live.interrupt()
            await client.until(lambda event: is_over(event) or event.error_code)
        seen, log = client.events, await stored(runner)
    assert not [event for event in (*seen, *log) if SECRET in to_json(event)]
    (found,) = [event for event in log if HIDDEN in to_json(event)]
    assert {name for name in places if HIDDEN in str(getattr(found, name))} == places
