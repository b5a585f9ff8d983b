"""What a tool is to minirun."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from ..errors import ConfigurationError
from ..runtime import ToolContext
from ..types import FunctionDeclaration

__all__ = ["BaseTool"]

# What the strictest providers accept as the name of a function.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class BaseTool(ABC):
    """
    Something that a model can call.

    Args:
        name: What the model calls it: letters, digits, `_` and `-`, at most 64, not beginning with a digit.
        description: What the model is told about it.
    """

    def __init__(self, *, name: str, description: str) -> None:
        if not _NAME.fullmatch(name):
            msg = f"expected a tool name of up to 64 letters, digits, '_' and '-', found {name!r:.80}; name it"
            raise ConfigurationError(msg)
        self.name = name
        self.description = description

    @property
    @abstractmethod
    def declaration(self) -> FunctionDeclaration:
        """The tool as the model sees it."""

    @abstractmethod
    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """
        Do it, and return a JSON value: a dict is the response as it is, anything else becomes `{"result": value}`.

        An exception becomes an error response to the model, and what was written to `tool_context.state` is dropped;
        a FatalError ends the run. *args* is what the model sent, a copy.
        """

    async def close(self) -> None:
        """Give back what the tool holds; `Runner.close` calls it, once."""
