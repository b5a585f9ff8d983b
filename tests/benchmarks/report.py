"""
What a run leaves behind: the raw figures as JSON, tables as Markdown, a chart as SVG.

Only the JSON has everything: every round of every side, in the order in which they took place.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from .chart import chart
from .contest import Figure
from .measuring import Ratio, Row
from .scenarios import SCENARIOS
from .sides import CHANNELS, INLINE, MINIRUN, OURS, POWER, PROCESS, THEIRS
from .targets import Verdict, fastest_peer, floor_of, verdicts

NAMES = [side.name for side in (*OURS, *THEIRS)]
IN_README = (
    ("import", 0),
    ("text-memory", 0),
    ("text-memory", 5_000),
    ("tool-memory", 0),
    ("stream", 1_000),
    ("text-file", 0),
    ("text-file", 5_000),
    ("crowd-file", 1_000),
    ("window", 10_000),
)


def number(value: float) -> str:
    """A figure with three digits that mean something, thousands apart."""
    digits = 0 if value >= 100 or value == round(value) else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}".replace(",", " ")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = (0,)) -> Iterator[str]:
    """The lines of a table, its columns of words to the left and the others to the right."""
    yield f"| {' | '.join(head)} |"
    yield f"|{''.join(' --- |' if column in words else ' --: |' for column in range(len(head)))}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def title_of(scenario: str, size: int) -> str:
    """What a figure is of."""
    return SCENARIOS[scenario].title.format(number(size)) if scenario in SCENARIOS else scenario


def summary(figures: Sequence[Figure], wanted: Collection[tuple[str, int]] = ()) -> Iterator[str]:
    """One line for each scenario and size, or the *wanted*: minirun, its floor, the fastest peer."""
    rows = []
    for mine in figures:
        is_ours = mine.side in (MINIRUN, POWER, PROCESS) and not mine.scenario.startswith("fsyncs")
        if is_ours and mine.rounds and (not wanted or (mine.scenario, mine.size) in wanted):
            floor, peer = floor_of(figures, mine), fastest_peer(figures, mine)
            rows.append(
                (
                    title_of(mine.scenario, mine.size),
                    f"{number(mine.median)} {mine.unit}",
                    f"{Ratio.of(mine.rounds, floor.rounds).median:.2f}" if floor else "",
                    f"{peer.side} {number(peer.median)} {peer.unit}" if peer else "",
                    f"{Ratio.of(peer.rounds, mine.rounds).median:.1f}" if peer else "",
                )
            )
    yield from table(("", "minirun", "minirun / floor", "fastest peer", "peer / minirun"), rows)


def scenario_table(figures: Sequence[Figure]) -> Iterator[str]:
    """One line for each side, one column for each size: the median, its spread, and the most memory at the greatest."""
    sizes = sorted({figure.size for figure in figures})
    rows = []
    for name in sorted({figure.side for figure in figures}, key=lambda n: NAMES.index(n) if n in NAMES else len(NAMES)):
        mine = {figure.size: figure for figure in figures if figure.side == name}
        most = mine[max(mine)]
        memory = f"{most.peak_mb:.0f}" if most.peak_mb else ""
        first = f"{number(most.first)}" if most.first else ""
        rows.append((name, *(cell(mine[size]) if size in mine else "" for size in sizes), first, memory))
    unit = figures[0].unit
    head = [f"{number(size)} ({unit})" if size else f"0 ({unit})" for size in sizes] if len(sizes) > 1 else [unit]
    yield from table(("", *head, f"first use ({unit})", "peak MB"), rows)


def cell(figure: Figure) -> str:
    """A figure with its spread, or why there is none."""
    if not figure.rounds:
        return figure.note.split(":")[0] or "failed"
    failed = f", **{figure.failed} sessions failed**" if figure.failed else ""
    return f"{number(figure.median)} [{number(min(figure.rounds))}–{number(max(figure.rounds))}]{failed}"


def durability_table(figures: Sequence[Figure]) -> Iterator[str]:
    """What the file of each side survives, and what that costs."""
    counted = {(figure.scenario, figure.side): figure for figure in figures}
    rows = []
    for side in (*OURS, *THEIRS):
        found = [counted.get((f"fsyncs-{what}", side.name)) for what in ("text", "tool")]
        if side.durability and any(found):
            rows.append((side.name, *(number(f.median) if f and f.rounds else "" for f in found), side.durability))
    yield from table(("", "fsyncs per text turn", "per tool turn", "durability"), rows, words=(0, 3))


def target_table(judged: Sequence[Verdict]) -> Iterator[str]:
    """Each target beside what was measured."""
    rows = [(v.target.what, v.bound, v.measured, v.verdict) for v in judged]
    yield from table(("", "target", "measured [least–greatest]", ""), rows, words=(0, 1, 2, 3))


def markdown(
    command: str, about: Mapping[str, object], figures: Sequence[Figure], rows: Sequence[Row]
) -> Iterator[str]:
    """Everything, for people."""
    yield "# What minirun costs, beside the floor and its peers"
    yield ""
    yield f"Written by `{command}`. {', '.join(f'{k} {v}' for k, v in about.items())}."
    yield ""
    yield "Medians of rounds in which the sides took turns; in brackets the least and the greatest round. The floor is"
    yield "bare trio, sqlite3, attrs and json doing only the unavoidable work. Machines and hours differ by a factor of"
    yield "two, so the ratios are what counts. What works in memory is told in processor time, what waits for a disk in"
    yield "time on the wall. Models and tools answer at once; tracing is off."
    yield ""
    yield from summary(figures)
    yield ""
    yield "## Targets"
    yield ""
    yield from target_table(list(verdicts(figures, rows)))
    if any(figure.scenario.startswith("fsyncs") for figure in figures):
        yield from ("", "## What the files survive", "")
        yield from durability_table(figures)
    scenarios = dict.fromkeys(f.scenario for f in figures if not f.scenario.startswith("fsyncs"))
    for scenario in scenarios:
        yield from ("", f"## {title_of(scenario, -1).replace('-1', 'n')}", "")
        yield from scenario_table([figure for figure in figures if figure.scenario == scenario])
    if rows:
        yield from ("", "## Parts", "", "```")
        yield from map(str, rows)
        yield "```"


def readme_table(folder: Path) -> Iterator[str]:
    """The lines of README's table, from the figures that were written to *folder*."""
    yield from summary(written(folder)[1], IN_README)


