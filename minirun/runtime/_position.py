"""
Where in an invocation something is said: on which path, in which branch, inside of which call.

A position is handed down from agent to agent and to their tools. What sets out on its own (a loop, a parallel agent, an
agent used as a tool) is handed a changed copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._escalation import Escalation
from ..events import NO_NODE, NodeInfo
from ..sessions._concurrent import ConcurrentWrites
from ..sessions._reads import Reads
from ..types import Content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..agents import BaseAgent
    from ..agents._tree import AgentTree
    from ..events import Event
    from ..models import BaseLlm
    from ..workflow._scope import NodeScope

__all__ = ["CallScope", "Handover", "Position"]


class Handover:
    """Which agent takes over when the running one has ended, as its events have said."""

    __slots__ = ("transfer_to",)

    def __init__(self) -> None:
        self.transfer_to: str | None = None


@attrs.frozen(eq=False, repr=False)
class CallScope:
    """The inside of a call, or of a node: what the agent there was asked, and where its own history begins."""

    content: Content
    start_seq: int
    model: BaseLlm | None
    """That of the agent that has it as a tool, for agents without one."""
    transcripts: dict[Any, Any] = attrs.field(factory=dict)

    def shown(self, events: Sequence[Event]) -> Sequence[Event]:
        """Of *events*, those that an agent here may see as far as its branch allows: all of them, inside of a call."""
        return events


@attrs.frozen(eq=False, repr=False)
class Position:
    """See the module."""

    path: str
    """Of agents and calls; ids are derived from it."""
    tree: AgentTree
    """The agents that this one can see."""
    branch: str | None = None
    node_info: NodeInfo = NO_NODE
    """What is filled into each event that is said here and has none. In a node run its `output_for` is empty."""
    node_of: BaseAgent | None = None
    """The agent that `node_info` names already, where it is run from here: one used as a tool, or as a node."""
    escalation: Escalation = attrs.field(factory=Escalation)
    handover: Handover = attrs.field(factory=Handover)
    concurrent: tuple[tuple[ConcurrentWrites, int], ...] = ()
    """The parallel agents and turns around it, and which of their branches and calls this is."""
    inside: CallScope | None = None
    main_task: trio.lowlevel.Task | None = None
    """The task in which everything here happens, one thing after the other, unless an agent's logic starts others."""
    readers: tuple[Reads, ...] = ()
    """What the logic here, and around here, has read of the state: an event from here carries it."""
    node: NodeScope | None = None
    """The innermost run of a node that this is inside of."""
