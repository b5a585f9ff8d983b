"""
Rewinding, forking and importing: the past is never changed, and what is undone reads as if it had not been.

R1 to R3 are the defects that the documents' own implementation shows: the initial state is wiped, removed keys stay as
None, and rewinding to a place that was undone brings its state back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import Event, EventActions, InvocationContext, LlmAgent, RunConfig, Runner
from minirun._json import dumps
from minirun.errors import (
    AlreadyExistsError,
    InvalidEventError,
    InvalidValueError,
    InvocationNotFoundError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
)
from minirun.models import LlmRequest
from minirun.sessions import (
    BaseSessionService,
    GetSessionConfig,
    InMemorySessionService,
    InvocationStatus,
    Session,
    SqliteSessionService,
)
from minirun.sessions._fold import fold
from minirun.sessions._live import LiveSession, visible_tail
from minirun.sessions._state import Values
from minirun.testing import ScriptedLlm
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..examples import examples
from ..helpers import PLACE, Logic, Place
from ..interruptions import CancelAtStep
from ..stores import HERE, KEY, KINDS, Elsewhere, append, begin, enter, get, services, sql, texts

CALL = Content(role="model", parts=[Part(function_call=FunctionCall(id="c1", name="tool", args={}))])
ANSWER = Content(role="user", parts=[Part(function_response=FunctionResponse(id="c1", name="tool", response={}))])

pytestmark = pytest.mark.parametrize("kind", KINDS)


def runner_on(service: BaseSessionService, agent: Any = None) -> Runner:
    """A runner whose agent writes the state that a message names: `k=1`, `-k` removes, `+k` adds one."""
    agent = Logic(name="agent", logic=write_as_told) if agent is None else agent
    return Runner(agent=agent, app_name="app", session_service=service)


async def write_as_told(ctx: InvocationContext) -> None:
    for word in (ctx.user_content.text if ctx.user_content else "").split():
        if word.startswith("-"):
            del ctx.state[word[1:]]
        elif word.startswith("+"):
            ctx.state.add(word[1:], 1)
        elif "=" in word:
            key, value = word.split("=")
            ctx.state[key] = None if value == "None" else value
    await ctx.emit(Event(message="done"))


async def say(runner: Runner, message: str, **options: Any) -> str:
    """Run a message; return the id of its invocation."""
    async with runner.run_async(**PLACE, new_message=message, **options) as run:
        await run.wait()
    return run.invocation_id


async def rewind(runner: Runner, invocation_id: str) -> Event:
    return await runner.rewind_async(**PLACE, rewind_before_invocation_id=invocation_id)


async def state_of(service: BaseSessionService, session_id: str = "s") -> dict[str, Any]:
    return dict((await get(service, session_id)).state)


async def check_log(service: BaseSessionService, session_id: str = "s") -> None:
    """The log has no gap, and the session's own state is its fold, as ever."""
    log = await service.read_events(app_name="app", user_id="u", session_id=session_id)
    assert [event.seq for event in log] == list(range(len(log)))
    session = await get(service, session_id)
    folded = fold(Values({}, {}, {}), log, shared=False).session
    assert {k: v for k, v in session.state.items() if ":" not in k} == folded


# --- rewinding --------------------------------------------------------------------------------------------------------


async def test_a_rewind_restores_the_state_as_it_was_before(kind: str, tmp_path: Path) -> None:
    """Initial values come back (R1), new keys are gone (R2), what was removed is there; shared keys stay."""
    service = services(tmp_path)[kind]()
    async with service:
        await service.create_session(**HERE, state={"init": "i", "user:u": 0, "none": None, "kept": True})
        runner = runner_on(service)
        await say(runner, "a=1 +count")
        before = await state_of(service)
        bad = await say(runner, "init=changed new=1 -a +count -none kept=1 user:u=9 app:x=1 +user:n")
        await say(runner, "-kept later=2")
        event = await rewind(runner, bad)
        assert (event.author, event.content, event.actions.rewind_before_invocation_id) == ("user", None, bad)
        after = await state_of(service)
        assert after == {**before, "user:u": "9", "app:x": "1", "user:n": 1}
        assert after["none"] is None
        assert after["kept"] is True
        await check_log(service)
    if kind == "sqlite power":
        async with services(tmp_path)[kind]() as reopened:
            assert await state_of(reopened) == after


