"""Facts about how the runs of a session begin, wait and end in each kind of store, and what is left of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minirun import Event, InMemorySessionService
from minirun._values import changed
from minirun.errors import InvalidEventError, SessionNotFoundError, StaleSessionError
from minirun.events import EventActions, Replay
from minirun.sessions import BaseSessionService, InvocationStatus
from minirun.sessions._calls import OpenCall
from minirun.sessions._event_references import check_marked_calls
from minirun.sessions._messages import has_message, take_over_messages
from minirun.types import Content, FunctionCall, Part

from ..stores import HERE, KEY, append, begin, enter, get, texts
from .test_places import asks, run
from .test_store_edges import opened

KINDS = ("memory", "sqlite in memory", "sqlite without cache", "postgres")


async def send(service: BaseSessionService, name: str, invocation_id: str) -> None:
    """Let a message wait for an invocation."""
    actions = EventActions(replay=Replay(sent="next_model_call"))
    message = Event(id=name, author="user", message="wait", invocation_id=invocation_id, actions=actions)
    await service.insert_message(KEY, message)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_is_not_completed_while_a_message_waits_for_it(kind: str, tmp_path: Path) -> None:
    """It goes on with it; but it may pause, and another run may end."""
    async with opened(kind, tmp_path) as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await send(service, "m-1", "e-1")
        assert await service.record_end(writer, InvocationStatus.COMPLETED) is False
        assert await writer.finish(InvocationStatus.COMPLETED) is False
        assert [run.status for run in await service.list_invocations()] == ["running"]
        assert await writer.finish(InvocationStatus.PAUSED) is True
        assert [run.status for run in await service.list_invocations()] == ["paused"]
        other = await enter(service, "e-2")
        await begin(other)
        await send(service, "m-2", "e-2")
        assert await other.finish(InvocationStatus.COMPLETED) is False
        [_, own] = await service.load_messages(other.live)
        await other.append(own)
        assert await other.finish(InvocationStatus.COMPLETED) is True


@pytest.mark.parametrize("kind", ["memory"])
async def test_a_run_whose_session_is_gone_or_undone_ends_quietly(kind: str, tmp_path: Path) -> None:
    """What was undone meanwhile stays cancelled, and what was deleted stays so, made again or not."""
    async with opened(kind, tmp_path) as service:
        for name in ("undone", "deleted", "made again"):
            await service.create_session(**HERE)
            writer = await enter(service)
            await begin(writer)
            if name == "undone":
                undoes = EventActions(rewind_before_invocation_id="e-1", rewind_before_seq=1)
                await service._append(writer.live, Event(author="user", actions=undoes))
            else:
                await service.remove_session(KEY)
            if name == "made again":
                await service.create_session(**HERE)
                new = await service.load_session(KEY, None)
                assert new is not None
                await service._append(new, Event(author="a", message="another one"))
                with pytest.raises(SessionNotFoundError, match="was deleted"):
                    await writer.append(Event(author="a", message="late", invocation_id="e-1"))
            assert await writer.finish(InvocationStatus.COMPLETED) is True
            found = [(run.status, run.end_seq) for run in await service.list_invocations()]
            assert found == ([("cancelled", 2)] if name == "undone" else [])
            await service.delete_session(**HERE)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_invocation_that_has_ended_does_not_begin_again(kind: str, tmp_path: Path) -> None:
    """Unless its run says that it goes on with it after all."""
    async with opened(kind, tmp_path) as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await writer.finish(InvocationStatus.COMPLETED)
        again = await enter(service)
        with pytest.raises(StaleSessionError, match=r"the invocation 'e-1' of session 's' .* has just been ended"):
            await begin(again)
        await again.finish(None)
        assert texts(await get(service)) == ["hi"]
        assert [run.status for run in await service.list_invocations()] == ["completed"]


async def test_a_session_that_is_deleted_from_memory_leaves_nothing_there() -> None:
    """Whatever its runs, questions and messages were; only what sessions share stays."""
    service = InMemorySessionService()
    empty = {name: bool(found) for name, found in vars(service).items() if isinstance(found, dict | list)}
    assert not any(empty.values())
    for status in ("paused", "completed"):
        await service.create_session(**HERE, state={"user:n": 1, "app:n": 1})
        await run(service, KEY, asks("e-1"))
        await send(service, f"m-{status}", "e-1")
        if status == "completed":
            writer = await enter(service, "e-2")
            await begin(writer)
            await writer.finish(InvocationStatus.COMPLETED)
        await service.delete_session(**HERE)
        left = {name for name in empty if getattr(service, name)}
        assert left == {"_app_values", "_user_values"}
    assert await service.list_pending() == await service.list_invocations() == []
    assert (await service.list_sessions(app_name=None)).sessions == []


@pytest.mark.parametrize("kind", KINDS)
async def test_runs_that_have_not_ended_are_found_by_where_they_began(kind: str, tmp_path: Path) -> None:
    """Those after an event, without the one that it begins, in their order; none where there is no session."""
    async with opened(kind, tmp_path) as service:
        assert await service.load_unfinished_invocations(KEY, 0) == await service.load_events(KEY, -1, None) == []
        await service.create_session(**HERE)
        for name in ("e-1", "e-2", "e-3"):
            await run(service, KEY, asks(name, f"c-{name}"))
        writer = await enter(service, "e-1")
        await begin(writer)
        await writer.finish(None)
        later = {seq: await service.load_unfinished_invocations(KEY, seq) for seq in range(4)}
        found = {seq: [one.invocation_id for one in runs] for seq, runs in later.items()}
        assert found == {0: ["e-1", "e-2", "e-3"], 1: ["e-2", "e-3"], 2: ["e-3"], 3: []}
        writer = await enter(service, "e-2")
        await begin(writer)
        await writer.finish(InvocationStatus.COMPLETED)
        assert [one.invocation_id for one in await service.load_unfinished_invocations(KEY, 0)] == ["e-1", "e-3"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_apps_with_a_session_are_those_that_have_it_now(kind: str, tmp_path: Path) -> None:
    """Of this user and this id, whatever else they have or had."""
    async with opened(kind, tmp_path) as service:
        for app, user, name in (("a", "u", "s"), ("b", "u", "s"), ("c", "u", "t"), ("d", "v", "s"), ("e", "u", "s")):
            await service.create_session(app_name=app, user_id=user, session_id=name)
        await service.delete_session(app_name="e", user_id="u", session_id="s")
        assert await service.apps_with_session("u", "s") == {"a", "b"}
        assert await service.apps_with_session("u", "x") == set()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_goes_on_and_is_left_is_interrupted_in_a_fork(kind: str, tmp_path: Path) -> None:
    """Although a call of it waits, as before it went on: nobody has said since that it does."""
    async with opened(kind, tmp_path) as service:
        await service.create_session(**HERE)
        await run(service, KEY, asks("e-1"))
        writer = await enter(service)
        await begin(writer)
        await writer.finish(None)
        await service.fork_session(**HERE, new_session_id="f")
        await service.fork_session(**HERE, at_seq=1, new_session_id="before")
        found = {run.session_id: (run.status, run.seq, run.end_seq) for run in await service.list_invocations()}
        left = ("interrupted", 1, None)
        assert found == {"s": left, "f": left, "before": left}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fork_does_not_do_again_what_was_done_to_shared_state(kind: str, tmp_path: Path) -> None:
    """Another session may have set a value in between that an operation has been applied to."""
    async with opened(kind, tmp_path) as service:
        session = await service.create_session(**HERE, state={"user:n": "text", "n": 1})
        other = await service.create_session(app_name="app", user_id="u", session_id="t")
        await append(service, other, user_n=1)
        adds = EventActions(state_ops={"user:n": {"add": 1}, "n": {"add": 1}})
        await service.append_event(session, Event(author="a", actions=adds))
        fork = await service.fork_session(**HERE, new_session_id="f")
        assert fork.state == {"user:n": 2, "n": 2}
        await service.fork_session(**HERE, at_seq=0, new_session_id="g")
        assert (await get(service, "g")).state == {"user:n": 2, "n": 1}


@pytest.mark.parametrize(
    ("resumed", "also_paused", "taken"),
    [
        (None, False, ["m-2", "m-3"]),
        ("e-1", False, ["m-2", "m-3"]),
        ("e-2", False, ["m-3"]),
        (None, True, ["m-1", "m-2", "m-3"]),
        ("e-1", True, ["m-2", "m-3"]),
        ("e-3", True, ["m-1", "m-2"]),
    ],
)
async def test_a_run_takes_over_what_waits_for_those_that_nobody_goes_on_with(
    resumed: str | None, also_paused: bool, taken: list[str]
) -> None:
    """In the order of sending; what waits for the one that it resumes, or for one that is paused, is left to it."""
    service = InMemorySessionService()
    await service.create_session(**HERE)
    for number, status in enumerate((InvocationStatus.PAUSED, None, InvocationStatus.FAILED), 1):
        writer = await enter(service, f"e-{number}")
        await begin(writer)
        await send(service, f"m-{number}", f"e-{number}")
        await writer.finish(status)
    writer = await enter(service, "e-4")
    await take_over_messages(writer, resumed, also_paused=also_paused)
    stored = [event for event in await service.read_events(**HERE) if (event.id or "").startswith("m-")]
    assert [event.id for event in stored] == taken
    left = [name for name in ("m-1", "m-2", "m-3") if name not in taken]
    assert [message.id for message in await service.load_messages(writer.live)] == left
    assert writer.live.has_messages == bool(left)
    await writer.finish(None)


def test_a_message_is_one_that_was_sent_into_this_invocation() -> None:
    """Neither what was sent into another one, nor what else was said in it."""
    sent = EventActions(replay=Replay(sent="next_model_call"))
    own = Event(author="user", invocation_id="e-1", actions=sent)
    other, said = changed(own, invocation_id="e-2"), changed(own, actions=EventActions())
    assert has_message([own], "e-1")
    assert has_message([said, other, own], "e-1")
    assert not has_message([], "e-1")
    assert not has_message([said, other], "e-1")


def test_calls_that_are_put_off_are_of_the_event_or_open() -> None:
    """Nobody could ever answer another one."""
    made = Part(function_call=FunctionCall(id="own", name="f"))
    found = {"open": OpenCall("open", "f", 1, "e", "a", None)}
    for waiting, suspended in ((["own"], ["open"]), (["open"], ["own"]), ([], [])):
        actions = EventActions(suspended_calls=suspended)
        content = Content(parts=[made])
        check_marked_calls(Event(author="a", content=content, long_running_tool_ids=waiting, actions=actions), found)
    odd = Event(author="a", long_running_tool_ids=["own", "z"], actions=EventActions(suspended_calls=["open", "b"]))
    with pytest.raises(InvalidEventError) as caught:
        check_marked_calls(odd, found)
    assert str(caught.value) == (
        "expected long_running_tool_ids and suspended_calls to name calls of this event or open ones, "
        "found ['b', 'own', 'z']"
    )
