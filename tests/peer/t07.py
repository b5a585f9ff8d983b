"""What models are shown, and what goes in and out of them: instructions, histories, forms, schemas, results."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import attrs
import trio

from minirun import ParallelAgent, ReadonlyContext, SequentialAgent
from minirun.errors import ConfigurationError
from minirun.testing import call

from .play import Play, scenario

# --- instructions -----------------------------------------------------------------------------------------------------

TEMPLATE = (
    "Hi {name}! opt=[{missing?}] user={user:lang} app={app:none?} "
    'json={"a": 1} brace={not valid} double={{name}} nested={a.b} none={nul} num={n}'
)


@scenario("t07", "instruction templating")
async def templating(play: Play) -> None:
    state = {"name": "Bob", "nul": None, "n": 3, "user:lang": "no"}
    await play.act(play.agent("root", "ok", description="desc", instruction=TEMPLATE), state=state)


@scenario("t07", "instruction with a missing required variable")
async def missing_key(play: Play) -> None:
    await play.act(play.agent("root", instruction="Hello {nobody}"))


@scenario("t07", "instruction provider (callable): no templating")
async def provider(play: Play) -> None:
    def instruction(ctx: ReadonlyContext) -> str:
        return f"raw {{name}} {ctx.state['name']}"

    await play.act(play.agent("root", "ok", instruction=instruction), state={"name": "Bob"})


@scenario("t07", "global_instruction + static_instruction + instruction")
async def three_instructions(play: Play) -> None:
    root = play.agent(
        "root",
        "ok",
        global_instruction="glob {name}",
        static_instruction="static {name}",
        instruction="dynamic {name}",
    )
    await play.act(root, state={"name": "Bob"})


# --- histories --------------------------------------------------------------------------------------------------------


@scenario("t07", "include_contents=none: second turn")
async def no_contents(play: Play) -> None:
    await play.begin(play.agent("root", "one", "two", include_contents="none"))
    await play.turn("first")
    await play.turn("second")


@scenario("t07", "include_contents=none for 2nd agent in a sequence")
async def no_contents_in_sequence(play: Play) -> None:
    second = play.agent("b", "b out", include_contents="none")
    await play.act(SequentialAgent(name="all", sub_agents=[play.agent("a", "a out"), second]))


@scenario("t07", "branch isolation of contents in ParallelAgent")
async def branches(play: Play) -> None:
    async def t(x: int) -> int:
        """Say it again."""
        await trio.sleep(0.005)
        return x

    x = play.agent("x", call("t", x=1), "x done", delay_s=0.002, latency_s=0.010, tools=[t])
    y = play.agent("y", call("t", x=2), "y done", delay_s=0.003, latency_s=0.010, tools=[t])
    both = ParallelAgent(name="par", sub_agents=[x, y])
    await play.act(SequentialAgent(name="all", sub_agents=[play.agent("first", "first out"), both]))


# --- forms of answers -------------------------------------------------------------------------------------------------


@attrs.frozen
class Out:
    """A place."""

    city: str
    n: int = 0


@scenario("t07", "output_schema, no tools: valid JSON, output_key")
async def form(play: Play) -> None:
    await play.act(play.agent("root", '{"city": "Oslo"}', output_schema=Out, output_key="o"))


@scenario("t07", "output_schema, invalid JSON with output_key")
async def form_not_kept(play: Play) -> None:
    await play.act(play.agent("root", *["not json"] * 3, output_schema=Out, output_key="o"))


@scenario("t07", "output_schema, invalid JSON without output_key (not validated?)")
async def form_not_kept_without_key(play: Play) -> None:
    await play.act(play.agent("root", *["not json"] * 3, output_schema=Out))


@scenario("t07", "output_schema + tools: set_model_response workaround")
async def form_with_tools(play: Play) -> None:
    async def t(x: int) -> int:
        """Say it again."""
        return x

    calls = [call("t", x=1), call("set_model_response", n="bad"), call("set_model_response", city="Oslo", n=2)]
    await play.act(play.agent("root", *calls, tools=[t], output_schema=Out, output_key="o"))


# --- tools ------------------------------------------------------------------------------------------------------------


class Color(Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Addr:
    """An address."""

    street: str
    zip: str | None = None


@scenario("t07", "function declaration schema; coercion of enum and nested model")
async def rich_schema(play: Play) -> None:
    async def rich(
        a: int,
        b: str = "x",
        c: float | None = None,
        d: list[str] = [],  # noqa: B006 # what users write
        e: Color = Color.RED,
        f: Literal["p", "q"] = "p",
        g: Addr | None = None,
        h: int = 1,
        i: dict[str, int] = {},  # noqa: B006
    ) -> dict[str, bool]:
        """Take all kinds of things."""
        play.note("rich got", a=repr(a), e=repr(e), g=repr(g), f=f, d=d, c=c)
        return {"ok": True}

    calls = [
        call("rich", a=1, e="blue", g={"street": "s"}, d=["1"]),
        call("rich", a="7", e="green", g={"zip": 1}),
    ]
    await play.act(play.agent("root", *calls, "ok", tools=[rich]))


def _returning(kind: str, value: Any) -> None:
    async def play_it(play: Play) -> None:
        async def rets(kind: str) -> Any:
            """Return something."""
            return value

        await play.act(play.agent("root", call("rets", kind=kind), "ok", tools=[rets]))

    scenario("t07", f"tool return kind {kind}")(play_it)


_returning("none", None)
_returning("str", "x")
_returning("list", [1])
_returning("model", Addr("s"))
_returning("tuple", (1, 2))
_returning("set", {1})


@scenario("t07", "two tools with the same name")
async def duplicates(play: Play) -> None:
    async def one(x: int) -> int:
        """One."""
        return 1

    async def two(x: int) -> int:
        """Two."""
        return 2

    one.__name__ = two.__name__ = "dup"
    try:
        await play.act(play.agent("root", tools=[one, two]))
    except ConfigurationError as error:
        play.refused(error)
