"""
Tools from OpenAPI documents: what models see of them, what is sent, and what comes back; and what a hostile one can do.
"""

from __future__ import annotations

import json
import logging
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from minirun import Event, InMemoryRunner, LlmAgent
from minirun._codec import to_json
from minirun.credentials import AuthConfig, AuthCredential
from minirun.errors import ConfigurationError
from minirun.flows._json_schema import compile_schema
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, RetryConfig
from minirun.tools.openapi import OpenAPIToolset, RestApiTool
from minirun.types import FunctionDeclaration

from ..asgi import serving
from ..helpers import PLACE
from ..openapi_server import FRIENDLY, Api, Reply, hostile

pytest.importorskip("httpx2", reason="the extra `minirun[models]` is not installed")

KEY = "key-of-ada/+= 4711"


async def tools_of(toolset: OpenAPIToolset) -> dict[str, RestApiTool]:
    tools = await toolset.get_tools_with_prefix()
    return {tool.name: tool for tool in tools if isinstance(tool, RestApiTool)}


async def declared(toolset: OpenAPIToolset, name: str) -> FunctionDeclaration:
    return (await tools_of(toolset))[name].declaration


class Desk:
    """An agent with the tools of a document, and the API behind them."""

    def __init__(self, api: Api, url: str, **options: Any) -> None:
        self.api = api
        self.toolset = OpenAPIToolset(**{"spec_dict": FRIENDLY, "base_url": f"{url}/v1", **options})
        self.runner: InMemoryRunner
        self.events: list[Event] = []

    async def call(self, name: str, **args: Any) -> Any:
        """What a call is answered with; None: it waits."""

        def script(request: Any) -> Any:
            answered = request.contents[-1].parts[-1].function_response
            return "Done." if answered is not None else call(name, **args)

        agent = LlmAgent(name="clerk", model=ScriptedLlm(script), tools=[self.toolset])
        self.runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
        return await self.say("go")

    async def say(self, message: Any) -> Any:
        async with self.runner.run_async(**PLACE, new_message=message) as run:
            self.events += [event async for event in run]
        self.run = run
        responses = [each for event in self.events for each in event.get_function_responses()]
        return responses[-1].response if responses and run.status == "completed" else None

    @property
    def written(self) -> str:
        return "".join(map(to_json, self.events))


@asynccontextmanager
async def desk(**options: Any) -> AsyncIterator[Desk]:
    api = Api()
    async with serving(api) as url:
        at = Desk(api, url, **options)
        yield at
        await at.toolset.close()


# --- what models see --------------------------------------------------------------------------------------------------


async def test_operations_are_tools_under_the_names_that_adk_gives_them() -> None:
    """In the document's order; what has no operationId is named after its path."""
    toolset = OpenAPIToolset(spec_dict=FRIENDLY)
    tools = await tools_of(toolset)
    names = ["list_pets", "create_pet", "get_pet_by_id", "rename_pet", "delete_pet", "health_get", "note"]
    assert sorted(tools) == sorted(names)
    assert list(tools)[:3] == names[:3]
    assert tools["list_pets"].description == "List the pets."
    assert (tools["get_pet_by_id"].method, tools["get_pet_by_id"].path) == ("GET", "/pets/{petId}")
    assert tools["list_pets"].tags == ("pets",)
    assert tools["health_get"].description == "GET /health"
    assert list(toolset.left_out) == ["POST /pets/{petId}/photo"]
    assert "multipart/mixed" in toolset.left_out["POST /pets/{petId}/photo"]


async def test_parameters_are_a_schema() -> None:
    """Names, bounds and descriptions of the document; what the transport says itself is no argument."""
    toolset = OpenAPIToolset(spec_dict=FRIENDLY)
    assert (await declared(toolset, "list_pets")).parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "Any of these."},
        },
        "required": [],
    }
    found = (await declared(toolset, "get_pet_by_id")).parameters
    assert list(found["properties"]) == ["petId", "X-Trace"]
    assert found["required"] == ["petId"]


async def test_a_body_is_an_argument_and_references_are_definitions() -> None:
    """What only responses have is left out, null and exclusive bounds are said as JSON schemas say them."""
    found = (await declared(OpenAPIToolset(spec_dict=FRIENDLY), "create_pet")).parameters
    assert found["properties"] == {"body": {"$ref": "#/$defs/Pet", "description": "The new one."}}
    assert found["required"] == ["body"]
    assert found["$defs"]["Pet"] == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "age": {"type": ["number", "null"], "exclusiveMinimum": 0},
            "kind": {"type": ["string", "null"], "enum": ["cat", "dog", None]},
            "parent": {"$ref": "#/$defs/Pet"},
        },
        "required": ["name"],
    }


