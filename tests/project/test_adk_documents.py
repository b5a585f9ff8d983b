"""
What ADK's documents say, where minirun keeps to it: each fact is one that was silently otherwise.
"""

from __future__ import annotations

from typing import Any

import pytest

from minirun import Content, Event, InMemoryRunner, LlmAgent, Part, RunConfig
from minirun._codec import from_json, to_json
from minirun.errors import InvalidEventError, NotSupportedError
from minirun.events import EventActions, NodeInfo
from minirun.sessions import GetSessionConfig
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool


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


def test_a_final_response_is_what_the_documents_say() -> None:
    """
    The role of what an agent says takes no part in it: the rule is about calls, responses, fragments and code.
    """
    event = Event(author="a", content=Content(role="user", parts=[Part(text="noted")]))
    assert event.is_final_response()


async def test_what_an_agent_tells_itself_is_no_answer_of_the_run() -> None:
    """
    The request to answer in another form stands in the log as the agent's; `run.answer` is what came of it.
    """
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    agent = LlmAgent(name="a", model=ScriptedLlm(["no", '{"n": 1}']), output_schema=schema)
    runner = InMemoryRunner(agent, app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    answers: list[Event | None] = []
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        async for _ in run:
            answers.append(run.answer)
    assert [answer and answer.output for answer in answers] == [None, None, {"n": 1}]


async def test_every_event_says_which_node_it_is_of() -> None:
    """
    `event.node_info.path` can be asked of each; where nobody has run anything it is empty, and not stored.
    """
    assert Event(author="a").node_info.path == ""
    event = Event(author="a", message="hi")
    assert "node_info" not in to_json(event)
    assert from_json(Event, to_json(event)) == event
    assert "node_info" not in repr(event)
    assert Event(author="a", node_info=NodeInfo(path="w/n@1")).node_info.name == "n"


async def test_the_event_that_asks_for_a_confirmation_says_of_which_call() -> None:
    """
    `actions.requested_tool_confirmations` has the question by the id of the call, as it is asked; nothing else fits.
    """

    def pay() -> str:
        """Pay."""
        return "paid"

    tool = FunctionTool(pay, require_confirmation=True)
    agent = LlmAgent(name="a", model=ScriptedLlm([call("pay"), "done"]), tools=[tool])
    runner = InMemoryRunner(agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        events = [event async for event in run]
    [made] = events[0].get_function_calls()
    [asked] = [event for event in events if event.actions.requested_tool_confirmations]
    assert asked.get_function_calls()[0].name == "adk_request_confirmation"
    said = {"hint": "", "confirmed": False, "payload": None}
    assert asked.actions.requested_tool_confirmations == {made.id: said}
    other = Event(author="a", actions=EventActions(requested_tool_confirmations={"c": said}))
    with pytest.raises(InvalidEventError, match="requested_tool_confirmations to say what"):
        await runner.session_service.append_event(session, other)


@pytest.mark.parametrize("value", ["next", 0, False, [], {"a": 1}])
@pytest.mark.parametrize("name", ["route", "render_ui_widgets"])
async def test_actions_without_effect_are_refused_by_name(name: str, value: Any) -> None:
    """
    A route outside of a workflow, and widgets, which nobody renders, are not stored as if they were followed.
    """
    runner = InMemoryRunner(LlmAgent(name="a", model=ScriptedLlm([])), app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    event = Event(author="a", actions=EventActions(**{name: value}))
    with pytest.raises(NotSupportedError, match=rf"EventActions\.{name} has no effect"):
        await runner.session_service.append_event(session, event)
