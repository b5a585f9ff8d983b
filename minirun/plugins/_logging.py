"""
What happens in an app's runs, as records of the standard library's `logging`.

Nothing is configured here and no handler is added: whether, where and how records appear is the application's own
choice. Each has a short message for people and, for programs, one more attribute, `record.minirun`: a dict with `kind`,
`invocation_id` and what belongs to the kind:

    user_message      text
    run_begin         app_name, user_id, session_id, resumed (whether it goes on with an earlier invocation)
    run_end           app_name, user_id, session_id, status ("completed", "paused" and so on), duration_s
    run_error         error_type, error_message, duration_s
    agent_begin       agent, branch
    agent_end         agent, branch
    agent_error       agent, branch, error_type, error_message
    model_request     agent, branch, model, contents (how many), tools (their names)
    model_response    agent, branch, text, calls (names of tools), partial, finish_reason, error_code, error_message,
                      usage (token counts), duration_s
    model_error       agent, branch, model, error_type, error_message, duration_s
    tool_call         agent, branch, tool, call_id, text (of the arguments)
    tool_result       agent, branch, tool, call_id, text (of the result), duration_s
    tool_error        agent, branch, tool, call_id, error_type, error_message, duration_s
    event             event_id, author, branch, partial, text, error_code, error_message,
                      waits (ids of the calls that wait for somebody outside from here on)

What is not known is None. Durations are in seconds of trio's clock, which never jumps.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._values import Value
from ..errors import ConfigurationError
from ..types import Content, UsageMetadata
from ._base import BasePlugin
from ._traced import SECRETS, Shower

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..events import Event
    from ..models import LlmRequest, LlmRequestDraft, LlmResponse
    from ..runtime import CallbackContext, InvocationContext, ReadonlyContext, ToolContext
    from ..tools import BaseTool

__all__ = ["LoggingPlugin"]

# A run whose cleanup is cut off, because another plugin takes too long, never comes to after_run. Its durations are
# forgotten once this many newer runs are known: more than go on at once in one process, and a few megabytes.
RUNS_MAX = 10_000


@attrs.define
class _Run:
    """When a run began, and when each step that is going on in it did."""

    begun: float
    steps: dict[Hashable, float] = attrs.field(factory=dict)


class LoggingPlugin(BasePlugin):
    """
    Logs runs, agents, models and tools, and changes nothing. Each record has a dict of its fields, `record.minirun`.

    Args:
        name: The name of the plugin.
        logger: The name of the logger that gets the records.
        level: The level of the records. Errors of models and tools are WARNING or higher, those of agents and runs
            ERROR or higher. Fragments of a stream and partial events are DEBUG.
        max_text: How many characters are logged of a text, of arguments and of a result; 0 leaves them out. What keys
            of arguments and results call a secret is redacted, as by DebugLoggingPlugin; what somebody says is not.

    A filter or a handler that raises fails no run; that is told once, on stderr.
    """

    def __init__(
        self, name: str = "logging", *, logger: str = "minirun", level: int = logging.INFO, max_text: int = 200
    ) -> None:
        super().__init__(name)
        are_numbers = all(isinstance(each, int) and not isinstance(each, bool) for each in (level, max_text))
        if not (isinstance(logger, str) and are_numbers and max_text >= 0):
            found = f"found logger={logger!r:.80}, level={level!r:.80}, max_text={max_text!r:.80}"
            msg = f"expected a logger's name, a level such as logging.INFO, and a max_text of at least 0, {found}"
            raise ConfigurationError(msg)
        self._logger = logging.getLogger(logger)
        self._level = level
        self._warning = max(level, logging.WARNING)
        self._error = max(level, logging.ERROR)
        self._max_text = max_text
        self._shower = Shower(SECRETS, None)
        self._has_failed = False
        self._runs: dict[str, _Run] = {}  # by invocation id, from before_run to after_run

    # --- the run

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        """Log what the user says."""
        self._log(self._level, "user_message", invocation_context, "user message", {"text": user_message})

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Log for whom the run is."""
        if len(self._runs) >= RUNS_MAX:
            del self._runs[next(iter(self._runs))]
        self._runs[invocation_context.invocation_id] = _Run(trio.current_time())
        fields = {**_session_of(invocation_context), "resumed": invocation_context.is_resumed}
        verb = "goes on" if invocation_context.is_resumed else "begins"
        message = f"run {verb} for user {fields['user_id']} in session {fields['session_id']}"
        self._log(self._level, "run_begin", invocation_context, message, fields)

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        """Log the event that is about to be stored."""
        waits = sorted({*(event.long_running_tool_ids or ()), *event.actions.suspended_calls})
        fields = {
            "event_id": event.id,
            "author": event.author,
            "branch": event.branch,
            "partial": bool(event.partial),
            "text": event.content,
            "error_code": event.error_code,
            "error_message": event.error_message,
            "waits": waits,
        }
        level = logging.DEBUG if event.partial else self._level
        message = f"event by {event.author}" + (f", {' and '.join(waits)} waiting" if waits else "")
        self._log(level, "event", invocation_context, message, fields)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        """Log what the run fails with."""
        fields = {**_error_of(error), "duration_s": _since(self._runs.get(invocation_context.invocation_id))}
        self._log(self._error, "run_error", invocation_context, "run failed", fields, trace_of=error)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Log that the run has ended."""
        run = self._runs.pop(invocation_context.invocation_id, None)
        status = str(invocation_context.status)
        fields = {**_session_of(invocation_context), "status": status, "duration_s": _since(run)}
        self._log(self._level, "run_end", invocation_context, f"run ends as {status}", fields)

    # --- agents

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        """Log that the agent begins."""
        self._log(self._level, "agent_begin", callback_context, f"{agent.name} begins", _agent_of(callback_context))

    async def after_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        """Log that the agent has ended."""
        self._log(self._level, "agent_end", callback_context, f"{agent.name} ends", _agent_of(callback_context))

    async def on_agent_error_callback(
        self, *, agent: BaseAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        """Log what the agent raised; its traceback comes with the run's error."""
        fields = {**_agent_of(callback_context), **_error_of(error)}
        self._log(self._error, "agent_error", callback_context, f"{agent.name} failed", fields)

    # --- models

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """Log how much the model is asked."""
        self._begin(callback_context, _model_step(callback_context))
        fields = {
            **_agent_of(callback_context),
            "model": llm_request.model,
            "contents": len(llm_request.contents),
            "tools": [tool.name for tool in llm_request.config.tools],
        }
        message = f"{callback_context.agent_name} asks {llm_request.model} with {fields['contents']} contents"
        self._log(self._level, "model_request", callback_context, message, fields)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Log what the model answers, and what it cost."""
        partial = bool(llm_response.partial)
        parts = llm_response.content.parts if llm_response.content is not None else ()
        calls = [part.function_call.name for part in parts if part.function_call is not None]
        fields = {
            **_agent_of(callback_context),
            "text": llm_response.content,
            "calls": calls,
            "partial": partial,
            "finish_reason": llm_response.finish_reason,
            "error_code": llm_response.error_code,
            "error_message": llm_response.error_message,
            "usage": _counts(llm_response.usage_metadata),
            "duration_s": None if partial else self._end(callback_context, _model_step(callback_context)),
        }
        message = " ".join([f"{callback_context.agent_name} is answered", *(f"and calls {name}" for name in calls)])
        self._log(logging.DEBUG if partial else self._level, "model_response", callback_context, message, fields)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        """Log what the model raised."""
        fields = {
            **_agent_of(callback_context),
            "model": llm_request.model,
            **_error_of(error),
            "duration_s": self._end(callback_context, _model_step(callback_context)),
        }
        message = f"{llm_request.model} failed to answer {callback_context.agent_name}"
        self._log(self._warning, "model_error", callback_context, message, fields, trace_of=error)

    # --- tools

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> None:
        """Log what the tool is called with."""
        self._begin(tool_context, tool_context.function_call_id)
        fields = {**_call_of(tool, tool_context), "text": self._shown(tool_args)}
        self._log(self._level, "tool_call", tool_context, f"{tool.name} is called", fields)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> None:
        """Log what the tool returned."""
        duration = self._end(tool_context, tool_context.function_call_id)
        fields = {**_call_of(tool, tool_context), "text": self._shown(result), "duration_s": duration}
        self._log(self._level, "tool_result", tool_context, f"{tool.name} returned", fields)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> None:
        """Log what the tool raised."""
        duration = self._end(tool_context, tool_context.function_call_id)
        fields = {**_call_of(tool, tool_context), **_error_of(error), "duration_s": duration}
        self._log(self._warning, "tool_error", tool_context, f"{tool.name} failed", fields, trace_of=error)

    # --- how

    def _begin(self, context: ReadonlyContext, step: Hashable) -> None:
        run = self._runs.get(context.invocation_id)
        if run is not None:
            run.steps[step] = trio.current_time()

    def _end(self, context: ReadonlyContext, step: Hashable) -> float | None:
        """How long the step took; None if nobody saw it begin."""
        run = self._runs.get(context.invocation_id)
        begun = None if run is None else run.steps.pop(step, None)
        return None if begun is None else trio.current_time() - begun

    def _log(
        self,
        level: int,
        kind: str,
        context: ReadonlyContext,
        message: str,
        fields: dict[str, Any],
        *,
        trace_of: Exception | None = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        secrets = context._core.secrets
        if "text" in fields:
            fields["text"] = _shortened(fields["text"], self._max_text, secrets.hide)
        if fields.get("error_message") is not None and secrets.hide is not None:
            fields["error_message"] = secrets.hide(fields["error_message"])
        if fields.get("duration_s") is not None:
            message += f" ({fields['duration_s']:.3f} s)"
        told = fields.get("text") or fields.get("error_message")
        if told:
            message += f": {told}"
        minirun = {"kind": kind, "invocation_id": context.invocation_id, **fields}
        trace = None if trace_of is None else secrets.shown(trace_of)
        try:
            self._logger.log(level, _on_one_line(message), exc_info=trace, extra={"minirun": minirun}, stacklevel=2)
        except Exception as error:
            self._tell_failure(error)

    def _tell_failure(self, error: Exception) -> None:
        """Say once that a filter or a handler raises, where nothing of `logging` is asked."""
        if not self._has_failed and sys.stderr is not None:
            self._has_failed = True
            told = f"{type(error).__name__} of a filter or handler of logger {self._logger.name!r}"
            sys.stderr.write(f"minirun: plugin {self.name!r} cannot log ({told}); this is told once\n")

    def _shown(self, value: Any) -> Any:
        """Arguments or a result without secrets, as far as their names tell."""
        if self._max_text == 0 or not self._logger.isEnabledFor(self._level):
            return None
        return self._shower.shown(value) if isinstance(value, (str, dict, list, tuple, Value)) else value


def _since(run: _Run | None) -> float | None:
    return None if run is None else trio.current_time() - run.begun


def _session_of(context: InvocationContext) -> dict[str, Any]:
    return {"app_name": context.app_name, "user_id": context.user_id, "session_id": context.session.id}


def _agent_of(context: ReadonlyContext) -> dict[str, Any]:
    return {"agent": context.agent_name, "branch": context.branch}


def _call_of(tool: BaseTool, context: ToolContext) -> dict[str, Any]:
    return {**_agent_of(context), "tool": tool.name, "call_id": context.function_call_id}


def _model_step(context: ReadonlyContext) -> Hashable:
    """An agent asks one question at a time in its branch."""
    return context.agent_name, context.branch


def _counts(usage: UsageMetadata | None) -> dict[str, int]:
    fields = attrs.asdict(usage, recurse=False) if usage is not None else {}
    return {name: count for name, count in fields.items() if isinstance(count, int)}


def _error_of(error: Exception) -> dict[str, Any]:
    return {"error_type": type(error).__name__, "error_message": _text_of(error)}


def _shortened(value: object, length: int, hide: Callable[[str], str] | None) -> str | None:
    """The beginning of a text, or of a value as Python writes it, without what *hide* takes out; None for nothing."""
    if value is None or length == 0:
        return None
    text = _text_of(value) if hide is None else hide(_text_of(value))
    return text if len(text) <= length else text[: length - 1] + "…"


def _on_one_line(text: str) -> str:
    """The text with line breaks and the like escaped: nobody's words can look like another record."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _text_of(value: object) -> str:
    """A text for any value: logging must not fail a run, so a foreign `__str__` that raises is not asked again."""
    if isinstance(value, Content):
        return value.text
    try:
        return str(value)
    except Exception:
        return f"a value of type {type(value).__name__}"
