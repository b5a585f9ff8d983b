"""What a code executor is to minirun."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Any

import attrs

from .._json import brief, is_count
from ..errors import ConfigurationError, NotSupportedError
from ..runtime import InvocationContext

__all__ = ["BaseCodeExecutor", "BuiltInCodeExecutor", "CodeExecutionInput", "CodeExecutionResult"]

DELIMITERS = (("```tool_code\n", "\n```"), ("```python\n", "\n```"))


@attrs.frozen(kw_only=True)
class CodeExecutionInput:
    """Code to run. `execution_id` is the same whenever this very code is run again after a crash."""

    code: str
    execution_id: str


@attrs.frozen(kw_only=True)
class CodeExecutionResult:
    """What running code gave: what it has printed, and whether it has failed."""

    stdout: str = ""
    stderr: str = ""
    is_error: bool = False
    is_timeout: bool = False


class BaseCodeExecutor(ABC):
    """
    Runs the code in the answers of an agent's model: `LlmAgent(code_executor=...)`.

    The first block of code in an answer without calls is run, what follows it is left out, and the model is shown the
    result and asked again. The result is stored as an event: an invocation that is resumed does not run the code again,
    except where the process died before the result was stored.

    Args:
        error_retry_attempts: How many failures in a row the model is shown; one more fails the run, with
            RetriesExceededError.
        code_block_delimiters: What stands before and after a block; by default that of Markdown, for `tool_code` and
            `python`.
        stateful, optimize_data_file: Of the ADK documents; True is refused.

    Raises:
        ConfigurationError: A value is out of its range.
        NotSupportedError: *stateful* or *optimize_data_file* is set.
    """

    def __init__(
        self,
        *,
        error_retry_attempts: int = 2,
        code_block_delimiters: Sequence[tuple[str, str]] = DELIMITERS,
        stateful: bool = False,
        optimize_data_file: bool = False,
    ) -> None:
        if stateful or optimize_data_file:
            what = "stateful" if stateful else "optimize_data_file"
            raise NotSupportedError(f"{what}=True has no effect in this version of minirun; leave it out")
        if not is_count(error_retry_attempts):
            msg = f"expected error_retry_attempts to be an integer from 0 up, found {brief(error_retry_attempts)}"
            raise ConfigurationError(msg)
        pairs = [tuple(pair) for pair in code_block_delimiters]
        if not pairs or not all(_is_pair(pair) for pair in pairs):
            msg = f"expected code_block_delimiters to be pairs of texts, found {brief(code_block_delimiters)}"
            raise ConfigurationError(msg)
        self.error_retry_attempts = error_retry_attempts
        self.code_block_delimiters = pairs

    @abstractmethod
    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult | Awaitable[CodeExecutionResult]:
        """
        Run the code. A synchronous one is called in a worker thread, an `async def` in the loop, where it is cancelled.

        What it raises fails the run; what the code itself fails with belongs in the result.
        """


def _is_pair(pair: Sequence[object]) -> bool:
    return len(pair) == 2 and all(isinstance(each, str) and each != "" for each in pair)


class BuiltInCodeExecutor:
    """The code execution of a provider's model. It is refused: it comes with the models of providers."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise NotSupportedError(
            "BuiltInCodeExecutor is a feature of a provider's model, and comes with the models of providers; write a "
            "BaseCodeExecutor, or give UnsafeLocalCodeExecutor on purpose"
        )
