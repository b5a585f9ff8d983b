"""
The defaults of everything public, in `tests/fixtures/defaults.json`: what a program gets that says nothing.

    python -m tests.defaults           write them anew; a difference is one for users
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from typing import Any

from .tables import write

__all__ = ["defaults"]

MODULES = (
    "minirun", "minirun.agents", "minirun.apps", "minirun.artifacts", "minirun.credentials",
    "minirun.events", "minirun.flows", "minirun.memory", "minirun.models", "minirun.models.anthropic",
    "minirun.models.gemini", "minirun.models.openai", "minirun.planners", "minirun.plugins", "minirun.runners",
    "minirun.runtime", "minirun.sessions", "minirun.tools", "minirun.tools.mcp", "minirun.tools.openapi",
    "minirun.types", "minirun.workflow",
)  # fmt: skip
# What is the same in all versions of Python: plain values, and names of others.
PLAIN = (bool, int, float, str, type(None))


def defaults() -> dict[str, dict[str, str]]:
    """The defaults of each public class and function, and of the public methods of each class, by their names."""
    found: dict[str, dict[str, str]] = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and issubclass(value, enum.Enum):
                continue  # whose signatures are Python's
            if not callable(value) or getattr(value, "__module__", "").partition(".")[0] != "minirun":
                continue
            about = {name: _of(value)}
            if inspect.isclass(value):
                methods = {each: getattr(value, each) for each in vars(value) if not each.startswith("_")}
                about |= {f"{name}.{each}": _of(method) for each, method in methods.items() if callable(method)}
            found |= {f"{module_name}.{each}": told for each, told in about.items() if told}
    return found


def _of(value: Any) -> dict[str, str]:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (ValueError, TypeError):
        return {}
    return {each.name: _told(each.default) for each in parameters if each.default is not each.empty}


def _told(value: Any) -> str:
    if isinstance(value, enum.Enum) or not isinstance(value, (*PLAIN, tuple, frozenset)):
        named = f"{value.__class__.__name__}.{value.name}" if isinstance(value, enum.Enum) else type(value).__name__
        return getattr(value, "__name__", None) or re.sub(r" at 0x[0-9a-f]+", "", named)
    return repr(value)


if __name__ == "__main__":
    write("defaults", defaults())
