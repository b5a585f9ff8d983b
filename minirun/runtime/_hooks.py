"""
Hooks: functions of the application that are called at fixed places of a run.

Those of the plugins come first, in the order of the plugins, then the agent's own. The first that returns something
other than None has answered, and no other is asked. They run in the task, and so in the contextvars, of the agent or
run that they stand around. A hook that raises has failed, and so has the run (promise P7); no other hook takes that for
the failure of a model or a tool, nor is a model told of it: also where it was asked inside of a tool, around an agent
or an event.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import trio

from ..errors import CleanupTimeoutError, ConfigurationError
from ._failure import add_note, first_failure, is_only_cancelled, is_pause, leaves

__all__ = ["Hook", "PluginHooks", "ask", "expect", "hooks_field_value", "tell", "with_cleanup"]

Hook: TypeAlias = Callable[..., Any]
PluginHooks: TypeAlias = Mapping[str, Sequence[Hook]]
"""By the name of the hook: the methods of the plugins that have one."""

_CONTEXTS = ("callback_context", "tool_context", "invocation_context")


@trio.lowlevel.disable_ki_protection  # also at the end of a run
async def ask(hooks: Iterable[Hook], /, **arguments: Any) -> Any:
    """Call *hooks* one after another; return the first answer that is not None."""
    for hook in hooks:
        try:
            answer = hook(**arguments)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:
            _core_of(arguments).hook_failures += leaves(error)
            raise
        if answer is not None:
            return answer
    return None


def _core_of(arguments: Mapping[str, Any]) -> Any:
    """The invocation that a hook is asked in: each gets one context."""
    return next(arguments[name] for name in _CONTEXTS if name in arguments)._core


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


def expect(answer: Any, kind: type, hook: str) -> Any:
    """Return the answer of a hook; raise TypeError if it is of another kind."""
    if answer is not None and not isinstance(answer, kind):
        msg = f"expected {hook} to return {kind.__name__} or None, found {answer!r:.80}"
        raise TypeError(msg)
    return answer


def hooks_field_value(value: Hook | Sequence[Hook] | None, name: str, parameters: Sequence[str]) -> tuple[Hook, ...]:
    """
    Return the hooks that an agent was given under *name*: none, one or several.

    Raises:
        ConfigurationError: One cannot be called with these parameters by name.
    """
    hooks = () if value is None else (value,) if callable(value) else tuple(value)
    for hook in hooks:
        if not callable(hook):
            msg = f"expected {name} to be a function or a list of functions, found {hook!r:.80}"
            raise ConfigurationError(msg)
        try:
            inspect.signature(hook).bind(**dict.fromkeys(parameters))
        except TypeError as error:
            msg = f"expected {name} to take the arguments {', '.join(parameters)} by name, found {hook!r:.80} ({error})"
            raise ConfigurationError(msg) from None
        except ValueError:  # a builtin that does not tell its signature
            pass
    return hooks


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
