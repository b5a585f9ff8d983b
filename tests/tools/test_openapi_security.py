"""Which credentials a tool of an OpenAPI document sends, where an operation takes one of several, or several."""

from __future__ import annotations

from typing import Any

import pytest

from minirun.credentials import AuthConfig, AuthCredential
from minirun.errors import ConfigurationError
from minirun.tools.openapi import OpenAPIToolset

from .test_openapi import Desk, desk, provided

pytest.importorskip("httpx2", reason="the extra `minirun[models]` is not installed")

SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "login": {"type": "http", "scheme": "basic"},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://a.example/openid"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "app": {"type": "apiKey", "in": "query", "name": "app_id"},
    "mtls": {"type": "mutualTLS"},
    "digest": {"type": "http", "scheme": "digest"},
}
REQUIREMENTS: dict[str, Any] = {
    "one": [{"token": []}],
    "both": [{"key": [], "app": []}],
    "either": [{"login": []}, {"key": []}],
    "one_or_both": [{"token": [], "app": []}, {"key": []}],
    "optional": [{}, {"key": []}],
    "optional_other": [{}, {"login": []}],
    "nobody": [],
    "unknown_first": [{"mtls": []}, {"digest": []}, {"gone": []}, {"token": []}],
    "same_place": [{"token": [], "login": []}, {"key": []}],
    "with_unknown": [{"mtls": [], "key": []}],
    "odd": [17, {"key": []}],
}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        **{f"/{name}": {"get": {"operationId": name, "security": said}} for name, said in REQUIREMENTS.items()},
        "/silent": {"get": {"operationId": "silent"}},
    },
    "components": {"securitySchemes": SCHEMES},
}
CONFIGS = {
    "token": AuthConfig("t", "bearer"),
    "login": AuthConfig("l", "basic"),
    "oidc": AuthConfig("o", "oauth2"),
    "key": AuthConfig("k", "api_key"),
    "app": AuthConfig("a", "api_key"),
}
SECRETS = {
    "token": AuthCredential("bearer", token="the-token-of-ada"),
    "login": AuthCredential("basic", username="ada", password="lovelace-1815"),
    "key": AuthCredential("api_key", api_key="the-key-of-ada"),
    "app": AuthCredential("api_key", api_key="the-app-id-of-ada"),
}
SENT = {
    "token": ("authorization", "Bearer the-token-of-ada"),
    "login": ("authorization", "Basic YWRhOmxvdmVsYWNlLTE4MTU="),
    "key": ("x-key", "the-key-of-ada"),
    "app": ("query", "app_id=the-app-id-of-ada"),
}


async def sent_with(auth: Any, operation: str, *, secrets: Any = SECRETS) -> set[str]:
    """By the names of their schemes: the credentials that a request was sent with, each of which was asked for."""
    async with desk(spec_dict=DOCUMENT, auth=auth) as at:
        found = await at.call(operation)
        asked = set()
        while found is None:
            [question] = at.run.pending
            assert question.auth_config is not None
            key = question.auth_config.credential_key
            label = next(name for name, config in CONFIGS.items() if config.credential_key == key)
            assert label not in asked
            asked.add(label)
            found = await provided(at, secrets[label])
        said = {"query": at.api.asked[-1]["query"], **at.api.asked[-1]["headers"]}
        assert not [secret for _, secret in SENT.values() if secret in at.written]
        sent = {label for label, (place, text) in SENT.items() if said.get(place) == text}
        assert sent == asked
        return sent


@pytest.mark.parametrize(
    ("operation", "given", "expected"),
    [
        ("one", "token key", "token"),
        ("both", "key app token", "key app"),  # all of an alternative
        ("both", "key", "key"),  # what there is; the rest may stand in headers=
        ("either", "key", "key"),  # the first for which there is everything
        ("either", "login key", "login"),
        ("one_or_both", "token key", "key"),
        ("one_or_both", "token app key", "token app"),
        ("optional", "key", "key"),
        ("optional", "token", ""),
        ("nobody", "token key", ""),
        ("unknown_first", "token", "token"),
        ("unknown_first", "key", ""),
        ("same_place", "token login key", "key"),  # one header cannot hold both
        ("same_place", "token login", "token"),
        ("with_unknown", "key", "key"),
        ("odd", "key", "key"),
        ("silent", "token key", ""),
    ],
)
async def test_the_first_alternative_for_which_there_is_everything(operation: str, given: str, expected: str) -> None:
    """All of its credentials are asked for and sent, and no other; none is in the log, though the server repeats it."""
    auth = {label: CONFIGS[label] for label in given.split()}
    assert await sent_with(auth, operation) == set(expected.split())


