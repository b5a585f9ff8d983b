"""How hooks are called, and what becomes of a failure of one; the rules stand in `_hooks`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import trio

from .._json import brief
from ._failure import leaves
from ._hooks import Hook

if TYPE_CHECKING:
    from ._base_context import ReadonlyContext

__all__ = ["ask", "expect"]

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
