"""A request of an LlmAgent to its model: the instructions, the conversation so far, and the tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from operator import is_not
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .._json import check_text
from .._values import changed
from .._window import Extended, Window
from ..errors import ConfigurationError
from ..flows._transcript import Transcript
from ..models import BaseLlm, LlmRequest, LlmResponse
from ..runtime import CallbackContext, InvocationContext, ReadonlyContext
from ..tools import BaseTool
from ..types import Content, FunctionDeclaration, GenerateContentConfig, declarations
from ._base import BaseAgent

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = [
    "ConfigMemo", "Instruction", "ModelRequest", "Toolbox", "find_model", "prepare", "setup", "toolbox",
    "transcript_of",
]

Instruction: TypeAlias = str | Callable[[ReadonlyContext], str | Awaitable[str]]


class ModelRequest:
    """A request, and what its answer may lead to."""

    __slots__ = ("check", "event_id", "is_asked", "llm_request", "model", "shapers", "tools")

    def __init__(self, event_id: str, box: Toolbox, llm_request: LlmRequest) -> None:
        self.model = box.model
        self.event_id = event_id  # of the event that has the answer, and of its fragments
        self.llm_request = llm_request
        self.tools = box.tools  # what the model may call, by name
        self.shapers = box.shapers
        self.is_asked = True  # whether the model itself is; else a callback has answered
        self.check: Callable[[LlmResponse], Awaitable[LlmResponse]] | None = None  # output guardrails

    def replace(self, llm_request: LlmRequest) -> None:
        """Ask *llm_request* instead; a tool that it does not show cannot be called."""
        self.llm_request = llm_request
        shown = {declaration.name for declaration in llm_request.config.tools}
        self.tools = {name: tool for name, tool in self.tools.items() if name in shown}


class Toolbox(NamedTuple):
    """A model, what it may call, and how it is to give its answer."""

    model: BaseLlm
    tools: dict[str, BaseTool]
    declarations: Sequence[FunctionDeclaration]
    """What the model is told of them."""
    shapers: Sequence[BaseTool]
    """The tools that have a say in the request, also those that are not for the model to call."""
    targets: Sequence[BaseAgent]
    """The agents that it may hand over to."""
    answers_by_tool: bool
    native: dict[str, Any]
    """What of the request's config tells it the form of the answer."""


async def toolbox(agent: LlmAgent, ctx: InvocationContext) -> Toolbox:
    """Put together what *agent* has to ask and to answer with, now."""
    prompts = ctx._invocation.program.prompts
    model = find_model(agent, ctx)
    if model is None:
        msg = f"expected a model for agent {agent.name!r}, found none in it nor in an LlmAgent above it; give one"
        raise ConfigurationError(msg)
    tools: dict[str, BaseTool] = {}
    for each in agent.tools:
        if isinstance(each, BaseTool):
            _add(tools, each, agent)
        else:
            for tool in await each._tools_for(ctx):  # type: ignore[union-attr]  # a toolset: the field's converter sees to it
                _add(tools, tool, agent)
    shapers = [tool for tool in tools.values() if type(tool).process_llm_request is not BaseTool.process_llm_request]
    for tool in shapers:
        if tool.declaration is None:
            del tools[tool.name]
    targets = ctx._position.tree.targets(agent)
    if targets:
        from ._transfer import TransferTool  # few agents have others beside them

        _add(tools, TransferTool(targets, prompts), agent)
    answers_by_tool = False
    native: dict[str, Any] = {}
    if agent._output is not None:
        able = model.capabilities.output_schema_and_tools if tools else model.capabilities.output_schema
        if able:
            native = {"response_mime_type": "application/json", "response_schema": agent._output.schema}
        else:
            from ._output import AnswerTool  # few agents have a schema

            answers_by_tool = True
            _add(tools, AnswerTool(agent, prompts), agent)
    found = (tool._declared(prompts) for tool in tools.values())
    told = [declaration for declaration in found if declaration is not None]
    return Toolbox(model, tools, told, shapers, targets, answers_by_tool, native)


def _add(tools: dict[str, BaseTool], tool: BaseTool, agent: LlmAgent) -> None:
    if tools.setdefault(tool.name, tool) is not tool:
        msg = f"expected tools of agent {agent.name!r} with different names, found two named {tool.name!r}; rename one"
        raise ConfigurationError(msg)


