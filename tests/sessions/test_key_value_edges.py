"""Facts about what a service over a store of one's own has in memory, and whether that is what is stored."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
import trio

from minirun import Event
from minirun.errors import (
    AlreadyExistsError,
    SessionNotFoundError,
    StaleSessionError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageUncertainError,
)
from minirun.events import EventActions
from minirun.sessions import BaseSessionService, InvocationStatus, KeyValueSessionService
from minirun.sessions._live import LiveSession

from ..stores import HERE, KEY, append, begin, enter, get, texts
from .test_key_value_store import Failing, InMemory
from .test_places import answers, asks, run
from .test_run_ends import send

OTHER: Any = {"app_name": "app", "user_id": "u", "session_id": "t"}


class Watched(InMemory):
    """A store that notes what is read, and in which something may happen right after a look."""

    def __init__(self, values: dict[str, str] | None = None) -> None:
        super().__init__(values)
        self.reads: list[str] = []
        self.meanwhile: dict[str, Callable[[], Awaitable[object]]] = {}

    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        self.reads.append(first)
        found = await super().read(first, end, limit)
        happens = self.meanwhile.pop(first, None)
        if happens is not None:
            await happens()
        return found


def entries_of(values: dict[str, str], *kinds: str) -> list[str]:
    return [name for name in values if name.startswith(kinds)]

# --- messages that wait -----------------------------------------------------------------------------------------------


async def live_of(service: BaseSessionService) -> LiveSession:
    live = await service._open(KEY, None)
    assert live is not None
    return live


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_session_knows_of_messages_until_the_last_is_taken(is_kept: bool) -> None:
    """Whether it was in memory when they came or is read later, and until no other one waits."""
    values: dict[str, str] = {}
    service = KeyValueSessionService(InMemory(values))
    await service.create_session(**HERE)
    await run(service, KEY, asks("e-1"))
    kept = await live_of(service)
    assert not kept.has_messages
    for name in ("m-1", "m-2"):
        await send(service, name, "e-1")
    assert kept.has_messages
    if not is_kept:
        service = KeyValueSessionService(InMemory(values))
    writer = await enter(service)
    assert writer.live.has_messages
    await begin(writer)
    first, second = await service._messages(writer.live)
    await writer.append(first)
    assert writer.live.has_messages
    await writer.append(second)
    assert not writer.live.has_messages
    await writer.finish(InvocationStatus.COMPLETED)
    assert entries_of(values, "message/") == []


async def test_a_message_to_a_run_that_waits_for_nobody_wakes_nobody() -> None:
    """Supervisors are told of those that wait where a call waits; whoever runs takes its own."""
    service = KeyValueSessionService(InMemory())
    await service.create_session(**HERE)
    writer = await enter(service)
    await begin(writer)
    await send(service, "m-1", "e-1")
    assert await service._called("app") == []


async def test_a_message_that_cannot_be_read_is_named() -> None:
    """As any other entry of a store."""
    values: dict[str, str] = {}
    service = KeyValueSessionService(InMemory(values))
    await service.create_session(**HERE)
    await run(service, KEY, asks("e-1"))
    await send(service, "m-1", "e-1")
    [name] = entries_of(values, "message/")
    sent = json.loads(values[name])
    without = [{key: found for key, found in sent.items() if key != left} for left in ("invocation_id", "actions")]
    for text in ("?", "[]", *map(json.dumps, without)):
        values[name] = text
        with pytest.raises(StorageCorruptError, match=f"the entry '{name}' cannot be read"):
            await service._called("app")


# --- the first use of a store -----------------------------------------------------------------------------------------

FIRST: dict[str, Callable[[BaseSessionService], Awaitable[object]]] = {
    "fork": lambda service: service.fork_session(**HERE, new_session_id="t"),
    "create": lambda service: service.create_session(**OTHER),
    "message": lambda service: send(service, "m-1", "e-1"),
    "delete": lambda service: service._delete(KEY),
    "open": lambda service: service._open(KEY, None),
}


@pytest.mark.parametrize("use", FIRST)
async def test_whatever_a_service_does_first_it_has_the_store_then(use: str) -> None:
    """The one that had it before stores nothing more, and says so."""
    values: dict[str, str] = {}
    former, latter = KeyValueSessionService(InMemory(values)), KeyValueSessionService(InMemory(values))
    await former.create_session(**HERE)
    await run(former, KEY, asks("e-1"))
    session = await get(former)
    await FIRST[use](latter)
    with pytest.raises(StaleSessionError, match="make a new service"):
        await append(former, session)
    assert [*former._cache.sessions] == []
    with pytest.raises(StaleSessionError, match="make a new service"):
        await former.create_session(**HERE)
    if use != "create":
        await latter.create_session(app_name="app", user_id="u", session_id="new")


async def test_a_store_is_written_by_one_call_at_a_time() -> None:
    """Whatever a service is asked for at once: a store need not think of two writes that overlap."""
    at_work = [0, 0]

    class Alone(InMemory):
        async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
            at_work[0] += 1
            at_work[1] = max(at_work)
            await trio.lowlevel.checkpoint()
            at_work[0] -= 1
            return await super().write(changes, owner=owner)

    service = KeyValueSessionService(Alone())
    async with trio.open_nursery() as nursery:
        for number in range(5):
            place: Any = {"app_name": "app", "user_id": "u", "session_id": str(number)}
            nursery.start_soon(lambda place: service.create_session(**place), place)
    assert at_work == [0, 1]
    assert len((await service.list_sessions(app_name="app")).sessions) == 5


async def test_two_forks_at_once_do_not_get_one_name() -> None:
    """The second one is told that there is such a session already."""

    class Takes(InMemory):
        async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
            await trio.lowlevel.checkpoint()
            return await super().read(first, end, limit)

    service = KeyValueSessionService(Takes())
    await service.create_session(**HERE)
    ends: list[bool] = []

    async def fork() -> None:
        try:
            await service.fork_session(**HERE, new_session_id="t")
        except AlreadyExistsError:
            ends.append(False)
        else:
            ends.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fork)
        nursery.start_soon(fork)
    assert sorted(ends) == [False, True]


async def test_sessions_of_two_stores_do_not_wait_for_each_other() -> None:
    """Also if they have one place: a run in the one is not in the way of a run in the other."""
    one, two = KeyValueSessionService(InMemory()), KeyValueSessionService(InMemory())
    writers = []
    for service in (one, two):
        await service.create_session(**HERE)
        writers.append(await enter(service, reject=True))
    for writer in writers:
        await writer.finish(None)


# --- what is not read again -------------------------------------------------------------------------------------------


async def test_what_a_service_has_made_or_read_is_not_read_again() -> None:
    """New sessions, forks, and sessions that were read once, with the state that they share."""
    store = Watched()
    service = KeyValueSessionService(store)
    await service.create_session(**HERE, state={"user:n": 1})
    await get(service)
    store.reads.clear()
    await service.fork_session(**HERE, new_session_id="f")
    assert [name.rstrip("\0") for name in store.reads].count("session/app/u/f") == 1
    store.reads.clear()
    for name in ("s", "f"):
        await append(service, await get(service, name), "again")
    assert store.reads == []
    await service.create_session(**OTHER)
    assert [name for name in store.reads if name.startswith(("user/", "app/"))] == []
    store.reads.clear()
    session = await get(service)
    assert await service.read_events(**HERE, after_seq=session.revision) == []
    assert await service.read_events(**HERE, after_seq=session.revision + 5) == []
    assert [name for name in store.reads if name.startswith("event/")] == []
    with pytest.raises(SessionNotFoundError):
        await service.read_events(app_name="app", user_id="u", session_id="none")


async def test_a_run_that_is_not_kept_in_memory_is_looked_for_once() -> None:
    """After everything was forgotten its next append finds it current, and the one after asks nothing."""
    store = Watched()
    service = KeyValueSessionService(store)
    await service.create_session(**HERE)
    writer = await enter(service)
    await begin(writer)
    service._forget()
    await writer.append(Event(author="a", message="one", invocation_id="e-1"))
    store.reads.clear()
    await writer.append(Event(author="a", message="two", invocation_id="e-1"))
    assert store.reads == []
    await writer.finish(InvocationStatus.COMPLETED)
    assert texts(await get(service)) == ["hi", "one", "two"]


async def test_a_session_of_one_event_more_is_the_same_history() -> None:
    """What was appended by one service is gone on with by the next one over the same store."""
    values: dict[str, str] = {}
    first = KeyValueSessionService(InMemory(values))
    session = await first.create_session(**HERE)
    await append(first, session, "one")
    await append(first, session, "two")
    second = KeyValueSessionService(InMemory(values))
    await append(second, session, "three")
    assert texts(await get(second)) == ["one", "two", "three"]


# --- what is read again -----------------------------------------------------------------------------------------------


async def test_what_was_removed_by_a_write_of_unknown_end_is_gone() -> None:
    """State that sessions share is read again as a whole: what was removed there is removed here."""
    store = Failing()
    service = KeyValueSessionService(store)
    await service.create_session(**HERE, state={"user:n": 1, "app:n": 1})
    session = await service.create_session(**OTHER)
    writer = await enter(service)
    store.after = OSError("the cable")
    removes = Event(author="a", message="x", actions=EventActions(state_removed=["user:n", "app:n"]))
    with pytest.raises(StorageError, match="the cable"):
        await service.append_event(session, removes)
    store.after = None
    assert (await get(service, "t")).state == {}
    assert dict(writer.live.values.user) == dict(writer.live.values.app) == {}
    await writer.finish(None)


async def test_a_run_adds_to_what_another_session_has_stored_after_all() -> None:
    """A run goes on from the shared state that is stored, not from what its service had in memory."""
    store = Failing()
    service = KeyValueSessionService(store)
    await service.create_session(**HERE)
    other = await service.create_session(**OTHER)
    writer = await enter(service)
    await begin(writer)
    store.after = OSError("the cable")
    with pytest.raises(StorageError, match="the cable"):
        await append(service, other, "x", user_n=5)
    store.after = None
    adds = EventActions(state_ops={"user:n": {"add": 1}})
    await writer.append(Event(author="a", message="y", invocation_id="e-1", actions=adds))
    await writer.finish(InvocationStatus.COMPLETED)
    assert (await get(service)).state == {"user:n": 6}
    assert (await get(KeyValueSessionService(InMemory(store.values)))).state == {"user:n": 6}


async def test_a_write_that_arrives_late_is_refused() -> None:
    """One that failed for its service may be on its way: nobody finds it behind what was stored since."""
    kept: list[tuple[Mapping[str, str | None], tuple[str, str | None]]] = []

    class Late(InMemory):
        is_slow = False

        async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
            if self.is_slow:
                kept.append((changes, owner))
                raise OSError("no answer")
            return await super().write(changes, owner=owner)

    store = Late()
    service = KeyValueSessionService(store)
    session = await service.create_session(**HERE)
    store.is_slow = True
    with pytest.raises(StorageError, match="no answer"):
        await append(service, session, "late")
    store.is_slow = False
    await append(service, await get(service), "in time")
    [(changes, owner)] = kept
    assert await store.write(changes, owner=owner) is False
    assert texts(await get(KeyValueSessionService(store))) == ["in time"]


async def test_a_store_is_taken_over_again_only_if_nobody_knows_what_was_written() -> None:
    """A refusal that says that nothing was stored leaves the owner as it is; one that leaves it open does not."""
    store = Failing()
    service = KeyValueSessionService(store)
    session = await service.create_session(**HERE)
    owner = store.values["minirun"]
    store.before = StorageFullError("no room left")
    with pytest.raises(StorageFullError):
        await append(service, session, "refused")
    store.before = None
    await append(service, session, "one")
    assert store.values["minirun"] == owner
    store.after = StorageUncertainError("the cable")
    with pytest.raises(StorageUncertainError, match="the cable"):
        await append(service, session, "two")
    store.after = None
    assert texts(await get(service)) == ["one", "two"]
    assert store.values["minirun"] != owner


async def test_a_store_that_was_emptied_is_begun_anew() -> None:
    """If nobody else has it, whatever became of the write before."""
    store = Failing()
    service = KeyValueSessionService(store)
    session = await service.create_session(**HERE)
    store.before = OSError("the cable")
    with pytest.raises(StorageError, match="the cable"):
        await append(service, session)
    store.before = None
    store.values.clear()
    await append(service, await service.create_session(**HERE), "new")
    assert texts(await get(service)) == ["new"]


# --- how runs begin and end -------------------------------------------------------------------------------------------


async def test_the_end_of_a_run_is_recorded_after_a_write_that_failed() -> None:
    """The store is the service's own again, whoever asks first."""
    store = Failing()
    service = KeyValueSessionService(store)
    await service.create_session(**HERE)
    writer = await enter(service)
    await begin(writer)
    store.before = OSError("the cable")
    with pytest.raises(StorageError, match="the cable"):
        await writer.append(Event(author="a", message="lost", invocation_id="e-1"))
    store.before = None
    assert await writer.finish(InvocationStatus.FAILED) is True
    assert [run.status for run in await service.list_invocations()] == ["failed"]


