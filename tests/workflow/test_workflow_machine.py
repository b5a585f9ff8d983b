"""
Workflows that nobody has thought of keep the laws: whatever is cut off comes to the same, and nothing is done twice.

The graphs are drawn by hypothesis (see graphs.py): functions, joins, routes, maps, questions, timers, failing attempts,
agents with tools, graphs in graphs, cycles and nodes that run others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from minirun import Event, RunConfig, Runner, SqliteSessionService
from minirun.errors import NodeRunsLimitExceededError
from minirun.flows._going_on import goes_on
from minirun.simulation import Choices, RecordedChoices, SeededChoices, simulate, why_unavailable
from minirun.simulation._strategy import worlds
from minirun.workflow import _running
from minirun.workflow._graph import Plan

from ..examples import examples
from ..graph_laws import attempts_in, check_graph_log, folded, outcomes_of
from ..graphs import Ground, build
from ..runtime.test_prefixes import bring_to_its_end, cut, open_calls, reply_to, runner_of, status_of, store, whole_log
from ..runtime.test_resume import PLACE, log_of
from ..sketches import Sketch, draw
from ..worlds import WORLDS
from .test_workflow_runs import outcomes, without_hashes, words

LONG = settings(deadline=None)


def run(function: Any, *arguments: Any) -> Any:
    """Run it in virtual time: attempts wait for each other."""
    return trio.run(function, *arguments, clock=MockClock(autojump_threshold=0))


def sketches() -> st.SearchStrategy[Sketch]:
    """Graphs of at most 8 nodes."""
    return worlds().map(draw)


# --- whatever is cut off ----------------------------------------------------------------------------------------------


async def check_cuts(sketch: Sketch, cuts: Sequence[float] | None) -> None:
    """Let processes die after some events, or after each of them, and others go on."""
    log = await whole_log(lambda: build(sketch, Ground()))
    check_graph_log(sketch, log, is_over=True)
    places = range(1, len(log)) if cuts is None else sorted({1 + int(part * (len(log) - 1)) for part in cuts})
    for count in places:
        await check_cut(sketch, log, count)


async def check_cut(sketch: Sketch, log: Sequence[Event], count: int) -> None:
    """Go on from a prefix of the log: nothing that is recorded in it is done again, and the end is the same."""
    ground = Ground()
    async with store() as service:
        invocation_id = await cut(service, log[:count])
        status = await bring_to_its_end(lambda: build(sketch, ground), service, invocation_id)
        found = await log_of(runner_of(build(sketch, ground), service))
    assert status == "completed", count
    assert open_calls(found) == set()
    check_graph_log(sketch, found, is_over=True)
    check_effects(ground, log[:count], found)
    if sketch.is_settled():
        assert outcomes(found) == outcomes(log), count
        assert words(found) == words(log), count


def check_effects(ground: Ground, before: Iterable[Event], after: Iterable[Event]) -> None:
    """What was recorded has not been done again; what is recorded now was done, once, then or now."""
    old, new = recorded(before), recorded(after)
    assert not old & ground.effects.keys()
    if any(goes_on(event) for event in after):  # a step that has failed is taken again with its key, and has another id
        assert len(new - old) <= len(ground.effects)
    else:
        assert new - old <= ground.effects.keys()
    assert max(ground.effects.values(), default=1) == 1
    assert not outcomes_of(list(before)).keys() & set(ground.entered), "a node that has ended is not entered again"
    assert not set(attempts_in(before)) & set(ground.attempted)


def recorded(log: Iterable[Event]) -> set[str]:
    """The keys of what is recorded: of steps, and of calls that are answered."""
    found = set()
    for event in log:
        step = event.actions.replay.step  # the failure of a node is recorded as one of its name
        if step is not None and step.name == "act" and event.error_code is None:
            found.add(event.id or "")
        responses = [one for one in event.get_function_responses() if "result" in one.response]
        found.update(one.id or "" for one in responses if (one.name or "").endswith("note"))
    return found


@given(sketch=sketches(), cuts=st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=3))
@settings(LONG, max_examples=examples(12))
def test_random_graphs_come_to_the_same_whatever_is_cut_off(sketch: Sketch, cuts: list[float]) -> None:
    """After any event the process may die: effects happen once, and outcomes are those of nobody disturbed."""
    run(check_cuts, sketch, cuts)


@pytest.mark.slow
@given(sketch=sketches())
@settings(LONG, max_examples=150)
def test_many_random_graphs_come_to_the_same_wherever_they_are_cut_off(sketch: Sketch) -> None:
    """The same for many, and after every event."""
    run(check_cuts, sketch, None)


# --- whatever fails, or is left ---------------------------------------------------------------------------------------


async def check_gone_on(sketch: Sketch, *, fails_at: int = 0, left_at: int = 0) -> bool:
    """
    Let something fail, or the caller leave the run at an event of it, and go on; return whether that has happened.

    What was recorded then is not done again, and the end is that of nobody disturbed.
    """
    log = await whole_log(lambda: build(sketch, Ground()))
    ground, message, seen, is_left = Ground(breaks_at=fails_at), "go", 0, False
    async with store() as service:
        runner = runner_of(build(sketch, ground), service)
        while message is not None and not (is_left or ground.has_broken):
            try:
                async with runner.run_async(**PLACE, new_message=message) as run:
                    async for event in run:
                        seen += event.seq is not None
                        is_left = seen == left_at
                        if is_left:
                            break
            except Exception:
                if not ground.has_broken:
                    raise
            message = await next_message(service, runner)
        before, has_ended = await log_of(runner), False
        status = await status_of(service, run.invocation_id)
        if status not in ("paused", "completed"):
            assert status in ("interrupted", "failed" if fails_at else "cancelled")  # the first before anything new
            has_ended = True
            ground = Ground()
            runner = runner_of(build(sketch, ground), service)
            async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
                await again.wait()
        status = await bring_to_its_end(lambda: build(sketch, ground), service, run.invocation_id)
        found = await log_of(runner)
    assert status == "completed"
    check_graph_log(sketch, found, is_over=True)
    assert open_calls(found) == set()
    if has_ended:
        check_effects(ground, before, found)
    if sketch.is_settled():
        assert without_hashes(found) == without_hashes(log)
    return has_ended


async def next_message(service: SqliteSessionService, runner: Runner) -> Any:
    """What somebody answers next, once all times have come that are waited for; None if nothing is asked."""
    while waiting := await service.list_pending(include_timers=True):
        if waiting[0].kind != "timer":
            return reply_to(waiting[0])
        await runner.resume_due(5e9)
    return None


@given(sketch=sketches(), place=st.integers(1, 12))
@settings(LONG, max_examples=examples(8))
def test_random_graphs_that_have_failed_are_gone_on_with(sketch: Sketch, place: int) -> None:
    """Where a node, a step, a model or a tool has failed, another run goes on, and comes to what would have been."""
    run(partial(check_gone_on, sketch, fails_at=place))


@given(sketch=sketches(), place=st.integers(1, 40))
@settings(LONG, max_examples=examples(8))
def test_random_graphs_that_were_left_are_gone_on_with(sketch: Sketch, place: int) -> None:
    """Where the caller has left the run, at any event, the same."""
    run(partial(check_gone_on, sketch, left_at=place))


# --- the plan and the log ---------------------------------------------------------------------------------------------


class Watched:
    """Compares each plan that a workflow has with the fold of what is stored, whenever it has folded something."""

    def __init__(self, sketch: Sketch, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folds = 0
        self._seqs: dict[tuple[Any, str], int] = {}  # keeps them: no id is used again
        fold, watched = _running._Running._fold, self
        sketches = {each.name: each for each in inside(sketch)}

        def fold_and_compare(running: Any, run_id: str, event: Event) -> None:
            fold(running, run_id, event)
            if running._workflow.name in sketches:  # a node may run graphs of its own
                watched.compare(running, sketches[running._workflow.name], event)

        monkeypatch.setattr(_running._Running, "_fold", fold_and_compare)

    def compare(self, running: Any, sketch: Sketch, event: Event) -> None:
        """Fold what is stored until *event*; nothing of it was folded later than what is stored after it."""
        context = running._context
        seq = event.seq or 0
        assert seq > self._seqs.get((running, context._path), 0), "outcomes are folded in the order of the log"
        self._seqs[running, context._path] = seq
        stored = [each for each in context._invocation.live.window(0) if (each.seq or 0) <= seq]
        expected: Plan = folded(sketch, context._path, running._input, stored)
        assert running._plan == expected
        assert running._plan.ready == expected.ready
        assert running._plan.waiting == expected.waiting
        self.folds += 1


def inside(sketch: Sketch) -> list[Sketch]:
    """A graph and those in it."""
    return [sketch, *(draft.inner for _, draft in sketch.all() if draft.inner is not None)]


@given(sketch=sketches(), part=st.floats(0, 1, exclude_max=True))
@settings(LONG, max_examples=examples(8))
def test_the_plan_is_the_fold_of_the_log_at_every_event(sketch: Sketch, part: float) -> None:
    """Live and resumed, the plan that a workflow goes by is what follows from what is stored until then."""

    async def check() -> int:
        log = await whole_log(lambda: build(sketch, Ground()))
        await check_cut(sketch, log, 1 + int(part * (len(log) - 1)))
        own = {draft.name for _, draft in sketch.all()}  # nodes that other nodes run are in no plan
        return sum(path.rpartition("/")[2].partition("@")[0] in own for path in outcomes_of(log))

    with pytest.MonkeyPatch.context() as monkeypatch:
        watched = Watched(sketch, monkeypatch)
        ended = run(check)
    assert watched.folds >= ended


# --- budgets ----------------------------------------------------------------------------------------------------------


@given(sketch=sketches(), limit=st.integers(1, 12))
@settings(LONG, max_examples=examples(15))
def test_no_random_graph_runs_past_its_budget(sketch: Sketch, limit: int) -> None:
    """With `max_node_runs`, a run begins so many nodes and fails, or comes to its end or a wait with fewer."""

    async def check() -> None:
        ground = Ground()
        async with store() as service:
            runner = runner_of(build(sketch, ground), service)
            config = RunConfig(max_node_runs=limit)
            async with runner.run_async(**PLACE, new_message="go", run_config=config) as run:
                try:
                    await run.wait()
                except NodeRunsLimitExceededError:
                    pass
            log = await log_of(runner)
        assert len(outcomes_of(log)) <= limit
        assert len(set(ground.entered)) <= limit
        check_graph_log(sketch, log, is_over=False)

    run(check)


# --- schedules --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
@given(choices=worlds())
@settings(LONG, max_examples=examples(8))
def test_one_seed_is_one_log(choices: Choices) -> None:
    """A world of users, crashes and a random graph that is lived twice is the same to the byte."""
    scenario, options = WORLDS["graphs in memory"]
    first = simulate(scenario, choices, **options)
    first.check()
    again = simulate(scenario, RecordedChoices(first.picks), **options)
    assert (again.digest, again.picks) == (first.digest, first.picks)


@pytest.mark.slow
@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
@pytest.mark.parametrize("name", ["graphs in memory", "calm graphs in memory", "graphs in two processes"])
def test_many_seeds_keep_the_laws(name: str) -> None:
    """A thousand worlds of random graphs fail nothing."""
    scenario, options = WORLDS[name]
    for seed in range(1000):
        simulate(scenario, SeededChoices(seed), **options).check()
