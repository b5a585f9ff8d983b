"""What simulations tell of a failure, what they keep of it, and how many seeds are searched for one."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from minirun import LlmAgent
from minirun._codec import to_json
from minirun.errors import ConfigurationError
from minirun.events import Event, EventActions
from minirun.simulation import (
    Choice,
    Choices,
    CoverageError,
    LivelockError,
    LogEntry,
    NondeterminismError,
    Outcome,
    RecordedChoices,
    SeededChoices,
    World,
    _schedule,
)
from minirun.simulation._explore import check_reached, checked_options, plain_options, shrink_with, stripped
from minirun.simulation._kept import Kept, KeptFileError, file_of, keep, kept_of, read_kept
from minirun.simulation._report import in_words, report, task_in_words, tidied, with_note
from minirun.testing import ScriptedLlm, call

from .stores import explore, replay, shrink, simulate
from .stores.strategy import worlds

MEMORY = {"storage": "memory"}


def outcome_of(log: list[LogEntry], *choices: Choice) -> Outcome:
    return Outcome(ValueError("no"), log, choices, coverage=Counter(), steps=0)


# --- choices in words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/scenario", "the scenario"),
        ("/scenario/process 2", "process 2"),
        ("/scenario/process 1/say ada 1", "ada"),
        ("/scenario/process 1/say ada lovelace 2", "ada lovelace's message 2"),
        ("/scenario/process 1/say ada 2:9", "ada's message 2 (try 9)"),
        ("/scenario/process 1/say ada 1 again", "ada (sent again)"),
        ("/scenario/process 1/say ada 1 leaving:2", "ada (patience, try 2)"),
        ("/scenario/process 1/say ada 1/minirun committer of e-1f", "the committer of ada"),
        ("/scenario/process 1/say ada 1/minirun agent bank of e-1f", "agent `bank` of ada"),
        ("/scenario/process 1/say ada 1/minirun agent bank of e-1f/tool transfer", "tool `transfer` of ada"),
        ("/scenario/process 1/say ada 3/minirun agent a of e-1f/tool t:3", "tool `t` (3rd) of ada's message 3"),
        ("/scenario/process 1/say ada 1/minirun agent a of e-1f/tool t:11/helper", "task `helper` of ada"),
        ("/scenario/say:2", "task `say` (2nd)"),
        ("/scenario/mine:12", "task `mine` (12th)"),
        ("", "the scenario"),
    ],
)
def test_tasks_have_names_for_people(name: str, words: str) -> None:
    """What it is and whose, without the places in between and without ids."""
    assert task_in_words(name) == words


def test_choices_are_told_in_the_order_in_which_they_came_true() -> None:
    """Dull ones and those of machinery are left out, equal steps are one line, and a question is told its answer."""
    names = ("/scenario", "/scenario/process 1/say ada 1", "/scenario/process 1/say bob 1")
    trace = [
        Choice("order within trio", 2**16, 7),
        Choice("policy", 4, 1),
        Choice("power is lost after write 7", 4096, 3, came_true=6),
        Choice("stall: when", 4096, 99),
        Choice("step 3", 3, 2, names),
        Choice("step 4", 3, 2, names),
        Choice("step 5", 3, 0, names),
        Choice("which process is asked", 2, 1),
        Choice("how the tool fails", 2, 1, ("raises", "hangs")),
        Choice("step 7", 3, 2, names),
    ]
    assert list(in_words(trace)) == [
        "steps 3 to 4: bob runs before the scenario, ada",
        "after step 4: power is lost after write 7",
        "after step 5: which process is asked: 1 of 2",
        "after step 5: how the tool fails: hangs",
        "step 7: bob runs before the scenario, ada",
    ]


@given(st.lists(st.builds(Choice, st.text(), st.integers(2, 9), st.integers(0, 1), came_true=st.none() | st.just(3))))
@example([Choice("step 1", 3, 2, ("one", "two"))])
def test_whatever_was_chosen_can_be_told(trace: list[Choice]) -> None:
    """A label may be anything, and the names may be too few."""
    assert all(isinstance(line, str) for line in in_words(trace))


# --- the log as a table -----------------------------------------------------------------------------------------------


def test_the_log_is_a_table() -> None:
    """Time, who, what, and of an event its seq, author, content and changes of state; empty columns are left out."""
    actions = EventActions(state_delta={"app:ada": 90, "gone": None})
    event = Event(message="hi\n", author="bank", seq=2, actions=actions)
    log = [LogEntry(0.0, "process 1", "begins"), LogEntry(1.5, "ada", "sees", to_json(event))]
    assert report(outcome_of(log)).splitlines()[-3:] == [
        "  time s    who        what    seq  author  content  state",
        "  0.000000  process 1  begins",
        '  1.500000  ada        sees    2    bank    "hi\\n"   app:ada = 90; gone = null',
    ]
    assert "seq" not in report(outcome_of(log[:1]))


@given(st.lists(st.builds(LogEntry, st.just(0.0), st.text(), st.text(), st.none() | st.text()), max_size=100))
def test_whatever_happened_fits_a_screen(log: list[LogEntry]) -> None:
    """A report has a bounded number of bounded lines, in which nothing can move the cursor."""
    lines = report(outcome_of(log)).split("\n")
    assert len(lines) <= 64
    assert all(line.isprintable() and len(line) <= 250 for line in lines)


def test_a_traceback_is_the_users() -> None:
    """It begins in the scenario, without the frames of trio and of the simulation, and without groups."""

    async def fails() -> None:
        raise ValueError("no")

    async def scenario(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)

    failure = simulate(scenario, RecordedChoices([]), storage="memory").failure
    assert failure is not None
    assert isinstance(failure.__cause__, BaseExceptionGroup)
    shown = "".join(traceback.format_exception(tidied(failure)))
    assert re.findall(r'File ".*[/\\](\w+\.py)"', shown) == ["test_simulation_reports.py"]
    assert "Group" not in shown


def test_an_outcome_is_checked_with_its_report() -> None:
    """`check()` raises the failure with what was chosen and what happened; a good outcome is returned."""

    async def scenario(world: World) -> None:
        world.note("ada", "is here")
        if world.choices.choose(2, "the bridge falls"):
            raise ValueError("no way")

    good = simulate(scenario, RecordedChoices([]), storage="memory")
    assert good.check() is good
    with pytest.raises(ValueError, match="no way") as caught:
        simulate(scenario, RecordedChoices([0] * (len(good.picks) - 1) + [1]), storage="memory").check()
    [note] = caught.value.__notes__
    assert "before the first step: the bridge falls" in note
    assert "is here" in note


# --- searching --------------------------------------------------------------------------------------------------------


async def walk(world: World) -> None:
    """Fails where three numbers are large enough, wherever they stand."""
    large = [number for number in (world.choices.choose(100, "a number") for _ in range(30)) if number >= 90]
    world.reached("walked")
    if len(large) >= 3:
        raise ValueError("three")


def test_a_failure_is_shrunk_and_fails_again() -> None:
    """What is left is what matters, as small as it can be, and explored seeds after it go on."""
    found = list(explore(walk, range(25), MEMORY))
    assert [one.seed for one in found] == list(range(25))
    failing = next(one for one in found if one.outcome.failure is not None)
    assert [choice.picked for choice in failing.outcome.trace if choice.picked] == [90, 90, 90]
    assert failing.found_choices > 30
    again = replay(walk, stripped(failing.outcome.picks), MEMORY)
    assert (type(again.failure), again.digest) == (ValueError, failing.outcome.digest)


def test_what_is_not_worth_shrinking_is_left_as_it_is() -> None:
    """Whoever has seen a failure of this kind already saves the time."""
    left = next(one for one in explore(walk, range(60), MEMORY, shrinks=lambda _: False) if one.outcome.failure)
    assert len(left.outcome.picks) == left.found_choices


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("log", "entry 2 of the log is '0.000000 ada says "),
        ("choices", "choice 4 is 'question "),
        ("failure", "the one ends with \"ValueError('"),
        ("end", "the one ends with "),
    ],
)
def test_what_differs_between_two_runs_is_named(kind: str, told: str) -> None:
    """The first entry, or else choice, or else failure in which they differ."""
    runs: list[int] = []

    async def scenario(world: World) -> None:
        runs.append(1)
        if kind == "log":
            world.note("ada", f"says {len(runs)}")
        elif kind == "choices":
            world.choices.choose(2, f"question {len(runs)}", lambda luck: 1)
        elif kind == "failure" or len(runs) % 2:
            raise ValueError(str(len(runs)))

    outcome = next(explore(scenario, [0], MEMORY)).outcome
    assert isinstance(outcome.failure, NondeterminismError)
    assert told in str(outcome.failure)


def test_addresses_in_a_message_are_no_difference() -> None:
    """The message of a failure may show an object as Python does; that does not decide anything."""

    async def scenario(world: World) -> None:
        raise ValueError(object())

    keep_alive = []
    for one in explore(scenario, [0, 20], MEMORY):
        keep_alive.append(object())
        assert isinstance(one.outcome.failure, ValueError)


def test_a_pass_that_differs_is_found_every_twentieth_seed() -> None:
    """Seeds that do not fail are compared, too, so that no search goes on with a scenario that cannot be replayed."""
    runs: list[int] = []

    async def scenario(world: World) -> None:
        runs.append(1)

    list(explore(scenario, range(1, 41), MEMORY))
    assert len(runs) == 42


def test_pytests_failures_are_failures_and_its_other_ends_are_not() -> None:
    """`pytest.fail()` is shrunk as any error; skipping goes through at once."""

    async def scenario(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends)

    async def ends() -> None:
        end("so it is")

    end: Callable[[str], object] = pytest.fail
    outcome = next(explore(scenario, [1], MEMORY)).outcome
    assert isinstance(outcome.failure, pytest.fail.Exception)
    for end, kind in ((pytest.skip, pytest.skip.Exception), (pytest.xfail, pytest.xfail.Exception)):  # noqa: B007
        with pytest.raises(kind, match="so it is"):
            next(explore(scenario, [1], MEMORY))


def test_shrinking_is_bounded() -> None:
    """However long a failure's list is, it is tried so many times and not more."""
    runs: list[int] = []

    async def scenario(world: World) -> None:
        runs.append(1)
        if sum(world.choices.choose(100, "a number") for _ in range(300)) > 10_000:
            raise ValueError("much")

    found = simulate(scenario, RecordedChoices([0, 0, *[99] * 300]), storage="memory")
    shrink(scenario, found, runs_max=50, storage="memory")
    assert len(runs) == 51


