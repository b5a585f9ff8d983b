"""Tools that come with minirun."""

from __future__ import annotations

from ..flows._questions import GET_USER_CHOICE
from ..runtime import ToolContext
from ._function import FunctionTool, LongRunningFunctionTool

__all__ = ["exit_loop", "get_user_choice", "request_input"]


async def _exit_loop(tool_context: ToolContext) -> None:
    """End the loop that you work in. Call this only when its goal is reached and nothing is left to do in it."""
    tool_context.actions.escalate = True
    tool_context.actions.skip_summarization = True


exit_loop = FunctionTool(_exit_loop, name="exit_loop", on_interrupted="rerun")


async def _get_user_choice(options: list[str]) -> None:
    """
    Let the user choose.

    Args:
        options: What there is to choose from.
    """


# What is asked stands in the call, and asking has no effect. An answer has to be one of the options: see PendingCall.
get_user_choice = LongRunningFunctionTool(_get_user_choice, name=GET_USER_CHOICE, on_interrupted="rerun")


async def _request_input(message: str, tool_context: ToolContext) -> object:
    """
    Ask the user something that you have to know.

    Args:
        message: The question.
    """
    return await tool_context.request_input(message)


request_input = FunctionTool(_request_input, name="request_input", on_interrupted="rerun")
