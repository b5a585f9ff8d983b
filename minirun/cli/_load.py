"""From `FILE.py[:name]` to an App, and from `FILE.py::name` to a scenario of a simulation."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from .._json import brief
from ..agents import BaseAgent
from ..apps import App
from ..errors import MinirunError

__all__ = ["load_app", "load_scenario"]

# What is looked for in a file when the command names nothing, in this order.
USUAL_NAMES = ("app", "root_agent", "agent")


def load_app(target: str) -> App:
    """
    Load what *target* names: an App, an agent, or a function without arguments that makes one.

    Raises:
        click.UsageError: There is no such file.
        click.ClickException: What it has is none of these.
    """
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        file, name = target, ""
    path = Path(file)
    if not path.is_file():
        raise click.UsageError(f"expected a Python file, found none at {file!r}")
    found = _made(_pick(_import(path), name, file), target)
    if isinstance(found, BaseAgent):
        try:
            return App(_app_name(path), found)
        except MinirunError as error:  # such as two agents of one name below it
            raise click.ClickException(f"{target}: {error}") from error
    if isinstance(found, App):
        return found
    msg = f"{target}: expected an App, an agent or a function that makes one, found {brief(found)}"
    raise click.ClickException(msg)


def load_scenario(target: str) -> tuple[Path, Callable[..., Any], tuple[tuple[Any, ...], dict[str, Any]]]:
    """
    Load what *target* names: an async function or method that takes `world` alone.

    Returns:
        The file, the function, and the arguments of its marker `simulation`, or of its class's or its module's.

    Raises:
        click.UsageError: There is no such file, or nothing is named.
        click.ClickException: What is named cannot be simulated.
    """
    file, colons, names = target.partition("::")
    path = Path(file)
    if not path.is_file():
        raise click.UsageError(f"expected FILE.py::name, found no file at {file!r}")
    if not colons or not names:
        raise click.UsageError(f"expected FILE.py::name, found no name in {target!r}")
    module = _import_like_pytest(path)
    found: Any = module
    holders = [module]
    for name in names.split("::"):
        if not hasattr(found, name):
            raise click.ClickException(f"{file} has no {names!r}; it has {', '.join(_scenarios(module)) or 'nothing'}")
        found = getattr(found() if inspect.isclass(found) else found, name)
        holders.append(found)
    parameters = inspect.signature(found).parameters.values() if inspect.iscoroutinefunction(found) else ()
    wanted = [each.name for each in parameters if each.default is each.empty]
    if wanted != ["world"]:
        told = f"one that takes {', '.join(wanted) or 'nothing'}" if parameters else f"{brief(found)}"
        hint = "; pytest can run it with its fixtures and parameters" if "world" in wanted else ""
        raise click.ClickException(f"{target}: expected an async function that takes `world` alone, found {told}{hint}")
    return path, found, _marked(holders)


def _marked(holders: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the closest marker. What pytest's markers are made of is read without importing pytest."""
    for holder in reversed(holders):
        marks = getattr(holder, "pytestmark", ())
        for mark in reversed(marks if isinstance(marks, (list, tuple)) else [marks]):
            found: Any = getattr(mark, "mark", mark)  # a decorator has the mark inside
            if getattr(found, "name", "") == "simulation":
                return found.args, dict(found.kwargs)
    return (), {}


def _scenarios(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if inspect.iscoroutinefunction(value)]


def _import_like_pytest(path: Path) -> ModuleType:
    """Import the file; one in a package by its full name, so that its relative imports work."""
    folder = path.parent.resolve()
    names = [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if len(names) == 1:
        return _import(path)
    sys.path.insert(0, str(folder))
    return importlib.import_module(".".join(names))


def _import(path: Path) -> ModuleType:
    """Import the file under its own name, as a script's folder would let it be imported; never as `__main__`."""
    sys.path.insert(0, str(path.parent.resolve()))
    name = path.stem if path.stem not in sys.modules else f"minirun_file_{path.stem}"  # json.py must not break json
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise click.UsageError(f"expected a Python file, found {str(path)!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _pick(module: ModuleType, name: str, file: str) -> object:
    if name:
        if not hasattr(module, name):
            raise click.ClickException(f"{file} has no {name!r}; it has {', '.join(_public(module)) or 'nothing'}")
        return getattr(module, name)
    for usual in USUAL_NAMES:
        if hasattr(module, usual):
            return getattr(module, usual)
    runnable = {id(value): key for key, value in vars(module).items() if isinstance(value, (App, BaseAgent))}
    if len(runnable) != 1:
        usual = ", ".join(USUAL_NAMES)
        found = ", ".join(runnable.values()) or "none"
        raise click.ClickException(
            f"{file}: expected one of {usual}, or a single App or agent, found {found}; write FILE.py:name"
        )
    return getattr(module, *runnable.values())


def _made(found: object, target: str) -> object:
    """What a factory makes; anything else as it is."""
    if isinstance(found, (App, BaseAgent)) or not callable(found):
        return found
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError) as error:
        raise click.ClickException(f"{target}: expected a function without arguments, found {brief(found)}") from error
    return found()


def _public(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]


def _app_name(path: Path) -> str:
    """A valid app name that is the same whenever this file is run."""
    letters = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in path.stem)
    return letters if letters[:1].isalpha() and letters != "user" else f"app_{letters}"
