"""
Events, contents and sessions as JSON for programs outside: what is written is read, whoever has written it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from minirun import BaseAgent, Content, Event, EventActions, InMemoryRunner, InvocationContext, Part, Session
from minirun._codec import to_json
from minirun.errors import InvalidValueError, StaleSessionError
from minirun.sessions import InMemorySessionService
from minirun.types import Blob, FunctionCall

from .strategies import contents, events, json_values

HERE: dict[str, Any] = {"app_name": "app", "user_id": "u", "session_id": "s"}

# What a program of another language has to know. It is never changed, only added to.
DOCUMENTED = {
    "id": "e-1-1",
    "invocation_id": "e-1",
    "author": "clerk",
    "seq": 2,
    "timestamp": 1700000000.5,
    "content": {
        "parts": [
            {"text": "grüße"},
            {"inline_data": {"data": "AP8=", "mime_type": "image/png"}},
            {"function_call": {"name": "price", "args": {"item": "ink"}, "id": "c1"}},
        ],
        "role": "model",
    },
    "actions": {"state_delta": {"user:n": None}},
    "long_running_tool_ids": ["c1"],
}


def documented() -> Event:
    parts = [
        Part(text="grüße"),
        Part(inline_data=Blob(data=b"\0\xff", mime_type="image/png")),
        Part(function_call=FunctionCall(name="price", args={"item": "ink"}, id="c1")),
    ]
    return Event(
        id="e-1-1",
        invocation_id="e-1",
        author="clerk",
        seq=2,
        timestamp=1700000000.5,
        content=Content(role="model", parts=parts),
        actions=EventActions(state_delta={"user:n": None}),
        long_running_tool_ids=["c1"],
    )


def test_the_form_is_the_documented_one() -> None:
    """Field names as in Python, defaults left out, bytes as base64, sets as lists, on one line."""
    line = documented().to_json()
    assert json.loads(line) == DOCUMENTED
    assert "\n" not in line
    assert Event.from_json(line) == Event.from_json(line.encode()) == documented()


@given(events)
def test_an_event_comes_back_equal(event: Event) -> None:
    """Whatever an event holds, its JSON is that of the log, and reads back as an equal event."""
    line = event.to_json()
    assert line == to_json(event)
    assert Event.from_json(line) == event


@given(contents)
def test_a_content_comes_back_equal(content: Content) -> None:
    """A content reads back as an equal one."""
    assert Content.from_json(content.to_json()) == content


class Note(Event):
    """An event of an application's own class."""


def test_an_event_of_a_subclass_is_written_as_an_event() -> None:
    """What an application derives from Event has the same JSON, and reads itself."""
    note = Note(author="a", message="hi")
    assert note.to_json() == Event(author="a", message="hi").to_json()
    assert Note.from_json(note.to_json()) == note
    assert type(Event.from_json(note.to_json())) is Event


def test_fields_of_a_later_version_go_through() -> None:
    """What this version does not know, at any level, is kept and written again."""
    line = '{"author":"a","content":{"parts":[{"text":"hi","glow":[1]}]},"mood":{"is":"good"}}'
    event = Event.from_json(line)
    assert event.unknown_fields == {"mood": {"is": "good"}}
    assert json.loads(event.to_json()) == json.loads(line)
    session = json.loads(trio.run(a_session).to_json()) | {"mood": "good"}
    assert Session.from_json(json.dumps(session)).id == "s", "a session passes it over"


NO_OBJECTS: list[Any] = ["", "null", "[]", '"text"', "{", "[" * 100_000, "9" * 5_000, b"\xff", None, 7]
NO_EVENTS = [
    '{"seq":' + "9" * 4_200 + "}",
    '{"timestamp":NaN}',
    '{"timestamp":Infinity}',
    '{"content":"hi"}',
    '{"content":{"parts":[{}]}}',
    '{"content":{"parts":[{"text":"a","function_call":{"name":"f"}}]}}',
    '{"content":{"parts":[{"inline_data":{"data":"?","mime_type":"a/b"}}]}}',
    '{"actions":[]}',
    '{"actions":{"state_delta":{"k":' + "[" * 200 + "]" * 200 + "}}}",
    '{"author":"\\ud800"}',
    '{"output":"\\ud800"}',
]


