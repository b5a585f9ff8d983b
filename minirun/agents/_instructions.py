"""Instructions that are not said as they are: filled in, made by a function, or put into the conversation."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from .._json import brief
from .._window import Extended, Window, inserted
from ..errors import InvalidValueError
from ..flows._instructions import artifacts_in, fill_in
from ..runtime import CallbackContext, InvocationContext
from ..types import Content, Part

if TYPE_CHECKING:
    from ._request import Instruction

__all__ = ["filled_in", "text_of", "with_instruction"]

async def text_of(instruction: Instruction, ctx: InvocationContext | CallbackContext, whose: str = "") -> str:
    """The text of an instruction: filled in from the state, or what its function says. *whose* is for errors."""
    if isinstance(instruction, str):
        return await filled_in(instruction, ctx)
    text = instruction(ctx._readonly())
    text = await text if inspect.isawaitable(text) else text
    if not isinstance(text, str):
        whose = whose or repr(ctx.agent_name)
        raise TypeError(f"expected the instruction function of {whose} to return a string, found {brief(text)}")
    return text


async def filled_in(template: str, ctx: InvocationContext | CallbackContext) -> str:
    """*template* with the state and the artifacts of *ctx* filled in; see `flows._instructions`."""
    texts = {}
    for name in artifacts_in(template):
        artifact = await ctx.load_artifact(name)
        if artifact is not None:
            texts[name] = _text_of(name, artifact)
    return fill_in(template, ctx.state, texts)


def _text_of(name: str, artifact: Part) -> str:
    blob = artifact.inline_data
    if artifact.text is not None:
        return artifact.text
    if blob is not None and (blob.mime_type.startswith("text/") or blob.mime_type == "application/json"):
        return blob.data.decode("utf-8", "replace")
    found = "a file elsewhere" if blob is None else blob.mime_type
    problem = f"expected text, which an instruction can contain, found {found}; let the model load it with a tool"
    raise InvalidValueError(f"artifact {name!r}", problem)


def with_instruction(contents: Window[Content] | Extended[Content], instruction: str) -> Extended[Content]:
    """Put a text before what the user said last, but after the responses of tools: those belong to their calls."""
    place = len(contents)
    while place and _is_of_the_user(contents[place - 1]):
        place -= 1
    return inserted(contents, place, Content(role="user", parts=[Part(text=instruction)]))


def _is_of_the_user(content: Content) -> bool:
    return content.role == "user" and all(part.function_response is None for part in content.parts)
