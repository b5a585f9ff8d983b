"""The tool by which a model hands the conversation over to another agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .._json import brief, dumps, freeze
from ..errors import ArgumentError
from ..flows._json_schema import wrapped
from ..flows._output import OutputSchema
from ..flows._prompts import Prompts
from ..flows._retold import INPUT
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
    """
    `transfer_to_agent(agent_name)`: the agent takes over once the calls of this turn are answered.

    One with an `input_schema` is given an `input` of that form, which is checked before; it sees it as a message.
    """

    checks_arguments = False  # it does so itself

    def __init__(self, targets: Sequence[BaseAgent], prompts: Prompts) -> None:
        super().__init__(name=NAME, description=prompts.transfer_tool, on_interrupted="rerun")
        self._names = [agent.name for agent in targets]
        self._inputs = {agent.name: schema for agent in targets if (schema := _input_of(agent)) is not None}
        self._prompts = prompts

    @property
    def declaration(self) -> FunctionDeclaration:
        """The tool with the names of the agents that can take over."""
        agent_name = {"type": "string", "enum": self._names}
        if not self._inputs:
            return declared(NAME, self.description, agent_name=agent_name)
        required = ["agent_name", *([INPUT] if len(self._inputs) == len(self._names) else [])]
        inputs, definitions = self._input_schemas()
        given = inputs[0] if len(inputs) == 1 else {"anyOf": inputs}
        properties = {"agent_name": agent_name, INPUT: given}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
        if definitions:
            schema["$defs"] = definitions
        return FunctionDeclaration(name=NAME, description=self.description, parameters=freeze(schema, NAME))

    def _input_schemas(self) -> tuple[list[Any], dict[str, Any]]:
        """What each agent is to be given, and the definitions that this refers to, under names of their own."""
        found, definitions = [], {}
        for name, form in self._inputs.items():
            text = dumps(freeze(wrapped(form.schema, INPUT))).replace('"#/$defs/', f'"#/$defs/{name}_')
            schema = json.loads(text)
            definitions.update({f"{name}_{own}": body for own, body in schema.get("$defs", {}).items()})
            found.append({"title": f"for {name}", **schema["properties"][INPUT]})
        return found, definitions

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Hand over, or raise ArgumentError if this agent cannot hand over to that one."""
        name = args.get("agent_name")
        form = self._inputs.get(name) if isinstance(name, str) else None
        if name not in self._names or args.keys() - {"agent_name"} != ({INPUT} if form is not None else set()):
            beside = "" if form is None else f", and {INPUT}, which {name} needs"
            known = ", ".join(self._names)
            raise ArgumentError(f"expected agent_name, one of {known}{beside}, found {brief(args, 200)}")
        said = self._prompts.transferred.format(agent_name=name)
        result: Any = said
        if form is not None:
            outcome = form.parse_value(freeze(args[INPUT], INPUT))
            if outcome.problems:
                raise ArgumentError("\n".join(f"{INPUT}: {problem}" for problem in outcome.problems))
            result = {"result": said, INPUT: outcome.value}
        tool_context.actions.transfer_to_agent = name
        return result


def _input_of(agent: BaseAgent) -> OutputSchema | None:
    """The form of what an agent is given, made once for each agent, which keeps it as it would a cached property."""
    schema, known = getattr(agent, "input_schema", None), vars(agent)
    if schema is not None and "_input" not in known:
        known["_input"] = OutputSchema.of(schema, "input_schema")
    return known.get("_input")
