"""The tool by which a model hands the conversation over to another agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._json import brief
from ..errors import ArgumentError
from ..flows._prompts import Prompts
from ..runtime import ToolContext
from ..tools import BaseTool
from ..tools._declared import declared
from ..types import FunctionDeclaration
from ._base import TRANSFER_TO_AGENT as NAME
from ._base import BaseAgent

__all__ = ["TransferTool", "about_transfers"]


def about_transfers(prompts: Prompts, agent: BaseAgent, targets: Sequence[BaseAgent]) -> list[str]:
    """Return what *agent* is told about itself and the agents it can hand over to."""
    lines = [prompts.transfer_target.format(name=other.name, description=other.description) for other in targets]
    told = "\n".join(line.rstrip() for line in lines)
    identity = prompts.identity.format(name=agent.name, description=agent.description)
    return [identity.strip(), prompts.transfer.format(targets=told)]


class TransferTool(BaseTool):
    """`transfer_to_agent(agent_name)`: the agent takes over once the calls of this turn are answered."""

    checks_arguments = False  # it does so itself

    def __init__(self, targets: Sequence[BaseAgent], prompts: Prompts) -> None:
        super().__init__(name=NAME, description=prompts.transfer_tool, on_interrupted="rerun")
        self._names = [agent.name for agent in targets]
        self._prompts = prompts

    @property
    def declaration(self) -> FunctionDeclaration:
        """The tool with the names of the agents that can take over."""
        agent_name = {"type": "string", "enum": self._names}
        return declared(NAME, self.description, agent_name=agent_name)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Hand over, or raise ArgumentError if this agent cannot hand over to that one."""
        name = args.get("agent_name")
        if name not in self._names or len(args) != 1:
            known = ", ".join(self._names)
            raise ArgumentError(f"expected agent_name, one of {known}, found {brief(args, 200)}")
        tool_context.actions.transfer_to_agent = name
        return self._prompts.transferred.format(agent_name=name)
