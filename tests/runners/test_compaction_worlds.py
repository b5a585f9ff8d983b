"""Summaries in simulated worlds: whoever dies, leaves or fails, each tells what it covers, all of it and once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from minirun import App, Event, FunctionTool, LlmAgent, Runner
from minirun.apps import EventsCompactionConfig
from minirun.errors import ModelError
from minirun.flows._compaction import is_told, told
from minirun.models import LlmRequest
from minirun.sessions._compactions import Compaction
from minirun.sessions._integrity._history import check_history
from minirun.simulation import SeededChoices, World, why_unavailable
from minirun.simulation._explore import explore
from minirun.simulation._simulate import Storage, simulate
from minirun.testing import ScriptedLlm, call

from ..laws import Log, expect, read_logs
from .test_compaction_properties import FILLER, Keeper, check_ranges, visible_of, words_of


class Busy(Keeper):
    """Keeps the words, when it has time, and does not always succeed."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def maybe_summarize_events(self, *, events: Sequence[Event]) -> Event | None:
        await self._world.sleep(self._world.choices.choose(3, "summing up takes its time"))
        if self._world.choices.choose(5, "summing up fails") == 1:
            raise ModelError("nothing comes to mind")
        return await super().maybe_summarize_events(events=events)


async def chronicle(world: World) -> None:
    """Two users talk with an agent that notes things down, one of them on two devices; supervisors may look on."""
    pick = world.choices.choose

    def note(what: str) -> str:
        """Note it."""
        return f"noted {FILLER}"

    def script(request: LlmRequest) -> Any:
        last = request.contents[-1].parts[-1]
        if last.text is not None and last.text.startswith("note"):
            return [call("note", what=f"{last.text} {FILLER}")]
        return f"So it is {FILLER}"

    by_interval = {"compaction_interval": 1 + pick(2, "interval"), "overlap_size": pick(2, "overlap")}
    by_tokens = {"token_threshold": 60, "event_retention_size": pick(3, "retained")}
    settings = (by_interval, by_tokens, {**by_interval, **by_tokens})[pick(3, "settings")]

    def app() -> App:
        tools = [FunctionTool(note, run_in="loop", on_interrupted="rerun")]
        config = EventsCompactionConfig(summarizer=Busy(world), **settings)
        root = LlmAgent(name="root", model=ScriptedLlm(script), tools=tools)
        return App("app", root, events_compaction_config=config)

    runner = world.runner(app)
    if pick(2, "supervised"):
        world.host(runner, Runner.supervise)

    async def talk(user: str, device: int) -> None:
        for number in range(3):
            await world.say(runner, user, f"{('ask', 'note')[pick(2, 'what')]} W{device}{number}_ {FILLER}")

    async with trio.open_nursery() as nursery:
        for user, device in (("ada", 1), ("ada", 2), ("bob", 3)):
            nursery.start_soon(talk, user, device)
    for log in (await read_logs(world, runner)).values():
        check_log(log)
        for event in log:
            if event.actions.compaction is not None:
                world.reached("a summary" if event.invocation_id is not None else "a summary by a supervisor")


def check_log(log: Log) -> None:
    """Its summaries go on from each other, and each tells exactly what it covers."""
    check_history(log)
    check_ranges(log)
    for place, event in enumerate(log):
        if event.actions.compaction is not None:
            summary = Compaction.of(event)
            covered = [one for one in visible_of(log[:place]) if (one.seq or 0) <= summary.end_seq and is_told(one)]
            words = Counter(word for one in covered for line in told(one) for word in words_of(line))
            found = Counter(words_of(summary.content.text))
            expect(found == words, f"event {place} covers {words}, and tells {found}")


@pytest.mark.parametrize(
    ("seeds", "storage", "faults", "processes"),
    [
        (15, "memory", (), 1),
        (20, "memory", ("crash", "users"), 1),
        (6, "sqlite", ("crash", "storage", "users"), 2),
        pytest.param(60, "memory", (), 1, marks=pytest.mark.slow),
        pytest.param(80, "memory", ("crash", "users"), 1, marks=pytest.mark.slow),
        pytest.param(25, "sqlite", ("crash", "storage", "users"), 2, marks=pytest.mark.slow),
    ],
    ids=["calm", "in trouble", "on disk", "calm, many", "in trouble, many", "on disk, many"],
)
def test_summaries_tell_what_they_cover(seeds: int, storage: Storage, faults: tuple[str, ...], processes: int) -> None:
    """Whoever dies or leaves meanwhile, in one process or two; and there are summaries."""
    if storage == "sqlite" and why_unavailable() is not None:
        pytest.skip(str(why_unavailable()))
    coverage: Counter[str] = Counter()
    for seed in range(seeds):
        choices = SeededChoices(seed)
        outcome = simulate(chronicle, choices, storage=storage, faults=faults, processes=processes, deep=True)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        coverage += outcome.coverage
    assert coverage["a summary"] > seeds / 4, coverage
    assert coverage["a summary by a supervisor"] > (seeds / 12 if seeds > 20 else 0), coverage


def test_a_world_with_summaries_follows_from_its_seed() -> None:
    """The same seed twice gives the same world, byte for byte."""
    options = {"storage": "memory", "faults": ("crash", "users")}
    outcomes = [explored.outcome for explored in explore(chronicle, range(0, 300, 100), options)]
    assert [outcome.failure for outcome in outcomes] == [None] * 3
