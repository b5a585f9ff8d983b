"""What goes to a model beside the contents, and a request that hooks may change before it is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import attrs
import pytest

from minirun._window import Extended, Window
from minirun.errors import InvalidValueError
from minirun.models import GenerateContentConfigDraft, LlmRequest, LlmRequestDraft, RequestChecker
from minirun.types import (
    Content,
    FunctionCallingConfig,
    FunctionDeclaration,
    GenerateContentConfig,
    HttpOptions,
    Part,
    SafetySetting,
    ThinkingConfig,
    ToolConfig,
)


def said(text: str, role: str = "user") -> Content:
    return Content(role=role, parts=[Part(text=text)])


ADD = FunctionDeclaration(name="add")
MUL = FunctionDeclaration(name="mul")
FULL: dict[str, Any] = {
    "system_instruction": "be kind",
    "tools": (ADD,),
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "max_output_tokens": 100,
    "stop_sequences": ("END",),
    "presence_penalty": -0.5,
    "frequency_penalty": 1.5,
    "seed": 7,
    "response_mime_type": "application/json",
    "response_schema": {"type": "object"},
    "tool_config": ToolConfig(function_calling_config=FunctionCallingConfig(mode="NONE")),
    "thinking_config": ThinkingConfig(thinking_budget=0),
    "safety_settings": (SafetySetting(category="a", threshold="b"),),
    "http_options": HttpOptions(timeout=5),
    "labels": {"a": "b"},
    "cached_content": "c",
    "extra_body": {"d": 1},
}


# --- the config -------------------------------------------------------------------------------------------------------


def test_a_config_holds_what_it_was_given() -> None:
    """All fields are kept, nothing is chosen for the provider, and equality is by content."""
    config = GenerateContentConfig(**FULL)
    assert {name: getattr(config, name) for name in FULL} == FULL
    assert [field.name for field in attrs.fields(GenerateContentConfig)] == list(FULL)
    assert config == GenerateContentConfig(**FULL) != attrs.evolve(config, seed=8)
    assert repr(GenerateContentConfig()) == "GenerateContentConfig()"
    assert {getattr(GenerateContentConfig(), name) for name in FULL} == {None, ()}


def test_a_config_cannot_change() -> None:
    """Neither its fields nor the lists and dicts that it was given."""
    stops, schema = ["END"], {"enum": ["a"]}
    config = GenerateContentConfig(stop_sequences=stops, response_schema=schema)
    stops.append("x")
    schema["enum"].append("b")
    assert (config.stop_sequences, config.response_schema) == (("END",), {"enum": ["a"]})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config.seed = 3  # type: ignore[misc]  # the point of the test


def test_numbers_and_texts_become_plain() -> None:
    """A whole temperature is a float, and a StrEnum the string that it holds."""

    class Stop(StrEnum):
        END = "END"

    config = GenerateContentConfig(temperature=1, stop_sequences=[Stop.END])
    assert type(config.temperature) is float
    assert config.stop_sequences is not None
    assert type(config.stop_sequences[0]) is str


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("system_instruction", 3, "expected a string, found 3"),
        ("tools", ADD, "expected a list of FunctionDeclaration"),
        ("tools", "add", "expected a list of FunctionDeclaration"),
        ("tools[1]", [ADD, print], "expected a FunctionDeclaration"),
        ("temperature", math.nan, "expected a finite number of at least 0, found nan"),
        ("temperature", -0.1, "expected a finite number of at least 0"),
        ("temperature", True, "expected a finite number"),
        ("temperature", "0.5", "expected a finite number"),
        ("temperature", 10**400, "expected a finite number"),
        ("top_p", 1.1, "expected a finite number of at least 0 and at most 1, found 1.1"),
        ("top_k", 1.0, f"expected an integer of at most {2**63 - 1}, found 1.0"),
        ("max_output_tokens", 0, f"expected an integer of at least 1 and at most {2**63 - 1}, found 0"),
        ("stop_sequences", "END", "expected a list of strings, found 'END'"),
        ("stop_sequences", {"END"}, "expected a list of strings"),
        ("stop_sequences[1]", ["a", ""], "expected text that is not empty, found ''"),
        ("stop_sequences[0]", ["\ud800"], "expected text that UTF-8 can write"),
        ("presence_penalty", math.inf, "expected a finite number, found inf"),
        ("frequency_penalty", [], "expected a finite number"),
        ("seed", 2**63, f"expected an integer of at least {1 - 2**63} and at most {2**63 - 1}, found {2**63}"),
        ("response_mime_type", b"x", "expected a string"),
        ("response_schema", ["object"], "expected a dict, found list"),
        ("response_schema['a']", {"a": math.nan}, "expected a finite number"),
    ],
)
def test_what_no_provider_takes_is_refused_with_its_path(field: str, value: object, expected: str) -> None:
    """The message begins with the path, and says what was expected and found."""
    name = field.partition("[")[0]
    with pytest.raises(InvalidValueError) as caught:
        GenerateContentConfig(**{name: value})  # type: ignore[arg-type]  # the point of the test
    assert caught.value.path == f"GenerateContentConfig.{field}"
    assert expected in str(caught.value)


# --- the draft --------------------------------------------------------------------------------------------------------


@pytest.fixture
def request_() -> LlmRequest:
    """A request over a shared history."""
    history = [said("hi"), said("hello", "model"), said("go")]
    return LlmRequest(contents=Window(history), config=GenerateContentConfig(**FULL), model="m")


class Counted(Window[Content]):
    """A history that counts how often it is read through."""

    __slots__ = ("read",)

    def __init__(self, items: list[Content]) -> None:
        super().__init__(items)
        self.read = 0

    def __iter__(self) -> Any:
        self.read += 1
        return super().__iter__()


def test_a_draft_that_nobody_changes_is_the_request(request_: LlmRequest) -> None:
    """It comes back equal, over the very same contents."""
    draft = LlmRequestDraft.of(request_)
    assert draft.contents == request_.contents
    assert len(draft.contents) == 3
    assert draft.contents[-1] == said("go")
    assert draft.contents[1:] == [said("hello", "model"), said("go")]
    assert said("hi") in draft.contents
    assert draft.frozen() == request_
    assert draft.frozen().contents is request_.contents


def test_looking_at_a_draft_does_not_read_the_history() -> None:
    """Making a draft, its length, its last content and freezing it cost nothing however long the history is."""
    history = Counted([said("hi")] * 1_000)
    draft = LlmRequestDraft.of(LlmRequest(contents=history))
    assert len(draft.contents) == 1_000
    assert draft.contents[-1] == said("hi")
    draft.append_instructions(["x"])
    assert draft.frozen().contents is history
    assert history.read == 0
    draft.contents.append(said("more"))
    draft.contents.append(said("and more"))
    assert history.read == 0


def test_adding_at_the_end_shares_the_history() -> None:
    """What is added near the end is the draft's own; the history before it is neither read nor copied."""
    history = [said(str(number)) for number in range(1_000)]
    draft = LlmRequestDraft.of(LlmRequest(contents=Window(history)))
    draft.contents.append(said("x"))
    draft.contents.insert(999, said("y"))
    draft.contents.insert(-1, said("z"))
    contents = draft.frozen().contents
    assert isinstance(contents, Extended)
    assert contents.shared.origin is history
    assert [content.text for content in contents[997:]] == ["997", "998", "y", "999", "z", "x"]
    assert len(history) == 1_000
    draft.contents.append("x")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidValueError, match=r"^LlmRequest\.contents\[1003\]: expected a Content, found"):
        draft.frozen()


