"""
What becomes of each thing that ADK stores: the lines of `fixtures/adk/imported.json`, of its fixtures and of odd rows.

Run as a program, this writes them anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import InMemorySessionService
from minirun._codec import to_dict
from minirun.errors import InvalidValueError, StorageFormatError
from minirun.sessions._adk._events import StoredEvent, StoredSession, history_of
from minirun.sessions._adk._import import import_adk
from minirun.sessions._adk._tables import COLUMNS, MIGRATE, VERSION, _check, shared_values

from ..tables import as_kept, kept, write

FIXTURES = Path(__file__).parents[1] / "fixtures" / "adk"


def row(number: int, timestamp: float = 5.0, **fields: Any) -> StoredEvent:
    """A row of ADK's, whose event is of an invocation."""
    return StoredEvent(f"id-{number}", "e-1" if number else "", timestamp, {"author": "agent", **fields})


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"function_call": {"name": name, "args": {"a": 1}, **more}}


def response(name: str, **more: Any) -> dict[str, Any]:
    return {"function_response": {"name": name, "response": {"b": 2}, **more}}


def said(*parts: Any) -> dict[str, Any]:
    return {"parts": [*parts], "role": "model"}


LONG_ID = "call/with signs that no provider takes"
ROWS = (
    row(0, author="", content=None, custom_metadata={}),
    row(1, content={"role": "user"}, timestamp=6.5),
    row(2, partial=True, content=said({"text": "half"})),
    row(3, content=said({"text": "whole", "thought": None, "thought_signature": "-_8="}), turn_complete=True),
    row(4, content=said({"inline_data": {"mime_type": "image/png", "data": "_-8="}})),
    row(5, content=said(call("f"), call("g", id="g-1"), call("f"), call("h", id=LONG_ID), call("none", id=""))),
    row(6, content=said(response("f"), response("g", id="g-1"), response("h", id=LONG_ID), response("k"))),
    row(7, content=said(response("f"), call("adk_request_credential", id="k"))),
    row(8, content=said(response("adk_request_credential", id="k")), custom_metadata="odd", output=1),
    row(
        9,
        custom_metadata={"mine": 1},
        node_info={"path": "a/b"},
        long_running_tool_ids=["x"],
        isolation_scope="scope",
        output={"o": 1},
        actions={
            "state_delta": {"own": 1, "user:u": 2, "app:a": 3},
            "agent_state": {"at": 1},
            "end_of_agent": True,
            "compaction": {"start": 1},
            "route": "r",
            "render_ui_widgets": [1],
            "set_model_response": {"m": 1},
            "requested_auth_configs": {"secret": "s"},
            "escalate": True,
            "artifact_delta": {"f.txt": 1},
            "transfer_to_agent": "other",
        },
    ),
    row(10, node_info={"path": ""}, actions={"state_delta": {}}, output=[], timestamp=7),
    StoredEvent("id-11", "e-2", 8.0, {"author": "user", "timestamp": "soon", "content": said({"text": "again"})}),
    StoredEvent("id-12", "e-3", 9.0, {"author": "user", "actions": {"rewind_before_invocation_id": "e-2"}}),
    StoredEvent("id-13", "e-4", 9.5, {"author": "user", "actions": {"rewind_before_invocation_id": "e-2"}}),
)
WHOLE = "other than the events say"
STATES: dict[str, dict[str, Any]] = {
    "as the events say": {"own": 1, "user:u": 2},
    "more than the events say": {"own": 1, "initial": {"x": [1]}},
    WHOLE: {"own": 2, "initial": 1},
    "less than the events say": {},
}


def histories() -> dict[str, Any]:
    """What becomes of the rows, with each state that may be stored beside them."""
    found = {}
    for name, state in STATES.items():
        events = history_of(StoredSession(state, 4.0, ROWS), "name")
        found[name] = [to_dict(event) for event in events]
    return {name: lines if name == WHOLE else [lines[0], lines[-1]] for name, lines in found.items()}


async def imported(file: str) -> dict[str, Any]:
    """What becomes of a file of ADK's."""
    async with InMemorySessionService() as service:
        result = await import_adk(service, FIXTURES / file)
        found: dict[str, Any] = {"result": [result.sessions, result.events, result.present, result.refused]}
        for one in (await service.list_sessions(app_name=None)).sessions:
            log = await service.read_events(app_name=one.app_name, user_id=one.user_id, session_id=one.id)
            found[f"{one.app_name} {one.user_id} {one.id}"] = [to_dict(event) for event in log]
    return found


def test_what_rows_become() -> None:
    """Each field is taken over, noted or left out."""
    assert as_kept(histories()) == kept("adk/imported")["rows"]


@pytest.mark.parametrize("file", ["database.db", "sqlite.db"])
async def test_what_a_file_becomes(file: str) -> None:
    """Line by line, whichever of ADK's services has written it."""
    assert as_kept(await imported(file)) == kept("adk/imported")[file]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"actions": 5}, "actions"),
    ({"actions": {"state_delta": [1]}}, "actions.state_delta"),
    ({"content": said(5)}, "content.parts"),
    ({"content": said({"thought_signature": "ä"})}, "content.parts"),
    ({"content": said({"inline_data": {"data": "abc"}})}, "content.parts"),
    ({"content": said({"inline_data": {"data": "ab$cd"}})}, "content.parts"),
]


