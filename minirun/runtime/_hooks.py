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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from .._json import brief
from ._failure import leaves

if TYPE_CHECKING:
    from ._base_context import ReadonlyContext

__all__ = ["Hook", "PluginHooks", "ask", "expect"]

Hook: TypeAlias = Callable[..., Any]
PluginHooks: TypeAlias = Mapping[str, Sequence[Hook]]
"""By the name of the hook: the methods of the plugins that have one."""

_CONTEXTS = ("callback_context", "tool_context", "invocation_context")  # each hook gets one of them


@trio.lowlevel.disable_ki_protection  # also at the end of a run
async def ask(hooks: Iterable[Hook], /, **arguments: Any) -> Any:
    """Call *hooks* one after another; return the first answer that is not None."""
    for hook in hooks:
        try:
            answer = hook(**arguments)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:
            context: ReadonlyContext = next(arguments[name] for name in _CONTEXTS if name in arguments)
            context._invocation.failures.of_hooks += leaves(error)
            raise
        if answer is not None:
            return answer
    return None


def expect(answer: Any, kind: type, hook: str) -> Any:
    """Return the answer of a hook; raise TypeError if it is of another kind."""
    if answer is not None and not isinstance(answer, kind):
        msg = f"expected {hook} to return {kind.__name__} or None, found {brief(answer)}"
        raise TypeError(msg)
    return answer
