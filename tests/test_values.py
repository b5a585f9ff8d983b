"""Facts about values: what JSON accepts and refuses, what is frozen, and what an event is."""

from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, IntEnum, StrEnum
from typing import Any

import attrs
import pytest
from hypothesis import given

from minirun import Content, Event, EventActions, Part
from minirun._codec import from_dict, from_json, to_dict, to_json
from minirun._json import DEPTH_MAX, FrozenDict, FrozenList, dumps, freeze, loads, shown, thaw
from minirun._values import MAKE, changed
from minirun._window import Extended, Window, inserted
from minirun.errors import InvalidValueError, MinirunError
from minirun.events import NodeInfo
from minirun.models import LlmResponse
from minirun.sessions import GetSessionConfig
from minirun.types import (
    Blob,
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    UsageMetadata,
)

from .strategies import events


class Colour(StrEnum):
    RED = "red"


class OldColour(str, Enum):  # noqa: UP042 # its str() is `OldColour.RED`, which is the point
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Float64(float):
    """Behaves as numpy's float64 does: a float with a repr of its own."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)})"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


# --- JSON: what is accepted -------------------------------------------------------------------------------------------


def plain(value: object) -> object:
    """The types of a value, all the way down."""
    if isinstance(value, dict):
        return type(value), [(type(key), plain(item)) for key, item in value.items()]
    if isinstance(value, list):
        return type(value), [plain(item) for item in value]
    return type(value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (Colour.RED, "red"),
        (OldColour.RED, "red"),
        (Level.HIGH, 3),
        (Float64(1.5), 1.5),
        ({Colour.RED: Level.HIGH}, {"red": 3}),
        ({OldColour.RED: 1}, {"red": 1}),
        ((1, (2,)), [1, [2]]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (-0.0, -0.0),
        (10**3999, 10**3999),
        ("\0", "\0"),
        ("😀", "😀"),
        ("", ""),
    ],
)
def test_what_is_json_at_heart_becomes_plain_json(given: object, kept: object) -> None:
    """Subclasses and tuples become the plain type, all the way down, and read back as they are."""
    frozen = freeze(given)
    assert frozen == kept
    assert plain(frozen) == plain(freeze(kept))
    assert plain(thaw(frozen)) == plain(kept)
    assert loads(dumps(frozen)) == frozen


def test_dicts_keep_their_order() -> None:
    """Freezing and encoding keep the order of keys."""
    assert dumps(freeze({"b": 1, "a": {"z": 1, "y": 2}})) == '{"b":1,"a":{"z":1,"y":2}}'


def test_what_is_frozen_is_not_frozen_again() -> None:
    """A frozen value is shared, not copied, however often it is stored."""
    frozen = freeze({"a": [1, {"b": 2}]})
    assert freeze(frozen) is frozen
    assert freeze([frozen])[0] is frozen
    assert freeze({"k": frozen["a"]})["k"] is frozen["a"]


def nested(levels: int, innermost: object = 0) -> Any:
    value = innermost
    for _ in range(levels):
        value = [value]
    return value


def test_the_depth_is_counted_through_frozen_parts() -> None:
    """100 levels are accepted and 101 refused, whether or not some of them are frozen already."""
    deepest = freeze(nested(DEPTH_MAX))
    assert loads(dumps(deepest)) == deepest
    for too_deep in (nested(DEPTH_MAX + 1), [deepest], {"k": deepest}, [[freeze(nested(DEPTH_MAX - 1))]]):
        with pytest.raises(InvalidValueError, match="nested deeper than 100"):
            freeze(too_deep)
    almost = freeze(nested(DEPTH_MAX - 1))
    assert freeze([almost])[0] is almost


def test_a_frozen_class_that_somebody_calls_is_checked_like_any_other() -> None:
    """`type(value)(...)` makes something that was never checked, so it is checked when it is used."""
    assert freeze(FrozenList([1, (2,)])) == [1, [2]]
    assert type(freeze(FrozenDict({"a": {"b": 1}}))["a"]) is FrozenDict
    with pytest.raises(InvalidValueError, match=r"value\['a'\]"):
        freeze(FrozenDict({"a": object()}))
    with pytest.raises(InvalidValueError, match=r"state_delta\['a'\]"):
        EventActions(state_delta=FrozenDict({"a": {1}}))


# --- JSON: what is refused, with the path -----------------------------------------------------------------------------

cycle: list[Any] = []
cycle.append(cycle)
wide_cycle: dict[str, Any] = {}
wide_cycle["a"] = {"b": [wide_cycle, wide_cycle]}

REFUSED: list[tuple[object, str]] = [
    (math.nan, "finite number, found nan"),
    (math.inf, "finite number, found inf"),
    (Float64("-inf"), "finite number, found -inf"),
    (b"bytes", "found bytes"),
    (bytearray(b"x"), "found bytearray"),
    ({1, 2}, "found set"),
    (frozenset({1}), "found frozenset"),
    (1j, "found complex"),
    (object(), "found object"),
    (Unprintable(), "found Unprintable"),
    (lambda: 1, "found function"),
    (Event(author="a"), "found Event"),
    (Part(text="x"), "found Part"),
    ("\ud800", "lone surrogate at character 0"),
    ("ok \udfff", "lone surrogate at character 3"),
    (10**4000, "at most 4000 digits"),
    (-(10**5000), "at most 4000 digits"),
    (cycle, "or containing itself"),
    (wide_cycle, "or containing itself"),
    (nested(DEPTH_MAX + 1), "nested deeper than 100"),
    ({1: "a"}, "expected string keys, found 1 of type int"),
    ({None: "a"}, "expected string keys, found None"),
    ({"\ud800": 1}, "lone surrogate"),
    ({(1, 2): 1}, "expected string keys, found"),
]


@pytest.mark.parametrize(("bad", "problem"), REFUSED, ids=[f"{i}" for i in range(len(REFUSED))])
def test_what_json_cannot_hold_is_refused_with_its_path(bad: object, problem: str) -> None:
    """The message begins with the path to the offending value, wherever it hides, and says what is wrong with it."""
    with pytest.raises(InvalidValueError) as caught:
        freeze({"a": [0, {"when": bad}]}, "state_delta")
    assert str(caught.value).startswith("state_delta['a'][1]['when']")
    assert problem in str(caught.value)
    assert caught.value.path.startswith("state_delta['a'][1]['when']")
    assert isinstance(caught.value, MinirunError)


def test_the_deepest_paths_do_not_fill_the_screen() -> None:
    """The path of something that is nested too deeply is cut short."""
    with pytest.raises(InvalidValueError) as caught:
        freeze(cycle)
    assert len(str(caught.value)) < 200


def test_showing_a_value_never_fails() -> None:
    """A message about a value that cannot be shown names its type."""
    assert shown(Unprintable()) == "a value of type Unprintable"
    assert shown(10**5000) == "a value of type int"
    assert len(shown("x" * 1000)) < 120


# --- frozen lists and dicts -------------------------------------------------------------------------------------------

LIST_MUTATORS: dict[str, Callable[[Any], object]] = {
    "append": lambda items: items.append(1),
    "extend": lambda items: items.extend([1]),
    "insert": lambda items: items.insert(0, 1),
    "remove": lambda items: items.remove(1),
    "pop": lambda items: items.pop(),
    "clear": lambda items: items.clear(),
    "sort": lambda items: items.sort(key=str),
    "reverse": lambda items: items.reverse(),
    "item": lambda items: items.__setitem__(0, 9),
    "slice": lambda items: items.__setitem__(slice(0, 1), [9]),
    "del": lambda items: items.__delitem__(0),
}
DICT_MUTATORS: dict[str, Callable[[Any], object]] = {
    "item": lambda items: items.__setitem__("a", 9),
    "del": lambda items: items.__delitem__("a"),
    "update": lambda items: items.update(a=9),
    "setdefault": lambda items: items.setdefault("z", 9),
    "pop": lambda items: items.pop("a"),
    "popitem": lambda items: items.popitem(),
    "clear": lambda items: items.clear(),
}


@pytest.mark.parametrize("name", LIST_MUTATORS)
def test_a_frozen_list_refuses_to_change_and_says_what_to_do(name: str) -> None:
    """Every mutator raises a TypeError that names a way that works, and the list stays as it was."""
    items = freeze([3, 1, 2])
    with pytest.raises(TypeError, match=r"is part of a stored value and cannot change; .*(list\(value\)|\+= \[item\])"):
        LIST_MUTATORS[name](items)
    assert items == [3, 1, 2]


@pytest.mark.parametrize("name", DICT_MUTATORS)
def test_a_frozen_dict_refuses_to_change_and_says_what_to_do(name: str) -> None:
    """Every mutator raises a TypeError that names a way that works, and the dict stays as it was."""
    items = freeze({"a": 1})
    with pytest.raises(TypeError, match=r"is part of a stored value and cannot change; .*(dict\(value\)|\|= )"):
        DICT_MUTATORS[name](items)
    assert items == {"a": 1}


def test_every_mutator_of_list_and_dict_is_known_to_these_tests() -> None:
    """A method that a later Python adds to list or dict, and that might change it, would be seen here."""
    reading = {
        *("copy", "count", "index", "fromkeys", "get", "items", "keys", "values"),
        *(name for name in dir(list) + dir(dict) if name.startswith("__")),
    }
    assert {name for name in dir(list) if name not in reading} <= LIST_MUTATORS.keys()
    assert {name for name in dir(dict) if name not in reading} <= DICT_MUTATORS.keys()


def test_augmented_assignment_gives_a_new_frozen_value() -> None:
    """`+=`, `*=` and `|=` leave the stored value alone and give a new frozen one."""
    items = before = freeze([1])
    items += [[2]]
    assert items == [1, [2]]
    assert type(items) is type(items[1]) is FrozenList
    items *= 2
    assert items == [1, [2], 1, [2]]
    assert before == [1]
    names = earlier = freeze({"a": 1})
    names |= {"b": {"c": 2}}
    names |= [("d", 3)]
    assert names == {"a": 1, "b": {"c": 2}, "d": 3}
    assert type(names) is type(names["b"]) is FrozenDict
    assert earlier == {"a": 1}
    with pytest.raises(InvalidValueError, match=r"value\[4\].*found set"):
        items += [{1}]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v)), thaw, list])
def test_a_copy_of_a_frozen_list_is_a_plain_list(copied: Callable[[Any], Any]) -> None:
    """copy, deepcopy, pickle, thaw and list() give a list that may be changed, and the stored one stays."""
    items = freeze([1, [2]])
    mine = copied(items)
    assert type(mine) is list
    mine.append(3)
    assert items == [1, [2]]


def test_a_deep_copy_is_plain_all_the_way_down() -> None:
    """deepcopy and thaw also make what is inside plain; copy, dict() and `.copy()` only the outermost."""
    value = freeze({"a": [{"b": 1}]})
    for deep in (copy.deepcopy(value), thaw(value)):
        assert type(deep) is dict
        assert type(deep["a"]) is list
        assert type(deep["a"][0]) is dict
        deep["a"][0]["b"] = 2
    for shallow in (copy.copy(value), dict(value), value.copy(), value | {}):
        assert type(shallow) is dict
        shallow["z"] = 1
        assert type(shallow["a"]) is FrozenList
    assert value == {"a": [{"b": 1}]}


def test_frozen_values_behave_as_lists_and_dicts() -> None:
    """isinstance, ==, json, slices, `+` and unpacking treat them as lists and dicts."""
    value = freeze({"a": [1, 2, 3]})
    assert isinstance(value, dict)
    assert isinstance(value["a"], list)
    assert value == {"a": [1, 2, 3]}
    assert json.dumps(value) == '{"a": [1, 2, 3]}'
    assert [*value["a"][1:], 4] == value["a"][1:] + freeze([4]) == [2, 3, 4]
    assert {**value, "b": 1} == {"a": [1, 2, 3], "b": 1}
    assert sorted(value["a"], reverse=True) == [3, 2, 1]


# --- content and parts ------------------------------------------------------------------------------------------------


def test_a_part_has_exactly_one_payload() -> None:
    """No payload, or two, is refused by name."""
    with pytest.raises(InvalidValueError, match=r"expected exactly one of text, .* found none"):
        Part()
    with pytest.raises(InvalidValueError, match="found text and function_call"):
        Part(text="x", function_call=FunctionCall(name="f"))
    with pytest.raises(InvalidValueError, match="found none"):
        Part(thought=True)
    assert Part(thought_signature=b"seal").thought_signature == b"seal"


def test_the_text_of_a_content_leaves_thoughts_out() -> None:
    """`Content.text` and `Event.text` join what was said, not what was thought."""
    content = Content(parts=[Part(text="a"), Part(text="hm", thought=True), Part(text="b"), Part(text="")])
    assert content.text == Event(author="x", content=content).text == "ab"
    assert Event(author="x").text == ""


WRONG_KINDS: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (Content, {"parts": "hi"}, "Content.parts"),
    (Content, {"parts": 5}, "Content.parts"),
    (Content, {"parts": ["hi"]}, r"Content.parts\[0\]"),
    (Content, {"role": 5}, "Content.role"),
    (Part, {"text": 5}, "Part.text"),
    (Part, {"text": "\ud800"}, "Part.text"),
    (Part, {"text": "x", "thought": "yes"}, "Part.thought"),
    (Part, {"inline_data": b"x"}, "Part.inline_data"),
    (Blob, {"data": 5, "mime_type": "a/b"}, "Blob.data"),
    (Blob, {"data": "not base64!", "mime_type": "a/b"}, "Blob.data"),
    (Blob, {"data": "é", "mime_type": "a/b"}, "Blob.data"),
    (FunctionCall, {"name": "f", "args": [1]}, "FunctionCall.args"),
    (FunctionCall, {"name": "f", "args": {"a": {1}}}, r"FunctionCall.args\['a'\]"),
    (FunctionResponse, {"name": "f", "response": {"a": b""}}, r"FunctionResponse.response\['a'\]"),
    (UsageMetadata, {"total_token_count": True}, "UsageMetadata.total_token_count"),
    (UsageMetadata, {"total_token_count": 10**5000}, "UsageMetadata.total_token_count"),
    (UsageMetadata, {"total_token_count": 1.5}, "UsageMetadata.total_token_count"),
    (NodeInfo, {"path": None}, "NodeInfo.path"),
    (Event, {"author": 5}, "Event.author"),
    (Event, {"author": 10**5000}, "Event.author"),
    (Event, {"content": 5}, "Event.content"),
    (Event, {"timestamp": "now"}, "Event.timestamp"),
    (Event, {"timestamp": True}, "Event.timestamp"),
    (Event, {"timestamp": math.nan}, "Event.timestamp"),
    (Event, {"timestamp": 10**400}, "Event.timestamp"),
    (Event, {"timestamp": 10**5000}, "Event.timestamp"),
    (Event, {"seq": True}, "Event.seq"),
    (Event, {"seq": "1"}, "Event.seq"),
    (Event, {"partial": "no"}, "Event.partial"),
    (Event, {"actions": None}, "Event.actions"),
    (Event, {"actions": {}, "state": {"a": 1}}, "Event.actions"),
    (Event, {"state": [("a", 1)]}, "EventActions.state_delta"),
    (Event, {"long_running_tool_ids": "abc"}, "Event.long_running_tool_ids"),
    (Event, {"long_running_tool_ids": [1]}, "Event.long_running_tool_ids"),
    (Event, {"long_running_tool_ids": 5}, "Event.long_running_tool_ids"),
    (Event, {"custom_metadata": {"a": object()}}, r"Event.custom_metadata\['a'\]"),
    (Event, {"output": {1, 2}}, "Event.output"),
    (EventActions, {"state_removed": "key"}, "EventActions.state_removed"),
    (EventActions, {"state_removed": None}, "EventActions.state_removed"),
    (EventActions, {"state_removed": [1]}, "EventActions.state_removed"),
    (EventActions, {"state_delta": {"a": [1, math.nan]}}, r"EventActions.state_delta\['a'\]\[1\]"),
    (EventActions, {"escalate": 1}, "EventActions.escalate"),
    (Event, {"content": "a", "message": "b"}, "Event.message"),
    (Event, {"actions": EventActions(state_delta={"a": 1}), "state": {"b": 1}}, "Event.state"),
    (Event, {"unknown_fields": {"seq": 4}}, "Event.unknown_fields"),
    (Part, {"text": "a", "unknown_fields": {"thought": True}}, "Part.unknown_fields"),
    (EventActions, {"unknown_fields": {"state_delta": {}}}, "EventActions.unknown_fields"),
    (GetSessionConfig, {"num_recent_events": -1}, "GetSessionConfig.num_recent_events"),
    (GetSessionConfig, {"after_seq": True}, "GetSessionConfig.after_seq"),
    (GetSessionConfig, {"after_timestamp": math.nan}, "GetSessionConfig.after_timestamp"),
    (GetSessionConfig, {"after_timestamp": "x"}, "GetSessionConfig.after_timestamp"),
]


@pytest.mark.parametrize(("make", "fields", "path"), WRONG_KINDS)
def test_a_field_of_the_wrong_kind_is_refused_by_its_name(
    make: Callable[..., object], fields: dict[str, Any], path: str
) -> None:
    """A value that a field cannot hold is refused when the value is made, with the field's name."""
    with pytest.raises(InvalidValueError, match=f"^{path}: .*(expected|give one of the two)"):
        make(**fields)