@pytest.mark.parametrize(
    ("operation", "given", "expected"),
    [
        ("one", "token", "token"),
        ("either", "key", "key"),
        ("both", "key", "key"),  # one key is not sent to two places
        ("optional_other", "key", ""),
        ("silent", "token", "token"),
        ("silent", "login", "login"),
        ("silent", "key", ""),
    ],
)
async def test_one_credential_is_for_the_first_scheme_of_its_kind(operation: str, given: str, expected: str) -> None:
    """And where the document does not say who may ask, a token or password stands in its usual place."""
    assert await sent_with(CONFIGS[given], operation) == set(expected.split())


async def test_all_that_may_have_been_meant_by_a_401_are_asked_for_again() -> None:
    """A server does not say which of two keys it refuses: both are forgotten, and the right ones are tried."""
    async with desk(spec_dict=DOCUMENT, auth={label: CONFIGS[label] for label in ("key", "app")}) as at:
        at.api.token = "the-app-id-of-ada-2"
        await at.call("both")
        answers = ["the-key-of-ada", "the-app-id-of-ada", "the-key-of-ada-2", "the-app-id-of-ada-2"]
        for key in answers:
            found = await provided(at, AuthCredential("api_key", api_key=key))
        assert [("x-key" in each["headers"], each["query"]) for each in at.api.asked] == [
            (True, "app_id=the-app-id-of-ada"),
            (True, "app_id=the-app-id-of-ada-2"),
        ]
        assert found["path"] == "/v1/both"
        assert isinstance(at, Desk)


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ({"keys": CONFIGS["key"]}, r"auth\['keys'\].* found none of that name"),
        ({"key": CONFIGS["token"]}, "found one that such a credential does not fit"),
        ({"mtls": CONFIGS["token"]}, "does not fit"),
        ({"key": "sk-secret"}, "expected auth to be an AuthConfig"),
        ({"key": AuthConfig("c", "custom")}, "expected auth to be an AuthConfig"),
        ({17: CONFIGS["key"]}, r"auth\[17\]"),
    ],
)
def test_credentials_without_a_place_are_refused(auth: Any, words: str) -> None:
    """When the toolset is made: a name that is misspelled would send nothing."""
    with pytest.raises(ConfigurationError, match=words):
        OpenAPIToolset(spec_dict=DOCUMENT, base_url="https://a.example", auth=auth)


def test_a_token_by_any_way_fits_openid_connect() -> None:
    """`"oauth2"` and `"bearer"` are tokens alike."""
    for label in ("token", "oidc"):
        for scheme in ("oauth2", "bearer"):
            OpenAPIToolset(spec_dict=DOCUMENT, base_url="https://a.example", auth={label: AuthConfig("x", scheme)})


async def test_no_argument_of_the_same_name_goes_beside_a_key() -> None:
    """A document may have the key among its parameters, too: what the model says there does not get to the server."""
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("sid", "lang")]
    document = {
        "openapi": "3.1.0",
        "paths": {"/a": {"get": {"operationId": "a", "parameters": parameters, "security": [{"k": []}]}}},
        "components": {"securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "sid"}}},
    }
    async with desk(spec_dict=document, auth=AuthConfig("k", "api_key")) as at:
        await at.call("a", sid="of-the-model", lang="de")
        await provided(at, SECRETS["key"])
        said = at.api.asked[-1]
    assert said["query"].split("&") == ["lang=de", "sid=the-key-of-ada"]


async def test_cookies_of_the_program_go_with_a_key_in_a_cookie() -> None:
    """A header `Cookie` of the program is sent before the key."""
    document = {
        "openapi": "3.1.0",
        "paths": {"/a": {"get": {"operationId": "a", "security": [{"k": []}]}}},
        "components": {"securitySchemes": {"k": {"type": "apiKey", "in": "cookie", "name": "sid"}}},
    }
    async with desk(spec_dict=document, auth=AuthConfig("k", "api_key"), headers={"Cookie": "lang=de"}) as at:
        await at.call("a")
        await provided(at, SECRETS["key"])
        assert at.api.asked[-1]["headers"]["cookie"] == "lang=de; sid=the-key-of-ada"


@pytest.mark.parametrize("place", [["query"], {"a": 1}, None, 3])
async def test_an_operation_with_a_parameter_of_no_place_is_left_out(place: Any) -> None:
    """Whatever stands where the place should: the other operations are there all the same."""
    document = {
        "openapi": "3.1.0",
        "paths": {"/a": {"get": {"parameters": [{"name": "x", "in": place}]}, "put": {"operationId": "b"}}},
    }
    toolset = OpenAPIToolset(spec_dict=document, base_url="https://a.example")
    assert [tool.name for tool in await toolset.get_tools()] == ["b"]
    assert "expected one in the path, the query or a header" in toolset.left_out["GET /a"]