async def test_a_document_may_be_a_text() -> None:
    """JSON, or YAML, whose dates and status codes are texts, and whose aliases are what they stand for."""
    pytest.importorskip("yaml")
    text = """
openapi: 3.0.0
paths:
  /days/{day}:
    get:
      operationId: getDay
      parameters:
        - &day {name: day, in: path, required: true, schema: {type: string, enum: [2026-01-02]}}
      responses: {200: {description: ok}}
    delete: {operationId: dropDay, parameters: [*day]}
"""
    toolset = OpenAPIToolset(spec_str=text, spec_str_type="yaml", base_url="https://a.example")
    for name in ("get_day", "drop_day"):
        found = (await declared(toolset, name)).parameters
        assert found["properties"]["day"] == {"type": "string", "enum": ["2026-01-02"]}
    toolset = OpenAPIToolset(spec_str=json.dumps(FRIENDLY))
    assert len(await tools_of(toolset)) == 7


async def test_filter_prefix_and_order_are_those_of_toolsets() -> None:
    """By names, or by what is asked; with a prefix, names stay within what providers take."""

    def is_safe(tool: BaseTool, context: object) -> bool:
        return isinstance(tool, RestApiTool) and tool.method == "GET"

    safe = OpenAPIToolset(spec_dict=FRIENDLY, tool_filter=is_safe)
    assert list(await tools_of(safe)) == ["list_pets", "get_pet_by_id", "health_get"]
    one = OpenAPIToolset(spec_dict=FRIENDLY, tool_filter=["note"], tool_name_prefix="pets", sequential=True)
    [tool] = await one.get_tools_with_prefix()
    assert (tool.name, tool.sequential) == ("pets_note", True)
    same = {"operationId": "x" * 80}
    document = {"openapi": "3.0.0", "paths": {"/a": {"get": same, "put": same}}}
    long = OpenAPIToolset(spec_dict=document, base_url="https://a.example", tool_name_prefix="p" * 30)
    names = [tool.name for tool in await long.get_tools_with_prefix()]
    assert len({*names}) == 2
    assert max(map(len, names)) <= 64


# --- what is sent -----------------------------------------------------------------------------------------------------


async def test_a_call_becomes_a_request() -> None:
    """Each argument where the document says, escaped, and the answer as it is."""
    async with desk() as at:
        found = await at.call("get_pet_by_id", petId="a/b ?#%2e", **{"X-Trace": "t 1"})
        assert (found["method"], found["path"]) == ("GET", "/v1/pets/a%2Fb%20%3F%23%252e")
        assert found["headers"]["x-trace"] == "t 1"
        found = await at.call("list_pets", limit=3, tags=["a&b", "c"])
        assert found["query"] == "limit=3&tags=a%26b&tags=c"
        found = await at.call("create_pet", body={"name": "Ümit", "age": None})
        assert found["headers"]["content-type"] == "application/json"
        assert json.loads(found["body"]) == {"name": "Ümit", "age": None}
        found = await at.call("rename_pet", petId="1", body={"name": "a&b", "tags": ["x", "y"]})
        assert (found["method"], found["body"]) == ("PUT", "name=a%26b&tags=x&tags=y")
        found = await at.call("note", body="plain words")
        assert (found["headers"]["content-type"], found["body"]) == ("text/plain", "plain words")


@pytest.mark.parametrize("value", ["..", ".", "", "%2e%2e/..", "a/../b"])
async def test_a_value_leads_to_no_other_path(value: str) -> None:
    """Neither up nor to the list above it: it is refused, or it stays one escaped part of the path."""
    async with desk() as at:
        found = await at.call("get_pet_by_id", petId=value)
        if value in ("..", ".", ""):
            assert found["error"]["type"] == "ArgumentError"
            assert at.api.asked == []
        else:
            assert found["path"].count("/") == 3


async def test_arguments_are_checked_before_anything_is_sent() -> None:
    """By the schema, and by what headers can hold."""
    async with desk() as at:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("list_pets", {"limit": 0}),
            ("create_pet", {"body": {"name": ""}}),
            ("get_pet_by_id", {}),
            ("get_pet_by_id", {"petId": "1", "X-Trace": "a\r\nX-Evil: 1"}),
            ("get_pet_by_id", {"petId": "1", "Host": "evil.example"}),
        ]
        for name, args in calls:
            assert (await at.call(name, **args))["error"]["type"] == "ArgumentError"
        assert at.api.asked == []


