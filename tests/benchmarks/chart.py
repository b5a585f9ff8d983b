"""
The chart: what a text turn costs against the length of the history, in memory and in a file, both scales logarithmic.

It is written as SVG by hand, so that drawing needs nothing that measuring does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import attrs

from .contest import Figure

WIDTH, HEIGHT = 960, 470
TOP, BOTTOM = 56, 56
PANELS = {"text-memory": (64, 300, "in memory"), "text-file": (514, 750, "in a SQLite file")}
FONT = "font-family='system-ui, sans-serif'"
INK, FAINT, GRID = "#1f2328", "#656d76", "#d8dee4"

# By the first word of a side's name; dashes tell sides of one name apart.
COLOURS = {
    "minirun": "#0969da",
    "floor": "#8c959f",
    "google-adk": "#bc4c00",
    "openai-agents": "#1a7f37",
    "pydantic-ai": "#bf3989",
    "langgraph": "#8250df",
}


@attrs.frozen
class Axes:
    """Where a figure is drawn."""

    left: float
    right: float
    sizes: tuple[int, ...]
    least: float
    greatest: float

    def x(self, size: int) -> float:
        """The place of a size: logarithmic, 0 one step before the first."""
        logs = [math.log10(s) if s else None for s in self.sizes]
        known = [log for log in logs if log is not None] or [0.0]
        zero = min(known) - 1
        low = zero if 0 in self.sizes else min(known)
        share = ((math.log10(size) if size else zero) - low) / ((max(known) - low) or 1)
        return self.left + share * (self.right - self.left)

    def y(self, value: float) -> float:
        """The place of a time."""
        low, high = math.log10(self.least), math.log10(self.greatest)
        return HEIGHT - BOTTOM - (math.log10(value) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def chart(figures: Sequence[Figure]) -> str:
    """The SVG of these figures of `text-memory` and `text-file`, in µs."""
    medians = [figure.median for figure in figures]
    least = 10 ** math.floor(math.log10(min(medians)))
    greatest = 10 ** math.ceil(math.log10(max(medians) * 1.001))
    sizes = tuple(sorted({figure.size for figure in figures}))
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img'"
        " aria-label='Cost of a text turn against the length of the history'>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>",
        _text(24, 26, "One text turn: time against stored events before it", size=17, weight="600"),
    ]
    for scenario, (left, right, title) in PANELS.items():
        axes = Axes(left, right, sizes, least, greatest)
        parts += [_text(left, 48, title, size=13, colour=FAINT), *_grid(axes)]
        parts += _lines(axes, [figure for figure in figures if figure.scenario == scenario])
    return "\n".join([*parts, "</svg>", ""])


def _grid(axes: Axes) -> list[str]:
    parts = []
    for power in range(round(math.log10(axes.least)), round(math.log10(axes.greatest)) + 1):
        y = axes.y(10**power)
        label = f"{10**power} µs" if power < 3 else f"{10 ** (power - 3)} ms" if power < 6 else f"{10 ** (power - 6)} s"
        parts.append(f"<path d='M{axes.left} {y:.1f}H{axes.right}' stroke='{GRID}'/>")
        parts.append(_text(axes.left - 8, y + 4, label, colour=FAINT, anchor="end"))
    for size in axes.sizes:
        label = f"{size:,}".replace(",", "\u202f")
        parts.append(_text(axes.x(size), HEIGHT - BOTTOM + 20, label, colour=FAINT, anchor="middle"))
    middle = (axes.left + axes.right) / 2
    return [*parts, _text(middle, HEIGHT - BOTTOM + 42, "stored events", colour=FAINT, anchor="middle")]


def _lines(axes: Axes, figures: Sequence[Figure]) -> list[str]:
    """Each side as a line with its name at the right, names moved apart where they would cover each other."""
    sides = dict.fromkeys(figure.side for figure in figures)
    lines = {s: sorted((f for f in figures if f.side == s), key=lambda f: f.size) for s in sides}
    parts, seen = [], set()
    below = float(HEIGHT)
    for side, line in sorted(lines.items(), key=lambda item: item[1][-1].median):
        name = side.partition(",")[0]
        colour, dashes = COLOURS.get(name, INK), " stroke-dasharray='5 4'" if name in seen or name == "floor" else ""
        seen.add(name)
        width = 3.5 if name == "minirun" else 2
        points = " ".join(f"{axes.x(f.size):.1f},{axes.y(f.median):.1f}" for f in line)
        parts.append(f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='{width}'{dashes}/>")
        for point in points.split():
            x, y = point.split(",")
            parts.append(f"<circle cx='{x}' cy='{y}' r='{width}' fill='{colour}'/>")
        at = axes.y(line[-1].median)
        below = min(at, below - 15)
        end = axes.x(line[-1].size)
        if below < at - 6 or end < axes.right:
            parts.append(
                f"<path d='M{end + 6:.1f} {at:.1f}L{axes.right + 8:.1f} {below:.1f}' stroke='{colour}' opacity='.35'/>"
            )
        weight = "600" if name == "minirun" else "400"
        parts.append(_text(axes.right + 12, below + 4, side, colour=colour, weight=weight))
    return parts


def _text(
    x: float, y: float, text: str, *, size: int = 12, colour: str = INK, anchor: str = "start", weight: str = "400"
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' font-weight='{weight}' fill='{colour}'"
        f" text-anchor='{anchor}'>{escape(text)}</text>"
    )
