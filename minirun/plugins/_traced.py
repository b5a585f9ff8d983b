"""
Values as a trace shows them: JSON for whatever there is, without secrets, bytes and overlong texts.

Looking at a value must not fail a run, so nothing is refused here, and no code of a foreign type is called: what is
neither JSON nor one of this package's values is shown by the name of its type.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from .._window import Extended, Window
from ..types import Value

__all__ = ["REDACTED", "SECRETS", "Shower", "shared_prefix"]

SECRETS = (
    "api_key",
    "authorization",
    "cookie",
    "credential",
    "passphrase",
    "password",
    "passwd",
    "private_key",
    "secret",
    "token",
)
"""What the names of secrets have in them, whatever their case and punctuation."""

# The fields of this package's values that hold texts; all other strings in them are names, ids and kinds.
_FREE_TEXTS = frozenset(
    {"text", "error_message", "code", "output", "file_uri", "display_name", "system_instruction", "description"}
)

REDACTED = "[redacted]"
# As deep as JSON values of this package may be; deeper ones are foreign, or have themselves in them.
DEPTH_MAX = 100
# More digits than CPython writes (sys.set_int_max_str_digits) are no number that anybody reads.
INT_BITS_MAX = 10_000


class Shower:
    """
    Makes JSON of values.

    Args:
        secrets: A key with one of these in it has its value redacted, at any depth. Case and punctuation do not count:
            "api_key" is in "X-Api-Key" and in "openaiApiKey".
        max_text: How many characters are shown of a text; None: all.
    """

    def __init__(self, secrets: Iterable[str], max_text: int | None) -> None:
        self._secrets = tuple({_letters(name) for name in secrets})
        self._max_text = max_text
        self._known: dict[str, bool] = {}  # whether a key is a secret's: a few hundred names come again and again

    def shown(self, value: Any, depth: int = 0, hide: Callable[[str], str] | None = None) -> Any:
        """The value as JSON; *hide* takes out of texts what they must not have: of all but names, ids and keys."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            text = str.__str__(value)
            return self._text(text if hide is None else hide(text))
        if isinstance(value, int):
            bits = int.bit_length(value)
            return int(value) if bits <= INT_BITS_MAX else f"an integer of {bits} bits"
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else float.__repr__(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return {"bytes": memoryview(value).nbytes, "sha256": hashlib.sha256(value).hexdigest()}
        if depth >= DEPTH_MAX:
            return "…"
        return self._inside(value, depth + 1, hide)

    def is_secret(self, key: str) -> bool:
        """Whether a key is named like a secret."""
        found = self._known.get(key)
        if found is None:
            letters = _letters(key)
            if len(self._known) > 10_000:
                self._known.clear()
            found = self._known[key] = any(secret in letters for secret in self._secrets)
        return found

    def _inside(self, value: Any, depth: int, hide: Callable[[str], str] | None) -> Any:
        if isinstance(value, dict):
            return {
                self._key(key): REDACTED
                if item is not None and self.is_secret(str(key))
                else self.shown(item, depth, hide)
                for key, item in dict.items(value)
                if isinstance(key, (str, int, float, bool)) or key is None
            }
        if isinstance(value, (list, tuple, set, frozenset, Window, Extended)):
            return [self.shown(item, depth, hide) for item in value]
        if attrs.has(type(value)) and type(value).__module__.startswith(f"{__package__.partition('.')[0]}."):
            return self._fields(value, depth, hide)
        return f"a value of type {type(value).__name__}"

    def _fields(self, value: Any, depth: int, hide: Callable[[str], str] | None) -> dict[str, Any]:
        """The fields of one of this package's values that were given; their own names are no secrets."""
        found = {}
        for field in attrs.fields(type(value)):
            item = getattr(value, field.name)
            if item is None or (isinstance(item, (dict, list, tuple)) and not item):
                continue
            is_name = isinstance(item, (str, frozenset)) and field.name not in _FREE_TEXTS
            shown = self.shown(item, depth, None if is_name else hide)
            if shown or not isinstance(item, Value):
                found[field.name] = shown
        return found

    def _text(self, text: str) -> str:
        limit = self._max_text
        return text if limit is None or len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more)"

    def _key(self, key: object) -> str:
        return self._text(key if isinstance(key, str) else str(key))


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def shared_prefix(before: Sequence[Any], now: Sequence[Any]) -> int:
    """How many objects *now* begins with that *before* begins with, too."""
    count = 0
    for one, other in zip(before, now, strict=False):
        if one is not other:
            break
        count += 1
    return count
