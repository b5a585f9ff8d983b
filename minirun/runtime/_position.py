"""
Where in an invocation something is said: on which path, in which branch, inside of which call.

A position is handed down from agent to agent and to their tools. What sets out on its own (a loop, a parallel agent, an
agent used as a tool) is handed a changed copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from ..sessions._state import REMOVED, Add, Extend, Write
from ..types import Content
from ._escalation import Escalation
from ._reads import Reads

if TYPE_CHECKING:
    from ..agents._tree import AgentTree
    from ..models import BaseLlm

__all__ = ["CallScope", "ConcurrentWrites", "Handover", "Position"]


class Handover:
    """Which agent takes over when the running one has ended, as its events have said."""

    __slots__ = ("transfer_to",)

    def __init__(self) -> None:
        self.transfer_to: str | None = None


class ConcurrentWrites:
    """Which branch of a parallel agent, or which call of one turn, has written a key of the state last."""

    __slots__ = ("_writers",)

    def __init__(self) -> None:
        self._writers: dict[str, int] = {}

    def conflicts(self, index: int, writes: Mapping[str, Write]) -> list[str]:
        """Return the keys that these writes of branch *index* replace after another branch has written them."""
        last = self._writers
        return [key for key, write in writes.items() if replaces(write) and last.get(key, index) != index]

    def add(self, index: int, writes: Mapping[str, Write]) -> None:
        """Note the writes of branch *index*, which are stored now, or will be with those of the others."""
        self._writers.update(dict.fromkeys(writes, index))


@attrs.frozen(eq=False, repr=False)
class CallScope:
    """The inside of a call: what an agent that is used as a tool was asked, and where its own history begins."""

    content: Content
    start_seq: int
    model: BaseLlm | None
    """That of the agent that has it as a tool, for agents without one."""
    transcripts: dict[Any, Any] = attrs.field(factory=dict)


@attrs.frozen(eq=False, repr=False)
class Position:
    """See the module."""

    path: str
    """Of agents and calls; ids are derived from it."""
    tree: AgentTree
    """The agents that this one can see."""
    branch: str | None = None
    escalation: Escalation = attrs.field(factory=Escalation)
    handover: Handover = attrs.field(factory=Handover)
    concurrent: tuple[tuple[ConcurrentWrites, int], ...] = ()
    """The parallel agents and turns around it, and which of their branches and calls this is."""
    inside: CallScope | None = None
    main_task: trio.lowlevel.Task | None = None
    """The task in which everything here happens, one thing after the other, unless an agent's logic starts others."""
    readers: tuple[Reads, ...] = ()
    """What the logic here, and around here, has read of the state: an event from here carries it."""


def replaces(write: Write) -> bool:
    """Whether a write puts its own value in the place of what was there, rather than adding to it."""
    return write is REMOVED or type(write) not in (Add, Extend)
