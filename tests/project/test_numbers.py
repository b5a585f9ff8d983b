"""
Numbers that applications give: each setting is checked when it is given, so that nothing fails later because of it.

The settings are found by looking at the signatures of all that is public: a new one has to be named here.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import minirun
from minirun import (
    Budget,
    DatabaseSessionService,
    InMemoryRunner,
    InMemorySessionService,
    LlmAgent,
    RunConfig,
    Runner,
    SqliteSessionService,
)
from minirun.agents import LiveRequestQueue, LoopAgent
from minirun.apps import EventsCompactionConfig, FirstLinesSummarizer
from minirun.credentials import AuthCredential
from minirun.errors import MinirunError
from minirun.events import Event, EventActions
from minirun.mcp_server import BearerTokens, McpAgentServer, McpAsgiApp
from minirun.memory import MemoryEntry
from minirun.models import ContextCacheConfig, LlmResponse, RecordedLlm, ScriptedLlm
from minirun.models.anthropic import Claude
from minirun.models.gemini import Gemini, GeminiLive
from minirun.models.openai import OpenAIChat, OpenAIRealtime, OpenAIResponses
from minirun.plugins import (
    ContextFilterPlugin,
    DebugLoggingPlugin,
    LoggingPlugin,
    ReflectAndRetryModelPlugin,
    ReflectAndRetryToolPlugin,
)
from minirun.runtime import LiveSettings
from minirun.sessions import GetSessionConfig
from minirun.tools import FunctionTool, LongRunningFunctionTool, RetryConfig
from minirun.tools.mcp import McpToolset, StdioConnectionParams, StdioServer, StreamableHTTPConnectionParams
from minirun.tools.openapi import OpenAPIToolset
from minirun.types import (
    AutomaticActivityDetection,
    Content,
    ContextWindowCompressionConfig,
    GenerateContentConfig,
    HttpOptions,
    SlidingWindow,
    ThinkingConfig,
    UsageMetadata,
)
from minirun.workflow import START, JoinNode, Node, Workflow

BAD: tuple[object, ...] = (math.nan, math.inf, -1, 10**400, 10**5000, True, "1")


def _tool() -> None:
    """Do nothing."""




AGENT = LlmAgent(name="a", model=ScriptedLlm([]))

MAKERS: dict[str, Callable[..., object]] = {
    "LoopAgent": partial(LoopAgent, name="loop"),
    "Agent": partial(LlmAgent, name="a"),  # ADK's name of LlmAgent, which comes first
    "LlmAgent": partial(LlmAgent, name="a"),
    "Budget": Budget,
    "RunConfig": RunConfig,
    "LiveSettings": LiveSettings,
    "LiveRequestQueue": LiveRequestQueue,
    "AutomaticActivityDetection": AutomaticActivityDetection,
    "ContextWindowCompressionConfig": ContextWindowCompressionConfig,
    "SlidingWindow": SlidingWindow,
    "EventsCompactionConfig": lambda **given: EventsCompactionConfig(
        **{
            "compaction_interval": 1,
            "overlap_size": 0,
            "token_threshold": 1,
            "event_retention_size": 0,
            **given,
        }
    ),
    "ContextCacheConfig": ContextCacheConfig,
    "FirstLinesSummarizer": FirstLinesSummarizer,
    "AuthCredential": partial(AuthCredential, "bearer", token="secret-token"),
    "Event": Event,
    "EventActions": EventActions,
    "MemoryEntry": partial(MemoryEntry, content=Content(parts=[])),
    "GenerateContentConfig": GenerateContentConfig,
    "HttpOptions": HttpOptions,
    "ThinkingConfig": ThinkingConfig,
    "LlmResponse": LlmResponse,
    "UsageMetadata": UsageMetadata,
    "ScriptedLlm": partial(ScriptedLlm, []),
    "RecordedLlm": lambda **given: RecordedLlm(ScriptedLlm([]), "recorded.json", "record", **given),
    "Claude": partial(Claude, "claude", api_key="k"),
    "Gemini": partial(Gemini, "gemini-3-pro", api_key="k"),
    "OpenAIChat": partial(OpenAIChat, "gpt", api_key="k"),
    "OpenAIRealtime": partial(OpenAIRealtime, "gpt-realtime", api_key="k"),
    "GeminiLive": partial(GeminiLive, "gemini-live", api_key="k"),
    "OpenAIResponses": partial(OpenAIResponses, "gpt", api_key="k"),
    "ContextFilterPlugin": ContextFilterPlugin,
    "DebugLoggingPlugin": lambda **given: DebugLoggingPlugin(Path("nowhere"), **given),
    "LoggingPlugin": LoggingPlugin,
    "ReflectAndRetryModelPlugin": ReflectAndRetryModelPlugin,
    "ReflectAndRetryToolPlugin": ReflectAndRetryToolPlugin,
    "Runner": lambda **given: Runner(app_name="app", agent=AGENT, session_service=InMemorySessionService(), **given),
    "InMemoryRunner": lambda **given: InMemoryRunner(agent=AGENT, app_name="app", **given),
    "GetSessionConfig": GetSessionConfig,
    "DatabaseSessionService": partial(DatabaseSessionService, "postgresql://nowhere/db"),
    "SqliteSessionService": partial(SqliteSessionService, ":memory:"),
    "McpToolset": partial(McpToolset, "http://host/mcp"),
    "McpAsgiApp": lambda **given: McpAsgiApp(
        McpAgentServer([InMemoryRunner(agent=AGENT, auto_create_session=True)]).protocol_server,
        BearerTokens({"a-token-of-ada-0123": "ada"}),
        path="/mcp",
        allowed_hosts=(),
        allowed_origins=(),
        **given,
    ),
    "McpAgentServer": partial(McpAgentServer, [InMemoryRunner(agent=AGENT, auto_create_session=True)]),
    "StdioConnectionParams": partial(StdioConnectionParams, StdioServer("command")),
    "StreamableHTTPConnectionParams": partial(StreamableHTTPConnectionParams, "http://host/mcp"),
    "FunctionTool": partial(FunctionTool, _tool),
    "LongRunningFunctionTool": partial(LongRunningFunctionTool, _tool),
    "OpenAPIToolset": partial(
        OpenAPIToolset, spec_dict={"openapi": "3.1.0", "paths": {"/": {"get": {}}}}, base_url="https://api.example"
    ),
    "RetryConfig": RetryConfig,
    "Node": partial(Node, name="n", parallel_worker=True),
    "JoinNode": partial(JoinNode, name="n", parallel_worker=True),
    "Workflow": partial(Workflow, name="w", edges=[(START, _tool)]),
}

# What may be below 0, or as large as it likes to be, or has an infinity that means something.
ACCEPTED: dict[tuple[str, str], tuple[object, ...]] = {
    **{("RunConfig", f"max_{name}"): (-1,) for name in ("llm_calls", "tool_calls", "transfers", "tokens", "node_runs")},
    ("LiveSettings", "max_turns"): (-1,),
    ("GenerateContentConfig", "presence_penalty"): (-1,),
    ("GenerateContentConfig", "frequency_penalty"): (-1,),
    ("GenerateContentConfig", "seed"): (-1,),
    ("GenerateContentConfig", "top_k"): (-1,),
    ("ThinkingConfig", "thinking_budget"): (-1,),
    ("AuthCredential", "expires_at"): (-1,),
    ("GetSessionConfig", "after_timestamp"): (-1,),
    ("Event", "seq"): (-1, 10**400),  # whoever stores it says which it is
    ("Event", "timestamp"): (-1,),
    ("EventActions", "rewind_before_seq"): (-1, 10**400),
    ("MemoryEntry", "timestamp"): (-1,),
    ("MemoryEntry", "score"): (-1,),
    **{
        ("UsageMetadata", name): (-1, 10**400)  # what a model says is kept as it says it
        for name in (
            "cache_write_token_count",
            "cached_content_token_count",
            "candidates_token_count",
            "prompt_token_count",
            "thoughts_token_count",
            "tool_use_prompt_token_count",
            "total_token_count",
        )
    },
}

# What minirun itself makes and hands out, and bases whose subclasses above are tried.
MADE_BY_MINIRUN = frozenset(
    {
        "ArtifactVersion", "BaseTool", "Collected", "Damage", "GenerateContentConfigDraft", "Invocation",
        "LiveCapabilities",
        "LiveSession", "Memory", "NodeRunInfo", "OpenCall", "PendingCall", "Program", "RestApiTool", "Session",
        "Stored",
    }
)  # fmt: skip


def settings() -> Iterator[tuple[str, str]]:
    """The class and the name of each argument of a public class that is a number."""
    seen = set()
    for module in pkgutil.walk_packages(minirun.__path__, "minirun."):
        if re.search(r"\._|\.(simulation|testing|cli)\b", module.name):
            continue
        package = importlib.import_module(module.name)
        for name in getattr(package, "__all__", ()):
            public = getattr(package, name)
            if not inspect.isclass(public) or public in seen or name in MADE_BY_MINIRUN:
                continue
            if issubclass(public, BaseException):  # it keeps what it is told, whatever that is
                continue
            seen.add(public)
            try:
                parameters = inspect.signature(public).parameters.values()
            except ValueError:
                continue
            for parameter in parameters:
                if re.search(r"\b(int|float)\b", str(parameter.annotation)):
                    yield name, parameter.name


@pytest.mark.parametrize(("kind", "name"), sorted(settings()))
def test_a_number_that_cannot_be_used_is_refused_when_it_is_given(kind: str, name: str) -> None:
    """
    No setting takes what is not finite, out of its range, a bool or a text; the error is one of minirun's.
    """
    for bad in BAD:
        if bad in ACCEPTED.get((kind, name), ()) and bad is not True:
            MAKERS[kind](**{name: bad})
            continue
        with pytest.raises(MinirunError) as caught:
            MAKERS[kind](**{name: bad})
        assert len(str(caught.value)) < 400
