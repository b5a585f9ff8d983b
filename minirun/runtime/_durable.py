"""
What an agent or a tool may wait for longer than its process lives, and what it need not do twice.

Each of these leaves an event in the log. An invocation that is resumed finds it there: the result of a step, the answer
to a question, the time of an appointment. What has no answer yet pauses the invocation.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import trio

from .._json import dumps, finite, freeze, shown, thaw
from ..errors import FatalError, InvalidValueError, NotSupportedError, ReplayError
from ..events import Event, EventActions, RecordedFailure, RecordedStep, Replay
from ..flows._questions import REQUEST_INPUT, SLEEP_UNTIL
from ..types import Content, FunctionCall, FunctionResponse, Part
from ._failure import Pause
from ._threads import LateOutcome, in_thread

if TYPE_CHECKING:
    from ._context import _WritingContext

__all__ = ["STEP_KEY", "answer_to", "ask_for_input", "check_can_wait", "come_to", "run_step", "sleep_until"]

STEP_KEY: ContextVar[str] = ContextVar("minirun step")
"""The id of the step that the current task is inside of."""


async def run_step(
    context: _WritingContext, name: str, work: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    """See `InvocationContext.step`."""
    core, outer = context._core, STEP_KEY.get(None)
    path = f"{context._path}!{name}" if outer is None else f"{outer}!{name}"
    arguments = dumps(freeze([list(args), dict(named)], f"arguments of step {name!r}"))
    what = RecordedStep(name=name, path=path)
    event_id = context._claim(f"{path} {arguments}")
    while event_id in core.overcome:
        event_id = context._claim(f"{path} {arguments}")
    recorded = core.find(event_id)
    if recorded is not None:
        return _outcome_of(await context._replay(recorded), name)
    if core.journal is not None and context._is_in_order():
        missed = next((each for each in core.journal.steps(path) if each not in core.claimed), None)
        if missed is not None:
            msg = (
                f"step {name!r} of {context._path} was recorded with other arguments than {arguments:.200}; "
                "an agent that is resumed has to take the same steps with the same arguments as before"
            )
            raise ReplayError(msg)
    await context._go_beyond(f"step {name!r} of {context._path}")
    await core.env.point(f"step {path}")
    late: list[LateOutcome] = []
    token = STEP_KEY.set(event_id)
    failure: Exception | None = None
    try:
        result = await _result_of(context, partial(work, *args, **named), late.append)
        event = _event_of(event_id, result, what)
    except FatalError:
        core.claimed.discard(event_id)
        raise
    except Exception as error:
        event, failure = _event_of_failure(event_id, error, what, core.secrets.text_of(error)), error
    except BaseException:
        core.claimed.discard(event_id)  # who tries again takes the same step
        if late and late[0].finished and late[0].error is None:
            await _record_late(context, _event_of(event_id, late[0].value, what))
        raise
    finally:
        STEP_KEY.reset(token)
    try:
        stored = core.steps[event_id] = await context._emit(event)
    except trio.Cancelled:
        await _record_late(context, event)
        raise
    if failure is not None:
        raise failure
    return stored.output


async def _result_of(context: _WritingContext, work: partial[Any], on_cancel: Callable[[LateOutcome], None]) -> Any:
    if inspect.iscoroutinefunction(inspect.unwrap(getattr(work.func, "func", work.func))):
        return await work()
    result = await in_thread(context._core, work, on_cancel)
    return await result if inspect.isawaitable(result) else result


def _event_of(event_id: str, result: Any, what: RecordedStep) -> Event:
    """What records a step."""
    output = freeze(result, f"result of step {what.name!r}")
    return Event(id=event_id, output=output, actions=EventActions(replay=Replay(step=what)))


def _event_of_failure(event_id: str, error: Exception, what: RecordedStep, text: str) -> Event:
    """What records that a step has failed, with what, and what that says."""
    try:
        args = freeze(list(error.args))
    except InvalidValueError:
        args = None
    kind, message = type(error), text.encode("utf-8", "replace").decode()
    failed = RecordedFailure(type=f"{kind.__module__}:{kind.__qualname__}", args=args)
    actions = EventActions(replay=Replay(step=what, failed=failed))
    return Event(id=event_id, error_code=kind.__name__, error_message=message or kind.__name__, actions=actions)


def _outcome_of(recorded: Event, name: str) -> Any:
    """The result of a step that is recorded; raises what it has failed with."""
    failed = recorded.actions.replay.failed
    if failed is None:
        return recorded.output
    module, _, qualname = failed.type.partition(":")
    kind = reduce(lambda found, part: getattr(found, part, None), qualname.split("."), sys.modules.get(module))
    if failed.args is not None and isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error = kind(*thaw(failed.args))
        except Exception:  # it is made in another way
            error = None
        if error is not None:
            raise error
    msg = (
        f"step {name!r} has failed with {failed.type} ({recorded.error_message}), which cannot be made again from "
        "its `args`; let the step return what has happened instead, or raise an exception that can"
    )
    raise ReplayError(msg)


async def _record_late(context: _WritingContext, event: Event) -> None:
    """Store what came too late for whoever has asked for it: it was done all the same."""
    with trio.CancelScope(shield=True):
        try:
            context._core.steps[event.id or ""] = await context._emit(event, closing=True)
        except Exception:  # the store fails: it is done again, with the same key
            return


async def sleep_until(context: _WritingContext, when: float) -> None:
    """See `InvocationContext.sleep_until`."""
    until = finite(when)
    if until is None:
        raise InvalidValueError("when", f"expected seconds since the epoch, found {shown(when)}")
    core = context._core
    args = {"until": until}
    call_id = _question_id(context, SLEEP_UNTIL, args)
    if answer_to(context, call_id) is not None:
        await come_to(context, call_id)
        return
    await _pose(context, call_id, SLEEP_UNTIL, args)
    if max(core.env.now(), core.due_at or 0.0) < when:
        raise Pause(f"until {when}")
    part = Part(function_response=FunctionResponse(id=call_id, name=SLEEP_UNTIL, response={"now": core.env.now()}))
    await context._emit(Event(id=f"{call_id}-over", content=Content(role="user", parts=[part])))


async def ask_for_input(context: _WritingContext, message: str, schema: Any, payload: Any) -> Any:
    """See `InvocationContext.request_input`."""
    form = None
    if schema is not None:
        from ..flows._output import OutputSchema  # few questions have a form

        form = OutputSchema.of(schema, "response_schema").schema
    given = {"message": message, "payload": payload, "response_schema": form}
    args = freeze({name: value for name, value in given.items() if value is not None}, "question")
    call_id = _question_id(context, REQUEST_INPUT, args)
    response = answer_to(context, call_id)
    if response is None:
        await _pose(context, call_id, REQUEST_INPUT, args)
        raise Pause(f"for the answer to {call_id}")
    await come_to(context, call_id)
    return response.get("result")


def _question_id(context: _WritingContext, name: str, args: Mapping[str, Any]) -> str:
    """The same for the same question of the same agent; an answer never comes to another question."""
    return f"q-{context._claim(f'{context._path}!{name} {dumps(args)}')}"


def answer_to(context: _WritingContext, call_id: str) -> Mapping[str, Any] | None:
    """What the question of this id was answered with; None if it is open, or was not asked."""
    journal = context._core.journal
    response = None if journal is None else journal.response_to(call_id)
    return None if response is None else response.response


async def come_to(context: _WritingContext, call_id: str, *, beside: bool = False) -> None:
    """
    The question and its answer are behind the one who asked; who was ended while it waited goes no further now.

    What was asked *beside* the logic takes no part in the order of what it says.
    """
    journal = context._core.journal
    assert journal is not None
    asked, answer = journal.find(f"{call_id}-asked"), journal.responses[call_id]
    if asked is not None and not beside:
        await context._replay(asked)
    if not beside:
        await context._replay(answer)
    if answer.author != "user" and answer.actions.replay.aside:
        raise Pause(f"for {call_id}, which was withdrawn")
    if call_id in journal.fresh and not beside:
        journal.catch_up(context.branch)


async def _pose(context: _WritingContext, call_id: str, name: str, args: Mapping[str, Any]) -> None:
    """Say, once, that this waits; the tool that asks, if it is one, stays open as long."""
    check_can_wait(context)
    part = Part(function_call=FunctionCall(id=call_id, name=name, args=dict(args)))
    tool = context._call_id()
    actions = EventActions(suspended_calls=() if tool is None else (tool,), replay=Replay(asked_by=context._path))
    content = Content(role="model", parts=[part])
    await context._emit(Event(id=f"{call_id}-asked", content=content, long_running_tool_ids=[call_id], actions=actions))


def check_can_wait(context: _WritingContext) -> None:
    """Raise NotSupportedError where nobody can be asked."""
    if context._cannot_wait:
        raise NotSupportedError(f"nobody can be asked, and no time waited for, {context._cannot_wait}")
