"""
The callbacks around an agent, and those of plugins: before it runs, when it has failed, and when it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from .._values import changed
from ..events import Event
from ..runtime import InvocationContext
from ..runtime._cleanup import tell, with_cleanup
from ..runtime._failure import first_failure, is_pause
from ..runtime._hook_calls import ask, expect
from ..runtime._hooks import Hook
from ..types import Content

if TYPE_CHECKING:
    from ._base import BaseAgent

__all__ = ["run_with_callbacks"]


async def run_with_callbacks(
    agent: BaseAgent,
    context: InvocationContext,
    before: Sequence[Hook],
    after: Sequence[Hook],
    on_error: Sequence[Hook],
) -> None:
    """Run *agent*, unless a callback answers in its place; *after* and *on_error* are called whatever it raises."""
    if before and await _is_answered(agent, context, before):
        return
    if not (after or on_error):
        await agent._run_to_its_end(context)
        return
    callback_context = context._for_agent_hooks("after")

    async def cleanup(failure: BaseException | None) -> None:
        if is_pause(failure):
            return  # it is not over
        replayer = context._invocation.replayer
        if failure is None and replayer is not None and replayer.is_replaying(callback_context):
            await replayer.repeat_following(callback_context)  # it was over then, and they have been asked
            return
        error = None if failure is None else first_failure(failure)
        grace_s, what = context._invocation.program.cleanup_timeout_s, f"a cleanup hook of agent {agent.name!r}"
        try:
            try:
                if isinstance(error, Exception):
                    await tell(on_error, grace_s, what, callback_context=callback_context, error=error)
            finally:
                well = failure is None
                answer = await tell(after, grace_s, what, first_answer=well, callback_context=callback_context)
            content = expect(answer, Content, "after_agent_callback")
            if content is not None:
                await callback_context.emit(Event(content=_as_answer(content)))
            elif failure is None:
                await callback_context._flush()
        finally:  # what the hooks have written is kept, although nobody may be there to hear of it
            with trio.CancelScope(shield=True):
                await callback_context._flush(closing=True)

    await with_cleanup(lambda: agent._run_to_its_end(context), cleanup)


async def _is_answered(agent: BaseAgent, context: InvocationContext, before: Sequence[Hook]) -> bool:
    callback_context = context._for_agent_hooks("before")
    replayer = context._invocation.replayer
    if replayer is not None and replayer.is_replaying(callback_context):  # they were asked: it had begun
        recorded = await replayer.repeat_following(callback_context)
        return recorded is not None and recorded.content is not None
    answer = await ask(before, callback_context=callback_context)
    content = expect(answer, Content, "before_agent_callback")
    if content is None:
        await callback_context._flush()
        return False
    await callback_context.emit(agent._event_of(_as_answer(content)))
    return True


def _as_answer(content: Content) -> Content:
    """What a hook says in the place of an agent: in the agent's role, whatever role it has."""
    return content if content.role == "model" else changed(content, role="model")
