"""Models: the interface, the registry of names, and the one that follows a script."""

from ._base import BaseLlm as BaseLlm
from ._base import LlmCapabilities as LlmCapabilities
from ._base import LlmRequest as LlmRequest
from ._base import LlmResponse as LlmResponse
from ._check import RequestChecker as RequestChecker
from ._draft import GenerateContentConfigDraft as GenerateContentConfigDraft
from ._draft import LlmRequestDraft as LlmRequestDraft
from ._registry import LLMRegistry as LLMRegistry
from ._scripted import ScriptedLlm as ScriptedLlm
from ._scripted import call as call

__all__ = [
    "BaseLlm",
    "GenerateContentConfigDraft",
    "LLMRegistry",
    "LlmCapabilities",
    "LlmRequest",
    "LlmRequestDraft",
    "LlmResponse",
    "RequestChecker",
    "ScriptedLlm",
    "call",
]
