"""The seam: what comes from `Env` is all that differs between two runs of the same steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from minirun import Env, InMemorySessionService, LlmAgent, Runner, SqliteSessionService, ToolContext
from minirun._codec import to_json
from minirun.errors import ConfigurationError, ServiceInUseError
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call

from .helpers import PLACE, run_to_end, runner_for

T = TypeVar("T")


class CountingEnv(Env):
    """A world of counters: ids and times depend on how often they were asked for, and threads are inline."""

    def __init__(self) -> None:
        object.__setattr__(self, "asked", Counter())

    def _count(self, what: str) -> int:
        asked: Counter[str] = self.__dict__["asked"]
        asked[what] += 1
        return asked[what]

    def now(self) -> float:
        """One second later at each look."""
        return 1_000_000.0 + self._count("now")

    def new_id(self, path: str) -> str:
        """The path and a number."""
        return f"{path}{self._count(path):028d}"

    async def run_sync(self, fn: Callable[[], T], **options: Any) -> T:
        """No threads in this world."""
        await trio.lowlevel.checkpoint()
        return fn()


def make_service(kind: str, folder: Path) -> BaseSessionService:
    if kind == "memory":
        return InMemorySessionService(env=CountingEnv())
    return SqliteSessionService(folder / "s.db", env=CountingEnv())


async def log_of_a_conversation(service: BaseSessionService) -> list[str]:
    def add(a: int, b: int, tool_context: ToolContext) -> int:
        tool_context.state.add("sum", a + b)
        return a + b

    model = ScriptedLlm([[call("add", a=1, b=2), call("add", a=3, b=4)], "ten", ["and ", "more"]])
    agent = LlmAgent(name="adder", model=model, tools=[add], output_key="said")
    async with service:
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        await run_to_end(runner, "add")
        await run_to_end(runner, "more")
        return [to_json(event) for event in await service.read_events(app_name="app", **PLACE)]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_same_world_gives_the_same_log(kind: str, tmp_path: Path) -> None:
    """With the same Env the same conversation is stored byte for byte, on either service (promise P10)."""
    logs = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        logs.append(trio.run(log_of_a_conversation, make_service(kind, folder)))
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) == 7


def test_a_runner_takes_the_env_of_its_service() -> None:
    """A Runner with another Env than its service's is refused; with the same it is fine."""
    env = Env()
    service = InMemorySessionService(env=env)
    agent = LlmAgent(name="a", model=ScriptedLlm([]))
    Runner(agent=agent, app_name="app", session_service=service, env=env)
    with pytest.raises(ConfigurationError, match="Env"):
        Runner(agent=agent, app_name="app", session_service=service, env=Env())


async def test_two_loops_at_once_are_refused() -> None:
    """A service that one trio.run uses refuses another one, which runs in a thread."""
    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm(["x"], latency_s=0.0)))

    def other_loop() -> None:
        trio.run(run_to_end, runner)

    async with runner.run_async(**PLACE, new_message="hi"):
        with pytest.raises(ServiceInUseError, match=r"another trio\.run"):
            await trio.to_thread.run_sync(other_loop)
