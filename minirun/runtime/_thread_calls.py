"""Functions that a context runs in worker threads, for tools and callbacks that would stop the loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .._json import brief
from .._threads import LateOutcome
from ..errors import ConfigurationError

if TYPE_CHECKING:
    from ._base_context import ReadonlyContext

__all__ = ["run_in_thread"]

T = TypeVar("T")


async def run_in_thread(context: ReadonlyContext, func: Callable[..., object], call: Callable[[], T]) -> T:
    """See `ToolContext.run_in_thread`: make the *call* of *func*."""
    if inspect.iscoroutinefunction(func):
        msg = f"expected a synchronous function for a thread, found the async {brief(func)}; await it instead"
        raise ConfigurationError(msg)
    late: list[LateOutcome] = []
    try:
        result: T = await context._invocation.in_thread(call, late.append)
    except BaseException:
        note = getattr(context, "_ended_late", None)  # a tool's call is answered as of unknown outcome
        if note is not None and late and not (late[0].finished or late[0].revoked):
            note(late[0])
        raise
    return result
