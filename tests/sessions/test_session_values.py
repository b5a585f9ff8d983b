"""Facts about the sessions that services hand out: when two are equal, what a listed one is, and who is told what."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from pathlib import Path

import pytest

from minirun import (
    BaseAgent,
    Event,
    EventActions,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Runner,
    SqliteSessionService,
)
from minirun.errors import ConfigurationError, InvalidValueError, NotSupportedError, SessionNotFoundError
from minirun.sessions import BaseSessionService, Session
from minirun.testing import ScriptedLlm

from ..stores import HERE, KINDS, append, get, services


@pytest.fixture(params=KINDS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> BaseSessionService:
    return services(tmp_path)[request.param]()


def runner_of(service: BaseSessionService, *, makes: bool = False) -> Runner:
    agent = LlmAgent(name="a", model=ScriptedLlm(["hello"]))
    return Runner(app_name="app", agent=agent, session_service=service, auto_create_session=makes)


# --- state ------------------------------------------------------------------------------------------------------------


async def test_the_state_of_a_session_is_written_as_json_like_any_dict(service: BaseSessionService) -> None:
    """`json.dumps(session.state)` has all scopes, nested values too; what copies it gets a plain dict."""
    state = {"a": {"b": [1, None]}, "user:n": 2, "app:x": "y"}
    async with service:
        await service.create_session(**HERE, state=state)
        for session in (await get(service), Session.from_json((await get(service)).to_json())):
            assert json.loads(json.dumps(session.state)) == state
            assert json.loads(json.dumps(session.state, indent=1, sort_keys=True)) == state
            assert isinstance(session.state, dict)
            for copied in (copy(session.state), deepcopy(session.state), pickle.loads(pickle.dumps(session.state))):
                assert type(copied) is dict
                assert copied == state


async def test_a_state_that_somebody_holds_advances_with_its_session(service: BaseSessionService) -> None:
    """An append changes the very object, also while somebody goes through it, who sees the keys that there were."""
    async with service:
        session = await service.create_session(**HERE, state={"a": 1, "b": 2})
        state, seen = session.state, []
        for key, value in session.state.items():
            seen.append((key, value))
            await service.append_event(session, Event(author="user", state={f"{key}{key}": value, "app:n": 1}))
        await service.append_event(session, Event(author="user", actions=EventActions(state_removed=["a"])))
        assert seen == [("a", 1), ("b", 2)]
        assert session.state is state
        assert state == {"b": 2, "aa": 1, "bb": 2, "app:n": 1}
        assert json.loads(json.dumps(state)) == dict((await get(service)).state)
        for view in (state.items, state.values, state.keys):
            for _ in view():
                gone = EventActions(state_removed=[key for key in state if key != "app:n"])
                await service.append_event(session, Event(author="user", actions=gone))
            await service.append_event(session, Event(author="user", state={"c": 3, "d": 4}))


@pytest.mark.parametrize("copied", [deepcopy, lambda session: pickle.loads(pickle.dumps(session))])
async def test_a_copy_of_a_session_advances_whatever_was_read_before(
    service: BaseSessionService, copied: Callable[[Session], Session]
) -> None:
    """A session that is copied after its state was read has a state of its own, to read, and can be appended to."""
    async with service:
        session = await service.create_session(**HERE, state={"a": 1})
        assert session.state["a"] == 1
        other = copied(session)
        await append(service, other, "x", a=2)
        assert (other.state["a"], session.state["a"]) == (2, 1)
        with pytest.raises(TypeError):
            other.state["a"] = 3  # type: ignore[index]  # it is to read


# --- equality ---------------------------------------------------------------------------------------------------------


async def test_what_is_created_and_advanced_equals_what_is_read(service: BaseSessionService) -> None:
    """A session that was made, or appended to, is equal to the same one read by somebody else, in both directions."""
    async with service:
        session = await service.create_session(**HERE, state={"a": 1, "user:b": [2]})
        assert session == await get(service)
        before = await get(service)
        await append(service, session, "x", a=2)
        assert session == await get(service)
        assert await get(service) == session
        assert (session != before, before != session) == (True, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda service: append(service, Kept.session, "y"),
        lambda service: service.create_session(app_name="app", user_id="u", session_id="t", state={"user:n": 2}),
    ],
    ids=["another event", "shared state"],
)
async def test_sessions_that_read_differently_are_not_equal(change: Callable[[BaseSessionService], object]) -> None:
    """An event more, or another value of the state that is shared, makes two of one session."""
    service = InMemorySessionService()
    Kept.session = await service.create_session(**HERE, state={"user:n": 1})
    before = await get(service)
    await change(service)  # type: ignore[misc]  # both are coroutines
    assert before != await get(service)


class Kept:
    session: Session


async def test_windows_and_other_sessions_are_not_equal() -> None:
    """Fewer loaded events, another user with the same id and content, and what is no session are different."""
    service = InMemorySessionService()
    mine = await service.create_session(**HERE)
    yours = await service.create_session(app_name="app", user_id="v", session_id="s")
    await append(service, mine)
    assert await get(service, num_recent_events=0) != mine
    assert await get(service, num_recent_events=5) == mine
    assert mine != yours
    assert mine != "s"
    assert mine == mine


async def test_equal_sessions_have_one_hash() -> None:
    """Its app, user and id make it, which never change; so it stays found where it was put."""
    service = InMemorySessionService()
    session = await service.create_session(**HERE)
    found = {session}
    await append(service, session)
    assert session in found
    assert hash(session) == hash(await get(service))


async def test_the_session_of_a_run_equals_what_is_stored() -> None:
    """In a run `ctx.session` can be compared, too."""
    seen: list[bool] = []

    class Compares(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="x", state={"a": 1}))
            seen.append(ctx.session == await get(kept))

    kept = InMemorySessionService()
    runner = Runner(app_name="app", agent=Compares(name="a"), session_service=kept, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        await run.wait()
    assert seen == [True]


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_a_listed_session_is_not_taken_for_a_whole_one(service: BaseSessionService) -> None:
    """It shows ids, revision and times; its state is refused, nothing can be appended, and it equals no loaded one."""
    async with service:
        session = await service.create_session(**HERE, state={"a": 1})
        [listed] = (await service.list_sessions(app_name="app")).sessions
        assert (listed.id, listed.revision, list(listed.events)) == ("s", 0, [])
        assert listed.last_update_time == session.last_update_time
        with pytest.raises(NotSupportedError, match="get_session loads that of 's'"):
            _ = listed.state
        with pytest.raises(InvalidValueError, match="list_sessions"):
            await append(service, listed)
        assert (listed != session, session != listed) == (True, True)
        assert [listed] == (await service.list_sessions(app_name="app")).sessions
        assert (await get(service)).revision == 0


async def test_asking_again_with_the_newest_time_misses_nothing(service: BaseSessionService) -> None:
    """`after_timestamp` includes that very time, as in ADK: two events of one moment are never parted."""
    async with service:
        session = await service.create_session(**HERE)
        for number in (1, 2, 2, 3):
            await service.append_event(session, Event(author="a", message=str(number), timestamp=float(number)))
        assert [event.text for event in (await get(service, after_timestamp=2.0)).events] == ["2", "2", "3"]
        assert [event.text for event in (await get(service, after_timestamp=2.5)).events] == ["3"]


# --- advice -----------------------------------------------------------------------------------------------------------


async def test_a_missing_session_is_told_by_what_was_wanted_of_it() -> None:
    """A run may make its session, and is told so; what needs one that is there is told where to look."""
    service = InMemorySessionService()
    runner = runner_of(service)
    with pytest.raises(SessionNotFoundError, match="auto_create_session=True"):
        async with runner.run_async(user_id="u", session_id="s", new_message="hi"):
            pass
    for runs in (runner, runner_of(service, makes=True)):
        with pytest.raises(SessionNotFoundError, match="look for it with list_sessions"):
            await runs.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id="e-1")
    with pytest.raises(SessionNotFoundError, match="look for it with list_sessions"):
        await service.fork_session(**HERE)
    assert (await service.list_sessions(app_name=None)).sessions == []


# --- names of ADK -----------------------------------------------------------------------------------------------------


async def test_a_file_can_be_named_as_in_adk(tmp_path: Path) -> None:
    """`db_path` is `path` by another name; one of them is needed."""
    async with SqliteSessionService(db_path=str(tmp_path / "a.db")) as service:
        session = await service.create_session(**HERE)
    async with SqliteSessionService(tmp_path / "a.db") as service:
        assert await get(service) == session
    with pytest.raises(ConfigurationError, match="found neither"):
        SqliteSessionService()
    with pytest.raises(ConfigurationError, match="found both"):
        SqliteSessionService("a.db", db_path="a.db")


async def test_a_runner_leaves_the_service_that_it_was_given_open() -> None:
    """Leaving `async with runner` closes the runner alone: other runners may use the service."""
    service = InMemorySessionService()
    async with runner_of(service, makes=True) as runner:
        await runner.run_debug("hi", quiet=True)
    assert len((await service.list_sessions(app_name="app")).sessions) == 1
