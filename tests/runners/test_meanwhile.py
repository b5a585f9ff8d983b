"""
What happens to an invocation while somebody is about to go on with it: answered, ended, undone, copied, deleted.

Two services on one file, each as a process of its own has it; a world stops one of them where the other shall be
faster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from minirun import BaseAgent, Env, Event, InvocationContext, Runner, SqliteSessionService
from minirun.errors import InvalidMessageError, InvocationNotFoundError, SessionNotFoundError
from minirun.sessions import PendingCall

from ..runtime.test_resume import PLACE
from ..stores import HERE, Elsewhere, append, get

POINTS = ("enter", "recover", "message")
"""Where a run may be stopped before anything of it is stored."""


@attrs.frozen(eq=False)
class Stopped(Env):
    """The real world; where a run comes to one point, the first time, something else is done first."""

    at: dict[str, Callable[[], Awaitable[object]]] = attrs.field(factory=dict)

    async def point(self, label: str) -> None:
        """Do it, if this is the point."""
        meanwhile = self.at.pop(label, None)
        if meanwhile is not None:
            await meanwhile()


class Asks(BaseAgent):
    """Asks a question, and fails if that is the answer."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        answer = await ctx.request_input("What?", response_schema=str)
        if answer == "fail":
            raise ValueError("as told")
        await ctx.emit(Event(message=f"heard {answer}", state={"heard": answer}))


def runner_of(service: SqliteSessionService) -> Runner:
    """A runner as a process would make it."""
    return Runner(agent=Asks(name="asks"), app_name="app", session_service=service)


@asynccontextmanager
async def two_processes(folder: Path) -> AsyncIterator[tuple[Runner, Runner, Stopped, PendingCall]]:
    """A session with an open question, seen by two processes, of which the first may be stopped."""
    path, world = folder / "a.db", Stopped()
    async with (
        Elsewhere(path, durability="process", env=world) as mine,
        Elsewhere(path, durability="process") as others,
    ):
        await mine.create_session(**HERE)
        async with runner_of(mine).run_async(**PLACE, new_message="go") as run:
            await run.wait()
        [question] = run.pending
        yield runner_of(mine), runner_of(others), world, question


async def answer(runner: Runner, question: PendingCall, text: str, session_id: str = "s") -> str:
    """Answer; return how that ended."""
    async with runner.run_async(user_id="u", session_id=session_id, new_message=question.reply(text)) as run:
        await run.wait()
    return str(run.status)


async def log_of(runner: Runner, session_id: str = "s") -> list[Event]:
    """The stored events."""
    place = {**HERE, "session_id": session_id}
    return await runner.session_service.read_events(**place, after_seq=0)  # type: ignore[arg-type]  # a place


def answers_in(log: list[Event]) -> list[Any]:
    return [one.response for event in log for one in event.get_function_responses()]


# --- two who answer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
async def test_of_two_answers_one_counts(point: str, tmp_path: Path) -> None:
    """Who is slower, wherever it was overtaken, gets InvalidMessageError, and nothing of it is stored."""
    async with two_processes(tmp_path) as (mine, others, world, question):
        world.at[point] = lambda: answer(others, question, "faster")
        with pytest.raises(InvalidMessageError, match="answered"):
            await answer(mine, question, "slower")
        log = await log_of(others)
        assert answers_in(log) == [{"result": "faster"}]
        assert [event.text for event in log if event.text] == ["go", "heard faster"]
        assert log == await log_of(mine)


async def test_of_answers_that_race_one_counts(tmp_path: Path) -> None:
    """Whoever wins, all others are refused; the session has one answer."""
    async with two_processes(tmp_path) as (mine, others, _, question):
        outcomes: dict[str, object] = {}

        async def race(runner: Runner, text: str) -> None:
            try:
                outcomes[text] = await answer(runner, question, text)
            except InvalidMessageError as error:
                outcomes[text] = type(error)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(race, (mine, others)[number % 2], str(number))
        [winner] = [text for text, outcome in outcomes.items() if outcome == "completed"]
        assert list(outcomes.values()).count(InvalidMessageError) == 5
        assert answers_in(await log_of(mine)) == [{"result": winner}]
        assert (await get(others.session_service)).state["heard"] == winner


# --- two who go on ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
async def test_what_has_ended_meanwhile_stays_ended(point: str, tmp_path: Path) -> None:
    """Who was about to go on with an invocation finds that it has ended, and stores nothing."""
    async with two_processes(tmp_path) as (mine, others, world, question):

        async def end() -> None:
            await answer(others, question, "well")

        world.at[point] = end
        async with mine.run_async(**PLACE, invocation_id=question.invocation_id) as run:
            events = [event async for event in run]
        assert (events, run.status) == ([], "completed")
        assert [event.content for event in await log_of(mine) if event.author == "user"].count(None) == 0
        [invocation] = await mine.session_service.list_invocations()
        assert invocation.status == "completed"