async def test_a_rewind_is_one_event_that_changes_only_what_differs(kind: str, tmp_path: Path) -> None:
    """Its delta names the keys that the undone part has changed, and nothing else."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE, state={f"k{n}": n for n in range(20)})
        runner = runner_on(service)
        bad = await say(runner, "k1=changed new=1 k2=2")
        count = len(await service.read_events(**HERE))
        event = await rewind(runner, bad)
        assert dict(event.actions.state_delta) == {"k1": 1, "k2": 2}
        assert event.actions.state_removed == ("new",)
        log = await service.read_events(**HERE)
        assert (len(log), log[-1], event.seq) == (count + 1, event, count)


async def test_a_rewind_tells_values_apart_that_python_calls_equal(kind: str, tmp_path: Path) -> None:
    """True, 1 and 1.0, and objects whose keys stand in another order, come back exactly as they were."""
    initial = {"flag": True, "count": 1, "object": {"a": 1, "b": 2}, "list": [0, False]}
    other = {"flag": 1, "count": 1.0, "object": {"b": 2, "a": 1}, "list": [False, 0]}
    async with services(tmp_path)[kind]() as service:
        session = await service.create_session(**HERE, state=initial)
        await service.append_event(session, Event(author="a", invocation_id="bad", state=other))
        assert dumps(dict(session.state)) == dumps(other)
        event = await rewind(runner_on(service), "bad")
        assert len(event.actions.state_delta) == 4
        assert dumps(dict((await get(service)).state)) == dumps(initial)


async def test_what_is_undone_is_not_seen_any_more(kind: str, tmp_path: Path) -> None:
    """Sessions, windows and agents see the history without it; the log still has it."""
    seen: list[list[str]] = []

    async def look(ctx: InvocationContext) -> None:
        seen.append(texts(ctx.session))
        await ctx.emit(Event(message=f"answer {len(seen)}"))

    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service, Logic(name="agent", logic=look))
        await say(runner, "first")
        bad = await say(runner, "second")
        await say(runner, "third")
        undone = await get(service)
        rewound = await rewind(runner, bad)
        session = await get(service)
        assert texts(session) == ["first", "answer 1", ""]
        assert (session.revision, session.events[-1]) == (rewound.seq, rewound)
        assert texts(undone) == ["first", "answer 1", "second", "answer 2", "third", "answer 3"]
        assert texts(await get(service, num_recent_events=2)) == ["answer 1", ""]
        assert texts(await get(service, after_seq=1)) == ["answer 1", ""]
        assert texts(await get(service, after_seq=4)) == [""]
        await say(runner, "again", run_config=RunConfig(get_session_config=GetSessionConfig(num_recent_events=2)))
        assert seen[-1] == ["answer 1", "", "again"]
        await say(runner, "whole")
        assert seen[-1] == ["first", "answer 1", "", "again", "answer 4", "whole"]
        everything = [event.text for event in await service.read_events(**HERE)]
        assert everything[3:7] == ["second", "answer 2", "third", "answer 3"]


async def test_prompts_are_as_if_it_had_not_been(kind: str, tmp_path: Path) -> None:
    """The model is asked exactly what it would have been asked without the undone turns."""
    prompts: list[list[tuple[str | None, str]]] = []

    def answer(request: LlmRequest) -> str:
        prompts.append([(content.role, content.text) for content in request.contents])
        return "yes"

    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service, LlmAgent(name="agent", model=ScriptedLlm(answer)))
        await say(runner, "one")
        bad = await say(runner, "two")
        await rewind(runner, bad)
        await say(runner, "three")
        assert prompts[-1] == [("user", "one"), ("model", "yes"), ("user", "three")]


async def test_rewinding_twice_and_to_what_was_undone(kind: str, tmp_path: Path) -> None:
    """A second rewind goes further back; one to an undone place is refused, and stores nothing (R3)."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE, state={"n": 0})
        runner = runner_on(service)
        first, second, third = [await say(runner, f"n={n} k{n}=1") for n in (1, 2, 3)]
        await rewind(runner, third)
        fourth = await say(runner, "n=4")
        for gone in (third, "e-never"):
            with pytest.raises(InvocationNotFoundError, match="undone by an earlier rewind"):
                await rewind(runner, gone)
        assert (await state_of(service))["n"] == "4"
        await rewind(runner, second)
        for gone in (second, third, fourth):
            with pytest.raises(InvocationNotFoundError):
                await rewind(runner, gone)
        assert await state_of(service) == {"n": "1", "k1": "1"}
        await rewind(runner, first)
        assert await state_of(service) == {"n": 0}
        assert texts(await get(service)) == [""]
        await check_log(service)


