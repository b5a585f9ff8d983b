"""
Searching seeds in several processes.

Each worker imports the scenario anew and works through its share of the seeds by itself; now and then it tells how far
it is. A worker is asked to stop through its pipe; one that is too busy to hear is interrupted as by Ctrl-C, so that it
can remove its files, and killed if that does not help. One whose parent is gone notices when it next tells something.
What is typed at a terminal reaches the parent alone.

One more process is the *twin* of them all: in it strings have other hashes, so that sets of them have another order. It
runs every 20th seed, and the parent compares what both tell of it.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

import attrs

from ..simulation import Corpus
from ..simulation._choices import SeededChoices
from ..simulation._corpus import Learned
from ..simulation._explore import TWICE_EVERY_SEEDS, Explored, explore, first_difference
from ..simulation._kept import Kept, kept_of
from ..simulation._report import headline, report, tidied
from ..simulation._simulate import Outcome, simulate
from ._load import load_scenario

__all__ = ["Broken", "Found", "Message", "Search", "Tally", "Workers", "seeds_of"]

# Seeds that follow each other go to one worker, so that those that are run twice (every 20th) fall to all of them.
BLOCK_SEEDS = 20
# How often a worker tells how far it is; a person sees no difference from more.
TELL_EVERY_S = 0.2
# How long a worker may take to hear that it should stop; then it is ended. One seed takes milliseconds, mostly.
STOP_WAIT_S = 3.0
# The hashes of the twin. Where the user has set them for all processes, sets are in one order, and there is no twin.
HASH_SEED = "PYTHONHASHSEED"
TWIN_HASH_SEED = "1"


@attrs.frozen
class Search:
    """What the workers are to search."""

    target: str
    test: str
    options: Mapping[str, Any]
    first_seed: int
    seeds: int | None
    """None: as many as there is time for."""
    jobs: int
    inputs: tuple[tuple[int, ...], ...] | None = None
    """Of the corpus that guides the search; None: nothing does."""


@attrs.frozen
class Tally:
    """How many seeds were done since the last one, what they reached, and how many of them failed."""

    seeds: int
    coverage: Mapping[str, int]
    failures: int


@attrs.frozen
class Found:
    """A failure of a kind that the worker has not met before, shrunk."""

    kind: str
    headline: str
    raised: str
    report: str
    kept: Kept


@attrs.frozen
class Broken:
    """A worker could not go on."""

    why: str


@attrs.frozen
class World:
    """What a seed came to that both a worker and the twin run."""

    seed: int
    log: tuple[str, ...]

    @classmethod
    def of(cls, seed: int, outcome: Outcome) -> World:
        end = "no failure" if outcome.failure is None else f"fails with {type(outcome.failure).__name__}"
        return cls(seed, (*map(str, outcome.log), end))

    def difference(self, other: World) -> str:
        """What is wrong with the world where the twin's is *other*; empty if nothing is."""
        found = first_difference(self.log, other.log)
        if found is None:
            return ""
        return (
            f"seed {self.seed} is another world where strings have other hashes: {found}; sort the sets on whose order"
            f" it depends. {HASH_SEED} set to a number gives all processes one order"
        )


Message: TypeAlias = Tally | Found | Broken | World | Learned


def corpus_of(search: Search, number: int) -> Corpus | None:
    """The share of worker *number* in the corpus: every so many inputs."""
    if search.inputs is None:
        return None
    corpus = Corpus()
    corpus.inputs = list(search.inputs[number :: search.jobs])
    return corpus


def seeds_of(search: Search, number: int) -> Iterator[int]:
    """The share of worker *number*: every so many blocks."""
    block = number
    end = None if search.seeds is None else search.first_seed + search.seeds
    while True:
        start = search.first_seed + block * BLOCK_SEEDS
        if end is not None and start >= end:
            return
        yield from range(start, start + BLOCK_SEEDS if end is None else min(start + BLOCK_SEEDS, end))
        block += search.jobs


# --- in the worker ----------------------------------------------------------------------------------------------------


def _is_of_twin(seed: int) -> bool:
    return seed % TWICE_EVERY_SEEDS == 0


def _be_twin(search: Search, pipe: Connection) -> None:
    """Run every 20th seed, and tell what it came to."""
    _, scenario, _ = load_scenario(search.target)
    for seed in filter(_is_of_twin, seeds_of(attrs.evolve(search, jobs=1), 0)):
        if pipe.poll():
            break
        pipe.send(World.of(seed, simulate(scenario, SeededChoices(seed), **search.options)))


def _work(search: Search, number: int | None, pipe: Connection) -> None:
    if hasattr(os, "setsid"):
        os.setsid()  # what is typed at a terminal is for the parent ...
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ... whose own signal ends what trio runs cleanly
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # what scenarios print for every seed
            if number is None:
                _be_twin(search, pipe)
            else:
                _Worker(search, number, pipe).run()
    except (BrokenPipeError, EOFError):
        pass  # nobody listens any more
    except Exception as error:
        pipe.send(Broken("".join(traceback.format_exception(error))))
    except BaseException as error:
        if not pipe.poll():  # nobody has asked for it
            pipe.send(Broken(f"it ended with {type(error).__name__}: {error}"))


