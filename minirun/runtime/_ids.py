"""
The ids of what an invocation says and does: the same whenever its agents are run again.

An id follows from the invocation, from the path of agents and calls on which something is said or done, and from how
often something was said or done there. No clock, no chance and no order of tasks takes part.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

from ..env import derived_id

__all__ = ["STEP_ID", "Ids"]

STEP_ID: ContextVar[str | None] = ContextVar("minirun step", default=None)
"""The id of the step that the current task is inside of."""


class Ids:
    """The ids of one invocation, in one run of it."""

    __slots__ = ("_free_from", "_invocation_id", "_runs", "call_ids", "claimed", "counts", "failed_steps")

    def __init__(self, invocation_id: str) -> None:
        self._invocation_id = invocation_id
        self.counts: dict[str, int] = {}
        """How often something was said below a path, where one thing follows another."""
        self.claimed: dict[str, tuple[str, int]] = {}  # what `claim` has given out, with the path and its count there
        self._free_from: dict[str, int] = {}  # by path: no smaller count is free
        self.failed_steps: frozenset[str] = frozenset()  # that have failed, and are taken again
        self.call_ids: set[str] = set()  # that models have given to calls, stored or on their way
        self._runs: dict[str, int] = {}

    def claim(self, path: str) -> str:
        """Return the first id below *path* that is free. What is released can be claimed again."""
        count = self._free_from.get(path, 1)
        while (found := derived_id(self._invocation_id, path, count)) in self.claimed:
            count += 1
        self.claimed[found] = path, count
        self._free_from[path] = count + 1
        return found

    def release(self, claimed: Iterable[str]) -> None:
        """Free ids: what has claimed them is done again."""
        for each in self.claimed.keys() & claimed:  # a save that has failed has freed its own already
            path, count = self.claimed.pop(each)
            self._free_from[path] = min(count, self._free_from.get(path, 1))

    def next_run(self, path: str) -> tuple[str, int]:
        """
        Return the path of the next run of the agent on *path*, and its number: `path`, `path*2`, …: rounds stay apart.
        """
        count = self._runs[path] = self._runs.get(path, 0) + 1
        return path if count == 1 else f"{path}*{count}", count

    def last_run(self, path: str) -> int:
        """Return the number of the last run of the agent on *path*; of one that has not run, of its first."""
        return self._runs.get(path, 1)
