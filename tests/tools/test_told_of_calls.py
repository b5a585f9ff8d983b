"""What is kept of the calls of a turn when something fails around them, and what memory tools and checks keep to."""

from __future__ import annotations

from typing import Any

import pytest

from minirun import App, Event, InMemoryRunner, InMemorySessionService, LlmAgent, Runner, ToolContext
from minirun.memory import InMemoryMemoryService, MemoryEntry, SearchMemoryResponse
from minirun.plugins import BasePlugin
from minirun.runtime import InvocationContext
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, FunctionTool, load_artifacts, load_memory, preload_memory
from minirun.types import FunctionDeclaration, Part

from ..helpers import PLACE, look, run_to_end, runner_for, stored_events

# --- state ------------------------------------------------------------------------------------------------------------


class Breaking(BasePlugin):
    """Fails at the first event that answers calls."""

    def __init__(self) -> None:
        super().__init__("breaking")
        self.seen = 0

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        """Fail, once."""
        self.seen += bool(event.get_function_responses())
        if self.seen == 1:
            raise OSError("the plugin has failed")


async def test_what_tools_have_written_is_stored_once_if_their_event_is_stored_at_the_end() -> None:
    """A plugin that fails at the answers fails the run; they are stored by its end, with each write counted once."""

    async def count(by: int, tool_context: ToolContext) -> str:
        tool_context.state.add("sum", by)
        tool_context.state.extend("list", [by])
        tool_context.state["last"] = by
        return f"counted {by}"

    model = ScriptedLlm([[call("count", by=2), call("count", by=3)]])
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(count)])
    runner = InMemoryRunner(app=App("app", agent, plugins=[Breaking()]), auto_create_session=True)
    with pytest.raises(OSError, match="the plugin has failed"):
        await run_to_end(runner)
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    assert dict(session.state) == {"sum": 5, "list": [2, 3], "last": 3}
    answers = [each.response for event in await stored_events(runner) for each in event.get_function_responses()]
    assert answers == [{"result": "counted 2"}, {"result": "counted 3"}]


# --- memories ---------------------------------------------------------------------------------------------------------


class Fixed(InMemoryMemoryService):
    """A memory that finds what it was made with, up to the limit."""

    def __init__(self, *memories: MemoryEntry) -> None:
        super().__init__()
        self.memories = memories
        self.limits: list[int | None] = []

    async def search_memory(self, *, limit: int | None = None, **options: Any) -> SearchMemoryResponse:
        """All of them."""
        self.limits.append(limit)
        return SearchMemoryResponse(memories=self.memories[:limit])


def entry(text: str, author: str | None = "ada", timestamp: float | None = 60.0) -> MemoryEntry:
    return MemoryEntry(content=text, author=author, timestamp=timestamp)


async def told(*memories: MemoryEntry, message: str = "tea?") -> tuple[list[Any], list[str], Fixed]:
    """What `load_memory` returns, the lines that `preload_memory` tells, and the memory."""
    memory = Fixed(*memories)
    model = ScriptedLlm([call("load_memory", query="tea"), "done"])
    agent = LlmAgent(name="a", model=model, tools=[load_memory, preload_memory])
    runner = Runner(
        app=App("app", agent),
        session_service=InMemorySessionService(),
        memory_service=memory,
        auto_create_session=True,
    )
    events, _ = await run_to_end(runner, message)
    [answer] = [each for event in events for each in event.get_function_responses()]
    instruction = model.requests[0].config.system_instruction or ""
    lines = [line for line in instruction.splitlines() if line.startswith("- ")]
    return [dict(each) for each in answer.response["memories"]], lines, memory


