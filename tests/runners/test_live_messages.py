"""Messages that another process sends into a live run."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from minirun import LlmAgent, Runner
from minirun.agents import _live_conversation
from minirun.testing import ScriptedLive, say

from ..live_client import conversing, is_over, lines, stored
from ..stores import Elsewhere, ElsewhereInPostgres, database_of


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_message_of_another_process_reaches_a_run_in_which_nobody_speaks(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run looks for it; the model answers it, though nothing else happens in the session."""
    monkeypatch.setattr(_live_conversation, "MESSAGES_S", 0.05)

    def process() -> Elsewhere | ElsewhereInPostgres:
        if store == "postgres":
            return ElsewhereInPostgres(database_of(tmp_path))
        return Elsewhere(tmp_path / "a.db", durability="process")

    model = ScriptedLive([say("Yes?"), say("I am.")], word_ms=1)
    agent = LlmAgent(name="root", model=model)
    async with process() as here, process() as there:
        runner = Runner(agent=agent, app_name="app", session_service=here, auto_create_session=True)
        elsewhere = Runner(agent=agent, app_name="app", session_service=there)
        with trio.fail_after(120):
            async with conversing(runner) as client:
                await client.ask("hello")
                await elsewhere.send("are you there?", user_id="u", session_id="s")
                await client.until(is_over)
        assert lines(await stored(runner)) == ["user: hello", "root: Yes?", "user: are you there?", "root: I am."]
