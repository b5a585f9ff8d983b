"""Tools that come with minirun."""

from __future__ import annotations

from ..runtime import ToolContext
from ._function import FunctionTool

__all__ = ["exit_loop"]


async def _exit_loop(tool_context: ToolContext) -> None:
    """End the loop that you work in. Call this only when its goal is reached and nothing is left to do in it."""
    tool_context.actions.escalate = True
    tool_context.actions.skip_summarization = True


exit_loop = FunctionTool(_exit_loop, name="exit_loop")
