"""
Agents inside a trio service: each line that a TCP client sends is answered through one shared runner.

The first line is the client's name; one that comes back goes on where it was. Cancelling `serve` ends every run
cleanly: what a client was told is stored, and its session stays usable. Try it with a port as argument, and `nc`.
"""

import sys
from functools import partial

import trio

from minirun import LlmAgent, Runner, SqliteSessionService
from minirun.errors import MinirunError
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm


def reply(request: LlmRequest) -> str:
    """Stand in for a model: say what was said, and how often this client has spoken."""
    said = [content.text for content in request.contents if content.role == "user"]
    return f"{said[-1]}! (message {len(said)})"


async def serve_client(runner: Runner, stream: trio.SocketStream) -> None:
    """Answer the lines of one client until it hangs up."""
    name, rest = "", b""
    try:
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                text = line.decode("utf-8", "replace")
                if name:
                    await stream.send_all(f"{await answer(runner, name, text)}\n".encode())
                name = name or text
    except trio.BrokenResourceError:
        pass  # it left before its answer, which is stored all the same


async def answer(runner: Runner, name: str, text: str) -> str:
    """Run one message. What is wrong with it is told to the client; the service goes on."""
    try:
        async with runner.run_async(user_id=name, session_id="tcp", new_message=text) as run:
            event = await run.wait()
    except MinirunError as error:
        return f"error: {error}"
    return event.text if event is not None else "(no answer)"


async def serve(path: str, port: int, task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED) -> None:
    """Serve until cancelled; `nursery.start` returns the listeners, when clients can connect."""
    agent = LlmAgent(name="parrot", model=ScriptedLlm(reply))
    async with SqliteSessionService(path) as sessions:
        runner = Runner(agent=agent, app_name="tcp", session_service=sessions, auto_create_session=True)
        await trio.serve_tcp(partial(serve_client, runner), port, host="127.0.0.1", task_status=task_status)


if __name__ == "__main__":
    trio.run(serve, "tcp.db", int(sys.argv[1]))
