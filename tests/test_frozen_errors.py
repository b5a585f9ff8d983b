"""
Exceptions that cannot be written to: frozen dataclasses. They leave a run as what they are.

Python, contextlib and trio all write to an exception that passes them; minirun lets none of them be passed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import (
    App,
    BaseAgent,
    Event,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Part,
    Runner,
    SqliteSessionService,
)
from minirun.agents import LoopAgent, ParallelAgent, SequentialAgent
from minirun.artifacts import (
    BaseArtifactService,
    FileArtifactService,
    InMemoryArtifactService,
    SqliteArtifactService,
)
from minirun.errors import ConfigurationError, ServiceClosedError
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """An exception that refuses whoever writes to it."""

    code: int


def fail(*args: Any, **named: Any) -> Any:
    """Fail."""
    raise FrozenError(7)


async def fail_async(*args: Any, **named: Any) -> Any:
    """Fail, too."""
    raise FrozenError(7)


class Failing(BaseAgent):
    """Fails at once."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        fail()


class FailingGenerator(BaseAgent):
    """Says something, and fails."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        yield Event(message="so far")
        fail()


class FailingNursery(BaseAgent):
    """Fails in a task."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_async)


class FailingStep(BaseAgent):
    """Fails in a step: `work`."""

    work: Callable[..., Any] = fail

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.step("fail", self.work)


def answering(**options: Any) -> LlmAgent:
    """An agent that calls a tool and answers."""

    def look() -> str:
        """Look."""
        return "fine"

    return LlmAgent(name="a", model=ScriptedLlm([call("look"), "done"]), tools=[look], **options)


def agents() -> Iterator[Any]:
    """Agents that fail in every way there is."""
    yield pytest.param(Failing(name="a"), id="logic")
    yield pytest.param(FailingGenerator(name="a"), id="generator")
    yield pytest.param(FailingNursery(name="a"), id="nursery")
    yield pytest.param(FailingStep(name="a"), id="step in a thread")
    yield pytest.param(FailingStep(name="a", work=fail_async), id="step")
    yield pytest.param(SequentialAgent(name="s", sub_agents=[Failing(name="a")]), id="sequence")
    yield pytest.param(LoopAgent(name="s", sub_agents=[FailingGenerator(name="a")]), id="loop")
    for on_failure in ("cancel_others", "collect"):
        parts = [Failing(name="a"), FailingGenerator(name="b")]
        yield pytest.param(
            ParallelAgent(name="s", sub_agents=parts, on_failure=on_failure), id=f"parallel {on_failure}"
        )
    for name in ("before_agent", "after_agent", "before_model", "after_model", "before_tool", "after_tool"):
        yield pytest.param(answering(**{f"{name}_callback": fail}), id=name)
    yield pytest.param(answering(instruction=fail), id="instruction")
    yield pytest.param(LlmAgent(name="a", model=ScriptedLlm([FrozenError(7)])), id="model")


async def leave_run(agent: BaseAgent, plugins: list[BasePlugin]) -> None:
    """Run an agent to its end."""
    runner = Runner(app=App("app", agent, plugins=plugins), session_service=InMemorySessionService())
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        await run.wait()


@pytest.mark.parametrize("agent", list(agents()))
async def test_a_frozen_exception_leaves_the_run_as_what_it_is(agent: BaseAgent) -> None:
    """
    Whatever it passes on its way, the caller catches it by its type.
    """
    with pytest.raises(FrozenError):
        await leave_run(agent, [])


HOOKS = [name for name in dir(BasePlugin) if name.endswith("_callback") and "error" not in name]


@pytest.mark.parametrize("name", HOOKS)
async def test_a_frozen_exception_of_a_hook_leaves_the_run_as_what_it_is(name: str) -> None:
    """
    So it does where a plugin raises it.
    """
    plugin = type("Plugin", (BasePlugin,), {name: fail_async})("p")
    with pytest.raises(FrozenError):
        await leave_run(answering(), [plugin])


