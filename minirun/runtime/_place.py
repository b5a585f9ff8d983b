"""
Where in an invocation something is said: on which path, in which branch, inside of what.

A place is handed down from agent to agent and to their tools; who sets something out (a loop, a parallel agent, an
agent used as a tool) hands down a changed copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import trio

from ..sessions._state import REMOVED, Add, Extend, Write
from ..types import Content
from ._escalation import Escalation
from ._reads import Reads

__all__ = ["Control", "Inside", "Place", "Region", "calls_around"]


class Control:
    """What the running agent's events have said about what follows it."""

    __slots__ = ("transfer_to",)

    def __init__(self) -> None:
        self.transfer_to: str | None = None


class Region:
    """A parallel agent at work, or the calls of one turn: which of its branches or calls has written a key last."""

    __slots__ = ("_writers",)

    def __init__(self) -> None:
        self._writers: dict[str, int] = {}

    def conflicts(self, branch: int, writes: Mapping[str, Write]) -> list[str]:
        """The keys whose value these writes of a branch replace after another branch has written it."""
        before = self._writers
        return [key for key, write in writes.items() if replaces(write) and before.get(key, branch) != branch]

    def wrote(self, branch: int, writes: Mapping[str, Write]) -> None:
        """Note the writes of a branch, which are stored now, or will be with those of the others."""
        self._writers.update(dict.fromkeys(writes, branch))


@attrs.frozen(eq=False, repr=False)
class Inside:
    """The inside of a call: what an agent that is used as a tool was asked, and where its own history begins."""

    content: Content
    start_seq: int
    model: Any
    """That of the agent that has it as a tool, for agents without one."""
    transcripts: dict[Any, Any] = attrs.field(factory=dict)


@attrs.frozen(eq=False, repr=False)
class Place:
    """See the module."""

    path: str
    """Of agents and calls; ids are derived from it."""
    tree: Any
    """The agents that this one can see: an AgentTree."""
    branch: str | None = None
    escalation: Escalation = attrs.field(factory=Escalation)
    control: Control = attrs.field(factory=Control)
    regions: tuple[tuple[Region, int], ...] = ()
    """The parallel agents and turns around it, and which of their branches and calls this is."""
    inside: Inside | None = None
    strand: trio.lowlevel.Task | None = None
    """The task in which everything here happens, one thing after the other, unless an agent's logic starts others."""
    readers: tuple[Reads, ...] = ()
    """What the logic here, and around here, has read of the state: an event from here carries it."""


def calls_around(branch: str | None) -> list[str]:
    """The ids of the calls that something in *branch* is inside of, the outermost first."""
    return [step.rpartition("@")[2] for step in (branch or "").split(".") if "@" in step]


def replaces(write: Write) -> bool:
    """Whether a write puts its own value in the place of what was there, rather than adding to it."""
    return write is REMOVED or type(write) not in (Add, Extend)
