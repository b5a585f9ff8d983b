"""
What every session service promises, as checks that its author can run:

    async def test_my_service() -> None:
        await check_session_service(MySessionService)

The factory returns a service, or any async context manager that gives one; it is entered once or more often for each
check, one at a time. Every check works under an app name of its own, so the factory may as well open the same store
again and again; say `durable=True` if it does, and what must survive is checked too.

A check that fails raises an AssertionError with a note that names it. Nothing here needs pytest; with it, each check
can be a test of its own:

    @pytest.mark.parametrize("check", session_service_checks().values(), ids=session_service_checks())
    async def test_my_service(check) -> None:
        await check(MySessionService)

The checks say `_expect` where a test would say `assert`, so that they also check under `python -O`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeAlias

import trio
import trio.testing

from .._codec import event_from_json
from ..errors import (
    AlreadyExistsError,
    InvalidEventError,
    InvalidValueError,
    InvocationEndedError,
    MinirunError,
    NotSupportedError,
    ServiceClosedError,
    ServiceInUseError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
)
from ..events import Event, EventActions
from ..sessions import (
    BaseSessionService,
    GetSessionConfig,
    InvocationStatus,
    Session,
    SessionKey,
    SessionWriter,
)
from ..sessions._fold import fold
from ..sessions._state import ReadOnlyState, Values
from ..types import Blob, CodeExecutionResult, Content, ExecutableCode, FileData, FunctionCall, FunctionResponse, Part

__all__ = ["check_session_service", "session_service_checks"]

Factory: TypeAlias = Callable[[], AbstractAsyncContextManager[BaseSessionService]]
Check: TypeAlias = Callable[[Factory], Awaitable[None]]


async def check_session_service(factory: Factory, *, durable: bool = False) -> None:
    """
    Run every check of the contract on the service that *factory* makes.

    Args:
        factory: Returns a service, or an async context manager that gives one.
        durable: Whether each call of the factory opens the same store.

    Raises:
        AssertionError: The service breaks the contract; a note names the check.
    """
    for check in session_service_checks(durable=durable).values():
        await check(factory)


def session_service_checks(*, durable: bool = False) -> dict[str, Check]:
    """Return the checks by name, to be run one by one; *durable* ones only for stores that can be opened again."""
    return {name: partial(_run, name, body) for name, body in {**_CHECKS, **(_DURABLE if durable else {})}.items()}


# --- how a check runs -----------------------------------------------------------------------------------------------


class _Bench:
    """One service under test, with short forms of its operations on one app."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self.app = ""
        self.service: BaseSessionService

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseSessionService]:
        """Open the service, or open it again."""
        async with self._factory() as service:
            if not self.app:
                self.app = "contract-" + re.sub(r"[^A-Za-z0-9]", "-", service.env.new_id("contract"))
            self.service = service
            yield service

    async def create(self, session_id: str | None = "s", *, user: str = "u", app: str = "", **state: Any) -> Session:
        return await self.service.create_session(
            app_name=app or self.app, user_id=user, session_id=session_id, state=_spelled(state) or None
        )

    async def find(
        self, session_id: str = "s", config: GetSessionConfig | None = None, *, user: str = "u", app: str = ""
    ) -> Session | None:
        return await self.service.get_session(
            app_name=app or self.app, user_id=user, session_id=session_id, config=config
        )

    async def get(self, session_id: str = "s", config: GetSessionConfig | None = None, *, user: str = "u") -> Session:
        session = await self.find(session_id, config, user=user)
        _expect("get_session finds the session", session is not None, True)
        assert session is not None
        return session

    async def append(self, session: Session, text: str = "x", **state: Any) -> Event:
        return await self.service.append_event(session, Event(author="a", message=text, state=_spelled(state)))

    async def events(self, session_id: str = "s", *, user: str = "u", **options: Any) -> list[Event]:
        return await self.service.read_events(app_name=self.app, user_id=user, session_id=session_id, **options)

    async def delete(self, session_id: str = "s", *, user: str = "u") -> None:
        await self.service.delete_session(app_name=self.app, user_id=user, session_id=session_id)

    def key(self, session_id: str = "s", *, user: str = "u") -> SessionKey:
        return SessionKey(self.app, user, session_id)

    async def writer(self, invocation_id: str = "e-1", session_id: str = "s", *, reject: bool = False) -> SessionWriter:
        writer = await self.service.open_writer(self.key(session_id), invocation_id, None, reject=reject)
        _expect("open_writer finds the session", writer is not None, True)
        assert writer is not None
        return writer

    async def unchanged(self, session: Session) -> None:
        """What is stored is what *session* shows, and that is what its log says."""
        stored = await self.get(session.id, user=session.user_id)
        _expect("the stored revision", stored.revision, session.revision)
        _expect("the stored state", dict(stored.state), dict(session.state))
        _expect("the stored events", list(stored.events)[-3:], list(session.events)[-3:])
        log = await self.events(session.id, user=session.user_id)
        _expect("the seqs of the log", [event.seq for event in log], list(range(session.revision + 1)))
        _expect("the last event", log[1:][-1:], list(session.events)[-1:])


def _spelled(state: Mapping[str, Any]) -> dict[str, Any]:
    """`user_x` is short for the key `user:x`, `app_x` for `app:x`, `temp_x` for `temp:x`."""
    return {re.sub("^(user|app|temp)_", r"\1:", key): value for key, value in state.items()}


_Body: TypeAlias = Callable[[_Bench], Awaitable[None]]
_CHECKS: dict[str, _Body] = {}
_DURABLE: dict[str, _Body] = {}


def _check(body: _Body) -> _Body:
    _CHECKS[body.__name__.strip("_")] = body
    return body


def _durable_check(body: _Body) -> _Body:
    _DURABLE[body.__name__.strip("_")] = body
    return body


async def _run(name: str, body: _Body, factory: Factory) -> None:
    bench = _Bench(factory)
    try:
        if name in _DURABLE or name in _OPENS_ITSELF:
            await body(bench)
        else:
            async with bench.opened():
                await body(bench)
    except Exception as error:
        error.add_note(f"in the session service check {name}: {body.__doc__}")
        raise


_OPENS_ITSELF = frozenset({"closing_ends_the_use"})


def _expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        msg = f"{what}: expected {expected!r:.400}, found {found!r:.400}"
        raise AssertionError(msg)


@contextmanager
def _raises(kind: type[MinirunError], *words: str) -> Iterator[None]:
    """The block raises exactly this kind of error, and its message has all these words."""
    try:
        yield
    except MinirunError as error:
        if type(error) is not kind:
            msg = f"expected {kind.__name__}, found {error!r}"
            raise AssertionError(msg) from error
        missing = [word for word in words if word not in str(error)]
        _expect(f"words in the message {str(error)!r} of {kind.__name__}, missing", missing, [])
    else:
        msg = f"expected {kind.__name__}, found no error"
        raise AssertionError(msg)


