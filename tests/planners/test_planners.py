"""BuiltInPlanner sets the thinking of an agent's model."""

from __future__ import annotations

import pytest

from minirun import LlmAgent
from minirun.errors import ConfigurationError, InvalidValueError
from minirun.planners import BuiltInPlanner
from minirun.testing import ScriptedLlm
from minirun.types import Content, GenerateContentConfig, Part, ThinkingConfig

from ..helpers import run_to_end, runner_for

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
    with pytest.raises(ConfigurationError, match="expected planner to be a BuiltInPlanner"):
        LlmAgent(name="a", planner=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="expected a ThinkingConfig, found None"):
        BuiltInPlanner(thinking_config=None)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidValueError, match="thinking_config: expected a ThinkingConfig"):
        BuiltInPlanner(thinking_config="much")  # type: ignore[arg-type]  # that is the point
    config = GenerateContentConfig(thinking_config=ThinkingConfig(thinking_budget=0))
    with pytest.raises(ConfigurationError, match="would be replaced by that of the planner"):
        LlmAgent(name="a", generate_content_config=config, planner=BuiltInPlanner(thinking_config=ThinkingConfig()))
