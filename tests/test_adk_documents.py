"""
What ADK's documents say, where minirun keeps to it: each fact is one that was silently otherwise.
"""

from __future__ import annotations

import pytest

from minirun import InMemoryRunner, LlmAgent, RunConfig
from minirun.sessions import GetSessionConfig
from minirun.testing import ScriptedLlm


@pytest.mark.parametrize(
    ("recent", "past"), [(0, []), (1, ["answer 1"]), (2, ["one", "answer 1"]), (9, ["one", "answer 1"])]
)
async def test_the_message_of_a_run_is_not_one_of_the_recent_events_it_asks_for(recent: int, past: list[str]) -> None:
    """
    With `num_recent_events=1` the model is shown the newest event of the past, and the message.
    """
    model = ScriptedLlm(["answer 1", "answer 2"])
    runner = InMemoryRunner(LlmAgent(name="a", model=model), app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    for text, config in (
        ("one", None),
        ("two", RunConfig(get_session_config=GetSessionConfig(num_recent_events=recent))),
    ):
        async with runner.run_async(user_id="u", session_id="s", new_message=text, run_config=config) as run:
            await run.wait()
            assert run.session.events[-2].text == text
    shown = [content.text for content in model.requests[1].contents]
    assert [text for text in shown if text in ("one", "answer 1")] == past
    assert shown[-1] == "two"
