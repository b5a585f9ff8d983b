"""The heart: how a run goes, and how what it says becomes true. Start reading at `_committer.py`."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._commits": "Commit",
            "._config": "RunConfig StreamingMode",
            "._context": "CallbackContext InvocationContext ReadonlyContext ToolContext",
            "._invocation": "Run RunPlan RunScope",
            "._services": "Services",
        },
    )
