"""How much of a conversation models are shown: the last turns, whole, whatever stands in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun import AgentTool, App, Content, InMemoryRunner, LlmAgent, Part, RunConfig, Runner, SequentialAgent
from minirun._window import Window
from minirun.apps import EventsCompactionConfig
from minirun.errors import ConfigurationError, InvalidValueError
from minirun.models import LlmRequest, LlmRequestDraft
from minirun.plugins import BasePlugin, ContextFilterPlugin
from minirun.runtime import CallbackContext
from minirun.sessions import GetSessionConfig
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool

from ..helpers import run_to_end


def runner_with(agent: Any, *plugins: BasePlugin) -> Runner:
    """A runner over a fresh session."""
    return InMemoryRunner(app=App("app", agent, plugins=plugins), auto_create_session=True)


def look(what: str = "") -> str:
    """A tool."""
    return f"seen {what}"


LOOK = FunctionTool(look, run_in="loop")


def shown(request: LlmRequest) -> list[str]:
    """What a request shows, a word for each content."""
    return [content.text or ("call" if content.parts[0].function_call else "response") for content in request.contents]


def talking(calls: int = 0) -> ScriptedLlm:
    """A model that makes so many calls in each turn, then answers; a pure function of what it is shown."""

    def answer(request: LlmRequest) -> Any:
        since = 0
        for content in reversed(request.contents):
            if content.parts[0].function_response is None and content.role == "user":
                return call("look", what=str(since)) if since < calls else f"re {content.text}"
            since += content.parts[0].function_response is not None
        raise AssertionError("nobody has said anything")

    return ScriptedLlm(answer)


async def test_the_last_turns_are_shown_whole() -> None:
    """A request begins with what the user said some turns ago, with all that has come of it since."""
    model = talking(calls=1)
    runner = runner_with(LlmAgent(name="a", model=model, tools=[LOOK]), ContextFilterPlugin(2))
    for text in ("one", "two", "three"):
        await run_to_end(runner, text)
    assert shown(model.requests[-1]) == ["two", "call", "response", "re two", "three", "call", "response"]
    assert shown(model.requests[1]) == ["one", "call", "response"]


@pytest.mark.parametrize("calls", [0, 1, 3])
@given(turns=st.integers(1, 5), keep=st.integers(1, 6))
async def test_a_request_has_as_many_turns_as_are_kept(calls: int, turns: int, keep: int) -> None:
    """Whatever the numbers: a strict provider takes it, it begins with the user, and no call is parted."""
    model = talking(calls)
    runner = runner_with(LlmAgent(name="a", model=model, tools=[LOOK]), ContextFilterPlugin(keep))
    for turn in range(turns):
        await run_to_end(runner, f"turn {turn}")
    begins = [text for text in shown(model.requests[-1]) if text.startswith("turn")]
    assert begins == [f"turn {turn}" for turn in range(max(turns - keep, 0), turns)]
    assert len(model.requests[-1].contents) == len(begins) * (2 + 2 * calls) - 1


async def test_what_other_agents_say_begins_no_turn() -> None:
    """It is told by the user's side, and belongs to the turn that the user has begun."""
    first, second = talking(), talking()
    agents = [LlmAgent(name="first", model=first), LlmAgent(name="second", model=second)]
    runner = runner_with(SequentialAgent(name="both", sub_agents=agents), ContextFilterPlugin(1))
    await run_to_end(runner, "one")
    await run_to_end(runner, "two")
    assert shown(second.requests[-1]) == ["two", "[first] said: re two"]


async def test_an_instruction_in_the_conversation_stays() -> None:
    """With `static_instruction` the instruction stands before the user's last words, and is not cut off."""
    model = talking()
    agent = LlmAgent(name="a", model=model, static_instruction="static", instruction="be brief")
    runner = runner_with(agent, ContextFilterPlugin(1))
    await run_to_end(runner, "one")
    await run_to_end(runner, "two")
    assert shown(model.requests[-1]) == ["be brief", "two"]


class Inserting(BasePlugin):
    """Puts a content in front of those at a place."""

    def __init__(self, place: int) -> None:
        super().__init__("inserting")
        self._place = place

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        content = Content(role="user", parts=[Part(text="by the way")])
        place = self._place % (len(llm_request.contents) + 1)
        llm_request.contents.insert(place, content)