ARTIFACT_SERVICES: dict[str, Callable[[Path], BaseArtifactService]] = {
    "memory": lambda folder: InMemoryArtifactService(),
    "files": FileArtifactService,
    "SQLite": lambda folder: SqliteArtifactService(SqliteSessionService(folder / "s.db")),
}
SIZES = [0, 10, 3_000_000]


async def fail_in(opened: Any, size: int) -> None:
    """Fail with an artifact open, some of which was read."""
    async with opened as reader:
        assert reader.version.size == size
        async for _ in reader:
            break
        fail()


class Reading(BaseAgent):
    """Fails with an artifact open."""

    size: int = 0
    missing: bool = False

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        if self.missing:
            async with ctx.open_artifact("nothing") as found:
                assert found is None
                fail()
        await fail_in(ctx.open_artifact("a.bin"), self.size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ARTIFACT_SERVICES)
async def test_a_frozen_exception_leaves_an_open_artifact_as_what_it_is(kind: str, size: int, tmp_path: Path) -> None:
    """
    It does so from `ctx.open_artifact` and from that of the service, and the artifact is closed: it can be deleted.
    """
    place: Any = {"app_name": "app", "user_id": "u", "session_id": "s"}
    artifacts = ARTIFACT_SERVICES[kind](tmp_path)
    artifact = Part.from_bytes(data=b"x" * size, mime_type="b/c")
    await artifacts.save_artifact(**place, filename="a.bin", artifact=artifact)
    with pytest.raises(FrozenError):
        await fail_in(artifacts.open_artifact(**place, filename="a.bin"), size)
    sessions = InMemorySessionService()
    await sessions.create_session(**place)
    for agent in (Reading(name="a", size=size), Reading(name="a", missing=True)):
        runner = Runner(agent=agent, app_name="app", session_service=sessions, artifact_service=artifacts)
        with pytest.raises(FrozenError):
            async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
                await run.wait()
    await artifacts.delete_artifact(**place, filename="a.bin")
    async with artifacts.open_artifact(**place, filename="a.bin") as reader:
        assert reader is None
    await artifacts.aclose()


async def test_what_is_open_is_closed_by_a_cancellation_too(autojump_clock: Any) -> None:
    """
    A block that is cancelled with an artifact open ends as any other: its reader reads no more.
    """
    place: Any = {"app_name": "app", "user_id": "u", "session_id": "s"}
    artifacts = InMemoryArtifactService()
    await artifacts.save_artifact(**place, filename="a", artifact=Part(text="hello"))
    with trio.move_on_after(1):
        async with artifacts.open_artifact(**place, filename="a") as reader:
            await trio.sleep_forever()
    assert reader is not None
    with pytest.raises(ServiceClosedError):
        async for _ in reader:
            pass


@pytest.mark.parametrize("function", [fail, fail_async])
async def test_a_tool_that_raises_a_frozen_exception_is_told_with_it(function: Callable[..., Any]) -> None:
    """
    The model reads what has failed, and not that something could not be assigned to.
    """

    def look() -> str:
        """Look."""
        return str(fail())

    async def look_async() -> str:
        """Look."""
        return str(await fail_async())

    tool = look if function is fail else look_async
    model = ScriptedLlm([call(tool.__name__), "done"])
    await leave_run(LlmAgent(name="a", model=model, tools=[tool]), [])
    told = model.requests[1].contents[-1].responses[0].response
    assert "FrozenError" in str(told)
    assert "FrozenInstanceError" not in str(told)


def chain(length: int) -> BaseAgent:
    """Sequences in sequences."""
    agent: BaseAgent = LlmAgent(name="leaf", model=ScriptedLlm(["done"]))
    for number in range(length - 1):
        agent = SequentialAgent(name=f"s{number}", sub_agents=[agent])
    return agent


async def test_agents_stand_below_each_other_to_a_limit_that_is_told() -> None:
    """
    A hundred levels run; more are refused when the app is made, before Python's own limit is met.
    """
    await leave_run(chain(100), [])
    with pytest.raises(ConfigurationError, match="at most 100 levels of agents below each other"):
        InMemoryRunner(chain(101), app_name="app")
    with pytest.raises(ConfigurationError, match="at most 100 levels"):
        InMemoryRunner(chain(3000), app_name="app")
