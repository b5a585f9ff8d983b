"""How often in a row a tool has had the model try again by `ModelRetry`: counted from the log, so over a resume too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ModelRetry, RetriesExceededError
from ..runtime import ToolContext

if TYPE_CHECKING:
    from ._call import ToolCall

__all__ = ["check_retries"]


def check_retries(call: ToolCall, error: ModelRetry) -> None:
    """
    Raise if the model was told to try *call* again as often as its tool allows. Calls of one turn are one try.

    Raises:
        RetriesExceededError: So it is; the run fails.
    """
    retries = call.tool.retries
    if retries is not None and _retries(call.context, call.call.name) >= retries:
        expected = f"expected the tool {call.tool.name!r} to be called as it wants it after retries={retries} in a row"
        raise RetriesExceededError(f"{expected}; at last: {call.context._invocation.secrets.text_of(error)}")


def _retries(context: ToolContext, name: str) -> int:
    """In how many turns in a row the calls of the tool *name* were answered with a retry."""
    events, found = context._invocation.live.events, 0
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.invocation_id != context.invocation_id:
            break
        if event.author != context.agent_name or event.branch != context.branch:
            continue
        responses = [item.response for item in event.get_function_responses() if item.name == name]
        if not responses:
            continue
        if not all(_is_retry(response.get("error")) for response in responses):
            break
        found += 1
    return found


def _is_retry(error: object) -> bool:
    return isinstance(error, dict) and error.get("type") == ModelRetry.__name__
