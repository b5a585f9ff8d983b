"""What an LlmAgent asks its model: the instructions, the conversation so far, and the tools."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._json import check_text
from .._values import changed
from .._window import Extended, Window, inserted
from ..errors import ConfigurationError, InvalidValueError
from ..flows._instructions import artifacts_in, fill_in
from ..flows._transcript import Transcript
from ..models import BaseLlm, LlmRequest
from ..runtime import CallbackContext, InvocationContext, ReadonlyContext
from ..tools import BaseTool
from ..types import Content, FunctionDeclaration, GenerateContentConfig, Part, declarations
from ._output import AnswerTool
from ._transfer import TransferTool

if TYPE_CHECKING:
    from ._llm import Instruction, LlmAgent

__all__ = ["Question", "find_model", "prepare", "text_of", "toolbox", "transcript_of"]


class Question:
    """A request, and what its answer may lead to."""

    __slots__ = ("event_id", "is_asked", "model", "request", "shapers", "tools")

    def __init__(
        self,
        model: BaseLlm,
        event_id: str,
        request: LlmRequest,
        tools: dict[str, BaseTool],
        shapers: Sequence[BaseTool] = (),
    ) -> None:
        self.model = model
        self.event_id = event_id  # of the event that has the answer, and of its fragments
        self.request = request
        self.tools = tools  # what the model may call, by name
        self.shapers = shapers  # the tools that have a say in the request
        self.is_asked = True  # whether the model itself is; else a callback has answered

    def replace(self, request: LlmRequest) -> None:
        """Ask *request* instead; a tool that it does not show cannot be called."""
        self.request = request
        shown = {declaration.name for declaration in request.config.tools}
        self.tools = {name: tool for name, tool in self.tools.items() if name in shown}


class Toolbox(NamedTuple):
    """A model, what it may call, and how it is to give its answer."""

    model: BaseLlm
    tools: dict[str, BaseTool]
    declarations: Sequence[FunctionDeclaration]
    """What the model is told of them."""
    shapers: Sequence[BaseTool]
    """The tools that have a say in the request, also those that are not for the model to call."""
    targets: Sequence[Any]
    """The agents that it may hand over to."""
    answers_by_tool: bool
    native: dict[str, Any]
    """What of the request's config tells it the form of the answer."""


async def toolbox(agent: LlmAgent, ctx: InvocationContext) -> Toolbox:
    """Put together what *agent* has to ask and to answer with, now."""
    core = ctx._core
    model = find_model(agent, ctx)
    if model is None:
        msg = f"expected a model for agent {agent.name!r}, found none in it nor in an LlmAgent above it; give one"
        raise ConfigurationError(msg)
    tools = await _tools(agent, ctx)
    shapers = [tool for tool in tools.values() if type(tool).process_llm_request is not BaseTool.process_llm_request]
    for tool in shapers:
        if tool.declaration is None:
            del tools[tool.name]
    targets = ctx._place.tree.targets(agent)
    if targets:
        _add(tools, TransferTool(targets, core.prompts), agent)
    answers_by_tool = False
    native: dict[str, Any] = {}
    if agent._output is not None:
        able = model.capabilities.output_schema_and_tools if tools else model.capabilities.output_schema
        if able:
            native = {"response_mime_type": "application/json", "response_schema": agent._output.schema}
        else:
            answers_by_tool = True
            _add(tools, AnswerTool(agent._output, core.prompts), agent)
    found = (tool._declared(core.prompts) for tool in tools.values())
    declarations = [declaration for declaration in found if declaration is not None]
    return Toolbox(model, tools, declarations, shapers, targets, answers_by_tool, native)


async def prepare(agent: LlmAgent, ctx: InvocationContext, event_id: str) -> Question:
    """Put together what *agent* asks now; the answer's event is to have the id *event_id*."""
    core = ctx._core
    await ctx._go_beyond(f"a question of {agent.name!r} to its model")
    box = await toolbox(agent, ctx)
    instruction = await text_of(agent.instruction, ctx)
    texts = [await text_of(getattr(ctx._place.tree.root, "global_instruction", ""), ctx)]
    texts.append(instruction if agent.static_instruction is None else str(agent.static_instruction))
    if box.targets:
        texts += core.prompts.about_transfers(agent, box.targets)
    if box.answers_by_tool:
        texts.append(core.prompts.output_tool)
    config = agent.generate_content_config or _NO_CONFIG
    system = "\n\n".join(text for text in texts if text) or None
    if system or box.declarations or box.native:
        config = _with(config, system, box)
    contents: Window[Content] | Extended[Content] = transcript_of(agent, ctx).contents()
    if agent.static_instruction is not None and instruction:
        contents = _with_instruction(contents, instruction)
    request = LlmRequest(contents=contents, config=config, model=box.model.name)
    return Question(box.model, event_id, request, box.tools, box.shapers)


