"""
Sessions in one SQLite file.

    _file _format _errors         one file: its connection, its transactions, whose it is, what its errors mean
    _lost_file                    where it was deleted or replaced below an open connection
    _schema                       its tables
    _logs _rows _state            what is read of them and written to them
    _session _cache               the live sessions that ran lately, brought up to date when they are opened
    _leases _owner_lock           which process runs a session
    _append _create               an event, and a new session, in one transaction
    _fork _delete _rewind         what few programs do, imported when it is done
    _queries
    _artifacts _memories _guest   what else may stand in the file

Every event has a number, increasing over the whole file: `commit_no`. Deltas of the shared scopes count in its order.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ..._codec import to_json
from ..._json import JSON, brief, is_count, shown
from ...env import Env
from ...errors import ConfigurationError, SessionBusyError, StorageError
from ...events import Event
from .._calls import OpenCall
from .._invocation import Invocation, InvocationStatus
from .._kept import CACHE_BYTES
from .._key import SessionKey
from .._live import LiveSession
from .._scoped import ScopedSession
from .._service import BaseSessionService
from .._session import GetSessionConfig, Session
from .._store import SessionWriter
from ._append import Append
from ._cache import SessionCache
from ._create import create_session
from ._file import Durability, SqliteFile, Transaction
from ._format import parse_path
from ._leases import Leases
from ._logs import may_be_called
from ._schema import FORMAT

if TYPE_CHECKING:
    from ._lease_wait import LeaseWait
    from ._queries import Queries

__all__ = ["SqliteSessionService"]


# A row of the session, epoch and owner given; see `_leases.py` for what follows the owner's name.
_LEASE = "id = ? AND lease_epoch = ? AND instr(lease_owner || ':', ? || ':') = 1"


class SqliteSessionService(BaseSessionService):
    """
    Keeps sessions in one SQLite file, which several processes may share.

    What waits to be stored at the same moment, of whatever sessions, shares one transaction and one wait for the disk.

    Args:
        path: A file (its folder must exist), `":memory:"`, or `"sqlite:///FILE"`. It is opened on first use.
        db_path: The same, by the name that ADK has for it.
        durability: `"power"`: what is stored survives a power cut; each commit waits for the disk, in a worker
            thread. `"process"`: it survives the end of the process, `kill -9` included; a power cut may take the
            latest commits, never part of one.
        cache_bytes: How much of the sessions that ran lately is kept for their next turn, in bytes of memory; what
            it takes is within a factor of 2.
        env: Where time and ids come from.

    Raises:
        StorageFormatError: On first use: the file is not one of minirun's, or a newer version's, or has no folder.
        StorageReadOnlyError: On first use: the file cannot be written.
        StorageMissingError: On later use: the file was deleted or replaced. It works again once it is back.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        db_path: str | os.PathLike[str] | None = None,
        durability: Durability = "power",
        cache_bytes: int = CACHE_BYTES,
        env: Env | None = None,
    ) -> None:
        super().__init__(env=env)
        if (path is None) == (db_path is None):
            found = "neither" if path is None else "both"
            raise ConfigurationError(f"expected path or db_path, which is the same, found {found}")
        if durability not in ("power", "process"):
            raise ConfigurationError(f"expected durability 'power' or 'process', found {brief(durability)}")
        if not is_count(cache_bytes):
            raise ConfigurationError(f"expected cache_bytes to be an integer from 0 up, found {shown(cache_bytes)}")
        self._path = parse_path(db_path if path is None else path)
        self._file = SqliteFile(self._path, FORMAT, durability, self._env)
        self._cache = SessionCache(self._file, cache_bytes)
        self._leases = Leases(self._path, self._env)
        self._unrecorded: dict[tuple[int, str], _End] = {}  # ends that met a failing store
        self.renew_every_s = self._leases.renew_every_s

    def store_id(self) -> Hashable:
        return id(self) if self._path is None else self._path

    def _after_fork(self) -> None:
        super()._after_fork()
        self._file.begin_here()
        self._leases.begin_here()
        self._unrecorded.clear()

    async def _close(self) -> None:
        await self._file.close()
        self._leases.release()

    # --- opening

    async def load_session(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        opened = await self._cache.open(key, config)
        return None if opened is None else opened[0]

    async def load_free_session(
        self, key: SessionKey, config: GetSessionConfig | None, *, reject: bool
    ) -> LiveSession | None:
        waiting: LeaseWait | None = None
        while True:
            opened = await self._cache.open(key, config)
            if opened is None:
                return None
            live, row = opened
            if self._leases.is_free(row):
                return live
            if reject:
                msg = f"another process is running {key}; wait for it, or try again later"
                raise SessionBusyError(msg)
            from ._lease_wait import LeaseWait  # few runs meet another process

            waiting = waiting or LeaseWait(self._leases)
            await waiting.sleep(row)

    def cached_session(self, key: SessionKey) -> LiveSession | None:
        return self._cache.sessions.get(key)

    # --- writing

    async def insert_session(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        lines = [to_json(event) for event in events]
        return await self._file.write(partial(create_session, self._cache, key, events, lines))

    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        assert isinstance(live, ScopedSession), "live sessions come from the service that they are written by"
        if writer is not None and writer.epoch is None:
            self._leases.lock_owner()
        if self._unrecorded:
            await self._record_late()
        work = Append(self._cache, self._leases, live, event, to_json(event), writer, begins=begins)
        try:
            await self._file.write(work)
        except StorageError as error:
            if error.stored is None:
                self._cache.drop(live.key)  # nobody knows whether it happened: read it again
                if writer is not None and writer.epoch is None:
                    writer.epoch = work.epoch  # the lease may have been taken; leaving gives it back, if so
            raise

    async def insert_fork(self, key: SessionKey, at_seq: int | None, new: SessionKey, create_time: float) -> None:
        from ._fork import fork_session  # few programs fork

        if not await fork_session(self._cache, self.load_events, create_time, key, at_seq, new):
            raise await self._not_found(key)

    async def remove_session(self, key: SessionKey) -> None:
        from ._delete import delete_session  # few programs delete sessions
        from ._lease_wait import LeaseWait

        waiting = LeaseWait(self._leases)
        work = partial(delete_session, self._cache, self._leases, key)
        while (row := await self._file.write(work)) is not None:
            await waiting.sleep(row)

    # --- leases, and how runs end

    async def renew_leases(self, writers: Sequence[SessionWriter]) -> None:
        def renew(transaction: Transaction) -> None:
            lease = self._leases.taken()
            for writer in writers:
                transaction.db.execute(
                    f"UPDATE sessions SET lease_owner = ?, lease_expires = ? WHERE {_LEASE}",
                    (*lease, writer.live.incarnation, writer.epoch, self._leases.owner),
                )

        await self._file.write(renew, durable=False)

    async def record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        return await self._file.write(_End(writer, status).record, durable=False)

    async def insert_message(self, key: SessionKey, message: Event) -> None:
        from ._messages import put_message  # few programs send messages into runs

        if not await self._file.write(partial(put_message, self._cache, self._leases, key, message)):
            raise await self._not_found(key)

    async def load_messages(self, live: LiveSession) -> list[Event]:
        from ._messages import waiting_messages

        return await self._file.look(partial(waiting_messages, self._file.name, live.incarnation))

    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        place = (writer.live.incarnation, writer.invocation_id)
        self._leases.running.discard(place)  # also where that cannot be stored
        end = _End(writer, status)
        try:
            is_left = await self._file.write(partial(end.finish, self._leases.owner), durable=False)
        except StorageError:
            self._unrecorded[place] = end  # the next append tries again
            raise
        if not is_left:
            self._leases.running.add(place)
        return is_left

    async def _record_late(self) -> None:
        """Record the ends that are late, by themselves: they stand also where the append after them is refused."""
        from ._late_ends import record_late  # few stores fail

        await record_late(self._file, self._leases.owner, self._unrecorded)

    # --- reading beside runs

    @cached_property
    def _queries(self) -> Queries:
        from ._queries import Queries  # runs have what they need from the cache

        return Queries(self._file, self._leases)

    async def load_events(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        return await self._queries.log(key, after_seq, limit)

    async def load_sessions(
        self, app_name: str | None, user_id: str | None, limit: int | None, after: int
    ) -> list[Session]:
        return await self._queries.sessions(app_name, user_id, limit, after)

    async def apps_with_session(self, user_id: str, session_id: str) -> set[str]:
        return await self._queries.apps_with(user_id, session_id)

    async def load_waiting_calls(
        self, app_name: str | None, user_id: str | None, session_id: str | None
    ) -> list[tuple[SessionKey, OpenCall, Event, Event]]:
        return await self._queries.waiting(app_name, user_id, session_id)

    async def load_user_state(self, app_name: str, user_id: str) -> Mapping[str, JSON]:
        return await self._queries.user_state(app_name, user_id)

    async def load_invocations(
        self, app_name: str | None, user_id: str | None, session_id: str | None, status: InvocationStatus | None
    ) -> list[Invocation]:
        return await self._queries.all_invocations(app_name, user_id, session_id, status)

    async def load_invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        return await self._queries.invocation(key, invocation_id)

    async def load_unfinished_invocations(self, key: SessionKey, after_seq: int) -> list[Invocation]:
        return await self._queries.not_ended(key, after_seq)


class _End:
    """How the invocation of a writer has ended, or None: it is left. It may be recorded late."""

    __slots__ = ("_epoch", "_incarnation", "_invocation_id", "_revision", "_status", "_writer")

    def __init__(self, writer: SessionWriter, status: InvocationStatus | None) -> None:
        self._incarnation = writer.live.incarnation
        self._invocation_id = writer.invocation_id
        self._epoch = writer.epoch
        self._revision = writer.live.revision
        self._status = status
        self._writer = writer

    def record(self, transaction: Transaction, *, late: bool = False) -> bool:
        """Record it, if nobody has resumed the invocation since; False, and nothing, if messages call it back."""
        db, status = transaction.db, self._status
        if status is InvocationStatus.COMPLETED and (late or may_be_called(db, self._incarnation, self._epoch)):
            from ._messages import is_called, leaves_messages  # few runs are

            if not late and is_called(db, self._writer):
                return False
            if leaves_messages(db, self._writer, self._revision):
                status = None  # too late to answer them: it is left
        if status is not None:
            db.execute(
                "UPDATE invocations SET status = ?, end_seq = max(seq, ?)"
                " WHERE session = ? AND invocation_id = ? AND epoch = ?",
                (status, self._revision, self._incarnation, self._invocation_id, self._epoch),
            )
        return True

    def finish(self, owner: str, transaction: Transaction, *, late: bool = False) -> bool:
        """Record it, and give the lease of *owner* back; or not, as `record`."""
        if not self.record(transaction, late=late):
            return False
        transaction.db.execute(
            f"UPDATE sessions SET lease_owner = NULL, lease_expires = NULL WHERE {_LEASE}",
            (self._incarnation, self._epoch, owner),
        )
        return True