STYLES: list[tuple[str, str, bool | None, Any, str]] = [
    ("path", "simple", None, ["a", "b,"], "/x/a,b%2C"),
    ("path", "simple", True, {"k": "v", "l": 1}, "/x/k=v,l=1"),
    ("path", "simple", False, {"k": "v", "l": 1}, "/x/k,v,l,1"),
    ("query", "form", None, True, "p=true"),
    ("query", "form", None, 1.5, "p=1.5"),
    ("query", "form", None, [], ""),
    ("query", "form", False, ["a", "b&"], "p=a,b%26"),
    ("query", "form", True, {"k": "v", "n": None}, "k=v"),
    ("query", "form", False, {"k": "v"}, "p=k,v"),
    ("query", "deepObject", None, {"k": "v", "l": [1]}, "p%5Bk%5D=v&p%5Bl%5D=%5B1%5D"),
    ("header", "simple", None, ["a", 1], "a,1"),
    ("header", "simple", True, {"k": "v"}, "k=v"),
]


@pytest.mark.parametrize(("place", "style", "explode", "value", "expected"), STYLES)
async def test_styles_of_parameters(place: str, style: str, explode: bool | None, value: Any, expected: str) -> None:
    """Lists and objects as RFC 6570 writes them, each part escaped."""
    parameter: dict[str, Any] = {"name": "p", "in": place, "style": style, "schema": {}}
    parameter |= {} if explode is None else {"explode": explode}
    path = "/x/{p}" if place == "path" else "/x"
    document = {"openapi": "3.1.0", "paths": {path: {"get": {"operationId": "ask", "parameters": [parameter]}}}}
    async with desk(spec_dict=document) as at:
        found: dict[str, Any] = await at.call("ask", p=value)
        shown = {
            "path": found["path"].removeprefix("/v1"),
            "query": found["query"],
            "header": found["headers"].get("p"),
        }
        assert shown[place] == expected


@pytest.mark.parametrize(
    "parameter",
    [
        {"in": "path", "style": "label"},
        {"in": "path", "style": "matrix"},
        {"in": "query", "style": "spaceDelimited"},
        {"in": "query", "style": "pipeDelimited"},
        {"in": "cookie"},
    ],
    ids=lambda parameter: f"{parameter.get('style')} in {parameter['in']}",
)
async def test_an_operation_with_another_style_is_left_out_with_a_reason(parameter: dict[str, Any]) -> None:
    """The other operations are tools."""
    odd = {"operationId": "odd", "parameters": [{"name": "p", **parameter}]}
    paths = {"/x/{p}": {"get": odd}, "/y": {"get": {"operationId": "fine"}}}
    toolset = OpenAPIToolset(spec_dict={"openapi": "3.1.0", "paths": paths}, base_url="https://a.example")
    assert [*await tools_of(toolset)] == ["fine"]
    reason = toolset.left_out["GET /x/{p}"]
    assert "the parameter 'p'" in reason
    assert "is supported" in reason or "expected one in the path, the query or a header" in reason


async def test_a_pattern_of_a_document_is_not_evaluated() -> None:
    """It is shown to models. Evaluated, this one would take longer than the universe is old."""
    schema = {"type": "string", "pattern": "^(a+)+$"}
    ask = {"operationId": "ask", "parameters": [{"name": "p", "in": "query", "schema": schema}]}
    document = {"openapi": "3.1.0", "paths": {"/x": {"get": ask}}}
    async with desk(spec_dict=document) as at:
        assert (await at.call("ask", p="a" * 60 + "!"))["query"] == "p=" + "a" * 60 + "%21"
        assert (await declared(at.toolset, "ask")).parameters["properties"]["p"]["pattern"] == "^(a+)+$"


# --- what comes back --------------------------------------------------------------------------------------------------


