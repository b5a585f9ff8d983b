"""
Facts about sessions in a store of one's own: two methods are enough, and what they do wrong is told.

The store is the one of examples/own_store.py, made of public names only.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from examples.own_store import JsonLines
from minirun import (
    BaseAgent,
    Env,
    Event,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Runner,
    Session,
    SqliteSessionService,
)
from minirun.errors import (
    ConfigurationError,
    MinirunError,
    StaleSessionError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
)
from minirun.events import EventActions
from minirun.sessions import InvocationStatus, KeyValueSessionService, KeyValueStore
from minirun.testing import ScriptedLlm, check_session_service, session_service_checks

from ..fork_server import program, run
from ..kept_open import keeps
from ..stores import HERE, append, begin, enter, get, texts


class InMemory(KeyValueStore):
    """The smallest store: a dict that outlives its services."""

    def __init__(self, values: dict[str, str] | None = None) -> None:
        self.values = {} if values is None else values

    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return sorted(entry for entry in self.values.items() if first <= entry[0] < end)[:limit]

    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        if self.values.get(owner[0]) != owner[1]:
            return False
        for key, value in changes.items():
            self.values.pop(key, None)
            if value is not None:
                self.values[key] = value
        return True


class Failing(InMemory):
    """A store whose methods fail on demand: before it stores, or after."""

    before: Exception | None = None
    after: Exception | None = None
    reading: Exception | None = None

    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        if self.reading is not None:
            raise self.reading
        return await super().read(first, end, limit)

    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        if self.before is not None:
            raise self.before
        done = await super().write(changes, owner=owner)
        if self.after is not None:
            raise self.after
        return done


# --- the contract -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache_bytes", [2**20, 0], ids=["cached", "read again each time"])
async def test_a_store_of_two_methods_keeps_the_contract(cache_bytes: int, tmp_path: Path) -> None:
    """Each check of the public contract holds over the example's store, reopened as often as a check likes."""

    def opened() -> KeyValueSessionService:
        return KeyValueSessionService(JsonLines(tmp_path / "sessions.jsonl"), cache_bytes=cache_bytes)

    await keeps(opened, session_service_checks, durable=True)


class Unsorted(InMemory):
    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return (await super().read(first, end, 10**9))[::-1][:limit]


class IgnoresTheEnd(InMemory):
    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return await super().read(first, "~", limit)


class KeepsWhatIsRemoved(InMemory):
    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        return await super().write({key: value for key, value in changes.items() if value is not None}, owner=owner)


class StoresHalf(InMemory):
    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        return await super().write(dict(list(changes.items())[:20]), owner=owner)


class LosesSpaces(InMemory):
    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        changed = {key: value and value.replace(" ", "") for key, value in changes.items()}
        return await super().write(changed, owner=owner)


@pytest.mark.parametrize("store", [KeepsWhatIsRemoved, StoresHalf, LosesSpaces])
async def test_the_contract_finds_a_broken_store(store: type[InMemory]) -> None:
    """A store with a plausible mistake fails the public contract."""
    values: dict[str, str] = {}
    with pytest.raises((AssertionError, MinirunError)) as caught:
        await check_session_service(lambda: KeyValueSessionService(store(values)), durable=True)
    assert "this breaks the session service's promise" in caught.value.__notes__[-1]


class ReturnsRows(InMemory):
    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return [(key, value, "") for key, value in await super().read(first, end, limit)]  # type: ignore[misc]


class IgnoresTheLimit(InMemory):
    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return await super().read(first, end, 10**9)


@pytest.mark.parametrize("store", [Unsorted, IgnoresTheEnd, IgnoresTheLimit, ReturnsRows])
async def test_a_page_that_was_not_asked_for_is_refused(store: type[InMemory]) -> None:
    """A `read` that gives what it should not is told what it should give, before anything is made of it."""
    values: dict[str, str] = {}
    service = KeyValueSessionService(InMemory(values))
    session = await service.create_session(**HERE, state={"user:a": 1, "user:b": 1})
    for number in range(600):
        session_id = f"s{number}"
        values[f"session/app/u/{session_id}"] = values["session/app/u/s"]
    await append(service, session)
    with pytest.raises(StorageCorruptError, match=rf"expected {store.__name__}\.read to return at most"):
        broken = KeyValueSessionService(store(values))
        await broken.list_sessions(app_name="app")
        await get(broken)


