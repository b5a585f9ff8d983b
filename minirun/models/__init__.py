"""Models: the interface, and the one that follows a script."""

from ._base import BaseLlm as BaseLlm
from ._base import LlmRequest as LlmRequest
from ._base import LlmResponse as LlmResponse
from ._check import RequestChecker as RequestChecker
from ._scripted import ScriptedLlm as ScriptedLlm
from ._scripted import call as call

__all__ = ["BaseLlm", "LlmRequest", "LlmResponse", "RequestChecker", "ScriptedLlm", "call"]
