"""What to write instead, where something is awaited, iterated over or entered that is not used in that way."""

from __future__ import annotations

__all__ = ["ENTER_IT", "NOT_IN_TRIO", "advice"]

ENTER_IT = (
    "a run is a scope, so that leaving it can clean up; write "
    "`async with runner.run_async(...) as run:` and in it `async for event in run:` or `await run.wait()`"
)
NOT_IN_TRIO = (
    "expected a trio task, found none; an asyncio program uses minirun.bridge.AsyncioBridge, or trio as guest "
    "(trio.lowlevel.start_guest_run), a script trio.run(...) or runner.run(...)"
)

_CLOSES = "closing has to wait, so it is `async with`, and not `with`; what needs not be closed is used without either"
# By the names of classes, which are loaded without this.
_ADVICE = {
    "AsyncioBridge": "a bridge is not awaited; write `async with AsyncioBridge(runner) as chat:`",
    "BaseService": _CLOSES,
    "BridgeRun": (
        "this run is asynchronous; write `async for event in chat.run_async(...):` or, for its answer, "
        "`await chat.run_async(...).wait()`; a synchronous program has `for event in chat.run(...):`"
    ),
    "Run": "this is the run that `async with` has entered; write `async for event in run:` or `await run.wait()`",
    "RunScope": ENTER_IT,
    "Runner": _CLOSES,
}


def advice(kind: type) -> str:
    """Return what to write instead of what was done with an object of this class."""
    return next(_ADVICE[cls.__name__] for cls in kind.__mro__ if cls.__name__ in _ADVICE)
