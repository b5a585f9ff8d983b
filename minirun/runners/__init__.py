"""Runners: where an application meets minirun."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._in_memory import InMemoryRunner as InMemoryRunner
    from ._runner import Runner as Runner
    from ._sync import SyncRun as SyncRun
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._in_memory": "InMemoryRunner",
            "._runner": "Runner",
            "._sync": "SyncRun",
        },
    )