def _texts(session: Session) -> list[str]:
    return [event.text for event in session.events]


def _folded(log: list[Event]) -> dict[str, Any]:
    """The state that a session's log alone comes to."""
    return dict(ReadOnlyState(fold(Values({}, {}, {}), log)))


# --- creating and getting -------------------------------------------------------------------------------------------


@_check
async def _a_new_session_is_empty(t: _Bench) -> None:
    """create_session returns a session at revision 0 without events, and get_session returns the same."""
    session = await t.create("s", user="u", a=1)
    for found in (session, await t.get()):
        _expect("id, app, user", (found.id, found.app_name, found.user_id), ("s", t.app, "u"))
        _expect("revision", found.revision, 0)
        _expect("events", list(found.events), [])
        _expect("state", dict(found.state), {"a": 1})
        _expect("last_update_time of a new session", found.last_update_time, found.create_time)
        _expect("type of create_time", type(found.create_time), float)
    _expect("create_time of the two", (await t.get()).create_time, session.create_time)


@_check
async def _ids_are_trimmed_or_made(t: _Bench) -> None:
    """Space around ids does not count; without an id, or with a blank one, a new id is made."""
    session = await t.create("  s \n", user=" u ")
    _expect("trimmed ids", (session.id, session.user_id), ("s", "u"))
    _expect("found by a padded id", (await t.get(" s ", user=" u")).id, "s")
    made = [(await t.create(blank)).id for blank in (None, "", "  \t")]
    _expect("ids that were made differ and are not blank", len({*made, "s"} - {""}), 4)
    for session_id in made:
        _expect("a made id is found", (await t.get(session_id)).id, session_id)


@_check
async def _a_session_is_made_once(t: _Bench) -> None:
    """A second session of one id for one user and app raises AlreadyExistsError and leaves the first alone."""
    await t.append(await t.create(a=1), b=2)
    for again in ("s", " s "):
        with _raises(AlreadyExistsError, "'s'"):
            await t.create(again, a=5, user_x=5)
    session = await t.get()
    _expect("state of the first", dict(session.state), {"a": 1, "b": 2})
    await t.create("s", user="other")
    await t.create("s", app=t.app + "-2")
    _expect("state of the others", dict((await t.get(user="other")).state), {})


@_check
async def _bad_names_and_ids_are_refused(t: _Bench) -> None:
    """App names with spaces, ids with NUL or half a character, blanks and other types: refused by name."""
    create: Callable[..., Awaitable[Session]] = partial(
        t.service.create_session, app_name=t.app, user_id="u", session_id="s"
    )
    for app in ("", "two words", "user", "1st", "a/b", "ä", 5, None):
        with _raises(InvalidValueError, "app_name"):
            await create(app_name=app)
    for user in ("", "  ", "a\0b", "\ud800", "x" * 2000, 5, None):
        with _raises(InvalidValueError, "user_id"):
            await create(user_id=user)
    for session_id in ("a\0", "\ud800", "x" * 2000, 5, b"s"):
        with _raises(InvalidValueError, "session_id"):
            await create(session_id=session_id)
        with _raises(InvalidValueError, "session_id"):
            await t.find(session_id)  # type: ignore[arg-type]  # some are no strings
    listed = await t.service.list_sessions(app_name=t.app)
    _expect("nothing was stored", listed.sessions, [])


@_check
async def _an_initial_state_is_checked(t: _Bench) -> None:
    """What is not JSON is refused with its path, `temp:` and bare prefixes by name; then nothing is stored."""
    bad: list[tuple[Any, str]] = [
        ({"user:ok": 1, "a": {"b": [object()]}}, "state['a']['b'][0]"),
        ({"a": float("nan")}, "state['a']"),
        ({"a": b"x"}, "state['a']"),
        ({"a": "\ud800"}, "state['a']"),
        ({5: 1}, "state"),
        ({"user:ok": 1, "temp:x": 1}, "state['temp:x']"),
        ({"app:": 1}, "app:"),
        ([1], "state"),
        ("ab", "state"),
    ]
    for state, path in bad:
        with _raises(InvalidValueError, path):
            await t.service.create_session(app_name=t.app, user_id="u", session_id="s", state=state)
        _expect("the session", await t.find(), None)
    _expect("state of the user", dict((await t.create()).state), {})


@_check
async def _an_initial_state_is_split_by_scope(t: _Bench) -> None:
    """`user:` and `app:` keys of an initial state are seen by the user's and the app's other sessions."""
    everything = {"a": 1, "user:b": 2, "app:c": 3, "session:d": 4, "x:y": None}
    session = await t.service.create_session(app_name=t.app, user_id="u", session_id="s", state=everything)
    _expect("state", dict(session.state), everything)
    _expect("the user's other session", dict((await t.create("s2")).state), {"user:b": 2, "app:c": 3})
    _expect("another user's session", dict((await t.create("s3", user="v")).state), {"app:c": 3})
    _expect("another app's session", dict((await t.create("s", app=t.app + "-2")).state), {})
    _expect("state read again", dict((await t.get()).state), everything)


@_check
async def _the_creation_is_event_zero(t: _Bench) -> None:
    """The initial state is an event with seq 0, in read_events and not in session.events."""
    session = await t.create(a=1, user_b=[2])
    [record] = await t.events()
    _expect("seq of the record", record.seq, 0)
    _expect("its state_delta", dict(record.actions.state_delta), {"a": 1, "user:b": [2]})
    _expect("it is complete", None in (record.id, record.author, record.timestamp), False)
    _expect("its timestamp", record.timestamp, session.create_time)
    await t.append(session)
    _expect("seqs", [event.seq for event in await t.events()], [0, 1])
    _expect("events of the session", [event.seq for event in (await t.get()).events], [1])
    await t.create("empty")
    _expect("seqs without a state", [event.seq for event in await t.events("empty")], [0])


@_check
async def _what_does_not_exist_is_none(t: _Bench) -> None:
    """get_session returns None for an unknown id, user or app; appending or reading there raises."""
    session = await t.create()
    _expect("unknown id", await t.find("other"), None)
    _expect("unknown user", await t.find(user="other"), None)
    _expect("unknown app", await t.find(app=t.app + "-2"), None)
    with _raises(SessionNotFoundError, "'other'", "create_session"):
        await t.events("other")
    await t.delete()
    with _raises(SessionNotFoundError, "'s'"):
        await t.append(session)
    with _raises(SessionNotFoundError, "'s'"):
        await t.events()
    _expect("nothing came into being", await t.find(), None)


