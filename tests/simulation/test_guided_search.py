"""A search that is guided by what its worlds have met together: mutations, the corpus, and its files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun import Event
from minirun.cli._workers import Search, corpus_of
from minirun.errors import ConfigurationError
from minirun.simulation import (
    Choices,
    Corpus,
    CorpusError,
    RecordedChoices,
    SeededChoices,
    World,
    explore,
    simulate,
    why_unavailable,
)
from minirun.simulation._behaviour import Note, features_of
from minirun.simulation._corpus import minimal
from minirun.simulation._explore import replay, settings
from minirun.simulation._mutate import MUTATIONS, MutatedChoices, answers_of, mutated

from ..finds import CORPORA, INPUTS_MAX
from ..mutating import ELSEWHERE, EVERYWHERE, world_of
from ..reference_worlds import SCENARIOS

MEMORY = {"storage": "memory"}
DOORS = ("first", "second", "third")
# Out of how many keys one opens a door: a fresh seed opens all three once in 8 000 times.
KEYS = 20


async def doors(world: World) -> None:
    """A bug behind three coincidences, each of which shows."""
    for place, door in enumerate(DOORS):
        if world.choices.choose(KEYS, "a key") != 7 + place:
            return
        world.reached(door)
    raise ValueError("a bug behind three doors")


def seeds_until_found(seeds: range, corpus: Corpus | None) -> int | None:
    """How many seeds it takes until one fails; None if none does."""
    for number, explored in enumerate(explore(doors, seeds, MEMORY, shrinks=lambda _: False, corpus=corpus), 1):
        if explored.outcome.failure is not None:
            return number
    return None


def test_guidance_finds_what_fresh_seeds_do_not() -> None:
    """A bug behind three coincidences: within 150 guided seeds, and not within 600 fresh ones."""
    assert seeds_until_found(range(600), None) is None
    assert seeds_until_found(range(150), Corpus()) is not None


def opened(choices: Choices) -> dict[int, int] | None:
    """The same without a world: the features of what was met, or None where the bug was found."""
    choices.choose(2**16, "order within trio")
    notes: list[Note] = [("begins", "", 1)]
    coverage: dict[str, int] = {}
    for place, door in enumerate(DOORS):
        if choices.choose(KEYS, "a key") != 7 + place:
            return features_of(notes, coverage)
        notes.append((f"counted: {door}", "", len(choices.trace)))
        coverage[door] = 1
    return None


@pytest.mark.parametrize("first", range(0, 100_000, 10_000))
def test_guidance_needs_no_luck(first: int) -> None:
    """Wherever the seeds begin, some 150 are enough, and 600 at most; fresh ones would need 8 000."""
    corpus = Corpus()
    for seed in range(first, first + 600):
        choices = (corpus.choices(seed) or (lambda: SeededChoices(seed)))()  # noqa: B023  # called at once
        features = opened(choices)
        if features is None:
            return
        corpus.learn(choices, features)
    pytest.fail("600 seeds have not found it")


def searched(seeds: range, corpus: Corpus, scenario: Any = SCENARIOS["money"]) -> list[tuple[str, str]]:
    """What a search does: what each world is, and what comes of it."""
    options = {**MEMORY, "faults": ("crash", "users")}
    return [(one.origin, one.outcome.digest) for one in explore(scenario, seeds, options, corpus=corpus)]


def test_the_same_seeds_and_corpus_are_the_same_search(tmp_path: Path) -> None:
    """What is mutated, how, and what comes of it follows from them; so does the corpus that is kept."""
    first, second = Corpus(tmp_path / "a", "test"), Corpus(tmp_path / "b", "test")
    found = searched(range(16), first)
    assert found == searched(range(16), second)
    assert any("mutation" in origin for origin, _ in found)
    for corpus in (first, second):
        corpus.save()
    files = [corpus.file.read_bytes() for corpus in (first, second) if corpus.file]
    assert files[0] == files[1]
    again, later = Corpus(tmp_path / "a", "test"), Corpus(tmp_path / "b", "test")
    assert searched(range(16, 20), again) == searched(range(16, 20), later)


def test_every_20th_seed_follows_from_nothing_else() -> None:
    """Another process, with other hashes, runs these: it knows no corpus."""
    found = [(one.seed, one.origin) for one in explore(doors, range(100), MEMORY, corpus=Corpus())]
    assert [found[seed] for seed in range(0, 100, 20)] == [(seed, f"seed {seed}") for seed in range(0, 100, 20)]
    assert {seed for seed, origin in found if "mutation" in origin} == {None}


# --- mutations --------------------------------------------------------------------------------------------------------


def simulated(choices: Choices, scenario: str = "money") -> Any:
    return simulate(SCENARIOS[scenario], choices, storage="memory", faults="all")


@pytest.mark.parametrize("scenario", ["money", "tools"])
@pytest.mark.parametrize("seed", range(3))
def test_the_answers_of_an_input_lead_where_it_has_led(scenario: str, seed: int) -> None:
    """Taken apart by kinds of questions and put together again, unchanged, it is the same world."""
    choices = SeededChoices(seed)
    outcome = simulated(choices, scenario)
    again = simulated(MutatedChoices(answers_of(choices), random.Random(0)), scenario)
    assert (again.digest, again.picks) == (outcome.digest, outcome.picks)


@pytest.mark.parametrize("mutation", dict.fromkeys(MUTATIONS), ids=lambda mutation: mutation.__name__)
def test_each_mutation_leads_elsewhere_and_can_be_replayed(mutation: Any) -> None:
    """It changes what happens, in one way only, and the bare numbers of what it has chosen lead there again."""
    choices, other = SeededChoices(1), SeededChoices(2)
    parent = simulated(choices)
    simulated(other)
    answers, others = list(answers_of(choices)), answers_of(other)
    ways = set()
    for place in range(0, len(answers), 10):
        changed = mutation(list(answers), others, place, random.Random(place))
        outcome = simulated(MutatedChoices(changed, random.Random(5)))
        assert simulated(MutatedChoices(changed, random.Random(5))).digest == outcome.digest
        assert simulated(RecordedChoices(outcome.picks)).digest == outcome.digest
        ways.add(outcome.digest)
    assert ways - {parent.digest}


def test_mutations_end_and_may_meet_nothing() -> None:
    """However little is left of an input, there is something to be simulated."""
    assert mutated([], [], 3, random.Random(1)) == []
    [answer] = answers_of(_chosen(2))
    for seed in range(50):
        assert len(mutated([answer], [], seed, random.Random(seed))) <= 40


def _chosen(options: int) -> Choices:
    choices = RecordedChoices([1])
    choices.choose(options, "which")
    return choices


def test_a_failure_of_a_mutation_is_kept_as_any_other() -> None:
    """It is shrunk, told as what it is, and its choices fail again without the corpus."""
    found = next(one for one in explore(doors, range(200), MEMORY, corpus=Corpus()) if one.outcome.failure is not None)
    assert found.seed is None
    assert found.origin.endswith("a mutation,")
    assert replay(doors, found.outcome.picks, MEMORY).digest == found.outcome.digest
    assert [choice.picked for choice in found.outcome.trace if choice.label == "a key"] == [7, 8, 9]


# --- coverage of behaviour --------------------------------------------------------------------------------------------


def noted(*whats: str | Event) -> list[Note]:
    return [(what, "/scenario/process 1/say ada 1", place) for place, what in enumerate(whats)]


def test_what_is_met_together_counts_and_ids_do_not() -> None:
    """The same things in another order are another behaviour; the same with other ids and numbers are none."""
    calm = features_of(noted("commit", "tool look#call-1", "counted: crash"), {"crash": 1})
    assert features_of(noted("commit", "tool look#call-2", "counted: crash"), {"crash": 1}) == calm
    assert set(features_of(noted("tool look#call-1", "commit", "counted: crash"), {"crash": 1})) - set(calm)
    assert set(features_of(noted("commit", "tool look#call-1", "counted: crash"), {"crash": 9})) - set(calm)
    said = features_of(noted(Event(author="a", message="x", timestamp=1.0)), {})
    assert said == features_of(noted(Event(author="a", message="y", timestamp=2.0)), {})
    assert said != features_of(noted(Event(author="b", message="x", timestamp=1.0)), {})


def test_counters_whose_names_differ_in_numbers_are_two() -> None:
    """`world.reached("level 2")` is the way of a scenario to say how far it came."""
    first, second = (features_of([], {f"level {level}": 1}) for level in (1, 2))
    assert not first.keys() & second.keys()
    first, second = (features_of([(f"counted: level {level}", "", 0)], {}) for level in (1, 2))
    assert not first.keys() & second.keys()


def test_features_are_the_same_in_every_process() -> None:
    """They are compared between processes, whose hashes differ; and each says where it was first met."""
    assert features_of(noted("commit", "commit"), {}) == {8725727642199173357: 0, 14006154537532742092: 1}


def test_a_world_is_the_same_whether_its_behaviour_is_looked_at_or_not() -> None:
    """It is computed from an outcome, after the simulation, and from nothing that a world did not note anyway."""
    one, other = (simulated(SeededChoices(4), "tools") for _ in range(2))
    assert one.behaviour == one.behaviour
    assert (one.behaviour, one.digest) == (other.behaviour, other.digest)
    assert len(one.behaviour) > 10
    assert one == other


# --- the corpus -------------------------------------------------------------------------------------------------------


def test_a_corpus_begins_the_next_search(tmp_path: Path) -> None:
    """What one search has reached is where the next one begins; the inputs come before the seeds."""
    corpus = Corpus(tmp_path, "doors")
    assert seeds_until_found(range(40), corpus) is None
    corpus.save()
    later = Corpus(tmp_path, "doors")
    assert 1 <= len(later.inputs) < 10
    explored = list(explore(doors, range(5000, 5002), MEMORY, corpus=later))
    assert [one.origin for one in explored[: len(later.inputs)]] == [
        f"input {number + 1} of the corpus" for number in range(len(later.inputs))
    ]
    assert len(explored) == len(later.inputs) + 2
    assert "first" in {name for one in explored for name in one.coverage}


def test_what_a_search_did_not_come_to_or_what_fails_stays(tmp_path: Path) -> None:
    """A search that ends early, and a bug that is not mended yet, take nothing out of a corpus."""
    bug, calm = (0, 0, 0, 7, 8, 9), (0, 0, 0, 3)
    corpus = Corpus(tmp_path, "doors")
    corpus.inputs = [bug, calm]
    next(iter(explore(doors, [], MEMORY, corpus=corpus)))
    assert sorted(corpus.kept()) == sorted([bug, calm])


def test_inputs_that_meet_nothing_of_their_own_are_dropped() -> None:
    """By the search that finds it out, or by what another process tells of it."""
    few, same = (0, 0, 0, 3), (0, 0, 0, 4)
    corpus, other = Corpus(), Corpus()
    corpus.inputs = other.inputs = [few, same]
    assert len(list(explore(doors, [], MEMORY, corpus=corpus))) == 2
    assert corpus.kept() == [few]
    other.told(corpus.learned())
    assert other.kept() == [few]


def test_inputs_of_another_scenario_are_harmless(tmp_path: Path) -> None:
    """A scenario that has changed, or fits nothing of a file: other worlds than before, and no failures."""
    corpus = Corpus(tmp_path, "money")
    corpus.inputs = [(1,) * 500, (999_999, 3, 10**30), ()]
    found = searched(range(3), corpus)
    assert len(found) == 6
    corpus.save()
    assert corpus.file is not None
    kept = json.loads(corpus.file.read_text("utf-8"))
    assert kept["test"] == "money"
    assert [999_999, 3, 10**30] not in kept["inputs"], "what it has chosen here is kept"


FEATURES = st.dictionaries(
    st.lists(st.integers(0, 9), max_size=4).map(tuple), st.frozensets(st.integers(0, 12), max_size=5), max_size=8
)


@given(FEATURES, st.integers(1, 9))
def test_a_corpus_is_minimal(met: dict[tuple[int, ...], frozenset[int]], most: int) -> None:
    """Nothing that is met is lost, every input meets something that the others do not, and a bound is kept."""
    kept = minimal(met, len(met))
    assert frozenset[int]().union(*(met[picks] for picks in kept)) == frozenset[int]().union(*met.values())
    for few in (kept, minimal(met, most)):
        for picks in few:
            assert met[picks] - frozenset[int]().union(*(met[other] for other in few if other != picks))
    assert len(minimal(met, most)) <= most


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "another kind of file"),
        ('{"format": 2, "inputs": []}', "expected a corpus of format 1, found format 2"),
        ('{"format": 1}', "damaged inputs"),
        ('{"format": 1, "inputs": [[1, -1]]}', "damaged inputs"),
        ('{"format": 1, "inputs": [[1, true]]}', "damaged inputs"),
        ('{"format": 1, "inputs": [3]}', "damaged inputs"),
    ],
)
def test_a_damaged_file_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    """Nothing is guessed, and the file stays as it is."""
    file = Corpus(tmp_path, "test").file
    assert file is not None
    file.write_text(text, "utf-8")
    with pytest.raises(CorpusError, match=problem):
        Corpus(tmp_path, "test")
    assert file.read_text("utf-8") == text


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    """A folder without a test, a test without a folder, no room, a corpus without a file that is to be saved."""
    for arguments in ((tmp_path,), (None, "test")):
        with pytest.raises(ConfigurationError, match="expected a folder and the name of a test, or neither"):
            Corpus(*arguments)
    with pytest.raises(ConfigurationError, match="inputs_max"):
        Corpus(tmp_path, "test", inputs_max=0)
    with pytest.raises(ConfigurationError, match="no file to be saved in"):
        Corpus().save()
    for corpus in (3, ""):
        with pytest.raises(ConfigurationError, match="expected corpus to be the path of a folder"):
            settings(3, corpus=corpus)  # type: ignore[arg-type]


def test_processes_share_a_corpus() -> None:
    """Each begins with its share, and each input is in one."""
    inputs = tuple((number,) for number in range(7))
    search = Search("", "", {}, 0, None, 3, inputs)
    shares = [corpus.inputs for number in range(3) if (corpus := corpus_of(search, number)) is not None]
    assert sorted(picks for share in shares for picks in share) == sorted(inputs)
    assert [len(share) for share in shares] == [3, 2, 2]


def test_the_corpora_that_ship_are_those_of_worlds() -> None:
    """Each file can be read, is small, and is that of a world that there is."""
    files = {corpus.file: corpus for name in (*EVERYWHERE, *ELSEWHERE) if (corpus := Corpus(CORPORA, name)).inputs}
    assert {*CORPORA.iterdir()} == {*files}
    assert max(len(corpus.inputs) for corpus in files.values()) <= INPUTS_MAX


@pytest.mark.parametrize(
    "worlds",
    [
        pytest.param(["choir on disk"], id="one"),
        pytest.param([*EVERYWHERE, *ELSEWHERE], id="all", marks=pytest.mark.slow),
    ],
)
def test_what_the_corpora_have_met_is_no_failure(worlds: list[str]) -> None:
    """The oddest worlds that searches have come upon hold what is promised."""
    if why_unavailable() is not None:
        pytest.skip(str(why_unavailable()))
    for name in worlds:
        scenario, options = world_of(name)
        for explored in explore(scenario, [], options, corpus=Corpus(CORPORA, name)):
            explored.outcome.check()
