"""Spans of runs: which there are, what is inside of what, what they say, and that each of them ends."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from minirun import (
    AgentTool,
    App,
    Content,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SequentialAgent,
    StreamingMode,
)
from minirun.errors import ConfigurationError
from minirun.models import LlmResponse
from minirun.plugins import BasePlugin
from minirun.sessions import InMemorySessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, ToolContext
from minirun.types import GenerateContentConfig, UsageMetadata

from ..helpers import Logic, run_to_end

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import trace

from minirun.plugins import TracingPlugin
from minirun.plugins import _observer as observer

from ..otel import Recorder

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


@pytest.fixture
def otel() -> Recorder:
    """What there was."""
    return Recorder()


def runner_with(agent: Any, *plugins: BasePlugin) -> Runner:
    """A runner over a fresh session."""
    app = App("app", agent, plugins=plugins)
    return Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """What a span says."""
    return dict(span.attributes or {})


def look(what: str = "") -> str:
    """Look."""
    return f"seen {what}"


LOOK = FunctionTool(look, run_in="loop")


# --- which there are --------------------------------------------------------------------------------------------------


async def test_spans_stand_inside_of_each_other_as_steps_do(otel: Recorder) -> None:
    """Agents in branches side by side, questions and calls beside each other, agents inside of calls."""
    inner = LlmAgent(name="inner", model=ScriptedLlm([call("look"), "dug"]), tools=[LOOK])
    first = LlmAgent(
        name="first",
        model=ScriptedLlm([[call("look", what="a"), call("inner", request="dig")], "done"]),
        tools=[LOOK, AgentTool(inner)],
    )
    sides = [LlmAgent(name=name, model=ScriptedLlm([call("look"), name]), tools=[LOOK]) for name in ("p", "q")]
    root = SequentialAgent(name="root", sub_agents=[first, ParallelAgent(name="both", sub_agents=sides)])
    await run_to_end(runner_with(root, otel.plugin()))
    turn = ["call_llm", "execute_tool look", "call_llm"]

    def under(depth: int, *names: str) -> list[str]:
        return ["  " * depth + name for name in names]

    found = otel.tree()
    assert found[:3] == ["invocation", "  invoke_agent root", "    invoke_agent first"]
    at = found.index("      execute_tool inner")
    assert found[at + 1 : at + 5] == [*under(4, "invoke_agent inner"), *under(5, *turn)]
    assert sorted(found[3:at] + found[at + 5 : found.index("    invoke_agent both")]) == sorted(under(3, *turn))
    at = found.index("    invoke_agent both")
    sides_found = [found[at + 1 : at + 5], found[at + 5 :]]
    assert sorted(sides_found) == [[*under(3, f"invoke_agent {name}"), *under(4, *turn)] for name in ("p", "q")]


async def test_a_run_is_inside_of_what_its_caller_traces_and_around_what_tools_do(otel: Recorder) -> None:
    """The current span is that of the step, in a tool's worker thread, too; the caller's stays as it is."""
    tracer = otel.tracers.get_tracer("app")

    def in_a_thread() -> str:
        """Trace something."""
        with tracer.start_as_current_span("work"):
            return "done"

    agent = LlmAgent(name="a", model=ScriptedLlm([call("in_a_thread"), "done"]), tools=[in_a_thread])
    with tracer.start_as_current_span("request") as request:
        await run_to_end(runner_with(agent, otel.plugin()))
        assert trace.get_current_span() is request
    assert otel.tree() == [
        "request",
        "  invocation",
        "    invoke_agent a",
        "      call_llm",
        "      execute_tool in_a_thread",
        "        work",
        "      call_llm",
    ]


async def test_spans_say_what_the_conventions_name(otel: Recorder) -> None:
    """And nothing of what was said."""
    usage = UsageMetadata(prompt_token_count=7, candidates_token_count=5)
    answer = LlmResponse(
        content=Content(role="model", parts=[call("look", what="secretly")]), finish_reason="STOP", usage_metadata=usage
    )
    config = GenerateContentConfig(temperature=0.5, max_output_tokens=100, stop_sequences=["END"])
    agent = LlmAgent(
        name="a",
        description="Looks.",
        model=ScriptedLlm([answer, "secret"], name="m"),
        tools=[LOOK],
        generate_content_config=config,
        instruction="in secret",
    )
    _, run = await run_to_end(runner_with(agent, otel.plugin()), "a secret")
    of_run = attributes(otel.span("invocation"))
    assert (
        of_run.items()
        >= {
            "gen_ai.conversation.id": "s",
            "user.id": "u",
            "minirun.app_name": "app",
            "minirun.invocation_id": run.invocation_id,
            "minirun.resumed": False,
            "minirun.status": "completed",
            "minirun.commits": 3,
        }.items()
    )
    assert attributes(otel.span("invoke_agent a")) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "a",
        "gen_ai.agent.description": "Looks.",
    }
    assert attributes(next(span for span in otel.spans if span.name == "call_llm")) == {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.agent.name": "a",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.finish_reasons": ("STOP",),
    }
    [made] = run.session.events[1].get_function_calls()
    assert attributes(otel.span("execute_tool look")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.description": "Look.",
        "gen_ai.tool.call.id": made.id,
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": "a",
    }
    assert "secret" not in "".join(span.to_json() for span in otel.spans)


async def test_contents_are_captured_where_that_is_wanted(otel: Recorder) -> None:
    """What is asked, answered, and done, without what looks like a secret."""
    tool = FunctionTool(lambda password: {"token": "t", "ok": True}, name="log_in", run_in="loop")
    model = ScriptedLlm([call("log_in", password="p"), "fine"])
    agent = LlmAgent(name="a", model=model, tools=[tool], instruction="Be brief.")
    await run_to_end(runner_with(agent, otel.plugin(capture_content=True)), "hello")
    first, second = (attributes(span) for span in otel.spans if span.name == "call_llm")
    assert json.loads(first["gen_ai.input.messages"]) == [{"role": "user", "parts": [{"text": "hello"}]}]
    assert first["gen_ai.system_instructions"] == "Be brief."
    assert json.loads(second["gen_ai.output.messages"])[0]["parts"] == [{"text": "fine"}]
    of_tool = attributes(otel.span("execute_tool log_in"))
    assert json.loads(of_tool["gen_ai.tool.call.arguments"]) == {"password": "[redacted]"}
    assert json.loads(of_tool["gen_ai.tool.call.result"]) == {"token": "[redacted]", "ok": True}


# --- how they end -----------------------------------------------------------------------------------------------------


def failures(otel: Recorder) -> dict[str, Any]:
    """The spans that have failed, and with what."""
    return {
        span.name: ([dict(event.attributes or {})["exception.type"] for event in span.events], span.status.description)
        for span in otel.spans
        if span.status.status_code is trace.StatusCode.ERROR
    }


async def test_errors_are_recorded_where_they_were(otel: Recorder) -> None:
    """What a tool raises is the tool's alone; what a model raises is that of all around it."""

    def fail() -> None:
        """Fail."""
        raise LookupError("nothing there")

    model = ScriptedLlm([call("fail"), OSError("cable")])
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(fail, run_in="loop")])
    with pytest.raises(OSError, match="cable"):
        await run_to_end(runner_with(agent, otel.plugin()))
    assert failures(otel) == {
        "execute_tool fail": (["LookupError"], "LookupError"),
        "call_llm": (["OSError"], "OSError"),
        "invoke_agent a": (["OSError"], "OSError"),
        "invocation": (["OSError"], "OSError"),
    }
    assert attributes(otel.span("invocation"))["minirun.status"] == "failed"


