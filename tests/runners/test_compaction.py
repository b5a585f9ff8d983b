"""
Compaction: earlier events are told as a summary, at the end of a run that has succeeded, or by a supervisor.

The laws of what a request shows, over random conversations, stand in test_compaction_properties.py; what a store has to
know stands in the contract of session services.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Event,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    RunConfig,
    Runner,
    SqliteSessionService,
)
from minirun._window import Window
from minirun.apps import (
    BaseEventsSummarizer,
    EventsCompactionConfig,
    FirstLinesSummarizer,
    LlmEventSummarizer,
    Prompts,
    ResumabilityConfig,
)
from minirun.errors import (
    ConfigurationError,
    InvalidEventError,
    ModelError,
    StaleSessionError,
)
from minirun.events import EventActions
from minirun.models import ContextCacheConfig, LLMRegistry, LlmRequest, LlmResponse
from minirun.plugins import BasePlugin
from minirun.sessions import BaseSessionService, GetSessionConfig, InvocationStatus, verify
from minirun.sessions._sqlite._logs import read_lines
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool
from minirun.types import Content, FileData, FunctionCall, FunctionResponse, Part, UsageMetadata

from ..helpers import PLACE
from ..stores import HERE, KEY, Elsewhere, sql
from .test_supervise import Watched

LONG = "and more of that, " * 10
NOTHING = GetSessionConfig(num_recent_events=0)


@attrs.define(eq=False)
class Notes(BaseEventsSummarizer):
    """Says how many events it was told of; `told` has them."""

    told: list[list[Event]] = attrs.Factory(list)
    says: Callable[[int], str] = "{} things".format
    takes_s: float = 0.0

    async def maybe_summarize_events(self, *, events: Sequence[Event]) -> Event | None:
        self.told.append(list(events))
        await trio.sleep(self.takes_s)
        return Event(message=self.says(len(events)))


def every(count: int, summarizer: BaseEventsSummarizer | None = None, overlap: int = 0) -> EventsCompactionConfig:
    return EventsCompactionConfig(compaction_interval=count, overlap_size=overlap, summarizer=summarizer)


def at(tokens: int, retained: int, summarizer: BaseEventsSummarizer | None = None) -> EventsCompactionConfig:
    return EventsCompactionConfig(token_threshold=tokens, event_retention_size=retained, summarizer=summarizer)


def answering(*, tokens: int | None = None) -> ScriptedLlm:
    """A model that says something long, and how large its prompt was."""
    usage = None if tokens is None else UsageMetadata(prompt_token_count=tokens)

    def answer(request: LlmRequest) -> LlmResponse:
        content = Content(role="model", parts=[Part(text=f"to {request.contents[-1].text[:20]}: {LONG}")])
        return LlmResponse(content=content, usage_metadata=usage)

    return ScriptedLlm(answer)


def runner_of(
    config: EventsCompactionConfig | None, service: BaseSessionService, agent: BaseAgent | None = None
) -> Runner:
    root = LlmAgent(name="root", model=answering()) if agent is None else agent
    app = App("app", root, events_compaction_config=config)
    return Runner(app=app, session_service=service, auto_create_session=True)


async def say(runner: Runner, text: Any, **options: Any) -> Any:
    """Run a message to its end and return the run."""
    async with runner.run_async(**PLACE, new_message=text, **options) as run:
        await run.wait()
    return run


def asked(runner: Runner) -> list[str]:
    """What the root's model was asked last."""
    model = runner.agent.model  # type: ignore[attr-defined]  # a scripted one
    return [content.text for content in model.requests[-1].contents]


async def log_of(service: BaseSessionService) -> list[Event]:
    return await service.read_events(**HERE)


def ranges(log: Sequence[Event]) -> list[tuple[int, int]]:
    """Where the compactions of a log stand, and up to where they reach."""
    return [(e.seq or 0, e.actions.compaction["end_seq"]) for e in log if e.actions.compaction is not None]


@pytest.fixture(params=["memory", "sqlite"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BaseSessionService]:
    """A store, in memory and on disk."""
    memory = request.param == "memory"
    made = InMemorySessionService() if memory else SqliteSessionService(tmp_path / "a.db", durability="process")
    async with made as opened:
        yield opened


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ["compaction_interval", "token_threshold"]),
        ({"compaction_interval": 2}, ["overlap_size", "compaction_interval"]),
        ({"overlap_size": 2}, ["compaction_interval", "overlap_size"]),
        ({"token_threshold": 2}, ["event_retention_size", "token_threshold"]),
        ({"event_retention_size": 2}, ["token_threshold", "event_retention_size"]),
        ({"compaction_interval": 2, "overlap_size": 1, "token_threshold": 5}, ["event_retention_size"]),
        ({"compaction_interval": 2, "event_retention_size": 1}, ["overlap_size"]),
        ({"compaction_interval": 0, "overlap_size": 1}, ["compaction_interval", "from 1 up"]),
        ({"compaction_interval": True, "overlap_size": 1}, ["compaction_interval", "True"]),
        ({"compaction_interval": 1, "overlap_size": -1}, ["overlap_size", "from 0 up"]),
        ({"token_threshold": 0, "event_retention_size": 1}, ["token_threshold"]),
        ({"token_threshold": 1.5, "event_retention_size": 1}, ["token_threshold"]),
        ({"token_threshold": 1, "event_retention_size": "1"}, ["event_retention_size"]),
        ({"compaction_interval": 1, "overlap_size": 0, "summarizer": "me"}, ["BaseEventsSummarizer", "me"]),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(fields: dict[str, Any], words: list[str]) -> None:
    """Each pair belongs together, and at least one is there; the message names the field."""
    with pytest.raises(ConfigurationError) as refused:
        EventsCompactionConfig(**fields)
    assert not [word for word in words if word not in str(refused.value)]


