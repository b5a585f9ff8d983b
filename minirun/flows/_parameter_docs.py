"""
The three notations in which docstrings describe parameters: Google's, NumPy's and Sphinx's (see `_docstring`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

__all__ = ["without_parameters"]

# A section or field: the parameters in it with their texts, and the index of the line behind it.
_Found: TypeAlias = tuple[list[tuple[str, str]], int]

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
_FIELDS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword", "type"})

_NAMES = r"(?P<names>\*{0,2}\w+(?:, *\*{0,2}\w+)*)"
_GOOGLE_ENTRY = re.compile(rf"\s*{_NAMES}(?: *\(.*?\))? *:(?:\s+(?P<text>.*))?$")
_NUMPY_ENTRY = re.compile(rf"{_NAMES}(?:\s*:.*)?(?P<text>)$")
_UNDERLINE = re.compile(r"-{3,}\s*$")
# A line break inside a paragraph: what follows is no blank line, no list item and not indented.
_WRAP = re.compile(r"(?<!\n)\n(?![\n ]|[-*+•] |\d+[.)] )")


def without_parameters(text: str) -> tuple[str, dict[str, str]]:
    """Return what is left of a docstring without its parameters, and the text of each that has one."""
    lines = text.split("\n")
    kept: list[str] = []
    params: dict[str, str] = {}
    at = 0
    while at < len(lines):
        found = _google_section(lines, at) or _numpy_section(lines, at) or _sphinx_field(lines, at)
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


# --- the three notations ----------------------------------------------------------------------------------------------


def _google_section(lines: Sequence[str], at: int) -> _Found | None:
    title = lines[at].rstrip()
    if not title.endswith(":") or title[:-1].lower() not in _TITLES:
        return None
    end = _behind_block(lines, at)
    entries = _entries(lines[at + 1 : end], _GOOGLE_ENTRY)
    return (entries, end) if entries else None


def _numpy_section(lines: Sequence[str], at: int) -> _Found | None:
    if lines[at].rstrip().lower() not in _TITLES or not _is_underlined(lines, at):
        return None
    end = at + 2
    while end < len(lines):
        line = lines[end]
        if not _is_blank(line) and not _indent(line):
            # Behind a blank line, a word may as well begin a paragraph, unless something is indented under it.
            alone = _is_blank(lines[end - 1]) and _behind_block(lines, end) == end + 1
            if alone or _is_underlined(lines, end) or not _NUMPY_ENTRY.match(line):
                break
        end += 1
    entries = _entries(lines[at + 2 : end], _NUMPY_ENTRY)
    return (entries, end) if entries else None


def _sphinx_field(lines: Sequence[str], at: int) -> _Found | None:
    line = lines[at].lstrip()
    head, colon, text = line[1:].partition(":")
    words = head.split()
    if not line.startswith(":") or not colon or len(words) < 2 or words[0] not in _FIELDS:
        return None
    end = _behind_block(lines, at)
    indented, more = end, lines[at + 1 : end]
    while end < len(lines) and not (_is_blank(lines[end]) or lines[end].lstrip().startswith(":")):
        end += 1  # many do not indent what goes on in the next line; a blank line, or another field, ends it
    if end > indented:
        more = [line.strip() for line in lines[at + 1 : end]]
    name = words[-1].lstrip("\\*")
    return [(name, "" if words[0] == "type" else _unwrapped([text, *more]))], end


def _entries(lines: Iterable[str], entry: re.Pattern[str]) -> list[tuple[str, str]]:
    """The parameters in the lines of a section. Each begins at the indentation of the first line."""
    texts: list[tuple[str, list[str]]] = []
    level: int | None = None
    for line in lines:
        if level is None and not _is_blank(line):
            level = _indent(line)
        match = entry.match(line) if level is not None and _indent(line) <= level else None
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


def _is_underlined(lines: Sequence[str], at: int) -> bool:
    return at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1]) is not None


def _is_blank(line: str) -> bool:
    return not line.strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
