"""
Memories in a Postgres database, that of the sessions.

Writing is a transaction that holds the row of the user, so workers write a user's memories one after the other, and
places and totals are exact.

A search has to ask for what it looks at. `look` decides that on an index that answers at once; here the index answers
from what was fetched, notes what is missing, and `look` is run again when that was fetched, in one round trip for all
of it. Four rounds are enough: totals and newest of each term, the lists, the lengths, the texts. All of them see one
state of the database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from .._codec import from_dict, to_dict
from .._json import brief, dumps, loads
from .._postgres._pool import Transaction
from .._postgres._values import Call, Statement
from ..errors import InvalidValueError, StorageCorruptError
from ..sessions._id_bytes import ID_BYTES_MAX
from ..sessions._postgres._guest import DatabaseGuest, sqlite_place
from ..sessions._postgres._text import stored_key
from ..types import Content
from . import _ranking
from ._ranking import Numbers, Totals, look
from ._service import BaseMemoryService, Memory
from ._values import MemoryEntry, Query, Scope

__all__ = ["DatabaseMemoryService"]

PLACE_MAX: Final = 2**62

_USER: Final = "(SELECT id FROM minirun.memory_users WHERE app_name = $1 AND user_id = $2)"
_TOTALS: Final = Statement(
    "memory_totals",
    "SELECT id, newest, count, length FROM minirun.memory_users WHERE app_name = $1 AND user_id = $2",
    "text text",
)
_HOLD_USER: Final = Statement(
    "hold_user",
    """
    INSERT INTO minirun.memory_users AS t (app_name, user_id, newest, count, length) VALUES ($1, $2, 0, 0, 0)
    ON CONFLICT (app_name, user_id) DO UPDATE SET newest = t.newest RETURNING id, newest, count, length
    """,
    "text text",
)
_SAVE_USER: Final = Statement(
    "save_user", "UPDATE minirun.memory_users SET newest = $2, count = $3, length = $4 WHERE id = $1", "int8 " * 4
)
_KNOWN: Final = Statement(
    "known_memories",
    f"""
    SELECT id, data FROM minirun.memory_entries WHERE of = {_USER} AND id = ANY($3)
    UNION ALL SELECT id, NULL FROM minirun.memory_deleted WHERE of = {_USER} AND id = ANY($3)
    """,
    "text text text[]",
)
_PLACES: Final = Statement(
    "known_places",
    """
    SELECT id, place, data FROM minirun.memory_entries WHERE of = $1 AND id = ANY($2)
    UNION ALL SELECT id, NULL, NULL FROM minirun.memory_deleted WHERE of = $1 AND id = ANY($2)
    """,
    "int8 text[]",
)
_ADD: Final = Statement(
    "add_memories",
    """
    INSERT INTO minirun.memory_entries (of, place, id, session, timestamp, length, terms, parts, data)
    SELECT $1, r.place, r.id, r.session, r.timestamp, r.length, r.terms, string_to_array(r.parts, E'\\n'), r.data
    FROM unnest($2::int8[], $3::text[], $4::text[], $5::float8[], $6::int8[], $7::text[], $8::text[], $9::text[])
        AS r(place, id, session, timestamp, length, terms, parts, data)
    """,
    "int8 int8[] text[] text[] float8[] int8[] text[] text[] text[]",
)
_POST: Final = Statement(
    "post_memories",
    """
    INSERT INTO minirun.memory_postings (of, part, place)
    SELECT of, unnest(parts), place FROM minirun.memory_entries WHERE of = $1 AND place = ANY($2)
    """,
    "int8 int8[]",
)
_UNPOST: Final = Statement(
    "unpost_memories",
    """
    DELETE FROM minirun.memory_postings p USING (
        SELECT place, unnest(parts) AS part FROM minirun.memory_entries WHERE of = $1 AND place = ANY($2)
    ) gone WHERE p.of = $1 AND p.part = gone.part AND p.place = gone.place
    """,
    "int8 int8[]",
)
_TAKE_OUT: Final = Statement(
    "take_out_memories",
    "DELETE FROM minirun.memory_entries WHERE of = $1 AND place = ANY($2) RETURNING id, length",
    "int8 int8[]",
)
_FORGET: Final = Statement(
    "forget_memories",
    "INSERT INTO minirun.memory_deleted (of, id) SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING",
    "int8 text[]",
)
_CHOOSE: Final = Statement(
    "choose_memories",
    """
    SELECT place FROM minirun.memory_entries WHERE of = $1 AND ($2::text IS NULL OR id = $2)
        AND ($3::text IS NULL OR session = $3) ORDER BY place DESC LIMIT $4
    """,
    "int8 text text int8",
)
# The newest places that have the part $2 and all of $5, between $3 and $4, and whose time is in [$6, $7), if $6 is one.
_NEWEST: Final = Statement(
    "newest_memories",
    """
    SELECT p.place FROM minirun.memory_postings p
    WHERE p.of = $1 AND p.part = $2 AND p.place BETWEEN $3 AND $4
        AND (cardinality($5::text[]) = 0 OR cardinality($5) = (
            SELECT count(*) FROM minirun.memory_postings q
            WHERE q.of = p.of AND q.part = ANY($5) AND q.place = p.place
        ))
        AND ($6::float8 IS NULL OR EXISTS (
            SELECT FROM minirun.memory_entries e
            WHERE e.of = p.of AND e.place = p.place AND e.timestamp >= $6 AND e.timestamp < $7
        ))
    ORDER BY p.place DESC LIMIT $8
    """,
    "int8 text int8 int8 text[] float8 float8 int8",
)
_NEWEST_BEFORE: Final = Statement(
    "newest_before",
    """
    SELECT place FROM minirun.memory_entries WHERE of = $1 AND timestamp < $2
    ORDER BY timestamp DESC, place DESC LIMIT 1
    """,
    "int8 float8",
)
_LENGTHS: Final = Statement(
    "memory_lengths",
    "SELECT place, length FROM minirun.memory_entries WHERE of = $1 AND place = ANY($2)",
    "int8 int8[]",
)
_TEXTS: Final = Statement(
    "memory_texts",
    "SELECT place, length, terms FROM minirun.memory_entries WHERE of = $1 AND place = ANY($2)",
    "int8 int8[]",
)
_ENTRIES: Final = Statement(
    "memories", "SELECT place, data FROM minirun.memory_entries WHERE of = $1 AND place = ANY($2)", "int8 int8[]"
)


class DatabaseMemoryService(DatabaseGuest, BaseMemoryService):
    """
    Keeps memories in a Postgres database, which any number of workers may share. It answers as the other services do.

    Args:
        db_url: A URL, as `DatabaseSessionService` takes it; or such a service, whose connections and Env are then
            shared. It is to be closed after this one, which does not close it.
        env: Where time and ids come from; only for a URL.

    Of a `sqlite:` URL, or of the service that DatabaseSessionService has made of one, a SqliteMemoryService is made
    and returned.

    Raises:
        ConfigurationError: A session service came with an Env of another, or the URL is none.
        NotSupportedError: It is of another database, or an option of SQLAlchemy's was given; or a class that is derived
            from this one was given a SQLite file.
        InvalidValueError: On use: an app or user id has more than 512 bytes of UTF-8.
    """

    _own_service = "a subclass of BaseMemoryService of your own"

    def __new__(cls, db_url: object = None, **options: Any) -> DatabaseMemoryService:
        """Make one; for a SQLite file a SqliteMemoryService. Derived classes are made as they are."""
        place = sqlite_place(cls.__name__, db_url, options) if cls is DatabaseMemoryService else None
        if place is None:
            return super().__new__(cls)
        from ._sqlite import SqliteMemoryService  # a worker on Postgres has no use for it

        return SqliteMemoryService(place, **options)  # type: ignore[return-value]  # on purpose

    # --- the storage primitives

    @trio.lowlevel.enable_ki_protection
    async def _add(self, scope: Scope, memories: Sequence[Memory]) -> None:
        _check(scope)
        ids = {stored_key(memory.id)[0]: memory for memory in memories}
        await self._database.ready()
        async with self._database.pool.transaction() as transaction:
            [held] = await transaction.run(_HOLD_USER(*scope))
            user, totals = held.rows[0][0], Totals(*held.rows[0][1:])
            [found] = await transaction.run(_PLACES(user, [*ids]))  # sees what was written before the row was locked
            places: dict[str, int] = {}
            for key, place, data in found.rows:
                if place is None or self._entry(data) == ids[key].entry:
                    del ids[key]
                else:
                    places[key] = place
            old = await _take_out(transaction, user, [*places.values()])
            newest = totals.newest
            for key in ids:
                if key not in places:
                    newest = places[key] = newest + 1
            length = totals.length + sum(memory.length for memory in ids.values()) - sum(size for _, size in old)
            rows = [_row(places[key], key, memory) for key, memory in ids.items()]
            if rows:
                await transaction.run(
                    _ADD(user, *map(list, zip(*rows, strict=True))),
                    _POST(user, [*places.values()]),
                    _SAVE_USER(user, newest, totals.count + len(rows) - len(old), length),
                )

    async def _look_up(self, scope: Scope, ids: Sequence[str]) -> dict[str, MemoryEntry | None]:
        _check(scope)
        keys = {stored_key(name)[0]: name for name in ids}
        [found] = await self._database.read(_KNOWN(*scope, [*keys]))
        return {keys[key]: None if data is None else self._entry(data) for key, data in found.rows}

    @trio.lowlevel.enable_ki_protection
    async def _search(self, scope: Scope, query: Query, limit: int) -> list[MemoryEntry]:
        _check(scope)
        await self._database.ready()
        async with self._database.pool.transaction(snapshot=True) as view:
            [found] = await view.run(_TOTALS(*scope))
            if not found.rows:
                return []
            user = found.rows[0][0]
            index = _Index(user, Totals(*found.rows[0][1:]))
            ranking = look(index, query)
            while index.missing:
                index.take([result.rows for result in await view.run(*index.missing.values())])
                ranking = look(index, query)
            best = None if ranking.is_long else ranking.best(limit)
            if best is not None:
                [entries] = await view.run(_ENTRIES(user, [place for place, _ in best]))
        if best is None:
            best = await self._ranked(ranking, limit)
            [entries] = await self._database.read(_ENTRIES(user, [place for place, _ in best]))
        left = {place: self._entry(data) for place, data in entries.rows}  # some may have been deleted meanwhile
        return [attrs.evolve(left[place], score=score) for place, score in best if place in left]

    async def _delete(self, scope: Scope, memory_id: str) -> None:
        await self._delete_chosen(scope, stored_key(memory_id)[0], None, 1)

    async def _delete_page(self, scope: Scope, session_id: str | None, limit: int) -> int:
        return await self._delete_chosen(scope, None, _session_key(session_id), limit)

    @trio.lowlevel.enable_ki_protection
    async def _delete_chosen(self, scope: Scope, key: str | None, session: str | None, limit: int) -> int:
        _check(scope)
        await self._database.ready()
        async with self._database.pool.transaction() as transaction:
            [held] = await transaction.run(_HOLD_USER(*scope))
            user, newest, count, length = held.rows[0]
            [chosen] = await transaction.run(_CHOOSE(user, key, session, limit))
            gone = await _take_out(transaction, user, [place for (place,) in chosen.rows])
            if gone:
                left = (count - len(gone), length - sum(size for _, size in gone))
                await transaction.run(_FORGET(user, [name for name, _ in gone]), _SAVE_USER(user, newest, *left))
        return len(gone)

    # --- helpers

    def _entry(self, data: str) -> MemoryEntry:
        """The memory of a row."""
        try:
            fields = loads(data)
            return MemoryEntry(
                id=fields["id"],
                session_id=fields.get("session_id"),
                timestamp=fields["timestamp"],
                content=from_dict(Content, fields["content"]),
                author=fields.get("author"),
                custom_metadata=fields.get("metadata", {}),
            )
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            msg = f"{self._database.name}: a memory cannot be read ({brief(error, 200)}): {brief(data)}"
            raise StorageCorruptError(f"{msg}; somebody else has written there: restore it") from error


async def _take_out(transaction: Transaction, user: int, places: list[int]) -> list[tuple[str, int]]:
    """Take memories out of all tables, and return their keys and lengths."""
    if not places:
        return []
    _, taken = await transaction.run(_UNPOST(user, places), _TAKE_OUT(user, places))
    return [(key, length) for key, length in taken.rows]


def _check(scope: Scope) -> None:
    for name, text in zip(("app_name", "user_id"), scope, strict=True):
        if len(text.encode()) > ID_BYTES_MAX:
            problem = f"expected at most {ID_BYTES_MAX} bytes of UTF-8, found {len(text.encode())}"
            raise InvalidValueError(name, f"{problem}; use a shorter one, such as a hash of it")


def _session_key(session_id: str | None) -> str | None:
    return None if session_id is None else stored_key(session_id)[0]


def _part(part: str) -> str:
    """A term or a mark as the postings have it."""
    return stored_key(part)[0]


def _row(place: int, key: str, memory: Memory) -> tuple[Any, ...]:
    entry = memory.entry
    fields = {
        "id": memory.id,
        "session_id": entry.session_id,
        "timestamp": entry.timestamp,
        "content": to_dict(entry.content),
        "author": entry.author,
        "metadata": entry.custom_metadata,
    }
    data = dumps({name: value for name, value in fields.items() if value or name == "timestamp"})
    parts = "\n".join(map(_part, memory.index))
    session = _session_key(entry.session_id)
    return place, key, session, entry.timestamp, memory.length, memory.terms, parts, data


class _Index:
    """The memories of one user, as an index (see `_ranking.Index`), as far as they were fetched."""

    def __init__(self, user: int, totals: Totals) -> None:
        self._user = user
        self._totals = totals
        self._known: dict[tuple[Any, ...], Any] = {}
        self.missing: dict[tuple[Any, ...], Call] = {}
        """What was asked for and is not there, with what fetches it. What depends on it is asked for later."""

    def take(self, found: Sequence[list[tuple[Any, ...]]]) -> None:
        """Note what was fetched, in the order of `missing`."""
        self._known.update(zip(self.missing, found, strict=True))
        self.missing = {}

    def _rows(self, call: Call) -> list[tuple[Any, ...]] | None:
        question = (call.statement.name, *map(_hashable, call.arguments))
        if question not in self._known:
            self.missing[question] = call
        return self._known.get(question)

    def totals(self) -> Totals:
        return self._totals

    def newest(self, parts: tuple[str, ...], limit: int, query: Query | None, within: Numbers | None) -> list[int]:
        first, last = (1, PLACE_MAX) if within is None else (within.first, within.last)
        times = (None, None) if query is None else (query.after, query.before)
        rarest, *others = sorted(parts, key=self._count_of)
        call = _NEWEST(self._user, _part(rarest), first, last, [*map(_part, others)], *times, limit)
        return [place for (place,) in self._rows(call) or ()]

    def _count_of(self, part: str) -> int:
        """How many memories have a part, as far as that was asked for: of a common one only that it is common."""
        call = _NEWEST(self._user, _part(part), 1, PLACE_MAX, [], None, None, _ranking.RARE_MAX + 1)
        question = (call.statement.name, *map(_hashable, call.arguments))
        return len(self._known.get(question, ()))

    def newest_before(self, before: float) -> int:
        found = self._rows(_NEWEST_BEFORE(self._user, before))
        return found[0][0] if found else 0

    def lengths(self, numbers: Sequence[int]) -> Mapping[int, int]:
        found = None if self.missing else self._rows(_LENGTHS(self._user, [*numbers]))
        return defaultdict(int) if found is None else dict(found)

    def texts(self, numbers: Sequence[int]) -> Iterable[tuple[int, int, str]]:
        found = None if self.missing or not numbers else self._rows(_TEXTS(self._user, [*numbers]))
        return () if found is None else [(place, length, terms) for place, length, terms in found]


def _hashable(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