def test_checking_stays_incremental_where_nothing_was_changed() -> None:
    """A checker looks only at what is new in the next request, drafts in between or not."""
    history = [said("a")]
    checker = RequestChecker()
    assert checker.check(LlmRequestDraft.of(LlmRequest(contents=Window(history))).frozen()) is None
    history += [said("b", "model"), said("c")]
    looked_at: list[int] = []

    class Watched(Window[Content]):
        def __getitem__(self, index: Any) -> Any:
            looked_at.append(index)
            return super().__getitem__(index)

    assert checker.check(LlmRequestDraft.of(LlmRequest(contents=Watched(history))).frozen()) is None
    assert looked_at == [1, 2, -1]


CHANGES: list[tuple[Callable[[LlmRequestDraft], object], list[str]]] = [
    (lambda draft: draft.contents.append(said("x")), ["hi", "hello", "go", "x"]),
    (lambda draft: draft.contents.insert(0, said("x")), ["x", "hi", "hello", "go"]),
    (lambda draft: draft.contents.extend([said("x"), said("y")]), ["hi", "hello", "go", "x", "y"]),
    (lambda draft: draft.contents.pop(0), ["hello", "go"]),
    (lambda draft: draft.contents.remove(said("go")), ["hi", "hello"]),
    (lambda draft: draft.contents.reverse(), ["go", "hello", "hi"]),
    (lambda draft: draft.contents.__setitem__(1, said("x")), ["hi", "x", "go"]),
    (lambda draft: draft.contents.__setitem__(slice(0, 2), [said("x")]), ["x", "go"]),
    (lambda draft: draft.contents.__delitem__(slice(0, 2)), ["go"]),
    (lambda draft: setattr(draft, "contents", draft.contents[-1:]), ["go"]),
    (lambda draft: setattr(draft, "contents", [said("x")]), ["x"]),
    (lambda draft: setattr(draft, "contents", (said("x"),)), ["x"]),
]


