"""
What is told of a value that sessions do not take, whole: of answers, of sessions as JSON, of summaries and of messages.

Each text stands here as a person reads it; what stands just within each bound is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from minirun import Event, EventActions, InMemorySessionService
from minirun.errors import (
    InvalidEventError,
    InvalidMessageError,
    InvalidValueError,
    InvocationEndedError,
    InvocationNotFoundError,
    MinirunError,
)
from minirun.flows._questions import (
    REQUEST_CONFIRMATION,
    REQUEST_CREDENTIAL,
    REQUEST_INPUT,
    REQUEST_MESSAGE,
    SLEEP_UNTIL,
)
from minirun.sessions import Invocation, InvocationStatus, PendingCall, Session
from minirun.sessions._calls import OpenCall
from minirun.sessions._compactions import Compaction, check_compaction, compaction_actions
from minirun.sessions._invocation import invocation_of
from minirun.sessions._messages import message_from_json, received
from minirun.sessions._outside import append_event
from minirun.sessions._pending import check_answer, pending_call
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..stores import HERE, KEY

# --- answers ----------------------------------------------------------------------------------------------------------


def question(name: str, **args: Any) -> PendingCall:
    content = Content(parts=[Part(function_call=FunctionCall(id="c", name=name, args=args))])
    event = Event(author="a", invocation_id="e", content=content)
    return pending_call(KEY, OpenCall("c", name, 1, "e", "a", None), event, event)


SHIP = question(REQUEST_CONFIRMATION, originalFunctionCall={"name": "ship", "args": {"to": "Rome"}})
SECRET = question(REQUEST_CREDENTIAL)
NUMBER = question(REQUEST_INPUT, message="How many?", response_schema={"type": "integer"})
ANYTHING = question(REQUEST_INPUT)
TEXT = question(REQUEST_MESSAGE, message="Well?")
TIMER = question(SLEEP_UNTIL, until=5)
RENDER = question("render", file="x")
CHOICE = question("get_user_choice", options=["a", "b", "a"])

Reply = Callable[[], Content]
REPLIES: dict[str, tuple[Reply, Any]] = {
    "yes": (lambda: SHIP.reply(True), {"confirmed": True, "payload": None}),
    "no": (lambda: SHIP.reply(False, message="too far"), {"confirmed": False, "payload": None, "message": "too far"}),
    "edited": (
        lambda: SHIP.reply(True, args={}),
        {"confirmed": True, "payload": None, "args": {}, "edited_by": "u"},
    ),
    "edited by": (
        lambda: SHIP.reply(True, args={"to": 1}, by="me", payload=[1]),
        {"confirmed": True, "payload": [1], "args": {"to": 1}, "edited_by": "me"},
    ),
    "remembered": (
        lambda: SHIP.reply(True, remember="session"),
        {"confirmed": True, "payload": None, "remember": "session"},
    ),
    "remembered for any": (
        lambda: SHIP.reply(True, remember="user", any_args=True),
        {"confirmed": True, "payload": None, "remember": "user", "any_args": True},
    ),
    "a credential": (lambda: SECRET.reply(True), {"result": True}),
    "no credential": (lambda: SECRET.reply(False), {"result": False}),
    "no flags": (lambda: ANYTHING.reply(1, any_args=False), {"result": 1}),
    "a text": (lambda: TEXT.reply(" x "), {"result": " x "}),
    "a choice": (lambda: CHOICE.reply("b"), {"result": "b"}),
}


@pytest.mark.parametrize("case", REPLIES)
def test_an_answer_has_what_was_said_and_nothing_else(case: str) -> None:
    """A field that was not given does not stand in the answer, whatever it would say."""
    reply, expected = REPLIES[case]
    [part] = reply().parts
    assert part.function_response is not None
    assert (part.function_response.id, dict(part.function_response.response)) == ("c", expected)


OF_SHIP = "the confirmation call 'c' of 'ship'"
OF_SECRET = (
    "expected the credential call 'c' to be answered with True or False, found something else (not shown: it may be "
    "secret); save the credential, then answer True: `await runner.provide_credential(pending, credential)`"
)
ALONE = "with the answer to a confirmation only, found one for the"
ARGUMENTS = "an object with the arguments, beside True, found"
SHOWN = f"in the answer to {OF_SHIP} to be"


def answered(pending: PendingCall, **response: Any) -> Callable[[], None]:
    """What checks an answer that a client has written itself."""
    return lambda: check_answer(pending, FunctionResponse(id="c", name=pending.name, response=response))


def confirmed(**response: Any) -> Callable[[], None]:
    return answered(SHIP, **{"confirmed": True, **response})


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "payload": (lambda: ANYTHING.reply(1, payload=0), f"expected payload {ALONE} input call 'c'"),
    "args": (lambda: RENDER.reply(1, args={}), f"expected args {ALONE} long-running call 'c' of 'render'"),
    "message": (lambda: TEXT.reply("x", message=""), f"expected message {ALONE} message call 'c'"),
    "by": (lambda: SECRET.reply(True, by="me"), f"expected by {ALONE} credential call 'c'"),
    "remember": (lambda: TIMER.reply(1, remember="user"), f"expected remember {ALONE} timer call 'c'"),
    "any_args": (lambda: ANYTHING.reply(1, any_args=True), f"expected any_args {ALONE} input call 'c'"),
    "by alone": (
        lambda: SHIP.reply(True, by="me"),
        "expected `by` beside edited args only, found it alone; leave it out",
    ),
    "any_args alone": (
        lambda: SHIP.reply(True, any_args=True),
        "expected `any_args` beside `remember` only, found it alone; leave it out",
    ),
    "a secret": (lambda: SECRET.reply("hunter2"), OF_SECRET),
    "a secret of a client": (answered(SECRET, result="hunter2"), OF_SECRET),
    "a secret beside an answer": (answered(SECRET, result=True, token="hunter2"), OF_SECRET),
    "an early answer": (
        answered(TIMER),
        "expected nobody to answer the timer call 'c': it goes on at 5.0; let Runner.resume_due do that",
    ),
    "no confirmation": (
        answered(SHIP, result=True),
        f"expected {OF_SHIP} to be answered with True or False as `confirmed`, found None of type NoneType",
    ),
    "a blank text": (
        lambda: TEXT.reply(" "),
        "expected the message call 'c' to be answered with a text, found ' ' of type str",
    ),
    "no text": (lambda: TEXT.reply(5), "expected the message call 'c' to be answered with a text, found 5 of type int"),
    "no result": (
        answered(ANYTHING, answer=1),
        "expected the input call 'c' to be answered with a `result`, found {'answer': 1} of type FrozenDict",
    ),
    "another kind": (
        lambda: NUMBER.reply("3"),
        "expected an answer to the input call 'c' that fits its schema: the value: expected an integer, found \"3\"; "
        "answer again",
    ),
    "another choice": (
        lambda: CHOICE.reply("c"),
        "expected an answer to the long-running call 'c' of 'get_user_choice' that fits its schema: the value: "
        'expected one of "a", "b", found "c"; answer again',
    ),
    "no choice": (
        answered(CHOICE, choice="a"),
        "expected the long-running call 'c' of 'get_user_choice' to be answered with a `result`, found {'choice': 'a'} "
        "of type FrozenDict",
    ),
    "arguments of a no": (
        confirmed(confirmed=False, args={}),
        f"expected `args` {SHOWN} {ARGUMENTS} {{}} of type FrozenDict beside False",
    ),
    "arguments that are none": (
        confirmed(args=[]),
        f"expected `args` {SHOWN} {ARGUMENTS} [] of type FrozenList beside True",
    ),
    "an editor that is none": (
        confirmed(edited_by=1),
        f"expected `edited_by` {SHOWN} a text, beside True, found 1 of type int beside True",
    ),
    "an editor of a no": (
        confirmed(confirmed=False, edited_by="me"),
        f"expected `edited_by` {SHOWN} a text, beside True, found 'me' of type str beside False",
    ),
    "a message of a yes": (
        confirmed(message="no"),
        f"expected `message` {SHOWN} a text, beside False, found 'no' of type str beside True",
    ),
    "a message that is none": (
        confirmed(confirmed=False, message=1),
        f"expected `message` {SHOWN} a text, beside False, found 1 of type int beside False",
    ),
    "a memory that is none": (
        confirmed(remember=1),
        f"expected `remember` {SHOWN} 'session' or 'user', beside True, found 1 of type int beside True",
    ),
    "a memory of another scope": (
        confirmed(remember="app"),
        f"expected `remember` {SHOWN} 'session' or 'user', found 'app' of type str",
    ),
    "a memory of a no": (
        confirmed(confirmed=False, remember="user"),
        f"expected `remember` {SHOWN} 'session' or 'user', beside True, found 'user' of type str beside False",
    ),
    "any arguments that are none": (
        confirmed(remember="user", any_args="yes"),
        f"expected `any_args` {SHOWN} True or False, beside True, found 'yes' of type str beside True",
    ),
    "any arguments of a no": (
        confirmed(confirmed=False, any_args=True),
        f"expected `any_args` {SHOWN} True or False, beside True, found True of type bool beside False",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_answer_that_does_not_fit_is_refused_with_what_would(case: str) -> None:
    """Which field of which question, what it may be, and what it is; a secret is never shown."""
    refuse, expected = REFUSED[case]
    with pytest.raises(InvalidMessageError) as caught:
        refuse()
    assert str(caught.value) == expected


def test_a_question_has_what_its_call_says() -> None:
    """The tool and its arguments for a confirmation, the words and the form for the others; what is odd is left out."""
    assert (SHIP.kind, SHIP.tool, dict(SHIP.args), SHIP.name) == (
        "confirmation",
        "ship",
        {"to": "Rome"},
        REQUEST_CONFIRMATION,
    )
    assert (RENDER.kind, RENDER.tool, dict(RENDER.args), RENDER.name) == (
        "long_running",
        "render",
        {"file": "x"},
        "render",
    )
    assert (SECRET.kind, SECRET.hint, SECRET.auth_config) == ("credential", None, None)
    assert (TEXT.kind, TEXT.hint, TEXT.schema) == ("message", "Well?", None)
    assert (TIMER.kind, TIMER.due, TIMER.tool, dict(TIMER.args)) == ("timer", 5.0, "", {})
    assert (NUMBER.hint, NUMBER.schema, NUMBER.payload) == ("How many?", {"type": "integer"}, None)
    assert CHOICE.schema == {"type": "string", "enum": ["a", "b"]}
    for options in (None, [], "ab", ["a", 1]):
        assert question("get_user_choice", options=options).schema is None
    assert question("choose", options=["a"]).schema is None


# --- sessions as JSON -------------------------------------------------------------------------------------------------

FIELDS = "id, app_name, user_id, state, events, create_time, last_update_time, revision"


def with_fields(**fields: Any) -> str:
    """The JSON of a session with other values of some fields; ... leaves one out."""
    whole = {
        "id": "s",
        "app_name": "app",
        "user_id": "u",
        "state": {},
        "events": [],
        "create_time": 1.0,
        "last_update_time": 2.0,
        "revision": 0,
        **fields,
    }
    return json.dumps({name: value for name, value in whole.items() if value is not ...})


JSON_REFUSED: dict[str, tuple[str, str]] = {
    "no JSON": ("x", "Session: expected a line of JSON, found 'x' (Expecting value: line 1 column 1 (char 0))"),
    "a list": ("[]", "Session: expected a JSON object, found list"),
    "no fields": ("{}", f"Session: expected the fields {FIELDS}; missing {FIELDS}"),
    "two fields fewer": (with_fields(state=..., id=...), f"Session: expected the fields {FIELDS}; missing id, state"),
    "an app without a name": (
        with_fields(app_name="1"),
        "app_name: expected letters, digits, '_' and '-', beginning with a letter or '_', and not 'user'; "
        "found '1' of type str",
    ),
    "a blank user": (with_fields(user_id=" "), "user_id: expected a string that is not blank, found ' ' of type str"),
    "no id": (with_fields(id=None), "session_id: expected a string that is not blank, found None of type NoneType"),
    "a revision below 0": (
        with_fields(revision=-1),
        "Session.revision: expected an integer from 0 up, found -1 of type int",
    ),
    "half a revision": (
        with_fields(revision=0.5),
        "Session.revision: expected an integer from 0 up, found 0.5 of type float",
    ),
    "a revision that is a bool": (
        with_fields(revision=True),
        "Session.revision: expected an integer from 0 up, found True of type bool",
    ),
    "a state that is a list": (with_fields(state=[]), "Session.state: expected a JSON object, found list"),
    "a key of a run": (
        with_fields(state={"temp:a": 1}),
        "Session.state: expected no temp: keys, which belong to one run, found 'temp:a'",
    ),
    "a key that is a prefix": (
        with_fields(state={"user:": 1}),
        "Session.state: expected a name after the prefix, found 'user:'; write for example 'user:name'",
    ),
    "events that are an object": (with_fields(events={}), "Session.events: expected a list, found dict"),
    "an event that is none": (with_fields(events=[5]), "Event: expected a JSON object, found int"),
    "a time that is a text": (
        with_fields(create_time="1"),
        "Session.create_time: expected seconds since the epoch, found '1' of type str",
    ),
    "a time that is a bool": (
        with_fields(last_update_time=True),
        "Session.last_update_time: expected seconds since the epoch, found True of type bool",
    ),
}


@pytest.mark.parametrize("case", JSON_REFUSED)
def test_what_is_no_session_is_told_by_its_field(case: str) -> None:
    """Each field by its path, with what it may be and what it is."""
    text, expected = JSON_REFUSED[case]
    with pytest.raises(InvalidValueError) as caught:
        Session.from_json(text)
    assert str(caught.value) == expected


def test_what_a_session_has_as_json_is_what_it_is_read_with() -> None:
    """Every field comes back; what a later version writes beside them is passed over."""
    session = Session.from_json(with_fields(state={"a": 1, "user:b": 2, "app:c": 3}, revision=7, later="x"))
    assert (session.id, session.app_name, session.user_id, session.revision) == ("s", "app", "u", 7)
    assert (session.state, session.create_time, session.last_update_time) == (
        {"a": 1, "user:b": 2, "app:c": 3},
        1.0,
        2.0,
    )
    assert Session.from_json(session.to_json().encode()) == session
    assert list(json.loads(session.to_json())) == FIELDS.split(", ")


# --- appends ----------------------------------------------------------------------------------------------------------


async def test_what_is_appended_is_an_event_and_to_a_session() -> None:
    """Anything else is told by the name of the argument; a listed session has no state to go on from."""
    service = InMemorySessionService()
    session = await service.create_session(**HERE)
    event = Event(author="a", message="x")
    [listed] = (await service.list_sessions(app_name="app")).sessions
    odd: list[tuple[Any, Any, str]] = [
        ("s", event, "session: expected what get_session returns, found 's' of type str"),
        (session, "x", "event: expected an Event, found 'x' of type str"),
        (
            listed,
            event,
            "session: expected what get_session returns, found one of list_sessions, which has neither state nor "
            "events; get it, and append to that",
        ),
    ]
    for whom, what, expected in odd:
        with pytest.raises(InvalidValueError) as caught:
            await append_event(service, whom, what)
        assert str(caught.value) == expected
    with pytest.raises(InvalidEventError) as wrong:
        await service.append_event(session, Event(author="a", message="x", seq=2))
    assert str(wrong.value) == "expected an event without seq (the store gives it), found seq=2"


# --- summaries --------------------------------------------------------------------------------------------------------

SUMMARY: dict[str, Any] = {
    "start_seq": 1,
    "end_seq": 4,
    "previous_seq": 0,
    "speaker": None,
    "compacted_content": {"role": "model", "parts": [{"text": "short"}]},
}


def summary(seq: int | None = None, content: Content | None = None, rewind: int | None = None, **fields: Any) -> Event:
    whole = {name: value for name, value in {**SUMMARY, **fields}.items() if value is not ...}
    return Event(author="a", seq=seq, content=content, actions=EventActions(compaction=whole, rewind_before_seq=rewind))


NAMES = "start_seq, end_seq, previous_seq, speaker, compacted_content"
MORE = "compaction: expected an event without content that undoes nothing, found one that does more than cover others"
TEXTS = "compaction.compacted_content: expected a content of texts, not blank, found"
SUMMARIES: dict[str, tuple[Event, str]] = {
    "one that says something": (summary(content=Content(parts=[Part(text="x")])), MORE),
    "one that undoes": (summary(rewind=1), MORE),
    "no fields": (
        Event(author="a", actions=EventActions(compaction={})),
        f"compaction: expected the fields {NAMES}, found none",
    ),
    "a field fewer": (
        summary(speaker=...),
        f"compaction: expected the fields {NAMES}, found start_seq, end_seq, previous_seq, compacted_content",
    ),
    "a field more": (summary(more=1), f"compaction: expected the fields {NAMES}, found {NAMES}, more"),
    "a later start": (summary(start_seq=2), "compaction.start_seq: expected 1, found 2 of type int"),
    "no end": (summary(end_seq=0), "compaction.end_seq: expected a seq from 1 up, found 0 of type int"),
    "an end at its own place": (
        summary(seq=4),
        "compaction.end_seq: expected a seq from 1 up to 3, found 4 of type int",
    ),
    "an end that is a bool": (
        summary(end_seq=True),
        "compaction.end_seq: expected a seq from 1 up, found True of type bool",
    ),
    "one before the first": (
        summary(previous_seq=-1),
        "compaction.previous_seq: expected a seq from 0 up, found -1 of type int",
    ),
    "one before at its own place": (
        summary(seq=5, previous_seq=5),
        "compaction.previous_seq: expected a seq from 0 up to 4, found 5 of type int",
    ),
    "a speaker that is none": (
        summary(speaker=1),
        "compaction.speaker: expected the name of an agent, or None, found 1 of type int",
    ),
    "a content that is none": (
        summary(compacted_content=5),
        "compaction.compacted_content: expected a content, as JSON: Content: expected a JSON object, found int",
    ),
    "a blank content": (
        summary(compacted_content={"parts": [{"text": " "}]}),
        f"{TEXTS} {{'parts': [{{'text': ' '}}]}} of type FrozenDict",
    ),
    "a content of calls": (
        summary(compacted_content={"parts": [{"text": "x"}, {"function_call": {"name": "f"}}]}),
        f"{TEXTS} {{'parts': [{{'text': 'x'}}, {{'function_call': {{'name': 'f'}}}}]}} of type FrozenDict",
    ),
}


@pytest.mark.parametrize("case", SUMMARIES)
def test_what_is_no_summary_is_told_by_its_field(case: str) -> None:
    """Its places have bounds on both sides: from the first event on, and below its own."""
    event, expected = SUMMARIES[case]
    with pytest.raises(InvalidEventError) as caught:
        check_compaction(event)
    assert str(caught.value) == expected


def test_a_summary_is_read_as_it_was_made() -> None:
    """What a compaction's actions say is what its stored event has; the one before it is named by its place."""
    content = Content(role="model", parts=[Part(text="short")])
    first = Event(author="a", seq=5, actions=compaction_actions(content, end_seq=4, previous=None, speaker=None))
    check_compaction(first)
    assert dict(first.actions.compaction or {}) == SUMMARY
    assert Compaction.of(first) == Compaction(5, 4, 0, None, content)
    actions = compaction_actions(content, end_seq=8, previous=Compaction.of(first), speaker="b")
    second = Event(author="a", seq=9, actions=actions)
    check_compaction(second)
    assert Compaction.of(second) == Compaction(9, 8, 5, "b", content)
    for odd in (Event(author="a", seq=9), Event(author="a", actions=actions), summary(seq=9, speaker=...)):
        with pytest.raises(InvalidValueError) as caught:
            Compaction.of(odd)
        assert str(caught.value).startswith("compaction: expected a stored one, found ")