async def prepare(agent: LlmAgent, ctx: InvocationContext, event_id: str) -> ModelRequest:
    """Put together what *agent* asks now; the answer's event is to have the id *event_id*."""
    await ctx._invocation.emitter.leave_replay(ctx, f"a question of {agent.name!r} to its model")
    if ctx._invocation.live.has_messages:
        await ctx._invocation.program.messages().take_messages(ctx)
    box, config, instruction = await setup(agent, ctx)
    contents: Window[Content] | Extended[Content] = transcript_of(agent, ctx).contents()
    if agent.static_instruction is not None and instruction:
        from ._instructions import with_instruction  # few agents have two

        contents = with_instruction(contents, instruction)
    asked = LlmRequest(contents=contents, config=config, model=box.model.name)
    if ctx._invocation.program.cache_config is not None:
        from ._caching import with_caching  # few apps have it

        asked = with_caching(asked, agent, ctx)
    return ModelRequest(event_id, box, asked)


async def setup(agent: LlmAgent, ctx: InvocationContext) -> tuple[Toolbox, GenerateContentConfig, str]:
    """What *agent* asks with: the same for all its questions, but for what the state changes. And its instruction."""
    prompts = ctx._invocation.program.prompts
    box = await toolbox(agent, ctx)
    instruction = await _text_of(agent.instruction, ctx)
    texts = [await _text_of(getattr(ctx._position.tree.root, "global_instruction", ""), ctx)]
    texts.append(instruction if agent.static_instruction is None else str(agent.static_instruction))
    if box.targets:
        from ._transfer import about_transfers  # few agents have others beside them

        texts += about_transfers(prompts, agent, box.targets)
    if box.answers_by_tool:
        texts.append(prompts.output_tool)
    system = "\n\n".join(text for text in texts if text) or None
    return box, agent._config_memo.config(system, box), instruction


async def _text_of(instruction: Instruction, ctx: InvocationContext) -> str:
    if isinstance(instruction, str) and "{" not in instruction:
        return instruction
    from ._instructions import text_of  # many instructions are said as they are

    return await text_of(instruction, ctx)


class ConfigMemo:
    """
    The config of an agent's last request, which the next one has, too, where it would be made from the same.

    Whatever a run may change is compared, so nothing has to be known of the agent's instructions and tools.
    """

    __slots__ = ("_base", "_last")

    def __init__(self, base: GenerateContentConfig | None) -> None:
        self._base = base or GenerateContentConfig()
        self._last: tuple[str | None, Sequence[object], GenerateContentConfig] = (None, (), self._base)

    def config(self, system: str | None, box: Toolbox) -> GenerateContentConfig:
        """Return the base with what the agent says and has; only that is checked, the rest of it was."""
        parts = (*box.declarations, *box.native.values())  # none of them can change
        last_system, last_parts, config = self._last
        if system != last_system or len(parts) != len(last_parts) or any(map(is_not, parts, last_parts)):
            if system is not None:
                check_text(system, "GenerateContentConfig.system_instruction")
            tools = declarations(box.declarations)
            config = changed(self._base, system_instruction=system, tools=tools, **box.native)
            self._last = system, parts, config
        return config


def find_model(agent: BaseAgent, ctx: ReadonlyContext) -> BaseLlm | None:
    """The model of *agent*: its own, that of the nearest one above it, or of the one that has its tree as a tool."""
    own = getattr(agent, "model", None)
    if isinstance(own, BaseLlm):
        return own
    tree, inside = ctx._position.tree, ctx._position.inside
    model = tree.model_of(agent)
    return inside.model if model is None and inside is not None else model


def transcript_of(agent: LlmAgent, ctx: InvocationContext | CallbackContext) -> Transcript:
    """
    The transcript of what this agent sees, brought up to date.

    It lives as long as the live session, and goes over to a new summary when there is one; inside of a call it lives
    as long as the call, and knows of no summary: that tells what is outside.
    """
    invocation, branch, inside = ctx._invocation, ctx.branch, ctx._position.inside
    history, prompts, live = invocation.history, invocation.program.prompts, invocation.live
    if inside is not None:
        memo, start = inside.transcripts, inside.start_seq
    else:
        memo, start = live.memo, history.prompt_seq
    if agent.include_contents == "none":
        start = max(start, history.message_seq)
    model = find_model(agent, ctx)
    sees_media = model is not None and model.capabilities.media_in_tool_results
    chooses = callable(agent.include_contents) or agent.transfer_input_filter is not None
    key = ("transcript", agent.name, branch, agent.include_contents, sees_media)
    transcript: Transcript | None = memo.get(key)
    if chooses or transcript is None or transcript.start_seq != start or transcript.prompts != prompts:
        outside = None if agent.include_contents == "none" else history.opening
        opening = outside if inside is None else inside.content
        transcript = Transcript(
            agent.name, start, branch, prompts=prompts, opening=opening, sees_media=sees_media
        )
        memo[key] = transcript
    found = live.events[live.index_of(transcript.next_seq) :]
    events = found if inside is None else inside.shown(found)
    if chooses:
        from ._chosen_contents import choose  # few agents choose

        return choose(agent, ctx, events, transcript)
    transcript.read(events)
    return transcript
