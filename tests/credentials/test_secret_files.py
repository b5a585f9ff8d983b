"""Files with keys and tokens: who else may read them, and what is said if somebody may."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `minirun[mcp]` is not installed")

from minirun.env import REAL_ENV  # see above
from minirun.errors import ConfigurationError
from minirun.mcp_server._secrets import read_keys, read_tokens

KEY = "k" * 32


def keys(path: Path) -> Any:
    return read_keys(path, REAL_ENV)


def tokens(path: Path) -> Any:
    return read_tokens(path, "ada")


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
@pytest.mark.parametrize("read", [keys, tokens])
@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o660, 0o666, 0o601, 0o777])
def test_a_file_that_others_can_read_or_change_is_refused(read: Any, mode: int, tmp_path: Path) -> None:
    """With its mode and what to run; the secret is not shown, and the file stays as it is."""
    path = tmp_path / "secrets"
    path.write_text(f"{KEY}\n")
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"mode {mode:04o}.; run: chmod 600 ") as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert KEY not in str(caught.value)
    assert path.stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
@pytest.mark.parametrize("read", [keys, tokens])
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_file_for_its_owner_and_group_is_read(read: Any, mode: int, tmp_path: Path) -> None:
    """A group may read, as that of a mounted secret does."""
    path = tmp_path / "secrets"
    path.write_text(f"{KEY}\n")
    path.chmod(mode)
    assert len(read(path)) == 1


def test_a_file_of_keys_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Whatever the mask of the process is."""
    old = os.umask(0)
    try:
        found = keys(tmp_path / "key")
    finally:
        os.umask(old)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert keys(tmp_path / "key") == found


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="there is no /dev/fd")
def test_a_pipe_has_no_mode(tmp_path: Path) -> None:
    """`--token-file <(a command)`: what is no file on a disk is taken as it is."""
    reader, writer = os.pipe()
    os.write(writer, f"{KEY}\n".encode())
    os.close(writer)
    assert len(tokens(Path(f"/dev/fd/{reader}"))) == 1
    os.close(reader)
