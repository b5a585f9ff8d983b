"""
The bounds of a toolset of an OpenAPI document, what is taken where a document says two things, and documents of which a
part leads nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from minirun.errors import ArgumentError, ConfigurationError
from minirun.tools import RetryConfig
from minirun.tools.openapi import RESPONSE_BYTES_MAX, TIMEOUT_S, OpenAPIToolset

from ..openapi_server import Reply
from ..openapi_tables import BASE, document, operations
from .test_openapi import desk

pytest.importorskip("httpx2", reason="the extra `minirun[models]` is not installed")


def toolset_of(paths: Any, **options: Any) -> OpenAPIToolset:
    return OpenAPIToolset(**{"spec_dict": {"openapi": "3.1.0", "paths": paths}, "base_url": BASE, **options})


# --- options ----------------------------------------------------------------------------------------------------------

TOOL_OPTIONS = (
    *("timeout_s", "retry", "retries", "max_concurrency", "on_interrupted", "require_confirmation", "sequential"),
    *("is_long_running", "checks_arguments"),
)
RETRY = RetryConfig(max_attempts=2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (30.0, None, 2, None, "rerun", False, False, False, True)),
        (
            {"timeout_s": 0.5, "retry": RETRY, "max_concurrency": 1, "require_confirmation": True},
            (0.5, RETRY, 2, 1, "rerun", True, False, False, True),
        ),
        ({"require_confirmation": ["ask"]}, (30.0, None, 2, None, "rerun", True, False, False, True)),
        ({"require_confirmation": {"other"}}, (30.0, None, 2, None, "rerun", False, False, False, True)),
        ({"require_confirmation": ()}, (30.0, None, 2, None, "rerun", False, False, False, True)),
    ],
)
async def test_the_tools_of_a_document_have_the_options_of_their_toolset(options: Any, expected: Any) -> None:
    """Each as it was given, and else what is usual; of 30 seconds and 256 KiB."""
    assert (TIMEOUT_S, RESPONSE_BYTES_MAX) == (30.0, 262_144)
    toolset = toolset_of({"/a": {"get": {"operationId": "ask"}, "put": {"operationId": "other"}}}, **options)
    tool, _ = await toolset.get_tools()
    assert tuple(getattr(tool, name) for name in TOOL_OPTIONS) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout_s": -1}, "expected timeout_s to be a number of seconds above 0, found -1"),
        ({"timeout_s": None}, "expected timeout_s to be a number of seconds above 0, found None"),
        ({"response_bytes_max": 1.5}, "expected response_bytes_max to be an integer from 1 up, found 1.5"),
        ({"response_bytes_max": True}, "expected response_bytes_max to be an integer from 1 up, found True"),
        ({"require_confirmation": [1]}, "to be True, False, names of tools or a function, found [1]"),
        ({"require_confirmation": 1}, "to be True, False, names of tools or a function, found 1"),
        ({"require_confirmation": None}, "to be True, False, names of tools or a function, found None"),
        ({"require_confirmation": ["b", "a", "ask"]}, "to name tools, found 'a', which is none"),
        ({"tool_name_prefix": "p" * 48}, "expected tool_name_prefix to leave room for names, of 64 characters in all"),
        ({"sequential": 1}, "expected sequential to be True or False, found 1"),
        ({"spec_dict": None, "spec_str": "[1]"}, "expected an OpenAPI document, found [1] of type list"),
        ({"spec_dict": None, "spec_str": "null"}, "expected an OpenAPI document, found None of type NoneType"),
        ({"spec_dict": None, "spec_str": '{"a": "\ud800"}'}, "UTF-8 can write, found a lone surrogate"),
        ({"spec_dict": {"openapi": 3.1}}, "found openapi: 3.1; convert it"),
        ({"spec_dict": {"openapi": "3.3.0"}}, "found openapi: '3.3.0'; convert it"),
        ({"spec_dict": {"openapi": "3.1.0x"}}, "found openapi: '3.1.0x'; convert it"),
    ],
)
def test_what_a_toolset_cannot_be_made_with(options: dict[str, Any], words: str) -> None:
    """It is refused at once, with what was expected and what was found."""
    with pytest.raises(ConfigurationError) as caught:
        toolset_of({"/a": {"get": {"operationId": "ask"}}}, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize("version", ["3.0", "3.0.3", "3.1.1", "3.2.0", "3.1.0-rc1", "3.0.0+a"])
def test_a_version_of_openapi_3_is_read(version: str) -> None:
    """Whatever stands behind it."""
    assert OpenAPIToolset(spec_dict={"openapi": version}, base_url=BASE).left_out == {}


@pytest.mark.parametrize(("prefix", "chars"), [(None, 60), ("p", 62), ("ppp", 64), ("pppp", 64), ("p" * 47, 64)])
async def test_names_have_room_beside_a_prefix(prefix: str | None, chars: int) -> None:
    """Up to 64 characters in all, of which 60 at most are the name's own, and 16 at least."""
    paths = {f"/{n}": {"get": {"operationId": "a" * 80}} for n in range(11)}
    names = [tool.name for tool in await toolset_of(paths, tool_name_prefix=prefix).get_tools_with_prefix()]
    begin = "" if prefix is None else f"{prefix}_"
    room = chars - len(begin)
    assert names == [begin + "a" * room, *(f"{begin}{'a' * (room - 6)}_{n}" for n in range(2, 12))]


