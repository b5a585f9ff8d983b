"""An app: a root agent under a name, with its plugins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

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
        state_schema: Which keys the sessions' own state has, and what each may hold: an attrs class, a dataclass, a
            TypedDict or a pydantic model. Keys of other scopes (`app:`, `user:`, `temp:`) are not looked at. None: any.

    Raises:
        InvalidValueError: The name is not such a name.
        ConfigurationError: The root is not an agent, its tree has a name or an agent twice, an agent has no model, two
            plugins have one name, or a plugin has a hook that there is not, or that does not take its arguments. Or
            the schema is none, or has a field that cannot be checked.
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
    state_schema: type | None
    _tree: AgentTree = attrs.field(init=False, repr=False, eq=False)
    _schema: Any = attrs.field(init=False, repr=False, eq=False)  # StateSchemas, which is private, or None

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
        state_schema: type | None = None,
    ) -> None:
        given = dict(locals())  # the fields by their names, as the signature has them
        check_app_name(name)
        if not isinstance(root_agent, BaseAgent):
            from ..workflow._root import root_of  # few apps have a node as their root

            root_agent = root_of(root_agent, "root_agent")
        if not isinstance(prompts, Prompts):
            raise ConfigurationError(f"expected prompts to be Prompts, found {brief(prompts)}")
        schemas, settings = None, (resumability_config, events_compaction_config, context_cache_config)
        if any(each is not None for each in (*settings, state_schema, getattr(root_agent, "_state_schema", None))):
            from ._settings import check_settings, schemas_of  # few apps have any

            check_settings(*settings)
            schemas = schemas_of(state_schema, root_agent)
        if not is_model(default_model):
            raise ConfigurationError(f"expected default_model to be {A_MODEL}, found {shown(default_model)}")
        tree = AgentTree(root_agent, default_model)
        tree.check_models()
        given["plugins"] = _checked_plugins(plugins)
        self.__attrs_init__(**{field.name: given[field.name] for field in attrs.fields(App) if field.init})
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "_schema", schemas)

    def _renamed(self, name: str) -> App:
        """The same app under another name."""
        from ._settings import renamed  # few Runners call their app otherwise

        return renamed(self, name)


def _checked_plugins(plugins: Iterable[BasePlugin]) -> tuple[BasePlugin, ...]:
    if not isinstance(plugins, Iterable):
        raise ConfigurationError(f"expected plugins to be a list, found {brief(plugins)}; write plugins=[...]")
    given = FrozenTuple(plugins)
    if given:
        from ..plugins._manager import check_plugins  # not every app has one

        check_plugins(given)
    return given
