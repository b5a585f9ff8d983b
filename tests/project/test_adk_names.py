"""
Names and paths of ADK: what is here is found where it is there, and what is not says what to use instead.

`fixtures/peer/adk-imports.txt` has the import lines of sixteen samples of ADK, each with how often it occurs.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import pydoc
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

import minirun
from minirun import (
    App,
    BaseAgent,
    Content,
    Event,
    FunctionTool,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Part,
    RunConfig,
    Runner,
    SqliteSessionService,
    types,
)
from minirun._adk import ADVICE, PATHS
from minirun.errors import (
    ConfigurationError,
    InvalidMessageError,
    InvalidValueError,
    NotSupportedAttributeError,
    NotSupportedError,
    NotSupportedImportError,
    SessionNotFoundError,
)
from minirun.models import BaseLlm, LlmRequest, LlmResponse
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool
from minirun.types import FunctionDeclaration
from minirun.workflow import Edge, FunctionNode, Workflow

from .test_public_lists import LISTS

MODULES = sorted(key[1:] for key in ADVICE if key.startswith("."))
OF_CONTEXTS = {key.partition(".")[2]: text for key, text in ADVICE.items() if key.startswith("ReadonlyContext.")}
FIXTURES = Path(__file__).parents[1] / "fixtures"
WORKING_SHARE_MIN = 0.90


# --- the import lines of samples --------------------------------------------------------------------------------------


def import_lines() -> Iterator[tuple[int, str]]:
    """How often each line occurs, and the line with our names of packages."""
    for line in (FIXTURES / "peer" / "adk-imports.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            count, _, statement = line.strip().partition(" ")
            statement = re.sub(r"\bgoogle\.(adk|genai)\b", "minirun", statement)
            yield int(count), statement


def failure_of(statement: str) -> str | None:
    """What an import statement says when it fails; None if all its names are classes, functions or objects of ours."""
    found: dict[str, Any] = {}
    try:
        exec(statement, found)
    except ImportError as error:
        return str(error)
    names = found.keys() - {"__builtins__"}
    assert names
    return None


def test_import_lines_of_samples_work_with_the_name_of_the_package_replaced() -> None:
    """
    Of the import lines of sixteen samples at least 90 % work, and those that do not say what to use instead.
    """
    working = total = 0
    for count, statement in import_lines():
        failure = failure_of(statement)
        total += count
        working += count if failure is None else 0
        if failure is not None:
            print(f"{count:3} {statement}: {failure}")
            assert re.match(r"minirun has no .+: .+", failure), statement
    print(f"{working} of {total} work: {working / total:.1%}")
    assert total == 160
    assert working / total >= WORKING_SHARE_MIN


def test_paths_of_adk_lead_to_the_public_lists() -> None:
    """
    Every path in the table can be imported where what answers for it can, in a fresh interpreter, too.
    """
    for path, stand in PATHS.items():
        module = importlib.import_module(f"minirun.{path}")
        for name in importlib.import_module(f"minirun.{stand.lists[0]}").__all__:
            if name != "KeyringCredentialService":
                assert getattr(module, name) is getattr(importlib.import_module(f"minirun.{stand.lists[0]}"), name)
        assert {*dir(module)} >= {*stand.renamed}
        with pytest.raises(ImportError, match="cannot import name 'nobody'"):
            exec(f"from minirun.{path} import nobody")
    lines = "from minirun.agents.llm_agent import LlmAgent as a; from minirun.events.event import Event; import minirun"
    done = subprocess.run([sys.executable, "-c", f"{lines}; assert a is minirun.LlmAgent"], check=False)
    assert done.returncode == 0


def test_adk_s_other_names_of_a_thing_are_found_at_its_path() -> None:
    """
    What ADK calls otherwise in a module of its own is found there, and is ours.
    """
    from minirun.agents.invocation_context import LlmCallsLimitExceededError  # type: ignore[import-not-found]
    from minirun.tools.preload_memory_tool import preload_memory_tool  # type: ignore[import-not-found]

    assert preload_memory_tool is minirun.tools.preload_memory
    assert LlmCallsLimitExceededError is minirun.errors.LlmCallsLimitExceededError
    from minirun.agents.live_request_queue import LiveRequest, LiveRequestQueue  # type: ignore[import-not-found]
    from minirun.agents.run_config import RunConfig as ConfigThere  # type: ignore[import-not-found]

    assert (LiveRequest, LiveRequestQueue) == (minirun.agents.LiveRequest, minirun.LiveRequestQueue)
    assert ConfigThere is RunConfig
    assert minirun.tools.AgentTool is minirun.AgentTool
    assert minirun.Agent is minirun.agents.Agent is LlmAgent


def test_the_table_of_what_is_missing_has_nothing_that_is_here() -> None:
    """
    No public list has a name that is said to be missing, no path that is said to be missing can be imported, and all
    that a sentence advises exists.
    """
    lists = [importlib.import_module(name) for name in (*LISTS, "minirun.types", "minirun.events", "minirun.errors")]
    here = {name for each in lists for name in each.__all__}
    assert here.isdisjoint(ADVICE)
    assert set(MODULES).isdisjoint(PATHS)
    advised = {name for text in ADVICE.values() for name in re.findall(r"minirun((?:\.[a-z_]+)*\.[A-Za-z]+)", text)}
    assert len(advised) > 10
    for name in advised:
        module, _, attribute = f"minirun{name}".rpartition(".")
        if attribute != "simulation" and attribute != "KeyringCredentialService":
            assert getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize(
    ("statement", "advice"),
    [
        ("from minirun.sessions import VertexAiSessionService", "use minirun.sessions.SqliteSessionService"),
        ("from minirun.artifacts import GcsArtifactService", "SqliteArtifactService or FileArtifactService"),
        ("from minirun.memory import VertexAiMemoryBankService", "use minirun.memory.SqliteMemoryService"),
        ("from minirun.plugins import CloudTracePlugin", "use minirun.plugins.TracingPlugin"),
        ("from minirun.models.lite_llm import LiteLlm", "minirun.models.openai.OpenAIChat"),
        ("from minirun.models import Gemini", "import minirun.models.gemini.Gemini"),
        ("from minirun import Claude", "import minirun.models.anthropic.Claude"),
        ("from minirun.models.gemma_llm import Gemma", "write a subclass of minirun.models.BaseLlm"),
        ("from minirun.tools import OpenAPIToolset", "import it from minirun.tools.openapi"),
        ("import minirun.tools.google_api_tool", "minirun.tools.openapi.OpenAPIToolset"),
        ("from minirun.workflow import BaseNode", "subclass minirun.workflow.Node"),
        ("from minirun import evaluation", "minirun.testing.ScriptedLlm"),
        ("from minirun.types import VideoMetadata", "no adapter has an equal of it"),
        ("from minirun.types import AvatarConfig", "no adapter shows a face"),
        ("from minirun.agents.run_config import ToolThreadPoolConfig", "worker threads anyway"),
        ("from minirun.types import HarmCategory", "minirun.types.SafetySetting"),
    ],
)
def test_a_name_that_is_not_here_says_what_to_use_instead(statement: str, advice: str) -> None:
    """
    Names of ADK that are not here raise an ImportError, which is a NotSupportedError, with the reason.
    """
    with pytest.raises(NotSupportedImportError, match=re.escape(advice)) as caught:
        exec(statement)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, NotSupportedError)


@pytest.mark.parametrize(("package", "name"), [
    ("minirun", "Gemini"), ("minirun", "evaluation"), ("minirun.models", "LiteLlm"), ("minirun.types", "Tool"),
    ("minirun.agents.llm_agent", "LangGraphAgent"), ("minirun.tools", "google_search"),
])  # fmt: skip
def test_whether_a_name_is_there_can_be_asked(package: str, name: str) -> None:
    """
    `hasattr` and `getattr` with a default answer; without one the error says what to use, and is an AttributeError.
    """
    module = importlib.import_module(package)
    assert hasattr(module, name) is False
    assert getattr(module, name, None) is None
    with pytest.raises(NotSupportedAttributeError, match=rf"minirun has no (module )?{name}: .+") as caught:
        getattr(module, name)
    assert isinstance(caught.value, AttributeError)
    assert isinstance(caught.value, NotSupportedError)
    with pytest.raises(NotSupportedImportError, match=rf"minirun has no (module )?{name}: .+"):
        exec(f"from {package} import {name}")


@pytest.mark.parametrize("path", MODULES)
def test_whether_a_module_is_there_can_be_asked(path: str) -> None:
    """
    `importlib.util.find_spec` says None for a module that is not here, or that its parent is not; an import says why.
    """
    parent = path.rpartition(".")[0]
    if parent in MODULES or (parent and importlib.util.find_spec(f"minirun.{parent}") is None):
        with pytest.raises(ModuleNotFoundError):
            importlib.util.find_spec(f"minirun.{path}")
    else:
        assert importlib.util.find_spec(f"minirun.{path}") is None
    assert importlib.util.find_spec("minirun.nobody_has_heard_of_it") is None
    assert importlib.util.find_spec("minirun.models.Gemini") is None
    with pytest.raises(ImportError, match="minirun has no module"):
        importlib.import_module(f"minirun.{path}")


@pytest.mark.parametrize("name", [*OF_CONTEXTS, "nothing"])
async def test_what_contexts_do_not_have_says_what_to_use_instead(name: str) -> None:
    """
    Agents, callbacks, tools and instruction functions are told; whoever asks by `hasattr` gets an answer.
    """
    told: list[str] = []

    def ask(callback_context: Any = None, context: Any = None, **_: Any) -> None:
        asked = callback_context or context
        assert not hasattr(asked, name)
        with pytest.raises(AttributeError, match=rf"Context'? .*{name}") as caught:
            getattr(asked, name)
        assert isinstance(caught.value, NotSupportedError) is (name in OF_CONTEXTS)
        told.append(type(asked).__name__)

    def instruct(context: Any) -> str:
        ask(context=context)
        return "Answer."

    def look(tool_context: minirun.ToolContext) -> None:
        ask(context=tool_context)

    class Asking(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            ask(context=ctx)

    model = ScriptedLlm([call("look"), "done"])
    agent = LlmAgent(name="a", model=model, tools=[look], instruction=instruct, before_agent_callback=ask)
    both = minirun.SequentialAgent(name="both", sub_agents=[agent, Asking(name="b")])
    await InMemoryRunner(agent=both).run_debug("go", quiet=True)
    for advised in re.findall(r"`([a-z_]+)`", OF_CONTEXTS.get(name, "")):
        assert hasattr(InvocationContext, advised)
    assert {*told} == {"ToolContext", "ReadonlyContext", "InvocationContext"}


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("save_input_blobs_as_artifacts", "SaveFilesAsArtifactsPlugin"),
        ("tool_thread_pool_config", "worker threads anyway"),
        ("save_live_audio", "write event.audio"),
        ("support_cfc", "leave it out"),
        ("translation_config", "instruction of the agent"),
    ],
)
def test_a_refused_option_names_its_successor(option: str, advice: str) -> None:
    """
    A documented setting that would have no effect is refused with what to write instead.
    """
    with pytest.raises(NotSupportedError, match=rf"RunConfig\.{option} has no effect.*; .*{advice}"):
        RunConfig(**{option: None})  # type: ignore[arg-type]  # that is the point


def test_an_unknown_argument_names_the_nearest_one() -> None:
    """
    A public constructor raises a TypeError with the nearest argument, and for one of ADK's the advice of the table.
    """
    agent = LlmAgent(name="a")
    made: list[tuple[Any, dict[str, Any], str]] = [
        (LlmAgent, {"name": "a", "modell": "x"}, "LlmAgent got an unexpected keyword argument 'modell'; did you mean"),
        (minirun.LoopAgent, {"name": "a", "max_iteration": 1}, "LoopAgent got .*; did you mean 'max_iterations'"),
        (Event, {"mesage": "hi"}, "Event got an unexpected keyword argument 'mesage'; did you mean 'message'"),
        (Content, {"part": []}, "Content got .*; did you mean 'parts'"),
        (RunConfig, {"max_llm_cals": 3}, "RunConfig got .*; did you mean 'max_llm_calls'"),
        (App, {"root_agents": agent}, "App got .*; did you mean 'root_agent'"),
        (Runner, {"aget": agent}, "Runner got .*; did you mean 'agent'"),
        (FunctionTool, {"func": print, "retrys": 3}, "FunctionTool got .*; did you mean 'retry'"),
        (minirun.plugins.LoggingPlugin, {"nme": "a"}, "LoggingPlugin got .*; did you mean 'name'"),
        (SqliteSessionService, {"durabilty": "power"}, "SqliteSessionService got .*; did you mean 'durability'"),
        (ScriptedLlm, {"script": [], "latency": 1}, "ScriptedLlm got .*; did you mean 'latency_s'"),
        (Workflow, {"name": "a", "edgs": []}, "Workflow got .*; did you mean 'edges'"),
        (FunctionNode, {"func": print, "output_shema": 1}, "FunctionNode got .*; did you mean 'output_schema'"),
        (Edge, {"zzz": 1}, "Edge got an unexpected keyword argument 'zzz'; it takes from_node, to_node, route"),
        (minirun.tools.RetryConfig, {"max_attempt": 3}, "RetryConfig got .*; did you mean 'max_attempts'"),
        (Loud, {"nam": "x"}, "unexpected keyword argument 'nam'"),
    ]
    for kind, arguments, message in made:
        with pytest.raises(TypeError, match=message):
            kind(**arguments)
    advised: list[tuple[Any, dict[str, Any], str]] = [
        (LlmAgent, {"name": "a", "code_executor": 1}, "a tool that sends it to a sandbox"),
        (minirun.LoopAgent, {"name": "a", "parent_agent": agent}, "the sub_agents of its parent"),
        (Part, {"video_metadata": 1}, "leave it out"),
        (minirun.AgentTool, {"agent": agent, "include_plugins": True}, "the plugins of the app"),
        (types.HttpOptions, {"headers": {}}, "give it to the model object"),
    ]
    for kind, arguments, message in advised:
        with pytest.raises(NotSupportedError, match=rf"{kind.__name__}\.\w+ has no effect .*{message}"):
            kind(**arguments)


def test_advice_for_an_argument_is_for_one_that_its_class_does_not_take() -> None:
    """
    No class of the table takes an argument that the table says it lacks.
    """
    packages = [importlib.import_module(name) for name in (*LISTS, "minirun.types", "minirun.events")]
    arguments = [key.split(".") for key in ADVICE if re.fullmatch(r"[A-Z]\w*\.\w+", key)]
    assert len(arguments) > 50
    for name, argument in arguments:
        found = [each for each in (getattr(package, name, None) for package in packages) if each is not None]
        assert found, name
        if not name.startswith("Base"):
            assert argument not in inspect.signature(found[0]).parameters, (name, argument)


def test_programs_that_miss_nothing_never_load_the_table() -> None:
    """
    The table of ADK's names is loaded when a name is not found, and by no program that finds what it asks for.
    """
    program = (
        "import sys\nfrom minirun import LlmAgent, Runner, SqliteSessionService, InMemoryRunner, RunConfig\n"
        "from minirun.types import Content, Part\nimport minirun.events, minirun.errors, minirun.plugins\n"
        "RunConfig(max_llm_calls=3)\nhasattr(minirun, '__wrapped__')\nprint('minirun._adk' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


# --- types ------------------------------------------------------------------------------------------------------------


def test_parts_are_made_as_in_adk() -> None:
    """
    `Part.from_*`, dicts as parts, and contents of one side make the values that the fields make.
    """
    assert Part.from_text(text="a") == Part(text="a")
    assert Part.from_bytes(data=b"x", mime_type="a/b") == Part(inline_data=types.Blob(data=b"x", mime_type="a/b"))
    assert Part.from_uri(file_uri="f:x", mime_type="a/b").file_data == types.FileData(file_uri="f:x", mime_type="a/b")
    assert Part.from_function_call(name="f", args={"a": 1}) == call("f", a=1)
    assert Part.from_function_response(name="f", response={"a": 1}) == Part(
        function_response=types.FunctionResponse(name="f", response={"a": 1})
    )
    said = Content(role="user", parts=[{"text": "a"}, Part(text="b"), {"function_call": {"name": "f"}}])
    assert said == Content(role="user", parts=[Part(text="a"), Part(text="b"), call("f")])
    assert types.UserContent("a") == Content(role="user", parts=[Part(text="a")])
    assert types.ModelContent(["a", Part(text="b")]) == Content(role="model", parts=[Part(text="a"), Part(text="b")])
    assert types.FinishReason.MAX_TOKENS == "MAX_TOKENS"


@pytest.mark.parametrize("part", [{"txt": "a"}, {"inline_data": {}}, {"nothing": {"a": 1}}, {1: "a"}, "a", 7])
def test_a_dict_that_is_no_part_is_refused_with_its_place(part: Any) -> None:
    """
    What is neither a part nor its fields is refused, and the message says which one it is.
    """
    with pytest.raises(InvalidValueError, match=r"Content\.parts\[1\]: expected a Part"):
        Content(parts=[Part(text="a"), part])


def test_a_schema_is_a_json_schema() -> None:
    """
    `Schema` with ADK's names is the dict that the rest of the package takes; what is no field is refused.
    """
    city = types.Schema(type=types.Type.STRING, min_length=1, nullable=True, enum=["Rome"])
    schema = types.Schema(
        type="object",
        properties={"city": city, "days": {"type": "ARRAY", "items": {"type": "INTEGER"}}},
        required=["city"],
    )
    assert schema == {
        "type": "object",
        "properties": {
            "city": {"type": ["string", "null"], "minLength": 1, "enum": ["Rome", None]},
            "days": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["city"],
    }
    declared = FunctionDeclaration(name="f", parameters=schema)
    assert declared.parameters == schema
    assert LlmAgent(name="a", output_schema=schema).output_schema is schema
    with pytest.raises(InvalidValueError, match=r"Schema: expected the fields of a schema \(.*\), found 'propertys'"):
        types.Schema(type="object", propertys={})
    with pytest.raises(InvalidValueError, match=r"Schema\.items\.type: expected one of ARRAY, .*, found 'text'"):
        types.Schema(type="array", items={"type": "text"})


# --- agents, models, tools --------------------------------------------------------------------------------------------


class Named(BaseAgent):
    """An agent that sets its fields itself, as those of ADK's documents do."""

    child: BaseAgent
    rounds: int = 1

    def __init__(self, name: str, child: BaseAgent) -> None:
        super().__init__(name=name, child=child, rounds=2, sub_agents=[child])  # type: ignore[call-arg]

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for _ in range(self.rounds):
            await self.child.run_async(ctx)


