"""
Public lists whose names are imported when they are first asked for (PEP 562).

So a program pays for what it uses: one that keeps sessions in memory imports no SQL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any

__all__ = ["AdkPaths", "names_of"]


def _adk() -> Any:
    """What knows ADK's names and paths; its table is loaded when something is not found, and not before."""
    return import_module(f"{__package__}._adk")


def names_of(
    namespace: dict[str, Any], where: Mapping[str, str], *, unlisted: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """
    Return `__getattr__`, `__dir__` and `__all__` of a package, whose names stand in the modules that *where* says.

    *namespace* is the package's `globals()`, where a name is kept once it was found: a package that was taken out of
    `sys.modules`, or was imported anew, still answers for itself.
    *where* and *unlisted* map a module, relative to the package, to its names. Those of *unlisted* are not in
    `__all__`: what needs an extra, so that `import *` needs none.
    """
    package = namespace["__name__"]
    listed = {name: module for module, names in where.items() for name in names.split()}
    modules = {**listed, **{name: module for module, names in (unlisted or {}).items() for name in names.split()}}

    def find(name: str) -> Any:
        if name[:1] == "_":
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if name not in modules:
            raise _adk().absent(package, name)
        value = getattr(import_module(modules[name], package), name)
        namespace[name] = value
        return value

    def everything() -> list[str]:
        return sorted({*namespace, *modules})

    return find, everything, sorted(listed)


class AdkPaths:
    """
    The last to be asked for a module of this package that has no file: `minirun.agents.llm_agent`, as ADK has it.

    It stands in `sys.meta_path`, once, and answers for no other package.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """How the module is imported; None if it is not one of ADK's."""
        if not name.startswith(f"{__package__}.") or "._" in name:
            return None
        spec: ModuleSpec | None = _adk().spec_of(name)
        return spec


sys.meta_path.append(AdkPaths)
