"""
What a docstring says about each parameter, and what it says besides.

Google's notation is read: a section `Args:` over an indented block. A class may call its section `Attributes`.

The rules:

* Only parameters leave the text. Every other section stays, and so does a section in which no parameter is found.
* The lines of a paragraph become one line; blank lines, list items and what is indented further stay as they are.
* No docstring is an error. What cannot be read as a parameter is text.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Docstring", "documentation_of", "parsed_docstring"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_TITLES = frozenset(
    {
        "args",
        "arguments",
        "attributes",
        "keyword args",
        "keyword arguments",
        "other parameters",
        "parameters",
        "params",
    }
)
_ENTRY = re.compile(r"\s*(?P<names>\*{0,2}\w+(?:, *\*{0,2}\w+)*)(?: *\(.*?\))? *:(?:\s+(?P<text>.*))?$")
# A line break inside a paragraph: what follows is no blank line, no list item and not indented.
_WRAP = re.compile(r"(?<!\n)\n(?![\n ]|[-*+•] |\d+[.)] )")


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
    return Docstring(*_without_parameters(text)) if ":" in text else Docstring(text.strip(), {})


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


def _without_parameters(text: str) -> tuple[str, dict[str, str]]:
    """Return what is left of a docstring without its parameters, and the text of each that has one."""
    lines = text.split("\n")
    kept: list[str] = []
    params: dict[str, str] = {}
    at = 0
    while at < len(lines):
        found = _google_section(lines, at)
        if found is None:
            kept.append(lines[at])
            at += 1
            continue
        entries, at = found
        for name, text in entries:
            if text:
                params.setdefault(name, text)
        while at < len(lines) and _is_blank(lines[at]) and (not kept or _is_blank(kept[-1])):
            at += 1  # where a section was, one blank line is enough
    return "\n".join(kept).strip(), params


def _google_section(lines: Sequence[str], at: int) -> tuple[list[tuple[str, str]], int] | None:
    """Return the parameters of a section with their texts, and the index of the line behind it."""
    title = lines[at].rstrip()
    if not title.endswith(":") or title[:-1].lower() not in _TITLES:
        return None
    end = _behind_block(lines, at)
    entries = _entries(lines[at + 1 : end])
    return (entries, end) if entries else None


def _entries(lines: Iterable[str]) -> list[tuple[str, str]]:
    """The parameters in the lines of a section. Each begins at the indentation of the first line."""
    texts: list[tuple[str, list[str]]] = []
    level: int | None = None
    for line in lines:
        if level is None and not _is_blank(line):
            level = _indent(line)
        match = _ENTRY.match(line) if level is not None and _indent(line) <= level else None
        if match:
            texts.append((match["names"], [match["text"] or ""]))
        elif texts:
            texts[-1][1].append(line)
    return [
        (name.strip().lstrip("*"), text)
        for names, parts in texts
        for text in [_unwrapped(parts)]
        for name in names.split(",")
    ]


def _unwrapped(lines: Sequence[str]) -> str:
    return _WRAP.sub(" ", inspect.cleandoc("\n".join(line.rstrip() for line in lines))).strip()


def _behind_block(lines: Sequence[str], at: int) -> int:
    """The index behind the lines that are indented under this one."""
    end = at + 1
    for index in range(at + 1, len(lines)):
        if not _is_blank(lines[index]):
            if _indent(lines[index]) <= _indent(lines[at]):
                break
            end = index + 1
    return end


def _is_blank(line: str) -> bool:
    return not line.strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
