"""Messages that a guardrail has taken out of prompts: what prompts, filters and summaries show instead."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from hypothesis import given
from hypothesis import strategies as st

from minirun import App, Event, InMemorySessionService, Runner
from minirun.apps import EventsCompactionConfig, FirstLinesSummarizer
from minirun.errors import GuardrailTripwireError
from minirun.events import EventActions, Replay
from minirun.flows import keep_last
from minirun.flows._hidden import without_hidden
from minirun.flows._transcript import Transcript
from minirun.models import LlmRequest
from minirun.models._check import RequestChecker
from minirun.plugins import GuardrailPlugin
from minirun.runtime import CallbackContext
from minirun.types import Content, Part

from ..agents.test_guardrails import agent_with, app_runner, prompts, run_tripped
from ..helpers import PLACE, run_to_end, stored_events


def no_bad_words(ctx: CallbackContext, content: Content) -> str | None:
    """Refuse and replace, at once."""
    if "bad" in content.text:
        raise GuardrailTripwireError("bad words")
    return content.text.replace("card", "[card]") if "card" in content.text else None


def says(seq: int, author: str, text: str) -> Event:
    """A stored event."""
    role = "user" if author == "user" else "model"
    return Event(id=f"e{seq}", seq=seq, author=author, content=Content(role=role, parts=[Part(text=text)]))


def hides(seq: int, hidden: str, text: str | None) -> Event:
    """The verdict of a guardrail."""
    content = None if text is None else Content(role="user", parts=[Part(text=text)])
    actions = EventActions(replay=Replay(hides=hidden, aside=True))
    return Event(id=f"e{seq}", seq=seq, author="a", content=content, actions=actions)


steps = st.lists(st.tuples(st.sampled_from(["user", "a", "b", "hide", "replace"]), st.integers(1, 12)), max_size=12)


@given(steps, st.lists(st.integers(0, 12), max_size=3))
def test_prompts_are_the_same_however_far_they_were_read(made: Sequence[tuple[str, int]], stops: Sequence[int]) -> None:
    """Whenever a transcript is read on, it shows what one shows that is read at once; no earlier view changes."""
    log: list[Event] = []
    for seq, (what, at) in enumerate(made, 1):
        users = {event.id for event in log if event.author == "user"}
        hidden = {event.actions.replay.hides for event in log}
        target = f"e{at}"
        if what in ("hide", "replace"):
            if target not in users or target in hidden:
                continue
            log.append(hides(seq, target, None if what == "hide" else f"instead of {at}"))
        else:
            log.append(says(seq, what, f"{what} {seq}"))
    whole, parts = Transcript("a", 1), Transcript("a", 1)
    whole.read(log)
    views = []
    done = 0
    for stop in sorted(stops):
        parts.read(log[done:stop])
        done = max(done, min(stop, len(log)))
        view = parts.contents()
        views.append((view, list(view)))
    parts.read(log[done:])
    assert list(whole.contents()) == list(parts.contents())
    assert all(list(view) == before for view, before in views)
    assert RequestChecker().check(LlmRequest(contents=whole.contents())) is None
    shown = Transcript("a", 1)
    shown.read(without_hidden(log))
    assert [content.text for content in shown.contents()] == [content.text for content in whole.contents()]


async def test_a_message_that_nobody_has_looked_at_is_looked_at_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Who leaves before the verdict gets nothing past a guardrail: the message is hidden, and the next run goes on."""

    async def slow(ctx: CallbackContext, content: Content) -> str | None:
        await trio.sleep(1)
        return no_bad_words(ctx, content)

    agent = agent_with("fine")
    runner = await app_runner(agent, GuardrailPlugin(input=[slow]))
    for message in ("bad", "my card"):
        async with runner.run_async(**PLACE, new_message=message):
            await trio.sleep(0.5)
    _, run = await run_to_end(runner, "hello")
    assert run.status == "completed"
    assert prompts(agent)[-1] == ["my [card]", "hello"]
    said = [event.text for event in await stored_events(runner) if event.author == "user"]
    assert said == ["bad", "my card", "hello"]


async def test_a_choice_of_events_does_not_have_it() -> None:
    """`include_contents=f` is given what prompts show: no refused message, and replaced ones as they are shown."""
    agent = agent_with("one", "two", include_contents=keep_last(9))
    guardrails = GuardrailPlugin(input=[no_bad_words])
    runner = await app_runner(agent, guardrails)
    await run_to_end(runner, "my card")
    await run_tripped(runner)
    await run_to_end(runner, "hello")
    assert prompts(agent) == [["my [card]"], ["my [card]", "one", "hello"]]


async def test_a_summary_does_not_tell_it() -> None:
    """What is told to a summarizer is what prompts show."""
    agent = agent_with("one", "two", "three")
    config = EventsCompactionConfig(compaction_interval=2, overlap_size=0, summarizer=FirstLinesSummarizer())
    plugins = [GuardrailPlugin(input=[no_bad_words])]
    app = App("app", agent, plugins=plugins, events_compaction_config=config)
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    long = " again and again, at a length that a summary does not have" * 20
    await run_to_end(runner, f"my card{long}")
    _, run = await run_to_end(runner, f"and more{long}")
    await run_to_end(runner, "hello")
    assert run.compaction is not None
    told = str(run.compaction.actions.compaction)
    assert "my [card]" in told
    assert "my card" not in told + str(prompts(agent)[-1])