def test_text_fields_take_string_enums_as_their_plain_string() -> None:
    """An enum member that is a string is stored as that string, so memory and disk agree."""
    event = Event(author=Colour.RED, finish_reason=OldColour.RED, actions=EventActions(state_removed=[OldColour.RED]))
    for text in (event.author, event.finish_reason, event.actions.state_removed[0]):
        assert type(text) is str
        assert text == "red"
    usage = UsageMetadata(total_token_count=Level.HIGH)
    assert type(usage.total_token_count) is int


def test_values_cannot_be_changed() -> None:
    """Assigning to a field of a value raises, at every level."""
    event = Event(author="a", message="hi", state={"k": [1]})
    assert event.content is not None
    for value, field in ((event, "author"), (event.actions, "escalate"), (event.content, "role")):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, field, None)
    with pytest.raises(TypeError):
        event.actions.state_delta["k"] = 2  # type: ignore[index]  # that is the point
    with pytest.raises(TypeError, match="cannot change; make another value"):
        event.content.parts.append(Part(text="x"))  # type: ignore[attr-defined]  # that is the point


@given(one=events, other=events)
def test_values_made_of_checked_fields_are_what_their_class_makes_of_them(one: Event, other: Event) -> None:
    """The ways around the checks give the same values as the way through them: complete, frozen, of the same class."""
    for value in (one, one.actions, *([one.content, *one.content.parts] if one.content is not None else [])):
        fields = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}  # type: ignore[arg-type]  # mypy does not see that they are attrs classes
        assert type(value)(**fields) == MAKE[type(value)](**fields) == changed(value) == value
        assert type(changed(value)) is type(MAKE[type(value)](**fields)) is type(value)
    mixed = changed(one, content=other.content, actions=other.actions)
    assert mixed == attrs.evolve(one, content=other.content, actions=other.actions)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        mixed.author = "a"  # type: ignore[misc]  # that is the point


