"""The plugins of an app as what the runtime calls: by the name of the hook, the methods of those that have it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from .._json import brief
from ..errors import ConfigurationError
from ..runtime._hooks import Hook
from ._base import BasePlugin

__all__ = ["check_hooks", "check_plugins", "hooks_of"]

_NAMES = [name for name in vars(BasePlugin) if name.endswith("_callback")]


def hooks_of(plugins: Sequence[BasePlugin]) -> dict[str, tuple[Hook, ...]]:
    """
    The hooks that *plugins* really have, in their order; one that they leave as it is costs nothing.

    Those of a GuardrailPlugin are no hook: they stand around a question to a model, under a name of their own.
    """
    hooks: dict[str, tuple[Hook, ...]] = {}
    for name in _NAMES:
        nothing = getattr(BasePlugin, name)
        methods = [getattr(plugin, name) for plugin in plugins]
        own = tuple(method for method in methods if getattr(method, "__func__", None) is not nothing)
        if own:
            hooks[name] = own
    guards = tuple(plugin._guardrails for plugin in plugins if hasattr(plugin, "_guardrails"))
    return {**hooks, "_guardrails": guards} if guards else hooks


def check_plugins(plugins: Sequence[object]) -> None:
    """
    Check that *plugins* are plugins of different names.

    Raises:
        ConfigurationError: One is none, has the name of another one, or a hook that cannot be called.
    """
    names: set[str] = set()
    for plugin in plugins:
        if not isinstance(plugin, BasePlugin):
            raise ConfigurationError(f"expected plugins (a BasePlugin each), found {brief(plugin)}")
        if plugin.name in names:
            msg = f"expected plugins with different names, found two named {plugin.name!r}; name one of them otherwise"
            raise ConfigurationError(msg)
        names.add(plugin.name)
        check_hooks(plugin)


def check_hooks(plugin: BasePlugin) -> None:
    """
    Check that what *plugin* calls a hook is one, and takes what hooks of this name are given.

    Raises:
        ConfigurationError: A `..._callback` is none of `BasePlugin`'s, or cannot be called with its arguments.
    """
    for name in dir(plugin):
        if not name.endswith("_callback") or name.startswith("_") or not callable(getattr(plugin, name)):
            continue
        if name not in _NAMES:
            known = ", ".join(_NAMES)
            msg = f"expected plugin {plugin.name!r} to have hooks of BasePlugin, found {name}; they are {known}"
            raise ConfigurationError(msg)
        parameters = [each for each in inspect.signature(getattr(BasePlugin, name)).parameters if each != "self"]
        try:
            inspect.signature(getattr(plugin, name)).bind(**dict.fromkeys(parameters))
        except TypeError as error:
            msg = f"expected {name} of plugin {plugin.name!r} to take {', '.join(parameters)} by name ({error})"
            raise ConfigurationError(msg) from None
