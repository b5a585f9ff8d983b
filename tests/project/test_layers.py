"""
The layers of the package, and a check of every import against them.

The rules, all checked on the syntax tree, so that nothing has to be imported and no import can hide in a branch:

* Every module belongs to a layer, the lowest line of `LAYERS` first. It imports what stands lower, or its own unit.
* It does so at module level. Later are imported: the names of a package's public list (PEP 562), cattrs in `_codec`,
  and the modules of `LATER`, which few programs use. Dynamically: only those lists, by `_lazy`, what stands at
  ADK's paths, by `_adk`, and what the user of a command line names.
* What only a type checker imports (`if TYPE_CHECKING:`) may stand higher, but not in a public list; there only what
  `FROM_ABOVE` names.
* The core imports the standard library, trio, attrs and itself; `_codec` alone imports cattrs.
* Values and pure logic neither import trio nor await. `import minirun` alone imports nothing but standard library.
* The modules of a package are private; the package's `__init__` is its public list.

Not seen: names imported through a third module, and imports in strings given to `exec`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import minirun

from ..syntax import children, nodes, parsed

# The lowest line first. In a line each string is a unit: the modules of one unit may import each other, those of two
# units in one line may not. A package stands for all its modules, except those that have a line of their own.
LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("how public lists are imported, and how files are made", ("_lazy", "_files")),
    (
        "values",
        (
            "types events errors _json _fields _frozen _frozen_error _replay_checks _routes _values _copies "
            "_codec _record _arguments _window _adk _genai _model_errors _request_types _state_schema_error "
            "_workflow_errors _api_errors _guardrail_errors _tool_server_errors _urls _lines _live_errors _live_types",
        ),
    ),
    (
        "pure logic",
        (
            "sessions._state sessions._state_schema sessions._read_only sessions._concurrent sessions._fold "
            "sessions._reserved",
            "credentials._values credentials._scheme",
            "flows",
            "workflow._arcs workflow._checks workflow._draw workflow._edges workflow._graph workflow._joins",
        ),
    ),
    ("Postgres and the web, which Env connects to", ("_postgres", "_web _web_client _connections")),
    ("env", ("env _threads _abandoned", "_escalation")),
    ("what services have in common", ("_service",)),
    ("services", ("sessions", "credentials", "models", "planners")),
    ("what may share the file of the sessions", ("artifacts", "memory")),
    ("runtime", ("runtime",)),
    ("tools", ("tools",)),
    ("agents", ("agents",)),
    ("tools that need agents", ("tools.mcp",)),
    ("plugins and workflow", ("plugins", "workflow")),
    ("apps", ("apps",)),
    ("runners", ("runners",)),
    ("the package", ("minirun",)),
    ("for asyncio programs and threads, and for MCP clients", ("bridge", "mcp_server")),
    # Outside. In this order, because a command line starts the others, and simulations use the helpers for tests.
    ("testing", ("testing",)),
    ("simulation", ("simulation",)),
    ("inspector", ("inspector",)),
    ("cli", ("cli",)),
    ("python -m", ("__main__",)),
    ("pytest's way in", ("_pytest_plugin",)),
)
# Without trio and without await: the logic here is decided by its arguments alone.
SYNCHRONOUS = ("values", "pure logic")
# Top-level modules with a public name; every other module that is not the `__init__` of a package is private.
PUBLIC_MODULES = (
    *("types", "events", "errors", "env", "apps", "runners", "__main__"),
    *("models.anthropic", "models.gemini", "models.openai", "models.providers", "tools.openapi"),
)

CORE_DEPENDENCIES = frozenset({"trio", "attrs", "attr", "cattrs"})
# Units outside of the core may use more: what the tests of applications use anyway, and whatever an extra brings.
TEST_DEPENDENCIES = frozenset({"hypothesis", "pytest", "pytest_trio"})
# What single modules use of extras; nothing imports them before it is needed.
_MCP = frozenset({"anyio", "httpx2", "mcp", "mcp_types", "pydantic", "starlette"})
EXTRAS = {
    "_postgres/_libpq.py": frozenset({"psycopg"}),
    "_connections.py": frozenset({"httpx2"}),
    "_web_client.py": frozenset({"httpx2"}),
    **{f"tools/mcp/{path.name}": _MCP for path in (Path(minirun.__file__).parent / "tools" / "mcp").glob("*.py")},
    **{f"mcp_server/{path.name}": _MCP for path in (Path(minirun.__file__).parent / "mcp_server").glob("*.py")},
    "credentials/_keyring.py": frozenset({"keyring"}),
    "models/_http.py": frozenset({"httpx2"}),
    "models/_websocket.py": frozenset({"websockets"}),
    "plugins/_tracing.py": frozenset({"opentelemetry"}),
    "tools/_openapi/_yaml.py": frozenset({"yaml"}),
}
FREE_UNITS = ("simulation", "inspector", "cli", "__main__", "_pytest_plugin")

PACKAGE = Path(minirun.__file__).parent


class Place(NamedTuple):
    """Where a module stands."""

    rank: int  # the line of `LAYERS`
    layer: str
    unit: str


class Import(NamedTuple):
    """One import of one module, as it stands in a file."""

    line: int
    target: str  # dotted; modules of the package without the leading "minirun.", and "minirun" for the package itself
    inside: bool  # whether the target is a module of the package
    typing_only: bool
    scopes: tuple[str, ...]  # the functions and classes around it; empty at module level
    dynamic: bool  # through import_module() or __import__()

    @property
    def top(self) -> str:
        return self.target.partition(".")[0]


# What few programs use, and what is imported by the functions that do: `import minirun` and a first turn cost less.
LATER = frozenset(
    {
        "_abandoned",
        "_adk",
        "_codec",
        "_copies",
        "_frozen_error",
        "_live_types",
        "_postgres._libpq",
        "_replay_checks",
        "_request_types",
        "_routes",
        "_web_client",
        "agents._caching",
        "agents._chosen_contents",
        "agents._validators",
        "tools._hooks_around",
        "tools._model_retries",
        "agents._call_ids",
        "agents._callbacks",
        "agents._clone",
        "agents._generator",
        "agents._guarded",
        "agents._guardrails",
        "agents._instructions",
        "agents._live_config",
        "agents._llm_fields",
        "agents._model_callbacks",
        "agents._model_retry",
        "agents._output",
        "agents._partial_output",
        "agents._recorded",
        "agents._speaker",
        "agents._transfer",
        "agents._turn_notes",
        "apps._compaction",
        "apps._resumability",
        "apps._settings",
        "artifacts._database",
        "artifacts._in_memory",
        "artifacts._run",
        "artifacts._service",
        "artifacts._sqlite",
        "credentials._in_memory",
        "credentials._secrets",
        "credentials._service",
        "credentials._sign_in",
        "credentials._tokens",
        "credentials._values",
        "flows._actions",
        "flows._deps",
        "flows._hidden",
        "flows._json_schema",
        "flows._node_paths",
        "flows._output",
        "flows._progress",
        "flows._results",
        "flows._retold",
        "flows._schema",
        "flows._shared_budget",
        "flows._state_schema",
        "flows._transfers",
        "flows._words",
        "flows._written",
        "memory._database",
        "memory._in_memory",
        "memory._run",
        "memory._service",
        "memory._sqlite",
        "models._breaches",
        "models._cache_config",
        "models._draft",
        "models._fragments",
        "models._http",
        "models._websocket",
        "models._live_settings",
        "models._registry",
        "plugins._manager",
        "runners._close_app",
        "runners._compactor",
        "runners._conversation",
        "runners._credentials",
        "runners._remembered",
        "runners._debug",
        "runners._live_run",
        "runners._messages",
        "runners._odd_arguments",
        "runners._resume",
        "runners._rewind",
        "runners._supervisor",
        "runners._sync",
        "runtime._artifacts",
        "runtime._cleanup",
        "runtime._closing",
        "runtime._credentials",
        "runtime._hook_calls",
        "runtime._on_event",
        "runtime._on_message",
        "runtime._questions",
        "runtime._replay",
        "runtime._steps",
        "runtime._thread_calls",
        "sessions._adk._import",
        "sessions._call_fold",
        "sessions._compactions",
        "sessions._earlier",
        "sessions._edits",
        "sessions._event_references",
        "sessions._gate_line",
        "sessions._id_bytes",
        "sessions._in_memory",
        "sessions._initial_state",
        "sessions._integrity._history",
        "sessions._listed",
        "sessions._messages",
        "sessions._missing",
        "sessions._node_runs",
        "sessions._outside",
        "sessions._past",
        "sessions._pending",
        "sessions._reserved",
        "sessions._postgres._artifacts",
        "sessions._postgres._create",
        "sessions._postgres._delete",
        "sessions._postgres._fork",
        "sessions._postgres._guest",
        "sessions._postgres._messages",
        "sessions._postgres._queries",
        "sessions._postgres._rewind",
        "sessions._postgres._service",
        "sessions._postgres._turn",
        "sessions._postgres._verify",
        "sessions._postgres._work",
        "sessions._sqlite._service",
        "sessions._read_only",
        "sessions._recovery",
        "sessions._seldom",
        "sessions._sqlite._artifacts",
        "sessions._sqlite._dead_owners",
        "sessions._sqlite._delete",
        "sessions._sqlite._fork",
        "sessions._sqlite._late_ends",
        "sessions._sqlite._lease_wait",
        "sessions._sqlite._lost_file",
        "sessions._sqlite._messages",
        "sessions._sqlite._queries",
        "sessions._sqlite._rewind",
        "sessions._sqlite._turn",
        "sessions._state_delta",
        "sessions._state_schema",
        "sessions._temp",
        "sessions._wire",
        "testing._cassettes",
        "tools._failed",
        "tools._function",
        "tools._handover",
        "tools._limited_slot",
        "tools._media",
        "tools._openapi._yaml",
        "tools._options",
        "tools._permission",
        "tools._retry",
        "tools._sequence",
        "tools._starts",
        "tools._timeouts",
        "tools._toolset",
        "tools._unknown",
        "tools._unreadable",
        "tools._waiting",
        "workflow._agent_node",
        "workflow._dynamic",
        "workflow._root",
        "workflow._running",
        "workflow._task_node",
        "workflow._tool_node",
    }
)

# What a public list has from above its layer, because ADK has it there: a name that is imported when it is asked for.
FROM_ABOVE = {("tools/__init__.py", "agents")}

# The target of a dynamic import whose argument is no constant.
COMPUTED = "a computed name"


# --- the layers -------------------------------------------------------------------------------------------------------


PLACES = {
    module: Place(rank, layer, unit)
    for rank, (layer, units) in enumerate(LAYERS)
    for unit in units
    for module in unit.split()
}


def place_of(module: str) -> Place | None:
    """The place of the longest prefix of a module's name that has one; None for a stranger."""
    while module not in PLACES:
        module, dot, _ = module.rpartition(".")
        if not dot:
            return None
    return PLACES[module]