@pytest.mark.parametrize(
    ("failure", "steps", "runs"),
    [(ValueError("much"), 30, 4), (LivelockError("no end"), 30, 1), (LivelockError("no end"), 20_000, 1)],
)
def test_shrinking_is_bounded_in_steps(failure: Exception, steps: int, runs: int) -> None:
    """It ends with the run that reaches the bound; one without end counts as many steps as any may take."""
    ran: list[int] = []

    def run(picks: Sequence[int]) -> Outcome:
        if not picks:  # tried first: no choice at all
            return Outcome(None, (), (), Counter(), 0)
        ran.append(1)
        return Outcome(failure, (), tuple(Choice("a", 9, pick) for pick in picks), Counter(), steps)

    shrink_with(run, run([8] * 300), steps_max=100)
    assert len(ran) == 1 + runs


def test_what_hangs_whatever_is_chosen_is_simulated_four_times() -> None:
    """The seed, the same again, without choices, and that again: each takes seconds."""
    runs: list[int] = []

    async def scenario(world: World) -> None:
        runs.append(1)
        for _ in range(100):
            world.choices.choose(100, "a number")
        raise LivelockError("no end")

    [explored] = explore(scenario, [1], MEMORY)
    assert not any(explored.outcome.picks)
    assert len(runs) == 4


