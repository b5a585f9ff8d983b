"""Logic that is run again in the same process, as an attempt after one that has failed."""

from __future__ import annotations

from collections.abc import Iterable

from ._ids import Ids

__all__ = ["begin_again"]


def begin_again(ids: Ids, path: str, claimed: Iterable[str]) -> None:
    """Free the ids that the logic on *path* has claimed, and count anew what it runs."""
    ids.release(claimed)
    for each in [each for each in ids.counts if each.startswith(f"{path}/") and "@" not in each[len(path) :]]:
        del ids.counts[each]
