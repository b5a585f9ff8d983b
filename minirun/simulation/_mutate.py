"""
Choices that are almost those of another simulation: an input of a corpus, with a few changes.

A list of bare numbers is easily put out of step: one fault more is some choices more, and whatever comes after them
answers questions that it was not meant for. So an input is taken apart into what it was asked. Each kind of question
("tool: when", "which process is killed") has answers of its own, in order. Steps are told by the names of the tasks
that went on: if that one is not ready here, the next of the list that is. What has no answer left is random, as for a
fresh seed, and not dull: a mutation that cuts an input off goes on in another way from there.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Sequence

import attrs

from ._choices import Choices
from ._faults import HORIZON

__all__ = ["Answer", "MutatedChoices", "answers_of", "mutated"]

# How many of an input's next steps are looked through for one that can be taken.
STEPS_AHEAD = 8
# How many changes a mutation makes: one more with this chance, up to CHANGES_MAX.
ONE_MORE = 0.5
CHANGES_MAX = 5
# How near to where something rare was met an input is changed, in choices; and how often it is changed anywhere.
NEAR = (0, 2, 8, 32)
ANYWHERE = 0.25
# How many choices something is put off, and how many are left out, at most.
STRETCH_MAX = 24
# How far a fault is shifted, in chances to strike; how soon one that is repeated strikes again.
SHIFT_MAX = 4
SOON = 12


@attrs.frozen
class Answer:
    """What an input answers to a question: of which kind, how many options there were, which, and its name if any."""

    kind: str
    options: int
    picked: int
    name: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether it says when a fault strikes."""
        return self.options == HORIZON


def _kind_of(label: str) -> str:
    """A question without its number: `step 14: another with it` is one of `step: another with it`."""
    return re.sub(r" \d+", "", label)


def answers_of(choices: Choices) -> tuple[Answer, ...]:
    """What *choices* have answered so far."""
    return tuple(
        Answer(
            _kind_of(choices.asked(place)),
            choice.options,
            choice.picked,
            choice.names[choice.picked] if choice.names else "",
        )
        for place, choice in enumerate(choices.trace)
    )


class MutatedChoices(Choices):
    """Choices by the answers of an input, kind by kind; where there are none, by *randomness*."""

    def __init__(self, answers: Sequence[Answer], randomness: random.Random) -> None:
        super().__init__()
        self._rest: dict[str, deque[Answer]] = {}
        for answer in answers:
            self._rest.setdefault(answer.kind, deque()).append(answer)
        self._randomness = randomness
        self._question: tuple[str, tuple[str, ...]] = ("", ())

    def choose(
        self,
        options: int,
        label: str,
        prefer: Callable[[random.Random], int] | None = None,
        names: tuple[str, ...] = (),
    ) -> int:
        """See `Choices.choose`."""
        self._question = label, names
        return super().choose(options, label, prefer, names)

    def _pick(self, options: int, prefer: Callable[[random.Random], int] | None) -> int:
        label, names = self._question
        rest = self._rest.get(_kind_of(label))
        if rest and not names:
            return rest.popleft().picked % options
        if rest:
            for place in range(min(STEPS_AHEAD, len(rest))):
                if rest[place].name in names:
                    picked = names.index(rest[place].name)
                    del rest[place]
                    return picked
            rest.popleft()
        return self._randomness.randrange(options) if prefer is None else prefer(self._randomness)


# --- mutations --------------------------------------------------------------------------------------------------------


def mutated(answers: Sequence[Answer], others: Sequence[Answer], place: int, randomness: random.Random) -> list[Answer]:
    """
    Change *answers* a little, mostly near a *place* where they have led to something rare. *others* are of another
    input, with which they may be spliced.
    """
    found = list(answers)
    for _ in range(CHANGES_MAX):
        if not found:
            break
        mutation = randomness.choice(MUTATIONS)
        found = mutation(found, others, _near(place, len(found), randomness), randomness)
        if mutation is _cut or randomness.random() >= ONE_MORE:
            break
    return found


def _near(place: int, count: int, randomness: random.Random) -> int:
    """Where to change an input of so many choices."""
    if randomness.random() < ANYWHERE:
        return randomness.randrange(count)
    within = randomness.choice(NEAR)
    return min(max(place + randomness.randint(-within, within), 0), count - 1)


def _cut(answers: list[Answer], others: Sequence[Answer], at: int, randomness: random.Random) -> list[Answer]:
    """Go on in another way from here."""
    return answers[:at]


def _change(answers: list[Answer], others: Sequence[Answer], at: int, randomness: random.Random) -> list[Answer]:
    """Answer one question in another way."""
    answer = answers[at]
    if answer.is_fault:
        return _shift(answers, others, at, randomness)
    if answer.name:  # another task goes on, and this one later
        return _delay(answers, others, at, randomness)
    picked = (answer.picked + 1 + randomness.randrange(answer.options - 1)) % answer.options
    return [*answers[:at], attrs.evolve(answer, picked=picked), *answers[at + 1 :]]


def _delay(answers: list[Answer], others: Sequence[Answer], at: int, randomness: random.Random) -> list[Answer]:
    """Let what was done here be done later."""
    to = at + 1 + randomness.randrange(STRETCH_MAX)
    return [*answers[:at], *answers[at + 1 : to], answers[at], *answers[to:]]


def _drop(answers: list[Answer], others: Sequence[Answer], at: int, randomness: random.Random) -> list[Answer]:
    """Leave a stretch out."""
    return [*answers[:at], *answers[at + 1 + randomness.randrange(STRETCH_MAX) :]]


def _fault_near(answers: Sequence[Answer], at: int) -> int | None:
    """Which of the answers that are about faults is the nearest."""
    faults = [place for place, answer in enumerate(answers) if answer.is_fault]
    return min(faults, key=lambda place: abs(place - at), default=None)


def _shift(answers: list[Answer], others: Sequence[Answer], at: int, randomness: random.Random) -> list[Answer]:
    """Let a fault strike a little earlier or later, or at another time, or one that did not strike at all."""
    place = _fault_near(answers, at)
    if place is None:
        return _delay(answers, others, at, randomness)
    answer = answers[place]
    by = randomness.randint(-SHIFT_MAX, SHIFT_MAX)
    picked = answer.picked + by if answer.picked and by else 1 + int(randomness.expovariate(1 / SOON / 4))
    picked = min(max(picked, 1), answer.options - 1)
    return [*answers[:place], attrs.evolve(answer, picked=picked), *answers[place + 1 :]]


def _repeat(answers: list[Answer], others: Sequence[Answer], at: int, randomness: random.Random) -> list[Answer]:
    """Let a fault that has struck strike again soon."""
    place = _fault_near(answers, at)
    if place is None or not answers[place].picked:
        return _shift(answers, others, at, randomness)
    again = attrs.evolve(answers[place], picked=1 + randomness.randrange(SOON))
    return [*answers[: place + 1], again, *answers[place + 1 :]]


def _splice(answers: list[Answer], others: Sequence[Answer], at: int, randomness: random.Random) -> list[Answer]:
    """Go on as another input does; or let go wrong what goes wrong there."""
    if randomness.randrange(2):
        return [*answers[:at], *others[min(at, len(others)) :]]
    kinds = {answer.kind for answer in others if not answer.name}
    return [*(answer for answer in answers if answer.kind not in kinds), *(one for one in others if not one.name)]


MUTATIONS = (_cut, _cut, _change, _delay, _drop, _shift, _repeat, _splice)
