"""Facts about state: scopes, layers of pending writes, operations, and the one function that applies an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import pytest

from minirun import Event, EventActions
from minirun._json import DEPTH_MAX, FrozenDict, FrozenList, freeze
from minirun.errors import InvalidValueError, InvocationEndedError
from minirun.sessions import ReadOnlyState, State
from minirun.sessions._fold import apply_event, fold
from minirun.sessions._read_only import CopiedState
from minirun.sessions._state import MISSING, REMOVED, Add, Extend, Scope, Values, scope_of, with_writes, writes_of


class Key(StrEnum):
    NAME = "user:name"


def values(**session: Any) -> Values:
    return Values({key: freeze(value) for key, value in session.items()}, {}, {})


def layered(**session: Any) -> tuple[State, State]:
    """An agent's layer over committed values, and a tool's over it."""
    agent = State(values(**session))
    return agent, agent.layer()


# --- scopes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "scope"),
    [
        ("x", Scope.SESSION),
        ("", Scope.SESSION),
        ("session:x", Scope.SESSION),
        ("a:b", Scope.SESSION),
        (":x", Scope.SESSION),
        ("APP:x", Scope.SESSION),
        ("user", Scope.SESSION),
        ("xuser:y", Scope.SESSION),
        ("app:x", Scope.APP),
        ("user:temp:z", Scope.USER),
        ("user::", Scope.USER),
        ("temp:app:x", Scope.TEMP),
        (Key.NAME, Scope.USER),
    ],
)
def test_the_first_prefix_names_the_scope(key: str, scope: Scope) -> None:
    """Only `app:`, `user:` and `temp:` at the beginning are scopes; every other key is the session's."""
    assert scope_of(key) is scope


@pytest.mark.parametrize("prefix", ["app:", "user:", "temp:"])
def test_a_bare_prefix_is_no_key(prefix: str) -> None:
    """A scope without a name is refused wherever a key is written, and the message shows a key."""
    state = State(values())
    writes: list[Callable[[], object]] = [
        lambda: state.__setitem__(prefix, 1),
        lambda: state.add(prefix, 1),
        lambda: state.extend(prefix, []),
        lambda: writes_of(EventActions(state_delta={prefix: 1})),
        lambda: writes_of(EventActions(state_removed=[prefix])),
        lambda: writes_of(EventActions(state_ops={prefix: {"add": 1}})),
    ]
    for write in writes:
        with pytest.raises(
            InvalidValueError, match=f"after the prefix, found '{prefix}'; write for example '{prefix}name"
        ):
            write()
    assert state.pending() == {}


def test_a_key_that_is_no_string_is_refused_and_never_found() -> None:
    """Writing under such a key raises InvalidValueError; looking for it finds nothing, as in a dict."""
    state, given = State(values(a=1)), ReadOnlyState(values(a=1))
    number: Any = 5
    with pytest.raises(InvalidValueError, match="expected a string as key, found 5 of type int"):
        state[number] = 1
    for mapping in (state, given):
        assert number not in mapping
        assert mapping.get(number) is None
        with pytest.raises(KeyError):
            mapping[number]
    with pytest.raises(KeyError):
        del state[number]


def test_string_enums_are_keys() -> None:
    """A StrEnum member names the same key as its plain string, and the plain string is what is stored."""
    state = State(values())
    state[Key.NAME] = "Ada"
    assert state["user:name"] == state[Key.NAME] == "Ada"
    assert [type(key) for key in state.pending()] == [str]


# --- layers -----------------------------------------------------------------------------------------------------------


def test_a_layer_sees_what_is_below_and_hides_what_it_wrote() -> None:
    """A tool reads its agent's pending writes; the agent does not read the tool's until they are merged."""
    agent, tool = layered(committed=1)
    agent["agent"] = 2
    tool["tool"] = 3
    assert dict(tool) == {"committed": 1, "agent": 2, "tool": 3}
    assert dict(agent) == {"committed": 1, "agent": 2}
    agent.merge(tool.pending())
    assert dict(agent) == {"committed": 1, "agent": 2, "tool": 3}


def test_siblings_do_not_see_each_other() -> None:
    """Two tools of one turn start from one snapshot; merging in call order, the later one wins."""
    agent, first = layered(n=0)
    second = agent.layer()
    second["n"] = 2
    first["n"] = 1
    assert (first["n"], second["n"], agent["n"]) == (1, 2, 0)
    agent.merge(first.pending())
    agent.merge(second.pending())
    assert agent["n"] == 2