@pytest.mark.parametrize("text", NO_OBJECTS, ids=[repr(each)[:20] for each in NO_OBJECTS])
@pytest.mark.parametrize("kind", [Event, Content, Session])
def test_what_is_no_json_object_is_refused(kind: Any, text: Any) -> None:
    """Everything that is not a JSON object ends in one typed error, which is short."""
    with pytest.raises(InvalidValueError) as caught:
        kind.from_json(text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", NO_EVENTS, ids=[each[:40] for each in NO_EVENTS])
def test_an_object_that_is_no_event_is_refused(text: str) -> None:
    """A field of another type, or one that could not be stored, ends in one typed error, which is short."""
    with pytest.raises(InvalidValueError) as caught:
        Event.from_json(text)
    assert len(str(caught.value)) < 500


@given(st.dictionaries(st.sampled_from(["author", "content", "actions", "seq", "timestamp", "x"]), json_values))
def test_any_object_is_read_or_refused(fields: dict[str, Any]) -> None:
    """Whatever the fields of an event hold, there is an event that says the same, or a typed error."""
    try:
        event = Event.from_json(json.dumps(fields))
    except InvalidValueError:
        return
    assert Event.from_json(event.to_json()) == event


# --- sessions ---------------------------------------------------------------------------------------------------------


async def a_session() -> Session:
    async with InMemorySessionService() as sessions:
        session = await sessions.create_session(**HERE, state={"k": [1], "user:n": 2, "app:x": None})
        await sessions.append_event(session, Event(author="user", message="hi", state={"k": [2]}))
        return session


def test_a_session_comes_back_the_same() -> None:
    """Its fields, state and events are those that it had, and it is read-only as those of services are."""
    session = trio.run(a_session)
    read = Session.from_json(session.to_json())
    for name in ("id", "app_name", "user_id", "create_time", "last_update_time", "revision"):
        assert getattr(read, name) == getattr(session, name)
    assert dict(read.state) == {"k": [2], "user:n": 2, "app:x": None} == dict(session.state)
    assert read.events == session.events
    assert read.to_json() == session.to_json()
    with pytest.raises(TypeError, match="copy to read"):
        read.state["k"] = 1  # type: ignore[index] # that is the point


async def test_nothing_is_appended_to_a_session_from_json() -> None:
    """What is known of a session only by its JSON may be of another store: appending says to get it."""
    async with InMemorySessionService() as sessions:
        session = await sessions.create_session(**HERE)
        with pytest.raises(StaleSessionError, match="read from JSON; get_session again"):
            await sessions.append_event(Session.from_json(session.to_json()), Event(author="user", message="hi"))


async def test_a_runs_session_is_written_without_temp_keys() -> None:
    """In a run, `ctx.session` is written with what its agent sees; `temp:` keys stay in the run."""

    class Writes(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            ctx.state["temp:x"] = 1
            ctx.state["y"] = 2
            await ctx.emit(Event(output=ctx.session.to_json()))

    runner = InMemoryRunner(agent=Writes(name="a"), auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        answer = await run.wait()
    assert answer is not None
    read = Session.from_json(answer.output)
    assert (dict(read.state), [event.text for event in read.events]) == ({"y": 2}, ["go"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", " "),
        ("id", None),
        ("app_name", "no name"),
        ("user_id", "\0"),
        ("state", []),
        ("state", {"temp:x": 1}),
        ("state", {"user:": 1}),
        ("events", {}),
        ("events", [{"seq": "1"}]),
        ("events", [7]),
        ("revision", -1),
        ("revision", True),
        ("revision", 1.5),
        ("create_time", "today"),
        ("last_update_time", 10**400),
    ],
)
def test_a_session_with_a_wrong_field_is_refused(field: str, value: Any) -> None:
    """Each field of a session is checked as those of a service's sessions are."""
    fields = json.loads(trio.run(a_session).to_json())
    with pytest.raises(InvalidValueError):
        Session.from_json(json.dumps({**fields, field: value}))
    del fields[field]
    with pytest.raises(InvalidValueError, match=f"missing {field}"):
        Session.from_json(json.dumps(fields))