@_check
async def _windows_limit_events_and_never_state(t: _Bench) -> None:
    """num_recent_events, after_seq and after_timestamp choose a tail of the events; state and revision are whole."""
    session = await t.create(start=True)
    for number in range(1, 7):
        event = Event(author="a", message=str(number), timestamp=1000.0 + number, state={f"k{number}": number})
        await t.service.append_event(session, event)
    windows: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["1", "2", "3", "4", "5", "6"]),
        ({"num_recent_events": 0}, []),
        ({"num_recent_events": 2}, ["5", "6"]),
        ({"num_recent_events": 10**30}, ["1", "2", "3", "4", "5", "6"]),
        ({"after_seq": 0}, ["1", "2", "3", "4", "5", "6"]),
        ({"after_seq": 4}, ["5", "6"]),
        ({"after_seq": 6}, []),
        ({"after_seq": 10**30}, []),
        ({"after_timestamp": 1004.0}, ["5", "6"]),
        ({"after_timestamp": 1003.5}, ["4", "5", "6"]),
        ({"after_timestamp": 0}, ["1", "2", "3", "4", "5", "6"]),
        ({"after_timestamp": 1e300}, []),
        ({"num_recent_events": 3, "after_seq": 4}, ["5", "6"]),
        ({"num_recent_events": 1, "after_seq": 2}, ["6"]),
        ({"num_recent_events": 5, "after_seq": 1, "after_timestamp": 1005.0}, ["6"]),
    ]
    for options, texts in windows + windows[::-1]:
        found = await t.get("s", GetSessionConfig(**options))
        _expect(f"events with {options}", _texts(found), texts)
        _expect(f"state with {options}", dict(found.state), dict(session.state))
        _expect(f"revision with {options}", found.revision, 6)
    narrow = await t.get("s", GetSessionConfig(num_recent_events=0))
    await t.append(narrow, "7")
    _expect("events of a narrow session after an append", _texts(narrow), ["7"])
    with _raises(InvalidValueError, "config"):
        await t.find("s", 5)  # type: ignore[arg-type]  # that is the point


@_check
async def _a_session_stays_as_it_was(t: _Bench) -> None:
    """What get_session returned does not change when the session, or its scopes, go on without it."""
    session = await t.create(a=1, user_n=1)
    await t.append(session, "1", a=2)
    before = await t.get()
    await t.append(session, "2", a=3, user_n=3)
    _expect("state", dict(before.state), {"a": 2, "user:n": 1})
    _expect("events", _texts(before), ["1"])
    _expect("revision", before.revision, 1)


# --- listing and deleting -------------------------------------------------------------------------------------------


@_check
async def _a_list_has_no_events_and_no_state(t: _Bench) -> None:
    """list_sessions gives sessions in the order they were made, with revision and times, without events and state."""
    await t.create("b", user="u", a=1, user_x=1)
    await t.create("a", user="v", app_y=1)
    session = await t.create("c", user="u")
    stored = await t.service.append_event(session, Event(author="a", message="x", timestamp=5.0, state={"k": 1}))
    found = (await t.service.list_sessions(app_name=t.app)).sessions
    _expect("ids", [(s.user_id, s.id) for s in found], [("u", "b"), ("v", "a"), ("u", "c")])
    _expect("revisions", [s.revision for s in found], [0, 0, 1])
    _expect("last_update_time", found[2].last_update_time, stored.timestamp)
    _expect("create_time", found[2].create_time, session.create_time)
    _expect("events and state", [(list(s.events), dict(s.state)) for s in found], [([], {})] * 3)
    of_user = await t.service.list_sessions(app_name=t.app, user_id=" u ")
    _expect("ids of the user", [s.id for s in of_user.sessions], ["b", "c"])
    _expect("no further page", of_user.next, None)
    _expect("an unknown user", (await t.service.list_sessions(app_name=t.app, user_id="w")).sessions, [])


@_check
async def _a_list_over_all_apps(t: _Bench) -> None:
    """`app_name=None` lists the sessions of every app."""
    await t.create("s", user="everywhere")
    await t.create("s", user="everywhere", app=t.app + "-2")
    found = (await t.service.list_sessions(app_name=None, user_id="everywhere")).sessions
    mine = [s.app_name for s in found if s.app_name.startswith(t.app)]
    _expect("apps", mine, [t.app, t.app + "-2"])


@_check
async def _pages_are_stable(t: _Bench) -> None:
    """Sessions made and deleted between two pages neither hide nor repeat one that stays."""
    for number in range(6):
        await t.create(f"s{number}")
    seen: list[str] = []
    after = None
    for changed in range(10):
        page = await t.service.list_sessions(app_name=t.app, user_id="u", limit=2, after=after)
        seen += [session.id for session in page.sessions]
        _expect("the size of a page", len(page.sessions) <= 2, True)
        if changed == 0:
            await t.delete("s0")  # of the page that was read
            await t.delete("s2")  # of the one to come
            await t.create("s6")
        after = page.next
        if after is None:
            break
    _expect("ids", seen, ["s0", "s1", "s3", "s4", "s5", "s6"])
    everything = await t.service.list_sessions(app_name=t.app, limit=10**30)
    _expect("a huge limit", (len(everything.sessions), everything.next), (5, None))
    exact = await t.service.list_sessions(app_name=t.app, limit=5)
    _expect("a limit of exactly as many", exact.next, None)
    for limit in (0, -1, True, "2", 1.5):
        with _raises(InvalidValueError, "limit"):
            await t.service.list_sessions(app_name=t.app, limit=limit)  # type: ignore[arg-type]  # that is the point
    for bad in ("x", "-1", "", "9" * 30, 5):
        with _raises(InvalidValueError, "after"):
            await t.service.list_sessions(app_name=t.app, after=bad)  # type: ignore[arg-type]  # that is the point


@_check
async def _deleting_keeps_the_shared_scopes(t: _Bench) -> None:
    """delete_session removes events and state, keeps `user:` and `app:`, and may be repeated."""
    session = await t.create(a=1, user_b=1, app_c=1)
    await t.append(session, user_b=2, app_d=2)
    for _ in range(2):
        await t.delete()
        _expect("the session", await t.find(), None)
    _expect("the list", (await t.service.list_sessions(app_name=t.app)).sessions, [])
    again = await t.create("other")
    _expect("the user's state", dict(again.state), {"user:b": 2, "app:c": 1, "app:d": 2})


