"""What an instruction makes of artifacts and of functions: texts, and everything that is none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from minirun import InMemoryRunner, LlmAgent
from minirun.errors import InvalidValueError
from minirun.testing import ScriptedLlm, call
from minirun.types import Blob, Content, FileData, Part

from ..helpers import PLACE, look, run_to_end

TOLD: list[tuple[Part, str]] = [
    (Part(text="as text"), "as text"),
    (Part(inline_data=Blob(data="größe".encode(), mime_type="text/plain")), "größe"),
    (Part(inline_data=Blob(data=b"a,b", mime_type="text/csv")), "a,b"),
    (Part(inline_data=Blob(data=b"[1]", mime_type="application/json")), "[1]"),
    (Part(inline_data=Blob(data=b"a\xffb", mime_type="text/plain")), "a\ufffdb"),
]


async def instruction_with(artifact: Part, instruction: str = "Read {artifact.notes}.") -> str | None:
    """What a model is told by an instruction that names this artifact."""
    model = ScriptedLlm(["done"])
    agent = LlmAgent(name="a", model=model, instruction=instruction)
    runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
    assert runner.artifact_service is not None
    await runner.artifact_service.save_artifact(app_name="app", **PLACE, filename="notes", artifact=artifact)
    await run_to_end(runner)
    return model.requests[0].config.system_instruction


@pytest.mark.parametrize(("artifact", "text"), TOLD, ids=[text for _, text in TOLD])
async def test_a_text_is_filled_in(artifact: Part, text: str) -> None:
    """Whatever type of text it has; bytes that are none are marked."""
    assert await instruction_with(artifact) == f"Read {text}."


@pytest.mark.parametrize(
    ("artifact", "found"),
    [
        (Part(inline_data=Blob(data=b"1", mime_type="image/png")), "image/png"),
        (Part(inline_data=Blob(data=b"1", mime_type="application/pdf")), "application/pdf"),
        (Part(file_data=FileData(file_uri="gs://b/o", mime_type="text/plain")), "a file elsewhere"),
    ],
)
async def test_what_is_no_text_fails_the_run(artifact: Part, found: str) -> None:
    """The error names the artifact and its type, and says how a model can see it."""
    expected = (
        f"artifact 'notes': expected text, which an instruction can contain, found {found}; let the model load it"
    )
    with pytest.raises(InvalidValueError, match=re.escape(expected)):
        await instruction_with(artifact)


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_instruction_function_returns_a_text(is_async: bool) -> None:
    """What it says is taken as it is; something else fails the run, by the agent's name."""

    async def later(context: Any) -> Any:
        return said(context)

    def said(context: Any) -> Any:
        return context.state.get("text")

    model = ScriptedLlm(["done"])
    agent = LlmAgent(name="a", model=model, instruction=later if is_async else said)
    runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
    await run_to_end(runner, state_delta={"text": "Be {calm}."})
    assert model.requests[0].config.system_instruction == "Be {calm}."
    with pytest.raises(TypeError, match="expected the instruction function of 'a' to return a string, found 5"):
        await run_to_end(runner, state_delta={"text": 5})


async def test_an_instruction_in_the_conversation_stands_before_what_the_user_said_last() -> None:
    """All that the user has said since the model spoke follows it; responses of tools belong to their calls."""
    model = ScriptedLlm(["one", call("look", n=1), "two"])
    agent = LlmAgent(name="a", model=model, static_instruction="Be kind.", instruction="Now {n?}.", tools=[look])
    runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
    await run_to_end(runner, "first", state_delta={"n": 1})
    await run_to_end(runner, Content(role="user", parts=[Part(text="second")]), state_delta={"n": 2})
    shown = [[content.text or "..." for content in request.contents] for request in model.requests]
    assert shown == [
        ["Now 1.", "first"],
        ["first", "one", "Now 2.", "second"],
        ["first", "one", "second", "...", "...", "Now 2."],
    ]
    assert {request.config.system_instruction for request in model.requests} == {"Be kind."}
