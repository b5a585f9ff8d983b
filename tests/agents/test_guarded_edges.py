"""Where guardrails and validators meet what is odd: failures, and replacements that do not fit."""

from __future__ import annotations

import re
from typing import Any

import pytest

from minirun import App, InMemoryRunner, LlmAgent, RunConfig, Runner
from minirun.errors import GuardrailTripwireError, InvalidValueError, ModelConnectionError, ModelRetry
from minirun.models import LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.types import Blob, Content, FileData, Part, UsageMetadata

from ..helpers import look, run_to_end, stored_events

FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def runner_of(agent: Any, **options: Any) -> Runner:
    """A runner over a fresh in-memory session."""
    return InMemoryRunner(app=App("app", agent, **options), app_name="app", auto_create_session=True)


def saying(text: str) -> Any:
    """A guardrail that says this whatever it is shown."""
    return lambda context, content: text


# --- guardrails -------------------------------------------------------------------------------------------------------


async def test_what_one_has_replaced_may_trip_the_next() -> None:
    """A guardrail checks the replacement of the one before it."""
    seen: list[str] = []

    def second(context: Any, content: Content) -> str | None:
        seen.append(content.text)
        if content.text == "one":
            raise GuardrailTripwireError({"found": "one"})
        return "two"

    guardrails = [saying("one"), second]
    agent = LlmAgent(name="a", model=ScriptedLlm(["fine"]), input_guardrails=guardrails)
    with pytest.raises(GuardrailTripwireError) as caught:
        await run_to_end(runner_of(agent))
    assert (caught.value.guardrail, caught.value.info) == ("second", {"found": "one"})
    assert seen == ["one"]


async def test_a_model_that_fails_beside_a_guardrail_fails_the_run() -> None:
    """Its error is the run's, after the verdict, which is stored."""
    model = ScriptedLlm([ModelConnectionError("broken")])
    agent = LlmAgent(name="a", model=model, model_retry=None, input_guardrails=[lambda context, content: None])
    runner = runner_of(agent)
    with pytest.raises(ModelConnectionError, match="broken"):
        await run_to_end(runner)
    events = await stored_events(runner)
    assert [(event.output or {}).get("verdict") for event in events] == [None, "passed", None]
    assert events[-1].error_code == "ModelConnectionError"


async def test_a_hook_answers_for_a_model_that_fails_beside_a_guardrail() -> None:
    """It is asked as without guardrails."""

    def on_error(callback_context: Any, llm_request: Any, error: Exception) -> LlmResponse:
        return LlmResponse(content=Content(role="model", parts=[Part(text=f"sorry: {error}")]))

    model = ScriptedLlm([ModelConnectionError("broken")])
    guardrails = [lambda context, content: None]
    agent = LlmAgent(
        name="a", model=model, model_retry=None, input_guardrails=guardrails, on_model_error_callback=on_error
    )
    events, _ = await run_to_end(runner_of(agent))
    assert events[-1].text == "sorry: broken"


async def test_an_answer_by_tool_may_be_replaced_by_another_object() -> None:
    """The call of the answer has the new arguments, and stands behind the others."""
    both = Content(role="model", parts=[call("set_model_response", n=1), call("look", n=2)])
    agent = LlmAgent(
        name="a", model=ScriptedLlm([both]), tools=[look], output_schema=FORM, output_guardrails=[saying('{"n": 7}')]
    )
    events, run = await run_to_end(runner_of(agent))
    assert [(each.name, each.args) for each in events[0].get_function_calls()] == [
        ("look", {"n": 2}),
        ("set_model_response", {"n": 7}),
    ]
    assert run.answer is not None
    assert run.answer.output == {"n": 7}


@pytest.mark.parametrize("text", ["seven", "[7]", "7"])
async def test_an_answer_by_tool_is_not_replaced_by_anything_else(text: str) -> None:
    """The error says what was expected, and no hook for a failing model is asked."""
    agent = LlmAgent(
        name="a", model=ScriptedLlm([call("set_model_response", n=1)]), tools=[look], output_schema=FORM,
        output_guardrails=[saying(text)],
    )  # fmt: skip
    expected = f"what an output guardrail returned: expected the JSON object that is the answer, found '{text}'"
    with pytest.raises(InvalidValueError, match=re.escape(expected)):
        await run_to_end(runner_of(agent))


@pytest.mark.parametrize("role", ["user", "model"])
async def test_a_replacement_has_the_role_of_what_it_replaces(role: str) -> None:
    """Whatever role the guardrail has given it: the message is the user's, and the answer the model's."""

    def replace(context: Any, content: Content) -> Content:
        return Content(role=role, parts=[Part(text=f"({content.text})")])

    model = ScriptedLlm(["said"])
    guardrails = [replace]
    agent = LlmAgent(name="a", model=model, input_guardrails=guardrails, output_guardrails=[replace])
    events, _ = await run_to_end(runner_of(agent))
    assert [(content.role, content.text) for content in model.requests[0].contents] == [("user", "(go)")]
    assert events[-1].content == Content(role="model", parts=[Part(text="(said)")])


