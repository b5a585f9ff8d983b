"""
The package in figures, for test_rooms.py: `python -m tests.figures` prints them as JSON.

It is a program of its own because both figures need an interpreter in which nothing has happened yet: what a tool turn
on SQLite imports, and through which of minirun's functions one emitted event passes.
"""

from __future__ import annotations

import ast
import json
import sys
import tempfile
import tokenize
from pathlib import Path
from types import FrameType
from typing import Any

import trio

import minirun
from minirun import BaseAgent, Event, InvocationContext, LlmAgent, Runner, SqliteSessionService
from minirun.testing import ScriptedLlm, call

PACKAGE = Path(minirun.__file__).parent
# What stands in a line without making it a line of code.
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def take_tool_turn(folder: str) -> None:
    """Let a model call a tool and answer, with the session in a file."""
    agent = LlmAgent(name="a", model=ScriptedLlm([call("add", a=1, b=2), "3"]), tools=[add])
    async with SqliteSessionService(Path(folder, "figures.db")) as sessions:
        runner = Runner(agent=agent, app_name="figures", session_service=sessions, auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()


def code_lines(path: Path) -> int:
    """Count the lines that hold a token which is neither comment nor docstring."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str())):
                    documentation.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    code: set[int] = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in NO_CODE:
                code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documentation)


def loaded_lines() -> dict[str, int]:
    """Return the lines of code of each module of minirun that this interpreter has imported."""
    modules = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    own = {name: file for name, file in modules.items() if name.partition(".")[0] == "minirun" and file}
    return {name: code_lines(Path(file)) for name, file in sorted(own.items())}


def functions_of_one_emit() -> list[tuple[str, str]]:
    """
    Return file and name of minirun's functions that run from the call of `emit` until it returns, in whatever task.

    The event is the second of its run: the first makes what the run needs once.
    """
    passed: set[tuple[str, str]] = set()

    def note(frame: FrameType, what: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if what == "call" and path.is_relative_to(PACKAGE):
            passed.add((path.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname))

    class Speaker(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="first"))
            sys.setprofile(note)
            await ctx.emit(Event(message="second", state={"key": 1}))
            sys.setprofile(None)

    async def speak() -> None:
        from minirun import InMemoryRunner  # a turn on SQLite does not load it

        runner = InMemoryRunner(agent=Speaker(name="speaker"), auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()

    trio.run(speak)
    return sorted(passed)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trio.run(take_tool_turn, folder)
    print(json.dumps({"loaded": loaded_lines(), "passed": functions_of_one_emit()}))
