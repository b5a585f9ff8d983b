"""
Planted bugs: what each promise is worth is shown by what breaks it being found.

Each file in tests/mutants is a bug of minirun itself, as changes to copies of its modules; the package has no hook for
them. The simulation must find every one in its reference worlds, within a bound of seeds, and make it small. See
mutating.py for how a mutant is planted and hunted, and worlds.py for the worlds.

Every run of the tests looks for those in `ALWAYS`. The slow ones look for all of them, and once more without being told
in which worlds and with which seed.
"""

from __future__ import annotations

import ast
import os
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from .. import mutating
from ..mutating import CHOICES_MAX, Find, Mutant, hunt_in_process, mutants, plant, without_hints, world_of
from ..planted import can_swap
from ..planting import Change, changed
from .stores import why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

SEEDS_MAX = 2_000

MUTANTS = mutants()

# One for each promise, and so many of the last line that each module that has worlds is among theirs: of these, those
# that are found soonest.
ALWAYS = {
    "P1": ["publish_before_store"],
    "P2": ["live_leaving_loses_the_response"],
    "P3": ["stale_check_by_time"],
    "P4": ["fork_shares_the_log"],
    "P5": ["run_leaves_its_agent_behind"],
    "P6": ["ended_access_is_kept", "read_beside_an_emit_forgotten"],
    "P7": ["collected_failures_hidden_by_a_cancellation"],
    "P8": ["found_calls_in_the_order_of_their_ids"],
    "P10": ["ids_from_uuid4"],
    "P12": ["retry_not_counted_over_a_resume"],
    "DESIGN": [
        "credential_in_a_question",
        "forgotten_comes_back",
        "overtaken_and_waits",
        "refused_message_comes_back",
        "server_lost_for_good",
    ],
}


def told(mutant: Mutant, find: Find) -> None:
    """Print what was found (run with -s)."""
    print(f"{mutant.name:40} seed {find.seed:4}  {find.choices:3} choices  {find.world}: {find.failure}")


def sometimes(mutant: Mutant) -> Any:
    """The mutant as a parameter of a test; only one that is looked for always is looked for in every run."""
    always = any(mutant.name in names for names in ALWAYS.values())
    return pytest.param(mutant, id=mutant.name, marks=() if always else pytest.mark.slow)


def promises_of(mutant: Mutant) -> set[str]:
    """Which promises it breaks; DESIGN, if none that has a number."""
    return {*re.findall(r"P\d+", mutant.promise.partition(":")[0])} or {"DESIGN"}


def test_of_each_promise_one_is_looked_for_always_or_two() -> None:
    """Each promise that any planted bug breaks is among them, and each module that has worlds."""
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    assert {*ALWAYS} == {promise for mutant in MUTANTS for promise in promises_of(mutant)}
    for promise, names in ALWAYS.items():
        assert len(names) in (1, 2) or promise == "DESIGN"
        assert [name for name in names if promise not in promises_of(by_name[name])] == []
    always = [by_name[name] for names in ALWAYS.values() for name in names]
    assert families_of(*always) == families_of(*MUTANTS)


def families_of(*mutants: Mutant) -> set[str]:
    """The modules of the worlds in which these are looked for."""
    return {world_of(name)[0].__module__ for mutant in mutants for name in mutant.worlds}


@pytest.mark.parametrize("mutant", [sometimes(mutant) for mutant in MUTANTS])
def test_a_planted_bug_is_found(mutant: Mutant, tmp_path: Path) -> None:
    """Within 2 000 seeds a world fails, and what was shrunk of it fails again with the same type of error."""
    find = hunt_in_process(mutant, tmp_path, SEEDS_MAX)
    told(mutant, find)
    assert find.failure, f"{SEEDS_MAX} seeds have not found that {mutant.promise}"
    assert find.replayed == find.failure


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_planted_bug_is_made_small(mutant: Mutant, tmp_path: Path) -> None:
    """The first of 2 000 seeds that fails is shrunk: few choices are left, and they fail again alike."""
    find = hunt_in_process(mutant, tmp_path, SEEDS_MAX, whole=True)
    told(mutant, find)
    assert find.failure, f"{SEEDS_MAX} seeds have not found that {mutant.promise}"
    assert find.replayed == find.failure
    if find.failure != "LivelockError":  # a run without end takes 20 000 steps: there is time for a few attempts only
        assert find.choices <= CHOICES_MAX, find.message


@pytest.mark.slow
def test_planted_bugs_without_their_hints(tmp_path: Path) -> None:
    """All worlds with seeds that nobody has tried find what they find; a table says after how many (run with -s)."""
    begin = secrets.randbelow(10**9)

    def hunt(mutant: Mutant) -> tuple[Mutant, Find]:
        folder = tmp_path / mutant.name
        folder.mkdir()
        return mutant, hunt_in_process(without_hints(mutant), folder, SEEDS_MAX, begin=begin)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        finds = sorted(pool.map(hunt, MUTANTS), key=lambda each: each[1].tried or SEEDS_MAX + 1)
    print(f"\n{SEEDS_MAX} seeds from {begin} on, in all worlds in turn:")
    for mutant, find in finds:
        print(f"{find.tried or '-':>6}  {mutant.name:44} {find.world}{find.world and ': '}{find.failure}")
    found = [find for _, find in finds if find.tried]
    print(f"found {len(found)} of {len(finds)}")
    assert [find for find in found if find.replayed != find.failure] == []
    assert found


@pytest.mark.parametrize(
    "seeds", [pytest.param(12, id="some"), pytest.param(20_000, id="many", marks=pytest.mark.slow)]
)
def test_where_nothing_is_planted_nothing_is_found(seeds: int, tmp_path: Path) -> None:
    """The same hunt finds nothing in minirun as it is."""
    find = hunt_in_process(None, tmp_path, seeds)
    assert find == Find(), f"{find.world}, seed {find.seed}: {find.failure}: {find.message}"