@_check
async def _a_session_made_again_is_another(t: _Bench) -> None:
    """After delete and create an old session object is stale, even at the same revision; the new one is empty."""
    old = await t.create(a=1)
    await t.append(old, "old")
    await t.delete()
    new = await t.create(b=2)
    await t.append(new, "new")
    for text in ("new", "old"):
        with _raises(StaleSessionError, "get_session"):
            await t.append(old, text)
    found = await t.get()
    _expect("events", _texts(found), ["new"])
    _expect("state", dict(found.state), {"b": 2})
    _expect("seqs", [event.seq for event in await t.events()], [0, 1])


# --- appending ------------------------------------------------------------------------------------------------------


@_check
async def _an_append_advances_the_session_in_place(t: _Bench) -> None:
    """append_event completes and stores the event, and the session object it was given shows it."""
    session = await t.create(a=1, b=2)
    given = Event(author="a", message="hi", state={"a": [1]}, actions=EventActions(state_removed=["b"]))
    stored = await t.service.append_event(session, given)
    _expect("the given event", (given.id, given.seq, given.timestamp), (None, None, None))
    _expect("seq", stored.seq, 1)
    _expect("id and timestamp are filled in", (type(stored.id), type(stored.timestamp)), (str, float))
    _expect("revision", session.revision, 1)
    _expect("last_update_time", session.last_update_time, stored.timestamp)
    _expect("state", dict(session.state), {"a": [1]})
    _expect("events", list(session.events), [stored])
    named = await t.service.append_event(session=session, event=Event(id="mine", author="user", timestamp=5.0))
    _expect("a given id and timestamp", (named.id, named.timestamp, named.seq), ("mine", 5.0, 2))
    found = await t.get()
    _expect("events read again", list(found.events), [stored, named])
    _expect("last_update_time read again", found.last_update_time, 5.0)
    await t.unchanged(session)


@_check
async def _an_event_comes_back_as_it_was(t: _Bench) -> None:
    """Every field of an event, bytes and fields of later versions included, is read back as it was stored."""
    session = await t.create()
    blob = Blob(data=bytes(range(256)), mime_type="image/png", display_name="ß")
    parts = [
        Part(text="hi\0 \u2028 😀", thought=True, thought_signature=b"\x00seal"),
        Part(inline_data=blob),
        Part(file_data=FileData(file_uri="s3://x", mime_type="a/b")),
        Part(function_call=FunctionCall(name="f", args={"a": [1, None, {"b": 1.5}]}, id="c-1")),
        Part(function_response=FunctionResponse(name="f", response={"result": 10**100}, id="c-1")),
        Part(executable_code=ExecutableCode(code="1/0", language="python")),
        Part(code_execution_result=CodeExecutionResult(outcome="failed", output="")),
        Part(unknown_fields={"hologram": [1, 2]}),
    ]
    full = Event(
        id="x",
        invocation_id="e-1",
        author="a",
        timestamp=1.25,
        content=Content(role="model", parts=parts, unknown_fields={"later": 1}),
        branch="a.b",
        turn_complete=True,
        finish_reason="stop",
        error_code="E",
        error_message="m",
        interrupted=False,
        output={"z": 1, "a": 2},
        custom_metadata={"k": [True, 1, 1.0, "1"]},
        unknown_fields={"later": {"x": None}},
        actions=EventActions(escalate=True, skip_summarization=False, route="r", unknown_fields={"later": 2}),
    )
    stored = await t.service.append_event(session, full)
    [read] = await t.events(after_seq=0)
    _expect("the event", read, stored)
    _expect("its metadata, by type", repr(read.custom_metadata), "{'k': [True, 1, 1.0, '1']}")
    _expect("its keys, in order", list(read.output), ["z", "a"])
    foreign = event_from_json(
        '{"author":"b","new":[1],"content":{"parts":[{"thought":true,"new":2}]},"actions":{"new":3}}'
    )
    stored = await t.service.append_event(session, foreign)
    _expect("a later version's event", (await t.get()).events[-1], stored)
    _expect("its fields", stored.unknown_fields, {"new": [1]})


@_check
async def _a_stale_session_is_refused(t: _Bench) -> None:
    """An append to a session that was written meanwhile raises StaleSessionError and stores nothing."""
    first = await t.create()
    second = await t.get()
    await t.append(first, "1", a=1)
    for _ in range(2):
        with _raises(StaleSessionError, "revision 0", "revision 1", "get_session"):
            await t.append(second, "2", a=2, user_b=2)
    _expect("the stale session", (second.revision, dict(second.state), _texts(second)), (0, {}, []))
    await t.unchanged(first)
    fresh = await t.get()
    await t.append(fresh, "3", a=3)
    _expect("events", _texts(fresh), ["1", "3"])
    with _raises(StaleSessionError):
        await t.append(first, "4")


@_check
async def _appends_through_one_object_follow_each_other(t: _Bench) -> None:
    """Concurrent appends through one session object are stored one after another, without a gap; none is stale."""
    session = await t.create(n=0)
    seqs: list[int | None] = []

    async def append(text: str) -> None:
        actions = EventActions(state_ops={"n": {"add": 1}, "log": {"extend": [text]}})
        stored = await t.service.append_event(session, Event(author="a", message=text, actions=actions))
        seqs.append(stored.seq)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(append, str(number))
    _expect("seqs", sorted(seq or 0 for seq in seqs), list(range(1, 21)))
    _expect("the counter", session.state["n"], 20)
    _expect("the log is in the order of the events", list(session.state["log"]), _texts(session))
    await t.unchanged(session)


@_check
async def _one_of_many_stale_writers_wins(t: _Bench) -> None:
    """Of concurrent appends through different session objects of one revision, exactly one is stored."""
    await t.create()
    sessions = [await t.get() for _ in range(5)]
    ends: list[str] = []

    async def append(session: Session) -> None:
        try:
            await t.append(session, a=1)
        except StaleSessionError:
            ends.append("stale")
        else:
            ends.append("stored")

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(append, session)
    _expect("how they ended", sorted(ends), ["stale"] * 4 + ["stored"])
    _expect("revision", (await t.get()).revision, 1)


@_check
async def _a_retry_is_recognized_by_its_id(t: _Bench) -> None:
    """An event whose id is stored where it would come next, or last, is returned as stored, and not stored twice."""
    session = await t.create()
    late, later = await t.get(), await t.get()
    event = Event(id="mine", author="a", message="x", state={"n": [1]}, actions=EventActions(state_removed=["b"]))
    stored = await t.service.append_event(session, event)
    _expect("the same object again", await t.service.append_event(session, event), stored)
    _expect("the stored event again", await t.service.append_event(session, stored), stored)
    _expect("an object from before", await t.service.append_event(late, event), stored)
    _expect("that object", (late.revision, dict(late.state), _texts(late)), (1, {"n": [1]}, ["x"]))
    await t.append(late, "y", n=2)
    _expect("after others have gone on", await t.service.append_event(later, event), stored)
    _expect("that object", (later.revision, dict(later.state), _texts(later)), (1, {"n": [1]}, ["x"]))
    with _raises(StaleSessionError):
        await t.append(later, "z")
    another = Event(id="mine", author="a", message="another")
    with _raises(InvalidEventError, "'mine'"):
        await t.service.append_event(session, another)
    await t.unchanged(late)


