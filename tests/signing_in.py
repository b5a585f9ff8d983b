"""
What the other processes of test_signing_in.py do: `python -m tests.signing_in ROLE FOLDER {options as JSON}`.

Each is a process of one application: its sessions are in a file, its credentials in a keyring that is a file, too.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import trio

from minirun import App, LlmAgent, Runner, SqliteSessionService
from minirun.credentials import AuthConfig, AuthCredential, AuthScheme, KeyringCredentialService
from minirun.credentials._current import current_credential
from minirun.plugins import LoggingPlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext

from .file_keyring import FileKeyring
from .oauth_server import CALLBACK, CLIENT_ID, CLIENT_SECRET

PLACE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
NAMES = {"app_name": "app", "user_id": "u", "credential_key": "mail"}


def config_for(issuer: str) -> AuthConfig:
    return AuthConfig(
        "mail",
        auth_scheme=AuthScheme(issuer=issuer, redirect_uri=CALLBACK),
        raw_auth_credential=AuthCredential("client", client_id=CLIENT_ID, client_secret=CLIENT_SECRET),
    )


def credentials() -> KeyringCredentialService:
    ring = FileKeyring()  # type: ignore[no-untyped-call]  # the library's
    return KeyringCredentialService(ring, lock_folder="locks")


def runner_in(sessions: SqliteSessionService, issuer: str) -> Runner:
    config = config_for(issuer)

    async def read_mail(tool_context: ToolContext) -> str:
        """Read the mail; once more, if the token is refused."""
        credential = await tool_context.request_credential(config)
        async with httpx2.AsyncClient(trust_env=False, timeout=120) as client:
            for is_last in (False, True):
                headers = {"authorization": f"Bearer {credential.reveal()}"}
                response = await client.get(f"{issuer}/api", headers=headers)
                if response.status_code == 200 or is_last:
                    break
                credential = await tool_context.request_credential(config, rejected=credential)
        logging.getLogger("app").warning("the API has said %s", response.status_code)
        return response.text

    def script(request: Any) -> Any:
        answered = request.contents[-1].parts[-1].function_response
        return "read" if answered is not None else call("read_mail")

    agent = LlmAgent(name="clerk", model=ScriptedLlm(script), tools=[read_mail])
    app = App(name="app", root_agent=agent, plugins=[LoggingPlugin()])
    return Runner(
        app=app, session_service=sessions, credential_service=credentials(), auto_create_session=True
    )


async def main(role: str, options: dict[str, Any]) -> None:
    issuer = options["issuer"]
    async with SqliteSessionService("s.db") as sessions:
        runner = runner_in(sessions, issuer)
        if role == "renew":
            await renew(config_for(issuer), options["tasks"])
            return
        if role == "answer":
            [question] = await sessions.list_pending(app_name="app")
            message: Any = await runner.provide_credential(question, sys.stdin.readline().strip())
        else:
            message = "go"
        async with runner.run_async(**PLACE, new_message=message) as run:
            await run.wait()
        report(run)


def report(run: Any) -> None:
    asked = [question.auth_config.auth_uri for question in run.pending if question.auth_config is not None]
    print(json.dumps({"status": str(run.status.value), "asked": asked}))


def both_are_ready() -> bool:
    Path(f"ready-{os.getpid()}").touch()
    return len(list(Path().glob("ready-*"))) == 2


async def renew(config: AuthConfig, tasks: int) -> None:
    """Ask for a token that works, so many times at once, where what is kept was refused."""
    service = credentials()
    old = await service.load_credential(**NAMES)
    with trio.fail_after(60):
        while not both_are_ready():  # noqa: ASYNC110 # another process says so, by a file
            await trio.sleep(0.01)
    found: set[str] = set()

    async def use() -> None:
        credential = await current_credential(service, NAMES, config, old)
        assert credential is not None
        found.add(f"{len(credential.reveal())}/{hash(credential.reveal()) % 1000003}")

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(use)
    print(json.dumps({"status": "renewed", "found": sorted(found)}))


if __name__ == "__main__":
    role, folder, options = sys.argv[1:]
    os.chdir(folder)
    logging.basicConfig(filename="app.log", level=logging.DEBUG)
    trio.run(main, role, json.loads(options))
