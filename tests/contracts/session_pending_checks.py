"""The checks of a session service: calls that wait for somebody outside, and invocations that pause."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from minirun._values import changed
from minirun.credentials import AuthConfig
from minirun.errors import (
    InvalidEventError,
    InvalidMessageError,
    InvalidValueError,
    ServiceClosedError,
    StaleSessionError,
)
from minirun.events import Event, EventActions
from minirun.flows._questions import (
    REQUEST_CONFIRMATION,
    REQUEST_CREDENTIAL,
    REQUEST_INPUT,
    REQUEST_MESSAGE,
    SLEEP_UNTIL,
)
from minirun.sessions import GetSessionConfig, Invocation, InvocationStatus, PendingCall, SessionWriter
from minirun.testing._contract import Body, expect, listed_in, raises
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from .session_bench import Bench

__all__ = ["CHECKS", "DURABLE"]

CHECKS: dict[str, Body[Bench]] = {}
DURABLE: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)
durable_check = listed_in(DURABLE)

PAUSED, COMPLETED = InvocationStatus.PAUSED, InvocationStatus.COMPLETED


# --- short forms ------------------------------------------------------------------------------------------------------


def _calls(
    invocation_id: str,
    *calls: tuple[str, str, dict[str, Any]],
    waits: Iterable[str] = (),
    suspended: Iterable[str] = (),
    interim: dict[str, Any] | None = None,
) -> Event:
    """An event with calls, each an id, a name and arguments."""
    parts = [Part(function_call=FunctionCall(id=call_id, name=name, args=args)) for call_id, name, args in calls]
    return Event(
        author="agent",
        branch="b",
        invocation_id=invocation_id,
        content=Content(role="model", parts=parts) if parts else None,
        long_running_tool_ids=tuple(waits),
        actions=EventActions(suspended_calls=tuple(suspended)),
        custom_metadata={"interim": interim} if interim else None,
    )


def _asks(invocation_id: str, *call_ids: str) -> Event:
    """An event with calls of long-running tools."""
    return _calls(invocation_id, *((call_id, "work", {}) for call_id in call_ids), waits=call_ids)


def _answers(invocation_id: str, *call_ids: str, name: str = "work") -> Event:
    parts = [Part(function_response=FunctionResponse(id=call_id, name=name)) for call_id in call_ids]
    return Event(author="user", invocation_id=invocation_id, content=Content(role="user", parts=parts))


def _says(invocation_id: str, text: str = "hi") -> Event:
    return Event(author="user", message=text, invocation_id=invocation_id)


async def _run(
    t: Bench, invocation_id: str, *events: Event, session_id: str = "s", status: InvocationStatus | None = PAUSED
) -> None:
    """A run, of a new invocation or one that goes on, that stores these events and ends so."""
    writer = await t.writer(invocation_id, session_id)
    for event in events:
        await writer.append(event, begins=event is events[0])
    await writer.finish(status)


async def _rewind(t: Bench, target: int, session_id: str = "s") -> None:
    writer = await t.writer("e-rewind", session_id)
    actions = EventActions(rewind_before_invocation_id="e", rewind_before_seq=target)
    await writer.append(Event(author="user", invocation_id="e-rewind", actions=actions))
    await _expect_rows(t, writer)
    await writer.finish(None)


async def _expect_rows(t: Bench, writer: SessionWriter) -> None:
    """What the writer has at hand is what is pending, in the order of the log."""
    waiting = [call.call_id for call in writer.live.open_calls.values() if call.pending == "waits"]
    expect("what waits in the live session", sorted(waiting), sorted(await _pending(t, writer.live.key.session_id)))
    places = [(call.seq, call.place) for call in writer.live.open_calls.values()]
    expect("the order of the open calls", places, sorted(places))


async def _pending(t: Bench, session_id: str | None = None, **options: Any) -> list[str]:
    found = await t.service.list_pending(app_name=t.app, session_id=session_id, **options)
    return [pending.call_id for pending in found]


async def _one(t: Bench) -> PendingCall:
    [found] = await t.service.list_pending(app_name=t.app)
    return found


async def _invocation(t: Bench, invocation_id: str, session_id: str = "s") -> Invocation:
    found = await t.service.load_invocation(t.key(session_id), invocation_id)
    expect("the invocation is found", found is not None, True)
    assert found is not None
    listed = [
        one
        for one in await t.service.list_invocations(app_name=t.app, status=found.status)
        if (one.session_id, one.invocation_id) == (session_id, invocation_id)
    ]
    expect("what is listed of it", listed, [found])
    return found


async def _status(t: Bench, invocation_id: str, session_id: str = "s") -> str:
    return str((await _invocation(t, invocation_id, session_id)).status)


# --- calls that wait --------------------------------------------------------------------------------------------------


@check
async def _open_calls_say_what_they_wait_for(t: Bench) -> None:
    """A mark of the call's own event or of a later one counts, the last one; an answer ends it."""
    await t.create()
    writer = await t.writer()
    await writer.append(_says("e-1"), begins=True)
    await writer.append(_calls("e-1", *((name, "f", {}) for name in "abc"), waits="a", suspended="b"))
    calls = writer.live.open_calls
    expect("their marks", [str(call.pending) for call in calls.values()], ["waits", "suspended", ""])
    expect("who has said so", [call.pending_seq for call in calls.values()], [2, 2, 0])
    expect("their places", [call.place for call in calls.values()], [0, 1, 2])
    await writer.append(_calls("e-1", waits="c", suspended="a"))
    expect("their marks then", [str(call.pending) for call in calls.values()], ["suspended", "suspended", "waits"])
    await writer.append(_answers("e-1", "b"))
    await writer.finish(PAUSED)
    again = await t.writer("e-2")
    found = {call.call_id: (str(call.pending), call.pending_seq) for call in again.live.open_calls.values()}
    expect("read again", found, {"a": ("suspended", 3), "c": ("waits", 3)})
    await again.append(_answers("e-2", "c", "a"))
    expect("after the answers", dict(again.live.open_calls), {})
    expect("what is pending", await _pending(t), [])
    await again.finish(None)


