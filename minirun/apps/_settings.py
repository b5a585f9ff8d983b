"""What few apps are given, beside agents, plugins and a model, each checked by what knows it; and another name."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from .._json import brief
from ..errors import ConfigurationError
from ..sessions._key import check_app_name

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..sessions._state_schema import StateSchemas
    from ._app import App

__all__ = ["check_settings", "renamed", "schemas_of"]


def check_settings(resumability_config: object, events_compaction_config: object, context_cache_config: object) -> None:
    """
    Check those that are not None. Each loads what it needs itself, as an app has one of them, if any.

    Raises:
        ConfigurationError: One is not of its kind.
    """
    if resumability_config is not None:
        from ._resumability import check_resumability

        check_resumability(resumability_config)
    if events_compaction_config is not None:
        from ._compaction import EventsCompactionConfig

        if not isinstance(events_compaction_config, EventsCompactionConfig):
            found = f"found {brief(events_compaction_config)}"
            raise ConfigurationError(f"expected events_compaction_config to be an EventsCompactionConfig, {found}")
    if context_cache_config is not None:
        from ..models._cache_config import check_cache_config

        check_cache_config(context_cache_config)


def schemas_of(state_schema: object, root_agent: BaseAgent) -> StateSchemas | None:
    """
    Return what the state of an app's sessions may hold, by its own schema and its root's; None: anything.

    Raises:
        ConfigurationError: *state_schema* is no schema.
    """
    of_root = getattr(root_agent, "_state_schema", None)
    if state_schema is None and of_root is None:
        return None
    from ..flows._state_schema import StateSchema
    from ..sessions._state_schema import StateSchemas

    own = None if state_schema is None else StateSchema.of(state_schema)
    return StateSchemas(*(each for each in (own, of_root) if each is not None))


def renamed(app: App, name: str) -> App:
    """
    Return the same app under another name; it shares the tree of agents, and whatever fields there are.

    Raises:
        InvalidValueError: The name cannot be one.
    """
    check_app_name(name)
    other = copy(app)
    object.__setattr__(other, "name", name)
    return other
