"""
A wall clock that is set while a program runs: nothing but times changes, whichever look at the clock it comes before.

Clocks take no part in order, conflicts or what is found (promise P3); see `test_lease_clocks.py` for who runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from minirun import App, Env, Event, InMemorySessionService, LlmAgent, Runner, SqliteSessionService
from minirun.artifacts import InMemoryArtifactService
from minirun.memory import InMemoryMemoryService
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, LongRunningFunctionTool
from minirun.types import Part

STEPS_S = (1e9, -1e9)
SERVICES: dict[str, Callable[[Path, Env], BaseSessionService]] = {
    "memory": lambda path, env: InMemorySessionService(env=env),
    "sqlite": lambda path, env: SqliteSessionService(path, durability="process", env=env),
}


@attrs.frozen(eq=False)
class Set(Env):
    """A clock that goes on by a second at each look, and is set by `step_s` before the look of this number."""

    step_s: float
    number: int
    looks: list[None] = attrs.field(factory=list)

    def now(self) -> float:
        self.looks.append(None)
        step_s = self.step_s if len(self.looks) >= self.number > 0 else 0.0
        return 2e9 + len(self.looks) + step_s


async def lived(service: BaseSessionService, env: Env) -> list[Any]:
    """Everything that a session does in its life; what is seen of it, without times and ids."""

    async def keep(tool_context: Any) -> str:
        """Keep."""
        tool_context.state["user:kept"] = 1
        await tool_context.save_artifact("a", Part(text="x"))
        return "kept"

    async def order() -> None:
        """Order."""

    place: Any = {"app_name": "app", "user_id": "u"}
    model = ScriptedLlm([call("keep"), [call("order"), call("sure")], "done", "more", "again"])
    tools: list[Any] = [keep, LongRunningFunctionTool(order), FunctionTool(sure, require_confirmation=True)]
    runner = Runner(
        app=App(name="app", root_agent=LlmAgent(name="a", model=model, tools=tools)),
        session_service=service,
        artifact_service=InMemoryArtifactService(env=env),
        memory_service=InMemoryMemoryService(env=env),
        auto_create_session=True,
    )
    seen: list[Any] = []

    async def say(message: Any) -> Any:
        async with runner.run_async(user_id="u", session_id="s", new_message=message) as run:
            await run.wait()
        seen.append((run.status, len(run.pending)))
        return run

    for question in (await say("one")).pending:
        last = await say(question.reply(True))
    await say("two")
    await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id=last.invocation_id)
    await say("three")
    await service.fork_session(**place, session_id="s", new_session_id="t")
    session = await service.get_session(**place, session_id="t")
    assert session is not None
    await service.append_event(session, Event(author="b", message="from outside", state={"x": 1}))
    seen.append([one.id for one in (await service.list_sessions(**place)).sessions])
    seen.append([(one.session_id, one.status) for one in await service.list_invocations()])
    for name in "st":
        events = await service.read_events(**place, session_id=name)
        seen.append([(each.seq, each.author, each.text, dict(each.actions.state_delta)) for each in events])
        session = await service.get_session(**place, session_id=name)
        assert session is not None
        seen.append((dict(session.state), session.revision))
    await service.delete_session(**place, session_id="s")
    seen.append([one.id for one in (await service.list_sessions(**place)).sessions])
    return seen


async def sure() -> str:
    """Sure."""
    return "sure"


@pytest.mark.parametrize("every", [pytest.param(3, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step_s", STEPS_S)
@pytest.mark.parametrize("kind", SERVICES)
async def test_a_clock_that_is_set_at_any_look_changes_nothing_but_times(
    kind: str, step_s: float, every: int, tmp_path: Path
) -> None:
    """
    Runs, questions, a rewind, a fork and appends from outside go as they do with a clock that nobody sets.
    """

    async def attempt(number: int) -> tuple[list[Any], int]:
        env = Set(step_s, number)
        async with SERVICES[kind](tmp_path / f"{number}.db", env) as service:
            return await lived(service, env), len(env.looks)

    expected, looks = await attempt(0)
    assert looks > 15
    for number in range(1, looks + 1, every):
        assert (await attempt(number))[0] == expected, f"set before look {number}"
