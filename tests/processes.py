"""
What the other processes of test_processes.py do: `python -m tests.processes ROLE FILE {options as JSON}`.

They speak to the test in lines: they say what has happened, and wait to be told to go on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from minirun import BaseAgent, Event, EventActions, InvocationContext, LlmAgent, RunConfig, Runner, SqliteSessionService
from minirun.errors import MinirunError, SessionBusyError
from minirun.sessions import BaseSessionService, DatabaseSessionService, Session
from minirun.sessions._postgres import _leases as _postgres_leases
from minirun.sessions._sqlite import _leases
from minirun.testing import ScriptedLlm, call

from .stores import HERE


def say(text: str) -> None:
    """Tell the test what has happened."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def told() -> str:
    """Wait until the test says something."""
    line: str = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return line.strip()


class Holder(BaseAgent):
    """Emits, holds the session until it is told to go on, and emits again."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="first", state={"held": 1}))
        say("holding")
        await told()
        await ctx.emit(Event(message="second"))


class Greeter(BaseAgent):
    """Emits twice, with a pause in which others may try to come between."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="hello"))
        await trio.sleep(0.001)
        await ctx.emit(Event(message="bye", actions=EventActions(state_ops={"user:runs": {"add": 1}})))


async def wait_in_tool() -> str:
    """Wait to be told, as a tool that takes long does."""
    say("in tool")
    return await told()


def worker() -> LlmAgent:
    """An agent whose first turn calls the tool that waits."""

    def answer(request: Any) -> Any:
        waiting = request.contents[-1].parts[-1].function_response is None
        return call("wait_in_tool") if waiting else "the tool has answered"

    return LlmAgent(name="worker", model=ScriptedLlm(answer), tools=[wait_in_tool])


def asker() -> LlmAgent:
    """The same, and its model says when it is asked."""

    def answer(request: Any) -> Any:
        say("asked")
        return call("wait_in_tool")

    return LlmAgent(name="asker", model=ScriptedLlm(answer), tools=[wait_in_tool])


def steered() -> LlmAgent:
    """An agent that calls the tool that waits, and answers with all that the user has said, when it is told to."""

    async def answer(request: Any) -> Any:
        has_called = any(part.function_response for content in request.contents for part in content.parts)
        if not has_called:
            return call("wait_in_tool")
        said = [content.text for content in request.contents if content.role == "user" and content.text]
        say(f"asked {len(said)}")
        await told()
        return " + ".join(said)

    return LlmAgent(name="steered", model=ScriptedLlm(answer), tools=[wait_in_tool])


AGENTS: dict[str, Callable[[], BaseAgent]] = {
    "holder": lambda: Holder(name="holder"),
    "greeter": lambda: Greeter(name="greeter"),
    "worker": worker,
    "asker": asker,
    "steered": steered,
}


async def converse(
    service: BaseSessionService, agent: str, message: str, session: str = "s", busy: str = "wait"
) -> None:
    """Run an agent on a session, making it if it does not exist."""
    runner = Runner(agent=AGENTS[agent](), app_name="app", session_service=service, auto_create_session=True)
    config = RunConfig(on_busy=busy)  # type: ignore[arg-type]  # one of the two
    async with runner.run_async(user_id="u", session_id=session, new_message=message, run_config=config) as run:
        await run.wait()


async def run_agent(service: BaseSessionService, options: dict[str, Any]) -> None:
    """One run."""
    if options.pop("wait", False):
        say("ready")
        await told()
    await converse(service, **options)


async def race(service: BaseSessionService, options: dict[str, Any]) -> None:
    """First runs on many sessions, all at the same time as somebody else's."""
    say("ready")
    await told()
    for session in range(options["sessions"]):
        await converse(service, "greeter", options["name"], session=str(session))


async def try_often(service: BaseSessionService, options: dict[str, Any]) -> None:
    """Try to enter for a while, without waiting; say how often that was refused."""
    refused = 0
    with trio.move_on_after(options["seconds"]):
        while True:
            try:
                await converse(service, "greeter", "let me in", busy="reject")
            except SessionBusyError:
                refused += 1
            await trio.sleep(0.02)
    say(f"refused {refused > 10}")