@check
async def _marks_name_calls_that_are_open(t: Bench) -> None:
    """A run that puts off a call that is not open is told so, and nothing is stored; from outside it has no effect."""
    session = await t.create()
    outside = _asks("e-0", "never-open")
    stored = await t.service.append_event(session, outside)
    expect("the stored ids", stored.long_running_tool_ids, frozenset({"never-open"}))
    writer = await t.writer()
    await writer.append(_says("e-1"), begins=True)
    await writer.append(_calls("e-1", ("c", "f", {})))
    for event in (_calls("e-1", waits=["x"]), _calls("e-1", suspended=["c", "never-open"])):
        with raises(InvalidEventError, "open ones"):
            await writer.append(event)
    expect("revision", writer.live.revision, 3)
    await writer.append(_answers("e-1", "c"))
    with raises(InvalidEventError, "['c']"):
        await writer.append(_calls("e-1", waits=["c"]))
    await writer.finish(COMPLETED)
    expect("what is pending", await _pending(t), [])


@check
async def _questions_are_listed(t: Bench) -> None:
    """Each kind with what a person needs to answer it; timers only when they are asked for."""
    await t.create()
    original = {"id": "tool", "name": "ship", "args": {"to": "Rome"}}
    confirmation = {"hint": "Ship it?", "confirmed": False, "payload": {"weight": 2}}
    schema = {"type": "integer"}
    config = AuthConfig("mail", "basic", hint="Log in")
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("tool", "ship", {"to": "Rome"}),
        ("c", REQUEST_CONFIRMATION, {"originalFunctionCall": original, "toolConfirmation": confirmation}),
        ("i", REQUEST_INPUT, {"message": "How many?", "payload": [1], "response_schema": schema}),
        ("k", REQUEST_CREDENTIAL, {"functionCallId": "tool", "authConfig": config.to_dict()}),
        ("l", "render", {"file": "x"}),
        ("m", REQUEST_MESSAGE, {"message": "What else?"}),
        ("t", SLEEP_UNTIL, {"until": 1234.5}),
    ]
    event = _calls("e-1", *asked, waits="cklmt", suspended=["tool"], interim={"l": {"job": 7}})
    await _run(t, "e-1", _says("e-1"), event, _calls("e-1", waits="i"))
    found = {pending.call_id: pending for pending in await t.service.list_pending(app_name=t.app)}
    expect("which", list(found), ["c", "k", "l", "m", "i"])
    shown = {
        name: (one.kind, one.tool, dict(one.args), one.hint, one.schema, one.payload) for name, one in found.items()
    }
    expect("the confirmation", shown["c"], ("confirmation", "ship", {"to": "Rome"}, "Ship it?", None, {"weight": 2}))
    expect("the input", shown["i"], ("input", "", {}, "How many?", schema, [1]))
    expect("the credential", shown["k"], ("credential", "", {}, "Log in", None, None))
    expect("which one it is", found["k"].auth_config, config)
    expect("that of others", found["i"].auth_config, None)
    expect("the long-running call", shown["l"], ("long_running", "render", {"file": "x"}, {"job": 7}, None, None))
    expect("the message", shown["m"], ("message", "", {}, "What else?", None, None))
    one = found["c"]
    place = (one.app_name, one.user_id, one.session_id, one.invocation_id, one.author, one.branch, one.due)
    expect("where", place, (t.app, "u", "s", "e-1", "agent", "b", None))
    [timer] = [each for each in await t.service.list_pending(include_timers=True) if each.app_name == t.app][4:5]
    expect("the timer", (timer.call_id, timer.kind, timer.due), ("t", "timer", 1234.5))
    [part] = one.reply(True).parts
    assert part.function_response is not None
    expect("the answer's call", (part.function_response.id, part.function_response.name), ("c", REQUEST_CONFIRMATION))