ANSWERS: list[tuple[Reply, Any]] = [
    (Reply(body=b'{"a": [1, null]}'), {"a": [1, None]}),
    (Reply(body=b"[1, 2]"), {"result": [1, 2]}),
    (Reply(body=b'{"a": 1}', content_type="application/problem+json; charset=utf-8"), {"a": 1}),
    (Reply(body=b"not json"), {"result": "not json"}),
    (Reply(body=b'{"a": NaN}'), {"result": '{"a": NaN}'}),
    (Reply(body=b"[" * 500 + b"]" * 500), {"result": "[" * 500 + "]" * 500}),
    (Reply(body="é".encode(), content_type="text/plain"), {"result": "é"}),
    (Reply(body="é".encode("latin-1"), content_type="text/plain; charset=ISO-8859-1"), {"result": "é"}),
    (Reply(body=b"\xff", content_type="text/plain; charset=no-such"), {"result": "\ufffd"}),
    (Reply(body=b"<a/>", content_type="image/svg+xml"), {"result": "<a/>"}),
    (Reply(body=b"plain", content_type=""), {"result": "plain"}),
    (Reply(204), {"result": None}),
    (Reply(201, b""), {"result": None}),
    (Reply(body=b"\x89PNG", content_type="image/png"), {"result": {"media": ["image/png, 4 B"]}}),
    *(
        (Reply(body=b"\xff\xfe", content_type=said), {"result": {"media": [f"{meant}, 2 B"]}})
        for said, meant in (("a/" + "b" * 98, "a/" + "b" * 98), ("a/" + "b" * 99, "application/octet-stream"))
    ),
    (Reply(body=b"\xff\xfe", content_type=""), {"result": {"media": ["application/octet-stream, 2 B"]}}),
]


@pytest.mark.parametrize(("reply", "expected"), ANSWERS)
async def test_an_answer_becomes_a_result(reply: Reply, expected: Any) -> None:
    """JSON as it is, texts as texts, what is neither as media."""
    async with desk() as at:
        at.api.script.append(reply)
        assert await at.call("health_get") == expected


async def test_a_long_text_is_cut_and_says_so() -> None:
    """No more is read than may be, of a body that never ends, too; the connection is closed."""
    async with desk(response_bytes_max=1000) as at:
        at.api.script.append(Reply(body=b"x" * 400, content_type="text/plain", endless=True))
        found = await at.call("health_get")
        assert found["text"] == "x" * 1000
        assert "of 1000 bytes" in found["cut"]
        at.api.script.append(Reply(body=b"[" + b"1," * 1000 + b"1]"))
        assert (await at.call("health_get"))["text"].startswith("[1,1,")
        at.api.script.append(Reply(body=b"\x00" * 1001, content_type="image/png"))
        found = await at.call("health_get")
        assert "response_bytes_max" in found["error"]["message"]
        assert at.api.bytes_sent < 100_000_000


async def test_an_error_of_the_server_is_told_to_the_model() -> None:
    """ApiError with the status and the beginning of what the server says, without control characters."""
    async with desk() as at:
        at.api.script.append(Reply(404, b'{"detail": "no such pet \x1b[31m"}' + b"z" * 10_000))
        found = await at.call("get_pet_by_id", petId="7")
        assert found["error"]["type"] == "ApiError"
        message = found["error"]["message"]
        assert message.startswith('GET /pets/{petId} was answered with 404 Not Found: {"detail": "no such pet')
        assert len(message) < 2_200
        assert "\x1b" not in message


async def test_an_error_may_be_tried_again() -> None:
    """The status is on the error, and how long to wait: a RetryConfig covers it like any other."""
    async with desk(retry=RetryConfig(max_attempts=2, initial_delay=0, exceptions=["ApiError"])) as at:
        at.api.script += [Reply(503, b"busy", headers={"retry-after": "7"}), Reply(body=b'{"ok": true}')]
        assert await at.call("health_get") == {"ok": True}


async def test_a_server_that_does_not_answer() -> None:
    """In time: the tool's time-out; not there: ApiConnectionError."""
    async with desk(timeout_s=0.2) as at:
        at.api.script.append(Reply(stalls=True))
        assert (await at.call("health_get"))["error"]["type"] in ("ApiTimeoutError", "ToolTimeoutError")
    nobody = Desk(Api(), "http://127.0.0.1:9")
    found = await nobody.call("health_get")
    assert found["error"]["type"] == "ApiConnectionError"
    assert "127.0.0.1" not in found["error"]["message"]


async def test_a_cancelled_call_leaves_no_connection() -> None:
    """Who leaves the run leaves the request, at once."""
    async with desk() as at:
        at.api.script.append(Reply(stalls=True))
        with trio.move_on_after(0.5) as scope:
            await at.call("health_get")
        assert scope.cancelled_caught
        assert await at.call("health_get") != {}


