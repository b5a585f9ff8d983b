"""
The peer's own tests of its session, state and artifact services, by name, and what shows the same of ours.

Names and verdicts stand in fixtures/peer/contracts.json. Here are the checks of that table, and the facts that no other
test states.
"""

from __future__ import annotations

import ast
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from minirun import BaseAgent, Event, InMemorySessionService, InvocationContext, Runner, SqliteSessionService
from minirun.artifacts import BaseArtifactService, FileArtifactService, InMemoryArtifactService
from minirun.errors import InvalidValueError, InvocationNotFoundError, NotSupportedError, StorageFullError
from minirun.sessions import SessionKey, State
from minirun.sessions._state import Values
from minirun.types import Blob, FileData, Part

from ..stores import HERE, Where, append, get, texts

ROOT = Path(__file__).parents[2]
TABLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "fixtures/peer/contracts.json").read_text("utf-8"))
ROWS = [(file, *row) for file, rows in TABLE.items() if file != "about" for row in rows]


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


IDS = [f"{file.rpartition('/')[2]}-{name}" for file, name, *_ in ROWS]


@pytest.mark.parametrize(("file", "name", "verdict", "ours"), ROWS, ids=IDS)
def test_each_row_says_one_of_the_two_and_names_a_test(file: str, name: str, verdict: str, ours: str) -> None:
    """A test of the peer has the same behaviour here, or another one with its reason; a test of ours shows which."""
    assert file.startswith("tests/unittests/")
    assert name.startswith("test_")
    assert verdict == "same" or (verdict.startswith("different because ") and len(verdict) > 40)
    path, _, function = ours.partition("::")
    assert path.startswith(("tests/", "minirun/testing/_session_service"))
    assert function in functions_of(path)


def test_no_test_of_the_peer_stands_twice() -> None:
    """Each name stands once in its file."""
    assert len({row[:2] for row in ROWS}) == len(ROWS) > 90


# --- state ------------------------------------------------------------------------------------------------------------


def test_a_key_that_is_missing_is_an_error_to_delete_and_to_pop() -> None:
    """`del` and `pop` of a key that is not there raise KeyError and write nothing; `pop` may have a default."""
    state = State(Values({"a": 1}, {}, {}))
    with pytest.raises(KeyError):
        del state["b"]
    with pytest.raises(KeyError):
        state.pop("b")
    assert state.pop("b", "default") == "default"
    assert not state.has_delta()


def test_a_popped_key_is_gone_from_every_view() -> None:
    """`pop` returns the value; then no way of reading shows the key, and the removal waits to be stored."""
    state = State(Values({"a": 1, "b": 2}, {}, {}))
    assert state.pop("a") == 1
    assert state.to_dict() == dict(state) == {"b": 2}
    assert "a" not in state
    assert state.get("a") is None
    assert state.has_delta()


# --- sessions ---------------------------------------------------------------------------------------------------------


class Counts(BaseAgent):
    """Counts in the state, and says so."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        ctx.state.add("count")
        ctx.state[f"key {ctx.state['count']}"] = True
        await ctx.emit(Event(message=str(ctx.state["count"])))


async def test_a_rewind_is_an_event_that_hides_what_it_undoes() -> None:
    """It stands at the end with the state that was before; the log keeps all; an unknown invocation changes nothing."""
    service = InMemorySessionService()
    runner = Runner(app_name="app", agent=Counts(name="a"), session_service=service, auto_create_session=True)
    names = []
    for _ in range(2):
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()
        names.append((await get(service)).events[-1].invocation_id)
    with pytest.raises(InvocationNotFoundError, match="e-nobody"):
        await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id="e-nobody")
    assert (await get(service)).revision == 4
    assert names[1] is not None
    await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id=names[1])
    session = await get(service)
    assert texts(session) == ["hi", "1", ""]
    assert session.state == {"count": 1, "key 1": True}
    assert session.events[-1].actions.rewind_before_invocation_id == names[1]
    assert session.events[-1].actions.state_removed == ("key 2",)
    assert len(await service.read_events(**HERE)) == 6


async def test_a_file_is_named_by_a_path_or_one_form_of_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative and absolute `sqlite:///` URLs are files; one that names a driver is refused, with the form to write."""
    monkeypatch.chdir(tmp_path)
    for place, path in (("sqlite:///./a.db", "a.db"), (f"sqlite:////{str(tmp_path / 'b.db').lstrip('/')}", "b.db")):
        async with SqliteSessionService(place) as service:
            await service.create_session(**HERE)
        assert (tmp_path / path).exists()
    with pytest.raises(InvalidValueError, match="expected a file name or sqlite:///FILE"):
        SqliteSessionService("sqlite+aiosqlite:///a.db")


async def test_the_last_update_is_the_time_of_the_last_event() -> None:
    """Whatever clock an event's time comes from, it decides nothing: the next append is accepted."""
    service = InMemorySessionService()
    session = await service.create_session(**HERE)
    for time in (session.create_time + 10, session.create_time + 9.9999, 5.0):
        await service.append_event(session, Event(author="a", message="x", timestamp=time))
        assert session.last_update_time == (await get(service)).last_update_time == time


