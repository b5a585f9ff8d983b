"""
The structure of the package: folders of tests, circles of imports, and `Any` in place of a class of the package.

The layers, and the code that reads imports, are in `test_layers.py`. All checks read the sources.
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from ..syntax import nodes, parsed
from .test_layers import PACKAGE, imports_of, module_of

ROOT = Path(__file__).parents[2]

# Where an `Any` would hide which way a dependency points. Values and services read what is not checked yet; what is
# outside may take whatever the user of a command line has named.
TYPED_UNITS = ("flows", "runtime", "tools", "agents", "apps", "runners")
# Names of minirun's own things here and there, and elsewhere of what may be anything: JSON, what a hook answers or an
# operation returns, and the class or schema that an application wants answers in.
GENERAL_NAMES = frozenset(
    {"answer", "arguments", "node_input", "output", "output_schema", "result", "schema", "value", "what"}
)


@cache
def sources() -> dict[str, str]:
    """The files of the package by their paths in it."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


# --- folders ----------------------------------------------------------------------------------------------------------


def test_the_folders_of_tests_mirror_the_package() -> None:
    """
    Tests stand in a folder with the name of the package's folder that they are about; those about all of it in
    `project`, and those about a file at the top of the package at the top of `tests`, like what they share.
    """
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders - packages == {"project"}
    deeper = list((ROOT / "tests").glob("*/*/**/test_*.py"))
    assert deeper == []


# --- circles ----------------------------------------------------------------------------------------------------------


def circle_in(files: Mapping[str, str]) -> list[str]:
    """Return modules each of which imports the next, the last the first; or nothing."""
    modules = frozenset(map(module_of, files))
    graph = {
        module_of(path): {
            each.target
            for each in imports_of(path, source, modules)
            if each.inside and not each.typing_only and "__getattr__" not in each.scopes
        }
        for path, source in files.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_no_modules_import_each_other() -> None:
    """
    There is no circle of imports, neither inside a package nor between packages.

    One in a function counts: it only hides the circle. Public lists that are imported by name, and what only a type
    checker imports, do not.
    """
    assert circle_in(sources()) == []


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        ({"env.py": "from . import errors", "errors.py": "import json"}, []),
        ({"env.py": "from . import errors", "errors.py": "from .env import Env"}, ["env", "errors", "env"]),
        ({"env.py": "from . import errors", "errors.py": "def f():\n    from . import env"}, ["env", "errors", "env"]),
        ({"env.py": "from . import errors", "errors.py": "if TYPE_CHECKING:\n    from .env import Env"}, []),
        ({"tools/__init__.py": "from ._a import x", "tools/_a.py": "from . import y"}, ["tools", "tools._a", "tools"]),
        ({"tools/__init__.py": "def __getattr__(n):\n    from ._a import x", "tools/_a.py": "from . import y"}, []),
    ],
)
def test_a_circle_is_found(files: dict[str, str], circle: list[str]) -> None:
    """
    A circle is found whatever way the imports are written; what is imported for types only makes none.
    """
    assert circle_in(files) in (circle, circle[::-1])


# --- types of one's own -----------------------------------------------------------------------------------------------


class Annotation(NamedTuple):
    """The annotation of one parameter or attribute."""

    line: int
    name: str  # without leading underscores
    types: frozenset[str]  # the members of its union, each without its arguments


def annotations_of(tree: ast.Module) -> Iterator[Annotation]:
    """Every annotation of a parameter, an attribute or a variable."""
    for node in nodes(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                pass
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                pass
            case _:
                continue
        yield Annotation(node.lineno, name.lstrip("_"), frozenset(members_of(annotation)))


def members_of(annotation: ast.expr) -> Iterator[str]:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.BinOp(left=left, right=right):
            yield from members_of(left)
            yield from members_of(right)
        case ast.Constant(value=str(text)):
            yield from members_of(ast.parse(text, mode="eval").body)


def names_of_own_things(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """
    Return the names under which the package passes its own classes around, with these classes.

    These are the names that are annotated with a class of the package somewhere, and the name of each class in small
    letters: `tool_limits` for `ToolLimits`. Classes of a single module, with an underscore, do not count.
    """
    every = (node for tree in trees.values() for node in nodes(tree))
    classes = {node.name for node in every if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}
    names: dict[str, set[str]] = defaultdict(set)
    for name in classes:
        names[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()].add(name)
    for tree in trees.values():
        for each in annotations_of(tree):
            names[each.name] |= each.types & classes
    return {name: found for name, found in names.items() if found}


def hidden_types(files: Mapping[str, str]) -> list[str]:
    """Return the annotations that say `Any` where the package has a type of its own, a line for each."""
    trees = {path: parsed(source) for path, source in files.items()}
    own = names_of_own_things(trees)
    return [
        f"{path}:{each.line}: {each.name}: Any; elsewhere {' or '.join(sorted(own[each.name]))}"
        for path, tree in trees.items()
        if module_of(path).partition(".")[0] in TYPED_UNITS
        for each in annotations_of(tree)
        if "Any" in each.types and each.name in own.keys() - GENERAL_NAMES
    ]


def test_no_any_stands_for_a_type_of_ones_own() -> None:
    """
    What is an agent, a tree or a service in one place is not annotated with `Any` in another.

    A layer that must not know the class of a higher one says what it needs of it, as a protocol.
    """
    assert hidden_types(sources()) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def f(agent: Any): 0", "agent: Any; elsewhere BaseAgent"),
        ("class A:\n    _agent: 'Any | None' = None", "agent: Any; elsewhere BaseAgent"),
        ("def f(agent_tree: Any): 0", "agent_tree: Any; elsewhere AgentTree"),
        ("def f(agent: BaseAgent, value: Any, payload: Any, agents: dict[str, Any]): 0", ""),
    ],
)
def test_an_any_is_found_by_the_name_that_has_it(source: str, problem: str) -> None:
    """
    A name that carries a class of the package elsewhere, or is called like one, must not be `Any`; others may.
    """
    rest = "class BaseAgent: 0\nclass AgentTree: 0\ndef g(agent: BaseAgent, value: BaseAgent): 0"
    found = hidden_types({"agents/_base.py": rest, "runtime/_core.py": source, "cli/_load.py": "agent: Any"})
    assert [each.partition(": ")[2] for each in found] == [problem][: bool(problem)]
