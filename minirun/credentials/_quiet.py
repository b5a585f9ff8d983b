"""
Secrets in the hands of the code that sends them: a traceback that shows the variables of its frames shows none.

What holds one is a `Quiet`, also as a value of a dict. A function that takes one apart raises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Quiet", "plain", "quiet"]


class Quiet(str):
    """A text whose repr does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'[secret]'"


def quiet(values: Mapping[str, str]) -> dict[str, str]:
    """Return *values* as such texts."""
    return {name: Quiet(text) for name, text in values.items()}


def plain(values: Mapping[str, str]) -> dict[str, Any]:
    """Return such texts as they are, for what keeps them. No variable may hold what this returns."""
    return {name: str.__str__(text) for name, text in values.items()}
