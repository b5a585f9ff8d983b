"""The checks of a session service: events, how they are appended and read, and the state they make."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from minirun._codec import from_json
from minirun.errors import InvalidEventError, InvalidValueError, MinirunError, NotSupportedError, StaleSessionError
from minirun.events import Event, EventActions
from minirun.sessions import GetSessionConfig, Session
from minirun.testing._contract import Body, expect, listed_in, raises
from minirun.types import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Part,
)

from .session_bench import Bench, folded, texts

__all__ = ["CHECKS"]

CHECKS: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)

# --- appending ------------------------------------------------------------------------------------------------------


@check
async def _an_append_advances_the_session_in_place(t: Bench) -> None:
    """append_event completes and stores the event, and the session object it was given shows it."""
    session = await t.create(a=1, b=2)
    given = Event(author="a", message="hi", state={"a": [1]}, actions=EventActions(state_removed=["b"]))
    stored = await t.service.append_event(session, given)
    expect("the given event", (given.id, given.seq, given.timestamp), (None, None, None))
    expect("seq", stored.seq, 1)
    expect("id and timestamp are filled in", (type(stored.id), type(stored.timestamp)), (str, float))
    expect("revision", session.revision, 1)
    expect("last_update_time", session.last_update_time, stored.timestamp)
    expect("state", dict(session.state), {"a": [1]})
    expect("events", list(session.events), [stored])
    named = await t.service.append_event(session=session, event=Event(id="mine", author="user", timestamp=5.0))
    expect("a given id and timestamp", (named.id, named.timestamp, named.seq), ("mine", 5.0, 2))
    found = await t.get()
    expect("events read again", list(found.events), [stored, named])
    expect("last_update_time read again", found.last_update_time, 5.0)
    await t.unchanged(session)


@check
async def _an_event_comes_back_as_it_was(t: Bench) -> None:
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
        actions=EventActions(escalate=True, skip_summarization=False, unknown_fields={"later": 2}),
    )
    stored = await t.service.append_event(session, full)
    [read] = await t.events(after_seq=0)
    expect("the event", read, stored)
    expect("its metadata, by type", repr(read.custom_metadata), "{'k': [True, 1, 1.0, '1']}")
    expect("its keys, in order", list(read.output), ["z", "a"])
    foreign = from_json(Event,
        '{"author":"b","new":[1],"content":{"parts":[{"thought":true,"new":2}]},"actions":{"new":3}}'
    )
    stored = await t.service.append_event(session, foreign)
    expect("a later version's event", (await t.get()).events[-1], stored)
    expect("its fields", stored.unknown_fields, {"new": [1]})


@check
async def _appends_through_one_object_follow_each_other(t: Bench) -> None:
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
    expect("seqs", sorted(seq or 0 for seq in seqs), list(range(1, 21)))
    expect("the counter", session.state["n"], 20)
    expect("the log is in the order of the events", list(session.state["log"]), texts(session))
    await t.unchanged(session)


@check
async def _one_of_many_stale_writers_wins(t: Bench) -> None:
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
    expect("how they ended", sorted(ends), ["stale"] * 4 + ["stored"])
    expect("revision", (await t.get()).revision, 1)


@check
async def _a_retry_is_recognized_by_its_id(t: Bench) -> None:
    """An event whose id is stored where it would come next, or last, is returned as stored, and not stored twice."""
    session = await t.create()
    late, later = await t.get(), await t.get()
    event = Event(id="mine", author="a", message="x", state={"n": [1]}, actions=EventActions(state_removed=["b"]))
    stored = await t.service.append_event(session, event)
    expect("the same object again", await t.service.append_event(session, event), stored)
    expect("the stored event again", await t.service.append_event(session, stored), stored)
    expect("an object from before", await t.service.append_event(late, event), stored)
    expect("that object", (late.revision, dict(late.state), texts(late)), (1, {"n": [1]}, ["x"]))
    await t.append(late, "y", n=2)
    expect("after others have gone on", await t.service.append_event(later, event), stored)
    expect("that object", (later.revision, dict(later.state), texts(later)), (1, {"n": [1]}, ["x"]))
    with raises(StaleSessionError):
        await t.append(later, "z")
    another = Event(id="mine", author="a", message="another")
    with raises(InvalidEventError, "'mine'"):
        await t.service.append_event(session, another)
    await t.unchanged(late)


@check
async def _a_partial_event_is_not_stored(t: Bench) -> None:
    """append_event returns a partial event untouched; its actions do nothing."""
    session = await t.create()
    partial_event = Event(author="a", message="h", partial=True, state={"a": 1})
    expect("it is the same object", await t.service.append_event(session, partial_event) is partial_event, True)
    expect("revision and state", (session.revision, dict(session.state)), (0, {}))
    await t.unchanged(session)


@check
async def _temp_keys_are_left_out(t: Bench) -> None:
    """`temp:` keys of a delta, a removal or an operation are stripped; the rest is stored."""
    session = await t.create()
    actions = EventActions(
        state_delta={"temp:a": 1, "b": 2}, state_removed=["temp:c"], state_ops={"temp:d": {"add": 1}, "e": {"add": 1}}
    )
    stored = await t.service.append_event(session, Event(author="a", actions=actions))
    expected = EventActions(state_delta={"b": 2}, state_ops={"e": {"add": 1}})
    expect("the stored actions", stored.actions, expected)
    expect("state", dict(session.state), {"b": 2, "e": 1})
    await t.unchanged(session)


@check
async def _a_bad_event_is_refused(t: Bench) -> None:
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
        (Event(author="a", actions=EventActions(end_of_agent=True)), NotSupportedError, "end_of_agent"),
        (Event(author="a", actions=EventActions(compaction={"x": 1})), InvalidEventError, "compaction"),
        (Event(author="a", long_running_tool_ids=["no good!"]), InvalidEventError, "long_running_tool_ids"),
        (Event(author="a", actions=EventActions(suspended_calls=[""])), InvalidEventError, "suspended_calls"),
        (
            Event(author="a", long_running_tool_ids=["c"], actions=EventActions(suspended_calls=["c"])),
            InvalidEventError,
            "['c']",
        ),
    ]
    for event, kind, word in bad:
        with raises(kind, word):
            await t.service.append_event(session, event)
        expect("the session", (session.revision, dict(session.state)), (0, {"text": "x"}))
    with raises(InvalidValueError, "event"):
        await t.service.append_event(session, {"author": "a"})  # type: ignore[arg-type]  # that is the point
    with raises(InvalidValueError, "session"):
        await t.service.append_event("s", Event(author="a"))  # type: ignore[arg-type]  # that is the point
    await t.unchanged(session)


@check
async def _a_cancelled_append_stored_nothing(t: Bench) -> None:
    """Cancelled at any step: if append_event raises Cancelled nothing is stored, and if it returns, it is."""
    session = await t.create(n=0)
    number = 0
    interrupted = True
    while interrupted:
        number += 1
        before = session.revision
        event = Event(author="a", actions=EventActions(state_ops={"n": {"add": 1}}))
        with trio.CancelScope() as scope:
            steps = CancelAtStep(scope, number)
            trio.lowlevel.add_instrument(steps)
            try:
                await t.service.append_event(session, event)
            finally:
                trio.lowlevel.remove_instrument(steps)
        interrupted = scope.cancel_called
        stored = 0 if scope.cancelled_caught else 1
        expect("revision", session.revision, before + stored)
        expect("state", session.state["n"], session.revision)
        await t.unchanged(session)
    with trio.CancelScope() as scope:
        scope.cancel()
        await t.append(session)
    expect("an append is a checkpoint", scope.cancelled_caught, True)
    await t.unchanged(session)


class CancelAtStep(trio.abc.Instrument):
    """Cancels *scope* after the *number*-th step of any task."""

    def __init__(self, scope: trio.CancelScope, number: int) -> None:
        self._scope = scope
        self._left = number

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


@check
async def _nothing_is_shared_with_the_caller(t: Bench) -> None:
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
    expect("state", dict(session.state), expected)
    for found in (session, await t.get()):
        expect("state", dict(found.state), expected)
        expect("the event", (found.events[0].text, found.events[0].custom_metadata), ("x", {"m": [1]}))


@check
async def _state_says_how_it_is_changed(t: Bench) -> None:
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
                expect(f"the ways in {error}", "append_event" in str(error) and "ctx.state" in str(error), True)
            else:
                expect("a change of session.state", "went through", "TypeError")
        try:
            state["cart"].append("ink")
        except TypeError as error:
            expect(f"the way in {error}", "state.extend" in str(error), True)
        else:
            expect("a change inside session.state", "went through", "TypeError")
        expect("state", dict(state), {"cart": ["pen"]})


# --- state ----------------------------------------------------------------------------------------------------------


@check
async def _none_is_a_value_and_removal_is_not(t: Bench) -> None:
    """A key set to None is there; a removed one is not, also after it was set again; removing nothing is fine."""
    session = await t.create(a=1, b=1, user_a=1, app_a=1)
    await t.append(session, a=None, user_a=None, app_a=None)
    everything = {"a": None, "b": 1, "user:a": None, "app:a": None}
    expect("state with None", dict((await t.get()).state), everything)
    removal = EventActions(state_removed=["a", "user:a", "app:a", "never", "user:never"])
    await t.service.append_event(session, Event(author="a", actions=removal))
    for found in (session, await t.get(), await t.create("other", b=1)):
        expect("state without", dict(found.state), {"b": 1})
    await t.append(session, a=2, user_a=2)
    expect("state set again", dict((await t.get()).state), {"a": 2, "b": 1, "user:a": 2})
    expect("values are replaced, not merged", dict(session.state), {"a": 2, "b": 1, "user:a": 2})
    await t.append(session, a={"x": 1})
    await t.append(session, a={"y": 1})
    expect("a dict is replaced", dict((await t.get()).state)["a"], {"y": 1})


@check
async def _shared_scopes_reach_other_sessions(t: Bench) -> None:
    """What a session writes to `user:` and `app:` is seen by sessions read later; another user sees `app:` only."""
    one, two = await t.create("1"), await t.create("2")
    stranger = await t.create("3", user="v")
    await t.append(one, user_a=1, app_b=1)
    expect("an object from before", dict(two.state), {})
    expect("the user's other session", dict((await t.get("2")).state), {"user:a": 1, "app:b": 1})
    expect("another user's session", dict((await t.get("3", user="v")).state), {"app:b": 1})
    await t.append(two, user_a=2)
    await t.append(stranger, app_b=2, user_a="mine")
    expect("the first session", dict((await t.get("1")).state), {"user:a": 2, "app:b": 2})
    expect("revisions are not touched", (await t.get("1")).revision, 1)


@check
async def _a_users_state_is_read_without_a_session(t: Bench) -> None:
    """get_user_state has the newest `user:` values without prefix, of this app and user alone, sessions or not."""
    where = {"app_name": t.app, "user_id": "u"}
    expect("before there is any", await t.service.get_user_state(**where), {})
    session = await t.create(user_a=1, user_gone=1, app_b=1, c=1)
    await t.append(session, user_a={"x": [2]}, app_b=2, d=1)
    await t.service.append_event(session, Event(author="a", actions=EventActions(state_removed=["user:gone"])))
    await t.delete()
    expect("after all", await t.service.get_user_state(**where), {"a": {"x": [2]}})
    expect("another user's", await t.service.get_user_state(app_name=t.app, user_id="v"), {})
    expect("another app's", await t.service.get_user_state(app_name=t.app + "-2", user_id="u"), {})


@check
async def _state_is_the_fold_of_the_log(t: Bench) -> None:
    """Applying a session's events, the creation included, to nothing gives its state (promise P4)."""
    session = await t.create(a=1, items=[0], user_x=1)
    await t.append(session, a=2, b=None)
    actions = EventActions(state_removed=["b"], state_ops={"items": {"extend": [1]}, "user:x": {"add": 2}})
    await t.service.append_event(session, Event(author="a", actions=actions))
    await t.append(session, c={"d": 1})
    expected = {"a": 2, "items": [0, 1], "c": {"d": 1}, "user:x": 3}
    expect("the fold", folded(await t.events()), expected)
    expect("the state", dict((await t.get()).state), expected)


