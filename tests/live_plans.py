"""
Live conversations as plans: what the server says and does, and what the client does meanwhile, all of it drawn.

A plan is data: the same choices make the same plan, and hypothesis prints it. Every word in it is said once, so that
the laws (`live_laws.py`) can tell from the log who has said what, and when. `live_talks.py` carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs

from minirun.models import LlmResponse
from minirun.simulation import Choices
from minirun.testing import call, cancel_calls, drop, error, go_away, handle, hear, interrupted, pause, say, usage
from minirun.testing._live_dialects import DialectName

__all__ = ["CALM", "WILD", "Deed", "Ending", "Mood", "Plan", "drawn"]

Deed: TypeAlias = tuple[str, Any]
"""What the client does: its name, and how."""
Ending: TypeAlias = Literal["aclose", "aclose soon", "close the queue", "leave"]

PAUSES_S = (0.0, 0.1, 0.6, 3.0)
TOOL_S = (0.0, 0.3, 2.0, 40.0)


@attrs.frozen
class Mood:
    """How often what happens seldom happens: once in so many times; 0 is never."""

    drops: int
    refuses: int
    doubles: int
    silences: int


CALM = Mood(drops=0, refuses=0, doubles=0, silences=0)
WILD = Mood(drops=6, refuses=60, doubles=6, silences=20)


@attrs.frozen(kw_only=True)
class Plan:
    """One conversation."""

    dialect: DialectName
    modality: str
    is_manual: bool
    """Whether the client says when the user begins and ends to speak."""
    entries: Sequence[Any]
    """What the server plays, one after another, for what is owed an answer; then it says `ok`."""
    on_connect: Sequence[Any]
    deeds: Sequence[Deed]
    reads_s: Sequence[float]
    """How long the client takes for each event, over and over."""
    leaves_after: int | None
    """After how many events the client leaves; None: it stays."""
    ending: Ending
    lag_s: float
    in_flight: int
    is_told: bool
    """Whether the server's handles say what it has taken up."""


