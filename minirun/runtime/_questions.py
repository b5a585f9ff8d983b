"""
Questions: what an agent or a tool asks of somebody outside, and waits for longer than its process lives.

A question is a call that nobody has made but the framework, stored in an event of its own (`q-…-asked`); it stays open
until a message answers it. All kinds take the same way — a form to fill in, a credential, whether a call may be made, a
time to wait for — and differ in the arguments of the call and in what follows the answer:

    question_id   follows from where it is asked, so that every run asks the same one
    replayed_answer   what it was answered with before this run, or by its message; the agent goes on from there
    pose          stores it; then the caller raises `Pause`, and the invocation is paused

The call of a long-running tool is its own question: the model has made it, and once the tool has begun the work it is
posed like any other. Calls that stay open as long as a question, as that of a tool that asks does, are *suspended* by
the event that poses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._json import dumps, freeze
from ..events import Replay
from ..flows._questions import REQUEST_INPUT
from ..sessions._asking import Question, asking_event
from ..sessions._recovery import around_waiting
from ._failure import Pause

if TYPE_CHECKING:
    from ._base_context import ContextBase
    from ._context import ToolContext

_ANSWER_AGAIN = "(The answer before did not fit: {problems}; answer again.)"

__all__ = ["answer_to", "ask_for_input", "has_asked", "is_answered_now", "pose", "question_id", "replayed_answer"]


def question_id(context: ContextBase, name: str, args: Mapping[str, Any]) -> str:
    """Return the id of a question: the same for the same one of the same agent; no answer comes to another one."""
    return f"q-{context._claim(f'{context._path}!{name} {dumps(args)}')}"


def answer_to(context: ContextBase, asked_id: str) -> Mapping[str, Any] | None:
    """Return what the question of this id was answered with; None if it is open, or was not asked."""
    replayer = context._invocation.replayer
    response = None if replayer is None else replayer.record.response_to(asked_id)
    return None if response is None else response.response


def is_answered_now(context: ContextBase, asked_id: str) -> bool:
    """Whether the question of this id is answered by this run's message: the agents go on from there."""
    replayer = context._invocation.replayer
    return replayer is not None and asked_id in replayer.record.answered_now


async def replayed_answer(context: ContextBase, asked_id: str) -> Mapping[str, Any] | None:
    """
    Return the answer as `answer_to` does, and put the question and its answer behind the agent that asks.

    A question that was posed out of recorded order takes no part in the order of what the logic says.

    Raises:
        Pause: It was withdrawn: who was ended while it waited goes no further now.
    """
    response, replayer = answer_to(context, asked_id), context._invocation.replayer
    if response is None or replayer is None:
        return None
    asked, answer = replayer.record.find(f"{asked_id}-asked"), replayer.record.responses[asked_id]
    is_early = asked is not None and bool(asked.actions.replay.early)
    if not is_early:
        if asked is not None:
            await replayer.repeat(context, asked, {})
        await replayer.repeat(context, answer, {})
    if answer.actions.replay.aside:
        raise Pause(f"for {asked_id}, which was withdrawn")
    if asked_id in replayer.record.answered_now and not is_early:
        replayer.leave(context.branch)
    return response


async def pose(
    context: ContextBase,
    *questions: Question,
    suspended: Sequence[str] = (),
    replay: Replay | None = None,
    closing: bool = False,
) -> None:
    """
    Store that *questions* wait, and that the calls *suspended* stay open as long, as that of a tool that asks does.

    Who poses one out of the order of the logic says so by *replay*, what a replay has to know of it.
    """
    if context._call_id is not None:
        suspended = (*suspended, context._call_id)
    asked = asking_event(context.invocation_id, context._path, questions, suspended, replay)
    try:
        await context._invocation.emitter.emit(context, asked, closing=closing)
    except BaseException:  # who tries again asks the same
        context._invocation.ids.release(question.id.removeprefix("q-") for question in questions)
        raise


def has_asked(context: ToolContext) -> bool:
    """Whether the call of *context*, or something inside of it, waits: a cancellation does not take a question back."""
    call_id, invocation = context.function_call_id, context._invocation
    own = invocation.live.open_calls.get(call_id)
    if own is not None and own.pending:
        return True
    return call_id in invocation.inside and call_id in around_waiting(invocation.open_calls())


async def ask_for_input(
    context: ContextBase, message: str, schema: Any, payload: Any, interrupt_id: str | None = None
) -> Any:
    """See `InvocationContext.request_input`. The call of the question has the *interrupt_id*."""
    form = None
    if schema is not None:
        from ..flows._output import OutputSchema  # few questions have a form

        form = OutputSchema.of(schema, "response_schema")
    problems: list[str] = []
    while True:
        told = f"{message}\n\n{_ANSWER_AGAIN.format(problems='; '.join(problems))}" if problems else message
        given = {"message": told, "payload": payload, "response_schema": form and form.schema}
        given["interrupt_id"] = interrupt_id
        args = freeze({name: value for name, value in given.items() if value is not None}, "question")
        question = Question(question_id(context, REQUEST_INPUT, args), REQUEST_INPUT, args)
        response = await replayed_answer(context, question.id)
        if response is None:
            context._check_can_wait()
            await pose(context, question)
            raise Pause(f"for the answer to {question.id}")
        answer = response.get("result")
        # The service that stores an answer knows the schema, and not the class: its validators are asked here.
        problems = [] if form is None else form.problems(answer)
        if not problems:
            return answer
