"""The agent whose logic is a model: it asks, runs the calls that the model makes, and asks again, until it is done."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

import attrs

from ..errors import ConfigurationError, ModelError, NotSupportedError
from ..events import Event
from ..flows._instructions import fill_in
from ..flows._transcript import Transcript
from ..flows._turn import Input, Turn, input_of, step
from ..models import BaseLlm, LlmRequest, LlmResponse
from ..runtime import InvocationContext, ReadonlyContext, StreamingMode
from ..sessions._service import CALL_ID
from ..tools import BaseTool, FunctionTool
from ..tools._batch import run_calls
from ..types import Content, GenerateContentConfig, Part, changed
from ._base import BaseAgent

__all__ = ["LlmAgent"]

Instruction: TypeAlias = str | Callable[[ReadonlyContext], str | Awaitable[str]]


def _checked_model(instance: object, attribute: attrs.Attribute[Any], model: object) -> None:
    if not isinstance(model, BaseLlm):
        msg = f"expected a model object (a BaseLlm), found {model!r:.80}; names of models are not supported yet"
        raise ConfigurationError(msg)


def _checked_instruction(instance: object, attribute: attrs.Attribute[Any], instruction: object) -> None:
    if not (isinstance(instruction, str) or callable(instruction)):
        msg = f"expected an instruction that is a string or a function of the context, found {instruction!r:.80}"
        raise ConfigurationError(msg)


def _tools(value: Sequence[BaseTool | Callable[..., Any]]) -> tuple[BaseTool, ...]:
    tools = tuple(tool if isinstance(tool, BaseTool) else FunctionTool(tool) for tool in value)
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"expected tools with different names, found two named {twice!r}; use FunctionTool(f, name=...)"
        raise ConfigurationError(msg)
    return tools


class LlmAgent(BaseAgent):
    """
    An agent that lets a model decide what to say and which tools to call.

    Args:
        model: The model.
        instruction: What the model is told before the conversation: a text in which `{key}` and `{key?}` stand for
            values of the state, or a function (sync or async) of a ReadonlyContext, whose text is taken as it is.
        tools: Functions and tools that the model may call.
        output_key: The state key that gets the text of the agent's final answer.
    """

    model: BaseLlm = attrs.field(validator=_checked_model)
    instruction: Instruction = attrs.field(default="", validator=_checked_instruction)
    tools: Sequence[BaseTool | Callable[..., Any]] = attrs.field(default=(), converter=_tools)
    output_key: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.sub_agents:
            msg = "LlmAgent(sub_agents=...) has no effect in this version of minirun (no transfers); leave it out"
            raise NotSupportedError(msg)

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        tools = {tool.name: tool for tool in self.tools if isinstance(tool, BaseTool)}
        turn, event = Turn.ASKING, Event()
        while turn is not Turn.DONE:
            if ctx.end_invocation:
                turn = step(turn, Input.END)
                continue
            if turn is Turn.ASKING:
                event = await self._ask(ctx, tools)
            else:
                event = await run_calls(ctx, event.get_function_calls(), tools)
            turn = step(turn, input_of(event))

    async def _ask(self, ctx: InvocationContext, tools: Mapping[str, BaseTool]) -> Event:
        """Ask the model and emit its answer; fragments first, under the same event id, where they are wanted."""
        core = ctx._core
        request = LlmRequest(
            contents=_transcript(ctx).contents(),
            config=GenerateContentConfig(
                system_instruction=await self._instruction(ctx) or None,
                tools=[tool.declaration for tool in tools.values()],
            ),
            model=self.model.name,
        )
        core.count_llm_call()
        await core.env.point(f"model {ctx._path}")
        event_id = core.next_id(ctx._path)
        stream = core.run_config.streaming_mode is StreamingMode.SSE
        answer: LlmResponse | None = None
        async with aclosing(self.model.generate_content_async(request, stream)) as responses:
            async for response in responses:
                if not isinstance(response, LlmResponse):
                    msg = f"expected the model {self.model.name!r} to yield LlmResponse, found {response!r:.80}"
                    raise ModelError(msg)
                if not response.partial:
                    answer = response
                    break
                if stream:
                    await ctx.emit(_event(response, event_id, partial=True))
        if answer is None:
            msg = f"the model {self.model.name!r} ended its stream without a complete response; the answer is cut off"
            raise ModelError(msg)
        return await ctx.emit(self._final_event(ctx, answer, event_id))

    def _final_event(self, ctx: InvocationContext, answer: LlmResponse, event_id: str) -> Event:
        event = _event(answer, event_id, partial=None)
        core = ctx._core
        event = changed(event, content=_with_new_call_ids(event.content, core.live.call_ids | core.call_ids))
        core.call_ids.update(call.id for call in event.get_function_calls() if call.id is not None)
        if self.output_key is not None and event.text and input_of(event) is Input.TEXT:
            return attrs.evolve(event, actions=attrs.evolve(event.actions, state_delta={self.output_key: event.text}))
        return event

    async def _instruction(self, ctx: InvocationContext) -> str:
        if isinstance(self.instruction, str):
            return fill_in(self.instruction, ctx.state)
        text = self.instruction(ctx._readonly())
        text = await text if inspect.isawaitable(text) else text
        if not isinstance(text, str):
            msg = f"expected the instruction function of {self.name!r} to return a string, found {text!r:.80}"
            raise TypeError(msg)
        return text


def _transcript(ctx: InvocationContext) -> Transcript:
    """The transcript of what this run sees, brought up to date. It lives as long as the live session."""
    core = ctx._core
    live = core.live
    place = ("transcript", ctx.agent_name, ctx.branch)
    transcript = live.memo.get(place)
    if transcript is None or transcript.start_seq != core.start_seq:
        transcript = live.memo[place] = Transcript(ctx.agent_name, core.start_seq, ctx.branch)
    transcript.read(live.events[live.index_of(transcript.next_seq) :])
    return transcript


def _event(response: LlmResponse, event_id: str, *, partial: bool | None) -> Event:
    content = response.content
    if content is not None and content.role != "model":
        content = changed(content, role="model")
    return Event(
        id=event_id,
        content=content,
        partial=partial,
        turn_complete=response.turn_complete,
        finish_reason=response.finish_reason,
        error_code=response.error_code,
        error_message=response.error_message,
        interrupted=response.interrupted,
        usage_metadata=response.usage_metadata,
        custom_metadata=response.custom_metadata,
    )


def _with_new_call_ids(content: Content | None, known: set[str | None]) -> Content | None:
    """Take away the ids of calls that are malformed or were used before; they get new ones when they are emitted."""
    if content is None or all(part.function_call is None for part in content.parts):
        return content
    parts: list[Part] = []
    seen: set[str] = set()
    for part in content.parts:
        call = part.function_call
        if call is not None and call.id is not None:
            if not CALL_ID.fullmatch(call.id) or call.id in known or call.id in seen:
                part = changed(part, function_call=changed(call, id=None))
            seen.add(call.id)
        parts.append(part)
    return changed(content, parts=tuple(parts))
