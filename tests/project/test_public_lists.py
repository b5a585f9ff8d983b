"""
The public lists of the package: their names come when they are asked for, and are what a type checker sees.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

import minirun

PACKAGE = Path(minirun.__file__).parent
LISTS = [
    ".".join(["minirun", *path.parent.relative_to(PACKAGE).parts])
    for path in sorted(PACKAGE.rglob("__init__.py"))
    if "names_of(" in path.read_text("utf-8")
]
# What needs an extra: the one is in no `__all__`, the other is.
UNLISTED = {"minirun.plugins": {"TracingPlugin"}}
OUTSIDE = ("minirun.cli", "minirun.simulation", "minirun.testing")
EXTRAS = {"KeyringCredentialService": "keyring"}
# What the runtime is given of an app, and whoever takes it: no application's to make, or to call.
FOR_THE_RUNTIME = {"Program", "agent_that_ends"}


def seen_by_type_checkers(package: str) -> dict[str, str]:
    """The names that a package imports for type checkers alone, each with its module."""
    path = importlib.import_module(package).__file__
    assert path is not None
    (guarded,) = [node for node in ast.parse(Path(path).read_text("utf-8")).body if isinstance(node, ast.If)]
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(guarded.body)
    found: dict[str, str] = {}
    for node in imports:
        module = "." * node.level + str(node.module)
        named = [alias.name for alias in node.names]
        # Of a module that is imported whole, those that the package lists.
        whole = {*importlib.import_module(module, package).__all__} if named == ["*"] else set()
        found |= dict.fromkeys(whole & {*importlib.import_module(package).__all__} or named, module)
    return found


@pytest.mark.parametrize("package", LISTS)
def test_a_public_list_gives_what_type_checkers_see(package: str) -> None:
    """
    Each name is the one of the module that a type checker is told, and `__all__` and `dir` know all of them.
    """
    module, expected = importlib.import_module(package), seen_by_type_checkers(package)
    assert {*module.__all__} == expected.keys() - UNLISTED.get(package, set())
    assert {*dir(module)} >= expected.keys()
    for name in module.__all__:
        if name in EXTRAS:
            pytest.importorskip(EXTRAS[name])
        assert getattr(module, name) is getattr(importlib.import_module(expected[name], package), name)


@pytest.mark.parametrize("package", LISTS)
def test_a_name_that_is_not_listed_is_no_attribute(package: str) -> None:
    """
    A public list answers for a name that it has not as any module does.
    """
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nobody'"):
        importlib.import_module(package).nobody  # noqa: B018
    with pytest.raises(ImportError, match="nobody"):
        exec(f"from {package} import nobody")


REIMPORTED = """
import sys, minirun
old = minirun
del sys.modules["minirun"]
assert "LoopAgent" in dir(old)
import minirun as new
assert new is not old
assert old.LoopAgent.__name__ == "LoopAgent"
assert "LoopAgent" in vars(old)
assert "LoopAgent" not in vars(new)
"""


def test_a_package_that_was_imported_anew_leaves_the_old_one_its_names() -> None:
    """
    A package that is no longer in `sys.modules` still finds its names, and keeps them to itself.
    """
    done = subprocess.run([sys.executable, "-c", REIMPORTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def functions_of(name: str, value: object) -> Iterator[tuple[str, Callable[..., object]]]:
    """A function, or the public ones of a class: its methods and properties, and a constructor that it has written."""
    if inspect.isfunction(value):
        yield name, value
    for method, found in vars(value).items() if isinstance(value, type) else ():
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        written = method == "__init__" and not attrs.has(typing.cast(type, value))
        if inspect.isfunction(function) and (method[0] != "_" or written):
            yield f"{name}.{method}", function


def test_annotations_are_understood_with_the_public_names() -> None:
    """
    `typing.get_type_hints(what, localns=names)` resolves every public class, method and function: none needs a private
    name.
    """
    packages = [importlib.import_module(name) for name in LISTS if not name.startswith(OUTSIDE)]
    packages += [importlib.import_module(f"minirun.{name}") for name in ("types", "events", "errors", "env")]
    listed = [(package, name) for package in packages for name in package.__all__ if name not in EXTRAS]
    names = {name: getattr(package, name) for package, name in listed}
    kinds = {name: kind for name, kind in names.items() if isinstance(kind, type) and name not in FOR_THE_RUNTIME}
    functions = dict(one for name, value in names.items() for one in functions_of(name, value))
    functions = {name: one for name, one in functions.items() if name.rpartition(".")[2] not in FOR_THE_RUNTIME}
    assert {minirun.LlmAgent, minirun.App, minirun.Runner} <= set(kinds.values())
    assert {"Runner.run_async", "Run.usage", "BasePlugin.before_tool_callback", "run_once"} <= functions.keys()
    for each in (*kinds.values(), *functions.values()):
        typing.get_type_hints(each, localns=names)
