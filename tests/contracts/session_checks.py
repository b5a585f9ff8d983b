"""The checks of a session service: sessions, made, found, listed and deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from minirun.errors import (
    InvalidValueError,
    NotSupportedError,
    SessionNotFoundError,
    StaleSessionError,
)
from minirun.events import Event
from minirun.sessions import GetSessionConfig, Session
from minirun.testing._contract import Body, expect, listed_in, raises

from .session_bench import Bench, texts

__all__ = ["CHECKS"]

CHECKS: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)

# --- creating and getting -------------------------------------------------------------------------------------------


@check
async def _a_new_session_is_empty(t: Bench) -> None:
    """create_session returns a session at revision 0 without events, and get_session returns the same."""
    session = await t.create("s", user="u", a=1)
    for found in (session, await t.get()):
        expect("id, app, user", (found.id, found.app_name, found.user_id), ("s", t.app, "u"))
        expect("revision", found.revision, 0)
        expect("events", list(found.events), [])
        expect("state", dict(found.state), {"a": 1})
        expect("last_update_time of a new session", found.last_update_time, found.create_time)
        expect("type of create_time", type(found.create_time), float)
    expect("create_time of the two", (await t.get()).create_time, session.create_time)


@check
async def _ids_are_kept_as_given_or_made(t: Bench) -> None:
    """Ids are kept exactly as given; space around one is refused; without one, or with a blank one, one is made."""
    session = await t.create("s s", user="\u00fc \U0001f600")
    expect("ids", (session.id, session.user_id), ("s s", "\u00fc \U0001f600"))
    for padded in (" s", "s ", "s\u3000", "\u00a0s", "s\n", "\x85s", "a\tb", "a\x1bb", "a\u2028b"):
        with raises(InvalidValueError, "session_id"):
            await t.create(padded)
        with raises(InvalidValueError, "user_id"):
            await t.create(user=padded)
    made = [(await t.create(blank)).id for blank in (None, "", "  \t")]
    expect("ids that were made differ and are not blank", len({*made, "s"} - {""}), 4)
    for session_id in made:
        expect("a made id is found", (await t.get(session_id)).id, session_id)


@check
async def _bad_names_and_ids_are_refused(t: Bench) -> None:
    """App names with spaces, ids with NUL or half a character, blanks and other types: refused by name."""
    create: Callable[..., Awaitable[Session]] = partial(
        t.service.create_session, app_name=t.app, user_id="u", session_id="s"
    )
    for app in ("", "two words", "user", "1st", "a/b", "ä", 5, None):
        with raises(InvalidValueError, "app_name"):
            await create(app_name=app)
    for user in ("", "  ", "a\0b", "\ud800", "x" * 2000, 5, None):
        with raises(InvalidValueError, "user_id"):
            await create(user_id=user)
    for session_id in ("a\0", "\ud800", "x" * 2000, 5, b"s"):
        with raises(InvalidValueError, "session_id"):
            await create(session_id=session_id)
        with raises(InvalidValueError, "session_id"):
            await t.find(session_id)  # type: ignore[arg-type]  # some are no strings
    listed = await t.service.list_sessions(app_name=t.app)
    expect("nothing was stored", listed.sessions, [])


@check
async def _long_ids_are_refused_for_new_sessions(t: Bench) -> None:
    """512 bytes of UTF-8 are an id, one more is too long, for a fork and an import as well."""
    await t.service.create_session(app_name=t.app, user_id="ü" * 256, session_id="s" * 512)
    create = partial(t.service.create_session, app_name=t.app)
    with raises(InvalidValueError, "user_id: expected at most 512 bytes"):
        await create(user_id="ü" * 256 + "x", session_id="s")
    with raises(InvalidValueError, "session_id: expected at most 512 bytes"):
        await create(user_id="u", session_id="s" * 513)
    await t.create("s")
    with raises(InvalidValueError, "session_id: expected at most 512 bytes"):
        await t.service.fork_session(app_name=t.app, user_id="u", session_id="s", new_session_id="s" * 513)
    history = await t.service.read_events(app_name=t.app, user_id="u", session_id="s")
    with raises(InvalidValueError, "session_id: expected at most 512 bytes"):
        await t.service.import_session(app_name=t.app, user_id="u", session_id="s" * 513, events=history)
    listed = await t.service.list_sessions(app_name=t.app)
    expect("two sessions", len(listed.sessions), 2)


@check
async def _an_initial_state_is_checked(t: Bench) -> None:
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
        with raises(InvalidValueError, path):
            await t.service.create_session(app_name=t.app, user_id="u", session_id="s", state=state)
        expect("the session", await t.find(), None)
    expect("state of the user", dict((await t.create()).state), {})


@check
async def _an_initial_state_is_split_by_scope(t: Bench) -> None:
    """`user:` and `app:` keys of an initial state are seen by the user's and the app's other sessions."""
    everything = {"a": 1, "user:b": 2, "app:c": 3, "session:d": 4, "x:y": None}
    session = await t.service.create_session(app_name=t.app, user_id="u", session_id="s", state=everything)
    expect("state", dict(session.state), everything)
    expect("the user's other session", dict((await t.create("s2")).state), {"user:b": 2, "app:c": 3})
    expect("another user's session", dict((await t.create("s3", user="v")).state), {"app:c": 3})
    expect("another app's session", dict((await t.create("s", app=t.app + "-2")).state), {})
    expect("state read again", dict((await t.get()).state), everything)


@check
async def _the_creation_is_event_zero(t: Bench) -> None:
    """The initial state is an event with seq 0, in read_events and not in session.events."""
    session = await t.create(a=1, user_b=[2])
    [record] = await t.events()
    expect("seq of the record", record.seq, 0)
    expect("its state_delta", dict(record.actions.state_delta), {"a": 1, "user:b": [2]})
    expect("it is complete", None in (record.id, record.author, record.timestamp), False)
    expect("its timestamp", record.timestamp, session.create_time)
    await t.append(session)
    expect("seqs", [event.seq for event in await t.events()], [0, 1])
    expect("events of the session", [event.seq for event in (await t.get()).events], [1])
    await t.create("empty")
    expect("seqs without a state", [event.seq for event in await t.events("empty")], [0])


@check
async def _what_does_not_exist_is_none(t: Bench) -> None:
    """get_session returns None for an unknown id, user or app; appending or reading there raises."""
    session = await t.create()
    expect("unknown id", await t.find("other"), None)
    expect("unknown user", await t.find(user="other"), None)
    expect("unknown app", await t.find(app=t.app + "-2"), None)
    with raises(SessionNotFoundError, "'other'", "list_sessions"):
        await t.events("other")
    await t.delete()
    with raises(SessionNotFoundError, "'s'"):
        await t.append(session)
    with raises(SessionNotFoundError, "'s'"):
        await t.events()
    expect("nothing came into being", await t.find(), None)


@check
async def _windows_limit_events_and_never_state(t: Bench) -> None:
    """num_recent_events, after_seq and after_timestamp choose a tail of the events; state and revision are whole."""
    session = await t.create(start=True)
    for number in range(1, 7):
        event = Event(author="a", message=str(number), timestamp=1000.0 + number, state={f"k{number}": number})
        await t.service.append_event(session, event)
    windows: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["1", "2", "3", "4", "5", "6"]),
        ({"num_recent_events": 0}, []),
        ({"num_recent_events": 2}, ["5", "6"]),
        ({"num_recent_events": 2**63 - 1}, ["1", "2", "3", "4", "5", "6"]),
        ({"after_seq": 0}, ["1", "2", "3", "4", "5", "6"]),
        ({"after_seq": 4}, ["5", "6"]),
        ({"after_seq": 6}, []),
        ({"after_seq": 2**63 - 1}, []),
        ({"after_timestamp": 1004.0}, ["4", "5", "6"]),
        ({"after_timestamp": 1003.5}, ["4", "5", "6"]),
        ({"after_timestamp": 0}, ["1", "2", "3", "4", "5", "6"]),
        ({"after_timestamp": 1e300}, []),
        ({"num_recent_events": 3, "after_seq": 4}, ["5", "6"]),
        ({"num_recent_events": 1, "after_seq": 2}, ["6"]),
        ({"num_recent_events": 5, "after_seq": 1, "after_timestamp": 1005.0}, ["5", "6"]),
    ]
    for options, expected in windows + windows[::-1]:
        found = await t.get("s", GetSessionConfig(**options))
        expect(f"events with {options}", texts(found), expected)
        expect(f"state with {options}", dict(found.state), dict(session.state))
        expect(f"revision with {options}", found.revision, 6)
    narrow = await t.get("s", GetSessionConfig(num_recent_events=0))
    await t.append(narrow, "7")
    expect("events of a narrow session after an append", texts(narrow), ["7"])
    with raises(InvalidValueError, "config"):
        await t.find("s", 5)  # type: ignore[arg-type]  # that is the point


@check
async def _a_session_stays_as_it_was(t: Bench) -> None:
    """What get_session returned does not change when the session, or its scopes, go on without it."""
    session = await t.create(a=1, user_n=1)
    await t.append(session, "1", a=2)
    before = await t.get()
    await t.append(session, "2", a=3, user_n=3)
    expect("state", dict(before.state), {"a": 2, "user:n": 1})
    expect("events", texts(before), ["1"])
    expect("revision", before.revision, 1)


# --- listing and deleting -------------------------------------------------------------------------------------------


@check
async def _a_list_has_no_events_and_no_state(t: Bench) -> None:
    """list_sessions gives sessions in the order they were made, with revision and times, without events and state."""
    await t.create("b", user="u", a=1, user_x=1)
    await t.create("a", user="v", app_y=1)
    session = await t.create("c", user="u")
    stored = await t.service.append_event(session, Event(author="a", message="x", timestamp=5.0, state={"k": 1}))
    found = (await t.service.list_sessions(app_name=t.app)).sessions
    expect("ids", [(s.user_id, s.id) for s in found], [("u", "b"), ("v", "a"), ("u", "c")])
    expect("revisions", [s.revision for s in found], [0, 0, 1])
    expect("last_update_time", found[2].last_update_time, stored.timestamp)
    expect("create_time", found[2].create_time, session.create_time)
    expect("events", [list(s.events) for s in found], [[]] * 3)
    with raises(NotSupportedError, "get_session"):
        found[0].state.get("a")
    with raises(InvalidValueError, "list_sessions"):  # it is not whole
        await t.service.append_event(found[0], Event(author="a", message="x"))
    of_user = await t.service.list_sessions(app_name=t.app, user_id="u")
    expect("ids of the user", [s.id for s in of_user.sessions], ["b", "c"])
    expect("no further page", of_user.next, None)
    expect("an unknown user", (await t.service.list_sessions(app_name=t.app, user_id="w")).sessions, [])


@check
async def _a_list_over_all_apps(t: Bench) -> None:
    """`app_name=None` lists the sessions of every app."""
    await t.create("s", user="everywhere")
    await t.create("s", user="everywhere", app=t.app + "-2")
    found = (await t.service.list_sessions(app_name=None, user_id="everywhere")).sessions
    mine = [s.app_name for s in found if s.app_name.startswith(t.app)]
    expect("apps", mine, [t.app, t.app + "-2"])


@check
async def _pages_are_stable(t: Bench) -> None:
    """Sessions made and deleted between two pages neither hide nor repeat one that stays."""
    for number in range(6):
        await t.create(f"s{number}")
    seen: list[str] = []
    after = None
    for changed in range(10):
        page = await t.service.list_sessions(app_name=t.app, user_id="u", limit=2, after=after)
        seen += [session.id for session in page.sessions]
        expect("the size of a page", len(page.sessions) <= 2, True)
        if changed == 0:
            await t.delete("s0")  # of the page that was read
            await t.delete("s2")  # of the one to come
            await t.create("s6")
        after = page.next
        if after is None:
            break
    expect("ids", seen, ["s0", "s1", "s3", "s4", "s5", "s6"])
    everything = await t.service.list_sessions(app_name=t.app, limit=10**30)
    expect("a huge limit", (len(everything.sessions), everything.next), (5, None))
    exact = await t.service.list_sessions(app_name=t.app, limit=5)
    expect("a limit of exactly as many", exact.next, None)
    for limit in (0, -1, True, "2", 1.5):
        with raises(InvalidValueError, "limit"):
            await t.service.list_sessions(app_name=t.app, limit=limit)  # type: ignore[arg-type]  # that is the point
    for bad in ("x", "-1", "", "9" * 30, 5):
        with raises(InvalidValueError, "after"):
            await t.service.list_sessions(app_name=t.app, after=bad)  # type: ignore[arg-type]  # that is the point


@check
async def _deleting_keeps_the_shared_scopes(t: Bench) -> None:
    """delete_session removes events and state, keeps `user:` and `app:`, and may be repeated."""
    session = await t.create(a=1, user_b=1, app_c=1)
    await t.append(session, user_b=2, app_d=2)
    for _ in range(2):
        await t.delete()
        expect("the session", await t.find(), None)
    expect("the list", (await t.service.list_sessions(app_name=t.app)).sessions, [])
    again = await t.create("other")
    expect("the user's state", dict(again.state), {"user:b": 2, "app:c": 1, "app:d": 2})


@check
async def _a_session_made_again_is_another(t: Bench) -> None:
    """After delete and create an old session object is stale, even at the same revision; the new one is empty."""
    old = await t.create(a=1)
    await t.append(old, "old")
    await t.delete()
    new = await t.create(b=2)
    await t.append(new, "new")
    for text in ("new", "old"):
        with raises(StaleSessionError, "get_session"):
            await t.append(old, text)
    found = await t.get()
    expect("events", texts(found), ["new"])
    expect("state", dict(found.state), {"b": 2})
    expect("seqs", [event.seq for event in await t.events()], [0, 1])
