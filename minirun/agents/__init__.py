"""Agents: who speaks in a session."""

from ..runtime import CallbackContext as CallbackContext
from ..runtime import InvocationContext as InvocationContext
from ..runtime import ReadonlyContext as ReadonlyContext
from ..runtime import RunConfig as RunConfig
from ..runtime import StreamingMode as StreamingMode
from ._agent_tool import AgentTool as AgentTool
from ._base import BaseAgent as BaseAgent
from ._composite import LoopAgent as LoopAgent
from ._composite import ParallelAgent as ParallelAgent
from ._composite import SequentialAgent as SequentialAgent
from ._llm import LlmAgent as LlmAgent

__all__ = [
    "AgentTool",
    "BaseAgent",
    "CallbackContext",
    "InvocationContext",
    "LlmAgent",
    "LoopAgent",
    "ParallelAgent",
    "ReadonlyContext",
    "RunConfig",
    "SequentialAgent",
    "StreamingMode",
]
