"""
Whatever a conversation is like, and however it is summed up: a model is shown all of it, once.

Every text that is said here has a word of its own, and the summarizer of these tests keeps the words. So what a request
tells can be counted: word for word it is what the whole history would tell that agent, raw or in the one summary. The
model is the strictest one, so a call without its response fails the run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import attrs
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import (
    AgentTool,
    App,
    Event,
    FunctionTool,
    InMemorySessionService,
    LlmAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SqliteSessionService,
)
from minirun.apps import BaseEventsSummarizer, EventsCompactionConfig
from minirun.flows._compaction import Tail, covered, is_told, told
from minirun.flows._transcript import Transcript
from minirun.models import LlmRequest
from minirun.sessions import BaseSessionService, GetSessionConfig, verify
from minirun.sessions._compactions import Compaction, CompactionFold
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..examples import examples
from ..helpers import PLACE
from ..stores import HERE, KEY

WORD = re.compile(r"W\d+_")
NOTHING = GetSessionConfig(num_recent_events=0)
FILLER = "and so on, and so on, and so on"


class Keeper(BaseEventsSummarizer):
    """Keeps the words, and nothing else."""

    async def maybe_summarize_events(self, *, events: Sequence[Event]) -> Event | None:
        words: list[str] = []
        end_seq = 0
        for event in events:
            if event.actions.compaction is not None:
                end_seq = event.actions.compaction["end_seq"]
                words += words_of(event.text)
            elif (event.seq or 0) > end_seq:
                words += [word for line in told(event) for word in words_of(line)]
        await trio.lowlevel.checkpoint()
        return Event(message=" ".join(words)) if words else None


def words_of(text: str) -> list[str]:
    return WORD.findall(text)


def shown(contents: Sequence[Content]) -> Counter[str]:
    """How often each word is shown."""
    return Counter(word for content in contents for word in words_of(str(content)))


# --- a conversation ---------------------------------------------------------------------------------------------------


@attrs.frozen
class Asked:
    """A question to a model: whose, where, when the session's newest event was this one, and what it showed."""

    agent: str
    branch: str | None
    revision: int
    contents: Sequence[Content]


class Talk:
    """The agents of a conversation, whose models do what is drawn, and what they were asked."""

    def __init__(self, compaction: EventsCompactionConfig) -> None:
        self.asked: list[Asked] = []
        self.answers: list[str] = []
        self._words = count()
        helper = self._agent("helper", tools=[self._noting()])
        order = LongRunningFunctionTool(
            lambda: {"ticket": self.word()}, name="order", description="Order.", run_in="loop", on_interrupted="rerun"
        )
        sides = ParallelAgent(name="sides", sub_agents=[self._agent("left"), self._agent("right")])
        second = self._agent("second", tools=[self._noting()])
        tools = [self._noting(), order, AgentTool(helper)]
        root = self._agent("root", tools=tools, sub_agents=[second, sides])
        self.app = App("app", root, events_compaction_config=compaction)

    def word(self) -> str:
        return f"W{next(self._words)}_ {FILLER}"

    def _noting(self) -> FunctionTool:
        def note(what: str) -> str:
            """Note it."""
            return self.word()

        return FunctionTool(note, run_in="loop", on_interrupted="rerun")

    def _agent(self, name: str, **more: Any) -> LlmAgent:
        def look(callback_context: Any, llm_request: Any) -> None:
            revision = callback_context.session.revision
            self.asked.append(Asked(name, callback_context.branch, revision, list(llm_request.contents)))

        return LlmAgent(name=name, model=ScriptedLlm(self._answer), before_model_callback=look, **more)

    def _answer(self, request: LlmRequest) -> Any:
        able = {tool.name for tool in request.config.tools}
        wanted = self.answers.pop(0) if self.answers else "text"
        made: dict[str, Callable[[], Any]] = {
            "note": lambda: [call("note", what=self.word())],
            "notes": lambda: [
                Content(role="model", parts=[self._said(), *(call("note", what=w) for w in self._two())])
            ],
            "order": lambda: [call("order")],
            "helper": lambda: [call("helper", request=self.word())],
            "second": lambda: [call("transfer_to_agent", agent_name="second")],
            "sides": lambda: [call("transfer_to_agent", agent_name="sides")],
            "root": lambda: [call("transfer_to_agent", agent_name="root")],
        }
        tool = {"notes": "note", "second": "transfer_to_agent", "sides": "transfer_to_agent"}.get(wanted, wanted)
        if wanted in ("second", "sides", "root"):
            targets = str([each.parameters for each in request.config.tools if each.name == "transfer_to_agent"])
            tool = "transfer_to_agent" if f"'{wanted}'" in targets else ""
        return made[wanted]() if tool in able else [self._said()]

    def _two(self) -> tuple[str, str]:
        return self.word(), self.word()

    def _said(self) -> Part:
        return Part(text=self.word())


Move: TypeAlias = tuple[Any, ...]