def test_every_mutant_says_which_promise_it_breaks() -> None:
    """There are at least twenty, each with a sentence for people."""
    assert len(MUTANTS) >= 20
    assert [mutant.name for mutant in MUTANTS if not re.match(r"(P\d|DESIGN).*: .+", mutant.promise)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_says_what_it_says(mutant: Mutant, tmp_path: Path) -> None:
    """The statements that it removes are in its function exactly once."""
    assert plant(mutant, tmp_path)


PLACE = "in minirun.env:Env.now"
NOW = "return time.time()"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "found 0 of them"),
        ([PLACE, f"  {NOW}"], "expected changes that change something"),
        (["@@ -1 +1 @@", f"- {NOW}"], "expected `in minirun.module:function`"),
        (["in tests.mutating:plant", f"- {NOW}"], "expected `in minirun.module:function`"),
        (["in minirun.no:now", f"- {NOW}"], "expected a module of minirun, found 'minirun.no'"),
        (["in minirun.env:Env.no", f"- {NOW}"], "minirun.env has no `Env.no` any more: renew or delete"),
        ([PLACE, "- no_such_line()"], "once in minirun.env:Env.now, found them 0 times"),
        ([PLACE, "+ another_line()"], "expected statements of minirun.env:Env.now"),
        (["in minirun.env:Env", "- return ..."], r"found them \d+ times"),
        ([PLACE, f"- {NOW}", "+ return ("], "expected whole statements for minirun.env:Env.now"),
        ([PLACE, f"- {NOW}", "+ return no_such_name"], "minirun.env:Env.now has no variable no_such_name"),
        ([PLACE, f"- {NOW}", PLACE, f"- {NOW}", "+ return 0"], "two changes replace the same statement"),
    ],
)
def test_a_mutant_that_does_not_fit_is_an_error(lines: list[str], problem: str, tmp_path: Path) -> None:
    """The statements that a mutant changes must be in its function once; the error names both."""
    with pytest.raises(ValueError, match=rf"misfit: .*{problem}"):
        plant(Mutant("misfit", "", "\n".join(lines)), tmp_path)


CLIMB = "in minirun.a:A.f\n  x = 1\n+ if x:\n+     x = 2\n"
TAKES_Y = "- def f(self): ...\n+ def f(self, y=1): ..."


@pytest.mark.parametrize(
    ("patch", "true", "planted"),
    [
        pytest.param(CLIMB, "x = 1", "x = 1\nif x:\n    x = 2", id="the same text"),
        pytest.param(CLIMB, "with g():\n    x = 1", "with g():\n    x = 1\n    if x:\n        x = 2", id="indented"),
        pytest.param(CLIMB, "g()\nx = (1  # one\n)", "g()\nx = 1\nif x:\n    x = 2", id="comment and layout"),
        pytest.param(CLIMB, "y = 1", "y = 1\nif y:\n    y = 2", id="another name"),
        pytest.param("- if h(): ...\n+ if 1: ...", "if h():\n    x = 1", "if 1:\n    x = 1", id="body stays"),
        pytest.param("- g(..., 1)\n+ h(1, ...)", "g([2], 1)", "h(1, [2])", id="argument stays"),
        pytest.param("- g()", "if x:\n    g()", "if x:\n    pass", id="nothing is left"),
        pytest.param(f"{TAKES_Y}\nin minirun.a:A.f\n- g()\n+ g(y)", "g()", "g(y)", id="nested"),
    ],
)
def test_a_mutant_is_found_by_its_code(
    patch: str, true: str, planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comments, layout, depth, neighbours and names of local variables are no reason to renew a mutant."""
    package = tmp_path / "true" / "minirun"
    package.mkdir(parents=True)
    monkeypatch.setattr(mutating, "PACKAGE", package)
    module = "def f():\n    x = 1\n\ndef g(): ...\n\nh = g\n\nclass A:\n\n    def f(self):\n"
    (package / "a.py").write_text(module + indent(true, " " * 8))
    patch = patch if patch.startswith("in ") else f"in minirun.a:A.f\n{patch}"
    [file] = plant(Mutant("slow", "", patch), tmp_path)
    module = module.replace("f(self)", "f(self, y=1)") if "y=1" in patch else module
    assert file.read_text() == ast.unparse(ast.parse(module + indent(planted, " " * 8))) + "\n"


def test_a_renamed_variable_that_is_not_quoted_is_an_error() -> None:
    """The new statements name a variable of the function that has another name now: the error says which one."""
    module = "def f(message):\n    g()\n\ndef g(): ...\n"
    with pytest.raises(ValueError, match="m:f has no variable event any more"):
        changed(module, [Change("m", "f", "g()", "g(event)")])


@pytest.mark.parametrize(
    ("true", "planted", "may_be"),
    [
        ("def f():\n    return 1\n", "def f():\n    x = 2\n    return x\n", True),
        ("class A:\n    async def f(self): ...\n", "class A:\n    async def f(self): return 1\n", True),
        ("def f(x=1): ...\n", "def f(x=2): ...\n", False),
        ("class A:\n    x = 1\n", "class A:\n    x = 2\n", False),
        ("f = lambda: 1\n", "f = lambda: 2\n", False),
    ],
)
def test_what_functions_do_may_be_swapped_and_nothing_else(true: str, planted: str, may_be: bool) -> None:
    """Only where a mutant changes bodies of functions alone, processes that have imported minirun can be used."""
    assert can_swap(true, planted) is may_be
