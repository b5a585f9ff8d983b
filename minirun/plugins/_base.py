"""
What a plugin is: an object with hooks, for whatever all agents of an app have in common.

The rules of all hooks:

*   They are called with keywords, those of the plugins in the order of the plugins, then the agent's own callbacks.
*   None means: go on. Any other value is taken, and nothing after it is asked: neither later plugins, nor the agent's
    callbacks, nor what the hook stands before.
*   A hook that raises fails the run, with its own exception, which no hook is told of as a model's or a tool's error.
    What has happened before is stored all the same.
*   What comes after (`after_run`, `after_agent`, the hooks for their errors, `close`) comes however it ended: by
    success, failure or cancellation, or because the caller left. All of these hooks are called, and what they return is
    ignored, except by `after_agent` when the agent has come to its end.
*   Such a hook is shielded from a cancellation, for at most `Runner(cleanup_timeout_s=...)` seconds. `on_event` has
    as long for an event that has to be stored, because a call or a run is closed. Each hook has this bound each time
    that it is called: it adds up over the hooks around all agents that a cancelled run was inside of.
*   A hook that answers hides the step from those after it: list plugins that look on (LoggingPlugin,
    DebugLoggingPlugin, TracingPlugin) first, before those that answer, such as the retry plugins.
*   A hook runs in the task, and in the contextvars, of the agent or run that it stands around.
*   What a hook writes to the state or the actions of its context goes with the next event (what `on_event` writes with
    the one that it looks at), or with one of its own.

A plugin may serve many runs at once; what belongs to one is best kept by its `invocation_id`, and forgotten in
`after_run_callback`. What is kept from `on_user_message_callback` on needs another end, too: if a later plugin refuses
the message, there is no run, and neither `on_run_error_callback` nor `after_run_callback` comes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from .._arguments import refuse_unknown
from .._json import brief
from ..errors import ConfigurationError

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..events import Event
    from ..models import LlmRequest, LlmRequestDraft, LlmResponse
    from ..runtime import CallbackContext, InvocationContext, ToolContext
    from ..tools import BaseTool
    from ..types import Content

__all__ = ["BasePlugin"]

_NAME = re.compile(r"[^\W\d][\w-]*")


@refuse_unknown
class BasePlugin:
    """
    A plugin that does nothing: override the hooks that you need, with `async def` or, to be run inline, with `def`.

    Args:
        name: What errors call it: letters, digits, `_` and `-`, not beginning with a digit; unique in its app.
    """

    needs_service: ClassVar[str | None] = None
    """What a Runner has to be given for the plugin, such as "memory_service"; else it cannot be made."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_unknown(cls)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            msg = f"expected a plugin name of letters, digits, '_' and '-', found {brief(name)}"
            raise ConfigurationError(msg)
        self.name = name

    # --- the run

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: Content
    ) -> Content | None:
        """
        Called first in a run, before the user's message is stored. A run without a message, or with an answer to a
        question, begins with `before_run`.

        A Content is stored in its place; it must be one that a user can send. A failure: nothing is stored, and no
        other hook is called, not even those that clean up.
        """
        return None

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> Content | None:
        """
        Called when the message is stored, before the first agent.

        A Content is the root agent's answer, and no agent runs. A resumed invocation is then as it was before, replies
        to its open requests included, and the same Content is stored once. A failure: no agent runs.
        """
        return None

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        """
        Called with every event of agents and of a run's end before it is stored or, if it is partial, shown. It cannot
        emit events itself.

        It is not called with what the user sends (`on_user_message` is, with a new message), nor with what no agent
        says: answers to calls that a dead run has left open, summaries, rewinds, and `append_event`.

        An Event with the id of *event* was made from it (`attrs.evolve(event, content=...)`) and is taken as it is, so
        that something can be taken away. Of any other what it says takes the place of what the event said, field by
        field. The id, the invocation, the timestamp and `partial` stay, and so must the function calls and responses:
        InvalidEventError. A failure: the event is not stored, except for those at the end of a call or a run that
        answer open calls and tell what it failed with; they are stored as they were, and the run fails.
        """
        return None

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """
        Called last in a run, however it ended.

        What it returns is ignored. A failure: the run fails, if it has not failed already; its events are stored.
        """
        return None

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        """
        Called with what a run fails with, before `after_run_callback`. The run fails all the same.

        What it returns is ignored. A failure becomes a note on the run's.
        """
        return None

    # --- agents

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> Content | None:
        """
        Called before an agent's logic, each time that it runs.

        A Content is what the agent says, and neither its logic nor `after_agent` runs. A failure: the same, unsaid.
        """
        return None

    async def after_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> Content | None:
        """
        Called after an agent's logic, however it ended.

        A Content is one more thing that the agent says, and no later hook is asked. If the agent has failed or was
        cancelled, all hooks are called, and what they return is ignored. A failure: what it has said is stored.
        """
        return None

    async def on_agent_error_callback(
        self, *, agent: BaseAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        """
        Called with what an agent's logic raised, before `after_agent_callback`. The agent fails all the same.

        What it returns is ignored. A failure becomes a note on the agent's.
        """
        return None

    # --- models

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft
    ) -> LlmResponse | None:
        """
        Called before a model is asked. What it changes in the request is what the model gets.

        An LlmResponse is the answer, and the model is not asked. A failure: the model is not asked.
        """
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """
        Called with every response of a model, fragments included, before an event is made of it.

        An LlmResponse takes its place; the one given cannot change. What it leaves out of `usage_metadata`,
        `finish_reason`, `turn_complete` and `model_version` stays. A failure: it is not stored.
        """
        return None

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """
        Called with what a model raised, and the request that it got. A FatalError ends the run without asking.

        An LlmResponse is the answer, and the run goes on. A failure takes the error's place.
        """
        return None

    # --- tools

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> Any:
        """
        Called before a tool. What it changes in the arguments is what the tool gets; the call is stored already.

        A value is the tool's result, and the tool is not called; `after_tool` is. A failure: the tool is not called.
        """
        return None

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> Any:
        """
        Called with a tool's result, as the tool returned it.

        A value takes its place. A failure: the result is stored as it was.
        """
        return None

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> Any:
        """
        Called with what a tool raised, in its last attempt if it is retried. A FatalError ends the run without asking.

        A value is the tool's result, and `after_tool` gets it. A failure: the tool's error is stored.
        """
        return None

    # --- the end

    async def close(self) -> None:
        """
        Give back what the plugin holds. Called when the Runner is closed, for a bounded time.

        A failure: the other plugins are closed all the same, and then it is raised.
        """