def test_what_goes_on_without_end_is_shrunk_in_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed, the same again, four tries and what is left of it: each takes seconds."""
    monkeypatch.setattr(_schedule, "TURNS_MAX", 3_000)
    turns = 0

    async def scenario(world: World) -> None:
        nonlocal turns
        chosen = [world.choices.choose(2, "whether it spins") for _ in range(100)]
        while any(chosen):
            turns += 1
            await trio.lowlevel.checkpoint()

    [explored] = explore(scenario, [1], MEMORY)
    assert isinstance(explored.outcome.failure, LivelockError)
    assert "no end after 3000 turns" in str(explored.outcome.failure)
    assert len(explored.outcome.picks) <= explored.found_choices
    assert turns <= 7 * 3_000


@dataclass(frozen=True)
class FrozenError(Exception):
    """Refuses every note."""

    code: int


def test_a_failure_that_refuses_notes_is_told_with_them() -> None:
    """What refuses them would be raised in its place, and its report be lost."""

    async def scenario(world: World) -> None:
        raise FrozenError(3)

    [explored] = explore(scenario, [0], MEMORY)
    with pytest.raises(FrozenError) as caught:
        explored.outcome.check()
    assert "what happened:" in caught.value.__notes__[0]
    with_note(caught.value, "another")
    assert caught.value.__notes__[1:] == ["another"]


def test_a_tool_that_fails_in_every_seed_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the runtime logs of it goes to handlers that somebody has set up, and not to Python's last resort."""
    printed: list[logging.LogRecord] = []

    class Stderr(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            printed.append(record)

    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging, "lastResort", Stderr())
    logger = logging.getLogger("minirun")
    before = list(logger.handlers)

    def fail() -> None:
        """Fail."""
        raise ValueError("no")

    def answer(request: Any) -> Any:
        return "done" if request.contents[-1].parts[-1].function_response else call("fail")

    async def scenario(world: World) -> None:
        await world.say(
            world.runner(lambda: LlmAgent(name="a", model=ScriptedLlm(answer), tools=[fail])), "ada", "hello"
        )

    simulate(scenario, SeededChoices(1), storage="memory").check()
    assert not printed
    assert logger.handlers == before


