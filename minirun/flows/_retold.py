"""What an agent is shown of what the others said and did."""

from __future__ import annotations

from .._json import dumps
from .._values import changed
from ..events import Event
from ..types import Content, FunctionResponse, Part
from ._prompts import Prompts

__all__ = ["INPUT", "handed_input", "indented", "retold"]

# What the response to a call that hands over has of what it hands over with, beside the `result`.
INPUT = "input"


def handed_input(event: Event, agent_name: str) -> Part | None:
    """What the agent of this name is given by an event that hands over to it, as a user's message; None: nothing."""
    if event.actions.transfer_to_agent == agent_name:
        for answer in event.get_function_responses():
            if answer.name == "transfer_to_agent" and INPUT in answer.response:
                return Part(text=indented(dumps(answer.response[INPUT])))
    return None


def retold(prompts: Prompts, event: Event, content: Content, agent_name: str) -> list[Part]:
    """
    Return what another agent said and did, as texts whose first lines say whose; its thoughts stay its own.

    What stands in the user's role among its events it was told: what its answer lacks, for example. What it hands over
    to the agent of this name is said last, as a user would say it.
    """
    author, given = event.author, handed_input(event, agent_name)
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
            answer = part.function_response if given is None else _without_input(part.function_response)
            text = prompts.other_got.format(author=author, name=answer.name, response=dumps(answer.response))
            parts.append(Part(text=indented(text)))
        else:
            parts.append(part)
    return parts if given is None else [*parts, given]


def _without_input(answer: FunctionResponse) -> FunctionResponse:
    left = {name: value for name, value in answer.response.items() if name != INPUT}
    return changed(answer, response=left) if answer.name == "transfer_to_agent" else answer


def indented(text: str) -> str:
    """
    *text* with all lines after its first indented, whatever has ended them: U+2028, for example.

    So what somebody has said never looks like what somebody else says, nor like a heading: these are not indented.
    """
    return "\n    ".join(text.splitlines())
