"""An app: a root agent under a name, with its plugins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from .agents import BaseAgent
from .agents._tree import AgentTree
from .errors import ConfigurationError, NotSupportedError
from .flows._prompts import Prompts
from .plugins import BasePlugin
from .plugins._manager import check_hooks
from .sessions._service import check_app_name

__all__ = ["App", "Prompts"]

# Fields of the ADK documents that do not work here yet.
_NOT_SUPPORTED = ("events_compaction_config", "context_cache_config", "resumability_config")


@attrs.frozen(init=False)
class App:
    """
    A root agent, what is around it, and the name that its sessions are kept under.

    Args:
        name: Letters, digits, `_` and `-`, a letter first, and not `user`.
        root_agent: The agent that answers.
        plugins: Callbacks for all agents, models and tools of the app, in this order, before the agents' own.
        prompts: The words that the framework itself says to models.

    Raises:
        InvalidValueError: The name is not such a name.
        ConfigurationError: The root is not an agent, its tree has a name or an agent twice, an agent has no model, two
            plugins have one name, or a plugin has a hook that there is not, or that does not take its arguments.
        NotSupportedError: For a documented field that would have no effect in this version.
    """

    name: str
    root_agent: BaseAgent
    plugins: Sequence[BasePlugin]
    prompts: Prompts
    _tree: AgentTree = attrs.field(repr=False, eq=False)

    def __init__(
        self,
        name: str,
        root_agent: BaseAgent,
        plugins: Sequence[BasePlugin] = (),
        *,
        prompts: Prompts = Prompts(),  # noqa: B008 # frozen
        **others: object,
    ) -> None:
        for other in others:
            if other in _NOT_SUPPORTED:
                raise NotSupportedError(f"App({other}=...) has no effect in this version of minirun; leave it out")
            raise TypeError(f"App has no field {other!r}; it has name, root_agent, plugins and prompts")
        check_app_name(name)
        if not isinstance(root_agent, BaseAgent):
            msg = f"expected root_agent to be an agent, found {root_agent!r:.80}"
            raise ConfigurationError(msg)
        if not isinstance(prompts, Prompts):
            raise ConfigurationError(f"expected prompts to be Prompts, found {prompts!r:.80}")
        tree = AgentTree(root_agent)
        tree.check_models()
        self.__attrs_init__(
            name=name, root_agent=root_agent, plugins=_checked_plugins(plugins), prompts=prompts, tree=tree
        )


def _checked_plugins(plugins: Sequence[BasePlugin]) -> tuple[BasePlugin, ...]:
    if not isinstance(plugins, Iterable):
        raise ConfigurationError(f"expected plugins to be a list, found {plugins!r:.80}; write plugins=[...]")
    names: set[str] = set()
    for plugin in plugins:
        if not isinstance(plugin, BasePlugin):
            raise ConfigurationError(f"expected plugins (a BasePlugin each), found {plugin!r:.80}")
        if plugin.name in names:
            msg = f"expected plugins with different names, found two named {plugin.name!r}; name one of them otherwise"
            raise ConfigurationError(msg)
        names.add(plugin.name)
        check_hooks(plugin)
    return tuple(plugins)
