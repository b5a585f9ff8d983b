"""
Images, sounds and files that tools return: what is stored, and what models are shown.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from minirun import Event, InMemoryRunner, LlmAgent, Runner, SqliteSessionService, ToolContext
from minirun.errors import InvalidValueError
from minirun.models import LlmCapabilities, LlmRequest, RequestChecker
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, LongRunningFunctionTool
from minirun.types import Blob, Content, FileData, FunctionCall, FunctionResponse, Part, UserContent

from .. import strategies
from ..helpers import run_to_end, runner_for, stored_events

PNG = Blob(data=b"\x89PNG", mime_type="image/png")
FILE = FileData(file_uri="https://x/y.pdf", mime_type="application/pdf")
SEEING = LlmCapabilities(media_in_tool_results=True)


def look_of(result: Any) -> Any:
    async def look() -> Any:
        """Look at it."""
        return result

    return look


async def answer_to(result: Any, capabilities: LlmCapabilities = SEEING) -> tuple[FunctionResponse, FunctionResponse]:
    """What is stored of a tool that returns *result*, and what the model is shown of it."""
    model = ScriptedLlm([call("look"), "done"], capabilities=capabilities)
    agent = LlmAgent(name="a", model=model, tools=[look_of(result)])
    runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
    await run_to_end(runner)
    [stored] = [item for event in await stored_events(runner) for item in event.get_function_responses()]
    [shown] = model.requests[-1].contents[-1].responses
    return stored, shown


@pytest.mark.parametrize(
    ("result", "response", "parts"),
    [
        (PNG, {"result": {"media": ["image/png, 4 B"]}}, [Part(inline_data=PNG)]),
        (Part(inline_data=PNG), {"result": {"media": ["image/png, 4 B"]}}, [Part(inline_data=PNG)]),
        (FILE, {"result": {"media": ["application/pdf, https://x/y.pdf"]}}, [Part(file_data=FILE)]),
        (
            ["this is", Part(text="it:"), PNG, FILE],
            {"result": {"text": "this is\nit:", "media": ["image/png, 4 B", "application/pdf, https://x/y.pdf"]}},
            [Part(inline_data=PNG), Part(file_data=FILE)],
        ),
        (Part(text="only text"), {"result": {"text": "only text"}}, []),
    ],
)
async def test_media_go_with_the_response(result: Any, response: Any, parts: list[Part]) -> None:
    """The response says in text what there is, and the media stand beside it, for a model that sees them."""
    stored, shown = await answer_to(result)
    assert stored == shown
    assert stored.response == response
    assert list(stored.parts) == parts


async def test_a_model_that_sees_no_media_is_told_of_them() -> None:
    """It is shown the same response without the media; what is stored has them."""
    stored, shown = await answer_to(["see", PNG], LlmCapabilities())
    assert len(stored.parts) == 1
    assert (list(shown.parts), shown.response) == ([], stored.response)


async def test_agents_of_one_session_are_shown_what_their_models_see(tmp_path: Any) -> None:
    """One history is shown to a model that sees media and to one that does not, from memory and from a file."""
    for capabilities in (SEEING, LlmCapabilities(), SEEING):
        model = ScriptedLlm([call("look"), "done"], capabilities=capabilities)
        async with SqliteSessionService(tmp_path / "s.db") as service:
            agent = LlmAgent(name="a", model=model, tools=[look_of(PNG)])
            runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
            await run_to_end(runner)
        answers = [item for content in model.requests[-1].contents for item in content.responses]
        assert answers
        assert all(bool(item.parts) is capabilities.media_in_tool_results for item in answers)


async def test_media_beside_what_is_neither_text_nor_media_fail_the_call() -> None:
    """The model is told that the tool has failed, and the message says what a tool may return."""
    stored, _ = await answer_to([PNG, {"a": 1}])
    assert "expected a text or media, found" in stored.response["error"]["message"]
    assert "result of 'look'[1]" in stored.response["error"]["message"]


async def test_an_artifact_is_returned_as_what_was_loaded() -> None:
    """What `load_artifact` returns is media as any other; a reference to an artifact fails the call, and says so."""

    async def look(tool_context: ToolContext) -> list[Any]:
        """Look at it."""
        await tool_context.save_artifact("a.png", Part(inline_data=PNG))
        return ["see", await tool_context.load_artifact("a.png")]

    model = ScriptedLlm([call("look"), "done"], capabilities=SEEING)
    await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[look])))
    [shown] = model.requests[-1].contents[-1].responses
    assert [part.inline_data and part.inline_data.data for part in shown.parts] == [PNG.data]
    stored, _ = await answer_to(FileData(file_uri="artifact://apps/app/a.png", mime_type="image/png"))
    assert "load_artifact(name)" in stored.response["error"]["message"]
    assert list(stored.parts) == []


async def test_media_of_a_long_running_tool_are_told_in_words() -> None:
    """What such a tool returns first is a note, which says what the media were; its answer has to be JSON."""

    async def draw() -> list[Any]:
        """Draw it."""
        return ["first sketch", PNG]

    tool = LongRunningFunctionTool(draw)
    model = ScriptedLlm([call("draw"), "I am at it.", "done"])
    _, run = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[tool])))
    [pending] = run.pending
    assert pending.hint == {"text": "first sketch", "media": ["image/png, 4 B"]}
    with pytest.raises(InvalidValueError, match="response"):
        pending.reply(PNG)


async def test_an_after_tool_callback_gets_what_the_tool_has_returned() -> None:
    """It sees the media themselves, and may return media in their place."""
    seen: list[Any] = []

    def swap(tool: object, args: object, tool_context: object, tool_response: Any) -> Any:
        seen.append(tool_response)
        return FILE

    model = ScriptedLlm([call("look"), "done"], capabilities=SEEING)
    agent = LlmAgent(name="a", model=model, tools=[look_of(PNG)], after_tool_callback=swap)
    await run_to_end(InMemoryRunner(agent=agent, app_name="app", auto_create_session=True))
    assert seen == [PNG]
    [answer] = model.requests[-1].contents[-1].responses
    assert list(answer.parts) == [Part(file_data=FILE)]


def test_a_tool_may_say_that_it_returns_media() -> None:
    """Annotations that name them are no mistake."""

    def plot() -> list[str | Part | Blob]:
        """Plot it."""
        return [PNG]

    def scan() -> FileData:
        """Scan it."""
        return FILE

    assert [FunctionTool(each).name for each in (plot, scan)] == ["plot", "scan"]


@pytest.mark.parametrize("part", [Part(text="x"), Part(function_call=FunctionCall(name="f"))])
def test_only_media_go_beside_a_response(part: Part) -> None:
    """Texts stand in the response itself."""
    with pytest.raises(InvalidValueError, match=r"FunctionResponse.parts\[1\]: expected a part with inline_data"):
        FunctionResponse(name="f", parts=[Part(inline_data=PNG), part])


@given(strategies.media)
def test_media_in_responses_come_back_from_json(part: Part) -> None:
    """An event whose responses have media is the same after it was written and read."""
    response = FunctionResponse(name="f", id="c", parts=[part])
    event = Event(author="a", content=Content(role="user", parts=[Part(function_response=response)]))
    assert Event.from_json(event.to_json()) == event


def test_a_request_that_shows_media_to_the_blind_is_refused() -> None:
    """The check of requests knows what a model sees."""
    contents = [
        UserContent("hi"),
        Content(role="model", parts=[Part(function_call=FunctionCall(name="f", id="c"))]),
        Content(
            role="user",
            parts=[Part(function_response=FunctionResponse(name="f", id="c", parts=[Part(inline_data=PNG)]))],
        ),
    ]
    request = LlmRequest(contents=contents)
    assert RequestChecker(SEEING).check(request) is None
    assert "which this model cannot see" in str(RequestChecker().check(request))