@_check
async def _a_partial_event_is_not_stored(t: _Bench) -> None:
    """append_event returns a partial event untouched; its actions do nothing."""
    session = await t.create()
    partial_event = Event(author="a", message="h", partial=True, state={"a": 1})
    _expect("it is the same object", await t.service.append_event(session, partial_event) is partial_event, True)
    _expect("revision and state", (session.revision, dict(session.state)), (0, {}))
    await t.unchanged(session)


@_check
async def _temp_keys_are_left_out(t: _Bench) -> None:
    """`temp:` keys of a delta, a removal or an operation are stripped; the rest is stored."""
    session = await t.create()
    actions = EventActions(
        state_delta={"temp:a": 1, "b": 2}, state_removed=["temp:c"], state_ops={"temp:d": {"add": 1}, "e": {"add": 1}}
    )
    stored = await t.service.append_event(session, Event(author="a", actions=actions))
    expected = EventActions(state_delta={"b": 2}, state_ops={"e": {"add": 1}})
    _expect("the stored actions", stored.actions, expected)
    _expect("state", dict(session.state), {"b": 2, "e": 1})
    await t.unchanged(session)


@_check
async def _a_bad_event_is_refused(t: _Bench) -> None:
    """An event without author, with a foreign seq, bad call ids or malformed state changes: nothing is stored."""
    session = await t.create(text="x")

    def calls(*ids: str | None) -> Event:
        return Event(author="a", content=Content(parts=[Part(function_call=FunctionCall(name="f", id=i)) for i in ids]))

    answer = Part(function_response=FunctionResponse(name="f", id="no good!"))
    bad: list[tuple[Event, type[MinirunError], str]] = [
        (Event(message="x"), InvalidEventError, "author"),
        (Event(author="", message="x"), InvalidEventError, "author"),
        (Event(author="a", seq=7), InvalidEventError, "seq"),
        (Event(author="a", seq=0), InvalidEventError, "seq"),
        (calls(None), InvalidEventError, "id"),
        (calls("x" * 41), InvalidEventError, "id"),
        (calls("c", "c"), InvalidEventError, "differ"),
        (Event(author="a", content=Content(parts=[answer])), InvalidEventError, "no good!"),
        (Event(author="a", state={"user:": 1}), InvalidValueError, "user:"),
        (Event(author="a", state={"a": 1}, actions=EventActions(state_removed=["a"])), InvalidValueError, "state['a']"),
        (Event(author="a", actions=EventActions(state_ops={"a": {"sub": 1}})), InvalidValueError, "state_ops['a']"),
        (Event(author="a", actions=EventActions(state_ops={"text": {"add": 1}})), InvalidValueError, "state['text']"),
        (Event(author="a", actions=EventActions(transfer_to_agent="b")), NotSupportedError, "transfer_to_agent"),
        (Event(author="a", actions=EventActions(compaction={"x": 1})), NotSupportedError, "compaction"),
        (Event(author="a", long_running_tool_ids=["c"]), NotSupportedError, "long_running_tool_ids"),
    ]
    for event, kind, word in bad:
        with _raises(kind, word):
            await t.service.append_event(session, event)
        _expect("the session", (session.revision, dict(session.state)), (0, {"text": "x"}))
    with _raises(InvalidValueError, "event"):
        await t.service.append_event(session, {"author": "a"})  # type: ignore[arg-type]  # that is the point
    with _raises(InvalidValueError, "session"):
        await t.service.append_event("s", Event(author="a"))  # type: ignore[arg-type]  # that is the point
    await t.unchanged(session)


@_check
async def _a_cancelled_append_stored_nothing(t: _Bench) -> None:
    """Cancelled at any step: if append_event raises Cancelled nothing is stored, and if it returns, it is."""
    session = await t.create(n=0)
    number = 0
    interrupted = True
    while interrupted:
        number += 1
        before = session.revision
        event = Event(author="a", actions=EventActions(state_ops={"n": {"add": 1}}))
        with trio.CancelScope() as scope:
            steps = _CancelAtStep(scope, number)
            trio.lowlevel.add_instrument(steps)
            try:
                await t.service.append_event(session, event)
            finally:
                trio.lowlevel.remove_instrument(steps)
        interrupted = scope.cancel_called
        stored = 0 if scope.cancelled_caught else 1
        _expect("revision", session.revision, before + stored)
        _expect("state", session.state["n"], session.revision)
        await t.unchanged(session)
    with trio.CancelScope() as scope:
        scope.cancel()
        await t.append(session)
    _expect("an append is a checkpoint", scope.cancelled_caught, True)
    await t.unchanged(session)


class _CancelAtStep(trio.abc.Instrument):
    """Cancels *scope* after the *number*-th step of any task."""

    def __init__(self, scope: trio.CancelScope, number: int) -> None:
        self._scope = scope
        self._left = number

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


@_check
async def _nothing_is_shared_with_the_caller(t: _Bench) -> None:
    """Changing what was passed in, or copying and changing what came out, changes nothing that is stored."""
    initial: dict[str, Any] = {"list": [1, {"a": 1}]}
    session = await t.service.create_session(app_name=t.app, user_id="u", session_id="s", state=initial)
    initial["list"][1]["a"] = 2
    initial["more"] = 1
    delta: dict[str, Any] = {"k": {"b": [1]}}
    parts = [Part(text="x")]
    ids: dict[str, Any] = {"m": [1]}
    event = Event(author="a", content=Content(parts=parts), state=delta, custom_metadata=ids)
    stored = await t.service.append_event(session, event)
    delta["k"]["b"].append(2)
    parts.append(Part(text="y"))
    ids["m"].append(2)
    plain: Any = dict(stored.actions.state_delta)
    plain["k"] = "changed"
    copied = dict(session.state)
    copied["list"] = "changed"
    expected = {"list": [1, {"a": 1}], "k": {"b": [1]}}
    _expect("state", dict(session.state), expected)
    for found in (session, await t.get()):
        _expect("state", dict(found.state), expected)
        _expect("the event", (found.events[0].text, found.events[0].custom_metadata), ("x", {"m": [1]}))


