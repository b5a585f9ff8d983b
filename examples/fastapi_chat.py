"""
Agents behind FastAPI, which runs on asyncio: a bridge takes each run's events over from trio.

`GET /chat?user=ada&message=hi` streams one run as server-sent events. A client that disconnects ends its run. Needs
fastapi and hypercorn; the argument is the port.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from hypercorn.asyncio import serve
from hypercorn.config import Config

from minirun import InMemoryRunner, LlmAgent, RunConfig, Runner, StreamingMode
from minirun.bridge import AsyncioBridge
from minirun.errors import MinirunError
from minirun.testing import ScriptedLlm

STREAMED = RunConfig(streaming_mode=StreamingMode.SSE)


def application(runner: Runner) -> FastAPI:
    """A web application around a runner: the bridge is entered and left with it."""
    chat = AsyncioBridge(runner)
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with chat:
            yield
            await chat.call(runner.session_service.aclose)

    app = FastAPI(lifespan=lifespan)

    async def events(user: str, message: str) -> AsyncGenerator[str, None]:
        try:
            async with chat.run_async(user_id=user, session_id="web", new_message=message, run_config=STREAMED) as run:
                async for event in run:  # the agent waits while the client is slow
                    yield f"data: {event.to_json()}\n\n"
        except MinirunError as error:
            yield f"event: error\ndata: {json.dumps(str(error))}\n\n"

    @app.get("/chat")
    async def stream(user: str = "", message: str = "") -> StreamingResponse:
        return StreamingResponse(events(user, message), media_type="text/event-stream")

    return app


if __name__ == "__main__":
    model = ScriptedLlm(lambda request: ["one ", "after ", "the ", "other"], latency_s=0.5)
    parrots = InMemoryRunner(agent=LlmAgent(name="parrot", model=model), app_name="web", auto_create_session=True)
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    asyncio.run(serve(application(parrots), config))  # type: ignore[arg-type]  # their types of an app differ