async def test_a_run_that_is_cancelled_records_its_end() -> None:
    """The store is asked all the same."""
    service = KeyValueSessionService(InMemory())
    await service.create_session(**HERE)
    writer = await enter(service)
    await begin(writer)
    assert [run.status for run in await service.list_invocations()] == ["running"]
    with trio.CancelScope() as scope:
        scope.cancel()
        await writer.finish(InvocationStatus.CANCELLED)
    assert [run.status for run in await service.list_invocations()] == ["cancelled"]


async def test_a_run_whose_store_is_somebody_elses_ends_quietly() -> None:
    """Its new owner lists it as interrupted."""
    values: dict[str, str] = {}
    former, latter = KeyValueSessionService(InMemory(values)), KeyValueSessionService(InMemory(values))
    await former.create_session(**HERE)
    writer = await enter(former)
    await begin(writer)
    await get(latter)
    assert await writer.finish(InvocationStatus.COMPLETED) is True
    assert [run.status for run in await latter.list_invocations()] == ["interrupted"]


async def test_a_session_that_is_deleted_leaves_nothing_but_what_others_share() -> None:
    """Neither its events nor its runs, questions and messages."""
    values: dict[str, str] = {}
    service = KeyValueSessionService(InMemory(values))
    await service.create_session(**HERE, state={"user:n": 1})
    await run(service, KEY, asks("e-1"))
    await send(service, "m-1", "e-1")
    assert len(entries_of(values, "event/", "run/", "wait/", "message/")) == 5
    await service.delete_session(**HERE)
    assert sorted(values) == ["minirun", "next", "user/app/u/n"]


