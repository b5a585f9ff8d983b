"""
Print the size of the package in figures: `python -m tests.figures`.

The figures are printed and never asserted. They show where the package grows, and what a change has removed.

Statements are the `ast.stmt` nodes of a file without docstrings. A *small* file has fewer than 60 lines and is neither
an `__init__` nor a list of re-exports. A *late* import is an import statement inside a function. An *upward* import is
an import for annotations (`if TYPE_CHECKING:`) of a module that is in a higher layer, or that itself imports the
importing module when the program runs. *Names* are those of `__all__` in public modules.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import trio

import minirun
from minirun import InMemoryRunner, LlmAgent
from minirun.testing import ScriptedLlm

from .project.test_layers import absolute, imports_of, is_typing_only, module_of, place_of, within_package
from .syntax import children, nodes, parsed

PACKAGE = Path(minirun.__file__).parent
TESTS = Path(__file__).parent
SMALL_LINES = 60
COLUMNS = ("statements", "lines", "files", "small", "late", "upward", "names")


def figures_of(path: str, source: str, modules: frozenset[str]) -> Counter[str]:
    """Return the figures of one file of the package, without `upward` and `names`."""
    lines = len(source.splitlines())
    late = {each.line for each in imports_of(path, source, modules) if each.scopes and not each.dynamic}
    is_small = lines < SMALL_LINES and not path.endswith("__init__.py") and not is_list(parsed(source))
    return Counter(statements=statements_of(source), lines=lines, files=1, small=is_small, late=len(late))


def statements_of(source: str) -> int:
    """Count the statements of a module. Docstrings, and all other strings that are a statement, do not count."""
    return sum(isinstance(node, ast.stmt) and not is_text(node) for node in nodes(parsed(source)))


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_list(tree: ast.Module) -> bool:
    """Return True if a module only imports names and lists them."""
    return all(isinstance(node, ast.Import | ast.ImportFrom | ast.Assign) or is_text(node) for node in tree.body)


# --- imports for annotations ------------------------------------------------------------------------------------------


class Edge(NamedTuple):
    """One import: the importing module, and the module that defines the imported name."""

    module: str
    target: str
    is_typing_only: bool


def edges_of(path: str, source: str, modules: frozenset[str], lists: dict[str, dict[str, str]]) -> Iterator[Edge]:
    """Yield the imports of a file from the package. *lists* has the names of each `__init__` with their modules."""
    waiting: list[tuple[ast.AST, bool]] = [(parsed(source), False)]
    while waiting:
        node, typing_only = waiting.pop()
        if isinstance(node, ast.ImportFrom):
            base, is_inside = within_package(absolute(node.module or "", node.level, path.split("/")[:-1]))
            for alias in node.names if is_inside else ():
                target = alias.name if base == "minirun" else f"{base}.{alias.name}"
                target = target if target in modules else defining_module(base, alias.name, lists)
                yield Edge(module_of(path), target, typing_only)
        guarded = node.body if isinstance(node, ast.If) and is_typing_only(node.test) else []
        waiting += [(child, typing_only or child in guarded) for child in children(node)]


def defining_module(module: str, name: str, lists: dict[str, dict[str, str]]) -> str:
    """Follow the lists of packages from *module* to the module that defines *name*."""
    while (target := lists.get(module, {}).get(name, module)) != module:
        module = target
    return module


def upward_imports(sources: dict[str, str]) -> Counter[str]:
    """Count the upward imports for annotations of each file. Lists of names (`__init__`) have none."""
    modules = frozenset(map(module_of, sources))
    lists: dict[str, dict[str, str]] = {}
    for path, source in sources.items():
        if path.endswith("__init__.py"):
            names = lists[module_of(path)] = {}
            for node in nodes(parsed(source)):
                if isinstance(node, ast.ImportFrom):
                    base, _ = within_package(absolute(node.module or "", node.level, path.split("/")[:-1]))
                    names.update({alias.asname or alias.name: base for alias in node.names})
    edges = {
        edge
        for path, source in sources.items()
        if not path.endswith("__init__.py")
        for edge in edges_of(path, source, modules, lists)
    }
    imported: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        if not edge.is_typing_only:
            imported[edge.module].add(edge.target)
    path_of = {module_of(path): path for path in sources}
    return Counter(
        path_of[edge.module]
        for edge in edges
        if edge.is_typing_only and (is_higher(edge) or edge.module in reached_from(edge.target, imported))
    )


def is_higher(edge: Edge) -> bool:
    """Return True if the target's layer is above the importing module's."""
    own, other = place_of(edge.module), place_of(edge.target)
    return own is not None and other is not None and own.rank < other.rank


def reached_from(module: str, imported: dict[str, set[str]]) -> set[str]:
    """Return all modules that *module* imports when a program runs, itself or through others."""
    reached = {module}
    waiting = [module]
    while waiting:
        fresh = imported[waiting.pop()] - reached
        reached |= fresh
        waiting += fresh
    return reached


# --- a text turn ------------------------------------------------------------------------------------------------------


def functions_of_a_text_turn() -> set[tuple[str, str]]:
    """
    Return file and name of minirun's functions that run in one text turn of a session in memory.

    The turn is the third of its session: earlier turns prepare what a program prepares once. Lambdas and
    comprehensions do not count as functions.
    """
    passed: set[tuple[str, str]] = set()

    def note(frame: FrameType, what: str, _: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if what == "call" and not code.co_name.startswith("<") and path.is_relative_to(PACKAGE):
            passed.add((path.relative_to(PACKAGE).as_posix(), code.co_qualname))

    async def converse() -> None:
        agent = LlmAgent(name="a", model=ScriptedLlm(["1", "2", "3"]))
        runner = InMemoryRunner(agent=agent, auto_create_session=True)
        for turn in range(3):
            sys.setprofile(note if turn == 2 else None)
            async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
                async for _ in run:
                    pass
        sys.setprofile(None)

    trio.run(converse)
    return passed


# --- the table --------------------------------------------------------------------------------------------------------


def names_of(path: str) -> int:
    """Count the exported names of a module, 0 for a private one."""
    module = module_of(path)
    if path == "__main__.py" or any(part.startswith("_") for part in module.split(".")):
        return 0
    full = "minirun" if module == "minirun" else f"minirun.{module}"
    return len(getattr(import_module(full), "__all__", ()))


def main() -> None:
    """Print the figures per package, in total, of a text turn, and of the tests."""
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    modules = frozenset(map(module_of, sources))
    upward = upward_imports(sources)
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for path, source in sources.items():
        found = figures_of(path, source, modules)
        found.update(upward=upward[path], names=names_of(path))
        for name in (path.partition("/")[0] if "/" in path else "(top level)", "total"):
            packages[name].update(found)
    total = packages.pop("total")
    print(f"{'package':16}" + "".join(f"{column:>11}" for column in COLUMNS))
    for name, figures in [*sorted(packages.items(), key=lambda each: -each[1]["statements"]), ("total", total)]:
        print(f"{name:16}" + "".join(f"{figures[column]:>11,}" for column in COLUMNS))
    passed = functions_of_a_text_turn()
    print(f"a text turn in memory: {len(passed)} functions in {len({file for file, _ in passed})} files")
    lines = [len(path.read_text("utf-8").splitlines()) for path in TESTS.rglob("*.py")]
    print(f"tests: {sum(lines):,} lines in {len(lines)} files")


if __name__ == "__main__":
    main()