async def test_what_is_known_of_a_memory_is_told() -> None:
    """Its text, who said it and when, to the minute; a time that is not known, or in no calendar, is left out."""
    found, lines, memory = await told(
        entry("a"),
        entry("b\n c", author=None, timestamp=119.9),
        *(entry(text, timestamp=timestamp) for text, timestamp in (("c", 1e20), ("d", None), ("e", 0.0))),
    )
    assert found == [
        {"text": "a", "author": "ada", "time": "1970-01-01 00:01 UTC"},
        {"text": "b\n c", "time": "1970-01-01 00:01 UTC"},
        {"text": "c", "author": "ada"},
        {"text": "d", "author": "ada"},
        {"text": "e", "author": "ada", "time": "1970-01-01 00:00 UTC"},
    ]
    assert lines == [
        "- 1970-01-01 00:01 UTC, ada: a",
        "- 1970-01-01 00:01 UTC, ?: b c",
        "- ?, ada: c",
        "- ?, ada: d",
        "- 1970-01-01 00:00 UTC, ada: e",
    ]
    assert memory.limits == [11, None]


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (10, 10), (11, 10)])
@pytest.mark.parametrize("repeats", [True, False])
async def test_ten_memories_are_told_that_the_message_does_not_repeat(count: int, lines: int, repeats: bool) -> None:
    """What is word for word the message takes no place of another one."""
    others = [entry(f"tea {n}") for n in range(count)]
    _, found, _ = await told(*[entry("tea?")] * repeats, *others)
    assert found == [f"- 1970-01-01 00:01 UTC, ada: tea {n}" for n in range(lines)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([2_000], ["x" * 2_000]),
        ([2_001], ["x" * 2_000 + "… (1 more characters)"]),
        ([2_000] * 6, ["x" * 2_000] * 5),
        ([2_000] * 4 + [1_999, 1, 1], ["x" * 2_000] * 4 + ["x" * 1_999, "x"]),
        ([2_000] * 4 + [1_999, 2], ["x" * 2_000] * 4 + ["x" * 1_999]),
    ],
)
async def test_2000_characters_of_a_memory_are_told_and_10000_of_all(sizes: list[int], expected: list[str]) -> None:
    """Each says how much was cut; what there is no room for is left out."""
    found, lines, _ = await told(*(entry("x" * size) for size in sizes))
    assert [each["text"] for each in found] == expected
    assert lines == [f"- 1970-01-01 00:01 UTC, ada: {text}" for text in expected]


# --- artifacts --------------------------------------------------------------------------------------------------------


async def test_artifacts_are_shown_once_as_a_model_reads_them() -> None:
    """Texts as texts, whatever they were saved as, in the order in which they were asked for; then never again."""
    files = {
        "a.json": Part.from_bytes(data=b'{"a": 1}', mime_type="application/json"),
        "b.txt": Part.from_bytes(data=b"b\xff", mime_type="text/plain; charset=utf-8"),
        "c.png": Part.from_bytes(data=b"PNG", mime_type="image/png"),
        "d.xml": Part.from_bytes(data=b"<d/>", mime_type="application/xml"),
        "e": Part(text="plain"),
    }
    asks = [call("load_artifacts", artifact_names=["c.png", "a.json", "no", "c.png"]), call("look", n=1)]
    more = [
        call("load_artifacts", artifact_names=["e", "b.txt", "d.xml"]),
        call("load_artifacts", artifact_names=["e"]),
    ]
    model = ScriptedLlm([asks, more, "done", "hello"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[load_artifacts, look]))
    await runner.session_service.create_session(app_name="app", **PLACE)
    assert runner.artifact_service is not None
    for name, part in files.items():
        await runner.artifact_service.save_artifact(app_name="app", **PLACE, filename=name, artifact=part)
    events, _ = await run_to_end(runner)
    await run_to_end(runner)
    answers = [dict(each.response) for event in events for each in event.get_function_responses()]
    assert answers == [
        {"artifact_names": ["c.png", "a.json"], "missing": ["no"]},
        {"result": "seen 1"},
        {"artifact_names": ["e", "b.txt", "d.xml"]},
        {"artifact_names": ["e"]},
    ]
    found = [
        [content.parts for content in request.contents if (content.parts[0].text or "").startswith("The artifact")]
        for request in model.requests
    ]
    made = {"a.json": Part(text='{"a": 1}'), "b.txt": Part(text="b\ufffd")}
    shown = {name: [Part(text=f'The artifact "{name}":'), made.get(name, part)] for name, part in files.items()}
    assert [[[*parts] for parts in each] for each in found] == [
        [],
        [shown["c.png"], shown["a.json"]],
        [shown["e"], shown["b.txt"], shown["d.xml"]],
        [],
    ]


# --- what is checked --------------------------------------------------------------------------------------------------


class Turning(BaseTool):
    """A tool that declares something else each time that it is asked for."""

    def __init__(self) -> None:
        super().__init__(name="turn", description="Turn.")
        self.constants: list[Any] = [1, True]
        self.got: list[Any] = []

    @property
    def declaration(self) -> FunctionDeclaration:
        parameters = {"type": "object", "properties": {"x": {"const": self.constants[0]}}}
        return FunctionDeclaration(name=self.name, description="Turn.", parameters=parameters)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        self.got.append(args)
        self.constants.append(self.constants.pop(0))
        return "turned"


async def test_arguments_are_checked_by_what_is_declared_when_the_call_is_made() -> None:
    """A tool may declare something else for the next call, if only 1 in the place of true."""
    tool = Turning()
    model = ScriptedLlm([call("turn", x=1), call("turn", x=1), call("turn", x=True), "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[tool])))
    answers = [each.response for event in events for each in event.get_function_responses()]
    assert ["error" in answer for answer in answers] == [False, True, False]
    assert tool.got == [{"x": 1}, {"x": True}]
