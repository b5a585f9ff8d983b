"""A model that is several: the next one is asked where one fails before it has said anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, aclosing
from typing import Any

import attrs

from .._json import brief
from ..errors import (
    ConfigurationError,
    FatalError,
    ModelConnectionError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelTimeoutError,
)
from ._base import BaseLlm, LlmCapabilities, LlmRequest, LlmResponse, responses_of

__all__ = ["FallbackModel"]

PASSING = (ModelRateLimitedError, ModelOverloadedError, ModelTimeoutError, ModelConnectionError)


class FallbackModel(BaseLlm):
    """
    Asks the first of several models and, where it fails before its first fragment, the next.

    It is able to do what all of them are. `model_version` of an answer tells which has given it: as the model itself
    says, or its name. `LlmAgent(model_retry=...)` begins again with the first.

    Args:
        *models: At least two models, in the order in which they are asked.
        on: The exceptions after which the next one is asked. What they raise else, and what the last one raises, is
            raised; the failures before it are notes on it.

    Raises:
        ConfigurationError: There are fewer than two models, or *on* is no list of exception types.
    """

    def __init__(self, *models: BaseLlm, on: Iterable[type[Exception]] = PASSING) -> None:
        for model in models:
            if not isinstance(model, BaseLlm):
                raise ConfigurationError(f"expected models (BaseLlm), found {brief(model)}")
        if len(models) < 2:
            raise ConfigurationError(f"expected at least two models, found {len(models)}; give the one itself instead")
        kinds: Any = tuple(on) if isinstance(on, Iterable) and not isinstance(on, (str, type)) else None
        if kinds is None or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise ConfigurationError(f"expected on to be a list of exception types, found {brief(on)}")
        super().__init__(model="|".join(model.name for model in models))
        self.models = models
        self.on: tuple[type[Exception], ...] = kinds
        able = [field.name for field in attrs.fields(LlmCapabilities)]
        self.capabilities = LlmCapabilities(
            **{name: all(getattr(model.capabilities, name) for model in models) for name in able}
        )

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer with what the first model says that does not fail."""
        failures: list[str] = []
        for model in self.models:
            has_begun = False
            try:
                asked = attrs.evolve(request, model=model.name)
                async with aclosing(responses_of(model, asked, stream)) as responses:
                    async for response in responses:
                        has_begun = True
                        yield response if response.model_version else attrs.evolve(response, model_version=model.name)
                return
            except Exception as error:
                is_last = model is self.models[-1]
                if has_begun or is_last or isinstance(error, FatalError) or not isinstance(error, self.on):
                    for note in failures:
                        error.add_note(note)
                    raise
                failures.append(f"the model {model.name!r} had failed before: {type(error).__name__}: {error}")

    async def aclose(self) -> None:
        """Close all of its models, also where closing one fails."""
        async with AsyncExitStack() as stack:
            for model in self.models:
                stack.push_async_callback(model.aclose)
