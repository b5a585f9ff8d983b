"""
Testing an agent without a model: the script says what the model says, the tests say what must come of it.

With pytest and pytest-trio: `pytest examples/testing_an_agent.py`. No test sleeps, the last one waits an hour.
"""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from minirun import Event, InMemoryRunner, LlmAgent, RunConfig, ToolContext
from minirun.errors import DeadlineExceededError, ScriptError
from minirun.testing import ScriptedLlm, call


async def book(seats: int, tool_context: ToolContext) -> str:
    """Book seats in the theatre."""
    if seats > 4:
        raise ValueError("at most 4 seats")
    tool_context.state["seats"] = seats
    return "booked"


async def run(model: ScriptedLlm, config: RunConfig | None = None) -> list[Event]:
    """All events of one run on a fresh session."""
    agent = LlmAgent(name="clerk", model=model, instruction="You sell tickets.", tools=[book])
    runner = InMemoryRunner(agent=agent, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="3 please", run_config=config) as events:
        seen = [event async for event in events]
    return seen


@pytest.mark.trio
async def test_a_booking_is_stored_with_the_tool_s_answer() -> None:
    """The state changes with the event that answers the call."""
    model = ScriptedLlm([call("book", seats=3), "Enjoy the show!"])
    asked, answered, said = await run(model)
    assert [item.args for item in asked.get_function_calls()] == [{"seats": 3}]
    assert answered.actions.state_delta == {"seats": 3}
    assert said.text == "Enjoy the show!"
    model.assert_done()


@pytest.mark.trio
async def test_a_refused_booking_changes_nothing_and_the_model_hears_why() -> None:
    """A failing tool, or arguments that do not fit, are answers to the model; the run goes on."""
    _, refused, _, unfit, _ = await run(ScriptedLlm([call("book", seats=9), call("book", seats="many"), "Sorry."]))
    assert refused.get_function_responses()[0].response["error"] == {"type": "ValueError", "message": "at most 4 seats"}
    assert unfit.get_function_responses()[0].response["error"]["type"] == "ArgumentError"
    assert not refused.actions.state_delta


@pytest.mark.trio
async def test_what_must_not_happen(autojump_clock: MockClock) -> None:
    """A question too many fails the run, and so does a model that never answers."""
    with pytest.raises(ScriptError, match="found one more"):
        await run(ScriptedLlm([call("book", seats=1)]))
    with pytest.raises(DeadlineExceededError):
        await run(ScriptedLlm(["too late"], latency_s=7200.0), RunConfig(deadline_s=3600.0))
