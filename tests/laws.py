"""What is true of the log of every world, whatever its scenario."""

from __future__ import annotations

from typing import Any

import trio

from minirun import Event, Runner
from minirun.errors import StorageError
from minirun.models import LlmRequest
from minirun.sessions import Invocation, InvocationStatus
from minirun.simulation import CheckError, World

__all__ = ["UNANSWERED", "Log", "at_rest", "check_calls", "check_shown", "expect", "hurry_up", "kind_of", "read_logs"]

Log = list[Event]


def expect(holds: bool, what: str) -> None:
    """Fail the world unless *holds*."""
    if not holds:
        raise CheckError(what)


async def hurry_up(world: World, scope: trio.CancelScope, most: int) -> None:
    """Cancel *scope* within so many steps."""
    for _ in range(1 + world.choices.choose(most, "patience")):
        await world.sleep(0)
    scope.cancel()


async def at_rest(world: World, runner: Runner) -> None:
    """Wait until nothing runs any more: users who were answered may have asked on another device, too."""
    before: list[Invocation] | None = None
    while True:
        await world.sleep(100)  # longer than a process stands still
        try:
            found = await runner.session_service.list_invocations(app_name=runner.app_name)
        except StorageError:
            continue
        if found == before and all(one.status is not InvocationStatus.RUNNING for one in found):
            return
        before = found


async def read_logs(world: World, runner: Runner) -> dict[tuple[str, str], Log]:
    """The logs of the app by user and session, once nothing runs any more."""
    if world.faults:
        await at_rest(world, runner)
    while True:
        service = runner.session_service
        try:
            found = (await service.list_sessions(app_name=runner.app_name)).sessions
            return {
                (one.user_id, one.id): await service.read_events(
                    app_name=runner.app_name, user_id=one.user_id, session_id=one.id
                )
                for one in found
            }
        except StorageError:  # the process has died, or the disk has failed
            await world.sleep(1)


def check_calls(world: World, log: Log, *, may_be_open: bool = False) -> dict[str | None, dict[str, Any]]:
    """
    Check that every call is answered, once, in call order, before anybody speaks again; return the answers.

    A run after which nobody asks again may have died as the last of its session: then the next one would answer its
    calls. So it is where nobody waits for a run, or where users put up with failures (*may_be_open*).
    """
    answers: dict[str | None, dict[str, Any]] = {}
    open_calls: list[str | None] = []
    for event in log:
        if event.author == "user" and event.text:
            expect(not open_calls, f"the calls {open_calls} are open while the user says {event.text!r}")
        responses = event.get_function_responses()
        ids = [one.id for one in responses]
        places = [open_calls.index(call_id) if call_id in open_calls else -1 for call_id in ids]
        expect(places == sorted(places), f"{ids} do not answer {open_calls} in their order")
        for response in responses:
            expect(response.id in open_calls, f"the response {response.id} answers no open call")
            open_calls.remove(response.id)
            answers[response.id] = dict(response.response)
        open_calls.extend(made.id for made in event.get_function_calls())
    may_be_open = may_be_open or (world.coverage["crash"] > 0 and world.coverage["double send"] > 0)
    expect(not open_calls or may_be_open, f"the calls {open_calls} were never answered")
    return answers


UNANSWERED: dict[str, Any] = {"error": {"type": "unanswered"}}


def kind_of(answer: dict[str, Any]) -> str:
    """`result`, or the type of error that a call was answered with."""
    return str(answer["error"]["type"]) if "error" in answer else "result"


def check_shown(request: LlmRequest) -> None:
    """Check that a model is shown no call that is still open."""
    for content in request.contents:
        for part in content.parts:
            if part.function_response is not None:
                expect("status" not in part.function_response.response, "a model was shown a call that is still open")
