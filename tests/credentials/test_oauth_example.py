"""The example for OpenAPI and OAuth, against the server of the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from ..asgi import serving
from ..oauth_server import Client, OAuthServer

pytest.importorskip("httpx2", reason="the extra `minirun[models]` is not installed")

EXAMPLE = Path(__file__).parents[2] / "examples" / "signed_in_mail.py"
CALLBACK = "http://127.0.0.1:8765/callback"
PATIENCE_S = 120


async def test_a_user_signs_in_once_and_reads_mail_twice() -> None:
    """The program shows where to sign in, takes the address that the browser came back to, and prints no secret."""
    server = OAuthServer()
    server.clients["my-app"] = Client(None, "none", (CALLBACK,))
    async with serving(server) as url:
        environment = {**os.environ, "MAIL": url, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(EXAMPLE.parents[1])}
        process = await trio.lowlevel.open_process(
            [sys.executable, "-W", "error", str(EXAMPLE)], env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        with trio.fail_after(PATIENCE_S):
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stderr is not None
            shown = b""
            while b"came back to" not in shown:
                piece = await process.stdout.receive_some()
                assert piece, await process.stderr.receive_some()
                shown += piece
            address = next(word for word in shown.decode().split() if word.startswith(url))
            back = await server.browse(address)
            await process.stdin.send_all(f"{back}\n".encode())
            async for piece in process.stdout:
                shown += piece
            assert await process.wait() == 0
    assert shown.decode().splitlines()[-1] == "The same."
    assert "These are your mails." in shown.decode()
    assert server.grants == ["authorization_code"]
    asked = [said for said in server.requests if said.path == "/api/mails"]
    assert [said.query for said in asked] == ["unread=true", ""]
    assert not [secret for secret in server.secrets if secret in shown.decode()]