async def test_what_is_no_word_is_not_looked_at() -> None:
    """Thoughts and calls are nobody's answer: an output guardrail sees the text beside them, in the model's role."""
    seen: list[Any] = []

    def see(context: Any, content: Content) -> None:
        seen.append((content.role, [part.text for part in content.parts]))

    said = Content(role="model", parts=[Part(text="hm", thought=True), Part(text="one"), Part(text=""), call("look")])
    thought = Content(role="model", parts=[Part(text="hm", thought=True), call("look")])
    agent = LlmAgent(name="a", model=ScriptedLlm([said, thought, "two"]), tools=[look], output_guardrails=[see])
    await run_to_end(runner_of(agent))
    assert seen == [("model", ["one"]), ("model", ["two"])]


async def test_a_hook_that_answers_beside_a_guardrail_asks_no_model() -> None:
    """Its answer to a message that is replaced is dropped, and counts as no question; it is asked again."""
    asked: list[str] = []

    def before(callback_context: Any, llm_request: Any) -> LlmResponse:
        asked.append(llm_request.contents[-1].text)
        return LlmResponse(content=Content(role="model", parts=[Part(text=f"mine: {asked[-1]}")]))

    model = ScriptedLlm([])
    agent = LlmAgent(name="a", model=model, before_model_callback=before, input_guardrails=[saying("other")])
    events, _ = await run_to_end(runner_of(agent), run_config=RunConfig(max_llm_calls=1))
    assert asked in (["go", "other"], ["other"])
    assert [event.text for event in events] == ["other", "mine: other"]


async def test_an_output_guardrail_is_shown_what_somebody_would_be_told() -> None:
    """Texts and pictures in their order, and the answer that a call gives; neither thoughts nor other calls."""
    seen: list[Content] = []

    def watch(context: Any, content: Content) -> None:
        seen.append(content)

    picture = Part(inline_data=Blob(data=b"x", mime_type="image/png"))
    file = Part(file_data=FileData(file_uri="https://example.com/a.png"))
    said = [Part(text="hm", thought=True), Part(text="here:"), picture, file, Part(text=""), call("look", n=1)]
    agent = LlmAgent(
        name="a", model=ScriptedLlm([Content(role="model", parts=said), "fine"]), tools=[look],
        output_guardrails=[watch],
    )  # fmt: skip
    await run_to_end(runner_of(agent))
    assert [content.parts for content in seen] == [(Part(text="here:"), picture, file), (Part(text="fine"),)]
    assert {content.role for content in seen} == {"model"}


async def test_an_instruction_that_is_no_text_that_can_be_stored_fails_the_run() -> None:
    """The error names the field, where an instruction is made for each request."""
    agent = LlmAgent(name="a", model=ScriptedLlm([]), instruction=lambda ctx: "a \ud800 b")
    with pytest.raises(InvalidValueError) as caught:
        await run_to_end(runner_of(agent))
    found = "found a lone surrogate at character 2"
    assert str(caught.value) == f"GenerateContentConfig.system_instruction: expected text that UTF-8 can write, {found}"


async def test_what_replaces_an_answer_is_the_models_and_was_given_as_its_own() -> None:
    """It costs what the model's answer has cost, and has ended as that; what that was about is gone with it."""
    answer = LlmResponse(
        content=Content(role="model", parts=[Part(text="secret")]),
        turn_complete=True,
        finish_reason="STOP",
        model_version="m-1",
        usage_metadata=UsageMetadata(total_token_count=7),
        custom_metadata={"said": "secret"},
    )
    agent = LlmAgent(name="a", model=ScriptedLlm([answer]), output_guardrails=[saying("nothing")])
    events, _ = await run_to_end(runner_of(agent))
    event = events[-1]
    content = event.content
    assert content is not None
    assert (content.role, content.text) == ("model", "nothing")
    assert (event.turn_complete, event.finish_reason, event.model_version) == (True, "STOP", "m-1")
    assert (event.usage_metadata, event.custom_metadata) == (UsageMetadata(total_token_count=7), None)


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (None, {"verdict": "passed", "guardrails": ["first"]}),
        ("other", {"verdict": "replaced", "guardrails": ["first"]}),
        (ModelRetry("be kind"), {"verdict": "retry", "guardrails": ["first"]}),
    ],
)
async def test_a_verdict_is_stored_by_the_names_of_who_has_looked(says: Any, told: dict[str, Any]) -> None:
    """It says what has become of the message; what the model is shown instead is the user's."""

    def first(context: Any, content: Content) -> Any:
        if isinstance(says, Exception):
            raise says
        return says

    agent = LlmAgent(name="a", model=ScriptedLlm(["fine"]), input_guardrails=[first])
    runner = runner_of(agent)
    await run_to_end(runner)
    _, verdict, _ = await stored_events(runner)
    assert verdict.output == told
    assert verdict.content is None or verdict.content.role == "user"
    assert (verdict.content is None) == (says is None)


@pytest.mark.parametrize(("where", "role"), [("input_guardrails", "user"), ("output_guardrails", "model")])
async def test_a_text_that_replaces_something_is_shown_to_the_next_as_of_the_same_role(where: str, role: str) -> None:
    """What the user has said stays the user's, and an answer the model's."""
    seen: list[tuple[str | None, str]] = []

    def second(context: Any, content: Content) -> str | None:
        seen.append((content.role, content.text))
        return "two" if content.text != "one" else None

    fields: dict[str, Any] = {where: [saying("one"), second]}
    await run_to_end(runner_of(LlmAgent(name="a", model=ScriptedLlm(lambda request: "go"), **fields)))
    assert seen == [(role, "one")]
