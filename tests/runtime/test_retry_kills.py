"""
kill -9 while an agent waits to ask its model again: the next process asks, and the log has nothing of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ..fork_server import program, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")

PROGRAM = """
import json, os, signal, sys
import trio
from minirun import LlmAgent, Runner, SqliteSessionService
from minirun.errors import ModelOverloadedError
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig

path, is_first = sys.argv[1], sys.argv[2] == "first"

async def look() -> str:
    "Look."
    return "nothing"

def agent():
    busy = ModelOverloadedError("busy", retry_after_s=60)
    script = [call("look"), busy, "never said"] if is_first else ["done"]
    return LlmAgent(name="a", model=ScriptedLlm(script), tools=[look], model_retry=RetryConfig(max_attempts=3))

async def main():
    async with SqliteSessionService(path) as service:
        runner = Runner(app_name="app", agent=agent(), session_service=service, auto_create_session=True)
        if is_first:
            given = {"new_message": "go"}
        else:
            [left] = await service.list_invocations(status="interrupted")
            given = {"invocation_id": left.invocation_id}
        async with runner.run_async(user_id="u", session_id="s", **given) as run:
            async for event in run:
                if event.partial and event.custom_metadata["model_retry"]["attempt"] == 1:
                    assert is_first
                    os.kill(os.getpid(), signal.SIGKILL)
        events = await service.read_events(app_name="app", user_id="u", session_id="s")
        print(json.dumps([[event.author, event.text, len(event.get_function_calls()),
                           len(event.get_function_responses()), event.error_code] for event in events]))

trio.run(main)
"""


def test_who_dies_before_asking_again_is_survived_by_the_question(tmp_path: Path) -> None:
    """
    A process that is killed between two attempts leaves an invocation that another one goes on with, as if nothing was.
    """
    killed = run(program(PROGRAM, tmp_path / "s.db", "first"))
    assert killed.returncode == -9, killed.stderr
    done = run(program(PROGRAM, tmp_path / "s.db", "second"))
    assert done.returncode == 0, done.stderr
    said = [tuple(each) for each in json.loads(done.stdout) if any(each[1:])]
    assert said == [
        ("user", "go", 0, 0, None), ("a", "", 1, 0, None), ("a", "", 0, 1, None), ("a", "done", 0, 0, None)
    ]  # fmt: skip
