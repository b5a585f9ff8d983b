"""Calls that wait for somebody outside: what is stored of them when the invocation pauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import NotSupportedError
from ..runtime import InvocationContext
from ..runtime._questions import pose
from ..sessions._asking import Question
from ..types import FunctionCall, id_of

if TYPE_CHECKING:
    from ._call import ToolCall

__all__ = ["mark_waiting"]

_INSTEAD = "set them in a tool that returns its result, or once the answer is there, in a callback of the agent"


async def mark_waiting(
    context: InvocationContext, waiting: Sequence[ToolCall], later: Sequence[FunctionCall], *, closing: bool = False
) -> list[ToolCall]:
    """
    Pose the calls whose results come later as questions, and suspend the others, unless that is stored already.

    What the tools of the former have written and saved goes with the event: nothing else will come from them. The calls
    *later* in the turn, which have not begun, are suspended, too. Return those that have failed instead, because what
    they wrote does not fit, or because they have set flags: the pause ends the turn, and nothing would come of them.
    """
    calls = context._invocation.live.open_calls
    begun = [each for each in waiting if each.is_begun and each.id in calls and calls[each.id].pending != "waits"]
    for each in begun:
        try:
            # Every flag: each says how the turn goes on with the result (who answers, whether the model is asked, what
            # ends), and there is no result yet. When the answer comes, maybe in another process, the tool is not called
            # again, and the event that asks cannot carry the flag: it would have its effect now.
            each.context.actions.check_no_flags(f"the call of {each.call.name!r}, which waits", _INSTEAD)
            each.merge_into(context)
        except NotSupportedError as error:
            from ._failed import tell_failed  # a mistake in a program

            tell_failed(each.context, each.call.name, error)
            each.fail(error)
            each.context.actions.forget_flags()
    questions = [Question(each.id, each.call.name, None, each.initial_result) for each in begun if each.is_waiting]
    suspended = [each.id for each in waiting if not each.is_begun]
    if any(each.is_waiting for each in waiting):
        suspended += [id_of(each) for each in later]
    suspended = [call_id for call_id in suspended if call_id in calls and not calls[call_id].pending]
    _give_back(context, [*(each.id for each in waiting if not each.was_made), *(id_of(each) for each in later)])
    if questions or suspended:
        await pose(context, *questions, suspended=suspended, closing=closing)
    return [each for each in begun if not each.is_waiting]


def _give_back(context: InvocationContext, calls: Sequence[str]) -> None:
    """Let a shared budget not count *calls*, whose tools were not called: they are when the invocation goes on."""
    invocation = context._invocation
    if invocation.run_config.budget is not None:
        given_back: set[str] = invocation.memo.setdefault("calls given back", set())
        invocation.run_config.budget._give_back_calls(len({*calls} - given_back))
        given_back.update(calls)
