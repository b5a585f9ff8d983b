"""
The contract of models: what ships with minirun keeps it, and who breaks it is named.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
import trio

from minirun.models import BaseLlm, LlmRequest, LlmResponse
from minirun.testing import ScriptedLlm, check_llm
from minirun.testing._llm_contract import llm_checks
from minirun.types import Content, Part


def scripted() -> ScriptedLlm:
    return ScriptedLlm(lambda request: ["one ", "two ", "three"])


@pytest.mark.parametrize("check", llm_checks().values(), ids=llm_checks())
async def test_scripted_models_keep_the_contract(
    check: Callable[[Callable[[], BaseLlm]], Awaitable[None]],
) -> None:
    """
    ScriptedLlm keeps each promise of a model.
    """
    await check(scripted)


def says(text: str, partial: bool | None = None) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[Part(text=text)]), partial=partial)


class InScope(BaseLlm):
    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        with trio.move_on_after(5):
            await trio.lowlevel.checkpoint()
            yield says("a")  # that is the mistake


class NoGenerator(BaseLlm):
    async def generate_content_async(  # type: ignore[override]  # that is the mistake
        self, request: LlmRequest, stream: bool = False
    ) -> LlmResponse:
        return says("a")


class Forgetful(BaseLlm):
    """Its complete response is the last fragment only."""

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        await trio.lowlevel.checkpoint()
        if stream:
            yield says("a", partial=True)
            yield says("b", partial=True)
        yield says("b")


class Chatty(BaseLlm):
    """It shows fragments to who has not asked for them."""

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        await trio.lowlevel.checkpoint()
        yield says("a", partial=True)
        yield says("a")


class Endless(BaseLlm):
    """It goes on after its complete response."""

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        await trio.lowlevel.checkpoint()
        yield says("a")
        if stream:
            yield says("b")


class Deaf(BaseLlm):
    """It does not let itself be cancelled."""

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        yield says("a")


class Exclusive(BaseLlm):
    """It answers one question at a time, and the others not at all."""

    is_busy = False

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        if self.is_busy:
            await trio.lowlevel.checkpoint()
            return
        self.is_busy = True
        try:
            await trio.lowlevel.checkpoint()
            yield says("a")
        finally:
            self.is_busy = False


class Closed(BaseLlm):
    """It is of no more use when it was closed."""

    is_closed = False

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        await trio.lowlevel.checkpoint()
        if self.is_closed:
            raise AssertionError("closed")
        yield says("a")

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("model", "promise"),
    [
        (InScope, "without streaming there is one complete response"),
        (NoGenerator, "it is an async generator"),
        (Forgetful, "the complete response repeats the fragments"),
        (Chatty, "without streaming there is one complete response"),
        (Endless, "a stream ends with the complete response"),
        (Deaf, "it may be cancelled"),
        (Exclusive, "it serves questions side by side"),
        (Closed, "it may be closed and used again"),
    ],
)
async def test_a_model_that_breaks_the_contract_is_named(model: type[BaseLlm], promise: str) -> None:
    """
    Each promise that a model can break is found broken, and a note names it.
    """
    with pytest.raises(AssertionError) as caught:
        await check_llm(model)
    assert caught.value.__notes__ == [f"this breaks the model's promise: {promise}"]
