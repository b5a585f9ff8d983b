"""`minirun sessions import-adk`: what ADK 2.13.0 has stored (see fixtures/adk) becomes sessions here."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from minirun import DatabaseSessionService, InMemorySessionService, LlmAgent, Runner, SqliteSessionService
from minirun._codec import to_json
from minirun.errors import StorageFormatError
from minirun.events import Event
from minirun.sessions import BaseSessionService, Session, verify
from minirun.sessions._adk._events import StoredEvent, StoredSession, history_of
from minirun.sessions._adk._import import SCRATCH, Imported, import_adk
from minirun.sessions._postgres._verify import verify_database
from minirun.testing import ScriptedLlm

from ..postgres import new_database, shared_server
from .test_cli import minirun

FIXTURES = Path(__file__).parents[1] / "fixtures" / "adk"
FILES = ("database.db", "sqlite.db")


async def session(service: BaseSessionService, user: str, name: str) -> Session:
    """A session that was taken over."""
    found = await service.get_session(app_name="notes", user_id=user, session_id=name)
    assert found is not None
    return found


async def check_imported(service: BaseSessionService, result: Imported) -> None:
    """All of the conversation is there, whichever of ADK's services has stored it."""
    assert (result.sessions, result.events, result.present, result.refused) == (4, 15, [], {})
    listed = await service.list_sessions(app_name=None)
    assert [(one.user_id, one.id) for one in listed.sessions] == [
        ("ada", "first"), ("ada", "second"), ("ben", "empty"), ("ben", "odd")
    ]  # fmt: skip
    first = await session(service, "ada", "first")
    assert [event.text for event in first.events] == [
        "hello", "You said hello", "note the kettle", "", "", "It is noted."
    ]  # fmt: skip
    assert [call.name for call in first.events[3].get_function_calls()] == ["note"]
    assert first.events[4].get_function_responses()[0].response == {"kept": True}
    assert dict(first.state) == {
        "topic": "tea", "pi": 3.14, "notes": ["old", "note the kettle"], "user:name": "Ada", "user:count": 2,
        "app:motd": "hi", "app:last": "note the cups",
    }  # fmt: skip
    assert first.events[1].usage_metadata is not None
    assert first.events[1].usage_metadata.total_token_count == 10
    record = (await service.read_events(app_name="notes", user_id="ada", session_id="first"))[0]
    assert dict(record.actions.state_delta) == {"topic": "tea", "pi": 3.14}


@pytest.mark.parametrize("file", FILES)
async def test_files_of_both_services_are_taken_over(file: str, tmp_path: Path) -> None:
    """DatabaseSessionService's file and SqliteSessionService's; what was written verifies; a second time adds none."""
    async with SqliteSessionService(tmp_path / "s.db") as service:
        await check_imported(service, await import_adk(service, FIXTURES / file))
        again = await import_adk(service, FIXTURES / file)
        assert (again.sessions, len(again.present), again.refused) == (0, 4, {})
    assert verify(tmp_path / "s.db") == []


async def test_a_postgres_database_is_taken_over_into_itself() -> None:
    """ADK's tables in one schema, ours in another, of one database; `postgresql+asyncpg://` is read as ADK has it."""
    url = new_database()
    shared_server().execute((FIXTURES / "database.sql").read_text(), database=url.partition("@/")[2].partition("?")[0])
    async with DatabaseSessionService(url) as service:
        await check_imported(service, await import_adk(service, url.replace("postgresql", "postgresql+asyncpg", 1)))
        assert await verify_database(service) == []


async def test_what_somebody_has_changed_beside_the_log_is_a_closing_event() -> None:
    """The state is as it is stored; one event by `import` says what the log does not."""
    async with InMemorySessionService() as service:
        await import_adk(service, FIXTURES / "database.db")
        second = await session(service, "ada", "second")
        assert {key: value for key, value in second.state.items() if ":" not in key} == {
            "kept": "by hand", "notes": ["x"]
        }  # fmt: skip
        last = second.events[-1]
        assert (last.author, dict(last.actions.state_delta)) == ("import", {"notes": ["x"]})