def _converses(invocation_id: str, call_id: str, said: str | None) -> Event:
    """An event in which an agent in a conversation has said something, and waits for what the user says."""
    args = {} if said is None else {"message": said}
    return _calls(invocation_id, (call_id, REQUEST_MESSAGE, args), waits=[call_id])


def _heard(invocation_id: str, call_id: str, text: str) -> Event:
    part = Part(function_response=FunctionResponse(id=call_id, name=REQUEST_MESSAGE, response={"result": text}))
    return Event(author="user", invocation_id=invocation_id, content=Content(role="user", parts=[part]))


@check
async def _a_conversation_waits_for_a_text(t: Bench) -> None:
    """Turn by turn: each question with what was said before it, or nothing; the answer is a text with words in it."""
    await t.create()
    await _run(t, "e-1", _says("e-1"), _converses("e-1", "m1", "What would you like?"))
    one = await _one(t)
    asked = (one.kind, one.tool, dict(one.args), one.hint, one.schema, one.payload, one.due, one.auth_config)
    expect("the question", asked, ("message", "", {}, "What would you like?", None, None, None, None))
    expect("where", (one.session_id, one.invocation_id, one.author, one.branch), ("s", "e-1", "agent", "b"))
    for wrong in (5, "", " ", None, True, {"result": "tea"}):
        with raises(InvalidMessageError, "message", "m1", "text"):
            one.reply(wrong)
    with raises(InvalidMessageError, "payload"):
        one.reply("tea", payload=1)
    reply = one.reply("tea")
    expect("the reply", reply, _heard("e-1", "m1", "tea").content)
    await _run(t, "e-1", _heard("e-1", "m1", "tea"), _converses("e-1", "m2", None))
    again = await _one(t)
    expect("the next question", (again.kind, again.call_id, again.hint), ("message", "m2", None))
    expect("the invocation", await _status(t, "e-1"), "paused")
    await _run(t, "e-1", _heard("e-1", "m2", "two"), status=COMPLETED)
    expect("what is pending", await _pending(t), [])


