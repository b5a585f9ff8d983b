"""
Models of OpenAI, and of every server that speaks one of its two APIs. Needs `minirun[models]`, or an SDK's client;
`OpenAIRealtime`, which converses by voice, needs `minirun[live]`.

Not yet tried against the live service: no provider could be reached from where the tests run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from .._json import brief
from .._lazy import names_of
from ..errors import ConfigurationError
from ._adapter import TIMEOUT_S, Key, WireLlm, host_of
from ._base import LlmCapabilities
from ._wire_openai_chat import ChatWire
from ._wire_openai_responses import ResponsesWire

if TYPE_CHECKING:  # only live runs load it
    from ._openai_realtime import OpenAIRealtime as OpenAIRealtime
else:
    __getattr__, __dir__, _ = names_of(globals(), {"minirun.models._openai_realtime": "OpenAIRealtime"})

__all__ = ["BASE_URL", "OpenAIChat", "OpenAIRealtime", "OpenAIResponses"]

BASE_URL = "https://api.openai.com/v1"

# Whose servers take what only OpenAI's own API has.
_OPENAI_HOSTS = (".openai.com", ".azure.com")


class OpenAIChat(WireLlm):
    """
    A model behind chat completions: OpenAI's, or that of a server of yours.

        OpenAIChat("gpt-5", api_key=key)
        OpenAIChat("qwen3", base_url="http://localhost:11434/v1")     # Ollama; others alike

    Args:
        name: The provider's name of the model.
        base_url: Where the API is, with `/v1`.
        api_key: The key, or a function, sync or async, that returns the one to use now; a server of yours may need
            none.
        ignore: Names of settings (`{"top_k"}`) to leave out where the API does not have them. Without it, a request
            with such a setting is refused.
        dialect: `"openai"` for OpenAI's own API, `"compatible"` for servers that know less of it; None: by `base_url`.
        headers: More headers for every request.
        timeout_s: How long the server may take until its answer begins, and between two pieces of it, in seconds.
        client: An `AsyncOpenAI` or `AsyncAzureOpenAI` that sends the requests; its own address and key count.
        sees_media: Whether the model sees images, sounds and files of users. False: it is told of them in words; else
            a server whose model reads text only refuses every request of such a session.
        capabilities: What the model is able to do, where that is less.

    Raises:
        ConfigurationError: One of them cannot be what it has to be; or there is no key for OpenAI's own API.
    """

    default_url = BASE_URL
    capabilities = LlmCapabilities(output_schema=True, output_schema_and_tools=True)

    def __init__(
        self,
        name: str,
        *,
        base_url: str = BASE_URL,
        api_key: Key = None,
        ignore: Collection[str] = (),
        dialect: Literal["openai", "compatible"] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        client: Any = None,
        sees_media: bool = True,
        capabilities: LlmCapabilities | None = None,
    ) -> None:
        if sees_media not in (True, False):
            raise ConfigurationError(f"expected sees_media to be True or False, found {brief(sees_media)}")
        if dialect not in (None, "openai", "compatible"):
            raise ConfigurationError(f"expected dialect to be 'openai' or 'compatible', found {brief(dialect)}")
        is_openai = client is not None or f".{host_of(base_url)}".endswith(_OPENAI_HOSTS)
        wire = ChatWire(ignore, dialect or ("openai" if is_openai else "compatible"), sees_media)
        super().__init__(
            name, wire, base_url=base_url, api_key=api_key, headers=headers, timeout_s=timeout_s, client=client
        )
        if capabilities is not None:
            self.capabilities = capabilities


class OpenAIResponses(WireLlm):
    """
    A model behind OpenAI's responses: those that think keep their thoughts from one call of a tool to the next.

        OpenAIResponses("gpt-5", api_key=key)

    Nothing is stored at OpenAI's: each request has the whole conversation, with the model's thoughts encrypted.

    Args:
        name: The provider's name of the model.
        base_url: Where the API is, with `/v1`.
        api_key: The key, or a function, sync or async, that returns the one to use now; a server of yours may need
            none.
        ignore: Names of settings (`{"seed"}`) to leave out where the API does not have them. Without it, a request
            with such a setting is refused.
        reasoning: Whether the model thinks, which one that does not refuses to be asked for; None: by its name.
        headers: More headers for every request.
        timeout_s: How long the server may take until its answer begins, and between two pieces of it, in seconds.
        client: An `AsyncOpenAI` or `AsyncAzureOpenAI` that sends the requests; its own address and key count.

    Raises:
        ConfigurationError: One of them cannot be what it has to be; or there is no key for OpenAI's own API.
    """

    default_url = BASE_URL
    capabilities = LlmCapabilities(output_schema=True, output_schema_and_tools=True, media_in_tool_results=True)

    def __init__(
        self,
        name: str,
        *,
        base_url: str = BASE_URL,
        api_key: Key = None,
        ignore: Collection[str] = (),
        reasoning: bool | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        client: Any = None,
    ) -> None:
        if reasoning not in (None, True, False):
            raise ConfigurationError(f"expected reasoning to be True, False or None, found {brief(reasoning)}")
        wire = ResponsesWire(ignore, reasoning)
        super().__init__(
            name, wire, base_url=base_url, api_key=api_key, headers=headers, timeout_s=timeout_s, client=client
        )
