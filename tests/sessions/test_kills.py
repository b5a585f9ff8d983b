"""
Nothing acknowledged is lost and nothing is half there, whenever a process is killed (promises P1, P4 and P6).

Real processes write one file, one after another, and each is killed at a random moment. What a writer is and does is
in kills.py, what must hold in ledger.py. A kill leaves the machine's cache as it is: what a power cut may take is
another test's matter.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from random import Random

import attrs
import pytest

from minirun.errors import MinirunError

from ..kills import BROKEN
from ..ledger import Forker, Ledger, check_calls, forker

APPENDED = ("a", "b", "c")
RUN = ("r", "s")

# How long a writer lives: until it has told so many things, and then a while. It stores an event in about 0.3 ms.
TOLD_MAX = 60
THEN_S_MAX = 0.02
TELLING_S_MAX = 10
# How many writers in a row use one file: checking costs its length.
LIVES = 8


@pytest.fixture(scope="module")
def forks() -> Forker:
    """Where writers come from."""
    return forker()


@attrs.define
class Tally:
    """What a series of kills has shown."""

    kills: int = 0
    acknowledged: int = 0
    unheard: int = 0
    violation: str = ""


def kill_often(forks: Forker, folder: Path, kills: int, durability: str, *, seed: int = 1, broken: str = "") -> Tally:
    """Start and kill writers, on a new file now and then, until a check fails."""
    luck = Random(f"{seed} {durability} {broken}")
    tally = Tally()
    folder.mkdir()
    while tally.kills < kills and not tally.violation:
        ledger = Ledger(folder / "a.db")
        lives = min(LIVES, kills - tally.kills)
        try:
            live_and_die(forks, ledger, lives, luck, durability, broken, tally)
        except (AssertionError, MinirunError) as error:
            tally.violation = f"{type(error).__name__}: {error}"
            if not broken:
                raise
        tally.acknowledged += ledger.acknowledged
        tally.unheard += ledger.unheard
        shutil.rmtree(folder)
        folder.mkdir()
    return tally


def wait_for_lines(said: Path, count: int) -> None:
    """Wait until a writer has told so many lines, however busy the machine is, or has failed."""
    deadline = time.monotonic() + TELLING_S_MAX
    while (told := said.read_bytes()).count(b"\n") < count and b'"failed"' not in told:
        if time.monotonic() > deadline:
            return  # it does not go on, as those that break a promise may
        time.sleep(0.001)


def live_and_die(
    forks: Forker, ledger: Ledger, lives: int, luck: Random, durability: str, broken: str, tally: Tally
) -> None:
    """So many writers in a row on one file; then one that may end."""
    options = {"durability": durability, "broken": broken, "seed": luck.random(), "appended": APPENDED, "run": RUN}
    for number in range(lives):
        said = ledger.path.parent / f"{number}.said"
        early = luck.random() < 0.2  # while it still opens the file
        pid = forks.start("write", ledger.path, said, number=number, early=early, **options)
        if not early:
            wait_for_lines(said, luck.randrange(TOLD_MAX))
        time.sleep(luck.random() * THEN_S_MAX)  # the moment is what the test is about
        os.kill(pid, signal.SIGKILL)
        status = forks.ends(pid)
        tally.kills += 1
        ledger.hear(said)
        assert status == -signal.SIGKILL
        ledger.check()
    said = ledger.path.parent / "last.said"
    status = forks.ends(forks.start("finish", ledger.path, said, number=lives, **options))
    ledger.hear(said)
    assert status == 0
    ledger.check()
    for name in RUN:
        check_calls(ledger.known[name], ended=True)


@pytest.mark.parametrize("durability", ["power", "process"])
def test_what_was_acknowledged_survives_any_kill(durability: str, forks: Forker, tmp_path: Path) -> None:
    """Killed at random moments, writers leave every acknowledged event, at most one more each, and none by half."""
    tally = kill_often(forks, tmp_path / "files", 8, durability)
    print(durability, tally)
    assert tally.acknowledged > 8 * 2, "they had time to write"


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["power", "process"])
def test_what_was_acknowledged_survives_hundreds_of_kills(durability: str, forks: Forker, tmp_path: Path) -> None:
    """The same, often enough to hit what is rare."""
    tally = kill_often(forks, tmp_path / "files", 400, durability, seed=2)
    print(durability, tally)
    assert tally.unheard > 40, "some were killed between the store and its answer"


@pytest.mark.parametrize("broken", BROKEN)
def test_a_service_that_breaks_the_promise_is_found_out(broken: str, forks: Forker, tmp_path: Path) -> None:
    """A service that acknowledges what it has not stored, or stores an event without its state, fails these checks."""
    tally = kill_often(forks, tmp_path / "files", 24, "process", broken=broken)
    print(broken, tally)
    assert tally.violation
    assert "Group" not in tally.violation, "it is the check that finds it, and no other failure of the writer"
