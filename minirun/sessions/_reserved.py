"""Keys of the state that only the framework writes, such as those of `_remembered`; anybody may delete one."""

from __future__ import annotations

from .._json import brief
from ..errors import InvalidValueError

__all__ = ["check_own_key"]

_PREFIX = "minirun:"  # as `_state` has it, which asks here


def check_own_key(key: str, path: str) -> str:
    """
    Return *key* if a program may write it.

    Raises:
        InvalidValueError: Only the framework writes it.
    """
    if key.removeprefix("user:").startswith(_PREFIX):
        raise InvalidValueError(path, f"expected a key of your own, found {brief(key)}; only the framework writes it")
    return key
