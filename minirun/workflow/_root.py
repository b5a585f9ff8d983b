"""A node as the root of an app."""

from __future__ import annotations

from typing import Any

from .._json import brief
from ..agents import BaseAgent
from ..errors import ConfigurationError
from ._arcs import START
from ._nodes import Node
from ._workflow import Workflow
from ._wrap import as_node

__all__ = ["root_of"]


def root_of(value: Any, what: str) -> BaseAgent:
    """
    Return the agent that an app has as its root if it is given this as *what*: of a node, a workflow of nothing else.

    Raises:
        ConfigurationError: It is no node, or nothing that can be one.
    """
    if isinstance(value, BaseAgent):
        return value
    if what == "root_agent" and not isinstance(value, Node):
        raise ConfigurationError(f"expected root_agent to be an agent, found {brief(value)}")
    only = as_node(value)
    return Workflow(name=only.name, description=only.description, edges=[(START, only)])
