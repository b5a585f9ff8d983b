"""Which agent takes over after the calls of a turn, if some of them hand over."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidEventError, TransfersLimitExceededError
from ..flows._transfers import check_transfer
from ..runtime import InvocationContext
from ._call import ToolCall
from ._outcome import Result

__all__ = ["choose_target"]


def choose_target(context: InvocationContext, batch: Sequence[ToolCall]) -> None:
    """Let only the last call hand over that may; the others that would have are answered with an error."""
    chosen: str | None = None
    earlier = context._position.handover.transfer_to  # of this turn, where its calls are not all answered together
    escalates = context.escalated or any(each.context.actions.escalate for each in batch)
    has_answer = any(map(_is_final_answer, batch))
    for each in reversed(batch):
        target = each.context.actions.transfer_to_agent
        if target is None:
            continue
        try:
            if earlier is not None:
                raise InvalidEventError(f"an earlier call of this turn hands over to {earlier!r}")
            if chosen is not None:
                raise InvalidEventError(f"a later call of this turn hands over to {chosen!r}")
            if escalates:
                raise InvalidEventError("a call of this agent ends what it works in (escalate); nobody takes over")
            if has_answer:
                raise InvalidEventError("a call of this turn gives the final answer; nobody takes over")
            check_transfer(context._position.tree, context.agent, target)
            context._invocation.budgets.check("max_transfers")
            chosen = target
        except (InvalidEventError, TransfersLimitExceededError) as error:
            each.context.actions.forget("transfer_to_agent")
            each.fail(error)


def _is_final_answer(call: ToolCall) -> bool:
    return isinstance(call.outcome, Result) and call.tool._is_final_answer(call.outcome.response)
