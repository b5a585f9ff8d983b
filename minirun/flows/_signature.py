"""
A function's signature as a JSON schema, and a model's arguments as that function's arguments.

A model sees a function as a JSON schema and calls it with JSON. Both sides come from one place, the annotations: each
is compiled once into a `Type`, which holds the schema to show and what converts a value.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

from ._docstring import documentation_of
from ._parameters import described, field_of, parameters_of, resolved
from ._types import SCALARS, Field, Type, convert, object_of, plain

__all__ = ["Signature", "function_behind", "signature_of"]


class Signature(NamedTuple):
    """The arguments that a model may give to one function. Nothing but the conversion happens per call."""

    schema: dict[str, Any]
    """A JSON schema of type object. It is shared: copy it before changing it."""

    arguments: Type
    """How they are read."""

    positional: Mapping[str, object]
    """The positional-only parameters, with their defaults."""

    def bind(self, args: Mapping[str, object]) -> tuple[list[Any], dict[str, Any]]:
        """
        Return the positional and the keyword arguments to call the function with.

        What is not in *args* is left to the function's own defaults.

        Raises:
            ArgumentError: Something is unknown, missing or of the wrong type; one line for each problem.
        """
        given = convert(self.arguments, dict(args), "")
        return [given.pop(name, default) for name, default in self.positional.items()], given


def signature_of(func: Callable[..., object], *, skip: Container[str]) -> Signature:
    """
    Read the signature of *func*: a function, a method, a partial or an object with `__call__`, sync or async.

    A `**rest` takes whatever other names the model sends, each with a value of its annotation.

    Parameters in *skip* are left to the caller, who passes them by keyword; the model never hears of them. Nor does
    it hear of the arguments that a partial has fixed. A parameter is described by what its annotation says, or else
    by the docstring.

    Raises:
        TypeError: A parameter cannot be filled from JSON, or its annotation cannot be resolved; or the annotation of
            the result can, and says that there will be none that JSON has a form for.
    """
    function = function_behind(func)
    where = f"{getattr(function, '__qualname__', type(function).__qualname__)}()"
    namespace = getattr(function, "__globals__", {})
    fixed = func.keywords if isinstance(func, functools.partial) else {}
    texts = documentation_of(func).params
    compiler = None
    fields: dict[str, Field] = {}
    positional: dict[str, object] = {}
    rest: Type | None = None
    for parameter in parameters_of(func, where, may_be_open=True):
        name, spot = parameter.name, f"parameter {parameter.name!r} of {where}"
        if name in skip and parameter.kind is parameter.POSITIONAL_ONLY:
            msg = f"{spot} is positional-only, expected one that can be passed by keyword; move it behind the '/'"
            raise TypeError(msg)
        if name in skip or name in fixed:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional[name] = parameter.default
        # One at a time: the annotations of the context and of the result need not resolve.
        hint = resolved(parameter.annotation, f"the annotation {parameter.annotation!r} of {spot}", namespace)
        if isinstance(hint, type) and hint in SCALARS:
            kind = SCALARS[hint]
        else:
            from ._schema import Compiler  # most functions take nothing but strings and numbers

            compiler = compiler or Compiler()
            kind = compiler.compile(hint, spot)
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = kind
        else:
            fields[name] = field_of(described(kind, texts.get(name)), parameter.default)
    arguments = object_of("arguments", fields, dict)
    if rest is not None:
        from ._schema import open_object

        arguments = open_object(arguments, fields, rest, taken={*fixed, *inspect.signature(func).parameters})
    schema = compiler.finish(arguments.schema) if compiler else plain(arguments.schema)
    return Signature(schema, arguments, positional)


def function_behind(func: Any) -> Any:
    """The function whose module the annotations belong to."""
    if isinstance(func, functools.partial):
        return function_behind(func.func)
    if inspect.ismethod(func):
        return function_behind(func.__func__)
    call = type(func).__call__
    return function_behind(call) if inspect.isfunction(call) else inspect.unwrap(func)
