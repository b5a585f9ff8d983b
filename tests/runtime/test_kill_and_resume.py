"""
An invocation whose process is killed at any moment goes on in another one, and nothing recorded is done again.

The processes are real, and so is their death; what they run is in mortals.py. Each test compares the log that is left
in the end with that of a process which nobody disturbed, and counts the effects of every life.
"""

from __future__ import annotations

import itertools
import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import trio

from minirun import Event, SqliteSessionService

from ..ledger import Forker, forker
from ..mortals import MOMENTS, POLICIES, SCENARIOS, effects_beside
from ..sessions.test_session_properties import check_file
from ..stores import HERE

UNKNOWN = "outcome_unknown"
DURABILITIES = ("power", "process")
# No scenario has more moments of a kind; who has not ended after so many lives never will.
LIVES_MAX = 200

Fates = Iterable[tuple[str, int]]


@pytest.fixture(scope="module")
def forks() -> Forker:
    """Where processes come from."""
    return forker("tests.mortals")


@attrs.define
class Story:
    """What became of one invocation: its log, which of its processes died, and how often each effect has happened."""

    log: list[Event]
    deaths: list[bool]
    effects: Counter[str]


async def read(path: Path) -> tuple[list[Event], list[str], int]:
    """The log, the status of the invocations, and how many questions are open."""
    async with SqliteSessionService(path, durability="process") as service:
        if await service.get_session(**HERE) is None:
            return [], [], 0
        log = await service.read_events(**HERE, after_seq=0)
        statuses = [str(one.status) for one in await service.list_invocations()]
        return log, statuses, len(await service.list_pending(include_timers=True))


def calls_of(log: Sequence[Event]) -> dict[str, str]:
    """The stored calls, by id."""
    return {call.id or "": call.name for event in log for call in event.get_function_calls()}


def responses_of(log: Sequence[Event]) -> dict[str, Any]:
    """What calls were answered with, by id."""
    return {one.id or "": one.response for event in log for one in event.get_function_responses()}


def is_unknown(response: Any) -> bool:
    return bool((response.get("error") or {}).get("type") == UNKNOWN)


def recorded_in(log: Sequence[Event]) -> set[str]:
    """The keys of the effects whose results are stored: of calls that are answered, of steps, and of ended nodes."""
    steps = {event.id or "" for event in log if (event.custom_metadata or {}).get("step")}
    ended = {f"node {event.actions.replay.ended}" for event in log if event.actions.replay.ended is not None}
    return steps | ended | set(responses_of(log))


def effects_of(path: Path) -> Counter[str]:
    """How often each effect has happened in the world."""
    file = effects_beside(path)
    return Counter(file.read_text("utf-8").splitlines() if file.exists() else [])


def tell(
    forks: Forker,
    folder: Path,
    scenario: Sequence[Any],
    fates: Fates = (),
    *,
    durability: str = "process",
    at_once: bool = True,
) -> Story:
    """
    Let processes live, one after another, each with the next of *fates* or none, until the invocation has ended.

    *at_once* says whether who comes after a death answers the open question, or first goes on with what was cut off.
    """
    folder.mkdir(parents=True)
    path = folder / "a.db"
    policy = scenario[1] if scenario[0] == "two_tools" and len(scenario) > 1 else "rerun"
    upcoming, deaths, before = iter(fates), list[bool](), Counter[str]()
    log: list[Event] = []
    for life in range(LIVES_MAX):
        moment, number = next(upcoming, ("", 0))
        said = folder / f"{life}.said"
        options = {"scenario": scenario, "moment": moment, "number": number, "durability": durability}
        pid = forks.start("live", path, said, answers_at_once=at_once, **options)
        status = forks.ends(pid)
        assert status in (0, -signal.SIGKILL), said.read_text()
        deaths.append(status != 0)
        earlier, (log, statuses, pending) = log, trio.run(read, path)
        check_life(earlier, log, before, effects_of(path), policy)
        before = effects_of(path)
        check_status(log, statuses, pending, said, died=status != 0)
        if statuses == ["completed"]:
            check_end(log, before, pending)
            check_file(path)
            shutil.rmtree(folder)
            return Story(log, deaths, before)
        assert statuses in ([], ["paused"], ["interrupted"]), said.read_text()
    raise AssertionError(f"{scenario} has not ended after {LIVES_MAX} lives: {log}")


def check_life(
    earlier: Sequence[Event], log: Sequence[Event], before: Counter[str], after: Counter[str], policy: str
) -> None:
    """A life keeps what was stored, repeats no recorded effect, and none that its tool does not want repeated."""
    assert log[: len(earlier)] == earlier
    recorded, begun = recorded_in(earlier), calls_of(earlier)
    for key in after:
        times = after[key] - before[key]
        assert 0 <= times <= 1
        assert not (times and key in recorded), f"the effect of {key} is recorded, and happened again"
        if policy == "report":
            assert not (times and key in begun), f"the call {key} may have happened, and was made again"