@_check
async def _state_says_how_it_is_changed(t: _Bench) -> None:
    """Assigning to session.state raises a TypeError that names append_event and ctx.state; nested values are frozen."""
    made = await t.create(cart=["pen"])
    for session in (made, await t.get()):
        state: Any = session.state
        changes: list[Callable[[], object]] = [
            partial(state.__setitem__, "cart", []),
            partial(state.__delitem__, "cart"),
            partial(state.update, cart=[]),
            partial(state.pop, "cart"),
            partial(state.setdefault, "x", 1),
            state.clear,
        ]
        for change in changes:
            try:
                change()
            except TypeError as error:
                _expect(f"the ways in {error}", "append_event" in str(error) and "ctx.state" in str(error), True)
            else:
                _expect("a change of session.state", "went through", "TypeError")
        try:
            state["cart"].append("ink")
        except TypeError as error:
            _expect(f"the way in {error}", "+=" in str(error), True)
        else:
            _expect("a change inside session.state", "went through", "TypeError")
        _expect("state", dict(state), {"cart": ["pen"]})


# --- state ----------------------------------------------------------------------------------------------------------


@_check
async def _none_is_a_value_and_removal_is_not(t: _Bench) -> None:
    """A key set to None is there; a removed one is not, also after it was set again; removing nothing is fine."""
    session = await t.create(a=1, b=1, user_a=1, app_a=1)
    await t.append(session, a=None, user_a=None, app_a=None)
    everything = {"a": None, "b": 1, "user:a": None, "app:a": None}
    _expect("state with None", dict((await t.get()).state), everything)
    removal = EventActions(state_removed=["a", "user:a", "app:a", "never", "user:never"])
    await t.service.append_event(session, Event(author="a", actions=removal))
    for found in (session, await t.get(), await t.create("other", b=1)):
        _expect("state without", dict(found.state), {"b": 1})
    await t.append(session, a=2, user_a=2)
    _expect("state set again", dict((await t.get()).state), {"a": 2, "b": 1, "user:a": 2})
    _expect("values are replaced, not merged", dict(session.state), {"a": 2, "b": 1, "user:a": 2})
    await t.append(session, a={"x": 1})
    await t.append(session, a={"y": 1})
    _expect("a dict is replaced", dict((await t.get()).state)["a"], {"y": 1})


@_check
async def _operations_apply_to_what_is_stored(t: _Bench) -> None:
    """`add` and `extend` work on the value at the commit, in every scope, and on keys that do not exist yet."""
    one, two = await t.create("1"), await t.create("2")
    ops = {key: {"add": 1} for key in ("n", "user:n", "app:n")} | {"user:l": {"extend": ["x"]}}
    for session in (one, two, one):
        await t.service.append_event(session, Event(author="a", actions=EventActions(state_ops=ops)))
    expected = {"n": 2, "user:n": 3, "app:n": 3, "user:l": ["x", "x", "x"]}
    _expect("the writer's state", dict(one.state), expected)
    _expect("state read again", dict((await t.get("1")).state), expected)
    _expect("the other's state", dict((await t.get("2")).state), {**expected, "n": 1})


@_check
async def _shared_scopes_reach_other_sessions(t: _Bench) -> None:
    """What a session writes to `user:` and `app:` is seen by sessions read later; another user sees `app:` only."""
    one, two = await t.create("1"), await t.create("2")
    stranger = await t.create("3", user="v")
    await t.append(one, user_a=1, app_b=1)
    _expect("an object from before", dict(two.state), {})
    _expect("the user's other session", dict((await t.get("2")).state), {"user:a": 1, "app:b": 1})
    _expect("another user's session", dict((await t.get("3", user="v")).state), {"app:b": 1})
    await t.append(two, user_a=2)
    await t.append(stranger, app_b=2, user_a="mine")
    _expect("the first session", dict((await t.get("1")).state), {"user:a": 2, "app:b": 2})
    _expect("revisions are not touched", (await t.get("1")).revision, 1)


@_check
async def _state_is_the_fold_of_the_log(t: _Bench) -> None:
    """Applying a session's events, the creation included, to nothing gives its state (promise P4)."""
    session = await t.create(a=1, items=[0], user_x=1)
    await t.append(session, a=2, b=None)
    actions = EventActions(state_removed=["b"], state_ops={"items": {"extend": [1]}, "user:x": {"add": 2}})
    await t.service.append_event(session, Event(author="a", actions=actions))
    await t.append(session, c={"d": 1})
    expected = {"a": 2, "items": [0, 1], "c": {"d": 1}, "user:x": 3}
    _expect("the fold", _folded(await t.events()), expected)
    _expect("the state", dict((await t.get()).state), expected)


# --- reading --------------------------------------------------------------------------------------------------------


@_check
async def _events_are_read_in_order_and_in_parts(t: _Bench) -> None:
    """read_events gives all events from seq 0 on; after_seq and limit cut a part out of them."""
    session = await t.create()
    for number in range(1, 6):
        event = Event(author="a", message=str(number), timestamp=float(10 - number))  # the clock goes backwards
        await t.service.append_event(session, event)
    parts: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"after_seq": -1}, [0, 1, 2, 3, 4, 5]),
        ({"after_seq": -7, "limit": 2}, [0, 1]),
        ({"after_seq": 0}, [1, 2, 3, 4, 5]),
        ({"limit": 1}, [0]),
        ({"limit": 10**30}, [0, 1, 2, 3, 4, 5]),
        ({"after_seq": 2, "limit": 2}, [3, 4]),
        ({"after_seq": 4, "limit": 2}, [5]),
        ({"after_seq": 5}, []),
        ({"after_seq": 10**30}, []),
    ]
    for options, seqs in parts:
        _expect(f"seqs with {options}", [event.seq for event in await t.events(**options)], seqs)
    for options in ({"limit": 0}, {"limit": True}, {"limit": "1"}, {"after_seq": "1"}, {"after_seq": True}):
        with _raises(InvalidValueError, *options):
            await t.events(**options)


@_check
async def _a_long_history_is_read_whole(t: _Bench) -> None:
    """Hundreds of events come back complete and in order, through get_session, windows and read_events."""
    session = await t.create()
    length = 520
    for number in range(1, length + 1):
        await t.append(session, str(number), last=number)
    _expect("read_events", [event.seq for event in await t.events()], list(range(length + 1)))
    _expect("before the beginning", len(await t.events(after_seq=-100)), length + 1)
    _expect("in the middle", [event.seq for event in await t.events(after_seq=99, limit=300)], list(range(100, 400)))
    async with trio.open_nursery() as nursery:
        for recent in (1, 300, 0, length, 260):

            async def window(recent: int = recent) -> None:
                found = await t.get("s", GetSessionConfig(num_recent_events=recent))
                _expect(f"the last {recent}", _texts(found), [str(n) for n in range(length + 1 - recent, length + 1)])

            nursery.start_soon(window)
    _expect("all of it", _texts(await t.get()), [str(number) for number in range(1, length + 1)])


