"""
Nodes: functions, joins, agents and tools, each with how it is run.

A node is a value, like an agent: running it changes nothing. What runs it (`_node_run`) makes the context, repeats what
has failed and stores the end; a node does one attempt, and returns the event that the run is to end with.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from .._fields import setting
from .._json import brief, freeze, is_count, is_seconds, thaw
from .._values import changed
from .._workflow_errors import NodeRejectedError, WorkflowError
from ..agents import BaseAgent
from ..agents._base import _AgentFields, _is_name
from ..agents._generator import emit_from
from ..errors import ConfigurationError
from ..events import Event
from ..runtime import InvocationContext
from ..runtime._questions import ask_for_input
from ..tools import BaseTool, BaseToolset, RetryConfig
from ..types import Content
from ._binding import Binding
from ._collected import Collected
from ._request_input import RequestInput
from ._scope import NodeScope

if TYPE_CHECKING:
    from ..runtime._hooks import PluginHooks

__all__ = ["IS_RETRY", "IS_TIMEOUT", "FunctionNode", "JoinNode", "Node", "NodeLike", "aliased", "is_limit"]

_END = object()
_NOTHING = Event()


def _is_time(value: object) -> bool:
    """Whether *value* can be a limit of time: None, or seconds above 0."""
    return value is None or is_seconds(value, above=0)


def is_limit(value: object) -> bool:
    """Whether *value* can be a limit of a number: None, or an integer from 1 up."""
    return value is None or is_count(value, 1)


def aliased(instance: Any) -> None:
    """Read ADK's names of the fields for attempts: `retry_config` is `retry`, `timeout` is `timeout_s`."""
    for adk, name in (("retry_config", "retry"), ("timeout", "timeout_s")):
        given = getattr(instance, adk)
        if given is None:
            continue
        if getattr(instance, name) not in (None, given):
            raise ConfigurationError(f"expected {name} or {adk}, which is the same, found both; leave {adk} out")
        object.__setattr__(instance, name, given)


IS_RETRY = setting("a RetryConfig or None", lambda value: value is None or isinstance(value, RetryConfig))
IS_TIMEOUT = setting("seconds above 0, or None", _is_time)
_flag = setting("True or False", lambda value: isinstance(value, bool))
_text = setting("a string", lambda value: isinstance(value, str))


