"""
Public lists whose names are imported when they are first asked for (PEP 562).

So a program pays for what it uses: who keeps sessions in memory never imports what repairs a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["names_of"]


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
        if name not in modules:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value = getattr(import_module(modules[name], package), name)
        namespace[name] = value
        return value

    def everything() -> list[str]:
        return sorted({*namespace, *modules})

    return find, everything, sorted(listed)