class Loud(Named):
    """Inherits that `__init__`."""


class Speaker(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="hi"))


@pytest.mark.parametrize("kind", [Named, Loud])
async def test_an_agent_with_an_init_of_its_own_sets_its_fields_by_super(kind: type[Named]) -> None:
    """
    `super().__init__(name=..., child=...)` sets declared fields; subclasses inherit the constructor, clones keep them.
    """
    agent = kind("outer", Speaker(name="speaker"))
    copy = agent.clone({"name": "copy"})
    assert isinstance(copy, kind)
    assert (copy.name, copy.rounds, copy.child.name) == ("copy", 2, "speaker")
    events = await InMemoryRunner(agent=agent).run_debug("go", quiet=True)
    assert [event.text for event in events] == ["hi", "hi"]
    with pytest.raises(TypeError, match="missing 1 required"):
        kind("outer")  # type: ignore[call-arg]  # that is the point


def test_help_shows_the_fields_of_agents() -> None:
    """
    The signature of an agent's class has all its fields by name.
    """
    assert {"name", "model", "instruction", "tools", "output_schema"} <= inspect.signature(LlmAgent).parameters.keys()
    assert "model:" in pydoc.render_doc(LlmAgent).partition("\n\n")[2].partition("Args:")[0]
    assert "mode:" in pydoc.render_doc(LlmAgent).partition("Args:")[0]


