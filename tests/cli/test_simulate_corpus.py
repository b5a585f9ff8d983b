"""A corpus as users of the command line and of pytest meet it: who writes it, who reads it, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from minirun.cli._simulate import simulate
from minirun.simulation import Corpus

from ..fork_server import PYTEST, run

TESTS = """
import pytest

pytestmark = pytest.mark.simulation(seeds=2, storage="memory", corpus="inputs")

async def test_doors(world):
    for place in range(3):
        if world.choices.choose(20, "a key") != 7 + place:
            return
        world.reached(f"door {place}")

async def test_damaged(world):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_corpus_doors.py").write_text(TESTS)
    return tmp_path


def test_the_command_line_keeps_a_corpus_and_tests_read_it(folder: Path) -> None:
    """What two processes have learned is put together; a test begins with it and leaves it as it is."""
    search = ("test_corpus_doors.py::test_doors", "--seeds", "80", "--jobs", "2", "--corpus", "inputs")
    one_hash = {**os.environ, "PYTHONHASHSEED": "0"}  # else there is a third process, which learns nothing
    done = run(["-m", "minirun", "simulate", *search], cwd=folder, env=one_hash)
    assert done.returncode == 0, done.stdout + done.stderr
    corpus = Corpus(folder / "inputs", "test_corpus_doors.py::test_doors")
    assert corpus.file is not None
    assert f"corpus: {len(corpus.inputs)} inputs (before: 0)" in done.stdout
    assert corpus.inputs
    before = corpus.file.read_bytes()

    damaged = Corpus(folder / "inputs", "test_corpus_doors.py::test_damaged").file
    assert damaged is not None
    damaged.write_text("{")
    pytests = ["-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
    told = run(pytests, cwd=folder, modules=PYTEST).stdout
    assert "1 failed, 1 passed" in told, told
    assert "CorpusError: " in told
    assert "test_doors: 2 seeds: door 0" in told, "two seeds alone open no door"
    assert corpus.file.read_bytes() == before


def test_what_cannot_be_used_is_refused_before_anything_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged file; a corpus for a replay, which searches nothing."""
    monkeypatch.chdir(folder)
    target = "test_corpus_doors.py::test_damaged"
    damaged = Corpus(folder / "inputs", target).file
    assert damaged is not None
    damaged.parent.mkdir()
    damaged.write_text('{"format": 7}')
    found = CliRunner().invoke(simulate, [target])
    assert found.exit_code == 2
    assert "expected a corpus of format 1, found format 7" in " ".join(found.output.split())
    found = CliRunner().invoke(simulate, [target, "--replay", "some.json", "--corpus", "inputs"])
    assert found.exit_code == 2
    assert "expected --replay or --corpus, found both" in found.output


def test_the_corpus_of_a_marker_is_in_the_project_and_that_of_the_command_line_anywhere(folder: Path) -> None:
    """A test that read what is beside the project would be another one in each copy of it; who types knows where."""
    project = folder / "project"
    (project / "tests").mkdir(parents=True)
    (project / "pytest.ini").write_text("[pytest]\n")
    file = project / "tests" / "test_corpus_doors.py"
    outside = "expected corpus to be a folder below the project's root"

    def search(*arguments: str) -> tuple[int, str]:
        command = ["-m", "minirun", "simulate", "test_corpus_doors.py::test_damaged", "--seeds", "1", *arguments]
        done = run(command, cwd=file.parent, env={**os.environ, "PYTHONHASHSEED": "0"})
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    for named, refused in {str(project / "a"): False, "a/../b": False, str(folder): True, "../inputs": True}.items():
        file.write_text(TESTS.replace('"inputs"', repr(named)))
        status, told = search()
        assert (status, outside in told) == ((2, True) if refused else (0, False)), told
    pytests = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
    told = run(pytests, cwd=project, modules=PYTEST).stdout
    assert "2 failed" in told
    assert f"ConfigurationError: {outside}" in told
    for beside in ("../../beside", str(folder / "beside")):
        assert search("--corpus", beside)[0] == 0
    status, told = search("--corpus", file.name)
    assert (status, "is a file" in told) == (2, True), told
