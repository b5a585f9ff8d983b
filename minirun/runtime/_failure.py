"""
One exception for one failure.

A nursery reports what happened in it as a group. A run raises one exception with its own type instead (promise P7):
the first failure, with the others as notes on it and the group as its cause, so that
`except LlmCallsLimitExceededError:` works however deep it was raised.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio

from ..errors import CleanupTimeoutError
from ..events import NO_NODE, NodeInfo

__all__ = [
    "Failures", "Pause", "add_note", "came_of_cancellation", "first_failure", "is_only_cancelled", "is_pause",
    "leading_failure", "leaves",
]


class Pause(BaseException):
    """
    Unwinds an agent that has to wait for something outside; the invocation is paused when all have unwound or ended.

    It is no `Exception`, so that an agent's own error handling lets it pass. Who runs agents side by side lets the
    others come to their end first, and raises it then.
    """


class Failures:
    """What has failed in a run, beside the exception that it ends with."""

    __slots__ = (
        "_origins", "abandoned_threads", "has_unclosed_calls", "late", "of_hooks", "of_tools", "unrecorded_calls",
    )  # fmt: skip

    def __init__(self) -> None:
        self.of_hooks: list[BaseException] = []
        """What hooks have raised: it fails the run, wherever they were called."""
        self.late: list[Exception] = []
        """What hooks and watchers have raised while an event was stored that had to be: it fails the run at its end."""
        self.of_tools: dict[str, str] = {}
        """See `Run.failed_calls`."""
        self.unrecorded_calls: frozenset[str | None] = frozenset()
        """The ids of calls that were made, and whose responses could not be stored."""
        self.has_unclosed_calls = False
        """Whether the store refused to close calls for which no agent waits. A resumed run would leave them open."""
        self.abandoned_threads = 0
        self._origins: dict[int, tuple[BaseException, str, str | None, NodeInfo]] = {}  # by id; the exception lives on

    def count_abandoned(self) -> None:
        """Count a thread that was given up."""
        self.abandoned_threads += 1

    def note_origin(self, error: BaseException, agent_name: str, branch: str | None, node: NodeInfo = NO_NODE) -> None:
        """Note which agent, or run of a *node*, *error* has left, if it is the first that it leaves."""
        _, name, place, known = self._origins.get(id(error), (error, agent_name, branch, node))
        self._origins[id(error)] = (error, name, place, node if known is NO_NODE else known)

    def origin(self, error: BaseException) -> tuple[str | None, str | None, NodeInfo]:
        """Return the agent that *error* came from, its branch, and the innermost run of a node that it has left."""
        return self._origins.get(id(error), (error, None, None, NO_NODE))[1:]

    def forget_origin(self, error: BaseException) -> None:
        """Forget *error*: it was handled."""
        self._origins.pop(id(error), None)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, in the order in which their tasks ended; the exception itself if it is none."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaves(member)
    else:
        yield error


def is_only_cancelled(error: BaseException) -> bool:
    """Whether nothing happened but a cancellation."""
    return all(isinstance(leaf, trio.Cancelled) for leaf in leaves(error))


def is_pause(error: BaseException | None) -> bool:
    """Whether *error* says that something waits, and nothing else but cancellations."""
    found = [] if error is None else [leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled)]
    return bool(found) and all(isinstance(leaf, Pause) for leaf in found)


def came_of_cancellation(error: BaseException) -> bool:
    """Whether *error* was raised while a cancellation was being handled: in a `finally`, for example."""
    at: BaseException | None = error
    while at is not None:
        if any(isinstance(leaf, (trio.Cancelled, CleanupTimeoutError)) for leaf in leaves(at)):
            return True
        at = at.__context__
    return False


def leading_failure(error: BaseException) -> BaseException:
    """
    Return the one exception that stands for *error*, and change nothing.

    KeyboardInterrupt and SystemExit win; else it is the first that is neither a cancellation nor a pause.
    """
    failures = [leaf for leaf in leaves(error) if not isinstance(leaf, (trio.Cancelled, Pause))]
    if not failures:
        return next(leaves(error))
    return next((leaf for leaf in failures if not isinstance(leaf, Exception)), failures[0])


def first_failure(error: BaseException) -> BaseException:
    """Return the one exception that stands for *error*, with the others as notes on it, and the group as its cause."""
    first = leading_failure(error)
    if first is error or isinstance(first, (trio.Cancelled, Pause)):
        return first
    for other in leaves(error):
        if other is not first and not isinstance(other, (trio.Cancelled, Pause)):
            add_note(first, other)
    if first.__cause__ is None:
        try:
            first.__cause__ = error
        except (AttributeError, TypeError):  # a frozen one is raised as it is
            pass
    return first


def add_note(error: BaseException, other: BaseException) -> None:
    """Mention *other* on *error*, unless that refuses to be changed."""
    try:
        error.add_note(f"also failed: {type(other).__name__}: {other}")
    except Exception:  # a frozen one, or one that cannot say what it is: the run fails with *error* all the same
        pass