def test_a_layer_that_does_not_fit_is_not_merged_at_all() -> None:
    """If one of its operations meets another kind of operation, nothing of a layer is taken over."""
    agent, tool = layered()
    agent.add("k")
    other = State(values())
    other["before"] = 1
    other.extend("k", [1])
    with pytest.raises(InvalidValueError, match="expects the same operation as before"):
        agent.merge(other.pending())
    assert agent.pending() == {"k": Add(1)}
    assert dict(tool) == {"k": 1}


def test_committed_values_show_through_until_they_are_overwritten() -> None:
    """What is committed meanwhile is seen at once, except under a pending write."""
    committed = values(a=1, b=1)
    state = State(committed)
    state["a"] = 5
    committed.apply({"a": 7, "b": 7, "c": 7})
    assert dict(state) == {"a": 5, "b": 7, "c": 7}


def test_deleting_hides_a_key_at_every_level() -> None:
    """`del` hides the key from the writer and what is above; None is a value; a missing key raises KeyError."""
    agent, tool = layered(a=1, b=None)
    del tool["a"]
    assert "a" not in tool
    assert tool.get("a", "gone") == "gone"
    assert list(tool) == ["b"]
    assert len(tool) == 1
    assert agent["a"] == 1
    assert tool["b"] is None
    assert "b" in tool
    for missing in ("a", "never"):
        with pytest.raises(KeyError):
            tool[missing]
        with pytest.raises(KeyError):
            del tool[missing]
    tool["a"] = 2
    assert tool["a"] == 2
    del tool["a"]
    assert tool.pending() == {"a": REMOVED}


def test_state_is_a_mutable_mapping() -> None:
    """pop, setdefault, update, popitem and clear do to a state what they do to a dict."""
    state = State(values(a=1, b=2))
    assert state.pop("a") == 1
    assert state.pop("a", "none") == "none"
    assert state.setdefault("c", [1]) == [1]
    state.update({"d": 4}, e=5)
    assert state == {"b": 2, "c": [1], "d": 4, "e": 5}
    assert state.to_dict() == {"b": 2, "c": [1], "d": 4, "e": 5}
    assert repr(state) == "{'b': 2, 'c': [1], 'd': 4, 'e': 5}"
    state.popitem()
    state.clear()
    assert dict(state) == {}
    assert not state
    assert set(state.pending()) >= {"a", "b"}


def test_values_are_checked_and_frozen_when_they_are_written() -> None:
    """A value that cannot be stored is refused at the write, with its path, and nothing is pending."""
    state = State(values())
    for bad in ({"when": object()}, {1, 2}, float("nan"), "\ud800", b""):
        with pytest.raises(InvalidValueError, match=r"^state\['k'\]"):
            state["k"] = bad
    with pytest.raises(InvalidValueError, match=r"^state\['k'\]\[1\]"):
        state.extend("k", [1, {2}])
    with pytest.raises(InvalidValueError, match=r"^state\['k'\]"):
        state.add("k", float("inf"))
    assert state.pending() == {}
    given = [1, {"a": 2}]
    state["k"] = given
    given.append(3)
    assert state["k"] == [1, {"a": 2}]
    assert type(state["k"]) is FrozenList
    assert type(state["k"][1]) is FrozenDict


def test_changing_a_value_in_place_raises_and_augmented_assignment_works() -> None:
    """`state[k].append` raises and advises `extend`; `state[k] += [x]` and `state[k] |= {...}` are writes."""
    state = State(values(cart=["pen"], profile={"age": 3}))
    with pytest.raises(TypeError, match=r'write `state\.extend\("key", \[item\]\)`'):
        state["cart"].append("ink")
    with pytest.raises(TypeError, match=r'write `state\.extend\("key", \[item\]\)`'):
        state.setdefault("list", []).append("ink")
    state.withdraw("list")
    with pytest.raises(TypeError, match="make a copy with `dict"):
        state["profile"]["age"] = 4
    state["cart"] += ["ink"]
    state["profile"] |= {"age": 4}
    assert state.pending() == {"cart": ["pen", "ink"], "profile": {"age": 4}}


