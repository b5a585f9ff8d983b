"""
A model that says what a script says: for tests, simulations and examples, offline and deterministic.

It is strict both ways: a question that the script does not foresee fails the run with an error that no hook can
swallow, and `assert_done()` fails if part of the script was never asked for. And it refuses every request that a
strict provider would refuse.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

import trio

from .._json import brief, is_seconds
from ..errors import ConfigurationError, ScriptError
from ..types import Content, FunctionCall, Part
from ._base import BaseLlm, LlmCapabilities, LlmRequest, LlmResponse
from ._check import RequestChecker

__all__ = ["ScriptedLlm", "call"]

Chunk: TypeAlias = str | Part | Content | LlmResponse | BaseException
Item: TypeAlias = Chunk | Sequence[Chunk]
Script: TypeAlias = Sequence[Item] | Callable[[LlmRequest], Item | Awaitable[Item]]


def call(name: str, /, **args: object) -> Part:
    """A function call, for scripts: `ScriptedLlm([call("add", a=1, b=2), "3"])`."""
    return Part(function_call=FunctionCall(name=name, args=args))


class ScriptedLlm(BaseLlm):
    """
    A model that answers from a script.

    Args:
        script: A list with one item for each question, or a function of the request that returns an item (sync or
            async). An item is a text, a `Content`, a `Part` (see `call`), an `LlmResponse`, an exception to raise, or
            a list of these as chunks: with streaming each chunk is shown as a fragment, then their aggregate; an
            exception among them cuts the stream.
        latency_s: How long each answer takes, in seconds on trio's clock; in a stream, each chunk.
        name: What events and errors call it.
        capabilities: What it is able to do; it refuses requests for more.

    `requests` has every request so far.
    """

    def __init__(
        self,
        script: Script,
        *,
        latency_s: float = 0.0,
        name: str = "scripted",
        capabilities: LlmCapabilities = BaseLlm.capabilities,
    ) -> None:
        if isinstance(script, str) or not (callable(script) or isinstance(script, Sequence)):
            msg = f"expected a list of items or a function of the request, found {brief(script)}; write it in [...]"
            raise ConfigurationError(msg)
        if not is_seconds(latency_s):
            msg = f"expected latency_s to be a finite number of seconds from 0 up, found {brief(latency_s)}"
            raise ConfigurationError(msg)
        self.name = name
        self.capabilities = capabilities
        self.requests: list[LlmRequest] = []
        self._script = script if callable(script) else list(script)
        self._latency_s = latency_s
        self._next = 0
        self._checker = RequestChecker(capabilities)

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer with the next item of the script."""
        problem = self._checker.check(request)
        self.requests.append(request)
        if problem is not None:
            msg = f"question {len(self.requests)} to {self.name!r} would be refused by a strict provider: {problem}"
            raise ScriptError(msg)
        item = await self._item(request)
        chunks: list[Chunk] = list(item) if _is_list(item) else [item]  # type: ignore[arg-type,list-item]  # just told apart
        shown: list[LlmResponse] = []
        for chunk in chunks:
            if self._latency_s:
                await trio.sleep(self._latency_s)
            if isinstance(chunk, BaseException):
                raise chunk
            response = _response(chunk)
            shown.append(response)
            if stream and len(chunks) > 1 and response.partial is not False:
                yield LlmResponse(content=response.content, partial=True)
        await trio.lowlevel.checkpoint()
        if len(shown) != 1:
            from ._fragments import joined  # most items of scripts are one chunk

            shown = [joined(shown)]
        yield shown[0]

    async def _item(self, request: LlmRequest) -> Item:
        if callable(self._script):
            answer = self._script(request)
            return await answer if inspect.isawaitable(answer) else answer
        if self._next >= len(self._script):
            from ._breaches import used_up  # a mistake in a test

            raise used_up(self.name, len(self._script), request.contents[-1].text)
        self._next += 1
        return self._script[self._next - 1]

    def restart(self) -> None:
        """Begin the script again, as if nothing had been asked. A simulation does so for every process."""
        self.requests.clear()
        self._next = 0
        self._checker = RequestChecker(self.capabilities)

    def assert_done(self) -> None:
        """
        Check that the whole script was asked for.

        Raises:
            ScriptError: Items are left over.
        """
        if not callable(self._script) and self._next < len(self._script):
            from ._breaches import left_over

            raise left_over(self.name, self._script, self._next)


def _is_list(item: Item) -> bool:
    return isinstance(item, Sequence) and not isinstance(item, str)


def _response(chunk: Chunk) -> LlmResponse:
    if isinstance(chunk, LlmResponse):
        return chunk
    if isinstance(chunk, Content):
        return LlmResponse(content=chunk)
    if isinstance(chunk, Part):
        return LlmResponse(content=Content(role="model", parts=[chunk]))
    if isinstance(chunk, str):
        text = chunk.encode("utf-8", "replace").decode()  # half a surrogate pair becomes a question mark
        return LlmResponse(content=Content(role="model", parts=[Part(text=text)]))
    msg = f"expected a script item to be text, Part, Content, LlmResponse or an exception, found {brief(chunk)}"
    raise ScriptError(msg)
