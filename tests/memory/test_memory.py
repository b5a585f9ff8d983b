"""
Facts about every memory service: the public contract, and that all find the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from minirun import Env, Event, InMemoryRunner, LlmAgent
from minirun.memory import (
    BaseMemoryService,
    DatabaseMemoryService,
    InMemoryMemoryService,
    SqliteMemoryService,
    _service,
)
from minirun.sessions import SqliteSessionService
from minirun.testing import ScriptedLlm

from ..contracts.memory_contract import check_memory_service, memory_service_checks
from ..stores import database_of

Opens = Callable[[], AbstractAsyncContextManager[BaseMemoryService]]


def shared(path: Path | str, **options: Any) -> Opens:
    """Opens a service in the file of a session service."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[BaseMemoryService]:
        async with SqliteSessionService(path, **options) as sessions, SqliteMemoryService(sessions) as memories:
            yield memories

    return opened


def services(folder: Path) -> dict[str, Opens]:
    """Every service, in every setting that changes how it works."""
    return {
        "memory": InMemoryMemoryService,
        "sqlite in memory": lambda: SqliteMemoryService(":memory:"),
        "sqlite in memory, shared": shared(":memory:"),
        "sqlite": lambda: SqliteMemoryService(folder / "own.db"),
        "sqlite process": lambda: SqliteMemoryService(folder / "process.db", durability="process"),
        "sqlite shared": shared(folder / "shared.db"),
        "postgres": lambda: DatabaseMemoryService(database_of(folder)),
    }


KINDS = tuple(services(Path()))
DURABLE = KINDS[3:]
CHECKS = memory_service_checks()
ONLY_DURABLE = {name: check for name, check in memory_service_checks(durable=True).items() if name not in CHECKS}


# A long text takes 0.3 s, in the same code wherever its file is: here and there it is tried in each run of the tests.
LONG = "long_texts_and_words_work"
LONG_IN = ("memory", "sqlite shared", "postgres")

CONTRACT = [
    pytest.param(kind, check, id=f"{kind}-{name}", marks=[pytest.mark.slow] * (name == LONG and kind not in LONG_IN))
    for kind in KINDS
    for name, check in CHECKS.items()
]


@pytest.mark.parametrize(("kind", "check"), CONTRACT)
async def test_contract(kind: str, check: Any, tmp_path: Path) -> None:
    """Every service keeps each promise of the public contract."""
    await check(services(tmp_path)[kind])


@pytest.mark.parametrize("check", ONLY_DURABLE.values(), ids=ONLY_DURABLE)
@pytest.mark.parametrize("kind", DURABLE)
async def test_contract_of_files(kind: str, check: Any, tmp_path: Path) -> None:
    """Every service with a file keeps what the contract says of opening it again."""
    await check(services(tmp_path)[kind])


# --- the contract itself ----------------------------------------------------------------------------------------------


async def test_check_memory_service_runs_every_check(tmp_path: Path) -> None:
    """check_memory_service accepts every service, also on one file that all checks share."""
    await check_memory_service(InMemoryMemoryService)
    await check_memory_service(lambda: SqliteMemoryService(tmp_path / "a.db", durability="process"), durable=True)


class MixesUsers(InMemoryMemoryService):
    """Keeps all users of an app together."""

    def _scope(self, app_name: str, user_id: str) -> tuple[str, str]:
        return super()._scope(app_name, user_id)[0], "everybody"


class Remembers(InMemoryMemoryService):
    """Brings back what was deleted."""

    async def _look_up(self, scope: Any, ids: Any) -> Any:
        return {name: entry for name, entry in (await super()._look_up(scope, ids)).items() if entry is not None}

    async def _add(self, scope: Any, memories: Any) -> None:
        for user in self._users.values():
            user.deleted.clear()
        await super()._add(scope, memories)


class Upside(InMemoryMemoryService):
    """Returns the worst first."""

    async def _search(self, *args: Any) -> Any:
        return (await super()._search(*args))[::-1]


BROKEN: list[tuple[type[InMemoryMemoryService], str]] = [
    (MixesUsers, "users_and_apps_know_nothing_of_each_other"),
    (Remembers, "what_is_deleted_stays_deleted"),
    (Upside, "the_best_comes_first"),
]


@pytest.mark.parametrize(("make", "promise"), BROKEN)
async def test_a_broken_service_is_found_out(make: type[InMemoryMemoryService], promise: str) -> None:
    """A service that breaks a promise fails its check, and a note names the promise."""
    with pytest.raises(AssertionError) as caught:
        await CHECKS[promise](make)
    assert promise.replace("_", " ") in caught.value.__notes__[0]


# --- where the peer is weak -------------------------------------------------------------------------------------------

HERE: dict[str, Any] = {"app_name": "app", "user_id": "u"}


