"""
Credentials on the command line: kept in the system's keyring, and never among the arguments.

Other users of a machine can see the arguments of its processes, and shells keep them. So a secret is typed without
being shown, or is a line of standard input.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from .. import credentials
from ..credentials import AuthConfig, AuthCredential, BaseCredentialService
from ..env import Env
from ._show import plain

__all__ = ["ask_for_credential", "credential_service"]

# Shown while it is typed, and asked for first.
_SHOWN = "username"


def credential_service(env: Env, database: Path | None) -> BaseCredentialService | None:
    """
    The system's keyring; None if what it needs, the extra `minirun[keyring]`, is not installed.

    Processes that use one *database* renew a credential one after another, by lock files in a folder beside it.
    """
    if find_spec("keyring") is None:
        return None
    has_locks = database is not None and find_spec("fcntl") is not None
    folder = database.with_name(f"{database.name}-locks") if database is not None and has_locks else None
    return credentials.KeyringCredentialService(lock_folder=folder, env=env)


def ask_for_credential(config: AuthConfig) -> AuthCredential | str:
    """
    Have somebody type a credential, or read it from standard input, a line for each part.

    Where somebody signs in, it is the address that the browser came back to.
    """
    about = " ".join(filter(None, [config.hint, config.auth_uri, " ".join(config.scopes)]))
    if about:
        click.echo(plain(about), err=True)
    if config.state:
        return _typed(f"{config.credential_key}: the address that the browser was sent back to", "address")
    names = sorted(config.secret_names or ("value",), key=lambda name: name != _SHOWN)
    values: dict[str, Any] = {name: _typed(f"{config.credential_key}: {name}", name) for name in names}
    return AuthCredential(config.scheme, **values)


def _typed(prompt: str, name: str) -> str:
    if sys.stdin.isatty():
        typed: str = click.prompt(prompt, hide_input=name != _SHOWN, err=True)
        return typed
    line = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    if not line:
        raise click.ClickException(f"expected a line of standard input with the {name}, found none")
    return line
