"""The agent whose logic is a model: it asks, runs the calls that the model makes, and asks again, until it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from functools import cached_property, partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

import attrs

from .._fields import setting
from .._json import FrozenTuple, brief, is_count
from .._values import MAKE, changed
from ..errors import ConfigurationError, FatalError
from ..events import Event, EventActions, Replay
from ..flows._no_secrets import OF_RUN
from ..flows._turn import CUT_OFF, INVALID_OUTPUT, REFUSED_OUTPUT, Input, Turn, input_of, step
from ..models import BaseLlm, LlmResponse
from ..models._base import responses_of
from ..runtime import InvocationContext, StreamingMode, ToolContext
from ..runtime._hooks import Hook
from ..tools import BaseTool
from ..tools._batch import run_calls
from ..types import Content, GenerateContentConfig, Part
from ._base import SET_MODEL_RESPONSE, TRANSFER_TO_AGENT, BaseAgent, Hooks, hooks_field
from ._request import ConfigMemo, Instruction, ModelRequest, prepare, toolbox

if TYPE_CHECKING:
    from ..flows._output import OutputSchema
    from ..planners import BuiltInPlanner
    from ..tools import BaseToolset, RetryConfig
    from ._output import OutputRetries
    from ._partial_output import PartialOutput

__all__ = ["Agent", "LlmAgent"]

# --- how fields are checked -------------------------------------------------------------------------------------------


FLAG = setting("True or False", lambda value: isinstance(value, bool))
A_MODEL = "a model object (a BaseLlm), the name of a registered one, or None"


def is_model(model: object) -> bool:
    """Whether it is `A_MODEL`."""
    return model is None or isinstance(model, BaseLlm) or (isinstance(model, str) and model != "")


def _is_instruction(instruction: object) -> bool:
    return isinstance(instruction, str) or callable(instruction)


def _seldom(name: str, value: Any) -> Any:
    """A field that few agents have, converted by the function of this name."""
    if value is None or value == ():
        return value
    from . import _llm_fields

    return getattr(_llm_fields, name)(value)


def _tools(value: Sequence[BaseTool | BaseToolset | Callable[..., Any]]) -> tuple[BaseTool | BaseToolset, ...]:
    if not isinstance(value, Iterable):
        raise ConfigurationError(f"expected tools to be a list, found {brief(value)}; write tools=[...]")
    tools = FrozenTuple([tool if isinstance(tool, BaseTool) else _as_tool(tool) for tool in value])
    names = [tool.name for tool in tools if isinstance(tool, BaseTool)]
    if len({*names, SET_MODEL_RESPONSE, TRANSFER_TO_AGENT}) < len(names) + 2:
        from ._llm_fields import refuse_names

        refuse_names(names)
    return tools


def _as_tool(value: Any) -> BaseTool | BaseToolset:
    if not isinstance(value, FunctionType):
        from ._llm_fields import toolset_of  # most tools are functions

        toolset = toolset_of(value)
        if toolset is not None:
            return toolset
    from ..tools._function import FunctionTool  # what it needs to read signatures is much

    return FunctionTool(value)


def _checked(instance: Any, attribute: Any, value: object) -> None:
    if value is not attribute.default:
        from ._llm_fields import CHECKS  # few agents have such fields

        CHECKS[attribute.name](instance, attribute.name, value)


_NOTHING = Event()  # what an agent has said before it says something
AGAIN = LlmResponse()  # no answer: the model is to be asked the same again


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
        model_retry: How often a model whose provider has failed, before it said anything, is asked the same again, and
            when. `"standard"`: `RetryConfig(max_attempts=3)`; None: never. Retried is what may be gone in a moment:
            ModelRateLimitedError, ModelOverloadedError, ModelTimeoutError and
            ModelConnectionError, or the *exceptions* of the RetryConfig. All attempts are one question for
            `RunConfig.max_llm_calls`; a partial event with `custom_metadata["model_retry"]` tells of each failure.
        generate_content_config: How the model is to answer: temperature, number of tokens and so on.
        disallow_transfer_to_parent: It does not hand over to the agent above it, nor keeps control for the user's next
            message.
        disallow_transfer_to_peers: It does not hand over to the agents beside it.
        include_contents: `"none"` shows the model this invocation only: the user's message and what came of it. A
            function (not async) of a ReadonlyContext and the list of events that the model would be shown returns those
            that it is shown, changed as it likes: `minirun.flows` has `keep_last(n)` and `remove_all_tools`. It is
            asked for each request. A call whose response it leaves out is left out, too.
        transfer_input_filter: The same for what was before another agent handed over to this one.
        input_schema: What another agent gives it that has it as a tool, or hands over to it: as *output_schema*.
        output_schema: The form of its final answer: an attrs class, a dataclass, a TypedDict, a list of such, or a JSON
            schema. Every answer of the model is checked; the checked value is the event's `output`. What else may stand
            in the place of an answer is not refused, but has an `output` only if it has the form, or none at all: what
            a callback says for the agent, and the result of a tool with `skip_summarization`.
        output_validator: A function, sync or async, of the context and the final answer: with *output_schema* an
            instance of its type (of a JSON schema: the JSON), else the text. It returns what takes the answer's place,
            or None to leave it as it is; `raise ModelRetry("what is wrong")` has the model answer again. It is asked
            once for each answer of the model, never again when the invocation goes on later. What it writes to the
            state is stored with an answer that it has let pass. Any other exception fails the run.
        output_retries: How often a model whose answer has another form, or was refused by the *output_validator* or by
            a hook's `ask_again`, is asked again before the run fails with OutputSchemaError.
        input_guardrails: Functions of the context and the user's message, or agents, that check the message before the
            model sees it, in sequence: see `minirun.agents.Guardrail`.
        output_guardrails: The same for each complete response of the model with text, before it is shown or stored. The
            agent emits no partial events then.
        output_key: The state key that gets the final answer: its text or, with *output_schema*, its value.
        mode: How it works as a node of a workflow. `"single_turn"`, as None: it answers its input, and that is the
            output. `"task"`: it talks with the user until it has what the *output_schema* asks for, and calls
            `finish_task` with that. Elsewhere agents are in `"chat"` mode, as None.
        parallel_tool_calls: Whether the tools that one answer of the model calls run side by side. They begin in the
            order of their calls in any case, which says nothing of threads. False: each call is made when the one
            before it has been answered, as if all tools were `sequential` (see `BaseTool`).
        planner: `BuiltInPlanner(thinking_config=...)` sets the model's own thinking in all requests of the agent.
        before_model_callback: Called with `callback_context` and `llm_request`, an LlmRequestDraft to change. An
            LlmResponse that it returns counts as the model's.
        after_model_callback: Called with `callback_context` and `llm_response`, for fragments, too. An LlmResponse that
            it returns takes its place; what it leaves out of `usage_metadata`, `finish_reason`, `turn_complete` and
            `model_version` stays.
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

    model: BaseLlm | str | None = attrs.field(default=None, validator=setting(A_MODEL, is_model))
    instruction: Instruction = attrs.field(
        default="", validator=setting("a string or a function of the context", _is_instruction)
    )
    global_instruction: Instruction = attrs.field(
        default="",
        validator=setting("a string or a function of the context", _is_instruction),
    )
    static_instruction: str | Content | None = attrs.field(default=None, converter=partial(_seldom, "static_text"))
    tools: Sequence[BaseTool | BaseToolset | Callable[..., Any]] = attrs.field(default=(), converter=_tools)
    model_retry: RetryConfig | Literal["standard"] | None = attrs.field(default="standard", validator=_checked)
    generate_content_config: GenerateContentConfig | None = attrs.field(default=None, validator=_checked)
    disallow_transfer_to_parent: bool = attrs.field(default=False, validator=FLAG)
    disallow_transfer_to_peers: bool = attrs.field(default=False, validator=FLAG)
    include_contents: Literal["default", "none"] | Callable[..., Iterable[Event]] = attrs.field(
        default="default", validator=_checked
    )
    transfer_input_filter: Callable[..., Iterable[Event]] | None = attrs.field(default=None, validator=_checked)
    input_schema: Any = attrs.field(default=None, validator=_checked)
    output_schema: Any = attrs.field(default=None, validator=_checked)
    output_validator: Callable[..., Any] | None = attrs.field(default=None, validator=_checked)
    output_retries: int = attrs.field(default=2, validator=setting("an integer from 0 up", is_count))
    input_guardrails: Sequence[Any] = attrs.field(default=(), converter=partial(_seldom, "input_guardrails"))
    output_guardrails: Sequence[Any] = attrs.field(default=(), converter=partial(_seldom, "output_guardrails"))
    output_key: str | None = attrs.field(default=None, validator=_checked)
    mode: Literal["single_turn", "task", "chat"] | None = attrs.field(default=None, validator=_checked)
    parallel_tool_calls: bool = attrs.field(default=True, validator=FLAG)
    planner: BuiltInPlanner | None = attrs.field(default=None, validator=_checked)
    before_model_callback: Hooks = hooks_field("before_model_callback", "callback_context", "llm_request")
    after_model_callback: Hooks = hooks_field("after_model_callback", "callback_context", "llm_response")
    on_model_error_callback: Hooks = hooks_field("on_model_error_callback", "callback_context", "llm_request", "error")
    before_tool_callback: Hooks = hooks_field("before_tool_callback", "tool", "args", "tool_context")
    after_tool_callback: Hooks = hooks_field("after_tool_callback", "tool", "args", "tool_context", "tool_response")
    on_tool_error_callback: Hooks = hooks_field("on_tool_error_callback", "tool", "args", "tool_context", "error")

    @cached_property
    def _output(self) -> OutputSchema | None:
        if self.output_schema is None:
            return None
        from ..flows._output import OutputSchema  # few agents have a schema

        return OutputSchema.of(self.output_schema, "output_schema")

    @cached_property
    def _config_memo(self) -> ConfigMemo:
        config = self.generate_content_config
        if self.planner is not None:
            config = changed(config or GenerateContentConfig(), thinking_config=self.planner.thinking_config)
        return ConfigMemo(config)

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        turn, event = Turn.ASKING, _NOTHING
        tools: dict[str, BaseTool] | None = None  # of the last request; None if it was made before
        output: OutputRetries | None = None
        if self._output is not None:
            from ._output import OutputRetries  # few agents have a schema

            output = OutputRetries(self, ctx._invocation)
        while turn is not Turn.DONE:
            if ctx.end_invocation:
                what = Input.END
            elif turn is Turn.ASKING:
                event_id = ctx._following_id(ctx._path)
                recorded: Event | None = None
                if ctx._invocation.replayer is not None:
                    event_id, recorded = await ctx._invocation.replayer.repeat_answer(ctx, event_id)
                if recorded is not None:
                    is_refused = recorded.error_code in (INVALID_OUTPUT, REFUSED_OUTPUT)
                    problems = [recorded.error_message or ""] if is_refused else []
                    event, tools, answer = recorded, None, None
                else:
                    request = await prepare(self, ctx, event_id)
                    plugins = ctx._invocation.program.plugins
                    if self.input_guardrails or self.output_guardrails or "_guardrails" in plugins:
                        from ._guarded import guarded  # few agents have guardrails

                        answer = await guarded(self, ctx, request)
                    else:
                        answer = await self._answer(ctx, request)
                    if answer is None:
                        continue  # a callback has ended the invocation
                    event, problems = await self._emit_answer(ctx, request, answer)
                    tools = request.tools
                what = input_of(event)
                if problems or event.actions.replay.again is not None:
                    from ._output import OutputRetries  # few answers are not taken

                    output = output or OutputRetries(self, ctx._invocation)
                    what = Input.INVALID
                    told = Part(text=output.refuse(event, problems, answer))
                    await ctx.emit(Event(content=Content(role="user", parts=[told])))
            else:
                event = await self._run_calls(ctx, event, tools)
                what = Input.FINAL if ctx._position.handover.transfer_to is not None else input_of(event)
                final = None if output is None else output.final_in(event, tools)
                if final is not None:
                    await ctx.emit(final)
                    what = Input.FINAL
            turn = step(turn, what)

    async def _run_calls(self, ctx: InvocationContext, made: Event, tools: dict[str, BaseTool] | None) -> Event:
        """Make the calls of an event that have no response yet; return the event with the last responses."""
        calls, event = made.get_function_calls(), None
        if ctx._invocation.replayer is not None:
            from ._recorded import without_responses  # few runs resume an invocation

            event, calls = await without_responses(ctx, calls)
        if calls and tools is None:
            tools = (await toolbox(self, ctx)).tools
        if made.finish_reason == CUT_OFF:
            from ..tools._unreadable import cut_off  # few answers are cut off

            tools = cut_off(calls)
        if made.actions.replay.alone:
            from ..tools._sequence import run_in_order  # few turns have an order

            return await run_in_order(ctx, made, calls, tools or {})
        return event if event is not None and not calls else await run_calls(ctx, calls, tools or {})

    # --- asking

    async def _answer(self, ctx: InvocationContext, request: ModelRequest) -> LlmResponse | None:
        """The model's complete answer, or that of a callback; None if a callback has ended the invocation."""
        invocation = ctx._invocation
        before, after = self._hooks(ctx, "before_model_callback"), self._hooks(ctx, "after_model_callback")
        context: ToolContext | None = None  # few agents have somebody who needs it
        if before or after or request.shapers:
            context = ctx._for_model_hooks(request.event_id)
        if context is not None and (before or request.shapers):
            from ._model_callbacks import before_model  # few agents change their requests

            answer = await before_model(before, context, request)
            if answer is not None or ctx.end_invocation:
                return answer
        invocation.budgets.spend_llm_call()
        await invocation.env.point(f"model {ctx._path}")
        OF_RUN.set(invocation.secrets)
        attempt = 1
        while (answer := await self._attempt(ctx, request, attempt, context, after)) is AGAIN:
            attempt += 1
        return answer

    async def _attempt(
        self, ctx: InvocationContext, request: ModelRequest, attempt: int, context: ToolContext | None,
        after: Sequence[Hook],
    ) -> LlmResponse | None:  # fmt: skip
        """What the model answers, or a callback where it fails; AGAIN if it is to be asked the same again."""
        invocation, model, has_begun = ctx._invocation, request.model, False
        stream = invocation.run_config.streaming_mode is StreamingMode.SSE
        partial: PartialOutput | None = None
        if stream and self._output is not None:
            from ._partial_output import PartialOutput  # few agents have a schema

            partial = PartialOutput(self._output)
        async with aclosing(responses_of(model, request.llm_request, stream)) as responses:
            while True:
                try:
                    response = await anext(responses, None)
                    if not isinstance(response, LlmResponse):
                        from ..models._breaches import no_response  # a mistake in a program, or of its provider

                        raise no_response(model.name, response)
                except FatalError:
                    raise
                except Exception as error:
                    from ._model_callbacks import on_model_error  # few models fail
                    from ._model_retry import is_retried

                    if not has_begun and await is_retried(self, ctx, request.event_id, error, attempt):
                        return AGAIN
                    hooks = self._hooks(ctx, "on_model_error_callback")
                    return await on_model_error(hooks, ctx._for_model_hooks(request.event_id), request, error)
                has_begun = True
                if not response.partial:
                    invocation.budgets.add_usage(response.usage_metadata)
                if request.check is not None:
                    if response.partial:
                        continue  # guardrails check the complete response
                    response = await request.check(response)
                if context is not None and after:
                    from ._model_callbacks import after_model  # few agents have any

                    response = await after_model(after, context, response)
                if not response.partial:
                    return response
                if stream:
                    event = _event(ctx, response, request.event_id, partial=True)
                    await ctx.emit(event if partial is None else partial.with_value(event))

    def _hooks(self, ctx: InvocationContext, name: str) -> Sequence[Hook]:
        plugins, own = ctx._invocation.program.plugins.get(name), getattr(self, name)
        return [*plugins, *own] if plugins else own

    # --- what it says

    async def _emit_answer(
        self, ctx: InvocationContext, request: ModelRequest, answer: LlmResponse
    ) -> tuple[Event, list[str]]:
        """Emit what the model has said; return it with what is wrong with its form."""
        event = _event(ctx, answer, request.event_id, partial=None)
        if not request.is_asked or event.branch is not None:  # for the budgets, see `flows._budgets`
            event = changed(event, actions=EventActions(replay=Replay(asked=request.is_asked)))
        if event.error_code or answer.ask_again is not None:
            from ._model_callbacks import not_taken  # few answers fail, or are refused by a hook

            return await ctx.emit(not_taken(event, answer.ask_again)), []
        invocation = ctx._invocation
        made, tools = event.get_function_calls(), request.tools
        if any(call.id is not None for call in made):
            from ._call_ids import with_usable_ids  # scripted models give none

            assert event.content is not None
            content = with_usable_ids(event.content, invocation.has_call, invocation.ids.call_ids)
            event = changed(event, content=content)
        if made and (not self.parallel_tool_calls or any(_is_special(tools.get(call.name)) for call in made)):
            from ._turn_notes import with_notes  # few tools wait for somebody, or for each other

            event = with_notes(event, tools, parallel=self.parallel_tool_calls)
        problems: list[str] = []
        if is_empty(event.content):
            from ._model_callbacks import saying_nothing  # few answers are empty

            event = saying_nothing(event, request.model.name)
        elif input_of(event) is Input.TEXT:
            event, problems = self._with_checked_output(event)
            if self.output_validator is not None and not problems:
                from ._validators import validated  # few agents have one

                event, problems = await validated(self, ctx, event)
            node = ctx._position.node
            if node is not None and node.agent is self and not problems:
                event = node.with_mark(event)
                node.ended_by = await ctx.emit(event)
                return node.ended_by, []
        return await ctx.emit(event), problems

    def _with_checked_output(self, event: Event) -> tuple[Event, list[str]]:
        if self._output is None and self.output_key is None:
            return event, []
        from ._output import in_form  # few agents have a schema, or keep what they have said

        return in_form(self, event)

    def _event_of(self, content: Content) -> Event:
        event = super()._event_of(content)
        checked, problems = self._with_checked_output(event)
        return event if problems else checked


Agent = LlmAgent
"""ADK's short name."""


def _is_special(tool: BaseTool | None) -> bool:
    return tool is not None and (tool.is_long_running or tool.sequential)


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
        node_info=ctx._position.node_info,
        content=content,
        partial=partial,
        turn_complete=response.turn_complete,
        finish_reason=response.finish_reason,
        error_code=response.error_code,
        error_message=response.error_message,
        interrupted=response.interrupted,
        usage_metadata=response.usage_metadata,
        custom_metadata=response.custom_metadata,
        model_version=response.model_version,
        grounding_metadata=response.grounding_metadata,
        citation_metadata=response.citation_metadata,
    )
    return event
