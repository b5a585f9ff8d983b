"""What plugins make of a user's new message before it is stored."""

from __future__ import annotations

from .._values import changed
from ..events import Event
from ..flows._message import user_content
from ..sessions._event_checks import checked_event
from ..sessions._state import parted, with_writes, writes_of
from ..types import Content
from ._context import InvocationContext
from ._hook_calls import ask, expect

__all__ = ["apply_on_user_message"]


async def apply_on_user_message(context: InvocationContext, message: Event) -> Event:
    """Return what the plugins make of a new message, before it is stored; what they write to the state goes with it."""
    if message.content is None:
        return message
    invocation = context._invocation
    hooks = invocation.program.plugins["on_user_message_callback"]
    context._closed = "the message is not stored yet, and nothing can be emitted before it"
    answer = await ask(hooks, invocation_context=context, user_message=message.content)
    context._closed = ""
    context.actions.check_no_flags("a user's message", "set them in an agent, in its callbacks or in its tools")
    content = expect(answer, Content, "on_user_message_callback")
    if content is not None:
        message = changed(message, content=user_content(content, may_answer=False))
    pending = context.state.take(writes_of(message.actions))
    pending.commit()
    lasting, temp = parted(pending.writes)
    invocation.keep_temp(temp)
    changes = context.actions.artifact_changes_to(message.actions)
    context.actions.forget_artifacts()
    return checked_event(changed(message, actions=with_writes(message.actions, lasting, **changes)))
