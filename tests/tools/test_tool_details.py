"""Details of tools: what of memories and media is told, where that is cut, and what classes of tools pass on."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from minirun import Event, LlmAgent, ToolContext
from minirun.errors import InvalidValueError, InvocationEndedError
from minirun.memory import MemoryEntry
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, FunctionTool, load_artifacts
from minirun.tools._media import media_in
from minirun.tools._memory import MEMORY_CHARS_MAX, TOLD_CHARS_MAX, _cut, _time_of, load_memory
from minirun.types import Blob, Content, FileData, FunctionCall, Part

from ..helpers import run_to_end, runner_for

PNG = Blob(data=b"12345", mime_type="image/png")
NAMED = Blob(data=b"", mime_type="audio/wav", display_name="song")
ELSEWHERE = FileData(file_uri="https://files.example/a.pdf", mime_type="application/pdf", display_name="a")
UNNAMED = FileData(file_uri="https://files.example/b.pdf")


# --- media ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told", "parts"),
    [
        (PNG, {"media": ["image/png, 5 B"]}, [Part(inline_data=PNG)]),
        (NAMED, {"media": ["song, audio/wav, 0 B"]}, [Part(inline_data=NAMED)]),
        (
            ELSEWHERE,
            {"media": ["a, application/pdf, https://files.example/a.pdf"]},
            [Part(file_data=ELSEWHERE)],
        ),
        (UNNAMED, {"media": ["https://files.example/b.pdf"]}, [Part(file_data=UNNAMED)]),
        (Part(inline_data=PNG), {"media": ["image/png, 5 B"]}, [Part(inline_data=PNG)]),
        (Part(text="words"), {"text": "words"}, []),
        (Part(text=""), {}, []),
        ((PNG, "", NAMED), {"media": ["image/png, 5 B", "song, audio/wav, 0 B"]}, [PNG, NAMED]),
        (
            ["one", Part(text="two"), PNG],
            {"text": "one\ntwo", "media": ["image/png, 5 B"]},
            [Part(inline_data=PNG)],
        ),
    ],
    ids=repr,
)
def test_media_go_beside_what_is_told_of_them(value: Any, told: dict[str, Any], parts: list[Any]) -> None:
    """Texts are told as one text, media by what they are, and empty texts not at all."""
    found = media_in(value, "result")
    assert found is not None
    assert found.told == told
    assert [part.inline_data or part.file_data for part in found.parts] == [
        (each.inline_data or each.file_data) if isinstance(each, Part) else each for each in parts
    ]


@pytest.mark.parametrize("value", [None, "text", ["a", "b"], {"a": PNG}, 3, [], ()], ids=repr)
def test_what_is_no_media_is_left_to_others(value: Any) -> None:
    """A text alone, JSON, and media deeper inside are not looked at here."""
    assert media_in(value, "result") is None


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ([PNG, 3], "result[1]", "expected a text or media, found 3"),
        ((3, PNG), "result[0]", "expected a text or media, found 3"),
        (Part(function_call=FunctionCall(id="c", name="f", args={})), "result", "expected a text or media, found Part"),
        (FileData(file_uri="artifact:x"), "result", "found a reference to an artifact"),
        ([PNG, FileData(file_uri="artifact:x")], "result[1]", "found a reference to an artifact"),
        ([Part(file_data=FileData(file_uri="artifact:x"))], "result[0]", "found a reference to an artifact"),
    ],
)
def test_what_cannot_stand_among_media_is_told_with_its_place(value: Any, path: str, message: str) -> None:
    """The path names the item in a list, and the value itself where it is alone."""
    with pytest.raises(InvalidValueError, match=message) as caught:
        media_in(value, "result")
    assert caught.value.path == path


# --- memories ---------------------------------------------------------------------------------------------------------


def entry(size: int) -> MemoryEntry:
    """A memory of so many characters."""
    return MemoryEntry(content="a" * size)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ([MEMORY_CHARS_MAX], [MEMORY_CHARS_MAX]),
        ([MEMORY_CHARS_MAX] * 5, [MEMORY_CHARS_MAX] * 5),
        ([MEMORY_CHARS_MAX] * 6, [MEMORY_CHARS_MAX] * 5),
        ([MEMORY_CHARS_MAX] * 5 + [0], [MEMORY_CHARS_MAX] * 5 + [0]),
        ([MEMORY_CHARS_MAX] * 4 + [1999, 2, 1], [MEMORY_CHARS_MAX] * 4 + [1999]),
        ([], []),
    ],
)
def test_of_many_memories_as_many_are_told_as_there_is_room_for(sizes: list[int], told: list[int]) -> None:
    """Together ten thousand characters; behind one that has no room, none is told."""
    assert TOLD_CHARS_MAX == 10_000
    assert [len(text) for _, text in _cut([entry(size) for size in sizes])] == told


def test_a_long_memory_is_cut_and_says_so() -> None:
    """Two thousand characters of it are told, and how many there are more."""
    assert [text for _, text in _cut([entry(2_000)])] == ["a" * 2_000]
    assert [text for _, text in _cut([entry(2_003)])] == ["a" * 2_000 + "… (3 more characters)"]


@pytest.mark.parametrize(
    ("timestamp", "told"),
    [(None, ""), (0.0, "1970-01-01 00:00 UTC"), (1e9 + 59, "2001-09-09 01:47 UTC"), (1e18, ""), (-1e18, "")],
)
def test_the_time_of_a_memory_is_told_to_the_minute(timestamp: float | None, told: str) -> None:
    """In UTC; nothing where it is not known, or in no calendar."""
    assert _time_of(MemoryEntry(content="x", timestamp=timestamp)) == told


@pytest.mark.parametrize("args", [{}, {"query": 3}, {"query": "x", "more": 1}, {"other": "x"}])
async def test_a_search_without_a_query_is_refused(args: dict[str, Any]) -> None:
    """The model is told what the tool takes."""
    agent = LlmAgent(name="a", model=ScriptedLlm([call("load_memory", **args), "done"]), tools=[load_memory])
    events, _ = await run_to_end(runner_for(agent))
    [response] = [each.response for event in events for each in event.get_function_responses()]
    assert response["error"]["type"] == "ArgumentError"
    assert response["error"]["message"].startswith("expected a query, a text, and nothing else, found ")


# --- classes ----------------------------------------------------------------------------------------------------------


def test_a_class_of_tools_passes_its_options_on() -> None:
    """A mixin beside BaseTool is told of each subclass, with the words behind the bases."""
    told: list[tuple[str, str]] = []

    class Mixin:
        def __init_subclass__(cls, tag: str = "", **options: Any) -> None:
            super().__init_subclass__(**options)
            told.append((cls.__name__, tag))

    class Tagged(BaseTool, Mixin, tag="x"):
        pass

    assert told == [("Tagged", "x")]
    assert issubclass(Tagged, Mixin)


class Plain(BaseTool):
    """A tool of its own class."""

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Give nothing."""


