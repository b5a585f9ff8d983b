"""`minirun mcp serve --http`: by hypercorn, on trio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_http
from rich.console import Console

from ..mcp_server import BearerTokens, McpAgentServer
from ..mcp_server._asgi import LOOPBACK
from ..mcp_server._secrets import read_tokens
from ._db import Db
from ._mcp_stdio import serve_by
from ._show import write

__all__ = ["allowed_hosts", "serve", "tokens_of"]

# How long requests may go on once the server is told to end. What they leave is in the store.
GRACE_S = 1.0

# Every address of the machine: no name that a client could use.
WILDCARDS = ("0.0.0.0", "::", "")


def serve(
    targets: Sequence[str],
    db: Db | None,
    key_file: Path | None,
    user: str,
    host: str,
    port: int,
    tokens: Mapping[str, str],
    hosts: Sequence[str],
    origins: Sequence[str],
) -> int:
    """
    Serve until Ctrl-C; return what to exit with. It tells on standard error where.

    Raises:
        MinirunError: The agents cannot be served, or the file has no keys.
        OSError: A file cannot be read or made, or the address is taken.
    """
    config = Config()
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    config.accesslog = config.errorlog = None
    config.graceful_timeout = GRACE_S
    config.include_server_header = False

    async def way(server: McpAgentServer) -> None:
        app: Any = server.asgi_app(
            authenticate=BearerTokens(tokens), allowed_hosts=hosts, allowed_origins=origins
        )
        async with trio.open_nursery() as nursery:
            started = partial(serve_http, app, config, shutdown_trigger=trio.sleep_forever)
            urls = await nursery.start(started)
            write(Console(stderr=True), "\n".join(f"serving at {url}/mcp" for url in urls))

    return serve_by(targets, db, key_file, user, way)


def tokens_of(file: Path | None, token: str | None, variable: str, user: str) -> dict[str, str]:
    """
    Return the users by their tokens, from a file, or the one that stands in the environment.

    Raises:
        click.UsageError: There is neither.
        ConfigurationError: One is too short, or the file has something else in it.
    """
    if file is not None:
        return read_tokens(file, user)
    if not token:
        msg = f"expected --token-file, or a token in ${variable}, found neither"
        raise click.UsageError(f"{msg}; without one, every program and page on this machine could use the agents")
    return {token: user}


def allowed_hosts(host: str, more: Sequence[str]) -> list[str]:
    """
    Return the names that requests may be for.

    Raises:
        click.UsageError: None is known.
    """
    name = f"[{host}]" if ":" in host else host
    if host in WILDCARDS:
        if not more:
            msg = f"expected --allow-host with a name that clients use, as {host!r} is every address of this machine"
            raise click.UsageError(msg)
        return list(more)
    return [*(LOOPBACK if name in LOOPBACK else (name,)), *more]