@pytest.mark.parametrize(("change", "texts"), CHANGES)
def test_contents_change_like_a_list(
    request_: LlmRequest, change: Callable[[LlmRequestDraft], object], texts: list[str]
) -> None:
    """The request gets what the list holds then; the shared history is what it was."""
    draft = LlmRequestDraft.of(request_)
    change(draft)
    changed = draft.frozen()
    draft.contents.append(said("too late"))
    assert [content.text for content in changed.contents] == texts
    assert [content.text for content in request_.contents] == ["hi", "hello", "go"]
    assert attrs.evolve(changed, contents=request_.contents) == request_


def test_adding_in_place_is_adding(request_: LlmRequest) -> None:
    """`+=` adds to contents, tools and stop sequences."""
    draft = LlmRequestDraft.of(request_)
    draft.contents += [said("x")]
    draft.config.tools += [MUL]
    assert draft.config.stop_sequences is not None
    draft.config.stop_sequences += ["STOP"]
    frozen = draft.frozen()
    assert [content.text for content in frozen.contents] == ["hi", "hello", "go", "x"]
    assert frozen.config.tools == (ADD, MUL)
    assert frozen.config.stop_sequences == ("END", "STOP")


def test_what_is_assigned_is_copied(request_: LlmRequest) -> None:
    """A hook's own lists stay its own: what later hooks change in the draft does not reach them."""
    mine, tools = [said("x")], [ADD]
    draft = LlmRequestDraft.of(request_)
    draft.contents = mine
    draft.config.tools = tools
    draft.contents.append(said("y"))
    draft.append_tools([MUL])
    assert (len(mine), tools, len(draft.frozen().contents)) == (1, [ADD], 2)


def test_a_drafts_config_has_the_fields_of_the_config() -> None:
    """The same names with the same defaults, and every one of them reaches the request."""
    names = [field.name for field in attrs.fields(GenerateContentConfigDraft)]
    assert names == [field.name for field in attrs.fields(GenerateContentConfig)] == list(FULL)
    assert GenerateContentConfigDraft().frozen() == GenerateContentConfig()
    draft = GenerateContentConfigDraft()
    for name, value in FULL.items():
        setattr(draft, name, value)
    assert draft.frozen() == GenerateContentConfig(**FULL)
    assert GenerateContentConfigDraft.of(GenerateContentConfig(**FULL)) == draft


def test_a_whole_config_can_be_assigned(request_: LlmRequest) -> None:
    """It becomes a draft itself, which later hooks may change."""
    draft = LlmRequestDraft.of(request_)
    draft.config = GenerateContentConfig(temperature=0)  # type: ignore[assignment]  # mypy knows no converter here
    draft.config.top_k = 3
    draft.model = "other"
    frozen = draft.frozen()
    assert frozen.config == GenerateContentConfig(temperature=0, top_k=3)
    assert frozen.model == "other"


