"""
minirun is a good guest in the program that embeds it (P11).

Each fact is checked in a fresh interpreter in which every warning is an error. A `Watch` is the program of that
interpreter: it looks at something, lets the guest do what it does, looks again, and prints what has changed. The guest
imports every public name, then holds a conversation on each kind of session service. To show that a watch can see
something, each is also tried on a guest that misbehaves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import minirun

from ..fork_server import run

# Without worker threads: a commit of durability "process" is made inline, and there are no tools.
GUEST = """
import minirun

for name in minirun.__all__:
    getattr(minirun, name)

import trio
from minirun import InMemorySessionService, LlmAgent, Runner, SqliteSessionService
from minirun.testing import ScriptedLlm

async def converse(sessions):
    model = ScriptedLlm(["Hello Ada!"])
    agent = LlmAgent(name="greeter", model=model, instruction="Greet {user:name}.", output_key="last_greeting")
    async with sessions, Runner(agent=agent, app_name="demo", session_service=sessions) as runner:
        key = {"app_name": "demo", "user_id": "u1", "session_id": "s1"}
        await sessions.create_session(**key, state={"user:name": "Ada"})
        async with runner.run_async(user_id="u1", session_id="s1", new_message="hi") as run:
            said = [event.text async for event in run]
        session = await sessions.get_session(**key)
    assert said == ["Hello Ada!"], said
    assert session.state["last_greeting"] == "Hello Ada!", session.state

trio.run(converse, InMemorySessionService())
trio.run(converse, SqliteSessionService(":memory:", durability="process"))
trio.run(converse, SqliteSessionService(CHAT_DB, durability="process"))
"""


class Watch(NamedTuple):
    """What a fresh interpreter does before and after the guest's code. `changes` is what it reports."""

    before: str
    after: str


# What trio and attrs do when they are imported is not the guest's doing.
HOST = "import attrs, trio\n"

ASYNCIO = Watch(
    before="import sys",
    after="changes = sorted({'asyncio'} & sys.modules.keys())",
)
# All ways to os.environ end in __getitem__ or __iter__ of its class, whoever holds it under whatever name.
ENVIRONMENT = Watch(
    before=HOST
    + """
import os
kind, changes = type(os.environ), []

def recording(method):
    def recorder(self, *key):
        changes.append(str(*key) if key else "all of them")
        return method(self, *key)
    return recorder

kind.__getitem__, kind.__iter__ = recording(kind.__getitem__), recording(kind.__iter__)
""",
    after="",
)
THREADS = Watch(
    before=HOST
    + """
import threading, time
changes, start = [], threading.Thread.start

def recorder(thread):
    changes.append(f"started {thread.name}")
    start(thread)

threading.Thread.start = recorder
""",
    after="changes += [f'left {each.name}' for each in threading.enumerate() if each is not threading.main_thread()]",
)
SIGNALS = Watch(
    before=HOST
    + """
import signal
def handlers():
    return {number: signal.getsignal(number) for number in signal.valid_signals()}
old = handlers()
""",
    after="changes = [str(number) for number, handler in handlers().items() if handler is not old[number]]",
)
EXIT_HOOKS = Watch(
    before=HOST
    + """
import atexit
old, registered, changes = atexit._ncallbacks(), atexit.register, []

def register(function, *args, **kwargs):
    changes.append(repr(function))
    return registered(function, *args, **kwargs)

atexit.register = register
""",
    after="""
if not changes and atexit._ncallbacks() != old:  # by another way than atexit.register
    changes.append(f"{atexit._ncallbacks() - old} more")
""",
)
LOGGING = Watch(
    before=HOST
    + """
import logging
def configuration():
    root = logging.getLogger()
    return {
        "handlers": list(root.handlers),
        "filters": list(root.filters),
        "level": root.level,
        "disabled": root.manager.disable,
        "logger class": logging.getLoggerClass(),
        "record factory": logging.getLogRecordFactory(),
    }
old = configuration()
""",
    after="changes = [what for what, value in configuration().items() if value != old[what]]",
)
# All tasks of the loop, system tasks included, before and after what the guest gives to trio.run.
TASKS = Watch(
    before=HOST
    + """
changes, run = [], trio.run

def counting_run(main, *args):
    async def counted():
        living = trio.lowlevel.current_statistics().tasks_living
        await main(*args)
        left = trio.lowlevel.current_statistics().tasks_living - living
        changes.extend([f"{left} tasks left by {main.__name__}"] if left else [])
    run(counted)

trio.run = counting_run
""",
    after="",
)
NEW_MODULES = Watch(
    before="import sys\nold = {*sys.modules}",
    after="changes = sorted({name.partition('.')[0] for name in sys.modules.keys() - old})",
)


