"""Tools and toolsets as nodes: a tool is called as a model would call it, hooks included; its result is the output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .._json import brief, freeze
from .._workflow_errors import NodeInputError
from ..env import derived_id
from ..errors import MinirunError
from ..events import Event
from ..runtime import InvocationContext
from ..tools import BaseTool, BaseToolset
from ..tools._batch import run_calls
from ..types import Content, FunctionCall, Part
from ._nodes import Node
from ._scope import NodeScope

__all__ = ["ToolNode", "ToolsetNode"]


class ToolNode(Node):
    """
    A tool as a node, which is what a tool in `edges` becomes.

    A dict is its arguments; what is none is the only argument that it has to have. What is missing is taken from the
    state. The call and its response are events, as of any call of a tool; what it fails with, after the attempts of the
    tool itself, fails the node.
    """

    tool: BaseTool

    _ends_with_questions = False

    def __init__(self, tool: BaseTool, name: str | None = None, **fields: Any) -> None:
        given: dict[str, Any] = {"tool": tool, **fields}
        super().__init__(name=tool.name if name is None else name, **given)

    async def _once(self, context: InvocationContext, scope: NodeScope) -> Event:
        return await _outcome(context, scope, self.tool, self._arguments(context, scope.input))

    def _arguments(self, context: InvocationContext, given: Any) -> Mapping[str, Any]:
        value = given.text if isinstance(given, Content) else given
        declaration = self.tool.declaration
        schema: Mapping[str, Any] = {} if declaration is None else declaration.parameters or {}
        names, required = list(schema.get("properties", {})), list(schema.get("required", ()))
        if isinstance(value, Mapping):
            arguments = dict(value)
        else:
            free = required or names
            arguments = {} if value is None or not free else {free[0]: value}
        for name in names:
            if name not in arguments and name in context.state:
                arguments[name] = context.state[name]
        found: Mapping[str, Any] = freeze(arguments, f"input of {self.name!r}")
        return found


class ToolsetNode(Node):
    """
    A toolset as a node, which is what a toolset in `edges` becomes: its input says which of the tools is called.

    The input has the form of a call, `{"name": "fetch", "args": {"url": "..."}}`, as a dict or as JSON text; without
    `args` there are none. The name is the one that an agent would call the tool by, prefix included. The tools are
    asked for anew in each run. What holds for the call holds for that of a ToolNode, too.

    Its own name is by default the `tool_name_prefix` of the toolset, or the name of its class.
    """

    toolset: BaseToolset

    _ends_with_questions = False

    def __init__(self, toolset: BaseToolset, name: str | None = None, **fields: Any) -> None:
        given: dict[str, Any] = {"toolset": toolset, **fields}
        own = toolset.tool_name_prefix or type(toolset).__name__
        super().__init__(name=own if name is None else name, **given)

    async def _once(self, context: InvocationContext, scope: NodeScope) -> Event:
        asked, args = self._asked_for(scope.input)
        tools = await self.toolset._tools_for(context)
        tool = next((tool for tool in tools if tool.name == asked), None)
        if tool is None:
            there = ", ".join(repr(tool.name) for tool in tools) or "none"
            msg = f"node {self.name!r}: expected the name of a tool of the toolset, found {brief(asked)}"
            raise NodeInputError(f"{msg}; there are: {there}")
        return await _outcome(context, scope, tool, args)

    def _asked_for(self, given: Any) -> tuple[Any, Mapping[str, Any]]:
        value = given.text if isinstance(given, Content) else given
        if isinstance(value, str):
            try:
                value = freeze(json.loads(value), f"input of {self.name!r}")
            except ValueError:
                pass
        form = '{"name": "the tool", "args": {}}'
        if not isinstance(value, Mapping) or "name" not in value or value.keys() - {"name", "args"}:
            raise NodeInputError(f"node {self.name!r}: expected a call of the form {form}, found {brief(value)}")
        args = value.get("args")
        if not isinstance(args, Mapping | None):
            raise NodeInputError(f"node {self.name!r}: expected the args of a call to be a dict, found {brief(args)}")
        return value["name"], {} if args is None else args


async def _outcome(context: InvocationContext, scope: NodeScope, tool: BaseTool, args: Mapping[str, Any]) -> Event:
    """
    Call *tool* as a model would, and return the event that the node is to end with.

    Raises:
        ToolNodeError: The tool has failed.
    """
    number = 1
    while True:
        place = ["tool"] if (scope.attempt, number) == (1, 1) else ["tool", scope.attempt, number]
        call_id = f"call-{derived_id(context.invocation_id, context._path, *place)}"
        answer = await _called(context, tool, FunctionCall(id=call_id, name=tool.name, args=args))
        response, replayer = answer.get_function_responses()[0].response, context._invocation.replayer
        failure = response.get("error") if list(response) == ["error"] else None
        if not (isinstance(failure, Mapping) and "type" in failure):
            return Event(output=response["result"] if list(response) == ["result"] else response)
        if replayer is None or not replayer.record.tried_again.is_before(answer):
            raise ToolNodeError(f"the tool {tool.name!r} has failed: {failure['type']}: {failure.get('message')}")
        number += 1  # somebody has gone on since: it is called again


async def _called(context: InvocationContext, tool: BaseTool, call: FunctionCall) -> Event:
    """Make the call, unless that is recorded, and return the event with the response."""
    made = await context.emit(Event(content=Content(role="model", parts=[Part(function_call=call)])))
    calls, event, replayer = made.get_function_calls(), None, context._invocation.replayer
    if replayer is not None:
        event, calls = await replayer.repeat_responses(context, calls)
    if calls:
        event = await run_calls(context, calls, {tool.name: tool})
    assert event is not None
    return event


class ToolNodeError(MinirunError):
    """The tool that is a node has failed."""
