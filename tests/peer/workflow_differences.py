"""
Where workflows of minirun do something else than the peer's, in the traces t06 and t13, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["DIFFERENCES", "OUT_OF_SCOPE", "PENDING"]

OUT_OF_SCOPE: Mapping[tuple[str, str], str] = {}
PENDING: frozenset[str] = frozenset()
DIFFERENCES: Mapping[tuple[str, str], Mapping[str, Sequence[str]]] = {}
