"""
`verify` of a database finds what is wrong with its artifacts and its memories, with what forks share, and with how it
counts; and says where.

What else it finds of sessions, state and invocations is in test_cli_database.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings

from minirun.artifacts import ArtifactKey
from minirun.errors import StorageCorruptError
from minirun.events import Event, EventActions
from minirun.memory import DatabaseMemoryService
from minirun.sessions import DatabaseSessionService, InvocationStatus, SessionKey
from minirun.sessions._postgres import _verify_artifacts, _verify_memories
from minirun.sessions._postgres._verify import verify_database
from minirun.types import Content, FunctionCall, Part

from ..artifacts.test_artifacts_postgres import LARGE, SESSION, USERS, Worker, save, save_bytes
from ..cli.test_cli import minirun
from ..examples import examples
from ..memory.test_memory_search import ACTS, USER, Act, do
from ..postgres import new_database
from ..postgres_sessions import sql

LONG = "x" * 3000


@cache
def original() -> str:
    """A database with small and large artifacts, staged, restored and deleted ones, and memories."""

    async def make() -> None:
        worker = Worker(new)
        artifacts, memories = worker.artifacts, DatabaseMemoryService(worker.sessions)
        await worker.sessions.create_session(**SESSION)
        await save(artifacts, "small", staged=True)
        await worker.append(a_txt=0)
        await save_bytes(artifacts, bytes(LARGE))
        await artifacts._restore(ArtifactKey("app", "u", "s", "a.txt"), None)
        await save(artifacts, "", key=USERS)
        await save(artifacts, "of a long name", key=ArtifactKey("app", "u", "other", LONG))
        await save(artifacts, "staged", staged=True)
        await worker.sessions.fork_session(app_name="app", user_id="u", session_id="s", new_session_id="fork")
        await memories.add_memory(**USER, memories=["green tea", "black tea, black", f"{LONG} 今天天气", "…"])
        [gone] = await memories.add_memory(**USER, memories=["coffee"])
        await memories.delete_memory(**USER, memory_id=gone)
        await memories.add_memory(app_name="b", user_id="v", memories=["milk"])
        await worker.sessions.aclose()

    new = new_database()
    trio.run(make)
    return new


TABLES = (
    "artifacts", "artifact_versions", "contents", "chunks", "memory_users", "memory_entries", "memory_postings",
    "memory_deleted",
)  # fmt: skip


@cache
def copied() -> str:
    """The same, with a copy of its tables beside them."""
    copies = [f"CREATE TABLE kept.{table} AS SELECT * FROM minirun.{table}" for table in TABLES]
    sql(original(), "CREATE SCHEMA kept", *copies)
    return original()


def damaged(*statements: str) -> str:
    """That database with this done to it, and nothing that was done before."""
    restored = (
        f"DELETE FROM minirun.{table}; INSERT INTO minirun.{table} OVERRIDING SYSTEM VALUE SELECT * FROM kept.{table}"
        for table in TABLES
    )
    sql(copied(), "; ".join((*restored, *statements)))
    return copied()


def damages_of(url: str) -> list[str]:
    """What is found there."""

    async def verify() -> list[str]:
        async with DatabaseSessionService(url) as service:
            return [str(each) for each in await verify_database(service)]

    return trio.run(verify)


@pytest.mark.parametrize("page", [1, 2, 3, 500])
def test_a_sound_database_has_no_damage(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the pages are in which it is read."""
    for module in (_verify_artifacts, _verify_memories):
        monkeypatch.setattr(module, "PAGE", page)
    monkeypatch.setattr(_verify_artifacts, "CONTENTS_PAGE", page)
    monkeypatch.setattr(_verify_artifacts, "CHUNKS_PAGE", page)
    assert damages_of(damaged()) == []


