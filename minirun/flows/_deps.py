"""What an application has handed to a run, as what a tool, an agent or a callback needs it to be."""

from __future__ import annotations

from typing import TypeVar

from .._json import brief
from ..errors import MissingDepsError, NotSupportedError

__all__ = ["deps_of_kind"]

T = TypeVar("T")


def deps_of_kind(deps: object, kind: type[T]) -> T:
    """
    Return *deps*, which is an instance of *kind*.

    Raises:
        NotSupportedError: *kind* is nothing that `isinstance` can tell by looking at the object alone.
        MissingDepsError: It is no instance.
    """
    msg = f"expected a class as the kind of deps, found {brief(kind)}"
    if not isinstance(kind, type):
        raise NotSupportedError(f"{msg}; name a class without parameters, or look at `ctx.deps` itself")
    try:
        if isinstance(deps, kind):
            return deps
    except TypeError as error:
        raise NotSupportedError(f"{msg}, of which Python cannot say what its instances are: {error}") from error
    msg = f"expected the run to be given a {kind.__qualname__} as deps, found {type(deps).__qualname__}"
    raise MissingDepsError(f"{msg}; they are not stored: give `deps=` to whatever begins or resumes a run")
