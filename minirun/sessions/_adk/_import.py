"""
Taking over what ADK has stored, session by session, into any session service.

Each session comes as a whole or not at all. One that is there already is left as it is; so an import that was cut off
is simply begun again. Shared values (`user:`, `app:`) that the target has already stay as they are: it may have been
used since. The others are written by a session that is made for it and deleted, so that they stand where values stand
whose events are gone: in the base of their scope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from ...errors import AlreadyExistsError, InvalidEventError, InvalidValueError, NotSupportedError
from ...events import Event, EventActions
from .._key import session_key
from .._service import BaseSessionService
from ._events import IMPORTER, history_of
from ._tables import AdkTables, opened, shared_values

__all__ = ["Imported", "import_adk"]

# The session that writes shared values. One that a killed import has left is deleted by the next.
SCRATCH: Final = "minirun-import-adk"

Place = tuple[str, str, str]


@attrs.define
class Imported:
    """What has come of an import."""

    sessions: int = 0
    events: int = 0
    """Those of ADK's logs."""
    present: list[Place] = attrs.Factory(list)
    """Sessions that were there already, and were left as they are."""
    refused: dict[Place, str] = attrs.Factory(dict)
    """Sessions that cannot be stored here, and why."""


async def import_adk(
    service: BaseSessionService, place: Path | str, *, told: Callable[[int, int], None] = lambda done, all: None
) -> Imported:
    """
    Take over all sessions of ADK's tables at *place*, a SQLite file or the URL of a Postgres database.

    *told* is called with how many sessions were looked at, and how many there are.

    Raises:
        StorageFormatError: There are no such tables, or they have pickles in them.
        StorageError: They cannot be read, or the target cannot be written. What was taken over until then stays.
    """
    result = Imported()
    async with opened(place, service.env) as tables:
        sessions = await tables.sessions()
        await _import_shared(service, tables, sessions, result)
        for number, each in enumerate(sessions, 1):
            await _import_session(service, tables, each, result)
            told(number, len(sessions))
    return result


async def _import_session(service: BaseSessionService, tables: AdkTables, place: Place, result: Imported) -> None:
    app, user, name = place
    try:
        key = session_key(app, user, name)
        stored = await tables.session(place)
        history = history_of(stored, "\0".join(place))
        await service.import_session(
            app_name=key.app_name, user_id=key.user_id, session_id=key.session_id, events=history
        )
    except AlreadyExistsError:
        result.present.append(place)
    except (InvalidValueError, InvalidEventError, NotSupportedError) as error:
        result.refused[place] = str(error)
    else:
        result.sessions += 1
        result.events += len(stored.events)


async def _import_shared(
    service: BaseSessionService, tables: AdkTables, sessions: list[Place], result: Imported
) -> None:
    """Write the shared values that the target does not have."""
    shared = await tables.shared()
    for (app, user), state in shared.items():
        # Those of an app are written by a session of any user, of one that has some, if there is one.
        writer = user or next((other for of, other, _ in sessions if of == app), IMPORTER)
        try:
            values = shared_values(app, user, state)
            if values:
                await _write_shared(service, app, writer, values)
        except (InvalidValueError, InvalidEventError) as error:
            result.refused[app, user, ""] = str(error)


async def _write_shared(service: BaseSessionService, app: str, user: str, values: Mapping[str, Any]) -> None:
    place = {"app_name": app, "user_id": user, "session_id": SCRATCH}
    await service.delete_session(**place)
    session = await service.create_session(app_name=app, user_id=user, session_id=SCRATCH)
    try:
        missing = {key: value for key, value in values.items() if key not in session.state}
        if missing:
            await service.append_event(session, Event(author=IMPORTER, actions=EventActions(state_delta=missing)))
    finally:
        await service.delete_session(**place)
