"""
What an escalation ends: the agents between the one that escalates and the nearest loop around it.

All of them share one `Escalation`; a loop gives a new one to what is inside of it. Agents that run beside the one that
escalates are cancelled, each in the scope that its parallel agent has put around it. Who escalates is not: it finishes
what it is doing, and nothing that follows is started.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar, Token

import trio

__all__ = ["Escalation"]

# The branches that the current task is inside of.
_INSIDE: ContextVar[tuple[trio.CancelScope, ...]] = ContextVar("minirun branches", default=())


class Escalation:
    """Whether somebody has escalated, for all who would go on otherwise."""

    __slots__ = ("_branches", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._branches: list[trio.CancelScope] = []

    def set(self, own: Collection[trio.CancelScope] | None = None) -> None:
        """Escalate: cancel the branches beside *own*, by default those of the current task."""
        self.is_set = True
        if own is None:
            own = _INSIDE.get()
        for branch in self._branches:
            if branch not in own:
                branch.cancel()

    @staticmethod
    def own_branches() -> tuple[trio.CancelScope, ...]:
        """The branches that the current task is inside of, for `set` in another task."""
        return _INSIDE.get()

    def enter(self, branch: trio.CancelScope) -> Token[tuple[trio.CancelScope, ...]]:
        """Let an escalation beside *branch*, which is of the current task, cancel it, until it is left."""
        self._branches.append(branch)
        return _INSIDE.set((*_INSIDE.get(), branch))

    def leave(self, branch: trio.CancelScope, token: Token[tuple[trio.CancelScope, ...]]) -> None:
        """Let nothing cancel *branch* any more."""
        self._branches.remove(branch)
        _INSIDE.reset(token)
