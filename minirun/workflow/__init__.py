"""
Workflows: graphs of functions, agents and tools, whose position is a fold of the log.

`_graph` is pure: which runs are ready, given the outcomes so far. `_edges` reads what users write, `_draw` shows it.
"""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._arcs import DEFAULT_ROUTE as DEFAULT_ROUTE
    from ._arcs import END as END
    from ._arcs import FAILED as FAILED
    from ._arcs import START as START
    from ._edges import Edge as Edge
    from ._request_input import RequestInput as RequestInput
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._arcs": "DEFAULT_ROUTE END FAILED START",
            "._edges": "Edge",
            "._request_input": "RequestInput",
        },
    )