def changes_under(
    watch: Watch, guest: str, chat_db: Path = Path("chat.db"), modules: str = "attrs cattrs sqlite3 trio"
) -> list[str]:
    """
    Let a guest do its thing under a watch, in a process that has imported what minirun stands on, and not minirun.

    Returns:
        What the watch has seen.
    """
    code = "\n".join(
        [watch.before, f"CHAT_DB = {str(chat_db)!r}", guest, watch.after, "import json; print(json.dumps(changes))"]
    )
    program = ["-W", "error", "-c", code]
    root = Path(minirun.__file__).parent.parent  # the same minirun as here, installed or not
    done = run(program, cwd=root, modules=modules)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    seen: list[str] = json.loads(done.stdout)
    return seen


def test_asyncio_is_never_imported(tmp_path: Path) -> None:
    """
    Importing and running never import asyncio.
    """
    assert changes_under(ASYNCIO, GUEST, tmp_path / "chat.db") == []


def test_no_environment_variable_is_read(tmp_path: Path) -> None:
    """
    Importing and running read no environment variable.
    """
    assert changes_under(ENVIRONMENT, GUEST, tmp_path / "chat.db") == []


def test_no_thread_is_started(tmp_path: Path) -> None:
    """
    Importing starts no thread, nor does a run that has no use for a worker thread.
    """
    assert changes_under(THREADS, GUEST, tmp_path / "chat.db") == []


def test_signal_handlers_stay_as_they_are(tmp_path: Path) -> None:
    """
    After importing and running, every signal has the handler that it had before.
    """
    assert changes_under(SIGNALS, GUEST, tmp_path / "chat.db") == []


def test_no_exit_hook_is_registered(tmp_path: Path) -> None:
    """
    Importing and running register nothing with atexit, not even for a while.
    """
    assert changes_under(EXIT_HOOKS, GUEST, tmp_path / "chat.db") == []


def test_logging_is_not_configured(tmp_path: Path) -> None:
    """
    Importing and running leave the root logger and the settings of logging alone.
    """
    assert changes_under(LOGGING, GUEST, tmp_path / "chat.db") == []


# Services and Runner that nobody enters, each serving two loops.
WITHOUT_BLOCKS = """
import trio
from minirun import InMemorySessionService, LlmAgent, Runner, SqliteSessionService
from minirun.testing import ScriptedLlm

async def converse(runner, session_id):
    key = {"user_id": "u1", "session_id": session_id}
    await runner.session_service.create_session(app_name="demo", **key)
    async with runner.run_async(**key, new_message="hi") as run:
        said = [event.text async for event in run]
    assert said == ["Hello!"], said

for sessions in (InMemorySessionService(), SqliteSessionService(CHAT_DB, durability="process")):
    agent = LlmAgent(name="greeter", model=ScriptedLlm(["Hello!", "Hello!"]))
    runner = Runner(agent=agent, app_name="demo", session_service=sessions)
    trio.run(converse, runner, "first")
    trio.run(converse, runner, "second")
    trio.run(sessions.aclose)
"""


def test_no_task_outlives_a_run_of_services_never_entered(tmp_path: Path) -> None:
    """
    Services and Runner work without `async with`, in one loop after another, and hold no task between runs.
    """
    assert changes_under(TASKS, WITHOUT_BLOCKS, tmp_path / "chat.db") == []


def test_importing_the_package_alone_imports_no_dependency() -> None:
    """
    `import minirun` alone imports itself and the standard library: neither trio nor attrs nor cattrs.
    """
    seen = {*changes_under(NEW_MODULES, "import minirun", modules="json")} - sys.stdlib_module_names
    assert seen == {"minirun"}


