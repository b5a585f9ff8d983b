"""What a model is told when its answer is none, how often, and what the log says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from minirun import App, Content, Event, InMemorySessionService, LlmAgent, Part, RunConfig, Runner, StreamingMode
from minirun.errors import (
    ConfigurationError,
    InvalidValueError,
    LlmCallsLimitExceededError,
    ModelContractError,
    RetriesExceededError,
    ScriptError,
)
from minirun.models import LlmRequest, LlmRequestDraft, LlmResponse
from minirun.plugins import BasePlugin, ReflectAndRetryModelPlugin
from minirun.runtime import CallbackContext
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool

from ..helpers import PLACE, run_to_end
from ..runtime.test_resume import cut_after

BAD = LlmResponse(finish_reason="MALFORMED_FUNCTION_CALL", error_message="no such thing")


def look() -> str:
    """A tool."""
    return "seen"


def runner_with(script: Any, *plugins: BasePlugin, service: BaseSessionService | None = None) -> Runner:
    """A runner as a new process would make it."""
    agent = LlmAgent(
        name="a",
        model=ScriptedLlm(script),
        tools=[FunctionTool(look, run_in="loop", on_interrupted="rerun")],
        output_key="said",
    )
    app = App("app", agent, plugins=plugins)
    return Runner(app=app, session_service=service or InMemorySessionService(), auto_create_session=True)


def outline(events: Sequence[Event]) -> list[str]:
    """What a log says, a word for each event."""
    return [
        event.error_code or ("told" if event.content and event.content.role == "user" else event.text)
        for event in events
    ]


async def test_a_model_is_told_what_was_wrong_and_asked_again() -> None:
    """The bad answer stands in the log as an error, the guidance after it, and the good one is the answer."""
    plugin = ReflectAndRetryModelPlugin(guidance="{error} ({retry} of {max_retries})")
    runner = runner_with([BAD, BAD, "fine"], plugin)
    events, run = await run_to_end(runner)
    assert outline(events) == ["MALFORMED_FUNCTION_CALL", "told", "MALFORMED_FUNCTION_CALL", "told", "fine"]
    assert [event.text for event in events[1:4:2]] == [
        "MALFORMED_FUNCTION_CALL: no such thing (1 of 3)",
        "MALFORMED_FUNCTION_CALL: no such thing (2 of 3)",
    ]
    assert [event.custom_metadata for event in events[::2]] == [
        {"reflect_and_retry": {"retry_count": 1}},
        {"reflect_and_retry": {"retry_count": 2}},
        None,
    ]
    assert run.answer is events[-1]
    assert run.session.state["said"] == "fine"


async def test_a_good_answer_begins_anew() -> None:
    """Failures are counted in a row; a turn of tools between them is an answer."""
    plugin = ReflectAndRetryModelPlugin(max_retries=1)
    events, _ = await run_to_end(runner_with([BAD, call("look"), BAD, "fine"], plugin))
    assert outline(events)[-1] == "fine"


async def test_calls_of_an_answer_that_is_none_are_not_made() -> None:
    """Nor are they stored: so none of them is left without a response (promise P6)."""
    content = Content(role="model", parts=[Part(text="let me"), call("look")])
    events, _ = await run_to_end(
        runner_with(
            [LlmResponse(content=content, finish_reason="UNEXPECTED_TOOL_CALL"), "fine"], ReflectAndRetryModelPlugin()
        )
    )
    assert outline(events) == ["UNEXPECTED_TOOL_CALL", "told", "fine"]
    assert events[0].text == "let me"
    assert not any(event.get_function_calls() for event in events)


async def test_an_empty_answer_is_none() -> None:
    """Here it would be an error anyway."""
    events, _ = await run_to_end(runner_with(["", "fine"], ReflectAndRetryModelPlugin()))
    assert outline(events) == ["MODEL_RETURNED_NO_CONTENT", "told", "fine"]


async def test_when_the_retries_are_used_up_the_run_fails() -> None:
    """With a typed exception; what was tried is stored."""
    runner = runner_with([BAD] * 3, ReflectAndRetryModelPlugin(max_retries=2))
    with pytest.raises(RetriesExceededError, match="of 'a' has given no answer, and was asked again 2 times"):
        await run_to_end(runner)
    runner = runner_with([BAD] * 3, ReflectAndRetryModelPlugin(max_retries=2, throw_exception_if_retry_exceeded=False))
    events, run = await run_to_end(runner)
    assert outline(events)[:4] == ["MALFORMED_FUNCTION_CALL", "told"] * 2
    assert events[-1].finish_reason == "MALFORMED_FUNCTION_CALL"
    assert run.answer is None


async def test_what_a_model_raises_may_be_overcome() -> None:
    """By default what breaks the contract of models; other errors, and fatal ones, fail the run as ever."""
    events, _ = await run_to_end(runner_with([ModelContractError("cut off"), "fine"], ReflectAndRetryModelPlugin()))
    assert outline(events) == ["ModelContractError", "told", "fine"]
    assert events[0].error_message == "cut off"
    with pytest.raises(OSError, match="cable"):
        await run_to_end(runner_with([OSError("cable")], ReflectAndRetryModelPlugin()))
    events, _ = await run_to_end(runner_with([OSError("cable"), "fine"], ReflectAndRetryModelPlugin(errors=[OSError])))
    assert outline(events) == ["OSError", "told", "fine"]
    with pytest.raises(ScriptError):
        await run_to_end(runner_with([], ReflectAndRetryModelPlugin(errors=[Exception])))
    with pytest.raises(ModelContractError, match="second"):
        await run_to_end(
            runner_with(
                [ModelContractError("first"), ModelContractError("second")], ReflectAndRetryModelPlugin(max_retries=1)
            )
        )
    plugin = ReflectAndRetryModelPlugin(max_retries=0, throw_exception_if_retry_exceeded=False)
    events, _ = await run_to_end(runner_with([ModelContractError("cut off")], plugin))
    assert [(event.error_code, event.error_message) for event in events] == [("ModelContractError", "cut off")]


async def test_each_question_counts_for_the_budget() -> None:
    """However many retries there may be."""
    runner = runner_with(lambda request: BAD, ReflectAndRetryModelPlugin(max_retries=100))
    with pytest.raises(LlmCallsLimitExceededError):
        await run_to_end(runner, run_config=RunConfig(max_llm_calls=4))
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    assert outline(session.events).count("MALFORMED_FUNCTION_CALL") == 4


async def test_fragments_are_not_judged() -> None:
    """Only the whole answer is."""
    events, _ = await run_to_end(
        runner_with([["", "fi", "ne"]], ReflectAndRetryModelPlugin()),
        run_config=RunConfig(streaming_mode=StreamingMode.SSE),
    )
    assert [event.text for event in events if not event.partial] == ["fine"]


@pytest.mark.parametrize("stored", range(1, 8))
async def test_an_invocation_that_is_cut_off_anywhere_goes_on_counting(stored: int) -> None:
    """Whoever goes on with it comes to the same log, by a plugin that has seen nothing of it, and the same limit."""
    script = [BAD, BAD, call("look"), BAD, "fine"]

    def answer(request: LlmRequest) -> Any:
        said = sum(content.text.startswith("Your last answer") for content in request.contents)
        return script[said + sum(content.role == "model" for content in request.contents)]

    whole = runner_with(answer, ReflectAndRetryModelPlugin(max_retries=2))
    await run_to_end(whole)
    log = await whole.session_service.read_events(app_name="app", **PLACE, after_seq=0)
    service = await cut_after(log, stored)
    after = runner_with(answer, ReflectAndRetryModelPlugin(max_retries=2), service=service)
    async with after.run_async(**PLACE, invocation_id=log[0].invocation_id or "") as run:
        await run.wait()
    again = await service.read_events(app_name="app", **PLACE, after_seq=0)
    kept = [event for event in again if event.author != "user" or event.content is not None]
    assert [(event.id, event.content, event.error_code) for event in kept] == [
        (event.id, event.content, event.error_code) for event in log
    ]
    strict = runner_with(answer, ReflectAndRetryModelPlugin(max_retries=1), service=await cut_after(log, 3))
    async with strict.run_async(**PLACE, invocation_id=log[0].invocation_id or "") as run:
        with pytest.raises(RetriesExceededError):
            await run.wait()


# --- what it is built on ----------------------------------------------------------------------------------------------


class Before(BasePlugin):
    """Never lets the model be asked."""

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> Any:
        return LlmResponse(ask_again="and again", ask_again_max=9)


async def test_a_hook_that_always_has_the_model_asked_again_meets_the_budget() -> None:
    """Also where it answers before the model is asked."""
    runner = runner_with([], Before("before"))
    with pytest.raises(LlmCallsLimitExceededError):
        await run_to_end(runner, run_config=RunConfig(max_llm_calls=3))
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    assert outline(session.events)[1:-1] == ["ASKED_AGAIN", "told"] * 3


def test_a_fragment_cannot_have_the_model_asked_again() -> None:
    """It would have no effect."""
    with pytest.raises(InvalidValueError, match=r"LlmResponse.ask_again: expected None in a fragment"):
        LlmResponse(partial=True, ask_again="x")


@pytest.mark.parametrize(
    "options",
    [
        {"max_retries": "3"},
        {"throw_exception_if_retry_exceeded": None},
        {"finish_reasons": "STOP"},
        {"finish_reasons": [3]},
        {"errors": OSError},
        {"errors": [BaseException]},
        {"guidance": "{tool}"},
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    """The message says what was expected."""
    with pytest.raises(ConfigurationError, match="expected"):
        ReflectAndRetryModelPlugin(**options)


class Strict(ReflectAndRetryModelPlugin):
    """A judge that needs not wait."""

    def extract_error_from_response(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> Any:
        return None if llm_response.content and llm_response.content.text == "fine" else self.verdict

    verdict: Any = "too short"


@pytest.mark.parametrize("retries", [0, 1])
async def test_an_answer_that_is_still_none_is_an_error_without_calls(retries: int) -> None:
    """Where the run is not to fail, the last bad answer is an error event with the model's own words, and no call."""
    bad = LlmResponse(
        finish_reason="MALFORMED_FUNCTION_CALL",
        error_message="no such thing",
        content=Content(role="model", parts=[Part(text="I look"), call("look")]),
    )
    plugin = ReflectAndRetryModelPlugin(max_retries=retries, throw_exception_if_retry_exceeded=False)
    events, run = await run_to_end(runner_with([bad] * (retries + 1), plugin))
    assert (events[-1].error_code, events[-1].error_message) == ("MALFORMED_FUNCTION_CALL", "no such thing")
    assert (events[-1].text, events[-1].get_function_calls()) == ("I look", [])
    assert (run.answer, dict(run.session.state)) == (None, {})


async def test_a_judge_need_not_be_async() -> None:
    """`extract_error_from_response` may be a plain function; what is no text is refused."""
    events, _ = await run_to_end(runner_with(["no", "fine"], Strict()))
    assert (events[0].error_message, events[-1].text) == ("too short", "fine")
    wrong = Strict()
    wrong.verdict = {"a": 1}
    with pytest.raises(InvalidValueError, match="expected a text or None"):
        await run_to_end(runner_with(["no"], wrong))


@pytest.mark.parametrize(
    "options",
    [{"errors": 5}, {"finish_reasons": 5}, {"guidance": "{retry:q}"}, {"guidance": "{error!z}"}],
)
def test_settings_that_would_fail_later_are_refused_at_once(options: dict[str, Any]) -> None:
    """What is no list, and a text that cannot be filled in, is a ConfigurationError."""
    with pytest.raises(ConfigurationError, match="expected"):
        ReflectAndRetryModelPlugin(**options)