async def test_a_write_that_forgets_to_say_whether_is_refused() -> None:
    """A `write` without `return` is told so, not taken for a store that somebody else owns."""

    class Forgets(InMemory):
        async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
            await super().write(changes, owner=owner)
            return None  # type: ignore[return-value]  # that is the point

    with pytest.raises(StorageError, match=r"expected Forgets\.write to return True or False, found None"):
        await KeyValueSessionService(Forgets()).create_session(**HERE)


# --- runs -------------------------------------------------------------------------------------------------------------


class Asks(BaseAgent):
    """Asks for a number, and adds one to it."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        number = await ctx.request_input("Which number?", response_schema=int)
        await ctx.emit(Event(message=f"{number + 1}", state={"user:last": number}))


async def test_a_run_waits_for_an_answer_in_another_process_over_ones_own_store() -> None:
    """A question that one service has stored is listed, answered and gone on with by the next one."""
    values: dict[str, str] = {}
    async with KeyValueSessionService(InMemory(values)) as sessions:
        runner = Runner(app_name="app", agent=Asks(name="asks"), session_service=sessions, auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()
    async with KeyValueSessionService(InMemory(values)) as sessions:
        [pending] = await sessions.list_pending()
        [waiting] = await sessions.list_invocations(status="paused")
        assert pending.invocation_id == waiting.invocation_id
        runner = Runner(app_name="app", agent=Asks(name="asks"), session_service=sessions)
        async with runner.run_async(user_id="u", session_id="s", new_message=pending.reply(4)) as run:
            last = await run.wait()
            assert last is not None
            assert last.text == "5"
        assert [found.status for found in await sessions.list_invocations()] == ["completed"]
        assert await sessions.list_pending() == []
        assert (await get(sessions)).state == {"user:last": 4}


PROGRAM = """
import os, signal, sys
from pathlib import Path
import trio
from examples.own_store import JsonLines
from minirun import BaseAgent, Event, Runner
from minirun.sessions import KeyValueSessionService

class Order(BaseAgent):
    async def _run_async_impl(self, ctx):
        await ctx.step("charge", print, "charged", flush=True)
        if sys.argv[2] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        await ctx.step("ship", print, "shipped", flush=True)
        await ctx.emit(Event(message="done"))

async def main():
    async with KeyValueSessionService(JsonLines(Path(sys.argv[1]))) as sessions:
        runner = Runner(app_name="app", agent=Order(name="order"), session_service=sessions, auto_create_session=True)
        place = {"user_id": "u", "session_id": "s"}
        if sys.argv[2] == "die":
            run = runner.run_async(**place, new_message="3 pens")
        else:
            [left] = await sessions.list_invocations(status="interrupted")
            run = runner.run_async(**place, invocation_id=left.invocation_id)
        async with run as events:
            print((await events.wait()).text)
        print(*[found.status.value for found in await sessions.list_invocations()])

