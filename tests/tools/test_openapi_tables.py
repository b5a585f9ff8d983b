"""
What becomes of OpenAPI documents, as tables of JSON in `tests/fixtures/openapi`; `tests/openapi_tables.py` has the
questions, and says how the tables are written anew.
"""

from __future__ import annotations

from typing import Any

import pytest

from minirun.credentials import AuthCredential
from minirun.errors import ConfigurationError
from minirun.tools._openapi._document import (
    DEPTH_MAX,
    DOCUMENT_BYTES_MAX,
    ITEMS_MAX,
    YAML_BYTES_MAX,
    _count,
    read_document,
)
from minirun.tools._openapi._operations import _tool_name
from minirun.tools._openapi._request import Outgoing, with_credential
from minirun.tools._openapi._schemas import Schemas, safe_parameters
from minirun.tools._openapi._security import SecurityScheme
from minirun.tools._openapi._tool import _redirected
from minirun.tools.openapi import OpenAPIToolset

from ..openapi_tables import BASE, TABLES, document, operations
from ..tables import kept


@pytest.mark.parametrize("name", TABLES)
def test_a_document_becomes_what_the_table_says(name: str) -> None:
    """
    Each keyword, parameter, body, value, answer and credential becomes what the table says, or is refused so.
    """
    found, expected = TABLES[name](), kept(f"openapi/{name}")
    assert {case: made for case, made in found.items() if made != expected.get(case)} == {}
    assert [*found] == [*expected]


@pytest.mark.parametrize(
    ("scheme", "spot"),
    [
        (SecurityScheme("bearer"), ("header", "authorization")),
        (SecurityScheme("api_key", "header", "X-Key"), ("header", "x-key")),
        (SecurityScheme("api_key", "query", "Key"), ("query", "Key")),
        (SecurityScheme("api_key", "cookie", "Key"), ("cookie", "Key")),
    ],
)
def test_a_credential_has_a_spot_of_its_own(scheme: SecurityScheme, spot: tuple[str, str]) -> None:
    """
    Nothing else can stand there; only the names of headers are the same in large and small letters.
    """
    assert scheme.spot == spot


@pytest.mark.parametrize(
    ("operation_id", "fallback", "name"),
    [
        ("getUserById", "get /users", "get_user_by_id"),
        ("-" * 499 + "a", "get /users", "a"),
        ("-" * 500 + "a", "get /users", "get_users"),
        ("", "-" * 499 + "a", "a"),
        ("", "-" * 500 + "a", "operation"),
        ("a" * 500, "", "a" * 64),
        ("2nd", "", "_2nd"),
        ("a" * 63 + "-b", "", "a" * 63),
    ],
)
def test_a_tool_is_called_as_its_operation_is(operation_id: str, fallback: str, name: str) -> None:
    """
    In ADK's form. Of a name, and of what stands in its place, the first 500 characters are looked at.
    """
    assert _tool_name(operation_id, fallback, set(), 64) == name


@pytest.mark.parametrize(("kind", "size"), [("json", DOCUMENT_BYTES_MAX), ("yaml", YAML_BYTES_MAX)])
def test_a_text_has_so_many_bytes_and_no_more(kind: Any, size: int) -> None:
    """
    A text of the bytes that there may be is read (and found to be no document); one more is refused by its size.
    """
    assert size == {"json": 33_554_432, "yaml": 2_097_152}[kind]
    for text in ("]" + " " * (size - 1), "]ü" + " " * (size - 3)):
        with pytest.raises(ConfigurationError) as caught:
            read_document(None, text, kind)
        assert "bytes" not in str(caught.value)
        with pytest.raises(ConfigurationError, match=rf"at most {size} bytes, found {size + 1}"):
            read_document(None, text + " ", kind)


