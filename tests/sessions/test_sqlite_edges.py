"""The service of a file at its edges: what it cannot be made with, rows that have lost a part, messages of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minirun import Event, EventActions, SqliteSessionService
from minirun.errors import ConfigurationError, StorageReadOnlyError
from minirun.events import Replay
from minirun.sessions import InvocationStatus
from minirun.sessions._sqlite._leases import LEASE_S, Leases
from minirun.sessions._sqlite._lost_file import _has_lost_its_log
from minirun.sessions._sqlite._owner_lock import OwnerLock
from minirun.sessions._sqlite._rows import Row

from ..stores import HERE, KEY, Clock, Elsewhere, begin, enter, sql

# --- what it is made with ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "expected path or db_path, which is the same, found neither"),
        ({"path": "a.db", "db_path": "a.db"}, "expected path or db_path, which is the same, found both"),
        ({"path": "a.db", "durability": "no"}, "expected durability 'power' or 'process', found 'no'"),
        ({"path": "a.db", "durability": "process", "cache_bytes": "x"}, "expected cache_bytes to be an integer"),
        ({"db_path": "a.db", "durability": "power", "cache_bytes": "x"}, "expected cache_bytes to be an integer"),
    ],
)
def test_what_a_service_cannot_be_made_with_is_told_by_its_name(given: dict[str, Any], words: str) -> None:
    """The first of it, and what can be there."""
    with pytest.raises(ConfigurationError) as caught:
        SqliteSessionService(**given)
    assert str(caught.value).startswith(words)


# --- leases -----------------------------------------------------------------------------------------------------------

NOW, BOOT = 1000.0, "boot-1"


def leases(path: Path | None, machine: str = BOOT) -> Leases:
    return Leases(path, Clock([NOW], machine=machine))


def row(owner: str | None, expires: float | None) -> Row:
    return Row(1, 0, 1.0, 1.0, 1, owner, expires, bytes(32), 0, 0)


FREE: dict[str, tuple[str | None, float | None, bool]] = {
    "nobody": (None, None, True),
    "an end without an owner": (None, NOW + 1, True),
    "an owner without an end": ("other", None, True),
    "another until now": ("other", NOW, True),
    "another until soon": ("other", NOW + 0.001, False),
    "another of this boot until now": (f"other:{BOOT}:{NOW}", NOW + 9, True),
    "another of this boot until soon": (f"other:{BOOT}:{NOW + 0.001}", NOW - 9, False),
    "another of another boot until now": (f"other:boot-2:{NOW + 9}", NOW, True),
    "another of another boot until soon": (f"other:boot-2:{NOW - 9}", NOW + 0.001, False),
}


@pytest.mark.parametrize("case", FREE)
def test_a_lease_is_over_when_its_clock_says_so(case: str, tmp_path: Path) -> None:
    """The steady one within a boot, else that on the wall; to the moment, while its owner lives."""
    owner, expires, is_free = FREE[case]
    lock = OwnerLock(tmp_path / "a.db", "other")
    assert leases(tmp_path / "a.db").is_free(row(owner, expires)) is is_free
    lock.release()
    assert leases(tmp_path / "a.db").is_free(row(owner, expires)) is True


def test_where_no_boot_is_known_the_wall_clock_decides() -> None:
    """Also about an owner that knows its own."""
    assert leases(None, machine="").is_free(row(f"other:{BOOT}:{NOW - 9}", NOW + 1)) is False
    assert leases(None, machine="").is_free(row(f"other:{BOOT}:{NOW + 9}", NOW)) is True
    assert leases(None, machine="").is_free(row("other", NOW + 1)) is False
    assert leases(None, machine="").is_free(row("other", NOW)) is True


def test_a_lease_of_its_own_is_free_for_a_service(tmp_path: Path) -> None:
    """Whatever the clocks say; it lasts for its time on both."""
    own = leases(tmp_path / "a.db")
    owner, expires = own.taken()
    assert owner.split(":") == [own.owner, BOOT, str(NOW + LEASE_S)]
    assert expires == NOW + LEASE_S
    own.lock_owner()
    lock = own.lock
    own.lock_owner()
    assert own.lock is lock
    assert lock is not None
    assert own.is_free(row(owner, expires))
    assert not leases(tmp_path / "a.db").is_free(row(owner, expires))
    own.release()
    assert leases(tmp_path / "a.db").is_free(row(owner, expires))
    assert own.is_mine(row(owner, expires))
    assert not own.is_mine(row(None, None))
    assert not own.is_mine(row("other", expires))
    assert len(own.owner) == 16
    assert leases(tmp_path / "a.db").owner != own.owner


def test_an_owner_without_a_file_needs_no_lock_and_one_without_a_folder_can_have_none(tmp_path: Path) -> None:
    """The second is told what is in the way."""
    own = leases(None)
    own.lock_owner()
    assert own.lock is None
    with pytest.raises(StorageReadOnlyError, match="cannot make a lock file beside it: "):
        leases(tmp_path / "none" / "a.db").lock_owner()


async def test_a_row_with_an_owner_and_no_end_keeps_nobody_out(tmp_path: Path) -> None:
    """Such a lease was never written; it can only be damage, and nobody could wait for its end."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        await service.create_session(**HERE)
        sql(path, "UPDATE sessions SET lease_owner = 'other', lease_expires = NULL")
        writer = await enter(service, reject=True)
        await begin(writer)
        await writer.finish(InvocationStatus.COMPLETED)


