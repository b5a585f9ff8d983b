"""What few tools have: limits, questions whether a call may be made, and parameters that no signature checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from .._json import brief, is_count, is_seconds
from ..errors import ArgumentError, ConfigurationError
from ..flows._json_schema import Checker, compile_schema
from ..types import FunctionDeclaration
from ._retry import RetryConfig

if TYPE_CHECKING:
    from ..runtime import ToolContext
    from ._base import BaseTool

__all__ = ["check_arguments", "check_options", "checker_of", "is_required", "refuse_function"]


def check_options(
    name: str,
    timeout_s: object,
    retry: object,
    retries: object,
    max_concurrency: object,
    on_interrupted: object,
    require_confirmation: object,
    sequential: object,
) -> None:
    """Raise ConfigurationError if an option of the tool *name* is out of its range."""

    def check(fits: bool, expected: str, found: object) -> None:
        if not fits:
            raise ConfigurationError(f"tool {name!r}: expected {expected}, found {brief(found)}")

    check(on_interrupted in ("report", "rerun", "ask"), "on_interrupted 'report', 'rerun' or 'ask'", on_interrupted)
    is_condition = isinstance(require_confirmation, bool) or callable(require_confirmation)
    check(is_condition, "require_confirmation to be True, False or a function", require_confirmation)
    check(isinstance(sequential, bool), "sequential to be True or False", sequential)
    is_time = timeout_s is None or is_seconds(timeout_s, above=0)
    check(is_time, "timeout_s to be seconds above 0, or None", timeout_s)
    check(retry is None or isinstance(retry, RetryConfig), "retry to be a RetryConfig, or None", retry)
    is_bound = retries is None or is_count(retries)
    check(is_bound, "retries to be an integer from 0 up, or None", retries)
    is_limit = max_concurrency is None or is_count(max_concurrency, 1)
    check(is_limit, "max_concurrency to be an integer from 1 up", max_concurrency)


async def is_required(required: Callable[..., Any], args: Mapping[str, Any], tool_context: ToolContext) -> bool:
    """Ask a `require_confirmation` that is a function."""
    named = dict(args)
    if "tool_context" in inspect.signature(required).parameters:
        named["tool_context"] = tool_context
    answer = required(**named)
    return bool(await answer if inspect.isawaitable(answer) else answer)


def refuse_function(func: object, run_in: object, name: str) -> NoReturn:
    """Raise ConfigurationError for what cannot be a tool, or not in this way."""
    if not callable(func):
        raise ConfigurationError(f"expected a function, found {brief(func)}")
    if run_in not in (None, "thread", "loop"):
        raise ConfigurationError(f"expected run_in='thread' or 'loop', found {brief(run_in)}")
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        msg = f"expected a function that returns its result, found the generator {name!r}; return a list"
        raise ConfigurationError(msg)
    msg = f"expected a sync function for run_in='thread', found the async {name!r}; leave run_in out"
    raise ConfigurationError(msg)


def checker_of(tool: BaseTool, declaration: FunctionDeclaration) -> Checker:
    """
    Return what checks the arguments of a tool. It is made once for a declaration.

    Raises:
        ConfigurationError: The schema cannot be checked.
    """
    parameters = declaration.parameters
    known: tuple[Any, Checker] | None = vars(tool).get("_checker")
    if known is None or known[0] is not parameters:  # equal ones may differ: 1 and true
        try:
            what = f"parameters of tool {tool.name!r}"
            known = parameters, compile_schema(parameters, what, patterns=tool._checks_patterns)
        except ConfigurationError as error:
            msg = f"{error}; or check the arguments in run_async, and set checks_arguments = False in the class"
            raise ConfigurationError(msg) from None
        vars(tool)["_checker"] = known
    return known[1]


def check_arguments(tool: BaseTool, args: Mapping[str, Any]) -> None:
    """Raise ArgumentError if *args* do not fit what the tool declares."""
    declaration = tool.declaration
    problems = [] if declaration is None else checker_of(tool, declaration).problems(args)
    if problems:
        raise ArgumentError("\n".join(problems))
