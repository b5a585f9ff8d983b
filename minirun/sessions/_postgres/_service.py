"""
Sessions in a Postgres database, for many workers on many machines.

    _database                     the driver's connections, and the schema: made, migrated, refused
    _schema                       the tables, and the functions that the commit calls
    _statement                    the one statement by which a group of appends becomes true: read this first
    _commits _append              group commit, and what one event writes
    _text _rows _state _logs      what is read of the tables and written to them
    _session _cache               the live sessions that ran lately, brought up to date when they are opened
    _leases                       which worker runs a session
    _url                          what may be given as a URL, and as options
    _turn                         why an append was not stored
    _create _fork _delete _rewind
    _queries

Every event has a number, increasing over the whole database without a gap: `commit_no`. Deltas of the shared scopes
count in its order.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..._codec import to_json
from ..._json import JSON, is_count, shown
from ..._postgres._pool import Pool
from ...env import Env
from ...errors import ConfigurationError, SessionBusyError, StorageError
from ...events import Event
from .._calls import OpenCall
from .._invocation import Invocation, InvocationStatus
from .._kept import CACHE_BYTES
from .._key import SessionKey
from .._live import LiveSession
from .._service import BaseSessionService
from .._session import GetSessionConfig, Session
from .._store import SessionWriter
from ._append import Append
from ._cache import SessionCache
from ._commits import Commits
from ._database import Database
from ._leases import CHANNEL, End, Leases, LeaseWait
from ._session import DatabaseSession
from ._url import check_options, postgres_url, sqlite_path

if TYPE_CHECKING:
    from .._work import Work
    from ._queries import Queries

__all__ = ["DatabaseSessionService"]


class DatabaseSessionService(BaseSessionService):
    """
    Keeps sessions in a Postgres database, which any number of workers on any number of machines may share.

    What waits to be stored at the same moment in one process, of whatever sessions, is one statement, one round trip
    and one wait for the disk.

    It needs `pip install "minirun[postgres]"`. The tables stand in a schema of their own, `minirun`, which is made on
    first use. What the URL leaves out is taken from libpq's variables and files (`PGHOST`, `.pgpass` ...).

    Args:
        db_url: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`; `postgresql+asyncpg://` and the like are the same. With
            `sqlite:///FILE` or `sqlite+aiosqlite:///FILE` it is a SqliteSessionService that is made, and returned.
        cache_bytes: How much of the sessions that ran lately is kept for their next turn, in bytes of memory; what
            it takes is within a factor of 2.
        env: Where time and ids come from.

    Raises:
        ConfigurationError: The URL is none, or libpq cannot read it.
        NotSupportedError: It is of another database; an option of SQLAlchemy's or of another driver's was given, or
            stands in the URL; or a class that is derived from this one was given a SQLite file.
        StorageFormatError: On first use: the server is older than 14, its encoding is not UTF8, there is a pooler in
            transaction mode in between, or a newer minirun has written the schema.
        StorageReadOnlyError: On first use: we may not make the schema, or the server is a standby.
        StorageConnectionError: The server cannot be reached, or does not let us in. Nothing was stored.
    """

    def __new__(cls, db_url: object = None, **options: Any) -> DatabaseSessionService:
        """Make one; of a `sqlite:` URL a SqliteSessionService. Derived classes are made as they are."""
        path = sqlite_path(db_url) if cls is DatabaseSessionService else None
        if path is None:
            return super().__new__(cls)
        known = {name: options.pop(name) for name in ("cache_bytes", "env") if name in options}
        check_options(options)
        from .._sqlite._service import SqliteSessionService  # a worker on Postgres has no use for it

        return SqliteSessionService(path, **known)  # type: ignore[return-value]  # on purpose

    def __init__(
        self, db_url: str, *, cache_bytes: int = CACHE_BYTES, env: Env | None = None, **options: object
    ) -> None:
        super().__init__(env=env)
        check_options(options, type(self).__name__)
        url = postgres_url(db_url, type(self).__name__)
        if not is_count(cache_bytes):
            msg = f"expected cache_bytes to be an integer from 0 up, found {shown(cache_bytes)}"
            raise ConfigurationError(msg)
        self._pool = Pool(url, self._env)
        self._database = Database(self._pool)
        self._leases = Leases(self._database, self._env)
        self._commits = Commits(self._database, lambda: self._leases.owner, self._leases.lease_s, self._stored)
        self._cache = SessionCache(self._database, cache_bytes, lambda: self._leases.owner, self._commits.answered)
        self._unrecorded: dict[tuple[int, str], End] = {}  # ends that met a failing store
        self.renew_every_s = self._leases.renew_every_s

    def store_id(self) -> Hashable:
        return self._database.name

    def _after_fork(self) -> None:
        super()._after_fork()
        self._pool.begin_here()
        self._database.begin_here()
        self._leases.begin_here()
        self._commits.begin_here()
        self._unrecorded.clear()

    async def _close(self) -> None:
        self._commits.close()
        self._leases.close()
        self._pool.close()

    # --- opening

    async def load_session(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        opened = await self._cache.open(key, config)
        return None if opened is None else opened[0]

    async def load_free_session(
        self, key: SessionKey, config: GetSessionConfig | None, *, reject: bool
    ) -> LiveSession | None:
        opened = await self._cache.open(key, config)
        if opened is None or opened[1].is_free:
            return None if opened is None else opened[0]
        if reject:
            msg = f"another worker is running {key}; wait for it, or try again later"
            raise SessionBusyError(msg)
        async with self._leases.listener.hearing(CHANNEL) as bell:
            waiting = LeaseWait(bell)
            while True:
                opened = await self._cache.open(key, config)
                if opened is None:
                    return None
                live, row = opened
                if row.is_free:
                    return live
                if waiting.is_over(row):
                    live.gone = row.owner
                    return live
                await waiting.sleep()

    def cached_session(self, key: SessionKey) -> LiveSession | None:
        return self._cache.sessions.get(key)

    # --- writing

    async def insert_session(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        from ._create import create_session  # a worker may never make one

        return await create_session(self._database, self._cache, key, events, [to_json(event) for event in events])

    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        assert isinstance(live, DatabaseSession), "live sessions come from the service that they are written by"
        if writer is not None and writer.epoch is None:
            await self._leases.show_life()
        if self._unrecorded:
            await self._record_late()
        undone = None
        if event.actions.rewind_before_seq is not None:
            from ._rewind import read_undone  # few sessions are rewound

            undone = await read_undone(self._database, self._cache, live, event, writer)
        append = Append(live, event, to_json(event), writer, begins=begins, undone=undone)
        try:
            while not await self._commits.store(append):
                from ._turn import look_again  # most appends find the session as they expect it

                await look_again(self._database, append, self._leases.owner)
        except StorageError as error:
            if error.stored is None:
                self._cache.doubt(live.key)  # nobody knows whether it happened: read it again
                if writer is not None and writer.epoch is None:
                    writer.epoch = append.epoch + 1  # the lease may have been taken; leaving gives it back, if so
            raise

    def _stored(self, append: Append) -> None:
        """Note what was stored and applied."""
        if append.writer is not None:
            self._leases.running.add((append.live.incarnation, append.writer.invocation_id))
        self._cache.grow(append.live, append.bytes)

    async def insert_fork(self, key: SessionKey, at_seq: int | None, new: SessionKey, create_time: float) -> None:
        from ._fork import fork_session  # few programs fork

        made = await fork_session(
            self._database, self._cache, self.load_events, create_time, self._leases.owner, key, at_seq, new
        )
        if not made:
            raise await self._not_found(key)

    async def remove_session(self, key: SessionKey) -> None:
        from ._delete import delete_session  # few programs delete sessions

        gone: str | None = None
        async with self._leases.listener.hearing(CHANNEL) as bell:
            waiting = LeaseWait(bell)
            while (row := await delete_session(self._database, key, self._leases.owner, gone=gone)) is not None:
                gone = row.owner if waiting.is_over(row) else None
                if gone is None:
                    await waiting.sleep()
        self._cache.drop(key)

    # --- leases, and how runs end

    async def renew_leases(self, writers: Sequence[SessionWriter]) -> None:
        await self._leases.renew(writers)

    async def record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        return await self._end(writer, status, None)

    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        place = (writer.live.incarnation, writer.invocation_id)
        self._leases.running.discard(place)  # also where that cannot be stored
        try:
            is_left = await self._end(writer, status, self._leases.owner)
        except StorageError:
            self._unrecorded[place] = End(writer, status)  # the next append tries again
            raise
        if not is_left:
            self._leases.running.add(place)
        return is_left

    async def _end(self, writer: SessionWriter, status: InvocationStatus | None, owner: str | None) -> bool:
        """Record it, and give the lease of *owner* back; False if messages wait for what is to be completed."""
        end = End(writer, status)
        if status is not InvocationStatus.COMPLETED:
            await end.record(self._database, owner)
        elif not await end.record_uncalled(self._database, owner):
            from ._messages import record_called  # few runs are

            return await record_called(self._database, end, self._leases.owner, gives_back=owner is not None)
        return True

    async def insert_message(self, key: SessionKey, message: Event) -> None:
        from ._messages import put_message  # few programs send messages into runs

        if not await put_message(self._database, key, message):
            raise await self._not_found(key)
        if (live := self._cache.sessions.get(key)) is not None:
            live.has_messages = True

    async def load_messages(self, live: LiveSession) -> list[Event]:
        from ._messages import waiting_messages

        return await waiting_messages(self._database, live.incarnation)

    async def _record_late(self) -> None:
        """Record the ends that are late, by themselves: they stand also where the append after them is refused."""
        for place, end in list(self._unrecorded.items()):
            try:  # doing so twice changes nothing
                if end.status is not InvocationStatus.COMPLETED:
                    await end.record(self._database, self._leases.owner)
                else:
                    from ._messages import record_called  # few stores fail

                    await record_called(self._database, end, self._leases.owner, gives_back=True, late=True)
            except StorageError:
                return  # what comes next will tell
            self._unrecorded.pop(place, None)

    def _work(self, app_name: str) -> Work:
        """How supervisors of an app share what is to be done."""
        from ._work import DatabaseWork  # few programs supervise

        return DatabaseWork(self, app_name)

    # --- reading beside runs

    @cached_property
    def _queries(self) -> Queries:
        from ._queries import Queries  # runs have what they need from the cache

        return Queries(self._database, self._leases)

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
