"""What a turn on a session in Postgres asks of its server, and what becomes of one whose connection is lost."""

from __future__ import annotations

from functools import partial

import trio

from minirun import BaseAgent, Event, InvocationContext, LlmAgent, Runner
from minirun.errors import StorageUncertainError
from minirun.sessions import DatabaseSessionService, InvocationStatus
from minirun.testing import ScriptedLlm

from ..helpers import Logic
from ..postgres import new_database
from ..postgres_seam import Wired
from ..stores import HERE, texts


async def test_a_text_turn_on_an_idle_session_takes_few_round_trips() -> None:
    """Two for each event and two more, at most: the message and the answer are a statement each."""
    env = Wired()
    async with DatabaseSessionService(new_database(), env=env) as service:
        agent = LlmAgent(name="a", model=ScriptedLlm(lambda request: "yes"))
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        for turn in range(3):
            env.trips.clear()
            async with runner.run_async(user_id="u", session_id="s", new_message=f"turn {turn}") as run:
                events = [event async for event in run]
            trips = [names for names in env.trips if names != ["listen"]]
        assert len(events) == 1
        assert sum("append" in names for names in trips) == 2
        assert len(trips) <= 2 * 2 + 2, trips


async def test_a_run_that_its_connection_has_failed_is_interrupted_and_supervised() -> None:
    """An append without an answer fails the run, not the invocation: a supervisor goes on with it."""
    env = Wired()

    def says_two(fault: str) -> BaseAgent:
        async def logic(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="one"))
            if not ctx.is_resumed:
                env.faults["append"] = fault
            await ctx.emit(Event(message="two"))
            await ctx.emit(Event(message="three"))

        return Logic(name="a", logic=logic)

    for fault in ("stored", "lost"):
        async with DatabaseSessionService(new_database(), env=env) as service:
            runner = Runner(agent=says_two(fault), app_name="app", session_service=service, auto_create_session=True)
            failed = False
            try:
                async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
                    await run.wait()
            except StorageUncertainError:
                failed = True
            assert failed
            assert run.status is InvocationStatus.INTERRUPTED
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(runner.supervise, every_s=0.02))
                while [one.status for one in await service.list_invocations()] != ["completed"]:  # noqa: ASYNC110
                    await trio.sleep(0.02)
                nursery.cancel_scope.cancel()
            session = await service.get_session(**HERE)
            assert session is not None
            assert [text for text in texts(session) if text] == ["go", "one", "two", "three"]
