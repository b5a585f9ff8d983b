"""Runners: where an application meets minirun."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._in_memory import InMemoryRunner as InMemoryRunner
    from ._live_run import LiveRun as LiveRun
    from ._live_run import LiveScope as LiveScope
    from ._once import RunResult as RunResult
    from ._once import run_once as run_once
    from ._once import run_sync as run_sync
    from ._remembered import RememberedAnswers as RememberedAnswers
    from ._runner import Runner as Runner
    from ._sync import SyncRun as SyncRun
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._in_memory": "InMemoryRunner",
            "._live_run": "LiveRun LiveScope",
            "._once": "RunResult run_once run_sync",
            "._remembered": "RememberedAnswers",
            "._runner": "Runner",
            "._sync": "SyncRun",
        },
    )
