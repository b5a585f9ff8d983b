"""A failure of a simulation, in words: what was chosen that is not dull, and what happened."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import outcome as results
import trio

from .._codec import from_json
from .._json import dumps
from ..errors import MinirunError
from ..events import Event
from ._choices import Choice

if TYPE_CHECKING:
    from ._simulate import Outcome
    from ._world import LogEntry

__all__ = ["counted", "headline", "in_words", "report", "story", "task_in_words", "tidied", "with_note"]

# What a screen can take. The whole log is `Outcome.log`.
CHOICES_MAX = 40
ENTRIES_MAX = 60
OTHERS_MAX = 3
CELL_CHARS_MAX = 60
COUNTERS_MAX = 30

# Choices that mean nothing to people, though a replay needs them: those of machinery, and faults that never came.
_OF_MACHINES = re.compile(r"order within trio|policy|salts of SQLite|how often: .*|.*: when")
# Choices whose number is their answer; others, of two options, are told by their label alone.
_QUESTION = re.compile(r"(which|what|how|by how|for how|after how)\b")


def report(outcome: Outcome) -> str:
    """The seed, if there is one, the choices that matter, in their order, and the end of the log as a table."""
    chosen = list(in_words(outcome.trace))
    lines = [] if outcome.seed is None else [f"seed: {outcome.seed!r}"]
    lines.append("choices that are not dull:" if chosen else "every choice is dull: it fails without anything special")
    lines += _cut(chosen, CHOICES_MAX)
    lines.append(f"reached: {counted(outcome.coverage)}")
    shown = outcome.log[-ENTRIES_MAX:]
    cut = f" (the last {len(shown)} of {len(outcome.log)} entries)" if len(shown) < len(outcome.log) else ""
    lines.append(f"what happened{cut}:")
    lines += _table(shown)
    return "\n".join(lines)


def counted(coverage: Mapping[str, int]) -> str:
    """Coverage counters in a line: `crash 2, mine 1`."""
    found = [f"{_cell(name)} {count}" for name, count in sorted(coverage.items()) if count]
    more = f" and {len(found) - COUNTERS_MAX} more" if len(found) > COUNTERS_MAX else ""
    return ", ".join(found[:COUNTERS_MAX]) + more if found else "nothing that simulations are for"


def story(headline: str, options: Mapping[str, Any], told: str, *, kept: str, commands: Sequence[str]) -> str:
    """What a person wants to know of a failure: what failed, under what, why (a report), and how to see it again."""
    under = [
        f"{name}: {', '.join(value) or 'none' if isinstance(value, list) else value}" for name, value in options.items()
    ]
    lines = [headline, "; ".join(under), told, f"kept in {kept}"]
    lines += [f"{'replay' if place == 0 else '    or'}: {command}" for place, command in enumerate(commands)]
    return "\n".join(lines)


def headline(what: str, outcome: Outcome, found_choices: int | None = None) -> str:
    """`seed 17 fails with CheckError; its 214 choices were shrunk to 3 that are not dull`."""
    assert outcome.failure is not None
    left = sum(1 for choice in outcome.trace if choice.picked)
    told = "" if found_choices is None else f"; its {found_choices} choices were shrunk to {left} that are not dull"
    return f"{what} fails with {type(outcome.failure).__name__}{told}"


# What stands between a scenario and its failure, and tells nothing of either.
_MACHINERY = tuple(
    os.path.join(os.path.dirname(module.__file__ or ""), "") for module in (trio, results, sys.modules["minirun"])
)


def with_note(failure: BaseException, note: str) -> None:
    """Add a note to a failure, also where that refuses to be changed, as frozen dataclasses do."""
    try:
        failure.add_note(note)
    except Exception:
        before = vars(failure).get("__notes__", ())
        vars(failure)["__notes__"] = [*(before if isinstance(before, Sequence) else ()), note]


def tidied(failure: BaseException) -> BaseException:
    """
    A failure whose traceback a person can read.

    It has no frames of trio's and minirun's but the innermost, where something was raised, and not the groups that
    nurseries have packed it in.
    """
    if isinstance(failure.__cause__, BaseExceptionGroup):
        with contextlib.suppress(Exception):  # it refuses to be changed
            failure.__cause__ = None
            failure.__suppress_context__ = isinstance(failure.__context__, BaseExceptionGroup)
    frames = []
    traceback = failure.__traceback__
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    kept = None
    for frame in reversed(frames):
        file = frame.tb_frame.f_code.co_filename
        if frame is frames[-1] or not (file.startswith(_MACHINERY) or file == contextlib.__file__):
            kept = types.TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return failure.with_traceback(kept)


def _cut(lines: Sequence[str], most: int) -> list[str]:
    shown = [f"  {line}" for line in lines[:most]]
    return shown if len(lines) <= most else [*shown, f"  and {len(lines) - most} more"]


# --- choices ----------------------------------------------------------------------------------------------------------


def in_words(trace: Iterable[Choice]) -> Iterator[str]:
    """
    The choices that are not dull, a line each. Steps that follow each other and say the same are one line.
    """
    first = last = step = 0
    held = ""
    for choice in _as_they_came_true(trace):
        is_step = re.fullmatch(r"step (\d+)", choice.label)
        if is_step:
            step = int(is_step[1])
        if not choice.picked or _OF_MACHINES.fullmatch(choice.label):
            continue
        told = _order(choice) if is_step else ""
        if told and told == held and step == last + 1:
            last = step
            continue
        if held:
            yield f"{_steps(first, last)}: {held}"
        held, first, last = told, step, step
        if not is_step:
            yield f"{f'after step {step}' if step else 'before the first step'}: {_other(choice)}"
    if held:
        yield f"{_steps(first, last)}: {held}"


def _as_they_came_true(trace: Iterable[Choice]) -> list[Choice]:
    """A fault is chosen long before it strikes; people want to know of it when it does."""
    placed = [(place if each.came_true is None else each.came_true, each) for place, each in enumerate(trace)]
    return [each for _, each in sorted(placed, key=lambda one: one[0])]


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _order(choice: Choice) -> str:
    """Which task was let through, and which had to wait."""
    if choice.picked >= len(choice.names):
        return f"{choice.picked} of {choice.options}"
    others = [task_in_words(name) for place, name in enumerate(choice.names) if place != choice.picked]
    more = f" and {len(others) - OTHERS_MAX} more" if len(others) > OTHERS_MAX else ""
    return f"{task_in_words(choice.names[choice.picked])} runs before {', '.join(others[:OTHERS_MAX])}{more}"


def _other(choice: Choice) -> str:
    if choice.came_true is not None:
        return choice.label
    if choice.picked < len(choice.names):
        return f"{choice.label}: {choice.names[choice.picked]}"
    is_told = choice.options == 2 and not _QUESTION.match(choice.label)
    return choice.label if is_told else f"{choice.label}: {choice.picked} of {choice.options}"


def task_in_words(name: str) -> str:
    """
    A task's logical name, as a person would say it.

    `/scenario/processes/say ada 2/minirun agent bank of e-1f/tool transfer:3` is "tool `transfer` (3rd) of ada's
    message 2".
    """
    parts = [part for part in name.split("/") if part]
    whose = next(filter(None, map(_whose, parts)), "")
    place = len(parts) - 1
    last = parts[place] if parts else "scenario"
    if _whose(last):
        return whose
    own, _, count = last.rpartition(":") if re.search(r":\d+$", last) else (last, "", "")
    told = _kind(own)
    if count:
        told = f"{told} ({_ordinal(int(count))})"
    return f"{told} of {whose}" if whose else told


def _whose(part: str) -> str:
    """Whose message a task is about: `say ada 2:3` is what ada says second, when it is tried for the third time."""
    said = re.fullmatch(r"say (.+) (\d+)( again| leaving)?(?::(\d+))?", part)
    if not said:
        return ""
    user, number, beside, attempt = said.groups()
    whose = user if number == "1" else f"{user}'s message {number}"
    also = [
        *({" again": ["sent again"], " leaving": ["patience"]}.get(beside, [])),
        *([f"try {attempt}"] if attempt else []),
    ]
    return f"{whose} ({', '.join(also)})" if also else whose


def _kind(own: str) -> str:
    if own in ("scenario", "processes"):
        return "the scenario" if own == "scenario" else "the next process"
    if re.fullmatch(r"process \d+", own):
        return own
    if own.startswith("tool "):
        return f"tool `{own.removeprefix('tool ')}`"
    if own.startswith("branch "):
        return f"branch `{own.removeprefix('branch ')}`"
    if own.startswith("a cleanup hook of "):
        return own
    if own.startswith("minirun "):
        own = re.sub(r" of \S+$", "", own).removeprefix("minirun ")
        return f"agent `{own.removeprefix('agent ')}`" if own.startswith("agent ") else f"the {own}"
    return f"task `{own}`"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


# --- the log ----------------------------------------------------------------------------------------------------------

_HEAD = ("time s", "who", "what", "seq", "author", "content", "state")


def _table(entries: Iterable[LogEntry]) -> list[str]:
    rows = [_HEAD, *map(_row, entries)]
    cells = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    used = [column for column in range(len(_HEAD)) if any(row[column] for row in cells[1:])]
    return ["  " + "  ".join(row[column].ljust(widths[column]) for column in used).rstrip() for row in cells]


def _row(entry: LogEntry) -> tuple[str, ...]:
    common = (f"{entry.at_s:.6f}", entry.who, entry.what)
    if entry.event is None:
        return (*common, "", "", "", "")
    try:
        event = from_json(Event, entry.event)
    except MinirunError:  # what a user's own note holds may be anything
        return (*common, "", "", entry.event, "")
    seq = "" if event.seq is None else str(event.seq)
    return (*common, seq, event.author or "", "; ".join(_content(event)), "; ".join(_state(event)))


def _content(event: Event) -> Iterator[str]:
    if event.text:
        yield dumps(event.text)
    for call in event.get_function_calls():
        yield f"call {call.name}({', '.join(f'{name}={dumps(value)}' for name, value in call.args.items())})"
    for answer in event.get_function_responses():
        yield f"{answer.name} -> {dumps(answer.response)}"
    if event.error_code:
        yield f"{event.error_code}: {event.error_message}"


def _state(event: Event) -> Iterator[str]:
    actions = event.actions
    for key, value in actions.state_delta.items():
        yield f"{key} = {dumps(value)}"
    for key in actions.state_removed:
        yield f"{key} deleted"
    for key, operation in actions.state_ops.items():
        yield f"{key}: {dumps(operation)}"


def _cell(text: str) -> str:
    """Text of any kind on one line, with nothing in it that could move a cursor or turn the reading order round."""
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: CELL_CHARS_MAX + 1])
    return plain if len(plain) <= CELL_CHARS_MAX else plain[: CELL_CHARS_MAX - 1] + "…"