# --- runs -----------------------------------------------------------------------------------------------------------


def _call_event(call_id: str, invocation_id: str = "e-1") -> Event:
    content = Content(role="model", parts=[Part(function_call=FunctionCall(name="f", id=call_id))])
    return Event(author="agent", invocation_id=invocation_id, content=content, branch="b")


def _answer_event(call_id: str, invocation_id: str = "e-1") -> Event:
    content = Content(role="user", parts=[Part(function_response=FunctionResponse(name="f", id=call_id))])
    return Event(author="agent", invocation_id=invocation_id, content=content)


@_check
async def _a_run_writes_through_its_writer(t: _Bench) -> None:
    """open_writer gives the live session; what it appends is stored, applied, and seen by get_session at once."""
    _expect("no session", await t.service.open_writer(t.key("none"), "e-1", None, reject=False), None)
    session = await t.create(a=1)
    await t.append(session, "before")
    writer = await t.writer()
    _expect("nothing is stored by entering", (await t.get()).revision, 1)
    stored = await writer.append(Event(author="user", message="hi", invocation_id="e-1", state={"a": 2}), begins=True)
    _expect("seq", stored.seq, 2)
    _expect("the live session", (writer.live.revision, writer.live.values.get("a")), (2, 2))
    _expect("its events", [event.text for event in writer.live.events], ["before", "hi"])
    _expect("get_session meanwhile", dict((await t.get()).state), {"a": 2})
    await writer.renew()
    await writer.append(Event(author="agent", message="ho", invocation_id="e-1"))
    await writer.finish(InvocationStatus.COMPLETED)
    with _raises(InvocationEndedError):
        await writer.append(Event(author="agent", message="late", invocation_id="e-1"))
    await t.unchanged(await t.get())
    _expect("events", _texts(await t.get()), ["before", "hi", "ho"])
    with _raises(StaleSessionError):
        await t.append(session, "stale by now")


@_check
async def _open_calls_are_known(t: _Bench) -> None:
    """The calls of runs are open until they are answered, by the same run or another; outside calls never are."""
    session = await t.create()
    await t.service.append_event(session, _call_event("outside"))
    writer = await t.writer()
    await writer.append(Event(author="user", message="hi", invocation_id="e-1"), begins=True)
    await writer.append(_call_event("c1"))
    await writer.append(_call_event("c2"))
    await writer.append(_answer_event("c1"))
    _expect("open calls", list(writer.live.open_calls), ["c2"])
    await writer.finish(InvocationStatus.FAILED)
    narrow = GetSessionConfig(num_recent_events=0)
    second = await t.service.open_writer(t.key(), "e-2", narrow, reject=False)
    assert second is not None
    call = second.live.open_calls["c2"]
    found = (call.name, call.seq, call.invocation_id, call.author, call.branch)
    _expect("the open call", found, ("f", 4, "e-1", "agent", "b"))
    await second.append(_answer_event("c2"))
    _expect("open calls", dict(second.live.open_calls), {})
    await second.finish(None)


@_check
async def _runs_wait_in_the_order_they_came(t: _Bench) -> None:
    """A second run on a session waits for the first to leave, first come first served; other sessions are free."""
    await t.create()
    await t.create("other")
    order: list[str] = []

    async def enter(name: str) -> None:
        writer = await t.writer(name)
        order.append(name)
        await writer.append(Event(author="user", message=name, invocation_id=name), begins=True)
        await writer.finish(InvocationStatus.COMPLETED)

    first = await t.writer("first")
    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "c"):
            nursery.start_soon(enter, name)
            await trio.testing.wait_all_tasks_blocked()
        _expect("who has entered", order, [])
        await (await t.writer("x", "other")).finish(None)
        await first.append(Event(author="user", message="first", invocation_id="first"), begins=True)
        await first.finish(InvocationStatus.COMPLETED)
    _expect("the order of entering", order, ["a", "b", "c"])
    _expect("the order of events", _texts(await t.get()), ["first", "a", "b", "c"])


@_check
async def _a_busy_session_can_be_refused(t: _Bench) -> None:
    """With reject, a session that is held raises SessionBusyError at once; a cancelled wait leaves nothing behind."""
    session = await t.create()
    first = await t.writer("first")
    with _raises(SessionBusyError, "'s'"):
        await t.service.open_writer(t.key(), "second", None, reject=True)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(t.writer, "third")
            nursery.start_soon(t.append, session)
            nursery.start_soon(t.delete)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    await first.finish(None)
    await (await t.writer("fourth", reject=True)).finish(None)
    await t.unchanged(session)


@_check
async def _appends_and_deletes_wait_for_the_run(t: _Bench) -> None:
    """append_event and delete_session from outside wait until the run has left, and never disturb it."""
    session = await t.create()
    fresh = await t.get()
    writer = await t.writer()
    ends: list[str] = []

    async def append() -> None:
        with _raises(StaleSessionError):
            await t.append(session, "outside")
        ends.append("append")

    async def delete() -> None:
        await t.delete()
        ends.append("delete")

    async with trio.open_nursery() as nursery:
        for wait in (append, delete):
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
        await writer.append(Event(author="user", message="hi", invocation_id="e-1"), begins=True)
        await writer.append(Event(author="agent", message="ho", invocation_id="e-1"))
        _expect("who has gone on", ends, [])
        _expect("reading goes on", _texts(await t.get()), ["hi", "ho"])
        with _raises(AlreadyExistsError):
            await t.create()  # says so at once, and does not wait for the run
        await writer.finish(InvocationStatus.COMPLETED)
    _expect("the order", ends, ["append", "delete"])
    _expect("the session", await t.find(), None)
    _expect("an object from before", fresh.revision, 0)


@_check
async def _waiting_inside_the_run_is_refused(t: _Bench) -> None:
    """A task of the run that would wait for the run's own session gets SessionBusyError at once."""
    session = await t.create()
    writer = await t.writer()
    async with trio.open_nursery() as nursery:
        writer.belongs_to(nursery)

        async def inside() -> None:
            with _raises(SessionBusyError, "'s'"):
                await t.append(session)
            with _raises(SessionBusyError, "'s'"):
                await t.delete()
            with _raises(SessionBusyError, "'s'"):
                await t.writer("nested")

        nursery.start_soon(inside)
    await writer.finish(None)
    await t.append(session)


