"""
Addresses of the web that are used with secrets, or come from documents and servers that nobody has checked.

One strict reading decides: what two readers of addresses might understand in two ways is refused. So there are no
names and passwords, no fragments, no characters beyond ASCII, no backslashes and no spaces in any of them.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urljoin

__all__ = ["URL_CHARS_MAX", "Url", "joined", "url_of"]

# What servers and browsers take at least; a longer one is a mistake or an attack.
URL_CHARS_MAX = 8_192

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[!$-;=@-\[\]^_a-z|~]*)?"
    r"(?P<query>\?[!$-;=?-\[\]^_`a-z{|}~]*)?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Url(NamedTuple):
    """An address, with what its reading has found."""

    text: str
    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Whom it belongs to: scheme, host and port."""
        return self.scheme, self.host, self.port

    @property
    def is_loopback(self) -> bool:
        """Whether it never leaves the machine."""
        return self.host in ("localhost", "[::1]") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", self.host) is not None

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way reads what is sent there: by TLS, or because there is no way."""
        return self.scheme == "https" or self.is_loopback

    @property
    def root(self) -> str:
        """It without path and query."""
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


def url_of(value: object) -> Url | None:
    """Read an absolute address with http or https; None if it is none, or one that is not used here."""
    if not isinstance(value, str) or len(value) > URL_CHARS_MAX:
        return None
    found = _URL.fullmatch(value)
    if found is None:
        return None
    port = int(found["port"] or _DEFAULT_PORTS[found["scheme"]])
    if not 0 < port < 65536:
        return None
    return Url(value, found["scheme"], found["host"].lower(), port, found["path"] or "", found["query"] or "")


def joined(base: Url, reference: object) -> Url | None:
    """Read an address that may be relative to *base*; None if it is none."""
    if not isinstance(reference, str) or len(reference) > URL_CHARS_MAX or "\\" in reference:
        return None
    try:
        return url_of(urljoin(base.text, reference).partition("#")[0])
    except ValueError:
        return None