async def test_a_question_that_ends_while_it_is_looked_for_is_not_listed() -> None:
    """Neither one that is answered just now, nor one whose session is deleted."""
    store = Watched()
    service = KeyValueSessionService(store)
    names = ("s", "t", "left")
    for name in names:
        await service.create_session(app_name="app", user_id="u", session_id=name)
        await run(service, type(KEY)("app", "u", name), asks("e-1"))
    assert [call.session_id for call in await service.list_pending()] == [*names]

    async def happens() -> None:
        await service._delete(KEY)
        await run(service, type(KEY)("app", "u", "t"), answers("e-1"))

    store.meanwhile["wait/"] = happens
    assert [call.session_id for call in await service.list_pending()] == ["left"]


async def test_an_app_is_not_another_one_whose_name_begins_so() -> None:
    """Its sessions are listed without those of its neighbours in the order of keys."""
    service = KeyValueSessionService(InMemory())
    for app in ("app", "app0", "app-1", "app_", "apq"):
        await service.create_session(app_name=app, user_id="u", session_id="s", state={"app:n": app})
    for app in ("app", "app0", "app-1"):
        [found] = (await service.list_sessions(app_name=app)).sessions
        assert found.app_name == app
    service._forget()
    assert (await get(service)).state == {"app:n": "app"}


# --- pages that are none ----------------------------------------------------------------------------------------------

ODD_PAGES: dict[str, Callable[[str, str], Any]] = {
    "nothing": lambda first, end: None,
    "a mapping": lambda first, end: {first: "x"},
    "a set": lambda first, end: {(first, "x")},
    "a number": lambda first, end: [5],
    "a mapping in it": lambda first, end: [{first: "x", first + "0": "x"}],
    "one text": lambda first, end: [(first,)],
    "no text": lambda first, end: [(first, 5)],
    "no key": lambda first, end: [(5, "x")],
    "the end": lambda first, end: [(end, "x")],
    "before": lambda first, end: [(first[:-1], "x")],
}


@pytest.mark.parametrize("odd", ODD_PAGES)
async def test_a_page_of_another_form_is_refused(odd: str) -> None:
    """What a `read` returns is looked at before anything is made of it."""

    class Odd(InMemory):
        async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
            return ODD_PAGES[odd](first, end)  # type: ignore[no-any-return]  # that is the point

    expected = r"expected Odd\.read to return at most 1 entries with 'session/app/u/s"
    with pytest.raises(StorageCorruptError, match=expected):
        await KeyValueSessionService(Odd()).read_events(**HERE)