@_check
async def _invocations_are_listed(t: _Bench) -> None:
    """Runs that have begun are listed, oldest first, by app and by status; outside appends are not."""
    await t.append(await t.create("1"))
    await t.create("2")
    for number, (session_id, status) in enumerate(
        [("2", InvocationStatus.COMPLETED), ("1", InvocationStatus.FAILED), ("2", InvocationStatus.CANCELLED)]
    ):
        writer = await t.writer(f"e-{number}", session_id)
        await writer.append(Event(author="user", message="hi", invocation_id=f"e-{number}"), begins=True)
        [running] = await t.service.list_invocations(app_name=t.app, status="running")
        _expect("the running one", running.invocation_id, f"e-{number}")
        await writer.finish(status)
    found = await t.service.list_invocations(app_name=t.app)
    _expect("ids, oldest first", [one.invocation_id for one in found], ["e-0", "e-1", "e-2"])
    _expect("statuses", [one.status for one in found], ["completed", "failed", "cancelled"])
    _expect("where", [(one.app_name, one.user_id, one.session_id) for one in found][1], (t.app, "u", "1"))
    _expect("the seqs they began with", [one.seq for one in found], [1, 2, 2])
    failed = await t.service.list_invocations(app_name=t.app, status=InvocationStatus.FAILED)
    _expect("the failed", [one.invocation_id for one in failed], ["e-1"])
    everywhere = [one.invocation_id for one in await t.service.list_invocations() if one.app_name == t.app]
    _expect("of all apps", everywhere, ["e-0", "e-1", "e-2"])
    _expect("of another app", await t.service.list_invocations(app_name=t.app + "-2"), [])
    with _raises(InvalidValueError, "status", "running"):
        await t.service.list_invocations(status="sleeping")
    await t.delete("2")
    left = await t.service.list_invocations(app_name=t.app)
    _expect("after deleting a session", [one.invocation_id for one in left], ["e-1"])


@_check
async def _a_run_that_never_began_leaves_nothing(t: _Bench) -> None:
    """finish(None) without an append stores nothing and lets the next one in."""
    session = await t.create()
    await (await t.writer()).finish(None)
    _expect("invocations", await t.service.list_invocations(app_name=t.app), [])
    await t.append(session)
    await t.unchanged(session)


# --- closing and opening --------------------------------------------------------------------------------------------


@_check
async def _closing_ends_the_use(t: _Bench) -> None:
    """aclose may be called twice; afterwards every operation raises ServiceClosedError."""
    async with t.opened() as service:
        session = await t.create()
        await service.aclose()
        await service.aclose()
        uses: list[Callable[[], Awaitable[object]]] = [
            partial(t.create, "2"),
            t.find,
            partial(t.append, session),
            t.events,
            t.delete,
            partial(service.list_sessions, app_name=t.app),
            service.list_invocations,
            partial(service.open_writer, t.key(), "e-1", None, reject=False),
        ]
        for use in uses:
            with _raises(ServiceClosedError, "closed"):
                await use()


@_check
async def _a_service_in_use_is_not_closed(t: _Bench) -> None:
    """aclose while a run is in the session raises ServiceInUseError, and the run goes on."""
    await t.create()
    writer = await t.writer()
    with _raises(ServiceInUseError):
        await t.service.aclose()
    await writer.append(Event(author="user", message="hi", invocation_id="e-1"), begins=True)
    await writer.finish(InvocationStatus.COMPLETED)
    _expect("events", _texts(await t.get()), ["hi"])


@_check
async def _one_trio_run_at_a_time(t: _Bench) -> None:
    """Another trio.run is refused while this one uses the service, and served while it does not."""
    await t.create(a=1)

    async def elsewhere() -> object:
        return await t.find()

    writer = await t.writer()
    with _raises(ServiceInUseError, "another trio.run"):
        await trio.to_thread.run_sync(trio.run, elsewhere)
    await writer.finish(None)
    _expect("the session, from there", await trio.to_thread.run_sync(trio.run, elsewhere) is not None, True)
    _expect("and from here", (await t.get()).state["a"], 1)


@_durable_check
async def _what_is_stored_is_there_again(t: _Bench) -> None:
    """After closing and opening the store, sessions, events, states, open calls and invocations are what they were."""
    async with t.opened():
        session = await t.create("s", a=1, user_x=1, app_y=[1], gone=1)
        actions = EventActions(state_removed=["gone", "app:y"], state_ops={"user:x": {"add": 1}})
        await t.service.append_event(session, Event(id="mine", author="a", message="1", actions=actions))
        await t.create("deleted", user_kept=1)
        await t.delete("deleted")
        await t.create("s2")
        writer = await t.writer()
        await writer.append(Event(author="user", message="2", invocation_id="e-1"), begins=True)
        await writer.append(_call_event("c1"))
        await writer.finish(InvocationStatus.FAILED)
        log = await t.events()
        before = await t.get()
    async with t.opened():
        found = await t.get()
        _expect("state", dict(found.state), {"a": 1, "user:x": 2, "user:kept": 1})
        _expect("events", list(found.events), list(before.events))
        _expect("the log", await t.events(), log)
        times = (before.revision, before.create_time, before.last_update_time)
        _expect("revision and times", (found.revision, found.create_time, found.last_update_time), times)
        _expect("the deleted session", await t.find("deleted"), None)
        listed = (await t.service.list_sessions(app_name=t.app)).sessions
        _expect("the list", [(s.id, s.revision) for s in listed], [("s", 3), ("s2", 0)])
        [invocation] = await t.service.list_invocations(app_name=t.app)
        _expect("the invocation", (invocation.invocation_id, invocation.status), ("e-1", "failed"))
        writer = await t.writer("e-2")
        _expect("open calls", list(writer.live.open_calls), ["c1"])
        await writer.finish(None)
        await t.append(found, "3", a=2)
        await t.unchanged(found)
        with _raises(AlreadyExistsError):
            await t.create("s2")


@_durable_check
async def _session_objects_survive_the_service(t: _Bench) -> None:
    """A session object from before goes on after the store was opened again: retries, staleness and identity hold."""
    async with t.opened():
        session, stale, deleted = await t.create("1"), await t.create("2"), await t.create("3")
        event = Event(id="mine", author="a", message="x")
        stored = await t.service.append_event(session, event)
        await t.append(await t.get("2"), "meanwhile")
        await t.delete("3")
        await t.create("3")
    async with t.opened():
        _expect("a retry", await t.service.append_event(session, event), stored)
        await t.append(session, "y")
        _expect("events", _texts(session), ["x", "y"])
        await t.unchanged(session)
        for old in (stale, deleted):
            with _raises(StaleSessionError):
                await t.append(old)