async def test_open_calls_are_closed_before_they_are_undone(kind: str, tmp_path: Path) -> None:
    """What an interrupted run left open has a response in the log, also where both are undone."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await writer.append(Event(author="agent", invocation_id="e-1", content=CALL))
        await writer.finish(None)
        await rewind(runner_on(service), "e-1")
        log = await service.read_events(**HERE)
        assert [response.id for event in log for response in event.get_function_responses()] == ["c1"]
        assert texts(await get(service)) == [""]
        writer = await enter(service, "e-2")
        assert writer.live.open_calls == {}
        await writer.finish(None)


async def test_a_rewind_waits_for_the_run_or_refuses(kind: str, tmp_path: Path) -> None:
    """A session that is being run is rewound after the run; with `reject`, or from inside the run, that is refused."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service)
        bad = await say(runner, "n=1")
        done: list[int | None] = []

        async def later() -> None:
            done.append((await rewind(runner, bad)).seq)

        async with trio.open_nursery() as nursery:
            async with runner.run_async(**PLACE, new_message="n=2") as run:
                with pytest.raises(SessionBusyError):
                    await rewind(runner, bad)
                with pytest.raises(SessionBusyError):
                    await runner.rewind_async(
                        **PLACE, rewind_before_invocation_id=bad, run_config=RunConfig(on_busy="reject")
                    )
                nursery.start_soon(later)
                await trio.testing.wait_all_tasks_blocked()
                assert done == []
                await run.wait()
        assert len(done) == 1
        assert await state_of(service) == {}


async def test_a_rewind_refuses_bad_input_before_anything_is_stored(kind: str, tmp_path: Path) -> None:
    """No session, no id; and nobody but rewind_async stores a rewind."""
    async with services(tmp_path)[kind]() as service:
        runner = runner_on(service)
        with pytest.raises(SessionNotFoundError):
            await rewind(runner, "e-1")
        session = await service.create_session(**HERE)
        for bad in ("", None, 3):
            with pytest.raises(InvalidValueError, match="rewind_before_invocation_id"):
                await rewind(runner, bad)  # type: ignore[arg-type]  # that is the point
        for actions in ({"rewind_before_seq": 1}, {"rewind_before_invocation_id": "e-1"}):
            with pytest.raises(InvalidEventError, match="rewind_async"):
                await service.append_event(session, Event(author="a", actions=EventActions(**actions)))
        assert len(await service.read_events(**HERE)) == 1


async def test_sessions_that_were_read_before_a_rewind_are_stale(kind: str, tmp_path: Path) -> None:
    """They go on showing what they showed, and cannot append."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service)
        bad = await say(runner, "hello")
        old = await get(service)
        await rewind(runner, bad)
        with pytest.raises(StaleSessionError):
            await append(service, old)
        assert texts(old) == ["hello", "done"]


# --- forking ----------------------------------------------------------------------------------------------------------


async def past_of(service: BaseSessionService, session_id: str) -> list[Event]:
    return await service.read_events(app_name="app", user_id="u", session_id=session_id)


async def test_a_fork_shares_the_past_and_goes_its_own_way(kind: str, tmp_path: Path) -> None:
    """At every event: the same events, the state of that moment; then the two go on without touching each other."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE, state={"n": 0, "user:n": 0})
        runner = runner_on(service)
        states = [await state_of(service)]
        session = await get(service)
        for number in range(1, 7):
            await append(service, session, str(number), n=number, **{f"k{number}": True}, user_n=number)
            states.append(await state_of(service))
        log = await past_of(service, "s")
        for at in range(7):
            fork = await service.fork_session(**HERE, at_seq=at, new_session_id=f"f{at}")
            assert (fork.id, fork.revision, fork.app_name, fork.user_id) == (f"f{at}", at, "app", "u")
            assert await past_of(service, f"f{at}") == log[: at + 1]
            assert dict(fork.state) == {**states[at], "user:n": 6}
            assert texts(fork) == [str(number) for number in range(1, at + 1)]
            await append(service, fork, "own", n=f"own {at}")
            async with runner.run_async(user_id="u", session_id=f"f{at}", new_message="k=v") as run:
                await run.wait()
            await check_log(service, f"f{at}")
        assert await past_of(service, "s") == log
        assert await state_of(service) == states[-1]
        head = await service.fork_session(**HERE)
        assert (head.id != "s", head.revision, dict(head.state)) == (True, 6, states[-1])
        listed = (await service.list_sessions(app_name="app", user_id="u")).sessions
        assert len(listed) == 9


