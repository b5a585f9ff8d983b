"""
A corpus: inputs that meet what others do not, and the search that they guide.

An input is a list of choices, as `RecordedChoices` takes it. The rules of this file:

* A seed is fresh, or a mutation of an input that has met something rare: whichever of the two has met more that was new
  lately. Both are always tried now and then.
* What a search does follows from its seeds and from the corpus that it began with, and from nothing else.
* Rare is what few worlds of this search have met, and what was not looked for often. So features that are new in every
  world, as some are, do not keep the others from their turn.
* Inputs that fail are failures, and kept as those.
* What is written is minimal: an input stays only if it meets something that the others do not; the first are those that
  meet most. Inputs that a search has not come to, or that fail, stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from .._json import brief
from ..errors import ConfigurationError, MinirunError
from ._choices import Choices, SeededChoices
from ._mutate import Answer, MutatedChoices, answers_of, mutated

__all__ = ["Corpus", "CorpusError", "Learned", "file_name", "minimal", "stripped"]

FORMAT = 1
# How many inputs a corpus has at most. Each search begins with them, and one takes some 10 to 100 ms.
INPUTS_MAX = 64
# How many inputs a search knows at most, at some 50 kB each; then it forgets the half that has met what is least rare.
KNOWN_MAX = 2_000
# How many seeds are mutations, at least and at most; and how fast it is forgotten how much was new. Where nothing is
# new any more, fresh seeds will go on like that, and mutations may not: they are hoped to meet a little.
MUTATED_MIN, MUTATED_MAX = 0.1, 0.9
HOPE = 0.2
FORGETTING = 0.95
# Out of how many features that are drawn the rarest one is looked for.
DRAWN = 12
# File names may be 255 bytes long almost everywhere; the rest of a test's name is in the digest.
NAME_CHARS_MAX = 100


class CorpusError(MinirunError, ValueError):
    """A file is not one of a corpus, or not of this format."""


@attrs.frozen
class _Known:
    """An input that has met something new."""

    picks: tuple[int, ...]
    answers: tuple[Answer, ...]
    features: Mapping[int, int]
    """And after how many choices each was first met."""


@attrs.frozen
class Learned:
    """What a search knows at its end."""

    met: Mapping[tuple[int, ...], frozenset[int]]
    """The inputs that are worth to be kept, and what they meet."""
    passed: frozenset[tuple[int, ...]]
    """The inputs that it began with, and that did not fail: those that are not worth it are dropped."""


class _Yield:
    """How much that was new the last seeds of one sort have met, on average."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, new: int) -> None:
        self._sum = FORGETTING * self._sum + new
        self._weight = FORGETTING * self._weight + 1

    @property
    def mean(self) -> float:
        return self._sum / self._weight if self._weight else 0.0


