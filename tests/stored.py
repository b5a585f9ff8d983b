"""
Invocations that an earlier version has stored, and that a later one goes on with: `python -m tests.stored`.

The files are `fixtures/paused-1.db`, in which three invocations wait, and `fixtures/interrupted-1.db`, whose process
was killed in the middle of a turn of tools; beside each stands, as JSON, what is in it and what had been done by then.
They were made once, by this program with the runtime of the last commit before the resuming was rebuilt (2000ee4), and
they are not made again: whoever changes how a run is recorded has to go on with what is there.

    git worktree add OLD 2000ee4 && cp tests/stored.py OLD/tests && cd OLD && python -m tests.stored

The agents below are part of the files: each does again what it has done.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import trio

from minirun import (
    AgentTool,
    BaseAgent,
    Env,
    Event,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Runner,
    SequentialAgent,
    SqliteSessionService,
    ToolContext,
)
from minirun._codec import to_json
from minirun.artifacts import SqliteArtifactService
from minirun.credentials import AuthConfig, InMemoryCredentialService
from minirun.testing import call
from minirun.types import Part

from .helpers import Logic
from .resuming import says, steps

__all__ = ["AGENTS", "CONFIG", "EFFECTS", "INTERRUPTED", "PAUSED", "export_of", "runner_over"]

FIXTURES = Path(__file__).parent / "fixtures"
PAUSED, INTERRUPTED = FIXTURES / "paused-1.db", FIXTURES / "interrupted-1.db"
CONFIG = AuthConfig("weather", hint="Your key for the weather")

EFFECTS: list[str] = []
"""What steps and tools of this process have done."""
_KILLED_IN: list[str] = []
"""The tool in which this process dies."""


@attrs.frozen(eq=False)
class Numbered(Env):
    """Counts ids; the time stands still."""

    counts: list[int] = attrs.field(factory=lambda: [0])

    def now(self) -> float:
        return 1_700_000_000.0

    def new_id(self, path: str) -> str:
        self.counts[0] += 1
        return f"{path}{self.counts[0]:032}"[-32:]


# --- what agents do ---------------------------------------------------------------------------------------------------


async def count_up(seen: int) -> int:
    """A step whose argument is what was read."""
    EFFECTS.append(f"counted from {seen}")
    return seen + 1


async def decline(card: str) -> str:
    """A step that fails."""
    EFFECTS.append(f"declined {card}")
    raise ValueError(card)


async def prepare(ctx: InvocationContext) -> None:
    """Steps by what is read, one that fails, state and an artifact."""
    for _ in range(2):
        ctx.state["count"] = await ctx.step("count", count_up, ctx.state.get("count", 0))
        await ctx.emit(Event(message=f"counted to {ctx.state['count']}", state={"user:seen": True}))
    try:
        await ctx.step("decline", decline, "old card")
    except ValueError as error:
        version = await ctx.save_artifact("report.txt", Part(text=f"declined {error}"))
        await ctx.emit(Event(message=f"report {version} after {ctx.state['user:seen']}"))


async def ask(ctx: InvocationContext) -> None:
    """A question, and what follows its answer."""
    answer = await ctx.request_input("Ship it?", response_schema=bool, payload={"count": ctx.state["count"]})
    report = await ctx.load_artifact("report.txt")
    text = None if report is None else report.text
    await ctx.emit(Event(message=f"answered {answer} at {ctx.state['count']}, {text}", state={"answer": answer}))


async def forecast(ctx: InvocationContext) -> None:
    """Something that needs a credential."""
    await ctx.emit(Event(message="looking"))
    credential = await ctx.request_credential(CONFIG)
    await ctx.emit(Event(message=f"a key of {len(credential.reveal())} characters"))


async def send(to: str, tool_context: ToolContext) -> str:
    """Send something."""
    EFFECTS.append(f"sent to {to}")
    tool_context.state.extend("sent", [to])
    return f"sent to {to}"


async def note(what: str, tool_context: ToolContext) -> str:
    """Note something."""
    if what in _KILLED_IN:
        await trio.sleep(0.2)  # the others come as far as they can
        os.kill(os.getpid(), signal.SIGKILL)
    EFFECTS.append(f"noted {what}")
    tool_context.state.extend("notes", [what])
    return f"noted {what}"


def speaking(name: str) -> BaseAgent:
    """An agent that takes a step between two lines."""

    async def speak(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"{name} begins"))
        ctx.state[name] = await ctx.step("count", count_up, len(name))
        await ctx.emit(Event(message=f"{name} ends"))

    return Logic(name=name, logic=speak)


def form() -> BaseAgent:
    """A question in a sequence."""
    agents = [Logic(name="prepares", logic=prepare), Logic(name="asks", logic=ask)]
    return SequentialAgent(name="all", sub_agents=[*agents, LlmAgent(name="last", model=says("done"))])


def confirmation() -> BaseAgent:
    """A turn of two calls, of which one has to be allowed."""
    tools = [FunctionTool(send, require_confirmation=True), FunctionTool(note)]
    model = steps([call("note", what="first"), call("send", to="bob")], "done")
    return LlmAgent(name="sends", model=model, tools=tools, output_key="answer")


def credential() -> BaseAgent:
    """An agent that waits for a secret."""
    return Logic(name="forecasts", logic=forecast)


def batch() -> BaseAgent:
    """Steps, one of which fails, two agents at once, and a turn in which an agent is called."""
    inner_turn = [call("note", what="inner one")], [call("note", what="inner two")]
    inner = LlmAgent(name="inner", model=steps(*inner_turn, "inside"), tools=[FunctionTool(note)], output_key="inner")
    turn = [call("note", what="beside"), call("inner", request="do"), call("note", what="last")]
    root = LlmAgent(name="works", model=steps(turn, "worked"), tools=[FunctionTool(note), AgentTool(inner)])
    both = ParallelAgent(name="both", sub_agents=[speaking("p"), speaking("q")])
    return SequentialAgent(name="all", sub_agents=[Logic(name="prepares", logic=prepare), both, root])


AGENTS: dict[str, Callable[[], BaseAgent]] = {
    "form": form,
    "confirmation": confirmation,
    "credential": credential,
    "batch": batch,
}
"""By session: who runs in it."""


# --- files ------------------------------------------------------------------------------------------------------------


def runner_over(service: SqliteSessionService, session: str) -> Runner:
    """The runner of a session."""
    return Runner(
        agent=AGENTS[session](),
        app_name="app",
        session_service=service,
        artifact_service=SqliteArtifactService(service),
        credential_service=InMemoryCredentialService(env=service.env),
        auto_create_session=True,
    )


async def export_of(service: SqliteSessionService, session: str) -> list[str]:
    """The session's log, as `minirun export` prints it."""
    log = await service.read_events(app_name="app", user_id="u", session_id=session)
    return [to_json(event) for event in log]


