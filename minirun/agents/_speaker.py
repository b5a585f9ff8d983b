"""The agent that answers a message, where several could."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

from ..events import Event
from ._base import BaseAgent
from ._llm import LlmAgent

if TYPE_CHECKING:
    from ._tree import AgentTree

__all__ = ["last_speaker"]


def last_speaker(tree: AgentTree, events: Sequence[Event], before: str | None) -> BaseAgent:
    """See `AgentTree.speaker`."""
    for event in reversed(events):
        if event.author == "user" or (event.branch is not None and "@" in event.branch):
            continue
        target = tree.find(event.actions.transfer_to_agent)
        if _keeps_control(target, tree):
            return target
        if event.content is not None:
            author = tree.find(event.author)
            if _keeps_control(author, tree):
                return author
    kept = tree.find(before)
    return kept if _keeps_control(kept, tree) else tree.root


def _keeps_control(agent: BaseAgent | None, tree: AgentTree) -> TypeGuard[BaseAgent]:
    at = agent
    while at is not None and at is not tree.root:
        if not isinstance(at, LlmAgent) or at.disallow_transfer_to_parent:
            return False
        at = tree.parent_of(at)
    return isinstance(agent, LlmAgent)
