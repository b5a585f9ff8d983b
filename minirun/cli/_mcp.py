"""`minirun mcp serve`: agents as tools for MCP clients, over standard input and output, or over HTTP."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

from ..errors import MinirunError
from ._commands import INTERRUPTED
from ._db import NEW_FILE_OR_URL, Db, FileType
from ._show import plain

__all__ = ["mcp"]

# The environment variable that may hold the token of clients over HTTP, in the place of a file.
TOKEN_VARIABLE = "MINIRUN_MCP_TOKEN"

# What needs extras is imported when it is served, not when the commands are listed.
WAYS = {"http": "._mcp_http", "stdio": "._mcp_stdio"}


@click.group()
def mcp() -> None:
    """Speak the Model Context Protocol (MCP)."""


@mcp.command()
@click.argument("targets", metavar="FILE.py|FOLDER[:name]...", nargs=-1, required=True)
@click.option("--db", type=NEW_FILE_OR_URL, help="Keep sessions in this SQLite file, or Postgres database.")
@click.option("--user", default="local", show_default=True, help="The user's id, where no token names one.")
@click.option(
    "--key-file",
    type=FileType(dir_okay=False, path_type=Path),
    help="What seals the states of calls that wait; made if it is not there. Without, they are good until this ends.",
)
@click.option("--http", is_flag=True, help="Serve over HTTP, not over standard input and output.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: the address.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="With --http; 0: any.")
@click.option(
    "--token-file",
    type=FileType(exists=True, dir_okay=False, path_type=Path),
    help=f"With --http: the tokens of clients, a line `USER TOKEN` or `TOKEN` each; else ${TOKEN_VARIABLE}.",
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="With --http: another name this is reached by.")
@click.option("--allow-origin", multiple=True, metavar="URL", help="With --http: a page that may ask this server.")
def serve(
    targets: tuple[str, ...],
    db: Db | None,
    user: str,
    key_file: Path | None,
    http: bool,
    host: str,
    port: int,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
) -> None:
    """
    Serve agents to MCP clients; each is a tool that takes a `message` and, to go on, a `session_id`.

    Without --http the client has started this, and speaks to it over standard input and output; what agents print goes
    to standard error. With --http it is at http://127.0.0.1:8000/mcp for those who have a token.

    Several processes may serve one --db with the same --key-file. Ctrl-C ends the runs in hand; the sessions stay
    usable. The keys of providers are taken from the environment, as by `minirun run`.
    """
    if not http and (token_file or allow_host or allow_origin):
        raise click.UsageError("--token-file, --allow-host and --allow-origin are for --http")
    way = _way("http" if http else "stdio")
    try:
        if http:
            tokens = way.tokens_of(token_file, os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE, user)
            hosts = way.allowed_hosts(host, allow_host)
            status = way.serve(targets, db, key_file, user, host, port, tokens, hosts, allow_origin)
        else:
            status = way.serve(targets, db, key_file, user)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except MinirunError as error:
        raise click.ClickException(plain(str(error))) from error
    except OSError as error:
        raise click.ClickException(plain(f"{type(error).__name__}: {error}")) from error
    sys.exit(status)


def _way(name: str) -> ModuleType:
    try:
        return import_module(WAYS[name], __package__)
    except ModuleNotFoundError as error:
        extras = "cli,mcp,serve" if name == "http" else "cli,mcp"
        raise click.ClickException(f'this needs {error.name}; run: pip install "minirun[{extras}]"') from None