async def test_forks_of_forks_outlive_what_they_came_from(kind: str, tmp_path: Path) -> None:
    """Deleting an original, or a fork between, takes nothing from the others; deleting all leaves no event behind."""
    async with services(tmp_path)[kind]() as service:
        session: Session = await service.create_session(**HERE)
        expected: dict[str, list[str]] = {}
        name = "s"
        for depth in range(4):
            for number in range(3):
                await append(service, session, f"{depth}.{number}")
            expected[name] = texts(session)
            name = f"f{depth}"
            if depth < 3:
                session = await service.fork_session(
                    app_name="app", user_id="u", session_id=session.id, at_seq=session.revision - 1, new_session_id=name
                )
        for gone in ("f0", "s", "f2", "f1"):
            for left, wanted in expected.items():
                assert texts(await get(service, left)) == wanted
                assert len(await past_of(service, left)) == len(wanted) + 1
                recent = await get(service, left, num_recent_events=4)
                assert texts(recent) == wanted[-4:]
            await service.delete_session(app_name="app", user_id="u", session_id=gone)
            expected.pop(gone)
        if kind in ("sqlite power", "sqlite process"):
            path = tmp_path / f"{kind.split()[1]}.db"
            for table in ("events", "shared_pasts", "sessions", "session_state"):
                assert sql(path, f"SELECT count(*) FROM {table}") == [(0,)]


async def test_a_fork_of_a_rewound_session_sees_what_was_visible_then(kind: str, tmp_path: Path) -> None:
    """Before the rewind it shows what was undone later, with the state of that moment; after it, it does not."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service)
        await say(runner, "a=1")
        bad = await say(runner, "a=2")
        rewound = await rewind(runner, bad)
        assert rewound.seq is not None
        before = await service.fork_session(**HERE, at_seq=rewound.seq - 1)
        after = await service.fork_session(**HERE, at_seq=rewound.seq)
        assert (texts(before), before.state["a"]) == (["a=1", "done", "a=2", "done"], "2")
        assert (texts(after), after.state["a"]) == (["a=1", "done", ""], "1")


async def test_a_fork_in_the_middle_of_a_run_is_interrupted_there(kind: str, tmp_path: Path) -> None:
    """Its open calls are closed by its next run, its invocation is listed as interrupted; the run itself goes on."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await writer.append(Event(author="agent", invocation_id="e-1", content=CALL))
        head = await service.fork_session(**HERE, new_session_id="head")
        await writer.append(Event(author="agent", invocation_id="e-1", content=ANSWER))
        await writer.finish(InvocationStatus.COMPLETED)
        middle = await service.fork_session(**HERE, at_seq=2, new_session_id="middle")
        ended = await service.fork_session(**HERE, at_seq=3, new_session_id="ended")
        found = {i.session_id: i.status.value for i in await service.list_invocations(app_name="app")}
        assert found == {"s": "completed", "head": "interrupted", "middle": "interrupted", "ended": "completed"}
        for fork in (head, middle, ended):
            async with runner_on(service).run_async(user_id="u", session_id=fork.id, new_message="go") as run:
                await run.wait()
            responses = [r.id for event in await past_of(service, fork.id) for r in event.get_function_responses()]
            assert responses == ["c1"]