def test_instructions_are_added_after_what_is_there() -> None:
    """Blank lines stand between them; empty texts add nothing."""
    draft = LlmRequestDraft(contents=[said("go")])
    draft.append_instructions([""])
    assert draft.config.system_instruction is None
    draft.append_instructions(["one", "", "two"])
    draft.append_instructions(("three",))
    assert draft.frozen().config.system_instruction == "one\n\ntwo\n\nthree"


def test_a_name_that_a_draft_does_not_have_cannot_be_assigned(request_: LlmRequest) -> None:
    """A misspelt field is an error where it is written, in the draft and in its config."""
    draft = LlmRequestDraft.of(request_)
    with pytest.raises(AttributeError):
        draft.content = []  # type: ignore[attr-defined]  # the point of the test
    with pytest.raises(AttributeError):
        draft.config.temprature = 0.5  # type: ignore[attr-defined]  # the point of the test


ASSIGNMENTS: list[tuple[Callable[[LlmRequestDraft], object], str]] = [
    (lambda draft: setattr(draft, "contents", "go"), "LlmRequest.contents"),
    (lambda draft: setattr(draft, "contents", iter([said("x")])), "LlmRequest.contents"),
    (lambda draft: setattr(draft, "config", {"temperature": 1}), "LlmRequest.config"),
    (lambda draft: setattr(draft, "model", 3), "LlmRequest.model"),
    (lambda draft: setattr(draft.config, "temperature", "hot"), "GenerateContentConfig.temperature"),
    (lambda draft: setattr(draft.config, "tools", [print]), "GenerateContentConfig.tools[0]"),
    (lambda draft: setattr(draft.config, "system_instruction", ["x"]), "GenerateContentConfig.system_instruction"),
    (lambda draft: draft.append_instructions("one text"), "append_instructions"),
    (lambda draft: draft.append_instructions([said("x")]), "append_instructions"),  # type: ignore[list-item]  # the point
    (lambda draft: draft.append_tools([print]), "GenerateContentConfig.tools[0]"),  # type: ignore[list-item]  # the point
]


@pytest.mark.parametrize(("assign", "path"), ASSIGNMENTS)
def test_what_is_of_the_wrong_kind_is_refused_where_it_is_assigned(
    request_: LlmRequest, assign: Callable[[LlmRequestDraft], object], path: str
) -> None:
    """The error comes in the hook that is wrong, and the draft is what it was."""
    draft = LlmRequestDraft.of(request_)
    with pytest.raises(InvalidValueError) as caught:
        assign(draft)
    assert caught.value.path == path
    assert draft.frozen() == request_


MISTAKES: list[tuple[Callable[[LlmRequestDraft], object], str, str]] = [
    (lambda draft: draft.contents.clear(), "LlmRequest.contents", "at least one content"),
    (lambda draft: draft.contents.append("x"), "LlmRequest.contents[3]", "write `Content("),  # type: ignore[arg-type]  # the point
    (lambda draft: setattr(draft, "contents", [None]), "LlmRequest.contents[0]", "expected a Content"),
    (lambda draft: draft.append_tools([MUL, ADD]), "GenerateContentConfig.tools", "two named 'add'"),
    (lambda draft: draft.config.tools.append("t"), "GenerateContentConfig.tools[1]", "`declaration`"),  # type: ignore[arg-type]  # the point
    (lambda draft: draft.config.stop_sequences.append(3), "GenerateContentConfig.stop_sequences[1]", "found 3"),  # type: ignore[union-attr,arg-type]  # the point
]


@pytest.mark.parametrize(("mistake", "path", "problem"), MISTAKES)
def test_what_cannot_be_asked_is_refused_when_the_request_is_made(
    request_: LlmRequest, mistake: Callable[[LlmRequestDraft], object], path: str, problem: str
) -> None:
    """What was put into a list is checked with the whole, and named by its path."""
    draft = LlmRequestDraft.of(request_)
    mistake(draft)
    with pytest.raises(InvalidValueError) as caught:
        draft.frozen()
    assert caught.value.path == path
    assert problem in str(caught.value)


def test_a_request_without_contents_is_refused() -> None:
    """Also where it was made without any."""
    with pytest.raises(InvalidValueError, match="at least one content"):
        LlmRequestDraft.of(LlmRequest(contents=Window([]))).frozen()