# --- what a file imports ----------------------------------------------------------------------------------------------


def module_of(path: str) -> str:
    """The dotted name of a file of the package: `sessions/_fold.py` is `sessions._fold`, `__init__.py` is `minirun`."""
    return path.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".") or "minirun"


def is_typing_only(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


@cache
def imports_of(path: str, source: str, modules: frozenset[str]) -> tuple[Import, ...]:
    """Every import in a file, wherever it stands. *modules* are those of the package."""
    package = path.split("/")[:-1]
    found = []
    waiting: list[tuple[ast.AST, tuple[str, ...], bool]] = [(parsed(source), (), False)]
    while waiting:
        node, scopes, typing_only = waiting.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Call)):
            found += [
                Import(node.lineno, target, inside, typing_only, scopes, isinstance(node, ast.Call))
                for target, inside in targets_of(node, package, modules)
            ]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scopes = (*scopes, node.name)
        guarded = node.body if isinstance(node, ast.If) and is_typing_only(node.test) else []
        waiting += [(child, scopes, typing_only or child in guarded) for child in children(node)]
    return tuple(found)


def targets_of(
    node: ast.Import | ast.ImportFrom | ast.Call, package: list[str], modules: frozenset[str]
) -> Iterator[tuple[str, bool]]:
    """The modules that a node of the tree imports, and whether each belongs to the package."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield within_package(alias.name)
    elif isinstance(node, ast.ImportFrom):
        base, inside = within_package(absolute(node.module or "", node.level, package))
        for alias in node.names:
            name = alias.name if base == "minirun" else f"{base}.{alias.name}"
            is_module = inside and (name in modules or name in PLACES)
            yield (name if is_module else base), inside
    elif called_name(node) in ("import_module", "__import__"):
        constant = getattr(node.args[0], "value", None) if node.args else None
        if isinstance(constant, str):
            name = constant.lstrip(".")
            yield within_package(absolute(name, len(constant) - len(name), package))
        else:
            yield COMPUTED, False


def absolute(name: str, level: int, package: list[str]) -> str:
    """The full name of a module that is imported with so many dots before its name."""
    start = ["minirun", *package][: len(package) + 2 - level] if level else []
    return ".".join([*start, *filter(None, [name])])


def within_package(name: str) -> tuple[str, bool]:
    inside = name == "minirun" or name.startswith("minirun.")
    return name.removeprefix("minirun."), inside


def called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


# --- the rules --------------------------------------------------------------------------------------------------------


def violations(sources: Mapping[str, str]) -> list[str]:
    """Check the files of a package, given by their paths in it, and say what is wrong, a line for each."""
    modules = frozenset(map(module_of, sources))
    found = []
    for path, source in sorted(sources.items()):
        found += [f"{path}:{line}: {text}" for line, text in sorted(set(check_file(path, source, modules)))]
    return found


def check_file(path: str, source: str, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    module = module_of(path)
    yield from check_name(path, module)
    place = place_of(module)
    if place is None:
        yield 1, f"{module} is in no layer; add it to LAYERS"
        return
    for each in imports_of(path, source, modules):
        yield from ((each.line, text) for text in check_moment(path, place.unit, each))
        if each.inside:
            yield from ((each.line, text) for text in check_direction(path, place, each))
        elif each.target != COMPUTED:
            yield from ((each.line, text) for text in check_dependency(path, place, each))
    if place.layer in SYNCHRONOUS:
        for node in nodes(parsed(source)):
            if isinstance(node, (ast.AsyncFunctionDef, ast.Await)):
                yield node.lineno, f"{place.layer} is synchronous"


def check_name(path: str, module: str) -> Iterator[tuple[int, str]]:
    name = path.rpartition("/")[2]
    if not name.startswith("_") and module not in PUBLIC_MODULES:
        yield 1, f"an implementation module is private; rename it to _{name}"


def check_moment(path: str, unit: str, each: Import) -> Iterator[str]:
    """Whether an import happens when the module is imported, or is one of those that may wait."""
    in_table = path.endswith("__init__.py") and each.scopes == ("__getattr__",)
    lazy = path == "_codec.py" and each.top == "cattrs"
    if each.dynamic:
        if not in_table and not ((unit in ("cli", "_lazy") or path == "_adk.py") and each.target == COMPUTED):
            yield f"imports {each.target} dynamically"
    elif each.scopes and not in_table and not lazy and each.target not in LATER:
        yield f"imports {each.target} inside {'.'.join(each.scopes)}, not at module level"
    elif lazy and not each.scopes and not each.typing_only:
        yield "imports cattrs at module level, not when it is first used"


def check_direction(path: str, mine: Place, each: Import) -> Iterator[str]:
    """Whether an import of the package's own points down or stays in its unit."""
    theirs = place_of(each.target)
    if theirs is None:
        yield f"imports {each.target}, which is in no layer"
    elif (
        each.typing_only
        and (mine.unit == "minirun" or not path.endswith("__init__.py") or (path, each.target) in FROM_ABOVE)
    ) or each.target == "_lazy":
        pass
    elif mine.unit == "minirun" and not each.scopes:
        yield f"imports {each.target} at once, not when one of its names is first asked for"
    elif theirs.rank >= mine.rank and theirs.unit != mine.unit:
        way = "up" if theirs.rank > mine.rank else "sideways"
        yield f"{mine.layer} imports {way}: {each.target} ({theirs.layer})"


