"""
Calls that wait for somebody outside: questions and their answers, and the rows that keep them.

What every service promises of them is in its contract (`minirun/testing/_session_pending_checks.py`). Here are the
values, random histories, and what only a file has: indexes, other processes, ends that are recorded late.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, get_type_hints

import attrs
import cattrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import Event, EventActions, InMemorySessionService
from minirun.credentials import AuthConfig
from minirun.errors import (
    InvalidEventError,
    InvalidMessageError,
    InvalidValueError,
    StaleSessionError,
    StorageCorruptError,
    StorageError,
)
from minirun.flows._questions import REQUEST_CONFIRMATION, REQUEST_INPUT, SLEEP_UNTIL
from minirun.sessions import (
    BaseSessionService,
    GetSessionConfig,
    InvocationStatus,
    OpenCall,
    Pending,
    PendingCall,
    SessionKey,
    SqliteSessionService,
    verify,
)
from minirun.sessions._call_fold import CallFold, in_order
from minirun.sessions._calls import call_changes, is_of_a_run, take_over
from minirun.sessions._live import visible_tail
from minirun.sessions._past import rewound
from minirun.sessions._pending import check_answer, pending_call
from minirun.sessions._sqlite._schema import FORMAT
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..examples import examples
from ..stores import HERE, KEY, KINDS, Elsewhere, begin, enter, services, sql

PAUSED, COMPLETED = InvocationStatus.PAUSED, InvocationStatus.COMPLETED


def calls(*call_ids: str, name: str = "work", **args: Any) -> Content:
    return Content(role="model", parts=[Part(function_call=FunctionCall(id=i, name=name, args=args)) for i in call_ids])


def answers(*call_ids: str) -> Content:
    parts = [Part(function_response=FunctionResponse(id=call_id, name="work")) for call_id in call_ids]
    return Content(role="user", parts=parts)


def asks(invocation_id: str, *call_ids: str) -> Event:
    return Event(author="a", invocation_id=invocation_id, content=calls(*call_ids), long_running_tool_ids=call_ids)


async def pause(service: BaseSessionService, *call_ids: str, invocation_id: str = "e-1") -> None:
    """A run that asks, and pauses."""
    writer = await enter(service, invocation_id)
    await begin(writer)
    await writer.append(asks(invocation_id, *call_ids))
    await writer.finish(PAUSED)


# --- answers ----------------------------------------------------------------------------------------------------------


def question(name: str, args: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None) -> PendingCall:
    event = Event(
        author="a", invocation_id="e-1", content=calls("c", name=name, **(args or {})), custom_metadata=metadata
    )
    return pending_call(KEY, OpenCall("c", name, 1, "e-1", "a", None), event, event)


CONFIRMATION = question(
    REQUEST_CONFIRMATION,
    {
        "originalFunctionCall": {"id": "t", "name": "ship", "args": {"to": "Rome"}},
        "toolConfirmation": {"hint": "Ship it?", "confirmed": False, "payload": None},
    },
)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
INPUT = question(REQUEST_INPUT, {"message": "How many?", "response_schema": SCHEMA})
ANYTHING = question(REQUEST_INPUT, {"message": "Well?"})
LONG_RUNNING = question("render", {"file": "x"})
TIMER = question(SLEEP_UNTIL, {"until": 5})


@pytest.mark.parametrize(
    ("pending", "value", "payload", "name", "response"),
    [
        (CONFIRMATION, True, None, REQUEST_CONFIRMATION, {"confirmed": True, "payload": None}),
        (CONFIRMATION, False, {"why": "no"}, REQUEST_CONFIRMATION, {"confirmed": False, "payload": {"why": "no"}}),
        (INPUT, {"n": 3}, None, REQUEST_INPUT, {"result": {"n": 3}}),
        (ANYTHING, None, None, REQUEST_INPUT, {"result": None}),
        (ANYTHING, {"result": 1}, None, REQUEST_INPUT, {"result": {"result": 1}}),
        (LONG_RUNNING, {"url": "y"}, None, "render", {"url": "y"}),
        (LONG_RUNNING, ["y"], None, "render", {"result": ["y"]}),
        (LONG_RUNNING, None, None, "render", {"result": None}),
    ],
)
def test_a_reply_is_a_message_with_one_response(
    pending: PendingCall, value: object, payload: object, name: str, response: dict[str, Any]
) -> None:
    """It has the id and the name of the call, and the form that the kind of question has."""
    message = pending.reply(value, payload=payload)
    [part] = message.parts
    assert message.role == "user"
    assert part.function_response == FunctionResponse(id="c", name=name, response=response)
    check_answer(pending, part.function_response)


@pytest.mark.parametrize(
    ("pending", "value", "payload", "words"),
    [
        (CONFIRMATION, "yes", None, "True or False as `confirmed`, found 'yes'"),
        (CONFIRMATION, 1, None, "found 1"),
        (CONFIRMATION, None, None, "the confirmation call 'c' of 'ship'"),
        (INPUT, {"n": "3"}, None, "fits its schema"),
        (INPUT, 3, None, "answer again"),
        (INPUT, {"n": 3}, 1, "payload"),
        (LONG_RUNNING, 1, {}, "payload"),
        (TIMER, None, None, "goes on at 5.0"),
    ],
)
def test_what_is_no_answer_is_refused(pending: PendingCall, value: object, payload: object, words: str) -> None:
    """Of the wrong kind, or against the schema: told before anything is stored, so that it can be given again."""
    with pytest.raises(InvalidMessageError) as caught:
        pending.reply(value, payload=payload)
    assert words in str(caught.value)


def test_what_is_no_json_is_refused() -> None:
    """A value that could not be stored is refused as such."""
    for bad in (object(), float("nan"), {1: 2}):
        with pytest.raises(InvalidValueError):
            LONG_RUNNING.reply(bad)


@pytest.mark.parametrize(
    ("pending", "response", "words"),
    [
        (CONFIRMATION, FunctionResponse(id="d", name=REQUEST_CONFIRMATION, response={"confirmed": True}), "the id 'c'"),
        (CONFIRMATION, FunctionResponse(id="c", name="ship", response={"confirmed": True}), "found 'c' and 'ship'"),
        (CONFIRMATION, FunctionResponse(id="c", name=REQUEST_CONFIRMATION), "found None"),
        (CONFIRMATION, FunctionResponse(id="c", name=REQUEST_CONFIRMATION, response={"confirmed": 1}), "found 1"),
        (ANYTHING, FunctionResponse(id="c", name=REQUEST_INPUT, response={"answer": 1}), "a `result`"),
        (TIMER, FunctionResponse(id="c", name=SLEEP_UNTIL), "resume_due"),
    ],
)
def test_responses_are_checked_however_they_were_made(
    pending: PendingCall, response: FunctionResponse, words: str
) -> None:
    """A client may write the message itself: it must answer this call, in its form."""
    with pytest.raises(InvalidMessageError) as caught:
        check_answer(pending, response)
    assert words in str(caught.value)


def test_a_long_running_call_is_answered_by_anything() -> None:
    """Its result is whatever the tool's authors say it is."""
    check_answer(LONG_RUNNING, FunctionResponse(id="c", name="render", response={"error": "lost"}))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        (REQUEST_CONFIRMATION, {}),
        (REQUEST_CONFIRMATION, {"originalFunctionCall": "ship", "toolConfirmation": [1]}),
        (REQUEST_CONFIRMATION, {"originalFunctionCall": {"name": 1, "args": "x"}}),
        (REQUEST_INPUT, {"response_schema": "int"}),
        (SLEEP_UNTIL, {"until": "tomorrow"}),
        (SLEEP_UNTIL, {"until": True}),
        (SLEEP_UNTIL, {"until": 10**400}),
    ],
)
def test_questions_of_another_form_are_listed_all_the_same(name: str, args: dict[str, Any]) -> None:
    """An imported log may say anything; what cannot be told is left out, and the question stays open."""
    found = question(name, args)
    assert (found.tool, dict(found.args), found.hint, found.schema, found.payload, found.due) == (
        ("", {}) + (None,) * 4
    )