DAMAGES = {
    "a bit of a small content": (
        "UPDATE minirun.chunks SET data = 'smell' WHERE data = 'small'",
        "content 1 of artifacts: expected 5 bytes with the sha256",
    ),
    "a bit of a large content": (
        "UPDATE minirun.chunks SET data = set_byte(data, 7, 7) WHERE number = 2",
        f"content 2 of artifacts: expected {LARGE} bytes with the sha256",
    ),
    "the end of a large content": ("DELETE FROM minirun.chunks WHERE number = 3", "others"),
    "the middle of a large content": ("DELETE FROM minirun.chunks WHERE number = 1", "expected chunk 1, found 2"),
    "all chunks": ("DELETE FROM minirun.chunks", "found 0 others"),
    "a chunk of another number": ("UPDATE minirun.chunks SET number = 1 WHERE data = 'small'", "found 0 others"),
    "a size": ("UPDATE minirun.contents SET size = 6 WHERE size = 5", "expected a content of 5 bytes, found one of 6"),
    "a content": ("DELETE FROM minirun.contents", "found none"),
    "a hash": (
        "UPDATE minirun.artifact_versions SET sha256 = repeat('0', 64) WHERE seq = 1",
        "artifact 'a.txt' of session 's': version 0: expected a content of 5 bytes, found none",
    ),
    "a number": ("UPDATE minirun.artifacts SET next_version = 2", "version 2: expected one below the next, which is 2"),
    "a number below 0": ("UPDATE minirun.artifact_versions SET version = -1 WHERE version = 1", "version -1"),
    "what is said of a version": ("UPDATE minirun.artifact_versions SET about = '[]'", "expected what it is, found"),
    "text that is no JSON": ("UPDATE minirun.artifact_versions SET about = '{'", "what is said of it cannot be read"),
    "an event that is not there": ("UPDATE minirun.artifact_versions SET seq = 7 WHERE seq = 1", "event 7, which"),
    "an event of a staged version": (
        "UPDATE minirun.artifact_versions SET seq = 1 WHERE stager IS NOT NULL",
        "is said to be made visible by event 1, and cannot be",
    ),
    "an event of a user's version": (
        "UPDATE minirun.artifact_versions v SET seq = 1 FROM minirun.artifacts a"
        " WHERE a.id = v.artifact AND a.session_id = ''",
        "artifact 'user:a' of a user: version 0 is said to be made visible",
    ),
    "an event of no session": (
        "UPDATE minirun.artifact_versions v SET seq = 1 FROM minirun.artifacts a"
        " WHERE a.id = v.artifact AND a.session_id = 'other'",
        "was made visible by event 1, which there is not",
    ),
    "an artifact": ("DELETE FROM minirun.artifacts", "which there is not"),
    "a name": ("UPDATE minirun.artifacts SET filename = 'a.txt'", "cannot be read"),
    "a long name": ("UPDATE minirun.artifacts SET name = name || 'x'", "cannot be read"),
    "the words of a memory": (
        "UPDATE minirun.memory_entries SET terms = replace(terms, 'green', 'grey')",
        "the words it is looked up by are not those of its text",
    ),
    "fewer words": ("UPDATE minirun.memory_entries SET terms = ''", "expected 2 terms, found 0"),
    "what a memory says": ("UPDATE minirun.memory_entries SET data = '{}'", "it cannot be read"),
    "the author of a memory": (
        """UPDATE minirun.memory_entries SET data = '{"author":1,' || substr(data, 2)""",
        "its author or its metadata is none",
    ),
    "the time of a memory": ("UPDATE minirun.memory_entries SET timestamp = timestamp + 1", "that of another one"),
    "the session of a memory": ("UPDATE minirun.memory_entries SET session = 'z'", "its row is that of another one"),
    "totals": (
        "UPDATE minirun.memory_users SET count = count + 1 WHERE app_name = 'b'",
        "memories of user 'v' of app 'b': expected 1 with 1 terms, the newest 1 or later, found [1, 2, 1]",
    ),
    "the newest place": ("UPDATE minirun.memory_users SET newest = 0", "the newest 1 or later, found [0, 1, 1]"),
    "a row of the index": ("DELETE FROM minirun.memory_postings WHERE part = '=green'", "the index has other words"),
    "another row in the index": (
        "INSERT INTO minirun.memory_postings SELECT id, 'x', 99 FROM minirun.memory_users WHERE app_name = 'b'",
        "memory number 99 of memories of user 'v' of app 'b': the index has other words",
    ),
    "a memory that was deleted": (
        "INSERT INTO minirun.memory_entries SELECT of, 99, id, NULL, 0, 0, '', '{}',"
        " '{\"id\":' || to_json(substr(id, 2)) || ',\"timestamp\":0,\"content\":{}}' FROM minirun.memory_deleted",
        "it is there, and it was deleted",
    ),
    "a user": ("DELETE FROM minirun.memory_users WHERE app_name = 'b'", "which there is not"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_found_and_placed(damage: str) -> None:
    """What was changed by somebody else is told."""
    statement, told = DAMAGES[damage]
    found = damages_of(damaged(statement))
    assert any(told in each for each in found), found


def test_the_command_tells_of_them(tmp_path: Path) -> None:
    """`minirun sessions verify` names the artifact whose content is another one, and exits with 1."""
    sound = minirun(tmp_path, "sessions", "verify", "--db", damaged())
    assert (sound.returncode, sound.stdout.endswith(": sound\n")) == (0, True), sound.stderr
    url = damaged(*(DAMAGES[name][0] for name in ("a bit of a small content", "a row of the index")))
    told = minirun(tmp_path, "sessions", "verify", "--db", url)
    assert told.returncode == 1
    assert "content 1 of artifacts" in told.stdout
    assert "the index has other words" in told.stdout
    assert "restore a backup" in told.stderr


@settings(max_examples=examples(20))
@given(acts=ACTS)
def test_memories_that_were_written_are_sound(acts: list[Act]) -> None:
    """Whatever was added and deleted, in whatever words."""

    async def write() -> None:
        async with DatabaseMemoryService(url) as service:
            for act in acts:
                await do(service, act)

    url = memory_database()
    trio.run(write)
    assert damages_of(url) == []


@cache
def memory_database() -> str:
    """One database for all examples, which add to it."""
    return new_database()


# --- what forks share, and how a database counts


async def write_forked(url: str) -> None:
    """A session of seven events, a fork of it at event 3, and another session, deleted before the newest event."""
    async with DatabaseSessionService(url) as service:
        session = await service.create_session(**SESSION)
        for number in range(6):
            await service.append_event(session, Event(author="user", message="x", state={"user:k": number}))
        await service.fork_session(**SESSION, at_seq=3, new_session_id="fork")
        other = {**SESSION, "session_id": "other"}
        await service.create_session(**other)
        await service.delete_session(**other)
        await service.append_event(session, Event(author="user", message="x", state={"user:k": 6}))


@cache
def forked() -> str:
    """A database that is only changed to be looked at."""
    new = new_database()
    trio.run(write_forked, new)
    return new


@contextmanager
def changed(table: str, change: str) -> Iterator[str]:
    """That database with one table changed."""
    url, table = forked(), f"minirun.{table}"
    sql(url, f"CREATE TABLE kept AS TABLE {table}", f"UPDATE {table} SET {change}")
    try:
        yield url
    finally:
        sql(url, f"DELETE FROM {table}", f"INSERT INTO {table} TABLE kept", "DROP TABLE kept")


COUNTS = {
    "a past that begins later": ("shared_pasts", "first_seq = 2", "makes no sense: [2, 3, 1] from 0"),
    "a past that ends later": ("shared_pasts", "last_seq = 5", "makes no sense: [0, 5, 1] from 0"),
    "a past that ends before it begins": ("shared_pasts", "last_seq = -1", "makes no sense: [0, -1, 1] from 0"),
    "a base beyond all events": ("shared_base", "commit_no = 1000", "its base has the number 1000, beyond 9"),
    "a counter below the newest session": ("store", "session_no = 1", "its counter at session 2 or later, found 1"),
    "a counter beyond the newest event": ("store", "commit_no = 10", "its counter at event number 9, found 10"),
    "a lower number of a shared value": ("shared_state", "commit_no = 3", "expected the number 9, found 3"),
    "a number of none": ("shared_state", "commit_no = 1000", "'user:k': expected the number 9, found 1000"),
    "a past in a younger log": ("shared_pasts", "log = 9", "makes no sense: [0, 3, 9] from 0"),
}


@pytest.mark.parametrize("damage", COUNTS)
def test_what_is_counted_wrong_is_told(damage: str) -> None:
    """With what was expected, and what was found."""
    assert damages_of(forked()) == []
    table, change, told = COUNTS[damage]
    with changed(table, change) as url:
        found = damages_of(url)
    assert any(told in each for each in found), found


def test_a_number_that_is_taken_is_told_with_what_to_do() -> None:
    """A counter that was set back gives a new session, or a fork, the number of another one: nothing is stored."""

    async def make() -> None:
        async with DatabaseSessionService(url) as service:
            with pytest.raises(StorageCorruptError, match="set it to the highest id"):
                await service.create_session(**{**SESSION, "session_id": "new"})
            with pytest.raises(StorageCorruptError, match="set it to the highest id"):
                await service.fork_session(**SESSION, new_session_id="new")
            sql(url, "UPDATE minirun.store SET session_no = (SELECT max(id) FROM minirun.sessions)")
            await service.create_session(**{**SESSION, "session_id": "new"})
            assert await verify_database(service) == []

    url = new_database()
    trio.run(write_forked, url)
    sql(url, "UPDATE minirun.store SET session_no = 1")
    trio.run(make)


@pytest.mark.parametrize("change", ["first_seq = 2", "last_seq = 5"])
def test_a_fork_whose_past_makes_no_sense_is_not_opened(change: str) -> None:
    """What it said next could be hidden by what the other session has said there; so nothing can be appended."""

    async def open_it() -> None:
        async with DatabaseSessionService(url) as service:
            await service.get_session(**{**SESSION, "session_id": "fork"})

    with changed("shared_pasts", change) as url, pytest.raises(StorageCorruptError, match="makes no sense"):
        trio.run(open_it)


# --- what is sound


def call(*, waits: bool) -> Event:
    """An event with a call, which may wait for somebody."""
    asked = Content(role="model", parts=[Part(function_call=FunctionCall(id="c", name="f"))])
    return Event(author="a", content=asked, invocation_id="e-1", long_running_tool_ids=["c"] if waits else [])


async def test_a_database_is_sound_after_each_step_of_a_run() -> None:
    """Also where the newest event of all is the one that begins it, or the one that lets a call wait."""
    async with DatabaseSessionService(new_database()) as service:
        assert await verify_database(service) == []
        await service.create_session(**SESSION)
        assert await verify_database(service) == []
        writer = await service.open_writer(SessionKey("app", "u", "s"), "e-1", None, reject=False)
        assert writer is not None
        await writer.append(Event(author="user", message="hi", invocation_id="e-1"), begins=True)
        assert await verify_database(service) == []
        await writer.append(call(waits=True))
        assert await verify_database(service) == []
        await writer.finish(InvocationStatus.PAUSED)
        assert await verify_database(service) == []


@pytest.mark.parametrize(("waits", "status", "is_told"), [
    (True, "paused", True), (True, "failed", False), (True, "running", False), (False, "paused", False),
])  # fmt: skip
async def test_a_call_is_missed_only_if_a_paused_invocation_waits_for_it(
    waits: bool, status: str, is_told: bool
) -> None:
    """What nobody waits for, or what has ended, needs no note."""
    url = new_database()
    async with DatabaseSessionService(url) as service:
        await service.create_session(**SESSION)
        writer = await service.open_writer(SessionKey("app", "u", "s"), "e-1", None, reject=False)
        assert writer is not None
        await writer.append(Event(author="user", message="hi", invocation_id="e-1"), begins=True)
        await writer.append(call(waits=waits))
        await writer.finish(InvocationStatus.PAUSED)
        end = "NULL" if status == "running" else "end_seq"
        sql(
            url, "DELETE FROM minirun.open_calls",
            f"UPDATE minirun.invocations SET status = '{status}', end_seq = {end}",
        )  # fmt: skip
        told = [str(each) for each in await verify_database(service)]
    expected = "call 'c' is what its paused invocation waits for, and is not noted"
    assert [each.partition(": ")[2] for each in told] == ([expected] if is_told else [])


async def test_what_stands_in_a_base_is_not_counted_again() -> None:
    """A session was deleted just after the event that has added to what all share."""
    adds = Event(author="a", actions=EventActions(state_ops={"app:n": {"add": 1}}))
    async with DatabaseSessionService(new_database()) as service:
        session = await service.create_session(**SESSION)
        other = {**SESSION, "session_id": "other"}
        beside = await service.create_session(**other)
        await service.append_event(beside, adds)
        await service.append_event(session, adds)
        await service.delete_session(**other)
        assert await verify_database(service) == []
        await service.append_event(session, adds)
        assert session.state["app:n"] == 3
        assert await verify_database(service) == []
