"""Importing a file of ADK's: what is there already, what cannot be stored, and how the shared values come along."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from minirun import InMemorySessionService
from minirun.errors import StorageFormatError
from minirun.sessions._adk._import import import_adk

from ..stores import Where, append

TABLES = """
    CREATE TABLE sessions (app_name, user_id, id, state, create_time, update_time);
    CREATE TABLE events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data);
    CREATE TABLE app_states (app_name, state);
    CREATE TABLE user_states (app_name, user_id, state);
    CREATE TABLE adk_internal_metadata (key, value);
"""
VERSION = "INSERT INTO adk_internal_metadata VALUES ('schema_version', '1')"
SESSIONS = """
    INSERT INTO sessions VALUES ('app', 'u', 'later', '{}', 3, 3), ('app', 'u', 'first', '{"n": 1}', 1, 2),
        ('other', 'v', 'one', '{}', 2, 2);
    INSERT INTO events VALUES ('b', 'app', 'u', 'first', 'e-1', 2.0, '{"author": "a"}'),
        ('a', 'app', 'u', 'first', 'e-1', 2.0, '{"author": "b"}'), ('c', 'app', 'u', 'later', 'e-1', 4, '{}');
"""


def adk(folder: Path, *statements: str) -> Path:
    """A file of ADK's tables with these rows."""
    with closing(sqlite3.connect(folder / "adk.db", isolation_level=None)) as db:
        for statement in (TABLES, *statements):
            db.executescript(statement)
    return folder / "adk.db"


async def names(service: InMemorySessionService) -> list[str]:
    """The sessions that are there."""
    return sorted(one.id for one in (await service.list_sessions(app_name=None)).sessions)


async def test_a_second_import_leaves_what_is_there(tmp_path: Path) -> None:
    """It names each; the first has counted what it has taken over, in the order in which sessions were made."""
    file = adk(tmp_path, VERSION, SESSIONS)
    async with InMemorySessionService() as service:
        first = await import_adk(service, file)
        assert (first.sessions, first.events, first.present, first.refused) == (3, 3, [], {})
        log = await service.read_events(app_name="app", user_id="u", session_id="first")
        assert [event.author for event in log] == ["system", "b", "a"]
        again = await import_adk(service, file)
        assert (again.sessions, again.events, again.refused) == (0, 0, {})
        assert again.present == [("app", "u", "first"), ("other", "v", "one"), ("app", "u", "later")]
        assert await names(service) == ["first", "later", "one"]


async def test_what_cannot_be_stored_is_told_and_the_rest_is_taken_over(tmp_path: Path) -> None:
    """A session by its place, with why; so are shared values."""
    odd = (
        "INSERT INTO sessions VALUES ('-', 'u', 'bad', '{}', 0, 0), ('app', 'u', 'odd', '[]', 0, 0),"
        " ('app', 'u', 'when', '{}', 'soon', 0)"
    )
    shared = "INSERT INTO user_states VALUES ('app', 'u', '[]'), ('app', 'w', '{\"\": 1}'), ('app', 'v', '{\"n\": 1}')"
    async with InMemorySessionService() as service:
        found = await import_adk(service, adk(tmp_path, VERSION, odd, SESSIONS, shared))
        assert found.sessions == 3
        assert [*found.refused] == [
            ("app", "u", ""), ("app", "w", ""), ("-", "u", "bad"), ("app", "u", "odd"), ("app", "u", "when"),
        ]  # fmt: skip
        assert found.refused["app", "u", ""] == "user: state of 'u': expected a JSON object, found '[]'"
        assert found.refused["app", "u", "when"] == "timestamp: expected a time, found 'soon'"
        assert found.refused["app", "u", "odd"] == "state: expected a JSON object, found '[]'"
        assert await names(service) == ["first", "later", "one"], "also not the session that has tried to write them"
        assert dict(await service.get_user_state(app_name="app", user_id="v")) == {"n": 1}


async def test_shared_values_that_are_there_stay(tmp_path: Path) -> None:
    """Only those are written that are not."""
    shared = "INSERT INTO user_states VALUES ('app', 'u', '" + json.dumps({"n": 1, "m": 2}) + "')"
    file = adk(tmp_path, VERSION, SESSIONS, shared)
    async with InMemorySessionService() as service:
        session = await service.create_session(**Where(app_name="app", user_id="u", session_id="mine"))
        await append(service, session, user_n=9)
        assert (await import_adk(service, file)).refused == {}
        assert dict(await service.get_user_state(app_name="app", user_id="u")) == {"n": 9, "m": 2}


async def test_a_file_without_a_note_of_its_schema_is_read(tmp_path: Path) -> None:
    """The columns say enough; a file that is not there is told."""
    file = adk(tmp_path, "DROP TABLE adk_internal_metadata", SESSIONS)
    async with InMemorySessionService() as service:
        assert (await import_adk(service, file)).sessions == 3
        with pytest.raises(StorageFormatError) as caught:
            await import_adk(service, tmp_path / "none.db")
    none = str(tmp_path / "none.db")
    assert str(caught.value) == f"expected a SQLite file that ADK has written, found none at {none!r}"
    assert not (tmp_path / "none.db").exists()
