"""
Coverage of behaviour: what a simulation has met, and what together with what.

A world *notes* what happens in it as it goes: each point of the runtime that a task passes (commits, questions, tools,
recoveries), each event that is stored and each that is seen, the ends of invocations, faults, deaths, all counters. To
note one appends to a list, and no more; what follows is done by a search, for the outcomes that it looks at.

A note has a *kind*: what it says, without the ids and numbers that differ between worlds; of a counter its whole name.
A *feature* is one of these, as a number that is the same in every process:

* two kinds of notes that follow each other, and how near their tasks are: the same task, the same message of a user,
  the same process, another one;
* for each message of a user three kinds: what it did, what something else did then, and what it did next;
* a fault, or anything else that is counted, with the notes before and after it, and with the one counted before it;
* a counter, and its size: 1, 2, 3, up to 7, up to 15, and so on.

Finer ones (sequences of four, all pairs) are almost all new in almost every world, and coarser ones (single kinds) are
all met after a few dozen: with neither does a search learn which worlds are odd.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

from ..events import Event

if TYPE_CHECKING:
    from ._world import LogEntry

__all__ = ["Note", "features_of"]

Note: TypeAlias = "tuple[str | Event | LogEntry, str, int]"
"""What was met, by the task of which name (empty: by none, or it does not matter), after how many choices."""

COUNTED = "counted: "

# What differs between two worlds in which the same happens: ids, and whatever is counted.
_VARIABLE = re.compile(r"#\S*|\b[a-z]*-?[0-9a-f]{8,}\b|[0-9]+(\.[0-9]+)?|\S*/")
_MASK = 2**64 - 1
# How the parts of a feature are put together (the prime of FNV-1a, 64 bits).
_PRIME = 0x100000001B3
_PAIR, _BETWEEN, _COUNTED, _SIZE, _AFTER = range(1, 6)


def features_of(notes: Sequence[Note], coverage: Mapping[str, int]) -> dict[int, int]:
    """The features of a simulation, and after how many choices each was first met."""
    found: dict[int, int] = {}
    lasts: dict[str, tuple[int, int]] = {}  # of each message: its last kind, and what came between since then
    before, whose_before, counted_before = 0, ("", "", ""), 0
    for what, task, place in notes:
        kind = _kind_of(what)
        whose = _whose(task)
        found.setdefault(_mixed(_PAIR, before, _nearness(whose_before, whose), kind), place)
        if isinstance(what, str) and what.startswith(COUNTED):
            found.setdefault(_mixed(_COUNTED, counted_before, kind), place)
            counted_before = kind
        message = whose[1]
        if message:
            for other, (last, _) in lasts.items():
                if other != message:
                    lasts[other] = (last, kind)
            last, between = lasts.get(message, (0, 0))
            if between:
                found.setdefault(_mixed(_BETWEEN, last, between, kind), place)
            lasts[message] = (kind, 0)
        elif lasts:
            lasts = {other: (last, kind) for other, (last, _) in lasts.items()}
        before, whose_before = kind, whose
    end = notes[-1][2] if notes else 0
    for name, count in coverage.items():
        if count:
            found.setdefault(_mixed(_SIZE, _exactly(name), count if count <= 3 else 2 + count.bit_length()), end)
    return found


def _mixed(*parts: int) -> int:
    mixed = 0xCBF29CE484222325
    for part in parts:
        mixed = ((mixed ^ part) * _PRIME) & _MASK
    return mixed


def _kind_of(what: str | Event | LogEntry) -> int:
    if isinstance(what, str):
        return _exactly(what) if what.startswith(COUNTED) else _number(what)
    if isinstance(what, Event):
        return _number(_event_in_words(what))
    event = what._event
    return _number(f"{what.what} {_event_in_words(event)}" if isinstance(event, Event) else what.what)


@lru_cache(maxsize=4096)
def _number(text: str) -> int:
    """What stands for a kind: `hash` would be another one in each process."""
    return crc32(_VARIABLE.sub("", text).encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=4096)
def _exactly(text: str) -> int:
    """What stands for the name of a counter: who counts `level 1` and `level 2` means two things."""
    return crc32(text.encode("utf-8", "surrogatepass"))


def _event_in_words(event: Event) -> str:
    actions = event.actions
    parts = event.content.parts if event.content is not None else ()
    kinds = sorted({_part_in_words(part) for part in parts})
    written = ("delta" * bool(actions.state_delta), "ops" * bool(actions.state_ops))
    ends = ("escalates" * bool(actions.escalate), "waits" * bool(event.long_running_tool_ids))
    return " ".join((event.author or "", *kinds, *written, *ends, event.error_code or ""))


def _part_in_words(part: object) -> str:
    call, response = getattr(part, "function_call", None), getattr(part, "function_response", None)
    if call is not None:
        return f"call {call.name}"
    if response is not None:
        return f"answer {response.name} {next(iter(response.response), '')}"
    return "content"


@lru_cache(maxsize=4096)
def _whose(task: str) -> tuple[str, str, str]:
    """The process, the message and the name of a task."""
    parts = task.split("/")
    process = next((part for part in parts if part.startswith("process ")), "")
    message = next((part for part in parts if part.startswith("say ")), "")
    return process, message, task


def _nearness(one: tuple[str, str, str], other: tuple[str, str, str]) -> int:
    if one[1] and one[1] == other[1]:
        return 0
    return 1 if one[0] == other[0] else 2
