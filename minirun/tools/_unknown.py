"""What stands in the place of a tool that there is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UnknownToolError
from ..runtime import ToolContext
from ..types import FunctionDeclaration
from ._base import BaseTool

__all__ = ["UnknownTool"]


class UnknownTool(BaseTool):
    """Stands for a tool that the model has made up."""

    def __init__(self, name: str, tools: Mapping[str, BaseTool]) -> None:
        super().__init__(name="unknown", description="")
        self.name = name
        self._known = ", ".join(tools) or "none"

    @property
    def declaration(self) -> FunctionDeclaration:
        """It has a name, and nothing else is known."""
        return FunctionDeclaration(name=self.name)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Raise UnknownToolError."""
        raise UnknownToolError(f"there is no tool {self.name!r}; the tools are: {self._known}")
