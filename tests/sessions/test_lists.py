"""
Lists of sessions, invocations and questions: whatever is asked for is what of all there is has these names, in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from minirun import Event, InMemorySessionService
from minirun.errors import InvalidValueError, InvocationNotFoundError, SessionNotFoundError
from minirun.sessions import BaseSessionService, InvocationStatus, SessionKey
from minirun.types import Content, FunctionCall, Part

from ..stores import HERE, services

Place = tuple[str, str, str]
PLACES: list[Place] = [("b", "v", "s"), ("a", "u", "s"), ("a", "v", "t"), ("a", "u", "t"), ("b", "u", "s")]
"""In the order in which they are made."""
ENDS = (
    InvocationStatus.COMPLETED, InvocationStatus.FAILED, InvocationStatus.PAUSED, InvocationStatus.CANCELLED, None,
)  # fmt: skip
"""How the first run of each session ends; None: it is left, and so interrupted."""
NAMES: tuple[tuple[str | None, ...], ...] = ((None, "a", "b", "c"), (None, "u", "v", "w"), (None, "s", "t", "x"))


KINDS = ("memory", "sqlite process", "postgres")


def service_of(kind: str, folder: Path) -> BaseSessionService:
    return services(folder)[kind]()


async def run(service: BaseSessionService, place: Place, name: str, end: InvocationStatus | None) -> None:
    """A run of two events, which waits for an answer if it is paused."""
    writer = await service.open_writer(SessionKey(*place), name, None, reject=True)
    assert writer is not None
    await writer.append(Event(author="user", message="go", invocation_id=name), begins=True)
    asked, waits = Part(function_call=FunctionCall(id=f"{name}-c", name="ask")), end is InvocationStatus.PAUSED
    await writer.append(
        Event(
            author="a",
            invocation_id=name,
            content=Content(role="model", parts=[asked] if waits else [Part(text="x")]),
            long_running_tool_ids=[f"{name}-c"] if waits else None,
        )
    )
    await writer.finish(end)


@asynccontextmanager
async def filled(kind: str, folder: Path) -> AsyncIterator[BaseSessionService]:
    """A service with all those sessions; each has one run, and the first one a second one that waits."""
    async with service_of(kind, folder) as service:
        for number, (app, user, name) in enumerate(PLACES):
            state = {"user:n": number, f"user:{app}": name, "app:n": number, "n": number}
            await service.create_session(app_name=app, user_id=user, session_id=name, state=state)
        for number, (place, end) in enumerate(zip(PLACES, ENDS, strict=True)):
            await run(service, place, f"e-{number}", end)
        await run(service, PLACES[0], "e-last", InvocationStatus.PAUSED)
        yield service


RUNS = [*((place, f"e-{number}", end) for number, (place, end) in enumerate(zip(PLACES, ENDS, strict=True)))]
RUNS.append((PLACES[0], "e-last", InvocationStatus.PAUSED))


def fits(place: Place, asked: tuple[str | None, ...]) -> bool:
    return all(wanted in (None, found) for wanted, found in zip(asked, place, strict=False))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_list_has_what_was_asked_for_in_order(kind: str, tmp_path: Path) -> None:
    """Of an app, a user, a session, or of any: sessions as they were made, runs as they have begun, and questions."""
    async with filled(kind, tmp_path) as service:
        for app, user in product(*NAMES[:2]):
            found = await service.list_sessions(app_name=app, user_id=user)
            assert [(one.app_name, one.user_id, one.id) for one in found.sessions] == [
                place for place in PLACES if fits(place, (app, user))
            ]
        for app, user, name in product(*NAMES):
            wanted = [each for each in RUNS if fits(each[0], (app, user, name))]
            runs = await service.list_invocations(app_name=app, user_id=user, session_id=name)
            assert [(run.app_name, run.user_id, run.session_id, run.invocation_id, run.status) for run in runs] == [
                (*place, invocation_id, end or InvocationStatus.INTERRUPTED) for place, invocation_id, end in wanted
            ]
            asked = await service.list_pending(app_name=app, user_id=user, session_id=name)
            assert [(one.app_name, one.user_id, one.session_id, one.invocation_id, one.call_id) for one in asked] == [
                (*place, invocation_id, f"{invocation_id}-c")
                for place, invocation_id, end in wanted
                if end is InvocationStatus.PAUSED
            ]


@pytest.mark.parametrize("kind", KINDS)
async def test_invocations_are_listed_by_how_far_they_have_come(kind: str, tmp_path: Path) -> None:
    """With where they begin and end; one of each status is what it is by its text, too."""
    async with filled(kind, tmp_path) as service:
        for status in InvocationStatus:
            for asked in (status, str(status)):
                found = await service.list_invocations(app_name="a", status=asked)
                wanted = [each for each in RUNS if each[0][0] == "a" and (each[2] or "interrupted") == status]
                assert [(run.invocation_id, run.status) for run in found] == [(name, status) for _, name, _ in wanted]
        ends = {run.invocation_id: (run.seq, run.end_seq) for run in await service.list_invocations()}
        assert ends == {"e-4": (1, None), "e-last": (3, 4), **{f"e-{number}": (1, 2) for number in range(4)}}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_pages_of_a_list_are_the_list(kind: str, tmp_path: Path) -> None:
    """However long a page is; the last one has no next, also if it is full."""
    async with filled(kind, tmp_path) as service:
        for app, user in product((None, "a"), (None, "u")):
            whole = (await service.list_sessions(app_name=app, user_id=user)).sessions
            for limit in range(1, len(PLACES) + 2):
                pages, after = [], None
                while True:
                    page = await service.list_sessions(app_name=app, user_id=user, limit=limit, after=after)
                    pages.append(page.sessions)
                    after = page.next
                    if after is None:
                        break
                assert [len(each) for each in pages[:-1]] == [limit] * (len(pages) - 1)
                assert 0 < len(pages[-1]) <= limit
                assert [one for each in pages for one in each] == whole


@pytest.mark.parametrize("kind", KINDS)
async def test_events_are_read_from_anywhere_as_many_as_are_asked_for(kind: str, tmp_path: Path) -> None:
    """After any place and up to any number, what stands there; the past of a fork is read like its own."""
    async with filled(kind, tmp_path) as service:
        where: Any = {"app_name": "b", "user_id": "v"}
        await service.fork_session(**where, session_id="s", at_seq=2, new_session_id="fork")
        for name, length in (("s", 5), ("fork", 3)):
            whole = await service.read_events(**where, session_id=name)
            assert [event.seq for event in whole] == [*range(length)]
            for after, limit in product(
                (None, -9, -1, 0, 1, length - 2, length - 1, length, 10**30), (None, 1, 2, 10**30)
            ):
                found = await service.read_events(**where, session_id=name, after_seq=after, limit=limit)
                first = 0 if after is None or after < 0 else after + 1
                assert found == whole[min(first, length) :][:limit]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_users_share_is_that_of_one_user_in_one_app(kind: str, tmp_path: Path) -> None:
    """Without the prefix, and without what the app shares; of somebody who has nothing, nothing."""
    async with filled(kind, tmp_path) as service:
        found = {
            pair: await service.get_user_state(app_name=pair[0], user_id=pair[1]) for pair in product("abc", "uvw")
        }
        assert {pair: state for pair, state in found.items() if state} == {
            ("a", "u"): {"n": 3, "a": "t"},
            ("a", "v"): {"n": 2, "a": "t"},
            ("b", "u"): {"n": 4, "b": "s"},
            ("b", "v"): {"n": 0, "b": "s"},
        }


LIMIT = "limit: expected an integer from 1 up, or None, found"
AFTER = "after: expected the `next` of an earlier page, found"
APP = "app_name: expected letters, digits, '_' and '-', beginning with a letter or '_', and not 'user'; found"
AT = "at_seq: expected the seq of an event, from 0 up, found"
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a page of none": (lambda s: s.list_sessions(app_name=None, limit=0), f"{LIMIT} 0 of type int"),
    "a page of a bool": (lambda s: s.list_sessions(app_name=None, limit=True), f"{LIMIT} True of type bool"),
    "a page of a text": (lambda s: s.list_sessions(app_name=None, limit="1"), f"{LIMIT} '1' of type str"),
    "events of none": (lambda s: s.read_events(**HERE, limit=0), f"{LIMIT} 0 of type int"),
    "a page after a number": (lambda s: s.list_sessions(app_name=None, after=1), f"{AFTER} 1 of type int"),
    "a page after a sign": (lambda s: s.list_sessions(app_name=None, after="-1"), f"{AFTER} '-1' of type str"),
    "a page far away": (lambda s: s.list_sessions(app_name=None, after="1" * 19), f"{AFTER} '1111"),
    "an app of another letter": (lambda s: s.list_sessions(app_name="a b"), APP),
    "an app that is a user": (lambda s: s.list_invocations(app_name="user"), APP),
    "an app that is a number": (lambda s: s.list_pending(app_name=1), APP),
    "no app": (lambda s: s.get_user_state(app_name="", user_id="u"), APP),
    "an app of nodes": (lambda s: s.list_node_runs("e", app_name="1a"), APP),
    "no user": (lambda s: s.list_sessions(app_name=None, user_id=""), "user_id: expected"),
    "space around a user": (lambda s: s.list_invocations(user_id=" u"), "user_id: expected"),
    "a user that is a number": (lambda s: s.list_pending(user_id=1), "user_id: expected"),
    "a user with NUL": (lambda s: s.get_user_state(app_name="a", user_id="u\0"), "user_id: expected"),
    "a user of nodes": (lambda s: s.list_node_runs("e", user_id="u "), "user_id: expected"),
    "no session": (lambda s: s.list_invocations(session_id=""), "session_id: expected"),
    "a session that is a number": (lambda s: s.list_pending(session_id=1), "session_id: expected"),
    "a session of nodes": (lambda s: s.list_node_runs("e", session_id=""), "session_id: expected"),
    "a status": (lambda s: s.list_invocations(status="lost"), "status: expected one of running, paused, "),
    "an invocation": (lambda s: s.list_node_runs(1), "invocation_id: expected the id of an invocation, found 1"),
    "a surrogate": (lambda s: s.list_node_runs("\ud800"), "invocation_id: "),
    "events after a text": (lambda s: s.read_events(**HERE, after_seq="1"), "after_seq: expected an integer, found '"),
    "events after a bool": (lambda s: s.read_events(**HERE, after_seq=True), "after_seq: expected an integer, found T"),
    "a fork below 0": (lambda s: s.fork_session(**HERE, at_seq=-1), f"{AT} -1 of type int"),
    "a fork at a bool": (lambda s: s.fork_session(**HERE, at_seq=True), f"{AT} True of type bool"),
    "a fork at a text": (lambda s: s.fork_session(**HERE, at_seq="1"), f"{AT} '1' of type str"),
    "a fork beyond": (lambda s: s.fork_session(**HERE, at_seq=1), "at_seq: expected"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_asked_for_is_refused_by_its_name(case: str) -> None:
    """With what was expected, and what was found."""
    ask, words = REFUSED[case]
    service = InMemorySessionService()
    await service.create_session(**HERE)
    with pytest.raises(InvalidValueError) as caught:
        await ask(service)
    assert str(caught.value).startswith(words)


async def test_what_is_not_there_is_told_with_where_to_look(tmp_path: Path) -> None:
    """An invocation that several sessions have, or none; a session that another app has."""
    async with filled("memory", tmp_path) as service:
        assert await service.list_node_runs("e-1") == []
        assert await service.list_node_runs("e-1", app_name="a", user_id="u", session_id="s") == []
        for names in ({}, {"app_name": "b"}, {"app_name": "a", "user_id": "u", "session_id": "t"}):
            with pytest.raises(InvocationNotFoundError, match="found none called 'e-9'; look for it with list_invoc"):
                await service.list_node_runs("e-9", **names)
        await run(service, PLACES[2], "e-1", InvocationStatus.COMPLETED)
        with pytest.raises(
            InvalidValueError, match="expected one invocation called 'e-1', found it in a/u/s, a/v/t; say"
        ):
            await service.list_node_runs("e-1", app_name="a")
        assert await service.list_node_runs("e-1", app_name="a", user_id="v") == []
        with pytest.raises(
            SessionNotFoundError, match="there is no session 't' of user 'u' in app 'b'; the apps that "
        ):
            await service.read_events(app_name="b", user_id="u", session_id="t")


async def test_a_fork_without_an_id_or_with_a_blank_one_gets_one() -> None:
    """As a session does that is created."""
    service = InMemorySessionService()
    await service.create_session(**HERE)
    made = {(await service.fork_session(**HERE, new_session_id=blank)).id for blank in (None, "", "  \t")}
    assert len(made) == 3
    assert all(each.strip() for each in made)
