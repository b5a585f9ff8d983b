"""
Toolsets: tools that come from somewhere, and are asked for anew by every agent before it asks its model.

What one agent got says nothing about what another one gets, so nothing is kept here between two questions: a filter
may depend on the agent that asks. A toolset that is slow to ask keeps what it has learned itself.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .._arguments import refuse_unknown
from .._json import brief
from .._values import changed
from ..errors import ConfigurationError, CredentialRefusedError
from ..flows._prompts import Prompts
from ..runtime import CallbackContext, InvocationContext, ReadonlyContext, ToolContext
from ..runtime._credentials import request_credential
from ..types import FunctionDeclaration
from ._base import BaseTool, check_async, check_name

if TYPE_CHECKING:
    from ..models import LlmRequestDraft

__all__ = ["BaseToolset", "ToolPredicate"]

ToolPredicate: TypeAlias = Callable[[BaseTool, ReadonlyContext | None], bool | Awaitable[bool]]
"""Whether an agent may have a tool. The tool still has the name that it was made with."""


@refuse_unknown
class BaseToolset(ABC):
    """
    Several tools from one source. Override `get_tools`, and `close` if there is something to give back.

    Args:
        tool_filter: Which of the tools there are: their names, without the prefix, or a function (sync or async) of a
            tool and the context. A name that no tool has is no error. None: all of them.
        tool_name_prefix: The tools are named `<prefix>_<name>`, so that those of two toolsets do not clash.
        sequential: Each of the tools is `sequential`, see `BaseTool`. False: those that say so themselves.

    Raises:
        ConfigurationError: The filter is neither, the prefix cannot begin the name of a tool, or *sequential* is no
            bool.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_unknown(cls)
        check_async(cls, "get_tools", "close")

    def __init__(
        self,
        *,
        tool_filter: Collection[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
        sequential: bool = False,
    ) -> None:
        if not (tool_filter is None or callable(tool_filter) or _is_names(tool_filter)):
            msg = f"expected tool_filter to be a list of names, or a function of a tool, found {brief(tool_filter)}"
            raise ConfigurationError(msg)
        self.tool_filter = tool_filter
        if tool_name_prefix is not None:
            check_name(tool_name_prefix, "tool_name_prefix")
        self.tool_name_prefix = tool_name_prefix
        if not isinstance(sequential, bool):
            raise ConfigurationError(f"expected sequential to be True or False, found {brief(sequential)}")
        self.sequential = sequential

    @abstractmethod
    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> Sequence[BaseTool]:
        """
        Return the tools that there are for whom *readonly_context* belongs to, before filter and prefix.

        What it raises ends the run: an agent is never asked without the tools it was promised. A tool with
        `max_concurrency` is limited only if the same object is returned each time.
        """

    async def get_tools_with_prefix(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """
        Return the tools as an agent has them: filtered, named with the prefix, and with different names.

        Raises:
            ConfigurationError: `get_tools` returned something else than tools, or two that have one name.
        """
        tools: list[BaseTool] = []
        found = self.get_tools(readonly_context)
        if not inspect.isawaitable(found):
            msg = f"expected {_name_of(self)} to be `async def`, found a function that returned {brief(found)}"
            raise ConfigurationError(msg)
        for tool in _checked_tools(await found, self):
            if await self._is_selected(tool, readonly_context):
                tools.append(self._as_had(tool))
        names = [tool.name for tool in tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"expected {_name_of(self)} to return tools with different names, found two named {', '.join(twice)}"
            raise ConfigurationError(msg)
        return tools

    async def _tools_for(self, context: InvocationContext) -> list[BaseTool]:
        """
        As `get_tools_with_prefix`, for an agent that can wait: a credential that is missing for that is asked for.

        Which one it is only `BearerHeaders` says.
        """
        try:
            return await self.get_tools_with_prefix(context._readonly())
        except CredentialRefusedError as error:
            config = getattr(error, "auth_config", None)
            if config is None:
                raise
        # Beside the logic: once there is one, no run lists the tools without, and comes to the question again.
        await request_credential(context, config, None, beside=True)
        return await self.get_tools_with_prefix(context._readonly())

    def _as_had(self, tool: BaseTool) -> BaseTool:
        prefix, sequential = self.tool_name_prefix, self.sequential or tool.sequential
        if prefix is None and sequential == tool.sequential:
            return tool
        return _Changed(tool, tool.name if prefix is None else f"{prefix}_{tool.name}", sequential=sequential)

    async def close(self) -> None:
        """Give back what the toolset holds; `Runner.close` calls it, once."""

    async def _is_selected(self, tool: BaseTool, context: ReadonlyContext | None) -> bool:
        if self.tool_filter is None:
            return True
        if not callable(self.tool_filter):
            return tool.name in self.tool_filter
        answer = self.tool_filter(tool, context)
        return bool(await answer if inspect.isawaitable(answer) else answer)


def _is_names(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(name, str) for name in value)


def _checked_tools(found: object, toolset: BaseToolset) -> list[BaseTool]:
    tools: list[BaseTool] = []
    for tool in found if isinstance(found, Iterable) else [found]:
        if not isinstance(tool, BaseTool):
            msg = f"expected {_name_of(toolset)} to return a list of tools, found {brief(tool)}; see FunctionTool"
            raise ConfigurationError(msg)
        tools.append(tool)
    return tools


def _name_of(toolset: BaseToolset) -> str:
    return f"{type(toolset).__name__}.get_tools"


class _Changed(BaseTool):
    """A tool as its toolset wants it: under another name, or sequential. Its limit is shared, its owner closes it."""

    checks_arguments = False  # the tool does

    def __init__(self, tool: BaseTool, name: str, *, sequential: bool) -> None:
        options = ("timeout_s", "retry", "retries", "max_concurrency", "on_interrupted", "require_confirmation")
        same = {option: getattr(tool, option) for option in options}
        super().__init__(name=name, description=tool.description, sequential=sequential, **same)
        self._tool = tool
        self.is_long_running = tool.is_long_running

    @property
    def declaration(self) -> FunctionDeclaration | None:
        return self._named(self._tool.declaration)

    def _declared(self, prompts: Prompts) -> FunctionDeclaration | None:
        return self._named(self._tool._declared(prompts))

    def _named(self, declaration: FunctionDeclaration | None) -> FunctionDeclaration | None:
        return None if declaration is None else changed(declaration, name=self.name)

    @property
    def limited_as(self) -> BaseTool:
        return self._tool.limited_as

    async def needs_confirmation(self, args: dict[str, Any], tool_context: ToolContext) -> bool:
        return await self._tool.needs_confirmation(args, tool_context)

    async def process_llm_request(self, *, tool_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        await self._tool.process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        return await self._tool._run(args, tool_context)

    def _is_final_answer(self, response: Mapping[str, Any]) -> bool:
        return self._tool._is_final_answer(response)
