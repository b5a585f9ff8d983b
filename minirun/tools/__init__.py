"""Tools: what a model can call."""

from ..runtime import ToolContext as ToolContext
from ._base import BaseTool as BaseTool
from ._builtin import exit_loop as exit_loop
from ._function import FunctionTool as FunctionTool
from ._retry import RetryConfig as RetryConfig
from ._toolset import BaseToolset as BaseToolset

__all__ = ["BaseTool", "BaseToolset", "FunctionTool", "RetryConfig", "ToolContext", "exit_loop"]