def test_a_value_that_would_be_too_deep_in_an_event_is_refused_at_the_write() -> None:
    """In an event a value stands one level down, and items of `extend` two; what is accepted can be emitted."""
    deep: Any = 0
    for _ in range(DEPTH_MAX - 2):
        deep = [deep]
    state = State(values())
    state["set"] = [deep]
    state.extend("extend", deep)
    writes: list[Callable[[], object]] = [lambda: state.__setitem__("k", [[deep]]), lambda: state.extend("k", [deep])]
    for write in writes:
        with pytest.raises(InvalidValueError, match=r"^state\['k'\].*nested deeper than 100"):
            write()
    actions = with_writes(EventActions(), state.pending())
    assert dict(State(fold(values(), [Event(actions=actions)]))) == {"set": [deep], "extend": deep}


def test_carried_writes_are_forgotten_unless_they_were_overwritten() -> None:
    """After an event has carried the pending writes, only what was written since is pending."""
    state = State(values())
    state["a"] = 1
    state["b"] = [1]
    carried = state.pending()
    state["b"] = [2]
    state.settle(carried)
    assert state.pending() == {"b": [2]}


def test_an_event_takes_what_is_pending_below_on_its_keys() -> None:
    """A tool's event carries its agent's older writes to the same keys underneath; other keys of the agent wait."""
    agent, tool = layered()
    agent["n"] = 5
    agent["other"] = 1
    tool.add("n", 1)
    flight = tool.take({"x": "own", "n": Add(1)})
    assert flight.writes == {"n": 7, "x": "own"}
    assert (tool["n"], agent["n"], agent["other"]) == (6, 5, 1)
    flight.rollback()
    assert (tool.pending(), agent.pending()) == ({"n": Add(1)}, {"n": 5, "other": 1})
    tool.take({}).commit()
    assert (tool.pending(), agent.pending()) == ({}, {"other": 1})


def test_what_cannot_be_carried_together_is_not_taken() -> None:
    """If the event's own operation does not fit a pending one, taking raises and everything stays pending."""
    state = State(values())
    state.add("n")
    with pytest.raises(InvalidValueError, match="expects the same operation as before"):
        state.take({"n": Extend(freeze([1]))})
    assert state.pending() == {"n": Add(1)}


def test_after_the_end_every_write_is_refused() -> None:
    """A closed state can be read; setting, deleting, adding and extending raise InvocationEndedError."""
    state = State(values(a=1, items=[]))
    state["b"] = 2
    state.close("the invocation has ended")
    writes: list[Callable[[], object]] = [
        lambda: state.__setitem__("a", 2),
        lambda: state.__delitem__("a"),
        lambda: state.add("a"),
        lambda: state.extend("items", [1]),
        lambda: state.update(a=3),
        lambda: state.pop("a"),
    ]
    for write in writes:
        with pytest.raises(InvocationEndedError, match="the invocation has ended"):
            write()
    assert dict(state) == {"a": 1, "items": [], "b": 2}


# --- operations -------------------------------------------------------------------------------------------------------


def test_operations_apply_to_whatever_is_there_when_the_event_is_stored() -> None:
    """Adds and extends of concurrent writers all count, also on a key that does not exist yet."""
    committed = values()
    one, two = State(committed), State(committed)
    for state in (one, two):
        state.add("n", 2)
        state.add("n")
        state.extend("items", ["x"])
        assert (state["n"], state["items"]) == (3, ["x"])
    for state in (one, two):
        fold(committed, [Event(actions=with_writes(EventActions(), state.pending()))])
    assert committed.session == {"n": 6, "items": ["x", "x"]}


def test_operations_through_layers_are_applied_from_the_bottom_up() -> None:
    """A tool's operation sees its agent's, and both see what is committed."""
    agent, tool = layered(n=1, items=[1])
    agent.add("n", 10)
    tool.add("n", 100)
    agent.extend("items", [2])
    tool.extend("items", (3,))
    assert (tool["n"], tool["items"]) == (111, [1, 2, 3])
    assert (agent["n"], agent["items"]) == (11, [1, 2])
    agent.merge(tool.pending())
    assert agent.pending() == {"n": Add(110), "items": Extend(freeze([2, 3]))}


@pytest.mark.parametrize(
    ("before", "after", "result"),
    [
        (lambda s: s.__setitem__("k", 5), lambda s: s.add("k"), 6),
        (lambda s: s.__setitem__("k", [1]), lambda s: s.extend("k", [2]), FrozenList([1, 2])),
        (lambda s: s.__delitem__("k"), lambda s: s.add("k"), 1),
        (lambda s: s.add("k"), lambda s: s.__setitem__("k", "x"), "x"),
        (lambda s: s.add("k"), lambda s: s.__delitem__("k"), REMOVED),
        (lambda s: s.add("k"), lambda s: s.add("k"), Add(2)),
    ],
)
def test_two_writes_to_one_key_become_one(
    before: Callable[[State], None], after: Callable[[State], None], result: object
) -> None:
    """A layer keeps one write per key: what doing the first and then the second comes to."""
    in_one = State(values(k=0 if result != [1, 2] else []))
    before(in_one)
    after(in_one)
    assert in_one.pending() == {"k": result}
    lower = State(values(k=0 if result != [1, 2] else []))
    before(lower)
    upper = lower.layer()
    after(upper)
    assert upper.get("k", MISSING) == in_one.get("k", MISSING)
    lower.merge(upper.pending())
    assert lower.pending() == {"k": result}