def test_what_a_tool_of_an_own_class_is_by_default() -> None:
    """It is asked nothing, and limited by nothing."""
    tool = Plain(name="plain", description="")
    assert tool.is_long_running is False
    assert (tool.retries, tool.on_interrupted, tool.sequential) == (2, "report", False)
    assert (tool.timeout_s, tool.retry, tool.max_concurrency) == (None, None, None)
    assert tool.require_confirmation is False


# --- artifacts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved", "shown"),
    [
        (Part(text="words"), Part(text="words")),
        (Part(inline_data=Blob(data=b"a,b", mime_type="text/csv")), Part(text="a,b")),
        (Part(inline_data=Blob(data=b"{}", mime_type="application/json")), Part(text="{}")),
        (Part(inline_data=Blob(data=b"\xff!", mime_type="text/plain")), Part(text="\ufffd!")),
        (Part(inline_data=PNG), Part(inline_data=PNG)),
    ],
)
async def test_an_artifact_is_shown_as_a_model_reads_it(saved: Part, shown: Part) -> None:
    """Text as text, whatever it was saved as; it is in the one request that follows, and in no other."""
    async def save(tool_context: ToolContext) -> str:
        """Save it."""
        await tool_context.save_artifact("it", saved)
        return "saved"

    names = ["it", "gone", "it"]
    model = ScriptedLlm([call("save"), call("load_artifacts", artifact_names=names), "done", "again"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[FunctionTool(save), load_artifacts]))
    events, _ = await run_to_end(runner)
    responses = [each.response for event in events for each in event.get_function_responses()]
    assert responses[-1] == {"artifact_names": ["it"], "missing": ["gone"]}
    told: Content = model.requests[2].contents[-1]
    assert (told.role, told.parts[1]) == ("user", shown)
    assert '"it"' in (told.parts[0].text or "")
    await run_to_end(runner, "more")
    assert not any(part == shown for content in model.requests[3].contents for part in content.parts)


