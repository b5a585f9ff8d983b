"""
What servers answer that is not as it should be: messages that are none, results that cannot be kept, lists that change
while they are read. Each is an error of that call, or repaired; nobody waits for what will not come.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp import MCPError
from mcp.server import Server

from minirun import InMemoryRunner, LlmAgent
from minirun.errors import McpError
from minirun.testing import ScriptedLlm, call
from minirun.tools.mcp import McpToolset, StdioServer
from minirun.tools.mcp._progress import with_progress
from minirun.tools.mcp._stdio import _message_or_error

from ..fork_server import program, run
from ..helpers import PLACE
from ..mcp_servers import older
from .test_mcp import responses, tool
from .test_mcp_pauses import Life

# A server of the older protocol whose tool answers with the line that it was started with, the id put in.
ANSWERS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}
        },
        "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    }
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "tools/call":
        said = sys.argv[1].replace("ID", json.dumps(asked["id"]))
    elif asked["method"] in results:
        said = json.dumps({**answer, "result": results[asked["method"]]})
    else:
        said = json.dumps({**answer, "error": {"code": -32601, "message": "no"}})
    print(said, flush=True)
"""


async def told(tmp_path: Path, answer: str) -> Any:
    """What a model is told of a call that is answered with this line."""
    file = tmp_path / "server.py"
    file.write_text(ANSWERS)
    async with McpToolset(StdioServer(sys.executable, [str(file), answer]), timeout_s=20) as tools:
        (found,) = await responses(tools, call("t"))
        return found


@pytest.mark.parametrize(
    "answer",
    [
        '{"jsonrpc": "2.0", "id": ID}',
        '{"jsonrpc": "2.0", "id": ID, "result": "a text"}',
        '{"jsonrpc": "2.0", "id": ID, "result": null}',
        '{"jsonrpc": "2.0", "id": ID, "error": {"code": "x", "message": 3}}',
    ],
)
async def test_an_answer_that_is_none_of_the_protocol_is_an_error_at_once(tmp_path: Path, answer: str) -> None:
    """
    The call does not wait for another one until its limit.
    """
    found = await told(tmp_path, answer)
    assert found["error"]["type"] == "McpError"
    assert "none of the protocol" in found["error"]["message"]


async def test_a_text_that_was_cut_in_the_middle_of_a_character_is_repaired(tmp_path: Path) -> None:
    """
    Half of a character, as programs in JavaScript leave it at the end of a text that they cut, becomes U+FFFD.
    """
    content = json.dumps([{"type": "text", "text": "a smile: \U0001f600, half of one: \ud83d"}])
    found = await told(tmp_path, f'{{"jsonrpc": "2.0", "id": ID, "result": {{"content": {content}}}}}')
    assert found == {"result": "a smile: \U0001f600, half of one: \ufffd"}


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "[" * 150 + "]" * 150, "9" * 5_000])
async def test_a_result_that_no_log_can_hold_is_an_error_of_the_server(tmp_path: Path, value: str) -> None:
    """
    Numbers that JSON has not, an integer that Python does not read, and what is nested too deep.
    """
    result = f'{{"content": [], "structuredContent": {{"a": {value}}}}}'
    found = await told(tmp_path, f'{{"jsonrpc": "2.0", "id": ID, "result": {result}}}')
    assert found["error"]["type"] == "McpError"
    assert "cannot be stored" in found["error"]["message"]


def test_a_request_that_is_none_of_the_protocol_is_left_to_the_client_to_refuse() -> None:
    """
    A question that is nested deeper than the official package reads is passed on without it, so that the server hears.
    """
    deep = "[" * 300 + "]" * 300
    line = f'{{"jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": {{"message": {deep}}}}}'
    found = _message_or_error(line.encode())
    assert found is not None
    assert found.message == types.JSONRPCRequest(jsonrpc="2.0", id=9, method="elicitation/create")
    for each in ('{"jsonrpc": "2.0", "method": 3}', '{"id": 9, "method": "ping"}', "starting ..."):
        assert _message_or_error(each.encode()) is None


