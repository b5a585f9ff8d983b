"""
What commands print of files with times beyond the calendar, characters that steer terminals, and very long texts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from minirun import App, Event, InMemorySessionService, LlmAgent, Runner, SqliteSessionService
from minirun.apps import EventsCompactionConfig
from minirun.artifacts import SqliteArtifactService
from minirun.cli._commands import cli
from minirun.cli._show import UNSAFE, plain
from minirun.errors import InvalidValueError
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm
from minirun.types import Part

from ..stores import HERE, append, begin, enter, get, sql

# Every way to begin an escape sequence, and to turn the reading order round.
STEERING = "a\x1b[31m b\x9b31m c\u202ed\u2066e\x7f\x85f"


def printed(*arguments: str, stdin: str = "") -> Result:
    """Run a command that has to succeed."""
    result = CliRunner().invoke(cli, arguments, input=stdin)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a session that says what steers terminals, a run of it, and an artifact."""
    path = tmp_path / "a.db"

    async def make() -> None:
        async with SqliteSessionService(path, durability="process") as service:
            await service.create_session(**HERE)
            writer = await enter(service)
            await begin(writer)
            await writer.finish(None)
            await append(service, await get(service), STEERING, key=STEERING)
            artifacts = SqliteArtifactService(service)
            await artifacts.save_artifact(**HERE, filename="f", artifact=Part(text="x"))

    trio.run(make)
    return path


@pytest.mark.parametrize("seconds", [1e12, -1e12, 1e300])
def test_times_beyond_the_calendar_are_shown_as_numbers(seconds: float, path: Path) -> None:
    """
    Lists of sessions, artifacts and invocations show a file with any time in it.
    """
    sql(path, "UPDATE sessions SET update_time = ?, create_time = ?", seconds, seconds)
    sql(path, "UPDATE artifact_versions SET create_time = ?", seconds)
    assert str(seconds) in printed("sessions", "list", "--db", str(path)).output
    assert str(seconds) in printed("artifacts", "list", "--db", str(path), "app", "u", "s").output
    assert "e-1" in printed("invocations", "list", "--db", str(path)).output


async def test_times_beyond_the_calendar_are_refused_from_outside(tmp_path: Path) -> None:
    """
    An event of the year 33 658 is neither appended nor imported; milliseconds are named as the likely mistake.
    """
    services: list[BaseSessionService] = [InMemorySessionService(), SqliteSessionService(tmp_path / "a.db")]
    for service in services:
        session = await service.create_session(**HERE)
        for seconds in (1e12, -1e12):
            with pytest.raises(InvalidValueError, match=r"within the years 1 to 9999.*divide milliseconds"):
                await service.append_event(session, Event(author="a", message="x", timestamp=seconds))
        stored = await service.append_event(session, Event(author="a", message="x", timestamp=-1e10))
        assert stored.timestamp == -1e10
        events = [*await service.read_events(**HERE)]
        late = Event(id="e", author="a", message="y", seq=2, timestamp=1e12)
        with pytest.raises(InvalidValueError, match=r"events\[2\]\.timestamp"):
            await service.import_session(app_name="app", user_id="u", session_id="new", events=[*events, late])
        assert await service.get_session(app_name="app", user_id="u", session_id="new") is None
        await service.aclose()


def test_nothing_that_is_printed_steers_the_terminal(path: Path) -> None:
    """
    No command that shows or exports a session prints a control character, a bidirectional override or an isolate.
    """
    for command in (["show"], ["export"]):
        output = printed("sessions", *command, "--db", str(path), "app", "u", "s").output
        assert not UNSAFE.search(output.replace("\n", "")), command


def test_a_correction_is_not_shown_as_an_answer(tmp_path: Path) -> None:
    """
    What an agent was told about a wrong answer is shown as such, in a run and in a session.
    """
    program = tmp_path / "cook.py"
    program.write_text(
        "from minirun import LlmAgent\nfrom minirun.testing import ScriptedLlm\n"
        "agent = LlmAgent(name='cook', model=ScriptedLlm(['soup', '[1]']), output_schema=list[int])\n"
    )
    told = "Your answer does not have the form"
    lines = printed("run", str(program), "--db", str(tmp_path / "a.db"), "hi").output.splitlines()
    assert [line.partition(told)[0][:4] for line in lines] == ["  to", "    ", "    ", "[1]"]
    log = printed("sessions", "show", "--db", str(tmp_path / "a.db"), "cook", "local", "default").output
    assert "2 cook: soup\n  INVALID_OUTPUT: " in log
    assert f"3 cook was told: {told}" in log
    assert "4 cook: [1]" in log