def test_a_document_has_so_many_values_and_levels_and_no_more() -> None:
    """
    What is shared counts as often as it occurs: five million values are counted, one more is refused; so is level 201.
    """
    assert (ITEMS_MAX, DEPTH_MAX) == (5_000_000, 200)
    thousand: list[Any] = [0] * 999
    rest = [0] * 998
    assert _count([thousand] * 4999 + [rest], {}, 0) == ITEMS_MAX
    assert _count({"a": (1, "b"), "c": None}, {}, 0) == 5
    with pytest.raises(ConfigurationError, match="at most 5000000 values, found a larger one"):
        _count([thousand] * 4999 + [thousand], {}, 0)
    deep: Any = 0
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    assert _count(deep, {}, 0) == DEPTH_MAX + 2
    with pytest.raises(ConfigurationError, match="at most 200 levels"):
        _count([deep], {}, 0)
    with pytest.raises(ConfigurationError, match="one that contains itself"):
        ring: list[Any] = []
        ring.append(ring)
        read_document({"openapi": "3.1.0", "x": ring}, None, "json")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/b?c=d", ("https://api.example/b?c=d", "")),
        ("b", ("https://api.example/v1/b", "")),
        ("https://api.example:443/b", ("https://api.example:443/b", "")),
        ("https://other.example/b?key=secret", ("", "https://other.example")),
        ("http://api.example/b", ("", "http://api.example")),
        ("ftp://api.example/b", ("", "another address")),
    ],
)
def test_a_redirect_leads_within_the_server(location: str, expected: tuple[str, str]) -> None:
    """
    Where it leads is an address of the server that has answered, or else only the name of the other one.
    """
    assert _redirected("https://api.example/v1/a", location) == expected


def test_a_redirect_of_no_address_leads_nowhere() -> None:
    """
    Without an address there is none that a redirect could be of.
    """
    assert _redirected("hm", "/a") == ("", "another address")


OWN = (
    *("accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "cookie"),
    *("expect", "host", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
)


def test_headers_of_the_transport_and_of_the_program_are_no_arguments() -> None:
    """
    However they are written; a header of any other name is one.
    """
    names = [*OWN, *(name.title() for name in OWN), "X-Trace", "Accept-Language", "via"]
    parameters = [{"name": name, "in": "header"} for name in names]
    [operation] = operations(document({"/a": {"get": {"parameters": parameters}}}))
    assert [each.name for each in operation.arguments] == ["X-Trace", "Accept-Language", "via"]


async def test_what_only_reads_is_asked_for_again_after_an_interruption() -> None:
    """
    GET, HEAD and OPTIONS change nothing; whether anything else was done is told to the model instead.
    """
    methods = ("get", "head", "options", "put", "post", "delete", "patch")
    paths = {"/a": {method: {"operationId": method} for method in methods}}
    toolset = OpenAPIToolset(spec_dict={"openapi": "3.1.0", "servers": [{"url": BASE}], "paths": paths})
    again = {tool.name for tool in await toolset.get_tools() if tool.on_interrupted == "rerun"}
    assert again == {"get", "head", "options"}
    assert {tool.on_interrupted for tool in await toolset.get_tools()} == {"rerun", "report"}


@pytest.mark.parametrize(
    ("key", "name", "is_fine"),
    [
        ("a b", "X-Key", True),
        ("a\x7f", "X-Key", False),
        ("a\r\nb: c", "X-Key", False),
        ("é", "X-Key", False),
        ("a", "X Key", False),
        ("a", "!#$%&'*+.^_`|~09AZaz-", True),
        ("a", "X-Key:", False),
    ],
)
def test_a_key_in_a_header_is_printable_ascii_under_a_name_of_http(key: str, name: str, is_fine: bool) -> None:
    """
    Anything else is refused, and the message does not show it.
    """
    plain = Outgoing("GET", BASE, (), {}, (), None)
    scheme, credential = SecurityScheme("api_key", "header", name), AuthCredential("api_key", api_key=key)
    if is_fine:
        assert with_credential(plain, scheme, credential).headers == {name.lower(): key}
    else:
        with pytest.raises(ConfigurationError, match="a key that a header can hold, found another") as caught:
            with_credential(plain, scheme, credential)
        assert repr(key) not in str(caught.value)


def test_arguments_whose_schemas_cannot_be_checked_may_be_anything() -> None:
    """
    They keep their names and descriptions, and which of them there have to be.
    """
    schemas = Schemas(document())
    given = {"a": {"type": "no type", "description": "d"}, "b": True, "c": {"type": "string"}}
    assert safe_parameters(given, ["a"], schemas) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {"a": {"description": "d"}, "b": {}, "c": {}},
        "required": ["a"],
    }
    assert safe_parameters({"c": {"type": "string"}}, [], schemas)["properties"] == {"c": {"type": "string"}}