REDIRECTS: list[tuple[int, str, str, str]] = [
    (302, "/v1/there", "GET", "/v1/there"),
    (307, "there?x=1", "GET", "/v1/there"),
    (301, "https://evil.example/", "GET", "https://evil.example"),
    (302, "//evil.example/x", "GET", "evil.example"),
    (302, "http://127.0.0.1:1/", "GET", "http://127.0.0.1:1"),
    (302, "http://user@127.0.0.1/", "GET", "another address"),
    (302, "\\\\evil.example", "GET", "another address"),
    (303, "/v1/there", "POST", "/v1/there"),
    (308, "/v1/there", "POST", "/v1/there"),
    (307, "/v1/there", "POST", "/v1/there"),
    (301, "/v1/there", "POST", "/v1/there"),
    (302, "/v1/there", "POST", "/v1/there"),
]


@pytest.mark.parametrize(("status", "location", "method", "expected"), REDIRECTS)
async def test_redirects_stay_with_the_server(status: int, location: str, method: str, expected: str) -> None:
    """To another host, scheme or port none is followed; the message says where it would have led."""
    async with desk() as at:
        at.api.script.append(Reply(status, b"", headers={"location": location}))
        found = await (at.call("health_get") if method == "GET" else at.call("note", body="words"))
        if expected.startswith("/"):
            assert found["path"] == expected
            is_same = method == "POST" and status in (307, 308)
            assert (found["method"], found["body"]) == (("POST", "words") if is_same else ("GET", ""))
            assert ("content-type" in found["headers"]) == is_same  # a body that is not sent has none
        else:
            assert found["error"]["type"] == "ApiError"
            assert expected in found["error"]["message"]
            assert len(at.api.asked) == 1


async def test_a_redirect_that_leads_nowhere_is_an_answer() -> None:
    """Without an address there is nothing to follow: the model is told the status."""
    async with desk() as at:
        at.api.script.append(Reply(302, b"hm"))
        found = await at.call("health_get")
        assert found["error"]["type"] == "ApiError"
        assert "302" in found["error"]["message"]
        assert len(at.api.asked) == 1


async def test_redirects_end() -> None:
    """A server that leads in circles is left after five."""
    async with desk() as at:
        at.api.script += [Reply(302, headers={"location": "/v1/health"})] * 9
        assert "more than 5 redirects" in (await at.call("health_get"))["error"]["message"]


# --- who asks ---------------------------------------------------------------------------------------------------------


async def provided(at: Desk, credential: AuthCredential) -> Any:
    """Answer the question for a credential, and go on."""
    [question] = at.run.pending
    return await at.say(await at.runner.provide_credential(question, credential))


async def test_a_key_is_asked_for_and_sent_where_the_document_says() -> None:
    """Only with operations that want it; a server that repeats it does not bring it into the log."""
    async with desk(auth=AuthConfig("pets", "api_key")) as at:
        assert "headers" in await at.call("health_get")
        assert "headers" in await at.call("list_pets")  # it wants a token, which this is not
        assert await at.call("delete_pet", petId="1") is None
        found = await provided(at, AuthCredential("api_key", api_key=KEY))
        assert at.api.asked[-1]["headers"]["x-api-key"] == KEY
        assert found["headers"]["x-api-key"] == "[secret]"
        assert KEY not in at.written


