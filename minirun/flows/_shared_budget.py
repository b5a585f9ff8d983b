"""
A budget that several runs share: `Budget`. See `_budgets` for what each count means, and when it is spent.

It is an object of one process, not a part of a log: it counts what is done while it is given, and nothing twice. What
an earlier run has recorded is replayed without asking anybody, so it costs nothing here. The limits of the RunConfig
beside it go on to count one invocation, over all of its runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, NoReturn, SupportsIndex

from .. import errors
from .._arguments import refuse_unknown
from .._json import brief, is_count
from ..errors import ConfigurationError

if TYPE_CHECKING:
    from ._budgets import BudgetName

__all__ = ["Budget", "BudgetAmounts"]

_BUDGETS: dict[str, tuple[type[errors.FatalError], str]] = {
    "max_llm_calls": (errors.LlmCallsLimitExceededError, "asked models {used} times, of {limit}"),
    "max_tokens": (errors.TokensLimitExceededError, "used {used} tokens, of {limit}"),
    "max_tool_calls": (errors.ToolCallsLimitExceededError, "called tools {used} times, of {limit}"),
}
"""As `BUDGETS` of an invocation."""


class BudgetAmounts(NamedTuple):
    """What was used of a `Budget`, or is left of it; None is without a limit."""

    llm_calls: int | None
    tokens: int | None
    tool_calls: int | None


@refuse_unknown
class Budget:
    """
    A limit on what several runs do together: give one object to each, as `RunConfig(budget=...)`.

    Requests to models and calls of tools are counted before they are made, so runs at the same time never make more
    than the limit. Tokens are known with each answer: once they are used up, no model is asked again; what was asked
    before that is still answered, and may use more than the limit. A run that would go beyond fails with
    LlmCallsLimitExceededError, TokensLimitExceededError or ToolCallsLimitExceededError, as by the limits of its own.

    What is counted is what is done, in runs that have this object, from its beginning on: not what the log of a resumed
    invocation has, and a call that is made again after a crash is counted again. A call that waits for a permission or
    for those before it in its turn is not counted until it is made. Without any limit it only counts.

    It is shared by runs of one thread. It is of one process: it cannot be pickled or copied, and a process that was
    forked refuses the object of its parent.

    Args:
        max_llm_calls: How often models may be asked; from 1 up, or None: no limit.
        max_tokens: How many tokens models may use, as they tell; from 1 up, or None: no limit.
        max_tool_calls: How many function calls may be made; from 1 up, or None: no limit.

    Raises:
        ConfigurationError: A limit is no integer above 0.
    """

    __slots__ = ("_limits", "_process", "_used")

    def __init__(
        self, *, max_llm_calls: int | None = None, max_tokens: int | None = None, max_tool_calls: int | None = None
    ) -> None:
        self._limits: dict[str, int | None] = {
            "max_llm_calls": max_llm_calls, "max_tokens": max_tokens, "max_tool_calls": max_tool_calls,
        }  # fmt: skip
        for name, limit in self._limits.items():
            if limit is not None and not is_count(limit, 1):
                msg = f"Budget.{name}: expected an integer above 0, or None, found {brief(limit)}"
                raise ConfigurationError(msg)
        self._used = dict.fromkeys(self._limits, 0)
        self._process = os.getpid()

    @property
    def used(self) -> BudgetAmounts:
        """What was used until now."""
        return BudgetAmounts(*self._used.values())

    @property
    def remaining(self) -> BudgetAmounts:
        """What is left, at least 0; None where there is no limit."""
        left = (None if limit is None else max(0, limit - self._used[name]) for name, limit in self._limits.items())
        return BudgetAmounts(*left)

    def __repr__(self) -> str:
        limits = (f"{name}={limit}" for name, limit in self._limits.items() if limit is not None)
        return f"Budget({', '.join(limits)}, used={self.used})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        msg = "a Budget belongs to the runs of one process and cannot be copied; give its `remaining` to another one"
        raise TypeError(msg)

    # --- for the runtime

    def _spend(self, budget: BudgetName, more: int) -> None:
        """Count what is about to be done; raise the budget's error, and count nothing, if it does not fit."""
        if budget not in self._limits:
            return  # transfers, and runs of nodes
        if self._process != os.getpid():
            msg = "this Budget was made by another process, which this one was forked from; make one here"
            raise ConfigurationError(msg)
        self._check(budget, more)
        if budget == "max_llm_calls":
            self._check("max_tokens", 1)
        self._used[budget] += more

    def _check(self, budget: BudgetName, more: int) -> None:
        limit, used = self._limits[budget], self._used[budget]
        if limit is not None and limit < used + more:
            error, done = _BUDGETS[budget]
            done = done.format(used=used, limit=limit)
            msg = f"the runs that share a Budget have {done}; raise Budget.{budget}, or ask for less"
            raise error(msg)

    def _add_tokens(self, tokens: int) -> None:
        self._used["max_tokens"] += tokens

    def _give_back_calls(self, calls: int) -> None:
        """Note that so many calls of tools, which were counted, are not made now."""
        self._used["max_tool_calls"] -= calls