async def test_an_app_has_a_default_model() -> None:
    """
    `App(default_model=...)` is the model of agents that have none, nor one above them; others keep theirs.
    """
    default, own = ScriptedLlm(["default"]), ScriptedLlm(["own"])
    agents = [LlmAgent(name="a"), LlmAgent(name="b", model=own)]
    app = App("demo", minirun.SequentialAgent(name="both", sub_agents=agents), default_model=default)
    events = await InMemoryRunner(app=app).run_debug("go", quiet=True)
    assert [event.text for event in events] == ["default", "own"]
    with pytest.raises(ConfigurationError, match=r"expected a model for agent 'a'.*App\(default_model=...\)"):
        App("demo", LlmAgent(name="a"))
    with pytest.raises(ConfigurationError, match="expected default_model to be a model object"):
        App("demo", LlmAgent(name="a"), default_model=7)  # type: ignore[arg-type]  # that is the point


class Echo(BaseLlm):
    """A model that is made as in ADK, by the name of what it serves."""

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.ModelContent(f"{self.model}: {request.contents[-1].text}"))


async def test_a_model_is_made_with_its_name() -> None:
    """
    `BaseLlm(model=...)` is kept, and is what events and errors call the model.
    """
    model = Echo(model="echo-1")
    assert (model.model, model.name) == ("echo-1", "echo-1")
    assert (Echo().model, Echo().name) == (None, "model")
    (event,) = await InMemoryRunner(agent=LlmAgent(name="a", model=model)).run_debug("hi", quiet=True)
    assert event.text == "echo-1: hi"