@check
async def _who_is_in_a_conversation_is_known_without_its_history(t: Bench) -> None:
    """A session that is opened knows the open question, and whose the last event is: a plain message is the answer."""
    await t.create()
    await _run(t, "e-1", _says("e-1"), _converses("e-1", "m", "What?"))
    for name in ("fork", "copy"):
        if name == "fork":
            await t.service.fork_session(app_name=t.app, user_id="u", session_id="s", new_session_id=name)
        else:
            await t.service.import_session(app_name=t.app, user_id="u", session_id=name, events=await t.events())
    for session_id in ("s", "fork", "copy"):
        writer = await t.writer("e-2", session_id)
        [one] = writer.live.open_calls.values()
        found = (one.call_id, one.name, str(one.pending), one.invocation_id)
        expect(f"the open call of {session_id!r}", found, ("m", REQUEST_MESSAGE, "waits", "e-1"))
        await t.service.load_session(t.key(session_id), GetSessionConfig(num_recent_events=1))
        expect(f"the last at work in {session_id!r}", writer.live.events[-1].invocation_id, "e-1")
        await writer.finish(None)
    asked = [(one.session_id, one.kind, one.hint) for one in await t.service.list_pending(app_name=t.app)]
    expect("where it is asked", asked, [(session_id, "message", "What?") for session_id in ("s", "fork", "copy")])


@check
async def _what_is_said_of_credentials_is_kept(t: Bench) -> None:
    """An event says of credentials what its questions ask, and it reads back equal; anything else is refused."""
    session = await t.create()
    config = AuthConfig("mail").to_dict()
    question = _calls("e-1", ("k", REQUEST_CREDENTIAL, {"functionCallId": "tool", "authConfig": config}))
    asked = changed(question, actions=EventActions(requested_auth_configs={"tool": config}))
    stored = await t.service.append_event(session, asked)
    expect("what is kept", stored.actions.requested_auth_configs, {"tool": config})
    expect("what is read", (await t.events())[-1], stored)
    for said in ({"other": config}, {"tool": AuthConfig("other").to_dict()}, {"tool": config, "more": config}):
        with raises(InvalidEventError, "requested_auth_configs"):
            await t.service.append_event(session, changed(question, actions=EventActions(requested_auth_configs=said)))
    with raises(InvalidEventError, "requested_auth_configs"):
        said_alone = EventActions(requested_auth_configs={"tool": config})
        await t.service.append_event(session, Event(author="a", message="x", actions=said_alone))
    secret = {**config, "apiKey": "secret"}
    with raises(InvalidValueError, "authConfig"):
        wrong = _calls("e-1", ("k2", REQUEST_CREDENTIAL, {"functionCallId": "tool", "authConfig": secret}))
        await t.service.append_event(
            session, changed(wrong, actions=EventActions(requested_auth_configs={"tool": secret}))
        )
    expect("what is stored", len(await t.events()), 2)


@check
async def _questions_are_listed_across_sessions(t: Bench) -> None:
    """The one that waits longest first, of one app, user or session if one is given; those of deleted ones are gone."""
    for session_id in ("1", "2", "3"):
        await t.create(session_id)
    await t.create("1", user="v")
    await _run(t, "e-2", _says("e-2"), _asks("e-2", "x", "y"), session_id="2")
    await _run(t, "e-1", _says("e-1"), _calls("e-1", ("late", "f", {})), session_id="1", status=None)
    await _run(t, "e-3", _says("e-3"), _asks("e-3", "z"), session_id="3")
    await _run(t, "e-1", _calls("e-1", waits=["late"]), session_id="1")
    expect("all", await _pending(t), ["x", "y", "z", "late"])
    expect("of one session", await _pending(t, "2"), ["x", "y"])
    expect("of one user", await _pending(t, user_id="v"), [])
    expect("of another app", await t.service.list_pending(app_name=t.app + "-2"), [])
    expect("of no session", await _pending(t, "none"), [])
    await _run(t, "e-2", _answers("e-2", "x"), session_id="2")
    await t.delete("3")
    expect("what is left", await _pending(t), ["y", "late"])
    with raises(InvalidValueError, "app_name"):
        await t.service.list_pending(app_name="two words")
    for blank in ("", " "):
        with raises(InvalidValueError, "user_id"):
            await t.service.list_pending(user_id=blank)
        with raises(InvalidValueError, "session_id"):
            await t.service.list_pending(session_id=blank)
    await t.service.aclose()
    with raises(ServiceClosedError):
        await t.service.list_pending()


