"""
Models of Google: Gemini, by its own API and by Vertex AI. Needs `minirun[models]`; `GeminiLive`, which converses by
voice, needs `minirun[live]`.

Not yet tried against the live service: no provider could be reached from where the tests run.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from .._json import FrozenDict, brief, freeze
from .._lazy import names_of
from .._values import changed
from ..errors import ConfigurationError, ModelAuthenticationError, ModelError, ModelRequestError
from ._adapter import TIMEOUT_S, Key, WireLlm, host_of
from ._base import LlmCapabilities, LlmRequest, LlmResponse
from ._cache_config import CACHE, ContextCacheConfig
from ._gemini_caches import LETTERS_PER_TOKEN, Beginning, Known, beginning_of, known_of, made_from, with_cache
from ._wire import Outgoing
from ._wire_gemini import GeminiWire

if TYPE_CHECKING:  # only live runs load it
    from ._gemini_live import GeminiLive as GeminiLive
else:
    __getattr__, __dir__, _ = names_of(globals(), {"minirun.models._gemini_live": "GeminiLive"})

__all__ = ["BASE_URL", "Gemini", "GeminiLive"]

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
        explicit_caches: Whether what the requests of an app begin with is kept at Google under a name, where the app
            has a `context_cache_config`. False: Google caches by itself, as far as it does. Storage costs by the hour,
            until `ttl_seconds` after a cache was made. Not with Vertex AI.
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
        explicit_caches: bool = False,
        capabilities: LlmCapabilities | None = None,
    ) -> None:
        is_vertex = host_of(base_url).endswith(_VERTEX_HOST)
        if explicit_caches not in (True, False) or (explicit_caches and is_vertex):
            found = "True beside an address of Vertex AI" if is_vertex else brief(explicit_caches)
            raise ConfigurationError(f"expected explicit_caches to be True or False, found {found}; leave it out")
        self._explicit_caches = explicit_caches
        self._gemini = wire = GeminiWire(ignore, is_vertex)
        super().__init__(
            name, wire, base_url=base_url, api_key=api_key, headers=headers, timeout_s=timeout_s, client=None
        )
        is_new = _BEFORE_3.search(name) is None
        by_name = LlmCapabilities(output_schema_and_tools=is_new, media_in_tool_results=is_new)
        self.capabilities = capabilities if capabilities is not None else by_name

    def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        """
        Answer *request*, with a cache of what it begins with if there is one.

        A cache never changes an answer: where one cannot be made, or is gone, the whole request is sent.

        Raises:
            NotSupportedError: It asks for what the provider does not have; nothing was sent.
            ModelError: The provider has failed; its subclasses say how.
        """
        config = request.cache_config
        if not self._explicit_caches or config is None or request.config.cached_content is not None:
            return super().generate_content_async(request, stream)
        return self._with_caches(request, config, stream)

    async def _with_caches(
        self, request: LlmRequest, config: ContextCacheConfig, stream: bool
    ) -> AsyncGenerator[LlmResponse, None]:
        known = await self._known(request, config)
        asked = request if known is None or known.name is None else with_cache(request, known)
        while True:
            try:
                async with aclosing(super().generate_content_async(asked, stream)) as responses:
                    async for response in responses:
                        yield _noted(response, request, known)
                return
            except (ModelRequestError, ModelAuthenticationError) as error:  # so it says that a cache is gone
                if asked is request or error.has_begun:
                    raise
                assert known is not None, "it had a name"
                asked, known = request, known._replace(name=None, expires_at=None)

    async def _known(self, request: LlmRequest, config: ContextCacheConfig) -> Known | None:
        """What is known of the cache of what *request* begins with, which is made if it is time to; None: nothing."""
        model, known, key = self._model_of(request), known_of(request), request.cache_key or ""
        if known is not None:
            before = beginning_of(self._gemini, request, model, known.contents)
            if before is None or before.fingerprint != known.fingerprint:
                known = None  # requests begin otherwise by now
            elif known.key == key and known.name is not None:
                return known
        now = beginning_of(self._gemini, request, model)
        if known is None:
            return None if now is None else Known(key, now.contents, now.fingerprint)
        letters_min = max(config.min_tokens * LETTERS_PER_TOKEN, 2 * known.refused_letters)
        if now is not None and now.letters >= letters_min:
            return await self._make(request, now, f"{config.ttl_seconds}s")
        return known

    async def _make(self, request: LlmRequest, beginning: Beginning, ttl: str) -> Known:
        key, body = request.cache_key or "", {**beginning.body, "ttl": ttl}
        try:
            answer = await self._posted(Outgoing("/cachedContents", body, {}), request)
        except ModelError:
            return Known(key, beginning.contents, beginning.fingerprint, refused_letters=beginning.letters)
        return made_from(beginning, key, answer)


def _noted(response: LlmResponse, request: LlmRequest, known: Known | None) -> LlmResponse:
    """The complete response with what is known of a cache, where that is new."""
    if response.partial or known is None or known == known_of(request):
        return response
    noted = freeze({CACHE: known.noted()}, "custom_metadata")
    assert isinstance(noted, FrozenDict)
    return changed(response, custom_metadata=noted)
