"""Streaming, callbacks and plugins, and the ways to end early."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from minirun import RunConfig, StreamingMode, ToolContext
from minirun.models import BaseLlm, LlmRequest, LlmResponse
from minirun.plugins import BasePlugin
from minirun.testing import call

from .play import Play, said, scenario
from .t01 import add

SSE = RunConfig(streaming_mode=StreamingMode.SSE)


def answer(text: str, **fields: Any) -> LlmResponse:
    """A response that says this."""
    return LlmResponse(content=said(text), **fields)


# --- streaming --------------------------------------------------------------------------------------------------------


@scenario("t03", "SSE: 3 partials + aggregate final")
async def fragments(play: Play) -> None:
    await play.act(play.agent("root", ["Hel", "lo ", "you"], output_key="o"), config=SSE)


@scenario("t03", "SSE: partial text, partial call, aggregate with call, then final text (ids across partials)")
async def call_fragment(play: Play) -> None:
    final = ["3", answer("3", partial=False)]
    agent = play.agent("root", ["Let me ", "check", call("add", a=1, b=2)], final, tools=[add], output_key="o")
    await play.act(agent, config=SSE)


class Breaks(BaseLlm):
    """A model whose stream ends before the complete response."""

    def __init__(self, play: Play) -> None:
        self._first = play.model("root", "only ")

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield two fragments."""
        async for response in self._first.generate_content_async(request):
            yield LlmResponse(content=response.content, partial=True)
        yield answer("partials", partial=True)


@scenario("t03", "SSE: model ends on a partial")
async def cut_off(play: Play) -> None:
    agent = play.agent("root")
    await play.act(type(agent)(name="root", model=Breaks(play)), config=SSE)


@scenario("t03", "SSE + before/after_model callbacks writing state: when is it committed?")
async def hooks_while_streaming(play: Play) -> None:
    def before(callback_context: Any, llm_request: Any) -> None:
        play.note("before_model")
        callback_context.state["from_before_model"] = 1

    def after(callback_context: Any, llm_response: LlmResponse) -> None:
        play.note("after_model", partial=bool(llm_response.partial))
        callback_context.state["n_after"] = callback_context.state.get("n_after", 0) + 1

    script = ["a", "b", answer("ab", partial=False)]
    agent = play.agent("root", script, latency_s=0.001, before_model_callback=before, after_model_callback=after)
    await play.act(agent, config=SSE)


# --- callbacks and plugins --------------------------------------------------------------------------------------------


@scenario("t03", "before_model_callback short-circuit (does after_model run? llm call count?)")
async def model_skipped(play: Play) -> None:
    agent = play.agent(
        "root",
        output_key="o",
        before_model_callback=lambda callback_context, llm_request: answer("short-circuit"),
        after_model_callback=lambda callback_context, llm_response: play.note("after_model"),
    )
    await play.act(agent, config=RunConfig(max_llm_calls=1))


class Follows(BasePlugin):
    """A plugin that writes down each of its hooks, and leaves keys in the state."""

    def __init__(self, name: str, play: Play) -> None:
        super().__init__(name=name)
        self._play = play

    def _note(self, what: str, context: Any = None, key: str = "", **data: Any) -> None:
        self._play.note(f"{self.name} {what}", **data)
        if key:
            context.state[f"{self.name}_{key}"] = 1

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:
        self._note("on_user_message")

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        self._note("before_run")

    async def on_event_callback(self, *, invocation_context: Any, event: Any) -> None:
        self._note("on_event", author=event.author)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        self._note("after_run")

    async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        self._note("before_agent", callback_context, "ba", agent=agent.name)

    async def after_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        self._note("after_agent", callback_context, "aa", agent=agent.name)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        self._note("before_model", callback_context, "bm")

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        self._note("after_model")

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
        self._note("before_tool", tool=tool.name)

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> None:
        self._note("after_tool", result=result)


def _hook(play: Play, name: str, reply: Any = None) -> Any:
    """A callback of any kind that writes down the state it sees and leaves a key in it."""

    def hook(**arguments: Any) -> Any:
        context = arguments.get("callback_context") or arguments["tool_context"]
        play.note(name, state=dict(context.state))
        context.state[f"trail_{name}"] = 1
        return reply

    return hook


