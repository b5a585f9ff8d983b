"""
The heart: how a run goes, and how what it says becomes true.

`_scope` is the way in, `_run` a run at work, `_emit` the way of one event, and `_committer` where it is stored.
"""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ..flows._shared_budget import Budget as Budget
    from ..models._live_settings import LiveSettings as LiveSettings
    from ._config import RunConfig as RunConfig
    from ._config import StreamingMode as StreamingMode
    from ._context import CallbackContext as CallbackContext
    from ._context import InvocationContext as InvocationContext
    from ._context import ReadonlyContext as ReadonlyContext
    from ._context import ToolContext as ToolContext
    from ._invocation import Program as Program
    from ._invocation import Services as Services
    from ._run import Run as Run
    from ._scope import RunRequest as RunRequest
    from ._scope import RunScope as RunScope
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "..flows._shared_budget": "Budget",
            "..models._live_settings": "LiveSettings",
            "._config": "RunConfig StreamingMode",
            "._context": "CallbackContext InvocationContext ReadonlyContext ToolContext",
            "._invocation": "Program Services",
            "._run": "Run",
            "._scope": "RunRequest RunScope",
        },
    )
