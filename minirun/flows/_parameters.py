"""
The parameters of a function or class, and what each may be given.

A parameter is described by what its annotation says, or else by the docstring.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace
from typing import Any, get_type_hints

import attrs

from ._types import Field, Type

__all__ = ["EMPTY", "described", "field_of", "hints_of", "parameters_of", "resolved"]

EMPTY = inspect.Parameter.empty  # no default, or no annotation


def parameters_of(func: Callable[..., object], where: str, *, may_be_open: bool = False) -> list[inspect.Parameter]:
    """
    Return the parameters of *func*, which messages call *where*.

    Raises:
        TypeError: It has none that can be read, or one that takes any number of arguments, unless it is one for names
            and it *may_be_open*.
    """
    try:
        parameters = list(inspect.signature(func).parameters.values())
    except ValueError as error:
        msg = f"{where}: expected a function with a signature, found none ({error}); wrap it in a function of your own"
        raise TypeError(msg) from None
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL or (parameter.kind is parameter.VAR_KEYWORD and not may_be_open):
            star = str(parameter).partition(":")[0]
            msg = f"{where}: expected named parameters only, found {star}; name each one, or take a list or a dict"
            raise TypeError(msg)
    return parameters


def hints_of(owner: Any, what: str, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """
    Return the annotations of *owner*, resolved. *what* is what messages call them.

    Raises:
        TypeError: One names something that is not there.
    """
    try:
        return get_type_hints(owner, namespace, include_extras=True)
    except (NameError, SyntaxError, AttributeError, TypeError, IndexError) as error:  # somebody's string was evaluated
        msg = f"cannot resolve {what} ({error}); define or import what it names at the top of its module"
        raise TypeError(msg) from None


def resolved(annotation: object, what: str, namespace: dict[str, Any]) -> Any:
    """Return what one annotation means; as `hints_of`, which raises the same."""
    return hints_of(SimpleNamespace(__annotations__={"it": annotation}), what, namespace)["it"]


def described(kind: Type, text: str | None) -> Type:
    """Return the type with this description, unless it has one."""
    if not text or "description" in kind.schema:
        return kind
    return kind._replace(schema={**kind.schema, "description": text})


def field_of(kind: Type, default: Any) -> Field:
    """Return a field of this type with this default, or none; its schema shows the default if JSON can."""
    if default is EMPTY:
        return Field(kind, required=True)
    if default is attrs.NOTHING:  # a factory of an attrs class; it is an Enum that JSON could show
        return Field(kind, required=False)
    try:
        shown = json.loads(json.dumps(default.value if isinstance(default, Enum) else default, allow_nan=False))
    except (TypeError, ValueError):
        return Field(kind, required=False)
    return Field(kind._replace(schema={**kind.schema, "default": shown}), required=False)