def test_every_event_of_a_session_says_what_it_is_for(tmp_path: Path) -> None:
    """
    A rewind, a summary and the going on of an invocation have no text; `sessions show` tells them by a line each.
    """
    path = tmp_path / "a.db"
    agent = LlmAgent(name="a", model=ScriptedLlm(lambda request: "Yes.\n" + "And so on. " * 50))
    config = EventsCompactionConfig(compaction_interval=1, overlap_size=0)

    async def make() -> str:
        async with SqliteSessionService(path, durability="process") as service:
            app = App("app", agent, events_compaction_config=config)
            runner = Runner(app=app, session_service=service, auto_create_session=True)
            async with runner.run_async(user_id="u", session_id="s", new_message="one") as run:
                await run.wait()
            await service.fork_session(**HERE, at_seq=1, new_session_id="cut")
            cut = runner.run_async(user_id="u", session_id="cut", invocation_id=run.invocation_id)
            async with cut as again:
                await again.wait()
            await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id=run.invocation_id)
            return run.invocation_id

    invocation_id = trio.run(make)
    log = printed("sessions", "show", "--db", str(path), "app", "u", "cut").output
    assert "2 user:\n  goes on with the invocation\n3 a: Yes." in log
    assert '  summary {"' in log
    rewound = printed("sessions", "show", "--db", str(path), "app", "u", "s").output
    assert f"  undoes the invocation {invocation_id} and all after it\n" in rewound


def test_what_is_exported_means_what_is_stored(path: Path, tmp_path: Path) -> None:
    """
    The escapes of an export are JSON's own: it reads, and is imported, as what was said, and is exported the same.
    """
    where = ["app", "u", "s"]
    exported = printed("sessions", "export", "--db", str(path), *where).output
    said = json.loads(exported.splitlines()[-1])
    assert said["content"]["parts"][0]["text"] == STEERING
    other = tmp_path / "b.db"
    printed("sessions", "import", "--db", str(other), *where, stdin=exported)
    assert printed("sessions", "export", "--db", str(other), *where).output == exported


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    """Count the Python functions that are called."""
    counted = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        counted[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(before)


def test_showing_a_long_text_costs_no_call_for_each_character(path: Path) -> None:
    """
    As many functions are called to show a session with a text of a million characters as with one of ten.
    """
    calls = []
    for length in (10, 1_000_000):
        sql(path, "DELETE FROM sessions")

        async def make(text: str = "x" * length) -> None:
            async with SqliteSessionService(path, durability="process") as service:
                await append(service, await service.create_session(**HERE), text)

        trio.run(make)
        printed("sessions", "show", "--db", str(path), "app", "u", "s")  # what is imported late is there
        with calls_counted() as counted:
            printed("sessions", "show", "--db", str(path), "app", "u", "s")
        calls.append(counted[0])
    assert calls[1] < 1.2 * calls[0] + 100, calls


def test_what_is_kept_is_kept() -> None:
    """
    Lines and tabs stay where they are asked for; everything else is shown by its number.
    """
    assert plain("a\n\tb\x9b\u202e") == "a\n\tb\\x9b\\u202e"
    assert plain("a\n", keep="") == "a\\x0a"


def test_what_a_workflow_comes_to_is_printed(tmp_path: Path) -> None:
    """`minirun run` prints the output of a workflow, JSON or a text, and `sessions show` what each node has given."""
    program = tmp_path / "desk.py"
    program.write_text(
        "from minirun import Event\n"
        "from minirun.workflow import START, Workflow\n"
        "async def sort(node_input: str): return Event(output={'n': len(node_input)}, route='long')\n"
        "async def last(node_input): return node_input if node_input['n'] < 5 else 'too long'\n"
        "root_agent = Workflow(name='desk', edges=[(START, sort, {'long': last})])\n"
    )
    path = str(tmp_path / "s.db")
    assert printed("run", str(program), "--db", path, "four").stdout.splitlines() == [
        '  sort@1 gives {"n":4}',
        '  route "long"',
        '{"n":4}',
    ]
    assert printed("run", str(program), "--db", path, "longer").stdout.splitlines()[-1] == "too long"
    shown = printed("sessions", "show", "--db", path, "desk", "local", "default").stdout
    assert '  last@1 gives {"n":4}\n' in shown
    assert '  last@1 gives "too long"\n' in shown
