"""`minirun mcp serve` over standard input and output, and what both ways have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from ..mcp_server import McpAgentServer
from ..mcp_server._secrets import read_keys
from ..mcp_server._stdio import diverted
from ..sessions import BaseSessionService, InMemorySessionService
from ._commands import INTERRUPTED
from ._ctrl_c import cancelled_by_ctrl_c
from ._db import Db
from ._load import load_app
from ._services import runner_of

__all__ = ["serve", "serve_by"]


def serve(targets: Sequence[str], db: Db | None, key_file: Path | None, user: str) -> int:
    """
    Serve until the client closes its output, or Ctrl-C; return what to exit with.

    Standard output is the client's before any code of an agent is imported, since that may print.

    Raises:
        MinirunError: The agents cannot be served, or the file has no keys.
        OSError: A file cannot be read or made.
    """
    with diverted() as wire:
        return serve_by(targets, db, key_file, user, lambda server: server._serve(wire))


def serve_by(
    targets: Sequence[str],
    db: Db | None,
    key_file: Path | None,
    user: str,
    way: Callable[[McpAgentServer], Awaitable[None]],
) -> int:
    """Load the agents, have *way* serve them, and close what they have used; return what to exit with."""
    service: BaseSessionService = InMemorySessionService() if db is None else db.open()
    runners = [runner_of(load_app(target), service, auto_create_session=True) for target in targets]
    keys = None if key_file is None else read_keys(key_file, service.env)
    server = McpAgentServer(runners, keys=keys, user_id=user)

    async def main() -> int:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(service)
            for runner in runners:
                await stack.enter_async_context(runner)
            with trio.CancelScope() as scope, cancelled_by_ctrl_c(scope):
                await way(server)
        return INTERRUPTED if scope.cancelled_caught else 0

    return trio.run(main)
