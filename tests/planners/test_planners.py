"""Planners: what a model plans is a thought, stored and shown to it again, and its answer stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from minirun import InvocationContext, LlmAgent
from minirun.agents import CallbackContext, ReadonlyContext
from minirun.code_executors import BaseCodeExecutor, CodeExecutionInput, CodeExecutionResult
from minirun.errors import ConfigurationError, InvalidValueError, OutputSchemaError
from minirun.models import LlmRequest, LlmResponse
from minirun.planners import BasePlanner, BuiltInPlanner, PlanReActPlanner
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, GenerateContentConfig, Part, ThinkingConfig

from ..helpers import run_to_end, runner_for

PLAN = "/*PLANNING*/ 1. Add. 2. Tell."


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def said(*parts: Part | str) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[Part(text=p) if isinstance(p, str) else p for p in parts]))


def planning(*script: Any, **fields: Any) -> tuple[LlmAgent, ScriptedLlm]:
    model = ScriptedLlm(list(script))
    return LlmAgent(name="a", model=model, tools=[add], planner=PlanReActPlanner(), **fields), model


async def test_plans_are_thoughts_and_the_answer_stands_alone() -> None:
    """
    What stands before the final answer, or begins with a tag, is a thought; the answer has no tag.
    """
    agent, model = planning(
        said(PLAN, call("add", a=1, b=2), "it will be four"),
        "/*REASONING*/ That was three.\n/*FINAL_ANSWER*/ It is 3.",
        instruction="Be brief.",
    )
    events, run = await run_to_end(runner_for(agent))
    assert events[0].content is not None
    assert [(part.text, part.thought) for part in events[0].content.parts if part.text] == [(PLAN, True)]
    assert [event.text for event in events] == ["", "", "It is 3."]
    assert run.answer is not None
    assert run.answer.content is not None
    assert [(part.text, part.thought) for part in run.answer.content.parts] == [
        ("/*REASONING*/ That was three.", True),
        ("It is 3.", None),
    ]
    system = model.requests[0].config.system_instruction or ""
    assert system.startswith("Be brief.\n\nWork in this order")


async def test_a_model_is_shown_its_plan_again() -> None:
    """
    In the next request the plan is text, as the model has said it: it has to go on with it.
    """
    agent, model = planning(said(PLAN, call("add", a=1, b=2)), "/*FINAL_ANSWER*/ 3")
    await run_to_end(runner_for(agent))
    [_, planned, _] = model.requests[1].contents
    assert [(part.text, part.thought) for part in planned.parts if part.text] == [(PLAN, None)]


async def test_a_plan_without_an_act_is_no_answer() -> None:
    """
    A model that only plans is asked again, told what is missing, as often as the agent's output_retries say.
    """
    agent, model = planning(PLAN, "/*FINAL_ANSWER*/ 3")
    events, run = await run_to_end(runner_for(agent))
    assert (events[0].text, events[-1].text, run.status) == ("", "3", "completed")
    assert [content.text for content in model.requests[1].contents] == ["go", PLAN, PlanReActPlanner.go_on]
    agent, _ = planning(*[PLAN] * 5)
    with pytest.raises(OutputSchemaError, match="found none in 3 tries"):
        await run_to_end(runner_for(agent))


@pytest.mark.parametrize(
    "parts",
    [
        ("/*PLANNING*/ Add, ", "then tell.\n/*FINAL", "_ANSWER*/ It ", "is 3."),
        ("/*PLANNING*/ Add, then tell.", Part(text="hm", thought=True), "So:", "/*FINAL_ANSWER*/ It is 3."),
        ("Well. ", "/*FINAL_ANSWER*/ 4? ", "/*FINAL_ANSWER*/ It is 3."),
        ("/*FINAL_ANSWER*/", " It is 3."),
    ],
)
async def test_tags_may_stand_anywhere_in_the_parts_of_an_answer(parts: tuple[Part | str, ...]) -> None:
    """
    Models cut their texts anywhere: in a tag, in a plan. What stands before the last tag is a thought.
    """
    agent, _ = planning(said(*parts))
    _, run = await run_to_end(runner_for(agent))
    assert run.answer is not None
    assert run.answer.text == "It is 3."
    assert run.answer.content is not None
    assert all("/*FINAL_ANSWER*/" not in (part.text or "") for part in run.answer.content.parts[-1:])


async def test_a_text_that_a_model_has_signed_stays_a_part() -> None:
    """
    A provider wants its signatures back with the very part that they are of.
    """
    signed = Part(text="Signed. ", thought_signature=b"x")
    agent, _ = planning(said("First. ", signed, "Last."))
    events, _ = await run_to_end(runner_for(agent))
    assert events[0].content is not None
    assert list(events[0].content.parts) == [Part(text="First. "), signed, Part(text="Last.")]


async def test_code_that_a_plan_acts_by_is_run() -> None:
    """
    With a code executor the act may be code, which stands in a thought then; what a model only thinks is not run.
    """

    class Runs(BaseCodeExecutor):
        def execute_code(self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput) -> Any:
            ran.append(code_execution_input.code)
            return CodeExecutionResult(stdout="3")

    ran: list[str] = []
    block = "```python\nprint(1 + 2)\n```"
    model = ScriptedLlm(
        [
            said(Part(text=f"Would {block} do?", thought=True), "/*PLANNING*/ Add."),
            f"/*PLANNING*/ Add.\n/*ACTION*/\n{block}\n/*FINAL",
            f"/*REASONING*/ {block} gave it.\n/*FINAL_ANSWER*/ It is 3.",
        ]
    )
    agent = LlmAgent(name="a", model=model, planner=PlanReActPlanner(), code_executor=Runs())
    events, run = await run_to_end(runner_for(agent))
    assert run.answer is not None
    assert (run.answer.text, ran) == ("It is 3.", ["print(1 + 2)"])
    [wrote] = [each for each in events if each.content and any(part.executable_code for part in each.content.parts)]
    assert wrote.content is not None
    assert wrote.content.parts[0].thought


class Shouting(BasePlanner):
    """A planner of one's own."""

    def build_planning_instruction(self, readonly_context: ReadonlyContext, llm_request: LlmRequest) -> str | None:
        return f"Plan for {readonly_context.state['who']}, {llm_request.model}." if readonly_context.state else None

    def process_planning_response(
        self, callback_context: CallbackContext, response_parts: Sequence[Part]
    ) -> list[Part] | None:
        callback_context.state["planned"] = len(response_parts)
        return [Part(text=(part.text or "").upper()) for part in response_parts]


