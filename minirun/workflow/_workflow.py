"""A graph of nodes as an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from .._fields import setting
from .._json import FrozenTuple, brief
from .._workflow_errors import NodeInputError, WorkflowConfigurationError, WorkflowError
from ..agents import BaseAgent
from ..agents._lanes import ON_FAILURE
from ..agents._tree import AgentTree
from ..errors import ConfigurationError
from ..runtime import InvocationContext
from ..tools import BaseTool, BaseToolset, RetryConfig
from ._agent_node import AgentNode
from ._arcs import GraphNode
from ._binding import checked_input, form_of
from ._draw import describe, mermaid
from ._edges import read_edges
from ._graph import Graph
from ._nodes import IS_RETRY, IS_TIMEOUT, FunctionNode, JoinNode, Node, aliased, is_limit
from ._tool_node import ToolNode, ToolsetNode
from ._wrap import as_node

if TYPE_CHECKING:
    from ..flows._output import OutputSchema
    from ..flows._state_schema import StateSchema

__all__ = ["Workflow"]


class Workflow(BaseAgent):
    """
    An agent that is a graph: functions, agents, tools, joins and other workflows, with edges between them.

        desk = Workflow(
            name="desk",
            edges=[
                (START, triage, {"urgent": (page, lookup), DEFAULT_ROUTE: lookup}),
                ((page, lookup), JoinNode(name="found"), writer),
            ],
        )

    A subclass may have fields and methods, and no logic of its own: it runs as its graph says.

    Where it stands is not stored anywhere: it follows from the events that its nodes have ended with. A run that is
    resumed folds them, in the order of the log, and goes on with what is ready then; no node that has ended is run
    again. What is ready runs side by side; a node runs once at a time, in the order of what triggers it.

    Args:
        edges: Chains `(a, b, c)`, where an element is a node, a group `(a, b)` or a map `{route: node}`, and `Edge`s.
        max_concurrency: How many nodes at once, those included that they run dynamically; None for no limit.
        output: The node, or its name, whose output is that of the workflow: the last one but for None, if it runs
            several times. None: the output of the one run that leads nowhere and has one; a second is an error.
        on_failure: What a failing node means for those beside it: `"cancel_others"`, or `"collect"`, which lets them
            come to their end. Nothing new is started in both cases, and the failure is raised.
        state_schema: What its nodes may write to the session's state, and read as parameters: a class, whose fields are
            the keys. A workflow inside of another may write the fields of both.
        input_schema: What it is given has to be, as `LlmAgent(output_schema=...)`.
        output_schema: What its output has to be.
        retry: As a node of another workflow: see `Node`. What has ended in it is not run again, what was cut off is.
        timeout_s: The same.
    """

    edges: Sequence[Any] = attrs.field(default=(), converter=lambda value: _edges(value))
    max_concurrency: int | None = attrs.field(
        default=None, validator=setting("an integer from 1 up, or None for no limit", is_limit)
    )
    output: Any = None
    on_failure: str = attrs.field(
        default="cancel_others",
        validator=setting("'cancel_others' or 'collect'", ON_FAILURE.__contains__),
    )
    input_schema: Any = None
    output_schema: Any = None
    state_schema: Any = None
    retry: RetryConfig | None = attrs.field(default=None, validator=IS_RETRY)
    timeout_s: float | None = attrs.field(default=None, validator=IS_TIMEOUT)
    retry_config: RetryConfig | None = attrs.field(default=None, validator=IS_RETRY)
    timeout: float | None = attrs.field(default=None, validator=IS_TIMEOUT)

    # What is asked around a tool that is a node; plugins are asked, too.
    before_tool_callback = after_tool_callback = on_tool_error_callback = ()

    def __init_subclass__(cls, **options: Any) -> None:
        own = ("_run_async_impl", "_run_impl")  # of which the second is what ADK calls it
        for name in own:
            if getattr(cls, name, None) is not getattr(Workflow, name, None):
                msg = f"class {cls.__name__}: expected a Workflow to run as its graph says, found a `{name}` of its own"
                advice = "make it a node, or a BaseAgent that awaits `workflow.run_async(ctx)`"
                raise WorkflowConfigurationError(f"{msg}; {advice}")
        super().__init_subclass__(**options)

    def __attrs_post_init__(self) -> None:
        aliased(self)
        if self.sub_agents:
            msg = f"workflow {self.name!r}: sub_agents have no effect, since nothing hands over to them"
            raise WorkflowConfigurationError(f"{msg}; make them nodes, in edges=")
        self._graph, self._forms  # noqa: B018 # what makes no graph, or is no schema, is refused when it is made

    # --- the graph

    @cached_property
    def _parts(self) -> tuple[dict[str, Node], Graph]:
        nodes: dict[str, Node] = {}
        made: dict[int, Node] = {}  # by what stands in `edges`: the same thing in two places is one node

        def name_of(value: Any) -> str:
            node = made.get(id(value))
            if node is None:
                node = made[id(value)] = self._as_node(value)
            if nodes.setdefault(node.name, node) is not node:
                msg = f"workflow {self.name!r}: two nodes are called {node.name!r}"
                raise WorkflowConfigurationError(f"{msg}; rename one, with node(x, name='...')")
            return node.name

        names, arcs = read_edges(self.edges, name_of, name=self.name)
        output = self.output if self.output is None or isinstance(self.output, str) else name_of(self.output)
        joins = {name: node for name, node in nodes.items() if isinstance(node, JoinNode)}
        graph_nodes = [GraphNode(name, name in joins, name in joins and joins[name].require_all) for name in names]
        return nodes, Graph.of(graph_nodes, arcs, output=output, name=self.name)

    @cached_property
    def _state_schema(self) -> StateSchema | None:
        if self.state_schema is None:
            return None
        from ..flows._state_schema import StateSchema  # few workflows have one

        return StateSchema.of(self.state_schema)

    @property
    def _nodes(self) -> Mapping[str, Node]:
        return self._parts[0]

    def _as_node(self, value: Any) -> Node:
        node, schema = as_node(value), self._state_schema
        if schema is None or schema.is_open or not isinstance(node, FunctionNode):
            return node
        return node.in_state(schema.fields)

    @property
    def _graph(self) -> Graph:
        return self._parts[1]

    def describe(self) -> str:
        """Return the graph as a table: a line for each edge."""
        return describe(self._graph)

    def mermaid(self) -> str:
        """Return the graph in Mermaid's notation, which editors and websites draw."""
        return mermaid(self._graph)

    def _handles_failure(self, name: str) -> bool:
        return self._graph.takes_failure_of(name)

    @property
    def node_trees(self) -> list[AgentTree]:
        """The trees of the agents that are nodes."""
        return [node.tree for node in self._nodes.values() if isinstance(node, AgentNode)]

    @property
    def node_tools(self) -> list[BaseTool | BaseToolset]:
        """The tools and toolsets that are nodes."""
        nodes = self._nodes.values()
        toolsets = [node.toolset for node in nodes if isinstance(node, ToolsetNode)]
        return [*(node.tool for node in nodes if isinstance(node, ToolNode)), *toolsets]

    # --- a run

    _goes_on = True  # another attempt of it, as a node, does not run again what has ended

    @property
    def _has_own_logic(self) -> bool:
        return False

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        from ._running import run_workflow  # where it is run

        await run_workflow(self, ctx)

    @cached_property
    def _forms(self) -> tuple[OutputSchema | None, OutputSchema | None]:
        """What the input and the output have to be."""
        return form_of(self.input_schema, "input_schema"), form_of(self.output_schema, "output_schema")

    def _read_input(self, value: Any) -> Any:
        """What its first nodes are given: *value*, checked by the `input_schema`."""
        form = self._forms[0]
        if form is None:
            return value
        found, problems = checked_input(value, form)
        if problems:
            raise NodeInputError(f"input of workflow {self.name!r}: {'; '.join(problems)}")
        return found

    def _check_output(self, value: Any) -> None:
        """Refuse an output that the `output_schema` does not allow, before it is stored."""
        form = self._forms[1]
        problems = [] if form is None else form.problems(value)
        if problems:
            raise WorkflowError(f"output of workflow {self.name!r}: {'; '.join(problems)}")


def _edges(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise ConfigurationError(f"expected edges to be a list of chains and Edges, found {brief(value)}")
    return FrozenTuple(value)