FEW_USE = """
import sys, trio
from minirun import LlmAgent, Runner, SqliteSessionService
from minirun.testing import ScriptedLlm

async def say():
    async with SqliteSessionService(":memory:") as sessions:
        agent = LlmAgent(name="a", model=ScriptedLlm(["hi"]))
        runner = Runner(agent=agent, app_name="app", session_service=sessions, auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
            await run.wait()

trio.run(say)
few = ["credentials", "sessions._pending", "sessions._in_memory", "artifacts._in_memory", "memory._in_memory"]
rooms = "credentials debug in_memory once resume rewind supervisor sync"
few += [f"runners._{name}" for name in rooms.split()]
print(sorted(name for name in sys.modules if name.startswith(tuple(f"minirun.{each}" for each in few))))
"""


def test_who_runs_an_agent_imports_nothing_that_only_others_use() -> None:
    """
    A turn on SQLite loads no in-memory store, and nothing of questions, credentials, resuming, rewinding, supervising.
    """
    done = subprocess.run([sys.executable, "-c", FEW_USE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


# Every module of the core; of `testing` only its public list, because its other modules may use pytest and hypothesis.
WHOLE_CORE = """
import attrs, cattrs, trio  # and what they import
old |= {*sys.modules}

import importlib, pkgutil
import minirun

OUTSIDE = {f"minirun.{name}" for name in ("__main__", "_pytest_plugin", "cli", "inspector", "simulation")}
# What an extra is needed for.
OUTSIDE |= {"minirun._postgres._libpq", "minirun.credentials._keyring", "minirun.models._http"}
OUTSIDE |= {"minirun.plugins._tracing", "minirun._web_client", "minirun._connections", "minirun.models._websocket"}
OUTSIDE |= {"minirun.tools._openapi._yaml"}
OUTSIDE |= {"minirun.mcp_server", "minirun.tools.mcp"}

def import_all(package):
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name not in OUTSIDE:
            imported = importlib.import_module(module.name)
            if module.ispkg and module.name != "minirun.testing":
                import_all(imported)

import_all(minirun)
assert "minirun.sessions._sqlite" in sys.modules and "minirun.testing" in sys.modules
"""


def test_importing_the_core_imports_no_extra() -> None:
    """
    All modules of the core together, but those for an extra, import the standard library, trio, attrs and cattrs.
    """
    seen = {*changes_under(NEW_MODULES, WHOLE_CORE)} - sys.stdlib_module_names
    seen = {name for name in seen if not name.startswith("_sysconfigdata")}  # of the standard library, on its machine
    assert seen == {"minirun"}


RUDE_TASK = """
import trio
async def leave_a_task():
    trio.lowlevel.spawn_system_task(trio.sleep_forever)
trio.run(leave_a_task)
"""


@pytest.mark.parametrize(
    ("watch", "guest", "expected"),
    [
        (ASYNCIO, "import asyncio", ["asyncio"]),
        (ENVIRONMENT, "import os; os.environ.get('A')", ["A"]),
        (ENVIRONMENT, "import os; os.getenv('B')", ["B"]),
        (ENVIRONMENT, "from os import environ; 'C' in environ", ["C"]),
        (ENVIRONMENT, "import os; list(os.environ)", ["all of them"]),
        (
            THREADS,
            "threading.Thread(target=time.sleep, args=(9,), name='y', daemon=True).start()",
            ["started y", "left y"],
        ),
        (THREADS, "t = threading.Thread(target=int, name='x'); t.start(); t.join()", ["started x"]),
        (SIGNALS, "signal.signal(signal.SIGTERM, print)", ["15"]),
        (EXIT_HOOKS, "registered(int)", ["1 more"]),
        (EXIT_HOOKS, "import atexit; atexit.register(int); atexit.unregister(int)", ["<class 'int'>"]),
        (LOGGING, "logging.basicConfig(level=10)", ["handlers", "level"]),
        (TASKS, RUDE_TASK, ["1 tasks left by leave_a_task"]),
        (NEW_MODULES, "import colorsys", ["colorsys"]),
    ],
)
def test_a_rude_guest_is_noticed(watch: Watch, guest: str, expected: list[str]) -> None:
    """
    Each watch reports a guest that does what it watches for.
    """
    assert changes_under(watch, guest) == expected
