"""What a Runner closes: plugins, and the tools and models of a tree of agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import trio

from ..errors import CleanupTimeoutError, ConfigurationError
from ..models import BaseLlm
from ._llm import LlmAgent
from ._tree import AgentTree

__all__ = ["close_all", "models_of"]


def models_of(tree: AgentTree) -> list[BaseLlm]:
    """The models of all agents, and of the agents that are tools of theirs; each once."""
    found: dict[BaseLlm | None, None] = {}
    for each in _all_trees(tree):
        for agent in each._by_name.values():
            try:
                found[each.model_of(agent) if isinstance(agent, LlmAgent) else None] = None
            except ConfigurationError:
                pass  # a name whose registration has gone since
    return [model for model in found if model is not None]


def _all_trees(tree: AgentTree) -> Iterator[AgentTree]:
    yield tree
    for inner in tree.inner():
        yield from _all_trees(inner)


def _closings(plugins: Iterable[Any], tree: AgentTree) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """What closes each of them, with the name that messages have for it."""
    for closable in (*plugins, *tree.tools()):
        yield getattr(closable, "name", type(closable).__name__), closable.close
    for model in models_of(tree):
        yield model.name, model.aclose


async def close_all(plugins: Iterable[Any], tree: AgentTree, timeout_s: float) -> list[Exception]:
    """Close them one by one, each within that time; return what has failed."""
    failures: list[Exception] = []
    for name, close in _closings(plugins, tree):
        with trio.move_on_after(timeout_s) as scope:
            try:
                await close()
            except Exception as error:
                failures.append(error)
        if scope.cancelled_caught:
            msg = f"closing {name!r} took longer than Runner(cleanup_timeout_s={timeout_s})"
            failures.append(CleanupTimeoutError(msg))
    return failures
