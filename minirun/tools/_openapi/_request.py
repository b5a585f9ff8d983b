"""The request that a call becomes: address, headers and body. No I/O here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

from ..._json import brief
from ..._urls import Url, url_of
from ...credentials import AuthCredential
from ...credentials._headers import authorization_of
from ...errors import ArgumentError, ConfigurationError
from ._operations import Operation, SecurityScheme
from ._styles import escaped, in_cookie, in_header, in_path, in_query, plain

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
        return self.url + ("?" + "&".join(f"{name}={value}" for name, value in self.query) if self.query else "")

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers, with that of the cookies."""
        return {**self.headers, **({"cookie": "; ".join(self.cookies)} if self.cookies else {})}


def request_for(operation: Operation, base: Url, args: Mapping[str, Any]) -> Outgoing:
    """
    Return the request for a call with these arguments, which fit the tool's schema.

    Raises:
        ArgumentError: One of them cannot stand where it has to.
    """
    path, query = operation.path, []
    headers, cookies = {"accept": ACCEPT, "user-agent": "minirun"}, []
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
        elif argument.place == "header":
            headers[_header_name(argument.original)] = in_header(argument, value)
        else:
            cookies.append(in_cookie(argument, value))
    content = None
    if operation.body_name and (operation.body_is_required or args.get(operation.body_name) is not None):
        headers["content-type"] = operation.body_type
        content = _body(operation.body_type, args.get(operation.body_name))
    url = f"{base.text.rstrip('/')}{_filled(path, in_template)}"
    _check(url, base)
    return Outgoing(operation.method, url, tuple(query), headers, tuple(cookies), content)


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


def _body(media_type: str, value: Any) -> bytes:
    if media_type == "application/x-www-form-urlencoded":
        if not isinstance(value, dict):
            raise ArgumentError("expected the fields of a form as an object, found something else")
        pairs = [
            (name, plain(each))
            for name, item in value.items()
            for each in (item if isinstance(item, list) else [item])
            if each is not None
        ]
        return urlencode(pairs).encode()
    if "json" in media_type:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return plain(value).encode()


# --- credentials ------------------------------------------------------------------------------------------------------


def with_credential(outgoing: Outgoing, operation: Operation, credential: AuthCredential) -> Outgoing:
    """
    Return the request with a credential, where the document says that it goes; as it was, if it is for everybody.

    Raises:
        ConfigurationError: It cannot stand there. The message does not show it.
    """
    kind = "bearer" if credential.scheme == "oauth2" else credential.scheme
    if operation.security is None:
        fitting = [SecurityScheme("bearer")] if kind in ("bearer", "basic") else []
    else:
        fitting = [each for each in operation.security if each.kind == kind]
    if not fitting:
        return outgoing
    place = fitting[0]
    if kind != "api_key":
        return outgoing._replace(headers={**outgoing.headers, "authorization": authorization_of(credential)})
    key = credential.reveal()
    if place.place == "query":
        return outgoing._replace(query=(*outgoing.query, (escaped(place.name), escaped(key))))
    if place.place == "cookie":
        return outgoing._replace(cookies=(*outgoing.cookies, f"{escaped(place.name)}={escaped(key)}"))
    is_fine = key.isascii() and key.isprintable() and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", place.name)
    if not is_fine:
        raise ConfigurationError("expected a key that a header can hold, found another (not shown: it is secret)")
    return outgoing._replace(headers={**outgoing.headers, place.name.lower(): key})
