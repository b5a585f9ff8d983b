"""
What may be said of a URL: where the database is, and never who signs in, nor with what.

A URL that is not one is refused without showing it. Of a password with `@` or `/` in it, libpq would take half for the
host, and say so in its message.
"""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from ..errors import ConfigurationError

__all__ = ["shown_url"]

SCHEMES = ("postgresql", "postgres")


def shown_url(url: str) -> str:
    """
    Return what messages call the database: scheme, hosts and name of the URL alone.

    Raises:
        ConfigurationError: It is not a URL that libpq reads in the way that it was meant.
    """
    scheme, colon, rest = url.partition("://")
    if not colon or scheme not in SCHEMES:
        raise _unreadable("does not begin with postgresql://")
    if "\0" in url:
        raise _unreadable("has a NUL in it")
    if "@" in rest.partition("?")[0].partition("/")[2] or rest.partition("/")[0].count("@") > 1:
        raise _unreadable("has an @ in the user, in the password or after the host")
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        raise _unreadable("cannot be read") from None
    hosts = parts.netloc.rpartition("@")[2]
    for host in filter(None, hosts.split(",")):
        port = host.rpartition("]")[2].partition(":")[2]  # an address of IPv6 stands in brackets
        if port and not (port.isascii() and port.isdigit()):
            raise _unreadable("has a port that is no number")
    hosts = hosts or ",".join(options.get("host", []) + options.get("hostaddr", []))
    name = parts.path.lstrip("/") or "".join(options.get("dbname", []))
    return f"postgresql://{unquote(hosts)}/{unquote(name)}"


def _unreadable(problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, found a URL that {problem}; "
        "write special characters of user and password as urllib.parse.quote(text, safe='') does"
    )
