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
from typing import TYPE_CHECKING, Any

import attrs

from .._json import brief, is_count
from .._values import Value
from ..errors import ConfigurationError
from ..types import Content, UsageMetadata
from ._observer import Observer, OpenRun, OpenRuns, agent_of, error_of, model_step, text_of
from ._redaction import SECRETS, Redactor

if TYPE_CHECKING:
    from ..events import Event
    from ..flows._no_secrets import NoSecrets
    from ..models import LlmRequest, LlmRequestDraft, LlmResponse
    from ..runtime import CallbackContext, InvocationContext, ReadonlyContext

__all__ = ["LoggingPlugin"]

# Records of failures have at least these levels.
_LEVELS = {
    "model_error": logging.WARNING,
    "tool_error": logging.WARNING,
    "agent_error": logging.ERROR,
    "run_error": logging.ERROR,
}
# What is said to people of agents and tools.
_MESSAGES = {
    "agent_begin": "{agent} begins",
    "agent_end": "{agent} ends",
    "agent_error": "{agent} failed",
    "tool_call": "{tool} is called",
    "tool_result": "{tool} returned",
    "tool_error": "{tool} failed",
}


class LoggingPlugin(Observer):
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
        if not (isinstance(logger, str) and is_count(level) and is_count(max_text)):
            found = f"found logger={brief(logger)}, level={brief(level)}, max_text={brief(max_text)}"
            msg = f"expected a logger's name, a level such as logging.INFO, and a max_text of at least 0, {found}"
            raise ConfigurationError(msg)
        self._logger = logging.getLogger(logger)
        self._level = level
        self._max_text = max_text
        self._redactor = Redactor(SECRETS, None)
        self._has_failed = False
        self._runs: OpenRuns[OpenRun] = OpenRuns()

    # --- the run

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        """Log what the user says."""
        self._tell("user_message", invocation_context, {"text": user_message}, message="user message")

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Log for whom the run is."""
        self._runs.begin(invocation_context.invocation_id, OpenRun())
        fields = {**_session_of(invocation_context), "resumed": invocation_context.is_resumed}
        verb = "goes on" if invocation_context.is_resumed else "begins"
        message = f"run {verb} for user {fields['user_id']} in session {fields['session_id']}"
        self._tell("run_begin", invocation_context, fields, message=message)

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
        message = f"event by {event.author}" + (f", {' and '.join(waits)} waiting" if waits else "")
        self._tell("event", invocation_context, fields, message=message)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        """Log what the run fails with."""
        fields = {**error_of(error), "duration_s": self._runs.duration_s(invocation_context)}
        self._tell("run_error", invocation_context, fields, error, message="run failed")

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Log that the run has ended."""
        status, duration_s = str(invocation_context.status), self._runs.duration_s(invocation_context)
        self._runs.pop(invocation_context.invocation_id, None)
        fields = {**_session_of(invocation_context), "status": status, "duration_s": duration_s}
        self._tell("run_end", invocation_context, fields, message=f"run ends as {status}")

    # --- models

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """Log how much the model is asked."""
        self._runs.begin_step(callback_context, model_step(callback_context))
        fields = {
            **agent_of(callback_context),
            "model": llm_request.model,
            "contents": len(llm_request.contents),
            "tools": [tool.name for tool in llm_request.config.tools],
        }
        message = f"{callback_context.agent_name} asks {llm_request.model} with {fields['contents']} contents"
        self._tell("model_request", callback_context, fields, message=message)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Log what the model answers, and what it cost."""
        partial = bool(llm_response.partial)
        parts = llm_response.content.parts if llm_response.content is not None else ()
        calls = [part.function_call.name for part in parts if part.function_call is not None]
        fields = {
            **agent_of(callback_context),
            "text": llm_response.content,
            "calls": calls,
            "partial": partial,
            "finish_reason": llm_response.finish_reason,
            "error_code": llm_response.error_code,
            "error_message": llm_response.error_message,
            "usage": _counts(llm_response.usage_metadata),
            "duration_s": None if partial else self._runs.end_step(callback_context, model_step(callback_context)),
        }
        message = " ".join([f"{callback_context.agent_name} is answered", *(f"and calls {name}" for name in calls)])
        self._tell("model_response", callback_context, fields, message=message)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        """Log what the model raised."""
        fields = {
            **agent_of(callback_context),
            "model": llm_request.model,
            **error_of(error),
            "duration_s": self._runs.end_step(callback_context, model_step(callback_context)),
        }
        message = f"{llm_request.model} failed to answer {callback_context.agent_name}"
        self._tell("model_error", callback_context, fields, error, message=message)

    # --- how

    def _tell(
        self,
        kind: str,
        context: ReadonlyContext,
        fields: dict[str, Any],
        trace_of: Exception | None = None,
        *,
        message: str | None = None,
    ) -> None:
        level = logging.DEBUG if fields.get("partial") else max(self._level, _LEVELS.get(kind, 0))
        if not self._logger.isEnabledFor(level):
            return
        if message is None:
            message = _MESSAGES[kind].format_map(fields)
        secrets = context._invocation.secrets
        for name in ("args", "result"):
            if name in fields:
                fields["text"] = self._redacted(fields.pop(name))
        if fields.get("text") is not None:
            fields["text"] = self._beginning(fields["text"], secrets)
        if fields.get("error_message") is not None:
            fields["error_message"] = secrets.out_of_text(fields["error_message"])
        if fields.get("duration_s") is not None:
            message += f" ({fields['duration_s']:.3f} s)"
        told = fields.get("text") or fields.get("error_message")
        if told:
            message += f": {told}"
        minirun = {"kind": kind, "invocation_id": context.invocation_id, **fields}
        trace = None if trace_of is None else secrets.shown(trace_of)
        try:
            self._logger.log(level, _on_one_line(message), exc_info=trace, extra={"minirun": minirun}, stacklevel=2)
        except Exception as error:  # of a filter or a handler, which are the application's
            self._tell_failure(error)

    def _tell_failure(self, error: Exception) -> None:
        """Say once that a filter or a handler raises, where nothing of `logging` is asked."""
        if not self._has_failed and sys.stderr is not None:
            self._has_failed = True
            told = f"{type(error).__name__} of a filter or handler of logger {self._logger.name!r}"
            sys.stderr.write(f"minirun: plugin {self.name!r} cannot log ({told}); this is told once\n")

    def _redacted(self, value: Any) -> Any:
        """Arguments or a result without secrets, as far as their names tell."""
        if self._max_text == 0 or not isinstance(value, (str, dict, list, tuple, Value)):
            return value
        return self._redactor.redacted(value)

    def _beginning(self, value: Any, secrets: NoSecrets) -> str | None:
        """The beginning of a text, or of a value as Python writes it."""
        limit = self._max_text
        if limit == 0:
            return None
        text = secrets.out_of_text(value.text if isinstance(value, Content) else text_of(value))
        return text if len(text) <= limit else text[: limit - 1] + "…"


def _session_of(context: InvocationContext) -> dict[str, Any]:
    return {"app_name": context.app_name, "user_id": context.user_id, "session_id": context.session.id}


def _counts(usage: UsageMetadata | None) -> dict[str, int]:
    fields = attrs.asdict(usage, recurse=False) if usage is not None else {}
    return {name: count for name, count in fields.items() if isinstance(count, int)}


def _on_one_line(text: str) -> str:
    """The text with line breaks and the like escaped: nobody's words can look like another record."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
