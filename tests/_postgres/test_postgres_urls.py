"""What the database services take as a URL and as options: ADK's spellings, and refusals that say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minirun import DatabaseSessionService, Env, InMemorySessionService, Part, SqliteSessionService
from minirun.artifacts import DatabaseArtifactService, SqliteArtifactService
from minirun.errors import ConfigurationError, NotSupportedError
from minirun.memory import DatabaseMemoryService, SqliteMemoryService
from minirun.sessions import BaseSessionService

from ..postgres import new_database
from ..stores import HERE

KINDS: list[Any] = [DatabaseSessionService, DatabaseArtifactService, DatabaseMemoryService]
FOR_FILES: dict[Any, Any] = {
    DatabaseSessionService: SqliteSessionService,
    DatabaseArtifactService: SqliteArtifactService,
    DatabaseMemoryService: SqliteMemoryService,
}


async def store(service: Any) -> None:
    """Let a service of any kind store something."""
    if isinstance(service, BaseSessionService):
        await service.create_session(**HERE)
    elif isinstance(service, DatabaseArtifactService | SqliteArtifactService):
        await service.save_artifact(**HERE, filename="f", artifact=Part(text="x"))
    else:
        await service.add_memory(app_name="app", user_id="u", memories=["tea"])


async def has_stored(service: Any) -> bool:
    """Whether it is there."""
    if isinstance(service, BaseSessionService):
        return await service.get_session(**HERE) is not None
    if isinstance(service, DatabaseArtifactService | SqliteArtifactService):
        return await service.load_artifact(**HERE, filename="f") is not None
    return bool((await service.search_memory(app_name="app", user_id="u", query="tea")).memories)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "scheme", ["postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg2"]
)
async def test_the_name_of_a_driver_in_the_url_says_nothing(kind: Any, scheme: str) -> None:
    """Every spelling of a URL of Postgres opens the same database, under `db_url=` as well."""
    url = new_database()
    async with kind(db_url=url.replace("postgresql", scheme, 1)) as service:
        await store(service)
    async with kind(url) as service:
        assert await has_stored(service)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///a.db", "a.db"),
        ("sqlite+aiosqlite:///./a.db", "a.db"),
        ("sqlite:///{folder}/b.db", "b.db"),
        ("sqlite+aiosqlite:///{folder}/b.db", "b.db"),
        ("sqlite:///a%20b c.db", "a%20b c.db"),
        ("sqlite:///:memory:", None),
        ("sqlite+aiosqlite:///:memory:", None),
        ("sqlite://", None),
        ("sqlite:///", None),
    ],
)
async def test_a_sqlite_url_gives_the_service_for_files(
    kind: Any, url: str, path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The snippets of ADK's documents run: three slashes and a name are a file here, four an absolute one, none or
    nothing a database in memory; and the service is the one for SQLite files.
    """
    monkeypatch.chdir(tmp_path)
    async with kind(db_url=url.format(folder=tmp_path), env=Env()) as service:
        assert type(service) is FOR_FILES[kind]
        await store(service)
        assert await has_stored(service)
    if path is not None:
        async with FOR_FILES[kind](tmp_path / path) as again:
            assert await has_stored(again)
    assert {name.partition("-")[0] for name in os.listdir(tmp_path)} == ({path} if path else set())


