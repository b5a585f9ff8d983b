"""What a call of a tool came to: a result, or why there is none."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from .._json import FrozenDict, freeze

__all__ = ["UNKNOWN", "Failure", "Outcome", "Result", "result_of"]

UNKNOWN = "outcome_unknown"


class Result(NamedTuple):
    """What a tool has returned, and the response that it makes."""

    value: Any
    response: FrozenDict


def result_of(value: Any, name: str) -> Result:
    """
    Return what the tool *name* has returned as a result.

    Raises:
        InvalidValueError: It is no JSON.
    """
    return Result(value, freeze(value if isinstance(value, dict) else {"result": value}, f"result of {name!r}"))


class Failure(NamedTuple):
    """Why a call has no result: what the model is told, and the exception behind it, if there is one."""

    kind: str
    message: str
    error: Exception | None = None
    is_final: bool = False
    """Whether another attempt is out of the question: this one may still be at it, or has done its work."""


Outcome: TypeAlias = Result | Failure