async def test_what_was_undone_below_a_window_stays_undone(kind: str, tmp_path: Path) -> None:
    """A service that has read no more than the rewind goes on below what that has undone, when more is asked for."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service)
        await say(runner, "a=1")
        bad = await say(runner, "a=2")
        await say(runner, "a=3")
        await rewind(runner, bad)
        if kind != "memory":  # which has nothing else
            service._cache.drop(KEY)  # type: ignore[attr-defined]  # as in a process that has just begun
        assert texts(await get(service, num_recent_events=1)) == [""]
        assert texts(await get(service)) == ["a=1", "done", ""]


async def test_a_fork_before_an_answer_waits_for_one(kind: str, tmp_path: Path) -> None:
    """Between a question and its answer nobody is at work: the fork lists it as paused, and is answered by itself."""

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"so {await ctx.request_input('Sure?')}"))

    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service, Logic(name="agent", logic=ask))
        for name, answer in (("s", "yes"), ("fork", "no")):
            place: Place = {"user_id": "u", "session_id": name}
            if name == "s":
                await say(runner, "go")
                asked = (await get(service)).revision
            else:
                await service.fork_session(**HERE, at_seq=asked, new_session_id=name)
            [found] = [each for each in await service.list_invocations(app_name="app") if each.session_id == name]
            assert found.status is InvocationStatus.PAUSED
            [question] = await service.list_pending(app_name="app", **place)
            async with runner.run_async(**place, new_message=question.reply(answer)) as run:
                said = await run.wait()
            assert said is not None
            assert said.text == f"so {answer}"


async def test_a_fork_refuses_what_it_cannot_do(kind: str, tmp_path: Path) -> None:
    """No session, an id that is taken, an event that is not there: nothing is stored."""
    async with services(tmp_path)[kind]() as service:
        with pytest.raises(SessionNotFoundError):
            await service.fork_session(**HERE)
        await append(service, await service.create_session(**HERE))
        with pytest.raises(AlreadyExistsError):
            await service.fork_session(**HERE, new_session_id="s")
        with pytest.raises(AlreadyExistsError):
            await service.fork_session(**HERE, at_seq=0, new_session_id="s")
        for bad in (2, -1, True, "1", 1.0):
            with pytest.raises(InvalidValueError, match="at_seq"):
                await service.fork_session(**HERE, at_seq=bad, new_session_id="f")  # type: ignore[arg-type]  # the point
        assert len((await service.list_sessions(app_name="app")).sessions) == 1


# --- importing --------------------------------------------------------------------------------------------------------


async def test_what_is_read_can_be_imported_and_reads_the_same(kind: str, tmp_path: Path) -> None:
    """Events, ids, times, state, what is visible and open: the imported session is the other one again."""
    async with services(tmp_path)[kind]() as service, InMemorySessionService() as other:
        await service.create_session(**HERE, state={"n": 0, "user:n": 1})
        runner = runner_on(service)
        await say(runner, "a=1 +n")
        bad = await say(runner, "a=2 user:x=1 -n")
        await rewind(runner, bad)
        log = await past_of(service, "s")
        for target in (other, service):
            copy = await target.import_session(app_name="app", user_id="v", session_id="copy", events=log)
            assert texts(copy) == ["a=1 +n", "done", ""]
            assert await target.read_events(app_name="app", user_id="v", session_id="copy") == log
            assert dict(copy.state) == {"n": 1, "a": "1", "user:n": 1, "user:x": "1"}
            await append(target, copy, "goes on")
            with pytest.raises(AlreadyExistsError):
                await target.import_session(app_name="app", user_id="v", session_id="copy", events=log)


async def test_an_import_is_all_or_nothing(kind: str, tmp_path: Path) -> None:
    """A history with a gap, without its beginning, with an id twice or an operation that fits nothing is refused."""
    async with services(tmp_path)[kind]() as service:
        session = await service.create_session(**HERE, state={"n": "text"})
        await append(service, session, "1")
        await append(service, session, "2")
        log = await past_of(service, "s")
        broken = EventActions(state_ops={"n": {"add": 1}})
        histories: list[list[Event]] = [
            [],
            log[1:],
            [log[0], log[2]],
            [*log, log[-1]],
            [log[0], Event(author="a", message="never stored")],
            [*log, Event(id="x", author="a", seq=3, timestamp=1.0, actions=broken)],
            [*log, Event(id="x", author="a", seq=3, timestamp=1.0, actions=EventActions(rewind_before_seq=3))],
        ]
        for history in histories:
            with pytest.raises((InvalidValueError, InvalidEventError)):
                await service.import_session(app_name="app", user_id="u", session_id="new", events=history)
        assert await service.get_session(app_name="app", user_id="u", session_id="new") is None
        await service.import_session(app_name="app", user_id="u", session_id="new", events=log)


# --- laws -------------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from(["a=1", "a=2 b=1", "+n", "-a", "b=None", ""])),
        st.tuples(st.just("rewind"), st.integers(0, 5)),
        st.tuples(st.just("fork"), st.integers(0, 12)),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=examples(60))
@given(steps=STEPS)
def test_rewinds_and_forks_are_what_a_list_would_do(kind: str, steps: list[tuple[str, Any]]) -> None:
    """For any sequence of turns, rewinds and forks the service agrees with a model that keeps plain lists."""
    if kind not in ("memory", "sqlite in memory", "sqlite without cache"):
        return
    trio.run(check_against_lists, kind, steps)


async def check_against_lists(kind: str, steps: list[tuple[str, Any]]) -> None:
    """Model: for each event of the log, the visible turns and the state right after it."""
    service: BaseSessionService = (
        InMemorySessionService()
        if kind == "memory"
        else SqliteSessionService(":memory:", cache_bytes=0 if "without" in kind else 2**20)
    )
    async with service:
        await service.create_session(**HERE, state={"a": "0"})
        name, runner = "s", runner_on(service)
        history: list[tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]] = [([], {"a": "0"})]
        for number, (step, argument) in enumerate(steps):
            turns, state = history[-1]
            if step == "say":
                words = [word for word in argument.split() if word != "-a" or "a" in state]
                async with runner.run_async(user_id="u", session_id=name, new_message=" ".join(words) or "x") as run:
                    await run.wait()
                changed = dict(state)
                for word in words:
                    if word == "-a":
                        del changed["a"]
                    elif word == "+n":
                        changed["n"] = changed.get("n", 0) + 1
                    else:
                        key, value = word.split("=")
                        changed[key] = None if value == "None" else value
                history.append(([*turns, (run.invocation_id, state)], state))
                history.append((history[-1][0], changed))
            elif step == "rewind" and turns:
                target = argument % len(turns)
                await runner.rewind_async(user_id="u", session_id=name, rewind_before_invocation_id=turns[target][0])
                history.append((turns[:target], turns[target][1]))
            elif step == "fork":
                at = argument % len(history)
                fork = await service.fork_session(
                    app_name="app", user_id="u", session_id=name, at_seq=at, new_session_id=f"f{number}"
                )
                name, history = fork.id, history[: at + 1]
            session = await get(service, name)
            turns, state = history[-1]
            visible = list(dict.fromkeys(e.invocation_id for e in session.events if e.content is not None))
            assert visible == [turn for turn, _ in turns]
            assert dict(session.state) == state
            assert session.revision == len(history) - 1
            await check_log(service, name)


async def test_a_rewind_by_another_process_is_seen_here(kind: str, tmp_path: Path) -> None:
    """A service that has the session in its cache catches up with a rewind that it did not do."""
    if kind != "sqlite process":
        return
    path = tmp_path / "shared.db"
    async with (
        Elsewhere(path, durability="process") as one,
        Elsewhere(path, durability="process") as two,
        Elsewhere(path, durability="process") as narrow,
    ):
        await one.create_session(**HERE)
        bad = await say(runner_on(one), "a=1")
        assert texts(await get(narrow, num_recent_events=1)) == ["done"]
        assert texts(await get(two)) == ["a=1", "done"]
        await rewind(runner_on(one), bad)
        session = await get(two)
        assert (texts(session), dict(session.state)) == ([""], {})
        assert texts(await get(two, num_recent_events=5)) == [""]
        assert texts(await get(narrow, num_recent_events=1)) == [""]
        assert texts(await get(narrow)) == [""]
        await say(runner_on(two), "b=1")
        assert texts(await get(one)) == ["", "b=1", "done"]


async def test_a_session_made_again_while_its_past_is_read_is_another(kind: str, tmp_path: Path) -> None:
    """A fork of the past never mixes what was deleted with what has its name now."""
    if kind != "sqlite process":
        return
    path = tmp_path / "shared.db"
    async with Elsewhere(path, durability="process") as one, Elsewhere(path, durability="process") as two:
        session = await one.create_session(**HERE)
        for number in range(3):
            await append(one, session, f"old {number}", n=f"old {number}")
        real, raced = one.load_events, False

        async def read(*arguments: Any) -> list[Event]:
            nonlocal raced
            found = await real(*arguments)
            if not raced:
                raced = True
                await two.delete_session(**HERE)
                again = await two.create_session(**HERE)
                for number in range(3):
                    await append(two, again, f"new {number}", n=f"new {number}")
            return found

        one.load_events = read  # type: ignore[assignment]  # another process acts in between
        fork = await one.fork_session(**HERE, at_seq=2)
        assert (texts(fork), fork.state["n"]) == (["new 0", "new 1"], "new 1")


async def test_a_file_that_went_back_in_time_is_read_as_it_is(kind: str, tmp_path: Path) -> None:
    """Where a backup was restored below an open service, it shows what is stored, and goes on from there."""
    if kind != "sqlite process":
        return
    path = tmp_path / "process.db"
    async with services(tmp_path)[kind]() as service:
        session = await service.create_session(**HERE)
        await append(service, session, "kept")
        [(row,)] = sql(path, "SELECT chain FROM sessions")
        await append(service, session, "lost")
        sql(path, "DELETE FROM events WHERE seq = 2")
        sql(path, "UPDATE sessions SET revision = 1, chain = ?", row)
        with trio.fail_after(60), pytest.raises(StaleSessionError):
            await append(service, session, "more")
        found = await get(service)
        assert texts(found) == ["kept"]
        await append(service, found, "more")
        assert texts(await get(service)) == ["kept", "more"]


# --- where views could differ -----------------------------------------------------------------------------------------


async def test_a_rewind_is_not_undone(kind: str, tmp_path: Path) -> None:
    """Going back to a rewind is refused: what it had undone would come back for those who read the log anew."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service)
        await say(runner, "a=1")
        rewound = await rewind(runner, await say(runner, "a=2"))
        assert rewound.invocation_id is not None
        with pytest.raises(InvocationNotFoundError):
            await rewind(runner, rewound.invocation_id)
        log = await past_of(service, "s")
        for target in (rewound.seq, 4, 0):
            actions = EventActions(rewind_before_invocation_id="x", rewind_before_seq=target)
            again = Event(id="again", author="user", seq=len(log), timestamp=1.0, actions=actions)
            with pytest.raises(InvalidValueError, match="rewind_before_seq"):
                await service.import_session(app_name="app", user_id="u", session_id="x", events=[*log, again])


