"""The agent whose logic is a model: it asks, runs the calls that the model makes, and asks again, until it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

import attrs

from .._json import brief, freeze, is_count
from .._values import MAKE, changed
from ..errors import ConfigurationError, FatalError, InvalidValueError, ModelError, NotSupportedError
from ..events import Event, EventActions, Replay
from ..flows._turn import Input, Turn, input_of, step
from ..models import BaseLlm, LlmResponse
from ..runtime import InvocationContext, StreamingMode, ToolContext
from ..runtime._hooks import Hook
from ..sessions._key import CALL_ID
from ..sessions._state import check_key
from ..tools import BaseTool
from ..tools._batch import run_calls
from ..types import Content, FunctionCall, GenerateContentConfig, Part
from ._base import SET_MODEL_RESPONSE, TRANSFER_TO_AGENT, BaseAgent, Hooks, hooks_field, refusing
from ._request import ConfigMemo, Instruction, ModelRequest, prepare, toolbox

if TYPE_CHECKING:
    from ..flows._output import OutputSchema
    from ..tools import BaseToolset
    from ._output import OutputRetries

__all__ = ["LlmAgent"]

NO_CONTENT = "MODEL_RETURNED_NO_CONTENT"
INVALID_OUTPUT = "INVALID_OUTPUT"
"""The `error_code` of a model's event that says nothing, and of one that has not the form of the `output_schema`."""

# Fields of the ADK documents that do not work here.
_NOT_SUPPORTED = frozenset({"code_executor", "mode", "planner"})


# --- how fields are checked -------------------------------------------------------------------------------------------


def _is_model(model: object) -> bool:
    return model is None or isinstance(model, BaseLlm) or (isinstance(model, str) and model != "")


def _is_instruction(instruction: object) -> bool:
    return isinstance(instruction, str) or callable(instruction)


def _static(value: str | Content | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Content) and value.parts and all(part.text is not None for part in value.parts):
        return "\n\n".join(part.text for part in value.parts if part.text)
    raise ConfigurationError(f"expected static_instruction to be a text or a Content of texts, found {brief(value)}")