@pytest.mark.parametrize("place", ["query", "cookie"])
async def test_a_key_in_the_address_or_a_cookie(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """Escaped, and in no form in the log, though the server repeats it; nor does the HTTP client log the address."""
    caplog.set_level(logging.DEBUG)
    document = json.loads(json.dumps(FRIENDLY))
    document["components"]["securitySchemes"]["key"] = {"type": "apiKey", "in": place, "name": "api key"}
    async with desk(spec_dict=document, auth=AuthConfig("pets", "api_key")) as at:
        at.api.token = KEY if place == "query" else "key-of-ada%2F%2B%3D%204711"
        await at.call("delete_pet", petId="1")
        found = await provided(at, AuthCredential("api_key", api_key=KEY))
        assert found["method"] == "DELETE"
        assert KEY not in at.written
        assert "key-of-ada" not in at.written
        assert "httpcore2" in caplog.text
        assert "key-of-ada" not in caplog.text


async def test_a_password_is_in_no_form_in_the_log() -> None:
    """Nor in that of the header, which a server may repeat."""
    document = json.loads(json.dumps(FRIENDLY))
    document["components"]["securitySchemes"]["signedIn"] = {"type": "http", "scheme": "basic"}
    async with desk(spec_dict=document, auth=AuthConfig("pets", "basic")) as at:
        await at.call("list_pets")
        found = await provided(at, AuthCredential("basic", username="ada", password="lovelace-1815"))
        assert at.api.asked[-1]["headers"]["authorization"] == "Basic YWRhOmxvdmVsYWNlLTE4MTU="
        assert found["headers"]["authorization"] == "[secret]"
        assert "YWRhOmxvdmVsYWNlLTE4MTU=" not in at.written


async def test_a_refused_key_is_asked_for_again() -> None:
    """A 401 forgets it and pauses the run; the answer is tried from the start of the call."""
    async with desk(auth=AuthConfig("pets", "bearer")) as at:
        at.api.token = "the-right-one"
        await at.call("list_pets")
        assert await provided(at, AuthCredential("bearer", token="the-wrong-one")) is None
        assert at.run.status == "paused"
        found = await provided(at, AuthCredential("bearer", token="the-right-one"))
        assert found["path"] == "/v1/pets"
        assert "the-wrong-one" not in at.written


async def test_headers_of_the_program() -> None:
    """As texts; as a function, which is asked once more after a 401. Secrets in them are in no log."""
    async with desk(headers={"X-Tenant": "acme-corporation", "X-Api-Key": "the-api-key-of-acme"}) as at:
        found = await at.call("health_get")
        assert (found["headers"]["x-tenant"], found["headers"]["x-api-key"]) == ("acme-corporation", "[secret]")
        assert at.api.asked[-1]["headers"]["x-api-key"] == "the-api-key-of-acme"
    asked: list[bool] = []

    async def headers(context: Any, *, refresh: bool) -> dict[str, str]:
        asked.append(refresh)
        return {"Authorization": f"Bearer token-number-{len(asked)}", "X-Kind": "e"}

    async with desk(headers=headers) as at:
        at.api.token = "token-number-2"
        found = await at.call("health_get")
        assert found["headers"]["authorization"] == "Bearer [secret]" or found["headers"]["authorization"] == "[secret]"
        assert found["headers"]["x-kind"] == "e"  # what is so short is a word, and no secret
        assert asked == [False, True]
        assert "token-number" not in at.written


async def test_headers_that_cannot_be_are_refused_unseen() -> None:
    """When the toolset is made, or, from a function, in the call; the value is not shown."""
    for bad in ({"a b": "x"}, {"a": "p4ss\r\nX: 1"}, {"a": 1}, "p4ss", {"a": "p4ßs"}):
        with pytest.raises(ConfigurationError, match="expected") as caught:
            OpenAPIToolset(spec_dict=FRIENDLY, base_url="https://a.example", headers=bad)  # type: ignore[arg-type]
        assert "p4" not in str(caught.value)
    async with desk(headers=lambda context, refresh: {"a": "p4ss\n"}) as at:
        assert (await at.call("health_get"))["error"]["type"] == "ConfigurationError"
        assert "p4ss" not in at.written


async def test_a_call_may_need_somebodys_leave() -> None:
    """For all, for some by name, or by a function; a name that is none would be no safeguard, and is refused."""
    choices: list[Any] = [True, ["delete_pet"], lambda petId: petId == "1"]
    for required in choices:
        async with desk(require_confirmation=required) as at:
            await at.call("delete_pet", petId="1")
            [question] = at.run.pending
            assert (question.kind, question.tool, at.api.asked) == ("confirmation", "delete_pet", [])
            found = await at.say(question.reply(True))
            assert found["method"] == "DELETE"
    with pytest.raises(ConfigurationError, match="'deletePet'"):
        OpenAPIToolset(spec_dict=FRIENDLY, require_confirmation=["deletePet"])
    with pytest.raises(ConfigurationError, match="require_confirmation"):
        OpenAPIToolset(spec_dict=FRIENDLY, require_confirmation="delete_pet")


def test_secrets_go_where_the_program_says() -> None:
    """A document does not decide where a credential is sent: without base_url there is none."""
    secrets: list[dict[str, Any]] = [{"auth": AuthConfig("pets", "bearer")}, {"headers": {"X-Api-Key": "secret-key"}}]
    for given in secrets:
        with pytest.raises(ConfigurationError, match=r"base_url='https://pets\.example/v1'"):
            OpenAPIToolset(spec_dict=FRIENDLY, **given)


async def test_a_description_has_a_thousand_characters_and_then_says_that_it_goes_on() -> None:
    """One that fits is whole."""
    paths = {f"/{n}": {"get": {"operationId": f"n{n}", "description": "x" * n}} for n in (1000, 1001)}
    document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://a.test"}]}
    tools = await tools_of(OpenAPIToolset(spec_dict={**document, "paths": paths}))
    assert [tools[name].description for name in ("n1000", "n1001")] == ["x" * 1000, "x" * 1000 + " …"]


# --- hostile documents ------------------------------------------------------------------------------------------------


async def test_ten_hostile_megabytes_become_bounded_tools() -> None:
    """Read in seconds; names differ; each declaration is a schema that can be checked, of some kilobytes."""
    text = hostile(10)
    assert len(text) > 10_000_000
    begun = time.process_time()
    toolset = OpenAPIToolset(spec_str=text)
    tools = await tools_of(toolset)
    sizes = {}
    tracemalloc.start()
    for name, tool in tools.items():
        parameters = tool.declaration.parameters
        compile_schema(parameters)
        sizes[name] = len(json.dumps(parameters)) + len(tool.description)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"{time.process_time() - begun:.1f} s, {memory / 1e6:.1f} MB, {sizes}")
    assert time.process_time() - begun < 20
    assert memory < 50_000_000
    assert max(sizes.values()) < 100_000
    assert {"same", "same_2", "s_a_m_e", "same_3", "_2_j_0_owned", "_9lives", "j"} <= tools.keys()
    assert all(len(name) <= 60 and name.isascii() and name.isidentifier() for name in tools)
    shown = json.dumps([tool.declaration.parameters for tool in tools.values()]) + repr(
        [tool.description for tool in tools.values()]
    )
    assert "\\u001b" not in shown
    assert "\\x1b" not in shown
    assert "\\u202e" not in shown


