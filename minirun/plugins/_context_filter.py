"""
How much of a conversation models are shown.

A turn begins with what the user says, and what came of it belongs to it: what agents said, calls, their responses. So
a request that begins with a turn never has a response without its call. What a turn begins with is told by the log,
not by roles: what other agents have said is told a model by the user's side, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, cast

from .._json import brief, is_count
from ..agents._request import transcript_of
from ..errors import ConfigurationError, InvalidValueError
from ..types import Content
from ._base import BasePlugin

if TYPE_CHECKING:
    from ..agents import LlmAgent
    from ..models import LlmRequestDraft
    from ..runtime import CallbackContext

__all__ = ["ContextFilterPlugin"]

CustomFilter = Callable[[list[Content]], Sequence[Content] | Awaitable[Sequence[Content]]]


class ContextFilterPlugin(BasePlugin):
    """
    Shortens what models are asked; the session keeps everything.

    Args:
        num_invocations_to_keep: How many of the last turns are shown, the one that is going on included. None: all.
            An invocation that goes on after later messages is shown from its own message on, with those.
        custom_filter: A function, sync or async, called with the list of contents that are left; returns those to show.
            It is given a copy of all that is left for each question, so without `num_invocations_to_keep` it costs
            what the history is long.
        name: The name of the plugin.

    The turns that are kept are copied into the request, and nothing else is looked at: its cost does not grow with the
    history. What prompts show is counted, however narrow the window of the run is, and the summary that they begin with
    (`App(events_compaction_config=...)`) is no turn and stays. A text that the framework has put before the user's last
    words (`static_instruction`) stays there, and so does what a plugin before this one has put in that place, or after
    it. What is put before older turns goes with them: list a plugin that does so after this one. A plugin before this
    one may rewrite contents, each in its place; if it changes their number, too, nobody can tell where turns begin, and
    the run fails: list it after this one. Inside an agent that is used as a tool, all is kept.

    Raises:
        ConfigurationError: The number is not an integer from 1 up, the filter no function, or neither is given. At a
            question: a plugin before this one has rewritten the contents and changed their number.
        InvalidValueError: At a question: the filter returned no list of contents, or parted a call from its response.
    """

    def __init__(
        self,
        num_invocations_to_keep: int | None = None,
        custom_filter: CustomFilter | None = None,
        name: str = "context_filter",
    ) -> None:
        super().__init__(name)
        number = num_invocations_to_keep
        if number is None and custom_filter is None:
            raise ConfigurationError("expected num_invocations_to_keep or custom_filter, found neither: give one")
        if number is not None and not is_count(number, 1):
            msg = f"expected num_invocations_to_keep to be an integer from 1 up, or None, found {brief(number)}"
            raise ConfigurationError(msg)
        if custom_filter is not None and not callable(custom_filter):
            msg = f"expected custom_filter to be a function of contents, found {brief(custom_filter)}"
            raise ConfigurationError(msg)
        self.num_invocations_to_keep = number
        self.custom_filter = custom_filter

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """Show the model what is to be shown."""
        if self.num_invocations_to_keep is not None:
            contents = llm_request.contents
            start = _start(contents, callback_context, self.num_invocations_to_keep)
            if start > 0:
                history = callback_context._invocation.history
                opens = contents[0] == history.opening  # with a summary, which tells of the oldest
                llm_request.contents = [*contents[:opens], *contents[start:]]
        if self.custom_filter is not None:
            shown = self.custom_filter(list(llm_request.contents))
            shown = await shown if inspect.isawaitable(shown) else shown
            llm_request.contents = list(_checked(shown))


def _start(contents: Sequence[Content], context: CallbackContext, count: int) -> int:
    """Where the last *count* turns begin; 0 if there are no more."""
    messages = _user_messages(context, count)
    if len(messages) < count:
        return 0
    history = transcript_of(cast("LlmAgent", context.agent), context).contents()
    at = _index_of_oldest(history, messages)
    if at <= 0:
        return 0
    start = _index_of_oldest(contents, messages)
    if start < 0:
        return _start_in_rewritten(contents, history, at, messages)
    while start > 0 and contents[start - 1] is not history[at - 1] and _is_user_text(contents[start - 1]):
        start -= 1  # it is not of the history, and stands where the turn begins
    return start


def _start_in_rewritten(
    contents: Sequence[Content], history: Sequence[Content], at: int, messages: Sequence[Content]
) -> int:
    """
    Where the turn of `history[at]` begins in contents that a plugin has put in the place of those of the history.

    Raises:
        ConfigurationError: There are not as many, and so nobody can say which is which.
    """
    last = len(history)
    while last and _is_user_text(history[last - 1]):
        last -= 1
    more = len(contents) - len(history)
    if more == 0 or (more == 1 and contents[last].role == "user"):  # an `instruction` stands before the last words
        return at + more if at > last else at
    if more < 0 and _index_of_oldest(contents, messages[:1]) >= 0:
        return 0  # what is older was taken out already
    msg = (
        f"expected the {len(history)} contents of the history, each in its place, found {len(contents)} others; "
        "list ContextFilterPlugin before the plugin that rewrites them"
    )
    raise ConfigurationError(msg)


def _user_messages(context: CallbackContext, count: int) -> list[Content]:
    """
    What the user has said, the latest first: *count* messages, and back to the one that this invocation began with.

    Answers to questions are no new turns.
    """
    live, first = context._invocation.live, context._invocation.history.message_seq
    events = live.events
    found: list[Content] = []
    for index in range(len(events) - 1, live.index_of(context._invocation.history.prompt_seq) - 1, -1):
        event = events[index]
        if len(found) >= count and (event.seq or 0) < first:
            break
        if event.author == "user" and event.content is not None and not event.get_function_responses():
            found.append(event.content)
    return found


def _index_of_oldest(contents: Sequence[Content], messages: Sequence[Content]) -> int:
    """The index in *contents* of the oldest of *messages*, which come latest first; -1 if one is not there."""
    index = len(contents)
    for content in messages:
        index -= 1
        while index >= 0 and contents[index] is not content:
            index -= 1
    return max(index, -1)


def _is_user_text(content: Content) -> bool:
    return content.role == "user" and all(part.function_response is None for part in content.parts)


def _checked(contents: object) -> Sequence[Content]:
    """What a filter has returned."""
    path = "custom_filter"
    if isinstance(contents, (str, bytes)) or not isinstance(contents, Sequence):
        raise InvalidValueError(path, f"expected a list of Content, found {brief(contents)}")
    expected: list[str | None] = []
    for index, content in enumerate(contents):
        if not isinstance(content, Content):
            raise InvalidValueError(f"{path}[{index}]", f"expected a Content, found {brief(content)}")
        found = [part.function_response.id for part in content.parts if part.function_response is not None]
        if found != expected:
            problem = f"expected the responses to the calls {expected}, found {found}; keep or leave out both contents"
            raise InvalidValueError(f"{path}[{index}]", problem)
        expected = [part.function_call.id for part in content.parts if part.function_call is not None]
    if expected:
        raise InvalidValueError(path, f"expected the responses to the calls {expected}, found none; leave out both")
    return contents
