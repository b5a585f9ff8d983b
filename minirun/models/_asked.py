"""
What a request asks, in a form that two runs of one program have in common, and how two requests differ.

Rules of this file:

1.  What never changes an answer is left out: how the request is sent (`http_options`), the books of the provider
    (`labels`), and how it caches (`cache_config`, `cache_key`, `cache_metadata`).
2.  Ids of calls differ from run to run. The calls of a conversation are numbered instead, in their order.
3.  The order of keys in JSON objects is left out, too, and so is what stands at its default: a later version of
    minirun, with more settings, asks the same.
4.  Secrets that the run knows are taken out before anything is compared.
5.  A conversation is a chain: the key of each content follows from that and from all before it. So two that begin
    alike share keys, and looking at the next request of a conversation costs what is new in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

import attrs

from .._codec import to_dict
from .._json import brief
from .._window import Extended, Window
from ..flows._no_secrets import NO_SECRETS, NoSecrets
from ..types import Content
from ._base import LlmRequest

__all__ = ["Asked", "Asker", "canonical", "encoded", "first_difference", "key_of"]

# So much of a text is shown before and after the place where it differs, in characters.
CHARS_BEFORE = 20
CHARS_SHOWN = 100

_LEFT_OUT = frozenset({"http_options", "labels"})
_HEADS = frozenset({"system_instruction", "tools"})
_CONTAINERS = (list, tuple, dict)

# Keys sorted, one line. Half a surrogate pair, which names of models may have, stays: see `encoded`.
canonical = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=True
).encode


def encoded(text: str) -> bytes:
    """A JSON text as UTF-8; half a surrogate pair, which UTF-8 does not have, as the escape of JSON for it."""
    return text.encode("utf-8", "backslashreplace")


def key_of(text: str, after: str = "") -> str:
    """A short name that follows from a text, and from the key of what stands before it."""
    return blake2b(encoded(f"{after}\n{text}"), digest_size=12).hexdigest()


@attrs.frozen(eq=False)
class Asked:
    """
    One request: JSON texts, so that they can be compared, and written once each.

    Args:
        settings: The model and the settings, without the system instruction and the tools.
        system: The system instruction, or null.
        tools: One text for each tool.
        contents: One text for each content.
        keys: As many: the key of the conversation up to there.
    """

    settings: str
    system: str
    tools: tuple[str, ...]
    contents: Sequence[str]
    keys: Sequence[str]

    @property
    def key(self) -> str:
        """Two requests with the same key are equal."""
        heads = canonical([self.settings, self.system, self.tools])
        return key_of(heads, self.keys[-1] if self.keys else "")

    def likeness(self, other: Asked) -> tuple[int, int, int]:
        """How near the *other* request is: the larger, the nearer."""
        heads = (self.settings == other.settings, self.system == other.system, self.tools == other.tools)
        shared = 0
        while shared < min(len(self.keys), len(other.keys)) and self.keys[shared] == other.keys[shared]:
            shared += 1
        return sum(heads), shared, -abs(len(self.keys) - len(other.keys))

    def to_dict(self) -> dict[str, Any]:
        """The whole request as JSON, in the order in which differences are told."""
        settings = json.loads(self.settings)
        config = {"system_instruction": json.loads(self.system), "tools": [*map(json.loads, self.tools)]}
        config |= settings["config"]
        return {"model": settings["model"], "config": config, "contents": [*map(json.loads, self.contents)]}


class Asker:
    """Brings requests into this form, each content of a shared history once."""

    def __init__(self) -> None:
        self._chains: dict[int, _Chain] = {}

    def asked(self, request: LlmRequest, secrets: NoSecrets = NO_SECRETS) -> Asked:
        """
        Return what *request* asks, without *secrets*.

        Raises:
            SecretError: One is a key of an object, where it cannot be taken out.
        """
        config = plain(request.config)
        tools = [without(tool, secrets, "tools") for tool in config.get("tools", ())]
        rest = {name: value for name, value in config.items() if name not in _LEFT_OUT | _HEADS}
        chain = self._chain_of(request.contents, secrets)
        return Asked(
            settings=canonical({"model": request.model, "config": without(rest, secrets, "config")}),
            system=canonical(secrets.out_of(config.get("system_instruction"))),
            tools=tuple(map(canonical, tools)),
            contents=chain.texts[: len(request.contents)],
            keys=chain.keys[: len(request.contents)],
        )

    def _chain_of(self, contents: Sequence[Content], secrets: NoSecrets) -> _Chain:
        if isinstance(contents, Extended):
            chain = self._chain_of(contents.shared, secrets).branch(len(contents.shared))
            return chain.grown(contents, secrets)
        if not isinstance(contents, Window) or secrets.are_known:  # those that are known may become more
            return _Chain(contents).grown(contents, secrets)
        known = self._chains.get(id(contents.origin))
        # It holds the list, so that its id stays its own.
        if known is None or not contents or contents[0] is not known.first:
            known = self._chains[id(contents.origin)] = _Chain(contents.origin, contents[0] if contents else None)
        return known.grown(contents, secrets)


class _Chain:
    """The contents of one conversation, as far as they were looked at."""

    def __init__(self, origin: object, first: Content | None = None) -> None:
        self.origin = origin
        self.first = first
        self.texts: list[str] = []
        self.keys: list[str] = []
        self._calls: dict[str, str] = {}
        self._calls_until: list[int] = []

    def branch(self, length: int) -> _Chain:
        """One that goes on another way after so many contents; this one stays as it is."""
        branch = _Chain(self.origin)
        branch.texts, branch.keys = self.texts[:length], self.keys[:length]
        branch._calls_until = self._calls_until[:length]
        branch._calls = dict(islice(self._calls.items(), branch._calls_until[-1] if length else 0))
        return branch

    def grown(self, contents: Sequence[Content], secrets: NoSecrets) -> _Chain:
        """Itself, with the contents that it does not have yet."""
        for index in range(len(self.texts), len(contents)):
            content = to_dict(contents[index])
            for part, written in zip(contents[index].parts, content.get("parts", ()), strict=True):
                for name in ("function_call", "function_response"):
                    payload = getattr(part, name)
                    if payload is not None and payload.id is not None:
                        written[name]["id"] = self._calls.setdefault(payload.id, f"call {len(self._calls) + 1}")
            text = canonical(without(content, secrets, f"contents[{index}]"))
            self.texts.append(text)
            self.keys.append(key_of(text, self.keys[-1] if self.keys else ""))
            self._calls_until.append(len(self._calls))
        return self


def without(value: Any, secrets: NoSecrets, what: str) -> Any:
    """
    Return a JSON value without *secrets*.

    Raises:
        SecretError: One is a key of an object, where it cannot be taken out.
    """
    secrets.check_keys(value, what)
    return secrets.out_of(value)


def plain(value: Any) -> Any:
    """Settings as plain JSON, without what stands at its default; the codec leaves that out of stored values only."""
    if attrs.has(type(value)):
        given = ((field, getattr(value, field.name)) for field in attrs.fields(type(value)))
        return {field.name: plain(item) for field, item in given if not _is_default(field, item)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _is_default(field: attrs.Attribute[Any], value: Any) -> bool:
    default = field.default
    if isinstance(value, _CONTAINERS):
        return not value and isinstance(default, _CONTAINERS) and not default
    return type(value) is type(default) and bool(value == default)


# --- differences ------------------------------------------------------------------------------------------------------


def first_difference(recorded: Any, found: Any) -> str:
    """Say where two JSON values differ first, what was expected and what was found: a short text. "" if nowhere."""
    for path, old, new in _differences(recorded, found, ""):
        if isinstance(old, str) and isinstance(new, str):
            pairs = enumerate(zip(old, new, strict=False))
            place = next((i for i, (a, b) in pairs if a != b), min(len(old), len(new)))
            start = max(0, place - CHARS_BEFORE)
            where = f"{_short(path)}, character {place + 1}"
            return f"{where}: expected {_cut(old, start)}, found {_cut(new, start)}"
        return f"{_short(path)}: expected {_told(old)}, found {_told(new)}"
    return ""


_MISSING: Any = object()


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*old, *(key for key in new if key not in old)):
            below = f"{path}.{key}" if path else str(key)
            yield from _differences(old.get(key, _MISSING), new.get(key, _MISSING), below)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before, after = (items[index] if index < len(items) else _MISSING for items in (old, new))
            yield from _differences(before, after, f"{path}[{index}]")
    elif type(old) is not type(new) or old != new:
        yield path, old, new


def _told(value: Any) -> str:
    return "nothing" if value is _MISSING else brief(value, CHARS_SHOWN)


def _cut(text: str, start: int) -> str:
    end = start + CHARS_SHOWN
    return f"{'…' if start else ''}{text[start:end]!r}{'…' if end < len(text) else ''}"


def _short(path: str) -> str:
    return path if len(path) <= CHARS_SHOWN else f"…{path[1 - CHARS_SHOWN :]}"
