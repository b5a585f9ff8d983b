"""
Tools from OpenAPI documents. Needs `minirun[models]`, whose HTTP client sends the requests.

    OpenAPIToolset(spec_str=Path("petstore.json").read_text(), base_url="https://petstore.example/v1")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from .._json import brief, is_count, is_seconds
from ..credentials import AuthConfig
from ..errors import ConfigurationError
from ..runtime import ReadonlyContext
from ._base import BaseTool
from ._openapi._document import read_document
from ._openapi._operations import TOOL_NAME_CHARS_MAX, Operation, base_of, operations_of
from ._openapi._security import checked_auth
from ._openapi._tool import Headers, RestApiTool, Source, checked_headers
from ._retry import RetryConfig
from ._toolset import BaseToolset, ToolPredicate

__all__ = ["OpenAPIToolset", "RestApiTool"]

# What an answer may take that somebody waits for; agents are slower than web pages.
TIMEOUT_S = 30.0
# Some 60 000 tokens: a model with a long context can take it, and is told where it was cut.
RESPONSE_BYTES_MAX = 256 * 2**10


class OpenAPIToolset(BaseToolset):
    """
    The operations of an OpenAPI 3.0 or 3.1 document as tools.

    A tool has the name of its operation (`getPetById` is `get_pet_by_id`; the second of a name is `get_pet_by_id_2`),
    its parameters as arguments, and the body of the request as the argument `body`. Where a file is sent, alone or in
    a form, the argument is the name of an artifact of the session. What cannot be asked as it is described is left out:
    see `left_out`.

    The document may be a stranger's: what it says is cut and bounded, no reference leads out of it, its values become
    no other path or header, and it does not decide where secrets go. Redirects to other hosts are not followed.

    Args:
        spec_dict: The document.
        spec_str: The document as a text.
        spec_str_type: `"json"`, or `"yaml"`, if PyYAML is installed.
        base_url: Where requests go, whatever servers the document names. None: to the first of the document's servers,
            if neither *auth* nor *headers* are given.
        auth: Which credential of the user the API wants; it is asked for by `request_credential`, and sent where the
            document says. Of the scheme `"oauth2"`, `"bearer"`, `"basic"` or `"api_key"`. If the API wants several,
            such by the names of the document's `securitySchemes`; of what an operation takes, the first is used for
            which all are there.
        headers: More headers of each request: texts by name, or a function, sync or async, that returns them:
            `headers(context, *, refresh)`, such as `BearerHeaders`. *refresh* says that the server has answered with
            401 to what it returned before. What a function returns is kept out of what runs say, and so is what stands
            under a name such as `Authorization` or `X-Api-Key`.
        tool_filter: Which of the tools there are: names, without the prefix, or a function of a `RestApiTool` (with
            `method`, `path` and `tags`) and the context.
        tool_name_prefix: The tools are named `<prefix>_<name>`.
        require_confirmation: Whether somebody has to allow each call: True, names of tools (without the prefix), or a
            function, as `BaseTool` has it.
        timeout_s: How long a request may take in all, in seconds.
        response_bytes_max: How much of a response is read. A longer text is cut; what is no text is an ApiError.
        retry, sequential: See `BaseTool`.
        max_concurrency: How many calls of each tool may run at once.

    Raises:
        ConfigurationError: The document cannot be read, or an argument cannot be what it has to be.
        ModuleNotFoundError: `minirun[models]`, or for YAML PyYAML, is not installed.
    """

    def __init__(
        self,
        *,
        spec_dict: Mapping[str, Any] | None = None,
        spec_str: str | None = None,
        spec_str_type: Literal["json", "yaml"] = "json",
        base_url: str | None = None,
        auth: AuthConfig | Mapping[str, AuthConfig] | None = None,
        headers: Headers | None = None,
        tool_filter: Collection[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
        require_confirmation: bool | Collection[str] | Callable[..., bool | Awaitable[bool]] = False,
        timeout_s: float = TIMEOUT_S,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        retry: RetryConfig | None = None,
        max_concurrency: int | None = None,
        sequential: bool = False,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix, sequential=sequential)
        if not is_seconds(timeout_s, above=0):
            raise ConfigurationError(f"expected timeout_s to be a number of seconds above 0, found {brief(timeout_s)}")
        if not is_count(response_bytes_max, 1):
            found = brief(response_bytes_max)
            raise ConfigurationError(f"expected response_bytes_max to be an integer from 1 up, found {found}")
        if headers is not None and not callable(headers):
            headers = checked_headers(headers)
        chars_max = min(TOOL_NAME_CHARS_MAX, 63 - len(tool_name_prefix or ""))
        if chars_max < 16:
            msg = "expected tool_name_prefix to leave room for names, of 64 characters in all, found"
            raise ConfigurationError(f"{msg} {brief(tool_name_prefix)}")
        document = read_document(spec_dict, spec_str, spec_str_type)
        credentials = checked_auth(auth, document)
        base = base_of(document, base_url, auth is not None or headers is not None)
        from .._web_client import HttpxWeb  # an extra

        self._web = HttpxWeb()
        source = Source(document, base, self._web, credentials, headers, timeout_s, response_bytes_max)
        self._left_out: dict[str, str] = {}
        operations: list[Operation] = []
        for found_here in operations_of(document, base, is_base_given=base_url is not None, chars_max=chars_max):
            if isinstance(found_here, Operation):
                operations.append(found_here)
            else:
                self._left_out[found_here[0]] = found_here[1]
        asks = _confirmation(require_confirmation, {operation.name for operation in operations})
        make = partial(RestApiTool, source=source, retry=retry, max_concurrency=max_concurrency)
        self._tools = [make(each, require_confirmation=asks(each.name)) for each in operations]

    @property
    def left_out(self) -> Mapping[str, str]:
        """The operations that are no tools, each with the reason: `{"POST /files": "its body is …"}`."""
        return dict(self._left_out)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> Sequence[BaseTool]:
        """Return the tools, in the order of the document: for all agents the same."""
        return self._tools

    async def close(self) -> None:
        """Close the connections to the API."""
        await self._web.aclose()


def _confirmation(
    required: object, names: Collection[str]
) -> Callable[[str], bool | Callable[..., bool | Awaitable[bool]]]:
    """Whether a call of the tool of a name needs somebody's leave."""
    if isinstance(required, bool) or callable(required):
        return lambda name: required
    is_list = isinstance(required, Collection) and not isinstance(required, str)
    if not is_list or not all(isinstance(name, str) for name in required):  # type: ignore[attr-defined]  # a collection
        msg = "expected require_confirmation to be True, False, names of tools or a function, found "
        raise ConfigurationError(msg + brief(required))
    chosen = frozenset(required)  # type: ignore[call-overload]  # a collection
    unknown = sorted(chosen - set(names))
    if unknown:  # a name that is misspelled would take a safeguard away
        msg = f"expected require_confirmation to name tools, found {brief(unknown[0])}, which is none"
        raise ConfigurationError(msg)
    return lambda name: name in chosen