async def test_content_comes_as_it_is() -> None:
    """Bytes, files, thoughts, code, errors, artifacts, transfers; what means nothing here is kept beside."""
    async with InMemorySessionService() as service:
        await import_adk(service, FIXTURES / "database.db")
        image, error, thought, changed, code = (await session(service, "ben", "odd")).events
        assert image.content is not None
        assert image.content.parts[0].inline_data is not None
        assert image.content.parts[0].inline_data.data == b"\x89PNG\x00\xff"
        assert (error.error_code, error.branch, error.actions.escalate) == ("SAFETY", "clerk.helper", True)
        assert dict(error.actions.artifact_delta) == {"a.txt": 0}
        assert thought.content is not None
        assert thought.content.parts[0].thought_signature == b"\x01\x02"
        assert thought.long_running_tool_ids is None, "nobody can go on with an invocation of another engine"
        assert thought.custom_metadata == {"k": [1], "adk": {"long_running_tool_ids": ["c9"]}}
        assert (changed.actions.transfer_to_agent, changed.actions.state_delta["b"]) == ("other", {"c": None})
        assert '"web_search_queries":["q"]' in to_json(code)


async def test_a_session_that_was_taken_over_goes_on() -> None:
    """The next turn sees what was said, and answers the call that was left open."""
    async with InMemorySessionService() as service:
        await import_adk(service, FIXTURES / "sqlite.db")
        asked: list[Any] = []

        def answer(request: Any) -> str:
            asked.append([content.text for content in request.contents])
            return "yes"

        agent = LlmAgent(name="clerk", model=ScriptedLlm(answer))
        runner = Runner(agent=agent, app_name="notes", session_service=service)
        async with runner.run_async(user_id="ada", session_id="first", new_message="still there?") as run:
            answered = await run.wait()
            assert answered is not None
            assert answered.text == "yes"
        assert asked[0][0] == "hello"
        async with runner.run_async(user_id="ben", session_id="odd", new_message="and here?") as run:
            answered = await run.wait()
            assert answered is not None
            assert answered.text == "yes"
        events = await service.read_events(app_name="notes", user_id="ben", session_id="odd")
        [closed] = [event for event in events if event.get_function_responses()]
        assert closed.get_function_responses()[0].id == "c9"


async def test_shared_values_that_are_there_stay_as_they_are() -> None:
    """The target may have been used since; only what it does not have is written, and no session is left of it."""
    async with InMemorySessionService() as service:
        place = {"app_name": "notes", "user_id": "ada"}
        await service.create_session(app_name="notes", user_id="ada", session_id="mine", state={"user:name": "A. L."})
        await service.create_session(app_name="notes", user_id="ada", session_id=SCRATCH, state={"left": 1})
        await import_adk(service, FIXTURES / "database.db")
        assert await service.get_user_state(**place) == {"name": "A. L.", "count": 2}
        assert SCRATCH not in [one.id for one in (await service.list_sessions(app_name="notes")).sessions]


async def test_pickles_are_refused_and_never_read(tmp_path: Path) -> None:
    """A database of the schema before says what to do; one with a pickle that would run code is not different."""
    path = tmp_path / "pickled.db"
    path.write_bytes((FIXTURES / "pickled.db").read_bytes())
    with sqlite3.connect(path) as db:
        db.execute("UPDATE events SET actions = ?", (f"cposix\nsystem\n(Stouch {tmp_path}/run\ntR.".encode(),))
    db.close()
    async with InMemorySessionService() as service:
        with pytest.raises(StorageFormatError, match=r"pickles in it.*adk migrate session"):
            await import_adk(service, path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("UPDATE adk_internal_metadata SET value = '2'", "found schema '2'"),
        ("DELETE FROM adk_internal_metadata", "found schema 'none'"),
        ("DROP TABLE user_states", "table 'user_states', found no such table"),
        ("ALTER TABLE app_states RENAME COLUMN state TO what", "no columns state in it"),
    ],
)
async def test_other_tables_are_refused(sql: str, told: str, tmp_path: Path) -> None:
    """A newer schema, and what is no database of ADK's, before anything is written."""
    path = tmp_path / "database.db"
    path.write_bytes((FIXTURES / "database.db").read_bytes())
    with sqlite3.connect(path) as db:
        db.execute(sql)
    db.close()
    async with InMemorySessionService() as service:
        with pytest.raises(StorageFormatError, match=told):
            await import_adk(service, path)
        assert (await service.list_sessions(app_name=None)).sessions == []


