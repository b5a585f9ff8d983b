"""
A server that asks on the way: `python -m tests.mcp_servers.desk FILE` notes each call and each booking in FILE.

It keeps the key of its states in memory, as servers of the official package do unless told otherwise: one that was
restarted has forgotten what was going on.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel

__all__ = ["made"]


class Nights(BaseModel):
    """How long."""

    nights: int


class Room(BaseModel):
    """Which room."""

    kind: str


async def _nights(ctx: Context, city: str) -> Elicit[Nights]:
    return Elicit(f"How many nights in {city}?", Nights)


async def _room(ctx: Context, nights: Annotated[Nights, Resolve(_nights)]) -> Elicit[Room]:
    return Elicit(f"Which room for {nights.nights} nights?", Room)


async def _any_room() -> Elicit[Room]:
    return Elicit("Which room?", Room)


def made(note: Callable[[str], None], **options: Any) -> MCPServer:
    """The server; *note* hears what it does."""
    server = MCPServer("desk", log_level="CRITICAL", **options)

    @server.tool()
    async def book(
        city: str, nights: Annotated[Nights, Resolve(_nights)], room: Annotated[Room, Resolve(_room)]
    ) -> str:
        """Book a room."""
        note(f"booked {city} {nights.nights} {room.kind}")
        return f"{room.kind} room in {city} for {nights.nights} nights"

    @server.tool()
    async def both(
        nights: Annotated[Nights, Resolve(_nights)], room: Annotated[Room, Resolve(_any_room)], city: str
    ) -> str:
        """Asks two things at once."""
        return f"{nights.nights} {room.kind}"

    return server


def note_in(path: Path) -> Callable[[str], None]:
    """Append lines to a file."""

    def note(line: str) -> None:
        with path.open("a") as file:
            file.write(f"{line}\n")

    return note


if __name__ == "__main__":
    made(note_in(Path(sys.argv[1]))).run("stdio")
