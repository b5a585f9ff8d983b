"""
Models of Anthropic. Needs `minirun[models]`, or an SDK's client.

Not yet tried against the live service: no provider could be reached from where the tests run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .._json import brief, is_count
from ..errors import ConfigurationError
from ._adapter import TIMEOUT_S, Key, WireLlm
from ._base import LlmCapabilities
from ._wire_anthropic import API_VERSION, MessagesWire

__all__ = ["BASE_URL", "Claude"]

BASE_URL = "https://api.anthropic.com"


class Claude(WireLlm):
    """
    A model of Anthropic.

        Claude("claude-opus-4-5", api_key=key)
        Claude("anthropic.claude-…", client=AsyncAnthropicBedrock(...))

    Args:
        name: The provider's name of the model.
        base_url: Where the API is, without `/v1`.
        api_key: The key, or a function, sync or async, that returns the one to use now.
        max_tokens: The limit of an answer, in tokens, where the request has no `max_output_tokens`: the API wants one.
        ignore: Names of settings (`{"temperature"}`) to leave out where the API does not have them. Without it, a
            request with such a setting is refused.
        api_version: The version of the API, a date.
        headers: More headers for every request, such as `anthropic-beta`.
        timeout_s: How long the server may take until its answer begins, and between two pieces of it, in seconds.
        client: An `AsyncAnthropic`, or its sister for a cloud, that sends the requests; its own address, key and
            version count.

    Raises:
        ConfigurationError: One of them cannot be what it has to be; or there is no key for Anthropic's own API.
    """

    default_url = BASE_URL
    capabilities = LlmCapabilities(output_schema=True, output_schema_and_tools=True, media_in_tool_results=True)

    def __init__(
        self,
        name: str,
        *,
        base_url: str = BASE_URL,
        api_key: Key = None,
        max_tokens: int = 8192,
        ignore: Collection[str] = (),
        api_version: str = API_VERSION,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        client: Any = None,
    ) -> None:
        if not is_count(max_tokens, least=1):
            raise ConfigurationError(
                f"expected max_tokens to be a number of tokens from 1 up, found {brief(max_tokens)}"
            )
        if not isinstance(api_version, str) or not api_version.isascii() or not api_version.strip():
            raise ConfigurationError(f"expected api_version to be a date, found {brief(api_version)}")
        if client is not None and api_version != API_VERSION:
            raise ConfigurationError("expected no api_version beside client, which has its own; leave it out")
        wire = MessagesWire(ignore, max_tokens, api_version)
        super().__init__(
            name, wire, base_url=base_url, api_key=api_key, headers=headers, timeout_s=timeout_s, client=client
        )