@given(targets=st.lists(st.integers(0, 30), max_size=30))
def test_what_comes_and_what_is_loaded_agree_on_what_is_visible(kind: str, targets: list[int]) -> None:
    """A log read event by event, and one read from its end in parts, show the same, whatever was rewound."""
    live = LiveSession(KEY, Values({}, {}, {}), incarnation=1, create_time=0.0)
    log: list[Event] = []
    for target in targets:
        undoable = [event for event in live.events if event.actions.rewind_before_seq is None]
        actions = EventActions()
        if undoable and target % 4 == 0:
            seq = undoable[target // 4 % len(undoable)].seq
            actions = EventActions(rewind_before_invocation_id="x", rewind_before_seq=seq)
        event = Event(id="e", author="a", seq=len(log) + 1, timestamp=1.0, actions=actions)
        log.append(event)
        live.advance(event, {}, {})
    for size in (1, 3, 100):
        visible: list[Event] = []
        until = len(log) + 1
        while until > 1:
            part, until = visible_tail(reversed(log[max(0, until - 1 - size) : until - 1]), until)
            visible = [*part, *visible]
        assert visible == live.events


async def test_a_call_id_is_free_again_when_its_call_is_undone(kind: str, tmp_path: Path) -> None:
    """Live and opened again alike; the log has it twice, closed twice, and can be imported."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        for name in ("e-1", "e-2"):
            writer = await enter(service, name)
            await begin(writer)
            assert "c1" not in writer.live.call_ids
            await writer.append(Event(author="agent", invocation_id=name, content=CALL))
            await writer.finish(None)
            await rewind(runner_on(service), name)
        log = await past_of(service, "s")
        assert [r.id for event in log for r in event.get_function_responses()] == ["c1", "c1"]
        assert len({event.id for event in log}) == len(log)
        await service.import_session(app_name="app", user_id="u", session_id="copy", events=log)


async def test_what_is_open_is_open_in_imports_and_forks(kind: str, tmp_path: Path) -> None:
    """A call that a run left open is closed by the next one: also in a fork of an import, at its end and before."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await writer.append(Event(author="agent", invocation_id="e-1", content=CALL))
        await writer.append(Event(author="agent", invocation_id="e-1", message="still there"))
        log = await past_of(service, "s")
        await writer.finish(None)
        await service.import_session(app_name="app", user_id="u", session_id="copy", events=log)
        for name, at in (("head", None), ("past", 2)):
            await service.fork_session(app_name="app", user_id="u", session_id="copy", at_seq=at, new_session_id=name)
        for name in ("copy", "head", "past"):
            async with runner_on(service).run_async(user_id="u", session_id=name, new_message="go") as run:
                await run.wait()
            responses = [r.id for event in await past_of(service, name) for r in event.get_function_responses()]
            assert responses == ["c1"]


async def test_a_fork_that_was_cancelled_is_not_there(kind: str, tmp_path: Path) -> None:
    """At every step of forking and importing: cancelled means that nothing was stored."""
    async with services(tmp_path)[kind]() as service:
        session = await service.create_session(**HERE)
        for number in range(5):
            await append(service, session, str(number))
        log = await past_of(service, "s")
        step, quiet = 0, 0
        while quiet < 6:
            step += 1
            works: dict[str, Callable[[], Awaitable[Session]]] = {
                "head": partial(service.fork_session, **HERE, new_session_id=f"head{step}"),
                "past": partial(service.fork_session, **HERE, at_seq=2, new_session_id=f"past{step}"),
                "copy": partial(
                    service.import_session, app_name="app", user_id="u", session_id=f"copy{step}", events=log
                ),
            }
            steps = 0
            for name, work in works.items():
                with trio.CancelScope() as scope:
                    instrument = CancelAtStep(scope, step)
                    trio.lowlevel.add_instrument(instrument)
                    try:
                        await work()
                    finally:
                        trio.lowlevel.remove_instrument(instrument)
                steps = max(steps, instrument.steps)
                found = await service.get_session(app_name="app", user_id="u", session_id=f"{name}{step}")
                assert (found is None) == scope.cancelled_caught
            quiet = quiet + 1 if steps < step else 0


async def test_a_session_deleted_while_it_is_rewound_is_not_found(kind: str, tmp_path: Path) -> None:
    """By another process, between opening it and reading its creation record."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service)
        bad = await say(runner, "a=1")

        async def nothing(*arguments: Any) -> list[Event]:
            return []

        service.load_events = nothing  # type: ignore[assignment]  # what is left of it for this reader
        with pytest.raises(SessionNotFoundError):
            await rewind(runner, bad)


async def test_a_fork_of_what_a_rewind_has_undone_waits_for_nobody(kind: str, tmp_path: Path) -> None:
    """An answer was undone, so its invocation waits again; in a fork at an event behind the answer it does not."""

    async def asks(ctx: InvocationContext) -> None:
        if ctx.user_content is not None and ctx.user_content.text != "other":
            await ctx.request_input("Which?")

    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        runner = runner_on(service, Logic(name="agent", logic=asks))
        async with runner.run_async(**PLACE, new_message="go") as asking:
            await asking.wait()
        async with runner.run_async(**PLACE, new_message="other") as other:
            await other.wait()
        async with runner.run_async(**PLACE, new_message=asking.pending[0].reply("this")) as answered:
            await answered.wait()
        answered_at = (await get(service)).revision
        await runner.rewind_async(**PLACE, rewind_before_invocation_id=other.invocation_id)
        await service.fork_session(**HERE, new_session_id="then", at_seq=answered_at)
        statuses = {
            session_id: [
                (one.invocation_id == asking.invocation_id, one.status)
                for one in await service.list_invocations(app_name="app", user_id="u", session_id=session_id)
            ]
            for session_id in ("s", "then")
        }
    assert (True, InvocationStatus.PAUSED) in statuses["s"]
    assert (True, InvocationStatus.INTERRUPTED) in statuses["then"]
