"""
Is a database what its events say?

As for a file (`sessions._integrity._verify`): nearly all but the events can be derived from them, so it is derived
again and compared. The chain, link by link; the order, without a gap; each session's state, open calls, invocations;
the shared state, as the fold of all events in the order of their numbers (promise P4). Then the artifacts, and the
memories with their index.

All is read in one view, page by page; others go on meanwhile. In memory are one session's fold, and every write to a
shared scope. Nothing is changed. What cannot be seen is the same as of a file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final

import trio

from ..._codec import from_json
from ..._json import brief, dumps, loads
from ..._postgres._pool import Transaction
from ..._postgres._values import Statement
from ...errors import InvalidValueError, StorageCorruptError
from ...events import Event
from .._calls import Pending
from .._integrity._verify import (
    Damage,
    SharedScope,
    Step,
    base_problem,
    base_values,
    could_end,
    lease_problem,
    scope_place,
)
from .._invocation import InvocationStatus
from .._key import SessionKey
from .._past import LogFold
from .._scoped import CHAIN_START, Segment, segments_of
from .._service import BaseSessionService
from .._sqlite._logs import link
from .._state import Scope, scope_of, writes_of
from ._rows import CALL, call_of
from ._service import DatabaseSessionService
from ._state import shared_user
from ._text import read_key
from ._verify_artifacts import check_artifacts
from ._verify_memories import check_memories

__all__ = ["verify_database"]

PAGE: Final = 500
# One statement of a page, or of the list of all sessions.
READ_S: Final = 120.0

# With the highest numbers that anything has.
_STORE: Final = Statement(
    "verify_store",
    """
    SELECT s.commit_no, s.session_no, coalesce(greatest(
        (SELECT max(commit_no) FROM minirun.events), (SELECT max(commit_no) FROM minirun.shared_base)
    ), 0), coalesce((SELECT max(id) FROM minirun.sessions), 0) FROM minirun.store s
    """,
    once=True,
)
_SESSIONS: Final = Statement(
    "verify_sessions",
    "SELECT id, app_name, user_id, session_id, revision, update_time, chain, compaction,"
    " lease_epoch, lease_owner, lease_expires::text FROM minirun.sessions WHERE id > $1 ORDER BY id LIMIT $2",
    "int8 int8",
)
_PASTS: Final = Statement(
    "verify_pasts",
    "SELECT first_seq, last_seq, log FROM minirun.shared_pasts WHERE session = $1 ORDER BY first_seq",
    "int8",
)
_LINES: Final = Statement(
    "verify_lines",
    "SELECT seq, commit_no, chain, data FROM minirun.events WHERE log = $1 AND seq >= $2 AND seq <= $3"
    " ORDER BY seq LIMIT $4",
    "int8 int8 int8 int8",
)
_STATE: Final = Statement(
    "verify_state", "SELECT key, name, value FROM minirun.session_state WHERE session = $1", "int8"
)
_CALLS: Final = Statement(
    "verify_calls", f"SELECT pending_no, {CALL} FROM minirun.open_calls o WHERE session = $1", "int8"
)
_RUNS: Final = Statement(
    "verify_runs",
    "SELECT invocation_id, name, status, seq, end_seq, epoch, commit_no FROM minirun.invocations WHERE session = $1",
    "int8",
)
_SHARED: Final = Statement(
    "verify_shared", "SELECT app_name, user_id, key, name, value, commit_no FROM minirun.shared_state", once=True
)
_BASES: Final = Statement(
    "verify_bases", "SELECT app_name, user_id, commit_no, value FROM minirun.shared_base", once=True
)
_UNUSED: Final = Statement(
    "verify_unused",
    """
    SELECT e.log, count(*), min(e.seq), max(e.seq) FROM minirun.events e
    WHERE NOT EXISTS (SELECT FROM minirun.sessions s WHERE s.id = e.log AND e.seq <= s.revision)
        AND NOT EXISTS (
            SELECT FROM minirun.shared_pasts p WHERE p.log = e.log AND e.seq BETWEEN p.first_seq AND p.last_seq
        ) AND NOT EXISTS (
            SELECT FROM minirun.sessions s WHERE s.id = -e.log
        )
    GROUP BY e.log ORDER BY e.log
    """,
    once=True,
)
_NOBODYS: Final = Statement(
    "verify_nobodys",
    "SELECT name, session, count(*) FROM ("
    + " UNION ALL ".join(
        f"SELECT '{table}' AS name, session FROM minirun.{table}"
        for table in ("shared_pasts", "session_state", "open_calls", "invocations")
    )
    + ") AS r WHERE NOT EXISTS (SELECT FROM minirun.sessions s WHERE s.id = r.session)"
    " GROUP BY name, session ORDER BY name, session",
    once=True,
)


@trio.lowlevel.enable_ki_protection
async def verify_database(
    service: BaseSessionService, *, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Damage]:
    """
    Look at all sessions, artifacts and memories of the database and return what is damaged; an empty list: it is sound.

    *progress* is called with the numbers of the session that was looked at, and of the newest one.

    Raises:
        StorageError: It cannot be read.
    """
    assert isinstance(service, DatabaseSessionService), "a file is verified by `verify`"
    await service._database.ready()
    async with service._database.pool.transaction(snapshot=True, slow_s=READ_S) as transaction:
        return await _Verifier(transaction, service._database.name, progress).run()


class _Verifier:
    def __init__(self, transaction: Transaction, name: str, progress: Callable[[int, int], None]) -> None:
        self._transaction = transaction
        self._name = name
        self._progress = progress
        self._damages: list[Damage] = []
        self._shared: dict[int, tuple[str, str, Event]] = {}  # what writes shared scopes, by its number

    async def run(self) -> list[Damage]:
        """Look at everything."""
        [store] = await self._transaction.run(_STORE())
        if len(store.rows) != 1:
            self._report("database", f"expected one row of its counter, found {len(store.rows)}")
            return self._damages
        [(self._newest, sessions, newest, newest_session)] = store.rows
        if self._newest > newest:  # where it is lower, that is told of each event beyond
            self._report("database", f"expected its counter at event number {newest}, found {self._newest}")
        if sessions < newest_session:
            self._report("database", f"expected its counter at session {newest_session} or later, found {sessions}")
        after = -1
        while True:
            [page] = await self._transaction.run(_SESSIONS(after, PAGE))
            for row in page.rows:
                await self._check_session(row)
                after = row[0]
                self._progress(after, sessions)
            if len(page.rows) < PAGE:
                break
        await self._check_shared()
        [unused] = await self._transaction.run(_UNUSED())
        for log, count, first, last in unused.rows:
            self._report("database", f"{count} events of log {log} ({first} to {last}), which no session shows")
        [nobodys] = await self._transaction.run(_NOBODYS())
        for table, session, count in nobodys.rows:
            self._report("database", f"{count} rows of {table} for session row {session}, which is not there")
        await check_artifacts(self._transaction, self._report)
        await check_memories(self._transaction, self._report)
        return self._damages

    def _report(self, place: str, problem: str, seq: int | None = None) -> None:
        self._damages.append(Damage(place, problem, seq))

    # --- sessions

    async def _check_session(self, row: Sequence[Any]) -> None:
        session, app, user, name, revision, updated, chain, compaction, epoch, owner, expires = row
        key = SessionKey(app, user, name)
        place = str(key)
        pasts, state, calls, runs = await self._transaction.run(
            _PASTS(session), _STATE(session), _CALLS(session), _RUNS(session)
        )
        if revision < 0:
            self._report(place, f"expected a revision from 0 up, found {revision}")
            return
        try:
            segments = segments_of(pasts.rows, session, revision, ValueError)
        except ValueError as error:
            self._report(place, str(error))
            return
        if problem := lease_problem(epoch, owner, expires):
            self._report(place, problem)
        fold, begun, last = LogFold(), dict[int, tuple[str | None, int]](), None
        async with aclosing(self._steps(segments, revision)) as steps:
            async for step in steps:
                if step.event is None:
                    self._report(place, step.problem, step.seq)
                    return  # what follows is not its log any more
                last = step
                begun[step.seq] = step.event.invocation_id, step.commit_no
                if any(scope_of(written) is not Scope.SESSION for written in writes_of(step.event.actions)):
                    self._shared[step.commit_no] = (app, user, step.event)
                try:
                    fold.take(step.event, tracked=True)
                except InvalidValueError as error:
                    self._report(place, f"its state changes cannot be applied: {error}", step.seq)
                    return
        assert last is not None, "a log that is missing has been told"
        assert last.event is not None
        if last.chain != chain:
            self._report(place, "the newest link of the hash chain is not the one in the session's row")
        if last.event.timestamp != updated:
            self._report(place, f"expected the update time {last.event.timestamp}, found {updated}")
        if fold.compactions.seq != compaction:
            self._report(place, f"expected its newest compaction at {fold.compactions.seq}, found {compaction}")
        values, _ = self._values(place, state.rows)
        self._compare(place, values, {key: dumps(value) for key, value in fold.values.session.items()})
        paused = self._check_runs(place, runs.rows, begun, revision, epoch)
        self._check_calls(place, calls.rows, fold, paused)

    async def _steps(self, segments: Iterable[Segment], revision: int) -> AsyncGenerator[Step, None]:
        """The events of a session in order, each one checked; after the first that is wrong comes nothing."""
        chain, number, expected = CHAIN_START, 0, 0
        for segment in segments:
            last = min(segment.last_seq, revision)
            while expected <= last:
                [page] = await self._transaction.run(_LINES(segment.log, expected, last, PAGE))
                for seq, commit_no, stored, data in page.rows:
                    step = self._step(chain, number, expected, (seq, commit_no, stored, data))
                    yield step
                    if step.event is None:
                        return
                    chain, number, expected = stored, commit_no, seq + 1
                if not page.rows:
                    yield Step(expected, None, number, chain, f"it is missing; the session goes on to {revision}")
                    return

    def _step(self, chain: bytes, number: int, expected: int, row: tuple[int, int, bytes, str]) -> Step:
        seq, commit_no, stored, data = row
        if seq != expected:
            problem = f"it is missing; the next one is {seq}"
        elif link(chain, seq, commit_no, data) != stored:
            problem = "its link in the hash chain is another one"
        elif not number < commit_no <= self._newest:
            problem = f"expected a number from {number + 1} to {self._newest}, found {commit_no}"
        else:
            try:
                event = from_json(Event, data)
                writes_of(event.actions)
                if event.seq == seq:
                    return Step(seq, event, commit_no, stored)
                problem = f"expected the seq {seq} in it, found {event.seq}"
            except (InvalidValueError, TypeError) as error:
                problem = f"it cannot be read: {error}"
        return Step(expected, None, number, chain, problem)

    def _values(self, place: str, rows: Iterable[Sequence[Any]]) -> tuple[dict[str, str], dict[str, int]]:
        """What state is stored, each value as we would write it, and the numbers that the rows of shared state have."""
        values, numbers = {}, {}
        for stored, long_key, value, *number in rows:
            try:
                key = read_key(stored, long_key)
                if number:
                    numbers[key] = number[0]
                if value is not None:  # it was removed
                    values[key] = dumps(loads(value))
            except (ValueError, TypeError, RecursionError) as error:
                self._report(place, f"state key {brief(stored)} cannot be read: {error}")
        return values, numbers

    def _compare(self, place: str, stored: dict[str, str], expected: dict[str, str]) -> None:
        for key in sorted(stored.keys() | expected.keys()):
            if stored.get(key) != expected.get(key):
                wanted, found = (of.get(key, "no such key") for of in (expected, stored))
                self._report(place, f"state key {brief(key)}: expected {wanted:.80}, found {found:.80}")

    def _check_runs(
        self,
        place: str,
        rows: Iterable[Sequence[Any]],
        begun: dict[int, tuple[str | None, int]],
        revision: int,
        newest_epoch: int,
    ) -> set[str]:
        """Compare the invocations with the events that they begin with, and return those that are paused."""
        paused = set()
        for stored, long_id, status, seq, end_seq, epoch, number in rows:
            try:
                name = read_key(stored, long_id)
            except ValueError as error:
                self._report(place, f"an invocation's id {brief(stored)} cannot be read: {error}", seq)
                continue
            begins, first_no = begun.get(seq, (None, 0))
            if begins != name or not first_no <= number <= self._newest:  # in a fork the note may be the newer one
                self._report(place, f"invocation {brief(name)} is noted to begin here, and does not", seq)
            if status not in InvocationStatus.__members__.values() or not could_end(status, seq, end_seq, revision):
                self._report(place, f"invocation {brief(name)} is {brief(status)} and has ended at {end_seq}", seq)
            if epoch > newest_epoch:
                self._report(place, f"invocation {brief(name)} has the epoch {epoch} of {newest_epoch}", seq)
            if status == InvocationStatus.PAUSED:
                paused.add(name)
        return paused

    def _check_calls(self, place: str, rows: Iterable[Sequence[Any]], fold: LogFold, paused: set[str]) -> None:
        expected, found = fold.calls.calls, set()
        for number, *columns in rows:
            try:
                call = call_of(self._name, columns)
            except StorageCorruptError as error:
                self._report(place, str(error))
                continue
            found.add(call.call_id)
            if not 0 <= number <= self._newest or (number == 0) != (not call.pending):
                self._report(place, f"open call {brief(call.call_id)} has the number {number} of {self._newest}")
            if expected.get(call.call_id) != call:
                self._report(place, f"call {brief(call.call_id)} is noted as open, and is not so at event {call.seq}")
        for call_id, call in expected.items():
            if call_id not in found and call.pending is Pending.WAITS and call.invocation_id in paused:
                self._report(place, f"call {brief(call_id)} is what its paused invocation waits for, and is not noted")

    # --- shared state

    async def _check_shared(self) -> None:
        stored, bases = await self._transaction.run(_SHARED(), _BASES())
        scopes: dict[tuple[str, str], SharedScope] = {}
        for app, user, number, value in bases.rows:
            if problem := base_problem(number, self._newest):
                self._report(scope_place(app, user), problem)
            try:
                scopes[app, user] = SharedScope(base_values(user, number, value), number)
            except (ValueError, TypeError, RecursionError) as error:
                self._report(scope_place(app, user), f"its base cannot be read: {error}")
        for number, (app, user, event) in sorted(self._shared.items()):
            for key, write in writes_of(event.actions).items():
                if scope_of(key) is not Scope.SESSION:
                    self._apply(scopes, (app, shared_user(key, user)), number, key, write)
        found: dict[tuple[str, str], list[Sequence[Any]]] = {}
        for app, user, *row in stored.rows:
            found.setdefault((app, user), []).append(row)
        for scope in sorted(scopes.keys() | found.keys()):
            place, wanted = scope_place(*scope), scopes.get(scope, SharedScope({}, 0))
            values, numbers = self._values(place, found.get(scope, ()))
            self._compare(place, values, {key: dumps(value) for key, value in wanted.values.items()})
            for problem in wanted.number_problems(numbers):
                self._report(place, problem)

    def _apply(
        self, scopes: dict[tuple[str, str], SharedScope], place: tuple[str, str], number: int, key: str, write: Any
    ) -> None:
        scope = scopes.setdefault(place, SharedScope({}, 0))
        if number > scope.base_no:
            try:
                scope.apply(number, key, write)
            except InvalidValueError as error:
                self._report(scope_place(*place), f"event number {number} cannot be applied to it: {error}")