def test_a_subclass_of_a_value_is_made_like_the_value() -> None:
    """Who derives from a value gets the checks of the value, and objects of the own class, which cannot be changed."""

    class Aside(Part):
        pass

    aside = Aside(text="hi", thought=True)
    assert (type(aside), aside.text, aside.thought) == (Aside, "hi", True)
    assert type(changed(Content(parts=[aside]), role="user").parts[0]) is Aside
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        aside.text = None  # type: ignore[misc]  # that is the point
    with pytest.raises(InvalidValueError, match=r"Part.thought: expected True, False or None, found 'yes'"):
        Aside(text="hi", thought="yes")  # type: ignore[arg-type]  # that is the point


CONSTRUCTED: list[tuple[type, dict[str, Any], dict[str, Any]]] = [
    (Part, {"text": "hi"}, {"text": 3}),
    (Part, {"text": "hi"}, {}),
    (Content, {"parts": [Part(text="hi")]}, {"parts": "hi"}),
    (FunctionCall, {"name": "f", "args": {"a": 1}}, {"name": "f", "args": {"a": object()}}),
    (FunctionResponse, {"name": "f", "response": {"a": 1}}, {"name": "f", "response": "done"}),
    (EventActions, {"state_delta": {"a": [1]}}, {"state_delta": {"a": object()}}),
    (Event, {"author": "a", "custom_metadata": {"a": [1]}}, {"timestamp": "now"}),
    (LlmResponse, {"custom_metadata": {"a": [1]}}, {"finish_reason": 3}),
]