class Node(_AgentFields):
    """
    A node of a workflow. Subclass it, with annotated fields as for an agent, and override `run_node_impl`:

        class Fetch(Node):
            url: str

            async def run_node_impl(self, *, ctx, node_input):
                return await fetch(self.url, node_input)

    Args:
        name: An identifier, unique in its workflow.
        description: What it does, for people.
        retry: How often a failed attempt is made again, and when. The delays are in the log: a process that dies counts
            on. A delay of more than a minute pauses the invocation (see `Runner.supervise`). What a failed attempt
            has emitted and its steps stay; what it has written and not emitted is gone.
        timeout_s: How long one attempt may take, in seconds: then it is cancelled and has failed with NodeTimeoutError.
        require_confirmation: Somebody has to allow each run first, by `run.pending`; else it fails with
            NodeRejectedError.
        parallel_worker: Its input is a list, and it is run for each item, side by side; the output is the list of the
            outputs, in the order of the items. What is no list is one item. *retry* and *timeout_s* are those of items.
        max_parallel_workers: How many of them at once; None for no limit of its own.
        rerun_on_resume: For ported programs. A node that was cut off is always run again from its start, what it has
            done so far taken from the log. False says that a question ends the node, as a RequestInput does that is
            yielded or returned: `ctx.request_input` and `ctx.request_credential` raise ConfigurationError there, and a
            timer is waited for as ever. Only functions can have it.
    """

    name: str = attrs.field(validator=setting("an identifier that is not 'user'", _is_name))
    description: str = attrs.field(default="", validator=_text)
    retry: RetryConfig | None = attrs.field(default=None, validator=IS_RETRY)
    timeout_s: float | None = attrs.field(default=None, validator=IS_TIMEOUT)
    require_confirmation: bool = attrs.field(default=False, validator=_flag)
    parallel_worker: bool = attrs.field(default=False, validator=_flag)
    max_parallel_workers: int | None = attrs.field(
        default=None, validator=setting("an integer from 1 up, or None", is_limit)
    )
    rerun_on_resume: bool = attrs.field(default=True, validator=_flag)
    retry_config: RetryConfig | None = attrs.field(default=None, validator=IS_RETRY)
    timeout: float | None = attrs.field(default=None, validator=IS_TIMEOUT)

    def __attrs_post_init__(self) -> None:
        aliased(self)
        kind = type(self)
        if (kind.run_node_impl, kind._logic, kind._once) == (Node.run_node_impl, Node._logic, Node._once):
            msg = f"node {self.name!r}: {kind.__name__} has no logic"
            raise ConfigurationError(f"{msg}; override `run_node_impl` in a subclass")
        if self.max_parallel_workers is not None and not self.parallel_worker:
            raise ConfigurationError(f"node {self.name!r}: max_parallel_workers has no effect without parallel_worker")
        if not self.rerun_on_resume and not self._ends_with_questions:
            msg = f"node {self.name!r}: rerun_on_resume=False has no effect on a {type(self).__name__}"
            raise ConfigurationError(f"{msg}, which goes on after each question; leave it out")

    def run_node_impl(self, *, ctx: InvocationContext, node_input: Any) -> Any:
        """
        The node's logic; override it as `async def`, or as an async generator.

        What it returns, or yields and is no event, is its output; see `FunctionNode`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no logic: override `async def run_node_impl`")

    # --- for the runner

    _ends_with_questions = True  # whether its logic may yield or return a RequestInput

    @property
    def attempt_marker(self) -> str:
        """What stands in the path of what it runs, before the number of a later attempt: see `flows._record`."""
        return "*"

    def agent_that_ends(self, plugins: PluginHooks) -> BaseAgent | None:
        """The agent whose last answer may be the end of the run, as nothing can follow it."""
        return None

    @property
    def limits(self) -> tuple[RetryConfig | None, float | None]:
        """The attempts and the time that a run has; one for many items has none, each of them has."""
        return (None, None) if self.parallel_worker else (self.retry, self.timeout_s)

    async def _run(self, context: InvocationContext, scope: NodeScope) -> Event:
        """Make one attempt; return what the run is to end with: an event that is not stored yet."""
        if self.require_confirmation:
            await self._ask_first(context, scope)
        if self.parallel_worker:
            items = scope.input if isinstance(scope.input, (list, tuple)) else [scope.input]
            return Event(output=await context.map(self._single, items, max_concurrency=self.max_parallel_workers))
        return await self._once(context, scope)

    async def _once(self, context: InvocationContext, scope: NodeScope) -> Event:
        binding = self._binding
        call = partial(self._logic, **binding.arguments(context, scope.input, context.state))
        collected = scope.collected = Collected(binding)
        result = await _in_thread(context, call) if binding.kind == "sync" else call()
        await self._collect(context, collected, result)
        return _last(collected)

    @property
    def _logic(self) -> Callable[..., Any]:
        return self.run_node_impl

    @cached_property
    def _binding(self) -> Binding:
        return Binding.of(self._logic, name=self.name)

    @cached_property
    def _single(self) -> Node:
        """The same, for one item."""
        single: Node = self._changed(parallel_worker=False, max_parallel_workers=None, require_confirmation=False)
        return single

    def _changed(self, **changes: Any) -> Any:
        kind: Any = type(self)
        fields = {field.name: getattr(self, field.name) for field in attrs.fields(kind)}
        return kind(**{**fields, "retry_config": None, "timeout": None, **changes})

    async def _ask_first(self, context: InvocationContext, scope: NodeScope) -> None:
        payload = scope.input if not isinstance(scope.input, Content) else scope.input.text
        allowed = await ask_for_input(context, f"May the node {self.name!r} run?", {"type": "boolean"}, payload)
        if not allowed:
            raise NodeRejectedError(f"the node {scope.info_path} was not allowed to run")

    async def _collect(self, context: InvocationContext, collected: Collected, result: Any) -> None:
        """Do what the logic says in its *result*, one thing after the other, and keep what it ends with."""

        async def take(item: Any) -> bool:
            """Returns whether that was the end."""
            for _, said in collected.add(item):
                if isinstance(said, RequestInput):
                    collected.add(await self._asked(context, said))
                    return True
                await context.emit(said)
            return False

        if isinstance(result, AsyncGenerator):
            await emit_from(f"node {self.name!r}", context, result, take)
        elif inspect.isgenerator(result):
            try:
                while (item := await _in_thread(context, partial(next, result, _END))) is not _END:
                    if await take(item):
                        break
            finally:
                result.close()
        else:
            await take(await result if isinstance(result, Awaitable) else result)

    async def _asked(self, context: InvocationContext, question: RequestInput) -> Any:
        message = question.message or f"The node {self.name!r} asks for input."
        schema, payload = question.response_schema, question.payload
        return await ask_for_input(context, message, schema, payload, question.interrupt_id)


def _last(collected: Collected) -> Event:
    """The event that the run is to end with."""
    event, route = _NOTHING if collected.event is None else collected.event, collected.route
    actions = event.actions
    if route is not None:
        actions = changed(actions, route=list(route) if isinstance(route, tuple) else route)
    return changed(event, actions=actions, output=collected.output)


async def _in_thread(context: InvocationContext, call: Callable[[], Any]) -> Any:
    return await context._invocation.in_thread(call, lambda late: None)


NodeLike: TypeAlias = Node | BaseAgent | BaseTool | BaseToolset | Callable[..., Any]
"""What can be a node, or becomes one."""


class FunctionNode(Node):
    """
    A function as a node: `FunctionNode(f)`, which is what a plain function in `edges` becomes.

    Its parameters are `ctx`, `node_input`, and keys of the state by their names; one of another name, if there is one,
    is the input. They are read by their annotations, as arguments of tools are. It is `async def`, or synchronous and
    then run in a worker thread; or a generator of either kind, which yields.

    What it returns or yields is, one by one: None, skipped; an Event without an output or a route, emitted; an Event
    with one, which is the end of the run, with the state and content in it; a RequestInput, a question whose answer is
    the output; anything else, the output. There is one output: JSON, or what its annotation writes as JSON.

    Args:
        func: The function.
        name: By default its own.
        parameter_binding: `"state"`, as above; `"node_input"`: the parameters are keys of the input, a dict.
        input_schema: What the input has to be: a class or a JSON schema, as `LlmAgent(output_schema=...)`.
        output_schema: What the output has to be.
    """

    func: Callable[..., Any]
    parameter_binding: Literal["state", "node_input"] = "state"
    input_schema: Any = None
    output_schema: Any = None

    def __init__(self, func: Callable[..., Any], name: str | None = None, **fields: Any) -> None:
        given: dict[str, Any] = {"func": func, **fields}
        super().__init__(name=_name_of(func) if name is None else name, **given)
        self._binding  # noqa: B018 # what cannot be a node is refused when it is made

    @cached_property
    def _binding(self) -> Binding:
        return Binding.of(
            self.func,
            name=self.name,
            parameter_binding=self.parameter_binding,
            input_schema=self.input_schema,
            output_schema=self.output_schema,
        )

    @property
    def _logic(self) -> Callable[..., Any]:
        return self.func

    def in_state(self, fields: Mapping[str, Any]) -> FunctionNode:
        """The same node in a workflow whose state has these fields, with what they may hold."""
        node: FunctionNode = self._changed()
        vars(node)["_binding"] = self._binding.with_state_fields(fields)
        return node


def _name_of(func: object) -> str:
    at: Any = func
    while isinstance(at, partial):
        at = at.func
    name = getattr(at, "__name__", None) or type(at).__name__
    if not name.isidentifier():
        raise ConfigurationError(f"expected a node to have a name, found {brief(func)}; write node(f, name='...')")
    return str(name)


class JoinNode(Node):
    """
    A node that waits for all of its predecessors that can still come, and gives `{name: output}`.

    The names stand in the order in which their edges are declared. A predecessor that is not chosen by a route, or
    cannot come for another reason, is left out; None stands only for one that has returned None.

    Args:
        require_all: Fail if one is left out, naming it: with WorkflowError, or by the FAILED route.
        reduce: `reduce(value, output)` is called for each output in that order; the first value is *initial*.
        initial: What *reduce* begins with.
    """

    require_all: bool = attrs.field(default=False, validator=_flag)
    reduce: Callable[[Any, Any], Any] | None = attrs.field(
        default=None, validator=setting("a function or None", lambda f: f is None or callable(f))
    )
    initial: Any = None

    _ends_with_questions = False

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.parallel_worker:
            raise ConfigurationError(f"join {self.name!r}: parallel_worker has no effect on a JoinNode; leave it out")
        if self.reduce is None and self.initial is not None:
            raise ConfigurationError(f"join {self.name!r}: initial has no effect without reduce")
        if inspect.iscoroutinefunction(self.reduce):
            msg = f"join {self.name!r}: expected reduce to be no `async def`"
            raise ConfigurationError(f"{msg}; await in a node behind the join")
        freeze(self.initial, f"initial of {self.name!r}")

    async def _once(self, context: InvocationContext, scope: NodeScope) -> Event:
        if self.require_all and scope.missing:
            names = ", ".join(map(repr, scope.missing))
            msg = f"the join {scope.info_path} requires all of its predecessors, and {names} can come no more"
            raise WorkflowError(msg)
        # of START there is what the user has said, of which an output has the text
        outputs = {name: each.text if isinstance(each, Content) else each for name, each in scope.input.items()}
        if self.reduce is None:
            return Event(output=freeze(outputs, f"output of {self.name!r}"))
        value = thaw(freeze(self.initial, f"initial of {self.name!r}"))
        for output in outputs.values():
            value = self.reduce(value, output)
        return Event(output=freeze(value, f"output of {self.name!r}"))
