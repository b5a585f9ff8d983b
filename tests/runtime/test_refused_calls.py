"""
Calls that are not made: of an answer that was cut off, or with arguments that are no JSON.
"""

from __future__ import annotations

from typing import Any

import pytest

from minirun import InMemoryRunner, LlmAgent, Runner, SqliteSessionService
from minirun.models import LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool
from minirun.types import Content, FunctionCall, Part

from ..helpers import PLACE, run_to_end

MADE: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    MADE.clear()


def order(count: int) -> str:
    """Order so many."""
    MADE.append(count)
    return "ordered"


def cut_off(*parts: Part) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=list(parts)), finish_reason="MAX_TOKENS")


def unreadable(text: str, call_id: str | None = None) -> Part:
    return Part(function_call=FunctionCall(name="order", args_text=text, id=call_id))


def runner_with(script: list[Any], tools: list[Any], **fields: Any) -> tuple[Runner, ScriptedLlm]:
    model = ScriptedLlm(script)
    agent = LlmAgent(name="a", model=model, tools=tools, **fields)
    return InMemoryRunner(agent=agent, app_name="app", auto_create_session=True), model


def errors_told(model: ScriptedLlm) -> list[str | None]:
    """What the model was told of its calls the last time: the message of each error, None for a result."""
    responses = model.requests[-1].contents[-1].responses
    return [response.response["error"]["message"] if "error" in response.response else None for response in responses]


@pytest.mark.parametrize("parallel", [True, False])
async def test_no_call_of_an_answer_that_was_cut_off_is_made(parallel: bool) -> None:
    """The calls are stored and each is answered with an error, by which the model may call again."""
    script = [
        cut_off(Part(text="so I"), call("order", count=1), call("order", count=2)),
        call("order", count=3),
        "done",
    ]
    runner, model = runner_with(script, [order], parallel_tool_calls=parallel)
    events, run = await run_to_end(runner)
    assert MADE == [3]
    assert (run.answer and run.answer.text, run.is_truncated) == ("done", False)
    told = [item for event in events for item in event.get_function_responses()]
    assert [("error" in item.response) for item in told] == [True, True, False]
    assert told[0].response["error"]["type"] == "ArgumentError"
    assert "cut off by the limit of its length" in told[0].response["error"]["message"]
    assert [len(request.contents) for request in model.requests] == [1, 3, 5]


async def test_a_long_running_call_that_was_cut_off_waits_for_nobody() -> None:
    """A tool that is not called has begun nothing, so the run does not pause."""
    runner, _ = runner_with([cut_off(call("order", count=1)), "done"], [LongRunningFunctionTool(order)])
    events, run = await run_to_end(runner)
    assert (MADE, run.status, run.pending) == ([], "completed", [])
    assert not any(event.long_running_tool_ids for event in events)


async def test_a_run_tells_that_its_answer_was_cut_off() -> None:
    """`run.is_truncated` is about the answer, while the run goes on and after it."""
    runner, _ = runner_with([cut_off(Part(text="Once upon a")), "whole"], [])
    async with runner.run_async(**PLACE, new_message="go") as run:
        assert not run.is_truncated
        await run.wait()
    assert run.is_truncated
    _, run = await run_to_end(runner)
    assert not run.is_truncated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"count": 1', "which is no JSON"),
        ("", "found '', which is no JSON"),
        ("[1]", "expected the arguments as a JSON object, found '[1]'"),
        ("[" * 100_000, "which is no JSON"),
    ],
)
async def test_a_call_whose_arguments_are_no_json_is_told_to_the_model(text: str, expected: str) -> None:
    """The tool is not called; the model is told what it wrote and calls again; other calls of the turn are made."""
    runner, model = runner_with([[unreadable(text), call("order", count=2)], call("order", count=3), "done"], [order])
    events, run = await run_to_end(runner)
    assert MADE == [2, 3]
    assert run.answer is not None
    first = next(event for event in events if event.get_function_responses())
    bad, good = first.get_function_responses()
    assert expected in bad.response["error"]["message"]
    assert len(bad.response["error"]["message"]) < 500
    assert good.response == {"result": "ordered"}
    assert model.requests[1].contents[1].calls[0].args_text == text


async def test_an_unreadable_call_of_a_long_running_tool_waits_for_nobody() -> None:
    """It is answered at once."""
    runner, model = runner_with([unreadable("{"), "done"], [LongRunningFunctionTool(order)])
    _, run = await run_to_end(runner)
    assert (MADE, run.status) == ([], "completed")
    assert "no JSON" in str(errors_told(model)[0])


async def test_calls_that_were_refused_stay_so_on_disk(tmp_path: Any) -> None:
    """What is read back from a file is what was stored, and is shown to the model again."""
    model = ScriptedLlm([unreadable('{"a', "own-id"), "done", "again"])
    agent = LlmAgent(name="a", model=model, tools=[order])
    for _ in range(2):
        async with SqliteSessionService(tmp_path / "s.db") as service:
            runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
            await run_to_end(runner)
    assert [item.args_text for content in model.requests[-1].contents for item in content.calls] == ['{"a']
    assert [item.id for content in model.requests[-1].contents for item in content.calls] == ["own-id"]


@pytest.mark.parametrize("finish_reason", [None, "STOP", "SAFETY"])
async def test_an_answer_with_nothing_in_it_has_an_error_code(finish_reason: str | None) -> None:
    """Nobody takes it for an answer; the message says why the model has stopped."""
    runner, _ = runner_with([LlmResponse(finish_reason=finish_reason)], [])
    events, run = await run_to_end(runner)
    assert (events[-1].error_code, run.answer, run.is_truncated) == ("MODEL_RETURNED_NO_CONTENT", None, False)
    assert str(finish_reason or "nothing") in str(events[-1].error_message)