async def test_progress_that_is_not_finite_does_not_cost_the_result() -> None:
    """
    A number that no float can hold is read as infinity: of how much is unknown then, or nothing is told.
    """
    told: list[tuple[str, float | None]] = []

    class Context:
        async def progress(self, message: str, *, fraction: float | None) -> None:
            told.append((message, fraction))

    async def work(report: Any) -> str:
        for progress, total in ((1.0, 1e999), (1e999, 1e999), (float("nan"), 4.0), (-1e999, 4.0), (2.0, 4.0)):
            await report(progress, total)
        return "the result"

    context: Any = Context()
    assert await with_progress(context, work) == "the result"
    assert told == [("1", None), ("2 of 4", 0.5)]


# One whose list has two pages, and which tells of a change before the second one is read, the first time.
CHANGES = """
import json, sys
told = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "x", "version": "1"}}
names = ["old"]
def say(**what):
    print(json.dumps({"jsonrpc": "2.0", **what}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    schema = {"type": "object"}
    if asked["method"] == "initialize":
        say(id=asked["id"], result=told)
    elif asked["method"] != "tools/list":
        say(id=asked["id"], error={"code": -32601, "message": "no"})
    elif not asked.get("params", {}).get("cursor"):
        tools = [{"name": each, "inputSchema": schema} for each in names]
        say(id=asked["id"], result={"tools": tools, "nextCursor": "2"})
    else:
        if names == ["old"]:
            names = ["new"]
            say(method="notifications/tools/list_changed")
        say(id=asked["id"], result={"tools": [{"name": "last", "inputSchema": schema}]})
"""


async def test_a_list_that_changed_while_it_was_read_is_not_kept(tmp_path: Path) -> None:
    """
    It would be kept for ever: the server has told of the change, and will not tell of it again.
    """
    file = tmp_path / "server.py"
    file.write_text(CHANGES)
    async with McpToolset(StdioServer(sys.executable, [str(file)])) as tools:
        assert [each.name for each in await tools.get_tools()] == ["last", "old"]
        assert [each.name for each in await tools.get_tools()] == ["last", "new"]


async def test_a_server_that_refuses_its_list_is_an_error_of_ours() -> None:
    """
    It says which server, and what; a list that was there before is used on.
    """
    refuses = [True, False, True]

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        if refuses.pop(0):
            raise MCPError(types.INTERNAL_ERROR, "not now")
        return types.ListToolsResult(tools=[tool("a")])

    async with McpToolset(Server("moody", on_list_tools=listed)) as tools:
        with pytest.raises(McpError, match="has refused the list of its tools: not now"):
            await tools.get_tools()
        for _ in range(2):
            assert [each.name for each in await tools.get_tools()] == ["a"]
    assert refuses == []


async def test_a_server_of_resources_alone_has_no_tools_and_need_not_have_templates() -> None:
    """
    What it does not know of is an empty list: the tool that loads its resources is there, and lists them.
    """

    async def listed(ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name="note", uri="note://one")])

    async with McpToolset(Server("notes", on_list_resources=listed), resources=True) as tools:
        assert [each.name for each in await tools.get_tools()] == ["load_mcp_resource"]
        (found,) = await responses(tools, call("load_mcp_resource"))
    assert found == {"result": [{"uri": "note://one", "name": "note"}]}


async def test_the_limit_of_a_result_is_of_bytes() -> None:
    """
    A character may have four of them.
    """

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool("a")])

    async def called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text="\U0001f600" * 100)])

    async with McpToolset(Server("smiles", on_list_tools=listed, on_call_tool=called), result_bytes_max=399) as tools:
        (found,) = await responses(tools, call("a"))
    assert "found 400" in found["error"]["message"]


def asking(schema: Any, *keys: str) -> Server[Any]:
    """A server that asks the same under each of these keys, and tells what it was answered."""

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool("ask")])

    async def called(ctx: Any, params: types.CallToolRequestParams) -> Any:
        asked = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Which?", requested_schema=schema))
        if params.input_responses is None:
            return types.InputRequiredResult(input_requests=dict.fromkeys(keys, asked), request_state="1")
        answers: Any = params.input_responses
        told = " ".join(f"{key}={answers[key].content['x']}" for key in keys)
        return types.CallToolResult(content=[types.TextContent(text=told)])

    return Server("asking", on_list_tools=listed, on_call_tool=called)


