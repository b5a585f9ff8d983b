"""
A store of one's own, written with public names only: it is a session service as any other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from minirun import BaseAgent, Event, InMemoryRunner, InMemorySessionService, InvocationContext, LlmAgent, Runner
from minirun.errors import (
    ConfigurationError,
    StorageCorruptError,
    StorageFullError,
    StorageRolledBackError,
    StorageUncertainError,
)
from minirun.sessions import JournalSessionService, Session
from minirun.testing import ScriptedLlm, check_session_service

from .stores import HERE


class LinesInAFile(JournalSessionService):
    """A journal in a text file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    async def read_journal(self) -> AsyncGenerator[str, None]:
        if self.path.exists():
            for line in self.path.read_text("utf-8").splitlines():
                yield line

    async def write_journal(self, step: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(step + "\n")


async def test_two_methods_make_a_session_service(tmp_path: Path) -> None:
    """
    A journal in a text file keeps every promise of a session service, also of one that can be opened again.
    """
    numbers = iter(range(1000))
    await check_session_service(lambda: LinesInAFile(tmp_path / f"{next(numbers)}.txt"))
    await check_session_service(lambda: LinesInAFile(tmp_path / "again.txt"), durable=True)


async def test_runs_go_on_after_a_journal_was_opened_again(tmp_path: Path) -> None:
    """
    What was said, the state and the ends of runs are there in the next process; a run that had no end is interrupted.
    """
    for number in range(2):
        async with LinesInAFile(tmp_path / "a.txt") as service:
            agent = LlmAgent(name="a", model=ScriptedLlm([f"answer {number}"]), output_key="last")
            runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
            async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
                await run.wait()
    lines = (tmp_path / "a.txt").read_text("utf-8").splitlines()
    (tmp_path / "a.txt").write_text("\n".join(line for line in lines[:-1]) + "\n", "utf-8")
    async with LinesInAFile(tmp_path / "a.txt") as service:
        session = await service.get_session(**HERE)
        assert session is not None
        assert [event.text for event in session.events] == ["hi", "answer 0", "hi", "answer 1"]
        assert session.state == {"last": "answer 1"}
        assert [run.status for run in await service.list_invocations()] == ["completed", "interrupted"]


class Failing(LinesInAFile):
    """Its disk fails."""

    error: Exception | None = None

    async def write_journal(self, step: str) -> None:
        if self.error is not None:
            raise self.error
        await super().write_journal(step)


async def test_a_journal_that_fails_says_what_is_stored(tmp_path: Path) -> None:
    """
    A failure that certainly stored nothing changes nothing; after any other the service is used no more.
    """
    service = Failing(tmp_path / "a.txt")
    session = await service.create_session(**HERE)
    service.error = StorageFullError("no room")
    with pytest.raises(StorageFullError):
        await service.append_event(session, Event(author="a", message="x"))
    service.error = None
    await service.append_event(session, Event(author="a", message="y"))
    service.error = OSError(5, "input/output error")
    with pytest.raises(StorageUncertainError, match=r"write_journal of Failing failed.*may or may not"):
        await service.append_event(session, Event(author="a", message="z"))
    service.error = None
    with pytest.raises(StorageRolledBackError, match="make a new one"):
        await service.append_event(session, Event(author="a", message="z"))
    async with LinesInAFile(tmp_path / "a.txt") as again:
        found = await again.get_session(**HERE)
        assert found is not None
        assert [event.text for event in found.events] == ["y"]


async def test_a_journal_that_cannot_be_played_is_damage(tmp_path: Path) -> None:
    """
    A step that makes no sense is named by its number; nothing is read or written beside it.
    """
    async with LinesInAFile(tmp_path / "a.txt") as service:
        await service.create_session(**HERE)
    with (tmp_path / "a.txt").open("a") as file:
        file.write("{}\n")
    async with LinesInAFile(tmp_path / "a.txt") as service:
        with pytest.raises(StorageCorruptError, match="step 2 of the journal"):
            await service.get_session(**HERE)


class Audited(InMemorySessionService):
    async def append_event(self, session: Session, event: Event) -> Event:
        return await super().append_event(session, event)


class Quiet(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="said"))


async def test_an_append_event_that_runs_would_pass_by_is_refused() -> None:
    """
    A service that overrides `append_event` is not given to a Runner: its runs would not pass through it; hooks that
    see each event are named.
    """
    with pytest.raises(ConfigurationError, match=r"Audited overrides it: runs do not pass.*on_event_callback"):
        Runner(agent=Quiet(name="q"), app_name="app", session_service=Audited())
    assert isinstance(InMemoryRunner(agent=Quiet(name="q"), app_name="app"), Runner)