trio.run(main)
"""


@pytest.mark.parametrize("cut", [0, 1, 30], ids=["as it was left", "without its newline", "torn"])
def test_a_killed_run_goes_on_over_ones_own_store(cut: int, tmp_path: Path) -> None:
    """What is stored when a process is killed is not done again by the next one; a torn line at the end is none."""
    path = tmp_path / "sessions.jsonl"

    def ran(how: str) -> tuple[int, str]:
        done = run(program(PROGRAM, path, how))
        return done.returncode, done.stdout + done.stderr

    assert ran("die") == (-signal.SIGKILL, "charged\n")
    if cut:  # the record of the charge is lost, and so it is done again, with the same key
        path.write_bytes(path.read_bytes()[:-cut])
    assert ran("go on") == (0, ("charged\n" if cut else "") + "shipped\ndone\ncompleted\n")


# --- what runs do not ask ---------------------------------------------------------------------------------------------


class Audits(InMemorySessionService):
    """An audit that would not be told of runs."""

    async def append_event(self, session: Session, event: Event) -> Event:
        return await super().append_event(session, event)


class Filters(SqliteSessionService):
    """A filter that runs would not go through."""

    async def get_session(self, **place: Any) -> Session | None:
        return await super().get_session(**place)


class Counts(InMemorySessionService):
    """What runs do call can be overridden: they make their sessions by it."""

    made = 0

    async def create_session(self, **place: Any) -> Session:
        self.made += 1
        return await super().create_session(**place)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Audits(), "Audits overrides append_event, which runs do not call; .*on_event_callback"),
        (lambda: Filters(":memory:"), "Filters overrides get_session, .*get_session_config"),
    ],
)
def test_a_runner_refuses_an_override_that_runs_would_not_ask(make: Callable[[], Any], words: str) -> None:
    """An override of what runs do not call is refused when the Runner is made, with what to use instead."""
    agent = LlmAgent(name="a", model=ScriptedLlm([]))
    with pytest.raises(ConfigurationError, match=words):
        Runner(app_name="app", agent=agent, session_service=make())
    service = InMemorySessionService()
    service.append_event = Audits().append_event  # type: ignore[method-assign]  # as a patch of an instance does
    with pytest.raises(ConfigurationError, match="overrides append_event"):
        Runner(app_name="app", agent=agent, session_service=service)


async def test_a_run_makes_its_session_by_the_method_that_is_overridden() -> None:
    """`create_session` is what runs call, so an override of it is asked."""
    service = Counts()
    agent = LlmAgent(name="a", model=ScriptedLlm(["hello"]))
    runner = Runner(app_name="app", agent=agent, session_service=service, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        await run.wait()
    assert service.made == 1


# --- whose it is ------------------------------------------------------------------------------------------------------


async def test_a_store_that_is_taken_over_accepts_nothing_of_its_former_owner() -> None:
    """
    The service that begins last has the store; the one before stores nothing any more, runs included, and says so.

    What its run has left open is interrupted.
    """
    values: dict[str, str] = {}
    entered, taken = trio.Event(), trio.Event()

    class Waits(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            entered.set()
            await taken.wait()
            await ctx.emit(Event(message="late"))

    former, latter = KeyValueSessionService(InMemory(values)), KeyValueSessionService(InMemory(values))
    mine = await former.create_session(**HERE)
    runner = Runner(app_name="app", agent=Waits(name="waits"), session_service=former)

    async def take_over() -> None:
        await entered.wait()
        theirs = await get(latter)
        await append(latter, theirs, "theirs")
        taken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_over)
        with pytest.raises(StaleSessionError, match="one service"):
            async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
                await run.wait()
    with pytest.raises(StaleSessionError, match="make a new service"):
        await append(former, mine)
    with pytest.raises(StaleSessionError, match="make a new service"):
        await get(former)
    assert texts(await get(latter)) == ["hi", "theirs"]
    assert [found.status for found in await latter.list_invocations()] == ["interrupted"]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_former_owner_does_not_take_the_store_back_after_a_failed_write(is_stored: bool) -> None:
    """
    A service whose write has failed goes on if the store is still its own, and never takes it from one that began
    later.
    """
    values: dict[str, str] = {}
    store = Failing(values)
    former, latter = KeyValueSessionService(store), KeyValueSessionService(InMemory(values))
    mine = await former.create_session(**HERE)
    for fails in (1, 3):
        setattr(store, "after" if is_stored else "before", OSError("the cable"))
        for number in range(fails):
            with pytest.raises(StorageError, match="the cable"):
                await append(former, mine, f"{fails} {number}")
        store.before = store.after = None
        mine = await get(former)
        await append(former, mine, f"{fails} works")
    store.before = OSError("the cable")
    with pytest.raises(StorageError, match="the cable"):
        await append(former, mine, "lost")
    store.before = None
    theirs = await get(latter)
    for _ in range(2):
        with pytest.raises(StaleSessionError, match="make a new service"):
            await append(former, mine, "late")
    await append(latter, theirs, "theirs")
    assert texts(await get(latter))[-2:] == ["3 works", "theirs"]


async def test_a_first_write_that_fails_can_be_repeated() -> None:
    """A service that has not owned a store yet takes it over from the one before, however often that fails."""
    values: dict[str, str] = {}
    await KeyValueSessionService(InMemory(values)).create_session(**HERE)
    store = Failing(values)
    service = KeyValueSessionService(store)
    for name in ("before", "after", "before"):
        setattr(store, name, OSError("the cable"))
        with pytest.raises(StorageError, match="the cable"):
            await get(service)
        store.before = store.after = None
    await append(service, await get(service), "mine")


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_write_that_fails_somehow_may_be_stored(is_stored: bool) -> None:
    """After any exception of `write` nobody knows; the session is read again, and the retry of an append is safe."""
    store = Failing()
    service = KeyValueSessionService(store)
    session = await service.create_session(**HERE)
    setattr(store, "after" if is_stored else "before", OSError("the cable"))
    with pytest.raises(StorageError, match="the cable") as raised:
        await append(service, session, "once", user_n=1)
    assert raised.value.stored is None
    store.before = store.after = None
    assert texts(await get(service)) == (["once"] if is_stored else [])
    await append(service, session, "once", user_n=1)
    assert texts(await get(service)) == ["once"]
    assert (await get(service)).state == {"user:n": 1}
    other = await service.create_session(app_name="app", user_id="u", session_id="t")
    assert other.state == {"user:n": 1}


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_run_goes_on_only_from_what_is_stored(is_stored: bool) -> None:
    """After a write that failed somehow, the next event of the same run is stale if that one was stored."""
    store = Failing()
    service = KeyValueSessionService(store)
    await service.create_session(**HERE)
    writer = await enter(service)
    await begin(writer)
    setattr(store, "after" if is_stored else "before", OSError("the cable"))
    said = Event(author="a", message="perhaps", invocation_id="e-1")
    with pytest.raises(StorageError, match="the cable"):
        await writer.append(said)
    store.before = store.after = None
    if is_stored:
        with pytest.raises(StaleSessionError, match="session 's' of user 'u' in app 'app' has changed since it was"):
            await writer.append(said)
    else:
        await writer.append(said)
    await writer.finish(InvocationStatus.COMPLETED)
    assert texts(await get(service)) == ["hi", "perhaps"]


async def test_a_write_that_is_refused_stores_nothing() -> None:
    """A StorageError of the store's own goes through as it is; what it says is believed."""
    store = Failing()
    service = KeyValueSessionService(store)
    session = await service.create_session(**HERE)
    store.before = StorageFullError("no room left")
    with pytest.raises(StorageFullError, match="no room left"):
        await append(service, session)
    store.before = None
    assert (await append(service, session)).seq == 1


