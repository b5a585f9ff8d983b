"""
Seals: what a provider wants to have back unchanged, with the very part that it came with.

A thought that is sent back without its seal is refused, and so is one with a seal of somebody else. So the bytes of
`Part.thought_signature` say whose seal it is: they are JSON of provider, kind and payload. The payload is what the
provider sent, letter for letter; only the wire module of that provider looks into it.

Bytes that do not read as such (other programs write their own) are nobody's seal.
"""

from __future__ import annotations

from typing import NamedTuple

from .._json import dumps, loads

__all__ = ["Seal", "opened", "sealed"]


class Seal(NamedTuple):
    """Whose seal it is, which of that provider's kinds, and what the provider sent."""

    provider: str
    kind: str
    payload: str


def sealed(provider: str, kind: str, payload: str) -> bytes:
    """Return a seal as the bytes that `Part.thought_signature` holds."""
    return dumps({"provider": provider, "kind": kind, "payload": payload}).encode()


def opened(signature: bytes | None, provider: str) -> Seal | None:
    """Return the seal in *signature* if it is one of *provider*, else None."""
    if signature is None:
        return None
    try:
        found = loads(signature)
        seal = Seal(found["provider"], found["kind"], found["payload"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return seal if seal.provider == provider and all(isinstance(text, str) for text in seal) else None
