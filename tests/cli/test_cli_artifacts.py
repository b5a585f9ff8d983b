"""`minirun artifacts`: what there is, its content byte for byte, and what nobody needs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from minirun.artifacts import BaseArtifactService, FileArtifactService, SqliteArtifactService
from minirun.cli._commands import cli
from minirun.types import Blob, Part

from ..fork_server import relay, run

BYTES = bytes(range(256))


@pytest.fixture(params=["db", "dir"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A store with three artifacts, and the option that names it."""
    path = tmp_path / "store"
    made: Callable[[], BaseArtifactService] = {
        "db": lambda: SqliteArtifactService(path),
        "dir": lambda: FileArtifactService(path),
    }[request.param]

    async def fill() -> None:
        async with made() as service:
            for name, part in (
                ("notes/a.md", Part(text="old")),
                ("notes/a.md", Part(text="new")),
                ("raw", Part(inline_data=Blob(data=BYTES, mime_type="application/x-raw"))),
                ("user:photo", Part(inline_data=Blob(data=b"p", mime_type="image/png"))),
            ):
                await service.save_artifact(app_name="app", user_id="u", session_id="s", filename=name, artifact=part)

    trio.run(fill)
    return f"--{request.param}", str(path)


def minirun(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_list_shows_the_newest_of_each(store: tuple[str, str]) -> None:
    """A line for each artifact of the session and of its user, with number, count, type and size."""
    result = minirun("artifacts", "list", *store, "app", "u", "s")
    assert result.exit_code == 0, result.output
    _, *rows = [line.split() for line in result.output.splitlines()]
    assert [row[:5] for row in rows] == [
        ["notes/a.md", "1", "2", "text/plain", "3"],
        ["raw", "0", "1", "application/x-raw", "256"],
        ["user:photo", "0", "1", "image/png", "1"],
    ]


def test_get_writes_the_bytes(store: tuple[str, str], tmp_path: Path) -> None:
    """To standard output or a new file, the newest version or the one that is named, and nothing else."""
    assert minirun("artifacts", "get", *store, "app", "u", "s", "raw").stdout_bytes == BYTES
    assert minirun("artifacts", "get", *store, "app", "u", "s", "notes/a.md").stdout_bytes == b"new"
    assert minirun("artifacts", "get", *store, "app", "u", "s", "notes/a.md", "--version", "0").stdout_bytes == b"old"
    out = tmp_path / "out"
    assert minirun("artifacts", "get", *store, "app", "u", "s", "raw", "--out", str(out)).exit_code == 0
    assert out.read_bytes() == BYTES


def test_get_refuses_by_name(store: tuple[str, str], tmp_path: Path) -> None:
    """What is not there, and a file that is there already, end with 1 and a message; nothing is written."""
    out = tmp_path / "out"
    for arguments, message in (
        (("none",), "there is no artifact 'none' in session 's'"),
        (("raw", "--version", "7"), "there is no version 7 of artifact 'raw'"),
        (("../raw",), "expected a relative path"),
    ):
        result = minirun("artifacts", "get", *store, "app", "u", "s", *arguments, "--out", str(out))
        assert result.exit_code == 1
        assert message in result.output
        assert not out.exists()
    out.write_text("mine")
    assert minirun("artifacts", "get", *store, "app", "u", "s", "raw", "--out", str(out)).exit_code == 1
    assert out.read_text() == "mine"


def test_get_tells_what_cannot_be_written(store: tuple[str, str], tmp_path: Path) -> None:
    """A missing folder, a full disk and a closed output end with 1 and a line that says so."""
    arguments = ["-m", "minirun", "artifacts", "get", *store, "app", "u", "s", "raw"]
    for python, more, message in (
        (relay([]), f"--out {tmp_path / 'none' / 'out'}", "out cannot be written: No such file or directory"),
        (relay([]), "> /dev/full", "standard output cannot be written: No space left on device"),
        ([sys.executable], ">&-", "standard output is closed; name a file with --out"),
    ):
        line = f"{shlex.join([*python, *arguments])} {more}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (1, "")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_get_leaves_no_half_of_a_file(store: tuple[str, str], tmp_path: Path) -> None:
    """Where the disk is full before all is written, the new file is deleted again."""
    if store[0] == "--db":
        pytest.skip("SQLite itself needs more room than what is written")
    out = tmp_path / "out"
    command = ["artifacts", "get", *store, "app", "u", "s", "raw", "--out", str(out)]
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); from minirun.cli import main; main()"
    )
    done = run(["-c", limited, *command])
    assert (done.returncode, out.exists()) == (1, False)
    assert "cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_version_that_cannot_be_is_not_there(store: tuple[str, str]) -> None:
    """A number that no store can hold is that of no version, as any other."""
    result = minirun("artifacts", "get", *store, "app", "u", "s", "raw", "--version", str(2**70))
    assert result.exit_code == 1
    assert f"there is no version {2**70} of artifact 'raw'" in result.output


def test_gc_tells_what_it_has_deleted(store: tuple[str, str]) -> None:
    """There is nothing to delete, and all is there afterwards."""
    result = minirun("artifacts", "gc", *store)
    assert (result.exit_code, result.output) == (0, "0 contents deleted, 0 bytes\n")
    assert minirun("artifacts", "get", *store, "app", "u", "s", "raw").stdout_bytes == BYTES


def test_the_place_is_named_once(store: tuple[str, str], tmp_path: Path) -> None:
    """Neither and both of --db and --dir are wrong usage."""
    (tmp_path / "x.db").touch()
    for options in ((), ("--db", str(tmp_path / "x.db"), "--dir", str(tmp_path))):
        result = minirun("artifacts", "gc", *options)
        assert result.exit_code == 2
        assert "expected one of --db FILE|URL and --dir FOLDER" in result.output
