"""Whether control can be handed over as an event says: see `EventActions.transfer_to_agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._json import brief
from ..errors import InvalidEventError
from ..events import EventActions

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..agents._tree import AgentTree

__all__ = ["check_handover", "check_transfer"]


def check_handover(tree: AgentTree, agent: BaseAgent, actions: EventActions) -> None:
    """
    Check that *agent* may say what hands over to another.

    Raises:
        InvalidEventError: It may not, there is no such agent, or nobody could take over.
    """
    assert actions.transfer_to_agent is not None
    if actions.escalate:
        msg = "expected an event that escalates or hands over, found one that does both; nobody takes over"
        raise InvalidEventError(msg)
    check_transfer(tree, agent, actions.transfer_to_agent)


def check_transfer(tree: AgentTree, agent: BaseAgent, target: str) -> None:
    """
    Check that *agent* may hand over to the agent of this name.

    Raises:
        InvalidEventError: It may not, or there is no such agent.
    """
    if tree.target(agent, target) is None:
        known = ", ".join(other.name for other in tree.targets(agent)) or "none"
        msg = f"expected transfer_to_agent to be one of the agents {agent.name!r} can hand over to ({known})"
        raise InvalidEventError(f"{msg}, found {brief(target)}")