def names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "expected a SQLite file that ADK has written, found none at"),
        (b"no database, but a text that is long enough" * 99, "found one that cannot be read: file is not a database"),
        (b"", "expected ADK's table 'sessions', found no such table; name the database that ADK has written"),
    ],
)
async def test_what_is_no_database_is_refused(content: bytes | None, told: str, tmp_path: Path) -> None:
    """No file, no database, an empty one: the message names the file, and none is made."""
    path = tmp_path / "database.db"
    if content is not None:
        path.write_bytes(content)
    async with InMemorySessionService() as service:
        with pytest.raises(StorageFormatError) as caught:
            await import_adk(service, path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)
    assert names_in(tmp_path) == ([] if content is None else ["database.db"])


async def test_other_tables_in_postgres_are_refused() -> None:
    """The same of a database, which stays as it is; without the table of versions it is one of today's."""
    url = new_database()
    name = url.partition("@/")[2].partition("?")[0]
    shared_server().execute((FIXTURES / "database.sql").read_text(), database=name)
    async with InMemorySessionService() as service:
        for statement, told in (
            ("UPDATE adk_internal_metadata SET value = '2'", "found schema '2'"),
            ("DELETE FROM adk_internal_metadata", "found schema 'none'"),
            ("ALTER TABLE app_states RENAME COLUMN state TO what", "found schema 'none'"),
            ("DROP TABLE adk_internal_metadata", "'app_states', found no columns state in it"),
        ):
            shared_server().execute(statement, database=name)
            with pytest.raises(StorageFormatError, match=told):
                await import_adk(service, url)
        assert (await service.list_sessions(app_name=None)).sessions == []
        shared_server().execute("ALTER TABLE app_states RENAME COLUMN what TO state", database=name)
        await check_imported(service, await import_adk(service, url))


async def test_a_session_that_cannot_be_stored_is_told_and_the_others_come(tmp_path: Path) -> None:
    """An app whose name none can have here, and an event that is no JSON."""
    path = tmp_path / "database.db"
    path.write_bytes((FIXTURES / "database.db").read_bytes())
    with sqlite3.connect(path) as db:
        db.execute("UPDATE events SET event_data = '{' WHERE session_id = 'odd'")
        db.execute("INSERT INTO sessions VALUES ('no app', 'u', 's', '{}', '2026-01-01', '2026-01-01')")
    db.close()
    async with InMemorySessionService() as service:
        result = await import_adk(service, path)
        assert (result.sessions, sorted(result.refused)) == (3, [("no app", "u", "s"), ("notes", "ben", "odd")])
        assert "expected JSON" in result.refused["notes", "ben", "odd"]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE events SET timestamp = 'soon' WHERE session_id = 'odd'", "timestamp: expected a time, found 'soon'"),
        ("UPDATE sessions SET create_time = 'x' WHERE id = 'odd'", "timestamp: expected a time, found 'x'"),
        ("UPDATE sessions SET state = '[]' WHERE id = 'odd'", "state: expected a JSON object, found '[]'"),
        ("UPDATE sessions SET state = '{' WHERE id = 'odd'", "state: expected JSON, found '{'"),
        ("UPDATE sessions SET state = x'00' WHERE id = 'odd'", "state: expected a JSON object, found"),
        ("UPDATE events SET event_data = '7' WHERE session_id = 'odd'", ": expected a JSON object, found '7'"),
    ],
)
@pytest.mark.parametrize("file", FILES)
async def test_a_value_that_adk_does_not_write_is_told_of_its_session(
    file: str, statement: str, told: str, tmp_path: Path
) -> None:
    """Where it stands, and what; all other sessions come along."""
    path = tmp_path / file
    path.write_bytes((FIXTURES / file).read_bytes())
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()
    async with InMemorySessionService() as service:
        result = await import_adk(service, path)
        assert (result.sessions, list(result.refused)) == (3, [("notes", "ben", "odd")])
        assert told in result.refused["notes", "ben", "odd"]