async def test_an_answer_that_is_an_error_is_one(otel: Recorder) -> None:
    """The run goes on, or ends without an answer, but it has not failed."""
    agent = LlmAgent(name="a", model=ScriptedLlm([LlmResponse(error_code="SAFETY")]))
    await run_to_end(runner_with(agent, otel.plugin()))
    assert failures(otel) == {"call_llm": ([], "SAFETY")}
    assert attributes(otel.span("call_llm"))["error.type"] == "SAFETY"


async def forever() -> None:
    """Never end."""
    await trio.sleep_forever()


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_what_is_cancelled_ends_with_what_is_around_it(
    otel: Recorder, where: str, autojump_clock: MockClock
) -> None:
    """No hook tells of a question or a call that is cancelled; nothing is left open, and it is no error."""
    model = ScriptedLlm(["late"], latency_s=1_000) if where == "model" else ScriptedLlm([call("forever")])
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(forever)])
    plugin = otel.plugin()
    with trio.move_on_after(5):
        await run_to_end(runner_with(agent, plugin))
    step = ["      execute_tool forever"] if where == "tool" else []
    assert otel.tree() == ["invocation", "  invoke_agent a", "    call_llm", *(line[2:] for line in step)]
    assert attributes(otel.span("invocation"))["minirun.status"] == "cancelled"
    assert failures(otel) == {}
    assert plugin._runs == {}
    assert [span.name for span in otel.spans][-2:] == ["invoke_agent a", "invocation"]


async def test_a_run_that_pauses_and_the_one_that_goes_on_have_spans_each(otel: Recorder) -> None:
    """What waits ends with the run; what was done before has no span again."""

    async def ask(tool_context: ToolContext) -> Any:
        """Ask."""
        return await tool_context.request_input("go on?")

    agent = LlmAgent(name="a", model=ScriptedLlm([call("ask"), "done"]), tools=[FunctionTool(ask)])
    plugin = otel.plugin()
    runner = runner_with(agent, plugin)
    _, run = await run_to_end(runner)
    assert otel.tree() == ["invocation", "  invoke_agent a", "    call_llm", "    execute_tool ask"]
    assert attributes(otel.span("invocation"))["minirun.status"] == "paused"
    assert failures(otel) == {}
    await run_to_end(runner, run.pending[0].reply("yes"))
    assert [attributes(span)["minirun.resumed"] for span in otel.spans if span.name == "invocation"] == [False, True]
    assert [line.strip() for line in otel.tree()[4:]].count("call_llm") == 1
    assert plugin._runs == {}


