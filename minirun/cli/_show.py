"""
Events on a terminal.

What models and users say is shown as plain text: it is never read as markup, and characters that could move the
cursor, recolour the screen or turn the reading order round are made visible. Everything else is printed as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from rich.console import Console
from rich.segment import Segment, Segments

from .._json import dumps
from ..events import Event
from ..flows._questions import QUESTIONS, SLEEP_UNTIL
from ..sessions import PendingCall

__all__ = [
    "EventPrinter",
    "answer_line",
    "detail_lines",
    "is_told",
    "plain",
    "plain_json",
    "question_line",
    "time_of",
    "write",
]


# Enough to see what a tool did while the conversation goes on; `minirun sessions show` has all of it.
DETAIL_CHARS_MAX = 240

# What a run that pauses shows as a question, when it has paused. Nobody is asked for a time.
ASKED_AT_THE_END = QUESTIONS - {SLEEP_UNTIL}

# Control characters, lone surrogates; and bidirectional embeddings, overrides and isolates, which can make a text look
# like another one. Not all of category Cf, which also has the joiners that emoji and several scripts are written with.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def plain(text: str, keep: str = "\n\t") -> str:
    """Return *text* with control characters, but those in *keep*, replaced by visible ones."""
    return UNSAFE.sub(lambda found: found[0] if found[0] in keep else _visible(found[0]), text)


def plain_json(text: str) -> str:
    """Return the JSON *text*, which says the same, with its control characters written as JSON writes them."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _visible(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 0x100 else f"\\u{ord(c):04x}"


def time_of(seconds: float) -> str:
    """A time in UTC, to the second; the number of seconds where no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, tz=UTC).isoformat(sep=" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


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
        if is_told(event):
            write(self._console, "  told: " + event.text.replace("\n", "\n    "), "dim")
        elif event.text and event.id not in self._streamed:
            write(self._console, event.text)
        self._streamed.discard(event.id)
        for line in detail_lines(event, hide=ASKED_AT_THE_END):
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


def is_told(event: Event) -> bool:
    """Whether the event's text was said to its agent, and not by it: what an answer lacks, for example."""
    return bool(event.text) and event.author != "user" and event.content is not None and event.content.role == "user"


def detail_lines(event: Event, hide: Collection[str] = ()) -> list[str]:
    """The calls, questions, responses and state changes of an event, a line each, but the calls of names to *hide*."""
    actions = event.actions
    lines = [
        f"  {'question' if call.name in QUESTIONS else 'call'} {call.name}({_arguments(dict(call.args))})"
        for call in event.get_function_calls()
        if call.name not in hide
    ]
    lines += [f"  {item.name} -> {dumps(item.response)}" for item in event.get_function_responses()]
    if actions.rewind_before_invocation_id:
        lines.append(f"  undoes the invocation {actions.rewind_before_invocation_id} and all after it")
    if actions.compaction:
        lines.append(f"  summary {dumps(actions.compaction)}")
    lines += [f"  state {key} = {dumps(value)}" for key, value in actions.state_delta.items()]
    lines += [f"  state {key} deleted" for key in actions.state_removed]
    lines += [f"  state {key}: {dumps(operation)}" for key, operation in actions.state_ops.items()]
    return lines


def _arguments(args: dict[str, object]) -> str:
    return ", ".join(f"{name}={dumps(value)}" for name, value in args.items())


def question_line(question: PendingCall) -> str:
    """An open question on one line, with what answers it."""
    asked = f"{question.kind.replace('_', ' ')} {what_is_asked(question)}".rstrip()
    return f"? {plain(asked, keep='')}  [{question.call_id}]"


def what_is_asked(question: PendingCall) -> str:
    """The call that waits, and for what: a time, a credential, or an answer of a form."""
    hint = question.hint if isinstance(question.hint, str) else "" if question.hint is None else dumps(question.hint)
    told = [f"{question.tool}({dumps(question.args)})" if question.tool else "", hint]
    if question.due is not None:
        told.append(f"at {time_of(question.due)}")
    elif question.auth_config is not None:
        told.append(f"credential {dumps(question.auth_config.credential_key)} ({question.auth_config.scheme})")
    elif question.schema is not None:
        told.append(f"form {dumps(question.schema)}")
    return " ".join(filter(None, told))


def answer_line(question: PendingCall, target: str, db: object) -> str:
    """What to type to answer a question of the app at *target*; *db* is as `--db` takes it, None if there is none."""
    if db is None:
        return "  without --db it is kept nowhere, and no other command can answer it"
    command = shlex.join(["minirun", "answer", target, "--db", str(db), question.call_id])
    if question.kind == "credential":
        return f"  {command}   (asks for it; with `no` at the end: refuses)"
    if question.kind == "confirmation":
        return f"  {command} yes   (or no)"
    return f"  {command} VALUE   (JSON, or a text)"
