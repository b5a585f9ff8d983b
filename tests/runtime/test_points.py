"""Where a run yields to the world around it: what a simulation is asked about, by name, in this order."""

from __future__ import annotations

import re
from typing import Any

import attrs

from minirun import InMemorySessionService, LlmAgent, Runner, ToolContext
from minirun.env import Env
from minirun.testing import ScriptedLlm, call
from minirun.types import Content

from ..helpers import run_to_end


@attrs.frozen(eq=False)
class Noting(Env):
    """The real world; it notes where a run yields."""

    points: list[str] = attrs.field(factory=list)

    async def point(self, label: str) -> None:
        """Note the place, without the ids that are new each time."""
        self.points.append(re.sub(r"#[\w-]+", "#id", label))


async def passes(content: Content, context: Any) -> None:
    """Let everything pass."""


async def points_of(agent: Any) -> list[str]:
    """Those of a run."""
    env = Noting()
    service = InMemorySessionService(env=env)
    await run_to_end(Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True))
    return env.points


async def test_a_run_yields_before_all_that_it_does() -> None:
    """Before it enters and stores, asks a model, calls a tool, takes a step, and says what came of it."""

    async def charge(tool_context: ToolContext) -> Any:
        """Charge."""
        return await tool_context.step("pay", lambda: 1)

    agent = LlmAgent(name="a", model=ScriptedLlm([call("charge"), "done"]), tools=[charge])
    assert await points_of(agent) == [
        "enter", "recover", "message", "model run/a", "emit run/a", "tool run/a/charge#id",
        "step run/a/charge#id!pay", "emit run/a/charge#id", "result of run/a/charge#id", "emit run/a", "model run/a",
        "emit run/a",
    ]  # fmt: skip


async def test_a_guardrail_yields_before_it_looks() -> None:
    """Then its verdict is stored, and the model is called."""
    points = await points_of(LlmAgent(name="a", model=ScriptedLlm(["done"]), input_guardrails=[passes]))
    looks = ["guardrail 0 run/a/guardrails#id", "emit run/a/guardrails#id"]
    assert points == ["enter", "recover", "message", *looks, "model run/a", "emit run/a"]
