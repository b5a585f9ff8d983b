"""
Explicit caches of Gemini: what requests begin with, kept at the provider under a name. No I/O here.

What is known of them goes from one request to the next through the log, as `Event.custom_metadata[CACHE]`, and comes
back as `LlmRequest.cache_metadata`. So any process goes on with the cache that another one has made.

    a beginning is seen for the first time   it is noted, and nothing is made: it may never come again
    the next request begins alike            a cache of it is made
    later ones begin alike                   the cache is named in its place
    its time is over, or the key is another  a new one is made, of what requests begin with by then
    the provider has refused to make one     not asked again before there is twice as much

A beginning ends before the user's last words: system instruction, tools, their choice, and the contents until there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from .._json import dumps, is_count
from .._values import changed
from ..types import Content
from ._base import LlmRequest
from ._reading import text_in
from ._wire_gemini import GeminiWire

__all__ = ["LETTERS_PER_TOKEN", "Beginning", "Known", "beginning_of", "known_of", "made_from", "with_cache"]

# As everywhere in minirun, where a model does not say.
LETTERS_PER_TOKEN = 4


class Beginning(NamedTuple):
    """What a request begins with: the body that makes a cache of it, how much it is, and what tells it from others."""

    body: dict[str, Any]
    contents: int
    letters: int
    fingerprint: str


class Known(NamedTuple):
    """What is known of a cache: the note of an earlier request. Without a name it is only a beginning that was seen."""

    key: str
    contents: int
    fingerprint: str
    name: str | None = None
    expires_at: float | None = None
    refused_letters: int = 0

    def noted(self) -> dict[str, Any]:
        """What is stored of it."""
        return {name: value for name, value in self._asdict().items() if value not in (None, 0) or name == "contents"}


def known_of(request: LlmRequest) -> Known | None:
    """Return what the log tells *request*; None: nothing that can be read."""
    told = request.cache_metadata or {}
    texts = [told.get(name) for name in ("key", "fingerprint")]
    contents, name, expires_at = told.get("contents"), told.get("name"), told.get("expires_at")
    refused = told.get("refused_letters", 0)
    if not all(isinstance(text, str) for text in texts) or not is_count(contents) or not is_count(refused):
        return None
    if not isinstance(name, str) or not isinstance(expires_at, (int, float)):
        name = expires_at = None
    return Known(str(texts[0]), contents, str(texts[1]), name, expires_at, refused)


def beginning_of(wire: GeminiWire, request: LlmRequest, model: str, contents: int | None = None) -> Beginning | None:
    """Return what *request* begins with, up to so many contents; None: there is nothing, or not so much."""
    given = request.contents
    if contents is None:
        contents = len(given)
        while contents and _is_of_the_user(given[contents - 1]):
            contents -= 1
    if contents >= len(given):
        return None
    whole = wire.outgoing(changed(request, contents=given[:contents]), model, False).body
    body = {name: whole[name] for name in ("systemInstruction", "tools", "toolConfig", "contents") if whole.get(name)}
    if not body:
        return None
    body = {"model": model if "/" in model else f"models/{model}", **body}
    text = dumps(body)
    return Beginning(body, contents, len(text), blake2b(text.encode(), digest_size=12).hexdigest())


def with_cache(request: LlmRequest, known: Known) -> LlmRequest:
    """Return *request* with a cache in the place of what it begins with."""
    config = changed(request.config, cached_content=known.name)
    return changed(request, config=config, contents=request.contents[known.contents :])


def made_from(beginning: Beginning, key: str, answer: Mapping[str, Any]) -> Known:
    """Return what is known of a cache that the provider has made; it has no name if it cannot be said until when."""
    name, expiry = text_in(answer.get("name")), text_in(answer.get("expireTime"))
    try:
        expires_at = datetime.fromisoformat(expiry).timestamp()
    except (ValueError, OverflowError):
        return Known(key, beginning.contents, beginning.fingerprint, refused_letters=beginning.letters)
    return Known(key, beginning.contents, beginning.fingerprint, name or None, expires_at)


def _is_of_the_user(content: Content) -> bool:
    return content.role == "user" and all(part.function_response is None for part in content.parts)