@pytest.mark.parametrize(
    ("place", "expected"),
    [(-2, ["by the way", "two"]), (-1, ["two", "by the way"]), (0, ["two"])],
)
async def test_what_a_plugin_has_inserted_stays_beside_what_is_kept(place: int, expected: list[str]) -> None:
    """Before the turn's beginning or after it; what stands before older turns goes with them."""
    model = talking()
    runner = runner_with(LlmAgent(name="a", model=model), Inserting(place), ContextFilterPlugin(1))
    await run_to_end(runner, "one")
    await run_to_end(runner, "two")
    assert shown(model.requests[-1]) == expected


async def test_a_plugin_that_comes_later_adds_what_it_likes() -> None:
    """What is put in front of what is left is shown."""
    model = talking()
    runner = runner_with(LlmAgent(name="a", model=model), ContextFilterPlugin(1), Inserting(0))
    await run_to_end(runner, "one")
    await run_to_end(runner, "two")
    assert shown(model.requests[-1]) == ["by the way", "two"]


async def test_a_window_over_the_session_is_filtered_like_all_of_it() -> None:
    """Where less is loaded than is to be kept, all of it is shown."""
    model = talking()
    runner = runner_with(LlmAgent(name="a", model=model), ContextFilterPlugin(2))
    config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=3))
    for text in ("one", "two", "three", "four"):
        await run_to_end(runner, text, run_config=config)
    assert shown(model.requests[-1]) == ["three", "re three", "four"]
    small = RunConfig(get_session_config=GetSessionConfig(num_recent_events=2))
    await run_to_end(runner, "five", run_config=small)
    assert shown(model.requests[-1])[-2:] == ["re four", "five"]


@pytest.mark.parametrize("window", [None, 0, 1, 50])
async def test_turns_are_counted_in_what_prompts_show(window: int | None) -> None:
    """With summaries that is more than what a narrow window shows; the summary itself is no turn, and stays."""
    model = talking()
    every_four = EventsCompactionConfig(compaction_interval=4, overlap_size=0)
    agent, plugins = LlmAgent(name="a", model=model), [ContextFilterPlugin(2)]
    app = App("app", agent, plugins=plugins, events_compaction_config=every_four)
    runner = InMemoryRunner(app=app, auto_create_session=True)
    loaded = None if window is None else GetSessionConfig(num_recent_events=window)
    found = []
    for turn in range(8):
        text = f"turn {turn} {'and so on ' * 30}\nits second line"
        await run_to_end(runner, text, run_config=RunConfig(get_session_config=loaded))
        lines = [content.text.partition("\n")[0] for content in model.requests[-1].contents]
        found.append([line[:12] for line in lines])
    summary = "(A summary o"
    assert [len(each) for each in found] == [1, 3, 3, 3, 2, 4, 4, 4]
    assert [each[0] == summary for each in found] == [False] * 4 + [True] * 4
    assert found[-1][1].startswith("turn 6")


async def test_an_agent_inside_of_a_call_sees_all_that_it_was_given() -> None:
    """Its history begins with what it was asked."""
    inner = LlmAgent(name="inner", model=talking(calls=2), tools=[LOOK])
    outer = LlmAgent(name="outer", model=ScriptedLlm([call("inner", request="dig"), "done"]), tools=[AgentTool(inner)])
    runner = runner_with(outer, ContextFilterPlugin(1))
    await run_to_end(runner, "one")
    assert isinstance(inner.model, ScriptedLlm)
    assert shown(inner.model.requests[-1]) == ["dig", "call", "response", "call", "response"]


