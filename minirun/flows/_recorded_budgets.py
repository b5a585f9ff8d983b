"""
What earlier runs of an invocation have used of its limits, counted from its log when it is resumed.

An answer that was given in a branch (beside other agents, or inside of a call) says that it is one, by `Replay.asked`:
agents of other branches may do something new before its agent comes to it again, or nobody does, as the call is
answered. So it is counted when the invocation is resumed, as is one that a callback has given; every other answer when
its agent comes to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..events import Event
from ._budgets import Budgets

__all__ = ["count_answer", "count_recorded"]


def count_recorded(budgets: Budgets, events: Iterable[Event], answered: Collection[str]) -> None:
    """
    Count what earlier runs have used, by their *events*; *answered* are the calls that have a response.

    Called once, before any agent runs.
    """
    for event in events:
        budgets.used["max_transfers"] += event.actions.transfer_to_agent is not None
        budgets.used["max_node_runs"] += event.actions.replay.ended is not None
        if _is_marked(event):
            _add_answer(budgets, event, answered)


def count_answer(budgets: Budgets, event: Event, answered: Collection[str]) -> None:
    """
    Count an answer of a model that its agent has come to, unless `count_recorded` has counted it.

    Raises:
        FatalError: More was used than the limits of this run allow.
    """
    if not _is_marked(event):
        budgets.check("max_tokens")
        _add_answer(budgets, event, answered)
    budgets.check("max_llm_calls", 0)
    budgets.check("max_tool_calls", 0)


def _add_answer(budgets: Budgets, event: Event, answered: Collection[str]) -> None:
    if event.actions.replay.asked is not False:
        budgets.used["max_llm_calls"] += 1
        budgets.add_usage(event.usage_metadata, is_recorded=True)
    budgets.used["max_tool_calls"] += sum(call.id in answered for call in event.get_function_calls())


def _is_marked(event: Event) -> bool:
    """Whether *event* says of itself that it is an answer of a model."""
    return event.actions.replay.asked is not None
