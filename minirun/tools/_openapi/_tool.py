"""One operation of a document as a tool."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import attrs

from ..._json import brief, freeze
from ..._urls import Url, joined, url_of
from ..._web import Web, WebAnswer, WebFailedError
from ...credentials import AuthConfig, AuthCredential
from ...credentials._secrets import SECRET_CHARS_MIN
from ...errors import ApiConnectionError, ApiError, ApiTimeoutError, ConfigurationError
from ...runtime import ToolContext
from ...types import FunctionDeclaration
from .._base import BaseTool
from .._retry import RetryConfig
from ._answer import error_of, result_of
from ._document import Document
from ._operations import Operation, parameters_of
from ._request import Outgoing, request_for, with_credential
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
    auth: AuthConfig | None
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
        plain = request_for(operation, source.base, args)
        credential = await self._credential(tool_context, plain, None)
        answer = await self._sent(await self._whole(tool_context, plain, credential, refresh=False))
        if answer.status == 401 and (credential is not None or callable(source.headers)):
            credential = await self._credential(tool_context, plain, credential)
            answer = await self._sent(await self._whole(tool_context, plain, credential, refresh=True))
        if not 200 <= answer.status < 300:
            raise error_of(operation, answer)
        return result_of(operation, answer)

    # --- credentials

    async def _credential(
        self, context: ToolContext, plain: Outgoing, rejected: AuthCredential | None
    ) -> AuthCredential | None:
        """What the user is known by, if the document says that this operation wants it."""
        auth, security = self._source.auth, self._operation.security
        kind = auth.scheme if auth is not None else ""
        kind = "bearer" if kind == "oauth2" else kind
        if auth is None or (security is not None and all(each.kind != kind for each in security)):
            return None
        return await context.request_credential(auth, rejected=rejected)

    async def _whole(
        self, context: ToolContext, plain: Outgoing, credential: AuthCredential | None, *, refresh: bool
    ) -> Outgoing:
        """The request with the program's own headers, and then the credential."""
        own = self._source.headers
        if callable(own):
            given = own(context, refresh=refresh)
            found = checked_headers(await given if inspect.isawaitable(given) else given)
        else:
            found = dict(own or {})
        is_new = callable(own)  # what a function returns is most likely a secret; a short text is rather a word
        told = {name: text for name, text in found.items() if is_new and len(text) >= SECRET_CHARS_MIN}
        _hide(context, told | {name: text for name, text in found.items() if _SECRET_NAME.search(name)})
        whole = plain._replace(headers={**plain.headers, **found})
        if credential is None:
            return whole
        whole = with_credential(whole, self._operation, credential)
        _hide(context, {name: whole.headers[name] for name in ("authorization",) if name in whole.headers})
        _hide(context, {name: escaped(credential.reveal(name)) for name in credential.names if name == "api_key"})
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
            here = url_of(address)
            there = None if here is None else joined(here, answer.headers["location"])
            if here is None or there is None or there.origin != here.origin:
                where = "another address" if there is None else there.root
                msg = f"{self._operation.title} was answered with a redirect to {where}, which is not followed"
                raise ApiError(msg, status=answer.status)
            address = there.text
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


def _hide(context: ToolContext, headers: Mapping[str, str]) -> None:
    """Have the run keep the values of *headers* out of what it says: servers may repeat what they were sent."""
    texts = {text for value in headers.values() for text in (value, value.partition(" ")[2]) if text}
    if texts:
        values: dict[str, Any] = {f"v{index}": text for index, text in enumerate(sorted(texts))}
        context._invocation.know_secret(AuthCredential("custom", **values))


def checked_headers(value: object) -> dict[str, str]:
    """
    Return headers by names in lower case.

    Raises:
        ConfigurationError: They are none. The message does not show values: they may be secret.
    """
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"expected headers to be texts by name, found {type(value).__name__}")
    for name, text in value.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigurationError(f"expected headers with names that HTTP takes, found {brief(name)}")
        if not isinstance(text, str) or not (text.isascii() and text.isprintable()) or text != text.strip():
            msg = f"expected the header {name!r} to be a text of printable ASCII characters, found another"
            raise ConfigurationError(f"{msg} (not shown: it may be secret)")
    return {name.lower(): text for name, text in value.items()}
