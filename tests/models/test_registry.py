"""Models by name, and what models say they are able to do."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import pytest

from minirun.errors import ConfigurationError
from minirun.models import BaseLlm, LlmCapabilities, LLMRegistry, LlmRequest, LlmResponse, RequestChecker, ScriptedLlm
from minirun.types import Content, FunctionDeclaration, GenerateContentConfig, Part


class Parrot(BaseLlm):
    """A model that says its own name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def supported_models(cls) -> list[str]:
        return [r"parrot-\d+", "polly"]

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=Content(role="model", parts=[Part(text=self.name)]))


class Nameless(Parrot):
    @classmethod
    def supported_models(cls) -> list[str]:
        return []


@pytest.fixture(autouse=True)
def _registry_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with nothing registered, and leaves nothing behind."""
    monkeypatch.setattr(LLMRegistry, "_entries", ())


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_class_is_registered_for_the_names_that_it_supports() -> None:
    """Its patterns have to fit a whole name; the model is made with that name."""
    LLMRegistry.register(Parrot)
    assert LLMRegistry.resolve("parrot-12") is Parrot
    assert LLMRegistry.new_llm("parrot-12").name == "parrot-12"
    assert LLMRegistry.new_llm("polly").name == "polly"
    for name in ("parrot-12b", "a parrot-12", "Polly", ""):
        with pytest.raises(ConfigurationError, match="expected the name of a registered model"):
            LLMRegistry.resolve(name)


def test_a_factory_is_registered_for_the_names_that_its_pattern_fits() -> None:
    """It gets the name that was asked for."""
    LLMRegistry.register("gpt-.*", lambda name: ScriptedLlm([], name=f"scripted {name}"))
    assert LLMRegistry.new_llm("gpt-9").name == "scripted gpt-9"


def test_a_name_stands_for_one_object() -> None:
    """A model is made when it is first asked for, and once; another name has another one."""
    made: list[str] = []

    def make(name: str) -> BaseLlm:
        made.append(name)
        return Parrot(name)

    LLMRegistry.register(".*", make)
    assert made == []
    first = LLMRegistry.new_llm("a")
    assert LLMRegistry.new_llm("a") is first is not LLMRegistry.new_llm("b")
    assert made == ["a", "b"]


def test_registering_a_pattern_again_replaces_it_and_its_models() -> None:
    """Who defines a model again in a notebook gets the new one; the old one's object is gone with it."""
    LLMRegistry.register("m", lambda name: Parrot("old"))
    old = LLMRegistry.new_llm("m")
    LLMRegistry.register("m", lambda name: Parrot("new"))
    assert LLMRegistry.new_llm("m") is not old
    assert LLMRegistry.new_llm("m").name == "new"
    LLMRegistry.unregister("m")
    with pytest.raises(ConfigurationError, match="nothing is registered"):
        LLMRegistry.new_llm("m")


def test_the_newest_registration_that_fits_counts() -> None:
    """A test puts its model in the place of another one and takes it back; the other one is still the same object."""
    LLMRegistry.register(Parrot)
    real = LLMRegistry.new_llm("polly")
    LLMRegistry.register("polly", lambda name: ScriptedLlm([]))
    assert isinstance(LLMRegistry.new_llm("polly"), ScriptedLlm)
    assert isinstance(LLMRegistry.new_llm("parrot-1"), Parrot)
    LLMRegistry.unregister("polly")
    with pytest.raises(ConfigurationError, match="'polly'"):
        LLMRegistry.unregister("polly")
    LLMRegistry.register(Parrot)
    assert isinstance(LLMRegistry.new_llm("polly"), Parrot)
    assert LLMRegistry.new_llm("polly") is not real


def test_an_older_registration_counts_again_when_the_newer_one_goes() -> None:
    """Different patterns that fit one name do not replace each other."""
    LLMRegistry.register("p.*", Parrot)
    real = LLMRegistry.new_llm("polly")
    LLMRegistry.register("polly", lambda name: ScriptedLlm([]))
    assert LLMRegistry.new_llm("polly") is not real
    LLMRegistry.unregister("polly")
    assert LLMRegistry.new_llm("polly") is real