class _Worker:
    def __init__(self, search: Search, number: int, pipe: Connection) -> None:
        self._search = search
        self._seeds = seeds_of(search, number)
        self._corpus = corpus_of(search, number)
        self._pipe = pipe
        self._kinds: set[str] = set()
        self._done = self._failures = 0
        self._coverage: Counter[str] = Counter()

    def run(self) -> None:
        _, scenario, _ = load_scenario(self._search.target)
        told_s = time.monotonic()
        options = self._search.options
        for explored in explore(scenario, self._seeds, options, shrinks=self._is_new, corpus=self._corpus):
            self._done += 1
            self._coverage += explored.coverage
            if explored.outcome.failure is not None:
                self._found(explored)
            elif explored.seed is not None and _is_of_twin(explored.seed):
                self._pipe.send(World.of(explored.seed, explored.outcome))
            if time.monotonic() - told_s >= TELL_EVERY_S:
                self._tell()
                told_s = time.monotonic()
            if self._pipe.poll():
                break
        self._tell()
        if self._corpus is not None:
            self._pipe.send(self._corpus.learned())

    def _is_new(self, failure: BaseException) -> bool:
        return _kind(failure) not in self._kinds

    def _found(self, explored: Explored) -> None:
        self._failures += 1
        failure = explored.outcome.failure
        assert failure is not None
        kind = _kind(failure)
        if kind in self._kinds:
            return
        self._kinds.add(kind)
        kept = kept_of(self._search.test, explored.seed, self._search.options, explored.outcome)
        head = headline(explored.origin, explored.outcome, explored.found_choices)
        self._tell()
        self._pipe.send(Found(kind, head, raised(failure), report(explored.outcome), kept))

    def _tell(self) -> None:
        self._pipe.send(Tally(self._done, dict(self._coverage), self._failures))
        self._done = self._failures = 0
        self._coverage.clear()


def raised(failure: BaseException) -> str:
    """A failure as Python shows it, without the frames that tell nothing."""
    return "".join(traceback.format_exception(tidied(failure))).rstrip("\n")


def _kind(failure: BaseException) -> str:
    """What two failures have in common if they are likely to have one cause: all but numbers."""
    first_line = str(failure).partition("\n")[0]
    return f"{type(failure).__name__}: {re.sub(r'[0-9a-f]{8,}|[0-9]+', '#', first_line)}"


# --- in the parent ----------------------------------------------------------------------------------------------------


@contextmanager
def _hashes(seed: str | None) -> Iterator[None]:
    """Let a process that is started in the block have these hashes; without a seed those that it has anyway."""
    if seed is None:
        yield
        return
    before = os.environ.get(HASH_SEED)
    os.environ[HASH_SEED] = seed
    try:
        yield
    finally:
        if before is None:
            del os.environ[HASH_SEED]
        else:
            os.environ[HASH_SEED] = before


class Workers:
    """The processes of a search. Leaving the block ends them."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._processes: dict[Connection, Any] = {}

    def __enter__(self) -> Workers:
        context = multiprocessing.get_context("spawn")
        has_twin = os.environ.get(HASH_SEED, "random") == "random"
        for number in (*range(self._search.jobs), *([None] if has_twin else [])):
            mine, theirs = context.Pipe()
            process = context.Process(target=_work, args=(self._search, number, theirs), daemon=True)
            # Ctrl-C is for the parent; a child inherits that from its first moment on.
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                with _hashes(TWIN_HASH_SEED if number is None else None):
                    process.start()
            finally:
                signal.signal(signal.SIGINT, before)
            theirs.close()
            self._processes[mine] = process
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        deadline = time.monotonic() + STOP_WAIT_S
        try:
            for process in self._processes.values():
                process.join(max(0.0, deadline - time.monotonic()))
        finally:
            for pipe, process in self._processes.items():
                if process.is_alive():
                    os.kill(process.pid, signal.SIGINT)
                    process.join(STOP_WAIT_S)
                if process.is_alive():
                    process.kill()
                    process.join()
                pipe.close()

    @property
    def are_working(self) -> bool:
        """Whether there is anything to hear yet."""
        return bool(self._listening)

    @property
    def _listening(self) -> list[Connection]:
        return [pipe for pipe in self._processes if not pipe.closed]

    def stop(self) -> None:
        """Ask all workers to stop after the seed in hand."""
        for pipe in self._listening:
            try:
                pipe.send(None)
            except OSError:
                pass  # it has ended by itself

    def received(self, wait_s: float) -> Iterator[Message]:
        """What the workers tell within a time."""
        for pipe in wait(self._listening, wait_s):
            assert isinstance(pipe, Connection)
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                process = self._processes[pipe]
                process.join()
                pipe.close()
                if process.exitcode:
                    yield Broken(f"its process has died with exit status {process.exitcode}")
            else:
                yield message
