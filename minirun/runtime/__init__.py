"""The heart: how a run goes, and how what it says becomes true. Start reading at `_committer.py`."""

from ._commits import Commit as Commit
from ._config import RunConfig as RunConfig
from ._config import StreamingMode as StreamingMode
from ._context import CallbackContext as CallbackContext
from ._context import InvocationContext as InvocationContext
from ._context import ReadonlyContext as ReadonlyContext
from ._context import ToolContext as ToolContext
from ._invocation import Run as Run
from ._invocation import RunPlan as RunPlan
from ._invocation import RunScope as RunScope
from ._services import Services as Services

__all__ = [
    "CallbackContext",
    "Commit",
    "InvocationContext",
    "ReadonlyContext",
    "Run",
    "RunConfig",
    "RunPlan",
    "RunScope",
    "Services",
    "StreamingMode",
    "ToolContext",
]
