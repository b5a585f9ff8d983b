"""A keyring that other processes can be given, as `PYTHON_KEYRING_BACKEND`: a JSON file, in the clear."""

from __future__ import annotations

import json
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

__all__ = ["FileKeyring"]


class FileKeyring(KeyringBackend):
    """Keeps what it is given in `keyring.json`, in the current folder."""

    priority = 0.1

    def _entries(self) -> dict[str, str]:
        path = Path("keyring.json")
        entries: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return entries

    def _keep(self, entries: dict[str, str]) -> None:
        Path("keyring.json").write_text(json.dumps(entries))

    def get_password(self, service: str, username: str) -> str | None:
        return self._entries().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._keep({**self._entries(), f"{service} {username}": password})

    def delete_password(self, service: str, username: str) -> None:
        entries = self._entries()
        if f"{service} {username}" not in entries:
            raise PasswordDeleteError("not found")
        del entries[f"{service} {username}"]
        self._keep(entries)
