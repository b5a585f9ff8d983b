"""
What a server says that it has, made into what a model may be shown. Pure; nothing here trusts what it reads.

    a name         letters, digits, `_` and `-`, up to 64 with the prefix; `.`, `/`, `:` and blanks become `_`
    a description  without control characters, up to `DESCRIPTION_CHARS_MAX` characters
    a schema       a JSON object of up to `SCHEMA_CHARS_MAX` characters, of type object

A tool that cannot be made into this is left out, and so are one whose name is taken, by a tool before it or by what
minirun itself calls so, and all after `TOOLS_MAX`. Each is told in one record of the logger `minirun`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import mcp_types

from ..._json import dumps, freeze
from ...errors import InvalidValueError
from ...flows._questions import GET_USER_CHOICE, QUESTIONS
from ._text import cleaned, line

__all__ = ["RESOURCE_TOOL", "Definition", "definitions", "tell_left_out"]

_logger = logging.getLogger("minirun")

RESOURCE_TOOL = "load_mcp_resource"

# A model reads all of it before each of its answers. The longest in common servers have some 5 000 characters.
DESCRIPTION_CHARS_MAX = 10_000
SCHEMA_CHARS_MAX = 64_000
TOOLS_MAX = 1_000

_NAME_CHARS_MAX = 64
_NAME = re.compile(r"[A-Za-z0-9_./: -]+")

# Names that agents and the framework give to tools of their own: a server's must not be taken for these.
_TAKEN = frozenset({*QUESTIONS, GET_USER_CHOICE, RESOURCE_TOOL, "exit_loop", "set_model_response", "transfer_to_agent"})


class Definition(NamedTuple):
    """A tool of a server."""

    original: str
    """What the server calls it."""
    name: str
    description: str
    parameters: Mapping[str, Any]


def definitions(tools: Iterable[mcp_types.Tool], prefix: str | None) -> tuple[list[Definition], list[str]]:
    """Return the tools that can be shown to models, sorted by name, and a line for each that is left out."""
    found: dict[str, Definition] = {}
    left_out: list[str] = []
    for index, tool in enumerate(tools):
        try:
            if index >= TOOLS_MAX:
                raise ValueError(f"there are more than {TOOLS_MAX}")
            made = _definition(tool, prefix)
            if made.name in found or made.name in _TAKEN:
                raise ValueError(f"the name {made.name!r} is taken")
        except (ValueError, InvalidValueError) as error:
            left_out.append(f"{line(tool.name, 80)!r}: {line(str(error), 200)}")
        else:
            found[made.name] = made
    return [found[name] for name in sorted(found)], left_out


def tell_left_out(left_out: Sequence[str], label: str) -> None:
    """Tell which tools of a server are left out, and why."""
    if left_out:
        more = f"; and {len(left_out) - 5} others" if len(left_out) > 5 else ""
        _logger.warning("tools of the MCP server %r are left out: %s%s", label, "; ".join(left_out[:5]), more)


def _definition(tool: mcp_types.Tool, prefix: str | None) -> Definition:
    return Definition(
        tool.name,
        _name(tool.name, prefix),
        cleaned(tool.description or tool.title or "", DESCRIPTION_CHARS_MAX),
        _parameters(tool.input_schema),
    )


def _name(original: str, prefix: str | None) -> str:
    if len(original) > _NAME_CHARS_MAX or not _NAME.fullmatch(original):
        raise ValueError("a model can call no tool of this name")
    name = re.sub("[^A-Za-z0-9_-]", "_", original)
    if not (name[0].isalpha() or name[0] == "_"):
        name = f"_{name}"
    if len(name) + (0 if prefix is None else len(prefix) + 1) > _NAME_CHARS_MAX:
        raise ValueError(f"its name is longer than {_NAME_CHARS_MAX} characters, with the prefix")
    return name


def _parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if schema.get("type") != "object" or not isinstance(schema.get("properties", {}), dict):
        raise ValueError("the schema of its arguments is not of type object")
    without = {key: value for key, value in schema.items() if key != "$schema"}
    frozen: Mapping[str, Any] = freeze(_cleaned(without), "its schema")
    if len(dumps(frozen)) > SCHEMA_CHARS_MAX:
        raise ValueError(f"the schema of its arguments has more than {SCHEMA_CHARS_MAX} characters")
    return frozen


def _cleaned(value: Any, level: int = 0) -> Any:
    """The same JSON, with clean texts. What is nested too deep is refused where it is frozen."""
    if level > 100:
        raise ValueError("the schema of its arguments is nested too deep")
    if isinstance(value, str):
        return cleaned(value, SCHEMA_CHARS_MAX)
    if isinstance(value, dict):
        return dict(_cleaned_items(value, level))
    if isinstance(value, list):
        return [_cleaned(each, level + 1) for each in value]
    return value


def _cleaned_items(value: dict[str, Any], level: int) -> Iterator[tuple[str, Any]]:
    for key, each in value.items():
        if cleaned(key, 200) != key:
            raise ValueError("a name in the schema of its arguments is no name")
        yield key, _cleaned(each, level + 1)
