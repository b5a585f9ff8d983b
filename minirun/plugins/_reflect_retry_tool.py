"""
What a model is told when a tool fails: what went wrong, and to think again, a bounded number of times.

Failures are counted in a row, for each tool of each agent in its branch: a call that succeeds begins anew. For one
invocation they are counted from what models were told, which is in the log, so an invocation that is resumed has no
more tries than another.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from .._json import brief, dumps, freeze, is_count
from ..errors import ConfigurationError, InvalidValueError, RetriesExceededError
from ..flows._words import check_words
from ._base import BasePlugin

if TYPE_CHECKING:
    from ..events import Event
    from ..runtime import InvocationContext, ToolContext
    from ..tools import BaseTool

__all__ = ["REFLECT_AND_RETRY_RESPONSE_TYPE", "ReflectAndRetryToolPlugin", "TrackingScope"]

REFLECT_AND_RETRY_RESPONSE_TYPE = "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN"
"""The `response_type` of the results that the plugin makes."""

# What is remembered of invocations whose cleanup is cut off, and of names that models have made up.
COUNTS_MAX = 10_000

# A traceback of some depth. What a model is told of an error it pays for again with each later question.
DETAILS_CHARS_MAX = 8_000

GUIDANCE = (
    "The call of {tool} failed: {error}\n"
    "This was failure {retry} of at most {max_retries} in a row. Do not make the same call again. Think about why it "
    "failed: wrong or missing arguments, a state of things that has to be changed first, or a tool that is not the "
    "right one. Then call it in another way, or go about it differently."
)
GIVE_UP = (
    "The call of {tool} failed: {error}\n"
    "It has failed more than {max_retries} times in a row. Do not call {tool} again for this; find another way, or say "
    "what could not be done, and why."
)

Key: TypeAlias = tuple[str, str | None, str]
"""An agent, its branch, and a tool: whose failures are counted. Over all invocations it is the tool alone."""


class TrackingScope(StrEnum):
    """Over what failures in a row are counted."""

    INVOCATION = "invocation"
    GLOBAL = "global"
    """All invocations that the plugin sees in this process. It is not stored."""


class ReflectAndRetryToolPlugin(BasePlugin):
    """
    Answers the failing call of a tool with guidance, so that the model can do better.

    The model gets a result with `response_type`, `error_type`, `error_details`, `retry_count` and
    `reflection_guidance`. It decides itself whether it calls the tool again, and each call counts for
    `RunConfig.max_tool_calls`, each question for `max_llm_calls`. A tool's own RetryConfig comes first. Calls of one
    turn are counted one by one.

    Args:
        name: The name of the plugin.
        max_retries: How many failures in a row of one tool are answered so; 0: none. Those of another agent, or of
            the same in another branch, are others.
        throw_exception_if_retry_exceeded: Whether the failure after these fails the run, with the tool's own exception
            or, if it was a result (`extract_error_from_result`), RetriesExceededError. Else the model is told to give
            it up, this time and each time it fails again.
        tracking_scope: Over what they are counted: `"invocation"`, or `"global"`.
        guidance: What the model is told; `{tool}`, `{error}`, `{retry}` and `{max_retries}` are filled in.
        give_up: The same, when the retries are used up.

    Raises:
        ConfigurationError: A setting is none.
    """

    def __init__(
        self,
        name: str = "reflect_and_retry_tool",
        max_retries: int = 3,
        throw_exception_if_retry_exceeded: bool = True,
        tracking_scope: TrackingScope | str = TrackingScope.INVOCATION,
        *,
        guidance: str = GUIDANCE,
        give_up: str = GIVE_UP,
    ) -> None:
        super().__init__(name)
        check_retries(max_retries, throw_exception_if_retry_exceeded)
        if tracking_scope not in tuple(TrackingScope):
            known = ", ".join(map(repr, map(str, TrackingScope)))
            raise ConfigurationError(f"expected tracking_scope to be one of {known}, found {brief(tracking_scope)}")
        for what, text in (("guidance", guidance), ("give_up", give_up)):
            check_words(text, ("tool", "error", "retry", "max_retries"), what)
        self.max_retries = max_retries
        self.throw_exception_if_retry_exceeded = throw_exception_if_retry_exceeded
        self.tracking_scope = TrackingScope(tracking_scope)
        self._guidance = guidance
        self._give_up = give_up
        self._counts: dict[str, dict[Key, int]] = {}  # by invocation id, or "" for all

    async def extract_error_from_result(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> dict[str, Any] | None:
        """
        Say what is wrong with a result that a tool has returned, as a dict; None: nothing. Override it, async or not.

        It is asked for every result of a tool. `{"error_type": ...}` in the dict becomes that of the response.
        """
        return None

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> dict[str, Any]:
        """Answer with guidance, or fail."""
        details = str(error) or type(error).__name__
        return self._answer(tool, tool_context, type(error).__name__, details, error)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> dict[str, Any] | None:
        """Look whether the result is an error after all; if not, the next failure is the first again."""
        if _is_ours(result):
            return None
        found = await in_time(
            self.extract_error_from_result(tool=tool, tool_args=tool_args, tool_context=tool_context, result=result)
        )
        if found is None:
            self._counts_of(tool_context).pop(self._key(tool_context, tool.name), None)
            return None
        if not isinstance(found, dict):
            msg = f"expected extract_error_from_result to return a dict or None, found {brief(found)}"
            raise InvalidValueError("extract_error_from_result", msg)
        kind = found.get("error_type")
        details = dumps(freeze(found, "extract_error_from_result"))
        return self._answer(tool, tool_context, kind if isinstance(kind, str) else "ToolResultError", details, None)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Forget what was counted in it."""
        self._counts.pop(invocation_context.invocation_id, None)

    def _answer(
        self, tool: BaseTool, context: ToolContext, kind: str, details: str, error: Exception | None
    ) -> dict[str, Any]:
        counts, key = self._counts_of(context), self._key(context, tool.name)
        details = readable(details)
        retry = min(counts.get(key, 0), self.max_retries) + 1
        counts[key] = retry
        if len(counts) > COUNTS_MAX:
            del counts[next(iter(counts))]
        exceeded = retry > self.max_retries
        if exceeded and self.throw_exception_if_retry_exceeded:
            msg = f"the tool {tool.name!r} has failed more than max_retries={self.max_retries} times in a row; "
            raise error or RetriesExceededError(f"{msg}at last: {details}")
        words = self._give_up if exceeded else self._guidance
        text = words.format(tool=tool.name, error=details, retry=retry, max_retries=self.max_retries)
        return {
            "response_type": REFLECT_AND_RETRY_RESPONSE_TYPE,
            "error_type": kind,
            "error_details": details,
            "retry_count": retry,
            "reflection_guidance": text.encode("utf-8", "replace").decode(),
        }

    def _key(self, context: ToolContext, tool: str) -> Key:
        is_ours = self.tracking_scope is TrackingScope.INVOCATION
        return (context.agent_name, context.branch, tool) if is_ours else ("", None, tool)

    def _counts_of(self, context: ToolContext) -> dict[Key, int]:
        """The failures in a row; for an invocation that goes on, as its log has them."""
        of = context.invocation_id if self.tracking_scope is TrackingScope.INVOCATION else ""
        counts = self._counts.get(of)
        if counts is None:
            replayer = context._invocation.replayer
            recorded = () if replayer is None or not of else replayer.record.events
            counts = self._counts[of] = _counted(recorded)
            if len(self._counts) > COUNTS_MAX:
                del self._counts[next(iter(self._counts))]
        return counts


