"""Plugins: hooks that see every agent, model and tool of an app, before the agents' own callbacks do."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from ._save_files import SaveFilesAsArtifactsPlugin as SaveFilesAsArtifactsPlugin

if TYPE_CHECKING:
    from ._tracing import TracingPlugin as TracingPlugin

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
    "SaveFilesAsArtifactsPlugin",
    "TrackingScope",
]

# What needs an extra is imported when it is first asked for, and is not in `__all__`: `import *` needs no extra.
_WITH_EXTRAS = {"TracingPlugin": "_tracing"}


def __getattr__(name: str) -> Any:
    if name not in _WITH_EXTRAS:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(f".{_WITH_EXTRAS[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WITH_EXTRAS})
