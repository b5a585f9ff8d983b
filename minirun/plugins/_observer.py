"""
What the plugins that look on have in common: which runs are open, how long they and their steps take, and what is told
of agents and tools.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from ._base import BasePlugin

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..runtime import CallbackContext, ReadonlyContext, ToolContext
    from ..tools import BaseTool

__all__ = ["Observer", "OpenRun", "OpenRuns", "agent_of", "error_of", "model_step", "text_of"]

# A run whose cleanup is cut off, because another plugin takes too long, never comes to after_run. It is forgotten once
# this many newer runs are known: more than go on at once in one process, and a few megabytes.
RUNS_MAX = 10_000


@attrs.define
class OpenRun:
    """When a run began, and when each step that is going on in it did; in seconds of trio's clock."""

    begun: float = attrs.field(factory=trio.current_time)
    steps: dict[Hashable, float] = attrs.field(factory=dict)


_Run = TypeVar("_Run", bound=OpenRun)


class OpenRuns(dict[str, _Run]):
    """The runs that are open, by invocation id, from before_run to after_run."""

    def begin(self, invocation_id: str, run: _Run) -> tuple[str, _Run] | None:
        """Remember a run. Return the oldest one, which is forgotten, if there are too many."""
        oldest = next(iter(self)) if len(self) >= RUNS_MAX else None
        forgotten = None if oldest is None else (oldest, self.pop(oldest))
        self[invocation_id] = run
        return forgotten

    def duration_s(self, context: ReadonlyContext) -> float | None:
        """How long the run has taken; None if nobody saw it begin."""
        run = self.get(context.invocation_id)
        return None if run is None else trio.current_time() - run.begun

    def begin_step(self, context: ReadonlyContext, step: Hashable) -> None:
        """A step of the run begins."""
        run = self.get(context.invocation_id)
        if run is not None:
            run.steps[step] = trio.current_time()

    def end_step(self, context: ReadonlyContext, step: Hashable) -> float | None:
        """A step of the run ends. Return how long it took; None if nobody saw it begin."""
        run = self.get(context.invocation_id)
        begun = None if run is None else run.steps.pop(step, None)
        return None if begun is None else trio.current_time() - begun


class Observer(BasePlugin):
    """Tells what agents and tools do, in one place, and changes nothing."""

    _runs: OpenRuns[Any]

    def _tell(
        self, kind: str, context: ReadonlyContext, fields: dict[str, Any], trace_of: Exception | None = None
    ) -> None:
        """Write down what happens; nothing that goes wrong in it is raised."""
        raise NotImplementedError

    # --- agents

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        """Tell that the agent begins."""
        self._tell("agent_begin", callback_context, agent_of(callback_context))

    async def after_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        """Tell that the agent has ended."""
        self._tell("agent_end", callback_context, agent_of(callback_context))

    async def on_agent_error_callback(
        self, *, agent: BaseAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        """Tell what the agent has raised; the traceback comes with the run's error."""
        self._tell("agent_error", callback_context, {**agent_of(callback_context), **error_of(error)})

    # --- tools

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> None:
        """Tell what the tool is called with."""
        self._runs.begin_step(tool_context, tool_context.function_call_id)
        self._tell("tool_call", tool_context, {**_call_of(tool, tool_context), "args": tool_args})

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> None:
        """Tell what the tool has returned."""
        fields = {**_call_of(tool, tool_context), "result": result}
        self._tell("tool_result", tool_context, {**fields, **self._end_of_call(tool_context)})

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> None:
        """Tell what the tool has raised."""
        fields = {**_call_of(tool, tool_context), **error_of(error)}
        self._tell("tool_error", tool_context, {**fields, **self._end_of_call(tool_context)}, error)

    def _end_of_call(self, context: ToolContext) -> dict[str, Any]:
        return {"duration_s": self._runs.end_step(context, context.function_call_id)}


def agent_of(context: ReadonlyContext) -> dict[str, Any]:
    """Which agent does something."""
    return {"agent": context.agent_name, "branch": context.branch}


def _call_of(tool: BaseTool, context: ToolContext) -> dict[str, Any]:
    return {**agent_of(context), "tool": tool.name, "call_id": context.function_call_id}


def model_step(context: ReadonlyContext) -> Hashable:
    """The step of a question: an agent asks one at a time in its branch."""
    return context.agent_name, context.branch


def error_of(error: Exception) -> dict[str, Any]:
    """What is told of an error."""
    return {"error_type": type(error).__name__, "error_message": text_of(error)}


def text_of(value: object) -> str:
    """A text for any value: looking on must not fail a run, so a foreign `__str__` that raises is not asked again."""
    try:
        return str(value)
    except Exception:
        return f"a value of type {type(value).__name__}"
