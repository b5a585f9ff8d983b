"""
Signing in over several processes: asked in one, answered in another, renewed once by two, and killed in between.

Every byte of the files that the processes leave, but the keyring's own, and all they print, is searched for secrets.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("keyring", reason="the extra `minirun[keyring]` is not installed")
pytest.importorskip("httpx2", reason="the extra `minirun[models]` is not installed")

from ..asgi import serving  # see above
from ..fork_server import program, run, start
from ..oauth_server import OAuthServer

PATIENCE_S = 120

async def ran(*asked: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A process that has come to its end."""
    done = partial(run, program(*asked), **options)
    return await trio.to_thread.run_sync(done, abandon_on_cancel=True)


class Machine:
    """A folder with an application, whose processes use one server to sign in."""

    def __init__(self, folder: Path, server: OAuthServer) -> None:
        self.folder = folder
        self.server = server
        self.printed = b""

    def program(self, role: str, options: dict[str, Any]) -> tuple[str, ...]:
        """What a process runs."""
        return "tests.signing_in", role, str(self.folder), json.dumps({"issuer": self.server.issuer, **options})

    async def run(self, role: str, stdin: str = "", **options: Any) -> dict[str, Any]:
        """Run a process to its end; return what it reports."""
        with trio.fail_after(PATIENCE_S):
            done = await ran(*self.program(role, options), cwd=self.folder, input=stdin)
        self.printed += (done.stdout + done.stderr).encode()
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    async def kill_when_held(self, role: str, stdin: str = "") -> None:
        """Kill a process while the server has its request for a token, and has answered nothing."""
        self.server.hold, self.server.held = trio.Event(), trio.Event()
        with start(program(*self.program(role, {})), cwd=self.folder) as process:
            process.stdin.write(stdin + "\n")
            process.stdin.close()
            with trio.fail_after(PATIENCE_S):
                await self.server.held.wait()
            process.kill()
            assert process.wait() == -signal.SIGKILL
            assert process.stderr is not None
            self.printed += (process.stdout.read() + process.stderr.read()).encode()
        self.server.hold.set()
        self.server.hold = None

    def keyring(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.folder / "keyring.json").read_text())
        return found

    def leaks(self) -> list[str]:
        """Where a secret stands that was used, beside the keyring."""
        written = {path.name: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        del written["keyring.json"]
        written["what was printed"] = self.printed
        return [f"{name}: {secret!r}" for name, data in written.items() for secret in self.secrets if secret in data]

    @property
    def secrets(self) -> list[bytes]:
        return [secret.encode() for secret in self.server.secrets]


@asynccontextmanager
async def machine(folder: Path) -> AsyncIterator[Machine]:
    server = OAuthServer()
    async with serving(server):
        yield Machine(folder, server)


async def signed_in(at: Machine) -> None:
    asked = await at.run("ask")
    back = await at.server.browse(asked["asked"][0])
    assert (await at.run("answer", stdin=back))["status"] == "completed"


async def test_asked_in_one_process_and_answered_in_another(tmp_path: Path) -> None:
    """Each process does one step and ends; no secret is in any byte of the session's file, the logs or the output."""
    async with machine(tmp_path) as at:
        asked = await at.run("ask")
        assert asked["status"] == "paused"
        back = await at.server.browse(asked["asked"][0])
        assert (await at.run("answer", stdin=back))["status"] == "completed"
        at.server.end_tokens()
        assert (await at.run("ask"))["status"] == "completed"
        at.server.revoke()
        again = await at.run("ask")
        assert again["status"] == "paused"
        back = await at.server.browse(again["asked"][0])
        assert (await at.run("answer", stdin=back))["status"] == "completed"
        assert at.server.grants == ["authorization_code", "refresh_token", "authorization_code"]
        assert len(at.server.secrets) == 11
        assert at.leaks() == []
        assert b"the API has said 200" in (tmp_path / "app.log").read_bytes()
        # One entry for the token, and one for the list: nothing is left of the sign-ins.
        assert len(at.keyring()) == 2


def test_the_search_for_secrets_finds_one(tmp_path: Path) -> None:
    """In a file, and in what was printed."""
    at = Machine(tmp_path, OAuthServer())
    (tmp_path / "keyring.json").write_text("{}")
    assert at.leaks() == []
    secret = at.secrets[0]
    (tmp_path / "a.log").write_bytes(b"x" + secret)
    at.printed = secret
    assert len(at.leaks()) == 2


async def test_two_processes_renew_a_token_once(tmp_path: Path) -> None:
    """Twenty tasks in each, that all have been refused at once: one request, and one token for all."""
    async with machine(tmp_path) as at:
        await signed_in(at)
        at.server.end_tokens()
        found: list[dict[str, Any]] = []

        async def renew() -> None:
            found.append(await at.run("renew", tasks=20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(renew)
            nursery.start_soon(renew)
        assert at.server.grants == ["authorization_code", "refresh_token"]
        assert len({token for each in found for token in each["found"]}) == 1
        assert at.leaks() == []


async def test_killed_while_a_token_is_renewed(tmp_path: Path) -> None:
    """The refresh token was used up, and the new one never came: the next run asks to sign in again."""
    async with machine(tmp_path) as at:
        await signed_in(at)
        at.server.end_tokens()
        await at.kill_when_held("ask")
        assert at.server.grants == ["authorization_code", "refresh_token"]
        asked = await at.run("ask")
        assert asked["status"] == "paused"
        back = await at.server.browse(asked["asked"][0])
        assert (await at.run("answer", stdin=back))["status"] == "completed"
        assert at.leaks() == []


async def test_killed_while_a_code_is_exchanged(tmp_path: Path) -> None:
    """The question is still open, its address still works, and the lock of the dead process holds nobody up."""
    async with machine(tmp_path) as at:
        asked = await at.run("ask")
        back = await at.server.browse(asked["asked"][0])
        await at.kill_when_held("answer", stdin=back)
        back = await at.server.browse(asked["asked"][0])
        assert (await at.run("answer", stdin=back))["status"] == "completed"
        assert at.server.grants == ["authorization_code", "authorization_code"]
        assert at.leaks() == []


async def test_the_command_line_asks_for_the_address(tmp_path: Path) -> None:
    """`minirun answer` shows where to sign in, reads the address from standard input, and prints no secret of it."""
    async with machine(tmp_path) as at:
        (tmp_path / "agent.py").write_text(AGENT.format(issuer=at.server.issuer))

        async def minirun(*arguments: str, stdin: str = "") -> str:
            environment = {**os.environ, "PYTHON_KEYRING_BACKEND": "tests.file_keyring.FileKeyring"}
            with trio.fail_after(PATIENCE_S):
                done = await ran("minirun", *arguments, "--db", "s.db", cwd=tmp_path, env=environment, input=stdin)
            at.printed += (done.stdout + done.stderr).encode()
            return done.stdout + done.stderr

        asked = await minirun("run", "agent.py", "go")
        call_id = next(word for word in asked.split() if word.startswith("q-"))
        shown = await minirun("answer", "agent.py", call_id, stdin="https://app.example/callback?code=x&state=y\n")
        [address] = [word for word in shown.split() if word.startswith(f"{at.server.issuer}/authorize")]
        assert "another state" in shown
        back = await at.server.browse(address)
        assert "signed in" in await minirun("answer", "agent.py", call_id, stdin=f"{back}\n")
        assert (tmp_path / "s.db-locks").is_dir()
        assert at.leaks() == []


AGENT = """
from minirun import App, BaseAgent, Event
from minirun.credentials import AuthConfig, AuthCredential, AuthScheme
from tests.oauth_server import CALLBACK, CLIENT_ID, CLIENT_SECRET

class Worker(BaseAgent):
    async def _run_async_impl(self, ctx):
        scheme = AuthScheme(issuer="{issuer}", redirect_uri=CALLBACK)
        client = AuthCredential("client", client_id=CLIENT_ID, client_secret=CLIENT_SECRET)
        await ctx.request_credential(AuthConfig("mail", auth_scheme=scheme, raw_auth_credential=client))
        await ctx.emit(Event(message="signed in"))

app = App("app", Worker(name="w"))
"""
