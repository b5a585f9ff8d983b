"""Plugins: hooks that see every agent, model and tool of an app, before the agents' own callbacks do."""

from ._base import BasePlugin as BasePlugin
from ._logging import LoggingPlugin as LoggingPlugin

__all__ = ["BasePlugin", "LoggingPlugin"]
