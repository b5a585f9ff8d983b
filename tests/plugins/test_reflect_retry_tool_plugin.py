"""What a model is told when a tool fails, how often, and what happens then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from minirun import App, Event, FunctionTool, InMemorySessionService, LlmAgent, ParallelAgent, RunConfig, Runner
from minirun.errors import ConfigurationError, RetriesExceededError, ToolCallsLimitExceededError
from minirun.models import LlmRequest
from minirun.plugins import REFLECT_AND_RETRY_RESPONSE_TYPE, ReflectAndRetryToolPlugin, TrackingScope
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext

from ..helpers import PLACE, run_to_end


def divide(a: int, b: int) -> float:
    """A tool that may fail."""
    return a / b


def add(a: int, b: int) -> int:
    """A tool that does not."""
    return a + b


TOOLS = [FunctionTool(divide, run_in="loop"), FunctionTool(add, run_in="loop")]
BAD, GOOD = call("divide", a=1, b=0), call("divide", a=1, b=1)


def runner_with(
    plugin: ReflectAndRetryToolPlugin, script: Any, service: BaseSessionService | None = None, tools: Any = TOOLS
) -> Runner:
    """A runner as a new process would make it."""
    agent = LlmAgent(name="a", model=ScriptedLlm(script), tools=tools)
    app = App("app", agent, plugins=[plugin])
    return Runner(app=app, session_service=service or InMemorySessionService(), auto_create_session=True)


def results(events: Sequence[Event]) -> list[Any]:
    """What calls were answered with: a number for guidance, how many failures in a row it has counted."""
    return [
        answer.response.get("retry_count", answer.response.get("result", answer.response))
        for event in events
        for answer in event.get_function_responses()
    ]


async def test_the_model_is_told_what_failed_and_to_think_again() -> None:
    """The result names the error and the count; the run goes on."""
    events, _ = await run_to_end(runner_with(ReflectAndRetryToolPlugin(), [BAD, "sorry"]))
    [response] = events[1].get_function_responses()
    guidance = response.response["reflection_guidance"]
    assert response.response == {
        "response_type": REFLECT_AND_RETRY_RESPONSE_TYPE,
        "error_type": "ZeroDivisionError",
        "error_details": "division by zero",
        "retry_count": 1,
        "reflection_guidance": guidance,
    }
    assert all(word in guidance for word in ("divide", "division by zero", "failure 1 of at most 3"))
    assert events[-1].text == "sorry"


async def test_a_success_begins_anew() -> None:
    """Failures are counted in a row, for each tool by itself."""
    script = [BAD, BAD, call("add", a=1, b=1), BAD, GOOD, BAD, "done"]
    events, _ = await run_to_end(runner_with(ReflectAndRetryToolPlugin(), script))
    assert results(events) == [1, 2, 2, 3, 1.0, 1]


async def test_calls_of_one_turn_are_counted_one_by_one() -> None:
    """In the order in which they fail."""
    events, _ = await run_to_end(runner_with(ReflectAndRetryToolPlugin(), [[BAD, BAD], "done"]))
    assert sorted(results(events)) == [1, 2]


async def test_the_failure_after_the_last_retry_fails_the_run_with_its_own_exception() -> None:
    """And the call is answered with the tool's error."""
    runner = runner_with(ReflectAndRetryToolPlugin(max_retries=2), [BAD, BAD, BAD])
    with pytest.raises(ZeroDivisionError):
        await run_to_end(runner)
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    assert results(session.events)[:2] == [1, 2]
    assert session.events[-2].get_function_responses()[0].response["error"]["type"] == "ZeroDivisionError"


async def test_a_model_may_be_told_to_give_it_up() -> None:
    """Then each further failure is answered so, and the run goes on."""
    plugin = ReflectAndRetryToolPlugin(
        max_retries=1, throw_exception_if_retry_exceeded=False, guidance="again {retry}", give_up="stop {tool}: {error}"
    )
    events, _ = await run_to_end(runner_with(plugin, [BAD, BAD, BAD, GOOD, "done"]))
    told = [e.get_function_responses()[0].response.get("reflection_guidance") for e in events[1:-1:2]]
    assert told == ["again 1", "stop divide: division by zero", "stop divide: division by zero", None]


async def test_no_retries_are_none() -> None:
    """With max_retries=0 the first failure is the last."""
    with pytest.raises(ZeroDivisionError):
        await run_to_end(runner_with(ReflectAndRetryToolPlugin(max_retries=0), [BAD]))


async def test_a_tool_that_a_model_has_made_up_is_a_failure() -> None:
    """It is told which tools there are."""
    events, _ = await run_to_end(runner_with(ReflectAndRetryToolPlugin(), [call("conjure"), "done"]))
    response = events[1].get_function_responses()[0].response
    assert response["error_type"] == "UnknownToolError"
    assert "the tools are: divide, add" in response["reflection_guidance"]


