"""From `FILE.py[:name]` to an App."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

import click

from ..agents import BaseAgent
from ..apps import App
from ..errors import MinirunError

__all__ = ["load_app"]

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
    raise click.ClickException(f"{target}: expected an App, an agent or a function that makes one, found {found!r:.80}")


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
        raise click.ClickException(f"{target}: expected a function without arguments, found {found!r:.80}") from error
    return found()


def _public(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]


def _app_name(path: Path) -> str:
    """A valid app name that is the same whenever this file is run."""
    letters = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in path.stem)
    return letters if letters[:1].isalpha() and letters != "user" else f"app_{letters}"
