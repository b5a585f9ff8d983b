"""Calls that are not made as the model wanted: what it is told, what hooks see, and how often it may try again."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from minirun import (
    App,
    InMemoryRunner,
    InMemorySessionService,
    LlmAgent,
    ParallelAgent,
    Part,
    Runner,
    SequentialAgent,
    ToolContext,
)
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.errors import CredentialRefusedError, ModelRetry, RetriesExceededError
from minirun.models import LlmResponse
from minirun.plugins import BasePlugin
from minirun.runtime import ReadonlyContext
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, BaseToolset, FunctionTool, load_memory, preload_memory, request_input
from minirun.types import Blob, Content, FinishReason, FunctionCall, FunctionDeclaration

from ..helpers import PLACE, look, run_to_end, runner_for

SECRET = "the-token-of-ada"
CONFIG = AuthConfig("mail", "bearer")


def errors_of(events: list[Any]) -> list[Any]:
    """What the calls of a run were answered with, errors by their parts."""
    answers = [each.response for event in events for each in event.get_function_responses()]
    return [(each["error"]["type"], each["error"]["message"]) if "error" in each else dict(each) for each in answers]


def unreadable(text: str) -> Part:
    return Part(function_call=FunctionCall(name="look", args_text=text))


# --- what stands in the place of a tool -------------------------------------------------------------------------------


class Seeing(BasePlugin):
    """Notes the tools that are about to be called."""

    def __init__(self) -> None:
        super().__init__("seeing")
        self.seen: list[tuple[str, FunctionDeclaration | None]] = []

    async def before_tool_callback(self, *, tool: BaseTool, tool_args: Any, tool_context: Any) -> None:
        """Note it."""
        self.seen.append((tool.name, tool.declaration))


@pytest.mark.parametrize(
    ("made", "name", "told"),
    [
        (call("lok", n=1), "lok", ("UnknownToolError", "there is no tool 'lok'; the tools are: look, request_input")),
        (
            unreadable("[1]"),
            "look",
            ("ArgumentError", "expected the arguments as a JSON object, found '[1]'; call it again"),
        ),
        (
            unreadable(""),
            "look",
            (
                "ArgumentError",
                "expected the arguments as a JSON object, found '', which is no JSON "
                "(Expecting value: line 1 column 1 (char 0)); call it again",
            ),
        ),
    ],
)
async def test_a_call_that_cannot_be_made_is_seen_by_hooks_under_its_name(made: Part, name: str, told: Any) -> None:
    """A tool stands in its place that has the name of the call and declares nothing else; the model is told why."""
    plugin, model = Seeing(), ScriptedLlm([made, "done"])
    agent = LlmAgent(name="a", model=model, tools=[look, request_input])
    runner = InMemoryRunner(app=App("app", agent, plugins=[plugin]), auto_create_session=True)
    events, _ = await run_to_end(runner)
    assert plugin.seen == [(name, FunctionDeclaration(name=name))]
    assert errors_of(events) == [told]


async def test_an_agent_without_tools_has_none_to_name() -> None:
    """A model that makes up a tool is told that there are none."""
    model = ScriptedLlm([call("look"), "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model)))
    assert errors_of(events) == [("UnknownToolError", "there is no tool 'look'; the tools are: none")]


async def test_an_answer_that_was_cut_off_calls_nothing() -> None:
    """Each of its calls is answered, and the model is told why none was made."""
    calls = [call("look", n=1), call("look", n=2)]
    cut = LlmResponse(content=Content(role="model", parts=calls), finish_reason=FinishReason.MAX_TOKENS)
    model = ScriptedLlm([cut, "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[look])))
    why = "the call was not made, because your answer was cut off by the limit of its length; "
    assert errors_of(events) == [("ArgumentError", f"{why}call again with less, or with less before it")] * 2


@pytest.mark.parametrize("tool", [load_memory, preload_memory], ids=["load_memory", "preload_memory"])
async def test_a_tool_of_memory_says_itself_what_it_takes(tool: BaseTool) -> None:
    """`load_memory` takes a query; `preload_memory` is not declared, and a call of it is a mistake of the model."""
    declaration = tool.declaration
    if tool is load_memory:
        assert declaration is not None
        parameters = declaration.parameters
        assert (declaration.name, parameters["type"], [*parameters["required"]]) == ("load_memory", "object", ["query"])
        assert [(name, field["type"]) for name, field in parameters["properties"].items()] == [("query", "string")]
    else:
        assert declaration is None
        context: Any = None
        with pytest.raises(Exception, match="preload_memory cannot be called") as caught:
            await tool.run_async(args={}, tool_context=context)
        assert type(caught.value).__name__ == "ArgumentError"


# --- questions --------------------------------------------------------------------------------------------------------


async def test_what_the_user_answers_is_the_result_of_request_input() -> None:
    """The tool asks what the model wants to know, the run pauses, and the answer is the response of the call."""
    model = ScriptedLlm([call("request_input", message="Where to?"), "Oslo it is."])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[request_input]))
    _, run = await run_to_end(runner)
    [question] = run.pending
    assert (run.status, question.hint) == ("paused", "Where to?")
    events, run = await run_to_end(runner, question.reply("Oslo"))
    assert run.status == "completed"
    assert [each.response for event in events for each in event.get_function_responses()][-1] == {"result": "Oslo"}
    assert events[-1].text == "Oslo it is."


# --- try again --------------------------------------------------------------------------------------------------------


class Fussy:
    """A tool that has the model try again when it is called with `again`."""

    def __init__(self, **options: Any) -> None:
        async def order(how: str) -> str:
            if how == "again":
                raise ModelRetry("not so")
            if how == "broken":
                raise OSError("broken")
            return how

        self.tool = FunctionTool(order, **options)


def said(*hows: str) -> list[Part]:
    return [call("order", how=how) for how in hows]


@pytest.mark.parametrize(
    ("retries", "turns", "fails"),
    [
        (1, [["again"], ["fine"]], False),
        (1, [["again"], ["again"]], True),
        (0, [["again"]], True),
        (2, [["again"], ["again"], ["fine"]], False),
        (2, [["again"], ["again"], ["again"]], True),
        (1, [["again"], ["fine"], ["again"], ["fine"]], False),  # in a row
        (1, [["again"], ["broken"], ["again"], ["fine"]], False),  # another error is no retry
        (1, [["again", "fine"], ["again"], ["fine"]], False),  # one of a turn was taken
        (1, [["again", "again"], ["fine"]], False),  # a turn is one try
        (1, [["again", "again"], ["again"]], True),
        (None, [["again"]] * 5, False),
    ],
)
async def test_a_tool_has_the_model_try_again_so_often_in_a_row(
    retries: int | None, turns: list[list[str]], fails: bool
) -> None:
    """Turns count in which every call of the tool was answered so; one more than `retries` fails the run."""
    model = ScriptedLlm([*(said(*turn) for turn in turns), "done"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[Fussy(retries=retries).tool, look]))
    if fails:
        with pytest.raises(RetriesExceededError, match=f"'order' .* retries={retries} in a row; at last: not so$"):
            await run_to_end(runner)
    else:
        await run_to_end(runner)
        model.assert_done()


async def test_calls_of_other_tools_between_two_tries_do_not_count() -> None:
    """They neither add to the row nor end it."""
    model = ScriptedLlm([said("again"), call("look"), said("again"), "done"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[Fussy(retries=1).tool, look]))
    with pytest.raises(RetriesExceededError):
        await run_to_end(runner)


async def test_each_message_begins_the_count_anew() -> None:
    """What a tool refused in an earlier invocation is no try of this one."""
    model = ScriptedLlm([said("again"), "sorry", said("again"), "sorry again"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[Fussy(retries=1).tool]))
    for _ in range(2):
        _, run = await run_to_end(runner)
        assert run.status == "completed"


@pytest.mark.parametrize("how", [SequentialAgent, ParallelAgent])
async def test_each_agent_has_tries_of_its_own(how: Any) -> None:
    """What one agent was told counts for no other one, before it or beside it."""
    tool = Fussy(retries=1).tool
    models = [ScriptedLlm([said("again"), f"sorry {name}"]) for name in "ab"]
    agents = [LlmAgent(name=name, model=model, tools=[tool]) for name, model in zip("ab", models, strict=True)]
    _, run = await run_to_end(runner_for(how(name="both", sub_agents=agents)))
    assert run.status == "completed"


# --- secrets and credentials ------------------------------------------------------------------------------------------


@attrs.frozen
class Found:
    """A result that is no JSON."""

    text: str


async def runner_with_token(agent: LlmAgent) -> Runner:
    """A runner whose user has given the token."""
    sessions = InMemorySessionService()
    await sessions.create_session(app_name="app", **PLACE)
    credentials = InMemoryCredentialService(env=sessions.env)
    await credentials.save_credential(
        app_name="app", user_id="u", credential_key="mail", credential=AuthCredential("bearer", token=SECRET)
    )
    return Runner(agent=agent, app_name="app", session_service=sessions, credential_service=credentials)


@pytest.mark.parametrize(
    ("result", "response", "media"),
    [
        ({"a": f"x {SECRET}"}, {"a": "x [secret]"}, []),
        (f"x {SECRET}", {"result": "x [secret]"}, []),
        ([SECRET, 1], {"result": ["[secret]", 1]}, []),
        (Found(SECRET), {"result": {"text": "[secret]"}}, []),
        (
            [f"x {SECRET}", Blob(data=b"PNG", mime_type="image/png")],
            {"result": {"text": "x [secret]", "media": ["image/png, 3 B"]}},
            [b"PNG"],
        ),
    ],
)
async def test_a_secret_in_a_result_is_hidden_and_the_rest_stays(result: Any, response: Any, media: Any) -> None:
    """Also beside media, which go with the response as they are; hooks after the tool see no secret either."""
    seen: list[Any] = []

    async def fetch(tool_context: ToolContext) -> Any:
        assert (await tool_context.request_credential(CONFIG)).reveal() == SECRET
        return result

    async def after(*, tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        seen.append(tool_response)

    model = ScriptedLlm([call("fetch"), "done"])
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(fetch)], after_tool_callback=after)
    events, _ = await run_to_end(await runner_with_token(agent))
    [answer] = [each for event in events for each in event.get_function_responses()]
    assert answer.response == response
    assert [part.inline_data.data for part in answer.parts if part.inline_data is not None] == media
    assert seen == [response if isinstance(result, dict) else response["result"]]


async def test_a_hook_may_change_a_result_in_place() -> None:
    """What it makes of the object that the tool has returned is the result, unless it returns something else."""

    async def fetch() -> Any:
        return {"found": ["a"]}

    def after(*, tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        tool_response["found"].append("b")

    model = ScriptedLlm([call("fetch"), "done"])
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(fetch)], after_tool_callback=after)
    events, _ = await run_to_end(runner_for(agent))
    assert errors_of(events) == [{"found": ["a", "b"]}]


class Guarded(BaseToolset):
    """A toolset that gives its tools only once something was signed in."""

    def __init__(self, error: CredentialRefusedError) -> None:
        super().__init__()
        self.errors = [error]

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Refuse the first time."""
        await trio.lowlevel.checkpoint()
        if self.errors:
            raise self.errors.pop()
        return [FunctionTool(look)]


async def test_tools_that_were_refused_for_a_credential_are_listed_once_there_is_one() -> None:
    """If the user has given it meanwhile, the run goes on at once."""
    error = CredentialRefusedError("no")
    error.auth_config = CONFIG  # type: ignore[attr-defined]  # as `BearerHeaders` says which one is missing
    model = ScriptedLlm(["done"])
    agent = LlmAgent(name="a", model=model, tools=[Guarded(error)])
    _, run = await run_to_end(await runner_with_token(agent))
    assert run.status == "completed"
    assert [tool.name for tool in model.requests[0].config.tools] == ["look"]


async def test_a_refusal_that_does_not_say_for_which_credential_ends_the_run() -> None:
    """Nobody can be asked then."""
    agent = LlmAgent(name="a", model=ScriptedLlm([]), tools=[Guarded(CredentialRefusedError("no"))])
    with pytest.raises(CredentialRefusedError, match="no"):
        await run_to_end(await runner_with_token(agent))
