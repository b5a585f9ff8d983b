"""
A function as a tool.

Its signature is the schema that the model sees, and what the model sends is checked against it before the function is
called. Synchronous functions run in worker threads, so that they stop nobody.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Any, Literal, get_type_hints

import trio

from .._json import freeze
from ..errors import ConfigurationError
from ..flows._docstring import documentation_of
from ..flows._schema import signature_of
from ..runtime import ToolContext
from ..types import FunctionDeclaration
from ._base import BaseTool, OnInterrupted
from ._retry import RetryConfig

__all__ = ["FunctionTool", "LongRunningFunctionTool"]

CONTEXT_NAME = "tool_context"


class FunctionTool(BaseTool):
    """
    A tool made from a function.

    A parameter annotated with `ToolContext`, or else one named `tool_context`, gets the context and is not shown to
    the model.

    Args:
        func: A function, sync or async, a method, a `functools.partial` or an object that can be called.
        name: What the model calls it; by default the function's name.
        description: What the model is told; by default the function's docstring, without its parameters: they are
            described in the schema.
        run_in: `"thread"` runs a sync function in a worker thread (the default for those), `"loop"` in trio's own,
            where it stops everything else while it runs.
        timeout_s, retry, max_concurrency, on_interrupted, require_confirmation: See `BaseTool`.

    Raises:
        ConfigurationError, TypeError: The function has no usable name, a parameter that JSON cannot express, or a
            limit is out of its range.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        run_in: Literal["thread", "loop"] | None = None,
        timeout_s: float | None = None,
        retry: RetryConfig | None = None,
        max_concurrency: int | None = None,
        on_interrupted: OnInterrupted = "report",
        require_confirmation: bool | Callable[..., bool | Awaitable[bool]] = False,
    ) -> None:
        if not callable(func):
            msg = f"expected a function, found {func!r:.80}"
            raise ConfigurationError(msg)
        if run_in not in (None, "thread", "loop"):
            msg = f"expected run_in='thread' or 'loop', found {run_in!r:.80}"
            raise ConfigurationError(msg)
        inner = func
        while isinstance(inner, partial):
            inner = inner.func
        if name is None:
            name = getattr(inner, "__name__", type(inner).__name__)
        if description is None:
            description = documentation_of(func).summary_text
        super().__init__(
            name=name,
            description=description,
            timeout_s=timeout_s,
            retry=retry,
            max_concurrency=max_concurrency,
            on_interrupted=on_interrupted,
            require_confirmation=require_confirmation,
        )
        is_async = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004 # not whether it can be called, but how
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            msg = f"expected a function that returns its result, found the generator {name!r}; return a list"
            raise ConfigurationError(msg)
        if is_async and run_in == "thread":
            msg = f"expected a sync function for run_in='thread', found the async {name!r}; leave run_in out"
            raise ConfigurationError(msg)
        self.func = func
        self._in_thread = not is_async and run_in != "loop"
        self._context_parameter = _context_parameter(func, inner)
        self._signature = signature_of(func, skip={self._context_parameter} if self._context_parameter else set())

    @cached_property
    def declaration(self) -> FunctionDeclaration:
        """The tool as the model sees it."""
        return FunctionDeclaration(
            name=self.name, description=self.description, parameters=freeze(self._signature.schema, self.name)
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Check *args* against the signature and call the function."""
        positional, named = self._signature.bind(args)
        if self._context_parameter is not None:
            named[self._context_parameter] = tool_context
        call = partial(self.func, *positional, **named)
        if self._in_thread:
            result = await _in_thread(call, tool_context)
        else:
            result = call()
        return await result if inspect.isawaitable(result) else result


class LongRunningFunctionTool(FunctionTool):
    """
    A tool whose result comes later, from somewhere else.

    The function begins the work. Then the invocation is paused, and whoever has the result sends it:
    `run_async(new_message=pending.reply(result))`, with `pending` from `run.pending` or `list_pending`. What the
    function returns is shown there as its `hint`. Arguments as for `FunctionTool`.
    """

    is_long_running = True


def _context_parameter(func: Callable[..., Any], inner: Callable[..., Any]) -> str | None:
    try:
        parameters = inspect.signature(func).parameters
    except ValueError as error:  # some builtins do not tell
        raise ConfigurationError(f"expected a function with a signature, found {func!r:.80} ({error})") from None
    target = inner if hasattr(inner, "__annotations__") else type(inner).__call__
    try:
        hints = get_type_hints(target)
    except Exception:  # a name that does not resolve is told by signature_of, unless it is the context's own
        hints = dict(getattr(target, "__annotations__", {}))
    for name in parameters:
        if hints.get(name) in (ToolContext, "ToolContext", "CallbackContext"):
            return name
    return CONTEXT_NAME if CONTEXT_NAME in parameters else None


class LateOutcome:
    """
    How the thread of a cancelled call has ended: with `value` or `error` if it is `finished`.

    If it is `revoked` instead, it had not begun and never does. Else nobody knows what it does.
    """

    def __init__(self) -> None:
        self.finished = False
        self.value: Any = None
        self.error: Exception | None = None
        self.revoked = False
        self._ticket = [None]  # for the thread that begins or the task that revokes, whoever takes it first

    def begin(self) -> bool:
        """Say that the thread begins; False if it must not any more."""
        return self._take_ticket()

    def revoke(self) -> bool:
        """Keep the thread from beginning; False if it has begun."""
        self.revoked = self._take_ticket()
        return self.revoked

    def _take_ticket(self) -> bool:
        try:
            self._ticket.pop()  # in CPython no other thread comes between
        except IndexError:
            return False
        return True


async def _in_thread(call: Callable[[], Any], context: ToolContext) -> Any:
    """
    Run *call* in a worker thread.

    A thread cannot be stopped. When this is cancelled, the thread is waited for, up to `RunConfig.thread_grace_s`; what
    it gave by then is left in `context.late`. After that it is abandoned, and nobody knows what it does. If it has not
    begun, because all threads are taken, it never does.
    """
    core = context._core
    late = LateOutcome()
    shield = trio.CancelScope(shield=True)
    done = trio.Event()

    def work() -> Any:
        return call() if late.begin() else None

    async def watch() -> None:
        with shield:
            try:
                late.value = await core.env.run_sync(work, limiter=core.tool_limits.threads, abandon_on_cancel=True)
            except Exception as error:
                late.error = error
            late.finished = True
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        try:
            await done.wait()
        except trio.Cancelled:
            context.late = late
            if late.revoke():
                shield.cancel()
            else:
                shield.deadline = trio.current_time() + core.run_config.thread_grace_s
            raise
    if late.error is not None:
        raise late.error
    return late.value