def test_what_must_be_reached_is_named_with_what_was() -> None:
    """A counter that stayed 0 is an error that says what was counted instead."""
    check_reached(["crash"], {"crash": 1}, 3)
    with pytest.raises(CoverageError, match=r"3 seeds have never reached 'flood', 'fire'; .* crash \(2\)"):
        check_reached(["flood", "crash", "fire"], {"crash": 2, "fire": 0}, 3)
    with pytest.raises(CoverageError, match="they have reached: nothing"):
        check_reached(["flood"], {}, 3)


def test_options_have_one_form() -> None:
    """However faults are named, equal options are equal, and what makes no sense is refused."""
    assert checked_options(faults="crash") == checked_options(faults=["crash", "crash"], processes=1)
    assert checked_options(faults=iter(["model", "crash"]))["faults"] == ["crash", "model"]
    refused: list[dict[str, Any]] = [{"faults": "flood"}, {"faults": 3}, {"store": "memory"}, {"observers": ["a"]}]
    for bad in (*refused, {"processes": True}):
        with pytest.raises(ConfigurationError):
            checked_options(**bad)


# --- what is kept -----------------------------------------------------------------------------------------------------

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "failure.json"


@given(test=st.text(), seed=st.integers(0), message=st.text(), choices=st.lists(st.integers(0, 9)))
def test_what_is_kept_is_read_back(place: Path, test: str, seed: int, message: str, choices: list[int]) -> None:
    """Every character of it; two tests have two files whatever their names."""
    kept = Kept(test, seed, plain_options(checked_options()), "ValueError", message, tuple(choices), "0.1")
    keep(place, kept)
    assert read_kept(place) == kept
    assert (file_of(place, test) == file_of(place, "other")) is (test == "other")
    assert len(file_of(place, test).name) < 130


@given(
    content=st.binary() | JSONS.map(lambda value: json.dumps(value).encode()), name=st.none() | st.text(), value=JSONS
)
def test_what_is_damaged_is_one_error(place: Path, content: bytes, name: str | None, value: object) -> None:
    """Whatever a file holds, it is a kept failure or a KeptFileError."""
    if name is not None:
        keep(place, Kept("t", 1, plain_options(checked_options()), "E", "", (1,), "0"))
        found = json.loads(place.read_text())
        content = json.dumps({**found, sorted(found)[len(name) % len(found)]: value}).encode()
    place.write_bytes(content)
    with suppress(KeptFileError):
        assert isinstance(read_kept(place), Kept)


def test_what_is_kept_of_a_failure() -> None:
    """Its type and message, the options, and the choices up to the last that is not dull."""
    outcome = outcome_of([], Choice("a", 2, 1), Choice("b", 2, 0))
    kept = kept_of("t", 17, checked_options(), outcome)
    assert (kept.failure, kept.message, kept.choices, kept.seed) == ("ValueError", "no", (1,), 17)


# --- hypothesis -------------------------------------------------------------------------------------------------------


def test_hypothesis_finds_and_shrinks_a_world() -> None:
    """A failure in a simulation is one of the property, with the report, and its choices are made small."""

    @settings(max_examples=500, database=None, derandomize=True, phases=[Phase.generate, Phase.shrink])
    @given(choices=worlds())
    def holds(choices: Choices) -> None:
        simulate(walk_a_little, choices, storage="memory").check()

    with pytest.raises(ValueError, match="large") as caught:
        holds()
    notes = "\n".join(caught.value.__notes__)
    assert re.search(r"choices that are not dull:\n(  before the first step: .+\n)*  .+: a number: 9\d of 100\n", notes)
    assert "DrawnChoices(b'" in notes


async def walk_a_little(world: World) -> None:
    if world.choices.choose(100, "a number") >= 90:
        raise ValueError("large")
