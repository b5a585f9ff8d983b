"""Plugins: hooks that see every agent, model and tool of an app, before the agents' own callbacks do."""

from ._base import BasePlugin as BasePlugin
from ._context_filter import ContextFilterPlugin as ContextFilterPlugin
from ._debug_logging import DebugLoggingPlugin as DebugLoggingPlugin
from ._global_instruction import GlobalInstructionPlugin as GlobalInstructionPlugin
from ._logging import LoggingPlugin as LoggingPlugin
from ._memory import MemoryPlugin as MemoryPlugin
from ._reflect_retry_model import ReflectAndRetryModelPlugin as ReflectAndRetryModelPlugin
from ._reflect_retry_tool import REFLECT_AND_RETRY_RESPONSE_TYPE as REFLECT_AND_RETRY_RESPONSE_TYPE
from ._reflect_retry_tool import ReflectAndRetryToolPlugin as ReflectAndRetryToolPlugin
from ._reflect_retry_tool import TrackingScope as TrackingScope

__all__ = [
    "REFLECT_AND_RETRY_RESPONSE_TYPE",
    "BasePlugin",
    "ContextFilterPlugin",
    "DebugLoggingPlugin",
    "GlobalInstructionPlugin",
    "LoggingPlugin",
    "MemoryPlugin",
    "ReflectAndRetryModelPlugin",
    "ReflectAndRetryToolPlugin",
    "TrackingScope",
]
