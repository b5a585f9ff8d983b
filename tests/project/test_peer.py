"""minirun and the peer in the same scenarios: every difference between them is listed, with its reason."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
import trio.testing

from ..peer.columns import FIXTURES, NORMALISATIONS, Played, differences, extract, line, read, write
from ..peer.differences import DIFFERENCES, FILES, OUT_OF_SCOPE, PENDING
from ..peer.play import SCENARIOS, play

for _name in FILES:
    if _name not in PENDING:
        import_module(f"tests.peer.{_name}")

RECORDED = {(name, played.title): played for name in FILES for played in read(FIXTURES / f"{name}.json")}


@pytest.mark.parametrize(("file", "title"), RECORDED, ids=[f"{file}: {title}" for file, title in RECORDED])
async def test_each_scenario_differs_only_as_listed(
    file: str, title: str, autojump_clock: trio.testing.MockClock
) -> None:
    """What the caller sees and what is stored is what the peer does, but for the differences that have a reason."""
    if file in PENDING or title in PENDING:
        pytest.skip("not built yet")
    listed = [each for lines in DIFFERENCES.get((file, title), {}).values() for each in lines]
    assert sorted(differences(RECORDED[file, title], await play(file, title))) == sorted(listed)


def test_every_recorded_scenario_is_played() -> None:
    """There is a scenario for each recorded one and no other; differences and omissions name scenarios that exist."""
    played = {place for place in RECORDED if place[0] not in PENDING}
    assert set(SCENARIOS) == played
    assert set(DIFFERENCES) <= set(RECORDED)
    assert not set(OUT_OF_SCOPE) & set(RECORDED)
    assert {name for name, _ in OUT_OF_SCOPE} <= set(FILES)


def test_every_reason_is_given() -> None:
    """No difference and no omission is listed without a reason."""
    reasons = [reason for listed in DIFFERENCES.values() for reason in listed]
    assert all(len(reason) > 20 for reason in [*reasons, *OUT_OF_SCOPE.values()])
    assert all(lines for listed in DIFFERENCES.values() for lines in listed.values())


async def test_each_normalisation_is_needed(autojump_clock: trio.testing.MockClock) -> None:
    """Without one of them some scenario would differ where both do the same; each says why they are the same."""
    played = {place: await play(*place) for place in RECORDED if place in SCENARIOS}
    for left_out in NORMALISATIONS:
        assert left_out.__doc__
        others = [normal for normal in NORMALISATIONS if normal is not left_out]
        assert any(
            differences(RECORDED[p], ours) != differences(RECORDED[p], ours, others) for p, ours in played.items()
        )


# --- the comparison itself --------------------------------------------------------------------------------------------


def _played(*lines: dict[str, object], state: dict[str, object] | None = None) -> Played:
    return Played("t", [dict(each) for each in lines], state or {}, [])


def test_the_same_is_the_same() -> None:
    """Two equal scenarios have no difference."""
    one = _played({"turn": 1}, {"event": "a", "kinds": ["text"], "final": True})
    assert differences(one, _played(*one.lines)) == []


def test_a_difference_says_where_and_what() -> None:
    """A column that differs, a line that is missing and one that is new are told apart; so is what is stored."""
    theirs = _played({"note": "x", "sees": 1}, {"event": "a", "kinds": ["text"], "final": True}, {"note": "end"})
    ours = _played({"note": "x", "sees": 2}, {"note": "end"}, {"exception": "OSError"}, state={"k": 1})
    assert differences(theirs, ours) == [
        "1: sees: 1 there, 2 here",
        "2: only there: event a kinds=[text] final=true",
        "before 4: only here: exception OSError",
        "stored: state: {} there, {k:1} here",
        "stored: log: [] there, null here",
    ]


def test_columns_are_taken_from_a_trace_without_its_words(tmp_path: Path) -> None:
    """Ids, texts and the framework's wording stay behind; who did what, and what came of it, is kept."""
    trace = [
        {"kind": "scenario", "title": "t"},
        {"kind": "turn", "message": {"role": "user", "parts": [{"text": "a question"}]}},
        {
            "kind": "request",
            "model": "m_sub",
            "contents": [{"role": "user", "parts": [{"text": "For context: words"}, {"text": "said"}]}],
            "system": "Mine.\n\nYou are an agent. Words.",
            "tools": [{"name": "add", "schema": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}],
        },
        {
            "kind": "event",
            "id": "U1",
            "author": "sub",
            "branch": "par.sub@adk-U7",
            "partial": None,
            "final": False,
            "role": "user",
            "parts": [{"response": {"id": "adk-U7", "name": "add", "response": {"error": "words"}}}],
            "part_kinds": ["response"],
            "actions": {"escalate": True},
        },
        {"kind": "note", "what": "seen", "error": "words", "n": 1},
        {"kind": "exception", "type": "ValueError", "text": "words", "group": None},
        {"kind": "session", "state": {"k": 1}, "persisted": [["U5", "user", ["text"]]]},
    ]
    (played,) = extract(map(json.dumps, trace), with_prompts=True)
    assert played.lines == [
        {"turn": 1},
        {
            "request": "sub",
            "contents": [["user", ["text"]]],
            "tools": ["add"],
            "instruction": "Mine.",
            "parameters": {"add": {"a": "integer!"}},
        },
        {
            "event": "sub",
            "branch": "par.sub@call",
            "role": "user",
            "kinds": ["response"],
            "responses": [["add", "error"]],
            "actions": {"escalate": True},
        },
        {"note": "seen", "n": 1},
        {"exception": "ValueError"},
    ]
    assert (played.state, played.stored) == ({"k": 1}, [["user", ["text"]]])
    write(tmp_path / "t.json", [played])
    assert read(tmp_path / "t.json") == [played]
    assert line(a=None, b=[], c=1) == {"c": 1}
