"""
An agent that reads its user's mail: tools from an OpenAPI document, behind OAuth 2.

    MAIL=https://mail.example CLIENT_ID=my-app python examples/signed_in_mail.py

Needs `pip install "minirun[models]"`, a server with such an API, and an application that is registered there with the
address below. The first call pauses the run: the browser is sent to the server, and comes back with a code. Where an
application has a web server, that reads the address; here the user copies it. The process may end in between, if the
sessions and the credentials are on disk (SqliteSessionService, KeyringCredentialService).
"""

import os

import trio

from minirun import InMemoryRunner, LlmAgent
from minirun.credentials import AuthConfig, AuthCredential, AuthScheme
from minirun.testing import ScriptedLlm, call
from minirun.tools.openapi import OpenAPIToolset
from minirun.types import Content

SERVER = os.environ.get("MAIL", "https://mail.example")
CALLBACK = "http://127.0.0.1:8765/callback"
DOCUMENT = {
    "openapi": "3.1.0",
    "paths": {"/mails": {"get": {
        "operationId": "listMails", "summary": "List the mails of the user.",
        "parameters": [{"name": "unread", "in": "query", "schema": {"type": "boolean"}}],
    }}},
}  # fmt: skip


async def main() -> None:
    config = AuthConfig(
        "mail",
        scopes=["mail.read"],
        auth_scheme=AuthScheme(issuer=SERVER, redirect_uri=CALLBACK),
        raw_auth_credential=AuthCredential("client", client_id=os.environ.get("CLIENT_ID", "my-app")),
    )
    mails = OpenAPIToolset(spec_dict=DOCUMENT, base_url=f"{SERVER}/api", auth=config)
    model = ScriptedLlm([call("list_mails", unread=True), "These are your mails.", call("list_mails"), "The same."])
    runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[mails]), auto_create_session=True)
    for text in ("What is new?", "And all of them?"):
        message: str | Content = text
        while message:
            async with runner.run_async(user_id="ada", session_id="s", new_message=message) as run:
                async for event in run:
                    if event.text:
                        print(event.text)
            message = ""
            for question in run.pending:
                assert question.auth_config is not None, "nothing else is asked here"
                print(f"Sign in at {question.auth_config.auth_uri}")
                came_back = await trio.to_thread.run_sync(input, "and copy the address that you came back to: ")
                message = await runner.provide_credential(question, came_back)
    await runner.close()


if __name__ == "__main__":
    trio.run(main)