async def test_services_may_share_what_a_sqlite_url_has_made(tmp_path: Path) -> None:
    """A program whose URL is that of a SQLite file needs no other words: its services share one file."""
    async with DatabaseSessionService(f"sqlite:///{tmp_path}/a.db") as sessions:
        for kind in KINDS[1:]:
            async with kind(sessions) as service:
                await store(service)
                assert service._sessions is sessions
    assert os.listdir(tmp_path) == ["a.db"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_service_of_another_kind_is_no_place(kind: Any) -> None:
    """What keeps nothing in a database is refused by its name."""
    with pytest.raises(ConfigurationError, match="found a InMemorySessionService; give it such a service or a URL"):
        kind(InMemorySessionService())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("url", "error", "advice"),
    [
        ("sqlite:///a.db?mode=ro&uri=true", NotSupportedError, "found 'mode, uri'; leave them out"),
        ("sqlite+aiosqlite:///a.db?check_same_thread=false", NotSupportedError, "found 'check_same_thread'"),
        ("sqlite://a.db", ConfigurationError, "add the third"),
        ("sqlite://u:secret@h/a.db", ConfigurationError, "add the third"),
    ],
)
def test_what_a_sqlite_url_has_too_much_is_refused(kind: Any, url: str, error: Any, advice: str) -> None:
    """Neither becomes part of the file's name, and no password is shown."""
    with pytest.raises(error, match=advice) as caught:
        kind(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_derived_class_stays_what_it_is(kind: Any) -> None:
    """A class of the application's may have arguments of its own; its methods are never lost to the one for files."""

    class Own(kind):  # type: ignore[misc]  # any of the three
        def __init__(self, url: str | None = None) -> None:
            super().__init__(url or "postgresql://h/d")

    assert type(Own()) is Own
    with pytest.raises(NotSupportedError, match=r"Own is derived from .*; derive a class from the service for SQLite"):
        Own("sqlite:///a.db")


def test_a_sqlite_url_needs_no_extra(tmp_path: Path) -> None:
    """Without psycopg a SQLite URL works, and a Postgres URL says what to install."""
    program = f"""
import sys
sys.modules["psycopg"] = None
from minirun import DatabaseSessionService
DatabaseSessionService("sqlite:///{tmp_path / "a.db"}")
assert "minirun._postgres._libpq" not in sys.modules
try:
    DatabaseSessionService("postgresql://h/d")
except ModuleNotFoundError as error:
    assert 'pip install "minirun[postgres]"' in str(error), error
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("pool_size", "connections are made as they are needed"),
        ("max_overflow", "leave it out"),
        ("pool_timeout", "trio.fail_after"),
        ("pool_recycle", "is noticed before it is used"),
        ("pool_pre_ping", "is noticed before it is used"),
        ("echo", "log_statement"),
        ("connect_args", r"\?sslmode=require"),
        ("isolation_level", "leave it out"),
    ],
)
@pytest.mark.parametrize("url", ["postgresql://h/d", "sqlite:///a.db"])
@pytest.mark.parametrize("kind", KINDS)
def test_options_of_sqlalchemy_are_refused_by_name(kind: Any, url: str, option: str, advice: str) -> None:
    """Each is refused with what replaces it, whatever the database is."""
    options: dict[str, Any] = {option: 5}
    expected = rf"{kind.__name__}\({option}=\.\.\.\) has no effect: .*{advice}"
    with pytest.raises(NotSupportedError, match=expected):
        kind(url, **options)


OF_SQLALCHEMY = [
    "pool_size", "max_overflow", "poolclass", "pool", "pool_use_lifo", "pool_timeout", "pool_recycle",
    "pool_pre_ping", "pool_reset_on_return", "echo", "echo_pool", "hide_parameters", "connect_args",
    "isolation_level", "execution_options", "json_serializer", "json_deserializer", "query_cache_size", "plugins",
    "creator", "future",
]  # fmt: skip
OF_DRIVERS = [
    "ssl", "prepared_statement_cache_size", "prepared_statement_name_func", "statement_cache_size",
    "max_cached_statement_lifetime", "max_cacheable_statement_size", "prepare_threshold", "command_timeout",
    "timeout", "server_settings", "async_fallback",
]  # fmt: skip


@pytest.mark.parametrize("option", OF_SQLALCHEMY)
def test_whatever_sqlalchemy_takes_is_known(option: str) -> None:
    """As an option and in the URL: each name is refused with what to do."""
    options: dict[str, Any] = {option: 5}
    for url in ("postgresql://h/d", "sqlite:///a.db"):
        with pytest.raises(NotSupportedError, match=rf"^DatabaseSessionService\({option}=\.\.\.\) has no effect: \w+"):
            DatabaseSessionService(url, **options)
    with pytest.raises(NotSupportedError, match=rf"has no use for the option {option} in db_url: \w+"):
        DatabaseSessionService(f"postgresql://h/d?sslmode=require&{option}=5&port=5")


@pytest.mark.parametrize("option", OF_DRIVERS)
def test_whatever_other_drivers_take_in_a_url_is_known(option: str) -> None:
    """With what to write instead, if there is anything."""
    for value in ("1", "true") if option != "ssl" else ("1", "True", "true2", ""):
        with pytest.raises(NotSupportedError, match=rf"has no use for the option {option} in db_url: \w+"):
            DatabaseSessionService(f"postgresql://h/d?{option}={value}")


def test_a_sqlite_url_passes_on_how_much_is_kept() -> None:
    """As the service for Postgres takes it, so does the one for files, which refuses what is no number."""
    assert type(DatabaseSessionService("sqlite://", cache_bytes=0)) is FOR_FILES[DatabaseSessionService]
    with pytest.raises(ConfigurationError, match="cache_bytes to be an integer from 0 up, found -1"):
        DatabaseSessionService("sqlite://", cache_bytes=-1)


@pytest.mark.parametrize("url", ["postgresql://h/d", "sqlite:///a.db"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_nobody_has_is_an_unexpected_argument(kind: Any, url: str) -> None:
    """As everywhere in Python."""
    options: dict[str, Any] = {"pool_sise": 5}
    with pytest.raises(TypeError, match="unexpected keyword argument 'pool_sise'"):
        kind(url, **options)


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("pool_size=5", "pool_size .* connections are made as they are needed"),
        ("sslmode=require&echo=true", "echo .* log_statement"),
        ("ssl=require", "ssl in db_url: write sslmode=require"),
        ("prepared_statement_cache_size=0", "prepared_statement_cache_size .* leave it out"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_options_of_others_are_refused_in_a_url_too(kind: Any, option: str, advice: str) -> None:
    """SQLAlchemy's, and those of drivers that libpq does not know: by name, with what replaces them."""
    with pytest.raises(NotSupportedError, match=f"{kind.__name__} has no use for the option {advice}"):
        kind(f"postgresql+asyncpg://h/d?{option}")
    assert kind("postgresql+asyncpg://h/d?ssl=true")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("url", ["postgresql://h/d?nosuch=1", "postgresql://h:99999/d", "postgresql://h/d%zz"])
def test_a_url_that_libpq_could_not_use_is_refused_at_once(kind: Any, url: str) -> None:
    """Where the service is made, and not when it is first used."""
    with pytest.raises(ConfigurationError, match=r"postgresql://.*: .*expected "):
        kind(url)


OTHERS = ["mysql+aiomysql://u:p@h/d", "mariadb://h/d", "spanner+spanner:///projects/p", "cockroachdb://h"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("url", OTHERS)
def test_other_databases_are_refused_with_the_reason(kind: Any, url: str) -> None:
    """The message names the database, says why, and what to use; it shows nothing else of the URL."""
    expected = rf"{kind.__name__} does not store in .*: .*; use postgresql://.* a subclass of Base\w+ of your own"
    with pytest.raises(NotSupportedError, match=expected) as caught:
        kind(url)
    assert "u:p" not in str(caught.value)


NAMES = [
    *("a.db", "sqlite:a.db", "oracle://h/d"),
    *("postgresql", "postgres", "sqlite", "mysql", "oracle", "postgresql:h/d", "mysql:d"),  # as a URL begins
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("url", [None, 5, Path("a.db"), b"postgresql://h/d", *NAMES])
def test_what_is_no_url_is_refused(kind: Any, url: Any) -> None:
    """No text, no scheme, or one that nobody here knows: a ConfigurationError."""
    with pytest.raises(ConfigurationError, match="expected db_url to be"):
        kind(url)
