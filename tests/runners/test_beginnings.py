"""
From the stored message to the agents' task: what fails there fails the run, and the session is free afterwards.

Whatever an application can take part in may raise there: a service of its own, an Env, a hook. Each of their calls is
let fail in its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import InMemorySessionService, InvocationContext, LlmAgent, Part, RunConfig, Runner, SqliteSessionService
from minirun.agents import CallbackContext
from minirun.apps import App
from minirun.artifacts import InMemoryArtifactService
from minirun.env import Env
from minirun.plugins import BasePlugin
from minirun.sessions import BaseSessionService, InvocationStatus
from minirun.testing import ScriptedLlm


class PlantedError(Exception):
    """What is let fail."""


class Planter:
    """Lets the n-th call that is told of fail, and counts them all."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails_at = -1

    def step(self) -> None:
        """Take note of a call."""
        self.calls += 1
        if self.calls == self.fails_at:
            raise PlantedError(f"call {self.calls}")


class PlantedEnv(Env):
    """The real world, whose calls may fail."""

    def __init__(self, planter: Planter) -> None:
        object.__setattr__(self, "planter", planter)

    def now(self) -> float:
        """The clock, which may fail."""
        self.planter.step()  # type: ignore[attr-defined]  # set above
        return super().now()

    def new_id(self, path: str) -> str:
        """A new id, which may fail."""
        self.planter.step()  # type: ignore[attr-defined]  # set above
        return super().new_id(path)

    async def point(self, label: str) -> None:
        """A place to yield, which may fail."""
        self.planter.step()  # type: ignore[attr-defined]  # set above


class Hooks(BasePlugin):
    """Hooks that may fail, and that save an artifact with the message."""

    def __init__(self, planter: Planter) -> None:
        super().__init__("hooks")
        self.planter = planter

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Any) -> None:
        """Look at the message."""
        await invocation_context.save_artifact("note", Part(text="note"))
        self.planter.step()

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Begin."""
        self.planter.step()

    async def before_agent_callback(self, *, agent: Any, callback_context: CallbackContext) -> None:
        """Look at the agent."""
        self.planter.step()


def make_memory(planter: Planter, folder: Path) -> BaseSessionService:
    """A store in memory that renews leases, and may fail to say how often."""

    class Service(InMemorySessionService):
        @property
        def renew_every_s(self) -> float:  # type: ignore[override]
            planter.step()
            return 5.0

        async def renew_leases(self, writers: Any) -> None:
            planter.step()

    return Service(env=PlantedEnv(planter))


def make_sqlite(planter: Planter, folder: Path) -> BaseSessionService:
    """A store in a file, whose Env may fail."""
    return SqliteSessionService(folder / "s.db", env=PlantedEnv(planter))


@pytest.mark.parametrize("make", [make_memory, make_sqlite])
async def test_whatever_fails_after_the_message_is_stored_ends_the_run_in_order(
    make: Callable[[Planter, Path], BaseSessionService], tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """
    A call that fails while a run begins leaves nothing stored, or a run that has ended; the session is free then.
    """
    fails_at = 0
    stored_and_failed = 0
    while True:
        fails_at += 1
        folder = tmp_path / str(fails_at)
        folder.mkdir()
        planter = Planter()
        async with make(planter, folder) as service:
            agent = LlmAgent(name="a", model=ScriptedLlm(lambda request: "hello"))
            app = App("app", agent, plugins=[Hooks(planter)])
            artifacts = InMemoryArtifactService(env=service.env)
            runner = Runner(app=app, session_service=service, artifact_service=artifacts)
            where: Any = {"user_id": "u", "session_id": "s"}
            await service.create_session(app_name="app", **where)
            begin = planter.calls
            planter.fails_at = begin + fails_at
            reject = RunConfig(on_busy="reject")
            entered = False
            failure: BaseException | None = None
            try:
                async with runner.run_async(new_message="one", run_config=reject, **where) as run:
                    entered = True
                    async for _ in run:
                        pass
            except PlantedError as error:
                failure = error
            if planter.calls < planter.fails_at:
                assert failure is None
                break
            planter.fails_at = -1
            events = await service.read_events(app_name="app", **where)
            messages = [event.text for event in events if event.author == "user"]
            invocations = await service.list_invocations(app_name="app")
            if entered:
                assert messages == ["one"]
                expected = InvocationStatus.COMPLETED if failure is None else InvocationStatus.FAILED
                assert [each.status for each in invocations] == [expected] or _ended_late(invocations)
                stored_and_failed += failure is not None
            else:
                assert messages == []
                assert invocations == []
            async with runner.run_async(new_message="two", run_config=reject, **where) as run:
                answer = await run.wait()
            assert answer is not None
            assert answer.text == "hello"
    assert stored_and_failed > 3


def _ended_late(invocations: Any) -> bool:
    """Whether how the run ended could not be recorded, because what records it was let fail."""
    return [each.status for each in invocations] in ([InvocationStatus.INTERRUPTED], [InvocationStatus.COMPLETED])