async def test_a_planner_of_ones_own_sees_state_and_request() -> None:
    """
    It gets the contexts of its agent; what it writes goes with the answer.
    """
    model = ScriptedLlm(["hello"])
    agent = LlmAgent(name="a", model=model, planner=Shouting(), output_key="said")
    events, run = await run_to_end(runner_for(agent), state_delta={"who": "ada"})
    assert model.requests[0].config.system_instruction == f"Plan for ada, {model.name}."
    assert (events[-1].text, dict(run.session.state)) == ("HELLO", {"who": "ada", "planned": 1, "said": "HELLO"})


THOUGHT = Part(text="Let me see.", thought=True)


async def test_a_built_in_planner_sets_how_the_model_thinks() -> None:
    """
    Every request has its thinking_config, and the rest of the agent's own settings; nothing is said of plans.
    """
    model = ScriptedLlm(["hello", "again"])
    thinking = ThinkingConfig(include_thoughts=True, thinking_level="low")
    agent = LlmAgent(
        name="a",
        model=model,
        instruction="Be brief.",
        planner=BuiltInPlanner(thinking_config=thinking),
        generate_content_config=GenerateContentConfig(temperature=0.5),
    )
    runner = runner_for(agent)
    await run_to_end(runner)
    await run_to_end(runner)
    config = GenerateContentConfig(system_instruction="Be brief.", temperature=0.5, thinking_config=thinking)
    assert [request.config for request in model.requests] == [config, config]


async def test_thoughts_under_a_built_in_planner_stay_thoughts() -> None:
    """
    What a provider marks as a thought is no plan: it is not told to the model as text, and is no reason to ask again.
    """
    planner = BuiltInPlanner(thinking_config={"thinking_budget": 100})
    model = ScriptedLlm([Content(role="model", parts=[THOUGHT, Part(text="hi")]), Content(parts=[THOUGHT]), "there"])
    runner = runner_for(LlmAgent(name="a", model=model, planner=planner))
    for _ in range(3):
        events, run = await run_to_end(runner)
    assert [part.thought for part in model.requests[1].contents[1].parts] == [True, None]
    assert len(model.requests) == 3
    assert run.answer is not None
    assert events[-1].text == "there"


def test_what_is_no_planner_is_refused() -> None:
    """
    Another value is refused, and so is a setting that two places give, or none.
    """
    with pytest.raises(ConfigurationError, match="expected planner to be a planner such as PlanReActPlanner"):
        LlmAgent(name="a", planner=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="expected a ThinkingConfig, found None"):
        BuiltInPlanner(thinking_config=None)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidValueError, match="thinking_config: expected a ThinkingConfig"):
        BuiltInPlanner(thinking_config="much")  # type: ignore[arg-type]  # that is the point
    config = GenerateContentConfig(thinking_config=ThinkingConfig(thinking_budget=0))
    with pytest.raises(ConfigurationError, match="would be replaced by that of the planner"):
        LlmAgent(name="a", generate_content_config=config, planner=BuiltInPlanner(thinking_config=ThinkingConfig()))
