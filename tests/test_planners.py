"""Planners: what a model plans is a thought, stored and shown to it again, and its answer stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from minirun import LlmAgent
from minirun.agents import CallbackContext, ReadonlyContext
from minirun.errors import ConfigurationError, LlmCallsLimitExceededError, NotSupportedError
from minirun.models import LlmRequest, LlmResponse
from minirun.planners import BasePlanner, BuiltInPlanner, PlanReActPlanner
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, Part

from .helpers import RunConfig, run_to_end, runner_for

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
    A model that only plans is asked again, told what is missing, within the limits of the run.
    """
    agent, model = planning(PLAN, "/*FINAL_ANSWER*/ 3")
    events, run = await run_to_end(runner_for(agent))
    assert (events[0].text, events[-1].text, run.status) == ("", "3", "completed")
    assert [content.text for content in model.requests[1].contents] == ["go", PLAN, PlanReActPlanner.go_on]
    agent, _ = planning(*[PLAN] * 5)
    with pytest.raises(LlmCallsLimitExceededError):
        await run_to_end(runner_for(agent), run_config=RunConfig(max_llm_calls=3))


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


def test_what_is_no_planner_is_refused() -> None:
    """
    Another value is refused, and the thinking of providers' models by its name, with what to use instead.
    """
    with pytest.raises(ConfigurationError, match="expected planner to be a planner such as PlanReActPlanner"):
        LlmAgent(name="a", planner=True)  # type: ignore[arg-type]
    with pytest.raises(NotSupportedError, match=r"comes with the models of providers; .* use PlanReActPlanner"):
        BuiltInPlanner(thinking_config=None)