@pytest.mark.parametrize(("cls", "right", "wrong"), CONSTRUCTED)
@pytest.mark.parametrize("slots", [True, False])
def test_a_subclass_with_fields_of_its_own_is_checked_as_the_value_is(
    cls: type, right: dict[str, Any], wrong: dict[str, Any], slots: bool
) -> None:
    """Its constructor is made by attrs, not by us: what it is given is refused, frozen and copied all the same."""
    made = type("Own", (cls,), {"__annotations__": {"raw": "object"}, "raw": None, "__module__": __name__})
    own: Any = attrs.frozen(made, kw_only=True, slots=slots, eq=False, repr=False)
    value = own(**right, raw=1)
    fields = [field.name for field in attrs.fields(cls)]
    assert [getattr(value, name) for name in fields] == [getattr(cls(**right), name) for name in fields]
    with pytest.raises(InvalidValueError):
        own(**wrong, raw=1)
    copied = changed(value, raw=2)
    assert (type(copied), copied.raw, value.raw) == (own, 2, 1)
    assert [getattr(copied, name) for name in fields] == [getattr(value, name) for name in fields]


def test_no_subclass_gets_around_the_checks_of_its_value() -> None:
    """Whatever of a value a subclass replaces: a field, the rule about all fields, the constructor, or attrs' own."""

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class OwnField(Content):
        role: Any = attrs.Factory(list)
        parts: Any = attrs.Factory(list)

    class NoRule(Part):
        def __attrs_post_init__(self) -> None:
            pass

        def _check_whole(self) -> None:
            pass

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class OwnConstructor(Event):
        extra: int

        def __init__(self, extra: int, **fields: Any) -> None:
            super().__init__(**fields)
            object.__setattr__(self, "extra", extra)

    own: Any = OwnConstructor  # mypy has its own mind about it
    parts = [Part(text="a")]
    assert OwnField(role="user", parts=parts).parts == tuple(parts)
    assert (own(extra=3, message="hi").extra, own(extra=3, message="hi").text) == (3, "hi")
    refused: list[Callable[[], object]] = [
        lambda: OwnField(),
        lambda: OwnField(role=5),
        lambda: OwnField(role="user", parts="hi"),
        lambda: NoRule(),
        lambda: NoRule(text="a", function_call=FunctionCall(name="f")),
        lambda: attrs.frozen(NoRule, kw_only=True, eq=False, repr=False)(text="a", file_data=FileData(file_uri="b")),
        lambda: own(extra=3, author=5),
    ]
    for make in refused:
        with pytest.raises(InvalidValueError):
            make()


