"""
A model without a script: it calls the tools that it is offered, with arguments that fit them, and sometimes not.

What it does follows from the world's choices and the request alone, so a user's tools and agents are explored as they
are: it hands over to the agents that it may hand over to, and where an answer of a form is asked for, it gives one.
Without the fault `model` it is a good model: it answers, and its calls and answers are valid. With it, it also does
what models do on bad days. It refuses, as the strictest provider would, any request that is not well formed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from .._json import dumps
from ..errors import ScriptError
from ..models import BaseLlm, LlmCapabilities, LlmRequest, LlmResponse
from ..models._check import RequestChecker
from ..types import Content, FunctionCall, FunctionDeclaration, Part
from ._choices import Choices
from ._world import World, current_world

__all__ = ["ChaosLlm", "arguments_for"]

# A turn of a good model ends: it is this likely to answer with words each time it is asked, in percent.
WORDS_PERCENT = 40
CALLS_MAX = 3
# From here on a value gets no deeper than its schema asks for.
DEPTH_MAX = 4
# The tool by which an answer of a form is given, and that by which another agent takes over.
ANSWER_TOOL = "set_model_response"
TRANSFER_TOOL = "transfer_to_agent"

WORDS = ("done", "I have looked at it.", "ünïcode 😀 \u202e", "{}", "a" * 500)


class ChaosLlm(BaseLlm):
    """
    A model that draws what it does from the choices of the simulation that it is asked in.

    Args:
        name: What events and errors call it.
        capabilities: What it is able to do; it refuses requests for more.
    """

    def __init__(self, *, name: str = "chaos", capabilities: LlmCapabilities = BaseLlm.capabilities) -> None:
        self.name = name
        self.capabilities = capabilities
        self.restart()

    def restart(self) -> None:
        """Begin anew, for a process that remembers nothing."""
        self._checker = RequestChecker(self.capabilities)
        self._calls = 0

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer somehow."""
        problem = self._checker.check(request)
        if problem is not None:
            msg = f"{self.name!r} was asked what a strict provider would refuse: {problem}"
            raise ScriptError(msg)
        world = current_world()
        await world.sleep(world.choices.choose(4, "the model takes its time") / 10)
        fault = _drawn_fault(world)
        parts = FAULTS[fault](world.choices, request) if fault else self._good_parts(world.choices, request)
        if stream:
            for part in parts:
                if part.text is not None:
                    yield LlmResponse(content=Content(role="model", parts=[part]), partial=True)
                    await world.sleep(0.01)
        if fault == "cut stream":
            return
        yield LlmResponse(content=Content(role="model", parts=parts))

    def _good_parts(self, choices: Choices, request: LlmRequest) -> list[Part]:
        tools = request.config.tools
        wordy = choices.choose(100, "words or calls", lambda randomness: randomness.randrange(100)) < WORDS_PERCENT
        if not tools or wordy:
            return self._answer(choices, request)
        parts = _words(choices) if choices.maybe("words before the calls", 4) else []
        more = choices.choose(CALLS_MAX, "more calls", lambda randomness: int(randomness.randrange(3) == 0))
        for _ in range(1 + more):
            parts.append(self._call(choices, tools[choices.choose(len(tools), "which tool")]))
        return parts

    def _answer(self, choices: Choices, request: LlmRequest) -> list[Part]:
        """What ends a turn: words, or an answer of the form that is asked for."""
        if request.config.response_schema is not None:
            return [Part(text=dumps(arguments_for(request.config.response_schema, choices)))]
        for tool in request.config.tools:
            if tool.name == ANSWER_TOOL:
                return [self._call(choices, tool)]
        return _words(choices)

    def _call(self, choices: Choices, tool: FunctionDeclaration) -> Part:
        self._calls += 1
        args = arguments_for(tool.parameters, choices)
        return Part(function_call=FunctionCall(id=f"{self.name}-{self._calls}", name=tool.name, args=args))


def arguments_for(schema: Mapping[str, Any], choices: Choices) -> Any:
    """A value that fits a JSON schema, of those that tools declare."""
    return _Drawing(schema, choices).value(schema, 0)


