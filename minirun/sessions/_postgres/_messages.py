"""
The messages that wait for the runs of a session: events in the log whose number is the session's, but negative.

A sender locks the session's row, and then looks for an invocation to send to; the end of a run locks it, and then looks
for messages (`_leases`). So no message comes to an invocation that has just been completed, and none is left.
What takes a message is the append of it, in one statement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..._codec import to_json
from ..._postgres._values import Result, Statement
from ...errors import InvalidValueError
from ...events import Event
from .._key import SessionKey
from .._messages import has_message, message_from_json, received
from ._database import Database
from ._leases import HURRIED_HOLD, End
from ._rows import INVOCATION, corrupt, stored_invocation
from ._schema import UNFINISHED
from ._text import stored_key

__all__ = ["put_message", "record_called", "waiting_messages"]

_HOLD: Final = Statement(
    "hold_for_message",
    "SELECT id FROM minirun.sessions WHERE app_name = $1 AND user_id = $2 AND session_id = $3 FOR NO KEY UPDATE",
    "text text text",
)
_RUNS: Final = Statement(
    "runs_for_message",
    f"""
    SELECT {INVOCATION} FROM minirun.invocations i WHERE i.session = $1 AND (
        i.{UNFINISHED} OR i.invocation_id = $2
        OR i.seq = (SELECT max(n.seq) FROM minirun.invocations n WHERE n.session = $1)
    ) ORDER BY i.seq
    """,
    "int8 text",
)
_PUT: Final = Statement(
    "put_message",
    """
    INSERT INTO minirun.events (log, seq, commit_no, chain, data)
    SELECT -$1, coalesce((SELECT max(seq) FROM minirun.events WHERE log = -$1), 0) + 1, 0, ''::bytea, $2
    """,
    "int8 text",
)
_WAITING: Final = Statement(
    "waiting_messages", "SELECT data FROM minirun.events WHERE log = -$1 ORDER BY seq", "int8"
)
_LATER: Final = Statement(
    "later_messages", "SELECT data FROM minirun.events WHERE log = $1 AND seq > $2 ORDER BY seq", "int8 int8"
)
_EPOCH: Final = Statement(
    "epoch_of_message", "SELECT lease_epoch, lease_owner FROM minirun.sessions WHERE id = $1", "int8"
)


async def put_message(database: Database, key: SessionKey, message: Event) -> bool:
    """
    Let *message* wait, and return True; False if there is no such session.

    Raises:
        InvocationNotFoundError, InvocationEndedError: There is no invocation that it could wait for.
    """
    await database.ready()
    async with database.pool.transaction() as transaction:
        [held] = await transaction.run(_HOLD(key.app_name, key.user_id, key.session_id))
        if not held.rows:
            return False
        [[session]] = held.rows
        named = "" if message.invocation_id is None else stored_key(message.invocation_id)[0]
        [found] = await transaction.run(_RUNS(session, named))
        runs = [stored_invocation(database.name, key, *columns) for columns in found.rows]
        await transaction.run(_PUT(session, to_json(received(key, message, runs))))
    return True


async def waiting_messages(database: Database, session: int) -> list[Event]:
    """
    The messages that wait in a session, in their order.

    Raises:
        StorageCorruptError: One cannot be read.
    """
    [found] = await database.read(_WAITING(session))
    return _events(database, session, found, message_from_json)


def _events(database: Database, session: int, found: Result, read: Callable[[str], Event]) -> list[Event]:
    try:
        return [read(data) for (data,) in found.rows]
    except (InvalidValueError, TypeError) as error:
        raise corrupt(database.name, f"a message of session row {session}: {error}") from error


async def record_called(
    database: Database, end: End, owner: str, *, gives_back: bool, late: bool = False
) -> bool:
    """
    Record that an invocation is completed, which messages may have come to: if none has that it has not taken.

    If one has, return False, and change nothing, where the run of *owner* can take it: it has the session still, and is
    not over, which is *late*. Else it is left: then another run has taken the message over, or will.

    Raises:
        StorageError: Perhaps it is recorded.
    """
    live, name = end.writer.live, end.writer.invocation_id
    session = live.incarnation
    await database.ready()
    async with database.pool.transaction() as transaction:
        _, held, waiting, later = await transaction.run(
            HURRIED_HOLD(session), _EPOCH(session), _WAITING(session), _LATER(session, end.revision)
        )
        waits = has_message(_events(database, session, waiting, message_from_json), name)
        if waits and not late and [tuple(row) for row in held.rows] == [(end.writer.epoch, owner)]:
            live.has_messages = True
            return False
        is_left = waits or has_message(_events(database, session, later, Event.from_json), name)
        await transaction.run(*end.calls(None if is_left else end.status, owner if gives_back else None))
    return True
