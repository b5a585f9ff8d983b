"""How what stands in `edges` becomes a node, and the decorator `node`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from .._json import brief
from .._workflow_errors import WorkflowConfigurationError
from ..agents import BaseAgent, LlmAgent
from ..errors import ConfigurationError
from ..tools import BaseTool, BaseToolset
from ._nodes import FunctionNode, Node

__all__ = ["as_node", "node"]

_NOT_GIVEN = object()


def as_node(value: Any, **options: Any) -> Node:
    """
    Return the node that *value* is, or becomes, with these *options* changed.

    Raises:
        ConfigurationError: It is nothing that can be one, or does not take the options.
    """
    if isinstance(value, Node):
        changed: Node = value._changed(**options) if options else value
        return changed
    if isinstance(value, BaseAgent):
        from ._agent_node import AgentNode  # not every workflow has agents

        own = {name: getattr(value, name) for name in ("retry", "timeout_s") if getattr(value, name, None) is not None}
        if isinstance(value, LlmAgent) and value.mode == "chat":
            msg = f"agent {value.name!r}: expected mode 'single_turn', 'task' or None in a workflow, found 'chat'"
            raise WorkflowConfigurationError(f"{msg}, which never gives an output; leave it out, or say 'task'")
        if isinstance(value, LlmAgent) and value.mode == "task":
            from ._task_node import TaskNode  # few agents work on tasks

            return TaskNode(value, **{**own, **options})
        return AgentNode(value, **{**own, **options})
    if isinstance(value, BaseTool):
        from ._tool_node import ToolNode  # few workflows have tools

        return ToolNode(value, **options)
    if isinstance(value, BaseToolset):
        from ._tool_node import ToolsetNode

        return ToolsetNode(value, **options)
    if callable(value):
        return FunctionNode(value, **options)
    expected = "expected a function, an agent, a tool, a toolset or a node"
    raise ConfigurationError(f"{expected}, found {brief(value)}")


@overload
def node(value: Any, /, **options: Any) -> Node: ...
@overload
def node(**options: Any) -> Callable[[Any], Node]: ...
def node(value: Any = _NOT_GIVEN, /, **options: Any) -> Any:
    """
    Make a node: as a decorator, `@node` or `@node(retry=...)`, or of what stands there, `node(agent, timeout_s=5)`.

    The options are the fields of `Node`, and of a function those of `FunctionNode`; of a node a copy is made.

    Raises:
        ConfigurationError: It is nothing that can be one, or an option cannot be that.
    """
    if value is _NOT_GIVEN:
        return lambda found: as_node(found, **options)
    return as_node(value, **options)