def _tools(value: Sequence[BaseTool | BaseToolset | Callable[..., Any]]) -> tuple[BaseTool | BaseToolset, ...]:
    if not isinstance(value, Iterable):
        raise ConfigurationError(f"expected tools to be a list, found {brief(value)}; write tools=[...]")
    tools = tuple(tool if isinstance(tool, BaseTool) else _as_tool(tool) for tool in value)
    names = [tool.name for tool in tools if isinstance(tool, BaseTool)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        msg = f"expected tools with different names, found two named {twice!r}; use FunctionTool(f, name=...)"
        raise ConfigurationError(msg)
    for name in names:
        if name in (SET_MODEL_RESPONSE, TRANSFER_TO_AGENT):
            msg = f"expected tools with names of their own, found {name!r}, which minirun adds itself; rename it"
            raise ConfigurationError(msg)
    return tools


def _as_tool(value: Any) -> BaseTool | BaseToolset:
    if not isinstance(value, FunctionType):
        from ..tools._toolset import BaseToolset  # few agents have one

        if isinstance(value, BaseToolset):
            return value
        if isinstance(value, type) and issubclass(value, (BaseTool, BaseToolset)):
            name = value.__name__
            raise ConfigurationError(f"expected tools, found the class {name}; make one: {name}(...)")
        if isinstance(value, BaseAgent):
            found = f"found the agent {value.name!r}; write AgentTool({value.name}), or put it in sub_agents"
            raise ConfigurationError(f"expected tools, {found}")
    from ..tools._function import FunctionTool  # what it needs to read signatures is much

    return FunctionTool(value)


def _checked_config(instance: Any, attribute: Any, config: object) -> None:
    if config is None:
        return
    if not isinstance(config, GenerateContentConfig):
        msg = f"expected generate_content_config to be a GenerateContentConfig, found {brief(config)}"
        raise ConfigurationError(msg)
    elsewhere = {"tools": "tools", "system_instruction": "instruction", "response_schema": "output_schema"}
    for field, argument in elsewhere.items():
        if getattr(config, field):
            msg = f"generate_content_config.{field} would be replaced; write LlmAgent({argument}=...) instead"
            raise ConfigurationError(msg)


def _checked_schema(instance: Any, attribute: Any, schema: object) -> None:
    if schema is None:
        return
    from ..flows._output import OutputSchema  # few agents have a schema

    OutputSchema.of(schema, attribute.name)
    config = instance.generate_content_config
    if attribute.name == "output_schema" and isinstance(config, GenerateContentConfig) and config.response_mime_type:
        msg = "generate_content_config.response_mime_type would be replaced by that of output_schema; leave one out"
        raise ConfigurationError(msg)


def _checked_key(instance: Any, attribute: Any, key: object) -> None:
    if key is None:
        return
    try:
        check_key(key, "output_key")
    except InvalidValueError as error:
        raise ConfigurationError(str(error)) from None
    if not str(key).strip():
        raise ConfigurationError(f"expected output_key to be the key of a state, or None, found {key!r}")


_NOTHING = Event()  # what an agent has said before it says something


# --- the agent --------------------------------------------------------------------------------------------------------


class LlmAgent(BaseAgent):
    """
    An agent that lets a model decide what to say, which tools to call, and who else should take over.

    Args:
        model: The model, or the name under which it is registered (`LLMRegistry`). None: that of the nearest LlmAgent
            above it in the tree.
        instruction: What the model is told before the conversation: a text in which `{key}` and `{key?}` stand for
            values of the state, or a function (sync or async) of a ReadonlyContext, whose text is taken as it is.
        global_instruction: The same for all agents of the tree; only the root's counts.
        static_instruction: A text that is the same in every request and taken as it is, so that providers can cache
            it. The *instruction* then stands in the conversation, before the user's last words.
        tools: Functions, tools and toolsets that the model may call.
        generate_content_config: How the model is to answer: temperature, number of tokens and so on.
        disallow_transfer_to_parent: It does not hand over to the agent above it, nor keeps control for the user's next
            message.
        disallow_transfer_to_peers: It does not hand over to the agents beside it.
        include_contents: `"none"` shows the model this invocation only: the user's message and what came of it.
        input_schema: What another agent gives it that has it as a tool: as *output_schema*.
        output_schema: The form of its final answer: an attrs class, a dataclass, a TypedDict, a list of such, or a JSON
            schema. Every answer of the model is checked; the checked value is the event's `output`. What else may stand
            in the place of an answer is not refused, but has an `output` only if it has the form, or none at all: what
            a callback says for the agent, and the result of a tool with `skip_summarization`.
        output_retries: How often a model whose answer has another form is asked again before the run fails with
            OutputSchemaError.
        output_key: The state key that gets the final answer: its text or, with *output_schema*, its value.
        before_model_callback: Called with `callback_context` and `llm_request`, an LlmRequestDraft to change. An
            LlmResponse that it returns counts as the model's.
        after_model_callback: Called with `callback_context` and `llm_response`, for fragments, too. An LlmResponse that
            it returns takes its place; what it leaves out of `usage_metadata`, `finish_reason` and `turn_complete`
            stays.
        on_model_error_callback: Called with `callback_context`, `llm_request` and `error` when the model fails. An
            LlmResponse that it returns counts as the model's; else the run fails.
        before_tool_callback: Called with `tool`, `args` (a dict to change) and `tool_context`. A value other than None
            is the result, and the tool does not run.
        after_tool_callback: Called with `tool`, `args`, `tool_context` and `tool_response`. A value other than None
            takes the place of the result.
        on_tool_error_callback: Called with `tool`, `args`, `tool_context` and `error` when a tool fails. A value other
            than None is the result; else the model is told of the error.

    Each callback is a function, sync or async, or a list of them; the first that returns something has answered. One
    that raises fails the run.
    """

    model: BaseLlm | str | None = attrs.field(
        default=None,
        validator=refusing("a model object (a BaseLlm), the name of a registered one, or None", _is_model),
    )
    instruction: Instruction = attrs.field(
        default="", validator=refusing("instruction to be a string or a function of the context", _is_instruction)
    )
    global_instruction: Instruction = attrs.field(
        default="",
        validator=refusing("global_instruction to be a string or a function of the context", _is_instruction),
    )
    static_instruction: str | Content | None = attrs.field(default=None, converter=_static)
    tools: Sequence[BaseTool | BaseToolset | Callable[..., Any]] = attrs.field(default=(), converter=_tools)
    generate_content_config: GenerateContentConfig | None = attrs.field(default=None, validator=_checked_config)
    disallow_transfer_to_parent: bool = attrs.field(default=False, validator=attrs.validators.instance_of(bool))
    disallow_transfer_to_peers: bool = attrs.field(default=False, validator=attrs.validators.instance_of(bool))
    include_contents: Literal["default", "none"] = attrs.field(
        default="default", validator=refusing("include_contents 'default' or 'none'", ("default", "none").__contains__)
    )
    input_schema: Any = attrs.field(default=None, validator=_checked_schema)
    output_schema: Any = attrs.field(default=None, validator=_checked_schema)
    output_retries: int = attrs.field(
        default=2, validator=refusing("output_retries to be an integer from 0 up", is_count)
    )
    output_key: str | None = attrs.field(default=None, validator=_checked_key)
    before_model_callback: Hooks = hooks_field("before_model_callback", "callback_context", "llm_request")
    after_model_callback: Hooks = hooks_field("after_model_callback", "callback_context", "llm_response")
    on_model_error_callback: Hooks = hooks_field(
        "on_model_error_callback", "callback_context", "llm_request", "error"
    )
    before_tool_callback: Hooks = hooks_field("before_tool_callback", "tool", "args", "tool_context")
    after_tool_callback: Hooks = hooks_field("after_tool_callback", "tool", "args", "tool_context", "tool_response")
    on_tool_error_callback: Hooks = hooks_field("on_tool_error_callback", "tool", "args", "tool_context", "error")

    def __new__(cls, *args: Any, **fields: Any) -> LlmAgent:
        for name in _NOT_SUPPORTED & fields.keys() - attrs.fields_dict(cls).keys():  # type: ignore[arg-type]  # mypy does not see that it is an attrs class
            raise NotSupportedError(f"LlmAgent({name}=...) has no effect in this version of minirun; leave it out")
        return super().__new__(cls)

    @cached_property
    def _output(self) -> OutputSchema | None:
        if self.output_schema is None:
            return None
        from ..flows._output import OutputSchema  # few agents have a schema

        return OutputSchema.of(self.output_schema, "output_schema")

    @cached_property
    def _config_memo(self) -> ConfigMemo:
        return ConfigMemo(self.generate_content_config)

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        turn, event = Turn.ASKING, _NOTHING
        tools: dict[str, BaseTool] | None = None  # of the last request; None if it was made before
        output: OutputRetries | None = None
        if self._output is not None:
            from ._output import OutputRetries  # few agents have a schema

            output = OutputRetries(self.name, self._output, self.output_retries, ctx._invocation.program.prompts)
        while turn is not Turn.DONE:
            if ctx.end_invocation:
                what = Input.END
            elif turn is Turn.ASKING:
                event_id = ctx._following_id(ctx._path)
                recorded = await self._recorded_answer(ctx, event_id)
                if recorded is not None:
                    event, problems, tools = *recorded, None
                else:
                    request = await prepare(self, ctx, event_id)
                    answer = await self._answer(ctx, request)
                    if answer is None:
                        continue  # a callback has ended the invocation
                    event, problems = await self._emit_answer(ctx, request, answer)
                    tools = request.tools
                what, again = input_of(event), event.actions.replay.again
                if output is not None and problems:
                    again = output.refuse(problems)
                if again is not None:
                    what = Input.INVALID
                    await ctx.emit(Event(content=Content(role="user", parts=[Part(text=again)])))
            else:
                event = await self._run_calls(ctx, event.get_function_calls(), tools)
                what = Input.FINAL if ctx._position.handover.transfer_to is not None else input_of(event)
                final = None if output is None else output.answer_in(event, tools)
                if final is not None:
                    said = Content(role="model", parts=[Part(text=final.text)])
                    await ctx.emit(self._with_output(Event(content=said), final.value))
                    what = Input.FINAL
            turn = step(turn, what)

    # --- what is recorded, if the invocation is resumed

    async def _recorded_answer(self, ctx: InvocationContext, event_id: str) -> tuple[Event, list[str]] | None:
        replayer, budgets = ctx._invocation.replayer, ctx._invocation.budgets
        recorded = None if replayer is None else replayer.record.find(event_id)
        if replayer is None or recorded is None:
            return None
        if recorded.actions.replay.asked is not False:
            budgets.count_llm_call()
            budgets.count_tokens(recorded.usage_metadata)
        event = await replayer.repeat(ctx, recorded, {})
        return event, [event.error_message or ""] if event.error_code == INVALID_OUTPUT else []

    async def _run_calls(
        self, ctx: InvocationContext, calls: Sequence[FunctionCall], tools: dict[str, BaseTool] | None
    ) -> Event:
        """Make the calls that have no response yet; return the event with the last responses."""
        replayer = ctx._invocation.replayer
        if replayer is not None:
            event, calls = await replayer.repeat_responses(ctx, calls)
            if event is not None and not calls:
                return event
            await replayer.leave_replay(ctx, "calls of tools", calls)
        return await run_calls(ctx, calls, (await toolbox(self, ctx)).tools if tools is None else tools)

    # --- asking

    async def _answer(self, ctx: InvocationContext, request: ModelRequest) -> LlmResponse | None:
        """The model's complete answer, or that of a callback; None if a callback has ended the invocation."""
        invocation, model = ctx._invocation, request.model
        before, after = self._hooks(ctx, "before_model_callback"), self._hooks(ctx, "after_model_callback")
        context: ToolContext | None = None  # few agents have somebody who needs it
        if before or after or request.shapers:
            context = ctx._for_model_hooks(request.event_id)
        if context is not None and (before or request.shapers):
            from ._model_callbacks import before_model  # few agents change their requests

            answer = await before_model(before, context, request)
            if answer is not None or ctx.end_invocation:
                return answer
        invocation.budgets.count_llm_call()
        await invocation.env.point(f"model {ctx._path}")
        stream = invocation.run_config.streaming_mode is StreamingMode.SSE
        async with aclosing(model.generate_content_async(request.llm_request, stream)) as responses:
            while True:
                try:
                    response = _checked_response(await anext(responses, None), model)
                except FatalError:
                    raise
                except Exception as error:
                    from ._model_callbacks import on_model_error  # few models fail

                    context = ctx._for_model_hooks(request.event_id)
                    return await on_model_error(self._hooks(ctx, "on_model_error_callback"), context, request, error)
                if not response.partial:
                    invocation.budgets.count_tokens(response.usage_metadata)
                if context is not None and after:
                    from ._model_callbacks import after_model  # few agents have any

                    response = await after_model(after, context, response)
                if not response.partial:
                    return response
                if stream:
                    await ctx.emit(_event(ctx, response, request.event_id, partial=True))

    def _hooks(self, ctx: InvocationContext, name: str) -> Sequence[Hook]:
        plugins, own = ctx._invocation.program.plugins.get(name), getattr(self, name)
        return [*plugins, *own] if plugins else own

    # --- what it says

    async def _emit_answer(
        self, ctx: InvocationContext, request: ModelRequest, answer: LlmResponse
    ) -> tuple[Event, list[str]]:
        """Emit what the model has said; return it with what is wrong with its form."""
        event = _event(ctx, answer, request.event_id, partial=None)
        if answer.ask_again is not None:
            from ._model_callbacks import not_taken  # few answers are refused by a hook

            return await ctx.emit(not_taken(event, answer.ask_again)), []
        if not request.is_asked:
            event = changed(event, actions=EventActions(replay=Replay(asked=False)))
        invocation = ctx._invocation
        content = _with_new_call_ids(event.content, invocation.has_call)
        if content is not event.content:
            event = changed(event, content=content)
        for call in event.get_function_calls():
            if call.id is not None:
                invocation.ids.call_ids.add(call.id)
        problems: list[str] = []
        if not event.error_code and is_empty(event.content):
            message = f"the model {request.model.name!r} has said nothing"
            event = changed(event, error_code=NO_CONTENT, error_message=message)
        elif input_of(event) is Input.TEXT and not event.error_code:
            event, problems = self._with_checked_output(event)
        return await ctx.emit(event), problems

    def _with_checked_output(self, event: Event) -> tuple[Event, list[str]]:
        if self._output is None:
            return self._with_output(event, event.text), []
        outcome = self._output.parse_text(event.text)
        if outcome.problems:
            message = "; ".join(outcome.problems)
            return changed(event, error_code=INVALID_OUTPUT, error_message=message), list(outcome.problems)
        return self._with_output(event, outcome.value), []

    def _with_output(self, event: Event, value: Any) -> Event:
        """Put the final answer where the agent's fields want it."""
        if self._output is not None:
            event = changed(event, output=freeze(value, "output"))
        if self.output_key is not None and (self._output is not None or value):
            delta = freeze({self.output_key: value}, "state_delta")
            event = changed(event, actions=changed(event.actions, state_delta=delta))
        return event

    def _event_of(self, content: Content) -> Event:
        event = super()._event_of(content)
        checked, problems = self._with_checked_output(event)
        return event if problems else checked


def _checked_response(response: object, model: BaseLlm) -> LlmResponse:
    """What the model has yielded; None if it is through."""
    if isinstance(response, LlmResponse):
        return response
    if response is None:
        msg = f"the model {model.name!r} ended its stream without a complete response; the answer is cut off"
        raise ModelError(msg)
    raise ModelError(f"expected the model {model.name!r} to yield LlmResponse, found {brief(response)}")


def is_empty(content: Content | None) -> bool:
    """Whether there is nothing in it that anybody could use."""
    parts = content.parts if content is not None else ()
    return all(not part.text or part.thought for part in parts if part.text is not None) and all(
        part.text is not None for part in parts
    )


def _event(ctx: InvocationContext, response: LlmResponse, event_id: str, *, partial: bool | None) -> Event:
    """The event that says *response*, complete already. Its fields were checked when the response was made."""
    content = response.content
    if content is not None and content.role != "model":
        content = changed(content, role="model")
    event: Event = MAKE[Event](
        id=event_id,
        invocation_id=ctx.invocation_id,
        author=ctx.agent_name,
        branch=ctx.branch,
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
    return event


def _with_new_call_ids(content: Content | None, is_known: Callable[[str], bool]) -> Content | None:
    """Take away the ids of calls that are malformed or were used before; they get new ones when they are emitted."""
    parts: list[Part] = []
    seen: set[str] = set()
    is_changed = False
    for part in content.parts if content is not None else ():
        call = part.function_call
        if call is not None and call.id is not None:
            if not CALL_ID.fullmatch(call.id) or call.id in seen or is_known(call.id):
                part, is_changed = changed(part, function_call=changed(call, id=None)), True
            seen.add(call.id)
        parts.append(part)
    return changed(content, parts=tuple(parts)) if content is not None and is_changed else content
