"""
What a workflow fails with.

`minirun.errors` has these names; they are loaded when one of them is asked for.
"""

from __future__ import annotations

from .errors import ArgumentError, ConfigurationError, FatalError, MinirunError

__all__ = [
    "NodeInputError", "NodeRejectedError", "NodeTimeoutError", "RouteError", "SecondOutputError",
    "StrayCancellationError", "WorkflowConfigurationError", "WorkflowError",
]


class WorkflowError(MinirunError):
    """A run of a workflow has come to what its graph forbids, such as a second output. Nothing of that was stored."""


class RouteError(WorkflowError):
    """A node ended with a route that leads nowhere, and it has no `DEFAULT_ROUTE`. Its outcome was not stored."""


class SecondOutputError(WorkflowError, FatalError):
    """A second run of a node has given the output of a workflow. Nothing of that was stored; no node handles it."""


class StrayCancellationError(MinirunError):
    """A node, a branch, or a simulated scenario has raised a Cancelled that it has kept or made: nothing had asked."""


class WorkflowConfigurationError(ConfigurationError):
    """The edges of a workflow make no graph that can run to its end, or a function cannot be a node of one."""


class NodeInputError(ArgumentError):
    """What a node was given, or what stands in the state, does not fit its function; the function was not called."""


class NodeRejectedError(WorkflowError):
    """Somebody was asked whether a node may run (`require_confirmation`), and has said no."""


class NodeTimeoutError(WorkflowError, TimeoutError):
    """
    An attempt of a node took longer than its `timeout_s`, and was cancelled.

    Args:
        node_name: The node.
        timeout: The limit, in seconds.
    """

    def __init__(self, node_name: str, timeout: float) -> None:
        super().__init__()  # two arguments would be an `errno` and what it means
        self.args = (node_name, timeout)  # from which one that was recorded is made again
        self.node_name = node_name
        self.timeout = timeout

    def __str__(self) -> str:
        return f"the node {self.node_name!r} took longer than timeout_s={self.timeout} seconds"
