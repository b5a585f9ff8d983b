"""Permission for a call: the whole question, what the tool is told of the answer, and what the model is told."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from minirun import Event, LlmAgent, ToolContext
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, FunctionTool

from ..helpers import PLACE, look, run_to_end, runner_for

WHO = ("kind", "tool", "args", "hint", "payload", "schema", "author", "branch", "due")


class Desk:
    """A tool that asks for permission, in one of three ways, and notes what it is told."""

    def __init__(self, how: str) -> None:
        self.seen: list[Any] = []

        async def book(city: str, tool_context: ToolContext) -> str:
            told = tool_context.tool_confirmation
            self.seen.append((city, None if told is None else (told.hint, told.confirmed, told.payload)))
            if how == "itself" and told is None:
                tool_context.request_confirmation(hint="Is it so?", payload={"price": 5})
                tool_context.state["lost"] = True
                return "not yet"
            return f"booked {city}"

        def before(*, tool: Any, args: Any, tool_context: ToolContext) -> None:
            if tool_context.tool_confirmation is None and tool.name == "book":
                tool_context.request_confirmation(hint="Is it so?", payload={"price": 5})

        self.tool: BaseTool = FunctionTool(book, require_confirmation=how == "always")
        self.options: dict[str, Any] = {"before_tool_callback": before} if how == "before" else {}

    def runner(self, *script: Any) -> Any:
        model = ScriptedLlm([*script])
        return runner_for(LlmAgent(name="clerk", model=model, tools=[self.tool, look], **self.options))


def answers_of(events: list[Event]) -> list[Any]:
    return [
        (each.name, dict(each.response))
        for event in events
        for each in event.get_function_responses()
        if each.name in ("book", "look")
    ]


HOWS: dict[str, tuple[Any, Any, list[Any]]] = {
    "always": ("", None, []),
    "itself": ("Is it so?", {"price": 5}, [("Oslo", None)]),
    "before": ("Is it so?", {"price": 5}, []),
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("reply", "seen", "answer"),
    [
        ({"value": True}, ("Oslo", (True, None)), {"result": "booked Oslo"}),
        ({"value": True, "payload": {"by": "eve"}}, ("Oslo", (True, {"by": "eve"})), {"result": "booked Oslo"}),
        ({"value": True, "args": {"city": "Bergen"}}, ("Bergen", (True, None)), {"result": "booked Bergen"}),
        (
            {"value": False},
            None,
            {"error": {"type": "rejected", "message": "the call was not allowed; it was not made"}},
        ),
        (
            {"value": False, "message": "too far"},
            None,
            {"error": {"type": "rejected", "message": "the call was not allowed; it was not made: too far"}},
        ),
    ],
)
async def test_a_question_and_its_answer(how: str, reply: dict[str, Any], seen: Any, answer: Any) -> None:
    """Whoever asks, the tool is called with what was allowed, and told who has said what; or the model is told no."""
    hint, payload, before = HOWS[how]
    desk = Desk(how)
    runner = desk.runner([call("look", n=1), call("book", city="Oslo"), call("look", n=2)], "done")
    events, run = await run_to_end(runner)
    [question] = run.pending
    asked = tuple(getattr(question, name) for name in WHO)
    assert asked == ("confirmation", "book", {"city": "Oslo"}, hint, payload, None, "clerk", None, None)
    assert (answers_of(events), desk.seen) == ([("look", {"result": "seen 1"}), ("look", {"result": "seen 2"})], before)
    events, run = await run_to_end(runner, question.reply(**reply))
    assert run.status == "completed"
    assert answers_of(events) == [("book", answer)]
    told = [] if seen is None else [(seen[0], (hint if how == "before" else "", *seen[1]))]  # it asks in each run
    assert desk.seen == [*before, *told]
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert dict(session.state) == {}


@pytest.mark.parametrize("remember", [None, "session"])
async def test_a_tool_that_asks_each_time_is_asked_about_once(remember: Any) -> None:
    """Once somebody has allowed the call, what it returns stands, whatever it asks for then."""
    seen: list[bool] = []

    async def book(tool_context: ToolContext) -> str:
        seen.append(tool_context.tool_confirmation is not None)
        tool_context.request_confirmation(hint="Really?")
        tool_context.state["booked"] = True
        return "booked"

    model = ScriptedLlm([call("book"), "done", call("book"), "done"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[book]))
    _, run = await run_to_end(runner)
    assert "booked" not in run.session.state
    events, run = await run_to_end(runner, run.pending[0].reply(True, remember=remember))
    assert (run.status, answers_of(events), seen) == ("completed", [("book", {"result": "booked"})], [False, True])
    assert run.session.state["booked"] is True
    events, run = await run_to_end(runner)
    assert run.status == ("completed" if remember else "paused")
    assert answers_of(events) == ([("book", {"result": "booked"})] if remember else [])


@pytest.mark.parametrize("timeout_s", [None, 5.0])
async def test_a_tool_that_fails_after_it_has_asked_is_asked_about(timeout_s: float | None) -> None:
    """As with a result, what it came to before somebody has allowed it is dropped; then it may fail for good."""

    async def book(tool_context: ToolContext) -> None:
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Really?")
        raise OSError("full")

    model = ScriptedLlm([call("book"), "done"])
    tool = FunctionTool(book, timeout_s=timeout_s)
    runner = runner_for(LlmAgent(name="a", model=model, tools=[tool]))
    events, run = await run_to_end(runner)
    assert ([question.hint for question in run.pending], answers_of(events)) == (["Really?"], [])
    events, run = await run_to_end(runner, run.pending[0].reply(True))
    assert answers_of(events) == [("book", {"error": {"type": "OSError", "message": "full"}})]


@pytest.mark.parametrize("how", HOWS)
async def test_what_was_allowed_for_later_is_not_asked_about_again(how: str) -> None:
    """A tool that asks by itself is called once more at once, and told so; the calls beside it are made as ever."""
    hint, _, before = HOWS[how]
    desk = Desk(how)
    calls = [call("look", n=1), call("book", city="Oslo"), call("look", n=2)]
    runner = desk.runner(calls, "done", calls, "done again")
    _, run = await run_to_end(runner)
    await run_to_end(runner, run.pending[0].reply(True, remember="session"))
    desk.seen.clear()
    events, run = await run_to_end(runner)
    assert run.status == "completed"
    assert answers_of(events) == [
        ("look", {"result": "seen 1"}),
        ("book", {"result": "booked Oslo"}),
        ("look", {"result": "seen 2"}),
    ]
    assert desk.seen == [*before, ("Oslo", (hint if how == "itself" else "", True, None))]


@pytest.mark.parametrize("answer", [True, False, 1, ""])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_says_whether_a_call_needs_somebodys_leave(answer: Any, is_async: bool) -> None:
    """It gets the arguments by name, and the context if it has a parameter for it; what it returns counts as a bool."""
    seen: list[Any] = []

    def asks(city: str, tool_context: ToolContext) -> Any:
        seen.append((city, tool_context.function_call_id, tool_context.tool_confirmation))
        return answer

    async def asks_later(city: str, tool_context: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        return asks(city, tool_context)

    def book(city: str) -> str:
        return f"booked {city}"

    tool = FunctionTool(book, require_confirmation=asks_later if is_async else asks)
    model = ScriptedLlm([call("book", city="Oslo"), "done"])
    events, run = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[tool])))
    [made] = events[0].get_function_calls()
    assert seen == [("Oslo", made.id, None)]
    assert run.status == ("paused" if answer else "completed")
    assert [question.tool for question in run.pending] == (["book"] if answer else [])


async def test_what_an_option_fails_with_is_the_answer_to_the_call() -> None:
    """A function of `require_confirmation` that raises has not allowed anything: the tool is not called."""

    def asks() -> bool:
        raise OSError("nobody is there")

    model = ScriptedLlm([call("look"), "done"])
    tool = FunctionTool(look, require_confirmation=asks)
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[tool])))
    [answer] = events[1].get_function_responses()
    assert answer.response == {"error": {"type": "OSError", "message": "nobody is there"}}
