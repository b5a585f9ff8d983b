"""
`Env` is the only seam: nothing else in the package asks the machine for time, ids, luck, settings or threads.

Checked on the syntax tree of every file but `env.py`, where the real world is, and `simulation/`, which replaces it.
Names are followed through imports and plain assignments, not through calls and containers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import minirun

from ..syntax import nodes, parsed

PACKAGE = Path(minirun.__file__).parent
# The command that searches seeds is outside of all worlds: it counts real seconds and starts real processes. The bridge
# is where trio meets another loop and other threads; its own thread is one of Env. What runs the code of models, and
# what starts MCP servers, starts processes and ends their groups. The command line reads the keys of providers, and the
# token of MCP clients.
EXEMPT = (
    *("bridge/", "env.py", "simulation/", "tools/mcp/_stdio.py"),
    *("cli/_ctrl_c.py", "cli/_load.py", "cli/_mcp.py", "cli/_simulate.py", "cli/_work.py", "cli/_workers.py"),
)

# Importing one of these is enough, whatever is done with it.
FORBIDDEN_MODULES = frozenset(
    {
        "time",  # clocks
        "uuid",  # ids and luck
        "random",
        "secrets",
        "threading",  # threads, processes, other loops
        "_thread",
        "concurrent",
        "multiprocessing",
        "asyncio",
        "signal",  # what belongs to the host program
    }
)
# Of modules that are good for something else: `os` for files, `datetime` for types.
FORBIDDEN_NAMES = frozenset(
    {
        "os.urandom",
        "os.getrandom",
        "os.environ",
        "os.environb",
        "os.getenv",
        "os.getenvb",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    }
)
# `from os import *` hides what is used.
FORBIDDEN_STARS = frozenset({"os", "datetime"})


def violations(path: str, source: str) -> list[str]:
    """What in a file goes around the seam, a line for each."""
    tree = parsed(source)
    origins = origins_of(tree)
    found = {(node.lineno, what) for node, what in uses(tree, origins)}
    return [f"{path}:{line}: {what} is for Env alone" for line, what in sorted(found)]


def origins_of(tree: ast.Module) -> dict[str, str]:
    """What the names of a file stand for, as dotted names of the standard library: `dt` for `datetime.datetime`."""
    origins: dict[str, str] = {}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                origins[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    assignments = [node for node in nodes(tree) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr))]
    for _ in assignments:  # each pass follows one more link of a chain a = b; b = os
        before = {**origins}
        for node in assignments:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            origin = dotted(node.value, origins)
            if origin is not None:
                origins |= {target.id: origin for target in targets if isinstance(target, ast.Name)}
        if origins == before:
            break
    return origins


def dotted(node: ast.expr | None, origins: dict[str, str]) -> str | None:
    """The dotted name that an expression stands for, or None."""
    if isinstance(node, ast.Name):
        return origins.get(node.id)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, origins)
        return base and f"{base}.{node.attr}"
    return None


def uses(tree: ast.Module, origins: dict[str, str]) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Every place where a file imports or uses something forbidden, and what."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names if is_forbidden_module(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            if is_forbidden_module(node.module):
                yield node, node.module
            yield from ((node, name) for name in names if name in FORBIDDEN_NAMES)
            if node.module in FORBIDDEN_STARS and names == [f"{node.module}.*"]:
                yield node, names[0]
        elif isinstance(node, ast.Attribute):
            name = dotted(node, origins)
            if name in FORBIDDEN_NAMES:
                yield node, name
        elif isinstance(node, ast.Call):
            yield from ((node, name) for name in named_by_text(node, origins))


def named_by_text(node: ast.Call, origins: dict[str, str]) -> Iterator[str]:
    """What a call of import_module(), __import__() or getattr() names by a constant text."""
    function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if function in ("import_module", "__import__"):
        yield from filter(is_forbidden_module, texts)
    elif function == "getattr":
        base = dotted(node.args[0], origins) if node.args else None
        yield from (name for name in (f"{base}.{text}" for text in texts) if name in FORBIDDEN_NAMES)


def is_forbidden_module(name: str) -> bool:
    return name.partition(".")[0] in FORBIDDEN_MODULES


def test_only_env_asks_the_machine() -> None:
    """
    No file of the package but `env.py` and what makes simulations reaches time, ids, luck, settings or threads.
    """
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    checked = [name for name in sorted(paths) if not name.startswith(EXEMPT)]
    assert {"__init__.py", "runners/_runner.py", "sessions/_sqlite/_service.py"} <= {*checked}
    assert [problem for name in checked for problem in violations(name, paths[name].read_text("utf-8"))] == []


def test_env_itself_would_be_reported() -> None:
    """
    Time, luck and threads are really used in `env.py`, and the check sees them there.
    """
    reported = violations("env.py", (PACKAGE / "env.py").read_text("utf-8"))
    assert {problem.split(": ")[1].split()[0] for problem in reported} >= {"time", "os.urandom", "threading"}


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("import time", ["1: time"]),
        ("import time as t\nt.time()", ["1: time"]),
        ("import json, uuid", ["1: uuid"]),
        ("from random import random as luck", ["1: random"]),
        ("def f():\n    from secrets import token_hex", ["2: secrets"]),
        ("if x:\n    import _thread", ["2: _thread"]),
        ("import concurrent.futures", ["1: concurrent.futures"]),
        ("from concurrent.futures import ThreadPoolExecutor", ["1: concurrent.futures"]),
        ("from concurrent import futures", ["1: concurrent"]),
        ("import threading\nimport asyncio\nimport signal", ["1: threading", "2: asyncio", "3: signal"]),
        ("from multiprocessing.pool import Pool", ["1: multiprocessing.pool"]),
        ("import importlib\nimportlib.import_module('time')", ["2: time"]),
        ("__import__('uuid').uuid4()", ["1: uuid"]),
        ("import os\nos.urandom(16)", ["2: os.urandom"]),
        ("import os.path\nos.environ['A']", ["2: os.environ"]),
        ("import os as o\ndef f():\n    return o.getenv('A')", ["3: os.getenv"]),
        ("from os import urandom as u", ["1: os.urandom"]),
        ("from os import environ, path", ["1: os.environ"]),
        ("from os import *", ["1: os.*"]),
        ("import os\nsystem = os\nmachine = system\nmachine.environb", ["4: os.environb"]),
        ("import os\ngetattr(os, 'environ')", ["2: os.environ"]),
        ("import datetime\ndatetime.datetime.now()", ["2: datetime.datetime.now"]),
        ("import datetime as d\nnow = d.datetime.utcnow", ["2: datetime.datetime.utcnow"]),
        ("from datetime import datetime\ndatetime.now()", ["2: datetime.datetime.now"]),
        ("from datetime import datetime as dt, UTC\nf(dt.now(UTC))", ["2: datetime.datetime.now"]),
        (
            "from datetime import datetime, date\ndate.today()\ndatetime.today()",
            ["2: datetime.date.today", "3: datetime.datetime.today"],
        ),
        ("import datetime\nDay = datetime.date\nDay.today()", ["3: datetime.date.today"]),
        ("import datetime\nif Day := datetime.date:\n    Day.today()", ["3: datetime.date.today"]),
    ],
)
def test_a_way_around_the_seam_is_reported(source: str, problems: list[str]) -> None:
    """
    Whatever name a file gives to a clock, a source of luck, a setting or a thread, its line is reported.
    """
    assert violations("apps.py", source) == [f"apps.py:{problem} is for Env alone" for problem in problems]


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.open('a', os.O_RDWR)\nos.path.join('a', 'b')",
        "import datetime\ndef f(when: datetime.datetime) -> datetime.date:\n    return when.date()",
        "from datetime import UTC, datetime\ndatetime.fromtimestamp(env.now(), UTC)",
        "import trio\nfrom .env import Env\nEnv().random('a')",
        "from . import time, random\nfrom .signal import x",
        "def f(self, random, time):\n    return self.env.now(), random(), time.time(), self.os.environ",
    ],
)
def test_what_does_not_ask_the_machine_passes(source: str) -> None:
    """
    Files, types of dates, the Env and names that only look alike are not reported.
    """
    assert violations("apps.py", source) == []
