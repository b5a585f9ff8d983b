"""
Spans of runs, for OpenTelemetry; needs `pip install "minirun[otel]"`.

    invocation                     a run, under whatever span its caller is in
      invoke_agent NAME            an agent, each time that it runs; agents below it are under it
        call_llm                   a question to its model
        execute_tool NAME          a call of a tool; what the tool itself traces is under it

Names and attributes are those of the ADK documents and of OpenTelemetry's conventions for generative AI (`gen_ai.…`);
what is minirun's own begins with `minirun.`. Only the OpenTelemetry API is used: without an SDK nothing is recorded.

A span is made the current one of the task that its hook runs in, so parents follow from contextvars. It ends when its
step does. Where no hook tells of that, because the step was cancelled, waits for somebody outside, or was answered by
another plugin, it ends with what is around it. Times are those of the run's Env.

The `invocation` span has the number of stored events and of keys in conflict; the latter is a metric as well:

    minirun.state.conflicts        counter: keys that two concurrent writers have set
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._json import brief
from ..errors import ConfigurationError
from ._base import BasePlugin
from ._observer import OpenRun, OpenRuns
from ._redaction import SECRETS, Redactor

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, trace
except ModuleNotFoundError as _error:
    _msg = 'TracingPlugin needs the OpenTelemetry API; run: pip install "minirun[otel]"'
    raise ModuleNotFoundError(_msg, name=_error.name) from None

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from ..agents import BaseAgent
    from ..events import Event
    from ..models import LlmRequest, LlmRequestDraft, LlmResponse
    from ..runtime import CallbackContext, InvocationContext, ReadonlyContext, ToolContext
    from ..tools import BaseTool

__all__ = ["TracingPlugin"]

_SETTINGS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "seed": "gen_ai.request.seed",
}
_USAGE = {
    "prompt_token_count": "gen_ai.usage.input_tokens",
    "candidates_token_count": "gen_ai.usage.output_tokens",
    "cached_content_token_count": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_token_count": "gen_ai.usage.cache_creation.input_tokens",
    "thoughts_token_count": "gen_ai.usage.reasoning.output_tokens",
}
_RESPONSE = {"model_version": "gen_ai.response.model", "response_id": "gen_ai.response.id"}


@attrs.define
class _Step:
    """A span that is open, and what was current before it."""

    span: Span
    before: Context
    path: str


@attrs.define(kw_only=True)
class _Run(OpenRun):
    """The open spans of a run, and its counts."""

    begun_ns: int
    spans: dict[tuple[str, ...], _Step] = attrs.field(factory=dict)
    commits: int = 0
    conflicts: int = 0

    def now(self) -> int:
        """The time, in nanoseconds since the epoch; it never jumps within a run."""
        return self.begun_ns + round((trio.current_time() - self.begun) * 1e9)


class TracingPlugin(BasePlugin):
    """
    Makes spans and metrics of runs, agents, models and tools, and changes nothing.

    Args:
        name: The name of the plugin.
        tracer_provider: Where spans go; None: to OpenTelemetry's global one.
        meter_provider: Where metrics go; None: to OpenTelemetry's global one.
        capture_content: Whether spans have what is said to and by models, arguments and results, as JSON; values of
            keys that look like secrets are redacted. Each `call_llm` has its whole request then. Else there is nothing
            of them but what exceptions say, which are recorded in any case.

    Raises:
        ConfigurationError: `capture_content` is neither True nor False.
    """

    def __init__(
        self,
        name: str = "tracing",
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        capture_content: bool = False,
    ) -> None:
        super().__init__(name)
        if not isinstance(capture_content, bool):
            raise ConfigurationError(f"expected capture_content to be True or False, found {brief(capture_content)}")
        self._tracer = trace.get_tracer("minirun", tracer_provider=tracer_provider)
        meter = metrics.get_meter("minirun", meter_provider=meter_provider)
        self._conflicts = meter.create_counter("minirun.state.conflicts", "{key}", "State keys set by two at once")
        self._captures = capture_content
        self._redactor = Redactor(SECRETS, None)
        self._runs: OpenRuns[_Run] = OpenRuns()

    # --- the run

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Begin the span of the run."""
        context = invocation_context
        forgotten = self._runs.begin(context.invocation_id, _Run(begun_ns=round(context._invocation.env.now() * 1e9)))
        if forgotten is not None:
            _end_all(forgotten[1], list(forgotten[1].spans))
        context.watch_commits(partial(self._count, context))
        attributes = {
            "gen_ai.conversation.id": context.session.id,
            "user.id": context.user_id,
            "minirun.app_name": context.app_name,
            "minirun.invocation_id": context.invocation_id,
            "minirun.resumed": context.is_resumed,
        }
        self._begin(context, ("run",), "invocation", attributes, path="run")

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        """Record what the run fails with."""
        self._record(invocation_context, ("run",), error)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """End the span of the run, and those in it that are still open."""
        run = self._runs.get(invocation_context.invocation_id)
        step = None if run is None else run.spans.get(("run",))
        if run is None or step is None:
            return
        attributes: dict[str, Any] = {
            "minirun.status": str(invocation_context.status),
            "minirun.commits": run.commits,
            "minirun.state.conflicts": run.conflicts,
        }
        step.span.set_attributes(attributes)
        self._forget(invocation_context.invocation_id)
        otel_context.attach(step.before)

    # --- agents

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        """Begin the span of the agent."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent.name,
            "gen_ai.agent.description": agent.description,
            **_branch_of(callback_context),
        }
        path = _path_of(callback_context)
        self._begin(callback_context, ("agent", path), f"invoke_agent {agent.name}", attributes, path=path)

    async def on_agent_error_callback(
        self, *, agent: BaseAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        """Record what the agent has raised."""
        self._record(callback_context, ("agent", _path_of(callback_context)), error)

    async def after_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        """End the span of the agent, and those in it that are still open."""
        run = self._runs.get(callback_context.invocation_id)
        path = _path_of(callback_context)
        if run is not None:
            inside = [key for key, step in run.spans.items() if step.path.startswith((f"{path}/", f"{path}!"))]
            _end_all(run, inside)
        self._end(callback_context, ("agent", path))

    # --- models

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """Begin the span of the question."""
        self._end(callback_context, _question(callback_context))
        config = llm_request.config
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "generate_content",
            "gen_ai.agent.name": callback_context.agent_name,
            **_branch_of(callback_context),
        }
        if llm_request.model is not None:
            attributes["gen_ai.request.model"] = llm_request.model
        for field, attribute in _SETTINGS.items():
            if (value := getattr(config, field)) is not None:
                attributes[attribute] = value
        if config.stop_sequences:
            attributes["gen_ai.request.stop_sequences"] = config.stop_sequences
        if self._captures:
            attributes["gen_ai.input.messages"] = self._json(callback_context, list(llm_request.contents))
            attributes["gen_ai.system_instructions"] = callback_context._invocation.secrets.out_of_text(
                config.system_instruction or ""
            )
            attributes["gen_ai.tool.definitions"] = self._json(callback_context, config.tools)
        self._begin(callback_context, _question(callback_context), "call_llm", attributes, kind=trace.SpanKind.CLIENT)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """End the span of the question with its whole answer."""
        if llm_response.partial:
            return
        attributes: dict[str, Any] = {}
        for field, attribute in _USAGE.items():
            count = getattr(llm_response.usage_metadata, field, None)
            if count is not None:
                attributes[attribute] = count
        for field, attribute in _RESPONSE.items():
            told = getattr(llm_response, field)
            if told is not None:
                attributes[attribute] = told
        if llm_response.finish_reason is not None:
            attributes["gen_ai.response.finish_reasons"] = [llm_response.finish_reason]
        if llm_response.error_code is not None:
            attributes["error.type"] = llm_response.error_code
        if self._captures:
            attributes["gen_ai.output.messages"] = self._json(callback_context, [llm_response.content])
        self._end(callback_context, _question(callback_context), attributes)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        """End the span of the question with what the model has raised."""
        self._record(callback_context, _question(callback_context), error)
        self._end(callback_context, _question(callback_context))

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Any) -> None:
        """End the span of a question that another plugin or a callback has answered."""
        run = self._runs.get(invocation_context.invocation_id)
        key = ("model", invocation_context.agent_name, invocation_context.branch or "")
        if run is not None and not event.partial and key in run.spans:
            self._end(invocation_context, key)

    # --- tools

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> None:
        """Begin the span of the call."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.description": tool.description,
            "gen_ai.tool.call.id": tool_context.function_call_id,
            "gen_ai.tool.type": "function",
            "gen_ai.agent.name": tool_context.agent_name,
            **_branch_of(tool_context),
        }
        if self._captures:
            attributes["gen_ai.tool.call.arguments"] = self._json(tool_context, tool_args)
        self._begin(tool_context, ("tool", tool_context.function_call_id), f"execute_tool {tool.name}", attributes)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> None:
        """End the span of the call with its result."""
        attributes = {"gen_ai.tool.call.result": self._json(tool_context, result)} if self._captures else {}
        self._end(tool_context, ("tool", tool_context.function_call_id), attributes)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> None:
        """End the span of the call with what the tool has raised."""
        self._record(tool_context, ("tool", tool_context.function_call_id), error)
        self._end(tool_context, ("tool", tool_context.function_call_id))

    async def close(self) -> None:
        """End what is still open: spans of runs that have not come to their end."""
        for invocation_id in list(self._runs):
            self._forget(invocation_id)

    # --- how

    def _count(self, context: InvocationContext, event: Event) -> None:
        conflicts = len(event.actions.state_conflicts)
        if conflicts:
            self._conflicts.add(conflicts, {"minirun.app_name": context.app_name})
        run = self._runs.get(context.invocation_id)
        if run is not None:
            run.commits += 1
            run.conflicts += conflicts

    def _begin(
        self,
        context: ReadonlyContext,
        key: tuple[str, ...],
        name: str,
        attributes: dict[str, Any],
        *,
        path: str | None = None,
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
    ) -> None:
        run = self._runs.get(context.invocation_id)
        if run is None:
            return
        before = otel_context.get_current()
        span = self._tracer.start_span(name, before, kind, attributes, start_time=run.now())
        run.spans[key] = _Step(span, before, context._position.path if path is None else path)
        otel_context.attach(trace.set_span_in_context(span, before))

    def _record(self, context: ReadonlyContext, key: tuple[str, ...], error: Exception) -> None:
        run = self._runs.get(context.invocation_id)
        step = None if run is None else run.spans.get(key)
        if run is not None and step is not None:
            step.span.record_exception(context._invocation.secrets.shown(error), timestamp=run.now())
            step.span.set_attribute("error.type", type(error).__name__)
            step.span.set_status(trace.StatusCode.ERROR, type(error).__name__)

    def _end(self, context: ReadonlyContext, key: tuple[str, ...], attributes: dict[str, Any] | None = None) -> None:
        """End a span, in the task that it was begun in; what was current before it is current again."""
        run = self._runs.get(context.invocation_id)
        step = None if run is None else run.spans.pop(key, None)
        if run is None or step is None:
            return
        if attributes:
            step.span.set_attributes(attributes)
            if "error.type" in attributes:
                step.span.set_status(trace.StatusCode.ERROR, attributes["error.type"])
        step.span.end(end_time=run.now())
        otel_context.attach(step.before)

    def _forget(self, invocation_id: str) -> None:
        run = self._runs.pop(invocation_id, None)
        if run is not None:
            _end_all(run, list(run.spans))

    def _json(self, context: ReadonlyContext, value: Any) -> str:
        redacted = self._redactor.redacted(value, hide=context._invocation.secrets.hide)
        return json.dumps(redacted, ensure_ascii=False).encode("utf-8", "replace").decode()


def _end_all(run: _Run, keys: list[tuple[str, ...]]) -> None:
    """End spans whose own hooks have not come, the last one first: it is inside of others."""
    for key in reversed(keys):
        run.spans.pop(key).span.end(end_time=run.now())


def _path_of(context: CallbackContext) -> str:
    """Which run of which agent the hooks around it are called for."""
    return context._position.path.rpartition("!")[0]


def _question(context: ReadonlyContext) -> tuple[str, ...]:
    """An agent asks one question at a time in its branch."""
    return "model", context.agent_name, context.branch or ""


def _branch_of(context: ReadonlyContext) -> dict[str, Any]:
    return {} if context.branch is None else {"minirun.branch": context.branch}