def test_a_schema_that_is_none_refuses_every_answer() -> None:
    """Nobody can say what fits a form that does not exist; the answer is refused with what is wrong with the form."""
    with pytest.raises(InvalidMessageError, match="response_schema"):
        question(REQUEST_INPUT, {"response_schema": {"type": "nothing"}}).reply(1)


def test_the_interim_result_is_the_hint_of_a_long_running_call() -> None:
    """It stands with the event that lets the call wait, under the id of the call, if there is one."""
    assert question("render", {}, {"interim": {"c": {"job": 7}}}).hint == {"job": 7}
    for metadata in (None, {"interim": {"d": 1}}, {"interim": 5}):
        assert question("render", {}, metadata).hint is None


# --- random histories -------------------------------------------------------------------------------------------------

IDS = ("a", "b", "c", "d")


@attrs.frozen
class Step:
    """What the next event of a random log does: it makes, marks and answers calls, or it undoes."""

    makes: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    suspends: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    undoes: int | None = None


SOME = st.lists(st.sampled_from(IDS), max_size=2, unique=True).map(tuple)
STEPS = st.lists(
    st.one_of(
        st.builds(Step, makes=SOME, waits=SOME, suspends=SOME, answers=SOME),
        st.builds(Step, makes=SOME, waits=SOME),
        st.builds(Step, answers=SOME),
        st.builds(Step, undoes=st.integers(0, 20)),
    ),
    min_size=1,
    max_size=20,
)


