"""
The agents of an app as a tree: where each one stands, to which it may hand over, which one answers next.

An agent does not know where it stands; one tree, made once from its root, knows it for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import ConfigurationError
from ..events import Event
from ..models import BaseLlm
from ._base import BaseAgent
from ._llm import LlmAgent

if TYPE_CHECKING:
    from ..tools import BaseTool, BaseToolset

__all__ = ["AgentTree"]


# Each level takes four to six of the 1 000 calls that Python nests, and the application's own code needs some.
LEVELS_MAX = 100


class AgentTree:
    """
    The agents under *root*.

    Raises:
        ConfigurationError: An agent stands in two places, two have one name, or they are too deep.
    """

    def __init__(self, root: BaseAgent, default_model: BaseLlm | str | None = None, *, is_node: bool = False) -> None:
        self.root = root
        self._default_model = default_model
        self._by_name: dict[str, BaseAgent] = {}
        self._parents: dict[str, BaseAgent] = {}
        self.hands_over = bool(root.sub_agents) and isinstance(root, LlmAgent)
        """Whether another agent than the root may answer a message."""
        self._add(root, 0 if is_node else 1)

    def _add(self, agent: BaseAgent, level: int) -> None:
        if level > LEVELS_MAX:
            msg = f"expected at most {LEVELS_MAX} levels of agents below each other, found more, down to {agent.name!r}"
            raise ConfigurationError(f"{msg}; put those that follow each other into one sequence")
        other = self._by_name.setdefault(agent.name, agent)
        if other is not agent:
            msg = f"expected agents with different names, found two named {agent.name!r}; rename one"
            raise ConfigurationError(msg)
        if isinstance(agent, LlmAgent) and agent.mode is not None and level > 0:
            from ._llm_fields import check_mode_outside  # few agents have a mode

            check_mode_outside(agent)
        for child in agent.sub_agents:
            if self._by_name.get(child.name) is child:
                msg = f"expected every agent in one place of the tree, found {child.name!r} in two; make a second agent"
                raise ConfigurationError(msg)
            self._parents[child.name] = agent
            self._add(child, level + 1)

    def agents(self) -> Sequence[BaseAgent]:
        """All of them, the root first."""
        return list(self._by_name.values())

    def tools(self) -> list[BaseTool | BaseToolset]:
        """The tools and toolsets of all of them, and of the agents that are tools of theirs; each once."""
        found: dict[BaseTool | BaseToolset, None] = {}
        for agent in self._by_name.values():
            for tool in agent.tools if isinstance(agent, LlmAgent) else ():
                found[tool] = None  # type: ignore[index]  # no plain function: the field's converter sees to it
            found.update(dict.fromkeys(getattr(agent, "node_tools", ())))
        for tree in self.inner():
            found.update(dict.fromkeys(tree.tools()))
        return list(found)

    def inner(self) -> Iterator[AgentTree]:
        """The trees of agents that are tools of these, or nodes."""
        for agent in self._by_name.values():
            for tool in agent.tools if isinstance(agent, LlmAgent) else ():
                tree = getattr(tool, "tree", None)
                if isinstance(tree, AgentTree):
                    yield tree
            yield from getattr(agent, "node_trees", ())

    def parent_of(self, agent: BaseAgent) -> BaseAgent | None:
        """The agent above *agent*, or None."""
        return self._parents.get(agent.name)

    def find(self, name: str | None) -> BaseAgent | None:
        """The agent of this name, or None."""
        return None if name is None else self._by_name.get(name)

    def targets(self, agent: BaseAgent) -> list[BaseAgent]:
        """
        Whom *agent* may hand over to: the agents below it, the one above it, and those beside it.

        An agent that is not led by a model, a LoopAgent for example, does not get control back, and what it runs is
        not handed around: so the one above, and those beside, are only targets where the one above is an LlmAgent.
        """
        targets = list(agent.sub_agents)
        parent = self._parents.get(agent.name)
        if isinstance(parent, LlmAgent):
            if not getattr(agent, "disallow_transfer_to_parent", False):
                targets.append(parent)
            if not getattr(agent, "disallow_transfer_to_peers", False):
                targets += [other for other in parent.sub_agents if other is not agent]
        return targets

    def target(self, agent: BaseAgent, name: str | None) -> BaseAgent | None:
        """The agent of this name that *agent* may hand over to, or None. Both may be made at run time."""
        if name is None:
            return None
        return next((other for other in self.targets(agent) if other.name == name), None)

    def model_of(self, agent: BaseAgent) -> BaseLlm | None:
        """The model of *agent*, or of the nearest LlmAgent above it that has one, or the default one, if there is."""
        at: BaseAgent | None = agent
        model: BaseLlm | str | None = None
        while at is not None and model is None:
            model = at.model if isinstance(at, LlmAgent) else None
            at = self._parents.get(at.name)
        model = self._default_model if model is None else model
        return _by_name(model) if isinstance(model, str) else model

    def check_models(self) -> None:
        """
        Check that every agent that needs a model has one.

        Raises:
            ConfigurationError: An agent has none, or a name that stands for none.
        """
        for agent in self._by_name.values():
            if isinstance(agent, LlmAgent) and self.model_of(agent) is None:
                found = "found none in it nor in an LlmAgent above it; give one, or App(default_model=...)"
                raise ConfigurationError(f"expected a model for agent {agent.name!r}, {found}")
            if self.model_of(agent) is None:
                for tree in getattr(agent, "node_trees", ()):
                    tree.check_models()

    def speaker(self, events: Sequence[Event], before: str | None = None) -> BaseAgent:
        """
        The agent that answers the message that follows *events*; *before* would have answered before them.

        It is the one that spoke last, or was handed to and did not speak yet: an agent that got control by transfers
        keeps it, until it gives it back. Only who may hand back keeps it: an LlmAgent whose
        `disallow_transfer_to_parent` is not set, below such agents all the way up. Else the root answers.
        """
        if not self.hands_over:
            return self.root
        from ._speaker import last_speaker  # few agents have others beside them

        return last_speaker(self, events, before)


def _by_name(name: str) -> BaseLlm:
    from ..models._registry import LLMRegistry  # only for models that are given by their names

    return LLMRegistry.new_llm(name)