# --- reading --------------------------------------------------------------------------------------------------------


@check
async def _events_are_read_in_order_and_in_parts(t: Bench) -> None:
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
        expect(f"seqs with {options}", [event.seq for event in await t.events(**options)], seqs)
    for options in ({"limit": 0}, {"limit": True}, {"limit": "1"}, {"after_seq": "1"}, {"after_seq": True}):
        with raises(InvalidValueError, *options):
            await t.events(**options)


@check
async def _a_long_history_is_read_whole(t: Bench) -> None:
    """Hundreds of events come back complete and in order, through get_session, windows and read_events."""
    session = await t.create()
    length = 520
    for number in range(1, length + 1):
        await t.append(session, str(number), last=number)
    expect("read_events", [event.seq for event in await t.events()], list(range(length + 1)))
    expect("before the beginning", len(await t.events(after_seq=-100)), length + 1)
    expect("in the middle", [event.seq for event in await t.events(after_seq=99, limit=300)], list(range(100, 400)))
    async with trio.open_nursery() as nursery:
        for recent in (1, 300, 0, length, 260):

            async def window(recent: int = recent) -> None:
                found = await t.get("s", GetSessionConfig(num_recent_events=recent))
                expect(f"the last {recent}", texts(found), [str(n) for n in range(length + 1 - recent, length + 1)])

            nursery.start_soon(window)
    expect("all of it", texts(await t.get()), [str(number) for number in range(1, length + 1)])