async def test_the_cost_is_that_of_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation ten times as long has as many contents looked at for a question."""
    looks = 0
    plain = Window.__getitem__

    def counted(window: Any, index: Any) -> Any:
        nonlocal looks
        looks += len(range(*index.indices(len(window)))) if isinstance(index, slice) else 1
        return plain(window, index)

    model = talking()
    plugin = ContextFilterPlugin(2)
    runner = runner_with(LlmAgent(name="a", model=model), plugin)
    costs = []
    for turns in (10, 90):
        for turn in range(turns):
            await run_to_end(runner, f"turn {turn}")
        model.restart()
        looks = 0
        with monkeypatch.context() as patch:
            patch.setattr(Window, "__getitem__", counted)
            await run_to_end(runner, "last")
        costs.append(looks)
    assert costs[0] == costs[1] < 60


async def test_a_filter_of_ones_own_has_the_last_word() -> None:
    """It gets what the number has left, as a list of its own."""
    model = talking()
    given_to: list[list[Content]] = []

    def without_models(contents: list[Content]) -> list[Content]:
        given_to.append(contents)
        return [content for content in contents if content.role == "user"]

    runner = runner_with(LlmAgent(name="a", model=model), ContextFilterPlugin(2, without_models))
    for text in ("one", "two", "three"):
        await run_to_end(runner, text)
    assert [content.text for content in given_to[-1]] == ["two", "re two", "three"]
    assert shown(model.requests[-1]) == ["two", "three"]


@pytest.mark.parametrize(
    ("custom", "message"),
    [
        (lambda contents: contents[:-1], r"custom_filter: expected the responses to the calls \['.*'\], found none"),
        (lambda contents: [contents[0], contents[-1]], r"custom_filter\[1\]: expected the responses to the calls \[\]"),
        (lambda contents: "x", "custom_filter: expected a list of Content, found 'x'"),
        (lambda contents: ["x"], r"custom_filter\[0\]: expected a Content, found 'x'"),
        (lambda contents: [], r"LlmRequest.contents: expected at least one content"),
    ],
)
async def test_what_a_filter_returns_is_checked(custom: Callable[[list[Content]], Any], message: str) -> None:
    """Who parts a call from its response is told so, before the model's provider would."""

    def after_the_call(contents: list[Content]) -> Any:
        return custom(contents) if len(contents) > 1 else contents

    runner = runner_with(
        LlmAgent(name="a", model=talking(calls=1), tools=[LOOK]), ContextFilterPlugin(custom_filter=after_the_call)
    )
    with pytest.raises(InvalidValueError, match=message):
        await run_to_end(runner)


@pytest.mark.parametrize(
    "options",
    [{"num_invocations_to_keep": 0}, {"num_invocations_to_keep": True}, {"custom_filter": 3}, {"name": "a b"}],
)
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    """The message says what was expected."""
    with pytest.raises(ConfigurationError, match="expected"):
        ContextFilterPlugin(**options)


class Rewrites(BasePlugin):
    """Puts new contents in the place of all, and perhaps one more before them."""

    def __init__(self, more: int = 0) -> None:
        super().__init__("rewrites")
        self.more = more

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        texts = ["more"] * self.more + [content.text for content in llm_request.contents]
        roles = ["user"] * self.more + [content.role for content in llm_request.contents]
        llm_request.contents = [
            Content(role=role, parts=[Part(text=text)]) for role, text in zip(roles, texts, strict=True)
        ]


@pytest.mark.parametrize("static", [None, "always"])
async def test_contents_that_were_rewritten_are_filtered_by_their_places(static: str | None) -> None:
    """What a plugin before this one has put in the place of the contents is filtered as they would be."""
    model = talking()
    agent = LlmAgent(name="a", model=model, static_instruction=static, instruction="now" if static else "")
    runner = runner_with(agent, Rewrites(), ContextFilterPlugin(2))
    for text in ("one", "two", "three"):
        await run_to_end(runner, text)
    assert shown(model.requests[-1]) == ["two", "re two", *(["now"] if static else []), "three"]


async def test_contents_of_another_number_cannot_be_filtered() -> None:
    """Where a plugin has rewritten contents and added some, the run fails and says what to do."""
    runner = runner_with(LlmAgent(name="a", model=talking()), Rewrites(2), ContextFilterPlugin(1))
    await run_to_end(runner, "one")
    with pytest.raises(ConfigurationError, match="list ContextFilterPlugin before the plugin that rewrites"):
        await run_to_end(runner, "two")


@pytest.mark.parametrize("keep", [1, 2])
async def test_an_invocation_that_goes_on_sees_its_own_message(keep: int) -> None:
    """An invocation that is resumed after later ones is shown from its own message on."""
    model = ScriptedLlm(["zero", call("look"), "later", "done"])
    tool = FunctionTool(look, run_in="loop", require_confirmation=True)
    runner = runner_with(LlmAgent(name="a", model=model, tools=[tool]), ContextFilterPlugin(keep))
    await run_to_end(runner, "first")
    _, run = await run_to_end(runner, "mine")
    await run_to_end(runner, "other")
    await run_to_end(runner, run.pending[0].reply(True))
    assert shown(model.requests[-1])[:2] == ["mine", "other"]


async def test_a_filter_may_wait() -> None:
    """An async filter is waited for."""

    async def last(contents: list[Content]) -> list[Content]:
        return contents[-1:]

    model = talking()
    runner = runner_with(LlmAgent(name="a", model=model), ContextFilterPlugin(custom_filter=last))
    await run_to_end(runner, "one")
    await run_to_end(runner, "two")
    assert shown(model.requests[-1]) == ["two"]


def test_a_filter_without_effect_is_refused() -> None:
    """With neither a number nor a function there is nothing to filter."""
    with pytest.raises(ConfigurationError, match="found neither"):
        ContextFilterPlugin()
