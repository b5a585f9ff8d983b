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

_CACHE: Final = "each connection prepares what it executes often; leave it out"

# The same in URLs, which also have options for other drivers, mostly for asyncpg. libpq itself reads `ssl=true`.
_REPLACED_IN_URLS: Final = {
    **_REPLACED,
    "ssl": "write sslmode=require",
    "prepared_statement_cache_size": _CACHE,
    "prepared_statement_name_func": _CACHE,
    "statement_cache_size": _CACHE,
    "max_cached_statement_lifetime": _CACHE,
    "max_cacheable_statement_size": _CACHE,
    "prepare_threshold": _CACHE,
    "command_timeout": "each statement has a time-out of its own; leave it out",
    "timeout": "write connect_timeout=SECONDS",
    "server_settings": "write options=-c%20NAME%3DVALUE",
    "async_fallback": _ENGINE,
}

_REASONS: Final = {
    "mysql": "its servers have no statement that stores a group and says what of it was stale",
    "mariadb": "its servers have no statement that stores a group and says what of it was stale",
    "spanner": "it has no counter that many workers can share at speed, and no advisory locks",
    "cockroachdb": "it has neither advisory locks nor LISTEN, and a shared counter is slow there",
}


def check_options(options: Mapping[str, object], service: str = "DatabaseSessionService") -> None:
    """
    Refuse what is no option of *service*.

    Raises:
        NotSupportedError: SQLAlchemy has it; the message says what replaces it.
        TypeError: Nobody has it.
    """
    for name in options:
        if name in _REPLACED:
            msg = f"{service}({name}=...) has no effect: {_REPLACED[name]}"
            raise NotSupportedError(msg)
        msg = f"{service}() got an unexpected keyword argument {brief(name)}"
        raise TypeError(msg)


def sqlite_path(db_url: object) -> str | None:
    """
    The file of a `sqlite:` URL, as SqliteSessionService takes it; None for everything else.

    Raises:
        NotSupportedError: It has options, which would have no effect.
        ConfigurationError: It has a host, which a file has not.
    """
    if not isinstance(db_url, str):
        return None
    scheme, colon, rest = db_url.partition("://")
    if not colon or scheme.partition("+")[0] != "sqlite":
        return None
    file, mark, options = rest.partition("?")
    if mark:
        names = ", ".join(sorted({each.partition("=")[0] for each in options.split("&")}))
        msg = f"options of a sqlite: URL have no effect, found {brief(names)}; leave them out"
        raise NotSupportedError(f"{msg}, or open a file of such a name with its path: SqliteSessionService(path)")
    if file in ("", "/"):
        return ":memory:"
    if not file.startswith("/"):
        msg = "expected sqlite:///FILE, four slashes for an absolute path, found a host after the second slash"
        raise ConfigurationError(f"{msg}; add the third")
    return f"sqlite://{file}"


def postgres_url(
    db_url: object,
    service: str = "DatabaseSessionService",
    own: str = "a subclass of BaseSessionService of your own; check_session_service checks it",
) -> str:
    """
    The URL without the name of a driver.

    Messages call who needs it *service*; *own* is what else can be done.

    Raises:
        NotSupportedError: It is of a database that is not supported; the message has the reason and the way. Or it has
            an option of SQLAlchemy's, or of another driver's; the message says what replaces it.
        ConfigurationError: It is none. What else is wrong in it, the driver refuses, without showing it.
    """
    if not isinstance(db_url, str):
        msg = f"expected db_url to be a URL as a string, found a value of type {type(db_url).__name__}"
        raise ConfigurationError(msg)
    scheme, colon, rest = db_url.partition("://")
    kind = scheme.partition("+")[0]
    if colon and kind in _REASONS:
        msg = f"{service} does not store in {kind}: {_REASONS[kind]}"
        raise NotSupportedError(f"{msg}; use postgresql://, sqlite:///FILE, or {own}")
    if colon and kind == "sqlite":
        msg = f"{service} is derived from a service that stores in Postgres: it does not store in a SQLite file"
        raise NotSupportedError(f"{msg}; derive a class from the service for SQLite files as well")
    if not colon or kind not in ("postgresql", "postgres"):
        msg = "expected db_url to begin with postgresql:// or sqlite:///, found another beginning"
        raise ConfigurationError(f"{msg}; a file is sqlite:///FILE, four slashes for an absolute path")
    for option in rest.partition("?")[2].split("&"):
        name, _, value = option.partition("=")
        if (name, value) != ("ssl", "true") and (advice := _REPLACED_IN_URLS.get(name)):
            msg = f"{service} has no use for the option {name} in db_url: {advice}"
            raise NotSupportedError(msg)
    return f"{kind}://{rest}"
