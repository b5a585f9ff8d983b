"""Tools: what a model can call."""

from ..runtime import ToolContext as ToolContext
from ._base import BaseTool as BaseTool
from ._builtin import exit_loop as exit_loop
from ._builtin import get_user_choice as get_user_choice
from ._builtin import request_input as request_input
from ._function import FunctionTool as FunctionTool
from ._function import LongRunningFunctionTool as LongRunningFunctionTool
from ._load_artifacts import LoadArtifactsTool as LoadArtifactsTool
from ._load_artifacts import load_artifacts as load_artifacts
from ._memory import load_memory as load_memory
from ._memory import preload_memory as preload_memory
from ._retry import RetryConfig as RetryConfig
from ._toolset import BaseToolset as BaseToolset

__all__ = [
    "BaseTool",
    "BaseToolset",
    "FunctionTool",
    "LoadArtifactsTool",
    "LongRunningFunctionTool",
    "RetryConfig",
    "ToolContext",
    "exit_loop",
    "get_user_choice",
    "load_artifacts",
    "load_memory",
    "preload_memory",
    "request_input",
]
