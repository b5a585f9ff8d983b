"""
Models of Google: Gemini, by its own API and by Vertex AI. Needs `minirun[models]`.

Not yet tried against the live service: no provider could be reached from where the tests run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ._adapter import TIMEOUT_S, Key, WireLlm, host_of
from ._base import LlmCapabilities
from ._wire_gemini import GeminiWire

__all__ = ["BASE_URL", "Gemini"]

BASE_URL = "https://generativelanguage.googleapis.com/v1"

_BEFORE_3 = re.compile(r"gemini-[12](\D|$)")
_VERTEX_HOST = "aiplatform.googleapis.com"


class Gemini(WireLlm):
    """
    A model of Google.

        Gemini("gemini-3-pro", api_key=key)
        Gemini("gemini-3-pro", base_url="https://…-aiplatform.googleapis.com/v1/projects/…/locations/…/publishers/google",
               api_key=access_token)

    There is no `client=`: the async client of google-genai does not run on trio.

    Args:
        name: The provider's name of the model; one with a slash (`tunedModels/…`) is the whole path.
        base_url: Where the API is, with its version.
        api_key: The key, or a function, sync or async, that returns the one to use now. For Vertex AI it is an access
            token, which expires: write a function.
        ignore: Names of settings (`{"labels"}`) to leave out where the API does not have them. Without it, a request
            with such a setting is refused.
        headers: More headers for every request.
        timeout_s: How long the server may take until its answer begins, and between two pieces of it, in seconds.
        capabilities: What the model is able to do; None: by its name. Those before Gemini 3 keep to no schema beside
            tools, and see no media in what tools answer.

    Raises:
        ConfigurationError: One of them cannot be what it has to be; or there is no key for Google's own API.
    """

    default_url = BASE_URL

    def __init__(
        self,
        name: str,
        *,
        base_url: str = BASE_URL,
        api_key: Key = None,
        ignore: Collection[str] = (),
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        capabilities: LlmCapabilities | None = None,
    ) -> None:
        wire = GeminiWire(ignore, host_of(base_url).endswith(_VERTEX_HOST))
        super().__init__(
            name, wire, base_url=base_url, api_key=api_key, headers=headers, timeout_s=timeout_s, client=None
        )
        is_new = _BEFORE_3.search(name) is None
        by_name = LlmCapabilities(output_schema_and_tools=is_new, media_in_tool_results=is_new)
        self.capabilities = capabilities if capabilities is not None else by_name