async def test_a_delete_that_fails_deletes_nothing() -> None:
    """However often the store refuses, the session is there afterwards, and can be deleted."""
    refusing = True

    class Full(InMemorySessionService):
        async def remove_session(self, key: SessionKey) -> None:
            if refusing:
                raise StorageFullError("no room left")
            await super().remove_session(key)

    service = Full()
    session = await service.create_session(**HERE)
    await append(service, session, "x")
    for _ in range(5):
        with pytest.raises(StorageFullError):
            await service.delete_session(**HERE)
    assert texts(await get(service)) == ["x"]
    refusing = False
    await service.delete_session(**HERE)
    assert await service.get_session(**HERE) is None


# --- artifacts --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "files"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> BaseArtifactService:
    return InMemoryArtifactService() if request.param == "memory" else FileArtifactService(tmp_path / "artifacts")


async def test_ids_of_artifacts_need_no_reserved_words(artifacts: BaseArtifactService, tmp_path: Path) -> None:
    """Ids with slashes, dots and the stores' own words are kept apart, and nothing is written outside of the store."""
    odd = ["user", "user/x", "u", "u/sessions/s", "group/u", "../e", "..", ".", "/etc", "C:\\x", "artifacts"]
    for user in odd:
        for session in odd:
            place: Where = {"app_name": "app", "user_id": user, "session_id": session}
            assert await artifacts.save_artifact(**place, filename="x", artifact=Part(text=f"{user} {session}")) == 0
    for user in odd:
        for session in odd:
            place = {"app_name": "app", "user_id": user, "session_id": session}
            assert await artifacts.load_artifact(**place, filename="x") == Part(text=f"{user} {session}")
    assert set(os.listdir(tmp_path)) <= {"artifacts"}


async def test_a_name_below_another_one_is_another_artifact(artifacts: BaseArtifactService) -> None:
    """`doc`, `doc/nested` and what looks like a store's own file share no versions, and none deletes another."""
    below = ["doc/nested", "doc/versions/0", "doc/versions/0/metadata.json/x"]
    await artifacts.save_artifact(**HERE, filename="doc", artifact=Part(text="v0"))
    for name in below:
        for number in range(3):
            assert await artifacts.save_artifact(**HERE, filename=name, artifact=Part(text=f"{number}")) == number
    assert await artifacts.list_versions(**HERE, filename="doc") == [0]
    assert [found.version for found in await artifacts.list_artifact_versions(**HERE, filename="doc")] == [0]
    assert await artifacts.load_artifact(**HERE, filename="doc") == Part(text="v0")
    assert await artifacts.save_artifact(**HERE, filename="doc", artifact=Part(text="v1")) == 1
    assert await artifacts.list_artifact_keys(**HERE) == ["doc", *below]
    await artifacts.delete_artifact(**HERE, filename="doc")
    assert await artifacts.list_artifact_keys(**HERE) == below
    assert await artifacts.load_artifact(**HERE, filename="doc/nested") == Part(text="2")


@pytest.mark.parametrize("session", ["s", "other"])
async def test_a_reference_to_an_artifact_is_refused_when_it_is_saved(
    session: str, artifacts: BaseArtifactService
) -> None:
    """Nothing that is loaded leads to another artifact, of this session or of anybody else's; other URIs are kept."""
    await artifacts.save_artifact(**HERE, filename="x", artifact=Part(text="secret"))
    uri = f"artifact://apps/app/users/u/sessions/{session}/artifacts/x/versions/0"
    reference = Part(file_data=FileData(file_uri=uri, mime_type="text/plain"))
    with pytest.raises(NotSupportedError, match="load that one and save it"):
        await artifacts.save_artifact(**HERE, filename="ref", artifact=reference)
    assert await artifacts.load_artifact(**HERE, filename="ref") is None
    elsewhere = Part(file_data=FileData(file_uri="gs://bucket/x", mime_type="text/plain"))
    await artifacts.save_artifact(**HERE, filename="ref", artifact=elsewhere)
    assert await artifacts.load_artifact(**HERE, filename="ref") == elsewhere


@pytest.mark.parametrize("name", ["x", "user:x"])
async def test_what_is_empty_or_named_for_display_comes_back(name: str, artifacts: BaseArtifactService) -> None:
    """Empty text stays text, empty bytes stay bytes, and `display_name` stays."""
    parts = [
        Part(text=""),
        Part(inline_data=Blob(data=b"", mime_type="application/pdf")),
        Part(inline_data=Blob(data=b"\x89PNG", mime_type="image/png", display_name="My Report (final).png")),
    ]
    for number, part in enumerate(parts):
        await artifacts.save_artifact(**HERE, filename=name, artifact=part)
        assert await artifacts.load_artifact(**HERE, filename=name) == part
        assert await artifacts.load_artifact(**HERE, filename=name, version=number) == part


async def test_metadata_that_cannot_be_kept_makes_no_version(artifacts: BaseArtifactService) -> None:
    """It is refused before anything is stored: the version before is the newest, and the next number is the next."""
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"a": deep}
    await artifacts.save_artifact(**HERE, filename="x", artifact=Part(text="v0"))
    with pytest.raises(InvalidValueError, match="custom_metadata"):
        await artifacts.save_artifact(**HERE, filename="x", artifact=Part(text="poison"), custom_metadata=deep)
    assert await artifacts.list_versions(**HERE, filename="x") == [0]
    assert await artifacts.save_artifact(**HERE, filename="x", artifact=Part(text="v1")) == 1
