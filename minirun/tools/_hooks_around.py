"""The hooks around a call: those of the plugins, then the agent's own, which call two arguments by other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime._hook_calls import ask
from ..runtime._hooks import Hook

if TYPE_CHECKING:
    from ._call import ToolCall

__all__ = ["ask_around"]


async def ask_around(
    call: ToolCall, plugins: Sequence[Hook], own: Sequence[Hook], args: dict[str, Any], more: Mapping[str, Any]
) -> Any:
    """Ask the hooks until one answers; return that, or None."""
    answer: Any = None
    if plugins:
        theirs = {"result" if argument == "tool_response" else argument: value for argument, value in more.items()}
        answer = await ask(plugins, tool=call.tool, tool_args=args, tool_context=call.context, **theirs)
    if own and answer is None:
        answer = await ask(own, tool=call.tool, args=args, tool_context=call.context, **more)
    return answer
