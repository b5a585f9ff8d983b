"""A scripted model is strict, over and over: after a refusal, and when its script begins again."""

from __future__ import annotations

import pytest
import trio

from minirun._window import Window
from minirun.errors import ScriptError
from minirun.models import LlmCapabilities, LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, FunctionResponse, GenerateContentConfig, Part

GOOD = Content(role="user", parts=[Part(text="hello")])
# It answers a call that nobody has made.
BAD = Content(role="user", parts=[Part(function_response=FunctionResponse(id="c", name="f", response={}))])


async def ask(model: ScriptedLlm, request: LlmRequest) -> str:
    """The text of the answer."""
    [answer] = [response async for response in model.generate_content_async(request)]
    return answer.content.text if answer.content is not None else ""


@pytest.mark.parametrize("shared", [False, True], ids=["a list", "a shared history"])
async def test_what_was_refused_is_refused_again(shared: bool) -> None:
    """The same question to the same model, also when it is one of a history of which only what is new is looked at."""
    contents = [GOOD, Content(role="model", parts=[Part(text="hello")]), BAD]
    request = LlmRequest(contents=Window(contents) if shared else contents)
    model = ScriptedLlm(lambda request: "fine")
    for restarts in range(3):
        for _ in range(2):
            with pytest.raises(ScriptError, match="would be refused by a strict provider"):
                await ask(model, request)
        assert len(model.requests) == 2, restarts
        model.restart()


async def test_a_script_that_begins_again_is_as_strict_as_before() -> None:
    """It asks for every item once more, knows no call of before, and is able to do what it was."""
    able = ScriptedLlm([call("f"), "done"], capabilities=LlmCapabilities(output_schema=False))
    schema = LlmRequest(contents=[GOOD], config=GenerateContentConfig(response_schema={"type": "object"}))
    for _ in range(2):
        with pytest.raises(ScriptError, match="response_schema"):
            await ask(able, schema)
        with pytest.raises(ScriptError, match="left over"):
            able.assert_done()
        await ask(able, LlmRequest(contents=[GOOD]))
        assert await ask(able, LlmRequest(contents=[GOOD])) == "done"
        able.assert_done()
        with pytest.raises(ScriptError):
            await ask(able, LlmRequest(contents=[GOOD]))
        assert len(able.requests) == 4
        able.restart()
    assert able.requests == []
    await trio.lowlevel.checkpoint()
