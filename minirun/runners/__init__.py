"""Runners: where an application meets minirun."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._runner import InMemoryRunner as InMemoryRunner
    from ._runner import Runner as Runner
    from ._sync import SyncRun as SyncRun
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._runner": "InMemoryRunner Runner",
            "._sync": "SyncRun",
        },
    )
