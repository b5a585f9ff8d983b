"""Callbacks that block, in worker threads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from .._json import brief
from ..errors import ConfigurationError
from ..runtime import ReadonlyContext
from ..runtime._thread_calls import run_in_thread

__all__ = ["in_thread"]

P = ParamSpec("P")
T = TypeVar("T")


def in_thread(callback: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """
    Return *callback* as one that is called in a worker thread: `LlmAgent(before_tool_callback=in_thread(look_up))`.

    A synchronous callback stops the whole loop while it runs: every other run, and the caller's tasks. This one stops
    only what waits for it. It serves for callbacks of agents, models and tools, for hooks of plugins (as a decorator),
    and for instructions that are functions. What a cancelled run does with the thread: see `ToolContext.run_in_thread`.
    Among its arguments has to be the context, from which it may write to the state; but only async code can `emit`.

    Raises:
        ConfigurationError: *callback* is no function, or async. When it is called: it was given no context.
    """
    if not callable(callback) or inspect.iscoroutinefunction(callback):
        msg = f"expected a synchronous function, found {brief(callback)}; async ones do not block"
        raise ConfigurationError(msg)

    @wraps(callback)
    async def call(*args: P.args, **named: P.kwargs) -> T:
        given = (*args, *named.values())
        context = next((each for each in given if isinstance(each, ReadonlyContext)), None)
        if context is None:
            msg = f"expected {brief(callback)} to be called with a context, as callbacks are, found none"
            raise ConfigurationError(msg)
        return await run_in_thread(context, callback, partial(callback, *args, **named))

    return call