_NO_CONFIG = GenerateContentConfig()


def _with(config: GenerateContentConfig, system: str | None, box: Toolbox) -> GenerateContentConfig:
    """*config* with what the agent says and has; only that is checked, the rest of it was."""
    if system is not None:
        check_text(system, "GenerateContentConfig.system_instruction")
    return changed(config, system_instruction=system, tools=declarations(box.declarations), **box.native)


def find_model(agent: Any, ctx: ReadonlyContext) -> BaseLlm | None:
    """The model of *agent*: its own, that of the nearest one above it, or that of whoever has its tree as a tool."""
    own = getattr(agent, "model", None)
    if isinstance(own, BaseLlm):
        return own
    place = ctx._place
    model: BaseLlm | None = place.tree.model_of(agent)
    return place.inside.model if model is None and place.inside is not None else model


async def _tools(agent: LlmAgent, ctx: InvocationContext) -> dict[str, BaseTool]:
    tools: dict[str, BaseTool] = {}
    for each in agent.tools:
        if isinstance(each, BaseTool):
            _add(tools, each, agent)
        else:
            for tool in await each.get_tools_with_prefix(ctx._readonly()):  # type: ignore[union-attr]  # a toolset: the field's converter sees to it
                _add(tools, tool, agent)
    return tools


def _add(tools: dict[str, BaseTool], tool: BaseTool, agent: LlmAgent) -> None:
    if tools.setdefault(tool.name, tool) is not tool:
        msg = f"expected tools of agent {agent.name!r} with different names, found two named {tool.name!r}; rename one"
        raise ConfigurationError(msg)


async def text_of(instruction: Instruction, ctx: InvocationContext | CallbackContext, whose: str = "") -> str:
    """The text of an instruction: filled in from the state, or what its function says. *whose* is for errors."""
    if isinstance(instruction, str):
        return await filled_in(instruction, ctx)
    text = instruction(ctx._readonly())
    text = await text if inspect.isawaitable(text) else text
    if not isinstance(text, str):
        whose = whose or repr(ctx.agent_name)
        msg = f"expected the instruction function of {whose} to return a string, found {text!r:.80}"
        raise TypeError(msg)
    return text


async def filled_in(template: str, ctx: InvocationContext | CallbackContext) -> str:
    """*template* with the state and the artifacts of *ctx* filled in; see `flows._instructions`."""
    texts = {}
    for name in artifacts_in(template):
        artifact = await ctx.load_artifact(name)
        if artifact is not None:
            texts[name] = _text_of(name, artifact)
    return fill_in(template, ctx.state, texts)


def _text_of(name: str, artifact: Part) -> str:
    blob = artifact.inline_data
    if artifact.text is not None:
        return artifact.text
    if blob is not None and (blob.mime_type.startswith("text/") or blob.mime_type == "application/json"):
        return blob.data.decode("utf-8", "replace")
    found = "a file elsewhere" if blob is None else blob.mime_type
    problem = f"expected text, which an instruction can contain, found {found}; let the model load it with a tool"
    raise InvalidValueError(f"artifact {name!r}", problem)


def transcript_of(agent: LlmAgent, ctx: InvocationContext | CallbackContext) -> Transcript:
    """
    The transcript of what this agent sees, brought up to date.

    It lives as long as the live session, and goes over to a new summary when there is one; inside of a call it lives
    as long as the call, and knows of no summary: that tells what is outside.
    """
    core, place = ctx._core, ctx._place
    live, inside = core.live, place.inside
    if inside is not None:
        memo, start = inside.transcripts, inside.start_seq
    else:
        memo, start = live.memo, core.prompt_seq
    if agent.include_contents == "none":
        start = max(start, core.message_seq)
    key = ("transcript", agent.name, place.branch, agent.include_contents)
    transcript: Transcript | None = memo.get(key)
    if transcript is None or transcript.start_seq != start or transcript.prompts != core.prompts:
        outside = None if agent.include_contents == "none" else core.opening
        opening = outside if inside is None else inside.content
        transcript = Transcript(agent.name, start, place.branch, prompts=core.prompts, opening=opening)
        memo[key] = transcript
    transcript.read(live.events[live.index_of(transcript.next_seq) :])
    return transcript


def _with_instruction(contents: Window[Content] | Extended[Content], instruction: str) -> Extended[Content]:
    """Put a text before what the user said last, but after the responses of tools: those belong to their calls."""
    place = len(contents)
    while place and _is_of_the_user(contents[place - 1]):
        place -= 1
    return inserted(contents, place, Content(role="user", parts=[Part(text=instruction)]))


def _is_of_the_user(content: Content) -> bool:
    return content.role == "user" and all(part.function_response is None for part in content.parts)
