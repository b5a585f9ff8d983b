"""What a tool is to minirun."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from .._arguments import refuse_unknown
from .._json import brief
from ..errors import ConfigurationError
from ..flows._prompts import Prompts
from ..runtime import CallbackContext, ToolContext
from ..types import FunctionDeclaration

if TYPE_CHECKING:
    from ..models import LlmRequestDraft
    from ._retry import RetryConfig

__all__ = ["BaseTool", "check_async", "check_name"]

OnInterrupted: TypeAlias = Literal["report", "rerun", "ask"]

# What the strictest providers accept as the name of a function.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@refuse_unknown
class BaseTool(ABC):
    """
    Something that a model can call.

    Args:
        name: What the model calls it: letters, digits, `_` and `-`, at most 64, not beginning with a digit.
        description: What the model is told about it.
        timeout_s: How long an attempt may take, in seconds. Then it is cancelled, and has failed with
            ToolTimeoutError; see `RunConfig.thread_grace_s` for what becomes of threads. None: no limit.
        retry: When a call that failed is made again. What the failed attempt wrote to `tool_context.state` and
            `tool_context.actions` is dropped; the `function_call_id` stays the same. None: never.
        retries: How often in a row the tool may `raise ModelRetry("what is wrong")`, which tells the model to try
            again, in an invocation; then the run fails with RetriesExceededError. None: no limit.
        max_concurrency: How many calls of this tool may run at once in one Runner, all its runs together; the others
            wait in line, and an attempt's time counts from its turn. A tool that leads to a call of itself, through an
            agent, may wait for itself, until the deadline of the run. None: no limit.
        on_interrupted: What becomes of a call whose process died before it had a response, when its invocation is
            resumed: `"report"` tells the model that nobody knows, `"rerun"` makes the call again, with the same
            `function_call_id`, `"ask"` asks a person, by `run.pending`, whether to. A new message reports in any
            case.
        require_confirmation: Whether somebody has to allow each call before it is made: True, or a function (sync or
            async) of the call's arguments by name, and of `tool_context` if it has one, that says so. Meanwhile the
            invocation is paused.
        sequential: Whether a call of this tool waits until all calls before it in the same answer of the model have
            been answered, and all calls after it wait for it. False: calls begin in their order and run side by side.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    checks_arguments: ClassVar[bool] = True
    """
    Whether what a model sends is checked against the parameters of the `declaration` before `run_async` is called.
    False is for a tool that does it itself, or has a schema with keywords that minirun does not know, and refuses.
    """

    _checks_patterns: ClassVar[bool] = True  # False: the schema comes from an untrusted document

    needs_service: ClassVar[str | None] = None
    """What a Runner has to be given for the tool, such as "memory_service"; else it cannot be made."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_unknown(cls)
        check_async(cls, "run_async", "needs_confirmation", "process_llm_request", "close")

    def __init__(
        self,
        *,
        name: str,
        description: str,
        timeout_s: float | None = None,
        retry: RetryConfig | None = None,
        retries: int | None = 2,
        max_concurrency: int | None = None,
        on_interrupted: OnInterrupted = "report",
        require_confirmation: bool | Callable[..., bool | Awaitable[bool]] = False,
        sequential: bool = False,
    ) -> None:
        check_name(name)

        options = (timeout_s, retry, retries, max_concurrency, on_interrupted, require_confirmation, sequential)
        if options != (None, None, 2, None, "report", False, False):
            from ._options import check_options  # few tools have any; so it is with what is imported below

            check_options(name, *options)
        self.name = name
        self.description = description
        self.on_interrupted = on_interrupted
        self.require_confirmation = require_confirmation
        self.timeout_s = timeout_s
        self.retry = retry
        self.retries = retries
        self.max_concurrency = max_concurrency
        self.sequential = sequential

    @property
    def limited_as(self) -> BaseTool:
        """The tool whose `max_concurrency` limits this one: itself, unless it is another one under a new name."""
        return self

    @property
    def declaration(self) -> FunctionDeclaration | None:
        """The tool as the model sees it; None if it is not for the model to call. To be overridden."""
        return self._get_declaration()

    def _get_declaration(self) -> FunctionDeclaration | None:
        """ADK's name for `declaration`: a subclass overrides either."""
        if type(self).declaration is not BaseTool.declaration:
            return self.declaration
        name = type(self).__name__
        raise ConfigurationError(f"expected {name} to say how models see it, found nothing; override `declaration`")

    is_long_running = False
    """Whether a call stays open after `run_async` has returned, until somebody else answers it."""

    async def needs_confirmation(self, args: dict[str, Any], tool_context: ToolContext) -> bool:
        """Say whether somebody has to allow this call, as `require_confirmation` does."""
        required = self.require_confirmation
        if isinstance(required, bool):
            return required
        from ._options import is_required

        return await is_required(required, args, tool_context)

    @abstractmethod
    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """
        Do it, and return the result: a dict is the response as it is, anything else becomes `{"result": value}`.

        It is JSON, or what has one form in JSON: dates, enums, sets, dataclasses, attrs classes and pydantic models.

        An exception becomes an error response to the model, and what was written to `tool_context.state` is dropped;
        a FatalError ends the run. *args* is what the model sent, a copy, and fits what is declared (see
        `checks_arguments`). What blocks belongs in a thread: `await tool_context.run_in_thread(f, ...)`.
        """

    async def process_llm_request(self, *, tool_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """
        Called before the model of an agent that has this tool is asked, and before the `before_model` hooks.

        What it changes in the request is what they and the model get, this once; the session does not change. What it
        writes to the state of its context goes with the answer. A failure: the model is not asked, and the run fails.
        """

    def _declared(self, prompts: Prompts) -> FunctionDeclaration | None:
        """The declaration, in the words of the app where the framework says something in it."""
        declaration = self.declaration
        if self.checks_arguments and declaration is not None:
            from ._options import checker_of

            checker_of(self, declaration)
        return declaration

    async def _run(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Check the arguments and run it."""
        if self.checks_arguments:
            from ._options import check_arguments

            check_arguments(self, args)
        return await self.run_async(args=args, tool_context=tool_context)

    def _is_final_answer(self, response: Mapping[str, Any]) -> bool:
        """Whether this response is the final answer of the agent: then it does not hand over in the same turn."""
        return False

    async def close(self) -> None:
        """Give back what the tool holds; `Runner.close` calls it, once."""


def check_async(cls: type, *names: str) -> None:
    """Raise ConfigurationError if *cls* has one of these methods as a function that is not `async def`."""
    for name in names:
        method = inspect.unwrap(vars(cls).get(name, None))
        if inspect.isfunction(method) and not inspect.iscoroutinefunction(method):
            raise ConfigurationError(f"expected {cls.__qualname__}.{name} to be `async def`, found `def`")


def check_name(name: object, what: str = "a tool name") -> None:
    """Raise ConfigurationError if *name* cannot be the name of a tool."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        msg = f"expected {what} of up to 64 letters, digits, '_' and '-', found {brief(name)}; name it"
        raise ConfigurationError(msg)
