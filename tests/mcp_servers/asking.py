"""A server that asks for answers of a model, and for roots."""

from typing import Annotated

import mcp_types as types
from mcp.server.mcpserver import ListRoots, MCPServer, Resolve, Sample

__all__ = ["made"]


async def _summary(text: str) -> Sample:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=f"Shorten: {text}"))
    return Sample([message], max_tokens=100, system_prompt="Be brief.")


async def _roots() -> ListRoots:
    return ListRoots()


def made() -> MCPServer:
    """The server."""
    server = MCPServer("asking", log_level="CRITICAL")

    @server.tool()
    async def summary(text: str, answer: Annotated[types.CreateMessageResult, Resolve(_summary)]) -> str:
        """Shorten a text."""
        assert isinstance(answer.content, types.TextContent)
        return answer.content.text

    @server.tool()
    async def where(roots: Annotated[types.ListRootsResult, Resolve(_roots)]) -> str:
        """Say where it works."""
        return " ".join(str(root.uri) for root in roots.roots)

    return server
