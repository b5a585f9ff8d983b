"""
Values and agents never change: whoever tries is told what to write instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import attr
import attrs
import pytest

from minirun import (
    App,
    BaseAgent,
    Content,
    Event,
    EventActions,
    GetSessionConfig,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    Part,
    RunConfig,
)
from minirun._record import Record
from minirun._values import Value
from minirun.agents import ReadonlyContext, SequentialAgent
from minirun.errors import InvalidValueError
from minirun.models import LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.tools import exit_loop
from minirun.types import GenerateContentConfig

from .project.test_public_lists import LISTS

T = TypeVar("T")


@pytest.mark.parametrize(
    ("value", "name"), [(Part(text="a"), "text"), (Content(parts=[]), "parts"), (Event(author="a"), "author")]
)
def test_a_value_says_how_another_one_is_made(value: Any, name: str) -> None:
    """
    The message names the class, the field, and `attrs.evolve`; nothing has changed.
    """
    before = repr(value)
    with pytest.raises(attrs.exceptions.FrozenInstanceError, match=rf"\.{name} cannot change: .*\(value, {name}="):
        setattr(value, name, None)
    with pytest.raises(attrs.exceptions.FrozenInstanceError, match="cannot change"):
        delattr(value, name)
    assert repr(value) == before


def all_below(cls: type) -> Iterator[type]:
    below: type
    for below in cls.__subclasses__():
        yield below
        yield from all_below(below)


def frozen_classes() -> list[type]:
    """Every class of values and records that the public lists lead to."""
    for package in LISTS:
        module = importlib.import_module(package)
        for name in module.__all__:
            getattr(module, name, None)  # the keyring's service needs an extra
    found = {cls for base in (Value, Record) for cls in all_below(base) if cls.__module__.startswith("minirun.")}
    own = (cls for cls in found if "__attrs_attrs__" in vars(cls))  # what is half made stands below them, too
    return sorted(own, key=lambda cls: cls.__qualname__)


def test_whatever_is_frozen_says_so_with_advice() -> None:
    """
    Each class of values and records refuses a change of any field, and a new attribute, with a sentence of ours.
    """
    classes = frozen_classes()
    assert {RunConfig, App, GetSessionConfig, Part, Event} <= {*classes}
    for cls in classes:
        instance: Any = object.__new__(cls)
        names = [field.name for field in attrs.fields(cls) if field.name[0] != "_"]
        for name in names:
            with pytest.raises(attrs.exceptions.FrozenInstanceError, match=rf"{name} cannot change: make another one"):
                setattr(instance, name, None)
        advice = r"evolve\(value" if names else "it has none"
        with pytest.raises(attrs.exceptions.FrozenInstanceError, match=rf"has no field 'nothing'.*{advice}"):
            instance.nothing = None


MODEL = ScriptedLlm(["hello"])


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (RunConfig(), {"max_llm_calls": 3}),
        (App("app", LlmAgent(name="a", model=MODEL)), {"name": "other"}),
        (GetSessionConfig(after_seq=1), {"num_recent_events": 2}),
        (LlmResponse(content=Content(parts=[])), {"partial": True}),
        (Part(text="a"), {"text": "b"}),
        (Event(author="a"), {"branch": "b"}),
    ],
)
def test_the_advice_works(value: Any, change: dict[str, Any]) -> None:
    """
    `attrs.evolve` makes another one with that field changed, and the others as they were.
    """
    other = attrs.evolve(value, **change)
    for field in attrs.fields(type(value)):
        if field.init:
            assert getattr(other, field.name) == change.get(field.name, getattr(value, field.name))


@pytest.mark.parametrize("base", [Part, GetSessionConfig, LlmResponse, Content])
@pytest.mark.parametrize("decorate", [attrs.define, attrs.frozen, attrs.define(slots=False), attr.s(auto_attribs=True)])
def test_what_attrs_derives_from_a_frozen_class_is_made_and_frozen(base: Any, decorate: Any) -> None:
    """
    As with attrs' own frozen classes: a subclass has its further fields, however it is made, and cannot change either.
    """

    class Further(base):  # type: ignore[misc]  # it is one of several
        extra: int = attrs.field(default=0, kw_only=True)

    cls = decorate(Further)
    given: dict[str, Any] = {"text": "a"} if base is Part else {}
    instance = cls(**given, extra=3)
    assert instance.extra == 3
    assert attrs.evolve(instance, extra=4).extra == 4
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        instance.extra = 5
    assert instance.extra == 3


CHANGES: list[Callable[[Any], object]] = [
    lambda items: items.append(1),
    lambda items: items.extend([1]),
    lambda items: items.insert(0, 1),
    lambda items: items.remove(1),
    lambda items: items.pop(),
    lambda items: items.clear(),
    lambda items: items.sort(),
    lambda items: items.reverse(),
    lambda items: items.__setitem__(0, 1),
    lambda items: items.__delitem__(0),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "items",
    [
        Content(parts=[Part(text="a")]).parts,
        Content().parts,
        EventActions(state_removed=["a"]).state_removed,
        GenerateContentConfig(stop_sequences=["a"]).stop_sequences,
        GenerateContentConfig().tools,
        SequentialAgent(name="s", sub_agents=[LlmAgent(name="a")]).sub_agents,
        LlmAgent(name="a", tools=[exit_loop]).tools,
        LlmAgent(name="a", before_model_callback=lambda **named: None).before_model_callback,
        App("app", LlmAgent(name="a", model=MODEL)).plugins,
    ],
)
def test_a_list_of_a_value_says_how_another_one_is_made(items: Any, change: Callable[[Any], object]) -> None:
    """
    What would change it in place raises, with `attrs.evolve` and `clone`; the items are what they were.
    """
    before = list(items)
    with pytest.raises(TypeError, match=r"cannot change; make another value: `attrs\.evolve\(.*`agent\.clone\("):
        change(items)
    assert list(items) == before


def test_a_list_is_added_to_a_list_of_a_value() -> None:
    """
    `content.parts + [part]` is what `parts=` takes; `+=` on the field says that the field cannot change.
    """
    content, more = Content(parts=[Part(text="a")]), Part(text="b")
    assert Content(parts=content.parts + [more]).text == "ab"  # type: ignore[operator]  # noqa: RUF005 # that is the point
    assert content.parts == (Part(text="a"),)
    with pytest.raises(attrs.exceptions.FrozenInstanceError, match=r"Content\.parts cannot change"):
        content.parts += [more]  # type: ignore[operator,misc]  # that is the point
    with pytest.raises(TypeError, match=r"concatenate|unsupported"):
        content.parts + 1  # type: ignore[operator]  # that is the point


async def test_wherever_parts_come_from_their_list_says_how_another_one_is_made() -> None:
    """
    Events of a run, those read from a file, and what hooks are shown of a request all have such lists.
    """
    seen: list[Any] = []

    def before(callback_context: Any, llm_request: Any) -> None:
        seen.extend(content.parts for content in llm_request.contents)

    def look() -> str:
        return "fine"

    model = ScriptedLlm([[Part(text="so "), call("look")], "done"])
    child = LlmAgent(name="a", model=model, tools=[look], before_model_callback=before)
    other = LlmAgent(name="b", model=ScriptedLlm(["again"]), before_model_callback=before)
    runner = InMemoryRunner(SequentialAgent(name="s", sub_agents=[child, other]), app_name="app")
    events = await runner.run_debug("hi", quiet=True)
    seen += [event.content.parts for event in events if event.content]
    seen += [event.content.parts for event in map(Event.from_json, map(Event.to_json, events)) if event.content]
    assert len(seen) > 12
    for parts in seen:
        with pytest.raises(TypeError, match="make another value"):
            parts.append(Part(text="b"))


class Counting(BaseAgent):
    """Tries to count in a field."""

    count: int = 0

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        """Count."""
        self.count += 1  # type: ignore[misc]  # that is the point


async def test_an_agent_says_where_what_changes_is_kept() -> None:
    """
    A field that is assigned to, in a run or outside, names `clone` and the state.
    """
    agent = Counting(name="a")
    with pytest.raises(attrs.exceptions.FrozenInstanceError, match=r"clone\(.*`ctx\.state` can change"):
        agent.sub_agents = [Counting(name="b")]  # type: ignore[misc]  # that is the point
    runner = InMemoryRunner(agent, app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    with pytest.raises(attrs.exceptions.FrozenInstanceError, match=r"Counting\.count cannot change"):
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()


def test_a_system_instruction_may_be_a_content() -> None:
    """
    Its texts are joined, as those of a static instruction are; other parts are refused.
    """
    texts = Content(parts=[Part(text="Be kind."), Part(text="Be short.")])
    config = GenerateContentConfig(system_instruction=texts)  # type: ignore[arg-type]  # typed as what it holds
    assert config.system_instruction == "Be kind.\n\nBe short."
    with pytest.raises(InvalidValueError, match="system_instruction"):
        GenerateContentConfig(system_instruction=5)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidValueError, match="system_instruction"):
        GenerateContentConfig(system_instruction=Content(parts=[]))  # type: ignore[arg-type]


async def test_an_instruction_function_sees_the_session_and_the_tree() -> None:
    """
    A read-only context has the session with its events and state, the agent above and the one at the top.
    """
    seen: list[Any] = []

    def look(ctx: ReadonlyContext) -> str:
        seen.append((ctx.session.id, [event.text for event in ctx.session.events], dict(ctx.session.state)))
        parent = ctx.parent_agent
        seen.append((parent and parent.name, ctx.root_agent.name))
        return "Answer."

    agent = LlmAgent(name="a", model=ScriptedLlm(["hello"]), instruction=look)
    runner = InMemoryRunner(SequentialAgent(name="top", sub_agents=[agent]), app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s", state={"k": 1})
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        await run.wait()
    assert seen == [("s", ["hi"], {"k": 1}), ("top", "top")]


def test_subclasses_may_have_other_bases() -> None:
    """A generic class, and a mixin that registers its subclasses, do their part, too."""
    registered: list[tuple[type, str]] = []

    class Registers:
        def __init_subclass__(cls, label: str = "", **options: Any) -> None:
            super().__init_subclass__(**options)
            registered.append((cls, label))

    class Special(Event, Generic[T], Registers, label="x"):
        pass

    assert Special[int] is not None
    assert registered == [(Special, "x")]


def test_a_record_without_fields_says_so() -> None:
    """A frozen class without public fields refuses a change with a sentence, too."""

    @attrs.frozen(eq=False, repr=False)
    class Empty(Record):
        pass

    with pytest.raises(AttributeError, match="it has none"):
        Empty().x = 1  # type: ignore[attr-defined]  # the point of the test

