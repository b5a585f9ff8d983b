"""
The examples of real models, each run as a script against the fake server of its provider.
"""

from __future__ import annotations

from functools import partial

import pytest
import trio

from ..fork_server import program, run
from ..provider_servers.server import served
from ..wire_models import APIS, TEXT, streamed, whole


async def output_of(name: str, *arguments: str) -> list[str]:
    """What a script prints; every warning is an error."""
    example = program(f"examples.{name.removesuffix('.py')}", *arguments)
    with trio.fail_after(120):
        done = await trio.to_thread.run_sync(partial(run, example, env={}), abandon_on_cancel=True)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr  # it is told that one of the scripted calls has no tool
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "api"),
    [("hello_openai.py", "responses"), ("hello_claude.py", "anthropic"), ("hello_gemini.py", "gemini")],
)
async def test_hello_shows_calls_and_what_is_said(name: str, api: str) -> None:
    """
    The calls are shown and made, and the answer comes as it is streamed.
    """
    found = APIS[api]
    server = found.server()
    server.script += [streamed(found.calls), streamed(found.text)]
    async with served(server) as url:
        lines = await output_of(name, found.key, "hi", "--base-url", url + found.base)
    said = "\n".join(lines)
    assert said.index("[add {'a': 1, 'b': 2}]") < said.index("[now {}]") < said.index(TEXT)
    assert len(server.asked) == 2


async def test_a_server_of_ones_own_needs_no_key() -> None:
    """
    The answer of a server that speaks chat completions is printed, with which model it was and how many tokens.
    """
    api = APIS["openai"]
    server = api.server()
    server._refusal = lambda asked: None  # it asks for no key
    server.script.append(whole(api.whole))
    async with served(server) as url:
        lines = await output_of("local_server.py", "qwen3", "hi", "--base-url", f"{url}/v1")
    assert lines == [*TEXT.splitlines(), "gpt-5-2026-01-01 32"]
    assert server.asked[0].body["messages"][-1] == {"role": "user", "content": "hi"}
    assert "authorization" not in server.asked[0].headers
