"""Models: the interface, the registry of names, and the one that follows a script."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._base import BaseLlm as BaseLlm
    from ._base import LlmCapabilities as LlmCapabilities
    from ._base import LlmRequest as LlmRequest
    from ._base import LlmResponse as LlmResponse
    from ._cache_config import ContextCacheConfig as ContextCacheConfig
    from ._check import RequestChecker as RequestChecker
    from ._draft import GenerateContentConfigDraft as GenerateContentConfigDraft
    from ._draft import LlmRequestDraft as LlmRequestDraft
    from ._fallback import FallbackModel as FallbackModel
    from ._live import *
    from ._recorded import RecordedLlm as RecordedLlm
    from ._registry import LLMRegistry as LLMRegistry
    from ._scripted import ScriptedLlm as ScriptedLlm
    from ._scripted import call as call
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._base": "BaseLlm LlmCapabilities LlmRequest LlmResponse",
            "._cache_config": "ContextCacheConfig",
            "._check": "RequestChecker",
            "._draft": "GenerateContentConfigDraft LlmRequestDraft",
            "._fallback": "FallbackModel",
            "._live": "ActivityEnd ActivityStart AudioStreamEnd BaseLlmConnection LiveCapabilities LiveConnectConfig "
            "LiveResumption",
            "._recorded": "RecordedLlm",
            "._registry": "LLMRegistry",
            "._scripted": "ScriptedLlm call",
        },
    )
