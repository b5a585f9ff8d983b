"""
A function as a tool.

Its signature is the schema that the model sees, and what the model sends is checked against it before the function is
called. Synchronous functions run in worker threads, so that they stop nobody.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack, get_type_hints

from .._json import brief, freeze
from ..errors import ConfigurationError
from ..flows._docstring import documentation_of
from ..flows._signature import signature_of
from ..runtime import ToolContext
from ..types import FunctionDeclaration
from ._base import BaseTool

if TYPE_CHECKING:
    from ._tool_options import ToolOptions

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
        options: `timeout_s`, `retry`, `retries`, `max_concurrency`, `on_interrupted`, `require_confirmation` and
            `sequential`; see `BaseTool`.

    Raises:
        ConfigurationError, TypeError: The function has no usable name, a parameter that JSON cannot express, an
            annotation of its result that says the same, or a limit is out of its range.
    """

    checks_arguments = False  # the signature does

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        run_in: Literal["thread", "loop"] | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        if not callable(func) or run_in not in (None, "thread", "loop"):
            _refuse(func, run_in)
        inner = func
        while isinstance(inner, partial):
            inner = inner.func
        name = getattr(inner, "__name__", type(inner).__name__) if name is None else name
        description = documentation_of(func).summary_text if description is None else description
        super().__init__(name=name, description=description, **options)
        is_async = any(map(inspect.iscoroutinefunction, (inner, getattr(inner, "__call__", None))))  # noqa: B004 # not whether it can be called, but how
        is_generator = inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)
        if is_generator or (is_async and run_in == "thread"):
            _refuse(inner, run_in, name)
        self.func = func
        self._in_thread = not is_async and run_in != "loop"
        self._context_parameter = _context_parameter(func, inner)
        skip = {self._context_parameter} if self._context_parameter else set()
        self._signature = signature_of(func, skip=skip)

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
            result = await tool_context._invocation.in_thread(call, tool_context._ended_late)
        else:
            result = call()
        return await result if inspect.isawaitable(result) else result


class LongRunningFunctionTool(FunctionTool):
    """
    A tool whose result comes later, from somewhere else.

    The function begins the work. Then the invocation is paused, and the result is sent as a message:
    `run_async(new_message=pending.reply(result))`, with `pending` from `run.pending` or `list_pending`. What the
    function returns is shown there as its `hint`. Arguments as for `FunctionTool`.
    """

    is_long_running = True


def _refuse(func: object, run_in: object, name: str = "") -> NoReturn:
    from ._options import refuse_function

    refuse_function(func, run_in, name)


def _context_parameter(func: Callable[..., Any], inner: Callable[..., Any]) -> str | None:
    try:
        parameters = inspect.signature(func).parameters
    except ValueError as error:  # some builtins do not tell
        raise ConfigurationError(f"expected a function with a signature, found {brief(func)} ({error})") from None
    target = inner if hasattr(inner, "__annotations__") else type(inner).__call__
    try:
        hints = get_type_hints(target)
    except Exception:  # a name that does not resolve is told by signature_of, unless it is the context's own
        hints = dict(getattr(target, "__annotations__", {}))
    found = (name for name in parameters if hints.get(name) in (ToolContext, "ToolContext", "CallbackContext"))
    return next(found, CONTEXT_NAME if CONTEXT_NAME in parameters else None)
