"""The contract of live connections: the scripted one passes it in both dialects."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from minirun.testing import LiveSent, ScriptedLive, drop, pause, say
from minirun.types import FunctionCall, Part

from ..contracts.live_contract import LiveBench, live_connection_checks


class ScriptedBench(LiveBench):
    """A ScriptedLive that is told from one answer to the next what to do."""

    def __init__(self, dialect: Any) -> None:
        self.entries: list[Any] = []
        super().__init__(ScriptedLive(self._entry, dialect=dialect))

    def _entry(self, sent: LiveSent) -> Any:
        assert self.entries, f"nothing is to be said to {sent}"
        return self.entries.pop(0)

    def says(self, text: str) -> None:
        self.entries.append(say(text))

    def calls(self, *ids: str) -> None:
        calls = (FunctionCall(name="look", args={"where": id}, id=id) for id in ids)
        self.entries.append([Part(function_call=each) for each in calls])

    def goes_on(self) -> None:
        self.entries.append([say("on and on"), pause(1e6), say("and on")])

    def hangs_up(self, *, in_order: bool) -> None:
        self.entries.append(drop(1000 if in_order else 1006))


@pytest.mark.parametrize("dialect", ["gemini", "openai"])
@pytest.mark.parametrize("check", live_connection_checks().values(), ids=live_connection_checks())
async def test_it_keeps_the_contract(check: Any, dialect: Any, autojump_clock: trio.abc.Clock) -> None:
    """A scripted connection promises what every live connection does."""
    await check(lambda: ScriptedBench(dialect))
