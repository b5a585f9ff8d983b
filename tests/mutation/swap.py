"""
Putting changed code into the functions that have the old one, so that nothing needs to be imported again.

Code that ran at import stays what it was: module and class bodies, defaults, decorators. Functions that are made later
(closures, methods of classes in functions) are made from the code around them, which is swapped.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType

__all__ = ["UnswappableError", "functions_by_file", "swap"]


class UnswappableError(Exception):
    """The changed function has other free variables, or nothing has the old code: it must be loaded afresh."""


def functions_by_file() -> dict[str, list[FunctionType]]:
    """All functions that there are, by the file of their code; what is frozen by `gc.freeze` is not found."""
    found: dict[str, list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType:
            found.setdefault(each.__code__.co_filename, []).append(each)
    return found


def swap(functions: Iterable[FunctionType], old: CodeType, new: CodeType) -> int:
    """
    Give every one of *functions* that has code of the module *old* the code of *new* in its place.

    Returns:
        How many have got other code than they had.

    Raises:
        UnswappableError: One has free variables that its new code does not have.
    """
    places = {before: after for before, after in _pairs(old, new) if before != after}
    swapped = 0
    for function in functions:
        code = places.get(function.__code__)
        if code is None:
            continue
        if code.co_freevars != function.__code__.co_freevars:
            msg = f"expected free variables {function.__code__.co_freevars}, found {code.co_freevars}"
            raise UnswappableError(msg)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a generator may have become a function
            function.__code__ = code
        swapped += 1
    return swapped


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """All code in a module with what stands in its place in the other one."""
    yield old, new
    others: dict[tuple[str, int], list[CodeType]] = {}
    for code in _inside(new):
        others.setdefault((code.co_name, code.co_firstlineno), []).append(code)
    for code in _inside(old):
        if found := others.get((code.co_name, code.co_firstlineno)):
            yield from _pairs(code, found.pop(0))


def _inside(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]