@pytest.mark.parametrize(("fields", "path"), BAD)
def test_a_row_that_cannot_be_read_says_where(fields: dict[str, Any], path: str) -> None:
    """The path leads to what is no part of an event."""
    with pytest.raises(InvalidValueError) as caught:
        history_of(StoredSession({}, 4.0, (row(1, **fields),)), "name")
    assert caught.value.path == path


# --- tables -----------------------------------------------------------------------------------------------------------

NAME = "name the database that ADK has written"
IN_IT = f"in it; {NAME}"
MISSING = f"invocation_id, session_id, timestamp, user_id {IN_IT}"
OLD = (
    "a: expected ADK's tables of schema 1, found the one before it, which has pickles in it: these run code when they "
    f"are read, and are never read here; {MIGRATE}"
)
ODD_TABLES: list[tuple[dict[str, Any], str | None, str]] = [
    ({"events": {"actions"}}, None, OLD),
    ({"events": {"actions", "id"}}, "1", OLD),
    ({}, "2", "a: expected ADK's tables of schema 1, found schema '2', a newer one"),
    ({}, "none", "a: expected ADK's tables of schema 1, found schema 'none', a newer one"),
    ({"sessions": None}, "1", f"a: expected ADK's table 'sessions', found no such table; {NAME}"),
    ({"events": {"id"}}, "1", f"a: expected ADK's table 'events', found no columns app_name, event_data, {MISSING}"),
    (
        {"app_states": set()},
        None,
        f"a: expected ADK's table 'app_states', found no columns app_name, state in it; {NAME}",
    ),
    (
        {"user_states": {"state"}},
        "1",
        f"a: expected ADK's table 'user_states', found no columns app_name, user_id {IN_IT}",
    ),
]


@pytest.mark.parametrize(("changes", "version", "expected"), ODD_TABLES)
def test_other_tables_than_those_of_adk_are_told_by_what_is_missing(
    changes: dict[str, Any], version: str | None, expected: str
) -> None:
    """Older ones have pickles, newer ones say so, and of others the first table and its columns are named."""
    columns = {table: names for table, names in {**COLUMNS, **changes}.items() if names is not None}
    with pytest.raises(StorageFormatError) as caught:
        _check("a", columns, version)
    assert str(caught.value) == expected


def test_more_columns_than_are_read_do_no_harm() -> None:
    """As a service of ADK has them that keeps the actions beside the event, or an application has added some."""
    _check("a", COLUMNS, None)
    _check("a", {**COLUMNS, "events": {*COLUMNS["events"], "actions"}, "mine": set()}, VERSION)
    assert {table: sorted(names) for table, names in COLUMNS.items()} == {
        "sessions": ["app_name", "create_time", "id", "state", "update_time", "user_id"],
        "events": ["app_name", "event_data", "id", "invocation_id", "session_id", "timestamp", "user_id"],
        "app_states": ["app_name", "state"],
        "user_states": ["app_name", "state", "user_id"],
    }


def test_shared_values_have_their_scope_in_their_keys() -> None:
    """Those without a user are the app's; what is no object is told by whose it is."""
    assert shared_values("app", "u", '{"a": 1}') == {"user:a": 1}
    assert shared_values("app", "", '{"a": 1}') == {"app:a": 1}
    for state, found in (("[1]", "expected a JSON object, found '[1]'"), (5, "expected a JSON object, found 5")):
        for user, whose in (("u", "user: state of 'u'"), ("", "app: state of 'app'")):
            with pytest.raises(InvalidValueError) as caught:
                shared_values("app", user, state)
            assert str(caught.value) == f"{whose}: {found}"
    with pytest.raises(InvalidValueError) as caught:
        shared_values("app", "u", "{")
    assert str(caught.value).startswith("user: state of 'u': expected JSON, found '{': ")


async def test_what_a_killed_import_has_left_is_deleted_by_the_next() -> None:
    """The session that writes shared values has a name of its own, and is gone afterwards, however the import ends."""
    file = FIXTURES / "database.db"
    async with InMemorySessionService() as service:
        before = await import_adk(service, file)
        whole = (await service.list_sessions(app_name=None)).sessions
        users = {(one.app_name, one.user_id) for one in whole}
        shared = [place for place in users if await service.get_user_state(app_name=place[0], user_id=place[1])]
    async with InMemorySessionService() as service:
        assert shared
        for app, user in shared:
            await service.create_session(app_name=app, user_id=user, session_id="minirun-import-adk", state={"half": 1})
        told: list[tuple[int, int]] = []
        result = await import_adk(service, file, told=lambda *step: told.append(step))
        assert (result.sessions, result.events) == (before.sessions, before.events)
        assert told == [(number, len(whole)) for number in range(1, len(whole) + 1)]
        found = (await service.list_sessions(app_name=None)).sessions
        assert sorted(one.id for one in found) == sorted(one.id for one in whole)


if __name__ == "__main__":
    lines: dict[str, Any] = {"rows": histories()}
    lines |= {file: trio.run(imported, file) for file in ("database.db", "sqlite.db")}
    write("adk/imported", lines, 3)