def check_dependency(path: str, mine: Place, each: Import) -> Iterator[str]:
    """Whether a file may import something that is not of the package."""
    if each.top == "trio" and mine.layer in SYNCHRONOUS:
        yield f"{mine.layer} imports trio"
    if each.top == "cattrs" and path != "_codec.py":
        yield "imports cattrs, which only _codec does"
    allowed = {*sys.stdlib_module_names}
    if each.typing_only:
        allowed.add("_typeshed")
    if mine.unit != "minirun":
        allowed |= CORE_DEPENDENCIES
    if mine.unit == "testing" and path != "testing/__init__.py":
        allowed |= TEST_DEPENDENCIES
    allowed |= EXTRAS.get(path, frozenset())
    if each.top not in allowed and mine.unit not in FREE_UNITS:
        yield f"imports {each.top}, which it may not depend on"


# --- the package ------------------------------------------------------------------------------------------------------


def test_every_import_of_the_package_keeps_to_the_layers() -> None:
    """
    Every module is in a layer, and imports only what its layer may.
    """
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    assert {"__init__.py", "events.py", "sessions/_state.py"} <= sources.keys()
    assert violations(sources) == []


# --- the check itself -------------------------------------------------------------------------------------------------


# Modules that exist, for the sources below to import.
WORLD = dict.fromkeys(
    ["events.py", "runtime/__init__.py", "sessions/__init__.py", "sessions/_sqlite.py", "sessions/_state.py"], ""
)
# A public list whose names are imported when they are asked for.
TABLE = """
from importlib import import_module
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from .runners import Runner as Runner
def __getattr__(name):
    return getattr(import_module(f".{name}", __name__), name)
"""
# A file that breaks a rule, and what the check says of it.
RULE_BREAKERS: list[tuple[str, str, list[str]]] = [
    # in no layer, or not private
    ("_later.py", "", ["1: _later is in no layer; add it to LAYERS"]),
    ("later/__init__.py", "", ["1: later is in no layer; add it to LAYERS"]),
    ("sessions/sqlite.py", "", ["1: an implementation module is private; rename it to _sqlite.py"]),
    ("sessions/_images/disk.py", "", ["1: an implementation module is private; rename it to _disk.py"]),
    ("apps.py", "from ._later import x", ["1: imports _later, which is in no layer"]),
    # up, in all spellings
    ("events.py", "import attrs\nfrom .env import Env", ["2: values imports up: env (env)"]),
    ("env.py", "import trio, minirun.runtime", ["1: env imports up: runtime (runtime)"]),
    ("env.py", "from minirun.runtime import RunConfig", ["1: env imports up: runtime (runtime)"]),
    ("env.py", "from . import runtime as heart", ["1: env imports up: runtime (runtime)"]),
    ("env.py", "from minirun import runtime", ["1: env imports up: runtime (runtime)"]),
    ("runners/_runner.py", "from .. import LlmAgent", ["1: runners imports up: minirun (the package)"]),
    ("runners/_runner.py", "from minirun import LlmAgent", ["1: runners imports up: minirun (the package)"]),
    ("tools/_base.py", "if x:\n    from ..agents import y", ["2: tools imports up: agents (agents)"]),
    ("tools/_base.py", "while x:\n    from ..agents import _llm", ["2: tools imports up: agents (agents)"]),
    ("apps.py", "if TYPE_CHECKING: 0\nelse:\n    from .runners import x", ["3: apps imports up: runners (runners)"]),
    ("apps/_app.py", "from ..runners import x", ["1: apps imports up: runners (runners)"]),
    ("runtime/_run.py", "from ..workflow import x", ["1: runtime imports up: workflow (plugins and workflow)"]),
    ("tools/__init__.py", "from ..agents import x", ["1: tools imports up: agents (agents)"]),
    ("tools/__init__.py", TABLE.replace(".runners", "..runners"), ["5: tools imports up: runners (runners)"]),
    ("agents/_llm.py", "from ..testing import x", ["1: agents imports up: testing (testing)"]),
    # up, within a package of two layers
    ("sessions/_fold.py", "from ._sqlite import x", ["1: pure logic imports up: sessions._sqlite (services)"]),
    ("sessions/_fold.py", "from . import _sqlite", ["1: pure logic imports up: sessions._sqlite (services)"]),
    ("sessions/_fold.py", "from . import Session", ["1: pure logic imports up: sessions (services)"]),
    ("workflow/_graph.py", "from . import x", ["1: pure logic imports up: workflow (plugins and workflow)"]),
    # sideways
    ("models/_base.py", "from ..sessions import x", ["1: services imports sideways: sessions (services)"]),
    (
        "flows/_turn.py",
        "from ..sessions._state import x",
        ["1: pure logic imports sideways: sessions._state (pure logic)"],
    ),
    # not at module level
    ("apps.py", "def f():\n    import json", ["2: imports json inside f, not at module level"]),
    ("apps.py", "class A:\n  def f(self):\n    import json", ["3: imports json inside A.f, not at module level"]),
    ("_codec.py", "def f():\n    import attrs", ["2: imports attrs inside f, not at module level"]),
    ("tools/__init__.py", "def f():\n  from ._base import x", ["2: imports tools._base inside f, not at module level"]),
    ("apps.py", "def __getattr__(n):\n  import json", ["2: imports json inside __getattr__, not at module level"]),
    ("apps.py", "import importlib\nimportlib.import_module(n)", ["2: imports a computed name dynamically"]),
    ("apps.py", "__import__('minirun.env')", ["1: imports env dynamically"]),
    ("cli/__init__.py", "import_module('minirun.runners')", ["1: imports runners dynamically"]),
    ("cli/__init__.py", "import_module('._run', 'minirun.cli')", ["1: imports cli._run dynamically"]),
    # dependencies
    ("events.py", "import cattrs.gen", ["1: imports cattrs, which only _codec does"]),
    ("cli/_log.py", "from cattrs import Converter", ["1: imports cattrs, which only _codec does"]),
    ("_codec.py", "import cattrs", ["1: imports cattrs at module level, not when it is first used"]),
    ("models/_base.py", "from httpx import Client", ["1: imports httpx, which it may not depend on"]),
    ("runners.py", "import click", ["1: imports click, which it may not depend on"]),
    ("testing/__init__.py", "import pytest", ["1: imports pytest, which it may not depend on"]),
    ("testing/_strategies.py", "import rich", ["1: imports rich, which it may not depend on"]),
    ("__init__.py", "import attrs", ["1: imports attrs, which it may not depend on"]),
    (
        "__init__.py",
        "from .events import x",
        ["1: imports events at once, not when one of its names is first asked for"],
    ),
    # synchronous layers
    ("types.py", "import trio.lowlevel as low", ["1: values imports trio"]),
    ("flows/_turn.py", "from trio import sleep", ["1: pure logic imports trio"]),
    ("sessions/_state.py", "async def f(): 0", ["1: pure logic is synchronous"]),
    ("_json.py", "async def f(x):\n    await x", ["1: values is synchronous", "2: values is synchronous"]),
]