@scenario("t03", "full callback order: 2 plugins + lists of 2 agent callbacks, one tool call; where state lands")
async def all_hooks(play: Play) -> None:
    hooks: dict[str, Any] = {
        f"{when}_{what}_callback": [_hook(play, f"{when[0]}{what[0]}{number}") for number in (1, 2)]
        for what in ("agent", "model", "tool")
        for when in ("before", "after")
    }
    agent = play.agent("root", call("add", a=1, b=1), "2", tools=[add], **hooks)
    await play.act(agent, plugins=[Follows("pl1", play), Follows("pl2", play)])


@scenario("t03", "before_agent returns content: is after_agent run? does the invocation end?")
async def agent_skipped(play: Play) -> None:
    agent = play.agent(
        "root",
        before_agent_callback=_hook(play, "ba1", said("skipped")),
        after_agent_callback=_hook(play, "aa1"),
    )
    await play.act(agent)


@scenario("t03", "after_agent returns content: appended event, output_key keeps which?")
async def agent_extended(play: Play) -> None:
    await play.act(play.agent("root", "answer", output_key="o", after_agent_callback=_hook(play, "aa1", said("extra"))))


@scenario("t03", "before_tool mutates args; after_tool replaces the result; is the recorded call changed?")
async def arguments_changed(play: Play) -> None:
    def before(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> None:
        play.note("before_tool")
        args.update(a=40)

    def after(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> dict[str, Any]:
        play.note("after_tool", r=tool_response)
        return {"r": tool_response, "x": 1}

    agent = play.agent(
        "root", call("add", a=1, b=2), "ok", tools=[add], before_tool_callback=before, after_tool_callback=after
    )
    await play.act(agent)


@scenario("t03", "before_tool returns {} (short-circuit on empty dict?)")
async def tool_skipped(play: Play) -> None:
    def before(tool: Any, args: Any, tool_context: ToolContext) -> dict[str, Any]:
        return {}

    def after(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> None:
        play.note("after_tool ran", r=tool_response)

    agent = play.agent(
        "root", call("add", a=1, b=2), "ok", tools=[add], before_tool_callback=before, after_tool_callback=after
    )
    await play.act(agent)


def _raises(**arguments: Any) -> Any:
    msg = "callback failed"
    raise ValueError(msg)


def _raising(hook: str, *script: Any) -> None:
    async def play_it(play: Play) -> None:
        hooks: dict[str, Any] = {hook: _raises}
        await play.act(play.agent("root", *script, tools=[add], **hooks))

    scenario("t03", f"{hook} raises")(play_it)


_call = call("add", a=1, b=2)
_raising("before_agent_callback")
_raising("after_agent_callback", _call, "ok")
_raising("before_model_callback")
_raising("after_model_callback", _call)
_raising("before_tool_callback", _call)
_raising("after_tool_callback", _call)


# --- ends -------------------------------------------------------------------------------------------------------------


async def skip(tool_context: ToolContext) -> dict[str, int]:
    """Answer for the model."""
    tool_context.actions.skip_summarization = True
    return {"a": 1}


@scenario("t03", "skip_summarization")
async def skipping(play: Play) -> None:
    await play.act(play.agent("root", call("skip"), tools=[skip]))


@scenario("t03", "skip_summarization in parallel with a normal tool")
async def skipping_beside(play: Play) -> None:
    await play.act(play.agent("root", [call("skip"), call("add", a=1, b=1)], "and two", tools=[skip, add]))


@scenario("t03", "tool sets end_invocation")
async def ended(play: Play) -> None:
    async def end(tool_context: ToolContext) -> dict[str, int]:
        """End it."""
        tool_context.end_invocation = True
        return {"ended": 1}

    def after(callback_context: Any) -> None:
        play.note("after_agent ran")

    await play.act(play.agent("root", call("end"), tools=[end], after_agent_callback=after))


@scenario("t03", "consumer closes after the call event (tool not yet run)")
async def left_early(play: Play) -> None:
    def after(callback_context: Any) -> None:
        play.note("after_agent ran")

    await play.begin(play.agent("root", call("add", a=1, b=1), "x", tools=[add], after_agent_callback=after))
    await play.turn(leave_after=1)
    await play.turn("next")