def test_without_a_summarizer_there_is_one_that_needs_no_model() -> None:
    """All four numbers may be given; who sums up is a FirstLinesSummarizer then."""
    config = EventsCompactionConfig(compaction_interval=3, overlap_size=0, token_threshold=1000, event_retention_size=0)
    assert config.summarizer == FirstLinesSummarizer()


def test_an_app_takes_the_setting_and_nothing_else() -> None:
    """What is no EventsCompactionConfig is refused."""
    agent = LlmAgent(name="root", model=answering())
    assert App("app", agent, events_compaction_config=every(2)).events_compaction_config == every(2)
    with pytest.raises(ConfigurationError, match="events_compaction_config"):
        App("app", agent, events_compaction_config={"compaction_interval": 2})  # type: ignore[arg-type]  # wrong


def test_an_app_under_another_name_keeps_everything_else() -> None:
    """`Runner(app=..., app_name=...)` changes the name, and no field is forgotten."""
    app = App(
        "one",
        LlmAgent(name="root", model=answering()),
        prompts=Prompts(go_on="Weiter."),
        resumability_config=ResumabilityConfig(is_resumable=True),
        events_compaction_config=every(2),
        context_cache_config=ContextCacheConfig(cache_intervals=3),
    )
    runner = Runner(app=app, app_name="two", session_service=InMemorySessionService())
    assert (app.name, runner.app.name) == ("one", "two")
    names = [field.name for field in attrs.fields(App) if field.name != "name"]
    assert [getattr(runner.app, name) for name in names] == [getattr(app, name) for name in names]


# --- who sums up ------------------------------------------------------------------------------------------------------


def event(text: str | None = None, author: str = "user", seq: int = 1, **part: Any) -> Event:
    return Event(author=author, seq=seq, content=Content(role="model", parts=[Part(text=text, **part)]))


async def summed_up(summarizer: BaseEventsSummarizer, *events: Event) -> str | None:
    found = await summarizer.maybe_summarize_events(events=events)
    return None if found is None else found.text


async def test_first_lines_and_tool_names_are_kept() -> None:
    """Of texts the first line, cut; of calls who called what; not thoughts, results and questions to people."""
    made = event(author="a", function_call=FunctionCall(id="c", name="look_up", args={"secret": 1}))
    got = event(author="a", function_response=FunctionResponse(id="c", name="look_up", response={"secret": 1}))
    question = event(author="a", function_call=FunctionCall(id="d", name="adk_request_input", args={"message": "?"}))
    events = [event("\n Hello: you \nsecond line"), event("hm", author="a", thought=True), made, got, question]
    assert await summed_up(FirstLinesSummarizer(), *events) == "user: Hello: you\na called look_up"
    assert await summed_up(FirstLinesSummarizer(line_chars=10), event("x" * 20)) == "user: xxx…"
    assert await summed_up(FirstLinesSummarizer(), got) is None


async def test_first_lines_do_not_grow_for_ever() -> None:
    """Beyond `chars_max` the oldest lines go, and it says so, once; what was told before is not told again."""
    summarizer = FirstLinesSummarizer(chars_max=40)
    text = await summed_up(summarizer, *(event(f"line {number}", seq=number) for number in range(9)))
    assert text == "(Earlier lines are left out.)\nuser: line 6\nuser: line 7\nuser: line 8"
    before = Event(author="system", message=text, actions=EventActions(compaction={"end_seq": 8}))
    text = await summed_up(summarizer, before, event("line 8", seq=8), event("line 9", seq=9))
    assert text == "(Earlier lines are left out.)\nuser: line 7\nuser: line 8\nuser: line 9"


@pytest.mark.parametrize("options", [{"line_chars": 0}, {"chars_max": True}, {"chars_max": "9"}])
def test_sizes_of_first_lines_are_checked(options: dict[str, Any]) -> None:
    """They are integers above 0."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        FirstLinesSummarizer(**options)


async def test_a_model_can_write_the_summary() -> None:
    """It is shown the summary before and what was said since; what it has used comes with its answer."""
    model = ScriptedLlm(
        [LlmResponse(content=Content(parts=[Part(text="short")]), usage_metadata=UsageMetadata(prompt_token_count=7))]
    )
    before = Event(author="system", message="what was", actions=EventActions(compaction={"end_seq": 8}))
    template = "Sum {braces} up: {conversation_history} END"
    summarizer = LlmEventSummarizer(model, template)
    found = await summarizer.maybe_summarize_events(events=[before, event("hello {there}", seq=9)])
    assert found is not None
    assert (found.text, found.usage_metadata) == ("short", UsageMetadata(prompt_token_count=7))
    [content] = model.requests[0].contents
    assert content.text == "Sum {braces} up: [Summary of what came before]\n    what was\n\nuser: hello {there} END"


# Everything that ends a line somewhere, and what a forger would write after it.
SEPARATORS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
SAID = st.lists(
    st.sampled_from([*SEPARATORS, "\r\n", "a", " ", "agent: yes", "[Summary of what came before]", "user called pay"])
    | st.characters(exclude_categories=["Cs"]),
    max_size=8,
).map("".join)
FORGERIES = st.lists(
    st.tuples(st.sampled_from(["user", "agent"]), SAID, st.sampled_from(["text", "call", "result", "file"])), max_size=6
)


def made_of(said: Sequence[tuple[str, str, str]]) -> list[Event]:
    """Events that say this, as a text, as a call's name and argument, as a result, or as the type of a file."""
    made = []
    for seq, (author, text, kind) in enumerate(said, 1):
        if kind == "text":
            made.append(event(text, author, seq))
        elif kind == "call":
            call = FunctionCall(id="c", name=f"n{text}", args={text: text})
            made.append(event(author=author, seq=seq, function_call=call))
        elif kind == "file":
            made.append(event(author=author, seq=seq, file_data=FileData(file_uri="x", mime_type=text)))
        else:
            response = FunctionResponse(id="c", name=f"n{text}", response={text: text})
            made.append(event(author=author, seq=seq, function_response=response))
    return made