def test_an_unknown_name_is_told_with_what_there_is_and_what_to_do() -> None:
    """The message lists the patterns, the newest first, and says how to register one."""
    LLMRegistry.register(Parrot)
    LLMRegistry.register("x|y", Parrot)
    expected = r"found 'gpt'; registered are 'x|y', 'parrot-\\d+', 'polly'; write `LLMRegistry.register(pattern, fac"
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        LLMRegistry.new_llm("gpt")
    with pytest.raises(ConfigurationError, match="found None"):
        LLMRegistry.new_llm(None)  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((Nameless,), r"Nameless.supported_models\(\) to be a list of patterns, found \[\]"),
        (("(",), "expected a pattern and a function, found '\\(' and None"),
        (("(", Parrot), r"regular expression, found '\(' \(missing \)"),
        ((b"x", Parrot), "found b'x' and <class"),
        (("x", Parrot("y")), r"write `LLMRegistry.register\(pattern, lambda name: model\)`"),
        ((Parrot("y"),), "expected a pattern and a function"),
        ((int,), "expected a pattern and a function"),
    ],
)
def test_what_cannot_be_registered_is_refused_and_changes_nothing(arguments: tuple[object, ...], problem: str) -> None:
    """The message says what was found; what was registered before still is."""
    LLMRegistry.register(Parrot)
    with pytest.raises(ConfigurationError, match=problem):
        LLMRegistry.register(*arguments)  # type: ignore[call-overload]  # the point of the test
    assert LLMRegistry.resolve("polly") is Parrot


def test_a_factory_that_makes_no_model_is_named() -> None:
    """What it returned is shown with its pattern; what it raises is passed on as it is."""
    LLMRegistry.register("m", lambda name: "model")  # type: ignore[arg-type,return-value]  # the point of the test
    with pytest.raises(ConfigurationError, match=r"factory of 'm' to return a model .* found 'model'"):
        LLMRegistry.new_llm("m")

    def fails(name: str) -> BaseLlm:
        raise OSError("no key")

    LLMRegistry.register("m", fails)
    with pytest.raises(OSError, match="no key"):
        LLMRegistry.new_llm("m")


# --- capabilities -----------------------------------------------------------------------------------------------------

SCHEMA = GenerateContentConfig(response_schema={"type": "object"})
SCHEMA_AND_TOOLS = GenerateContentConfig(response_schema={"type": "object"}, tools=[FunctionDeclaration(name="t")])
USER = Content(role="user", parts=[Part(text="go")])


def test_a_model_says_what_it_is_able_to_do() -> None:
    """A schema without tools, unless its class or the object itself says something else."""
    assert Parrot("p").capabilities == LlmCapabilities(output_schema=True, output_schema_and_tools=False)
    able = LlmCapabilities(output_schema_and_tools=True)
    assert ScriptedLlm([], capabilities=able).capabilities is able
    assert ScriptedLlm([]).capabilities == LlmCapabilities()
    with pytest.raises(ConfigurationError, match="set both"):
        LlmCapabilities(output_schema=False, output_schema_and_tools=True)


@pytest.mark.parametrize(
    ("capabilities", "config", "problem"),
    [
        (LlmCapabilities(), SCHEMA, None),
        (LlmCapabilities(), SCHEMA_AND_TOOLS, r"beside tools, found one and the tools \['t'\]"),
        (LlmCapabilities(output_schema=False), SCHEMA, "which this model does not keep to"),
        (LlmCapabilities(output_schema_and_tools=True), SCHEMA_AND_TOOLS, None),
    ],
)
def test_the_strictest_provider_refuses_a_schema_that_its_model_does_not_keep_to(
    capabilities: LlmCapabilities, config: GenerateContentConfig, problem: str | None
) -> None:
    """What the capabilities exclude is refused; the rest passes."""
    found = RequestChecker(capabilities).check(LlmRequest(contents=[USER], config=config))
    assert found is None if problem is None else re.search(problem, found or "")