class Dice(BaseTool):
    """A tool that declares itself under ADK's name."""

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(name=self.name, description=self.description)

    async def run_async(self, *, args: dict[str, Any], tool_context: minirun.ToolContext) -> int:
        return 4


class Mute(BaseTool):
    async def run_async(self, *, args: dict[str, Any], tool_context: minirun.ToolContext) -> int:
        return 4


async def test_a_tool_declares_itself_under_either_name() -> None:
    """
    `_get_declaration` and `declaration` are the same, whichever is written; a tool with neither is refused.
    """
    dice = Dice(name="dice", description="Roll.")
    assert dice.declaration == dice._get_declaration()
    ours = FunctionTool(failure_of)
    assert ours._get_declaration() == ours.declaration
    model = ScriptedLlm([call("dice"), "four"])
    await InMemoryRunner(agent=LlmAgent(name="a", model=model, tools=[dice])).run_debug("go", quiet=True)
    assert model.requests[0].config.tools == (dice.declaration,)
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=model, tools=[Mute(name="mute", description="")]))
    with pytest.raises(ConfigurationError, match=r"expected Mute to say how models see it.*override `declaration`"):
        await runner.run_debug("go", quiet=True)


# --- runners ----------------------------------------------------------------------------------------------------------


class Counting(BasePlugin):
    def __init__(self) -> None:
        super().__init__(name="counting")
        self.runs = 0

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self.runs += 1


