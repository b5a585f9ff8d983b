"""
Whatever text an application gives where MCP is spoken is refused with an error of minirun's, or taken; and whoever
awaits it on asyncio is told which ways there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from minirun import InMemoryRunner, LlmAgent
from minirun.errors import McpError, MinirunError
from minirun.mcp_server import BearerTokens, McpAgentServer
from minirun.testing import ScriptedLlm
from minirun.tools.mcp import McpToolset, StdioConnectionParams, StdioServer, StreamableHTTPConnectionParams

from ..bridge.test_asyncio_found import WAYS
from ..mcp_servers import kinds
from ..project.test_text_arguments import ODD_EXAMPLES, TEXTS

URL = "http://host/mcp"
TOKEN = "a-token-of-16-or-more"


def served(**options: Any) -> McpAgentServer:
    agent = LlmAgent(name="a", model=ScriptedLlm(["hi"]))
    return McpAgentServer([InMemoryRunner(agent=agent, auto_create_session=True)], **options)


TAKERS: dict[str, Callable[[str], Any]] = {
    "server": McpToolset,
    "url": lambda text: McpToolset(f"https://host/{text}"),
    "host": lambda text: McpToolset(f"https://{text}/mcp"),
    "params": lambda text: McpToolset(connection_params=StreamableHTTPConnectionParams(text)),
    "command": lambda text: McpToolset(StdioServer(text)),
    "argument": lambda text: McpToolset(StdioConnectionParams(StdioServer("x", [text]))),
    "env": lambda text: McpToolset(StdioServer("x", env={text: text})),
    "tool_name_prefix": lambda text: McpToolset(URL, tool_name_prefix=text),
    "tool_filter": lambda text: McpToolset(URL, tool_filter=[text]),
    "require_confirmation": lambda text: McpToolset(URL, require_confirmation=[text]),
    "header": lambda text: McpToolset(URL, headers={text: "x"}),
    "header's value": lambda text: McpToolset(URL, headers={"x": text}),
    "root": lambda text: McpToolset(URL, roots=[text]),
    "root's path": lambda text: McpToolset(URL, roots=[f"file:///{text}"]),
    "prompt": lambda text: McpToolset(URL).instruction(text),
    "name": lambda text: served(name=text),
    "user_id": lambda text: served(user_id=text),
    "token": lambda text: BearerTokens({f"{TOKEN}{text}": "u"}),
    "user": lambda text: BearerTokens({TOKEN: text}),
    "path": lambda text: served().asgi_app(authenticate=BearerTokens({TOKEN: "u"}), path=f"/{text}"),
    "host's name": lambda text: served().asgi_app(authenticate=BearerTokens({TOKEN: "u"}), allowed_hosts=[text]),
    "origin": lambda text: served().asgi_app(authenticate=BearerTokens({TOKEN: "u"}), allowed_origins=[text]),
}


@pytest.mark.parametrize("name", sorted(TAKERS))
def test_any_text_is_refused_with_a_typed_error_or_taken(name: str) -> None:
    """
    What is made of it says what it is, and so does an error; neither fails with an error of Python's.
    """

    @settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @example(list(ODD_EXAMPLES))
    @given(st.lists(TEXTS, min_size=3, max_size=6))
    def run(texts: list[str]) -> None:
        for text in texts:
            try:
                repr(TAKERS[name](text)).encode()
            except MinirunError as error:
                str(error).encode()

    run()


async def test_any_text_may_be_asked_for(running_clock: MockClock) -> None:
    """
    The name of a prompt that is not there, and a program that is not there, are errors that can be printed.
    """
    async with McpToolset(kinds.made()) as tools:
        for text in ODD_EXAMPLES:
            with pytest.raises(McpError) as found:
                await tools.prompt(text)
            str(found.value).encode()
    for text in ODD_EXAMPLES:
        try:
            server = StdioServer(f"/no/such/program/{text}")
        except MinirunError:
            continue
        async with McpToolset(server) as tools:
            with pytest.raises(McpError) as found:
                await tools.get_tools()
            str(found.value).encode()


def test_whoever_awaits_it_on_asyncio_is_told_so() -> None:
    """
    Entering a toolset, asking one for its tools, serving and entering an application name the ways there are.
    """
    tools = McpToolset(kinds.made())
    app = served().asgi_app(authenticate=BearerTokens({TOKEN: "u"}))
    asked = [tools.__aenter__, tools.get_tools, partial(tools.prompt, "x"), served().serve_stdio, app.__aenter__]

    async def main() -> None:
        for operation in asked:
            with pytest.raises(RuntimeError, match=WAYS):
                await operation()  # type: ignore[operator]  # each is one

    asyncio.run(main())