@pytest.mark.parametrize("present", ["text", None, True, [1], {"a": 1}])
def test_add_refuses_what_is_no_number(present: object) -> None:
    """Adding to something else than a number is refused at once, and says what is there."""
    state = State(values(k=present))
    with pytest.raises(InvalidValueError, match=r"state\['k'\]: `add` expects a number, found"):
        state.add("k", 1)
    assert state.pending() == {}


@pytest.mark.parametrize("present", ["text", None, 5, {"a": 1}])
def test_extend_refuses_what_is_no_list(present: object) -> None:
    """Extending something else than a list is refused at once, and says what is there."""
    state = State(values(k=present))
    with pytest.raises(InvalidValueError, match=r"state\['k'\]: `extend` expects a list, found"):
        state.extend("k", [1])
    assert state.pending() == {}


@pytest.mark.parametrize("amount", ["1", None, True, [1]])
def test_an_amount_is_a_number(amount: Any) -> None:
    """`add` takes an int or a float."""
    with pytest.raises(InvalidValueError, match="`add` expects a number"):
        State(values()).add("k", amount)


@pytest.mark.parametrize("items", ["ab", {"a": 1}, None, {1}])
def test_items_are_a_list(items: Any) -> None:
    """`extend` takes a list or a tuple, not a string."""
    with pytest.raises(InvalidValueError, match="`extend` expects a list of items"):
        State(values()).extend("k", items)


@pytest.mark.parametrize(("present", "amount"), [(10**400, 0.5), (1e308, 1e308), (10**3999 * 9, 10**3999 * 9)])
def test_a_sum_that_cannot_be_stored_is_refused_as_such(present: float, amount: float) -> None:
    """A sum beyond the floats, or of too many digits, raises InvalidValueError, at the write and in the fold."""
    state = State(values(k=present))
    with pytest.raises(InvalidValueError, match=r"^state\['k'\]"):
        state.add("k", amount)
    with pytest.raises(InvalidValueError, match=r"^state\['k'\]"):
        apply_event(values(k=present), Event(actions=EventActions(state_ops={"k": {"add": amount}})))
    fresh = State(values())
    fresh.add("k", present)
    with pytest.raises(InvalidValueError, match=r"^state\['k'\]"):
        fresh.add("k", amount)
    assert fresh.pending() == {"k": Add(present)}


# --- events to writes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        5,
        None,
        {},
        {"add": "x"},
        {"add": True},
        {"add": 1, "extend": []},
        {"extend": "ab"},
        {"extend": 1},
        {"sub": 1},
        [],
    ],
)
def test_a_malformed_operation_is_refused_with_the_two_forms(operation: object) -> None:
    """An operation is `{"add": number}` or `{"extend": list}`; the message says so, with the key."""
    actions = EventActions(state_ops={"k": operation})
    with pytest.raises(
        InvalidValueError, match=r"state_ops\['k'\]: expected \{\"add\": number\} or \{\"extend\": list\}"
    ):
        writes_of(actions)


@pytest.mark.parametrize(
    "actions",
    [
        EventActions(state_delta={"k": 1}, state_removed=["k"]),
        EventActions(state_delta={"k": 1}, state_ops={"k": {"add": 1}}),
        EventActions(state_removed=["k"], state_ops={"k": {"add": 1}}),
    ],
)
def test_a_key_stands_in_one_of_the_three_fields(actions: EventActions) -> None:
    """A key that is set and removed, or set and operated on, by one event is refused."""
    with pytest.raises(InvalidValueError, match=r"state\['k'\]: the key stands in two of"):
        writes_of(actions)


def test_writes_and_actions_say_the_same() -> None:
    """`with_writes` and `writes_of` are each other's inverse, and leave the other actions alone."""
    writes = {"a": None, "b": REMOVED, "c": Add(2.5), "d": Extend(freeze([1])), "user:e": freeze({"x": []})}
    actions = with_writes(EventActions(escalate=True, state_delta={"old": 1}), writes)
    assert writes_of(actions) == writes
    assert actions.escalate is True
    assert with_writes(actions, {}) == EventActions(escalate=True)


