"""What an agent is shown of what the others said and did."""

from __future__ import annotations

from .._json import dumps
from ..types import Content, Part
from ._prompts import Prompts

__all__ = ["indented", "retold"]


def retold(prompts: Prompts, author: str | None, content: Content) -> list[Part]:
    """
    Return what another agent said and did, as texts whose first lines say whose; its thoughts stay its own.

    What stands in the user's role among its events it was told: what its answer lacks, for example.
    """
    words = prompts.other_told if content.role == "user" else prompts.other_said
    parts: list[Part] = []
    for part in content.parts:
        if part.text is not None:
            if part.text and not part.thought:
                parts.append(Part(text=indented(words.format(author=author, text=part.text))))
        elif part.function_call is not None:
            call = part.function_call
            text = prompts.other_called.format(author=author, name=call.name, args=dumps(call.args))
            parts.append(Part(text=indented(text)))
        elif part.function_response is not None:
            answer = part.function_response
            text = prompts.other_got.format(author=author, name=answer.name, response=dumps(answer.response))
            parts.append(Part(text=indented(text)))
        else:
            parts.append(part)
    return parts


def indented(text: str) -> str:
    """
    *text* with all lines after its first indented, whatever has ended them: U+2028, for example.

    So what somebody has said never looks like what somebody else says, nor like a heading: these are not indented.
    """
    return "\n    ".join(text.splitlines())