@pytest.mark.parametrize("cls", [Blob, FunctionCall, NodeInfo])
def test_what_must_be_given_is_not_what_attrs_puts_for_nothing(cls: type) -> None:
    """`attrs.NOTHING` is no value of any field, in a subclass neither."""
    with pytest.raises(InvalidValueError):
        cls(**{field.name: attrs.NOTHING for field in attrs.fields(cls) if field.default is attrs.NOTHING})


def test_values_are_checked_whether_or_not_attrs_runs_validators() -> None:
    """`attrs.validators.disabled()`, which is for the whole process, changes nothing about them."""
    line = to_json(Event(content=Content(parts=[Part(inline_data=Blob(data=b"xx", mime_type="a/b"))])))
    with attrs.validators.disabled():
        assert to_json(from_json(Event, line)) == line
        for cls, _, wrong in CONSTRUCTED:
            with pytest.raises(InvalidValueError):
                cls(**wrong)
            with pytest.raises(InvalidValueError):
                type("Plain", (cls,), {"__slots__": ()})(**wrong)


def test_a_constructor_that_somebody_has_replaced_stays_replaced() -> None:
    """Whoever wraps the constructor of a value before the first one was made sees all of them."""
    program = (
        "from minirun.types import FunctionCall\n"
        "made, seen = FunctionCall.__init__, []\n"
        "def spy(self, **fields):\n    seen.append(fields)\n    made(self, **fields)\n"
        "FunctionCall.__init__ = spy\n"
        "names = [FunctionCall(name=name).name for name in 'abc']\n"
        "assert names == [fields['name'] for fields in seen] == ['a', 'b', 'c'], seen\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_making_values_makes_no_classes_that_others_see() -> None:
    """Neither a class of ours nor one that derives from it has subclasses because values of it were made or copied."""
    told: list[str] = []

    class Telling(Part):
        def __init_subclass__(cls) -> None:
            told.append(cls.__name__)

    part, telling = Part(text="a"), Telling(text="a")
    assert changed(telling, text="b").text == "b"
    assert changed(part, text="b") == Part(text="b")
    assert told == []
    assert [cls for cls in Part.__subclasses__() if cls.__module__.startswith("minirun.")] == []


def test_an_event_shares_nothing_with_what_it_was_made_from() -> None:
    """Changing the dicts, lists and byte arrays that an event was made from does not change the event."""
    state: dict[str, Any] = {"k": [1, {"a": 1}]}
    parts = [Part(text="a")]
    data = bytearray(b"abc")
    ids = {"x"}
    blob = Blob(data=data, mime_type="a/b")  # type: ignore[arg-type]  # a bytearray is copied
    event = Event(author="a", content=Content(parts=parts), state=state, long_running_tool_ids=ids)
    line = to_json(event)
    state["k"][1]["a"] = 2
    state["new"] = 1
    parts.append(Part(text="b"))
    data[0] = 0
    ids.clear()
    assert to_json(event) == line
    assert blob.data == b"abc"


# --- events -----------------------------------------------------------------------------------------------------------


def test_the_short_forms_of_an_event() -> None:
    """`message=` is the content, `state=` is the state_delta, a string is a content with one text part."""
    event = Event(author="a", message="hi", state={"k": 1})
    spelled_out = Content(parts=[Part(text="hi")])
    assert event == Event(author="a", content=spelled_out, actions=EventActions(state_delta={"k": 1}))
    assert event.message is event.content
    both = Event(state={"k": 1}, actions=EventActions(escalate=True))
    assert both.actions == EventActions(state_delta={"k": 1}, escalate=True)
    assert Event(state={}).actions.state_delta == {}


def test_what_the_store_gives_is_none_before() -> None:
    """A new event has no id, no seq and no timestamp."""
    event = Event(author="a")
    assert (event.id, event.seq, event.timestamp) == (None, None, None)


CALL = Part(function_call=FunctionCall(name="f", id="c"))
RESPONSE = Part(function_response=FunctionResponse(name="f", id="c"))
TEXT = Part(text="x")
CODE = Part(executable_code=ExecutableCode(code="1"))
RESULT = Part(code_execution_result=CodeExecutionResult(outcome="ok"))


def content(*parts: Part) -> Content:
    return Content(parts=parts)


@pytest.mark.parametrize(
    ("event", "final"),
    [
        (Event(), True),
        (Event(message="x"), True),
        (Event(state={"k": 1}), True),
        (Event(message="x", partial=True), False),
        (Event(partial=False, message="x"), True),
        (Event(content=content(CALL)), False),
        (Event(content=content(TEXT, CALL)), False),
        (Event(content=content(RESPONSE)), False),
        (Event(content=content(RESPONSE, TEXT)), False),
        (Event(content=content(TEXT, RESULT)), False),
        (Event(content=content(RESULT, TEXT)), True),
        (Event(content=content(CODE)), True),
        (Event(content=content()), True),
        (Event(content=content(RESPONSE), actions=EventActions(skip_summarization=True)), True),
        (Event(content=content(RESPONSE), actions=EventActions(skip_summarization=False)), False),
        (Event(message="x", partial=True, actions=EventActions(skip_summarization=True)), True),
        (Event(content=content(CALL), long_running_tool_ids=["c"]), True),
        (Event(content=content(CALL), long_running_tool_ids=[]), False),
        (Event(content=content(CALL), long_running_tool_ids=["c"], partial=True), True),
        (Event(error_code="X"), True),
        (Event(turn_complete=True, message="x"), True),
        (Event(output=1, actions=EventActions(replay={"step": {"name": "s", "path": "p"}})), False),
    ],
)
def test_is_final_response_follows_the_documented_rule(event: Event, final: bool) -> None:
    """skip_summarization or a waiting call: final; else no partial, no call, no response, no trailing code result."""
    assert event.is_final_response() is final


def test_calls_and_responses_are_found_in_order() -> None:
    """`get_function_calls` and `get_function_responses` give what the parts hold, in their order."""
    first, second = FunctionCall(name="f", id="1"), FunctionCall(name="g", id="2")
    answer = FunctionResponse(name="f", id="1")
    parts = [Part(function_call=first), TEXT, Part(function_response=answer), Part(function_call=second)]
    event = Event(content=Content(parts=parts))
    assert event.get_function_calls() == [first, second]
    assert event.get_function_responses() == [answer]
    assert Event().get_function_calls() == []
    assert Event().get_function_responses() == []


def test_a_node_path_names_the_node_and_its_run() -> None:
    """`my_wf/classify@1/billing@2` is the second run of `billing`."""
    info = NodeInfo(path="my_wf/classify@1/billing@2")
    assert (info.name, info.run_id) == ("billing", "2")
    assert (NodeInfo(path="alone").name, NodeInfo(path="alone").run_id) == ("alone", "")


# --- the codec --------------------------------------------------------------------------------------------------------


def test_fields_at_their_default_are_not_written() -> None:
    """The line of an event holds what was said and nothing else; False, 0 and empty text are said."""
    assert to_json(Event(author="a")) == '{"author":"a"}'
    event = Event(author="a", seq=0, partial=False, error_message="", content=Content())
    assert to_dict(event) == {"author": "a", "seq": 0, "partial": False, "error_message": "", "content": {}}
    assert from_json(Event, to_json(event)) == event


def test_bytes_are_base64_and_names_are_as_in_python() -> None:
    """Bytes are written as base64; nothing is renamed."""
    blob = Blob(data=b"\x00\xff", mime_type="image/png")
    given = Content(role="user", parts=[Part(inline_data=blob), Part(text="x", thought_signature=b"")])
    line = to_dict(given)
    assert line == {
        "role": "user",
        "parts": [{"inline_data": {"data": "AP8=", "mime_type": "image/png"}}, {"text": "x", "thought_signature": ""}],
    }
    assert from_dict(Content, line) == given
    file = Part(file_data=FileData(file_uri="s3://x"))
    assert from_dict(Content, to_dict(Content(parts=[file]))).parts[0] == file


LATER = {
    "author": "a",
    "later": {"x": [1]},
    "unknown_fields": "even this",
    "content": {
        "later": 1,
        "parts": [
            {"text": "t", "later": 2},
            {"hologram": {"size": 3}},
            {"thought": True, "hologram": {"size": 4}},
            {"function_call": {"name": "f", "id": "c", "later": 5}},
            {"inline_data": {"data": "AA==", "mime_type": "a/b", "later": 6}},
        ],
    },
    "actions": {"state_delta": {"k": 1}, "later": 7},
    "node_info": {"path": "n", "later": 8},
    "usage_metadata": {"total_token_count": 9, "later": 10},
}


def test_what_a_later_version_wrote_is_kept_at_every_level() -> None:
    """Fields and payloads that this version does not know come back as they were, wherever they stand."""
    event = from_json(Event, json.dumps(LATER))
    assert to_dict(event) == LATER
    assert from_json(Event, to_json(event)) == event
    assert event.text == "t"
    assert event.is_final_response() is False  # there is a call in it


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "null",
        "NaN",
        b"\xff\xfe\x00",
        "[" * 100_000,
        '{"author":5}',
        '{"seq":true}',
        '{"seq":1e400}',
        '{"seq":' + "9" * 5000 + "}",
        '{"timestamp":"x"}',
        '{"timestamp":1e400}',
        '{"content":"x"}',
        '{"content":{"parts":5}}',
        '{"content":{"parts":[5]}}',
        '{"content":{"parts":[{}]}}',
        '{"content":{"parts":[{"text":"a","inline_data":{"data":"AA==","mime_type":"x"}}]}}',
        '{"content":{"parts":[{"inline_data":{"data":"!","mime_type":"x"}}]}}',
        '{"content":{"parts":[{"inline_data":{"mime_type":"x"}}]}}',
        '{"actions":null}',
        '{"actions":{"state_delta":[]}}',
        '{"actions":{"state_removed":5}}',
        '{"long_running_tool_ids":[[]]}',
        '{"later":1e400}',
        '{"author":"\\ud800"}',
    ],
)
def test_a_line_that_is_no_event_is_refused_with_one_error(line: str | bytes) -> None:
    """Whatever a file holds instead of an event, reading it raises InvalidValueError."""
    with pytest.raises(InvalidValueError):
        from_json(Event, line)