def check_status(log: Sequence[Event], statuses: Sequence[str], pending: int, said: Path, *, died: bool) -> None:
    """Who ended by itself has recorded how; who died is listed as interrupted, if it had not just ended."""
    if not log:
        assert (statuses, pending) == ([], 0)
    elif not died:
        ended = json.loads(said.read_text().splitlines()[-1])
        assert statuses == [ended["status"]]
    assert pending or statuses != ["paused"]


def check_end(log: Sequence[Event], effects: Counter[str], pending: int) -> None:
    """Nothing is open; each recorded effect has happened, where that is known; no event is stored twice."""
    assert pending == 0
    assert sorted(calls_of(log)) == sorted(responses_of(log))
    ids = [event.id for event in log]
    assert len(set(ids)) == len(ids)
    answered = [one.id for event in log for one in event.get_function_responses()]
    assert len(set(answered)) == len(answered)
    for key in recorded_in(log) & set(effects):
        assert effects[key] >= 1
    steps = {event.id for event in log if (event.custom_metadata or {}).get("step")}
    responses, calls = responses_of(log), calls_of(log)
    notes = {key for key, name in calls.items() if name == "note" and not is_unknown(responses[key])}
    assert steps | notes <= set(effects)


def said(log: Sequence[Event]) -> list[Any]:
    """What stands in a log, without what only says that somebody went on, or that a call waits for a question in it."""
    return [
        (event.id if event.author != "user" else "", event.author, event.branch, event.content, event.actions)
        for event in log
        if event.content is not None or not (event.author == "user" or event.actions.suspended_calls)
    ]


def by_branch(log: Sequence[Event]) -> dict[str | None, list[Any]]:
    """The same, apart for each branch, as those have no order between them."""
    branches: dict[str | None, list[Any]] = {}
    for entry in said(log):
        branches.setdefault(entry[2], []).append(entry)
    return branches


def check_same(scenario: Sequence[Any], found: Story, undisturbed: Story) -> None:
    """
    Compare a log with that of an invocation that nobody disturbed.

    Where nobody knows what became of a call, or somebody was asked, the words and the other responses are the same.
    """
    policy = scenario[1] if scenario[0] == "two_tools" and len(scenario) > 1 else "rerun"
    if policy == "rerun":
        expected, branches = by_branch(undisturbed.log), by_branch(found.log)
        assert expected.keys() == branches.keys()
        for branch, entries in expected.items():
            for one, other in itertools.zip_longest(branches[branch], entries):
                assert one == other, branch
        if scenario[0] not in ("parallel", "nested", "graph"):
            assert said(found.log) == said(undisturbed.log)
        return
    assert [e.text for e in found.log if e.text] == [e.text for e in undisturbed.log if e.text]
    answers = responses_of(found.log)
    for key, response in responses_of(undisturbed.log).items():
        assert answers[key] == response or (policy == "report" and is_unknown(answers[key]))


@pytest.fixture(scope="module")
def undisturbed(forks: Forker, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Story]:
    """What becomes of a scenario, by its name and its arguments, where nobody disturbs it; told once."""

    @cache
    def told(*scenario: Any) -> Story:
        return tell(forks, tmp_path_factory.mktemp("undisturbed") / "0", scenario)

    return told


# --- the tests --------------------------------------------------------------------------------------------------------


def lives_at(moment: str, number: int) -> Iterator[tuple[str, int]]:
    """Fates of which each ends at the same moment, as long as that gets on."""
    return itertools.repeat((moment, number), LIVES_MAX // 2)


# These take more than twenty processes each, in ways that the others take, too.
LONG = ("graph", "custom", "transfer")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in SCENARIOS]
)
def test_processes_that_die_after_every_event_end_what_they_began(
    name: str, undisturbed: Callable[..., Story], forks: Forker, tmp_path: Path
) -> None:
    """Where each process is killed as it holds its first event, the log in the end is that of one that lived."""
    story = tell(forks, tmp_path / "1", [name], lives_at("stored", 2), durability="power")
    check_same([name], story, undisturbed(name))
    assert len(story.deaths) >= len(undisturbed(name).log) - 2  # who waits has not died


