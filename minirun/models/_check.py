"""
Would the strictest provider take this request?

Providers differ in what they forgive; this check forgives nothing, so that a history that passes here passes
everywhere: the conversation begins and ends with the user's side, every content has a role and parts, and the calls of
one content are answered by the very next one, all of them, in order, by nothing else. An answer of a given schema is
asked for only where the model is able to give it.

Requests over one history share its contents, so only what is new since the last request is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .._window import Extended, Window
from ..types import Content
from ._base import BaseLlm, LlmCapabilities, LlmRequest

__all__ = ["RequestChecker"]


class _Progress:
    """How far a shared history was checked, and what must come next."""

    __slots__ = ("_earlier_ids", "expected", "known_ids", "length", "origin", "sees_media")

    def __init__(self, origin: object, sees_media: bool) -> None:
        self.origin = origin
        self.sees_media = sees_media
        self.length = 0
        self.expected: list[str] = []
        self.known_ids: set[str] = set()
        self._earlier_ids: Collection[str] = ()  # those of who this has branched off from

    def branch(self) -> _Progress:
        """One that goes on from here another way; this one stays as it is."""
        branch = _Progress(self.origin, self.sees_media)
        branch.length, branch.expected, branch._earlier_ids = self.length, self.expected, self.known_ids
        return branch

    def check(self, content: Content) -> str | None:
        """Look at the next content; say what is wrong with it, if anything."""
        place = f"contents[{self.length}]"
        if content.role not in ("user", "model"):
            return f"{place}: expected role 'user' or 'model', found {content.role!r}"
        if not content.parts:
            return f"{place}: expected parts, found none"
        if not self.length and content.role != "user":
            return f"{place}: expected the user to begin, found role {content.role!r}"
        calls, answers = content.calls_and_responses
        if (calls and content.role != "model") or (answers and content.role != "user"):
            return f"{place}: expected calls from 'model' and responses from 'user', found role {content.role!r}"
        found = [answer.id for answer in answers]
        if found != self.expected:
            return f"{place}: expected responses to the calls {self.expected}, in this order, found {found}"
        if not self.sees_media and any(answer.parts for answer in answers):
            return f"{place}: expected responses without media, which this model cannot see, found some"
        for call in calls:
            if call.id is None or call.id in self.known_ids or call.id in self._earlier_ids:
                return f"{place}: expected a call id that is new, found {call.id!r}"
            self.known_ids.add(call.id)
        self.expected = [call.id for call in calls if call.id is not None]
        self.length += 1  # what is wrong is refused again
        return None


class RequestChecker:
    """Checks requests to a model of these capabilities, by default those of `BaseLlm`, in O(what is new) for each."""

    def __init__(self, capabilities: LlmCapabilities = BaseLlm.capabilities) -> None:
        self._capabilities = capabilities
        self._progress: dict[int, _Progress] = {}

    def check(self, request: LlmRequest) -> str | None:
        """Return what the strictest provider would refuse in *request*, or None."""
        contents = request.contents
        if not contents:
            return "contents: expected at least the user's message, found none"
        problem = self._check_contents(contents)
        if problem is not None:
            return problem
        if contents[-1].role != "user":
            return f"contents[{len(contents) - 1}]: expected the user's side to speak last, found role 'model'"
        names = [tool.name for tool in request.config.tools]
        if len(set(names)) < len(names):
            return f"tools: expected names that differ, found {sorted(names)}"
        if request.config.response_schema is not None:
            if not self._capabilities.output_schema:
                return "response_schema: expected none, which this model does not keep to, found one"
            if names and not self._capabilities.output_schema_and_tools:
                return f"response_schema: expected none beside tools, found one and the tools {sorted(names)}"
        return None

    def _check_contents(self, contents: Sequence[Content]) -> str | None:
        shared = contents.shared if isinstance(contents, Extended) else contents
        progress = self._progress_of(shared)
        problem = _first_problem(progress, shared)
        if problem is None and isinstance(contents, Extended):
            problem = _first_problem(progress.branch(), contents)
        return problem

    def _progress_of(self, contents: Sequence[Content]) -> _Progress:
        if not isinstance(contents, Window):
            return _Progress(contents, self._capabilities.media_in_tool_results)
        progress = self._progress.get(id(contents.origin))
        if progress is None or progress.length > len(contents):
            # It holds the list, so that its id stays its own.
            progress = _Progress(contents.origin, self._capabilities.media_in_tool_results)
            self._progress[id(contents.origin)] = progress
        return progress


def _first_problem(progress: _Progress, contents: Sequence[Content]) -> str | None:
    problems = (progress.check(contents[index]) for index in range(progress.length, len(contents)))
    return next((problem for problem in problems if problem is not None), None)