def event_of(step: Step, visible: list[Event], open_now: Iterable[str]) -> Event | None:
    """The event of a step, as far as it can be one of a run; *visible* is what it may undo."""
    if step.undoes is not None:
        undoable = [event for event in visible if event.actions.rewind_before_seq is None]
        if not undoable:
            return None
        target = undoable[step.undoes % len(undoable)].seq
        actions = EventActions(rewind_before_invocation_id="x", rewind_before_seq=target)
        return Event(author="user", invocation_id="e-x", actions=actions)
    makes = [call_id for call_id in step.makes if call_id not in open_now]
    known = {*makes, *open_now}
    parts = [Part(function_call=FunctionCall(id=call_id, name="work")) for call_id in makes]
    parts += [Part(function_response=FunctionResponse(id=i, name="work")) for i in step.answers if i in open_now]
    waits = [call_id for call_id in step.waits if call_id in known]
    suspended = [call_id for call_id in step.suspends if call_id in known and call_id not in waits]
    return Event(
        author="a",
        invocation_id="e-1",
        content=Content(role="model", parts=parts),
        long_running_tool_ids=waits,
        actions=EventActions(suspended_calls=suspended),
    )


def folded(log: list[Event]) -> dict[str, OpenCall]:
    """What the visible part of a log leaves open: the definition."""
    visible, _ = visible_tail(reversed(log), len(log) + 1)
    open_now: dict[str, OpenCall] = {}
    for event in visible:
        take_over(open_now, call_changes(open_now, event, tracked=is_of_a_run(event)))
    return in_order(open_now)


@given(STEPS)
def test_the_fold_of_a_log_is_that_of_what_is_visible(steps: list[Step]) -> None:
    """Reading on, and undoing what was read, comes to the same as reading only what is not undone."""
    log: list[Event] = []
    fold = CallFold()
    for step in steps:
        visible, _ = visible_tail(reversed(log), len(log) + 1)
        made = event_of(step, visible, fold.calls)
        if made is None:
            continue
        event = attrs.evolve(made, seq=len(log) + 1, id=f"{len(log)}", timestamp=1.0)
        target = event.actions.rewind_before_seq
        if target is not None:
            now = fold.calls
            past = [one for one in visible if (one.seq or 0) < target]
            take_over(now, rewound(past, visible[len(past) :]))
            assert in_order(now) == folded([*log, event])
        log.append(event)
        fold.take(event, tracked=True)
        assert fold.calls == folded(log)
        assert list(fold.calls) == list(folded(log))


