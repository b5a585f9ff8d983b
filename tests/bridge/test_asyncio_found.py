"""
Whoever awaits minirun in an asyncio task is told so at once, and which ways there are.

All public async methods of the Runner and of every service are tried, so that a new one is, too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minirun import Event, InMemoryRunner, LlmAgent, Session, SqliteSessionService, run_once
from minirun.artifacts import (
    DatabaseArtifactService,
    FileArtifactService,
    InMemoryArtifactService,
    SqliteArtifactService,
)
from minirun.credentials import InMemoryCredentialService
from minirun.memory import DatabaseMemoryService, InMemoryMemoryService, SqliteMemoryService
from minirun.sessions._store import SessionStore
from minirun.testing import ScriptedLlm

WAYS = "minirun.bridge.AsyncioBridge, or trio as guest"

# Closing what holds nothing of trio's is harmless anywhere; and whoever forgets it there has a file left open.
ANYWHERE = {"aclose"}
# What needs more than plain arguments: the methods have this in them, and end in those above.
ELSEWHERE = {
    "open_writer": "Runner.run_async",
    "provide_credential": "save_credential",
    "import_session": "create_session",
}

SESSION = Session.from_json(
    '{"id":"s","app_name":"app","user_id":"u","state":{},"events":[],"create_time":0,"last_update_time":0,"revision":0}'
)
ARGUMENTS: dict[str, Any] = {
    "app_name": "app",
    "user_id": "u",
    "session_id": "s",
    "new_session_id": "t",
    "session": SESSION,
    "event": Event(author="user", message="hi"),
    "events": [Event(author="user", message="hi")],
    "invocation_id": "e-1",
    "filename": "f",
    "artifact": "text",
    "query": "words",
    "rewind_before_invocation_id": "e-1",
    "messages": "hi",
}


def things(folder: Path) -> Iterator[tuple[str, Any]]:
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=ScriptedLlm(["hi"])), auto_create_session=True)
    yield "runner", runner
    yield "in-memory sessions", runner.session_service
    yield "sqlite sessions", SqliteSessionService(folder / "s.db")
    yield "in-memory artifacts", InMemoryArtifactService()
    yield "file artifacts", FileArtifactService(folder / "files")
    yield "sqlite artifacts", SqliteArtifactService(folder / "a.db")
    yield "postgres artifacts", DatabaseArtifactService("postgresql://h/db")
    yield "in-memory memory", InMemoryMemoryService()
    yield "sqlite memory", SqliteMemoryService(folder / "m.db")
    yield "postgres memory", DatabaseMemoryService("postgresql://h/db")
    yield "credentials", InMemoryCredentialService()


def operations(thing: Any) -> Iterator[tuple[str, Any]]:
    """The public async methods of an object, each with arguments that it takes."""
    for name in sorted(dir(type(thing))):
        method = getattr(type(thing), name)
        if (name.startswith("_") and name != "__aenter__") or not inspect.iscoroutinefunction(method):
            continue
        if name not in ANYWHERE and name not in ELSEWHERE and not hasattr(SessionStore, name):
            yield name, getattr(thing, name)


def arguments(operation: Any) -> dict[str, Any]:
    parameters = inspect.signature(operation).parameters.values()
    needed = [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    return {name: ARGUMENTS.get(name) for name in needed}


def test_every_operation_says_that_it_needs_trio_and_how_to_get_there(tmp_path: Path) -> None:
    """Each public async method of the runner and of every service names the bridge and the guest mode."""
    tried = []

    async def main() -> None:
        for what, thing in things(tmp_path):
            for name, operation in operations(thing):
                try:
                    await operation(**arguments(operation))
                except RuntimeError as error:
                    told = str(error)
                else:
                    told = "nothing"
                tried.append(name)
                assert WAYS in told, f"{name} of {what} says {told}"

    asyncio.run(main())
    assert len(tried) > 60
    assert {"close", "supervise", "append_event", "search_memory", "save_artifact", "save_credential"} <= set(tried)


def test_a_run_says_so_too() -> None:
    """Entering a run, and `run_once`, which has one inside."""

    async def main() -> None:
        agent = LlmAgent(name="a", model=ScriptedLlm(["hi"]))
        with pytest.raises(RuntimeError, match=WAYS):
            async with InMemoryRunner(agent=agent).run_async(user_id="u", session_id="s", new_message="hi"):
                raise AssertionError
        with pytest.raises(RuntimeError, match=WAYS):
            await run_once(agent, "hi")

    asyncio.run(main())


def test_a_synchronous_run_goes_on_working_there() -> None:
    """In a notebook, `runner.run` needs no loop: its run has a thread of its own."""
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=ScriptedLlm(["hi"])), auto_create_session=True)

    async def cell() -> list[str]:
        return [event.text for event in runner.run(user_id="u", session_id="s", new_message="hi")]

    assert asyncio.run(cell()) == ["hi"]
