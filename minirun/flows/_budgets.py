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

A call that is open when its invocation is resumed is made again, and is spent then.

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

__all__ = ["Budget", "Budgets"]

Budget = Literal["max_llm_calls", "max_tokens", "max_tool_calls", "max_transfers", "max_node_runs"]

BUDGETS: dict[Budget, tuple[type[errors.FatalError], str]] = {
    "max_llm_calls": (errors.LlmCallsLimitExceededError, "has asked models {limit} times"),
    "max_tokens": (errors.TokensLimitExceededError, "has used {used} tokens, of {limit}"),
    "max_tool_calls": (errors.ToolCallsLimitExceededError, "may call tools {limit} times"),
    "max_transfers": (errors.TransfersLimitExceededError, "has transferred {limit} times"),
    "max_node_runs": (errors.NodeRunsLimitExceededError, "has run nodes {limit} times"),
}
"""By the field of the RunConfig: what is raised when it is met, and what the invocation has done then."""


class Budgets:
    """What one invocation has used of the limits of its RunConfig; a limit of 0 or less is none."""

    __slots__ = ("_config", "_used", "usages")

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._used = dict.fromkeys(BUDGETS, 0)
        self.usages: list[UsageMetadata] = []

    def check(self, budget: Budget, more: int = 1) -> None:
        """Raise the budget's error if less than *more* is left of it."""
        limit, used = getattr(self._config, budget), self._used[budget]
        if 0 < limit < used + more:
            error, done = BUDGETS[budget]
            done = done.format(limit=limit, used=used)
            raise error(f"the invocation {done}; raise RunConfig.{budget}, or look for a loop")

    def spend(self, budget: Budget, more: int = 1) -> None:
        """Count what is about to be done; raise the budget's error if less than *more* is left of it."""
        self.check(budget, more)
        self._used[budget] += more

    def spend_llm_call(self) -> None:
        """Count a request to a model, before it is made."""
        self.spend("max_llm_calls")
        self.check("max_tokens")

    def add_usage(self, usage: UsageMetadata | None) -> None:
        """Count what a model says it has used; the next request is refused when that is too much."""
        if usage is not None:
            self.usages.append(usage)
            parts = (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count)
            self._used["max_tokens"] += usage.total_token_count or sum(count or 0 for count in parts)

    # --- of a resumed invocation, from its log

    def count_recorded(self, events: Iterable[Event], answered: Collection[str]) -> None:
        """
        Count what earlier runs have used, by their *events*; *answered* are the calls that have a response.

        Called once, before any agent runs.
        """
        for event in events:
            self._used["max_transfers"] += event.actions.transfer_to_agent is not None
            self._used["max_node_runs"] += event.actions.replay.ended is not None
            if _is_marked(event):
                self._add_answer(event, answered)

    def count_answer(self, event: Event, answered: Collection[str]) -> None:
        """
        Count an answer of a model that its agent has come to, unless `count_recorded` has counted it.

        Raises:
            FatalError: More was used than the limits of this run allow.
        """
        if not _is_marked(event):
            self.check("max_tokens")
            self._add_answer(event, answered)
        self.check("max_llm_calls", 0)
        self.check("max_tool_calls", 0)

    def _add_answer(self, event: Event, answered: Collection[str]) -> None:
        if event.actions.replay.asked is not False:
            self._used["max_llm_calls"] += 1
            self.add_usage(event.usage_metadata)
        self._used["max_tool_calls"] += sum(call.id in answered for call in event.get_function_calls())


def _is_marked(event: Event) -> bool:
    """Whether *event* says of itself that it is an answer of a model."""
    return event.actions.replay.asked is not None
