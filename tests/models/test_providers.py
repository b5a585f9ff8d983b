"""
The names of the providers' models, and the keys that go with them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from minirun.agents import LlmAgent
from minirun.apps import App, EventsCompactionConfig, LlmEventSummarizer
from minirun.errors import ConfigurationError
from minirun.models import LLMRegistry, ScriptedLlm, providers
from minirun.models.anthropic import Claude
from minirun.models.gemini import Gemini, GeminiLive
from minirun.models.openai import OpenAIChat, OpenAIRealtime, OpenAIResponses
from minirun.runners import InMemoryRunner
from minirun.tools import AgentTool

from ..provider_servers.openai_chat import KEY, chat_completions
from ..provider_servers.server import served
from ..wire_models import answer, streamed


@pytest.fixture(autouse=True)
def no_keys() -> Iterator[None]:
    """Keys are forgotten after each test, and so are the models that were made with them."""
    keys, entries = dict(providers._keys), LLMRegistry._entries
    yield
    providers._keys.clear()
    providers._keys.update(keys)
    for entry in entries:
        entry.models.clear()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("claude-opus-4-5", Claude),
        ("gemini-3-pro", Gemini),
        ("gemini-live-2.5-flash", GeminiLive),
        ("gemini-2.5-flash-native-audio-preview-12-2025", GeminiLive),
        ("gpt-5", OpenAIChat),
        ("o3", OpenAIChat),
        ("o4-mini", OpenAIChat),
        ("responses:gpt-5", OpenAIResponses),
        ("gpt-realtime-2", OpenAIRealtime),
        ("realtime:own", OpenAIRealtime),
    ],
)
def test_names_are_models(name: str, kind: type) -> None:
    """
    A provider's name of a model makes that model, once there is a key; without one the error says where it goes.
    """
    with pytest.raises(ConfigurationError, match=r"configure\((anthropic|gemini|openai)=key\)"):
        LLMRegistry.new_llm(name)
    providers.configure(anthropic="a", gemini="g", openai="o")
    model = LLMRegistry.new_llm(name)
    assert type(model) is kind
    assert model.name == name.rpartition(":")[2]


async def test_a_server_is_named_with_its_address() -> None:
    """
    `openai:NAME@BASE_URL` is the model of a server, which gets the key that was given for its address, as it is now.
    """
    server = chat_completions()
    server.script += [streamed("chat_text.sse")] * 2
    async with served(server) as url:
        providers.configure(servers={f"{url}/v1/": "old"})
        model = LLMRegistry.new_llm(f"openai:qwen3:8b@{url}/v1")
        providers.configure(servers={f"{url}/v1": lambda: KEY})
        assert model.name == "qwen3:8b"
        assert (await answer(model)).finish_reason == "STOP"
        await model.aclose()
    assert server.asked[0].body["model"] == "qwen3:8b"


async def test_a_key_goes_to_no_other_address() -> None:
    """
    OpenAI's key is not sent to a server that only speaks its language.
    """
    server = chat_completions()
    async with served(server) as url:
        providers.configure(openai="sk-secret")
        model = LLMRegistry.new_llm(f"openai:gpt-5@{url}/v1")
        with pytest.raises(Exception, match="401"):
            await answer(model)
        await model.aclose()
    assert "authorization" not in server.asked[0].headers


@pytest.mark.parametrize("keys", [{"openai": ""}, {"anthropic": 7}, {"servers": {"http://h/v1": "a\nb"}}])
def test_what_is_no_key_is_refused(keys: dict[str, object]) -> None:
    """
    A key that no header can hold is refused when it is given, and the message does not show it.
    """
    with pytest.raises(ConfigurationError, match="expected api_key"):
        providers.configure(**keys)  # type: ignore[arg-type]  # that is the mistake


def test_an_unknown_name_leads_to_the_providers() -> None:
    """
    Without the import the error of an unknown name says what to install and what to import.
    """
    code = "from minirun.models import LLMRegistry\nLLMRegistry.new_llm('claude-opus-4-5')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "minirun[models]" in found
    assert "import minirun.models.providers" in found


def test_adapters_import_neither_asyncio_nor_an_sdk() -> None:
    """
    Importing the models of all providers imports no asyncio, no SDK, and httpx2 only where a model is made.
    """
    code = (
        "import sys, minirun.models.providers\n"
        "print(*{'asyncio', 'openai', 'anthropic', 'httpx2'} & sys.modules.keys())\n"
        "minirun.models.openai.OpenAIChat('m', base_url='http://h/v1')\n"
        "print(*{'asyncio', 'openai', 'anthropic', 'httpx2'} & sys.modules.keys())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["httpx2"]


async def test_a_runner_closes_the_models_of_its_app() -> None:
    """
    Each model of an app is closed once, also one that is named, and that of an agent that is a tool.
    """
    closed: list[str] = []

    class Closable(ScriptedLlm):
        async def aclose(self) -> None:
            closed.append(self.name)

    def made(name: str) -> Closable:
        return Closable(lambda request: "hi", name=name)

    LLMRegistry.register("closable-.*", made)
    shared = made("shared")
    inner = LlmAgent(name="inner", model=made("tool's"))
    subs = [LlmAgent(name="one", model=shared), LlmAgent(name="two", model="closable-2")]
    agent = LlmAgent(name="root", model=shared, sub_agents=subs, tools=[AgentTool(inner)])
    async with InMemoryRunner(agent=agent):
        pass
    assert sorted(closed) == ["closable-2", "shared", "tool's"]
    async with InMemoryRunner(agent=agent):
        LLMRegistry.unregister("closable-.*")
    assert sorted(closed) == sorted(["closable-2", "shared", "tool's", "shared", "tool's"])


async def test_a_runner_closes_the_model_of_a_summarizer() -> None:
    """
    A model that only a summarizer has is closed, also one that is named, but not one whose name is gone.
    """
    closed: list[str] = []

    class Closable(ScriptedLlm):
        async def aclose(self) -> None:
            closed.append(self.name)

    def made(name: str) -> Closable:
        return Closable(lambda request: "hi", name=name)

    LLMRegistry.register("closable-.*", made)
    agent = LlmAgent(name="root", model=ScriptedLlm([]))
    for llm in (made("own"), "closable-3"):
        compaction = EventsCompactionConfig(
            compaction_interval=1, overlap_size=0, summarizer=LlmEventSummarizer(llm=llm)
        )
        app = App("app", agent, events_compaction_config=compaction)
        async with InMemoryRunner(app=app):
            pass
    assert closed == ["own", "closable-3"]
    async with InMemoryRunner(app=app):
        LLMRegistry.unregister("closable-.*")
    assert closed == ["own", "closable-3"]


def test_without_an_http_client_the_extra_is_named() -> None:
    """
    A model that is made where no HTTP client is installed says which extra brings one.
    """
    program = """
import sys
sys.modules["httpx2"] = None
from minirun.models.openai import OpenAIChat
try:
    OpenAIChat("qwen3", base_url="http://localhost:11434/v1")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'the adapters for model providers need httpx2; run: pip install "minirun[models]"'
