"""
What values remember of what was derived from them: the calls and responses of a content, the writes of actions.

It is always what a fresh look at the fields gives, whatever the value was copied from, and by whom.
"""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun import Content, Event, EventActions, Part
from minirun._codec import from_dict, from_json, to_dict, to_json
from minirun._values import Memoized, changed
from minirun.errors import InvalidValueError
from minirun.events import NO_ACTIONS
from minirun.sessions._calls import call_changes
from minirun.sessions._fold import apply_event
from minirun.sessions._state import REMOVED, Add, Extend, Values, Write, with_writes, writes_of
from minirun.types import FunctionCall, FunctionResponse

from ..strategies import contents, json_values, parts

CALL = Part(function_call=FunctionCall(name="f", id="c"))
RESPONSE = Part(function_response=FunctionResponse(name="f", id="c"))
TEXT = Part(text="x")


class PlainContent(Content):
    """What somebody makes without attrs: its instances have a dict."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SlotContent(Content):
    """With attrs, and a field of its own."""

    extra: int = 0


@attrs.frozen(kw_only=True, slots=False, eq=False, repr=False)
class DictContent(Content):
    """With attrs, without slots."""


class PlainActions(EventActions):
    """What somebody makes without attrs: its instances have a dict."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SlotActions(EventActions):
    """With attrs, and a field of its own."""

    extra: int = 0


Copier = Callable[[Any], Any]
COPIERS: dict[str, Copier] = {
    "changed": changed,
    "evolve": attrs.evolve,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}
SHALLOW = ("changed", "evolve", "copy")  # the others make plain lists of frozen ones, which are no operands


def scanned(content: Content) -> tuple[list[FunctionCall], list[FunctionResponse]]:
    """The calls and responses, looked for afresh."""
    calls = [part.function_call for part in content.parts if part.function_call is not None]
    return calls, [part.function_response for part in content.parts if part.function_response is not None]


def derived(actions: EventActions) -> dict[str, Write]:
    """The writes, looked for afresh."""
    operations = {
        key: Add(operand) if name == "add" else Extend(operand)
        for key, operation in actions.state_ops.items()
        for name, operand in operation.items()
    }
    return {**dict.fromkeys(actions.state_removed, REMOVED), **actions.state_delta, **operations}


# --- what is remembered is what a fresh look gives --------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Content, PlainContent, SlotContent, DictContent])
@given(data=st.data())
def test_the_calls_of_a_content_are_those_of_its_parts(cls: type[Content], data: st.DataObject) -> None:
    """After any chain of copies and changes, whether or not somebody has asked in between."""
    content = cls(parts=data.draw(st.lists(parts, max_size=3)))
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            assert content.calls_and_responses is content.calls_and_responses
        step = data.draw(st.sampled_from(["parts", "role", "evolved", *COPIERS]))
        if step == "parts":
            content = changed(content, parts=tuple(data.draw(st.lists(parts, max_size=3))))
        elif step == "role":
            content = changed(content, role="model")
        elif step == "evolved":
            content = attrs.evolve(content, parts=data.draw(st.lists(parts, max_size=3)))
        else:
            content = COPIERS[step](content)
        assert type(content) is cls
    calls, responses = scanned(content)
    event = Event(content=content)
    assert (list(content.calls), list(content.responses)) == (calls, responses)
    assert (event.get_function_calls(), event.get_function_responses()) == (calls, responses)


keys = st.sampled_from(["a", "b", "user:c", "app:d", "temp:e"])
operations = st.one_of(
    st.builds(lambda amount: {"add": amount}, st.integers(-3, 3)),
    st.builds(lambda items: {"extend": items}, st.lists(json_values, max_size=2)),
)


@st.composite
def state_changes(draw: st.DrawFn) -> dict[str, Any]:
    """The three fields that change the state; no key stands in two of them."""
    fields: dict[str, Any] = {"state_removed": (), "state_delta": {}, "state_ops": {}}
    for key in draw(st.lists(keys, max_size=4, unique=True)):
        name = draw(st.sampled_from(sorted(fields)))
        if name == "state_removed":
            fields[name] += (key,)
        else:
            fields[name][key] = draw(json_values if name == "state_delta" else operations)
    return fields


@pytest.mark.parametrize("cls", [EventActions, PlainActions, SlotActions])
@given(data=st.data())
def test_the_writes_of_actions_are_those_of_their_fields(cls: type[EventActions], data: st.DataObject) -> None:
    """After any chain of copies and changes, whether or not somebody has asked in between; in the same order."""
    actions = cls(**data.draw(state_changes()))
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            assert writes_of(actions) is writes_of(actions)
        step = data.draw(st.sampled_from(["state", "other", "writes", *SHALLOW]))
        if step == "state":
            actions = attrs.evolve(actions, **data.draw(state_changes()))
        elif step == "other":
            actions = changed(actions, escalate=True)
        elif step == "writes":
            actions = with_writes(actions, derived(EventActions(**data.draw(state_changes()))))
        else:
            actions = COPIERS[step](actions)
        assert type(actions) is cls
    assert list(writes_of(actions).items()) == list(derived(actions).items())


# --- what a memo is no part of ----------------------------------------------------------------------------------------

ASKED: list[Memoized] = [
    *(cls(role="user", parts=[TEXT, CALL]) for cls in (Content, PlainContent, SlotContent, DictContent)),
    *(cls(state_delta={"k": 1}) for cls in (EventActions, PlainActions, SlotActions)),
]


def ask(value: Memoized) -> None:
    if isinstance(value, Content):
        assert value.calls
    else:
        assert isinstance(value, EventActions)
        assert writes_of(value)


