"""
Values as a trace shows them: JSON for whatever there is, without secrets, bytes and overlong texts.

Looking at a value must not fail a run, so nothing is refused here, and no code of a foreign type is called: what is
neither JSON nor one of this package's values is shown by the name of its type.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from copy import copy
from itertools import filterfalse
from typing import Any

import attrs

from .._values import Value
from .._window import Extended, Window

__all__ = ["REDACTED", "SECRETS", "Redactor"]

SECRETS = (
    "api_key",
    "auth",
    "authorization",
    "bearer",
    "contraseña",
    "cookie",
    "credential",
    "jwt",
    "kennwort",
    "motdepasse",
    "otp",
    "passphrase",
    "passwd",
    "password",
    "passwort",
    "pin",
    "private_key",
    "pwd",
    "secret",
    "senha",
    "session_id",
    "token",
    "пароль",
    "密码",
    "パスワード",
)
"""
What the names of secrets have in them, whatever their case, accents and punctuation. Of at most four ASCII letters they
are words by themselves: an author has no "auth" in it, and shipping no "pin".
"""

# The fields of this package's values that hold texts; all other strings in them are names, ids and kinds.
_FREE_TEXTS = frozenset(
    {"text", "error_message", "code", "output", "file_uri", "display_name", "system_instruction", "description"}
)

REDACTED = "[redacted]"
# As deep as JSON values of this package may be; deeper ones are foreign, or have themselves in them.
DEPTH_MAX = 100
# More digits than CPython writes (sys.set_int_max_str_digits) are no number that anybody reads.
INT_BITS_MAX = 10_000
# Longer texts are not looked into for JSON.
JSON_CHARS_MAX = 100_000
# Shorter names of secrets are parts of many words.
PART_LETTERS_MIN = 5

_WORDS = re.compile(r"[^\W\d_]+")
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_USERINFO = re.compile(r"(\w://[^\s/:@]*:)[^\s/@]+@")
# What tells the number of tokens, or makes them, in the names of its keys.
_TOKENIZER = re.compile("tokeni[sz]")


class Redactor:
    """
    Makes JSON of values, in which secrets are redacted.

    Args:
        secrets: A key with one of these in it has its value redacted, at any depth. Case, accents and punctuation do
            not count: "api_key" is in "X-Api-Key" and in "openaiApiKey". One of at most four ASCII letters has to be a
            word of the key: "pin" is in "card_pin" and "cardPin". Numbers of tokens are shown. In the same way the
            values of pairs (`["Cookie", ...]`) and of `{"name": "Cookie", "value": ...}` are redacted, what stands so
            in a text that is JSON, and passwords in addresses (`https://user:...@host`).
        max_text: How many characters are shown of a text; None: all.
    """

    def __init__(self, secrets: Iterable[str], max_text: int | None) -> None:
        names = {_letters(name) for name in secrets}
        self._words = {name for name in names if name.isascii() and len(name) < PART_LETTERS_MIN}
        self._parts = tuple(names - self._words)
        self._max_text = max_text
        self._known: dict[str, bool] = {}  # whether a key is a secret's: a few hundred names come again and again

    def redacted(self, value: Any, depth: int = 0, hide: Callable[[str], str] | None = None) -> Any:
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
            if len(self._known) > 10_000:
                self._known.clear()
            found = self._known[key] = self._has_secret(key)
        return found

    def _has_secret(self, key: str) -> bool:
        letters = _TOKENIZER.sub("", _letters(key))
        if any(part in letters for part in self._parts):
            return True
        words = {_letters(word) for piece in _WORDS.findall(key) for word in _HUMPS.split(piece)}
        return bool(self._words & (words | {letters}))

    def _hides(self, key: object, item: Any) -> bool:
        """Whether what is under a key is not to be shown; how many tokens something took is."""
        if item is None or not self.is_secret(str(key)):
            return False
        is_number = isinstance(item, (int, float)) and not isinstance(item, bool)
        return not (is_number and "token" in _letters(str(key)))

    def _inside(self, value: Any, depth: int, hide: Callable[[str], str] | None) -> Any:
        if isinstance(value, dict):
            named = next(
                (dict.__getitem__(value, key) for key in ("name", "key", "header") if dict.__contains__(value, key)),
                None,
            )
            is_header = isinstance(named, str) and self.is_secret(named)
            return {
                self._key(key): REDACTED
                if self._hides(key, item) or (is_header and key == "value")
                else self.redacted(item, depth, hide)
                for key, item in dict.items(value)
                if isinstance(key, (str, int, float, bool)) or key is None
            }
        if _is_pair(value) and self._hides(*value):
            return [self._text(value[0]), REDACTED]
        if isinstance(value, (list, tuple, set, frozenset, Window, Extended)):
            return [self.redacted(item, depth, hide) for item in value]
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
            shown = self.redacted(item, depth, None if is_name else hide)
            if shown or not isinstance(item, Value):
                found[field.name] = shown
        return found

    def _text(self, text: str) -> str:
        limit, text = self._max_text, self._without_secrets(text)
        return text if limit is None or len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more)"

    def _without_secrets(self, text: str) -> str:
        if not (self._parts or self._words):
            return text
        if text[:1] in ("{", "[") and len(text) <= JSON_CHARS_MAX:
            try:
                value = json.loads(text)
                clean = Redactor((), None).redacted(value), self._unbounded().redacted(value)
            except (ValueError, RecursionError):
                pass
            else:
                text = text if clean[0] == clean[1] else json.dumps(clean[1], ensure_ascii=False)
        return _USERINFO.sub(rf"\1{REDACTED}@", text) if "://" in text and "@" in text else text

    def _unbounded(self) -> Redactor:
        """The same that shortens nothing."""
        if self._max_text is None:
            return self
        other = copy(self)
        other._max_text = None
        return other

    def _key(self, key: object) -> str:
        return self._text(key if isinstance(key, str) else str(key))


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(item, str) for item in value)


def _letters(name: str) -> str:
    """What of a name counts, in comparable letters."""
    if not name.isascii():
        name = "".join(filterfalse(unicodedata.combining, unicodedata.normalize("NFKD", name)))
        name = unicodedata.normalize("NFC", name).casefold()
    return "".join(filter(str.isalnum, name)).lower()
