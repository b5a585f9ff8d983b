"""What is said of a model that breaks the contract of `BaseLlm`, and of a script that does not fit what was asked."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence

from .._json import brief
from ..errors import ModelContractError, ScriptError

__all__ = ["left_over", "no_generator", "no_response", "used_up"]


def no_generator(model: object, responses: object) -> ModelContractError:
    """The error for a method that returned *responses* instead of being an async generator."""
    if isinstance(responses, Coroutine):
        responses.close()
    expected = f"expected {type(model).__name__}.generate_content_async to be an async generator"
    found = f"found a function that returned {brief(responses)}"
    return ModelContractError(f"{expected}, {found}; `yield` the response in it")


def no_response(name: str, found: object) -> ModelContractError:
    """The error for what the model *name* has yielded that is no response; None: it has yielded no more."""
    if found is None:
        told = f"the model {name!r} ended its stream without a complete response"
        return ModelContractError(f"{told}; the answer is cut off")
    return ModelContractError(f"expected the model {name!r} to yield LlmResponse, found {brief(found)}")


def used_up(name: str, count: int, asked: str) -> ScriptError:
    """The error for a question to the model *name* whose script of *count* items is at its end."""
    expected = f"expected at most {count} questions to {name!r}, found one more: {brief(asked or '(no text)', 200)}"
    return ScriptError(f"{expected}; add an item to the script, or look for a loop")


def left_over(name: str, script: Sequence[object], asked: int) -> ScriptError:
    """The error for a script of which only *asked* items were asked for."""
    expected = f"expected {len(script)} questions to {name!r}, found {asked}"
    return ScriptError(f"{expected}; left over: {brief(script[asked:], 200)}")
