"""The plugins of an app as what the runtime calls: by the name of the hook, the methods of those that have it."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime._hooks import Hook
from ._base import BasePlugin

__all__ = ["hooks_of"]

_NAMES = [name for name in vars(BasePlugin) if name.endswith("_callback")]


def hooks_of(plugins: Sequence[BasePlugin]) -> dict[str, tuple[Hook, ...]]:
    """The hooks that *plugins* really have, in their order; one that they leave as it is costs nothing."""
    hooks: dict[str, tuple[Hook, ...]] = {}
    for name in _NAMES:
        nothing = getattr(BasePlugin, name)
        methods = [getattr(plugin, name) for plugin in plugins]
        own = tuple(method for method in methods if getattr(method, "__func__", None) is not nothing)
        if own:
            hooks[name] = own
    return hooks
