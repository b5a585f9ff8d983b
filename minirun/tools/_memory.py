"""
Tools that look into what is remembered of the user: one that the model calls, and one that looks on its behalf.

Both need `Runner(memory_service=...)`. Of a memory at most 2 000 characters are told, of all that were found 10 000; a
text says where it is cut. What is remembered is what somebody has said, not what is so: models are told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from .._json import shown
from ..errors import ArgumentError
from ..flows._prompts import Prompts
from ..memory import MemoryEntry
from ..memory._run import find_memories
from ..models import LlmRequestDraft
from ..runtime import CallbackContext, ToolContext
from ..types import FunctionDeclaration
from ._base import BaseTool
from ._declared import declared

__all__ = ["LoadMemoryTool", "PreloadMemoryTool", "load_memory", "preload_memory"]


class LoadMemoryTool(BaseTool):
    """Lets a model search what is remembered of the user, in its own words."""

    checks_arguments = False  # it does so itself
    needs_service = "memory_service"

    def __init__(self) -> None:
        super().__init__(name="load_memory", description=Prompts().load_memory, on_interrupted="rerun")

    @property
    def declaration(self) -> FunctionDeclaration:
        """What the model is told of it."""
        return self._declared(Prompts())

    def _declared(self, prompts: Prompts) -> FunctionDeclaration:
        query = {"type": "string", "description": prompts.load_memory_query}
        return declared(self.name, prompts.load_memory, query=query)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Return what was found, the best first: texts, with author and time, as far as these are known."""
        query = args.get("query")
        if not isinstance(query, str) or len(args) != 1:
            raise ArgumentError(f"expected a query, a text, and nothing else, found {shown(args)}")
        found = await find_memories(tool_context, query, None, None)
        return {"memories": [_told(memory, text) for memory, text in _cut(found.memories)]}


class PreloadMemoryTool(BaseTool):
    """
    Tells a model what is remembered of the user and fits their message, before it is asked. The model cannot call it.

    It searches once for each message of a run: with the message, of which the rarest of 128 words count
    (`search_memory`). What it finds goes with the system instruction, this once, and is stored nowhere: at most ten
    memories, each on one line. What was said earlier in the same session is told, too: whether the model sees that
    anyway depends on what plugins, windows and `include_contents` leave of it. What the message itself repeats is not.
    """

    checks_arguments = False  # it does so itself
    needs_service = "memory_service"

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
        memo, key = tool_context._invocation.memo, ("preload_memory", message.text)
        if key not in memo:
            memo[key] = await _remembered(tool_context, message.text)
        if memo[key]:
            llm_request.append_instructions([memo[key]])


# So many are told at most.
PRELOADED = 10

# Of each so much is told at most, a page, and of all together five: a model pays for it with each question.
MEMORY_CHARS_MAX = 2_000
TOLD_CHARS_MAX = 10_000


async def _remembered(context: CallbackContext, text: str) -> str:
    """What is remembered and fits *text*, in the words of the app; empty if there is nothing."""
    prompts = context._invocation.program.prompts
    found = await find_memories(context, text, PRELOADED + 1, None)
    others = [memory for memory in found.memories if memory.text != text][:PRELOADED]
    lines = [
        prompts.memory.format(
            time=_time_of(memory) or "?", author=_on_one_line(memory.author or "?"), text=_on_one_line(told)
        )
        for memory, told in _cut(others)
    ]
    return prompts.memories.format(memories="\n".join(lines)) if lines else ""


def _on_one_line(text: str) -> str:
    """Words without line breaks: what somebody has said cannot look like a heading, or like another memory."""
    return " ".join(text.split())


def _cut(memories: Sequence[MemoryEntry]) -> Iterator[tuple[MemoryEntry, str]]:
    """Memories and what is told of their texts, as many as there is room for."""
    room = TOLD_CHARS_MAX
    for memory in memories:
        text = memory.text
        if len(text) > MEMORY_CHARS_MAX:
            text = f"{text[:MEMORY_CHARS_MAX]}… ({len(text) - MEMORY_CHARS_MAX} more characters)"
        room -= len(text)
        if room >= 0:
            yield memory, text


def _told(memory: MemoryEntry, text: str) -> dict[str, Any]:
    known = {"text": text, "author": memory.author, "time": _time_of(memory)}
    return {name: value for name, value in known.items() if value}


def _time_of(memory: MemoryEntry) -> str:
    """When it was, to the minute, in UTC; empty if that is not known, or no calendar has it."""
    if memory.timestamp is None:
        return ""
    try:
        when = datetime.fromtimestamp(memory.timestamp, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return when.strftime("%Y-%m-%d %H:%M UTC")


load_memory = LoadMemoryTool()
preload_memory = PreloadMemoryTool()
