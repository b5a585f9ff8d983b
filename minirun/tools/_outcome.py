"""What a call of a tool came to: a result, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from .._fields import EMPTY_LIST
from .._json import FrozenDict, freeze
from ..errors import InvalidValueError
from ..types import Part

__all__ = ["UNKNOWN", "Failure", "Outcome", "Result", "result_of"]

UNKNOWN = "outcome_unknown"


class Result(NamedTuple):
    """What a tool has returned, and the response that it makes."""

    value: Any
    response: FrozenDict
    parts: Sequence[Part]
    """The media in it."""
    is_whole: bool
    """Whether the response is the value itself; else it is `{"result": value}`."""

    @property
    def told(self) -> Any:
        """The value as JSON."""
        return self.response if self.is_whole else self.response["result"]


def result_of(value: Any, name: str) -> Result:
    """
    Return what the tool *name* has returned as a result; what is no JSON, but has one form in it, is converted.

    Raises:
        InvalidValueError: It has none.
    """
    path, is_whole = f"result of {name!r}", isinstance(value, dict)
    try:
        return Result(value, freeze(value if is_whole else {"result": value}, path), EMPTY_LIST, is_whole)
    except InvalidValueError:
        from ._media import told_of  # most results are JSON

        return Result(value, *told_of(value, path), is_whole)


class Failure(NamedTuple):
    """Why a call has no result: what the model is told, and the exception behind it, if there is one."""

    kind: str
    message: str
    error: Exception | None = None
    is_final: bool = False
    """Whether another attempt is out of the question: this one may still be at it, or has done its work."""


Outcome: TypeAlias = Result | Failure