# --- messages for runs ------------------------------------------------------------------------------------------------


def runs(*statuses: str) -> list[Invocation]:
    return [invocation_of(KEY, f"e-{n}", InvocationStatus(each), n + 1) for n, each in enumerate(statuses)]


@pytest.mark.parametrize(
    ("statuses", "named", "taken"),
    [
        (("running",), None, "e-0"),
        (("running", "paused"), None, "e-0"),
        (("paused", "paused"), None, "e-1"),
        (("interrupted", "paused", "interrupted", "completed"), None, "e-2"),
        (("paused", "running"), "e-0", "e-0"),
    ],
)
def test_a_message_is_for_the_newest_run_that_is_at_work(
    statuses: tuple[str, ...], named: str | None, taken: str
) -> None:
    """Else for the newest that is paused; for the one that it names, if it names one."""
    message = received(KEY, Event(author="user", message="x", invocation_id=named), runs(*statuses))
    assert message.invocation_id == taken


@pytest.mark.parametrize(
    ("statuses", "named", "error", "expected"),
    [
        (("running",), "e-7", InvocationNotFoundError, f"{KEY} has no invocation 'e-7'; leave invocation_id out"),
        (
            (),
            None,
            InvocationNotFoundError,
            f"expected an invocation of {KEY} that runs, found none yet; begin one with run_async(new_message=...)",
        ),
        (
            ("cancelled", "completed"),
            None,
            InvocationEndedError,
            f"the invocation e-1 of {KEY} has ended (completed), and takes no message any more; send it as a new "
            "message, with run_async(new_message=...)",
        ),
        (
            ("failed", "running"),
            "e-0",
            InvocationEndedError,
            f"the invocation e-0 of {KEY} has ended (failed), and takes no message any more; send it as a new "
            "message, with run_async(new_message=...)",
        ),
    ],
)
def test_a_message_that_no_run_takes_is_refused(
    statuses: tuple[str, ...], named: str | None, error: type[MinirunError], expected: str
) -> None:
    """Who has sent it is told which run has ended, or that there is none, and what to do with the message."""
    with pytest.raises(error) as caught:
        received(KEY, Event(author="user", message="x", invocation_id=named), runs(*statuses))
    assert str(caught.value) == expected


def test_what_waits_for_no_run_is_no_message() -> None:
    """An event that is stored among the messages has to be of an invocation, and one that was sent."""
    for text in ('{"author": "user"}', '{"author": "user", "invocation_id": "e"}'):
        with pytest.raises(InvalidValueError) as caught:
            message_from_json(text)
        assert str(caught.value) == "Event: expected a message that was sent into an invocation"
