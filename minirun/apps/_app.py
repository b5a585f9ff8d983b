"""An app: a root agent under a name, with its plugins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING

import attrs

from .._json import FrozenTuple, brief, shown
from .._record import Record
from ..agents import BaseAgent
from ..agents._llm import A_MODEL, is_model
from ..agents._tree import AgentTree
from ..errors import ConfigurationError
from ..flows._prompts import Prompts
from ..sessions._key import check_app_name

if TYPE_CHECKING:
    from ..models import BaseLlm, ContextCacheConfig
    from ..plugins import BasePlugin
    from ._compaction import EventsCompactionConfig
    from ._resumability import ResumabilityConfig

__all__ = ["App", "Prompts"]


@attrs.frozen(init=False, eq=False, repr=False)
class App(Record):
    """
    A root agent, what is around it, and the name that its sessions are kept under.

    Args:
        name: Letters, digits, `_` and `-`, a letter first, and not `user`.
        root_agent: The agent that answers.
        plugins: Callbacks for all agents, models and tools of the app, in this order, before the agents' own.
        default_model: The model of agents that have none, nor one above them: an object or a registered name.
        prompts: The words that the framework itself says to models.
        events_compaction_config: When earlier events are told to models as a summary; None: never.
        context_cache_config: How providers are to cache what requests begin with; None: as they do by themselves.
        resumability_config: Accepted and not needed: every invocation can be resumed.

    Raises:
        InvalidValueError: The name is not such a name.
        ConfigurationError: The root is not an agent, its tree has a name or an agent twice, an agent has no model, two
            plugins have one name, or a plugin has a hook that there is not, or that does not take its arguments.
        NotSupportedError: For a documented field that would have no effect in this version.
    """

    name: str
    root_agent: BaseAgent
    plugins: Sequence[BasePlugin]
    default_model: BaseLlm | str | None
    prompts: Prompts
    resumability_config: ResumabilityConfig | None
    events_compaction_config: EventsCompactionConfig | None
    context_cache_config: ContextCacheConfig | None
    _tree: AgentTree = attrs.field(init=False, repr=False, eq=False)

    def __init__(
        self,
        name: str,
        root_agent: BaseAgent,
        plugins: Sequence[BasePlugin] = (),
        *,
        default_model: BaseLlm | str | None = None,
        prompts: Prompts = Prompts(),  # noqa: B008 # frozen
        resumability_config: ResumabilityConfig | None = None,
        events_compaction_config: EventsCompactionConfig | None = None,
        context_cache_config: ContextCacheConfig | None = None,
    ) -> None:
        check_app_name(name)
        if not isinstance(root_agent, BaseAgent):
            from ..workflow._root import root_of  # few apps have a node as their root

            root_agent = root_of(root_agent, "root_agent")
        if not isinstance(prompts, Prompts):
            raise ConfigurationError(f"expected prompts to be Prompts, found {brief(prompts)}")
        if resumability_config is not None:
            from ._resumability import check_resumability  # no app needs it

            check_resumability(resumability_config)
        if events_compaction_config is not None:
            from ._compaction import EventsCompactionConfig  # few apps have one

            if not isinstance(events_compaction_config, EventsCompactionConfig):
                found = f"found {brief(events_compaction_config)}"
                raise ConfigurationError(f"expected events_compaction_config to be an EventsCompactionConfig, {found}")
        if context_cache_config is not None:
            from ..models._cache_config import check_cache_config  # few apps have one

            check_cache_config(context_cache_config)
        if not is_model(default_model):
            raise ConfigurationError(f"expected default_model to be {A_MODEL}, found {shown(default_model)}")
        tree = AgentTree(root_agent, default_model)
        tree.check_models()
        self.__attrs_init__(
            name=name,
            root_agent=root_agent,
            plugins=_checked_plugins(plugins),
            default_model=default_model,
            prompts=prompts,
            resumability_config=resumability_config,
            events_compaction_config=events_compaction_config,
            context_cache_config=context_cache_config,
        )
        object.__setattr__(self, "_tree", tree)

    def _renamed(self, name: str) -> App:
        """The same app under another name; it shares the tree of agents, and whatever fields there are."""
        check_app_name(name)
        renamed = copy(self)
        object.__setattr__(renamed, "name", name)
        return renamed


def _checked_plugins(plugins: Iterable[BasePlugin]) -> tuple[BasePlugin, ...]:
    if not isinstance(plugins, Iterable):
        raise ConfigurationError(f"expected plugins to be a list, found {brief(plugins)}; write plugins=[...]")
    given = FrozenTuple(plugins)
    if given:
        from ..plugins._manager import check_plugins  # not every app has one

        check_plugins(given)
    return given