async def test_runs_whose_end_is_never_told_are_forgotten(otel: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of too many is: its spans end when the next run begins, what is inside of others first."""
    monkeypatch.setattr(observer, "RUNS_MAX", 1)
    plugin = otel.plugin()

    async def logic(ctx: InvocationContext) -> None:
        context: Any = ctx
        await plugin.before_run_callback(invocation_context=ctx)
        await plugin.before_agent_callback(agent=ctx.agent, callback_context=context)

    runner = runner_with(Logic(name="a", logic=logic))
    await run_to_end(runner)
    assert not otel.spans
    _, run = await run_to_end(runner)
    assert [span.name for span in otel.spans] == ["invoke_agent a", "invocation"]
    assert list(plugin._runs) == [run.invocation_id]


class Answering(BasePlugin):
    """Answers in the place of the model, the first time."""

    def __init__(self) -> None:
        super().__init__("answering")
        self._has_answered = False

    async def before_model_callback(self, **_: Any) -> Any:
        if not self._has_answered:
            self._has_answered = True
            return LlmResponse(content=Content(role="model", parts=[call("look")]))
        return None


async def test_a_question_that_another_plugin_has_answered_ends_with_its_event(otel: Recorder) -> None:
    """What comes after is not inside of it."""
    agent = LlmAgent(name="a", model=ScriptedLlm(["done"]), tools=[LOOK])
    await run_to_end(runner_with(agent, otel.plugin(), Answering()))
    assert otel.tree() == [
        "invocation",
        "  invoke_agent a",
        "    call_llm",
        "    execute_tool look",
        "    call_llm",
    ]


async def test_streams_have_one_span(otel: Recorder) -> None:
    """It ends with the whole answer."""
    agent = LlmAgent(name="a", model=ScriptedLlm([["fi", "ne"]]))
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    await run_to_end(runner_with(agent, otel.plugin()), run_config=config)
    assert otel.tree() == ["invocation", "  invoke_agent a", "    call_llm"]


async def test_the_spans_of_runs_that_never_end_are_ended_with_the_plugin(otel: Recorder) -> None:
    """And of many such runs the oldest are not waited for."""
    plugin = otel.plugin()

    async def logic(ctx: InvocationContext) -> None:
        await plugin.before_run_callback(invocation_context=ctx)

    await run_to_end(runner_with(Logic(name="a", logic=logic)))
    assert otel.spans == ()
    await plugin.close()
    assert otel.tree() == ["invocation"]


# --- the log ----------------------------------------------------------------------------------------------------------


async def test_stored_events_and_conflicts_are_counted(otel: Recorder) -> None:
    """As attributes of the span of the run; conflicts as a metric, too."""
    sides = [LlmAgent(name=name, model=ScriptedLlm([name]), output_key="said") for name in ("p", "q")]
    await run_to_end(runner_with(ParallelAgent(name="both", sub_agents=sides), otel.plugin()))
    found = attributes(otel.span("invocation"))
    assert (found["minirun.commits"], found["minirun.state.conflicts"]) == (2, 1)
    assert otel.metrics()["minirun.state.conflicts"] == 1


async def test_times_are_those_of_the_runs_clock(otel: Recorder, autojump_clock: MockClock) -> None:
    """A question that takes two seconds of trio's clock has a span of two seconds."""
    agent = LlmAgent(name="a", model=ScriptedLlm(["fine"], latency_s=2))
    await run_to_end(runner_with(agent, otel.plugin()))
    span = otel.span("call_llm")
    assert span.start_time is not None
    assert span.end_time == span.start_time + 2_000_000_000


# --- the extra --------------------------------------------------------------------------------------------------------


def test_plugins_are_there_without_opentelemetry() -> None:
    """It is imported when the plugin is asked for; who lacks it is told what to install."""
    program = """
import sys
sys.modules["opentelemetry"] = None
import minirun.plugins
from minirun.plugins import *
assert "TracingPlugin" in dir(minirun.plugins)
try:
    from minirun.plugins import TracingPlugin
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'TracingPlugin needs the OpenTelemetry API; run: pip install "minirun[otel]"'
    with pytest.raises(AttributeError, match="has no attribute 'Tracer'"):
        __import__("minirun.plugins").plugins.Tracer  # noqa: B018


def test_without_an_sdk_nothing_is_recorded_and_nothing_breaks() -> None:
    """The API alone does nothing; wrong settings are refused."""
    with pytest.raises(ConfigurationError, match="expected capture_content to be True or False, found 1"):
        TracingPlugin(capture_content=1)  # type: ignore[arg-type]
    assert TracingPlugin().name == "tracing"
