"""
Events on a terminal.

What models and users say is shown as plain text: it is never read as markup, and control characters, which could move
the cursor or recolour the screen, are made visible.
"""

from __future__ import annotations

import unicodedata

from rich.console import Console
from rich.text import Text

from .._json import dumps
from ..events import Event

__all__ = ["EventPrinter", "plain"]


# Enough to see what a tool did while the conversation goes on; `minirun sessions show` has all of it.
DETAIL_CHARS_MAX = 240


def plain(text: str) -> str:
    """Return *text* with control characters, but line ends and tabs, replaced by visible ones."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf") else f"\\x{ord(c):02x}" for c in text
    )


class EventPrinter:
    """Prints the events of a run; the text of fragments is not printed a second time with their aggregate."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._streamed: str | None = None  # the id of the event whose fragments were printed

    def show(self, event: Event) -> None:
        """Print one event."""
        if event.partial:
            if event.text:
                self._console.print(Text(plain(event.text)), end="", soft_wrap=True)
                self._streamed = event.id
            return
        if self._streamed is not None:
            self._console.print()
        if event.text and self._streamed != event.id:
            self._console.print(Text(plain(event.text)), soft_wrap=True)
        self._streamed = None
        for line in detail_lines(event):
            shown = line if len(line) <= DETAIL_CHARS_MAX else line[: DETAIL_CHARS_MAX - 1] + "…"
            self._console.print(Text(plain(shown), style="dim"), soft_wrap=True)

    def interrupted(self) -> None:
        """End a line that a cut stream has left open."""
        if self._streamed is not None:
            self._console.print()
            self._streamed = None


def detail_lines(event: Event) -> list[str]:
    """The calls, responses and state changes of an event, a line each."""
    actions = event.actions
    lines = [f"  call {call.name}({_arguments(dict(call.args))})" for call in event.get_function_calls()]
    lines += [f"  {item.name} -> {dumps(item.response)}" for item in event.get_function_responses()]
    lines += [f"  state {key} = {dumps(value)}" for key, value in actions.state_delta.items()]
    lines += [f"  state {key} deleted" for key in actions.state_removed]
    lines += [f"  state {key}: {dumps(operation)}" for key, operation in actions.state_ops.items()]
    return lines


def _arguments(args: dict[str, object]) -> str:
    return ", ".join(f"{name}={dumps(value)}" for name, value in args.items())