def speakers(lines: Sequence[str]) -> list[str]:
    """Who speaks in lines that are not indented."""
    return [re.split("[: ]", line, maxsplit=1)[0] for line in lines if not line.startswith("    ")]


@given(FORGERIES, SAID)
async def test_what_is_said_never_looks_like_what_somebody_else_says(
    said: Sequence[tuple[str, str, str]], before: str
) -> None:
    """
    Of what a model is shown only the lines that are not indented say who speaks, whatever ends lines in the texts.
    """
    model = ScriptedLlm(["short"])
    summary = Event(author="system", message=before, actions=EventActions(compaction={"end_seq": 0}))
    events = made_of(said)
    await LlmEventSummarizer(model, "{conversation_history}").maybe_summarize_events(events=[summary, *events])
    heading, *rest = model.requests[0].contents[0].text.splitlines()
    assert heading == "[Summary of what came before]"
    expected = [author for author, text, kind in said if kind != "text" or text.strip()]
    assert speakers([line for line in rest if line]) == expected


@given(FORGERIES, SAID)
async def test_each_line_of_a_summary_of_first_lines_is_said_by_who_it_names(
    said: Sequence[tuple[str, str, str]], before: str
) -> None:
    """
    One line for each text and each call, by its author; the lines of a summary before it stay as many as they were.
    """
    summary = Event(author="system", message=before, actions=EventActions(compaction={"end_seq": 0}))
    text = await summed_up(FirstLinesSummarizer(), summary, *made_of(said))
    earlier = before.split("\n")
    expected = [author for author, text, kind in said if kind in ("call", "file") or (kind == "text" and text.strip())]
    found = (text or "").split("\n")[len(earlier) :]
    assert speakers(found) == expected
    assert len(found) == len(expected), "nothing is indented: all of it stands on one line"
    assert not set(SEPARATORS[1:]).intersection(text or "")


async def test_a_model_may_be_named_and_may_say_nothing() -> None:
    """A registered name will do; an empty answer is no summary; an error of the model is raised as one."""
    answers: list[Any] = ["  ", LlmResponse(error_code="SAFETY"), "fine"]

    with pytest.raises(ConfigurationError, match="compaction-named"):
        LlmEventSummarizer("compaction-named")
    LLMRegistry.register("compaction-named", lambda name: ScriptedLlm(answers))
    try:
        summarizer = LlmEventSummarizer("compaction-named")
        assert await summed_up(summarizer, event("x")) is None
        with pytest.raises(ModelError, match="SAFETY"):
            await summed_up(summarizer, event("x"))
        assert await summed_up(summarizer, event("x")) == "fine"
    finally:
        LLMRegistry.unregister("compaction-named")


def test_what_a_model_is_asked_must_show_the_conversation() -> None:
    """A template without its place, and what is no model, are refused."""
    with pytest.raises(ConfigurationError, match="conversation_history"):
        LlmEventSummarizer(answering(), "Sum it up.")
    with pytest.raises(ConfigurationError, match="llm"):
        LlmEventSummarizer(None)  # type: ignore[arg-type]  # wrong


# --- in a run ---------------------------------------------------------------------------------------------------------


