"""One operation of a document as a tool."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import attrs

from ..._json import brief, freeze
from ..._urls import Url, joined, url_of
from ..._web import Web, WebAnswer, WebFailedError
from ...credentials import AuthConfig, AuthCredential
from ...credentials._quiet import Quiet, plain, quiet
from ...credentials._secrets import SECRET_CHARS_MIN
from ...errors import ApiConnectionError, ApiError, ApiTimeoutError, ArgumentError, ConfigurationError
from ...runtime import ToolContext
from ...runtime._credentials import load_credential
from ...types import Blob, FunctionDeclaration
from .._base import BaseTool
from .._retry import RetryConfig
from ._answer import error_of, result_of
from ._document import Document
from ._multipart import file_names
from ._operations import Operation, parameters_of
from ._request import Outgoing, request_for, with_credential
from ._security import Auth, SecurityScheme, chosen
from ._styles import escaped

__all__ = ["Headers", "RestApiTool", "Source", "checked_headers"]

Headers: TypeAlias = Mapping[str, str] | Callable[..., Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""
Headers of each request, or a function, sync or async, that returns them: `headers(context, *, refresh: bool)`.
*refresh* says that the server has refused what it returned before.
"""

REDIRECTS_MAX = 5
# Doing it again does nothing more (RFC 9110, section 9.2.1).
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET_NAME = re.compile(r"auth|cookie|key|password|secret|session|token", re.IGNORECASE)


@attrs.frozen
class Source:
    """What the tools of one toolset share."""

    document: Document
    base: Url
    web: Web
    auth: Auth | None
    headers: Headers | None
    timeout_s: float
    response_bytes_max: int


class RestApiTool(BaseTool):
    """
    A tool that sends a request to an API, and returns what that answers. `OpenAPIToolset` makes them.

    JSON is returned as it is, texts as texts, images and the like as media. A status from 300 up is an ApiError, which
    the model is told.

    Args:
        operation: What is asked.
        source: Of whom.
        retry, max_concurrency, require_confirmation: See `BaseTool`.
    """

    _checks_patterns = False

    def __init__(
        self,
        operation: Operation,
        source: Source,
        *,
        retry: RetryConfig | None,
        max_concurrency: int | None,
        require_confirmation: bool | Callable[..., bool | Awaitable[bool]],
    ) -> None:
        super().__init__(
            name=operation.name,
            description=operation.description,
            timeout_s=source.timeout_s,
            retry=retry,
            max_concurrency=max_concurrency,
            on_interrupted="rerun" if operation.method in _SAFE else "report",
            require_confirmation=require_confirmation,
        )
        self._operation = operation
        self._source = source

    @property
    def method(self) -> str:
        """How it asks: `"GET"`, `"POST"` and so on. What is a GET changes nothing, if the API keeps to HTTP."""
        return self._operation.method

    @property
    def path(self) -> str:
        """What it asks for, below the base URL, with its variables in braces: `"/pets/{petId}"`."""
        return self._operation.path

    @property
    def tags(self) -> tuple[str, ...]:
        """What the document files it under."""
        return tuple(self._operation.tags)

    @cached_property
    def declaration(self) -> FunctionDeclaration:
        """The tool as the model sees it."""
        parameters = freeze(parameters_of(self._source.document, self._operation), self.name)
        return FunctionDeclaration(name=self.name, description=self.description, parameters=parameters)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """
        Send the request; once more with other credentials, if the server does not take the first.

        Raises:
            ArgumentError: An argument cannot stand where it has to.
            ApiError: The server has answered with an error, or with what cannot be used.
            ApiConnectionError, ApiTimeoutError: There was no answer; it may have been done all the same.
            CredentialRefusedError: A credential was asked for and refused.
        """
        source, operation = self._source, self._operation
        request = request_for(operation, source.base, args, await self._files(args, tool_context))
        wanted = chosen(operation.security, source.auth)
        credentials = [await tool_context.request_credential(config) for _, config in wanted]
        answer = await self._sent(await self._whole(tool_context, request, wanted, credentials, refresh=False))
        if answer.status == 401 and (credentials or callable(source.headers)):
            credentials = await self._others(tool_context, wanted, credentials)
            answer = await self._sent(await self._whole(tool_context, request, wanted, credentials, refresh=True))
        if not 200 <= answer.status < 300:
            raise error_of(operation, answer)
        return result_of(operation, answer)

    async def _files(self, args: Mapping[str, Any], context: ToolContext) -> dict[str, Blob]:
        """The artifacts that a call sends, by name."""
        files = {}
        for name in file_names(self._operation, args):
            part = await context.load_artifact(name)
            if part is None:
                raise ArgumentError(f"expected the name of an artifact of this session, found {brief(name)}")
            text = (part.text or "").encode()
            files[name] = part.inline_data or Blob(data=text, mime_type="text/plain; charset=utf-8")
        return files

    # --- credentials

    async def _others(
        self, context: ToolContext, wanted: Sequence[tuple[SecurityScheme, AuthConfig]], refused: list[AuthCredential]
    ) -> list[AuthCredential]:
        """
        Others than those that were refused. If any are renewed without a person, these are tried first: a server does
        not say which of several it has meant.
        """
        configs = [config for _, config in wanted]
        meant = [config.auth_scheme is not None for config in configs]
        if not any(meant):
            meant = [True] * len(configs)
        for config, old, is_meant in zip(configs, refused, meant, strict=True):
            if is_meant:  # all are forgotten, or renewed, before somebody is asked for the first
                await load_credential(context, config, old)
        return [
            await context.request_credential(config, rejected=old) if is_meant else old
            for config, old, is_meant in zip(configs, refused, meant, strict=True)
        ]

    async def _whole(
        self,
        context: ToolContext,
        plain: Outgoing,
        wanted: Sequence[tuple[SecurityScheme, AuthConfig]],
        credentials: Sequence[AuthCredential],
        *,
        refresh: bool,
    ) -> Outgoing:
        """The request with the program's own headers, and then the credentials."""
        own = self._source.headers
        if callable(own):
            given = own(context, refresh=refresh)
            found = quiet(checked_headers(await given if inspect.isawaitable(given) else given))
        else:
            found = quiet(own or {})
        is_new = callable(own)  # what a function returns is most likely a secret; a short text is rather a word
        told = {name: text for name, text in found.items() if is_new and len(text) >= SECRET_CHARS_MIN}
        _hide(context, told | {name: text for name, text in found.items() if _SECRET_NAME.search(name)})
        whole = plain._replace(headers={**plain.headers, **found})
        for (scheme, _), credential in zip(wanted, credentials, strict=True):
            whole = with_credential(whole, scheme, credential)
            if scheme.kind == "api_key":
                _hide(context, {"key": escaped(credential.reveal())})
            else:
                _hide(context, {"authorization": whole.headers["authorization"]})
        return whole

    # --- the way

    async def _sent(self, outgoing: Outgoing) -> WebAnswer:
        """The answer, behind redirects of the server to itself."""
        method, address, content = outgoing.method, outgoing.address, outgoing.content
        headers = outgoing.all_headers
        for _ in range(REDIRECTS_MAX):
            answer = await self._asked(method, address, headers, content)
            if answer.status not in (301, 302, 303, 307, 308) or "location" not in answer.headers:
                return answer
            there, elsewhere = _redirected(address, answer.headers["location"])
            if elsewhere:
                msg = f"{self._operation.title} was answered with a redirect to {elsewhere}, which is not followed"
                raise ApiError(msg, status=answer.status)
            address = there
            if method not in _SAFE and answer.status not in (307, 308):
                method, content = "GET", None
                headers = {name: text for name, text in headers.items() if name != "content-type"}
        msg = f"{self._operation.title} was answered with more than {REDIRECTS_MAX} redirects"
        raise ApiError(msg, status=answer.status)

    async def _asked(self, method: str, address: str, headers: Mapping[str, str], content: bytes | None) -> WebAnswer:
        source = self._source
        try:
            return await source.web.request(
                method,
                address,
                headers=headers,
                content=content,
                timeout_s=source.timeout_s,
                bytes_max=source.response_bytes_max,
            )
        except WebFailedError as error:
            kind = ApiTimeoutError if error.is_timeout else ApiConnectionError
            said = f"{self._operation.title}: expected an answer, found none: {error}"
        raise kind(said)