@pytest.mark.parametrize("names", [None, "it", ["it", 3], {"it": 1}])
async def test_names_of_artifacts_are_a_list_of_texts(names: Any) -> None:
    """Anything else is refused, and the model is told so."""
    model = ScriptedLlm([call("load_artifacts", artifact_names=names), "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[load_artifacts])))
    [response] = [each.response for event in events for each in event.get_function_responses()]
    assert response["error"]["message"].startswith("expected artifact_names to be a list of names, found ")


# --- calls ------------------------------------------------------------------------------------------------------------


async def answered(*tools: Any, calls: list[Any]) -> list[Any]:
    """What the calls of one turn are answered with."""
    agent = LlmAgent(name="a", model=ScriptedLlm([calls, "done"]), tools=[*tools])
    events, _ = await run_to_end(runner_for(agent))
    return [each.response for event in events for each in event.get_function_responses()]


async def test_what_a_tool_forgets_to_await_fails_the_call() -> None:
    """It has not happened, so the model is not told that it has."""

    async def forgets(tool_context: ToolContext) -> str:
        """Forget."""
        tool_context.emit(Event(message="lost"))  # type: ignore[unused-coroutine]  # what is tested
        return "done"

    with pytest.warns(RuntimeWarning, match="never awaited"):
        [response] = await answered(FunctionTool(forgets), calls=[call("forgets")])
    assert response["error"]["type"] == "TypeError"
    assert "found a call without `await`" in response["error"]["message"]


async def test_the_context_of_a_call_that_has_ended_tells_which_it_was() -> None:
    """What was kept of it can do nothing any more."""
    kept: list[ToolContext] = []

    async def keeps(tool_context: ToolContext) -> str:
        """Keep it."""
        kept.append(tool_context)
        return "kept"

    await answered(FunctionTool(keeps), calls=[call("keeps")])
    with pytest.raises(InvocationEndedError, match=r"the call \S+ of 'keeps' has ended"):
        await kept[0].emit(Event(message="late"))


async def test_no_more_calls_of_a_tool_than_it_takes(autojump_clock: trio.testing.MockClock) -> None:
    """With `max_concurrency=1` each call begins when the one before has ended, also by a failure."""
    now: list[int] = []
    most: list[int] = []

    async def works(n: int) -> int:
        """Work."""
        now.append(n)
        most.append(len(now))
        await trio.sleep(1)
        now.remove(n)
        if n == 2:
            raise ValueError("two")
        return n

    tool = FunctionTool(works, max_concurrency=1)
    responses = await answered(tool, calls=[call("works", n=n) for n in (1, 2, 3)])
    assert most == [1, 1, 1]
    assert [each.get("result") for each in responses] == [1, None, 3]