class _Drawing:
    """Values for the parts of one schema, which may refer to each other."""

    def __init__(self, root: Mapping[str, Any], choices: Choices) -> None:
        self._root = root
        self._choices = choices

    def value(self, schema: Any, depth: int) -> Any:
        choices = self._choices
        schema = {} if isinstance(schema, bool) else self._target(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][choices.choose(len(schema["enum"]), "which of an enum")]
        for union in ("anyOf", "oneOf"):
            if union in schema:
                members = self._members(schema[union], depth)
                return self.value(members[choices.choose(len(members), "which of a union")], depth + 1)
        kind = schema.get("type", "string")
        if isinstance(kind, Sequence) and not isinstance(kind, str):
            kind = kind[choices.choose(len(kind), "which type")]
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        return _VALUES[kind](schema, choices)

    def _target(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            schema = self._root if name == "#" else self._root["$defs"][name]
        return schema

    def _members(self, members: Sequence[Any], depth: int) -> Sequence[Any]:
        """Those to choose from; where a schema contains itself, in the end those that do not."""
        ends = [one for one in members if not isinstance(one, Mapping) or not {"$ref", "items"} & one.keys()]
        return ends if ends and depth >= DEPTH_MAX else members

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        return {
            name: self.value(inner, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if name in required or (depth < DEPTH_MAX and self._choices.choose(2, f"whether to give {name}"))
        }

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        length = least + (self._choices.choose(3, "how many items") if depth < DEPTH_MAX else 0)
        length = min(length, schema.get("maxItems", length))
        return [self.value(schema.get("items", {}), depth + 1) for _ in range(length)]


def _integer(schema: Mapping[str, Any], choices: Choices) -> int:
    least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    most = schema.get("maximum", schema.get("exclusiveMaximum", least + 1_001) - 1)
    usual = [number for number in (least, 0, 1, 7, most) if least <= number <= most]
    return int(usual[choices.choose(len(usual), "which number")])


def _string(schema: Mapping[str, Any], choices: Choices) -> str:
    texts = ("a", "", "text with spaces", "ünïcode 😀", "x" * 300)
    fitting = [text for text in texts if schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 300)]
    return fitting[choices.choose(len(fitting), "which text")] if fitting else "a" * schema.get("minLength", 0)


_VALUES: dict[str, Callable[[Mapping[str, Any], Choices], Any]] = {
    "integer": _integer,
    "number": lambda schema, choices: _integer(schema, choices) + 0.5 * choices.choose(2, "a fraction"),
    "string": _string,
    "boolean": lambda schema, choices: bool(choices.choose(2, "yes or no")),
    "null": lambda schema, choices: None,
}


# --- bad days ---------------------------------------------------------------------------------------------------------


def _drawn_fault(world: World) -> str:
    if not world.strikes("model", "the model answers badly"):
        return ""
    names = tuple(FAULTS)
    name = names[world.choices.choose(len(names), "how the model answers", names=names)]
    world.reached(f"model: {name}")
    return name


def _words(choices: Choices) -> list[Part]:
    return [Part(text=WORDS[choices.choose(len(WORDS), "which words")])]


def _call_of(name: str, args: dict[str, Any], call_id: str | None = None) -> Part:
    return Part(function_call=FunctionCall(id=call_id, name=name, args=args))


def _bad_arguments(choices: Choices, request: LlmRequest) -> list[Part]:
    tools: Sequence[FunctionDeclaration] = request.config.tools
    name = tools[choices.choose(len(tools), "which tool")].name if tools else "nothing"
    wrong: tuple[dict[str, Any], ...] = ({}, {"no_such_argument": 1}, {"": [[]]})
    return [_call_of(name, wrong[choices.choose(len(wrong), "which wrong arguments")])]


def _same_ids(choices: Choices, request: LlmRequest) -> list[Part]:
    tools = request.config.tools
    name = tools[0].name if tools else "nothing"
    return [_call_of(name, {}, "same"), _call_of(name, {}, "same"), _call_of(name, {}, "not a valid id!")]


def _wrong_form(choices: Choices, request: LlmRequest) -> list[Part]:
    wrong = ("no JSON", "{", "[1, 2", '{"no_such_field": 1}', "null")
    return [Part(text=wrong[choices.choose(len(wrong), "which wrong form")])]


def _wrong_transfer(choices: Choices, request: LlmRequest) -> list[Part]:
    names = ("no_such_agent", "user", "")
    return [_call_of(TRANSFER_TOOL, {"agent_name": names[choices.choose(len(names), "to which agent")]})]


FAULTS: dict[str, Callable[[Choices, LlmRequest], list[Part]]] = {
    "cut stream": lambda choices, request: _words(choices),
    "unknown tool": lambda choices, request: [_call_of("no_such_tool", {"x": 1})],
    "bad arguments": _bad_arguments,
    "same ids": _same_ids,
    "nothing": lambda choices, request: [Part(text="")],
    "wrong form": _wrong_form,
    "wrong transfer": _wrong_transfer,
}
