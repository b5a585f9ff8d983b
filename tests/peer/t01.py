"""The basics: turns, tools and their failures, models and theirs, the limit of calls."""

from __future__ import annotations

from typing import Any

import trio

from minirun import RunConfig, ToolContext
from minirun.models import LlmResponse
from minirun.testing import call
from minirun.types import Content

from .play import Play, said, scenario


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def boom(x: int) -> int:
    """Fail."""
    msg = f"boom {x}"
    raise ValueError(msg)


@scenario("t01", "plain text turn, output_key, then second turn")
async def plain(play: Play) -> None:
    await play.begin(play.agent("root", "Hello!", "Again", instruction="Be brief.", output_key="last"))
    await play.turn("hi")
    await play.turn("more")


@scenario("t01", "one tool call (text + call), output_key")
async def one_call(play: Play) -> None:
    await play.act(play.agent("root", ["let me see", call("add", a=2, b=3)], "5", tools=[add], output_key="o"))


def _writers(play: Play, first: str) -> list[Any]:
    """Two tools that write the same keys; the one that is called first also starts first, and w1 ends last."""

    async def writes(name: str, number: int, v: str, context: ToolContext) -> dict[str, int]:
        await trio.sleep(0.001 if name == first else 0.002)
        play.note(f"{name} start", sees=context.state.get("k"))
        await trio.sleep(0.010 if name == "w2" else 0.030)
        context.state["k"] = "one" if name == "w1" else "two"
        context.state[f"only{number}"] = v
        context.state["d"] = {"x": 1} if name == "w1" else {"y": 2}
        play.note(f"{name} end")
        return {"ok": number}

    async def w1(v: str, tool_context: ToolContext) -> dict[str, int]:
        return await writes("w1", 1, v, tool_context)

    async def w2(v: str, tool_context: ToolContext) -> dict[str, int]:
        return await writes("w2", 2, v, tool_context)

    return [w1, w2]


@scenario("t01", "two parallel tool calls; both write state k (w2 finishes first, w1 last) and dict d")
async def two_writers(play: Play) -> None:
    await play.act(play.agent("root", [call("w1", v="a"), call("w2", v="b")], "done", tools=_writers(play, "w1")))


@scenario("t01", "same, call order swapped (w2 first in the call list, w1 finishes last)")
async def two_writers_swapped(play: Play) -> None:
    await play.act(play.agent("root", [call("w2", v="a"), call("w1", v="b")], "done", tools=_writers(play, "w2")))


@scenario("t01", "unknown tool name")
async def unknown_tool(play: Play) -> None:
    await play.act(play.agent("root", call("nope", x=1), "sorry", tools=[add]))


@scenario("t01", "tool raises, no error callback")
async def tool_raises(play: Play) -> None:
    await play.begin(play.agent("root", call("boom", x=1), "so it goes", "sorry", tools=[boom]))
    await play.turn()
    await play.turn("after the crash")


@scenario("t01", "parallel: one tool raises, other succeeds")
async def one_of_two_raises(play: Play) -> None:
    await play.act(play.agent("root", [call("boom", x=1), call("add", a=1, b=1)], "so it goes", tools=[boom, add]))


@scenario("t01", "tool raises + unknown tool, on_tool_error_callback recovers")
async def tool_error_hook(play: Play) -> None:
    def recover(tool: Any, args: Any, tool_context: ToolContext, error: Exception) -> dict[str, str]:
        play.note("on_tool_error", tool=tool.name)
        return {"error": f"handled {type(error).__name__}"}

    await play.act(
        play.agent("root", call("boom", x=1), call("nope"), "ok", tools=[boom], on_tool_error_callback=recover)
    )


@scenario("t01", "missing mandatory arg; wrong type; unexpected extra arg")
async def bad_arguments(play: Play) -> None:
    calls = [call("add", a=1), call("add", a="x", b="7"), call("add", a=1, b=2, zzz=3)]
    await play.act(play.agent("root", *calls, "ok", tools=[add]))


@scenario("t01", "model raises")
async def model_raises(play: Play) -> None:
    await play.act(play.agent("root", RuntimeError("model down")))


@scenario("t01", "model raises, on_model_error_callback recovers")
async def model_error_hook(play: Play) -> None:
    def recover(callback_context: Any, llm_request: Any, error: Exception) -> LlmResponse:
        return LlmResponse(content=said("fallback"))

    await play.act(play.agent("root", RuntimeError("model down"), on_model_error_callback=recover))


@scenario("t01", "model returns error response")
async def blocked(play: Play) -> None:
    await play.act(play.agent("root", LlmResponse(error_code="SAFETY", error_message="blocked")))


@scenario("t01", "model returns empty parts without finish_reason")
async def empty(play: Play) -> None:
    await play.act(play.agent("root", LlmResponse(content=Content(role="model"))))


@scenario("t01", "model returns empty parts with finish_reason STOP")
async def empty_stop(play: Play) -> None:
    await play.act(play.agent("root", LlmResponse(content=Content(role="model"), finish_reason="STOP")))


@scenario("t01", "max_llm_calls=2 exceeded")
async def limit(play: Play) -> None:
    await play.act(
        play.agent("root", call("add", a=1, b=1), call("add", a=1, b=1), tools=[add]),
        config=RunConfig(max_llm_calls=2),
    )