async def make(path: Path, *sessions: str) -> None:
    """Run what belongs in the file."""
    async with SqliteSessionService(path, durability="process", env=Numbered()) as service:
        for session in sessions:
            runner = runner_over(service, session)
            async with runner.run_async(user_id="u", session_id=session, new_message="go") as run:
                await run.wait()
            assert run.status == "paused"


async def text_of(path: Path) -> dict[str, Any]:
    """What is in it."""
    async with SqliteSessionService(path, durability="process") as service:
        listed = (await service.list_sessions(app_name="app")).sessions
        return {one.id: await export_of(service, one.id) for one in listed}


def write(path: Path, *sessions: str, killed: bool = False) -> None:
    """Make a file in a process of its own, and write what is in it beside it."""
    path.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "tests.stored", str(path), *sessions, *(["--killed"] if killed else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == (-signal.SIGKILL if killed else 0)
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is left of the process is one file
    db.close()
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    try:
        found = {"effects": done.stdout.split("\n")[:-1], "sessions": trio.run(text_of, copy)}
    finally:
        for each in [*path.parent.glob(f"{copy.name}*"), *path.parent.glob(f"{path.name}-*")]:
            each.unlink()
    path.with_suffix(".json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


class Printing(list[str]):
    """Effects that somebody else hears of, also when this process is killed."""

    def append(self, effect: str) -> None:
        super().append(effect)
        print(effect, flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        write(PAUSED, "form", "confirmation", "credential")
        write(INTERRUPTED, "batch", killed=True)
    else:
        sessions = [each for each in sys.argv[2:] if each != "--killed"]
        EFFECTS = Printing()
        _KILLED_IN += ["inner two"] * ("--killed" in sys.argv)
        trio.run(make, Path(sys.argv[1]), *sessions)
