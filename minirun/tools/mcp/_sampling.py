"""
A server that wants a model to answer something, in the middle of a call: `sampling=True`.

The model is the one of the agent that called the tool, and what it costs counts for the invocation: it is run as a
node, by an agent that has no tools, sees no conversation, and is told what the server says and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types

from ...agents import LlmAgent
from ...errors import McpError
from ...runtime import ToolContext
from ...types import GenerateContentConfig

__all__ = ["sampled"]

# What a server may ask for, whatever it says: an answer of this length is some pages of text.
TOKENS_MAX = 8_192

CHARS_MAX = 200_000


async def sampled(context: ToolContext, label: str, params: Mapping[str, Any]) -> mcp_types.CreateMessageResult:
    """
    Return what the model of the calling agent answers.

    Raises:
        McpError: There is no model, or the server asks for more than text.
        LlmCallsLimitExceededError, TokensLimitExceededError: The invocation has no more of it.
    """
    agent = context.agent
    model = context._position.tree.model_of(agent)
    if model is None:
        raise McpError(f"the MCP server {label!r} asks for an answer of a model, but {agent.name!r} has none")
    if params.get("tools"):
        raise McpError(f"the MCP server {label!r} asks for an answer of a model that may call tools, which it may not")
    text, system = _text(params, label), str(params.get("systemPrompt") or "")
    config = GenerateContentConfig(
        max_output_tokens=max(1, min(int(params.get("maxTokens") or TOKENS_MAX), TOKENS_MAX)),
        temperature=params.get("temperature"),
        stop_sequences=params.get("stopSequences"),
    )
    # A function, because what stands in braces in a text is filled in from the state, which is no server's business.
    asked = LlmAgent(name="mcp_sampling", model=model, instruction=lambda _: system, generate_content_config=config)
    answer = await context.run_node(asked, text)
    said = answer if isinstance(answer, str) else ""
    return mcp_types.CreateMessageResult(
        role="assistant", content=mcp_types.TextContent(text=said), model=model.name, stop_reason="endTurn"
    )


def _text(params: Mapping[str, Any], label: str) -> str:
    messages = params.get("messages") or []
    said: list[str] = []
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else [content]:
            if not isinstance(block, Mapping) or block.get("type") != "text":
                raise McpError(f"the MCP server {label!r} asks a model about more than text, which it may not")
            said.append(block["text"] if len(messages) == 1 else f"{message.get('role')}: {block['text']}")
    text = "\n\n".join(said)
    if not text or len(text) > CHARS_MAX:
        msg = f"expected the MCP server {label!r} to ask a model with up to {CHARS_MAX} characters, found {len(text)}"
        raise McpError(msg)
    return text
