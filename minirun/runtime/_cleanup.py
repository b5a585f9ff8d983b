"""
Cleanup hooks: they are called however a run or an agent ends, each for a bounded time once it is cancelled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from .._values import changed
from ..errors import CleanupTimeoutError
from ..events import Event
from ..types import Content
from ._failure import add_note, first_failure, is_only_cancelled, is_pause
from ._hook_calls import ask, expect
from ._hooks import Hook

if TYPE_CHECKING:
    from ._run import Execution

__all__ = ["run_between_hooks", "tell", "with_cleanup"]


async def run_between_hooks(execution: Execution) -> None:
    """Run the agent that answers between the hooks of the run."""
    invocation, context = execution.invocation, execution.hook_context
    plugins, grace_s = invocation.program.plugins, invocation.program.cleanup_timeout_s

    async def work() -> None:
        answer = await ask(plugins.get("before_run_callback", ()), invocation_context=context)
        content = expect(answer, Content, "before_run_callback")
        if content is not None:
            content = changed(content, role="model")
            if invocation.replayer is None:
                await context.emit(Event(content=content))
            else:  # what waits, or was interrupted, does not end with that
                execution.keeps_status = True
                await execution.refuse(content)
            if invocation.live.has_messages:
                await invocation.program.messages().store_messages(context)
            return
        await execution.begin()
        await context._flush()
        if not invocation.end_invocation:
            await execution.answer()

    async def cleanup(failure: BaseException | None) -> None:
        invocation.status = execution.status_by(failure)
        error, what = None if failure is None else first_failure(failure), "a cleanup hook of the run"
        try:
            if isinstance(error, Exception):
                hooks = plugins.get("on_run_error_callback", ())
                await tell(hooks, grace_s, what, invocation_context=context, error=error)
        finally:
            try:
                await tell(plugins.get("after_run_callback", ()), grace_s, what, invocation_context=context)
            finally:
                with trio.CancelScope(shield=True):
                    await context._flush(closing=True)

    await with_cleanup(work, cleanup)


async def tell(
    hooks: Iterable[Hook], grace_s: float, what: str, /, *, first_answer: bool = False, **arguments: Any
) -> Any:
    """
    Call *hooks* that clean up or are told of a failure. Nothing keeps them from it.

    What they return is ignored, unless the *first_answer* is asked for: as in `ask`. Each runs to its end, but no
    longer than *grace_s* seconds once this is cancelled; that one raises does not stop the others. A cancellation
    arrives at the next checkpoint after this.

    Raises:
        CleanupTimeoutError: One was cut off. *what* is what they are called.
        Exception: What the first has raised that did, with those of others as notes.
    """
    failures: list[Exception] = []
    answer: Any = None
    for hook in hooks:
        try:
            answer = await _finish_anyway(partial(ask, [hook], **arguments), grace_s, what)
        except Exception as error:
            failures.append(error)
        if first_answer and answer is not None:
            break
    if failures:
        for other in failures[1:]:
            add_note(failures[0], other)
        raise failures[0]
    return answer if first_answer else None


async def with_cleanup(
    work: Callable[[], Awaitable[None]], cleanup: Callable[[BaseException | None], Awaitable[None]]
) -> None:
    """
    Run *work*, then *cleanup* with what *work* has raised, whatever that was.

    A failure of the work wins over one of the cleanup, which becomes a note on it; a pause does not.
    """
    failure: BaseException | None = None
    try:
        await work()
    except BaseException as error:
        failure = error
        raise
    finally:
        try:
            await cleanup(failure)
        except (Exception, trio.Cancelled) as error:
            if failure is None or is_only_cancelled(failure) or is_pause(failure):
                raise
            if isinstance(error, Exception):
                add_note(first_failure(failure), error)


async def _finish_anyway(work: Callable[[], Awaitable[Any]], grace_s: float, what: str) -> Any:
    """
    Await *work*, in this task, shielded: a cancellation only sets it a time, and comes at the next checkpoint.

    It is a task beside this one that notices the cancellation.
    """
    shield = trio.CancelScope(shield=True)
    answer: Any = None
    failure: BaseException | None = None

    async def watch() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            shield.deadline = trio.current_time() + grace_s

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, name=f"watch over {what}")
        try:
            with shield:
                answer = await work()
        except BaseException as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is None and shield.cancelled_caught:
        failure = CleanupTimeoutError(f"{what} took longer than {grace_s} seconds after the run was cancelled")
    if failure is not None:
        raise failure
    return answer
