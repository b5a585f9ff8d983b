"""
What minirun is to reach, as ratios of one run, and whether it has.

Nothing here fails anything: a machine that does other things at the same time would decide. The guard against growing
costs is a test with a wide margin (`test_benchmark_guard.py`); this table is read by people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from .contest import Figure
from .measuring import Ratio, Row
from .sides import CHANNELS, GROUPS, MINIRUN, POWER, PROCESS, QUICK_FLOOR, THREAD

FASTEST_PEER = "the fastest peer"
PART = "a part"


@attrs.frozen
class Target:
    """
    One line: a figure of minirun beside another one, or alone.

    Args:
        scenario, side, size: The figure of minirun; `size` None: the least, or the only one. With the side `PART` the
            scenario is a row of the parts, and `beside` what it is compared with there.
        beside: A side in the same scenario, `FASTEST_PEER`, or "" for a bound of its own kind, see `of`.
        bound: At most so often the other; of a peer: at least so many times as fast.
        own: Beside its own figure at the least size instead.
        of: `time`, `peak_mb`, `failed` or `count`.
    """

    what: str
    scenario: str
    side: str
    bound: float
    size: int | None = None
    beside: str = ""
    own: bool = False
    of: str = "time"


@attrs.frozen
class Verdict:
    """What a target has come to: `reached`, `missed`, or `not measured`."""

    target: Target
    measured: str
    verdict: str

    @property
    def bound(self) -> str:
        """The target in words."""
        target = self.target
        if target.beside == FASTEST_PEER:
            return f"at least {target.bound:g} x as fast as {FASTEST_PEER}"
        if target.own:
            return f"at most {target.bound:g} x its own cost at the least size"
        unit = {"time": f" x {target.beside}", "peak_mb": " MB", "failed": "", "count": ""}[target.of]
        return f"at most {target.bound:g}{unit}"

    def __str__(self) -> str:
        measured = f"{self.measured} " if self.measured else ""
        return f"target: {self.target.what}: {self.bound}: {measured}{self.verdict}"


TARGETS = (
    Target("import", "import", MINIRUN, 1.35, beside=CHANNELS),
    Target("text turn in memory", "text-memory", MINIRUN, 3, beside=CHANNELS),
    Target("text turn in memory", "text-memory", MINIRUN, 5, beside=FASTEST_PEER),
    Target("text turn in memory, 5 000 events", "text-memory", MINIRUN, 1.25, 5_000, own=True),
    Target("text turn in memory, 50 000 events", "text-memory", MINIRUN, 1.25, 50_000, own=True),
    Target("tool turn in memory", "tool-memory", MINIRUN, 3.5, beside=CHANNELS),
    Target("tool turn in memory", "tool-memory", MINIRUN, 7, beside=FASTEST_PEER),
    Target("text turn in a file", "text-file", POWER, 1.5, beside=THREAD),
    Target("text turn in a file, 5 000 events", "text-file", POWER, 1.25, 5_000, own=True),
    Target("text turn in a file, fsyncs", "fsyncs-text", POWER, 2, of="count"),
    Target("1 000 x 5 tool turns in a file", "crowd-file", POWER, 3, beside=GROUPS),
    Target("1 000 x 5 tool turns in a file", "crowd-file", POWER, 5, beside=FASTEST_PEER),
    Target("1 000 x 5 tool turns in a file, failed sessions", "crowd-file", POWER, 0, of="failed"),
    Target("1 000 x 5 tool turns in a file, peak memory", "crowd-file", POWER, 80, of="peak_mb"),
    Target("streamed chunk", "stream", MINIRUN, 2, beside=FASTEST_PEER),
    Target("import of minirun.models.openai", "models-import", MINIRUN, 1.3, beside=CHANNELS),
    Target("streamed chunk over HTTP, OpenAIChat", "models-chat", MINIRUN, 2, beside=CHANNELS),
    Target("streamed chunk over HTTP, OpenAIChat", "models-chat", MINIRUN, 0.33, beside="openai-sdk"),
    Target("streamed chunk over HTTP, Claude", "models-messages", MINIRUN, 2, beside=CHANNELS),
    Target("streamed chunk over HTTP, Claude", "models-messages", MINIRUN, 1, beside="anthropic-sdk"),
    Target("1 000 streams over HTTP, failed", "models-streams", MINIRUN, 0, of="failed"),
    Target("turn on the last 20 of 10 000 events, cold", "window", POWER, 2, 10_000, beside=THREAD),
    Target("chain of nodes in a file", "chain-file", POWER, 2, beside=FASTEST_PEER),
    Target("nodes side by side in a file", "fan-file", POWER, 1, beside=FASTEST_PEER),
    Target("map in a file", "map-file", POWER, 1, beside=FASTEST_PEER),
    Target("chain of nodes in a quick file", "chain-quick", PROCESS, 2, beside=FASTEST_PEER),
    Target("nodes side by side in a quick file", "fan-quick", PROCESS, 1, beside=FASTEST_PEER),
    Target("map in a quick file", "map-quick", PROCESS, 1, beside=FASTEST_PEER),
    Target("node run in memory", "a node run, memory", PART, 1.3, beside="an event and a step"),
    Target("node run in a quick file", "a node run, process", PART, 1.3, beside="an event and a step"),
    Target("late node run in memory", "a late node run, memory", PART, 1.25, beside="an early one"),
    Target("late node run in a quick file", "a late node run, process", PART, 1.25, beside="an early one"),
    Target("resume of finished node runs", "resume of a loop", PART, 3, beside="reading its events"),
)


def verdicts(figures: Sequence[Figure], rows: Sequence[Row] = ()) -> Iterator[Verdict]:
    """Each target with what was measured: sides in *figures*, and parts in *rows*."""
    for target in TARGETS:
        yield _verdict_of_part(target, rows) if target.side == PART else _verdict(target, figures)


def _verdict_of_part(target: Target, rows: Sequence[Row]) -> Verdict:
    for row in rows:
        if (row.what, row.beside) == (target.scenario, target.beside):
            ratio = Ratio.of(row.rounds, row.floor_rounds)
            return _judged(target, str(ratio).strip(), ratio.median <= target.bound)
    return Verdict(target, "", "not measured")


def _verdict(target: Target, figures: Sequence[Figure]) -> Verdict:
    mine = _figure(figures, target.scenario, target.side, target.size)
    if mine is None:
        return Verdict(target, "", "not measured")
    if target.of != "time":
        alone = {"peak_mb": mine.peak_mb, "failed": mine.failed, "count": mine.median}[target.of]
        if alone is None:
            return Verdict(target, "", "not measured")
        return _judged(target, f"{alone:.3g}", alone <= target.bound)
    if target.beside == FASTEST_PEER:
        peer = fastest_peer(figures, mine)
        if peer is None:
            return Verdict(target, "", "not measured")
        ratio = Ratio.of(peer.rounds, mine.rounds)
        return _judged(target, f"{ratio} ({peer.side})".strip(), ratio.median >= target.bound)
    if target.own:
        other = _figure(figures, target.scenario, target.side, None)
    else:
        other = _figure(figures, target.scenario, target.beside, mine.size)
    if other is None or other == mine:
        return Verdict(target, "", "not measured")
    ratio = Ratio.of(mine.rounds, other.rounds)
    return _judged(target, str(ratio).strip(), ratio.median <= target.bound)


def _judged(target: Target, measured: str, reached: bool) -> Verdict:
    return Verdict(target, measured, "reached" if reached else "missed")


def _figure(figures: Iterable[Figure], scenario: str, side: str, size: int | None) -> Figure | None:
    found = [figure for figure in figures if (figure.scenario, figure.side) == (scenario, side) and figure.rounds]
    if size is not None:
        found = [figure for figure in found if figure.size == size]
    return min(found, key=lambda figure: figure.size, default=None)


def fastest_peer(figures: Iterable[Figure], mine: Figure) -> Figure | None:
    """The peer of the least median in the same scenario at the same size, none of whose sessions has failed."""
    place = (mine.scenario, mine.size)
    peers = [f for f in figures if f.peer and (f.scenario, f.size) == place and f.rounds and not f.failed]
    return min(peers, key=lambda figure: figure.median, default=None)


def floor_of(figures: Iterable[Figure], mine: Figure) -> Figure | None:
    """The floor beside which a figure stands: that of its kind of store, with COMMIT where minirun has it."""
    for side in (GROUPS, THREAD, QUICK_FLOOR, CHANNELS):
        found = [f for f in figures if (f.scenario, f.side, f.size) == (mine.scenario, side, mine.size) and f.rounds]
        if found and found[0] != mine:
            return found[0]
    return None
