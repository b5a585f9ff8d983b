"""What somebody says who is asked whether a call may be made, beside yes and no: other arguments, and a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minirun import FunctionTool, InMemorySessionService, LlmAgent, Runner
from minirun.errors import InvalidMessageError, InvalidValueError
from minirun.models import LlmRequest
from minirun.runtime import Run
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext
from minirun.types import Content, FunctionResponse, Part

from ..helpers import PLACE
from ..money import ASKING, SENT, nothing_sent, send
from .test_resume import cut_after

__all__ = ["nothing_sent"]  # a fixture


def answer(request: LlmRequest) -> Any:
    """A model that calls once, and then tells what came of it."""
    responses = [part.function_response for part in request.contents[-1].parts if part.function_response]
    return str(responses[0].response) if responses else call("send", to="eve", amount=500)


def runner_over(service: BaseSessionService, tool: FunctionTool = ASKING["required"], **callbacks: Any) -> Runner:
    """A runner as another process would make it."""
    agent = LlmAgent(name="bank", model=ScriptedLlm(answer), tools=[tool], **callbacks)
    return Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)


async def run(runner: Runner, message: str | Content) -> Run:
    """Run it to its end."""
    async with runner.run_async(**PLACE, new_message=message) as running:
        await running.wait()
    return running


@pytest.mark.parametrize("tool", ASKING.values(), ids=ASKING)
async def test_a_call_is_made_with_the_arguments_of_who_allows_it(tool: FunctionTool) -> None:
    """The tool and the callbacks before it see the edited ones, also where they are like the old ones for Python."""
    seen: list[Mapping[str, Any]] = []

    def before(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> None:
        seen.append(dict(args))

    service = InMemorySessionService()
    waits = await run(runner_over(service, tool), "go")
    after = await run(
        runner_over(service, tool, before_tool_callback=before), waits.pending[0].reply(True, args={"to": "bob"})
    )
    assert SENT == [("bob", 1)]
    assert seen == [{"to": "bob"}]
    assert after.answer is not None
    assert after.answer.text == "{'result': '1 to bob'}"


async def test_the_log_says_who_has_edited_them() -> None:
    """The answer has the new arguments and who has written them: the user of the session, or who is named."""
    for by, said in ((None, "u"), ("desk", "desk")):
        service = InMemorySessionService()
        waits = await run(runner_over(service), "go")
        await run(runner_over(service), waits.pending[0].reply(True, args={"to": "bob"}, by=by))
        events = await service.read_events(app_name="app", **PLACE)
        said_by_user = [event for event in events if event.author == "user"]
        [told] = [item.response for event in said_by_user for item in event.get_function_responses()]
        assert told == {"confirmed": True, "payload": None, "args": {"to": "bob"}, "edited_by": said}


async def test_edited_arguments_are_checked_again() -> None:
    """What does not fit the tool is told to the model, and the tool is not called."""
    service = InMemorySessionService()
    waits = await run(runner_over(service), "go")
    after = await run(runner_over(service), waits.pending[0].reply(True, args={"to": "bob", "amount": "much"}))
    assert SENT == []
    assert after.answer is not None
    assert "ArgumentError" in after.answer.text


async def test_a_callback_may_refuse_edited_arguments() -> None:
    """A guard before the tool has the last word: it sees what would be done."""

    def guard(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str] | None:
        return {"error": "not to bob"} if args["to"] == "bob" else None

    service = InMemorySessionService()
    waits = await run(runner_over(service, before_tool_callback=guard), "go")
    await run(runner_over(service, before_tool_callback=guard), waits.pending[0].reply(True, args={"to": "bob"}))
    assert SENT == []


async def test_a_reason_is_told_to_the_model() -> None:
    """`reply(False, message=...)`: the model reads it in the response to its call."""
    service = InMemorySessionService()
    waits = await run(runner_over(service), "go")
    after = await run(runner_over(service), waits.pending[0].reply(False, message="ask eve first"))
    assert SENT == []
    assert after.answer is not None
    assert "the call was not allowed; it was not made: ask eve first" in after.answer.text


async def test_an_edited_call_that_is_cut_off_is_made_as_edited() -> None:
    """Whoever goes on after a crash makes the call with the arguments that are in the log."""
    tool = FunctionTool(send, require_confirmation=True, on_interrupted="rerun")
    service = InMemorySessionService()
    waits = await run(runner_over(service, tool), "go")
    await run(runner_over(service, tool), waits.pending[0].reply(True, args={"to": "bob", "amount": 3}))
    log = await service.read_events(app_name="app", **PLACE, after_seq=0)
    answered = next(i for i, event in enumerate(log) if i and event.author == "user")
    for stored in range(answered + 1, len(log)):
        SENT.clear()
        again = await cut_after(log, stored)
        async with runner_over(again, tool).run_async(**PLACE, invocation_id=log[0].invocation_id) as running:
            last = await running.wait()
        assert last is not None
        assert last.text == "{'result': '3 to bob'}"
        assert SENT in ([("bob", 3)], [])


async def test_a_call_that_is_made_again_may_be_edited() -> None:
    """A person who is asked whether to repeat an interrupted call may say with which arguments."""
    tool = FunctionTool(send, on_interrupted="ask")
    service = InMemorySessionService()
    await run(runner_over(service, tool), "go")
    log = await service.read_events(app_name="app", **PLACE, after_seq=0)
    cut = await cut_after(log, 2)
    async with runner_over(cut, tool).run_async(**PLACE, invocation_id=log[0].invocation_id) as running:
        await running.wait()
    SENT.clear()
    await run(runner_over(cut, tool), running.pending[0].reply(True, args={"to": "bob", "amount": 7}))
    assert SENT == [("bob", 7)]


async def test_the_last_edit_of_a_call_counts() -> None:
    """A person edits a call, and after a crash edits it again: the tool is called with the second arguments."""
    tool = FunctionTool(send, require_confirmation=True, on_interrupted="ask")
    service = InMemorySessionService()
    waits = await run(runner_over(service, tool), "go")
    await run(runner_over(service, tool), waits.pending[0].reply(True, args={"to": "bob", "amount": 3}))
    log = await service.read_events(app_name="app", **PLACE, after_seq=0)
    replied = next(i for i, event in enumerate(log) if i and event.author == "user")
    cut = await cut_after(log, replied + 1)
    SENT.clear()
    async with runner_over(cut, tool).run_async(**PLACE, invocation_id=log[0].invocation_id) as running:
        await running.wait()
    assert SENT == []
    await run(runner_over(cut, tool), running.pending[0].reply(True, args={"to": "carol", "amount": 9}))
    assert SENT == [("carol", 9)]


def name_bob(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> None:
    """A callback that changes the arguments of the model."""
    if args["to"] == "eve":
        args["to"] = "bob"


EDITS = [{"to": "bob", "amount": 3}, {"to": "carol", "amount": 9}]


@pytest.mark.parametrize(
    ("callbacks", "edits", "shown"),
    [
        pytest.param({}, [{}], [{"to": "eve", "amount": 500}], id="not edited"),
        pytest.param({}, [{"args": EDITS[0]}], EDITS[:1], id="edited"),
        pytest.param({}, [{"args": EDITS[0]}, {"args": EDITS[1]}], EDITS, id="edited twice"),
        pytest.param({}, [{"args": EDITS[0]}, {}], [EDITS[0], EDITS[0]], id="edited, then allowed as it is"),
        pytest.param({"before_tool_callback": name_bob}, [{}], [{"to": "bob", "amount": 500}], id="of a callback"),
    ],
)
async def test_the_question_after_a_crash_shows_what_a_plain_approval_runs(
    callbacks: Mapping[str, Any], edits: list[dict[str, Any]], shown: list[Any]
) -> None:
    """A question that is asked again shows the arguments that were allowed last, and `reply(True)` runs these."""
    tool = FunctionTool(send, require_confirmation=True, on_interrupted="ask")
    service = InMemorySessionService()
    [question] = (await run(runner_over(service, tool, **callbacks), "go")).pending
    questions = []
    for edit in edits:
        await run(runner_over(service, tool, **callbacks), question.reply(True, **edit))
        log = await service.read_events(app_name="app", **PLACE, after_seq=0)
        replied = max(i for i, event in enumerate(log) if event.author == "user")
        service = await cut_after(log, replied + 1)
        async with runner_over(service, tool, **callbacks).run_async(
            **PLACE, invocation_id=log[0].invocation_id
        ) as running:
            await running.wait()
        [question] = running.pending
        questions.append(question.args)
    assert questions == shown
    SENT.clear()
    after = await run(runner_over(service, tool, **callbacks), question.reply(True))
    assert after.status == "completed"
    assert [tuple(shown[-1].values())] == SENT


@pytest.mark.parametrize(
    ("value", "more", "message"),
    [
        (False, {"args": {"to": "x"}}, "expected `args` .* beside True, found .* beside False"),
        (True, {"message": "no"}, "expected `message` .* beside False, found 'no' .* beside True"),
        (True, {"args": [1]}, "expected `args` .* to be an object"),
        (True, {"args": {}, "by": 3}, "expected `edited_by` .* to be a text"),
        (True, {"by": "me"}, "expected `by` beside edited args only"),
        (False, {"message": 3}, "expected `message` .* to be a text"),
    ],
)
async def test_what_does_not_go_together_is_refused(value: bool, more: dict[str, Any], message: str) -> None:
    """Before anything is stored, from `reply` and as a message that somebody has written."""
    service = InMemorySessionService()
    [question] = (await run(runner_over(service), "go")).pending
    with pytest.raises(InvalidMessageError, match=message):
        question.reply(value, **more)
    if "args" in more or "message" in more:
        response = {"confirmed": value, "payload": None, **more}
        if "by" in response:
            response["edited_by"] = response.pop("by")
        written = FunctionResponse(id=question.call_id, name=question.name, response=response)
        with pytest.raises(InvalidMessageError, match=message):
            await run(runner_over(service), Content(role="user", parts=[Part(function_response=written)]))
    assert len(await service.list_pending(app_name="app")) == 1


async def test_what_is_no_json_is_refused() -> None:
    """Edited arguments are stored."""
    [question] = (await run(runner_over(InMemorySessionService()), "go")).pending
    with pytest.raises(InvalidValueError):
        question.reply(True, args={"to": object()})


async def test_only_confirmations_have_more() -> None:
    """An input is answered with its value alone."""

    async def ask(tool_context: ToolContext) -> Any:
        """Ask."""
        return await tool_context.request_input("what?")

    agent = LlmAgent(name="a", model=ScriptedLlm([call("ask")]), tools=[ask])
    runner = Runner(agent=agent, app_name="app", session_service=InMemorySessionService(), auto_create_session=True)
    [question] = (await run(runner, "go")).pending
    odd: list[dict[str, Any]] = [{"args": {}}, {"message": "x"}, {"by": "x"}, {"payload": 1}]
    for more in odd:
        with pytest.raises(InvalidMessageError, match="with the answer to a confirmation only"):
            question.reply("x", **more)
