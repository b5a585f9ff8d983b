"""Runners: where an application meets minirun."""

from ._runner import InMemoryRunner as InMemoryRunner
from ._runner import Runner as Runner
from ._sync import SyncRun as SyncRun

__all__ = ["InMemoryRunner", "Runner", "SyncRun"]