def moves() -> st.SearchStrategy[list[Move]]:
    """What happens in a conversation, one thing after another."""
    answers = st.lists(
        st.sampled_from(["text", "note", "notes", "order", "helper", "second", "sides", "root"]), max_size=4
    )
    window = st.sampled_from([None, None, 0, 1, 4])
    say = st.tuples(st.just("say"), answers, window)
    others = st.one_of(
        st.tuples(st.just("leave"), answers, st.integers(1, 4)),
        st.tuples(st.just("rewind"), st.integers(0, 5)),
        st.tuples(st.just("append")),
    )
    reply = st.tuples(st.just("reply"), answers)
    asked = st.tuples(st.just("say"), st.just(["note", "order"]), window)
    reopened = st.sampled_from(["as it is", "open again"])
    one_move = st.one_of(say, say, asked, reply, others)
    return st.lists(st.tuples(reopened, one_move).map(lambda each: (each[0], *each[1])), min_size=3, max_size=10)


def configs() -> st.SearchStrategy[EventsCompactionConfig]:
    """Every kind of setting."""
    by_interval: st.SearchStrategy[dict[str, int]] = st.builds(
        dict, compaction_interval=st.integers(1, 3), overlap_size=st.integers(0, 2)
    )
    by_tokens: st.SearchStrategy[dict[str, int]] = st.builds(
        dict, token_threshold=st.sampled_from([1, 30, 100, 300]), event_retention_size=st.integers(0, 5)
    )
    both = st.builds(lambda first, second: {**first, **second}, by_interval, by_tokens)
    return st.one_of(by_interval, by_tokens, both).map(
        lambda fields: EventsCompactionConfig(summarizer=Keeper(), **fields)
    )


class Conversation:
    """A conversation as it goes on, in one session of one store."""

    def __init__(self, talk: Talk, make: Callable[[], BaseSessionService]) -> None:
        self.talk = talk
        self._make = make
        self._service = make()
        self._runner()
        self.checked = 0
        self.summaries = 0

    def _runner(self) -> None:
        self.runner = Runner(app=self.talk.app, session_service=self._service, auto_create_session=True)

    async def go_on(self, move: Move) -> None:
        opened, kind, *rest = move
        if opened == "open again" and isinstance(self._service, SqliteSessionService):
            await self._service.aclose()
            self._service = self._make()
            self._runner()
        if kind == "say":
            answers, window = rest
            await self._say(answers, window)
        elif kind == "leave":
            answers, after = rest
            await self._leave(answers, after)
        elif kind == "reply":
            await self._reply(*rest)
        elif kind == "rewind":
            await self._rewind(*rest)
        else:
            session = await self._service.get_session(**HERE, config=NOTHING)
            if session is not None:
                await self._service.append_event(session, Event(author="user", message=self.talk.word()))
        await self.check()

    async def _say(self, answers: list[str], window: int | None) -> None:
        self.talk.answers = list(answers)
        config = None if window is None else GetSessionConfig(num_recent_events=window)
        run_config = RunConfig(get_session_config=config)
        async with self.runner.run_async(**PLACE, new_message=self.talk.word(), run_config=run_config) as run:
            await run.wait()
        assert run.compaction_error is None, run.compaction_error
        self.summaries += run.compaction is not None

    async def _leave(self, answers: list[str], after: int) -> None:
        self.talk.answers = list(answers)
        async with self.runner.run_async(**PLACE, new_message=self.talk.word()) as run:
            async for _ in run:
                after -= 1
                if after == 0:
                    break

    async def _reply(self, answers: list[str]) -> None:
        pending = await self._service.list_pending(app_name="app")
        if pending:
            self.talk.answers = list(answers)
            reply = pending[0].reply({"result": self.talk.word()})
            async with self.runner.run_async(**PLACE, new_message=reply) as run:
                await run.wait()
            assert run.compaction_error is None, run.compaction_error

    async def _rewind(self, which: int) -> None:
        session = await self._service.get_session(**HERE)
        if session is None:
            return
        names = dict.fromkeys(e.invocation_id for e in session.events if e.content is not None and e.invocation_id)
        if names:
            await self.runner.rewind_async(**PLACE, rewind_before_invocation_id=[*names][which % len(names)] or "")

    async def check(self) -> None:
        """All that models were asked since the last look, and where the summaries end."""
        if await self._service.get_session(**HERE, config=NOTHING) is None:
            return
        log = await self._service.read_events(**HERE)
        for asked in self.talk.asked[self.checked :]:
            check_request(log, asked)
        self.checked = len(self.talk.asked)
        check_ranges(log)
        live = await self._service.load_session(KEY, NOTHING)
        newest = CompactionFold.over(log).newest
        assert live is not None
        assert live.compaction == (None if newest is None else Compaction.of(newest))

    async def close(self) -> None:
        await self._service.aclose()


def visible_of(log: Sequence[Event]) -> list[Event]:
    """What no rewind has undone."""
    visible: list[Event] = []
    for event in log:
        target = event.actions.rewind_before_seq
        visible = [one for one in visible if target is None or (one.seq or 0) < target]
        visible.append(event)
    return visible