async def play(steps: list[Step], stores: list[BaseSessionService], fork_at: int, path: Path) -> None:
    """Do the steps on every store, each in a run of its own, and compare all that can be seen of the calls."""
    for service in stores:
        await service.create_session(**HERE)
    log: list[Event] = []
    for number, step in enumerate(steps):
        visible, _ = visible_tail(reversed(log), len(log) + 1)
        event = event_of(step, visible, folded(log))
        if event is None:
            continue
        event = attrs.evolve(event, id=f"{number}", timestamp=1.0)
        narrow = GetSessionConfig(num_recent_events=number % 3) if number % 2 else None
        for service in stores:
            writer = await service.open_writer(KEY, "e-1", narrow, reject=False)
            assert writer is not None
            assert list(writer.live.open_calls.items()) == list(folded(log).items())
            stored = await writer.append(event, begins=True)
            await writer.finish(None)
        log.append(stored)
        assert set(await waiting(stores)) == {name for name, call in folded(log).items() if call.pending == "waits"}
    fork_at %= len(log) + 1
    for service in stores:
        everything = await service.read_events(**HERE)
        await service.fork_session(**HERE, at_seq=fork_at, new_session_id="fork")
        await service.import_session(app_name="app", user_id="u", session_id="import", events=everything)
        for name, part in (("s", log), ("fork", log[:fork_at]), ("import", log)):
            writer = await service.open_writer(SessionKey("app", "u", name), "e-2", None, reject=False)
            assert writer is not None
            assert list(writer.live.open_calls.items()) == list(folded(part).items())
            await writer.finish(None)
    assert len({tuple(await seen(service)) for service in stores}) == 1
    for service in stores:
        await service.aclose()
    assert verify(path) == []


async def waiting(stores: list[BaseSessionService]) -> list[str]:
    """The calls of the session that wait, as they began to; all stores say the same."""
    found = [[one.call_id for one in await service.list_pending(session_id="s")] for service in stores]
    assert all(each == found[0] for each in found)
    return found[0]


async def seen(service: BaseSessionService) -> list[str]:
    """All that can be listed of questions and invocations, in order."""
    questions = [f"{one.session_id} {one.call_id} {one.invocation_id}" for one in await service.list_pending()]
    invocations = [
        f"{one.session_id} {one.invocation_id} {one.status} {one.seq} {one.end_seq}"
        for one in await service.list_invocations()
    ]
    return [*questions, *invocations]


def rows(path: Path) -> list[Any]:
    query = "SELECT session, call_id, name, seq, place, invocation_id, author, branch, pending, pending_seq"
    return sql(path, f"{query} FROM open_calls ORDER BY session, seq, place")


