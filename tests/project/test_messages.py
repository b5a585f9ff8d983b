"""
What messages show of what was found: the beginning of it, and never an error of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import minirun
from minirun import InMemorySessionService, RunConfig, Runner
from minirun._json import brief, shown
from minirun.errors import ConfigurationError, MinirunError

from ..syntax import nodes, parsed

PACKAGE = Path(minirun.__file__).parent

# A "who" without a noun before it makes a reader look for the person: "the caller that has left", not "who has left".
WITHOUT_NOUN = re.compile(r"\b(whoever|who (has|is|goes|waits|dies|asks|answers))\b", re.IGNORECASE)
# Some have their noun: "the person who is asked".
WITHOUT_NOUN_MAX = 20


class UnreadableError(Exception):
    """Raised where somebody looks."""


class Unreadable:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise UnreadableError


def cut_reprs() -> Iterator[str]:
    """Where a repr is cut by a format, which raises for what has none."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text("utf-8")
        for node in nodes(parsed(source)) if "!r:" in source else ():
            if isinstance(node, ast.FormattedValue) and node.conversion == ord("r") and node.format_spec is not None:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}"


def test_one_helper_cuts_what_messages_show() -> None:
    """
    No message cuts a repr by itself: `brief` does, which raises for nothing.
    """
    assert [place.partition(":")[0] for place in cut_reprs()] == ["_json.py"]


@pytest.mark.parametrize("value", [10**5000, -(10**5000), Unreadable(), [10**5000], "x" * 100_000], ids=type)
def test_whatever_is_found_can_be_shown(value: object) -> None:
    """
    An integer of 5 000 digits has no repr, and foreign objects may raise: both are told by their type.
    """
    assert 0 < len(brief(value)) <= 80
    assert type(value).__name__ in shown(value)


@pytest.mark.parametrize("metadata", [1, "a", [], True, 10**5000, 0, False, Unreadable()], ids=type)
def test_the_metadata_of_a_run_is_a_mapping(metadata: object) -> None:
    """
    Anything else is refused by name, what is falsy included.
    """
    with pytest.raises(ConfigurationError, match=r"RunConfig\.custom_metadata: expected a mapping"):
        RunConfig(custom_metadata=metadata)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("events", [None, 1, "abc", {}, [1], [None], 10**5000, Unreadable()], ids=type)
async def test_an_import_says_what_it_takes(events: object) -> None:
    """
    What is no list of events is refused with an error of minirun's, and nothing is stored.
    """
    service = InMemorySessionService()
    with pytest.raises(MinirunError):
        await service.import_session(app_name="app", user_id="u", session_id="s", events=events)  # type: ignore[arg-type]
    assert (await service.list_sessions(app_name="app")).sessions == []


def test_a_runner_shows_what_is_no_app() -> None:
    """
    An argument whose repr raises is told by its type.
    """
    with pytest.raises(ConfigurationError, match="a value of type Unreadable"):
        Runner(app=Unreadable(), session_service=InMemorySessionService())  # type: ignore[arg-type]  # so it is


def test_texts_name_what_they_are_about() -> None:
    """
    Docstrings, comments and messages of the package rarely say "who" without saying which task, agent or person.
    """
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {match[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for match in WITHOUT_NOUN.finditer(line)
    ]
    assert len(found) <= WITHOUT_NOUN_MAX, "\n".join(found)