# --- pausing ----------------------------------------------------------------------------------------------------------


@check
async def _a_paused_invocation_goes_on(t: Bench) -> None:
    """Paused is recorded, and listed, until it begins again: then it runs, with its first seq and place in the list."""
    await t.create()
    expect("an invocation that is not there", await t.service.load_invocation(t.key(), "e-1"), None)
    expect("of no session", await t.service.load_invocation(t.key("none"), "e-1"), None)
    await _run(t, "e-1", _says("e-1"), _asks("e-1", "c"))
    await _run(t, "e-2", _says("e-2"), status=COMPLETED)
    paused = await _invocation(t, "e-1")
    expect("the paused one", (paused.status, paused.seq, paused.end_seq), (PAUSED, 1, 2))
    visitor = await t.writer("e-1")
    await visitor.append(_says("e-1", "not begun"))
    await visitor.finish(InvocationStatus.FAILED)
    writer = await t.writer("e-1")
    expect("before it begins again", await _invocation(t, "e-1"), paused)
    await writer.append(_answers("e-1", "c"), begins=True)
    running = await _invocation(t, "e-1")
    expect("the running one", (running.status, running.seq, running.end_seq), ("running", 1, None))
    await writer.append(_asks("e-1", "d"))
    await writer.finish(PAUSED)
    expect("paused again", (await _invocation(t, "e-1")).end_seq, 6)
    await _run(t, "e-1", _answers("e-1", "d"), status=COMPLETED)
    listed = await t.service.list_invocations(app_name=t.app)
    expect(
        "the list",
        [(one.invocation_id, str(one.status)) for one in listed],
        [("e-1", "completed"), ("e-2", "completed")],
    )
    expect("no paused one", await t.service.list_invocations(app_name=t.app, status=PAUSED), [])
    late = await t.writer("e-1")
    with raises(StaleSessionError, "ended"):
        await late.append(_says("e-1", "too late"), begins=True)
    await late.finish(None)
    expect("what is stored", len(await t.events()), 8)


@check
async def _an_invocation_that_is_left_is_interrupted(t: Bench) -> None:
    """A writer that gives up, saying nothing of the end, leaves it interrupted; another one can go on with it."""
    await t.create()
    for number in range(2):
        writer = await t.writer("e-1")
        await writer.append(_says("e-1"), begins=True)
        expect("with a writer", await _status(t, "e-1"), "running")
        await writer.finish(None)
        left = await _invocation(t, "e-1")
        expect(f"left {number + 1} times", (left.status, left.seq, left.end_seq), ("interrupted", 1, None))
    expect("the running ones", await t.service.list_invocations(app_name=t.app, status="running"), [])
    await _run(t, "e-1", _says("e-1"), status=COMPLETED)
    visitor = await t.writer("e-1")
    await visitor.append(_says("e-1", "not begun"))
    await visitor.finish(None)
    expect("in the end", await _status(t, "e-1"), "completed")


@durable_check
async def _a_paused_invocation_survives(t: Bench) -> None:
    """After closing and opening the store it is paused, its question can be listed, and answered."""
    async with t.opened():
        await t.create()
        await _run(t, "e-1", _says("e-1"), _calls("e-1", ("tool", "f", {}), suspended=["tool"]), _asks("e-1", "c"))
        before = await _one(t)
    async with t.opened():
        expect("the question", await _one(t), before)
        expect("its invocation", await _status(t, "e-1"), "paused")
        writer = await t.writer("e-1")
        expect("open calls", [str(one.pending) for one in writer.live.open_calls.values()], ["suspended", "waits"])
        await writer.append(_answers("e-1", "c"), begins=True)
        await writer.finish(COMPLETED)
        expect("what is pending", await _pending(t), [])


