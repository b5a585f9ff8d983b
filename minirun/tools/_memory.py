"""
Tools that look into what is remembered of the user: one that the model calls, and one that looks on its behalf.

Both need `Runner(memory_service=...)`. What is remembered is what somebody has said, not what is so: models are told.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from .._json import freeze, shown
from ..errors import ArgumentError
from ..flows._prompts import Prompts
from ..memory import MemoryEntry
from ..models import LlmRequestDraft
from ..runtime import CallbackContext, ToolContext
from ..runtime._memory import find_memories
from ..types import FunctionDeclaration
from ._base import BaseTool

__all__ = ["LoadMemoryTool", "PreloadMemoryTool", "load_memory", "preload_memory"]


class LoadMemoryTool(BaseTool):
    """Lets a model search what is remembered of the user, in its own words."""

    def __init__(self) -> None:
        super().__init__(name="load_memory", description=Prompts().load_memory, on_interrupted="rerun")

    @property
    def declaration(self) -> FunctionDeclaration:
        """What the model is told of it."""
        return self._declared(Prompts())

    def _declared(self, prompts: Prompts) -> FunctionDeclaration:
        query = {"type": "string", "description": prompts.load_memory_query}
        parameters = {"type": "object", "properties": {"query": query}, "required": ["query"]}
        return FunctionDeclaration(
            name=self.name, description=prompts.load_memory, parameters=freeze(parameters, self.name)
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Return what was found, the best first: texts, and who has said them when, as far as that is known."""
        query = args.get("query")
        if not isinstance(query, str) or len(args) != 1:
            raise ArgumentError(f"expected a query, a text, and nothing else, found {shown(args)}")
        found = await find_memories(tool_context, query, None, None)
        return {"memories": [_told(memory) for memory in found.memories]}


class PreloadMemoryTool(BaseTool):
    """
    Tells a model what is remembered of the user and fits their message, before it is asked. The model cannot call it.

    It searches once for each message of a run. What it finds goes with the system instruction, this once, and is stored
    nowhere. What was said in the same session is left out: the model sees that anyway.
    """

    def __init__(self) -> None:
        super().__init__(name="preload_memory", description="Tells the model what is remembered.")

    @property
    def declaration(self) -> None:
        """It is not for the model to call."""

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Refuse: it does its work before the model is asked."""
        raise ArgumentError("preload_memory cannot be called: what it finds is in the system instruction")

    async def process_llm_request(self, *, tool_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """Put what is remembered after the instructions."""
        message = tool_context.user_content
        if message is None or not message.text.strip():
            return
        memo, key = tool_context._core.memo, ("preload_memory", message.text)
        if key not in memo:
            memo[key] = await _remembered(tool_context, message.text)
        if memo[key]:
            llm_request.append_instructions([memo[key]])


# So many are told at most, of so many that are looked at: some are of the session itself.
PRELOADED = 10
LOOKED_AT = 50


async def _remembered(context: CallbackContext, text: str) -> str:
    """What is remembered and fits *text*, in the words of the app; empty if there is nothing."""
    prompts, session_id = context._core.prompts, context._core.live.key.session_id
    found = await find_memories(context, text, LOOKED_AT, None)
    others = [memory for memory in found.memories if memory.session_id != session_id][:PRELOADED]
    if not others:
        return ""
    lines = [
        prompts.memory.format(time=_time_of(memory), author=memory.author or "?", text=memory.text) for memory in others
    ]
    return prompts.memories.format(memories="\n".join(lines))


def _told(memory: MemoryEntry) -> dict[str, Any]:
    known = {"text": memory.text, "author": memory.author, "time": _time_of(memory)}
    return {name: value for name, value in known.items() if value}


def _time_of(memory: MemoryEntry) -> str:
    """When it was, to the minute, in UTC; empty if no calendar has that time."""
    try:
        when = datetime.fromtimestamp(memory.timestamp or 0.0, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return when.strftime("%Y-%m-%d %H:%M UTC")


load_memory = LoadMemoryTool()
preload_memory = PreloadMemoryTool()