async def test_a_read_that_fails_has_stored_nothing() -> None:
    """An exception of `read` is a StorageError which says so; then everything works again."""
    store = Failing()
    service = KeyValueSessionService(store)
    store.reading = OSError("the cable")
    with pytest.raises(StorageError, match=r"Failing\.read failed.*the cable") as raised:
        await service.create_session(**HERE)
    assert raised.value.stored is False
    store.reading = None
    assert (await service.create_session(**HERE)).revision == 0


async def test_a_run_whose_store_fails_can_be_repeated() -> None:
    """A run that loses its store fails with the store's error, and the session can be used again."""
    store = Failing()
    service = KeyValueSessionService(store)

    def answer(request: object) -> str:
        store.before = OSError("the cable")
        return "hello"

    agent = LlmAgent(name="a", model=ScriptedLlm(answer))
    runner = Runner(app_name="app", agent=agent, session_service=service, auto_create_session=True)
    with pytest.raises(StorageError, match="the cable"):
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()
    store.before = None
    assert texts(await get(service)) == ["hi"]
    runner = Runner(app_name="app", agent=LlmAgent(name="a", model=ScriptedLlm(["hello"])), session_service=service)
    async with runner.run_async(user_id="u", session_id="s", new_message="again") as run:
        last = await run.wait()
        assert last is not None
        assert last.text == "hello"


