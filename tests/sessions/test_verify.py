"""
`verify` finds every damage that a reader could see.

Damage is done in two ways: to rows, with SQL, as a bug or a hand would; and to bits of the file, as a disk would.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import Event, EventActions, LlmAgent, Runner, SqliteSessionService
from minirun.errors import StorageCorruptError, StorageFormatError
from minirun.events import Replay
from minirun.sessions import InvocationStatus, SessionKey, verify
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, FunctionCall, Part

from ..stores import HERE, KEY, append, begin, enter, get, sql

SESSIONS = ("s", "1", "2", "fork")


def f() -> str:
    """A tool."""
    return "x"


async def write(path: Path) -> None:
    """Sessions with runs, calls, shared state, a rewind and a fork; one was deleted, one has open calls, one waits."""
    async with SqliteSessionService(path, durability="process") as service:
        agent = LlmAgent(name="agent", model=ScriptedLlm([call("f"), "done"] * 3), tools=[f])
        runner = Runner(agent=agent, app_name="app", session_service=service)
        for name in ("s", "1", "2", "gone"):
            session = await service.create_session(
                app_name="app", user_id="u", session_id=name, state={"n": 0, "é": "ü"}
            )
            for turn in range(4):
                ops = {"user:n": {"add": 1}, "app:log": {"extend": [turn]}, "n": {"add": 1}}
                actions = EventActions(state_delta={f"k{turn}": turn, "user:last": turn}, state_ops=ops)
                await service.append_event(session, Event(author="a", message="hello " * 9, actions=actions))
        for name in ("s", "1"):
            async with runner.run_async(user_id="u", session_id=name, new_message="go") as run:
                await run.wait()
        await runner.rewind_async(user_id="u", session_id="1", rewind_before_invocation_id=run.invocation_id)
        await service.delete_session(app_name="app", user_id="u", session_id="gone")
        fork = await service.fork_session(**HERE, at_seq=3, new_session_id="fork")
        await append(service, fork, "own", own=True)
        writer = await enter(service, "e-open")
        await begin(writer)
        content = Content(role="model", parts=[Part(function_call=FunctionCall(id="open", name="f"))])
        await writer.append(Event(author="agent", invocation_id="e-open", content=content))
        await writer.finish(InvocationStatus.FAILED)
        await pause(service)


async def pause(service: SqliteSessionService) -> None:
    """A run of the session "2" that asks for an answer, and stays open until it comes."""
    writer = await service.open_writer(SessionKey("app", "u", "2"), "e-paused", None, reject=False)
    assert writer is not None
    await writer.append(Event(author="user", message="go", invocation_id="e-paused"), begins=True)
    parts = [Part(function_call=FunctionCall(id=name, name=name)) for name in ("put-off", "adk_request_input")]
    actions = EventActions(suspended_calls=["put-off"])
    await writer.append(
        Event(
            author="agent",
            invocation_id="e-paused",
            content=Content(role="model", parts=parts),
            long_running_tool_ids=["adk_request_input"],
            actions=actions,
        )
    )
    await writer.finish(InvocationStatus.PAUSED)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "a.db"
    trio.run(write, path)
    assert not path.with_name("a.db-wal").exists()
    return path


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    path.write_bytes(original.read_bytes())
    return path


TABLES = {
    "sessions": "id, app_name, user_id, session_id, revision, update_time, chain,"
    " CASE WHEN session_id = 'fork' THEN 0 ELSE create_time END",
    "events": "*",
    "session_state": "session, key, value",
    "shared_state": "app_name, user_id, key, value",
    "open_calls": "session, call_id, name, seq, place, invocation_id, author, branch, pending, pending_seq",
    "invocations": "session, invocation_id, status, seq",
    "shared_pasts": "*",
}


def content(path: Path) -> dict[str, list[str]]:
    """All that a reader could see, whatever the indexes say."""
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return {
            table: sorted(map(repr, db.execute(f"SELECT {columns} FROM {table} NOT INDEXED").fetchall()))
            for table, columns in TABLES.items()
        }
    finally:
        db.close()


def logs(path: Path) -> dict[str, list[Event]]:
    """The logs of the sessions that a service finds."""

    async def read() -> dict[str, list[Event]]:
        async with SqliteSessionService(path, durability="process") as service:
            found = (await service.list_sessions(app_name="app")).sessions
            return {
                session.id: await service.read_events(app_name="app", user_id="u", session_id=session.id)
                for session in found
            }

    return trio.run(read)


# --- verifying --------------------------------------------------------------------------------------------------------


def test_a_sound_file_has_no_damage_and_is_not_changed(original: Path) -> None:
    """Verifying finds nothing in what a service has written, tells how far it is, and leaves every byte as it is."""
    before = original.read_bytes()
    assert verify(original) == []
    assert original.read_bytes() == before


async def test_a_file_in_use_can_be_verified(tmp_path: Path) -> None:
    """Others may have it open, with commits that are still in its log."""
    await write(tmp_path / "a.db")
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        await append(service, await get(service, "2"), "in the log")
        assert verify(tmp_path / "a.db") == []
        await append(service, await get(service, "2"), "goes on")


def test_progress_is_told(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback hears how many events there are, and how many are done."""
    from minirun.sessions._integrity import _verify

    monkeypatch.setattr(_verify, "PROGRESS_EVERY", 10)
    told: list[tuple[int, int]] = []
    verify(original, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == [10 * step for step in range(1, len(told) + 1)]
    assert len(told) >= 2
    assert {total for _, total in told} == {sum(len(log) for log in logs(original).values())}


# What is done, and words of what is found.
DAMAGES: list[tuple[str, str]] = [
    ("DELETE FROM events WHERE log = 2 AND seq = 3", "session '1' of user 'u' in app 'app', event 3: it is missing"),
    ("DELETE FROM events WHERE log = 2 AND seq = (SELECT revision FROM sessions WHERE id = 2)", "it is missing"),
    (
        "UPDATE events SET data = replace(data, 'hello', 'hellO') WHERE log = 2 AND seq = 2",
        "event 2: expected the link",
    ),
    (
        "UPDATE events SET chain = zeroblob(32) WHERE log = 3 AND seq = 4",
        "of user 'u' in app 'app', event 4",
    ),
    ("UPDATE events SET commit_no = commit_no + 1000 WHERE log = 3 AND seq = 1", "event 1: expected the link"),
    ("UPDATE events SET log = 3, seq = 90 WHERE log = 2 AND seq = 4", "event 4: it is missing"),
    ("UPDATE sessions SET revision = revision - 1 WHERE id = 3", "which no session shows"),
    ("UPDATE sessions SET revision = revision + 1 WHERE id = 3", "event 7: it is missing"),
    ("UPDATE sessions SET chain = zeroblob(32) WHERE id = 3", "the newest link of the hash chain"),
    ("UPDATE sessions SET update_time = update_time + 1 WHERE id = 2", "expected the update time"),
    ("UPDATE sessions SET create_time = create_time + 1 WHERE id = 2", "expected the create time"),
    ("UPDATE session_state SET value = '99' WHERE session = 2 AND key = 'n'", "state key 'n': expected 4, found '99'"),
    ("DELETE FROM session_state WHERE session = 2 AND key = 'n'", "state key 'n': expected 4, found None"),
    ("INSERT INTO session_state VALUES (2, 'new', '1')", "state key 'new': expected no such key, found '1'"),
    (
        "UPDATE shared_state SET value = '99' WHERE key = 'user:n'",
        "the state of user 'u' in app 'app': state key",
    ),
    ("DELETE FROM shared_state WHERE key = 'app:log'", "the state of app 'app': state key 'app:log'"),
    ("UPDATE shared_base SET value = '{' WHERE user_id = ''", "its base cannot be read"),
    ("UPDATE shared_base SET value = '{}' WHERE user_id = 'u'", "state key 'user:n'"),
    ("INSERT INTO open_calls VALUES (2, 'c', 'f', 2, 0, 'e', 'a', NULL, '', 0, 0)", "call 'c' is noted as open"),
    ("UPDATE open_calls SET seq = 1", "call 'open' is noted as open"),
    ("UPDATE open_calls SET place = 0", "call 'adk_request_input' is noted as open"),
    ("UPDATE open_calls SET pending = '' WHERE pending = 'waits'", "expected pending 'waits' since event 6, found ''"),
    ("UPDATE open_calls SET pending = 'suspended'", "expected pending '' since event 0, found 'suspended'"),
    ("UPDATE open_calls SET pending = 'soon'", "pending for 'soon'"),
    ("UPDATE open_calls SET pending_seq = 5 WHERE pending = 'waits'", "since event 6, found 'waits' since 5"),
    ("UPDATE open_calls SET pending_no = 999 WHERE pending = 'waits'", "has the number 999 of"),
    ("UPDATE open_calls SET pending_no = 1 WHERE pending = ''", "open call 'open' has the number 1"),
    ("DELETE FROM open_calls WHERE pending = 'waits'", "its paused invocation waits for, and is not noted"),
    ("UPDATE invocations SET end_seq = NULL WHERE invocation_id = 'e-open'", "has ended at event None"),
    ("UPDATE invocations SET end_seq = 99 WHERE invocation_id = 'e-paused'", "has ended at event 99"),
    ("UPDATE invocations SET seq = 99 WHERE invocation_id = 'e-open'", "begins at event 99, which there is not"),
    ("UPDATE invocations SET seq = 2 WHERE invocation_id = 'e-open'", "is noted to begin here, and does not"),
    ("UPDATE invocations SET status = 'lost' WHERE invocation_id = 'e-open'", "has the status 'lost'"),
    ("DELETE FROM sessions WHERE id = 3", "refers to no row of sessions"),
    ("DELETE FROM shared_pasts", "it is missing; the next one is 4"),
    ("UPDATE shared_pasts SET last_seq = 2", "it is missing"),
    ("UPDATE invocations SET epoch = 99 WHERE invocation_id = 'e-open'", "has the epoch 99"),
    ("UPDATE invocations SET commit_no = 999 WHERE invocation_id = 'e-open'", "is noted to begin here, and does not"),
    ("UPDATE events SET log = 5, seq = 1 WHERE log = 3 AND seq = 4", "1 events of log 5 (1 to 1), which no session"),
    ("UPDATE shared_state SET commit_no = 999 WHERE key = 'user:last'", "no event has the number 999"),
    ("UPDATE shared_base SET commit_no = 999 WHERE user_id = ''", "its base has the number 999, beyond"),
    ("UPDATE shared_base SET value = '{\"x\":1}' WHERE user_id = ''", "an object with keys of the app"),
    ("UPDATE shared_base SET value = '[[\"app:a\",1]]' WHERE user_id = ''", "an object with keys of the app"),
    ("UPDATE store SET deleted_no = 'x'", "'x'"),
    ("DELETE FROM store", "the number of the newest event is missing"),
    ("UPDATE sessions SET lease_owner = 'x' WHERE id = 3", "expected a lease with an owner and an end"),
    ("UPDATE sessions SET app_name = '-' WHERE id = 3", "app_name: expected"),
    ("UPDATE sessions SET session_id = ' s' WHERE id = 3", "a row makes no sense: session_id: expected"),
    ("UPDATE shared_pasts SET first_seq = -1", "the past of session row 5 makes no sense: [-1, 3, 1] from 0"),
    ("UPDATE shared_pasts SET last_seq = 'x'", "the past of session row 5 makes no sense"),
    ("UPDATE shared_pasts SET last_seq = 9223372036854775807", "the past of session row 5 makes no sense"),
    ("UPDATE shared_pasts SET last_seq = 99", "the past of session row 5 makes no sense"),
    ("UPDATE shared_pasts SET log = 2", "event 4"),
    ("UPDATE sessions SET session_id = 'renamed' WHERE id = 3", ""),
]


@pytest.mark.parametrize(("statement", "words"), DAMAGES)
def test_every_damage_is_found_and_placed(statement: str, words: str, copy: Path) -> None:
    """Each kind of damage is reported where it is; a session with another name is just that."""
    sql(copy, statement)
    found = [str(damage) for damage in verify(copy)]
    assert bool(found) == bool(words)
    assert any(words in damage for damage in found) or not words, found


async def test_the_numbers_of_shared_values_and_removals_are_checked(tmp_path: Path) -> None:
    """By them other processes hear of changes: each is that of the event, and a removal leaves a row."""
    await write(tmp_path / "a.db")
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        session = await get(service, "2")
        await append(service, session, user_n=5, user_gone=1)
        await service.append_event(session, Event(author="a", actions=EventActions(state_removed=["user:gone"])))
    assert verify(tmp_path / "a.db") == []
    sql(tmp_path / "a.db", "UPDATE shared_state SET commit_no = commit_no - 1 WHERE key = 'user:n'")
    sql(tmp_path / "a.db", "DELETE FROM shared_state WHERE key = 'user:gone'")
    found = [str(damage) for damage in verify(tmp_path / "a.db")]
    assert len(found) == 2
    assert "state key 'user:n': expected the number" in found[0]
    assert "state key 'user:gone': its removal is not noted" in found[1]


def test_what_is_no_session_file_is_refused(tmp_path: Path) -> None:
    """No file, an empty one, another program's, a newer version's: a message, not a list of damages."""
    with pytest.raises(StorageFormatError, match="found none"):
        verify(tmp_path / "a.db")
    assert not (tmp_path / "a.db").exists()
    for text in (b"", b"not a database, but some text that is long enough to look like one" * 9):
        (tmp_path / "a.db").write_bytes(text)
        with pytest.raises(StorageFormatError):
            verify(tmp_path / "a.db")
    sql(tmp_path / "b.db", "CREATE TABLE other (a)")
    with pytest.raises(StorageFormatError, match="found another one"):
        verify(tmp_path / "b.db")


@pytest.mark.parametrize("flips", [pytest.param(60, id="some"), pytest.param(5000, id="many", marks=pytest.mark.slow)])
def test_no_bit_that_flips_goes_unseen(flips: int, original: Path, tmp_path: Path) -> None:
    """Whatever bit flips: what a reader could see is as before, or it is reported; SQLite alone sees few of them."""
    whole, before = original.read_bytes(), content(original)
    luck = random.Random(flips)
    path = tmp_path / "a.db"
    counts: Counter[str] = Counter()
    for _ in range(flips):
        place = luck.randrange(8 * len(whole))
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        found = what_is_found(path)
        changed = is_changed(path, before)
        counts[f"{'changed' if changed else 'as it was'}, {found}"] += 1
        assert not changed or found != "not found", f"bit {place}"
    print(flips, dict(counts))
    assert counts["changed, found by the chain or the fold"] > counts["changed, found by SQLite"]
    assert counts["changed, found by SQLite"] > 0 or flips < 1000, "it does see some"


def what_is_found(path: Path) -> str:
    try:
        damages = verify(path)
    except StorageFormatError:
        return "found by SQLite"
    if not damages:
        return "not found"
    return "found by SQLite" if all("SQLite" in str(damage) for damage in damages) else "found by the chain or the fold"


def is_changed(path: Path, before: dict[str, list[str]]) -> bool:
    try:
        return content(path) != before
    except (sqlite3.Error, UnicodeDecodeError):
        return True


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE shared_base SET value = replace(value, ':', ':9')",
        "UPDATE shared_base SET value = replace(value, 'user:', 'usex:')",
        "UPDATE shared_base SET value = '[1]'",
        "UPDATE shared_base SET commit_no = 1000000000",
        "UPDATE shared_base SET commit_no = 'x'",
    ],
)
def test_the_base_of_shared_state_is_not_trusted(statement: str, copy: Path) -> None:
    """`verify` reports a base that does not follow from the log or cannot be read."""
    sql(copy, statement)
    assert verify(copy) != []


