"""The request that a call becomes: address, headers and body. No I/O here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

from ..._json import brief
from ..._urls import Url, url_of
from ...credentials import AuthCredential
from ...credentials._headers import authorization_of
from ...credentials._quiet import Quiet, quiet
from ...errors import ArgumentError, ConfigurationError
from ...types import Blob
from ._multipart import form_of
from ._operations import Operation
from ._security import SecurityScheme
from ._styles import escaped, header_text, in_header, in_path, in_query, plain

__all__ = ["Outgoing", "request_for", "with_credential"]

# What tools can make something of, in this order.
ACCEPT = "application/json, text/*;q=0.8, */*;q=0.1"


class Outgoing(NamedTuple):
    """A request. No repr: there may be secrets in it."""

    method: str
    url: str  # without query
    query: tuple[tuple[str, str], ...]  # escaped
    headers: Mapping[str, str]  # by names in lower case
    cookies: tuple[str, ...]
    content: bytes | None

    def __repr__(self) -> str:
        return "Outgoing(...)"

    @property
    def address(self) -> str:
        """The whole address."""
        return Quiet(self.url + ("?" + "&".join(f"{name}={value}" for name, value in self.query) if self.query else ""))

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers, with that of the cookies."""
        own = self.headers.get("cookie")  # the program's
        cookies = [*([own] if own else []), *self.cookies]
        return quiet({**self.headers, **({"cookie": "; ".join(cookies)} if cookies else {})})


def request_for(
    operation: Operation, base: Url, args: Mapping[str, Any], files: Mapping[str, Blob] = MappingProxyType({})
) -> Outgoing:
    """
    Return the request for a call with these arguments, which fit the tool's schema.

    Args:
        operation: What is asked.
        base: Where.
        args: The arguments.
        files: The artifacts that they name.

    Raises:
        ArgumentError: One of them cannot stand where it has to.
    """
    path, query = operation.path, []
    headers = {"accept": ACCEPT, "user-agent": "minirun"}
    in_template: dict[str, str] = {}
    for argument in operation.arguments:
        value = args.get(argument.name)
        if value is None:
            if argument.place == "path":
                raise ArgumentError(f"{argument.name}: expected a value, found none")
            continue
        if argument.place == "path":
            in_template[argument.original] = in_path(argument, value)
        elif argument.place == "query":
            query += in_query(argument, value)
        else:
            headers[_header_name(argument.original)] = in_header(argument, value)
    content = None
    if operation.body_name and (operation.body_is_required or args.get(operation.body_name) is not None):
        headers["content-type"], content = _body(operation, args.get(operation.body_name), files)
    url = f"{base.text.rstrip('/')}{_filled(path, in_template)}"
    _check(url, base)
    return Outgoing(operation.method, url, tuple(query), headers, (), content)


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ArgumentError(f"expected a parameter that a header can be named by, found {brief(name)}; leave it out")
    return name.lower()


def _filled(path: str, values: Mapping[str, str]) -> str:
    """The path with *values* in the places of its variables, and everything else in it escaped."""
    texts = re.split(r"\{([^{}]+)\}", path)
    texts[::2] = [quote(text, safe="/-._~!$&'()*+,;=:@%") for text in texts[::2]]
    texts[1::2] = [values[name] for name in texts[1::2]]
    return "".join(texts)


def _check(address: str, base: Url) -> None:
    """
    Raise unless an address belongs to the server that was meant, and to what was meant below it.

    Raises:
        ArgumentError: It does not: a value would lead up, or elsewhere.
    """
    url = url_of(address)
    if url is None or url.origin != base.origin:
        raise ArgumentError("expected arguments that make an address of this server, found others")
    if any(unquote(part) in (".", "..") for part in url.path.split("/")):
        raise ArgumentError("expected arguments that stay below their path, found '.' or '..' as one of its parts")


def _body(operation: Operation, value: Any, files: Mapping[str, Blob]) -> tuple[str, bytes]:
    """The media type of a body, and its content."""
    media_type = operation.body_type
    if operation.body_is_file:
        if value not in files:
            raise ArgumentError("expected the name of an artifact, found none")
        own = files[value].mime_type
        return (own if media_type.endswith("/*") and header_text("body", own) else media_type), files[value].data
    if media_type == "multipart/form-data":
        return form_of(operation, value, files)
    if media_type == "application/x-www-form-urlencoded":
        return media_type, _pairs_of(value)
    if "json" in media_type:
        return media_type, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return media_type, plain(value).encode()


def _pairs_of(value: Any) -> bytes:
    if not isinstance(value, dict):
        raise ArgumentError("expected the fields of a form as an object, found something else")
    pairs = [
        (name, plain(each))
        for name, item in value.items()
        for each in (item if isinstance(item, list) else [item])
        if each is not None
    ]
    return urlencode(pairs).encode()


# --- credentials ------------------------------------------------------------------------------------------------------


def with_credential(outgoing: Outgoing, scheme: SecurityScheme, credential: AuthCredential) -> Outgoing:
    """
    Return the request with a credential, where the scheme says that it goes.

    Raises:
        ConfigurationError: It cannot stand there. The message does not show it.
    """
    if scheme.kind != "api_key":
        return outgoing._replace(headers={**outgoing.headers, "authorization": authorization_of(credential)})
    key, name = Quiet(credential.reveal()), escaped(scheme.name)
    # An argument of the same name, which a document may have beside it, would be another key: servers take the first.
    if scheme.place == "query":
        return outgoing._replace(query=(*(each for each in outgoing.query if each[0] != name), (name, escaped(key))))
    if scheme.place == "cookie":
        others = (each for each in outgoing.cookies if each.partition("=")[0] != name)
        return outgoing._replace(cookies=(*others, f"{name}={escaped(key)}"))
    is_fine = key.isascii() and key.isprintable() and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", scheme.name)
    if not is_fine:
        raise ConfigurationError("expected a key that a header can hold, found another (not shown: it is secret)")
    return outgoing._replace(headers={**outgoing.headers, scheme.name.lower(): key})