@pytest.mark.parametrize(("path", "source", "problems"), RULE_BREAKERS)
def test_whoever_breaks_a_rule_is_named(path: str, source: str, problems: list[str]) -> None:
    """
    A file that breaks a rule is reported with its line and the rule, and nothing else is.
    """
    assert violations(WORLD | {path: source}) == [f"{path}:{problem}" for problem in problems]


RULE_KEEPERS = [
    ("__init__.py", TABLE),
    ("tools/__init__.py", TABLE.replace(".runners", "..runtime")),
    ("tools/__init__.py", TABLE.replace(".runners", "..agents")),
    ("tools/__init__.py", "from .._lazy import names_of"),
    ("_lazy.py", "import_module(where, package)"),
    ("__init__.py", "from ._lazy import names_of"),
    ("tools/__init__.py", "def __getattr__(name):\n    from . import _base"),
    ("tools/__init__.py", "def __getattr__(name):\n    return getattr(import_module('._base', __name__), name)"),
    ("__main__.py", "from .cli import main"),
    ("_codec.py", "from .events import Event\ndef f():\n    import cattrs.gen"),
    ("events.py", "import typing, attrs\nif typing.TYPE_CHECKING:\n    from .sessions import Session"),
    ("_json.py", "import json\nfrom .errors import InvalidValueError"),
    ("sessions/__init__.py", "from ._state import State\nfrom ._sqlite import SqliteSessionService"),
    ("sessions/_fold.py", "from ..events import Event\nfrom ._state import State\nfrom . import _state"),
    ("sessions/_lease.py", "try:\n    import fcntl\nfinally:\n    0\nfrom ..env import Env"),
    ("workflow/__init__.py", "from ..agents import BaseAgent\nfrom ._graph import Graph"),
    ("workflow/_graph.py", "import attr\nfrom ..events import Event"),
    ("runners/__init__.py", "from ._runner import Runner"),
    ("runners.py", "import trio\nfrom .apps import App"),
    ("apps/__init__.py", "from ._app import App"),
    ("testing/_strategies.py", "import hypothesis, pytest\nfrom minirun import Event"),
    ("cli/__init__.py", "import click, importlib\nfrom .. import Runner, env\nimportlib.import_module(named)"),
]


@pytest.mark.parametrize(("path", "source"), RULE_KEEPERS)
def test_what_keeps_to_the_rules_passes(path: str, source: str) -> None:
    """
    What the rules allow is not reported.
    """
    assert violations(WORLD | {path: source}) == []


def test_each_module_has_one_place() -> None:
    """
    No module has two places, and a package's modules stand where the package does unless they have a line.
    """
    assert len(PLACES) == sum(len(unit.split()) for _, units in LAYERS for unit in units)
    sessions, live, fold = map(place_of, ["sessions", "sessions._live", "sessions._fold"])
    assert sessions == live != fold