async def test_a_limit_of_a_response_may_be_one_byte() -> None:
    """A text is cut there, and what is exactly as long is whole."""
    async with desk(response_bytes_max=1, timeout_s=30) as at:
        at.api.script += [Reply(body=body, content_type="text/plain") for body in (b"ab", b"a")]
        assert (await at.call("health_get"))["text"] == "a"
        assert await at.call("health_get") == {"result": "a"}


# --- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "is_asked"),
    [
        ([{"url": BASE}, {"url": "https://other.example"}], True),  # the first counts
        ([{"url": "https://other.example"}, {"url": BASE}], False),
        ([{"url": 3}, {"url": BASE}], True),  # what is none does not
        ([3, {"url": "https://other.example"}], False),
        ([], True),
        (3, True),
        ([{"url": "https://{host}/v1", "variables": {"host": {"default": "api.example"}}}], True),
        ([{"url": "{h}/{v}", "variables": {"h": {"default": "https://api.example"}, "v": {"default": "v1"}}}], True),
        ([{"url": "https://{host}/v1", "variables": {"host": 3}}], False),
        ([{"url": "https://{host}/v1", "variables": [1]}], False),
    ],
)  # fmt: skip
def test_an_operation_belongs_to_the_first_of_its_servers(servers: Any, is_asked: bool) -> None:
    """One that is another's than the document's is left out, unless the program says where requests go."""
    read = document({"/a": {"get": {"operationId": "ask", "servers": servers}}})
    [found] = operations(read, given=False)
    if is_asked:
        assert found.name == "ask"
    else:
        operation, why = found
        assert operation == "GET /a"
        assert why.startswith("it has a server of its own (")
    assert operations(read, given=True)[0].name == "ask"


def test_what_is_left_out_is_named_in_120_characters() -> None:
    """A path that is longer is cut, and the reason stands for itself."""
    paths = {"/" + "a" * 119: {"get": 3}, "/" + "b" * 120: {"get": 3}}
    assert dict(toolset_of(paths).left_out) == {
        "GET /" + "a" * 119: "expected an object, found 3 of type int",
        "GET /" + "b" * 119 + " …": "expected an object, found 3 of type int",
    }


# --- parts that lead nowhere ------------------------------------------------------------------------------------------


async def test_a_form_of_which_parts_lead_nowhere_is_sent_all_the_same() -> None:
    """A field that refers to nothing is no file, and a form that does has no fields; either may be anything."""
    nowhere = {"$ref": "#/components/schemas/Gone"}
    field = {"type": "object", "properties": {"a": nowhere, "f": {"type": "string", "format": "binary"}}}
    schemas = {"form": nowhere, "field": field, "items": {"properties": {"l": {"type": "array", "items": nowhere}}}}
    bodies = {name: {"content": {"multipart/form-data": {"schema": schema}}} for name, schema in schemas.items()}
    paths = {f"/{name}": {"post": {"operationId": name, "requestBody": body}} for name, body in bodies.items()}
    toolset = toolset_of(paths)
    assert toolset.left_out == {}
    found = {}
    for tool in await toolset.get_tools():
        assert tool.declaration is not None
        found[tool.name] = tool.declaration.parameters["properties"]["body"]
    by_name = "The name of an artifact: its content is sent."
    assert found == {
        "form": {},
        "field": {
            "type": "object",
            "properties": {"a": {}, "f": {"type": "string", "minLength": 1, "description": by_name}},
        },
        "items": {"properties": {"l": {"type": "array", "items": {}}}},
    }


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


async def test_a_value_that_no_log_can_hold_is_left_out_of_a_schema() -> None:
    """A default that is nested deeper than values may be says nothing."""
    kept = {"type": "array", "default": deep(3)}
    for default, expected in ((deep(3), kept), (deep(150), {"type": "array"})):
        parameter = {"name": "x", "in": "query", "schema": {"type": "array", "default": default}}
        [tool] = await toolset_of({"/a": {"get": {"operationId": "ask", "parameters": [parameter]}}}).get_tools()
        assert tool.declaration is not None
        assert json.loads(json.dumps(tool.declaration.parameters["properties"])) == {"x": expected}


async def test_an_address_that_is_too_long_is_the_models_mistake() -> None:
    """It is told so, and nothing is sent."""
    async with desk() as at:
        assert "path" in await at.call("get_pet_by_id", petId="a" * 7_000)
        found = await at.call("get_pet_by_id", petId="a" * 8_192)
        assert found["error"]["type"] == ArgumentError.__name__
        assert len(at.api.asked) == 1


