"""Tools: what a model can call."""

from ..runtime import ToolContext as ToolContext
from ._base import BaseTool as BaseTool
from ._function import FunctionTool as FunctionTool

__all__ = ["BaseTool", "FunctionTool", "ToolContext"]