async def test_a_runner_takes_plugins_with_its_agent() -> None:
    """
    `Runner(agent=..., plugins=[...])` is an app with these plugins; with `app=` they are refused.
    """
    plugin, agent = Counting(), Speaker(name="speaker")
    await InMemoryRunner(agent=agent, plugins=[plugin]).run_debug("go", quiet=True)
    services = {"session_service": InMemorySessionService()}
    await Runner(agent=agent, app_name="demo", plugins=[plugin], **services).run_debug("go", quiet=True)  # type: ignore[arg-type]
    assert plugin.runs == 2
    with pytest.raises(ConfigurationError, match=r"plugins= with agent=, found it with app=; write App\(plugins"):
        Runner(app=App("demo", agent), plugins=[plugin], session_service=InMemorySessionService())


@pytest.mark.parametrize("store", ["memory", "file"])
async def test_a_message_may_name_the_invocation_that_it_begins(store: str, tmp_path: Path) -> None:
    """
    A message with an id that no invocation has begins one of that id; sent again, it is refused and nothing is stored.
    """
    sessions = InMemorySessionService() if store == "memory" else SqliteSessionService(tmp_path / "s.db")
    runner = Runner(agent=Speaker(name="speaker"), app_name="demo", session_service=sessions, auto_create_session=True)
    place: Any = {"user_id": "u", "session_id": "s"}
    async with runner.run_async(**place, new_message="go", invocation_id="order-17") as run:
        assert run.invocation_id == "order-17"
        assert [event.invocation_id async for event in run] == ["order-17"]
    with pytest.raises(InvalidMessageError, match=r"'order-17' has ended \(completed\)"):
        async with runner.run_async(**place, new_message="go", invocation_id="order-17"):
            pass
    for bad in ("a b", "\ud800", "x" * 65, ""):
        with pytest.raises(InvalidValueError, match="invocation_id: expected"):
            async with runner.run_async(**place, new_message="go", invocation_id=bad):
                pass
    assert len(await sessions.read_events(app_name="demo", **place)) == 3
    await sessions.aclose()


