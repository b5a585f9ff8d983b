"""
Count the words of a folder of files, each file once, although the process is killed in the middle.

    python examples/map_reduce_files.py FOLDER

The program starts itself as a child, which kills itself when half of the files are counted, and then as another child,
which goes on: what the first one has counted is in words.db, so only the other files are opened.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import trio

from minirun import InvocationContext, Runner, SqliteSessionService
from minirun.workflow import START, Workflow

AT_ONCE = 4


def find(folder: str) -> list[str]:
    """List the files."""
    return [str(path) for path in sorted(Path(folder).glob("*.txt"))]


def count(path: str) -> dict[str, int]:
    """Map: read one file; this runs in a worker thread."""
    print(f"{os.environ['CHILD']} reads {Path(path).name}", flush=True)
    return Counter(Path(path).read_text("utf-8").lower().split())


async def count_all(paths: list[str], ctx: InvocationContext) -> list[dict[str, int]]:
    """Run a node for each file, some at once; what has ended is kept, whatever happens to the process."""
    counts: list[dict[str, int]] = []
    for start in range(0, len(paths), AT_ONCE):
        counts += await ctx.map(count, paths[start : start + AT_ONCE])
        if os.environ["CHILD"] == "first" and len(counts) >= len(paths) / 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return counts


def most(counts: list[dict[str, int]]) -> list[str]:
    """Reduce: the three words that there are most of."""
    total = sum((Counter(each) for each in counts), Counter[str]())
    return [f"{word} {number}" for word, number in sorted(total.items(), key=lambda item: (-item[1], item[0]))[:3]]


async def child(folder: str) -> None:
    """Begin, or go on with what was interrupted."""
    async with SqliteSessionService("words.db") as sessions:
        workflow = Workflow(name="words", edges=[(START, find, count_all, most)])
        runner = Runner(agent=workflow, app_name="words", session_service=sessions, auto_create_session=True)
        found = await sessions.list_invocations(app_name="words", status="interrupted")
        begun, message = (found[0].invocation_id, None) if found else (None, folder)
        async with runner.run_async(user_id="u", session_id="s", invocation_id=begun, new_message=message) as run:
            answer = await run.wait()
        print(run.status, answer and answer.output)


if __name__ == "__main__":
    if "CHILD" in os.environ:
        trio.run(child, sys.argv[1])
    else:
        for name in ("first", "second"):
            done = subprocess.run([sys.executable, *sys.argv], env={**os.environ, "CHILD": name}, check=False)
            print(f"the {name} process has ended with {done.returncode}", flush=True)
