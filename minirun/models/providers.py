"""
The names of the providers' models: importing this registers them, so that `LlmAgent(model="claude-…")` finds its model.

    import minirun.models.providers as providers

    providers.configure(anthropic=key)
    agent = LlmAgent(name="a", model="claude-opus-4-5")

| name | model |
| --- | --- |
| `claude-…` | `Claude(name)` |
| `gemini-…` | `Gemini(name)` |
| `gemini-…live…`, `gemini-…native-audio…` | `GeminiLive(name)`, for live runs; needs `minirun[live]` |
| `gpt-…`, `o3`, `o4-mini` … | `OpenAIChat(name)` |
| `responses:NAME` | `OpenAIResponses(NAME)` |
| `gpt-realtime…`, `realtime:NAME` | `OpenAIRealtime(NAME)`, for live runs |
| `openai:NAME@BASE_URL` | `OpenAIChat(NAME, base_url=BASE_URL)`, a server that speaks chat completions |

Keys are given to `configure`; nothing is read from the environment. A key goes to the address that it was given for,
and to no other.
"""

from __future__ import annotations

from collections.abc import Mapping

from .._json import brief
from ..errors import ConfigurationError
from . import gemini as gemini_models
from . import openai as openai_models
from ._adapter import Key, checked_key, current_key
from ._base import BaseLlm
from ._registry import LLMRegistry
from .anthropic import Claude
from .gemini import Gemini
from .openai import OpenAIChat, OpenAIResponses

__all__ = ["configure"]

_keys: dict[str, Key] = {}  # by provider, or by base URL


def configure(
    *,
    openai: Key = None,
    anthropic: Key = None,
    gemini: Key = None,
    servers: Mapping[str, Key] | None = None,
) -> None:
    """
    Set the keys of models that are asked for by name; those that were made already use the new ones, too.

    Args:
        openai: OpenAI's key, or a function, sync or async, that returns the one to use now; None leaves it as it is.
        anthropic: Anthropic's, alike.
        gemini: Google's, alike.
        servers: Keys of other servers, by the base URL that stands in `openai:NAME@BASE_URL`.

    Raises:
        ConfigurationError: A key cannot be one.
    """
    given = {"openai": openai, "anthropic": anthropic, "gemini": gemini, **(servers or {})}
    for name, key in given.items():
        if not isinstance(name, str):
            raise ConfigurationError(f"expected servers to be keys by base URL, found {brief(name)}")
        if key is not None and not callable(key):
            checked_key(key)
    _keys.update({name.rstrip("/"): key for name, key in given.items() if key is not None})


def _current(name: str) -> Key:
    """A function that returns the key that counts when it is called."""

    async def key() -> str:
        return await current_key(_keys[name])

    return key


def _key_of(provider: str, model: str) -> Key:
    if provider not in _keys:
        todo = f"write `minirun.models.providers.configure({provider}=key)` before, or pass a model object"
        raise ConfigurationError(f"expected a key for the model {model!r}, found none; {todo}; no variable is read")
    return _current(provider)


def _claude(name: str) -> BaseLlm:
    return Claude(name, api_key=_key_of("anthropic", name))


def _gpt(name: str) -> BaseLlm:
    return OpenAIChat(name, api_key=_key_of("openai", name))


def _responses(name: str) -> BaseLlm:
    return OpenAIResponses(name.removeprefix("responses:"), api_key=_key_of("openai", name))


def _realtime(name: str) -> BaseLlm:
    # by its module: the class is loaded when it is asked for
    return openai_models.OpenAIRealtime(name.removeprefix("realtime:"), api_key=_key_of("openai", name))


def _gemini(name: str) -> BaseLlm:
    return Gemini(name, api_key=_key_of("gemini", name))


def _gemini_live(name: str) -> BaseLlm:
    return gemini_models.GeminiLive(name, api_key=_key_of("gemini", name))


def _server(name: str) -> BaseLlm:
    model, _, base_url = name.removeprefix("openai:").partition("@")
    base_url = base_url.rstrip("/")
    return OpenAIChat(model, base_url=base_url, api_key=_current(base_url) if base_url in _keys else None)


LLMRegistry.register(r"claude-.*", _claude)
LLMRegistry.register(r"gemini-.*", _gemini)
LLMRegistry.register(r"gemini-.*(live|native-audio).*", _gemini_live)
LLMRegistry.register(r"responses:.+", _responses)
LLMRegistry.register(r"gpt-.*|o\d.*", _gpt)
LLMRegistry.register(r"realtime:.+|gpt-realtime.*", _realtime)
LLMRegistry.register(r"openai:[^@]+@https?://.+", _server)