def _redirected(address: str, location: str) -> tuple[str, str]:
    """Where a redirect leads within the server that has answered; or else the address of the other server."""
    here = url_of(address)
    there = None if here is None else joined(here, location)
    if here is None or there is None:
        return "", "another address"
    return (Quiet(there.text), "") if there.origin == here.origin else ("", there.root)


def _hide(context: ToolContext, headers: Mapping[str, str]) -> None:
    """Have the run keep the values of *headers* out of what it says: servers may repeat what they were sent."""
    texts = {text for value in headers.values() for text in (value, value.partition(" ")[2]) if text}
    if texts:
        values = {f"v{index}": text for index, text in enumerate(sorted(texts))}
        context._invocation.know_secret(AuthCredential("custom", **plain(values)))


def checked_headers(value: object) -> dict[str, str]:
    """
    Return headers by names in lower case.

    Raises:
        ConfigurationError: They are none. The message does not show values: they may be secret.
    """
    problem = _problem_of_headers(value)
    if problem:
        del value
        raise ConfigurationError(problem)
    return {name.lower(): text for name, text in value.items()}  # type: ignore[attr-defined]  # a mapping


def _problem_of_headers(value: object) -> str:
    if not isinstance(value, Mapping):
        return f"expected headers to be texts by name, found {type(value).__name__}"
    for name, text in value.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            return f"expected headers with names that HTTP takes, found {brief(name)}"
        if not isinstance(text, str) or not (text.isascii() and text.isprintable()) or text != text.strip():
            msg = f"expected the header {name!r} to be a text of printable ASCII characters, found another"
            return f"{msg} (not shown: it may be secret)"
    return ""
