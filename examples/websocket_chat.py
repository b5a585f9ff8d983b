"""
A conversation over a websocket, `/ws?user=ada`: each text is a message, each event of its run comes back as JSON.

One task reads, another answers, one message after the other. When the client goes, the run in hand is cancelled with
its task. Needs hypercorn and starlette; the argument is the port.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from minirun import InMemoryRunner, LlmAgent, RunConfig, Runner, StreamingMode
from minirun.errors import MinirunError
from minirun.testing import ScriptedLlm

MESSAGES_MAX = 10  # that wait for their turn; who sends more is read later


async def converse(runner: Runner, websocket: WebSocket) -> None:
    """Serve one client until it goes."""
    user_id = websocket.query_params.get("user", "")
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    send, receive = trio.open_memory_channel[str](MESSAGES_MAX)

    async def answer() -> None:
        async for message in receive:
            try:
                run = runner.run_async(user_id=user_id, session_id="ws", new_message=message, run_config=config)
                async with run as events:
                    async for event in events:
                        await websocket.send_text(event.to_json())
            except MinirunError as error:
                await websocket.send_json({"error": str(error)})

    await websocket.accept()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        try:
            while True:
                await send.send(await websocket.receive_text())
        except WebSocketDisconnect:
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    model = ScriptedLlm(lambda request: ["one ", "after ", "the ", "other"], latency_s=0.5)
    parrots = InMemoryRunner(agent=LlmAgent(name="parrot", model=model), app_name="web", auto_create_session=True)
    app: Any = Starlette(routes=[WebSocketRoute("/ws", partial(converse, parrots))])  # their types of an app differ
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    trio.run(serve, app, config)
