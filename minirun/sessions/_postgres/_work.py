"""
Work that many workers share: which of them goes on with what was interrupted, or is due.

A worker looks for what can be resumed, and *claims* as much as it has places for: a row of `claims` for each, which
no other worker can make as long as it counts. It counts until its time is over, or until its worker is gone, as its
sign of life tells (see `_leases`). The first event of the run takes the session's lease, and from there on that
protects it; so a claim need not be renewed. It is given back with the lease. It only spares others from trying: what
makes it safe is the lease.

A worker that leaves runs to others says so on a channel. What it does not say, by dying, is found by polling.

The times of timers stand in the events that hold the calls, and never change; so each worker reads them once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from ..._postgres._listener import Bell
from ..._postgres._values import Statement
from ...flows._questions import SLEEP_UNTIL
from .._calls import OpenCall
from .._invocation import InvocationStatus
from .._key import SessionKey
from .._pending import pending_call
from .._work import Job, Work
from ._leases import WORK
from ._logs import events_of, log_of
from ._rows import CALL, FREE, call_of, corrupt
from ._schema import UNFINISHED, WAITS
from ._text import read_key, stored_key

if TYPE_CHECKING:
    from ._service import DatabaseSessionService

__all__ = ["DatabaseWork"]

# How long a claim counts whose worker lives: to load a session and store one event takes milliseconds, on a busy
# machine seconds. A worker that fails to begin is in nobody's way for longer.
CLAIM_S: Final = 30.0
# So many jobs a worker looks at in one statement, of all that there may be: more than any has places for.
JOBS_MAX: Final = 1_000

# Whether another living worker has claimed the invocation; `$1` is the worker that asks.
_TAKEN: Final = (
    "c.owner <> $1 AND c.until > now() AND NOT pg_try_advisory_xact_lock_shared(hashtextextended(c.owner, 0))"
)
_INTERRUPTED: Final = Statement(
    "interrupted",
    f"""
    SELECT s.app_name, s.user_id, s.session_id, s.id, i.invocation_id, i.name, i.epoch = s.lease_epoch,
        coalesce(s.lease_owner = $1, false)
    FROM minirun.invocations i JOIN minirun.sessions s ON s.id = i.session
    LEFT JOIN minirun.claims c ON c.session = i.session AND c.invocation_id = i.invocation_id
    WHERE i.{UNFINISHED} AND i.status = 'running' AND s.app_name = $2
        AND (i.epoch <> s.lease_epoch OR {FREE}) AND (c.owner IS NULL OR NOT ({_TAKEN}))
    ORDER BY i.commit_no, i.session, i.seq LIMIT {JOBS_MAX}
    """,
    "text text",
)
# A timer is told by its name, which stands in the row's text as JSON has it.
_TIMERS: Final = Statement(
    "timers",
    f"""
    SELECT s.app_name, s.user_id, s.session_id, s.id, {CALL} FROM minirun.open_calls o
    JOIN minirun.sessions s ON s.id = o.session
    WHERE o.{WAITS} AND s.app_name = $1 AND strpos(o.data, '"{SLEEP_UNTIL}"') > 0
    ORDER BY o.pending_no, o.session, o.seq, o.place
    """,
    "text",
)
_MADE_BY: Final = Statement(
    "made_by",
    f"""
    SELECT w.session, w.seq, e.data FROM unnest($1::int8[], $2::int8[]) AS w(session, seq)
    JOIN minirun.events e ON e.log = {log_of("w.session", "w.seq")} AND e.seq = w.seq
    """,
    "int8[] int8[]",
)
# A row of `invocations` that another worker is about to claim is skipped. Who comes just after that finds the claim.
_CLAIM: Final = Statement(
    "claim",
    f"""
    WITH chosen AS (
        SELECT i.session, i.invocation_id
        FROM unnest($3::int8[], $4::text[]) WITH ORDINALITY AS w(session, invocation_id, place)
        JOIN minirun.invocations i ON i.session = w.session AND i.invocation_id = w.invocation_id
        LEFT JOIN minirun.claims c ON c.session = i.session AND c.invocation_id = i.invocation_id
        WHERE i.{UNFINISHED} AND (c.owner IS NULL OR NOT ({_TAKEN}))
        ORDER BY w.place LIMIT $5 FOR NO KEY UPDATE OF i SKIP LOCKED
    )
    INSERT INTO minirun.claims AS c (session, invocation_id, owner, until)
    SELECT session, invocation_id, $1, now() + $2 * interval '1 s' FROM chosen
    ON CONFLICT (session, invocation_id) DO UPDATE SET owner = excluded.owner, until = excluded.until
        WHERE NOT ({_TAKEN})
    RETURNING c.session, c.invocation_id
    """,
    "text float8 int8[] text[] int8",
)
# Claims that are long over are of no use; their workers may have begun, or died.
_SWEEP: Final = Statement("sweep", "DELETE FROM minirun.claims WHERE until < now() - $1 * interval '1 s'", "float8")


class DatabaseWork(Work):
    """The work of one app in a database, for one worker."""

    def __init__(self, service: DatabaseSessionService, app_name: str) -> None:
        super().__init__(service, app_name)
        self._database = service._database
        self._leases = service._leases
        self._bell: Bell | None = None
        self._dues: dict[tuple[int, str, int], float | None] = {}  # of timers: by session, call and event
        self._places: dict[Job, tuple[int, str]] = {}  # where the jobs of the last look are claimed

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Hear of runs that other workers leave."""
        async with self._leases.listener.hearing(WORK) as self._bell:
            yield

    async def wait(self, seconds: float) -> None:
        """Wait for so long, or until another worker has left a run."""
        assert self._bell is not None, "it is watching"
        await self._bell.wait(seconds)

    @trio.lowlevel.enable_ki_protection
    async def look(self, now: float) -> dict[Job, InvocationStatus]:
        """Return what can be resumed now, and is nobody else's, in two round trips or three."""
        with self._service._used():
            owner, app = self._leases.owner, self._app_name
            interrupted, timers = await self._database.read(_INTERRUPTED(owner, app), _TIMERS(app))
            places: dict[Job, tuple[int, str]] = {}
            found = dict.fromkeys(await self._due(timers.rows, now, places), InvocationStatus.PAUSED)
            for app, user, name, session, stored, long_id, is_current, is_mine in interrupted.rows:
                try:
                    invocation_id = read_key(stored, long_id)
                except ValueError as error:
                    raise corrupt(self._database.name, f"an invocation of session row {session}: {error}") from error
                if is_current and is_mine and (session, invocation_id) in self._leases.running:
                    continue  # it runs in this process
                job = (SessionKey(app, user, name), invocation_id)
                found[job] = InvocationStatus.INTERRUPTED
                places[job] = (session, stored)
            self._places = places  # what is claimed is of a look that has ended
            return found

    async def _due(
        self, rows: Sequence[Sequence[Any]], now: float, places: dict[Job, tuple[int, str]]
    ) -> list[Job]:
        """The invocations whose timers are due, what waits longest first; *places* is told where they are claimed."""
        name = self._database.name
        calls: list[tuple[SessionKey, int, OpenCall]] = [
            (SessionKey(app, user, session_id), session, call_of(name, columns))
            for app, user, session_id, session, *columns in rows
        ]
        known = {(session, call.call_id, call.seq): (key, call) for key, session, call in calls}
        new = [place for place in known if place not in self._dues]
        if new:
            sessions, seqs = zip(*sorted({(session, seq) for session, _, seq in new}), strict=True)
            [made] = await self._database.read(_MADE_BY([*sessions], [*seqs]))
            events = {
                (session, seq): events_of(name, session, [(seq, data)], seq, seq + 1)[0][0]
                for session, seq, data in made.rows
            }
            for place in new:
                key, call = known[place]
                event = events.get((place[0], place[2]))
                if event is not None:  # else the session was deleted just now
                    self._dues[place] = pending_call(key, call, event, event).due
        self._dues = {place: due for place, due in self._dues.items() if place in known}
        jobs: list[Job] = []
        for place, (key, call) in known.items():
            due = self._dues.get(place)
            if due is not None and due <= now:
                job = (key, call.invocation_id)
                jobs.append(job)
                places[job] = (place[0], stored_key(call.invocation_id)[0])
        return jobs

    @trio.lowlevel.enable_ki_protection
    async def claim(self, jobs: Sequence[Job], limit: int) -> list[Job]:
        """Claim those of *jobs* that no living worker has claimed, *limit* at most."""
        with self._service._used():
            await self._leases.show_life()
            wanted = {self._places[job]: job for job in jobs if job in self._places}
            sessions, names = [session for session, _ in wanted], [name for _, name in wanted]
            claimed, _ = await self._database.write(
                _CLAIM(self._leases.owner, CLAIM_S, sessions, names, limit), _SWEEP(2 * CLAIM_S)
            )
            mine = {(session, name) for session, name in claimed.rows}
            return [job for place, job in wanted.items() if place in mine]
