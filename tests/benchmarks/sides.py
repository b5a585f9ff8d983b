"""
Who is measured: minirun, the floor, and the peers, each on each kind of store that it has.

A side is a program below `programs/` with a store of its own choice. What a file survives is not the same for all of
them, so each says it, and how many fsyncs a turn takes is counted (`fsyncs.py`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

# A "file" survives a power cut (`synchronous=FULL`), a "quick file" a crash of the process (`NORMAL`).
Kind: TypeAlias = Literal["memory", "file", "quick file"]

TURNS = frozenset({"text", "tool"})
IN_MEMORY = TURNS | {"crowd", "stream", "parallel"}
ON_FILE = TURNS | {"crowd"}
WITH_STATE = frozenset({"keys"})
WITH_WINDOW = frozenset({"window"})
CHAT, MESSAGES = "chat", "messages"
CHAINS, MAPS = frozenset({"chain"}), frozenset({"map"})
WIDE = MAPS | {"fan"}
WORKFLOWS = CHAINS | WIDE
OVER_HTTP = frozenset({CHAT, MESSAGES, "streams"})


class SideFailedError(Exception):
    """A side cannot be measured: it cannot be installed, or its process has ended before it had answered."""


@attrs.frozen
class Peer:
    """Another framework: what pip installs, pinned, and the statement that imports the least that can run an agent."""

    name: str
    program: str
    requirements: tuple[str, ...]
    statement: str


PEERS = (
    Peer(
        "google-adk",
        "google_adk",
        ("google-adk==2.13.0", "sqlalchemy[asyncio]==2.1.9"),
        "from google.adk.runners import Runner; from google.adk.agents import LlmAgent; "
        "from google.adk.sessions import InMemorySessionService; LlmAgent(name='x')",
    ),
    Peer(
        "openai-agents",
        "openai_agents",
        ("openai-agents==0.24.0",),
        "from agents import Agent, Runner, SQLiteSession",
    ),
    Peer("pydantic-ai", "pydantic_ai", ("pydantic-ai-slim==2.68.0",), "from pydantic_ai import Agent"),
    Peer(
        "langgraph",
        "langgraph",
        ("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2"),
        "from langgraph.graph import MessagesState, StateGraph; from langgraph.prebuilt import ToolNode; "
        "from langgraph.checkpoint.memory import InMemorySaver",
    ),
)


# They ask models over HTTP. Their own SDKs are no frameworks: they take part where a provider is asked.
PYDANTIC_MODELS = "from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIChatModel"
CLIENTS = (
    Peer("openai-sdk", "openai_sdk", ("openai==3.54.0",), "from openai import AsyncOpenAI"),
    Peer("anthropic-sdk", "anthropic_sdk", ("anthropic==2.12.0",), "from anthropic import AsyncAnthropic"),
    Peer("pydantic-ai", "pydantic_ai_http", ("pydantic-ai-slim[anthropic,openai]==2.68.0",), PYDANTIC_MODELS),
)


@attrs.frozen
class Side:
    """
    One of those who take turns.

    Args:
        name: As it stands in tables; the same name stands for the same side in every scenario.
        durability: What its store survives, in words.
    """

    name: str
    program: str
    kind: Kind
    store: str
    plays: frozenset[str]
    durability: str = ""
    peer: Peer | None = None


MINIRUN, POWER, PROCESS = "minirun", "minirun, power", "minirun, process"
CHANNELS, INLINE, THREAD, GROUPS = "floor", "floor, inline", "floor, in a thread", "floor, shared COMMITs"
QUICK_FLOOR = "floor, NORMAL"

OURS = (
    Side(MINIRUN, "minirun", "memory", "memory", IN_MEMORY | WITH_STATE),
    Side(
        POWER,
        "minirun",
        "file",
        "power",
        ON_FILE | WITH_STATE | WITH_WINDOW,
        "WAL, synchronous=FULL, COMMIT in a worker thread: each event is safe from a power cut before it is seen",
    ),
    Side(CHANNELS, "floor", "memory", "channels", IN_MEMORY | WITH_STATE),
    Side(
        INLINE,
        "floor",
        "file",
        "inline",
        TURNS | WITH_STATE | CHAINS,
        "WAL, synchronous=FULL; the loop waits for the disk",
    ),
    Side(
        THREAD,
        "floor",
        "file",
        "thread",
        TURNS | WITH_STATE | WITH_WINDOW | CHAINS,
        "WAL, synchronous=FULL, COMMIT in a worker thread",
    ),
    Side(
        GROUPS,
        "floor",
        "file",
        "groups",
        frozenset({"crowd"}) | WIDE,
        "WAL, synchronous=FULL, COMMIT in a worker thread, shared by all who wait",
    ),
    Side(POWER, "minirun_workflow", "file", "power", WORKFLOWS),
    Side(PROCESS, "minirun_workflow", "quick file", "process", WORKFLOWS),
    Side(QUICK_FLOOR, "floor", "quick file", "normal", WORKFLOWS),
    Side(MINIRUN, "minirun_http", "memory", "memory", OVER_HTTP),
    Side(CHANNELS, "floor_http", "memory", "none", OVER_HTTP),
)

ADK, OPENAI, PYDANTIC, LANGGRAPH = PEERS
THEIRS = (
    Side("google-adk", ADK.program, "memory", "memory", IN_MEMORY | WITH_STATE, peer=ADK),
    Side(
        "google-adk, sqlite",
        ADK.program,
        "file",
        "sqlite",
        ON_FILE | WITH_STATE | WITH_WINDOW,
        "SqliteSessionService: rollback journal, synchronous=FULL, a connection for each call",
        ADK,
    ),
    Side(
        "google-adk, database",
        ADK.program,
        "file",
        "database",
        ON_FILE | WITH_STATE | WITH_WINDOW,
        "DatabaseSessionService on sqlite+aiosqlite: rollback journal, synchronous=FULL",
        ADK,
    ),
    Side("openai-agents", OPENAI.program, "memory", "memory", IN_MEMORY, peer=OPENAI),
    Side(
        "openai-agents, sqlite",
        OPENAI.program,
        "file",
        "sqlite",
        ON_FILE | WITH_WINDOW,
        "SQLiteSession: WAL, synchronous=FULL; stored when items are added to the session",
        OPENAI,
    ),
    Side("pydantic-ai", PYDANTIC.program, "memory", "memory", IN_MEMORY, peer=PYDANTIC),
    Side(
        "pydantic-ai, own sqlite",
        PYDANTIC.program,
        "file",
        "sqlite",
        ON_FILE,
        "has no store; as its chat example: rollback journal, synchronous=FULL, one commit at the end of a turn",
        PYDANTIC,
    ),
    Side("langgraph", LANGGRAPH.program, "memory", "memory", IN_MEMORY, peer=LANGGRAPH),
    Side(
        "langgraph, sqlite",
        LANGGRAPH.program,
        "file",
        "sqlite",
        ON_FILE,
        'AsyncSqliteSaver: WAL, synchronous=FULL, durability="sync": a checkpoint for each step',
        LANGGRAPH,
    ),
    # A map takes google-adk half a minute, so one of its stores has to do.
    Side("google-adk, sqlite", "google_adk_workflow", "file", "sqlite", WORKFLOWS, peer=ADK),
    Side("google-adk, database", "google_adk_workflow", "file", "database", WORKFLOWS - MAPS, peer=ADK),
    Side("langgraph, sqlite", "langgraph_workflow", "file", "sqlite", WORKFLOWS, peer=LANGGRAPH),
    Side("langgraph, NORMAL", "langgraph_workflow", "quick file", "normal", WORKFLOWS, peer=LANGGRAPH),
    Side("google-adk, NORMAL", "google_adk_workflow", "quick file", "normal", WORKFLOWS - MAPS, peer=ADK),
    *(
        Side(peer.name, peer.program, "memory", "none", frozenset(plays), peer=peer)
        for peer, plays in zip(CLIENTS, ({CHAT}, {MESSAGES}, {CHAT, MESSAGES}), strict=True)
    ),
)