def written(folder: Path) -> tuple[str, list[Figure], list[Row]]:
    """What was written to *folder* before: by which command lines, and what they have found; nothing if it is empty."""
    file = folder / "results.json"
    if not file.exists():
        return "", [], []
    raw = json.loads(file.read_text(encoding="utf-8"))
    return raw["command"], [Figure(**figure) for figure in raw["figures"]], [Row(**row) for row in raw["parts"]]


def write(
    folder: Path, command: str, about: Mapping[str, object], figures: Sequence[Figure], rows: Sequence[Row]
) -> None:
    """Write `results.json`, `results.md` and `turns.svg`: what the command line *command* has found."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = {
        "command": command,
        "about": dict(about),
        "figures": [attrs.asdict(figure) for figure in figures],
        "targets": [
            {"what": v.target.what, "bound": v.bound, "measured": v.measured, "is": v.verdict}
            for v in verdicts(figures, rows)
        ],
        "parts": [attrs.asdict(row) for row in rows],
    }
    (folder / "results.json").write_text(json.dumps(raw, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "results.md").write_text("\n".join(markdown(command, about, figures, rows)) + "\n", encoding="utf-8")
    left_out = {CHANNELS: "", INLINE: ""}
    drawn = [f for f in figures if f.scenario in ("text-memory", "text-file") and f.rounds and f.side not in left_out]
    floors = [f for f in figures if f.scenario == "text-memory" and f.side == CHANNELS and f.rounds]
    if drawn:
        (folder / "turns.svg").write_text(chart([*drawn, *floors]), encoding="utf-8")
