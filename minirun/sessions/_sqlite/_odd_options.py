"""What a service of a file cannot be made with."""

from __future__ import annotations

from ..._json import brief, shown
from ...errors import ConfigurationError

__all__ = ["refusal"]


def refusal(path: object, db_path: object, durability: object, cache_bytes: object) -> ConfigurationError:
    """The error for the first of these that is none."""
    if (path is None) == (db_path is None):
        msg = f"expected path or db_path, which is the same, found {'neither' if path is None else 'both'}"
    elif durability not in ("power", "process"):
        msg = f"expected durability 'power' or 'process', found {brief(durability)}"
    else:
        msg = f"expected cache_bytes to be an integer from 0 up, found {shown(cache_bytes)}"
    return ConfigurationError(msg)
