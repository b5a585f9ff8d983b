"""
What is said of each field of an event that is not as it should be, when it is imported and when it is appended.

In the logs of one history every field is given every odd value once, wherever it first stands. What becomes of it
stands in `fixtures/odd-events.json`: stored, or refused, with the path and the names and numbers that are told. Run as
a program, this writes that anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import trio

from minirun import Event, InMemorySessionService
from minirun._codec import from_dict, to_dict
from minirun.artifacts import InMemoryArtifactService
from minirun.credentials import AuthConfig
from minirun.errors import MinirunError
from minirun.events import EventActions
from minirun.flows._questions import (
    GET_USER_CHOICE,
    REQUEST_CONFIRMATION,
    REQUEST_CREDENTIAL,
    REQUEST_INPUT,
    REQUEST_MESSAGE,
    SLEEP_UNTIL,
)
from minirun.types import Content, FunctionCall, Part

from ..one_history import History, Told
from ..tables import as_kept, kept, write

ODD: tuple[Any, ...] = ("odd", "", -1, 0, 7, 99, 1.5, True, None, [], ["odd"], {}, {"odd": 1})
GONE = object()
Document = list[dict[str, Any]]


async def logs() -> dict[str, Document]:
    """The logs of the history that have something special, and one with every kind of question."""
    env = Told()
    async with InMemorySessionService(env=env) as service:
        await History(service, InMemoryArtifactService(env=env), env).write()
        found = {}
        for name in "srt":
            events = await service.read_events(app_name="app", user_id="u", session_id=name)
            found[name] = [to_dict(event) for event in events]
    first = found["s"][0]
    return {**found, "questions": [first, to_dict(questions())]}


def questions() -> Event:
    """An event that asks in every way."""
    original = {"id": "tool", "name": "ship", "args": {"to": "Rome"}}
    config = AuthConfig("mail", "basic", hint="Log in").to_dict()
    confirmation = {"hint": "Ship it?", "confirmed": False, "payload": {"weight": 2}}
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "tool": ("ship", {"to": "Rome"}),
        "confirm": (REQUEST_CONFIRMATION, {"originalFunctionCall": original, "toolConfirmation": confirmation}),
        "input": (REQUEST_INPUT, {"message": "How many?", "payload": [1], "response_schema": {"type": "integer"}}),
        "key": (REQUEST_CREDENTIAL, {"functionCallId": "tool", "authConfig": config, "originalFunctionCall": original}),
        "long": ("render", {"file": "x"}),
        "choice": (GET_USER_CHOICE, {"options": ["a", "b", "a"]}),
        "said": (REQUEST_MESSAGE, {"message": "What else?"}),
        "timer": (SLEEP_UNTIL, {"until": 1234.5}),
    }
    parts = [Part(function_call=FunctionCall(id=call, name=name, args=args)) for call, (name, args) in asked.items()]
    return Event(
        id="asks",
        author="agent",
        invocation_id="e-1",
        seq=1,
        timestamp=5.0,
        content=Content(role="model", parts=parts),
        long_running_tool_ids=tuple(asked.keys() - {"tool"}),
        actions=EventActions(
            suspended_calls=["tool"],
            requested_tool_confirmations={"tool": confirmation},
            requested_auth_configs={"tool": config},
        ),
        custom_metadata={"interim": {"long": {"job": 7}}},
    )


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The document with something else at a place, or with nothing there."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if path[1:] or new is not GONE:
        copy[path[0]] = changed(value[path[0]], path[1:], new)
    else:
        del copy[path[0]]
    return copy


def shape(path: tuple[Any, ...]) -> str:
    """The place without the numbers of lists and the keys of a state: what is said of one is said of the others."""
    names = ("#" if isinstance(key, int) else str(key) for key in path)
    return re.sub(r"(state_delta\.)((?:user:|app:)?)[^.]+", r"\1\2*", ".".join(names))


def facts(error: MinirunError) -> list[str]:
    """Which error, where, and with which names and numbers; the words may change."""
    found = re.findall(r"'[^']*'|-?\d+(?:\.\d+)?|None|True|False|\[\]|\{\}", str(error))
    return [type(error).__name__, str(getattr(error, "path", ""))[:60], *(fact[:30] for fact in found)]


async def imported(document: Document) -> Any:
    """What becomes of a log that is imported: refused, or what is asked in it."""
    try:
        events = [from_dict(Event, fields) for fields in document]
    except MinirunError:
        return "no event"
    async with InMemorySessionService(env=Told()) as service:
        try:
            place = {"app_name": "app", "user_id": "u", "session_id": "s"}
            session = await service.import_session(**place, events=events)
        except MinirunError as error:
            return facts(error)
        asked = [
            [one.call_id, one.kind, one.tool, dict(one.args), one.hint, one.payload, one.schema, one.due, one.name,
             None if one.auth_config is None else one.auth_config.to_dict()]
            for one in await service.list_pending(include_timers=True)
        ]  # fmt: skip
        return {"revision": session.revision, "shown": len(session.events), "asked": asked}


async def appended(fields: dict[str, Any]) -> Any:
    """What becomes of one event that is appended from outside."""
    try:
        event = from_dict(Event, fields)
    except MinirunError:
        return "no event"
    async with InMemorySessionService(env=Told()) as service:
        session = await service.create_session(app_name="app", user_id="u", session_id="s", state={"n": 1, "l": []})
        try:
            stored = await service.append_event(session, event)
        except MinirunError as error:
            return facts(error)
        return ["stored", stored.seq]


@cache
def outcomes() -> dict[str, dict[str, Any]]:
    """By log and place: what becomes of each odd value."""
    return trio.run(_outcomes)


async def _outcomes() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    for name, log in (await logs()).items():
        usual = await imported(log)
        found[name] = {"as it is": usual}
        for path in places(log):
            key = shape(path if len(path) > 1 else ())
            if key in seen or not key:
                continue
            seen.add(key)
            own: dict[str, Any] = {}
            for odd in (*ODD, GONE):
                label = "gone" if odd is GONE else json.dumps(odd)
                document = changed(log, path, odd)
                one = {each: of for each, of in document[path[0]].items() if each not in ("seq", "timestamp")}
                ends = [await imported(document), await appended(one)]
                own[label] = ["as before" if end == usual else end for end in ends]
            found[name][key] = grouped(own)
    return as_kept(found)  # type: ignore[no-any-return]  # of a dict


def grouped(ends: dict[str, Any]) -> dict[str, Any]:
    """The odd values that come to the same end, in one line."""
    by_end: dict[str, list[str]] = {}
    for label, end in ends.items():
        by_end.setdefault(json.dumps(end), []).append(label)
    return {" ".join(labels): json.loads(end) for end, labels in by_end.items()}


@pytest.mark.parametrize("log", ["s", "r", "t", "questions"])
def test_what_is_said_of_an_odd_field(log: str) -> None:
    """It is stored, or refused with what is wrong and where; nothing else is raised."""
    expected = kept("odd-events")[log]
    found = outcomes()[log]
    assert [*found] == [*expected]
    for place, ends in expected.items():
        assert found[place] == ends, place


if __name__ == "__main__":
    write("odd-events", outcomes(), 2)
