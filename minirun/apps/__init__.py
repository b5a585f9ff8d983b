"""Apps: a root agent under a name, and what is set for all of its runs."""

from ._app import App as App
from ._app import Prompts as Prompts
from ._app import ResumabilityConfig as ResumabilityConfig
from ._compaction import BaseEventsSummarizer as BaseEventsSummarizer
from ._compaction import EventsCompactionConfig as EventsCompactionConfig
from ._compaction import FirstLinesSummarizer as FirstLinesSummarizer
from ._compaction import LlmEventSummarizer as LlmEventSummarizer

__all__ = [
    "App",
    "BaseEventsSummarizer",
    "EventsCompactionConfig",
    "FirstLinesSummarizer",
    "LlmEventSummarizer",
    "Prompts",
    "ResumabilityConfig",
]