# --- messages ---------------------------------------------------------------------------------------------------------


async def test_a_run_that_a_message_calls_back_knows_that_it_waits(tmp_path: Path) -> None:
    """Another process has sent it, of which this one has not heard before."""
    path = tmp_path / "a.db"
    async with Elsewhere(path, durability="process") as one, Elsewhere(path, durability="process") as two:
        await one.create_session(**HERE)
        writer = await enter(one)
        await begin(writer)
        assert not writer.live.has_messages
        actions = EventActions(replay=Replay(sent="next_model_call"))
        message = Event(id="m-1", invocation_id="e-1", author="user", message="and this", actions=actions)
        await two.insert_message(KEY, message)
        assert not writer.live.has_messages
        assert await one.finish_invocation(writer, InvocationStatus.COMPLETED) is False
        assert writer.live.has_messages
        await writer.finish(None)


# --- files that are lost ----------------------------------------------------------------------------------------------


def gone(file: Path, index: Path) -> None:
    file.unlink()


def another(file: Path, index: Path) -> None:
    file.rename(file.with_name("moved"))
    file.write_bytes(b"another")


def log_of_another(file: Path, index: Path) -> None:
    file.with_name("a.db-wal").write_bytes(b"another")


def index_of_another(file: Path, index: Path) -> None:
    index.rename(index.with_name("moved"))
    index.write_bytes(b"another")


def no_index(file: Path, index: Path) -> None:
    index.unlink()


def nothing(file: Path, index: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "known", "is_ours"),
    [
        (nothing, 3, True),
        (no_index, 3, True),
        (no_index, 2, True),
        (nothing, 2, False),
        (index_of_another, 3, False),
        (gone, 3, False),
        (another, 3, False),
        (log_of_another, 3, False),
    ],
)
def test_a_file_is_still_ours_if_only_its_log_has_lost_its_name(
    change: Callable[[Path, Path], None], known: int, is_ours: bool, tmp_path: Path
) -> None:
    """By the identities of the file and its index; the one of an index that was never seen is nobody's."""
    file, index = tmp_path / "a.db", tmp_path / "a.db-shm"
    file.write_bytes(b"ours")
    index.write_bytes(b"ours")
    found = file.stat()
    identity = (found.st_dev, found.st_ino, index.stat().st_ino)[:known]
    change(file, index)
    assert _has_lost_its_log(str(file), str(tmp_path / "a.db-wal"), str(index), identity) is is_ours