@durable_check
async def _a_conversation_survives(t: Bench) -> None:
    """After closing and opening the store the agent still waits for what the user says, and is told it."""
    async with t.opened():
        await t.create()
        await _run(t, "e-1", _says("e-1"), _converses("e-1", "m", "What?"))
        before = await _one(t)
    async with t.opened():
        expect("the question", await _one(t), before)
        writer = await t.writer("e-1")
        expect("the open calls", [one.name for one in writer.live.open_calls.values()], [REQUEST_MESSAGE])
        await writer.append(_heard("e-1", "m", "tea"), begins=True)
        await writer.finish(COMPLETED)
        expect("what is pending", await _pending(t), [])


# --- histories --------------------------------------------------------------------------------------------------------


@check
async def _an_undone_question_is_not_asked(t: Bench) -> None:
    """Nor is its call open; the invocation that has asked it is cancelled, and does not go on."""
    await t.create()
    await _run(t, "e-1", _says("e-1"), _asks("e-1", "kept"))
    await _run(t, "e-2", _says("e-2"), _asks("e-2", "undone"), _calls("e-2", ("tool", "f", {})))
    await _rewind(t, 3)
    expect("what is pending", await _pending(t), ["kept"])
    writer = await t.writer("e-3")
    expect("what is open", list(writer.live.open_calls), ["kept"])
    await writer.finish(None)
    expect("their states", (await _status(t, "e-1"), await _status(t, "e-2")), ("paused", "cancelled"))


@check
async def _an_undone_answer_is_awaited_again(t: Bench) -> None:
    """What was answered, or put off otherwise, in the undone part is as it was before; so is the invocation."""
    await t.create()
    calls: list[tuple[str, str, dict[str, Any]]] = [("tool", "f", {}), ("a", "work", {}), ("b", "work", {})]
    await _run(t, "e-1", _says("e-1"), _calls("e-1", *calls, waits="ab", suspended=["tool"]))
    await _run(t, "e-2", _says("e-2"), status=COMPLETED)
    await _run(t, "e-1", _answers("e-1", "b"), _calls("e-1", suspended="a"), _calls("e-1", ("n", "f", {})))
    expect("what is pending", await _pending(t), [])
    await _run(t, "e-1", _answers("e-1", "a", "tool"), _answers("e-1", "n"), status=COMPLETED)
    await _rewind(t, 3)
    expect("what is pending after undoing that", await _pending(t), ["a", "b"])
    found = await _invocation(t, "e-1")
    expect("its state", (found.status, found.seq, found.end_seq), (PAUSED, 1, 2))
    expect("that of the other one", await _status(t, "e-2"), "completed")
    writer = await t.writer("e-1")
    marks = [(call.call_id, str(call.pending)) for call in writer.live.open_calls.values()]
    expect("the open calls", marks, [("tool", "suspended"), ("a", "waits"), ("b", "waits")])
    await writer.append(_answers("e-1", "a", "b", "tool"), begins=True)
    expect("answered once more", dict(writer.live.open_calls), {})
    await writer.finish(COMPLETED)


@check
async def _an_undone_end_is_none(t: Bench) -> None:
    """An invocation that went on, and ended, in the undone part, without a question, is interrupted again."""
    await t.create()
    await _run(t, "e-1", _says("e-1"), _calls("e-1", ("c", "f", {})))
    await _run(t, "e-2", _says("e-2"), status=COMPLETED)
    await _run(t, "e-1", _answers("e-1", "c"), status=COMPLETED)
    await _rewind(t, 3)
    expect("its state", await _status(t, "e-1"), "interrupted")
    writer = await t.writer("e-3")
    expect("the open calls", list(writer.live.open_calls), ["c"])
    await writer.finish(None)


@check
async def _rewinds_of_rewinds_restore_what_was_visible(t: Bench) -> None:
    """A call that was answered in one undone part, and restored, is gone with the next one that undoes it."""
    await t.create()
    await _run(t, "e-1", _says("e-1"), _asks("e-1", "a"))
    await _run(t, "e-2", _says("e-2"), _asks("e-2", "b"))
    await _run(t, "e-3", _says("e-3"), _answers("e-3", "a", "b"))
    await _rewind(t, 5)
    expect("after the first", await _pending(t), ["a", "b"])
    await _run(t, "e-4", _says("e-4"), _answers("e-4", "a"))
    await _rewind(t, 3)
    expect("after the second", await _pending(t), ["a"])
    await _rewind(t, 1)
    expect("after the third", await _pending(t), [])