async def write_keys(service: BaseSessionService, options: dict[str, Any]) -> None:
    """Write many shared keys, each in an event of its own, through a session of one's own."""
    name = options["name"]
    session = await service.create_session(app_name="app", user_id="u", session_id=name)
    say("ready")
    await told()
    for number in range(options["keys"]):
        state = {f"user:{name}{number}": number, f"app:{name}{number}": number}
        ops = {"user:count": {"add": 1}, "app:log": {"extend": [f"{name}{number}"]}}
        actions = EventActions(state_delta=state, state_ops=ops)
        await service.append_event(session, Event(author="a", actions=actions))


async def here(service: BaseSessionService) -> Session:
    """The session."""
    session = await service.get_session(**HERE)
    assert session is not None
    return session


async def append_when_told(service: BaseSessionService, options: dict[str, Any]) -> None:
    """Read the session, and append when told to, from outside of any run."""
    session = await here(service)
    say("read")
    await told()
    await service.append_event(session, Event(author="outside", message="from outside", state={"user:stale": 1}))


async def resume(service: BaseSessionService, options: dict[str, Any]) -> None:
    """Go on with what was interrupted in the session."""
    runner = Runner(agent=AGENTS[options["agent"]](), app_name="app", session_service=service)
    [left] = await service.list_invocations(**HERE, status="interrupted")
    async with runner.run_async(user_id="u", session_id="s", invocation_id=left.invocation_id) as run:
        await run.wait()
    say("resumed")


async def send(service: BaseSessionService, options: dict[str, Any]) -> None:
    """Send messages into what runs in the session, one after another; say when each is sent."""
    runner = Runner(agent=AGENTS["steered"](), app_name="app", session_service=service)
    for text in options["texts"]:
        await runner.send(text, user_id="u", session_id="s")
        say(f"sent {text}")


async def delete(service: BaseSessionService, options: dict[str, Any]) -> None:
    """Delete the session."""
    say("deleting")
    await service.delete_session(**HERE)


async def append_for_ever(service: BaseSessionService, options: dict[str, Any]) -> None:
    """Append until the end of the process, and say the seq of each event that is stored."""
    session = await service.create_session(app_name="app", user_id="u", session_id=options["session"])
    while True:
        actions = EventActions(state_ops={"n": {"add": 1}, "user:n": {"add": 1}})
        stored = await service.append_event(session, Event(author="a", message="x" * 300, actions=actions))
        say(str(stored.seq))


async def open_new_files(service: BaseSessionService, options: dict[str, Any]) -> None:
    """Open files that do not exist yet, at the same time as others do."""
    assert isinstance(service, SqliteSessionService)
    say("ready")
    await told()
    for number in range(options["files"]):
        async with SqliteSessionService(f"{service._path}-{number}", durability="process") as new:
            await new.create_session(app_name="app", user_id="u", session_id=options["name"])


ROLES: dict[str, Callable[[BaseSessionService, dict[str, Any]], Awaitable[None]]] = {
    role.__name__: role
    for role in (
        append_for_ever,
        append_when_told,
        delete,
        open_new_files,
        race,
        resume,
        run_agent,
        send,
        try_often,
        write_keys,
    )
}


def opened(path: str, durability: str) -> BaseSessionService:
    """The service over a file, or over a database."""
    if path.startswith("postgresql:"):
        return DatabaseSessionService(path)
    return SqliteSessionService(path, durability=durability)  # type: ignore[arg-type]  # one of the two


async def main(role: str, path: str, options: dict[str, Any]) -> None:
    """Play the role, and say how it ended."""
    if lease_s := options.pop("lease_s", 0):
        for leases in (_leases, _postgres_leases):
            vars(leases).update(LEASE_S=lease_s, RENEW_EVERY_S=lease_s / 4)
    async with opened(path, options.pop("durability", "process")) as service:
        try:
            await ROLES[role](service, options)
        except MinirunError as error:
            say(type(error).__name__)
        else:
            say("done")


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