@pytest.mark.parametrize("name", SCENARIOS)
def test_who_dies_at_some_moment_is_survived_by_its_invocation(
    name: str, undisturbed: Callable[..., Story], forks: Forker, tmp_path: Path
) -> None:
    """The same for two deaths at moments of all kinds, some of them: the slow test has all."""
    luck = Random(name)
    for number in range(1):
        fates = [(luck.choice(MOMENTS), luck.randint(1, 9)), (luck.choice(MOMENTS), luck.randint(1, 5))]
        story = tell(forks, tmp_path / f"m{number}", [name], fates, durability=luck.choice(DURABILITIES), at_once=False)
        check_same([name], story, undisturbed(name))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["first", "second", "twice"])
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_who_dies_at_any_moment_is_survived_by_its_invocation(
    name: str,
    moment: str,
    durability: str,
    when: str,
    undisturbed: Callable[..., Story],
    forks: Forker,
    tmp_path: Path,
) -> None:
    """The same for every moment of every kind: of the first process, of the one that answers, and of two in a row."""
    kills = 0
    for number in itertools.count(1):
        fate = (moment, number)
        fates = {"first": [fate], "second": [("", 0), fate], "twice": [fate, (moment, 1 + number % 3)]}[when]
        folder, at_once = tmp_path / f"m{number}", bool(number % 2) == (when == "first")
        story = tell(forks, folder, [name], fates, durability=durability, at_once=at_once)
        check_same([name], story, undisturbed(name))
        kills += sum(story.deaths)
        if not dict(enumerate(story.deaths)).get(when == "second"):
            print(name, moment, durability, when, number - 1, kills)
            return


@pytest.mark.parametrize("policy", POLICIES)
def test_what_may_have_happened_is_settled_as_the_tool_says(
    policy: str, undisturbed: Callable[..., Story], forks: Forker, tmp_path: Path
) -> None:
    """Killed between effect and record, a call is reported, made again, or made again once somebody allows it."""
    for number in (1, 3):
        story = tell(forks, tmp_path / f"{number}", ["two_tools", policy], [("effect", number)])
        check_same(["two_tools", policy], story, undisturbed("two_tools", policy))
        assert sum(story.deaths) == 1
        unknown = [key for key, response in responses_of(story.log).items() if is_unknown(response)]
        repeated = [key for key, times in story.effects.items() if times > 1]
        assert (bool(unknown), bool(repeated)) == (policy == "report", policy != "report")
        questions = [name for name in calls_of(story.log).values() if name != "note"]
        assert len(questions) == (policy == "ask") * (1 if number == 3 else 2)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("moment", MOMENTS)
def test_what_may_have_happened_is_settled_whenever_it_was(
    policy: str, moment: str, forks: Forker, tmp_path: Path
) -> None:
    """The same for a death at every moment, and for a second one while that is settled."""
    undisturbed = tell(forks, tmp_path / "0", ["two_tools", policy])
    for number in itertools.count(1):
        for second in (0, 1, 2, 4):
            folder = tmp_path / f"{number} {second}"
            fates = [(moment, number), (moment, second)]
            story = tell(forks, folder, ["two_tools", policy], fates, at_once=bool(second % 2))
            check_same(["two_tools", policy], story, undisturbed)
        if not story.deaths[0]:
            return


def pauses(forks: Forker, folder: Path, depth: int, times: int, fates: Fates = ()) -> tuple[Story, Story]:
    """An invocation that pauses so often so deep, each time until another process comes, and one with *fates*."""
    scenario = ["nested", depth, times]
    calm = tell(forks, folder / f"{depth} {times}", scenario)
    assert calm.deaths == [False] * (times + 1)
    steps = [event.output for event in calm.log if event.actions.replay.step is not None]
    assert steps == [f"asks to asks {number}" for number in range(times)]
    assert max(calm.effects.values()) == 1
    story = tell(forks, folder / f"{depth} {times} again", scenario, fates)
    check_same(scenario, story, calm)
    return calm, story


@pytest.mark.parametrize(("depth", "times"), [(1, 2), (2, 1)])
def test_pauses_at_any_depth_outlive_their_processes(depth: int, times: int, forks: Forker, tmp_path: Path) -> None:
    """Each answer comes to a new process, which goes on where the question was; also where all die at each event."""
    calm, story = pauses(forks, tmp_path, depth, times, lives_at("stored", 2))
    assert sum(story.deaths) > len(calm.log) / 2


@pytest.mark.slow
@pytest.mark.parametrize("moment", [*MOMENTS, "nothing"])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_pauses_at_all_depths_outlive_their_processes(
    depth: int, times: int, moment: str, forks: Forker, tmp_path: Path
) -> None:
    """The same for each depth and number, where every process dies at its first moment that lets anything be stored."""
    first = {"stored": 2, "point": 4, "effect": 1, "before commit": 3, "after commit": 2}.get(moment, 0)
    for number in range(first, first + 3 if first else 1):
        _, story = pauses(forks, tmp_path / str(number), depth, times, itertools.islice(lives_at(moment, number), 15))
        print(depth, times, moment, number, sum(story.deaths), len(story.deaths))
