"""Agents: who speaks in a session."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ..runtime import CallbackContext as CallbackContext
    from ..runtime import InvocationContext as InvocationContext
    from ..runtime import LiveSettings as LiveSettings
    from ..runtime import ReadonlyContext as ReadonlyContext
    from ..runtime import RunConfig as RunConfig
    from ..runtime import StreamingMode as StreamingMode
    from ._agent_tool import AgentTool as AgentTool
    from ._base import BaseAgent as BaseAgent
    from ._composite import LoopAgent as LoopAgent
    from ._composite import ParallelAgent as ParallelAgent
    from ._composite import SequentialAgent as SequentialAgent
    from ._guardrails import Guardrail as Guardrail
    from ._in_thread import in_thread as in_thread
    from ._live_request_queue import LiveRequest as LiveRequest
    from ._live_request_queue import LiveRequestQueue as LiveRequestQueue
    from ._llm import Agent as Agent
    from ._llm import LlmAgent as LlmAgent
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "..runtime": "CallbackContext InvocationContext LiveSettings ReadonlyContext RunConfig StreamingMode",
            "._agent_tool": "AgentTool",
            "._base": "BaseAgent",
            "._composite": "LoopAgent ParallelAgent SequentialAgent",
            "._guardrails": "Guardrail",
            "._in_thread": "in_thread",
            "._live_request_queue": "LiveRequest LiveRequestQueue",
            "._llm": "Agent LlmAgent",
        },
    )
