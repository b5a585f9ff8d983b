"""One instruction for all agents of an app."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from .._json import brief
from ..agents._instructions import text_of
from ..errors import ConfigurationError, MissingArtifactError, MissingStateKeyError
from ._base import BasePlugin

if TYPE_CHECKING:
    from ..models import LlmRequestDraft
    from ..runtime import CallbackContext, ReadonlyContext

__all__ = ["GlobalInstructionPlugin"]


class GlobalInstructionPlugin(BasePlugin):
    """
    Tells the model of every agent the same, before the agent's own instruction.

    Args:
        global_instruction: A text in which `{key}`, `{key?}` and `{artifact.name}` stand for values of the state and
            texts of artifacts, as in an agent's instruction, or a function (sync or async) of a ReadonlyContext, whose
            text is taken as it is. Where the text is empty, nothing is added.
        name: The name of the plugin.

    It is filled in anew for each question, and stored nowhere. A key that the state lacks, and what the function
    raises, fails the run, as in an agent's own instruction.

    Raises:
        ConfigurationError: The instruction is neither a text nor a function.
    """

    def __init__(
        self,
        global_instruction: str | Callable[[ReadonlyContext], str | Awaitable[str]] = "",
        name: str = "global_instruction",
    ) -> None:
        super().__init__(name)
        if not (isinstance(global_instruction, str) or callable(global_instruction)):
            expected = "expected global_instruction to be a string or a function of the context"
            raise ConfigurationError(f"{expected}, found {brief(global_instruction)}")
        self.global_instruction = global_instruction

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """Put the instruction first."""
        try:
            text = await text_of(self.global_instruction, callback_context, f"plugin {self.name!r}")
        except (MissingStateKeyError, MissingArtifactError) as error:
            raise type(error)(f"plugin {self.name!r}: {error}") from None
        texts = [each for each in (text, llm_request.config.system_instruction) if each]
        if text:
            llm_request.config.system_instruction = "\n\n".join(texts)