class Corpus:
    """
    The inputs of one scenario: those of a file, and those that a search has found to meet something new.

    `explore(..., corpus=corpus)` begins with the former and learns the latter; `save` keeps what is worth it.

    Args:
        folder: Where the file is. None: nowhere, so the search begins with none, and none is kept.
        test: Whose inputs they are: each has a file of its own. One that is not there yet has no inputs.
        inputs_max: How many are kept at most.

    Raises:
        CorpusError: The file cannot be read, or is something else.
        ConfigurationError: There is a folder and no test, or a test and no folder; or inputs_max is below 1.
    """

    def __init__(self, folder: Path | str | None = None, test: str = "", *, inputs_max: int = INPUTS_MAX) -> None:
        if (folder is None) != (not test):
            msg = f"expected a folder and the name of a test, or neither; found {brief(folder)} and {brief(test)}"
            raise ConfigurationError(msg)
        if type(inputs_max) is not int or inputs_max < 1:
            msg = f"expected inputs_max to be a whole number from 1 on, found {brief(inputs_max)}"
            raise ConfigurationError(msg)
        self.test = test
        self.file = None if folder is None else Path(folder) / file_name(test)
        self.inputs: list[tuple[int, ...]] = [] if self.file is None else _read(self.file)
        """What a search begins with."""
        self._inputs_max = inputs_max
        self._known: list[_Known] = []
        self._told: dict[tuple[int, ...], frozenset[int]] = {}  # by other processes
        self._passed: set[tuple[int, ...]] = set()  # inputs that this search began with, and that did not fail
        self._met: Counter[int] = Counter()  # how many worlds have met each feature, or looked for it
        self._owners: dict[int, _Known] = {}  # the input that met it first
        self._features: list[int] = []  # the keys, to draw from
        self._yields = {SeededChoices: _Yield(), MutatedChoices: _Yield()}

    # --- the search

    def choices(self, seed: int) -> Callable[[], Choices] | None:
        """What makes the choices of a mutation, as often as it is called; None if the seed is to be fresh."""
        randomness = random.Random(f"minirun mutation {seed}")
        if not self._features or randomness.random() >= self._mutated_share():
            return None
        rare, other = self._rare(randomness), self._rare(randomness)
        self._met[rare] += 1
        parent, second = self._owners[rare], self._owners[other]
        answers = mutated(parent.answers, second.answers, parent.features[rare], randomness)
        return lambda: MutatedChoices(answers, random.Random(f"minirun tail {seed}"))

    def _mutated_share(self) -> float:
        fresh, mutations = self._yields[SeededChoices].mean, self._yields[MutatedChoices].mean
        # squared: as long as fresh seeds meet more, bugs that need no guidance are found by them
        share = (mutations + HOPE) ** 2 / ((mutations + HOPE) ** 2 + fresh**2)
        return min(max(share, MUTATED_MIN), MUTATED_MAX)

    def _rare(self, randomness: random.Random) -> int:
        drawn = (self._features[randomness.randrange(len(self._features))] for _ in range(DRAWN))
        return min(drawn, key=self._met.__getitem__)

    def learn(self, choices: Choices, features: Mapping[int, int], began_with: tuple[int, ...] | None = None) -> None:
        """
        Note what a world that has not failed has met, and after how many choices; and which of the `inputs` it is, if
        it is one. What that has chosen may be another list by now: of what the scenario is today.
        """
        if began_with is not None:
            self._passed.add(began_with)
        new = [feature for feature in features if feature not in self._met]
        self._met.update(dict.fromkeys(features, 1))
        found = self._yields.get(type(choices))
        if found is not None:
            found.add(len(new))
        if new:
            known = _Known(tuple(stripped(choices.picks)), answers_of(choices), features)
            self._known.append(known)
            self._owners.update(dict.fromkeys(new, known))
            self._features += new
            if len(self._known) > KNOWN_MAX:
                self._forget()

    def _forget(self) -> None:
        rarest: dict[int, int] = {}
        for feature, owner in self._owners.items():
            rarest[id(owner)] = min(self._met[feature], rarest.get(id(owner), self._met[feature]))
        self._known.sort(key=lambda known: rarest.get(id(known), len(self._met)))  # stable: the older ones first
        del self._known[KNOWN_MAX // 2 :]
        left = set(map(id, self._known))
        self._owners = {feature: owner for feature, owner in self._owners.items() if id(owner) in left}
        self._features = list(self._owners)

    # --- keeping

    def learned(self) -> Learned:
        """What another process is `told` of this one."""
        met = {known.picks: frozenset(known.features) for known in self._known}
        return Learned({picks: met[picks] for picks in minimal(met, self._inputs_max)}, frozenset(self._passed))

    def told(self, learned: Learned) -> None:
        """Take what another process has learned."""
        self._told.update(learned.met)
        self._passed |= learned.passed

    def kept(self) -> list[tuple[int, ...]]:
        """What is to be kept: of what this search has learned, and all that it has not come to."""
        met = {**self._told, **{known.picks: frozenset(known.features) for known in self._known}}
        unknown = [picks for picks in self.inputs if picks not in met and picks not in self._passed]
        return [*minimal(met, self._inputs_max - len(unknown)), *unknown]

    def save(self) -> None:
        """
        Write the inputs, all at once: a process that dies leaves the old file or the new one.

        Raises:
            ConfigurationError: The corpus has no file.
            OSError: They cannot be written.
        """
        if self.file is None:
            msg = "expected a corpus with a folder, found one without: it has no file to be saved in"
            raise ConfigurationError(msg)
        kept = self.kept()
        if kept == self.inputs:
            return
        lines = ",\n".join(f"  {json.dumps(picks, separators=(',', ':'))}" for picks in kept)
        text = f'{{\n "format": {FORMAT},\n "test": {json.dumps(self.test)},\n "inputs": [\n{lines}\n ]\n}}\n'
        new = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, "utf-8")
        new.replace(self.file)
        self.inputs = kept


def file_name(test: str) -> str:
    """How the file of *test* is named; other tests have other files, however their names look."""
    digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", test).strip("-.")[-NAME_CHARS_MAX:]
    return f"{readable}-{digest}.json"


def stripped(picks: Sequence[int]) -> list[int]:
    """Without the zeros at the end, which a replay has anyway."""
    kept = list(picks)
    while kept and kept[-1] == 0:
        kept.pop()
    return kept


def minimal(met: Mapping[tuple[int, ...], frozenset[int]], most: int) -> list[tuple[int, ...]]:
    """The inputs, at most so many, of which each meets something that the others do not; first those that meet most."""
    left = {picks: set(features) for picks, features in met.items()}
    chosen: list[tuple[int, ...]] = []
    while left and len(chosen) < most:
        best = min(left, key=lambda picks: (-len(left[picks]), len(picks), picks))
        new = left.pop(best)
        if not new:
            break
        chosen.append(best)
        for features in left.values():
            features -= new
    return _without_needless(chosen, met)


def _without_needless(
    chosen: list[tuple[int, ...]], met: Mapping[tuple[int, ...], frozenset[int]]
) -> list[tuple[int, ...]]:
    """Leave out what later ones together meet as well."""
    times = Counter(feature for picks in chosen for feature in met[picks])
    needed = []
    for picks in chosen:
        if all(times[feature] > 1 for feature in met[picks]):
            times.subtract(met[picks])
        else:
            needed.append(picks)
    return needed


def _read(file: Path) -> list[tuple[int, ...]]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        msg = f"{file}: expected a corpus, found a file that cannot be read: {error}"
        raise CorpusError(msg) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        told = (
            f"format {brief(found['format'])}"
            if isinstance(found, dict) and "format" in found
            else "another kind of file"
        )
        msg = f"{file}: expected a corpus of format {FORMAT}, found {told}; delete it, or use the minirun it is of"
        raise CorpusError(msg)
    inputs = found.get("inputs")
    if not isinstance(inputs, list) or not all(map(_is_input, inputs)):
        msg = f"{file}: expected a corpus, found one with damaged inputs; restore the file, or delete it"
        raise CorpusError(msg)
    return [tuple(picks) for picks in inputs]


def _is_input(picks: Any) -> bool:
    return isinstance(picks, list) and all(type(pick) is int and pick >= 0 for pick in picks)
