"""One instruction for all agents of an app, before their own."""

from __future__ import annotations

from typing import Any

import pytest

from minirun import App, InMemoryRunner, LlmAgent, SequentialAgent
from minirun.errors import ConfigurationError, MissingStateKeyError
from minirun.plugins import GlobalInstructionPlugin
from minirun.runtime import ReadonlyContext
from minirun.testing import ScriptedLlm

from ..helpers import run_to_end


async def told(overall: Any, **fields: Any) -> list[str | None]:
    """The system instructions of two agents that run one after the other, the second with *fields*."""
    models = [ScriptedLlm(["one"]), ScriptedLlm(["two"])]
    agents = [LlmAgent(name="a", model=models[0]), LlmAgent(name="b", model=models[1], **fields)]
    app = App("app", SequentialAgent(name="all", sub_agents=agents), plugins=[GlobalInstructionPlugin(overall)])
    await run_to_end(InMemoryRunner(app=app, auto_create_session=True), state_delta={"user:name": "Ada", "tone": "dry"})
    return [model.requests[0].config.system_instruction for model in models]


async def of_the_context(ctx: ReadonlyContext) -> str:
    """An instruction that depends on who runs, and is taken as it is."""
    assert type(ctx) is ReadonlyContext
    return f"You are {ctx.agent_name} for {ctx.state['user:name']}. {{tone}}"


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("Be {tone}.", ["Be dry.", "Be dry.\n\nGreet Ada."]),
        ("Be {nothing?}", ["Be ", "Be \n\nGreet Ada."]),
        (of_the_context, ["You are a for Ada. {tone}", "You are b for Ada. {tone}\n\nGreet Ada."]),
        (lambda ctx: ctx.agent_name.upper(), ["A", "B\n\nGreet Ada."]),
        ("", [None, "Greet Ada."]),
        ("{nothing?}", [None, "Greet Ada."]),
    ],
)
async def test_every_agent_is_told_it_first(instruction: Any, expected: list[str | None]) -> None:
    """It is filled in from the state, or made by a function, and stands before the agent's own instruction."""
    assert await told(instruction, instruction="Greet {user:name}.") == expected


async def test_it_stands_before_a_static_instruction() -> None:
    """Whatever the agent's instruction is made of."""
    assert await told("Be {tone}.", static_instruction="{static}") == ["Be dry.", "Be dry.\n\n{static}"]


async def test_a_key_that_is_not_there_fails_the_run() -> None:
    """As in an agent's own instruction; the error says whose it is."""
    with pytest.raises(MissingStateKeyError, match=r"plugin 'global_instruction': .*nothing"):
        await told("{nothing}")


async def test_a_function_that_returns_no_text_fails_the_run() -> None:
    """As in an agent's own instruction."""
    with pytest.raises(TypeError, match="of plugin 'global_instruction' to return a string"):
        await told(lambda ctx: 3)


@pytest.mark.parametrize("instruction", [None, 3, ["a"]])
def test_what_is_no_instruction_is_refused(instruction: Any) -> None:
    """When the plugin is made."""
    with pytest.raises(ConfigurationError, match="expected global_instruction to be a string or a function"):
        GlobalInstructionPlugin(instruction)