async def test_a_shared_past_that_makes_no_sense_is_damage(copy: Path) -> None:
    """The service raises StorageCorruptError, and `verify` reports it."""
    sql(copy, "UPDATE shared_pasts SET last_seq = 'x'")
    async with SqliteSessionService(copy, durability="process") as service:
        with pytest.raises(StorageCorruptError):
            await get(service, "fork")
    assert "makes no sense" in str(verify(copy)[0])


async def test_a_fork_does_not_go_on_where_another_session_does(tmp_path: Path) -> None:
    """
    Its past cannot go beyond its newest event: what it said next would be hidden by what the other one has said there.
    """
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        session = await service.create_session(app_name="app", user_id="u", session_id="s")
        for number in range(6):
            await append(service, session, k=number)
        await service.fork_session(app_name="app", user_id="u", session_id="s", at_seq=3, new_session_id="fork")
    sql(tmp_path / "a.db", "UPDATE shared_pasts SET last_seq = 4")
    assert "makes no sense: [0, 4, 1] from 0" in str(verify(tmp_path / "a.db")[0])
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        with pytest.raises(StorageCorruptError, match="makes no sense"):
            await get(service, "fork")


def test_the_names_of_these_tests_are_those_of_the_file(original: Path) -> None:
    """The file has what the tests above count on."""
    assert sorted(logs(original)) == sorted(SESSIONS)
    assert KEY.session_id in SESSIONS
    rows: list[Any] = sql(original, "SELECT count(*) FROM open_calls")
    assert rows == [(3,)]


async def test_a_waiting_message_that_was_changed_is_damage(tmp_path: Path) -> None:
    """`verify` reports it, and messages whose session is lost."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        for name in ("s", "gone"):
            await service.create_session(app_name="app", user_id="u", session_id=name)
            key = SessionKey("app", "u", name)
            writer = await service.open_writer(key, "e-1", None, reject=True)
            assert writer is not None
            await begin(writer)
            for text in ("first", "second"):
                actions = EventActions(replay=Replay(sent="next_model_call"))
                await service.insert_message(key, Event(id=text, author="user", message=text, actions=actions))
            await writer.finish(InvocationStatus.PAUSED)
    sql(path, "UPDATE events SET data = replace(data, 'second', 'changed') WHERE log = -1 AND seq = 2")
    sql(path, "DELETE FROM sessions WHERE id = 2")
    found = [str(damage) for damage in verify(path)]
    assert "file: a message that waits for session row 1: it was changed" in found
    assert any("2 events of log -2 (1 to 2), which no session shows" in damage for damage in found)
