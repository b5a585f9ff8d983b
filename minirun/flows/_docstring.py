"""
What a docstring says about each parameter, and what it says besides.

Three notations are read, also mixed: Google's section (`Args:` over an indented block), NumPy's (`Parameters`,
underlined with dashes) and Sphinx's fields (`:param city: ...`). A class may call its section `Attributes`.

The rules:

* Only parameters leave the text. Every other section stays, and so does a section in which no parameter is found.
* The lines of a paragraph become one line; blank lines, list items and what is indented further stay as they are.
* No docstring is an error. What cannot be read as a parameter is text.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Docstring", "documentation_of", "parsed_docstring"]

_SURROGATE = re.compile("[\ud800-\udfff]")


class Docstring(NamedTuple):
    """A docstring in two parts."""

    summary_text: str
    """What it says besides its parameters."""

    params: Mapping[str, str]
    """The text of each parameter that has one; stars in front of a name are left out."""


def parsed_docstring(doc: str | None) -> Docstring:
    """Return what *doc* says. It may be indented as it stands in the source; None says nothing."""
    if not isinstance(doc, str):
        return Docstring("", {})
    # A lone surrogate could not be stored, and would fail the tool for a typo in its description.
    text = inspect.cleandoc(_SURROGATE.sub("\ufffd", doc))
    if ":" not in text and "---" not in text:  # no notation does without
        return Docstring(text.strip(), {})
    from ._parameter_docs import without_parameters  # its patterns cost more than reading the other docstrings

    return Docstring(*without_parameters(text))


def documentation_of(func: object) -> Docstring:
    """
    Return what is documented of *func*: a function, method, class, partial, or an object with `__call__`.

    The text about such an object is that of `__call__` or, if it has none, its class's. Its parameters are those of
    `__call__`: a class describes the parameters of its constructor.
    """
    while isinstance(func, functools.partial):
        func = func.func
    if hasattr(func, "__name__"):
        return parsed_docstring(inspect.getdoc(func))
    of_class = parsed_docstring(inspect.getdoc(type(func)))
    call = getattr(type(func), "__call__", None)  # noqa: B004 # not whether it can be called, but what is written there
    of_call = parsed_docstring(call.__doc__ if inspect.isfunction(call) else None)
    return Docstring(of_call.summary_text or of_class.summary_text, of_call.params)