@pytest.mark.parametrize("state", ["x", "[1]", "null", f'{{"n": {"9" * 5000}}}'])
async def test_shared_values_that_cannot_be_read_are_told_and_the_sessions_come(state: str, tmp_path: Path) -> None:
    """What stands in the place of an app's values concerns nothing else."""
    path = tmp_path / "database.db"
    path.write_bytes((FIXTURES / "database.db").read_bytes())
    with sqlite3.connect(path) as db:
        db.execute("UPDATE app_states SET state = ?", (state,))
    db.close()
    async with InMemorySessionService() as service:
        result = await import_adk(service, path)
        assert (result.sessions, list(result.refused)) == (4, [("notes", "", "")])
        assert "expected" in result.refused["notes", "", ""]
        assert (await session(service, "ada", "first")).state["user:name"] == "Ada"


def stored(*events: dict[str, Any], state: dict[str, Any] | None = None) -> list[Event]:
    """The history of a session of these events."""
    rows = [
        StoredEvent(f"e{number}", f"i{number}", float(number), {"author": "user", **fields})
        for number, fields in enumerate(events)
    ]
    return history_of(StoredSession(state or {}, 0.0, tuple(rows)), "n")


def test_secrets_do_not_come_along() -> None:
    """What was asked and answered about credentials is left out; that it was asked stays."""
    secret = {"authConfig": {"rawAuthCredential": {"oauth2": {"clientSecret": "s3cret"}}}}
    history = stored(
        {
            "author": "a",
            "content": {"parts": [{"function_call": {"name": "adk_request_credential", "id": "c", "args": secret}}]},
            "actions": {"requested_auth_configs": {"c": secret}},
        },
        {"content": {"parts": [
            {"function_response": {"name": "adk_request_credential", "id": "c", "response": secret}}
        ]}},
    )  # fmt: skip
    assert "s3cret" not in str(history)
    assert history[1].get_function_calls()[0].name == "adk_request_credential"


def test_a_rewind_undoes_what_it_has_undone() -> None:
    """It names an invocation; here it also names its first event. One of an unknown invocation undoes nothing."""
    history = stored({}, {}, {"actions": {"rewind_before_invocation_id": "i1"}},
                     {"actions": {"rewind_before_invocation_id": "i1"}})  # fmt: skip
    assert [event.actions.rewind_before_seq for event in history] == [None, None, None, 2, None]


def test_ids_of_calls_become_such_as_providers_accept() -> None:
    """A long one is hashed, in the response as in the call; calls without one get one, and their responses find it."""
    odd = "call/" + "x" * 60
    history = stored(
        {"author": "a", "content": {"parts": [
            {"function_call": {"name": "f", "id": odd}}, {"function_call": {"name": "g"}}
        ]}},
        {"author": "a", "content": {"parts": [
            {"function_response": {"name": "g"}}, {"function_response": {"name": "f", "id": odd}}
        ]}},
    )  # fmt: skip
    made = [call.id for call in history[1].get_function_calls()]
    assert [response.id for response in history[2].get_function_responses()] == made[::-1]
    assert odd not in made


def test_the_command_tells_what_it_has_done(tmp_path: Path) -> None:
    """Into a new file; again nothing is new; pickles are refused with the way."""
    source = str(FIXTURES / "database.db")
    done = minirun(tmp_path, "sessions", "import-adk", "--from", source, "--db", "s.db")
    assert (done.returncode, done.stdout) == (0, "4 sessions with 15 events imported\n"), done.stderr
    again = minirun(tmp_path, "sessions", "import-adk", "--from", f"sqlite+aiosqlite:///{source}", "--db", "s.db")
    assert again.stdout == "0 sessions with 0 events imported\n4 were there already, and are as they were\n"
    refused = minirun(tmp_path, "sessions", "import-adk", "--from", str(FIXTURES / "pickled.db"), "--db", "s.db")
    assert (refused.returncode, "adk migrate session" in refused.stderr) == (1, True)
