"""
The budgets of an invocation: how often it may ask models, call tools, hand over, and how many tokens it may use.

They are finite by default, shared by everything below the invocation, and counted from the log when it is resumed.
What would exceed one is refused before it is done (promise P12). `BUDGETS` is the list; this is how each is counted:

| | spent | recorded in |
| --- | --- | --- |
| max_llm_calls | before a request | the answer, unless a callback has given it (`Replay.asked` is False) |
| max_tokens | with an answer; the next request is refused | the answer's usage |
| max_tool_calls | before the calls of a turn, all of them | the answer that makes them, for those that are answered |
| max_transfers | before the event that hands over is stored | that event |
| max_node_runs | before a run of a node begins | the event that it has ended with |

A call that is open when its invocation is resumed is made again, and is spent then. `_shared_budget` is the Budget that
several runs share, which counts what is done now.

An answer that was given in a branch (beside other agents, or inside of a call) says that it is one, by `Replay.asked`:
agents of other branches may do something new before its agent comes to it again, or nobody does, as the call is
answered. So it is counted when the invocation is resumed, as is one that a callback has given; every other answer when
its agent comes to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Literal

from .. import errors
from ..events import Event
from ..types import UsageMetadata

if TYPE_CHECKING:
    from ..runtime import RunConfig

__all__ = ["BudgetName", "Budgets", "count_answer", "count_recorded", "is_shared"]

BudgetName = Literal["max_llm_calls", "max_tokens", "max_tool_calls", "max_transfers", "max_node_runs"]

BUDGETS: dict[BudgetName, tuple[type[errors.FatalError], str]] = {
    "max_llm_calls": (errors.LlmCallsLimitExceededError, "has asked models {limit} times"),
    "max_tokens": (errors.TokensLimitExceededError, "has used {used} tokens, of {limit}"),
    "max_tool_calls": (errors.ToolCallsLimitExceededError, "may call tools {limit} times"),
    "max_transfers": (errors.TransfersLimitExceededError, "has transferred {limit} times"),
    "max_node_runs": (errors.NodeRunsLimitExceededError, "has run nodes {limit} times"),
}
"""By the field of the RunConfig: what is raised when it is met, and what the invocation has done then."""


class Budgets:
    """What one invocation has used of the limits of its RunConfig; a limit of 0 or less is none."""

    __slots__ = ("_config", "usages", "used")

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self.used = dict.fromkeys(BUDGETS, 0)
        self.usages: list[UsageMetadata] = []

    def check(self, budget: BudgetName, more: int = 1) -> None:
        """Raise the budget's error if less than *more* is left of it."""
        limit, used = getattr(self._config, budget), self.used[budget]
        if 0 < limit < used + more:
            error, done = BUDGETS[budget]
            done = done.format(limit=limit, used=used)
            raise error(f"the invocation {done}; raise RunConfig.{budget}, or look for a loop")

    def spend(self, budget: BudgetName, more: int = 1) -> None:
        """Count what is about to be done; raise the budget's error if less than *more* is left of it."""
        self.check(budget, more)
        if self._config.budget is not None:
            self._config.budget._spend(budget, more)
        self.used[budget] += more

    def spend_llm_call(self) -> None:
        """Count a request to a model, before it is made."""
        self.check("max_llm_calls")
        self.check("max_tokens")
        self.spend("max_llm_calls")

    def add_usage(self, usage: UsageMetadata | None, *, is_recorded: bool = False) -> None:
        """Count what a model says it has used; the next request is refused when that is too much."""
        if usage is not None:
            self.usages.append(usage)
            parts = (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count)
            tokens = usage.total_token_count or sum(count or 0 for count in parts)
            self.used["max_tokens"] += tokens
            if self._config.budget is not None and not is_recorded:
                self._config.budget._add_tokens(tokens)


def is_shared(budget: object) -> bool:
    """Whether it is a Budget, or None."""
    if budget is None:
        return True
    from ._shared_budget import Budget  # few runs share one

    return isinstance(budget, Budget)


# --- of a resumed invocation, from its log


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
