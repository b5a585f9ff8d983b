"""The tools of a server, and the one that loads its resources."""

from __future__ import annotations

from functools import partial
from typing import Any

import mcp_types
from mcp import Client, ClientSession, MCPError
from mcp.shared.dispatcher import ProgressFnT
from pydantic import TypeAdapter

from ..._json import dumps
from ...errors import ArgumentError
from ...runtime import ToolContext
from ...types import FunctionDeclaration
from .._base import BaseTool
from ._back_channel import Answers
from ._conversation import answered
from ._listing import RESOURCE_TOOL, Definition
from ._progress import with_progress
from ._results import resource_value, tool_value
from ._server import Server, refused
from ._text import line

__all__ = ["McpTool", "ResourceTool"]

# Of a list of resources that a model is shown.
RESOURCES_MAX = 200

_CALL_RESULT: TypeAdapter[mcp_types.CallToolResult | mcp_types.InputRequiredResult] = TypeAdapter(
    mcp_types.CallToolResult | mcp_types.InputRequiredResult
)


class McpTool(BaseTool):
    """
    A tool of an MCP server. `original_name` is what the server calls it.

    The server checks the arguments: what does not fit, a model is told by it. A cancelled call is cancelled there, too.
    """

    checks_arguments = False

    def __init__(self, server: Server, definition: Definition, result_bytes_max: int, **options: Any) -> None:
        super().__init__(name=definition.name, description=definition.description, **options)
        self.original_name = definition.original
        self.definition = definition
        self._server = server
        self._result_bytes_max = result_bytes_max
        self._declaration = FunctionDeclaration(
            name=self.name, description=self.description, parameters=definition.parameters
        )

    @property
    def declaration(self) -> FunctionDeclaration:
        return self._declaration

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        what = f"a call of {line(self.original_name, 80)!r}"

        async def send(responses: dict[str, Any] | None, state: str | None, answers: Answers) -> Any:
            async def call(report: ProgressFnT, client: Client) -> Any:
                made = partial(_call_tool, client.session, self.original_name, args, report)
                return await self._server.asked(client, made, responses, state, answers)

            return await with_progress(
                tool_context, lambda report: self._server.ask(tool_context, what, partial(call, report), limit_s=None)
            )

        try:
            result = await answered(self._server, tool_context, self.original_name, send)
        except MCPError as error:
            raise refused(self._server.label, what, error) from None
        return tool_value(result, self._server.label, self._result_bytes_max)


async def _call_tool(
    session: ClientSession,
    name: str,
    args: dict[str, Any],
    report: ProgressFnT,
    *,
    input_responses: dict[str, Any] | None = None,
    request_state: str | None = None,
    allow_input_required: bool = False,
) -> mcp_types.CallToolResult | mcp_types.InputRequiredResult:
    """
    Send `tools/call`, and return the result without a look at the tool's output schema.

    `ClientSession.call_tool` validates structured content against that schema in the event loop. The server supplies
    both: with a pattern such as `^(a+)+$`, or with nested `anyOf`, one validation takes exponential time, during which
    no timeout, deadline or cancellation works.

    Raises:
        RuntimeError: The server requires input, and its protocol does not have that.
    """
    params = mcp_types.CallToolRequestParams(
        name=name, arguments=args, input_responses=input_responses, request_state=request_state
    )
    result = await session.send_request(
        mcp_types.CallToolRequest(params=params), _CALL_RESULT, progress_callback=report
    )
    if isinstance(result, mcp_types.InputRequiredResult) and not allow_input_required:
        raise RuntimeError("it requires input, which the protocol of the connection does not have")
    return result


class ResourceTool(BaseTool):
    """`load_mcp_resource`: reads a resource of the server by its URI, and without one tells which there are."""

    def __init__(self, server: Server, result_bytes_max: int, **options: Any) -> None:
        told = f"Load a resource of the MCP server {server.label} by its URI. Without a URI: list the resources."
        super().__init__(name=RESOURCE_TOOL, description=told, on_interrupted="rerun", **options)
        self._server = server
        self._result_bytes_max = result_bytes_max

    @property
    def declaration(self) -> FunctionDeclaration:
        uri = {"type": "string", "description": "The URI of the resource, as the list has it."}
        schema = {"type": "object", "properties": {"uri": uri}, "additionalProperties": False}
        return FunctionDeclaration(name=self.name, description=self.description, parameters=schema)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        uri = args.get("uri")
        if uri is None:
            return {"result": await self._listed(tool_context)}
        if len(uri) > 2_000:
            raise ArgumentError("uri: expected at most 2 000 characters, found more")
        what = f"the resource {line(uri, 200)!r}"

        async def send(responses: dict[str, Any] | None, state: str | None, answers: Answers) -> Any:
            async def read(client: Client) -> Any:
                made = partial(client.session.read_resource, uri)
                return await self._server.asked(client, made, responses, state, answers)

            return await self._server.ask(tool_context, what, read, limit_s=None)

        try:
            result: mcp_types.ReadResourceResult = await answered(self._server, tool_context, self.name, send)
        except MCPError as error:
            raise refused(self._server.label, what, error) from None
        return resource_value(result, self._server.label, self._result_bytes_max)

    async def _listed(self, context: ToolContext) -> list[Any]:
        found: list[Any] = []
        for kind, key in (("resources", "uri"), ("resource_templates", "uri_template")):
            for each in (await self._server.list(context, kind))[:RESOURCES_MAX]:
                about = {key: getattr(each, key), "name": each.name, "description": each.description}
                about["mime_type"] = each.mime_type
                found.append({name: line(str(value)) for name, value in about.items() if value})
        while len(dumps(found)) > self._result_bytes_max:
            found = found[: len(found) // 2]
        return found