@pytest.mark.parametrize("kind", ["minirun", "next", "session/", "event/", "user/", "run/", "wait/"])
async def test_an_entry_that_cannot_be_read_is_named(kind: str) -> None:
    """Whatever stands in a damaged entry, the error is typed and says which one it is."""
    values: dict[str, str] = {}
    async with KeyValueSessionService(InMemory(values)) as service:
        runner = Runner(app_name="app", agent=Asks(name="asks"), session_service=service)
        await service.create_session(**HERE, state={"user:x": 1})
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()
    for name in [name for name in values if name.startswith(kind)]:
        values[name] = "?"
    damaged = KeyValueSessionService(InMemory(values))
    with pytest.raises(StorageCorruptError, match=kind):
        await damaged.list_sessions(app_name="app")
        await damaged.list_invocations()
        await damaged.list_pending()
        await get(damaged)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *(("session/", {field: found}) for field in ("number", "revision") for found in ("1", -1, None, 1.5, True)),
        *(("session/", {field: found}) for field in ("create_time", "last_update_time") for found in ("1", None)),
        *(("wait/", {field: None}) for field in ("app_name", "user_id", "session_id", "number")),
        *(("wait/", {field: 1}) for field in ("app_name", "more")),
        *(("run/", {field: "x"}) for field in ("number", "seq", "end_seq", "status")),
        *(("run/", {field: 1}) for field in ("app_name", "user_id", "session_id", "invocation_id", "more")),
    ],
)
async def test_a_field_of_another_kind_is_damage(name: str, changes: dict[str, Any]) -> None:
    """An entry whose fields are of the wrong kinds, more or fewer is told like one that is no JSON."""
    values = await damaged_store()
    [entry] = [key for key in values if key.startswith(name)]
    fields = json.loads(values[entry]) | changes
    values[entry] = json.dumps(fields)
    await check_damage(values, name)
    for field in changes:
        del fields[field]
    if "more" not in changes:
        values[entry] = json.dumps(fields)
        await check_damage(values, name)


@pytest.mark.parametrize("entry", ["session/app/u", "session/app/u/s/more", "run/x/i", "run/1"])
async def test_a_key_of_another_form_is_damage(entry: str) -> None:
    """A key with too few parts, or too many, is told."""
    values = await damaged_store()
    values[entry] = next(text for key, text in values.items() if key.startswith(entry[:3]))
    await check_damage(values, entry)


@pytest.mark.parametrize("kind", ["session/", "wait/", "run/"])
@pytest.mark.parametrize("text", ["{}", "[]", "1", "null"])
async def test_an_entry_without_fields_is_damage(kind: str, text: str) -> None:
    """JSON that is no object with the fields of an entry is told."""
    values = await damaged_store()
    for name in [name for name in values if name.startswith(kind)]:
        values[name] = text
    await check_damage(values, kind)