async def _forks_of_an_import(t: Bench) -> None:
    """Also where nobody has recorded how the invocation ended: the log tells that it waited."""
    await t.service.import_session(app_name=t.app, user_id="u", session_id="copy", events=await t.events())
    forking = partial(t.service.fork_session, app_name=t.app, user_id="u", session_id="copy")
    for at, expected in {1: [], 2: ["paused"], 3: ["paused"], 4: []}.items():
        name = f"c{at}"
        await forking(at_seq=at, new_session_id=name)
        found = [one.status.value for one in await t.service.list_invocations(app_name=t.app) if one.session_id == name]
        expect(f"the invocations of a fork of an import at {at}", found, expected)
        expect("what it asks", await _pending(t, name), ["a"] if expected else [])
    await _run(t, "e-1", _answers("e-1", "a"), session_id="c2", status=COMPLETED)
    expect("the fork of an import that was answered", await _status(t, "e-1", "c2"), "completed")
    for name in ("copy", "c1", "c2", "c3", "c4"):
        await t.service.delete_session(app_name=t.app, user_id="u", session_id=name)


@check
async def _a_fork_asks_what_was_asked_then(t: Bench) -> None:
    """At each event: the questions of that moment, beside those of the original; its paused invocation can go on."""
    await t.create()
    await _run(t, "e-1", _says("e-1"), _asks("e-1", "a"))
    await _run(t, "e-2", _says("e-2"), status=COMPLETED)
    await _run(t, "e-1", _answers("e-1", "a"), status=COMPLETED)
    expected = {1: ([], "interrupted"), 2: (["a"], "paused"), 3: (["a"], "paused"), 4: ([], "completed")}
    for at, (asked, status) in expected.items():
        name = f"f{at}"
        await t.service.fork_session(app_name=t.app, user_id="u", session_id="s", at_seq=at, new_session_id=name)
        expect(f"what is asked at {at}", await _pending(t, name), asked)
        expect(f"the state at {at}", await _status(t, "e-1", name), status)
    expect("everywhere", await _pending(t), ["a", "a"])
    await _run(t, "e-1", _answers("e-1", "a"), session_id="f2", status=COMPLETED)
    expect("the fork that was answered", await _status(t, "e-1", "f2"), "completed")
    expect("the others", [one.session_id for one in await t.service.list_pending(app_name=t.app)], ["f3"])
    await _forks_of_an_import(t)
    await t.create("p")
    await _run(t, "e-9", _says("e-9"), _asks("e-9", "z"), session_id="p")
    await t.service.fork_session(app_name=t.app, user_id="u", session_id="p", new_session_id="head")
    expect("the head of a paused one", await _status(t, "e-9", "head"), "paused")
    asked_of = [(one.session_id, one.call_id) for one in await t.service.list_pending(app_name=t.app)]
    expect("its question", asked_of, [("f3", "a"), ("p", "z"), ("head", "z")])


@check
async def _an_imported_question_can_be_answered(t: Bench) -> None:
    """What an imported history leaves open and waiting is pending, in an invocation that is paused."""
    await t.create()
    await _run(t, "e-1", _says("e-1"), _asks("e-1", "a"))
    await _run(t, "e-2", _says("e-2"), _asks("e-2", "b"))
    await _rewind(t, 3)
    await _run(t, "e-3", _says("e-3"), _calls("e-3", ("c", "f", {})), status=InvocationStatus.FAILED)
    log = await t.events()
    await t.service.import_session(app_name=t.app, user_id="u", session_id="copy", events=log)
    expect("what is pending", await _pending(t, "copy"), ["a"])
    found = await _invocation(t, "e-1", "copy")
    expect("its invocation", (found.status, found.seq), (PAUSED, 1))
    expect("no other one", await t.service.load_invocation(t.key("copy"), "e-2"), None)
    await _run(t, "e-1", _answers("e-1", "a"), session_id="copy", status=COMPLETED)
    expect("what is left", [one.session_id for one in await t.service.list_pending(app_name=t.app)], ["s"])