def test_apply_event_is_pure_and_says_what_changes() -> None:
    """It returns new values, MISSING for what is deleted, and changes nothing itself."""
    before = values(a=1, b=2, n=3)
    actions = EventActions(
        state_delta={"a": [1], "user:x": 1}, state_removed=["b", "c"], state_ops={"n": {"add": 1}, "l": {"extend": [1]}}
    )
    changes = apply_event(before, Event(actions=actions))
    assert changes == {"a": [1], "user:x": 1, "b": MISSING, "c": MISSING, "n": 4, "l": [1]}
    assert before.session == {"a": 1, "b": 2, "n": 3}
    assert apply_event(before, Event(actions=actions, partial=True)) == {}
    before.apply(changes)
    assert before.session == {"a": [1], "n": 4, "l": [1]}
    assert before.user == {"user:x": 1}


# --- read-only state --------------------------------------------------------------------------------------------------

CHANGES: list[Callable[[Any], object]] = [
    lambda state: state.__setitem__("name", "Ada"),
    lambda state: state.__delitem__("name"),
    lambda state: state.update(name="Ada"),
    lambda state: state.setdefault("name", "Ada"),
    lambda state: state.pop("name"),
    lambda state: state.popitem(),
    lambda state: state.clear(),
    lambda state: state.__ior__({"name": "Ada"}),
]
READ_ONLY: list[Callable[[Values], Mapping[str, Any]]] = [ReadOnlyState, CopiedState]


@pytest.mark.parametrize("kind", READ_ONLY)
@pytest.mark.parametrize("change", CHANGES)
def test_changing_a_services_state_names_the_right_ways(
    kind: Callable[[Values], Mapping[str, Any]], change: Callable[[Any], object]
) -> None:
    """The message shows append_event with an Event, and ctx.state; the state stays as it was."""
    state = kind(values(name="Bob"))
    with pytest.raises(
        TypeError, match=r"service\.append_event\(session, Event\(author=.*or, in an agent.*`ctx\.state`"
    ):
        change(state)
    assert dict(state) == {"name": "Bob"}


@pytest.mark.parametrize("kind", READ_ONLY)
def test_the_message_shows_the_key_that_was_written(kind: Callable[[Values], Any]) -> None:
    """It can be copied: the key is in it, for setting and for deleting."""
    state = kind(values())
    with pytest.raises(TypeError, match=r"Event\(author=\"\.\.\.\", state=\{'cart': \.\.\.\}\)"):
        state["cart"] = 1
    with pytest.raises(TypeError, match=r"actions=EventActions\(state_removed=\['cart'\]\)"):
        del state["cart"]


@pytest.mark.parametrize("kind", READ_ONLY)
def test_a_read_only_state_reads_like_a_dict(kind: Callable[[Values], Mapping[str, Any]]) -> None:
    """All scopes together: length, iteration, `in`, get, items and == work."""
    state = kind(Values({"a": 1}, {"user:b": None}, {"app:c": [1]}))
    assert state == {"a": 1, "user:b": None, "app:c": [1]}
    assert list(state) == ["a", "user:b", "app:c"]
    assert len(state) == 3
    assert "user:b" in state
    assert state.get("nothing", 0) == 0
    assert repr(state) == "{'a': 1, 'user:b': None, 'app:c': [1]}"
    with pytest.raises(KeyError, match="nothing"):
        state["nothing"]


BAD_KEYS: dict[str, Callable[[State, Any], object]] = {
    "set": lambda state, key: state.update({key: 1}),
    "setdefault": lambda state, key: state.setdefault(key, 1),
    "add": lambda state, key: state.add(key),
    "extend": lambda state, key: state.extend(key, [1]),
}


@pytest.mark.parametrize("how", BAD_KEYS)
@pytest.mark.parametrize("key", [5, None, "user:", "app:", "temp:", "\ud800"])
def test_a_key_that_no_state_can_have_is_told_by_where_it_was_to_stand(how: str, key: Any) -> None:
    """The path of the error is the state, whatever was to be done; nothing is pending then."""
    state = State(values(a=1))
    with pytest.raises(InvalidValueError) as caught:
        BAD_KEYS[how](state, key)
    assert caught.value.path == "state"
    assert (not state.has_delta(), dict(state.pending()), key in state) == (True, {}, False)