def said(count: int) -> list[Event]:
    return [Event(id=str(n), author="a", timestamp=1.0, message=f"tea {n}") for n in range(count)]


@pytest.mark.parametrize("kind", KINDS[:2])
async def test_a_search_takes_no_text_apart(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is kept as events come: searching makes no terms but those of the query."""
    async with services(tmp_path)[kind]() as service:
        await service.add_events_to_memory(**HERE, session_id="s", events=said(100))
        monkeypatch.setattr(_service, "terms_of", None)
        found = await service.search_memory(**HERE, query="tea 7")
        assert found.memories[0].text == "tea 7"


@pytest.mark.parametrize("kind", KINDS[:2])
async def test_adding_again_writes_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session that is added again only what is new is taken apart and written."""
    async with services(tmp_path)[kind]() as service:
        await service.add_events_to_memory(**HERE, session_id="s", events=said(300))
        written: list[int] = []
        add = service._add

        async def counted(scope: Any, memories: Any) -> None:
            written.append(len(memories))
            await add(scope, memories)

        monkeypatch.setattr(service, "_add", counted)
        await service.add_events_to_memory(**HERE, session_id="s", events=said(302))
        assert written == [2]
        await service.add_events_to_memory(**HERE, session_id="s", events=said(302))
        assert written == [2]


async def test_large_texts_are_taken_apart_in_a_thread() -> None:
    """A long text does not stop the loop: it is handed to the Env's worker threads; short ones are not."""
    handed: list[None] = []

    @attrs.frozen(eq=False)
    class Counting(Env):
        async def run_sync(self, fn: Callable[[], Any], **options: Any) -> Any:
            handed.append(None)
            return await super().run_sync(fn, **options)

    async with InMemoryMemoryService(env=Counting()) as service:
        await service.add_memory(**HERE, memories=["tea " * 100])
        assert handed == []
        await service.add_memory(**HERE, memories=["milk " * 20_000])
        assert len(handed) == 1
        assert len((await service.search_memory(**HERE, query="milk")).memories) == 1


async def test_long_memories_are_ranked_in_a_thread(tmp_path: Path) -> None:
    """A search that has much to count hands that to the Env's worker threads, and the loop goes on; others do not."""
    handed: list[None] = []

    @attrs.frozen(eq=False)
    class Counting(Env):
        async def run_sync(self, fn: Callable[[], Any], **options: Any) -> Any:
            handed.append(None)
            return await super().run_sync(fn, **options)

    for service in (InMemoryMemoryService(env=Counting()), SqliteMemoryService(":memory:", env=Counting())):
        await service.add_memory(**HERE, memories=["tea"])
        handed.clear()
        await service.search_memory(**HERE, query="tea")
        assert handed == []
        await service.add_memory(**HERE, memories=["tea " * 20_000])
        handed.clear()
        assert len((await service.search_memory(**HERE, query="tea")).memories) == 2
        assert len(handed) == 1
        await service.aclose()


@pytest.mark.parametrize("kind", KINDS[:2])
async def test_others_have_their_turn_while_much_is_added_again(kind: str, tmp_path: Path) -> None:
    """Adding what is known gives way at every page."""
    async with services(tmp_path)[kind]() as service:
        events = said(2000)
        await service.add_events_to_memory(**HERE, session_id="s", events=events)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            await service.add_events_to_memory(**HERE, session_id="s", events=events)
            nursery.cancel_scope.cancel()
        assert turns >= 12


@pytest.mark.parametrize("kind", KINDS[:2])
async def test_a_memory_is_found_by_its_beginning(kind: str, tmp_path: Path) -> None:
    """What is searched of a text is bounded; all of it is kept."""
    async with services(tmp_path)[kind]() as service:
        text = "tea " + "x " * 130_000 + "milk"
        await service.add_memory(**HERE, memories=[text])
        assert (await service.search_memory(**HERE, query="tea")).memories[0].text == text
        assert not (await service.search_memory(**HERE, query="milk")).memories


async def test_what_a_rewind_has_undone_is_not_added() -> None:
    """add_session_to_memory takes what the session shows: not what was rewound."""
    runner = InMemoryRunner(LlmAgent(name="a", model=ScriptedLlm(["black", "green"])))
    await runner.session_service.create_session(app_name=runner.app_name, user_id="u", session_id="s")
    for message in ("first tea", "second tea"):
        async with runner.run_async(user_id="u", session_id="s", new_message=message) as run:
            last = [event async for event in run][-1]
    assert last.invocation_id is not None
    await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id=last.invocation_id)
    session = await runner.session_service.get_session(app_name=runner.app_name, user_id="u", session_id="s")
    memory = runner.memory_service
    assert session is not None
    assert memory is not None
    await memory.add_session_to_memory(session)
    found = await memory.search_memory(app_name=runner.app_name, user_id="u", query="tea black green")
    assert sorted(entry.text for entry in found.memories) == ["black", "first tea"]