async def test_two_processes_cannot_begin_the_same_invocation(tmp_path: Path) -> None:
    """
    A run that was looked up before another process has begun the invocation of its id is refused, and stores nothing.
    """
    place: Any = {"user_id": "u", "session_id": "s"}

    class Late(SqliteSessionService):
        """A store that is slow enough for the other process."""

        async def open_writer(self, *args: Any, **named: Any) -> Any:
            async with other.run_async(**place, new_message="go", invocation_id="order-17") as run:
                await run.wait()
            return await super().open_writer(*args, **named)

    ours, theirs = Late(tmp_path / "s.db"), SqliteSessionService(tmp_path / "s.db")
    agent = Speaker(name="speaker")
    one, other = (Runner(agent=agent, app_name="demo", session_service=each) for each in (ours, theirs))
    await ours.create_session(app_name="demo", **place)
    with pytest.raises(InvalidMessageError, match="another run has just begun the invocation 'order-17'"):
        async with one.run_async(**place, new_message="go", invocation_id="order-17"):
            pass
    assert len(await theirs.read_events(app_name="demo", **place)) == 3
    await ours.aclose()
    await theirs.aclose()


# --- sessions ---------------------------------------------------------------------------------------------------------


class Noting(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        before = ctx.state.has_delta()
        ctx.state[ctx.state.USER_PREFIX + "seen"] = 1
        said = f"{before} {ctx.state.has_delta()}"
        await ctx.emit(Event(message=said))
        await ctx.emit(Event(message=f"{ctx.state.has_delta()}"))


@pytest.mark.parametrize("store", ["memory", "file"])
async def test_the_state_of_a_user_is_read_without_a_session(store: str, tmp_path: Path) -> None:
    """
    `get_user_state` has the user's values without their prefix, after the last session is gone, too.
    """
    sessions = InMemorySessionService() if store == "memory" else SqliteSessionService(tmp_path / "s.db")
    place: Any = {"app_name": "demo", "user_id": "u"}
    assert await sessions.get_user_state(**place) == {}
    await sessions.create_session(**place, session_id="s", state={"user:b": 1, "user:a": [2], "app:c": 3, "d": 4})
    await sessions.delete_session(**place, session_id="s")
    assert await sessions.get_user_state(**place) == {"a": [2], "b": 1}
    assert await sessions.get_user_state(app_name="demo", user_id="other") == {}
    with pytest.raises(InvalidValueError, match="user_id"):
        await sessions.get_user_state(app_name="demo", user_id="")
    await sessions.aclose()


async def test_a_state_says_whether_something_is_not_stored() -> None:
    """
    `State.has_delta` is true from a write until the event that carries it; the prefixes are constants of `State`.
    """
    events = await InMemoryRunner(agent=Noting(name="a")).run_debug("go", quiet=True)
    assert [event.text for event in events] == ["False True", "False"]
    state = minirun.sessions.State
    assert (state.APP_PREFIX, state.USER_PREFIX, state.TEMP_PREFIX) == ("app:", "user:", "temp:")


async def test_a_missing_session_hints_at_an_app_of_another_name() -> None:
    """
    Where the class of the agent is from a package that is not called as the app is, the error says so.
    """
    services: Any = {"session_service": InMemorySessionService()}
    place: Any = {"user_id": "u", "session_id": "s", "new_message": "go"}
    with pytest.raises(SessionNotFoundError, match=r"from the package 'project'.*'demo'.*Runner\(app_name='project'\)"):
        async with Runner(agent=Speaker(name="speaker"), app_name="demo", **services).run_async(**place):
            pass
    for agent, app_name in ((Speaker(name="s"), "project"), (minirun.SequentialAgent(name="s"), "demo")):
        with pytest.raises(SessionNotFoundError) as caught:
            async with Runner(agent=agent, app_name=app_name, **services).run_async(**place):
                pass
        assert "package" not in str(caught.value)


# --- logs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def root_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The root logger, as it was afterwards; temporary files are made in *tmp_path*."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root, ours = logging.getLogger(), logging.getLogger("minirun")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield root
    for handler in {*root.handlers} - {*handlers}:
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_a_log_goes_to_a_file_that_only_its_owner_reads(
    root_logger: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    `cli.utils.logs.log_to_tmp_folder` sends what is logged to a new file of its own, and says which.
    """
    from minirun.cli.utils import logs  # type: ignore[import-not-found]

    first, second = (Path(logs.log_to_tmp_folder(log_file_timestamp="now")) for _ in range(2))
    assert first != second
    assert second.parent == tmp_path / "agents_log"
    assert second.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out == f"The log goes to {first}\nThe log goes to {second}\n"
    logging.getLogger("somebody").info("hello")
    assert second.read_text("utf-8").endswith("hello\n")
    logs.setup_adk_logger(logging.DEBUG)
    assert logging.getLogger("minirun").level == logging.DEBUG
