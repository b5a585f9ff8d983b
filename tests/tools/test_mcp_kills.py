"""
kill -9 at each event of a call whose server asks two things, which is restarted in between: over stdio and over HTTP.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from ..fork_server import program, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

BOTH = ("before", "after")
ALL = [pytest.param(way, "012", 1, BOTH, marks=pytest.mark.slow) for way in ("in process", "stdio", "http", "older")]


@pytest.mark.parametrize(
    ("way", "lives", "every", "times"),
    [("http", "1", 2, ("before",)), ("stdio", "0", 2, ("after",)), ("older", "1", 2, ("after",)), *ALL],
)  # fmt: skip
def test_a_conversation_that_is_killed_at_each_event_asks_only_what_is_new(
    way: str, lives: str, every: int, times: tuple[str, ...], tmp_path: Path
) -> None:
    """
    Each life has a server of its own that knows nothing: the call comes to its end, each question is asked once, and
    what has a stored result is not called again.
    """
    ran = run(program("tests.mcp_kills", tmp_path, way, lives, every, *times))
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: list[tuple[str, dict[str, Any]]] = json.loads(ran.stdout)
    assert len(found) >= 2 * len(lives) * len(times) / every
    for name, place in found:
        assert place["statuses"].count(-signal.SIGKILL) == 1, name
        assert [each.split(": ")[1].split("?")[0] for each in place["asked"]] == [
            "How many nights in Rome",
            "Which room for 3 nights",
        ], name
        assert place["answers"] == [{"result": "double room in Rome for 3 nights"}], name
        booked = [line for line in place["notes"] if line.startswith("booked")]
        # A life that ended between the booking and the storing of its result books again, as its tool says ("rerun").
        assert booked in (["booked Rome 3 double"] * times for times in ((1, 2) if "before" in name else (1,))), name
        assert not place["repeated"], name
