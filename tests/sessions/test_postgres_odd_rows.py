"""
Rows of a database that nobody of us has written: who reads one is told what it is, and nothing is shown of it.

What `verify` tells of them, and of what no reader meets, is in test_postgres_verify.py and test_changed_cells.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from minirun import Event
from minirun.errors import StorageCorruptError
from minirun.sessions import DatabaseSessionService, InvocationStatus
from minirun.sessions._postgres._verify import verify_database
from minirun.types import Content, FunctionCall, Part

from ..postgres import new_database
from ..postgres_sessions import keep, restore, sql
from ..stores import HERE, Where, append, begin, enter, get

FORK = Where(app_name="app", user_id="u", session_id="fork")


async def write(url: str) -> None:
    """Three events, state of each scope, a run that waits for an answer, and a fork."""
    async with DatabaseSessionService(url) as service:
        session = await service.create_session(**HERE, state={"k": 1})
        await append(service, session, user_k=1, app_k=1)
        writer = await enter(service)
        await begin(writer)
        asked = Content(role="model", parts=[Part(function_call=FunctionCall(id="c", name="ask"))])
        event = Event(author="a", content=asked, invocation_id="e-1", long_running_tool_ids=["c"])
        await writer.append(event)
        await writer.finish(InvocationStatus.PAUSED)
        await service.fork_session(**HERE, at_seq=1, new_session_id="fork")


@pytest.fixture(scope="module")
def kept() -> str:
    url = new_database()
    trio.run(write, url)
    keep(url)
    return url


@pytest.fixture
def url(kept: str) -> str:
    """The database as it was written."""
    restore(kept)
    return kept


Use = Callable[[DatabaseSessionService], Awaitable[object]]


async def look(service: DatabaseSessionService) -> object:
    return await get(service)


async def fork(service: DatabaseSessionService) -> object:
    return await service.fork_session(**HERE, new_session_id="new")


async def fork_of_the_past(service: DatabaseSessionService) -> object:
    return await service.fork_session(**HERE, at_seq=1, new_session_id="new")


async def listed(service: DatabaseSessionService) -> object:
    return await service.list_invocations()


async def pending(service: DatabaseSessionService) -> object:
    return await service.list_pending()


async def of_user(service: DatabaseSessionService) -> object:
    return await service.get_user_state(app_name="app", user_id="u")


async def work(service: DatabaseSessionService) -> object:
    return await service._work("app").look(1e9)


END = 2**62
"""No number comes so far."""
NUMBERS = "session row 1 has the numbers"
ROWS: dict[str, tuple[str, Use, str]] = {
    "a revision below 0": ("UPDATE minirun.sessions SET revision = -1", look, f"{NUMBERS} -1, 1 and 0"),
    "the last revision": (f"UPDATE minirun.sessions SET revision = {END}", look, f"{NUMBERS} {END}, 1 and 0"),
    "an epoch below 0": ("UPDATE minirun.sessions SET lease_epoch = -1", look, f"{NUMBERS} 3, -1 and 0"),
    "the last epoch": (f"UPDATE minirun.sessions SET lease_epoch = {END}", look, f"{NUMBERS} 3, {END} and 0"),
    "a compaction below 0": ("UPDATE minirun.sessions SET compaction = -1", look, f"{NUMBERS} 3, 1 and -1"),
    "a compaction to come": ("UPDATE minirun.sessions SET compaction = 4", look, f"{NUMBERS} 3, 1 and 4"),
    "a compaction that is none": (
        "UPDATE minirun.sessions SET compaction = 3 WHERE id = 1", look, "the compaction at event 3 of session row 1",
    ),
    "an event that is missing": (
        "DELETE FROM minirun.events WHERE seq = 2", look, "the events 1 to 3 of session row 1 are not all there",
    ),
    "an operation that does not fit": (
        "UPDATE minirun.events SET data = replace(data, '\"actions\":{', '\"actions\":{\"state_ops\":'"
        " || '{\"k\":{\"extend\":[1]}},') WHERE seq = 1", fork_of_the_past,
        "up to event 1: state['k']: `extend` expects a list",
    ),
    "the newest event is missing": (
        "DELETE FROM minirun.events WHERE seq = 3", fork, "the event 3 of log 1",
    ),
    "the newest event is none": (
        "UPDATE minirun.events SET data = '[]' WHERE seq = 3", fork, "the event 3 of log 1",
    ),
    "a value that is no JSON": (
        "UPDATE minirun.session_state SET value = '{' WHERE session = 1", look, "the value of state key 'k'",
    ),
    "a key of another scope": (
        "UPDATE minirun.session_state SET key = '=user:k' WHERE session = 1", look,
        "a state key of the session is '=user:k'",
    ),
    "a key that is written in another way": (
        r"UPDATE minirun.session_state SET key = '=\u006b' WHERE session = 1", look, "a state key of the session is",
    ),
    "a key of the app's that is the user's": (
        "UPDATE minirun.shared_state SET key = '=user:k' WHERE user_id = ''", look,
        "a state key of the app is '=user:k'",
    ),
    "a key of the user's that is the session's": (
        "UPDATE minirun.shared_state SET key = '=k' WHERE user_id = 'u'", look, "a state key of the user is '=k'",
    ),
    "a value of the user's that is no JSON": (
        "UPDATE minirun.shared_state SET value = 'x' WHERE user_id = 'u'", of_user, "the value of state key 'user:k'",
    ),
    "a key of another user's": (
        "UPDATE minirun.shared_state SET key = '=app:k' WHERE user_id = 'u'", of_user, "a state key of the user is",
    ),
    "a call without fields": (
        "UPDATE minirun.open_calls SET data = '[]'", look, "the open call '=c' cannot be read",
    ),
    "a call of another id": (
        "UPDATE minirun.open_calls SET call_id = '=d'", look,
        "the open call '=d' cannot be read: it is of another call",
    ),
    "a call of no invocation": (
        """UPDATE minirun.open_calls SET data = '["c","ask",7,"a",null]'""", pending,
        "the open call '=c' cannot be read: it is of another call",
    ),
    "a call that waits somehow": (
        "UPDATE minirun.open_calls SET pending = 'soon'", look, "the open call '=c' cannot be read: 'soon'",
    ),
    "a call whose event is gone": (
        "DELETE FROM minirun.events WHERE seq = 3", pending, "the events 3 to 3 of session row 1 are not all there",
    ),
    "an invocation of another status": (
        "UPDATE minirun.invocations SET status = 'lost'", listed,
        "an invocation of session 's' has the status 'lost', id '=e-1'",
    ),
    "an invocation of another id": (
        "UPDATE minirun.invocations SET invocation_id = 'e'", listed,
        "an invocation of session 's' has the status 'paused', id 'e'",
    ),
    "an invocation of another id that is to go on": (
        "UPDATE minirun.invocations SET invocation_id = 'e', status = 'running'", work,
        "an invocation of session row 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS)
async def test_a_row_that_we_never_write_is_damage(case: str, url: str) -> None:
    """Who reads it gets a StorageCorruptError that says what stands there; `verify` tells of it, too."""
    statement, use, words = ROWS[case]
    sql(url, statement)
    async with DatabaseSessionService(url) as service:
        with pytest.raises(StorageCorruptError) as caught:
            await use(service)
        assert words in str(caught.value)
        assert str(caught.value).endswith("; restore a backup")
        assert await verify_database(service) != []


async def test_the_last_numbers_that_there_can_be_are_sound(url: str) -> None:
    """A lease may have been taken as often as there are numbers; who takes it then has none left."""
    sql(url, f"UPDATE minirun.sessions SET lease_epoch = {END - 1}")
    async with DatabaseSessionService(url) as service:
        assert (await get(service)).revision == 3
        assert await verify_database(service) == []


async def test_a_session_is_read_as_long_as_its_own_rows_are_sound(url: str) -> None:
    """Damage to one session, or to its newest event, is none to a fork that shows only its past."""
    sql(url, "DELETE FROM minirun.events WHERE seq > 1", "UPDATE minirun.sessions SET compaction = 9 WHERE id = 1")
    async with DatabaseSessionService(url) as service:
        events = await service.read_events(**FORK)
        assert [(event.seq, event.text) for event in events] == [(0, ""), (1, "x")]
        await append(service, await get(service, "fork"), "on")