class _Drawing:
    """A plan on its way."""

    def __init__(self, choices: Choices, mood: Mood) -> None:
        self.choices = choices
        self.mood = mood
        self.dialect: DialectName = ("gemini", "openai")[choices.choose(2, "which dialect")]
        self.is_told = True
        self.handles = 0
        self.said = 0
        self.heard = 0

    def seldom(self, label: str, one_in: int) -> bool:
        return bool(one_in) and self.choices.maybe(label, one_in)

    def of(self, options: Sequence[Any], label: str) -> Any:
        return options[self.choices.choose(len(options), label)]

    # --- the server

    def entry(self) -> list[Any]:
        """What is played for one thing that is owed an answer."""
        choices, mood = self.choices, self.mood
        if self.seldom("the server says nothing", mood.silences):
            return []
        steps: list[Any] = self._mishaps()
        if choices.maybe("the server hears the user", 4):
            self.heard += 1
            steps.append(hear(f"h{self.heard} spoken", late=choices.maybe("late", 2)))
        for _ in range(1 + choices.choose(2, "more of the answer")):
            if choices.maybe("calls", 3):
                steps.extend(self._call() for _ in range(1 + choices.choose(2, "two calls at once")))
                continue
            for _ in range(1 + choices.choose(4, "how many words")):
                self.said += 1
                steps.append(say(f"a{self.said} "))
                if choices.maybe("the server waits", 5):
                    steps.append(pause(self.of(PAUSES_S, "for how long")))
                steps.extend(self._mishaps())
        if choices.maybe("what it has cost", 5):
            steps.append(usage(3, 4))
        if self.seldom("the turn is over, and once more", mood.doubles):
            steps.extend([LlmResponse(turn_complete=True), LlmResponse(turn_complete=True)])
        steps.extend(self._mishaps())
        return steps

    def _call(self) -> Any:
        fails = self.choices.maybe("the tool fails", 4)
        return call("work", seconds=self.of(TOOL_S, "how long the tool takes"), fails=fails)

    def _mishaps(self) -> list[Any]:
        """What may happen between any two things that the server says."""
        choices, mood, steps = self.choices, self.mood, list[Any]()
        is_gemini = self.dialect == "gemini"
        if is_gemini and choices.maybe("a handle", 6):
            steps.append(self.handle())
        if is_gemini and choices.maybe("calls are withdrawn", 12):
            steps.append(cancel_calls())
        if choices.maybe("the answer is cut off by the server", 24):
            steps.append(interrupted())
        if choices.maybe("an error that ends nothing", 24):
            steps.append(error("rate_limited"))
        if is_gemini and self.seldom("the server goes away", mood.drops * 3):
            steps.append(go_away(self.of((0.0, 1.0, 20.0), "when")))
        if self.seldom("the server drops the line", mood.drops):
            steps.append(drop(self.of((1006, 1011, 1000), "how")))
        if self.seldom("the server refuses something", mood.refuses):
            steps.append(drop(1007))
        return steps

    def handle(self) -> Any:
        self.handles += 1
        resumable = not self.choices.maybe("there is none for the moment", 4)
        return handle(f"handle {self.handles}", resumable=resumable, taken_up=self.is_told)

    # --- the client

    def deed(self, number: int, is_manual: bool) -> list[Deed]:
        """What the client does next."""
        kinds = ("say", "speak", "wait", "half", "interrupt", "played", "microphone off", "idle")
        kind = kinds[self.choices.choose(len(kinds), "what the client does", names=kinds)]
        if kind == "wait":
            return [("wait", self.of(PAUSES_S, "how long the client waits"))]
        if kind == "speak":
            chunks = 1 + self.choices.choose(4, "how long it speaks")
            speech: list[Deed] = [("begin to speak", None), ("speak", chunks), ("end to speak", None)]
            return speech if is_manual else [("speak", chunks)]
        if kind == "microphone off":
            return [] if is_manual else [("microphone off", None)]
        if kind == "played":
            return [("played", self.of((0, 200, 1000), "how much"))]
        return [(kind, f"u{number} typed" if kind in ("say", "half", "idle") else None)]


def drawn(choices: Choices, mood: Mood = WILD) -> Plan:
    """The plan that *choices* make."""
    drawing = _Drawing(choices, mood)
    is_manual = choices.maybe("the client has the voice detection", 3)
    is_gemini = drawing.dialect == "gemini"
    drawing.is_told = not choices.maybe("handles do not say what was taken up", 4)
    first = [drawing.handle()] if is_gemini and choices.maybe("a handle at once", 2) else []
    deeds: list[Deed] = []
    for number in range(1 + choices.choose(6, "how much the client does")):
        deeds.extend(drawing.deed(number, is_manual))
        if choices.maybe("the client pauses", 2):
            deeds.append(("wait", drawing.of(PAUSES_S, "how long")))
    endings: tuple[Ending, ...] = ("aclose", "aclose soon", "close the queue", "leave")
    slow = choices.choose(4, "how fast the client reads")
    return Plan(
        dialect=drawing.dialect,
        modality=("AUDIO", "TEXT")[choices.choose(2, "sound or text")],
        is_manual=is_manual,
        entries=[drawing.entry() for _ in range(1 + choices.choose(5, "how many answers"))],
        on_connect=[first],
        deeds=deeds,
        reads_s=((0.0,), (0.0, 0.0, 0.5), (0.3,), (0.0, 0.0, 5.0))[slow],
        leaves_after=choices.choose(12, "when it leaves") if choices.maybe("the client leaves", 5) else None,
        ending=endings[choices.choose(len(endings), "how it ends", names=endings)],
        lag_s=(5.0, 0.5)[choices.choose(2, "how much sound may wait")],
        in_flight=choices.choose(3, "what is in flight"),
        is_told=drawing.is_told,
    )
