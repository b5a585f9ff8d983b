"""
What a server asks while a call goes on, as those of the protocol before 2026-07-28 do.

Nobody can hold a call open for days. So a call whose server asks something new is cancelled there, and its question
becomes one of the call's rounds, like that of a server of today: it is stored, and the invocation pauses. Once there is
an answer, the call is made anew. The server asks again, and is answered from the log at once, each answer once, until
it asks something that is new.

A question does not say in which call it is asked. Over HTTP it is a part of the response to the call, so a context
variable tells. Over other transports it belongs to the only call that goes on. With several, it waits until the server
has answered the others; if these ask, too, nobody can tell them apart, and all of them end with an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeAlias

import attrs
import mcp_types
import trio
from mcp.client.session import ClientRequestContext

from ...errors import McpError
from ._forms import fingerprint

__all__ = ["Answers", "BackChannel"]

Answers: TypeAlias = Iterable[tuple[str, mcp_types.ElicitResult]]
"""What people have said so far, in their order, each by the fingerprint of its question."""

ASKED = "asked"
"""What a question of this kind is called in its round; there is one in each."""


@attrs.define(eq=False)
class _Call:
    """A call that goes on."""

    usable: list[tuple[str, mcp_types.ElicitResult]]
    """What the server has not been told in this call."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_over: trio.Event = attrs.field(factory=trio.Event)
    is_answered: bool = False
    asked: mcp_types.ElicitRequest | None = None
    is_ambiguous: bool = False

    def take(self, asked: str) -> mcp_types.ElicitResult | None:
        """The first answer to this question that the server has not been told."""
        for index, (other, answer) in enumerate(self.usable):
            if other == asked:
                del self.usable[index]
                return answer
        return None


_CALL: ContextVar[_Call | None] = ContextVar("minirun call of an MCP server", default=None)


class BackChannel:
    """The calls that go on with one server, and what is asked in them."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._calls: list[_Call] = []
        self._waiting = 0  # questions of which it is not known yet in which call they are asked
        self._changed = trio.Event()

    async def hold(self, answers: Answers, send: Callable[[], Awaitable[Any]]) -> Any:
        """
        Return what *send* returns, or what the server asks meanwhile that is not answered by *answers*.

        Raises:
            McpError: The server asks something, and nobody can tell in which of several calls.
        """
        call = _Call(list(answers))
        self._calls.append(call)
        token = _CALL.set(call)
        try:
            with call.scope:
                result = await send()
                call.is_answered = True
                return result
        except Exception:
            call.is_answered = True
            raise
        finally:
            _CALL.reset(token)
            self._calls.remove(call)
            call.is_over.set()
            self._tell()
        if call.is_ambiguous:
            msg = f"the MCP server {self._label!r} asks a person while several calls go on at once, and its protocol"
            hint = "make them one after the other: McpToolset(..., sequential=True), and a toolset for each run"
            raise McpError(f"{msg}, which is older than 2026-07-28, does not tell in which of them; {hint}")
        assert call.asked is not None, "it is cancelled for nothing else"
        return mcp_types.InputRequiredResult(input_requests={ASKED: call.asked})

    async def elicited(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        """Answer what the server asks, if it was answered before; else end the call. It is the client's callback."""
        request = mcp_types.ElicitRequest(params=params)
        call = await self._whose()
        if call is None:
            return _refusal("nobody can be asked but in the middle of one call")
        known = call.take(fingerprint(request.model_dump(by_alias=True, mode="json", exclude_none=True)))
        if known is not None:
            return known
        if call.asked is None:
            call.asked = request
        call.scope.cancel()
        await call.is_over.wait()  # so that the server hears of the cancellation first
        return _refusal("a person is asked, and the call is made anew then")

    async def _whose(self) -> _Call | None:
        """The call in which a question is asked; None if nobody can tell, and nothing is left to tell."""
        mine = _CALL.get()
        if mine is not None:
            return mine
        possible = list(self._calls)
        self._waiting += 1
        self._tell()
        try:
            while True:
                # One that was cancelled may be the one: the server has yet to withdraw its question.
                possible = [call for call in possible if not (call.is_answered or call.is_ambiguous)]
                if all(call.is_over.is_set() for call in possible):
                    return None
                if len(possible) == 1:
                    return possible[0]
                if self._waiting >= len(possible):
                    for call in possible:
                        call.is_ambiguous = True
                        call.scope.cancel()
                else:
                    await self._changed.wait()
        finally:
            self._waiting -= 1

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _refusal(message: str) -> mcp_types.ErrorData:
    return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=message)
