"""One message and its answer, for programs that want nothing else: no runner, no scope, no loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from .._json import shown
from .._record import Record
from ..agents import BaseAgent
from ..apps import App
from ..errors import ConfigurationError
from ..events import Event
from ..runtime import Run, RunConfig
from ..sessions import BaseSessionService, InvocationStatus, PendingCall
from ..types import Content, UsageMetadata
from ._in_memory import InMemoryRunner
from ._runner import Runner
from ._sync import SyncRun
from ._toolsets import entered_toolsets

__all__ = ["RunResult", "run_once", "run_sync"]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RunResult(Record):
    """
    What came of one message.

    `text` is that of the answer, `output` its value as an instance of the `output_schema` class if it is one, else
    None. `events` are all that the run has yielded. `status` is `completed`, or `paused` if the answer waits for
    somebody: then `pending` has the questions, and another message in `session_id`, on the same service, answers them.
    """

    text: str
    output: Any
    usage: UsageMetadata
    events: list[Event]
    status: InvocationStatus
    pending: list[PendingCall]
    session_id: str
    invocation_id: str


async def run_once(
    agent: BaseAgent | App,
    message: str | Content,
    *,
    session_service: BaseSessionService | None = None,
    user_id: str = "user",
    session_id: str | None = None,
    app_name: str | None = None,
    run_config: RunConfig | None = None,
    state_delta: Mapping[str, object] | None = None,
    deps: Any = None,
) -> RunResult:
    """
    Run an agent or an app on one message, and return its answer.

    Cancelling it ends the run. Plugins and tools are left open, for the app may be used again: a `Runner` closes them.
    Toolsets that have to be entered are, if nobody has, and left at the end.

    Args:
        agent: The agent, or an app.
        message: What the user says.
        session_service: Where the session is kept; by default in memory, until this returns.
        user_id: Whose session.
        session_id: Which session; it is made if it is not there. By default a new one.
        app_name: What sessions are kept under: by default the app's name, or the agent's.
        run_config: Settings of the run.
        state_delta: State to change with the message; its `temp:` keys live for this run.
        deps: What the run's tools, agents and callbacks find as `ctx.deps`; it is not stored.

    Raises:
        ConfigurationError: *agent* is neither, or the arguments do not fit together.

        What the run fails with: one exception with its own type.
    """
    runner, session = _runner(agent, app_name, session_service, session_id)
    scope = runner.run_async(
        user_id=user_id,
        session_id=session,
        new_message=message,
        run_config=run_config,
        state_delta=state_delta,
        deps=deps,
    )
    async with entered_toolsets(runner.app._tree), scope as run:
        events = [event async for event in run]
    return _result(run, events, session)


def run_sync(
    agent: BaseAgent | App,
    message: str | Content,
    *,
    session_service: BaseSessionService | None = None,
    user_id: str = "user",
    session_id: str | None = None,
    app_name: str | None = None,
    run_config: RunConfig | None = None,
    state_delta: Mapping[str, object] | None = None,
    deps: Any = None,
) -> RunResult:
    """
    As `run_once`, for synchronous code. The run lives in a thread of its own, which ends with it.

    In a notebook, or wherever else asyncio runs, it works too, and holds the loop until it returns.

    Raises:
        RuntimeError: Called inside trio; use `run_once` there.
    """
    runner, session = _runner(agent, app_name, session_service, session_id)
    with runner.run(
        user_id=user_id,
        session_id=session,
        new_message=message,
        run_config=run_config,
        state_delta=state_delta,
        deps=deps,
    ) as run:
        events = list(run)
    return _result(run, events, session)


def _runner(
    agent: object, app_name: str | None, service: BaseSessionService | None, session_id: str | None
) -> tuple[Runner, str]:
    if not isinstance(agent, (BaseAgent, App)):
        raise ConfigurationError(f"expected an agent or an App, found {shown(agent)}")
    what: dict[str, Any] = {"app": agent} if isinstance(agent, App) else {"agent": agent}
    runner: Runner
    if service is None:
        runner = InMemoryRunner(**what, app_name=app_name, auto_create_session=True)
    else:
        name = agent.name if app_name is None and isinstance(agent, BaseAgent) else app_name
        runner = Runner(**what, app_name=name, session_service=service, auto_create_session=True)
    return runner, runner.session_service.env.new_id("session") if session_id is None else session_id


def _result(run: Run | SyncRun, events: list[Event], session_id: str) -> RunResult:
    answer = run.answer
    assert run.status is not None, "it has ended"
    assert run.invocation_id is not None
    return RunResult(
        text="" if answer is None else answer.text,
        output=run.output,
        usage=run.usage,
        events=events,
        status=run.status,
        pending=run.pending,
        session_id=session_id,
        invocation_id=run.invocation_id,
    )
