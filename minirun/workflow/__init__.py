"""
Workflows: graphs of functions, agents and tools, whose position is a fold of the log.

`_graph` is pure: which runs are ready, given the outcomes so far. `_edges` reads what users write, `_draw` shows it.
`_running` starts what is ready, and `_node_run` is one run of a node, from its start to the event that it ends with.
"""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from .._workflow_errors import NodeTimeoutError as NodeTimeoutError
    from ..tools import RetryConfig as RetryConfig
    from ._arcs import DEFAULT_ROUTE as DEFAULT_ROUTE
    from ._arcs import END as END
    from ._arcs import FAILED as FAILED
    from ._arcs import START as START
    from ._context import NodeContext as NodeContext
    from ._edges import Edge as Edge
    from ._nodes import FunctionNode as FunctionNode
    from ._nodes import JoinNode as JoinNode
    from ._nodes import Node as Node
    from ._nodes import NodeLike as NodeLike
    from ._request_input import RequestInput as RequestInput
    from ._workflow import Workflow as Workflow
    from ._wrap import node as node
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            ".._workflow_errors": "NodeTimeoutError",
            "..tools": "RetryConfig",
            "._arcs": "DEFAULT_ROUTE END FAILED START",
            "._context": "NodeContext",
            "._edges": "Edge",
            "._nodes": "FunctionNode JoinNode Node NodeLike",
            "._request_input": "RequestInput",
            "._workflow": "Workflow",
            "._wrap": "node",
        },
    )