def check_request(log: Sequence[Event], asked: Asked) -> None:
    """What the history would tell an agent is told, once, raw or in the summary, and nothing else."""
    past = log[: asked.revision + 1]
    visible = visible_of(past)
    found = shown(asked.contents)
    assert not [word for word, times in found.items() if times > 1], "nothing is told twice"
    if "@" in (asked.branch or ""):
        return  # it knows what it was asked for, and not what is outside
    raw = Transcript(asked.agent, 1, asked.branch)
    raw.read(visible[1:])
    missing = shown(raw.contents()) - found
    assert not missing, f"{sorted(missing)} are in no summary, and not told"
    newest = CompactionFold.over(past).newest
    summed_up = set() if newest is None else set(words_of(Compaction.of(newest).content.text))
    assert found.keys() <= shown(raw.contents()).keys() | summed_up


def check_ranges(log: Sequence[Event]) -> None:
    """No summary ends inside of an open call, and none reaches what goes on after it."""
    for place, event in enumerate(log):
        if event.actions.compaction is None:
            continue
        compaction = Compaction.of(event)
        before = visible_of(log[:place])
        past = [one for one in before if (one.seq or 0) <= compaction.end_seq]
        calls = {one.id for each in past for one in each.get_function_calls()}
        answered = {one.id for each in past for one in each.get_function_responses()}
        assert calls <= answered
        later = {one.invocation_id for one in log[place + 1 :] if one.invocation_id != event.invocation_id}
        undone = any(one.actions.rewind_before_seq is not None for one in log[place + 1 :])
        assert undone or not later & {one.invocation_id for one in past if one.invocation_id is not None}


SUMMARIES: Counter[str] = Counter()


async def hold(compaction: EventsCompactionConfig, steps: list[Move], make: Callable[[], BaseSessionService]) -> None:
    conversation = Conversation(Talk(compaction), make)
    for move in steps:
        await conversation.go_on(move)
    SUMMARIES["made"] += conversation.summaries
    await conversation.close()


@settings(max_examples=examples(100), deadline=None)
@given(compaction=configs(), steps=moves())
def test_requests_tell_everything_once_in_memory(compaction: EventsCompactionConfig, steps: list[Move]) -> None:
    """Raw or in the one summary; calls have their responses; after rewinds, pauses, transfers, in every window."""
    service = InMemorySessionService()
    trio.run(hold, compaction, steps, lambda: service)


@settings(max_examples=examples(60), deadline=None)
@given(compaction=configs(), steps=moves())
def test_requests_tell_everything_once_on_disk(compaction: EventsCompactionConfig, steps: list[Move]) -> None:
    """As in memory, where sessions are read again and only in part; the file verifies."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        trio.run(hold, compaction, steps, lambda: SqliteSessionService(path, durability="process"))
        assert not path.exists() or verify(path) == []


def test_the_conversations_were_summed_up() -> None:
    """The laws above were tried on something: if they ran in this process, many summaries were made."""
    assert SUMMARIES["made"] > 5 or not SUMMARIES


# --- ranges, by themselves --------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Events with calls and responses in any order, some never answered."""
    events: list[Event] = []
    open_calls: list[str] = []
    names = count()
    for seq in range(1, draw(st.integers(1, 12)) + 1):
        kind = draw(st.sampled_from(["text", "text", "call", "answer", "nothing"]))
        name = f"e-{draw(st.integers(0, 3))}"
        parts = [Part(text=f"W{seq}_ {FILLER}")]
        if kind == "call":
            open_calls.append(f"c{next(names)}")
            parts = [Part(function_call=FunctionCall(id=open_calls[-1], name="f"))]
        elif kind == "answer" and open_calls:
            call_id = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
            parts = [Part(function_response=FunctionResponse(id=call_id, name="f", response={}))]
        content = None if kind == "nothing" else Content(role="model", parts=parts)
        events.append(Event(seq=seq, author="a", invocation_id=name, content=content))
    return events


@given(histories(), configs(), st.dictionaries(st.sampled_from(["e-0", "e-1"]), st.integers(1, 12)))
def test_a_range_is_closed_and_leaves_what_it_has_to(
    events: list[Event], config: EventsCompactionConfig, unfinished: dict[str, int]
) -> None:
    """It is a beginning in which each call has its response, before what may go on; the retained events are left."""
    tail = Tail(1, 0, 0)
    tail.read(events)
    length = covered(config, tail, tail.next_seq, unfinished)  # the first event has the number 1
    open_calls: set[str | None] = set()
    for event in events[:length]:
        open_calls |= {each.id for each in event.get_function_calls()}
        open_calls -= {each.id for each in event.get_function_responses()}
    assert not open_calls
    assert all((event.seq or 0) < begin for event in events[:length] for begin in unfinished.values())
    if config.compaction_interval is None and length:
        assert sum(map(is_told, events[length:])) >= (config.event_retention_size or 0)
