"""
Does a JSON value fit a type of an official SDK? Stricter than the SDKs: a key that a TypedDict has not is refused.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import typing_extensions

__all__ = ["problem_with"]

_hints: dict[Any, dict[str, Any]] = {}


def problem_with(value: Any, expected: Any, path: str = "body") -> str | None:
    """Return what is wrong with a JSON value of that type, with the path to it; None: nothing."""
    expected = _bare(expected)
    origin = get_origin(expected)
    if expected in (Any, object):
        return None
    if typing_extensions.is_typeddict(expected):
        return _in_dict(value, expected, path)
    if origin in (Union, types.UnionType):
        return _in_union(value, get_args(expected), path)
    if origin is Literal:
        fits = value in get_args(expected)
    elif origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            return f"{path}: expected an object, found {value!r:.80}"
        return _first(problem_with(item, get_args(expected)[1], f"{path}.{key}") for key, item in value.items())
    elif origin is not None and issubclass(origin, Iterable):
        if not isinstance(value, list):
            return f"{path}: expected a list, found {value!r:.80}"
        item_type = get_args(expected)[0]
        return _first(problem_with(item, item_type, f"{path}[{index}]") for index, item in enumerate(value))
    elif expected is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    elif expected is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif expected in (None, type(None)):
        fits = value is None
    elif isinstance(expected, type) and expected in (str, bool):
        fits = isinstance(value, expected)
    else:
        fits = False  # files and the like, which JSON does not have
    return None if fits else f"{path}: expected {expected}, found {value!r:.80}"


def _bare(expected: Any) -> Any:
    while get_origin(expected) in (
        typing.Annotated, typing.Required, typing.NotRequired, typing_extensions.Required, typing_extensions.NotRequired
    ):  # fmt: skip
        expected = get_args(expected)[0]
    return expected


def _in_dict(value: Any, expected: Any, path: str) -> str | None:
    if not isinstance(value, dict):
        return f"{path}: expected an object, found {value!r:.80}"
    if expected not in _hints:
        _hints[expected] = typing_extensions.get_type_hints(expected)
    hints, config = _hints[expected], getattr(expected, "__pydantic_config__", {})
    missing = sorted(expected.__required_keys__ - value.keys())
    if missing:
        return f"{path}.{missing[0]}: Field required"
    unknown = sorted(value.keys() - hints.keys())
    if unknown and config.get("extra") != "allow":
        return f"{path}.{unknown[0]}: Extra inputs are not permitted"
    return _first(problem_with(item, hints.get(key, Any), f"{path}.{key}") for key, item in value.items())


def _in_union(value: Any, members: Sequence[Any], path: str) -> str | None:
    problems = [problem_with(value, member, path) for member in members]
    if None in problems:
        return None
    return max((problem for problem in problems if problem), key=lambda problem: problem.count("."))


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)
