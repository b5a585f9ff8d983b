"""What DatabaseSessionService takes as a URL and as options: ADK's spellings, and refusals that say what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minirun import DatabaseSessionService, SqliteSessionService
from minirun.errors import ConfigurationError, NotSupportedError
from minirun.sessions import BaseSessionService
from minirun.sessions._postgres._url import postgres_url, sqlite_path

from .postgres import new_database
from .stores import HERE


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg2"])
async def test_the_name_of_a_driver_in_the_url_says_nothing(scheme: str) -> None:
    """Every spelling of a URL of Postgres opens the same database, under `db_url=` as well."""
    url = new_database()
    async with DatabaseSessionService(db_url=url.replace("postgresql", scheme, 1)) as service:
        await service.create_session(**HERE)
    async with DatabaseSessionService(url) as service:
        assert await service.get_session(**HERE) is not None


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+aiosqlite"])
async def test_a_sqlite_url_gives_the_service_of_files(scheme: str, tmp_path: Path) -> None:
    """The snippets of ADK's documents run: the service is one of a SQLite file, with the options that were given."""
    path = tmp_path / "a.db"
    service: BaseSessionService = DatabaseSessionService(f"{scheme}:///{path}", cache_bytes=0)
    assert isinstance(service, SqliteSessionService)
    async with service:
        await service.create_session(**HERE)
    async with SqliteSessionService(path) as again:
        assert await again.get_session(**HERE) is not None


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("sqlite+aiosqlite:////tmp/a.db", "sqlite:////tmp/a.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("sqlite://", ":memory:"),
        ("sqlite+aiosqlite:///", ":memory:"),
        ("postgresql://h/d", None),
    ],
)
def test_the_file_of_a_sqlite_url(url: str, path: str | None) -> None:
    """Three slashes and a name are a file here, four an absolute one, none or nothing a database in memory."""
    assert sqlite_path(url) == path


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
def test_options_of_sqlalchemy_are_refused_by_name(url: str, option: str, advice: str) -> None:
    """Each is refused with what replaces it, whatever the database is."""
    options: dict[str, Any] = {option: 5}
    expected = rf"DatabaseSessionService\({option}=\.\.\.\) has no effect: .*{advice}"
    with pytest.raises(NotSupportedError, match=expected):
        DatabaseSessionService(url, **options)


def test_an_option_that_nobody_has_is_an_unexpected_argument() -> None:
    """As everywhere in Python."""
    options: dict[str, Any] = {"pool_sise": 5}
    with pytest.raises(TypeError, match="unexpected keyword argument 'pool_sise'"):
        DatabaseSessionService("postgresql://h/d", **options)


OTHERS = ["mysql+aiomysql://u:p@h/d", "mariadb://h/d", "spanner+spanner:///projects/p", "cockroachdb://h"]


@pytest.mark.parametrize("url", OTHERS)
def test_other_databases_are_refused_with_the_reason(url: str) -> None:
    """The message names the database, says why, and what to use; it shows nothing else of the URL."""
    with pytest.raises(NotSupportedError, match=r"does not store in .*: .*KeyValueStore") as caught:
        postgres_url(url)
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize("url", [None, 5, Path("a.db"), b"postgresql://h/d", "a.db", "oracle://h/d"])
def test_what_is_no_url_is_refused(url: Any) -> None:
    """No text, no scheme, or one that nobody here knows: a ConfigurationError."""
    with pytest.raises(ConfigurationError):
        DatabaseSessionService(url)
