"""
Recorded conversations in simulated worlds, and the fixture `cassette` as users of pytest meet it.
"""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import App, FunctionTool, InMemorySessionService, LlmAgent, Runner
from minirun.errors import CassetteError, ModelError
from minirun.models import BaseLlm, RecordedLlm
from minirun.simulation import SeededChoices, World
from minirun.testing import ScriptedLlm, call
from minirun.testing._cassettes import file_name

from ..fork_server import NOT_REWRITTEN, PYTEST, run
from ..helpers import run_to_end
from .stores import simulate, why_unavailable

# --- simulated worlds -------------------------------------------------------------------------------------------------


async def look(thing: str) -> str:
    """Look at a thing."""
    return f"a {thing}"


def clerk(model: BaseLlm) -> App:
    tool = FunctionTool(look, run_in="loop", on_interrupted="rerun")
    return App("app", LlmAgent(name="clerk", model=model, tools=[tool]))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A conversation of two turns, with calls, that was recorded in an ordinary run."""
    trio.run(record, tmp_path / "clerk.json")
    return tmp_path / "clerk.json"


async def record(path: Path) -> None:
    script: list[Any] = [[call("look", thing="cup"), call("look", thing="cap")], ["Two ", "things."], "One more."]
    model = RecordedLlm(ScriptedLlm(script, latency_s=0.01), path, "record")
    runner = Runner(app=clerk(model), session_service=InMemorySessionService(), auto_create_session=True)
    for message in ("look", "and?"):
        await run_to_end(runner, message)
    model.close()


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
@pytest.mark.parametrize(
    ("faults", "failures"),
    [
        ("storage", {CassetteError}),
        ("crash", {CassetteError}),
        (("crash", "storage", "model"), {CassetteError, ModelError}),
    ],
)
def test_a_recorded_conversation_runs_under_faults(recorded: Path, faults: Any, failures: set[type]) -> None:
    """
    Whatever fails or waits, the replay answers as it was recorded: a world ends as the recording did, or fails with
    the fault, or because a crash or a failed write made the program ask what nobody has recorded, such as a message
    that is said again.
    """

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: clerk(RecordedLlm(None, recorded)))
        said = [await world.say(runner, "ada", message) for message in ("look", "and?")]
        assert [event and event.text for event in said] == ["Two things.", "One more."]

    outcomes = [simulate(scenario, SeededChoices(seed), faults=faults) for seed in range(10)]
    found = {type(outcome.failure) for outcome in outcomes}
    assert type(None) in found <= {type(None), *failures}
    assert any(outcome.coverage for outcome in outcomes if outcome.failure is None)


def test_a_recorded_conversation_gives_the_same_log_for_the_same_seed(recorded: Path) -> None:
    """
    A world with a recorded model follows from its choices alone.
    """

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: clerk(RecordedLlm(None, recorded)))
        for message in ("look", "and?"):
            await world.say(runner, "ada", message)

    logs = [[str(entry) for entry in simulate(scenario, SeededChoices(7), storage="memory").log] for _ in range(2)]
    assert logs[0] == logs[1]
    assert any("Two things." in entry for entry in logs[0])


# --- pytest -----------------------------------------------------------------------------------------------------------

TESTS = """
import pytest, trio
from minirun import InMemoryRunner, LlmAgent
from minirun.errors import CassetteError
from minirun.testing import ScriptedLlm

MADE = []

def model():
    MADE.append(1)
    return ScriptedLlm(["Good day.", "Good bye."])

async def talk(model, *messages):
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=model), auto_create_session=True)
    said = []
    for message in messages:
        async with runner.run_async(user_id="u", session_id="s", new_message=message) as run:
            said.append((await run.wait()).text)
    return said

@pytest.mark.parametrize("how", ["polite/very", "rude"])
async def test_a_greeting(cassette, how):
    assert await talk(cassette(model), how, "bye") == ["Good day.", "Good bye."]

class TestShared:
    async def test_two_models(self, cassette):
        assert await talk(cassette(ScriptedLlm(["a"]), "first"), "hi") == ["a"]
        assert await talk(cassette(ScriptedLlm(["b"]), "second"), "hi") == ["b"]

@pytest.mark.simulation(seeds=5, faults="crash")
async def test_in_worlds(world, cassette):
    runner = world.runner(lambda: LlmAgent(name="a", model=cassette(name="first")))
    try:
        assert (await world.say(runner, "ada", "hi")).text == "a"
    except CassetteError:  # the message was stored when the process died, and is said again
        assert world.coverage["crash"]

async def test_nothing_is_asked(cassette, request):
    cassette(model)
    if request.config.getoption("--record-models"):
        with pytest.raises(ValueError, match="give each a name"):
            cassette(model)

def test_models_are_made_to_record_only(request):
    assert bool(MADE) == request.config.getoption("--record-models")
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    installed = any(point.name == "minirun" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "minirun._pytest_plugin"]
    program = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "trio_mode=true", *plugin]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # those of this run
    program += ["-W", "error", *NOT_REWRITTEN, *arguments]
    return run(program, cwd=folder, env=environment, modules=PYTEST)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_talk.py").write_text(TESTS)
    return tmp_path


def test_cassettes_are_recorded_with_the_option_and_replayed_without(folder: Path) -> None:
    """
    Without cassettes tests fail and say what to write; `--record-models` makes them beside the tests; then no model is
    made. A test that leaves something unasked fails; one that has failed anyway has no second failure.
    """
    done = run_pytest(folder, "-k", "rude")
    assert "found no such file; record it" in done.stdout
    assert "pytest --record-models" in done.stdout
    assert not (folder / "tests" / "cassettes").exists()

    done = run_pytest(folder, "--record-models")
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    found = sorted(path.name for path in (folder / "tests" / "cassettes" / "test_talk").iterdir())
    assert len(found) == 5
    assert {"first.json", "second.json", "test_nothing_is_asked.json"} <= set(found)

    done = run_pytest(folder)
    assert "6 passed" in done.stdout, done.stdout + done.stderr

    module = folder / "tests" / "test_talk.py"
    module.write_text(TESTS.replace('how, "bye") == [', '*((how,) if how == "rude" else ("other", "bye"))) == ['))
    done = run_pytest(folder, "-k", "greeting")
    assert "2 failed, 4 deselected" in done.stdout, done.stdout
    expected = "contents[0].parts[0].text, character 1: expected 'polite/very', found 'other'"
    assert expected in done.stdout
    module.write_text(TESTS.replace('how, "bye") == ["Good day.", "Good bye."]', 'how) == ["Good day."]'))
    done = run_pytest(folder, "-k", "rude")
    assert "1 passed, 5 deselected, 1 error" in done.stdout, done.stdout
    assert "1 of 2 exchanges are left over, the first is exchange 2" in done.stdout
    assert json.loads((module.parent / "cassettes/test_talk/first.json").read_text())["minirun_cassette"] == 3


@pytest.mark.parametrize(
    ("test", "file"),
    [("test_a", "test_a"), ("TestA.test_b", "TestA.test_b"), ("t[a/b]", "t-a-b-"), ("t[a-b]", "t-a-b-"), ("..", "..")],
)
def test_names_of_tests_become_names_of_files(test: str, file: str) -> None:
    """
    A name that every file system can write stays; others are shortened, and a hash keeps them apart.
    """
    assert file_name(test).startswith(file)
    assert "/" not in file_name(test)
    assert file_name("t[a/b]") != file_name("t[a-b]")
    assert len(file_name("x" * 5000)) < 120
