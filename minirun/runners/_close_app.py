"""What a Runner that is closed closes of its app."""

from __future__ import annotations

from ..agents._tree_models import close_all
from ..apps import App

__all__ = ["close_app"]


async def close_app(app: App, timeout_s: float) -> list[Exception]:
    """Close plugins, the summarizer, tools and models one by one, each within that time; return what has failed."""
    compaction = app.events_compaction_config
    summarizers = () if compaction is None else (compaction.summarizer,)
    return await close_all((*app.plugins, *summarizers), app._tree, timeout_s)
