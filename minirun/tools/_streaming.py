"""
Streams: tools that give their result bit by bit, in a live run.

Each item is shown as a partial event, which is never stored, and told to the model as an interim result, where it takes
any. What is stored is one response, with all items, or the newest of many.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import trio

from .._json import brief
from ..errors import ConfigurationError, FatalError
from ..events import Event
from ..runtime import ToolContext
from ..types import Content, FunctionResponse, Part
from ._outcome import result_of

if TYPE_CHECKING:
    from ._function import FunctionTool

__all__ = ["ITEMS_MAX", "input_parameters", "live_options", "run_stream"]

# As many items are kept for the response. It stands in every prompt from then on.
ITEMS_MAX: Final = 100

INPUT_NAME = "input_stream"
_LINE = "live line"  # where the line of a live run stands in the memo of its invocation, see `agents._base`


def input_parameters(func: Callable[..., object]) -> set[str]:
    """Return the names of the parameters by which a stream hears what the caller sends: one, or none."""
    parameter = inspect.signature(func).parameters.get(INPUT_NAME)
    if parameter is None:
        return set()
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return {INPUT_NAME} if name.rpartition(".")[2] == "LiveRequestQueue" else set()


def live_options(tool: FunctionTool, cancel_on_interrupt: object, *, can_be_cancelled: bool) -> set[str]:
    """
    Give *tool* its options for live runs, and return the names of the parameters that models do not see.

    Raises:
        ConfigurationError: cancel_on_interrupt is no bool, or has no effect on this tool.
    """
    if not isinstance(cancel_on_interrupt, bool):
        found = brief(cancel_on_interrupt)
        raise ConfigurationError(f"tool {tool.name!r}: expected cancel_on_interrupt True or False, found {found}")
    if cancel_on_interrupt and not can_be_cancelled:
        msg = f"tool {tool.name!r}: cancel_on_interrupt has no effect on a sync function in trio's own thread"
        raise ConfigurationError(f"{msg}; leave it out, or run_in")
    tool.cancel_on_interrupt = cancel_on_interrupt
    return input_parameters(tool.func) if tool.streams else set()


async def run_stream(name: str, call: Callable[..., AsyncGenerator[Any, None]], context: ToolContext) -> Any:
    """
    Run a stream to its end, or until it is stopped, and return its items.

    Raises:
        FatalError: This is no live run, so that nobody hears the items.
    """
    line = context._invocation.memo.get(_LINE)
    if line is None:
        msg = f"expected a live run for {name!r}, found one in writing; a generator is a tool of live runs only"
        raise FatalError(f"{msg}; return a list")
    call_id = context.function_call_id
    items: deque[Any] = deque(maxlen=ITEMS_MAX)
    count = 0
    named = {}
    if INPUT_NAME in input_parameters(call):
        named[INPUT_NAME] = line.inputs[call_id] = line.new_queue()
    try:
        with trio.CancelScope() as scope:
            line.streams[call_id] = name, scope
            async with aclosing(call(**named)) as stream:
                async for item in stream:
                    response = context._invocation.secrets.out_of(result_of(item, name).response)
                    items.append(response.get("result", response))
                    count += 1
                    answer = FunctionResponse(id=call_id, name=name, response=response)
                    content = Content(role="user", parts=[Part(function_response=answer)])
                    await context.emit(Event(content=content, partial=True))
                    await line.tell_item(answer)
    finally:
        line.streams.pop(call_id, None)
        queue = line.inputs.pop(call_id, None)
        if queue is not None:
            queue.close()
    kept = list(items)
    return {"result": kept, "left_out": count - len(kept)} if count > len(kept) else {"result": kept}