# --- windows ----------------------------------------------------------------------------------------------------------


def test_windows_share_a_list_and_go_on_when_they_are_told() -> None:
    """Each window shows its own part of the list; it shows what the list's owner appended once it is told."""
    shared = ["a", "b"]
    one, two = Window(shared), Window(shared, 1)
    shared.append("c")
    assert (list(one), list(two)) == (["a", "b"], ["b"])
    one.push(shared[2])
    assert (list(one), list(two)) == (["a", "b", "c"], ["b"])
    assert one.origin is two.origin is shared


def test_a_window_never_writes_into_a_list_that_others_have() -> None:
    """A window that is told of what is not in the list goes on with a copy of its own, which is not copied again."""
    shared = ["a", "b", "c"]
    behind, level = Window(shared, 1, 2), Window(shared)
    behind.push("x")
    level.push("y")
    assert shared == ["a", "b", "c"]
    assert (list(behind), list(level)) == (["b", "x"], ["a", "b", "c", "y"])
    own = level.origin
    level.push("z")
    assert level.origin is own
    assert list(level) == ["a", "b", "c", "y", "z"]


def test_a_window_is_a_sequence() -> None:
    """Indexes, slices, iteration, comparison and search work on the part that it shows."""
    window = Window(list("abcdef"), 1, 5)
    assert len(window) == 4
    assert (window[0], window[-1], window[1:3], window[::-1]) == ("b", "e", ["c", "d"], list("edcb"))
    assert list(reversed(window)) == list("edcb")
    assert window == list("bcde") == list(window)
    assert window == Window(list("bcde"))
    assert window != list("bcd")
    assert "a" not in window
    assert window.index("d") == 2
    assert repr(window) == "['b', 'c', 'd', 'e']"
    for index in (4, -5, 100):
        with pytest.raises(IndexError, match="outside of a window of 4"):
            window[index]
    with pytest.raises(TypeError):
        hash(window)


