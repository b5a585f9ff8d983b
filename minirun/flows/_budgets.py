"""
The budgets of an invocation: how often it may ask models, call tools, hand over, and how many tokens it may use.

They are finite by default, shared by everything below the invocation, and counted again from the log when it is
resumed. What would exceed one is refused before it is done (promise P12).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import (
    LlmCallsLimitExceededError,
    TokensLimitExceededError,
    ToolCallsLimitExceededError,
    TransfersLimitExceededError,
)
from ..events import Event
from ..types import UsageMetadata

if TYPE_CHECKING:
    from ..runtime import RunConfig

__all__ = ["Budgets"]


class Budgets:
    """What one invocation has used of the limits of its RunConfig; a limit of 0 or less is none."""

    __slots__ = ("_config", "_llm_calls", "_tokens", "_tool_calls", "_transfers")

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._llm_calls = 0
        self._tool_calls = 0
        self._transfers = 0
        self._tokens = 0

    def count_llm_call(self) -> None:
        """Count a request to a model, before it is made."""
        limit, tokens = self._config.max_llm_calls, self._config.max_tokens
        if 0 < limit <= self._llm_calls:
            msg = f"the invocation has asked models {limit} times; raise RunConfig.max_llm_calls, or look for a loop"
            raise LlmCallsLimitExceededError(msg)
        if 0 < tokens <= self._tokens:
            msg = f"the models of the invocation have used {self._tokens} tokens, of RunConfig.max_tokens={tokens}"
            raise TokensLimitExceededError(msg)
        self._llm_calls += 1

    def count_tokens(self, usage: UsageMetadata | None) -> None:
        """Count what a model says it has used; the next request is refused when that is too much."""
        if usage is not None:
            parts = (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count)
            self._tokens += usage.total_token_count or sum(count or 0 for count in parts)

    def count_tool_calls(self, calls: int) -> None:
        """Count function calls, before they are made."""
        limit = self._config.max_tool_calls
        if 0 < limit < self._tool_calls + calls:
            msg = f"the invocation may call tools {limit} times; raise RunConfig.max_tool_calls, or look for a loop"
            raise ToolCallsLimitExceededError(msg)
        self._tool_calls += calls

    def check_transfers_left(self) -> None:
        """Raise if there must be no more transfers."""
        limit = self._config.max_transfers
        if 0 < limit <= self._transfers:
            msg = f"the invocation has transferred {limit} times; raise RunConfig.max_transfers, or look for a loop"
            raise TransfersLimitExceededError(msg)

    def count_transfer(self) -> None:
        """Count a transfer, before the event that makes it is stored."""
        self.check_transfers_left()
        self._transfers += 1

    def count_transfers_of(self, events: Iterable[Event]) -> None:
        """Count the transfers that *events* of earlier runs have made."""
        self._transfers += sum(event.actions.transfer_to_agent is not None for event in events)
