"""
An OpenAPI document: read from a dict, JSON or YAML, and asked for its parts.

Rules of this file:

1.  What is too large, too deep, or contains itself is refused when it is read; so is what is no OpenAPI 3.
2.  References are followed inside of the document alone. Nothing is fetched.
3.  Nothing else is checked here: the modules that ask for a part say what it has to be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import reduce
from typing import Any
from urllib.parse import unquote

from ..._json import brief, shown
from ...errors import ConfigurationError

__all__ = ["Document", "UnreadableError", "cleaned", "in_one_line", "read_document"]

# The largest documents in use have some 10 MB.
DOCUMENT_BYTES_MAX = 32 * 2**20
# Parsers of YAML need a minute for what JSON's read in a second.
YAML_BYTES_MAX = 2 * 2**20
# Of lists, objects and plain values, each as often as it is referred to by an alias of YAML, or a shared object.
ITEMS_MAX = 5_000_000
DEPTH_MAX = 200
# Of references that lead to references.
HOPS_MAX = 20

_VERSION = re.compile(r"3\.[0-2](\.\d+)?([-+].*)?")
# What moves a terminal's cursor, changes colours, or turns the direction of writing; lines and tabs stay.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class UnreadableError(Exception):
    """A part of the document is not what it has to be. The message says why, for its author."""


class Document:
    """A document, whose parts are looked up by references."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root

    def at(self, pointer: str) -> Any:
        """
        Return what `#/a/b` leads to (RFC 6901).

        Raises:
            UnreadableError: It leads nowhere, or to another document.
        """
        if pointer != "#" and not pointer.startswith("#/"):
            msg = f"the reference {brief(pointer)} leads out of the document; bundle it into one"
            raise UnreadableError(msg)
        parts = [unquote(each).replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]
        try:
            return reduce(_child, parts, self.root)
        except (LookupError, TypeError, ValueError):
            raise UnreadableError(f"the reference {brief(pointer)} leads nowhere") from None

    def resolved(self, value: Any) -> dict[str, Any]:
        """
        Return the object that *value* is, or that its `$ref` leads to.

        Raises:
            UnreadableError: There is none.
        """
        for _ in range(HOPS_MAX):
            if not isinstance(value, dict):
                raise UnreadableError(f"expected an object, found {shown(value)}")
            reference = value.get("$ref")
            if not isinstance(reference, str):
                return value
            value = self.at(reference)
        raise UnreadableError("references lead to each other without end")


def _child(value: Any, name: str) -> Any:
    return value[int(name)] if isinstance(value, list) else value[name]


def cleaned(text: object, chars: int) -> str:
    """Return the beginning of a text of the document, without characters that control a terminal."""
    if not isinstance(text, str):
        return ""
    kept = _CONTROL.sub(" ", text[: 4 * chars]).strip()
    return kept if len(kept) <= chars and len(text) <= 4 * chars else f"{kept[:chars].rstrip()} …"


def in_one_line(text: object, chars: int) -> str:
    """Return the beginning of a text of the document, in one line."""
    return " ".join(cleaned(text, chars).split())


def read_document(spec_dict: object, spec_str: object, spec_str_type: object) -> Document:
    """
    Read a document.

    Raises:
        ConfigurationError: It is none that can be read, or too large.
        ModuleNotFoundError: It is YAML, and no parser of it is installed.
    """
    if (spec_dict is None) == (spec_str is None):
        found = "neither" if spec_dict is None else "both"
        raise ConfigurationError(f"expected spec_dict or spec_str, found {found}")
    if spec_str_type not in ("json", "yaml"):
        raise ConfigurationError(f"expected spec_str_type to be 'json' or 'yaml', found {shown(spec_str_type)}")
    if spec_dict is not None:
        if not isinstance(spec_dict, Mapping):
            raise ConfigurationError(f"expected spec_dict to be a dict, found {shown(spec_dict)}")
        root = _plain(spec_dict)
    else:
        if not isinstance(spec_str, str):
            raise ConfigurationError(f"expected spec_str to be a text, found {shown(spec_str)}")
        root = _from_json(spec_str) if spec_str_type == "json" else _from_yaml(spec_str)
    if not isinstance(root, dict):
        raise ConfigurationError(f"expected an OpenAPI document, found {shown(root)}")
    version = root.get("openapi")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        said = f"Swagger {brief(root['swagger'])}" if "swagger" in root else f"openapi: {brief(version)}"
        raise ConfigurationError(f"expected a document of OpenAPI 3.0 or 3.1, found {said}; convert it")
    return Document(root)


def _from_json(text: str) -> Any:
    _check_size(text, DOCUMENT_BYTES_MAX, "")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        said = "it is nested too deep" if isinstance(error, RecursionError) else brief(str(error), 200)
        msg = f"expected spec_str to be JSON, found a text that is not: {said}; for YAML write spec_str_type='yaml'"
        raise ConfigurationError(msg) from None


def _from_yaml(text: str) -> Any:
    _check_size(text, YAML_BYTES_MAX, "; convert it to JSON")
    from ._yaml import parsed  # few documents are YAML, and few programs have a parser of it

    return _plain(parsed(text))


def _check_size(text: str, bytes_max: int, advice: str) -> None:
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise ConfigurationError("expected a document that UTF-8 can write, found a lone surrogate") from None
    if size > bytes_max:
        raise ConfigurationError(f"expected a document of at most {bytes_max} bytes, found {size}{advice}")


def _plain(value: object) -> Any:
    """A copy as JSON has it: numbers as keys, such as status codes, become texts; so does what JSON does not know."""
    _count(value, {}, 0)
    try:
        return json.loads(json.dumps(value, default=str, allow_nan=False, skipkeys=True))
    except ValueError as error:
        raise ConfigurationError(f"expected a document that JSON can write, found another: {error}") from None


def _count(value: object, known: dict[int, int], depth: int) -> int:
    """
    How many items a value has, those of shared ones as often as they occur: it takes as long as there are objects.

    Raises:
        ConfigurationError: Too many, too deep, or without end.
    """
    if not isinstance(value, (Mapping, list, tuple)):
        return 1
    if depth > DEPTH_MAX:
        msg = f"expected a document of at most {DEPTH_MAX} levels, found a deeper one, or one that contains itself"
        raise ConfigurationError(msg)
    if id(value) not in known:
        inner = value.values() if isinstance(value, Mapping) else value
        known[id(value)] = 1 + sum(_count(each, known, depth + 1) for each in inner)
    if known[id(value)] > ITEMS_MAX:
        raise ConfigurationError(f"expected a document of at most {ITEMS_MAX} values, found a larger one")
    return known[id(value)]