async def test_what_a_hostile_document_cannot_have_is_left_out_with_the_reason() -> None:
    """Other servers, other documents, circles, and paths that lead up; the reasons have no control characters."""
    toolset = OpenAPIToolset(spec_str=hostile(0))
    reasons = {
        "GET /d": "server of its own",
        "GET /e": "server of its own",
        "/f": "without end",
        "/g": "out of the document",
        "GET /../admin/{x}": "path",
        "GET /%2e%2e/admin": "path",
        "DELETE /i": "expected an object",
        "PATCH /i": "has no name",
        "GET no slash": "path",
    }
    for operation, reason in reasons.items():
        assert reason in toolset.left_out[operation]
    assert len(toolset.left_out) == len(reasons) + 1  # and the path with a line break
    assert "\\x1b" not in repr(toolset.left_out)
    assert all("\n" not in name and "\r" not in name for name in toolset.left_out)


async def test_schemas_that_never_say_what_they_are_accept_anything() -> None:
    """One that is itself, and two that are each other; one with a tree of itself is checked."""
    toolset = OpenAPIToolset(spec_str=hostile(0))
    found = (await declared(toolset, "same_3")).parameters
    assert (found["properties"], found["$defs"]) == ({"body": {"$ref": "#/$defs/Self"}}, {"Self": {}})
    found = (await declared(toolset, "_2_j_0_owned")).parameters
    assert (found["$defs"]["One"], found["$defs"]["Other"]) == ({}, {})
    assert found["$defs"]["Tree"]["properties"] == {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}
    document = {
        "openapi": "3.1.0",
        "paths": {"/t": {"post": {"operationId": "t", "requestBody": {"content": {"application/json": {
            "schema": {"$ref": "#/components/schemas/Tree"}}}}}}},
        "components": {"schemas": json.loads(hostile(0))["components"]["schemas"]},
    }  # fmt: skip
    found = (await declared(OpenAPIToolset(spec_dict=document, base_url="https://a.example"), "t")).parameters
    assert compile_schema(found).problems({"body": {"children": [{"children": "x"}]}})


async def test_arguments_of_one_name_have_different_ones() -> None:
    """The first keeps it, the next say where they go; the server gets the names that it knows."""
    async with desk(spec_str=hostile(0), spec_dict=None) as at:
        found = (await declared(at.toolset, "j")).parameters["properties"]
        assert list(found) == ["a_b", "a_b_in_query", "a_b_in_query_2", "bad_header", "2J_0_owned"]
        sent = await at.call("j", a_b="1", a_b_in_query="2", a_b_in_query_2="3")
        assert (sent["path"], sent["query"]) == ("/v1/j/1", "a_b=2&a%20b=3")
        refused = await at.call("j", a_b="1", bad_header="x")
        assert refused["error"]["type"] == "ArgumentError"


def deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"x": value}
    return value


def circle() -> dict[str, Any]:
    document: dict[str, Any] = {"openapi": "3.0.0"}
    document["paths"] = {"/a": document}
    return document


def bomb() -> dict[str, Any]:
    value: Any = ["x"] * 10
    for _ in range(20):
        value = [value] * 10
    return {"openapi": "3.0.0", "x": value}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "expected spec_dict or spec_str, found neither"),
    ({"spec_dict": {}, "spec_str": "{}"}, "found both"),
    ({"spec_dict": {}}, "expected a document of OpenAPI 3"),
    ({"spec_dict": []}, "expected spec_dict to be a dict"),
    ({"spec_dict": {"swagger": "2.0"}}, "found Swagger '2.0'; convert it"),
    ({"spec_dict": {"openapi": "4.0.0"}}, "found openapi: '4.0.0'"),
    ({"spec_dict": {"openapi": "3.0.0", "x": deep(300)}}, "at most 200 levels"),
    ({"spec_dict": circle()}, "contains itself"),
    ({"spec_dict": bomb()}, "at most 5000000 values"),
    ({"spec_dict": {"openapi": "3.0.0", "x": float("nan")}}, "that JSON can write"),
    ({"spec_str": "openapi: 3.0.0"}, "spec_str_type='yaml'"),
    ({"spec_str": "[" * 100_000}, "nested too deep"),
    ({"spec_str": b"{}"}, "expected spec_str to be a text"),
    ({"spec_str": " " * (33 * 2**20)}, "at most 33554432 bytes"),
    ({"spec_str": "{}", "spec_str_type": "toml"}, "'json' or 'yaml'"),
    ({"spec_str": "x: " + " " * (3 * 2**20), "spec_str_type": "yaml"}, "convert it to JSON"),
    ({"spec_str": "a: [1", "spec_str_type": "yaml"}, "to be YAML"),
    ({"spec_str": "a: !!python/object:os.system []", "spec_str_type": "yaml"}, "to be YAML"),
    ({"spec_str": "openapi: 3.0.0\na: &a [*a]", "spec_str_type": "yaml"}, "contains itself"),
    ({"spec_dict": {"openapi": "3.0.0"}}, "the first of the document's servers"),
    ({"spec_dict": {"openapi": "3.0.0", "servers": [{"url": "/v1"}]}}, "write base_url="),
    ({"spec_dict": FRIENDLY, "base_url": "ftp://a.example"}, "expected base_url"),
    ({"spec_dict": FRIENDLY, "base_url": "https://a:b@a.example"}, "expected base_url"),
    ({"spec_dict": FRIENDLY, "base_url": "https://a.example/v1?x=1"}, "expected base_url"),
    ({"spec_dict": FRIENDLY, "base_url": "https://a.example/../x"}, "expected base_url"),
    ({"spec_dict": FRIENDLY, "timeout_s": 0}, "timeout_s"),
    ({"spec_dict": FRIENDLY, "response_bytes_max": 0}, "response_bytes_max"),
    ({"spec_dict": FRIENDLY, "auth": "bearer"}, "expected auth to be an AuthConfig"),
    ({"spec_dict": FRIENDLY, "auth": AuthConfig("k", "custom")}, "expected auth to be an AuthConfig"),
    ({"spec_dict": FRIENDLY, "tool_name_prefix": "p" * 60}, "leave room for names"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_read_is_refused(given: dict[str, Any], words: str) -> None:
    """When the toolset is made, in a short sentence."""
    if given.get("spec_str_type") == "yaml":
        pytest.importorskip("yaml")
    with pytest.raises(ConfigurationError) as caught:
        OpenAPIToolset(**given)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


async def test_a_key_needs_a_place_in_the_document() -> None:
    """Where the document has none for keys, the program is told what to write."""
    document = {"openapi": "3.0.0", "paths": {}}
    with pytest.raises(ConfigurationError, match="securityScheme of the type apiKey"):
        OpenAPIToolset(spec_dict=document, base_url="https://a.example", auth=AuthConfig("k", "api_key"))
