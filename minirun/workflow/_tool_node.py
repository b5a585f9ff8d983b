"""A tool as a node: it is called as a model would call it, hooks included, and its result is the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._json import freeze
from ..env import derived_id
from ..errors import MinirunError
from ..events import Event
from ..runtime import InvocationContext
from ..tools import BaseTool
from ..tools._batch import run_calls
from ..types import Content, FunctionCall, Part
from ._nodes import Node
from ._scope import NodeScope

__all__ = ["ToolNode"]


class ToolNode(Node):
    """
    A tool as a node, which is what a tool in `edges` becomes.

    A dict is its arguments; what is none is the only argument that it has to have. What is missing is taken from the
    state. The call and its response are events, as of any call of a tool; what it fails with, after the attempts of the
    tool itself, fails the node.
    """

    tool: BaseTool

    def __init__(self, tool: BaseTool, name: str | None = None, **fields: Any) -> None:
        given: dict[str, Any] = {"tool": tool, **fields}
        super().__init__(name=tool.name if name is None else name, **given)

    async def _once(self, context: InvocationContext, scope: NodeScope) -> Event:
        number = 1
        while True:
            place = ["tool"] if (scope.attempt, number) == (1, 1) else ["tool", scope.attempt, number]
            call_id = f"call-{derived_id(context.invocation_id, context._path, *place)}"
            answer = await self._called(context, scope, call_id)
            response, replayer = answer.get_function_responses()[0].response, context._invocation.replayer
            failure = response.get("error") if list(response) == ["error"] else None
            if not (isinstance(failure, Mapping) and "type" in failure):
                return Event(output=response["result"] if list(response) == ["result"] else response)
            if replayer is None or not replayer.record.tried_again.is_before(answer):
                msg = f"the tool {self.tool.name!r} has failed: {failure['type']}: {failure.get('message')}"
                raise ToolNodeError(msg)
            number += 1  # somebody has gone on since: it is called again

    async def _called(self, context: InvocationContext, scope: NodeScope, call_id: str) -> Event:
        """Call the tool, unless that is recorded, and return the event with the response."""
        tool, replayer = self.tool, context._invocation.replayer
        call = FunctionCall(id=call_id, name=tool.name, args=self._arguments(context, scope.input))
        made = await context.emit(Event(content=Content(role="model", parts=[Part(function_call=call)])))
        calls, event = made.get_function_calls(), None
        if replayer is not None:
            event, calls = await replayer.repeat_responses(context, calls)
        if calls:
            event = await run_calls(context, calls, {tool.name: tool})
        assert event is not None
        return event

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


class ToolNodeError(MinirunError):
    """The tool that is a node has failed."""
