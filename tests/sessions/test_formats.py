"""
Every file format that was ever released can be opened: `fixtures/format-N.db` and, as text, what is in it.

Run as a program, this makes the files of the present format anew; until 0.1.0 is released there is one format, and it
may still change. After that they are never touched again.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from minirun import Env, Event, EventActions, SqliteSessionService
from minirun._codec import to_dict, to_json
from minirun.sessions import InvocationStatus, verify
from minirun.sessions._sqlite._schema import FORMAT
from minirun.types import Blob, Content, FunctionCall, FunctionResponse, Part

from ..stores import HERE, Where, append, begin, enter, get

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = sorted(FIXTURES.glob("format-*.db"))


@attrs.frozen(eq=False)
class Numbered(Env):
    """Counts ids and seconds, so that the same file comes out each time."""

    counts: list[int] = attrs.field(factory=lambda: [0])

    def now(self) -> float:
        return 1_700_000_000.0

    def new_id(self, path: str) -> str:
        self.counts[0] += 1
        return f"{path}{self.counts[0]:032}"[-32:]


def parts() -> list[Part]:
    """One part of each kind that a log holds today."""
    return [
        Part(text="ünïcode 😀", thought=False),
        Part(inline_data=Blob(mime_type="image/png", data=b"\0\xff")),
        Part(function_call=FunctionCall(id="c1", name="f", args={"x": [1, 2.5, None]})),
    ]


async def write(path: Path) -> None:
    """A bit of everything: state of all scopes, a run with an open call, a rewind, a fork, an unknown field."""
    async with SqliteSessionService(path, durability="process", env=Numbered()) as service:
        session = await service.create_session(**HERE, state={"n": 0, "user:n": 0, "app:list": [1]})
        await append(service, session, "hello", n=1, user_n=2)
        actions = EventActions(state_removed=["n"], state_ops={"user:n": {"add": 3}, "app:list": {"extend": [2]}})
        event = Event(author="a", content=Content(role="model", parts=parts()), actions=actions)
        future = attrs.evolve(event, unknown_fields={"from_the_future": {"a": [1, "b"]}})
        await service.append_event(session, future)
        answer = FunctionResponse(id="c1", name="f", response={"result": 1})
        await service.append_event(session, Event(author="a", content=Content(parts=[Part(function_response=answer)])))
        writer = await enter(service)
        await begin(writer)
        call = Content(role="model", parts=[Part(function_call=FunctionCall(id="c2", name="f"))])
        await writer.append(Event(author="a", invocation_id="e-1", content=call))
        await writer.finish(InvocationStatus.FAILED)
        fork = await service.fork_session(**HERE, at_seq=2, new_session_id="fork")
        await append(service, fork, "own")
        gone = await service.create_session(app_name="app", user_id="u", session_id="gone", state={"user:gone": True})
        await append(service, gone, "x", user_n=1)
        await service.delete_session(app_name="app", user_id="u", session_id="gone")


async def text_of(path: Path) -> dict[str, Any]:
    """All that a service finds in a file."""
    async with SqliteSessionService(path, durability="process") as service:
        found: dict[str, Any] = {}
        for listed in (await service.list_sessions(app_name=None)).sessions:
            place: Where = {"app_name": listed.app_name, "user_id": listed.user_id, "session_id": listed.id}
            session = await service.get_session(**place)
            assert session is not None
            found[listed.id] = {
                "state": dict(session.state),
                "visible": [event.seq for event in session.events],
                "events": [to_dict(event) for event in await service.read_events(**place)],
            }
        found["invocations"] = [
            [one.session_id, one.invocation_id, str(one.status), one.seq] for one in await service.list_invocations()
        ]
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]  # of a dict


def test_there_is_a_file_of_every_format() -> None:
    """From the first to the present one, each with its text."""
    numbers = [int(re.sub(r"\D", "", path.name)) for path in FILES]
    assert numbers == list(range(1, FORMAT.version + 1))
    assert [path.with_suffix(".json").exists() for path in FILES] == [True] * len(FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
async def test_a_file_of_every_format_is_read_and_written(file: Path, tmp_path: Path) -> None:
    """What was stored is there, unknown fields too; it verifies, and goes on."""
    path = Path(shutil.copy(file, tmp_path / "a.db"))
    assert await text_of(path) == json.loads(file.with_suffix(".json").read_text("utf-8"))
    async with SqliteSessionService(path, durability="process") as service:
        writer = await enter(service, "e-2")
        assert list(writer.live.open_calls) == ["c2"]
        await writer.finish(None)
        await append(service, await get(service, "fork"), "more", user_n=9)
    assert verify(path) == []


async def test_the_present_format_is_the_one_of_the_file(tmp_path: Path) -> None:
    """The tables that this version makes are those of its file: whoever changes them changes the number."""
    await write(tmp_path / "a.db")
    schemas = []
    for path in (tmp_path / "a.db", FILES[-1]):
        db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        schemas.append(db.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall())
        db.close()
    assert schemas[0] == schemas[1]


async def test_what_is_unknown_is_kept(tmp_path: Path) -> None:
    """A field that a later version has written comes back as it was, and is stored again when it is imported."""
    await write(tmp_path / "a.db")
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        log = await service.read_events(**HERE)
        assert log[2].unknown_fields == {"from_the_future": {"a": [1, "b"]}}
        await service.import_session(app_name="app", user_id="v", session_id="s", events=log)
        again = await service.read_events(app_name="app", user_id="v", session_id="s")
        assert [to_json(event) for event in again] == [to_json(event) for event in log]


if __name__ == "__main__":
    file = FIXTURES / f"format-{FORMAT.version}.db"
    file.unlink(missing_ok=True)
    trio.run(write, file)
    file.with_suffix(".json").write_text(
        json.dumps(trio.run(text_of, file), indent=1, ensure_ascii=False) + "\n", "utf-8"
    )
