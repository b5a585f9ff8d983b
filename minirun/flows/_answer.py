"""
What counts as an answer: of a run, and of an agent that is used as a tool.

An agent's last words are not always its last event: one that only thinks, changes the state or ends a loop says nothing
to its caller. An answer is a final event with something in it: text, an `output`, other media, or the result of
a tool that is shown as it is (`skip_summarization`) and is not null. What a model says beside its calls is no answer,
also where one of them is long-running, which makes the event a final one; nor is the record of a step.
"""

from __future__ import annotations

from typing import Any

from ..events import Event
from ..types import Part

__all__ = ["is_answer", "is_answer_of_run", "shown_result"]


def is_answer(event: Event) -> bool:
    """Whether *event* is an answer, and not only the end of something."""
    replay = event.actions.replay
    if event.error_code or replay.at_work or replay.step is not None or not event.is_final_response():
        return False
    content, shows = event.content, event.actions.skip_summarization or event.long_running_tool_ids
    if content is not None and content.role == "user" and event.author != "user" and not shows:
        return False  # an agent has told itself something: what its answer lacks, for example
    parts = content.parts if content is not None else ()
    return event.output is not None or any(map(_says_something, parts)) or shown_result(event) is not None


def is_answer_of_run(event: Event) -> bool:
    """Whether *event* is an answer to the user: that of an agent, but of none that is used as a tool."""
    return event.author != "user" and "@" not in (event.branch or "") and is_answer(event)


def shown_result(event: Event) -> Any:
    """The result of a tool that is shown as it is: of several the last that is not null; None if there is none."""
    if not event.actions.skip_summarization:
        return None
    responses = [item.response for item in event.get_function_responses()]
    values = [response["result"] if list(response) == ["result"] else response for response in responses]
    return next((value for value in reversed(values) if value is not None), None)


def _says_something(part: Part) -> bool:
    if part.text is not None:
        return bool(part.text) and not part.thought
    return part.inline_data is not None or part.file_data is not None or part.executable_code is not None