@pytest.mark.parametrize("point", POINTS)
async def test_what_has_failed_meanwhile_is_tried_again(point: str, tmp_path: Path) -> None:
    """Who was about to go on with an invocation that has failed meanwhile does so: what failed is tried once more."""
    async with two_processes(tmp_path) as (mine, others, world, question):

        async def fail() -> None:
            with pytest.raises(ValueError, match="as told"):
                await answer(others, question, "fail")

        world.at[point] = fail
        with pytest.raises(ValueError, match="as told"):
            async with mine.run_async(**PLACE, invocation_id=question.invocation_id) as run:
                await run.wait()
        [invocation] = await mine.session_service.list_invocations()
        assert invocation.status == "failed"
        assert [event.error_code for event in await log_of(mine) if event.error_code] == ["ValueError"] * 2


@pytest.mark.parametrize("point", POINTS)
async def test_an_append_from_outside_does_not_keep_anybody_from_going_on(point: str, tmp_path: Path) -> None:
    """Who was overtaken by it looks again, and goes on."""
    async with two_processes(tmp_path) as (mine, others, world, question):

        async def write() -> None:
            await append(others.session_service, await get(others.session_service), "by the way")

        world.at[point] = write
        assert await answer(mine, question, "well") == "completed"
        assert [event.text for event in await log_of(mine) if event.text] == ["go", "by the way", "heard well"]


# --- rewind, fork, deletion -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["", *POINTS])
async def test_what_was_undone_cannot_be_answered(point: str, tmp_path: Path) -> None:
    """A rewind takes the question back and ends its invocation; the answer is refused, whenever it was on its way."""
    async with two_processes(tmp_path) as (mine, others, world, question):

        async def undo() -> None:
            await others.rewind_async(**PLACE, rewind_before_invocation_id=question.invocation_id)

        if point:
            world.at[point] = undo
        else:
            await undo()
        with pytest.raises((InvalidMessageError, InvocationNotFoundError)):
            await answer(mine, question, "well")
        assert await mine.session_service.list_pending() == []
        assert [str(one.status) for one in await mine.session_service.list_invocations()] == ["cancelled"]
        with pytest.raises(InvocationNotFoundError):
            async with mine.run_async(**PLACE, invocation_id=question.invocation_id):
                pass
        before = await log_of(mine)
        assert (before[-1].actions.rewind_before_seq, answers_in(before)) == (1, [])


async def test_an_answer_that_was_undone_can_be_given_again(tmp_path: Path) -> None:
    """A rewind to between the question and its answer, which began something else there, asks it again."""
    async with two_processes(tmp_path) as (mine, others, _, question):
        async with others.run_async(**PLACE, new_message="something else") as other:
            await other.wait()
        assert await answer(mine, question, "first") == "completed"
        await others.rewind_async(**PLACE, rewind_before_invocation_id=other.invocation_id)
        [again] = await mine.session_service.list_pending()
        assert again == question
        assert "heard" not in (await get(mine.session_service)).state
        assert await answer(mine, again, "second") == "completed"
        assert (await get(mine.session_service)).state["heard"] == "second"


async def test_a_question_and_its_copy_are_answered_apart(tmp_path: Path) -> None:
    """A fork of a session that waits waits, too; each goes on with its own answer."""
    async with two_processes(tmp_path) as (mine, others, _, question):
        await others.session_service.fork_session(**HERE, new_session_id="copy")
        pending = {one.session_id: one for one in await mine.session_service.list_pending()}
        assert pending == {"s": question, "copy": attrs.evolve(question, session_id="copy")}
        assert await answer(mine, pending["copy"], "two", "copy") == "completed"
        assert await others.session_service.list_pending() == [question]
        assert await answer(others, question, "one") == "completed"
        for session_id, heard in (("s", "one"), ("copy", "two")):
            assert answers_in(await log_of(mine, session_id)) == [{"result": heard}]
            assert (await get(mine.session_service, session_id)).state["heard"] == heard
        assert {str(one.status) for one in await mine.session_service.list_invocations()} == {"completed"}


@pytest.mark.parametrize("point", ["", *POINTS])
async def test_a_session_that_is_deleted_meanwhile_is_not_made_again(point: str, tmp_path: Path) -> None:
    """The answer is refused with a typed error, also where sessions are made on their first run."""
    async with two_processes(tmp_path) as (mine, others, world, question):
        mine.auto_create_session = True

        async def delete() -> None:
            await others.session_service.delete_session(**HERE)

        if point:
            world.at[point] = delete
        else:
            await delete()
        with pytest.raises((InvalidMessageError, InvocationNotFoundError, SessionNotFoundError)):
            await answer(mine, question, "well")
        assert await mine.session_service.get_session(**HERE) is None
        assert await mine.session_service.list_pending() == []
