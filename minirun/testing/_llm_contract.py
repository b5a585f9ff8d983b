"""
What every model promises the flow that drives it, as checks that the author of a `BaseLlm` can run:

    async def test_my_model() -> None:
        await check_llm(lambda: MyModel("name", base_url=fake_server))

The factory returns a model, or an async context manager that gives one; it is called once for each check. The model
has to answer whatever it is asked, with at least one letter, and as often as it is asked: some ten times a check.

Of the real thing this says what can be seen from outside. That a generator does not `yield` inside a cancel scope or a
nursery it has opened, which breaks whoever drives it, is seen by trio's own check of nesting.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import trio

from .._json import brief
from ..models import BaseLlm, LlmRequest, LlmResponse
from ..types import Content, FunctionDeclaration, GenerateContentConfig, Part
from ._contract import CHECK_S_MAX, expect

__all__ = ["check_llm", "llm_checks", "next_response"]

MakeModel: TypeAlias = Callable[[], BaseLlm | AbstractAsyncContextManager[BaseLlm]]
Body: TypeAlias = Callable[[BaseLlm], Awaitable[None]]

CHECKS: dict[str, Body] = {}


def check(body: Body) -> Body:
    """Put a check into the table, under its name."""
    CHECKS[body.__name__.strip("_")] = body
    return body


async def check_llm(make_model: MakeModel) -> None:
    """
    Run every check of the contract on the model that *make_model* gives.

    Args:
        make_model: Returns a model, or an async context manager that gives one. It has to answer every question.

    Raises:
        AssertionError: The model breaks the contract; a note names the check.
    """
    for run in llm_checks().values():
        await run(make_model)


def llm_checks() -> dict[str, Callable[[MakeModel], Awaitable[None]]]:
    """Return the checks by name, to be run one by one."""
    return {name: partial(_run, name, body) for name, body in CHECKS.items()}


async def _run(name: str, body: Body, make_model: MakeModel) -> None:
    try:
        with trio.fail_after(CHECK_S_MAX):
            async with _made(make_model) as model:
                await body(model)
    except Exception as error:
        error.add_note(f"this breaks the model's promise: {name.replace('_', ' ')}")
        raise


@asynccontextmanager
async def _made(make_model: MakeModel) -> AsyncIterator[BaseLlm]:
    made = make_model()
    if isinstance(made, BaseLlm):
        try:
            yield made
        finally:
            await made.aclose()
    else:
        async with made as model:
            yield model


# --- driving a model --------------------------------------------------------------------------------------------------


def question(text: str = "say something") -> LlmRequest:
    """A request with a system instruction, a tool and a short conversation."""
    tool = FunctionDeclaration(
        name="look", description="Look.", parameters={"type": "object", "properties": {"where": {"type": "string"}}}
    )
    contents = [
        Content(role="user", parts=[Part(text="hello")]),
        Content(role="model", parts=[Part(text="hello, what is it?")]),
        Content(role="user", parts=[Part(text=text)]),
    ]
    config = GenerateContentConfig(system_instruction="Be brief.", tools=[tool])
    return LlmRequest(contents=contents, config=config)


async def answers(model: BaseLlm, stream: bool) -> list[LlmResponse]:
    """All that a model yields, each step in a cancel scope of its own, as whoever drives it may have."""
    found: list[LlmResponse] = []
    async with aclosing(model.generate_content_async(question(), stream)) as responses:
        while True:
            response = await next_response(responses)
            if response is None:
                return found
            found.append(response)


async def next_response(responses: Any, whose: str = "the generator") -> LlmResponse | None:
    """Take the next one in a cancel scope; None at the end. *whose* is what errors call the generator."""
    try:
        with trio.CancelScope():
            response = await anext(responses, None)
    except RuntimeError as error:
        if "ancel scope" not in str(error):
            raise
        msg = f"expected no `yield` inside a cancel scope or a nursery that {whose} has opened, found one"
        raise AssertionError(msg) from error
    if not isinstance(response, LlmResponse | None):
        raise AssertionError(f"expected LlmResponse, found {brief(response)}")
    return response


def said(response: LlmResponse) -> tuple[str, str]:
    """The text of a response, and the thoughts in it."""
    parts = response.content.parts if response.content is not None else ()
    texts = [(part.thought, part.text) for part in parts if part.text]
    return "".join(text for thought, text in texts if not thought), "".join(text for thought, text in texts if thought)


# --- the checks -------------------------------------------------------------------------------------------------------


@check
async def _it_is_an_async_generator(model: BaseLlm) -> None:
    """What it returns can be iterated and closed, before anything was asked of it too."""
    responses = model.generate_content_async(question(), False)
    missing = [name for name in ("__aiter__", "__anext__", "aclose") if not hasattr(responses, name)]
    if hasattr(responses, "close"):
        responses.close()
    expect("methods that are missing", missing, [])
    await responses.aclose()


@check
async def _without_streaming_there_is_one_complete_response(model: BaseLlm) -> None:
    """It yields exactly one response, which is no fragment."""
    expect("whether the responses are fragments", [bool(each.partial) for each in await answers(model, False)], [False])


@check
async def _a_stream_ends_with_the_complete_response(model: BaseLlm) -> None:
    """Fragments come first, then one complete response, and nothing after it."""
    found = [bool(response.partial) for response in await answers(model, True)]
    expect("whether the responses are fragments", found, [True] * (len(found) - 1) + [False])


@check
async def _the_complete_response_repeats_the_fragments(model: BaseLlm) -> None:
    """Texts and thoughts of the fragments, joined, are those of the complete response."""
    *fragments, whole = await answers(model, True)
    if fragments:
        texts, thoughts = zip(*map(said, fragments), strict=True)
        expect("the fragments' text", "".join(texts), said(whole)[0])
        if any(thoughts):
            expect("the fragments' thoughts", "".join(thoughts), said(whole)[1])


@check
async def _a_response_is_the_models(model: BaseLlm) -> None:
    """What it says has the role `model`."""
    for response in await answers(model, True):
        if response.content is not None:
            expect("the role", response.content.role, "model")


@check
async def _the_request_stays_as_it_was(model: BaseLlm) -> None:
    """Neither the request nor anything in it is changed."""
    request = question()
    before = repr(request)
    for stream in (False, True):
        async with aclosing(model.generate_content_async(request, stream)) as responses:
            async for _ in responses:
                expect("the request", repr(request), before)


@check
async def _it_may_be_closed_early(model: BaseLlm) -> None:
    """Closing the generator after its first response returns, and the next question is answered."""
    for _ in range(3):
        async with aclosing(model.generate_content_async(question(), True)) as responses:
            await next_response(responses)
    expect("how many responses the next question has", len(await answers(model, False)), 1)


@check
async def _it_may_be_cancelled(model: BaseLlm) -> None:
    """A cancellation ends the question at once, and the next one is answered."""
    for stream in (False, True):
        with trio.CancelScope() as scope:
            scope.cancel()
            async with aclosing(model.generate_content_async(question(), stream)) as responses:
                async for _ in responses:
                    pass
        expect("whether it was cancelled", scope.cancelled_caught, True)
    expect("how many responses the next question has", len(await answers(model, False)), 1)


@check
async def _it_serves_questions_side_by_side(model: BaseLlm) -> None:
    """One object answers several questions at once, each with its own stream."""
    found: list[int] = []

    async def ask(stream: bool) -> None:
        responses = await answers(model, stream)
        found.append(sum(not response.partial for response in responses))

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(ask, bool(number % 2))
    expect("complete responses of each question", found, [1] * 4)


@check
async def _it_may_be_closed_and_used_again(model: BaseLlm) -> None:
    """`aclose` may come at any time, and twice; questions after it are answered: other Runners share the model."""
    await model.aclose()
    expect("how many responses the next question has", len(await answers(model, False)), 1)
    async with aclosing(model.generate_content_async(question(), True)) as responses:
        await next_response(responses)
        await model.aclose()
        await model.aclose()
        last = None
        while (response := await next_response(responses)) is not None:
            last = response
        expect("whether a question that was going on ends well", last is None or not last.partial, True)


@check
async def _it_says_what_it_is(model: BaseLlm) -> None:
    """It has a name, which events and errors show, and says what it is able to do."""
    expect("whether its name is a text", isinstance(model.name, str) and bool(model.name.strip()), True)
    await trio.lowlevel.checkpoint()