@pytest.mark.parametrize("value", ASKED, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("copier", COPIERS)
def test_no_copy_takes_over_what_was_derived(value: Memoized, copier: str) -> None:
    """Whoever makes a copy, and of whatever class, it is asked afresh."""
    ask(value)
    assert hasattr(value, "_memo")
    made = COPIERS[copier](value)
    assert not hasattr(made, "_memo")
    assert made == value


@pytest.mark.parametrize("value", ASKED, ids=lambda value: type(value).__name__)
def test_what_was_derived_is_no_part_of_the_value(value: Memoized) -> None:
    """A value is equal to, shown as and written as one that nobody has asked; it can still not be hashed."""
    fresh = copy.copy(value)
    ask(value)
    assert value == fresh
    assert repr(value) == repr(fresh)
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        value._memo = ()
    if isinstance(value, Content):
        written = to_dict(value)
        assert written == to_dict(fresh) == to_dict(from_dict(Content, written))
    else:
        line = to_json(Event(actions=value))  # type: ignore[arg-type]  # all others are actions
        assert line == to_json(Event(actions=fresh))  # type: ignore[arg-type]
        assert to_json(from_json(Event, line)) == line


@given(contents)
def test_who_reads_an_event_twice_gets_lists_of_his_own(content: Content) -> None:
    """`get_function_calls` and `get_function_responses` give lists that may be changed; the content stays."""
    event = Event(content=content)
    for get in (event.get_function_calls, event.get_function_responses):
        before: list[Any] = [*get()]
        get().append(None)  # type: ignore[arg-type]
        assert get() == before


def test_contents_without_calls_share_what_they_remember() -> None:
    """Most contents have neither calls nor responses: remembering that takes no room."""
    one, other = Content(parts=[TEXT]), Content()
    assert one.calls_and_responses is other.calls_and_responses
    assert one.calls == other.responses == ()
    assert writes_of(NO_ACTIONS) is writes_of(EventActions(escalate=True))


def test_what_cannot_be_derived_is_refused_each_time() -> None:
    """Malformed writes are refused whenever somebody asks, and what has no form of its own is not remembered."""
    actions = EventActions(state_delta={"k": 1}, state_removed=["k"])
    for _ in range(2):
        with pytest.raises(InvalidValueError, match="the key stands in two"):
            writes_of(actions)


def test_threads_that_derive_at_once_derive_the_same() -> None:
    """Values are shared by threads, and nobody waits: each gets the same calls and writes, whoever was first."""
    count = 4
    barrier = threading.Barrier(count)
    values = [(Content(parts=[CALL, TEXT, RESPONSE]), EventActions(state_delta={"k": 1})) for _ in range(50)]
    found: list[object] = []

    def derive() -> None:
        for content, actions in values:
            barrier.wait()
            found.append((content.calls, content.responses, writes_of(actions)))

    threads = [threading.Thread(target=derive) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [((CALL.function_call,), (RESPONSE.function_response,), {"k": 1})] * count * len(values)


# --- who asks ---------------------------------------------------------------------------------------------------------


@given(state_changes())
def test_actions_that_say_the_writes_already_are_not_copied(fields: dict[str, Any]) -> None:
    """`with_writes` returns the very same actions then; with other changes, one copy of them."""
    actions = EventActions(**fields, escalate=True)
    assert with_writes(actions, writes_of(actions)) is actions
    assert with_writes(actions, dict(writes_of(actions))) is actions
    assert with_writes(actions, writes_of(actions), escalate=None) == attrs.evolve(actions, escalate=None)
    other = EventActions(escalate=True)
    assert with_writes(other, writes_of(actions)) == actions
    assert with_writes(actions, {}, transfer_to_agent="x") == EventActions(escalate=True, transfer_to_agent="x")


@pytest.mark.parametrize(
    ("fields", "writes", "expected"),
    [
        ({"state_delta": {"k": 1}}, {"k": True}, '{"actions":{"state_delta":{"k":true}}}'),
        ({"state_delta": {"k": 0.0}}, {"k": 0}, '{"actions":{"state_delta":{"k":0}}}'),
        ({"state_delta": {"a": 1, "b": 2}}, {"b": 2, "a": 1}, '{"actions":{"state_delta":{"b":2,"a":1}}}'),
        ({"state_delta": {"a": 1}}, {"b": 1}, '{"actions":{"state_delta":{"b":1}}}'),
        ({"state_removed": ["k", "k"]}, {"k": REMOVED}, '{"actions":{"state_removed":["k"]}}'),
        ({"state_ops": {"k": {"add": 1}}}, {"k": Add(1.0)}, '{"actions":{"state_ops":{"k":{"add":1.0}}}}'),
        ({"state_delta": {"k": 1}}, {}, "{}"),
    ],
)
def test_what_is_written_is_what_was_asked_for(
    fields: dict[str, Any], writes: dict[str, Write], expected: str
) -> None:
    """Writes that are only equal to those of the actions, or in another order, take their place."""
    assert to_json(Event(actions=with_writes(EventActions(**fields), writes))) == expected


def test_folding_an_event_gives_changes_of_its_own() -> None:
    """What `apply_event` and `call_changes` return may be changed: it is not what the event remembers."""
    event = Event(content=Content(parts=[TEXT]), state={"k": 1}, seq=1)
    for _ in range(2):
        changes, calls = apply_event(Values({}, {}, {}), event), call_changes({}, event, tracked=True)
        assert (changes, calls) == ({"k": 1}, {})
        changes.clear()
    assert writes_of(event.actions) == {"k": 1}
