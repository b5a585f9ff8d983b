"""What is kept in simulated worlds: what happens there, and that whatever must not be is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from minirun import Event, InvocationContext, Runner
from minirun.events import EventActions
from minirun.memory import MemoryEntry
from minirun.simulation import CheckError, SeededChoices, World
from minirun.simulation._explore import TWICE_EVERY_SEEDS
from minirun.simulation._memory_store import MemoryStore
from minirun.types import Part

from ..helpers import Logic
from ..laws import read_logs
from ..seeds import coverage_of_all
from ..worlds import KEEPING
from .stores import Storage, explore, simulate, why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

WORLDS = {name: world for name, world in KEEPING.items() if not name.startswith(("gate", "vaults"))}
DEEDS = ("look", "clean", "save", "undo", "fork", "delete", "end", "add", "forget", "forget all")
REACHED = {
    *(f"house: {deed}" for deed in DEEDS),
    "a model was told a summary",
    "a summary",
    "crash",
    "crash in recovery",
    "disk fault",
    "lease taken over",
    "power cut",
    "user left",
}


@pytest.mark.parametrize("least", [pytest.param(1, id="some"), pytest.param(250, id="many", marks=pytest.mark.slow)])
def test_whatever_is_kept_is_there_and_nothing_else(least: int) -> None:
    """In so many seeds of each world nothing is found, though all of it happens; for that some take more."""
    coverage_of_all(REACHED, WORLDS, least, only_on_disks={"disk fault", "power cut"}, deep=True)


SEED_RUN_TWICE = 4 * TWICE_EVERY_SEEDS


@pytest.mark.parametrize("name", ["studio in two processes", "diary in two processes", "annals in memory"])
def test_what_is_kept_follows_from_the_seed(name: str) -> None:
    """The same seed twice is the same world, byte for byte."""
    scenario, options = WORLDS[name]
    [explored] = explore(scenario, [SEED_RUN_TWICE], dict(options))
    assert explored.outcome.failure is None


# --- what every world notices -----------------------------------------------------------------------------------------

PLACE: dict[str, Any] = {"app_name": "app", "user_id": "ada", "session_id": "ada"}


async def keep(ctx: InvocationContext) -> None:
    await ctx.save_artifact("draft", Part(text="a draft"))
    await ctx.add_memory([MemoryEntry(content="tea", id="tea")])
    await ctx.emit(Event(message="kept"))


def outcome_of(spoil: Callable[[World, Runner], Any], storage: Storage = "memory") -> BaseException | None:
    """What a world ends with in which something is spoiled after it was kept."""

    async def scenario(world: World) -> None:
        runner = world.runner(Logic(name="agent", logic=keep))
        await world.say(runner, "ada", "keep it")
        result = spoil(world, runner)
        if result is not None:
            await result

    return simulate(scenario, SeededChoices(1), storage=storage).failure


def store_of(world: World) -> MemoryStore:
    assert isinstance(world.store, MemoryStore)
    return world.store


def lose_content(world: World, runner: Runner) -> None:
    store_of(world)._artifacts._contents.clear()


def lose_version(world: World, runner: Runner) -> None:
    store_of(world)._artifacts._scopes.clear()


def change_content(world: World, runner: Runner) -> None:
    for content in store_of(world)._artifacts._contents.values():
        content.data = b"another"


def name_nothing(world: World, runner: Runner) -> Any:
    async def name() -> None:
        session = await runner.session_service.get_session(**PLACE)
        assert session is not None
        event = Event(author="agent", actions=EventActions(artifact_delta={"draft": 7}))
        await runner.session_service.append_event(session, event)

    return name()


async def load_lost(world: World, runner: Runner) -> None:
    store_of(world)._artifacts._scopes.clear()
    assert runner.artifact_service is not None
    await runner.artifact_service.load_artifact(**PLACE, filename="draft", version=0)


def bring_back(world: World, runner: Runner) -> Any:
    async def delete() -> None:
        assert runner.artifact_service is not None
        kept = store_of(world)._artifacts
        artifact = kept._scopes["app", "ada", "ada"]["draft"]
        before, contents = dict(artifact.stored), dict(kept._contents)
        await runner.artifact_service.delete_artifact(**PLACE, filename="draft")
        artifact.stored = before
        kept._contents.update(contents)

    return delete()


def lose_memory(world: World, runner: Runner) -> None:
    store_of(world)._memories._users["app", "ada"].kept.clear()


def mix_up(world: World, runner: Runner) -> None:
    users = store_of(world)._memories._users
    users["app", "bob"] = users["app", "ada"]


def change_memory(world: World, runner: Runner) -> None:
    kept = store_of(world)._memories._users["app", "ada"].kept
    kept[1] = attrs.evolve(kept[1], entry=attrs.evolve(kept[1].entry, author="another"))


def twice(world: World, runner: Runner) -> None:
    kept = store_of(world)._memories._users["app", "ada"].kept
    kept[2] = kept[1]


async def remember_again(world: World, runner: Runner) -> None:
    assert runner.memory_service is not None
    user = store_of(world)._memories._users["app", "ada"]
    memory = user.kept[1]
    await runner.memory_service.delete_memory(app_name="app", user_id="ada", memory_id="tea")
    user.kept[1] = memory


SPOILED: list[tuple[Callable[[World, Runner], Any], str]] = [
    (lose_content, "VersionsNeverChange"),
    (change_content, "VersionsNeverChange"),
    (lose_version, "NamedCanBeRead"),
    (load_lost, "NamedCanBeRead"),
    (name_nothing, "NamedCanBeRead"),
    (bring_back, "DeletedStaysDeleted"),
    (lose_memory, "AddedIsRemembered"),
    (mix_up, "RememberedAsAdded"),
    (change_memory, "RememberedAsAdded"),
    (twice, "RememberedOnce"),
    (remember_again, "ForgottenStaysForgotten"),
]


@pytest.mark.parametrize(("spoil", "what"), SPOILED, ids=[spoil.__name__ for spoil, _ in SPOILED])
def test_what_is_spoiled_is_noticed(spoil: Callable[[World, Runner], Any], what: str) -> None:
    """Each property of what is kept fails the world when it does not hold, and says which one it is."""
    failure = outcome_of(spoil)
    assert isinstance(failure, CheckError), failure
    assert failure.what == what, failure


@pytest.mark.parametrize("storage", ["memory", "sqlite"])
def test_what_is_kept_outlives_the_processes(storage: Storage) -> None:
    """The runners of a world have artifacts and memories, and those of the next process have the same."""
    found: list[Any] = []

    async def look(world: World, runner: Runner) -> None:
        await world.restart()
        assert runner.artifact_service is not None
        assert runner.memory_service is not None
        found.append(await runner.artifact_service.load_artifact(**PLACE, filename="draft"))
        search = await runner.memory_service.search_memory(app_name="app", user_id="ada", query="tea")
        found.extend(memory.id for memory in search.memories)

    assert outcome_of(look, storage) is None
    assert found == [Part(text="a draft"), "tea"]


def test_a_rewind_lets_what_has_begun_before_go_on() -> None:
    """An invocation of which a rewind has undone the end may end again; the world does not mind."""

    async def work(ctx: InvocationContext) -> None:
        first = await ctx.request_input("first?")
        await ctx.emit(Event(message=f"answered {first}"))

    async def scenario(world: World) -> None:
        runner = world.runner(Logic(name="agent", logic=work))
        await world.say(runner, "ada", "one")
        await world.say(runner, "ada", "two")
        [one, two] = await runner.session_service.list_pending(app_name="app", user_id="ada")
        await world.say(runner, "ada", one.reply(1))
        await runner.rewind_async(user_id="ada", session_id="ada", rewind_before_invocation_id=two.invocation_id)
        [again] = await runner.session_service.list_pending(app_name="app", user_id="ada")
        answer = await world.say(runner, "ada", again.reply(2))
        assert answer is not None
        assert answer.text == "answered 2"
        assert len(await read_logs(world, runner)) == 1

    simulate(scenario, SeededChoices(1), storage="memory").check()
