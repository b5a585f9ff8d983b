"""What a class of contexts has beside its methods: each async one is refused late, and missed if nobody awaits it."""

from __future__ import annotations

from typing import Any

import pytest

from minirun import Event, InvocationContext
from minirun.errors import InvocationEndedError
from minirun.runtime._base_context import ContextBase

from ..helpers import run_to_end, runner_for


class Counts:
    """What an async method of a context uses of it."""

    def __init__(self, ended: bool = False) -> None:
        self._not_awaited, self.ended = 0, ended

    def _check_writable(self) -> None:
        if self.ended:
            raise InvocationEndedError("it has ended")


async def test_an_async_method_of_a_context_is_counted_until_it_is_awaited() -> None:
    """Those of classes below, too, but not what is private or not async; after the end it is refused."""

    class Own(ContextBase):
        async def ask(self, what: str, *, loud: bool = False) -> str:
            """Ask."""
            return what.upper() if loud else what

        async def _hidden(self) -> str:
            return "hidden"

        def plain(self) -> str:
            return "plain"

    counts: Any = Counts()
    first, second = Own.ask(counts, "a"), Own.ask(counts, "b", loud=True)
    assert counts._not_awaited == 2
    assert (await first, await second) == ("a", "B")
    assert counts._not_awaited == 0
    hidden = Own._hidden(counts)
    assert (counts._not_awaited, Own.plain(counts), await hidden) == (0, "plain", "hidden")
    assert (Own.ask.__name__, Own.ask.__doc__) == ("ask", "Ask.")
    late = Own.ask(Counts(ended=True), "c")  # type: ignore[arg-type]  # it behaves as one
    with pytest.raises(InvocationEndedError, match="it has ended"):
        await late


async def test_what_is_said_without_await_is_missed_by_name() -> None:
    """At the end of the agent: nothing of it has happened, and the run says so."""

    async def logic(ctx: InvocationContext) -> None:
        unsaid = ctx.emit(Event(message="x"))
        try:
            ctx._check_awaited()
        except TypeError as error:
            told.append(str(error))
        await unsaid
        ctx._check_awaited()

    told: list[str] = []
    await run_to_end(runner_for(logic))
    assert told == [
        "expected `await ctx.emit(event)`, `await agent.run_async(ctx)`, `await ctx.step(...)` and so on, found a call "
        "without `await`: what 'agent' said, ran or did there has not happened; add the `await`"
    ]