async def test_every_so_many_invocations_there_is_a_summary(service: BaseSessionService) -> None:
    """Of all of them, the summary before first; from then on it stands in their place. The caller is not shown it."""
    notes = Notes()
    runner = runner_of(every(2, notes), service)
    for number in range(5):
        async with runner.run_async(**PLACE, new_message=f"ask {number}") as run:
            events = [each async for each in run]
        assert [each.author for each in events] == ["root"]
        assert (run.compaction is not None, run.compaction_error, run.status) == (number % 2 == 1, None, "completed")
    log = await log_of(service)
    assert ranges(log) == [(5, 4), (10, 9)]
    assert [each.invocation_id for each in (log[5], log[10])] == [log[4].invocation_id, log[9].invocation_id]
    assert [[each.seq for each in told] for told in notes.told] == [[1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert asked(runner) == ["(A summary of what was said before:)\n5 things", "ask 4"]


async def test_the_last_invocations_are_told_once_more(service: BaseSessionService) -> None:
    """`overlap_size` of them, between the summary before and what is new, also where they must be read for that."""
    notes = Notes()
    config = every(2, notes, overlap=1)
    for number in range(6):
        runner = runner_of(config, service)
        if isinstance(service, SqliteSessionService):
            service._cache.drop(KEY)
        await say(runner, f"ask {number}")
    assert [[each.seq for each in told] for told in notes.told] == [
        [1, 2, 3, 4],
        [5, 3, 4, 6, 7, 8, 9],
        [10, 8, 9, 11, 12, 13, 14],
    ]


async def test_the_app_says_how_a_summary_is_told(service: BaseSessionService) -> None:
    """`Prompts.summary` are the words around it."""
    agent = LlmAgent(name="root", model=answering())
    app = App("app", agent, prompts=Prompts(summary="Bisher: {summary}."), events_compaction_config=every(1, Notes()))
    runner = Runner(app=app, session_service=service, auto_create_session=True)
    await say(runner, "one")
    await say(runner, "two")
    assert asked(runner) == ["Bisher: 2 things.", "two"]


async def test_a_prompt_that_has_become_too_large_is_summed_up(service: BaseSessionService) -> None:
    """As the model tells its size; the last events stay, and as many more as keep calls with their responses."""
    sizes = iter([10, 10, 99, 100, 10, 10])
    made: Iterator[str | list[Part]] = iter(
        ["first", [call("note", what="x"), call("note", what="y")], "then", LONG, LONG, LONG]
    )

    def answer(request: LlmRequest) -> LlmResponse:
        said = next(made)
        parts = [Part(text=said)] if isinstance(said, str) else said
        usage = UsageMetadata(prompt_token_count=next(sizes))
        return LlmResponse(content=Content(role="model", parts=parts), usage_metadata=usage)

    def note(what: str) -> str:
        """Note it."""
        return LONG

    agent = LlmAgent(name="root", model=ScriptedLlm(answer), tools=[note])
    runner = runner_of(at(100, 4, Notes()), service, agent)
    assert (await say(runner, "one")).compaction is None
    assert (await say(runner, "two")).compaction is None  # 3 user, 4 calls, 5 responses, 6 text
    assert (await say(runner, "three")).compaction is not None  # 7 user, 8 text: 5 to 8 would stay, and 4 with them
    assert ranges(await log_of(service)) == [(9, 3)]
    assert (await say(runner, "four")).compaction is None


async def test_what_was_reported_before_the_summary_counts_no_more(service: BaseSessionService) -> None:
    """The events that stay tell of prompts that there are no more; where nothing newer is told, it is estimated."""
    sizes = iter([10, 100, None])

    def answer(request: LlmRequest) -> LlmResponse:
        size = next(sizes)
        usage = None if size is None else UsageMetadata(prompt_token_count=size)
        return LlmResponse(content=Content(parts=[Part(text="something short")]), usage_metadata=usage)

    runner = runner_of(at(100, 2, Notes()), service, LlmAgent(name="root", model=ScriptedLlm(answer)))
    assert [(await say(runner, text)).compaction is None for text in ("one", "two", "three")] == [True, False, True]


async def test_the_size_is_estimated_where_no_model_tells_it(service: BaseSessionService) -> None:
    """A fourth of the characters, those of the summary included."""
    notes = Notes()
    runner = runner_of(at(100, 0, notes), service)
    size, count = 0, 0
    while not notes.told:
        await say(runner, "ask")
        count += 1
        size += len("user: ask") + len(f"root: to ask: {LONG}")
    assert (count, 400 <= size < 400 + size / count) == (-(-400 // (size // count)), True)


async def test_tokens_come_before_invocations(service: BaseSessionService) -> None:
    """Where both are due, the events to retain are retained; where only the other one is, all are covered."""
    config = EventsCompactionConfig(
        compaction_interval=2, overlap_size=0, token_threshold=100, event_retention_size=1, summarizer=Notes()
    )
    runner = runner_of(config, service)
    await say(runner, "one")
    assert ranges(await log_of(service)) == []
    await say(runner, "two")
    assert ranges(await log_of(service)) == [(5, 3)]


async def test_what_is_no_shorter_is_no_summary(service: BaseSessionService) -> None:
    """Nothing is stored then, and nobody is asked again before there is twice as much; nor is an empty one stored."""
    notes = Notes(says=lambda _: "x" * 1000)
    runner = runner_of(every(1, notes), service)
    for said in ("x" * 1000, "  "):
        notes.says = lambda _, said=said: said  # type: ignore[misc]  # a default for the loop's sake
        run = await say(runner, "ask")
        assert (run.compaction, run.compaction_error, run.status) == (None, None, "completed")
    notes.says = lambda _: "short"
    runs = [await say(runner, "ask") for _ in range(3)]
    assert [run.compaction is not None for run in runs] == [False, True, True]
    assert [len(told) for told in notes.told] == [2, 4, 8, 3]


@pytest.mark.parametrize("wrong", ["summary", Event(author="a"), Event(message=Content(parts=[]))])
async def test_a_summarizer_that_returns_something_else_costs_nothing(wrong: Any) -> None:
    """The run is completed, nothing is stored, and the run says what was wrong."""

    class Wrong(BaseEventsSummarizer):
        async def maybe_summarize_events(self, *, events: Sequence[Event]) -> Any:
            return wrong

    service = InMemorySessionService()
    run = await say(runner_of(every(1, Wrong()), service), "ask")
    assert (run.status, ranges(await log_of(service))) == ("completed", [])
    assert (
        run.compaction_error is None
        if isinstance(wrong, Event) and wrong.content
        else "Wrong" in str(run.compaction_error)
    )


async def test_a_summarizer_that_fails_costs_nothing(service: BaseSessionService) -> None:
    """The run is completed and says what it was; the next run tries again, with what it has added."""
    model = ScriptedLlm([ModelError("no"), "all is well"])
    runner = runner_of(every(1, LlmEventSummarizer(model)), service)
    run = await say(runner, "one")
    assert (run.status, run.compaction, str(run.compaction_error)) == ("completed", None, "no")
    assert [one.status for one in await service.list_invocations()] == [InvocationStatus.COMPLETED]
    run = await say(runner, "two")
    assert (run.compaction is not None, run.compaction_error) == (True, None)
    assert ranges(await log_of(service)) == [(5, 4)]


async def test_what_the_summary_cost_is_told(service: BaseSessionService) -> None:
    """The event has the model's word on it and the run's metadata; the run's own budgets are not touched."""
    model = answering(tokens=123)
    short = ScriptedLlm(
        [LlmResponse(content=Content(parts=[Part(text="s")]), usage_metadata=UsageMetadata(prompt_token_count=7))]
    )
    agent = LlmAgent(name="root", model=model)
    runner = runner_of(every(1, LlmEventSummarizer(short)), service, agent)
    run = await say(runner, "one", run_config=RunConfig(max_llm_calls=1, max_tokens=1, custom_metadata={"k": 1}))
    assert run.compaction is not None
    assert run.compaction.usage_metadata == UsageMetadata(prompt_token_count=7)
    assert run.compaction.custom_metadata == {"k": 1}


async def test_a_run_that_fails_makes_no_summary(service: BaseSessionService) -> None:
    """Only one that has succeeded does; what failed counts for the next."""
    notes = Notes()
    model = ScriptedLlm([ModelError("no"), LONG])
    runner = runner_of(every(1, notes), service, LlmAgent(name="root", model=model))
    with pytest.raises(ModelError):
        await say(runner, "one")
    assert notes.told == []
    await say(runner, "two")
    assert [[each.author for each in told] for told in notes.told] == [["user", "user", "root"]]


async def test_what_waits_is_not_covered(service: BaseSessionService) -> None:
    """
    Nothing of a paused invocation, its message included, nor of what stands after it; once answered, all is. The runs
    have looked: nobody is to look again before.
    """
    order = LongRunningFunctionTool(lambda: None, name="order", description="Order.", run_in="loop")

    def answer(request: LlmRequest) -> Any:
        wants = request.contents[-1].text == "order"
        return call("order") if wants else LONG

    agent = LlmAgent(name="root", model=ScriptedLlm(answer), tools=[order])
    runner = runner_of(every(1, Notes()), service, agent)
    await say(runner, "one")
    assert ranges(await log_of(service)) == [(3, 2)]
    assert (await say(runner, "order")).status == "paused"
    assert (await say(runner, "two")).compaction is None
    assert runner._compactor is not None
    assert not runner._compactor.due
    [question] = await service.list_pending(app_name="app")
    run = await say(runner, question.reply({"result": 1}))
    assert (run.status, run.compaction is not None) == ("completed", True)
    log = await log_of(service)
    assert ranges(log)[1:] == [(log[-1].seq, (log[-1].seq or 0) - 1)]


async def test_what_was_interrupted_is_not_covered(service: BaseSessionService) -> None:
    """Somebody may still go on with it; it has no open call that would tell."""
    runner = runner_of(every(1, Notes()), service)
    await service.create_session(**HERE)
    writer = await service.open_writer(KEY, "e-1", None, reject=False)
    assert writer is not None
    await writer.append(Event(author="user", message=LONG, invocation_id="e-1"), begins=True)
    await writer.finish(None)
    run = await say(runner, "one")
    assert (run.compaction, run.compaction_error) == (None, None)
    await say(runner, None, invocation_id="e-1")
    assert ranges(await log_of(service)) == [(6, 5)]


def pair(root: Sequence[Any], second: Sequence[Any]) -> LlmAgent:
    """Two agents with these scripts, of which the first may hand over to the second."""
    other = LlmAgent(name="second", model=ScriptedLlm(second))
    return LlmAgent(name="root", model=ScriptedLlm(root), sub_agents=[other])


async def test_what_was_cut_off_after_its_summary_is_through(service: BaseSessionService) -> None:
    """The end is not recorded, and the process dies after the summary: going on asks nobody again, and ends it."""
    notes = Notes()
    runner = runner_of(every(1, notes), service, pair([call("transfer_to_agent", agent_name="second")], [LONG]))
    finish = service.finish_invocation

    async def dies(*arguments: Any) -> None:
        raise MemoryError

    async def loses(*arguments: Any) -> bool:
        return False

    record_end = service.record_end
    service.record_end = loses  # type: ignore[method-assign,assignment]  # as a store that has no such thing
    service.finish_invocation = dies  # type: ignore[method-assign,assignment]  # the process dies there
    with pytest.raises(MemoryError):
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    service.finish_invocation, service.record_end = finish, record_end  # type: ignore[method-assign]  # as they were
    if isinstance(service, SqliteSessionService):
        service._leases.running.clear()
        service._cache.drop(KEY)
        async with service._file.reading() as db:
            db.execute("UPDATE sessions SET lease_owner = NULL, lease_expires = NULL")
    before = await log_of(service)
    assert len(ranges(before)) == 1
    again = await say(runner_of(every(1, notes), service, pair([], [])), None, invocation_id=run.invocation_id)
    assert (again.status, again.answer.text) == ("completed", LONG)
    after = await log_of(service)
    assert [each.content for each in after[len(before) :]] == [None]  # that it was gone on with
    assert (len(notes.told), ranges(after)) == (1, ranges(before))


@pytest.mark.parametrize("config", [every(2), at(10, 2)])
async def test_what_waits_does_not_let_runs_go_over_what_is_there(
    service: BaseSessionService, config: EventsCompactionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A summary that is due, and kept out by an old question, is looked for at the cost of what is new."""

    def later() -> None:
        return None

    def answer(request: LlmRequest) -> Any:
        return [call("later")] if request.contents[-1].text == "wait" else LONG

    agent = LlmAgent(name="root", model=ScriptedLlm(answer), tools=[LongRunningFunctionTool(later)])
    runner = runner_of(config, service, agent)
    await say(runner, "wait")
    read: list[int] = []
    go_over = Window.__iter__

    def counted(window: Window[Any]) -> Iterator[Any]:
        for item in go_over(window):
            read[-1] += isinstance(item, Event)
            yield item

    monkeypatch.setattr(Window, "__iter__", counted)
    for turn in range(30):
        read.append(0)
        run = await say(runner, f"{turn}")
        assert (run.compaction, run.compaction_error) == (None, None)
    assert read[-1] == read[5]


async def test_a_summary_that_is_not_to_be_had_is_asked_for_seldom(service: BaseSessionService) -> None:
    """Each time that there is twice as much to tell; what a rewind or a new process forgets is asked for once more."""
    notes = Notes(says=lambda _: "")
    runner = runner_of(every(1, notes), service)
    for turn in range(20):
        await say(runner, f"{turn}")
    assert [len(told) for told in notes.told] == [2, 4, 8, 16, 32]


async def test_whoever_dies_at_a_summary_keeps_no_later_one_out(service: BaseSessionService) -> None:
    """The run is recorded as completed before the summarizer is asked: there is nothing to go on with."""
    seen: list[tuple[str, int | None]] = []

    class Looks(Notes):
        async def maybe_summarize_events(self, *, events: Sequence[Event]) -> Event | None:
            [found] = await service.list_invocations()
            seen.append((found.status, found.end_seq))
            assert await service.load_unfinished_invocations(KEY, 0) == []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await say(runner_of(every(1, Looks()), service), "one")
    assert seen == [("completed", 2)]
    assert [one.status for one in await service.list_invocations()] == ["completed"]
    run = await say(runner_of(every(1, Notes()), service), "two")
    assert ranges(await log_of(service)) == [(5, 4)]
    assert run.compaction is not None


async def test_who_has_spoken_last_answers_although_it_was_summed_up(service: BaseSessionService) -> None:
    """The agent that was handed the conversation goes on, when all it has said is in the summary, and not loaded."""
    second = LlmAgent(name="second", model=answering())
    root = LlmAgent(
        name="root", model=ScriptedLlm([call("transfer_to_agent", agent_name="second")]), sub_agents=[second]
    )
    for text in ("one", "two", "three"):
        runner = runner_of(every(1, Notes()), service, root)
        if isinstance(service, SqliteSessionService):
            service._cache.drop(KEY)
        run = await say(runner, text)
        assert run.compaction is not None
        assert run.answer.author == "second"
    assert [each.actions.compaction["speaker"] for each in await log_of(service) if each.actions.compaction] == [
        "second"
    ] * 3


async def test_agents_inside_of_a_call_know_of_no_summary(service: BaseSessionService) -> None:
    """Nor does one that is shown its invocation only; and a summary is not told what was said inside."""
    inner = answering()
    helper = LlmAgent(name="helper", model=inner)
    alone = answering()
    lonely = LlmAgent(name="lonely", model=alone, include_contents="none")
    script: list[Any] = [LONG, call("helper", request="help"), call("transfer_to_agent", agent_name="lonely")]
    root = LlmAgent(name="root", model=ScriptedLlm(script), tools=[AgentTool(helper)], sub_agents=[lonely])
    notes = Notes()
    runner = runner_of(every(1, notes), service, root)
    await say(runner, "one")
    await say(runner, "two")
    assert [content.text for content in inner.requests[0].contents] == ["help"]
    assert "A summary" not in str(list(alone.requests[0].contents))
    told = [each.branch or "" for events in notes.told for each in events]
    assert told
    assert not [branch for branch in told if "@" in branch]


async def test_a_run_sees_what_no_summary_covers(service: BaseSessionService) -> None:
    """`ctx.session.events` begins there; with a window it is what was asked for, the covered events included."""
    seen: list[list[int | None]] = []

    class Looks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            seen.append([each.seq for each in ctx.session.events])
            await ctx.emit(Event(message=LONG))

    runner = runner_of(every(2, Notes()), service, Looks(name="root"))
    for number in range(3):
        if isinstance(service, SqliteSessionService):
            service._cache.drop(KEY)
        await say(runner, f"ask {number}")
    assert seen == [[1], [1, 2, 3], [5, 6]]
    await say(runner, "all", run_config=RunConfig(get_session_config=GetSessionConfig(after_seq=0)))
    await say(runner, "few", run_config=RunConfig(get_session_config=GetSessionConfig(num_recent_events=2)))
    assert [len(events) for events in seen[3:]] == [8, 3]


async def test_a_prompt_goes_on_where_the_last_one_stopped(service: BaseSessionService) -> None:
    """A turn costs what is new: from one summary to the next the list behind the prompts is the same."""
    runner = runner_of(every(3, Notes()), service)
    lists = []
    for number in range(6):
        await say(runner, f"ask {number}")
        contents: Any = runner.agent.model.requests[-1].contents  # type: ignore[attr-defined]  # a scripted one
        lists.append(contents.origin)
    assert [one is other for one, other in pairwise(lists)] == [True, True, False, True, True]


# --- what the peer gets wrong -----------------------------------------------------------------------------------------


async def test_the_clock_has_no_part_in_ranges(service: BaseSessionService) -> None:
    """C1: an event that is appended after the summary stays in the prompt, whatever its timestamp says."""
    runner = runner_of(every(2, Notes()), service)
    await say(runner, "one")
    await say(runner, "two")
    log = await log_of(service)
    session = await service.get_session(**HERE)
    assert session is not None
    late = Event(author="user", message="late news", timestamp=log[2].timestamp)
    await service.append_event(session, late)
    await say(runner, "three")
    assert asked(runner)[1:] == ["late news", "three"]


async def test_summaries_do_not_pile_up(service: BaseSessionService) -> None:
    """C2: after many of them a prompt has one, and is as long as it was after the first."""
    runner = runner_of(every(2, Notes()), service)
    lengths = []
    for number in range(12):
        await say(runner, f"ask {number}")
        lengths.append(len(asked(runner)))
    assert lengths == [1, 3] + [2, 4] * 5
    assert len(ranges(await log_of(service))) == 6


@pytest.mark.parametrize("window", [0, 1, 4])
async def test_a_window_and_a_summary_lose_nothing(service: BaseSessionService, window: int) -> None:
    """C3: however few events are loaded, a prompt has the summary and all that it does not cover."""
    run_config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=window))
    runner = runner_of(every(3, Notes()), service)
    for number in range(8):
        if isinstance(service, SqliteSessionService):
            service._cache.drop(KEY)
        await say(runner, f"ask {number}", run_config=run_config)
        summary = ["(A summary of what was said before:)"] if number >= 3 else []
        said = [text for earlier in range(number // 3 * 3, number) for text in (f"ask {earlier}", "to ask")]
        shown = [text.partition("\n")[0] if "summary" in text else text for text in asked(runner)]
        assert [text if text.startswith("(") else text[:5] for text in shown] == [
            text if text.startswith("(") else text[:5] for text in (*summary, *said, f"ask {number}")
        ]


async def test_whoever_leaves_does_not_wait_for_a_summary(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """C4: a caller that leaves is gone at once, and the summarizer at the deadline; the run is completed."""
    runner = runner_of(every(1, Notes(takes_s=1000)), service)
    with trio.fail_after(1):
        async with runner.run_async(**PLACE, new_message="one") as run:
            await run.__anext__()
        async with trio.open_nursery() as nursery, runner.run_async(**PLACE, new_message="two") as run:
            await run.__anext__()
            nursery.start_soon(run.wait)  # asks for more
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert run.status == "completed"
    run = await say(runner, "three", run_config=RunConfig(deadline_s=5))
    assert (run.status, run.compaction, run.compaction_error) == ("completed", None, None)
    assert trio.current_time() < 10
    assert ranges(await log_of(service)) == []


class Writes(BasePlugin):
    """Writes to the state when a run has ended."""

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        invocation_context.state["ended"] = True


async def test_a_summary_waits_until_the_last_event_was_delivered(service: BaseSessionService) -> None:
    """While the caller holds it nobody is summing up, also where the agents have ended before it."""
    notes = Notes()
    app = App("app", LlmAgent(name="root", model=answering()), [Writes("w")], events_compaction_config=every(1, notes))
    runner = Runner(app=app, session_service=service, auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="one") as run:
        for _ in range(2):
            last = await anext(run)
            await trio.testing.wait_all_tasks_blocked()
            assert notes.told == []
        assert last.actions.state_delta == {"ended": True}
        await run.wait()
    assert len(notes.told) == 1


async def test_what_is_covered_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C5: a run on a long session that was summed up reads the summary and what stands after it, and nothing else."""
    path = tmp_path / "a.db"
    read: list[int] = []

    def counting(db: sqlite3.Connection, name: str, segments: Any, first: int, until: int) -> Any:
        read.extend(range(first, until))
        return read_lines(db, name, segments, first, until)

    async with SqliteSessionService(path, durability="process") as service:
        runner = runner_of(every(20, Notes()), service)
        for number in range(41):
            await say(runner, f"ask {number}")
        [_, (place, end_seq)] = ranges(await log_of(service))
    monkeypatch.setattr("minirun.sessions._sqlite._cache.read_lines", counting)
    async with SqliteSessionService(path, durability="process") as service:
        await say(runner_of(every(20, Notes()), service), "more")
        newest = place + 2  # what was said since
        assert sorted(set(read)) == [place, *range(place + 1, newest + 1)]
        assert end_seq == place - 1


# --- histories --------------------------------------------------------------------------------------------------------


async def test_a_rewind_to_before_a_summary_brings_back_what_it_covers(service: BaseSessionService) -> None:
    """The summary before is in force again, or none; what is undone is in no later summary."""
    runner = runner_of(every(2, Notes()), service)
    names = [(await say(runner, f"ask {number}")).invocation_id for number in range(5)]
    await runner.rewind_async(**PLACE, rewind_before_invocation_id=names[3])
    await say(runner, "again")
    assert [text[:10] for text in asked(runner)] == ["(A summary", "ask 2", "to ask 2: ", "again"]
    await runner.rewind_async(**PLACE, rewind_before_invocation_id=names[1])
    if isinstance(service, SqliteSessionService):
        service._cache.drop(KEY)
    notes = Notes()
    runner = runner_of(every(2, notes), service)
    await say(runner, "from here")
    assert [text[:10] for text in asked(runner)] == ["ask 0", "to ask 0: ", "from here"]
    [told] = notes.told
    assert [each.text[:5] for each in told] == ["ask 0", "to as", "from ", "to fr"]


async def test_another_process_finds_the_summary_and_what_stands_after_it(tmp_path: Path) -> None:
    """What one process stores, sums up and undoes the other one goes on from, in turn, and the file verifies."""
    path = tmp_path / "a.db"
    async with Elsewhere(path, durability="process") as here, Elsewhere(path, durability="process") as there:
        mine, yours = runner_of(every(2, Notes()), here), runner_of(every(2, Notes()), there)
        names = [(await say((mine, yours)[number % 2], f"ask {number}")).invocation_id for number in range(6)]
        assert ranges(await log_of(here)) == [(5, 4), (10, 9), (15, 14)]
        await say(mine, "ask 6")
        assert asked(mine) == ["(A summary of what was said before:)\n5 things", "ask 6"]
        await yours.rewind_async(**PLACE, rewind_before_invocation_id=names[3])
        await say(mine, "again")
        assert [text[:10] for text in asked(mine)] == ["(A summary", "ask 2", "to ask 2: ", "again"]
    assert verify(path) == []


async def test_a_session_that_was_taken_over_is_not_summed_up(tmp_path: Path) -> None:
    """Another process goes on with it while the summarizer is at work: nothing is stored, and the run is completed."""
    path = tmp_path / "a.db"

    class TakesOver(Notes):
        async def maybe_summarize_events(self, *, events: Sequence[Event]) -> Event | None:
            sql(path, "UPDATE sessions SET lease_owner = NULL, lease_expires = NULL, lease_epoch = lease_epoch + 1")
            return await super().maybe_summarize_events(events=events)

    async with SqliteSessionService(path, durability="process") as service:
        run = await say(runner_of(every(1, TakesOver()), service), "one")
        assert isinstance(run.compaction_error, StaleSessionError)
        assert (run.status, ranges(await log_of(service))) == ("completed", [])


async def test_verifying_knows_of_summaries(tmp_path: Path) -> None:
    """A row that names another compaction than the log has is found."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        runner = runner_of(every(1, Notes()), service)
        for text in ("one", "two"):
            await say(runner, text)
    assert verify(path) == []
    sql(path, "UPDATE sessions SET compaction = 3")
    assert [damage.problem for damage in verify(path)] == ["expected its newest compaction at event 6, found 3"]


async def test_only_runs_make_summaries(service: BaseSessionService) -> None:
    """An agent that emits such an event is refused, as an append from outside is."""

    class Cheats(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(actions=EventActions(compaction={"start_seq": 1})))

    runner = runner_of(every(1, Notes()), service, Cheats(name="root"))
    with pytest.raises(InvalidEventError, match="events_compaction_config"):
        await say(runner, "go")


# --- supervised -------------------------------------------------------------------------------------------------------


async def leave_early(runner: Runner, text: str) -> None:
    async with runner.run_async(**PLACE, new_message=text) as run:
        async for _ in run:
            break


async def supervised(runner: Runner, seconds: float, **options: Any) -> None:
    with trio.move_on_after(seconds):
        await runner.supervise(**options)


async def test_a_supervisor_makes_what_nobody_has_waited_for(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """Callers that always leave with the last event get their sessions summed up, once, and only where it is due."""
    notes = Notes()
    runner = runner_of(every(2, notes), service)
    await leave_early(runner, "one")
    await supervised(runner, 5)
    assert notes.told == []
    await leave_early(runner, "two")
    await supervised(runner, 5)
    log = await log_of(service)
    assert ranges(log) == [(5, 4)]
    assert len(notes.told) == 1
    await say(runner, "three")
    assert asked(runner) == ["(A summary of what was said before:)\n4 things", "three"]


async def test_a_supervisor_tries_what_fails_again_later_and_later(autojump_clock: MockClock) -> None:
    """After 2, 4, 8 … seconds; what succeeds in the end is stored."""
    when: list[float] = []

    class Fails(Notes):
        async def maybe_summarize_events(self, *, events: Sequence[Event]) -> Event | None:
            when.append(trio.current_time())
            if len(when) < 4:
                raise ModelError("no")
            return await super().maybe_summarize_events(events=events)

    service = InMemorySessionService(env=Watched())
    runner = runner_of(every(1, Fails()), service)
    await leave_early(runner, "one")
    await supervised(runner, 100, every_s=1.0)
    assert when == [0.0, 2.0, 6.0, 14.0]
    assert ranges(await log_of(service)) == [(3, 2)]


async def test_a_session_is_free_while_a_supervisor_sums_it_up(
    service: BaseSessionService, autojump_clock: MockClock
) -> None:
    """A run goes on meanwhile, and the summary covers what was there before; a rewind of that makes it void."""
    runner = runner_of(every(2, Notes(takes_s=50)), service)
    patient = runner_of(None, service)
    for text in ("one", "two"):
        await leave_early(runner, text)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervised, runner, 100)
        await trio.sleep(10)
        await say(patient, "meanwhile")
        assert trio.current_time() < 20
        await trio.sleep(60)
        assert ranges(await log_of(service)) == [(7, 4)]
    for text in ("three", "four"):
        await leave_early(runner, text)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(supervised, runner, 120, every_s=1.0))
        await trio.sleep(10)
        session = await service.get_session(**HERE)
        assert session is not None
        name = session.events[-1].invocation_id
        await patient.rewind_async(**PLACE, rewind_before_invocation_id=name or "")
        await trio.sleep(45)
        assert ranges(await log_of(service)) == [(7, 4)]
    # What is left is still due, and is not forgotten.
    assert ranges(await log_of(service)) == [(7, 4), (13, 12)]


async def test_one_session_is_summed_up_by_one_at_a_time(autojump_clock: MockClock) -> None:
    """A run that leaves while a summary is made notes that one is due; nobody begins with it before the other ends."""
    at_work: list[int] = []

    class Slow(Notes):
        async def maybe_summarize_events(self, *, events: Sequence[Event]) -> Event | None:
            at_work.append(1 + sum(at_work))
            try:
                return await super().maybe_summarize_events(events=events)
            finally:
                at_work.append(-1)

    service = InMemorySessionService(env=Watched())
    runner = runner_of(every(1, Slow(takes_s=50)), service)
    await leave_early(runner, "one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervised, runner, 200)
        await trio.sleep(10)
        await leave_early(runner, "two")
    assert at_work == [1, -1, 1, -1]
    assert len(ranges(await log_of(service))) == 2


async def test_a_supervisor_ends_with_the_service_it_looks_after(autojump_clock: MockClock) -> None:
    """A session that was deleted is no failure, and none is left under way when the supervisor is cancelled."""
    service = InMemorySessionService()
    runner = runner_of(every(1, Notes(takes_s=50)), service)
    await leave_early(runner, "one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervised, runner, 100)
        await trio.sleep(10)
        await service.delete_session(**HERE)
    assert runner._compactor is not None
    assert not runner._compactor.due
    await service.aclose()