async def damaged_store() -> dict[str, str]:
    """What a store has of a run that waits; a test damages it."""
    values: dict[str, str] = {}
    async with KeyValueSessionService(InMemory(values)) as service:
        runner = Runner(app_name="app", agent=Asks(name="asks"), session_service=service, auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()
    return values


async def check_damage(values: dict[str, str], named: str) -> None:
    damaged = KeyValueSessionService(InMemory(values))
    with pytest.raises(StorageCorruptError, match=named):
        await damaged.list_sessions(app_name="app")
        await damaged.list_invocations()
        await damaged.list_pending()


async def test_a_missing_event_is_damage() -> None:
    """A log with a hole is refused, not shown as a shorter one."""
    values: dict[str, str] = {}
    service = KeyValueSessionService(InMemory(values))
    session = await service.create_session(**HERE)
    for number in range(3):
        await append(service, session, str(number))
    del values[next(name for name in values if name.startswith("event/") and name.endswith("2"))]
    with pytest.raises(StorageCorruptError, match="the events 0 to 3"):
        await get(KeyValueSessionService(InMemory(values)))


async def test_an_operation_that_does_not_fit_is_damage() -> None:
    """It was never stored so: who loads the session, or a fork of its past, is told what is wrong with it."""
    values: dict[str, str] = {}
    service = KeyValueSessionService(InMemory(values))
    session = await service.create_session(**HERE, state={"n": 1})
    await service.append_event(session, Event(author="a", actions=EventActions(state_ops={"n": {"add": 1}})))
    await append(service, session)
    creation = next(name for name in values if name.startswith("event/"))
    values[creation] = values[creation].replace('"n":1', '"n":"x"')
    damaged = KeyValueSessionService(InMemory(values))
    with pytest.raises(StorageCorruptError, match=r"up to event 2: state\['n'\]: `add` expects a number, found 'x'"):
        await get(damaged)
    with pytest.raises(StorageCorruptError, match=r"up to event 1: state\['n'\]: `add` expects a number"):
        await service.fork_session(**HERE, at_seq=1)


async def test_a_newer_store_is_refused() -> None:
    """A store that a later version has written is not touched."""
    values = {"minirun": '{"format": 2, "owner": "x"}'}
    with pytest.raises(StorageFormatError, match="expected a store of format 1, found 2"):
        await KeyValueSessionService(InMemory(values)).create_session(**HERE)
    assert values == {"minirun": '{"format": 2, "owner": "x"}'}


def test_what_is_no_store_is_refused() -> None:
    """A service is made of a KeyValueStore and a number of bytes."""
    with pytest.raises(ConfigurationError, match="expected store to be a KeyValueStore, found"):
        KeyValueSessionService({})  # type: ignore[arg-type]  # that is the point
    for found in (-1, True, 1.5):
        with pytest.raises(ConfigurationError, match="expected cache_bytes"):
            KeyValueSessionService(InMemory(), cache_bytes=found)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ConfigurationError, match="Env"):
        KeyValueSessionService(InMemory(), env=1)  # type: ignore[arg-type]  # that is the point
    assert isinstance(KeyValueSessionService(InMemory()).env, Env)


async def test_ids_are_kept_apart_whatever_they_contain() -> None:
    """Ids and state keys with separators, percent signs and letters of all alphabets neither collide nor get lost."""
    service = KeyValueSessionService(InMemory())
    odd = ["a/b", "a", "b", "a%2Fb", "é", "~", "a0", "\N{SNOWMAN}", "."]
    for user in odd:
        for name in odd:
            state = {f"user:{name}": user, f"app:{user}": name}
            await service.create_session(app_name="app", user_id=user, session_id=name, state=state)
    for user in odd:
        found = (await service.list_sessions(app_name="app", user_id=user)).sessions
        assert [session.id for session in found] == odd
        session = await service.get_session(app_name="app", user_id=user, session_id="a/b")
        assert session is not None
        expected = {f"user:{name}": user for name in odd} | {f"app:{name}": odd[-1] for name in odd}
        assert session.state == expected


async def test_no_more_is_kept_than_was_asked_for() -> None:
    """
    What is kept counts as in a file's service: memory, each event of it when it is stored, the sessions used last.
    """
    async with KeyValueSessionService(InMemory(), cache_bytes=28_000) as service:
        for number in range(10):
            session = await service.create_session(app_name="app", user_id="u", session_id=str(number))
            await append(service, session, "x" * 3_000)
        kept = service._cache.sessions
        assert [key.session_id for key in kept] == ["7", "8", "9"]
        assert service._cache.bytes == sum(live.size for live in kept.values())
        assert all(6_000 < live.size < 9_000 for live in kept.values())
        await service.get_session(app_name="app", user_id="u", session_id="0")
        assert [key.session_id for key in kept] == ["8", "9", "0"]
        assert kept[next(reversed(kept))].size > 6_000
