"""From `FILE.py[:name]` or `FOLDER[:name]` to an App, and from `FILE.py::name` to a scenario of a simulation."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
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
from ..models import providers

__all__ = ["KEY_VARIABLES", "load_app", "load_scenario"]

# The environment variables that hold keys of models, by provider. The package reads none; the command line reads these.
KEY_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY", "openai": "OPENAI_API_KEY"}

# What is looked for in a file when the command names nothing, in this order.
USUAL_NAMES = ("app", "root_agent", "agent")


def load_app(target: str) -> App:
    """
    Load what *target* names: an App, an agent, or a function without arguments that makes one.

    It stands in a file, or in a folder that is a package: in its `__init__.py`, or in its `agent.py`. Its agents may
    name the models of `minirun.models.providers`, with the keys of `KEY_VARIABLES`.

    Raises:
        click.UsageError: There is no such file or package.
        click.ClickException: What it has is none of these, or a key cannot be one.
    """
    _configure_keys()
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        file, name = target, ""
    path = Path(file)
    found = _made(_pick(_modules(path), name, file), target)
    if isinstance(found, BaseAgent):
        try:
            return App(_app_name(path), found)
        except MinirunError as error:  # such as two agents of one name below it
            raise click.ClickException(f"{target}: {error}") from error
    if isinstance(found, App):
        return found
    msg = f"{target}: expected an App, an agent or a function that makes one, found {brief(found)}"
    raise click.ClickException(msg)


def _configure_keys() -> None:
    for provider, variable in KEY_VARIABLES.items():
        key = os.environ.get(variable)
        if key:
            try:
                providers.configure(**{provider: key})  # type: ignore[arg-type]  # no provider is named `servers`
            except MinirunError as error:
                raise click.ClickException(f"{variable}: {error}") from None


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
    module = _import(path)
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


def _modules(path: Path) -> list[ModuleType]:
    """The modules in which an app is looked for: that of a file; of a folder the package, and its module `agent`."""
    if path.is_file():
        return [_import(path)]
    folder = path.resolve()  # "." has a name, too
    inside = [folder / name for name in ("__init__.py", "agent.py") if (folder / name).is_file()]
    if not inside:
        found = "a folder with neither" if folder.is_dir() else "none"
        msg = f"expected a Python file, or a folder with agent.py or __init__.py, found {found} at {str(path)!r}"
        raise click.UsageError(msg)
    return [_import_as_part(each, folder.name) for each in inside]


def _import(path: Path) -> ModuleType:
    """Import the file; one in a package by its full name, so that its relative imports work."""
    if (path.parent / "__init__.py").is_file():
        return _import_as_part(path, path.resolve().parent.name)
    return _import_alone(path)


def _import_as_part(path: Path, package: str) -> ModuleType:
    """Import a file of a *package*, of which the folder above may be a package, too, and so on."""
    folder = path.parent.resolve()
    names = [package] if path.name == "__init__.py" else [package, path.stem]
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
        names.insert(0, folder.name)
    if "." in "".join(names):
        raise click.ClickException(f"expected a folder that can be imported, found {package!r}; rename it")
    sys.path.insert(0, str(folder.parent))
    if not (path.parent / "__init__.py").is_file():  # its files may import each other as scripts do
        importlib.import_module(".".join(names[:-1]))  # while no file of its own hides it
        sys.path.insert(0, str(path.parent.resolve()))
    module = importlib.import_module(".".join(names))
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path.resolve():
        msg = f"expected {'.'.join(names)!r} to be {str(path)!r}, found {found or 'a module'}; rename the folder"
        raise click.ClickException(msg)
    return module


def _import_alone(path: Path) -> ModuleType:
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


def _pick(modules: list[ModuleType], name: str, file: str) -> object:
    """What is named, or the only thing that can be meant. The module `agent` of a package is not its agent."""
    values: dict[str, object] = {}
    for module in modules:
        for key, value in vars(module).items():
            if not isinstance(value, ModuleType):
                values.setdefault(key, value)
    if name:
        if name not in values:
            public = [key for key in values if not key.startswith("_")]
            raise click.ClickException(f"{file} has no {name!r}; it has {', '.join(public) or 'nothing'}")
        return values[name]
    for usual in USUAL_NAMES:
        if usual in values:
            return values[usual]
    runnable = {id(value): key for key, value in values.items() if isinstance(value, (App, BaseAgent))}
    if len(runnable) != 1:
        usual = ", ".join(USUAL_NAMES)
        found = ", ".join(runnable.values()) or "none"
        raise click.ClickException(
            f"{file}: expected one of {usual}, or a single App or agent, found {found}; write {file}:name"
        )
    return values[next(iter(runnable.values()))]


def _made(found: object, target: str) -> object:
    """What a factory makes; anything else as it is."""
    if isinstance(found, (App, BaseAgent)) or not callable(found):
        return found
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError) as error:
        raise click.ClickException(f"{target}: expected a function without arguments, found {brief(found)}") from error
    return found()


def _app_name(path: Path) -> str:
    """A valid app name that is the same whenever this file or folder is run."""
    stem = path.resolve().name if path.is_dir() else path.stem
    letters = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in stem)
    return letters if letters[:1].isalpha() and letters != "user" else f"app_{letters}"
