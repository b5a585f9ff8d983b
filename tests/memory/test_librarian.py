"""The main job on real input: the librarian answers with citations, keeps notes, and survives being killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from examples.librarian import Index, agent, index, library, read_lines
from minirun import Event, InMemoryRunner, SqliteSessionService

from ..fork_server import program, run

PROJECT = Path(__file__).resolve().parents[2]
CITATION = re.compile(r"^(\S+?):(\d+): (.*)$", re.MULTILINE)


async def ask(*questions: str) -> list[str]:
    runner = InMemoryRunner(agent=agent)
    events = await runner.run_debug(list(questions), quiet=True)
    return [event.text for event in events if event.is_final_response()]


def check_citations(answer: str, folder: Path) -> int:
    """Open every cited line and compare; return how many there were."""
    cited = CITATION.findall(answer)
    for path, number, text in cited:
        lines = (folder / path).read_text(encoding="utf-8", errors="replace").splitlines()
        assert lines[int(number) - 1] == text, f"{path}:{number} says something else"
    return len(cited)


@pytest.fixture(scope="module", autouse=True)
def _no_index_is_kept() -> Iterator[None]:
    yield
    index.cache_clear()


@pytest.fixture
def _own_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBRARY", raising=False)


@pytest.mark.usefixtures("_own_texts")
async def test_every_cited_line_is_what_the_file_says() -> None:
    """Answers about the project cite file and line; each cited line is opened and compared."""
    questions = ("Which promise is about cancellation?", "What does SessionBusyError mean?", "Who uses cattrs?")
    for answer in await ask(*questions):
        assert check_citations(answer, PROJECT) == 3


@pytest.mark.usefixtures("_own_texts")
async def test_the_readmes_question_is_answered_from_the_promises() -> None:
    """`Which promise is about cancellation?` leads to P5, on the front page or in its chapter."""
    [answer] = await ask("Which promise is about cancellation?")
    path, _, line = CITATION.findall(answer)[0]
    assert path in ("README.md", "minirun/docs/promises.md")
    assert line.startswith("**P5 ")


@pytest.mark.parametrize("names", ["[gh]*.py", pytest.param("**", marks=pytest.mark.slow)])
async def test_it_works_on_thousands_of_real_files(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own library, files that are not UTF-8 included; the answers after the first are quick (printed)."""
    folder = Path(sysconfig.get_path("stdlib"))
    if names != "**":
        for file in folder.glob(names):  # noqa: ASYNC240  # nobody else waits
            shutil.copy(file, tmp_path)
        folder = tmp_path
    monkeypatch.setenv("LIBRARY", str(folder))
    for number, question in enumerate(("Where is the heap invariant?", "What is a generator expression?", "gzip")):
        start = time.perf_counter()
        [answer] = await ask(question)
        took = time.perf_counter() - start
        print(f"answer {number + 1}: {took:.2f} s")
        assert check_citations(answer, folder) == 3
    print(f"{len({name for name, _, _ in index(library()).lines})} files, {len(index(library()).lines)} lines")


def test_odd_files_do_no_harm(tmp_path: Path) -> None:
    """Latin-1, binaries, loops of links and huge files are read as far as they are text."""
    (tmp_path / "latin.txt").write_bytes("caf\u00e9 society".encode("latin-1"))
    (tmp_path / "binary.txt").write_bytes(b"caf\0")
    (tmp_path / "huge.txt").write_bytes(b"society " * 200_000)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    found = Index(tmp_path)
    assert [(name, number) for name, number, _ in found.lines] == [("latin.txt", 1)]
    assert found.search("society")[0][0] == "latin.txt"


def test_it_reads_nothing_outside_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that leads out of the folder is refused."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setenv("LIBRARY", str(tmp_path / "inside"))
    for path in ("../secret.txt", str(tmp_path / "secret.txt"), "/etc/passwd"):
        with pytest.raises(ValueError, match="inside the library"):
            read_lines(path, 1)


async def test_bad_arguments_and_missing_files_are_answers() -> None:
    """A file that is not there is told, not raised."""
    [answer] = await ask("read nowhere.md:1")
    assert answer.startswith("That did not work")


ONE_QUESTION = """
import os, signal, sys, trio
from examples.librarian import agent
from minirun import Runner, SqliteSessionService

async def main(path, question, kill_after):
    async with SqliteSessionService(path) as service:
        runner = Runner(agent=agent, app_name="library", session_service=service, auto_create_session=True)
        place = dict(user_id="u", session_id="s")
        async with runner.run_async(**place, new_message=question, yield_user_message=True) as run:
            async for event in run:
                kill_after -= 1
                if kill_after == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            print(run.answer.text)

trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


def in_a_process(db: Path, question: str, kill_after: int = 0) -> subprocess.CompletedProcess[str]:
    """Ask in a process of its own; kill it after so many events, if not 0."""
    environment = {**os.environ, "LIBRARY": str(PROJECT / "examples")}
    return run(program(ONE_QUESTION, db, question, kill_after), env=environment)


def stored(db: Path) -> list[Event]:
    async def read() -> list[Event]:
        async with SqliteSessionService(db) as service:
            return await service.read_events(app_name="library", user_id="u", session_id="s")

    return trio.run(read)


def test_notes_survive_the_process(tmp_path: Path) -> None:
    """What one process was told to remember, another one knows."""
    db = tmp_path / "l.db"
    in_a_process(db, "remember: the key is under the mat")
    assert "the key is under the mat" in in_a_process(db, "what are my notes?").stdout


def test_it_survives_being_killed_between_any_two_events(tmp_path: Path) -> None:
    """Killed after each event of a two-tool turn: what was seen is stored, calls are answered, the next turn works."""
    kill_after = 0
    while True:
        kill_after += 1
        db = tmp_path / f"{kill_after}.db"
        killed = in_a_process(db, "Where is a library folder found?", kill_after)
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL
        assert len(stored(db)) >= 1 + kill_after
        after = in_a_process(db, "hello")
        assert after.returncode == 0, after.stderr
        assert after.stdout.startswith("Ask me about")
        events = stored(db)
        calls = [call.id for event in events for call in event.get_function_calls()]
        answers = [answer.id for event in events for answer in event.get_function_responses()]
        assert sorted(map(str, calls)) == sorted(map(str, answers))
    print(f"killed after each of {kill_after - 1} events")
    assert kill_after - 1 == 6
