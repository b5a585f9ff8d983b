"""Apps: a root agent under a name, and what is set for all of its runs."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ..models import ContextCacheConfig as ContextCacheConfig
    from ._app import App as App
    from ._app import Prompts as Prompts
    from ._compaction import BaseEventsSummarizer as BaseEventsSummarizer
    from ._compaction import EventsCompactionConfig as EventsCompactionConfig
    from ._compaction import FirstLinesSummarizer as FirstLinesSummarizer
    from ._compaction import LlmEventSummarizer as LlmEventSummarizer
    from ._resumability import ResumabilityConfig as ResumabilityConfig
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "..models": "ContextCacheConfig",
            "._app": "App Prompts",
            "._compaction": "BaseEventsSummarizer EventsCompactionConfig FirstLinesSummarizer LlmEventSummarizer",
            "._resumability": "ResumabilityConfig",
        },
    )
