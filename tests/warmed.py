"""
A process that has imported this has done what every process of minirun does once: for `fork_server.py`.

All modules are imported, also those that are imported late, and a turn was taken, so that what is made at the first use
is there. No thread was started: a fork has none of them.
"""

from __future__ import annotations

import pkgutil
import threading
from importlib import import_module

import trio

import minirun
from minirun import Event, InMemoryRunner, LlmAgent, RunConfig, StreamingMode
from minirun._codec import from_json, to_json
from minirun.testing import ScriptedLlm, call

# What would begin a command, and what only tests use: it takes as long to import as all else.
LEFT = ("minirun.__main__", "minirun._pytest_plugin", "minirun.simulation._pytest")

for found in pkgutil.walk_packages(minirun.__path__, "minirun."):
    if found.name not in LEFT:
        try:
            import_module(found.name)
        except ImportError:
            pass  # of an extra that is not installed


async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def turn() -> None:
    """A turn with a tool, streamed, whose events are written and read."""
    agent = LlmAgent(name="clerk", model=ScriptedLlm([call("add", a=1), "It is 3."]), tools=[add])
    runner = InMemoryRunner(agent=agent, app_name="app")
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    async with runner.run_async(user_id="u", session_id=session.id, new_message="go", run_config=config) as run:
        async for event in run:
            from_json(Event, to_json(event))


trio.run(turn)
assert threading.active_count() == 1
