"""What a context in the run of a node knows of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from .._values import changed
from ..events import Event
from ._slots import Place

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ._collected import Collected

__all__ = ["NodeScope"]


@attrs.define(eq=False, repr=False)
class NodeScope:
    """The run of a node that a position is inside of: `Position.node`."""

    info_path: str
    """Which one it is, as `NodeInfo.path` says it."""
    input: Any
    """What it was given: JSON, frozen, or the user's Content."""
    attempt: int
    start_seq: int
    """Where the history of this attempt begins."""
    place: Place | None
    """Its place among those that go on at once; None outside of workflows."""
    marked: Callable[[Event], Event]
    """Makes the event that ends the run of what is said last, checked."""
    agent: BaseAgent | None
    """The agent that the node is, if its answer is the last that is said, whatever hooks there are."""
    missing: tuple[str, ...] = ()
    """Of a join: the predecessors that can come no more."""
    ends_with_questions: bool = False
    """Whether the node has `rerun_on_resume=False`: a question ends it."""
    ended_by: Event | None = None
    """The stored event that has ended the run."""
    collected: Collected | None = None
    """What the node's own logic has said by now: `ctx.output` and `ctx.route` are a part of it."""
    heard_seq: int = 0
    """Of an agent in a conversation: where that begins which it says now."""
    output: Any = None
    """What a workflow that is the node has come to."""

    def with_mark(self, answer: Event) -> Event:
        """The last answer of the agent that the node is, as the event that ends the run."""
        if answer.output is None:
            answer = changed(answer, node_info=changed(answer.node_info, message_as_output=True))
        return self.marked(answer)
