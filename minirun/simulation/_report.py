"""A failure of a simulation, in words: what was chosen that is not dull, and what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._choices import Choice

if TYPE_CHECKING:
    from ._simulate import Outcome

__all__ = ["report"]

LINES_MAX = 60
LINE_CHARS_MAX = 200


def report(outcome: Outcome) -> str:
    """The choices that matter, in their order, and the end of the log."""
    lines = ["the choices that are not dull:"]
    for place, choice in enumerate(outcome.trace):
        if choice.picked:
            lines.append(f"  choice {place}: {_in_words(choice)}")
    shown = [str(entry) for entry in outcome.log[-LINES_MAX:]]
    cut = f" (the last {LINES_MAX} of {len(outcome.log)} lines)" if len(shown) < len(outcome.log) else ""
    lines.append(f"what happened{cut}:")
    lines.extend(f"  {line if len(line) <= LINE_CHARS_MAX else line[: LINE_CHARS_MAX - 1] + '…'}" for line in shown)
    return "\n".join(lines)


def _in_words(choice: Choice) -> str:
    if choice.names:
        chosen = choice.names[choice.picked]
        others = ", ".join(name for name in choice.names if name != chosen)
        return f"{choice.label}: {chosen} goes on before {others}"
    return choice.label if choice.options == 2 else f"{choice.label}: {choice.picked} of {choice.options}"
