"""An app: a root agent under a name."""

from __future__ import annotations

import attrs

from .agents import BaseAgent
from .agents._base import check_tree
from .errors import ConfigurationError, NotSupportedError
from .sessions._service import check_app_name

__all__ = ["App"]

# Fields of the ADK documents that do not work here yet.
_NOT_SUPPORTED = ("plugins", "events_compaction_config", "context_cache_config", "resumability_config")


@attrs.frozen(init=False)
class App:
    """
    A root agent and the name that its sessions are kept under.

    Args:
        name: Letters, digits, `_` and `-`, a letter first, and not `user`.
        root_agent: The agent that answers.

    Raises:
        InvalidValueError: The name is not such a name.
        ConfigurationError: The root is not an agent, or its tree has a name or an agent twice.
        NotSupportedError: For a documented field that would have no effect in this version.
    """

    name: str
    root_agent: BaseAgent

    def __init__(self, name: str, root_agent: BaseAgent, **others: object) -> None:
        for other in others:
            if other in _NOT_SUPPORTED:
                raise NotSupportedError(f"App({other}=...) has no effect in this version of minirun; leave it out")
            raise TypeError(f"App has no field {other!r}; it has name and root_agent")
        check_app_name(name)
        if not isinstance(root_agent, BaseAgent):
            msg = f"expected root_agent to be an agent, found {root_agent!r:.80}"
            raise ConfigurationError(msg)
        check_tree(root_agent)
        self.__attrs_init__(name=name, root_agent=root_agent)
