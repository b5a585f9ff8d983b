"""
Agents behind HTTP: `GET /chat?user=ada&message=hi` is a run whose events are streamed as server-sent events.

A client that disconnects ends its run: its response is cancelled, the channel is left, and with it the run's block.
Needs hypercorn and starlette. Try it with the port as argument and `curl -N "localhost:PORT/chat?user=ada&message=hi"`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from minirun import InMemoryRunner, LlmAgent, RunConfig, Runner, StreamingMode
from minirun.errors import MinirunError
from minirun.testing import ScriptedLlm


@trio.as_safe_channel  # what ends in the middle is closed at once, not when the garbage collector comes
async def sse(runner: Runner, user: str, message: str) -> AsyncGenerator[str, None]:
    """One run, as server-sent events; its failure is the last of them."""
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    try:
        async with runner.run_async(user_id=user, session_id="web", new_message=message, run_config=config) as run:
            async for event in run:
                yield f"data: {event.to_json()}\n\n"
    except MinirunError as error:
        yield f"event: error\ndata: {json.dumps(str(error))}\n\n"


class Chat:
    """An ASGI endpoint: the channel is open exactly as long as its response is being sent."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = Request(scope).query_params
        async with sse(self.runner, query.get("user", ""), query.get("message", "")) as events:
            await StreamingResponse(events, media_type="text/event-stream")(scope, receive, send)


if __name__ == "__main__":
    model = ScriptedLlm(lambda request: ["one ", "after ", "the ", "other"], latency_s=0.5)
    parrots = InMemoryRunner(agent=LlmAgent(name="parrot", model=model), app_name="web", auto_create_session=True)
    app: Any = Starlette(routes=[Route("/chat", Chat(parrots))])  # their types of an app differ
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    trio.run(serve, app, config)
