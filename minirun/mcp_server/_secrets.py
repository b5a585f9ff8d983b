"""Keys that seal states, tokens that let clients in, and the files in which they stand. No message shows one."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from .._files import open_private
from .._json import check_id
from ..env import Env
from ..errors import ConfigurationError, InvalidValueError

__all__ = ["Tokens", "checked_keys", "new_key", "read_keys", "read_tokens"]

# Of a key as text or bytes: as many as AES-256 has, so that a file of 64 hexadecimal digits is far more than enough.
KEY_BYTES_MIN = 32

# What nobody else may do with such a file: others nothing, its group no more than read it, as the files of secrets that
# are mounted into containers let theirs. OpenSSH and PostgreSQL refuse keys with other modes, too.
TOO_WIDE = 0o027

# Of a token: 16 random letters cannot be guessed over a network.
TOKEN_CHARS_MIN = 16


def new_key(env: Env) -> bytes:
    """A key of 256 random bits, in hexadecimal."""
    return (env.new_id("key") + env.new_id("key")).encode()


def checked_keys(keys: object) -> list[bytes]:
    """
    Return the keys as bytes.

    Raises:
        ConfigurationError: There are none, or one is too short, or given twice.
    """
    given = [keys] if isinstance(keys, (str, bytes)) else list(keys) if isinstance(keys, Sequence) else []
    found = [key.encode() if isinstance(key, str) else key for key in given]
    if not found or not all(isinstance(key, bytes) and len(key) >= KEY_BYTES_MIN for key in found):
        raise ConfigurationError(f"expected keys of {KEY_BYTES_MIN} bytes or more, found others (not shown)")
    if len({*found}) < len(found):
        raise ConfigurationError("expected different keys, found one twice (not shown)")
    return found


def read_keys(path: Path, env: Env) -> list[bytes]:
    """
    Return the keys that stand in a file, one a line; a file that is not there is made, with a new key, for this user.

    Of several processes that make it at once one succeeds, and the others read what it has made.

    Raises:
        ConfigurationError: What stands there are no keys, or others can read it.
        OSError: It can neither be read nor made.
    """
    if not path.exists():
        _make(path, new_key(env) + b"\n", env)
    content = _content(path)
    try:
        return checked_keys(content.split())
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}; a line for each, the first one seals") from None


def _content(path: Path) -> bytes:
    """
    Read a file of secrets.

    Raises:
        ConfigurationError: Others than its owner can read or change it. Windows says that otherwise, and is not asked.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if os.name == "posix" and stat.S_ISREG(mode) and mode & TOO_WIDE:
            found = f"found one that others can read or change (mode {stat.S_IMODE(mode):04o})"
            raise ConfigurationError(f"{path}: expected a file for its owner alone, {found}; run: chmod 600 {path}")
        return file.read()


def _make(path: Path, content: bytes, env: Env) -> None:
    """Make a file that is whole from its first moment, unless there is one."""
    draft = path.with_name(f".{path.name}.{env.new_id('draft')}")
    descriptor = open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was faster
    finally:
        os.unlink(draft)


class Tokens:
    """
    Who may come in, by a token. Which one it was, and how much of it was right, cannot be told from the time it takes.

    Raises:
        ConfigurationError: There is none, or one is too short.
        InvalidValueError: What a token stands for can be no user's id.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        if not isinstance(users, Mapping) or not users:
            raise ConfigurationError("expected tokens with the users that they stand for, found none")
        for token, user_id in users.items():
            is_text = isinstance(token, str) and token.isascii() and token.isprintable()
            if not is_text or len(token) < TOKEN_CHARS_MIN:
                msg = f"expected tokens of {TOKEN_CHARS_MIN} or more printable ASCII characters"
                raise ConfigurationError(f"{msg}, found another (not shown)")
            check_id("user_id", user_id)
        self._users = [(sha256(token.encode()).digest(), user_id) for token, user_id in users.items()]

    def user_of(self, token: str) -> str | None:
        """Return the user that a token stands for; None for a stranger's."""
        given = sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = None
        for digest, user_id in self._users:
            if compare_digest(digest, given):
                found = user_id
        return found


def read_tokens(path: Path, user_id: str) -> dict[str, str]:
    """
    Return the tokens that stand in a file, with their users: a line `USER TOKEN` each, or `TOKEN` for *user_id*.

    Empty lines, and those that begin with `#`, are left out.

    Raises:
        ConfigurationError: A line is neither, or two have the same token; or others can read the file.
        OSError: It cannot be read.
    """
    users: dict[str, str] = {}
    for number, line in enumerate(_content(path).decode().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        *named, token = line.split()
        if len(named) > 1 or token in users:
            msg = f"{path}, line {number}: expected a token of its own, or a user and a token, found something else"
            raise ConfigurationError(f"{msg} (not shown)")
        users[token] = named[0] if named else user_id
    try:
        Tokens(users)
    except (ConfigurationError, InvalidValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    return users
