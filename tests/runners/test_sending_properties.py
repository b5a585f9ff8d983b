"""
No sequence of messages, sends, answers, forks, rewinds and cut-off runs gives a prompt that a strict provider refuses.

`ScriptedLlm` is that provider: it fails the run by a ScriptError. What it answers follows from a drawn list: a call of
a plain tool, of one that asks for a confirmation, both, or a text.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minirun import InMemorySessionService, LlmAgent, Runner
from minirun.errors import InvocationEndedError, InvocationNotFoundError, SessionNotFoundError
from minirun.sessions import BaseSessionService, SessionKey, SqliteSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool

from ..examples import examples

STEPS = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 3)),  # and send so often while it runs
    st.tuples(st.just("cut off"), st.integers(0, 3)),  # after so many events; and go on
    st.tuples(st.just("send"), st.integers(0, 1)),
    st.tuples(st.just("answer"), st.integers(0, 1)),
    st.tuples(st.just("fork"), st.integers(1, 9)),
    st.tuples(st.just("rewind"), st.integers(0, 3)),
)
ANSWERS = st.lists(st.sampled_from(["text", "look", "pay", "both"]), min_size=1, max_size=8)
WHENS = st.lists(st.sampled_from(["next_model_call", "idle"]), min_size=1, max_size=3)


def look() -> str:
    """Look."""
    return "seen"


def pay() -> str:
    """Pay."""
    return "paid"


class Desk:
    """One session after another, each a fork of the one before, and what was sent into it."""

    def __init__(self, service: BaseSessionService, answers: list[str], whens: list[str]) -> None:
        self.service = service
        self.session_id = "s"
        self.sent: list[str] = []
        self._count = 0
        self._whens = whens

        def answer(request: Any) -> Any:
            kind = answers[len(self.model.requests) % len(answers)] if len(self.model.requests) < 60 else "text"
            parts = {"text": "done", "look": call("look"), "pay": call("pay"), "both": [call("look"), call("pay")]}
            return parts[kind]

        self.model = ScriptedLlm(answer)
        tools: list[Any] = [look, FunctionTool(pay, require_confirmation=True)]
        agent = LlmAgent(name="a", model=self.model, tools=tools)
        self.runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)

    @property
    def place(self) -> dict[str, Any]:
        return {"user_id": "u", "session_id": self.session_id}

    async def take(self, kind: str, number: int) -> None:
        """Take one step; one that has nothing to work on does nothing."""
        here = {"app_name": "app", **self.place}
        if kind == "say":
            await self._run(sends=number, new_message="hello")
        elif kind == "cut off":
            run = await self._run(leaves_after=number, new_message="hello")
            if run.status == "interrupted":
                await self._run(sends=1, invocation_id=run.invocation_id)
        elif kind == "send":
            await self._send()
        elif kind == "answer":
            pending = await self.service.list_pending(**here)
            if pending:
                await self._run(sends=1, new_message=pending[0].reply(bool(number)))
        elif await self.service.get_session(**here) is None:
            return
        elif kind == "fork":
            log = await self.service.read_events(**here)
            self._count += 1
            new = f"s{self._count}"
            await self.service.fork_session(**here, at_seq=min(number, len(log) - 1), new_session_id=new)
            self.session_id, self.sent = new, []
        else:
            session = await self.service.get_session(**here)
            assert session is not None
            begun = (event for event in session.events if event.author == "user" and event.content is not None)
            ids = list(dict.fromkeys(event.invocation_id for event in begun))
            if ids:
                await self.runner.rewind_async(**self.place, rewind_before_invocation_id=str(ids[number % len(ids)]))
                self.sent = []

    async def _run(self, *, sends: int = 0, leaves_after: int | None = None, **what: Any) -> Any:
        scope = self.runner.run_async(**self.place, **what)
        async with scope if leaves_after is None else scope.supervised(None) as run:
            seen = 0
            async for _ in run:
                seen += 1
                if seen == leaves_after:
                    break
                if seen <= sends:
                    await self._send()
        return run

    async def _send(self) -> None:
        self._count += 1
        text = f"m{self._count}"
        when = self._whens[self._count % len(self._whens)]
        try:
            await self.runner.send(text, **self.place, when=when)
        except (InvocationEndedError, InvocationNotFoundError, SessionNotFoundError):
            return
        self.sent.append(text)

    async def check(self) -> None:
        """A last turn: what was sent is in the log once, or waits for what is paused, in the order of sending."""
        await self._run(new_message="the end")
        events = await self.service.read_events(app_name="app", **self.place)
        texts = [event.text for event in events if event.actions.replay.sent is not None]
        assert len(texts) == len(set(texts)), "a message was stored twice"
        live = await self.service.load_session(SessionKey("app", "u", self.session_id), None)
        assert live is not None
        waiting = [message.text for message in await self.service.load_messages(live)]
        assert not set(texts) & set(waiting)
        assert set(self.sent) <= {*texts, *waiting}, "a message was lost"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@given(steps=st.lists(STEPS, max_size=8), answers=ANSWERS, whens=WHENS)
@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_prompt_is_one_that_a_strict_provider_takes(
    kind: str, steps: list[tuple[str, int]], answers: list[str], whens: list[str]
) -> None:
    """Whatever is said, sent, answered, cut off, forked and undone: no prompt is refused, and no message lost."""

    async def work() -> None:
        async with InMemorySessionService() if kind == "memory" else SqliteSessionService(":memory:") as service:
            desk = Desk(service, answers, whens)
            for step in steps:
                await desk.take(*step)
            await desk.check()

    trio.run(work)
