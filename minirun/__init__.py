"""
minirun: a minimal, embedded runtime for LLM agents on trio.

The map of the package, from the values at the bottom to what stands outside; imports point down only.

    types, events, errors, _json, _codec, _window   values: frozen, compared by content, JSON
    sessions._state, sessions._fold, flows           pure logic: state, prompts, turns, schemas
    env                                              the one seam: time, ids, randomness, threads
    sessions, memory, models                         services and models, behind small interfaces
    runtime                                          the heart: how an event becomes true
    tools, agents, plugins, apps, runners            what applications are built from
    testing, cli                                     outside

Names are imported when they are first asked for, so `import minirun` alone imports nothing. What ADK has under paths of
its own, `google.adk.agents.llm_agent`, is found under these, too: see `_adk`.
"""

from typing import TYPE_CHECKING

from ._lazy import names_of

if TYPE_CHECKING:
    from .agents import Agent as Agent
    from .agents import AgentTool as AgentTool
    from .agents import BaseAgent as BaseAgent
    from .agents import InvocationContext as InvocationContext
    from .agents import LiveRequestQueue as LiveRequestQueue
    from .agents import LlmAgent as LlmAgent
    from .agents import LoopAgent as LoopAgent
    from .agents import ParallelAgent as ParallelAgent
    from .agents import ReadonlyContext as ReadonlyContext
    from .agents import SequentialAgent as SequentialAgent
    from .apps import App as App
    from .env import Env as Env
    from .events import Event as Event
    from .events import EventActions as EventActions
    from .runners import InMemoryRunner as InMemoryRunner
    from .runners import Runner as Runner
    from .runners import run_once as run_once
    from .runners import run_sync as run_sync
    from .runtime import Budget as Budget
    from .runtime import RunConfig as RunConfig
    from .runtime import StreamingMode as StreamingMode
    from .sessions import DatabaseSessionService as DatabaseSessionService
    from .sessions import GetSessionConfig as GetSessionConfig
    from .sessions import InMemorySessionService as InMemorySessionService
    from .sessions import Session as Session
    from .sessions import SqliteSessionService as SqliteSessionService
    from .tools import FunctionTool as FunctionTool
    from .tools import ToolContext as ToolContext
    from .types import Content as Content
    from .types import Part as Part
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            ".agents": "Agent AgentTool BaseAgent InvocationContext LiveRequestQueue LlmAgent LoopAgent "
            "ParallelAgent ReadonlyContext SequentialAgent",
            ".apps": "App",
            ".env": "Env",
            ".events": "Event EventActions",
            ".runners": "InMemoryRunner Runner run_once run_sync",
            ".runtime": "Budget RunConfig StreamingMode",
            ".sessions": "DatabaseSessionService GetSessionConfig InMemorySessionService Session SqliteSessionService",
            ".tools": "FunctionTool ToolContext",
            ".types": "Content Part",
        },
    )
