"""What an earlier version has left unfinished is gone on with, and nothing of it is done twice: see `stored`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minirun import Event, SqliteSessionService
from minirun._codec import from_json
from minirun.credentials import AuthCredential
from minirun.runtime import Run
from minirun.sessions import InvocationStatus, verify

from .. import stored
from ..stored import CONFIG, INTERRUPTED, PAUSED, export_of, runner_over

COMPLETED = InvocationStatus.COMPLETED


@pytest.fixture
def effects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done from here on."""
    done: list[str] = []
    monkeypatch.setattr(stored, "EFFECTS", done)
    return done


@asynccontextmanager
async def opened(file: Path, folder: Path) -> AsyncIterator[SqliteSessionService]:
    """A service over a copy of the file, which is sound before and afterwards."""
    path = Path(shutil.copy(file, folder / "a.db"))
    assert verify(path) == []
    async with SqliteSessionService(path, durability="process") as service:
        yield service
    assert verify(path) == []


def told(file: Path) -> Any:
    """What is said of a file."""
    return json.loads(file.with_suffix(".json").read_text("utf-8"))


async def run_in(service: SqliteSessionService, session: str, **what: Any) -> Run:
    """Go on in a session."""
    async with runner_over(service, session).run_async(user_id="u", session_id=session, **what) as run:
        await run.wait()
    return run


async def log_of(service: SqliteSessionService, session: str) -> list[Event]:
    return [from_json(Event, line) for line in await export_of(service, session)]


async def texts(service: SqliteSessionService, session: str) -> list[str]:
    """What agents have said."""
    return [event.text for event in await log_of(service, session) if event.text and event.author != "user"]


async def check_all_is_answered(service: SqliteSessionService, session: str, before: list[str]) -> None:
    """What was there is there, byte for byte; each call has one answer, and nothing waits in the session any more."""
    assert (await export_of(service, session))[: len(before)] == before
    log = await log_of(service, session)
    calls = [call.id for event in log for call in event.get_function_calls()]
    answers = [answer.id for event in log for answer in event.get_function_responses()]
    assert sorted(map(str, calls)) == sorted(map(str, answers))
    assert len({event.id for event in log}) == len(log)
    assert session not in [pending.session_id for pending in await service.list_pending(app_name="app")]
    [invocation] = [each for each in await service.list_invocations(app_name="app") if each.session_id == session]
    assert invocation.status is COMPLETED


# --- exports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [PAUSED, INTERRUPTED], ids=lambda path: path.stem)
async def test_exports_are_what_they_were(file: Path, tmp_path: Path) -> None:
    """Every line, and again when it was imported, exported and imported once more."""
    expected = told(file)["sessions"]
    async with opened(file, tmp_path) as service:
        assert {session: await export_of(service, session) for session in expected} == expected
        for session, lines in expected.items():
            events = [from_json(Event, line) for line in lines]
            for copy in ("first", "second"):
                name = f"{session}-{copy}"
                await service.import_session(app_name="app", user_id="u", session_id=name, events=events)
                assert await export_of(service, name) == lines
                events = [from_json(Event, line) for line in await export_of(service, name)]


# --- what waits -------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered(effects: list[str], tmp_path: Path) -> None:
    """Steps and reads before it are those that are recorded, the one that failed, too, and so is the saved artifact."""
    before = told(PAUSED)["sessions"]["form"]
    async with opened(PAUSED, tmp_path) as service:
        [question] = [one for one in await service.list_pending(app_name="app") if one.session_id == "form"]
        assert (question.kind, question.hint, question.payload) == ("input", "Ship it?", {"count": 2})
        run = await run_in(service, "form", new_message=question.reply(True))
        said = ["counted to 1", "counted to 2", "report 0 after True"]
        assert await texts(service, "form") == [*said, "answered True at 2, declined old card", "done"]
        assert (effects, dict(run.session.state)) == ([], {"count": 2, "answer": True, "user:seen": True})
        await check_all_is_answered(service, "form", before)


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_call_is_allowed(allowed: bool, effects: list[str], tmp_path: Path) -> None:
    """It is made, once, or not at all; what was made in its turn is not made again."""
    before = told(PAUSED)["sessions"]["confirmation"]
    async with opened(PAUSED, tmp_path) as service:
        [question] = [one for one in await service.list_pending(app_name="app") if one.session_id == "confirmation"]
        assert (question.kind, question.tool, question.args) == ("confirmation", "send", {"to": "bob"})
        run = await run_in(service, "confirmation", new_message=question.reply(allowed))
        assert effects == (["sent to bob"] if allowed else [])
        assert run.session.state.get("sent") == (["bob"] if allowed else None)
        assert (run.session.state["notes"], run.session.state["answer"]) == (["first"], "done")
        await check_all_is_answered(service, "confirmation", before)


async def test_a_credential_is_provided(tmp_path: Path) -> None:
    """The agent goes on with it, and it is not in the log."""
    before = told(PAUSED)["sessions"]["credential"]
    async with opened(PAUSED, tmp_path) as service:
        [question] = [one for one in await service.list_pending(app_name="app") if one.session_id == "credential"]
        assert (question.kind, question.hint) == ("credential", CONFIG.hint)
        runner = runner_over(service, "credential")
        reply = await runner.provide_credential(question, AuthCredential("api_key", api_key="sk-0451-nobody"))
        async with runner.run_async(user_id="u", session_id="credential", new_message=reply) as run:
            await run.wait()
        assert await texts(service, "credential") == ["looking", "a key of 14 characters"]
        await check_all_is_answered(service, "credential", before)
        assert "sk-0451" not in "".join(await export_of(service, "credential"))


# --- what was interrupted ---------------------------------------------------------------------------------------------


async def test_a_turn_whose_process_was_killed_goes_on(effects: list[str], tmp_path: Path) -> None:
    """Steps are taken from the log, the failed one, too; the agent in the turn goes on where it was."""
    found = told(INTERRUPTED)
    async with opened(INTERRUPTED, tmp_path) as service:
        [invocation] = await service.list_invocations(app_name="app")
        assert invocation.status is InvocationStatus.INTERRUPTED
        run = await run_in(service, "batch", invocation_id=invocation.invocation_id)
        assert run.status is COMPLETED
        await check_all_is_answered(service, "batch", found["sessions"]["batch"])
        assert effects == []
        said = await texts(service, "batch")
        assert (said[:3], said[-2:]) == (["counted to 1", "counted to 2", "report 0 after True"], ["inside", "worked"])
        assert sorted(said[3:7]) == ["p begins", "p ends", "q begins", "q ends"]
        answers: Counter[str] = Counter(
            answer.response["error"]["type"] if "error" in answer.response else answer.response["result"]
            for event in await log_of(service, "batch")
            for answer in event.get_function_responses()
        )
        # Of calls that had been begun nobody knows what came of them.
        assert answers == {"outcome_unknown": 3, "noted inner one": 1, "inside": 1}
        state = {"count": 2, "p": 2, "q": 2, "inner": "inside", "notes": ["inner one"], "user:seen": True}
        assert dict(run.session.state) == state
