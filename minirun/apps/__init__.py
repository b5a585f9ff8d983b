"""Apps: a root agent under a name, and what is set for all of its runs."""

from ._app import App as App
from ._app import Prompts as Prompts
from ._app import ResumabilityConfig as ResumabilityConfig

__all__ = ["App", "Prompts", "ResumabilityConfig"]
