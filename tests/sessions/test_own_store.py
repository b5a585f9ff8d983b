"""A store of one's own, as examples/own_store.py has it: the contract, crashes, and a disk that fails."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import minirun
from examples.own_store import JsonLinesSessionService
from minirun import BaseAgent, Event, InvocationContext, Runner
from minirun.errors import StorageRolledBackError
from minirun.sessions import BaseSessionService
from minirun.sessions._store import SessionStore
from minirun.testing import check_session_service

from ..contracts.session_contract import session_service_checks
from ..fork_server import program, run
from ..stores import HERE, append, get, texts

CHECKS = session_service_checks(durable=True)


async def test_it_passes_the_check_for_custom_services(tmp_path: Path) -> None:
    """`check_session_service`, with each service on the file of the one before."""
    await check_session_service(lambda: JsonLinesSessionService(tmp_path / "s.jsonl"), durable=True)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
async def test_it_keeps_the_whole_contract(check: Callable[..., object], tmp_path: Path) -> None:
    """What each service of minirun is checked for holds for an InMemorySessionService whose changes are replayed."""
    await check(lambda: JsonLinesSessionService(tmp_path / "s.jsonl"))  # type: ignore[misc]


class Asks(BaseAgent):
    """Asks for a number, and adds one to it."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        number = await ctx.request_input("Which number?", response_schema=int)
        await ctx.emit(Event(message=f"{number + 1}", state={"user:last": number}))


def runner_of(sessions: BaseSessionService) -> Runner:
    return Runner(app_name="app", agent=Asks(name="asks"), session_service=sessions, auto_create_session=True)


async def test_a_paused_run_is_resumed_by_the_next_service(tmp_path: Path) -> None:
    """Its pending request is listed and replied to; the state is that of all events."""
    async with JsonLinesSessionService(tmp_path / "s.jsonl") as sessions:
        async with runner_of(sessions).run_async(user_id="u", session_id="s", new_message="hi") as paused:
            await paused.wait()
    async with JsonLinesSessionService(tmp_path / "s.jsonl") as sessions:
        [pending] = await sessions.list_pending()
        assert pending.invocation_id == paused.invocation_id
        async with runner_of(sessions).run_async(user_id="u", session_id="s", new_message=pending.reply(4)) as resumed:
            last = await resumed.wait()
        assert last is not None
        assert last.text == "5"
        assert [found.status for found in await sessions.list_invocations()] == ["completed"]
    async with JsonLinesSessionService(tmp_path / "s.jsonl") as sessions:
        assert (await get(sessions)).state == {"user:last": 4}


PROGRAM = """
import os, signal, sys
from pathlib import Path
import trio
from examples.own_store import JsonLinesSessionService
from minirun import BaseAgent, Event, Runner

class Order(BaseAgent):
    async def _run_async_impl(self, ctx):
        await ctx.step("charge", print, "charged", flush=True)
        if sys.argv[2] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        await ctx.step("ship", print, "shipped", flush=True)
        await ctx.emit(Event(message="done"))

async def main():
    async with JsonLinesSessionService(Path(sys.argv[1])) as sessions:
        runner = Runner(app_name="app", agent=Order(name="order"), session_service=sessions, auto_create_session=True)
        place = {"user_id": "u", "session_id": "s"}
        if sys.argv[2] == "die":
            run = runner.run_async(**place, new_message="3 pens")
        else:
            [left] = await sessions.list_invocations(status="interrupted")
            run = runner.run_async(**place, invocation_id=left.invocation_id)
        async with run as events:
            print((await events.wait()).text)
        print(*[found.status.value for found in await sessions.list_invocations()])

trio.run(main)
"""


@pytest.mark.parametrize("cut", [0, 1, 30], ids=["as it was left", "without its newline", "torn"])
def test_a_killed_run_is_resumed_by_the_next_process(cut: int, tmp_path: Path) -> None:
    """A step that is stored is not repeated; a torn line at the end does not count."""
    path = tmp_path / "sessions.jsonl"

    def ran(how: str) -> tuple[int, str]:
        done = run(program(PROGRAM, path, how))
        return done.returncode, done.stdout + done.stderr

    assert ran("die") == (-signal.SIGKILL, "charged\n")
    if cut:  # the record of the charge is lost, so it is repeated, with the same key
        path.write_bytes(path.read_bytes()[:-cut])
    assert ran("resume") == (0, ("charged\n" if cut else "") + "shipped\ndone\ncompleted\n")


async def test_a_write_that_fails_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in memory nor in the file; the same append succeeds once the disk has room."""
    path = tmp_path / "s.jsonl"

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with JsonLinesSessionService(path) as sessions:
        session = await sessions.create_session(**HERE)
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StorageRolledBackError):
                await append(sessions, session, "x")
            assert texts(await get(sessions)) == []
            assert path.read_bytes() == before
        await append(sessions, session, "x")
    async with JsonLinesSessionService(path) as sessions:
        assert texts(await get(sessions)) == ["x"]


async def test_a_second_owner_of_the_file_is_refused(tmp_path: Path) -> None:
    """The lock is the operating system's, so it ends with the process."""
    async with JsonLinesSessionService(tmp_path / "s.jsonl"):
        with pytest.raises(BlockingIOError):
            async with JsonLinesSessionService(tmp_path / "s.jsonl"):
                raise AssertionError


def test_the_page_lists_every_primitive() -> None:
    """All are public; the first table has the abstract ones, the second those with a default."""
    page = (Path(minirun.__file__).parent / "docs" / "own_store.md").read_text("utf-8")
    _, abstract, default = page.partition("## The primitives")[2].partition("## Check it")[0].split("| primitive | ")
    public = {name for name in vars(SessionStore) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)\(", abstract)) == BaseSessionService.__abstractmethods__
    listed = {name for line in default.splitlines() for name in re.findall(r"`(\w+)\(", line.split(" | ")[0])}
    assert listed == public - BaseSessionService.__abstractmethods__ - {"open_writer", "renew_every_s"}
    assert not any(name.startswith("_") for name in BaseSessionService.__abstractmethods__)
