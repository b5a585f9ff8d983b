"""Plugins: hooks that see every agent, model and tool of an app, before the agents' own callbacks do."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._base import BasePlugin as BasePlugin
    from ._context_filter import ContextFilterPlugin as ContextFilterPlugin
    from ._debug_logging import DebugLoggingPlugin as DebugLoggingPlugin
    from ._global_instruction import GlobalInstructionPlugin as GlobalInstructionPlugin
    from ._guardrail import GuardrailPlugin as GuardrailPlugin
    from ._logging import LoggingPlugin as LoggingPlugin
    from ._memory import MemoryPlugin as MemoryPlugin
    from ._reflect_retry_model import ReflectAndRetryModelPlugin as ReflectAndRetryModelPlugin
    from ._reflect_retry_tool import REFLECT_AND_RETRY_RESPONSE_TYPE as REFLECT_AND_RETRY_RESPONSE_TYPE
    from ._reflect_retry_tool import ReflectAndRetryToolPlugin as ReflectAndRetryToolPlugin
    from ._reflect_retry_tool import TrackingScope as TrackingScope
    from ._save_files import SaveFilesAsArtifactsPlugin as SaveFilesAsArtifactsPlugin
    from ._tracing import TracingPlugin as TracingPlugin
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._base": "BasePlugin",
            "._context_filter": "ContextFilterPlugin",
            "._debug_logging": "DebugLoggingPlugin",
            "._global_instruction": "GlobalInstructionPlugin",
            "._guardrail": "GuardrailPlugin",
            "._logging": "LoggingPlugin",
            "._memory": "MemoryPlugin",
            "._reflect_retry_model": "ReflectAndRetryModelPlugin",
            "._reflect_retry_tool": "REFLECT_AND_RETRY_RESPONSE_TYPE ReflectAndRetryToolPlugin TrackingScope",
            "._save_files": "SaveFilesAsArtifactsPlugin",
        },
        unlisted={"._tracing": "TracingPlugin"},
    )
