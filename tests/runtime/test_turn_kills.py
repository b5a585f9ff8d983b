"""
kill -9 in the middle of a turn whose calls are made one after the other, wherever it strikes: effects, and their order.

A process is forked for each place: before or after the effect of each call. The next one goes on with the invocation.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import pytest

from ..fork_server import program, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import trio
from minirun import AgentTool, LlmAgent, Runner, SqliteSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseToolset, FunctionTool

folder, kind, policy = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
CALLS = 4

def tools(note, strike):
    async def act(number: int, tool_context) -> str:
        if strike == (number, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        with note.open("a") as file:
            file.write(f"{number} {tool_context.function_call_id}\\n")
        if strike == (number, "after"):
            os.kill(os.getpid(), signal.SIGKILL)
        return f"did {number}"

    def act_in_thread(number: int, tool_context) -> str:
        return trio.from_thread.run(act, number, tool_context)

    tool = act_in_thread if kind == "threads" else act
    return FunctionTool(tool, name="act", sequential=kind not in ("agent", "inside"), on_interrupted=policy)

class Set(BaseToolset):
    def __init__(self, *tools, **options):
        super().__init__(**options)
        self.tools = tools
    async def get_tools(self, readonly_context=None):
        return list(self.tools)

def agent(note, strike):
    answers = [[call("act", number=number) for number in range(CALLS)], "all done"]
    tool = tools(note, strike)
    script = ScriptedLlm(lambda request: answers[any(p.function_response for c in request.contents for p in c.parts)])
    fields = {"model": script, "tools": [Set(tool) if kind == "toolset" else tool],
              "parallel_tool_calls": kind not in ("agent", "inside")}
    one = LlmAgent(name="one", **fields)
    if kind != "inside":
        return one
    asks = ScriptedLlm(lambda request: [call("one", request="go"), "done"][
        any(p.function_response for c in request.contents for p in c.parts)])
    return LlmAgent(name="outer", model=asks, tools=[AgentTool(one)])

async def run(path, note, strike, **given):
    async with SqliteSessionService(path, durability="process") as service:
        runner = Runner(app_name="app", agent=agent(note, strike), session_service=service,
                        auto_create_session=True)
        if not given:
            given = {"new_message": "go"}
        else:
            [left] = await service.list_invocations(status="interrupted")
            given = {"invocation_id": left.invocation_id}
        async with runner.run_async(user_id="u", session_id="s", **given) as events:
            await events.wait()
        events = await service.read_events(app_name="app", user_id="u", session_id="s")
        return [[r.name, json.dumps(dict(r.response))[:60], r.id] for e in events for r in e.get_function_responses()]

found = []
for number in range(CALLS):
    for when in ("before", "after"):
        path, note = folder / f"{number}{when}.db", folder / f"{number}{when}.txt"
        note.touch()
        pid = os.fork()
        if not pid:
            trio.run(run, path, note, (number, when))
            os._exit(3)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        lines = note.read_text().splitlines()
        answers = trio.run(lambda: run(path, note, None, again=True))
        found.append([number, when, lines, note.read_text().splitlines(), answers])
print(json.dumps(found))
"""


ALWAYS = {("agent", "report"), ("toolset", "rerun")}
KILLED = [
    pytest.param(*each, marks=() if each in ALWAYS else pytest.mark.slow)
    for each in product(("agent", "toolset", "tools", "threads", "inside"), ("report", "rerun"))
]


@pytest.mark.parametrize(("kind", "policy"), KILLED)
def test_a_turn_that_is_killed_goes_on_in_its_order(kind: str, policy: str, tmp_path: Path) -> None:
    """
    What was done is not done again, but for the call that was at work, which is done again only if it is to be; the
    later ones have not begun, and are done once, in order. Each call is answered once.
    """
    done = run(program(PROGRAM, tmp_path, kind, policy))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert len(found) == 8
    for number, when, before, after, answers in found:
        assert [int(line.split()[0]) for line in before] == list(range(number + (when == "after")))
        again = [number] if policy == "rerun" else []
        expected = [*range(number + (when == "after")), *again, *range(number + 1, 4)]
        assert [int(line.split()[0]) for line in after] == expected, (number, when)
        assert len({line.split()[1] for line in after}) == len(set(expected)), "done again under the same id"
        acts = [(response, call_id) for name, response, call_id in answers if name == "act"]
        assert len({call_id for _, call_id in acts}) == len(acts) == 4
        doubtful = [index for index, (response, _) in enumerate(acts) if "did" not in response]
        assert doubtful == ([] if policy == "rerun" else [number])
