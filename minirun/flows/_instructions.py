"""
Instructions with holes: `"Greet {user:name}. {note?}"`.

`{key}` is replaced by the state's value, `{key?}` by nothing where there is no such key. A key is an identifier,
optionally after `app:`, `user:` or `temp:`; whatever else stands in braces, JSON for example, is left as it is. Two
braces are an escape: `{{key}}` becomes `{key}`; and after `$` or a backslash, as in a script's `${key}`, braces stay as
they are, with what stands before them. A value is put in as it is, once: braces in it mean nothing.

`{artifact.report.md}` is replaced by the text of the artifact `report.md`, its newest version, and
`{artifact.report.md?}` by nothing where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..errors import MissingArtifactError, MissingStateKeyError

__all__ = ["artifacts_in", "fill_in"]

_NAME = r"(?:(?:app|user|temp):)?[^\W\d]\w*"
# What JSON in braces has, a name has not: quotes and colons.
_FILE = r"(?:user:)?[^\s{}:\"'?](?:[^{}:\"'?]*[^\s{}:\"'?])?"
_ANY = rf"(?:{_NAME}|artifact\.{_FILE})"
NO_ARTIFACTS: Mapping[str, str] = {}


@cache
def _hole() -> re.Pattern[str]:
    """Compiled for the first instruction that may have one."""
    return re.compile(
        rf"(?P<kept>[$\\]\{{+)|\{{\{{(?P<escaped>\s*{_ANY}\??\s*)\}}\}}|\{{\s*(?:artifact\.(?P<file>{_FILE})|(?P<key>{_NAME}))(?P<optional>\?)?\s*\}}"
    )


def artifacts_in(template: str) -> list[str]:
    """The names of the artifacts that *template* wants filled in."""
    if "artifact." not in template:
        return []
    return list(dict.fromkeys(hole["file"] for hole in _hole().finditer(template) if hole["file"] is not None))


def fill_in(template: str, state: Mapping[str, Any], artifacts: Mapping[str, str] = NO_ARTIFACTS) -> str:
    """
    Return *template* with the values of *state* and the texts of *artifacts* filled in; None is filled in as nothing.

    Raises:
        MissingStateKeyError: It names a key that the state lacks, without a question mark.
        MissingArtifactError: It names an artifact that is not there, without a question mark.
    """
    if "{" not in template:
        return template

    def value_of(hole: re.Match[str]) -> str:
        if hole["kept"] is not None:
            return hole["kept"]
        if hole["escaped"] is not None:
            return "{" + hole["escaped"] + "}"
        name = hole["file"]
        if name is not None:
            if name not in artifacts and not hole["optional"]:
                msg = (
                    f"the instruction names the artifact {name!r}, and there is none; save it, or write a '?' after it"
                )
                raise MissingArtifactError(msg)
            return artifacts.get(name, "")
        key = hole["key"]
        if key not in state:
            if hole["optional"]:
                return ""
            msg = f"the instruction names {{{key}}}, and the state has no key {key!r}; set it, or write {{{key}?}}"
            raise MissingStateKeyError(msg)
        value = state[key]
        return "" if value is None else str(value)

    return _hole().sub(value_of, template)
