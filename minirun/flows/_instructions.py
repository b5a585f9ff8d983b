"""
Instructions with holes: `"Greet {user:name}. {note?}"`.

`{key}` is replaced by the state's value, `{key?}` by nothing where there is no such key. A key is an identifier,
optionally after `app:`, `user:` or `temp:`; whatever else stands in braces, JSON for example, is left as it is. Two
braces are an escape: `{{key}}` becomes `{key}`. A value is put in as it is, once: braces in it mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import MissingStateKeyError

__all__ = ["fill_in"]

_NAME = r"(?:(?:app|user|temp):)?[^\W\d]\w*"
_HOLE = re.compile(rf"\{{\{{(?P<escaped>\s*{_NAME}\??\s*)\}}\}}|\{{\s*(?P<key>{_NAME})(?P<optional>\?)?\s*\}}")


def fill_in(template: str, state: Mapping[str, Any]) -> str:
    """
    Return *template* with the values of *state* filled in; None is filled in as nothing.

    Raises:
        MissingStateKeyError: It names a key that the state lacks, without a question mark.
    """
    if "{" not in template:
        return template

    def value_of(hole: re.Match[str]) -> str:
        if hole["escaped"] is not None:
            return "{" + hole["escaped"] + "}"
        key = hole["key"]
        if key not in state:
            if hole["optional"]:
                return ""
            msg = f"the instruction names {{{key}}}, and the state has no key {key!r}; set it, or write {{{key}?}}"
            raise MissingStateKeyError(msg)
        value = state[key]
        return "" if value is None else str(value)

    return _HOLE.sub(value_of, template)
