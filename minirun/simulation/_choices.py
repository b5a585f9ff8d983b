"""
Everything that may go one way or another in a simulation is a choice: a number below the number of options.

A simulation is a function of the list of its choices. Where they come from is all that differs between searching
(`SeededChoices`), replaying and shrinking (`RecordedChoices`), and exhausting a small configuration (`depth_first`).
Each keeps what was chosen in `trace`, with words for people.

0 is the dullest option everywhere: the first task goes on, no fault happens. So a list is made simpler by making it
shorter or its numbers smaller, and what was recorded can be replayed although the program has changed.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["Choice", "Choices", "RecordedChoices", "SeededChoices", "depth_first"]


class Choice(NamedTuple):
    """One choice that was made: what it was about, of how many options, and which; where they have names, those."""

    label: str
    options: int
    picked: int
    names: tuple[str, ...] = ()
    came_true: int | None = None
    """How many choices were made when it came true, of one that was about later; None if it was about now."""


_new = tuple.__new__


class Choices(ABC):
    """Where a simulation's choices come from."""

    def __init__(self) -> None:
        self.trace: list[Choice] = []
        """What was chosen so far, where there was more than one option."""
        self.seed: int | str | None = None
        """What they follow from, if it is a seed."""

    def choose(
        self,
        options: int,
        label: str,
        prefer: Callable[[random.Random], int] | None = None,
        names: tuple[str, ...] = (),
    ) -> int:
        """
        Return a number below *options*, which are at least one. With one option nothing is recorded.

        *prefer* says how a random search should pick, where not evenly; a recorded list knows better. *names* are those
        of the options, for people.
        """
        assert options >= 1, f"expected options for {label!r}, found {options}"
        if options == 1:
            return 0
        picked = self._pick(options, prefer)
        assert 0 <= picked < options
        self.trace.append(_new(Choice, (label, options, picked, names, None)))  # as Choice(...) does
        return picked

    def maybe(self, label: str, one_in: int) -> bool:
        """Whether something happens that happens once in *one_in* times."""
        return self.choose(2, label, lambda randomness: int(randomness.randrange(one_in) == 0)) == 1

    def explain(self, place: int, label: str) -> None:
        """Say in other words what the choice at *place* was about: by now it is known what it has led to."""
        self.trace[place] = self.trace[place]._replace(label=label, came_true=len(self.trace))

    @property
    def picks(self) -> list[int]:
        """The bare numbers, as `RecordedChoices` takes them."""
        return [choice.picked for choice in self.trace]

    @abstractmethod
    def _pick(self, options: int, prefer: Callable[[random.Random], int] | None) -> int: ...


class _Luck(random.Random):
    """Draws as `random.Random` does, with less ado where a number below another one is asked for."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """A number below *start*, or as `random.Random` has it."""
        if stop is not None or start < 1:
            return super().randrange(start, stop, step)
        bits = start.bit_length()
        while (drawn := self.getrandbits(bits)) >= start:
            pass
        return drawn


class SeededChoices(Choices):
    """Choices by randomness that follows from a seed."""

    def __init__(self, seed: int | str) -> None:
        super().__init__()
        self.seed = seed
        self._luck = _Luck(f"minirun {seed}")

    def _pick(self, options: int, prefer: Callable[[random.Random], int] | None) -> int:
        return self._luck.randrange(options) if prefer is None else prefer(self._luck)


class RecordedChoices(Choices):
    """Choices from a list; too large ones wrap around, and after the end everything is dull."""

    def __init__(self, picks: Sequence[int]) -> None:
        super().__init__()
        self._rest = iter(picks)

    def _pick(self, options: int, prefer: Callable[[random.Random], int] | None) -> int:
        return next(self._rest, 0) % options


def depth_first(depth: int | None = None) -> Iterator[Choices]:
    """
    Choices for one run after another, until every way through them was gone; with a *depth*, through the first of them.

    After each run the next one differs in the last choice that has an option left. Deeper choices are dull.
    """
    picks: list[int] = []
    while True:
        choices = RecordedChoices(picks)
        yield choices
        made = choices.trace[:depth]
        while made and made[-1].picked + 1 >= made[-1].options:
            made.pop()
        if not made:
            return
        picks = [choice.picked for choice in made[:-1]] + [made[-1].picked + 1]
