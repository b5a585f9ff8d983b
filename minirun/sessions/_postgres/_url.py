"""
What a database service is given: a URL as ADK's users have it, and options that were SQLAlchemy's.

Snippets of ADK's documents name drivers in the URL (`postgresql+asyncpg://`, `sqlite+aiosqlite:///`). There is one
driver here, so the name says nothing; which database it is does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..._json import brief
from ...errors import ConfigurationError, NotSupportedError

__all__ = ["check_options", "postgres_url", "sqlite_path"]

_POOL: Final = "connections are made as they are needed, and appends share one; leave it out"
_ALIVE: Final = "a connection that the server has closed is noticed before it is used; leave it out"
_LOG: Final = "let the server log what it executes: ALTER DATABASE ... SET log_statement = 'all'"
_ENGINE: Final = "there is no SQLAlchemy engine to configure; leave it out"

# What SQLAlchemy's `create_engine` takes, and what replaces it.
_REPLACED: Final = {
    "pool_size": _POOL,
    "max_overflow": _POOL,
    "poolclass": _POOL,
    "pool": _POOL,
    "pool_use_lifo": _POOL,
    "pool_timeout": "bound the waiting where you wait: with trio.fail_after(seconds)",
    "pool_recycle": _ALIVE,
    "pool_pre_ping": _ALIVE,
    "pool_reset_on_return": _ALIVE,
    "echo": _LOG,
    "echo_pool": _LOG,
    "hide_parameters": "no message shows a parameter; leave it out",
    "connect_args": "write what libpq takes into the URL: ?sslmode=require&connect_timeout=5",
    "isolation_level": "each transaction sets the one that it needs; leave it out",
    "execution_options": _ENGINE,
    "json_serializer": _ENGINE,
    "json_deserializer": _ENGINE,
    "query_cache_size": _ENGINE,
    "plugins": _ENGINE,
    "creator": _ENGINE,
    "future": _ENGINE,
}

_OTHERS: Final = (
    "use postgresql://, sqlite:///FILE, or a KeyValueStore of your own; check_session_service is the contract"
)
_REASONS: Final = {
    "mysql": f"its servers have no statement that stores a group and says what of it was stale; {_OTHERS}",
    "mariadb": f"its servers have no statement that stores a group and says what of it was stale; {_OTHERS}",
    "spanner": f"it has no counter that many workers can share at speed, and no advisory locks; {_OTHERS}",
    "cockroachdb": f"it has neither advisory locks nor LISTEN, and a shared counter is slow there; {_OTHERS}",
}


def check_options(options: Mapping[str, object]) -> None:
    """
    Refuse what is no option of a service.

    Raises:
        NotSupportedError: SQLAlchemy has it; the message says what replaces it.
        TypeError: Nobody has it.
    """
    for name in options:
        if name in _REPLACED:
            msg = f"DatabaseSessionService({name}=...) has no effect: {_REPLACED[name]}"
            raise NotSupportedError(msg)
        msg = f"DatabaseSessionService() got an unexpected keyword argument {brief(name)}"
        raise TypeError(msg)


def _parts(db_url: object) -> tuple[str, str]:
    """The kind of database, and what follows `://`."""
    if not isinstance(db_url, str):
        msg = f"expected db_url to be a URL as a string, found a value of type {type(db_url).__name__}"
        raise ConfigurationError(msg)
    scheme, _, rest = db_url.partition("://")
    return scheme.partition("+")[0], rest


def sqlite_path(db_url: object) -> str | None:
    """
    The file of a `sqlite:` URL, as SqliteSessionService takes it; None for any other URL.

    Raises:
        ConfigurationError: *db_url* is no text.
    """
    kind, rest = _parts(db_url)
    if kind != "sqlite":
        return None
    return f"sqlite:///{rest.removeprefix('/')}" if rest not in ("", "/") else ":memory:"


def postgres_url(db_url: object) -> str:
    """
    The URL without the name of a driver.

    Raises:
        NotSupportedError: It is of a database that is not supported; the message has the reason and the way.
        ConfigurationError: *db_url* is no text. What else is no URL, the driver refuses, without showing it.
    """
    kind, rest = _parts(db_url)
    reason = _REASONS.get(kind)
    if reason is not None:
        msg = f"DatabaseSessionService does not store in {kind}: {reason}"
        raise NotSupportedError(msg)
    assert isinstance(db_url, str)
    return f"{kind}://{rest}" if kind in ("postgresql", "postgres") and "://" in db_url else db_url
