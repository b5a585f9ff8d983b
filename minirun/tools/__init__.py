"""Tools: what a model can call."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ..agents import AgentTool as AgentTool
    from ..flows._questions import ToolConfirmation as ToolConfirmation
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
    from ._tool_options import ToolOptions as ToolOptions
    from ._toolset import BaseToolset as BaseToolset
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "..agents": "AgentTool",  # an agent, and so above the tools; ADK has it here
            "..flows._questions": "ToolConfirmation",
            "..runtime": "ToolContext",
            "._base": "BaseTool",
            "._builtin": "exit_loop get_user_choice request_input",
            "._function": "FunctionTool LongRunningFunctionTool",
            "._load_artifacts": "LoadArtifactsTool load_artifacts",
            "._memory": "load_memory preload_memory",
            "._retry": "RetryConfig",
            "._tool_options": "ToolOptions",
            "._toolset": "BaseToolset",
        },
    )
