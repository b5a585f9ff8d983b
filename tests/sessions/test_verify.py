"""
Verifying finds every damage that a reader could see, and repairing saves all that is whole.

Damage is done in two ways: to rows, with SQL, as a bug or a hand would; and to bits of the file, as a disk would.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import Event, EventActions, LlmAgent, Runner, SqliteSessionService
from minirun.errors import AlreadyExistsError, StorageCorruptError, StorageFormatError
from minirun.events import Replay
from minirun.sessions import InvocationStatus, Repaired, SessionKey, repair, verify
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, FunctionCall, Part

from ..examples import examples
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
    repair(tmp_path / "a.db", tmp_path / "new.db")
    assert "('app', 'u', 'user:gone', None)" in content(tmp_path / "new.db")["shared_state"]


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


# --- repairing --------------------------------------------------------------------------------------------------------


def test_a_sound_file_is_saved_whole(original: Path, tmp_path: Path) -> None:
    """Every session, event and value is in the new file, which goes on where the old one stopped."""
    before = original.read_bytes()
    repaired = repair(original, tmp_path / "new.db")
    assert repaired.losses == []
    saved = repaired.sessions
    assert [(one.key.session_id, one.revision, one.problem) for one in saved] == [
        (name, len(log) - 1, "") for name, log in logs(original).items()
    ]
    assert original.read_bytes() == before
    assert logs(tmp_path / "new.db") == logs(original)
    same = [table for table in TABLES if content(tmp_path / "new.db")[table] == content(original)[table]]
    assert same == list(TABLES)
    with pytest.raises(AlreadyExistsError):
        repair(original, tmp_path / "new.db")


async def test_what_was_repaired_goes_on(original: Path, tmp_path: Path) -> None:
    """A service appends to it, closes what was open, and numbers go on above all that were ever used."""
    path = tmp_path / "new.db"
    repair(original, path)
    async with SqliteSessionService(path, durability="process") as service:
        writer = await enter(service, "e-new")
        assert list(writer.live.open_calls) == ["open"]
        await writer.finish(None)
        await append(service, await get(service, "fork"), "more", user_n=1)
    assert verify(path) == []
    [(newest,)] = sql(original, "SELECT max(commit_no) FROM events")
    assert sql(path, "SELECT max(commit_no) FROM events") == [(newest + 1,)]


@pytest.mark.parametrize("statement", [statement for statement, _ in DAMAGES])
def test_what_is_whole_is_saved_from_any_damage(statement: str, original: Path, copy: Path, tmp_path: Path) -> None:
    """Sessions that are not damaged are complete, of the others a beginning is kept, and the result is sound."""
    sql(copy, statement)
    before = copy.read_bytes()
    repaired = repair(copy, tmp_path / "new.db")
    check_saved(repaired, original, tmp_path / "new.db")
    assert copy.read_bytes() == before


@cache
def logs_of_whole(path: Path) -> dict[str, list[Event]]:
    """The same of a file that does not change."""
    return logs(path)


def check_saved(repaired: Repaired, original: Path, new: Path) -> None:
    """What is kept is sound and a beginning; what is said to be whole is; and nothing is lost without being told."""
    assert verify(new) == []
    wholes, kept = logs_of_whole(original), logs(new)
    saved = {one.key.session_id: one for one in repaired.sessions}
    assert kept.keys() == {
        name for name, one in saved.items() if one.revision is not None and one.key.app_name == "app"
    }
    for name, one in saved.items():
        if name in wholes and one.revision is not None:
            assert kept[name] == wholes[name][: one.revision + 1]
            assert one.problem or kept[name] == wholes[name]
        assert one.revision is not None or one.problem
    untold = wholes.keys() - saved.keys()
    assert not untold or repaired.losses or len(saved) == len(wholes), untold  # one may have another name


# Tables that say nothing of what was said.
DERIVED = ("invocations", "open_calls", "session_state", "shared_base", "shared_state", "store")


@pytest.mark.parametrize("statement", [statement for statement, _ in DAMAGES if statement.split()[1] in DERIVED])
def test_damage_beside_the_logs_costs_no_event(statement: str, original: Path, copy: Path, tmp_path: Path) -> None:
    """Whatever is wrong with state, notes and numbers: every log is kept whole."""
    sql(copy, statement)
    repair(copy, tmp_path / "new.db")
    assert logs(tmp_path / "new.db") == logs_of_whole(original)


def zeroed(path: Path, name: str) -> None:
    """Let the first page of a table or index be zeros."""
    [(page,)] = sql(path, "SELECT rootpage FROM sqlite_master WHERE name = ?", name)
    [(size,)] = sql(path, "PRAGMA page_size")
    damaged = bytearray(path.read_bytes())
    damaged[(page - 1) * size : page * size] = bytes(size)
    path.write_bytes(damaged)


ROOTS = (*TABLES, "store", "shared_base", "sqlite_sequence", "sqlite_autoindex_events_1", "sqlite_autoindex_sessions_1")


@pytest.mark.parametrize("name", [name for name in ROOTS if name != "events"])
def test_the_loss_of_any_table_but_the_events_costs_no_event(name: str, original: Path, copy: Path) -> None:
    """Names are in an index too, pasts in the hash chain, and the rest can be derived or is told."""
    zeroed(copy, name)
    assert verify(copy) != []
    repaired = repair(copy, copy.with_name("new.db"))
    assert repaired.losses != []
    assert logs(copy.with_name("new.db")) == logs(original)
    assert content(copy.with_name("new.db"))["shared_state"] == content(original)["shared_state"]


def test_the_loss_of_the_events_is_told_of_every_session(original: Path, copy: Path) -> None:
    """Nothing can be kept; each session is named."""
    zeroed(copy, "events")
    repaired = repair(copy, copy.with_name("new.db"))
    assert {one.key.session_id for one in repaired.sessions if one.problem} == logs(original).keys()
    assert verify(copy.with_name("new.db")) == []


def test_a_fork_is_never_given_what_another_session_said(original: Path, copy: Path, tmp_path: Path) -> None:
    """Where a row names a wrong past, or one that is too long, the hash chain tells the right one."""
    for number, change in enumerate(("log = 2", "last_seq = 99", "last_seq = 1")):
        (tmp_path / "x.db").write_bytes(original.read_bytes())
        sql(tmp_path / "x.db", f"UPDATE shared_pasts SET {change}")
        repaired = repair(tmp_path / "x.db", tmp_path / f"{number}.db")
        assert repaired.losses == []
        assert logs(tmp_path / f"{number}.db") == logs(original)


def test_a_base_that_makes_no_sense_is_replaced_by_what_is_stored(original: Path, copy: Path, tmp_path: Path) -> None:
    """The values of a shared scope are kept as they stand, and told to be unchecked."""
    sql(copy, "UPDATE shared_base SET value = '{'")
    losses = repair(copy, tmp_path / "new.db").damages
    assert [loss.place for loss in losses] == ["the state of app 'app'", "the state of user 'u' in app 'app'"]
    assert all("its values are kept unchecked" in loss.problem for loss in losses)
    assert content(tmp_path / "new.db")["shared_state"] == content(original)["shared_state"]


def test_a_shared_value_that_changes_is_told(copy: Path, tmp_path: Path) -> None:
    """What the kept events make of the shared state is saved; where it is not what was stored, both are said."""
    sql(copy, "UPDATE shared_state SET value = '99' WHERE key = 'user:n'")
    told = [str(loss) for loss in repair(copy, tmp_path / "new.db").damages]
    assert told == ["the state of user 'u' in app 'app': state key 'user:n': kept 16, found 99"]


async def test_an_open_call_of_an_imported_session_stays_open(tmp_path: Path) -> None:
    """It has no invocation that is noted; its own note is borne out by the log."""
    await write(tmp_path / "a.db")
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        events = await service.read_events(**HERE)
        await service.import_session(app_name="app", user_id="u", session_id="copy", events=events)
    before = content(tmp_path / "a.db")["open_calls"]
    assert len(before) == 4
    repair(tmp_path / "a.db", tmp_path / "new.db")
    assert content(tmp_path / "new.db")["open_calls"] == before


def test_a_repair_that_fails_leaves_nothing(copy: Path, tmp_path: Path) -> None:
    """No folder, a file in the way, an error while writing: a typed error, and no half-made file."""
    with pytest.raises(StorageFormatError, match="there is no folder"):
        repair(copy, tmp_path / "nix" / "new.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(AlreadyExistsError):
        repair(copy, tmp_path / "link.db")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minirun.sessions._integrity._repair.PROGRESS_EVERY", 5)
        with pytest.raises(KeyboardInterrupt):
            repair(copy, tmp_path / "new.db", progress=stop)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != "a") == ["link.db"]


async def test_a_log_beside_the_old_file_is_read_and_stays_as_it_is(tmp_path: Path) -> None:
    """What was committed and not written back is saved too."""
    await write(tmp_path / "a.db")
    (tmp_path / "copy").mkdir()
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        await append(service, await get(service, "2"), "in the log")
        images = {name: (tmp_path / name).read_bytes() for name in ("a.db", "a.db-wal")}
    for name, image in images.items():
        (tmp_path / "copy" / name).write_bytes(image)
    repaired = repair(tmp_path / "copy" / "a.db", tmp_path / "new.db")
    assert [one.revision for one in repaired.sessions if one.key.session_id == "2"] == [7]
    assert {name: (tmp_path / "copy" / name).read_bytes() for name in images} == images


def test_a_cut_session_is_named_with_its_place(copy: Path, tmp_path: Path) -> None:
    """What is lost is said: which session, how far it is kept, and why it ends there."""
    sql(copy, "DELETE FROM events WHERE log = 2 AND seq = 3")
    sql(copy, "DELETE FROM events WHERE log = 3 AND seq = 0")
    told = {one.key.session_id: str(one) for one in repair(copy, tmp_path / "new.db").sessions}
    assert told["1"].startswith("session '1' of user 'u' in app 'app': kept events 0 to 2 of ")
    assert "event 3: it is missing" in told["1"]
    assert told["2"].startswith("session '2' of user 'u' in app 'app': kept nothing of 6")
    assert told["s"].endswith("kept events 0 to 10")


@settings(max_examples=examples(60))
@given(places=st.lists(st.floats(0, 0.999999), min_size=1, max_size=12), how=st.sampled_from(["bit", "zeros", "page"]))
def test_what_is_whole_is_saved_from_any_disk(original: Path, places: list[float], how: str) -> None:
    """Bits, sectors or pages: either the file is refused with a message, or what is saved is sound and a beginning."""
    import tempfile

    damaged = bytearray(original.read_bytes())
    for place in places:
        at = int(place * len(damaged))
        if how == "bit":
            damaged[at] ^= 1 << at % 8
        else:
            size = 512 if how == "zeros" else 4096
            at = at // size * size
            damaged[at : at + size] = bytes(size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        path.write_bytes(damaged)
        try:
            repaired = repair(path, Path(folder) / "new.db")
        except StorageFormatError:
            return
        check_saved(repaired, original, Path(folder) / "new.db")
        assert path.read_bytes() == damaged


def test_a_session_whose_row_is_lost_is_saved_under_another_name(copy: Path, original: Path, tmp_path: Path) -> None:
    """Deleted, or with a name that is no text: its events are there, and the loss is told."""
    sql(copy, "DELETE FROM sessions WHERE session_id = '1'")
    sql(copy, "UPDATE sessions SET session_id = CAST(x'ff' AS TEXT) WHERE session_id = '2'")
    repaired = repair(copy, tmp_path / "new.db")
    assert len([loss for loss in repaired.losses if "the row of the session" in str(loss)]) == 2
    found = content(tmp_path / "new.db")["sessions"]
    assert len(found) == len(content(original)["sessions"])
    assert len([row for row in found if "'recovered', 'recovered', 'log-" in row]) == 2
    assert len(content(tmp_path / "new.db")["events"]) == len(content(original)["events"])


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
def test_the_base_of_shared_state_is_not_trusted(statement: str, copy: Path, tmp_path: Path) -> None:
    """What is wrong with it is told, by both; what is saved is sound, and can be written on."""
    sql(copy, statement)
    assert verify(copy) != []
    assert repair(copy, tmp_path / "new.db").damages != []
    assert verify(tmp_path / "new.db") == []

    async def go_on() -> None:
        async with SqliteSessionService(tmp_path / "new.db", durability="process") as service:
            await append(service, await get(service, "2"), "more", user_x=1)

    trio.run(go_on)
    assert verify(tmp_path / "new.db") == []


def test_a_repair_that_fails_leaves_no_file(copy: Path, tmp_path: Path) -> None:
    """No folder, or no session file: a typed error, and nothing half made."""
    with pytest.raises(StorageFormatError, match="no folder"):
        repair(copy, tmp_path / "nix" / "new.db")
    copy.write_bytes(b"x" * 5000)
    with pytest.raises(StorageFormatError):
        repair(copy, tmp_path / "new.db")
    assert not list(tmp_path.glob("new.db*"))


async def test_a_shared_past_that_makes_no_sense_is_damage(copy: Path, tmp_path: Path) -> None:
    """For the service, for verifying, and for repairing, which keeps the rest."""
    sql(copy, "UPDATE shared_pasts SET last_seq = 'x'")
    async with SqliteSessionService(copy, durability="process") as service:
        with pytest.raises(StorageCorruptError):
            await get(service, "fork")
    assert "makes no sense" in str(verify(copy)[0])
    repaired = repair(copy, tmp_path / "new.db")
    assert repaired.losses == []  # the hash chain tells the right one
    assert verify(tmp_path / "new.db") == []


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


async def test_messages_that_wait_are_kept_if_they_are_whole(tmp_path: Path) -> None:
    """They wait in the new file, too; of one that was changed, or whose session is lost, it is told."""
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
                await service._put_message(key, Event(id=text, author="user", message=text, actions=actions))
            await writer.finish(InvocationStatus.PAUSED)
    sql(path, "UPDATE events SET data = replace(data, 'second', 'changed') WHERE log = -1 AND seq = 2")
    sql(path, "UPDATE sessions SET app_name = 1 WHERE id = 2")
    lost = [str(loss) for loss in repair(path, tmp_path / "new.db").losses]
    assert "file: a message that waits for session row 1 is not kept: it was changed" in lost
    assert "file: 2 events of log -2, whose session nobody knows, are not kept" in lost
    assert verify(tmp_path / "new.db") == []
    async with SqliteSessionService(tmp_path / "new.db", durability="process") as service:
        writer = await enter(service, "e-1")
        assert [message.text for message in await service._messages(writer.live)] == ["first"]
        await writer.finish(None)
