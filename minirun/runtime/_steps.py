"""
Steps and timers: what an agent or a tool need not do twice, and what it may wait for longer than its process lives.

Each leaves an event in the log. An invocation that is resumed finds it there: the result of a step, the time of an
appointment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from .._json import dumps, finite, freeze, shown
from .._threads import LateOutcome
from ..errors import FatalError, InvalidValueError, MinirunError, NotSupportedError, ReplayError
from ..events import Event, RecordedStep
from ..flows._questions import SLEEP_UNTIL
from ..flows._recorded_step import event_of, event_of_failure, outcome_of
from ..sessions._asking import Question
from ..types import Content, FunctionResponse, Part
from ._failure import Pause, is_only_cancelled, leaves
from ._ids import STEP_ID
from ._questions import pose, question_id, replayed_answer

if TYPE_CHECKING:
    from ._base_context import ContextBase

__all__ = ["run_step", "sleep_until"]


async def run_step(
    context: ContextBase, name: str, work: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    """See `InvocationContext.step`."""
    ids, emitter, outer = context._invocation.ids, context._invocation.emitter, STEP_ID.get()
    path = f"{context._path}!{name}" if outer is None else f"{outer}!{name}"
    arguments = dumps(freeze([list(args), dict(named)], f"arguments of step {name!r}"))
    claimed = [context._claim(f"{path} {arguments}")]
    while claimed[-1] in ids.failed_steps:
        claimed.append(context._claim(f"{path} {arguments}"))
    try:
        if (recorded := emitter.find(context, claimed[-1])) is not None:
            return outcome_of(await emitter.repeat(context, recorded, {}), name)
        _check_not_recorded_otherwise(context, name, path, arguments)
        return await _take(context, claimed, RecordedStep(name=name, path=path), partial(work, *args, **named))
    except BaseException as error:
        if not isinstance(error, Exception) or any(isinstance(leaf, FatalError) for leaf in leaves(error)):
            ids.release(claimed)  # who tries again takes the same step, or finds it
        raise


async def _take(context: ContextBase, claimed: list[str], step: RecordedStep, work: partial[Any]) -> Any:
    invocation, emitter, event_id = context._invocation, context._invocation.emitter, claimed[-1]
    await emitter.leave_replay(context, f"step {step.name!r} of {context._path}")
    await invocation.env.point(f"step {step.path}")
    late: list[LateOutcome] = []
    token = STEP_ID.set(claimed[0])  # whatever is sent with it, or recorded inside, is known by it in every attempt
    failure: Exception | None = None
    try:
        result = await _result_of(context, work, late.append)
        event = event_of(event_id, result, step)
    except Exception as error:
        if any(isinstance(leaf, FatalError) for leaf in leaves(error)):  # also in a group, of a nursery in the step
            raise
        event, failure = event_of_failure(event_id, error, step, invocation.secrets.text_of(error)), error
    except BaseException:
        if late and late[0].finished and late[0].error is None:
            await _record_late(context, lambda: event_of(event_id, late[0].value, step))
        raise
    finally:
        STEP_ID.reset(token)
    try:
        stored = await emitter.emit(context, event)
    except BaseException as error:
        if is_only_cancelled(error):  # also in a group, of a hook that has a nursery
            await _record_late(context, lambda: event)
        raise
    if failure is not None:
        raise failure
    return stored.output


def _check_not_recorded_otherwise(context: ContextBase, name: str, path: str, arguments: str) -> None:
    """Raise ReplayError if a step of this path is recorded, and nobody has come to it: its arguments were others."""
    replayer = context._invocation.replayer
    if replayer is None or not context._is_in_order():
        return
    if any(each not in context._invocation.ids.claimed for each in replayer.record.steps(path)):
        msg = (
            f"step {name!r} of {context._path} was recorded with other arguments than {arguments:.200}; "
            "an agent that is resumed has to take the same steps with the same arguments as before"
        )
        raise ReplayError(msg)


async def _result_of(context: ContextBase, work: partial[Any], on_cancel: Callable[[LateOutcome], None]) -> Any:
    if inspect.iscoroutinefunction(inspect.unwrap(work.func)):
        return await work()
    result = await context._invocation.in_thread(work, on_cancel)
    return await result if inspect.isawaitable(result) else result


async def _record_late(context: ContextBase, made: Callable[[], Event]) -> None:
    """Store what came too late for the task that asked for it: it was done all the same."""
    # Where the store fails, or its result is no JSON, it is done again, with the same key.
    with trio.CancelScope(shield=True), suppress(MinirunError):
        await context._invocation.emitter.emit(context, made(), closing=True)


async def sleep_until(context: ContextBase, when: float) -> None:
    """See `InvocationContext.sleep_until`."""
    until = finite(when)
    if until is None:
        raise InvalidValueError("when", f"expected seconds since the epoch, found {shown(when)}")
    invocation, args = context._invocation, freeze({"until": until})
    if invocation.run_config.live is not None:
        raise NotSupportedError("nothing resumes a live run, so it cannot wait for a time; sleep by trio in the tool")
    question = Question(question_id(context, SLEEP_UNTIL, args), SLEEP_UNTIL, args)
    if await replayed_answer(context, question.id) is not None:
        return
    context._check_can_wait()
    await pose(context, question)
    now = invocation.env.now()
    if max(now, invocation.due_at or 0.0) < when:
        raise Pause(f"until {when}")
    part = Part(function_response=FunctionResponse(id=question.id, name=SLEEP_UNTIL, response={"now": now}))
    await invocation.emitter.emit(context, Event(id=f"{question.id}-over", content=Content(role="user", parts=[part])))
