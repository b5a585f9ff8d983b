"""What stands in the place of a tool whose call cannot be made as it is: it is answered with an error instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._json import brief, loads
from ..errors import ArgumentError
from ..runtime import ToolContext
from ..types import FunctionCall, FunctionDeclaration
from ._base import BaseTool

__all__ = ["UnreadableCall", "cut_off"]


class _Refused(BaseTool):
    """Stands for a tool that is not called; *why* is what the model is told."""

    checks_arguments = False

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name="refused", description="")
        self.name = name
        self._why = why

    @property
    def declaration(self) -> FunctionDeclaration:
        """It has a name, and nothing else matters."""
        return FunctionDeclaration(name=self.name)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Raise ArgumentError."""
        raise ArgumentError(self._why)


class UnreadableCall(_Refused):
    """Stands for the tool of a call whose arguments are no JSON object."""

    def __init__(self, call: FunctionCall) -> None:
        text = call.args_text or ""
        super().__init__(call.name, f"expected the arguments as a JSON object, found {_found(text)}; call it again")


def _found(text: str) -> str:
    try:
        loads(text)
    except (ValueError, RecursionError) as error:
        return f"{brief(text, 200)}, which is no JSON ({error})"
    return brief(text, 200)


def cut_off(calls: Iterable[FunctionCall]) -> dict[str, BaseTool]:
    """Return what stands for the tools of an answer that the limit of tokens has cut off."""
    why = "the call was not made, because your answer was cut off by the limit of its length"
    return {call.name: _Refused(call.name, f"{why}; call again with less, or with less before it") for call in calls}