async def test_a_question_that_is_asked_twice_in_a_round_has_two_answers() -> None:
    """
    Each key has the answer that was given for it, though a person reads the same both times.
    """
    life = Life(call("ask"), lambda: asking({"type": "object", "properties": {"x": {"type": "string"}}}, "a", "b"))
    run = await life.say("go")
    for answer in ("one", "two"):
        (question,) = run.pending
        run = await life.say(question.reply({"x": answer}))
    assert run.answer.text == '{"result": "a=one b=two"}'


@pytest.mark.parametrize(
    ("field", "answer"),
    [({"type": "object"}, {"y": 4711}), ({"type": "array", "items": {"type": "integer"}}, [4711]), (True, [[4711]])],
)
async def test_an_answer_that_the_protocol_has_not_is_the_servers_error(field: Any, answer: Any) -> None:
    """
    A server that asks for objects, or lists of numbers, is told of by its name; what was answered is not shown.
    """
    life = Life(call("ask"), lambda: asking({"type": "object", "properties": {"x": field}}, "a"))
    run = await life.say("go")
    run = await life.say(run.pending[0].reply({"x": answer}))
    assert json.loads(run.answer.text)["error"]["type"] == "McpError"
    assert "4711" not in run.answer.text


@pytest.mark.parametrize("is_older", [False, True])
async def test_a_call_ends_with_the_toolset_that_it_was_made_with(is_older: bool) -> None:
    """
    A server in this process does not hear that its toolset was left: who waits for it is told.
    """
    started, ended = trio.Event(), trio.Event()

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool("endless")])

    async def called(ctx: Any, params: types.CallToolRequestParams) -> Any:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    server = Server("slow", on_list_tools=listed, on_call_tool=called)
    found: list[Any] = []

    async def run(runner: InMemoryRunner) -> None:
        async with runner.run_async(**PLACE, new_message="go") as run:
            found.extend([each.response for event in [e async for e in run] for each in event.get_function_responses()])

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            async with McpToolset((lambda: older.transport(server)) if is_older else server) as tools:
                # As it is, and not the toolset: an agent that asks that for its list again is refused.
                model = ScriptedLlm([call("endless"), "Done."])
                agent = LlmAgent(name="clerk", model=model, tools=[*await tools.get_tools()])
                nursery.start_soon(run, InMemoryRunner(agent=agent, auto_create_session=True))
                await started.wait()
    assert found[0]["error"]["type"] == "McpConnectionError"
    assert ended.is_set()


# --- output schemas ---------------------------------------------------------------------------------------------------

# A program with a server that declares an output schema, and answers with a value. It prints what the model is told.
DECLARES = """
import json, sys
import mcp_types as types
import trio
from mcp.server import Server
from minirun.testing import call
from minirun.tools.mcp import McpToolset
from tests.tools.test_mcp import responses

schema, value = map(json.loads, sys.argv[1:])

async def listed(ctx, params):
    made = types.Tool(name="t", input_schema={"type": "object"}, output_schema=schema)
    return types.ListToolsResult(tools=[made])

async def called(ctx, params):
    return types.CallToolResult(content=[], structured_content=value)

async def main():
    async with McpToolset(Server("s", on_list_tools=listed, on_call_tool=called)) as tools:
        [found] = await responses(tools, call("t"))
        print(json.dumps(found))

trio.run(main)
"""

PATTERN = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
NESTED = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/s24"}},
    "$defs": {
        "s0": {"type": "integer"},
        **{f"s{n}": {"anyOf": [{"$ref": f"#/$defs/s{n - 1}"}] * 2} for n in range(1, 25)},
    },
}
MISSING = {"type": "object", "required": ["b"], "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize("schema", [PATTERN, NESTED, MISSING])
def test_no_value_is_validated_against_the_schema_of_the_server(schema: Any) -> None:
    """
    The server supplies the schema and the value, and one validation of both can take exponential time in the event
    loop, where no limit and no cancellation works. The model is given the value as it is.
    """
    value = {"a": "a" * 40 + "!"}
    done = run(program(DECLARES, json.dumps(schema), json.dumps(value)), timeout=120)
    assert (done.returncode, done.stdout) == (0, json.dumps({"result": value}) + "\n"), done.stderr
