"""
An agent that is served to MCP clients, for tests: what it does is said by the message.

It is also a file for `minirun mcp serve`. It prints, logs and starts programs that print, as agents may.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

import trio

from minirun import App, BaseAgent, Event, InvocationContext
from minirun.types import Content, Part

__all__ = ["Desk", "app"]

print("imported, which is no message of the protocol")

# A file in which it is noted what has happened, and one whose text says at which moment the process dies.
WORLD, FATE = Path("world.log"), Path("fate")


def dies_at(moment: str) -> None:
    """Kill this process, if that is its fate."""
    if FATE.exists() and FATE.read_text() == moment:
        FATE.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def note(what: str) -> str:
    """Note that something has happened in the world."""
    with WORLD.open("a") as world:
        world.write(f"{what}\n")
    return what


async def noted(what: str) -> str:
    """The same, as a step."""
    return note(what)


class Desk(BaseAgent):
    """Books rooms, and does other things that tests want."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        words = (ctx.user_content.text if ctx.user_content else "").split()
        if words[0] == "book":
            await ctx.step("asked", noted, f"asked {words[1]}")
            dies_at("before the question")
            nights = await ctx.request_input(f"How many nights in {words[1]}?", response_schema=int)
            dies_at("after the answer")
            await ctx.step("booked", noted, f"booked {words[1]} for {nights}")
            dies_at("before the end")
            await ctx.emit(Event(message=f"{nights} nights in {words[1]}"))
        elif words[0] == "twice":
            first = await ctx.request_input("First?", response_schema=str)
            second = await ctx.request_input("Second?", response_schema=str)
            await ctx.emit(Event(message=f"{first} and {second}"))
        elif words[0] == "deep":
            schema = {"type": "object", "properties": {"at": {"type": "array", "items": {"type": "integer"}}}}
            found = await ctx.request_input("Where?", response_schema=schema)
            await ctx.emit(Event(message=repr(found)))
        elif words[0] == "slow":
            note("begun")
            try:
                await ctx.progress("waiting", fraction=0.5)
                await trio.sleep_forever()
            finally:
                note("left")
        elif words[0] == "noise":
            print("printed")
            sys.stdout.write("written\n")
            os.write(1, b"past Python\n")
            logging.getLogger("somebody").warning("logged")
            await trio.run_process(["echo", "by a child"])
            await ctx.emit(Event(message=f"read {sys.stdin.read()!r}"))
        elif words[0] == "fail":
            raise OSError("/secret/path is gone")
        elif words[0] == "sleep":
            await ctx.sleep_until(float(words[1]))
            await ctx.emit(Event(message="awake"))
        elif words[0] == "picture":
            parts = [Part(text="a pixel"), Part.from_bytes(data=b"PNG", mime_type="image/png")]
            await ctx.emit(Event(content=Content(role="model", parts=parts)))
        elif words[0] == "who":
            before = ctx.state.get("said", 0)
            ctx.state["said"] = before + 1
            await ctx.emit(Event(message=f"{ctx.session.user_id} for the {before + 1}."))
        else:
            for word in words:
                await ctx.emit(Event(message=word, partial=True))
            await ctx.emit(Event(message=f"you said {' '.join(words)}"))


app = App("desk", Desk(name="desk", description="Books rooms."))