@settings(max_examples=examples(60))
@given(steps=STEPS, fork_at=st.integers(0, 20))
def test_every_store_keeps_the_fold(steps: list[Step], fork_at: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever is made, put off, answered and undone: rows, live sessions, forks and imports agree with it."""
    folder = tmp_path_factory.mktemp("calls")

    async def main() -> None:
        file = folder / "a.db"
        stores = [InMemorySessionService(), SqliteSessionService(file, durability="process", cache_bytes=0)]
        await play(steps, stores, fork_at, file)

    trio.run(main)


# --- rows and indexes -------------------------------------------------------------------------------------------------


def plan_of(query: str) -> str:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(FORMAT.schema)
        return " / ".join(str(row[-1]) for row in db.execute(f"EXPLAIN QUERY PLAN {query}"))


async def test_what_waits_is_found_by_an_index(tmp_path: Path) -> None:
    """Questions and unfinished invocations are looked up without passing those that are over (promise P9)."""
    queries: list[str] = []
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        await service.create_session(**HERE)
        await pause(service, "c")
        connection = service._file._connection
        assert connection is not None
        connection.set_trace_callback(queries.append)
        await service.list_pending()
        await service.list_pending(app_name="app")
        await service.list_pending(session_id="s")
        for status in ("running", "paused", "interrupted"):
            await service.list_invocations(status=status)
        await service.load_invocation(KEY, "e-1")
    plans = [plan_of(query) for query in queries if "FROM open_calls" in query or "FROM invocations" in query]
    assert len(plans) == 7
    assert not [plan for plan in plans if "SCAN o" in plan and "INDEX open_calls_waiting" not in plan]
    assert not [plan for plan in plans if "SCAN i" in plan and "INDEX invocations_unfinished" not in plan]
    assert not [plan for plan in plans if "SCAN s" in plan]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rewind_of_which_little_is_loaded_restores_all_the_same(kind: str, tmp_path: Path) -> None:
    """A writer that has loaded no event knows what was open before the part that it undoes."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        await pause(service, "c")
        writer = await enter(service, "e-2")
        await begin(writer)
        await writer.append(Event(author="user", invocation_id="e-2", content=answers("c")))
        await writer.finish(COMPLETED)
        narrow = await service.open_writer(KEY, "e-3", GetSessionConfig(num_recent_events=0), reject=False)
        assert narrow is not None
        actions = EventActions(rewind_before_invocation_id="e-2", rewind_before_seq=3)
        await narrow.append(Event(author="user", invocation_id="e-3", actions=actions))
        assert list(narrow.live.open_calls) == ["c"]
        await narrow.finish(None)
        assert [one.call_id for one in await service.list_pending()] == ["c"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_run_did_not_make_is_not_opened_by_undoing(kind: str, tmp_path: Path) -> None:
    """Calls that were appended from outside, without an answer, stay what they are when something later is undone."""
    async with services(tmp_path)[kind]() as service:
        session = await service.create_session(**HERE)
        await service.append_event(session, Event(author="a", invocation_id="e-0", content=calls("outside")))
        await pause(service, "c")
        writer = await enter(service, "e-2")
        actions = EventActions(rewind_before_invocation_id="e-1", rewind_before_seq=2)
        await writer.append(Event(author="user", invocation_id="e-2", actions=actions))
        assert dict(writer.live.open_calls) == {}
        await writer.finish(None)


# --- several processes ------------------------------------------------------------------------------------------------


async def test_another_process_finds_and_answers_the_question(tmp_path: Path) -> None:
    """What one process has left paused, and closed, is listed, resumed and ended by another; the first one sees it."""
    path = tmp_path / "a.db"
    async with Elsewhere(path, durability="process") as one, Elsewhere(path, durability="process") as two:
        await one.create_session(**HERE)
        await pause(one, "c")
        assert await two.list_pending() == await one.list_pending() != []
        writer = await enter(two, "e-1")
        assert [call.pending for call in writer.live.open_calls.values()] == [Pending.WAITS]
        await writer.append(Event(author="user", invocation_id="e-1", content=answers("c")), begins=True)
        assert [found.status for found in await one.list_invocations()] == [InvocationStatus.RUNNING]
        await writer.finish(COMPLETED)
        again = await enter(one, "e-2")
        assert dict(again.live.open_calls) == {}
        await again.finish(None)


async def test_a_paused_invocation_needs_no_owner(tmp_path: Path) -> None:
    """It is listed as paused by processes that know nothing of the one that is gone; a running one as interrupted."""
    path = tmp_path / "a.db"
    async with Elsewhere(path, durability="process") as one:
        await one.create_session(**HERE)
        await pause(one, "c")
        writer = await enter(one, "e-2")
        await begin(writer)
        async with Elsewhere(path, durability="process") as two:
            statuses = [found.status for found in await two.list_invocations()]
            assert statuses == [PAUSED, InvocationStatus.RUNNING]
            assert one._leases.lock is not None
            one._leases.lock.release()  # as if the process had ended
            statuses = [found.status for found in await two.list_invocations()]
            assert statuses == [PAUSED, InvocationStatus.INTERRUPTED]
        await writer.finish(PAUSED)


async def test_an_end_that_is_recorded_late_does_not_end_who_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails as a run pauses, and another process resumes it: what the first writes later changes nothing."""
    path = tmp_path / "a.db"
    async with Elsewhere(path, durability="process") as one, Elsewhere(path, durability="process") as two:
        await one.create_session(**HERE)
        other = await one.create_session(app_name="app", user_id="u", session_id="other")
        writer = await enter(one, "e-1")
        await begin(writer)
        await writer.append(asks("e-1", "c"))

        async def fail(*args: object, **options: object) -> None:
            raise StorageError("the disk is gone")

        with monkeypatch.context() as patch:
            patch.setattr(one._file, "write", fail)
            await writer.finish(PAUSED)
        assert one._leases.lock is not None
        one._leases.lock.release()
        resumed = await enter(two, "e-1")
        await resumed.append(Event(author="user", invocation_id="e-1", content=answers("c")), begins=True)
        await one.append_event(other, Event(author="a", message="x"))
        assert one._unrecorded == {}
        [found] = await two.list_invocations()
        assert (found.status, found.end_seq) == (InvocationStatus.RUNNING, None)
        await resumed.finish(COMPLETED)


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["pending = 'soon'", "seq = 'x'", "pending_seq = 99", "branch = x'05'"])
async def test_a_row_that_was_never_written_is_damage(change: str, tmp_path: Path) -> None:
    """Whoever lists the questions, or else whoever enters the session, is told, and so is who verifies the file."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        await service.create_session(**HERE)
        await pause(service, "c")
    sql(path, f"UPDATE open_calls SET {change}")
    async with SqliteSessionService(path, durability="process") as service:
        with pytest.raises(StorageCorruptError):
            await service.list_pending()
            await enter(service)
    assert verify(path) != []


@pytest.mark.parametrize("kind", ["memory", "disk"])
async def test_an_invocation_that_has_ended_is_not_begun_again(kind: str, tmp_path: Path) -> None:
    """Somebody who has looked while it ran and stores later is told to look again; nothing is stored."""
    service = InMemorySessionService() if kind == "memory" else SqliteSessionService(tmp_path / "s.db")
    async with service:
        await service.create_session(**HERE)
        first = await enter(service, "e-1")
        await first.append(Event(author="user", invocation_id="e-1", message="go"), begins=True)
        await first.finish(COMPLETED)
        late = await enter(service, "e-1")
        with pytest.raises(StaleSessionError, match="look at it again"):
            await late.append(Event(author="user", invocation_id="e-1"), begins=True)
        await late.finish(None)
        assert [one.status for one in await service.list_invocations()] == [COMPLETED]
        assert len(await service.read_events(**HERE, after_seq=0)) == 1


async def write_history(path: Path) -> None:
    """e-1 asks and pauses (2), e-2 runs (3), e-1 is answered (4), asks again, pauses (5), is answered and ends (6)."""
    async with SqliteSessionService(path, durability="process") as service:
        await service.create_session(**HERE)
        await pause(service, "c")
        second = await enter(service, "e-2")
        await begin(second)
        await second.finish(COMPLETED)
        first = await enter(service, "e-1")
        await first.append(Event(author="user", invocation_id="e-1", content=answers("c")), begins=True)
        await first.append(asks("e-1", "d"))
        await first.finish(PAUSED)
        first = await enter(service, "e-1")
        await first.append(Event(author="user", invocation_id="e-1", content=answers("d")), begins=True)
        await first.finish(COMPLETED)


# --- what an event may say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_marks_are_stored_and_read_as_they_are(kind: str, tmp_path: Path) -> None:
    """Also from outside, where they have no effect: what an event says comes back."""
    event = Event(
        author="a", message="x", long_running_tool_ids=["b", "a"], actions=EventActions(suspended_calls=["c"])
    )
    async with services(tmp_path)[kind]() as service:
        session = await service.create_session(**HERE)
        stored = await service.append_event(session, event)
        [_, read] = await service.read_events(**HERE)
        assert read == stored
        assert (read.long_running_tool_ids, read.actions.suspended_calls) == (frozenset("ab"), ("c",))
        with pytest.raises(InvalidEventError, match="in both"):
            both = EventActions(suspended_calls=["a"])
            await service.append_event(session, attrs.evolve(event, actions=both))


# --- for programs that read types -------------------------------------------------------------------------------------


def test_the_types_of_a_question_can_be_read() -> None:
    """Each annotation of a question names something that is there, and a converter of the program's own takes it."""
    assert get_type_hints(PendingCall)["auth_config"] == AuthConfig | None
    names = ("app_name", "user_id", "session_id", "invocation_id", "call_id", "tool", "author")
    fields: dict[str, Any] = {name: name for name in names}
    question = PendingCall(kind="input", args={}, **fields)
    assert cattrs.Converter().unstructure(question)["call_id"] == "call_id"
