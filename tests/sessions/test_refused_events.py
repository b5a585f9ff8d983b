"""
Which events no session takes, and what is told of them: appended from outside, and brought along as a whole history.

What stands just within each bound is taken. Nothing of what is refused is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minirun import Event, EventActions, InMemorySessionService
from minirun._values import changed
from minirun.credentials import AuthConfig
from minirun.errors import InvalidEventError, InvalidValueError, NotSupportedError
from minirun.events import NodeInfo
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..stores import HERE

Actions = EventActions
EVENT, VALUE, UNSUPPORTED = InvalidEventError, InvalidValueError, NotSupportedError


def said(*parts: Part, author: str = "a", **fields: Any) -> Event:
    """An event with these parts, or else with a text."""
    return Event(author=author, content=Content(parts=list(parts) or [Part(text="x")]), **fields)


def call(call_id: str | None = "c") -> Part:
    return Part(function_call=FunctionCall(id=call_id, name="f"))


def response(call_id: str | None = "c") -> Part:
    return Part(function_response=FunctionResponse(id=call_id, name="f", response={}))


def doing(**actions: Any) -> Event:
    """An event that says something and does this."""
    return said(actions=Actions(**actions))


def asking(name: str, *args: dict[str, Any], **actions: Any) -> Event:
    """Questions of this name, by calls with these arguments, beside what the actions say of them."""
    calls = [Part(function_call=FunctionCall(id=f"q-{n}", name=name, args=each)) for n, each in enumerate(args)]
    return said(*calls, actions=Actions(**actions))


CONFIG = AuthConfig("key", hint="Your key").to_dict()
CONFIRMED: dict[str, Any] = {"originalFunctionCall": {"id": "c", "name": "f"}, "toolConfirmation": {"hint": "Sure?"}}


def credentials(*args: dict[str, Any], **said_of: Any) -> Event:
    return asking("adk_request_credential", *args, requested_auth_configs=said_of)


def confirmations(*args: dict[str, Any], name: str = "adk_request_confirmation", **said_of: Any) -> Event:
    return asking(name, *args, requested_tool_confirmations=said_of)


# --- appended ---------------------------------------------------------------------------------------------------------

ID = "to have an id of 1 to 40 letters, digits, '_' or '-', found"
MARKS = "to name calls by their ids: letters, digits, '_' or '-', found"
NUMBERS = "expected artifact_delta to give names the numbers of versions, found"
CALENDAR = "timestamp: expected seconds since the epoch, within the years 1 to 9999, found"

OWN_KEY = "state: expected a key of your own, found"
CREDENTIALS = "expected EventActions.requested_auth_configs to say what the event's calls of adk_request_credential ask"
CONFIRMATIONS = (
    "expected EventActions.requested_tool_confirmations to say what the event's calls of adk_request_confirmation ask"
)

APPENDED: dict[str, tuple[Event, type[Exception], str]] = {
    "no author": (said(author=""), EVENT, "expected an event with an author, found author=''"),
    "a call of the user": (said(call(), author="user"), EVENT, "expected no function calls of the user, found one"),
    "a call without id": (said(call(None)), EVENT, f"expected every function call {ID} None on 'f'"),
    "a call of an empty id": (said(call("")), EVENT, f"expected every function call {ID} '' on 'f'"),
    "a call of a long id": (said(call("c" * 41)), EVENT, f"expected every function call {ID} '{'c' * 41}' on 'f'"),
    "a call of another letter": (said(call("c.1")), EVENT, f"expected every function call {ID} 'c.1' on 'f'"),
    "a second call without id": (said(call(), call(None)), EVENT, f"expected every function call {ID} None on 'f'"),
    "a response without id": (said(response(None)), EVENT, f"expected every function response {ID} None on 'f'"),
    "a response beside a call": (said(call(), response("")), EVENT, f"expected every function response {ID} ''"),
    "two calls of one id": (
        said(call(), call("d"), call()), EVENT, "expected the ids of an event's function calls to differ, found ['c', ",
    ),
    "two responses of one id": (
        said(response(), response()), EVENT, "expected the ids of an event's function responses to differ, found ['c'",
    ),
    "a state of an agent": (doing(agent_state={"a": 1}), UNSUPPORTED, "EventActions.agent_state has no effect in"),
    "the end of an agent": (doing(end_of_agent=True), UNSUPPORTED, "EventActions.end_of_agent has no effect in"),
    "widgets": (doing(render_ui_widgets=[]), UNSUPPORTED, "EventActions.render_ui_widgets has no effect in"),
    "a route": (doing(route="x"), UNSUPPORTED, "EventActions.route has no effect outside of a Workflow"),
    "a route that is none": (
        said(node_info=NodeInfo(path="n@1", output_for=["n"]), actions=Actions(route={"a": 1})), VALUE,
        "EventActions.route: expected a bool, an int, a string or a list of them, found",
    ),
    "a summary": (doing(compaction={}), EVENT, "expected an event that covers no others, found actions.compaction"),
    "a rewind to an event": (doing(rewind_before_seq=1), EVENT, "expected an event that undoes nothing"),
    "a rewind to a run": (doing(rewind_before_invocation_id="e"), EVENT, "expected an event that undoes nothing"),
    "a waiting call of no id": (
        said(long_running_tool_ids=["a b"]), EVENT, f"expected Event.long_running_tool_ids {MARKS} 'a b'",
    ),
    "a suspended call of no id": (
        doing(suspended_calls=[""]), EVENT, f"expected EventActions.suspended_calls {MARKS} ''",
    ),
    "a call that waits and is suspended": (
        said(long_running_tool_ids=["a", "b"], actions=Actions(suspended_calls=["b", "c"])), EVENT,
        "expected a call to be in one of long_running_tool_ids and suspended_calls, found ['b'] in both",
    ),
    "an artifact without a name": (doing(artifact_delta={"": 0}), EVENT, f"{NUMBERS} '': 0"),
    "an artifact of a version below 0": (doing(artifact_delta={"a": 0, "b": -1}), EVENT, f"{NUMBERS} 'b': -1"),
    "an artifact of a text": (doing(artifact_delta={"a": "1"}), EVENT, f"{NUMBERS} 'a': '1'"),
    "an artifact of a bool": (doing(artifact_delta={"a": True}), EVENT, f"{NUMBERS} 'a': True"),
    "versions that are no list": (
        doing(artifact_versions={"a": 1}), EVENT,
        "expected artifact_versions to give names lists of numbers, found 'a': 1",
    ),
    "versions that are no numbers": (doing(artifact_versions={"a": [0, -1]}), EVENT, f"{NUMBERS} 'a': -1"),
    "credentials that nobody asks for": (
        doing(requested_auth_configs={"c": {}}), EVENT,
        "expected EventActions.requested_auth_configs to say what the event's calls of adk_request_credential ask",
    ),
    "confirmations that nobody asks for": (
        doing(requested_tool_confirmations={"c": {}}), EVENT,
        "expected EventActions.requested_tool_confirmations to say what the event's calls of adk_request_confirmation",
    ),
    "credentials of another form": (
        credentials({"functionCallId": "c", "authConfig": CONFIG}, c={**CONFIG, "hint": "x"}), EVENT, CREDENTIALS,
    ),
    "credentials that are asked for twice": (
        credentials(*[{"functionCallId": "c", "authConfig": CONFIG}] * 2, c=CONFIG), EVENT, CREDENTIALS,
    ),
    "credentials for no call": (
        credentials({"functionCallId": 1, "authConfig": CONFIG}, c=CONFIG), EVENT, CREDENTIALS,
    ),
    "credentials for one call of two": (
        credentials({"functionCallId": "c", "authConfig": CONFIG}, {"authConfig": CONFIG}, c=CONFIG), EVENT,
        CREDENTIALS,
    ),
    "credentials that are none": (
        credentials({"functionCallId": "c", "authConfig": 5}, c=5), VALUE, "",
    ),
    "a confirmation of another form": (confirmations(CONFIRMED, c={"hint": "x"}), EVENT, CONFIRMATIONS),
    "a confirmation that another call asks for": (
        confirmations(CONFIRMED, name="f", c={"hint": "Sure?"}), EVENT, CONFIRMATIONS,
    ),
    "a confirmation of no call": (
        confirmations({**CONFIRMED, "originalFunctionCall": "c"}, c={"hint": "Sure?"}), EVENT, CONFIRMATIONS,
    ),
    "a confirmation of a call without id": (
        confirmations({**CONFIRMED, "originalFunctionCall": {"id": 1}}, c={"hint": "Sure?"}), EVENT, CONFIRMATIONS,
    ),
    "a key of the framework": (doing(state_delta={"minirun:x": 1}), VALUE, f"{OWN_KEY} 'minirun:x'; only the"),
    "a user's key of the framework": (
        doing(state_ops={"user:minirun:x": {"add": 1}}), VALUE, f"{OWN_KEY} 'user:minirun:x'; only the",
    ),
    "a key of the framework before a temporary one": (
        doing(state_delta={"minirun:x": 1, "temp:x": 1}), VALUE, OWN_KEY,
    ),
    "a key of the framework behind a temporary one": (
        doing(state_delta={"temp:x": 1, "minirun:x": 1}), VALUE, OWN_KEY,
    ),
    "a time before the calendar": (said(timestamp=-62_135_596_801.0), VALUE, f"{CALENDAR} -62135596801.0"),
    "a time after the calendar": (said(timestamp=253_402_300_800.0), VALUE, f"{CALENDAR} 253402300800.0"),
    "a place": (said(seq=2), EVENT, "expected an event without seq (the store gives it), found seq=2"),
    "a bare prefix": (doing(state_delta={"user:": 1}), VALUE, "state_delta: expected a name after the prefix"),
}  # fmt: skip

TAKEN: dict[str, Event] = {
    "an id of 40 letters": said(call("c" * 40)),
    "a call and a response of one id": said(call(), response()),
    "marks of calls": said(call("a-1"), long_running_tool_ids=["a-1"], actions=Actions(suspended_calls=["b_2"])),
    "a first version": doing(artifact_delta={"a": 0}, artifact_versions={"a": [0, 1]}),
    "the first second of the calendar": said(timestamp=-62_135_596_800.0),
    "the last second of the calendar": said(timestamp=253_402_300_799.0),
    "the next place": said(seq=1),
    "a response of the user": said(response(), author="user"),
    "credentials that are asked for": credentials(
        *({"functionCallId": name, "authConfig": CONFIG} for name in "cd"), c=CONFIG, d=CONFIG,
    ),
    "a confirmation that is asked for": confirmations(CONFIRMED, {"more": 1}, c={"hint": "Sure?"}),
    "questions that are not told twice": asking("adk_request_credential", {"functionCallId": "c"}),
    "no key of the framework any more": doing(state_removed=["minirun:x"]),
    "a key like one of the framework": doing(state_delta={"x:minirun:x": 1, "app:minirun:x": 1}),
    "a part of an answer": said(partial=True),
}


@pytest.mark.parametrize("case", APPENDED)
async def test_an_event_that_cannot_be_is_refused(case: str) -> None:
    """By its own type of error, which says what was expected and found; the session is as it was."""
    event, error, words = APPENDED[case]
    service = InMemorySessionService()
    session = await service.create_session(**HERE)
    with pytest.raises(error) as caught:
        await service.append_event(session, event)
    assert type(caught.value) is error
    assert str(caught.value).startswith(words)
    assert (session.revision, session.events) == (0, [])
    assert len(await service.read_events(**HERE)) == 1


@pytest.mark.parametrize("case", TAKEN)
async def test_an_event_within_the_bounds_is_taken_as_it_is(case: str) -> None:
    """With the id, the place and the time that it lacks; a part of an answer is returned, and not stored."""
    event = TAKEN[case]
    service = InMemorySessionService()
    session = await service.create_session(**HERE)
    stored = await service.append_event(session, event)
    if event.partial:
        assert stored is event
        assert session.revision == 0
        return
    time = stored.timestamp if event.timestamp is None else event.timestamp
    assert stored == changed(event, id=stored.id, seq=1, timestamp=time)
    assert (await service.read_events(**HERE))[1:] == [stored]


# --- brought along ----------------------------------------------------------------------------------------------------


def summary(**fields: Any) -> dict[str, Any]:
    """What is noted of a summary of the first two events, with other *fields*."""
    text = {"parts": [{"text": "short"}]}
    return {
        "start_seq": 1, "end_seq": 2, "previous_seq": 0, "speaker": None, "compacted_content": text, **fields,
    }  # fmt: skip


def history() -> list[Event]:
    """A session with a summary (event 3), and a rewind (6) that has undone the events 4 and 5."""
    events = [
        Event(author="system"),
        Event(author="user", message="hi"),
        said(),
        Event(author="a", actions=Actions(compaction=summary())),
        Event(author="user", message="again", invocation_id="e-2"),
        said(),
        Event(author="user", actions=Actions(rewind_before_seq=4, rewind_before_invocation_id="e-2")),
        Event(author="a"),
    ]
    return [changed(event, id=f"x-{seq}", seq=seq, timestamp=seq + 0.5) for seq, event in enumerate(events)]


Change = Callable[[list[Event]], Any]


def at(seq: int, **fields: Any) -> Change:
    """That history with other *fields* of one event."""
    return lambda events: [*events[:seq], changed(events[seq], **fields), *events[seq + 1 :]]


def does(seq: int, **actions: Any) -> Change:
    return at(seq, actions=Actions(**actions))


def sums_up(seq: int = 3, **fields: Any) -> Change:
    return does(seq, compaction=summary(**fields))


STORED = "events[1]: expected a stored event, found"
UNDONE = "actions.rewind_before_seq: expected the seq of an event before it that was not undone, and no rewind, found"
FIELDS = "compaction: expected the fields start_seq, end_seq, previous_seq, speaker, compacted_content, found "
END = "compaction.end_seq: expected a seq from 1 up to 2, found"
BEFORE = "compaction.previous_seq: expected a seq from 0 up to 2, found"
SPEAKER = "compaction.speaker: expected the name of an agent, or None, found"
ALONE = "compaction: expected an event without content that undoes nothing, found one that does more"
TEXTS = "compaction.compacted_content: expected a content of texts, not blank, found"
COVERED = "events[7].actions.compaction.end_seq: expected the seq of an event beyond 2 that was not undone, found"

BROUGHT: dict[str, tuple[Change, type[Exception], str]] = {
    "no list": (lambda events: "x", VALUE, "events: expected a list of events, found 'x' of type str"),
    "nothing": (lambda events: [], VALUE, "events: expected the creation record (seq 0) at least, found none"),
    "something else": (lambda events: [events[0], 7], VALUE, "events[1]: expected an Event, found 7 of type int"),
    "a gap": (lambda events: [*events[:2], *events[3:]], VALUE, "events[2].seq: expected 2, found 3"),
    "no beginning": (lambda events: events[1:], VALUE, "events[0].seq: expected 0, found 1"),
    "no id": (at(1, id=None), VALUE, f"{STORED} one without id or timestamp"),
    "an empty id": (at(1, id=""), VALUE, f"{STORED} one without id or timestamp"),
    "no time": (at(1, timestamp=None), VALUE, f"{STORED} one without id or timestamp"),
    "a time of no calendar": (at(1, timestamp=1e15), VALUE, "events[1].timestamp: expected seconds since the epoch"),
    "a temporary key": (does(1, state_delta={"temp:x": 1}), VALUE, f"{STORED} `temp:` keys in it"),
    "content of the record": (at(0, content=Content(parts=[])), VALUE, "events[0]: expected the creation record"),
    "no author": (at(2, author=""), EVENT, "expected an event with an author, found author=''"),
    "a part of an answer": (at(2, partial=True), EVENT, "expected a complete event, found partial=True"),
    "a state of an agent": (does(1, agent_state={"a": 1}), UNSUPPORTED, "EventActions.agent_state has no effect"),
    "a rewind to itself": (does(6, rewind_before_seq=6), VALUE, f"events[6].{UNDONE} 6"),
    "a rewind to the record": (does(6, rewind_before_seq=0), VALUE, f"events[6].{UNDONE} 0"),
    "a rewind to before it": (does(6, rewind_before_seq=-1), VALUE, f"events[6].{UNDONE} -1"),
    "a rewind to what is to come": (does(6, rewind_before_seq=7), VALUE, f"events[6].{UNDONE} 7"),
    "a rewind to what was undone": (does(7, rewind_before_seq=5), VALUE, f"events[7].{UNDONE} 5"),
    "a rewind to a rewind": (does(7, rewind_before_seq=6), VALUE, f"events[7].{UNDONE} 6"),
    "more fields": (sums_up(more=1), EVENT, f"{FIELDS}start_seq, end_seq, previous_seq, speaker, compacted_content, m"),
    "no fields": (does(3, compaction={}), EVENT, f"{FIELDS}none"),
    "another start": (sums_up(start_seq=2), EVENT, "compaction.start_seq: expected 1, found 2 of type int"),
    "an end of 0": (sums_up(end_seq=0), EVENT, f"{END} 0 of type int"),
    "an end at itself": (sums_up(end_seq=3), EVENT, f"{END} 3 of type int"),
    "an end that is a text": (sums_up(end_seq="2"), EVENT, f"{END} '2' of type str"),
    "an end that is a bool": (sums_up(end_seq=True), EVENT, f"{END} True of type bool"),
    "one before below 0": (sums_up(previous_seq=-1), EVENT, f"{BEFORE} -1 of type int"),
    "one before at itself": (sums_up(previous_seq=3), EVENT, f"{BEFORE} 3 of type int"),
    "one before that is none": (
        sums_up(previous_seq=1), VALUE,
        "events[3].actions.compaction.previous_seq: expected 0, the compaction before it, found 1",
    ),
    "the one before not known": (
        sums_up(7, end_seq=6), VALUE,
        "events[7].actions.compaction.previous_seq: expected 3, the compaction before it, found 0",
    ),
    "no more than the one before": (sums_up(7, end_seq=2, previous_seq=3), VALUE, f"{COVERED} 2"),
    "an end in what was undone": (sums_up(7, end_seq=5, previous_seq=3), VALUE, f"{COVERED} 5"),
    "a speaker that is a number": (sums_up(speaker=7), EVENT, f"{SPEAKER} 7 of type int"),
    "content that is none": (
        sums_up(compacted_content=7), EVENT, "compaction.compacted_content: expected a content, as JSON: Content: expe",
    ),
    "a blank text": (sums_up(compacted_content={"parts": [{"text": " "}]}), EVENT, TEXTS),
    "a part that is no text": (
        sums_up(compacted_content={"parts": [{"text": "x"}, {"function_call": {"id": "c", "name": "f"}}]}), EVENT,
        TEXTS,
    ),
    "content beside a summary": (at(3, content=Content(parts=[])), EVENT, ALONE),
    "a rewind beside a summary": (does(3, compaction=summary(), rewind_before_seq=1), EVENT, ALONE),
}  # fmt: skip

SOUND: dict[str, Change] = {
    "it": lambda events: events,
    "a sequence": tuple,
    "a rewind to the first event": does(6, rewind_before_seq=1),
    "a rewind to before a rewind": does(7, rewind_before_seq=2),
    "a rewind to the one before": does(6, rewind_before_seq=5),
    "a summary of what there is": sums_up(7, end_seq=6, previous_seq=3, speaker="a"),
    "a summary of the one before": sums_up(7, end_seq=3, previous_seq=3),
    "a key of the framework": does(1, state_delta={"minirun:x": 1}),
    "what was stored before": does(1, render_ui_widgets=[]),
}


@pytest.mark.parametrize("case", BROUGHT)
async def test_a_history_that_cannot_be_is_refused(case: str) -> None:
    """With the place where it is not what `read_events` returned; there is no session of it."""
    change, error, words = BROUGHT[case]
    service = InMemorySessionService()
    with pytest.raises(error) as caught:
        await service.import_session(**HERE, events=change(history()))
    assert type(caught.value) is error
    assert str(caught.value).startswith(words)
    assert await service.get_session(**HERE) is None


@pytest.mark.parametrize("case", SOUND)
async def test_a_history_within_the_bounds_is_taken_as_it_is(case: str) -> None:
    """Every event is what it was, in its place."""
    events = SOUND[case](history())
    service = InMemorySessionService()
    await service.import_session(**HERE, events=events)
    assert await service.read_events(**HERE) == list(events)