class Strict(ReflectAndRetryToolPlugin):
    """Takes a negative result for an error."""

    async def extract_error_from_result(self, *, result: Any, **_: Any) -> dict[str, Any] | None:
        return {"error_type": "Negative", "value": result} if result < 0 else None


async def test_a_result_may_be_an_error() -> None:
    """What is taken for one is answered with guidance, and counted."""
    below, above = call("add", a=1, b=-2), call("add", a=1, b=2)
    events, _ = await run_to_end(runner_with(Strict(), [below, above, below, below, "done"]))
    assert results(events) == [1, 3, 1, 2]
    response = events[1].get_function_responses()[0].response
    assert (response["error_type"], response["error_details"]) == ("Negative", '{"error_type":"Negative","value":-1}')
    with pytest.raises(RetriesExceededError, match="'add' has failed more than max_retries=1 times in a row; at last"):
        await run_to_end(runner_with(Strict(max_retries=1), [below, below]))


async def test_invocations_are_counted_apart_and_forgotten() -> None:
    """Unless the scope is global; then the failures of one count for the next."""
    plugin, overall = ReflectAndRetryToolPlugin(), ReflectAndRetryToolPlugin(tracking_scope="global")
    for each, expected in ((plugin, [1, 1]), (overall, [1, 2])):
        runner = runner_with(each, [BAD, "one", BAD, "two"])
        found = [results((await run_to_end(runner))[0]) for _ in range(2)]
        assert [number for numbers in found for number in numbers] == expected
    assert plugin._counts == {}
    assert overall.tracking_scope is TrackingScope.GLOBAL


async def test_an_invocation_that_is_resumed_goes_on_counting() -> None:
    """The failures in a row are counted from the log, by a plugin that has seen none of them."""
    answers = [BAD, BAD, call("ask"), BAD, "done"]

    def answer(request: LlmRequest) -> Any:
        return answers[sum(content.role == "model" for content in request.contents)]

    async def ask(tool_context: ToolContext) -> Any:
        """Ask somebody."""
        return await tool_context.request_input("go on?")

    tools = [*TOOLS, FunctionTool(ask)]
    service = InMemorySessionService()
    _, run = await run_to_end(runner_with(ReflectAndRetryToolPlugin(max_retries=3), answer, service, tools))
    [pending] = run.pending
    after = runner_with(ReflectAndRetryToolPlugin(max_retries=3), answer, service, tools)
    events, _ = await run_to_end(after, pending.reply("yes"))
    assert results(events)[-1] == 3


async def test_retries_count_for_the_budgets() -> None:
    """However many failures in a row are allowed."""
    runner = runner_with(ReflectAndRetryToolPlugin(max_retries=100), lambda request: BAD)
    with pytest.raises(ToolCallsLimitExceededError):
        await run_to_end(runner, run_config=RunConfig(max_tool_calls=5))


async def test_an_error_that_cannot_be_stored_as_it_is_is_told_readably() -> None:
    """Half of a surrogate pair becomes a question mark."""

    def fail() -> None:
        """Fail."""
        raise ValueError("\ud800 {tool}")

    runner = runner_with(ReflectAndRetryToolPlugin(), [call("fail"), "done"], tools=[FunctionTool(fail, run_in="loop")])
    events, _ = await run_to_end(runner)
    assert events[1].get_function_responses()[0].response["error_details"] == "? {tool}"


@pytest.mark.parametrize(
    "options",
    [
        {"max_retries": -1},
        {"max_retries": True},
        {"throw_exception_if_retry_exceeded": 1},
        {"tracking_scope": "session"},
        {"guidance": "{what}"},
        {"give_up": None},
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    """The message says what was expected."""
    with pytest.raises(ConfigurationError, match="expected"):
        ReflectAndRetryToolPlugin(**options)


async def test_agents_side_by_side_fail_each_for_itself() -> None:
    """A failure of one agent's call is none of another's, also where they run in parallel."""
    agents = [LlmAgent(name=f"a{n}", model=ScriptedLlm([BAD, "sorry"]), tools=TOOLS) for n in range(5)]
    app = App("app", ParallelAgent(name="all", sub_agents=agents), plugins=[ReflectAndRetryToolPlugin(max_retries=1)])
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    events, _ = await run_to_end(runner)
    assert results(events) == [1] * 5


async def test_a_long_error_is_cut() -> None:
    """A model is told the beginning of an error, and how much is left out."""

    def fail() -> None:
        """A tool."""
        raise ValueError("x" * 1_000_000)

    tools = [FunctionTool(fail, run_in="loop")]
    events, _ = await run_to_end(runner_with(ReflectAndRetryToolPlugin(), [call("fail"), "sorry"], tools=tools))
    [response] = events[1].get_function_responses()
    assert len(str(response.response)) < 20_000
    assert "more characters)" in response.response["error_details"]