def _counted(events: Iterable[Event]) -> dict[Key, int]:
    counts: dict[Key, int] = {}
    for event in events:
        for answer in event.get_function_responses():
            key = (event.author or "", event.branch, answer.name)
            retry = answer.response.get("retry_count") if _is_ours(answer.response) else None
            if isinstance(retry, int):
                counts[key] = retry
            else:
                counts.pop(key, None)
    return counts


def _is_ours(result: object) -> bool:
    return isinstance(result, dict) and result.get("response_type") == REFLECT_AND_RETRY_RESPONSE_TYPE


def check_retries(max_retries: object, throws: object) -> None:
    """
    Check two settings that the plugins for tools and for models have in common.

    Raises:
        ConfigurationError: One is none.
    """
    if not is_count(max_retries):
        raise ConfigurationError(f"expected max_retries to be an integer from 0 up, found {brief(max_retries)}")
    if not isinstance(throws, bool):
        found = f"found {brief(throws)}"
        raise ConfigurationError(f"expected throw_exception_if_retry_exceeded to be True or False, {found}")


def readable(text: str) -> str:
    """A text that can be stored and told, whatever somebody has put into an exception."""
    if len(text) > DETAILS_CHARS_MAX:
        text = f"{text[:DETAILS_CHARS_MAX]}… ({len(text) - DETAILS_CHARS_MAX} more characters)"
    return text.encode("utf-8", "replace").decode()


async def in_time(value: Any) -> Any:
    """What an overridden method has returned, whether it is `async` or not."""
    return await value if inspect.isawaitable(value) else value