class Odd(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __init__(self, **items: Any) -> None:
        self.items_of = items

    def __getitem__(self, name: str) -> Any:
        return self.items_of[name]

    def __iter__(self) -> Any:
        return iter(self.items_of)

    def __len__(self) -> int:
        return len(self.items_of)


async def test_numbers_as_keys_are_texts_and_other_values_are_written() -> None:
    """As YAML has status codes and dates; a document is copied, so that nobody changes it afterwards."""
    given: Any = {
        "openapi": "3.1.0",
        "paths": {"/a": {"get": {"operationId": "ask", "responses": {200: {}}, "summary": "S", 3.5: Odd, None: 1}}},
        "servers": ({"url": BASE},),
    }
    toolset = OpenAPIToolset(spec_dict=given)
    given["paths"]["/a"]["get"]["summary"] = "other"
    [tool] = await toolset.get_tools()
    assert (tool.name, tool.description) == ("ask", "S")
    for bad in ({"openapi": "3.1.0", "x": float("inf")}, {"openapi": "3.1.0", "x": [float("nan")]}):
        with pytest.raises(ConfigurationError, match="expected a document that JSON can write, found another"):
            OpenAPIToolset(spec_dict=bad)


# --- the way ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [300, 304, 305, 306, 309, 400])
async def test_a_status_that_is_no_redirect_is_not_followed(status: int) -> None:
    """Whatever address stands beside it: the model is told the status."""
    async with desk() as at:
        at.api.script.append(Reply(status, headers={"location": "/v1/there"}))
        found = await at.call("health_get")
        assert found["error"]["type"] == "ApiError"
        assert found["error"]["message"].startswith(f"GET /health was answered with {status}")
        assert [asked["path"] for asked in at.api.asked] == ["/v1/health"]


@pytest.mark.parametrize(("count", "is_fine"), [(4, True), (5, False)])
async def test_four_redirects_are_followed_and_five_are_too_many(count: int, is_fine: bool) -> None:
    """A server is asked five times for one call."""
    async with desk() as at:
        at.api.script += [Reply(302, headers={"location": f"/v1/{n}"}) for n in range(count)]
        found = await at.call("health_get")
        assert ("error" not in found) is is_fine
        paths = [asked["path"] for asked in at.api.asked]
        assert paths == ["/v1/health", *(f"/v1/{n}" for n in range(4))]


@pytest.mark.parametrize(("status", "is_fine"), [(200, True), (201, True), (299, True), (300, False), (499, False)])
async def test_a_status_from_200_to_299_is_a_success(status: int, is_fine: bool) -> None:
    """Anything else is an ApiError."""
    async with desk() as at:
        at.api.script.append(Reply(status, b'{"a": 1}'))
        found = await at.call("health_get")
        assert ("error" not in found) is is_fine


@pytest.mark.parametrize(("status", "refreshes"), [(400, []), (401, [True]), (402, []), (403, [])])
@pytest.mark.parametrize("is_function", [True, False])
async def test_headers_are_made_anew_for_a_401_alone(status: int, refreshes: list[bool], is_function: bool) -> None:
    """And only if a function makes them: the same ones would be refused again."""
    asked: list[bool] = []

    def headers(context: Any, *, refresh: bool) -> dict[str, str]:
        asked.append(refresh)
        return {"X-Count": str(len(asked))}

    async with desk(headers=headers if is_function else {"X-Count": "1"}) as at:
        at.api.script.append(Reply(status, b"no"))
        found = await at.call("health_get")
        is_again = is_function and bool(refreshes)
        assert ("error" not in found) is is_again
        assert asked == ([False, *refreshes] if is_function else [])
        assert [each["headers"]["x-count"] for each in at.api.asked] == (["1", "2"] if is_again else ["1"])


SECRET = "the-value"
NAMES = ("Authorization", "Cookie", "X-Key", "X-Password", "A-Secret", "Session-Id", "My-TOKEN", "X-Trace", "Accept")


@pytest.mark.parametrize("is_function", [True, False])
async def test_headers_with_names_of_secrets_are_in_no_log(is_function: bool) -> None:
    """Of a function's all values of eight characters and more are hidden, whatever their names say."""
    given = {name: SECRET[: 8 + index] + str(index) for index, name in enumerate(NAMES)}
    async with desk(headers=(lambda context, refresh: given) if is_function else given) as at:
        found = (await at.call("health_get"))["headers"]
        sent = at.api.asked[-1]["headers"]
    assert {name: sent[name.lower()] for name in NAMES} == given
    shown = {name for name in NAMES if found[name.lower()] == given[name]}
    hidden = {name for name in NAMES if found[name.lower()] == "[secret]"}
    assert shown | hidden == {*NAMES}
    assert shown == (set() if is_function else {"X-Trace", "Accept"})


async def test_a_short_value_of_a_function_is_a_word_and_what_follows_a_blank_is_hidden_by_itself() -> None:
    """A server that repeats the token without the word before it tells nobody."""
    given = {"X-Kind": "1234567", "X-Other": "12345678", "Authorization": "Bearer of-ada-and-bob"}
    async with desk(headers=lambda context, refresh: given) as at:
        at.api.script.append(Reply(body=b'["1234567", "12345678", "of-ada-and-bob", "x of-ada-and-bob"]'))
        found = await at.call("health_get")
    assert found == {"result": ["1234567", "[secret]", "[secret]", "x [secret]"]}
