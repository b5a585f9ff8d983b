"""
Events on a terminal.

What models and users say is shown as plain text: it is never read as markup, and characters that could move the
cursor, recolour the screen or turn the reading order round are made visible. Everything else is printed as it is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from rich.console import Console
from rich.segment import Segment, Segments

from .._json import dumps
from ..events import Event
from ..sessions import PendingCall

__all__ = ["EventPrinter", "detail_lines", "plain", "question_line", "write"]


# Enough to see what a tool did while the conversation goes on; `minirun sessions show` has all of it.
DETAIL_CHARS_MAX = 240

# Bidirectional embeddings, overrides and isolates: they can make a text look like another one. Not all of category Cf,
# which also has the joiners that emoji and several scripts are written with.
REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain(text: str, keep: str = "\n\t") -> str:
    """Return *text* with control characters, but those in *keep*, replaced by visible ones."""
    return "".join(c if c in keep or not _is_unsafe(c) else _visible(c) for c in text)


def _is_unsafe(c: str) -> bool:
    return unicodedata.category(c) in ("Cc", "Cs") or c in REORDERING


def _visible(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 0x100 else f"\\u{ord(c):04x}"


def write(console: Console, text: str, style: str = "", end: str = "\n") -> None:
    """Print *text*, made plain, and nothing else: no markup, no wrapping, and tabs stay tabs (rich's Text has none)."""
    console.print(Segments([Segment(plain(text), console.get_style(style)), Segment(end)]), soft_wrap=True)


class EventPrinter:
    """Prints the events of a run; the text of fragments is not printed a second time with their aggregate."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._streamed: set[str | None] = set()  # the ids of events whose fragments were printed
        self._open: str | None = None  # the one among them whose line has not ended

    def show(self, event: Event, failed_calls: Mapping[str, str]) -> None:
        """Print one event, and where tools have failed that it answers for."""
        if event.partial:
            if event.text:
                self._continue(event)
            return
        self.end_line()
        if event.text and event.id not in self._streamed:
            write(self._console, event.text)
        self._streamed.discard(event.id)
        for line in detail_lines(event):
            write(self._console, line if len(line) <= DETAIL_CHARS_MAX else line[: DETAIL_CHARS_MAX - 1] + "…", "dim")

        for item in event.get_function_responses():
            place = failed_calls.get(item.id or "")
            if place is not None:
                write(self._console, f"  {item.name} failed at {plain(place, keep='')}", "red")

    def end_line(self) -> None:
        """End a line that fragments have left open."""
        if self._open is not None:
            write(self._console, "")
            self._open = None

    def _continue(self, event: Event) -> None:
        if self._open != event.id:  # agents that stream at the same time take turns, a line each
            self.end_line()
        write(self._console, event.text, end="")
        self._streamed.add(event.id)
        self._open = event.id


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


def question_line(question: PendingCall) -> str:
    """An open question on one line, with what answers it."""
    what = f"{question.tool}({dumps(question.args)})" if question.tool else ""
    hint = question.hint if isinstance(question.hint, str) else dumps(question.hint) if question.hint else ""
    asked = " ".join(part for part in (question.kind.replace("_", " "), what, hint) if part)
    return f"? {plain(asked, keep='')}  [{question.call_id}]"