def test_a_view_shares_its_beginning_and_goes_on_with_its_own() -> None:
    """It is a sequence like a window; what the owner of the list appends later is not in it."""
    shared = list("abc")
    view = Extended(Window(shared), ["x", "y"])
    shared.append("d")
    assert view == list("abcxy") == list(view)
    assert Window(list("abcxy")) == view
    assert (len(view), view[0], view[3], view[-1]) == (5, "a", "x", "y")
    assert (view[1:4], view[::-1]) == (list("bcx"), list("yxcba"))
    assert view.shared.origin is shared
    assert repr(view) == "['a', 'b', 'c', 'x', 'y']"
    for index in (5, -6):
        with pytest.raises(IndexError, match="outside of a sequence of 5"):
            view[index]
    with pytest.raises(TypeError):
        hash(view)


@pytest.mark.parametrize("own", ["", "xy"])
def test_an_item_can_be_inserted_anywhere(own: str) -> None:
    """A view of it shares all that stands before, wherever that is."""
    shared = list("abc")
    window = Window(shared)
    items = Extended(window, list(own)) if own else window
    for place in range(len(items) + 1):
        view = inserted(items, place, "-")
        expected = [*"abc", *own]
        expected.insert(place, "-")
        assert view == expected
        assert len(view.shared) == min(place, 3)
        assert view.shared.origin is shared
