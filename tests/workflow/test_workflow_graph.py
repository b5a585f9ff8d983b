"""
The pure half of workflows: which runs are ready, given the outcomes so far; what edges mean; and how a graph is shown.

The examples show one rule each. The properties run random graphs with outcomes in any order, and compare what the plan
does with what follows from the rules, worked out here by looking for paths.
"""

from __future__ import annotations

import copy
import enum
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun.errors import ConfigurationError, ReplayError, RouteError, WorkflowConfigurationError, WorkflowError
from minirun.workflow import DEFAULT_ROUTE, END, FAILED, START, Edge
from minirun.workflow._draw import describe, mermaid
from minirun.workflow._edges import read_edges
from minirun.workflow._graph import Arc, Graph, GraphNode, NodeRun, Outcome, Plan
from minirun.workflow._joins import _closure

from ..examples import examples

FAILURE = {"type": "ValueError", "message": "no", "input": 1}


def graph(*items: object, output: str | None = None, all_of: str = "") -> Graph:
    """A graph of nodes that are written as their names; a name that begins with "join" is a join's."""
    names, arcs = read_edges(list(items), str)
    nodes = [GraphNode(name, name.startswith("join"), name in all_of.split()) for name in names]
    return Graph.of(nodes, arcs, output=output, name="desk")


def gave(output: object = None, route: Any = None) -> Outcome:
    return Outcome(output, has_output=True, route=route)


def ids(runs: Iterable[NodeRun]) -> list[str]:
    return [run.id for run in runs]


def run_of(plan: Plan, run_id: str) -> NodeRun:
    [run] = [run for run in plan.ready if run.id == run_id]
    return run


def fold(plan: Plan, **outputs: object) -> Plan:
    """End the first runs of nodes, in this order, with these outputs."""
    for name, output in outputs.items():
        plan = plan.ended(f"{name}@1", gave(output))
    return plan


# --- triggers ---------------------------------------------------------------------------------------------------------


def test_a_chain_hands_on_what_each_node_gives() -> None:
    """
    A run gets the output of the run that triggered it, and the last one's output is the workflow's.
    """
    plan = graph((START, "a", "b")).begin({"text": "hi"})
    assert plan.ready == (NodeRun("a", 1, {"text": "hi"}, serial=1),)
    plan = fold(plan, a=1)
    assert plan.ready == plan.added == (NodeRun("b", 1, 1, serial=2, by=("a@1",)),)
    assert not plan.is_over
    plan = fold(plan, b=2)
    assert (plan.is_over, plan.has_output, plan.output, plan.output_by) == (True, True, 2, "b@1")


def test_targets_are_triggered_in_order_of_declaration() -> None:
    """
    Whatever the nodes' names are, the edges' order is the order of the triggers.
    """
    plan = fold(graph((START, "s", ("z", "b", "y")), output="z").begin(None), s=1)
    assert [(run.id, run.serial) for run in plan.ready] == [("z@1", 2), ("b@1", 3), ("y@1", 4)]


def test_a_node_runs_once_at_a_time() -> None:
    """
    Further triggers of a node queue, first in first out, and become ready one by one.
    """
    plan = fold(graph((START, ("a", "b", "c"), "mail"), output="mail").begin(None), b="B", c="C", a="A")
    assert (ids(plan.ready), ids(plan.queued)) == (["mail@1"], ["mail@2", "mail@3"])
    plan = fold(plan, mail=None)
    assert (ids(plan.ready), ids(plan.added), ids(plan.queued)) == (["mail@2"], ["mail@2"], ["mail@3"])
    assert plan.ready[0].input == "C"


def test_what_was_queued_is_ready_before_what_was_triggered_later() -> None:
    """
    The order of `ready` is that of the triggers, also for a run that had to queue.
    """
    plan = graph((START, ("a", "b", "c")), (("a", "b"), "d"), ("c", "e"), output="d").begin(None)
    plan = fold(plan, a=1, b=2, c=3)
    assert ids(plan.ready) == ["d@1", "e@1"]
    plan = fold(plan, d=4)
    assert ids(plan.ready) == ["d@2", "e@1"]
    assert ids(plan.added) == ["d@2"]


def test_a_route_without_output_hands_the_input_on() -> None:
    """
    A run that gives a route only passes its input on; one that returns None gives None; one that says nothing, too.
    """
    plan = graph((START, "a", "b")).begin("text")
    assert plan.ended("a@1", Outcome(route="x")).ready[0].input == "text"
    assert plan.ended("a@1", Outcome(route=False)).ready[0].input == "text"
    assert plan.ended("a@1", gave(None, route="x")).ready[0].input is None
    assert plan.ended("a@1", Outcome()).ready[0].input is None
    assert plan.ended("a@1", Outcome(route=[])).ready[0].input is None  # type: ignore[arg-type]  # as logs have it


# --- routes -----------------------------------------------------------------------------------------------------------

ROUTES = graph((START, "a", {"x": "b", 1: "c", DEFAULT_ROUTE: "d", FAILED: "e"}), output="b")


@pytest.mark.parametrize(
    ("outcome", "ready"),
    [
        (gave(1, "x"), ["b@1"]),
        (gave(1, 1), ["c@1"]),
        (gave(1, True), ["d@1"]),
        (gave(1, "1"), ["d@1"]),
        (gave(1), ["d@1"]),
        (gave(1, ["y", 1, "x"]), ["b@1", "c@1"]),
        (gave(1, ["y"]), ["d@1"]),
        (Outcome(failed=FAILURE), ["e@1"]),
    ],
)
def test_routes_match_by_type_and_value(outcome: Outcome, ready: list[str]) -> None:
    """
    Any match of a list counts, nothing else takes DEFAULT_ROUTE, and only a failure takes FAILED.
    """
    assert ids(ROUTES.begin(None).ended("a@1", outcome).ready) == ready


def test_a_failure_is_what_its_handler_gets() -> None:
    """
    FAILED leads on with the failure, and neither unrouted edges nor DEFAULT_ROUTE do.
    """
    plan = graph((START, "a", "b"), ("a", {FAILED: "c"})).begin(1).ended("a@1", Outcome(failed=FAILURE))
    assert [(run.id, run.input) for run in plan.ready] == [("c@1", FAILURE)]


def test_a_target_is_triggered_once_per_outcome() -> None:
    """
    Two routes that match and lead to one node run it once.
    """
    plan = graph((START, "a", {"x": ("b", "c"), "y": "b"}), output="b").begin(None).ended("a@1", gave(1, ["y", "x"]))
    assert ids(plan.ready) == ["b@1", "c@1"]
    assert not plan.queued


def test_a_route_beside_unrouted_edges_adds_to_them() -> None:
    """
    Unrouted edges are always taken; without any route nothing else is.
    """
    plan = graph((START, "a", "b"), ("a", {"x": "c"}), output="b").begin(None)
    assert ids(plan.ended("a@1", gave(1, "x")).ready) == ["b@1", "c@1"]
    assert ids(plan.ended("a@1", gave(1)).ready) == ["b@1"]
    with pytest.raises(RouteError):
        plan.check(plan.ready[0], gave(1, "y"))


def test_a_route_means_nothing_where_no_edge_has_one() -> None:
    """
    A route on a node with unrouted edges only is no error.
    """
    assert ids(graph((START, "a", "b")).begin(None).ended("a@1", gave(1, "y")).ready) == ["b@1"]


def test_a_route_that_leads_nowhere_is_refused() -> None:
    """
    Without DEFAULT_ROUTE the error names the run, the route, and the routes there are, before anything is stored.
    """
    plan = graph((START, "a", {"x": "b", 1: "c", FAILED: "d"}), output="b").begin(None)
    with pytest.raises(RouteError, match=r"'a@1': expected one of the routes 'x', 1, FAILED; found the route 'z'"):
        plan.check(plan.ready[0], gave(1, "z"))
    with pytest.raises(RouteError, match="found no route"):
        plan.check(plan.ready[0], gave(1))
    with pytest.raises(ReplayError, match="'a@1' is recorded, but its graph refuses it"):
        plan.ended("a@1", gave(1, "z"))
    assert not plan.is_terminal(plan.ready[0], gave(1, "z"))
    assert plan.graph.routes_of("a") == ("x", 1, FAILED)


def test_a_failure_that_nothing_takes_is_refused() -> None:
    """
    A node without a FAILED edge has no outcome when it fails.
    """
    plan = graph((START, "a", "b")).begin(None)
    with pytest.raises(WorkflowError, match="no edge with route=FAILED"):
        plan.check(plan.ready[0], Outcome(failed=FAILURE))


def test_a_default_that_ends_is_quiet() -> None:
    """
    `DEFAULT_ROUTE: END` ends the branch; a run without output gives the workflow none.
    """
    plan = graph((START, "a", {"x": "b", DEFAULT_ROUTE: END})).begin(1).ended("a@1", Outcome(route="y"))
    assert (plan.is_over, plan.has_output, plan.output) == (True, False, None)


# --- joins ------------------------------------------------------------------------------------------------------------


def test_a_join_gives_its_values_in_order_of_declaration() -> None:
    """
    The keys stand in the order of the edges, in whatever order the predecessors end.
    """
    plan = graph((START, ("b", "a", "c"), "join")).begin(None)
    plan = fold(plan, c=3, a=1)
    assert (ids(plan.ready), plan.waiting) == (["b@1"], {"join": ("b",)})
    [run] = fold(plan, b=None).ready
    assert list(run.input.items()) == [("b", None), ("a", 1), ("c", 3)]
    assert (run.id, run.by, run.missing) == ("join@1", ("b@1", "a@1", "c@1"), ())


def test_a_join_does_not_wait_for_a_path_that_was_not_taken() -> None:
    """
    A predecessor that nothing can reach any more is left out, as soon as that is sure.
    """
    plan = graph((START, ("a", "s")), ("s", {"x": "b", "y": "c"}), (("a", "b", "c"), "join")).begin(None)
    plan = fold(plan, a=1)
    assert (ids(plan.ready), plan.waiting) == (["s@1"], {"join": ("b", "c")})
    plan = plan.ended("s@1", gave(0, "y"))
    assert (ids(plan.ready), plan.waiting) == (["c@1"], {"join": ("b", "c")})
    [run] = fold(plan, c=3).ready
    assert (run.input, run.missing, run.by) == ({"a": 1, "c": 3}, ("b",), ("a@1", "c@1"))


def test_a_join_waits_for_what_is_further_up() -> None:
    """
    A predecessor that has not been triggered can come while a run leads to it by any edges.
    """
    further_up = graph((START, ("a", "p")), ("p", {"go": "q", "no": END}), ("q", "r"), (("a", "r"), "join"))
    begun = fold(further_up.begin(None), a=1)
    assert begun.waiting == {"join": ("r",)}
    assert begun.ended("p@1", gave(None, "go")).waiting == {"join": ("r",)}
    assert ids(begun.ended("p@1", gave(None, "no")).ready) == ["join@1"]


def test_a_predecessor_that_comes_twice_keeps_both_values() -> None:
    """
    A join takes one value of each predecessor at a time, the oldest; the others wait for its next run.
    """
    both = graph((START, ("p", "b")), ("p", ("x", "y"), "a"), (("a", "b"), "join"), output="join").begin(None)
    both = fold(both, p=0, x=1, y=2, a=1).ended("a@2", gave(2))
    assert both.waiting == {"join": ("b",)}
    both = fold(both, b="B")
    assert [(run.id, run.input) for run in both.ready] == [("join@1", {"a": 1, "b": "B"})]
    assert [(run.id, run.input, run.missing) for run in both.queued] == [("join@2", {"a": 2}, ("b",))]


def test_a_join_in_a_loop_fires_once_per_round() -> None:
    """
    A join that leads back to its own predecessors waits for those of this round, and not for the next.
    """
    looped = graph((START, "s", ("a", "b"), "join", {"again": "s", "done": END}))
    plan = looped.begin(None)
    for number in range(1, 4):
        plan = plan.ended(f"s@{number}", gave(number)).ended(f"b@{number}", gave(-number))
        assert not {run.name for run in plan.ready} & {"join"}
        plan = plan.ended(f"a@{number}", gave(number))
        assert [(run.id, run.input) for run in plan.ready] == [(f"join@{number}", {"a": number, "b": -number})]
        plan = plan.ended(f"join@{number}", gave(number, "again" if number < 3 else "done"))
    assert (plan.is_over, plan.output) == (True, 3)


def test_a_join_does_not_wait_for_what_only_it_can_bring() -> None:
    """
    A way to a predecessor that leads through the join is open only after it fired.
    """
    back = graph((START, ("a", "b")), ("b", "a", "join", {"back": "p", "on": END}), ("p", "join"))
    plan = fold(back.begin(None), a=1)
    assert ids(plan.ready) == ["b@1", "join@1"]
    assert (plan.ready[1].input, plan.ready[1].missing) == ({"a": 1}, ("p",))


def test_joins_that_wait_for_each_other_fire_in_order_of_declaration() -> None:
    """
    Of joins that wait for nothing but each other the first fires, although another lane still goes on.
    """
    mutual = graph(
        (START, ("a", "b", "other")),
        ("a", "join1", {"to2": "join2", "on": END}),
        ("b", "join2", {"to1": "join1", "on": END}),
        output="join1",
    )
    for order in ({"a": 1, "b": 2}, {"b": 2, "a": 1}):
        plan = fold(mutual.begin(None), **order)
        assert ids(plan.ready) == ["other@1", "join1@1"]
        assert plan.waiting == {"join2": ("join1",)}
        assert ids(plan.ended("join1@1", gave(0, "on")).ready) == ["other@1", "join2@1"]


def test_a_join_behind_joins_that_wait_for_each_other_comes_after_them() -> None:
    """
    A join waits for others although it is declared first, if they do not wait for it.
    """
    behind = graph(
        (START, ("x", "a", "b")),
        ("x", "join0"),
        ("a", "join1", {"to2": "join2", "on": "join0"}),
        ("b", "join2", {"to1": "join1", "on": END}),
        output="join0",
    )
    plan = fold(behind.begin(None), x=0, a=1, b=2)
    assert (ids(plan.ready), plan.waiting) == (["join1@1"], {"join0": ("join1",), "join2": ("join1",)})


def test_a_join_may_lead_back_to_itself() -> None:
    """
    A join that is its own predecessor does not wait for itself.
    """
    plan = fold(graph((START, "a", "join", {"more": "join", "on": END})).begin(None), a=1)
    assert [(run.input, run.missing) for run in plan.ready] == [({"a": 1}, ("join",))]
    assert plan.ended("join@1", gave(2, "more")).ready[0].input == {"join": 2}


def test_start_is_a_predecessor_by_its_name() -> None:
    """
    A join behind START has the workflow's input under "START".
    """
    plan = fold(graph((START, ("a", "join")), ("a", "join")).begin("in"), a=1)
    assert [(run.input, run.by) for run in plan.ready] == [({"START": "in", "a": 1}, ("a@1",))]


def test_a_join_of_all_is_told_what_is_missing() -> None:
    """
    `require_all` changes nothing in the plan: the run has what is missing, and the runtime fails it.
    """
    plan = graph((START, "s", {"x": "a", "y": "b"}), (("a", "b"), "join"), all_of="join").begin(None)
    plan = plan.ended("s@1", gave(0, "x")).ended("a@1", gave(1))
    assert [(run.id, run.missing) for run in plan.ready] == [("join@1", ("b",))]


def test_values_nested_deeply_do_not_stop_a_fold() -> None:
    """
    A join's input may be nested deeper than can be stored: the fold of what is stored never fails for it.
    """
    value: object = 1
    for _ in range(99):
        value = [value]
    plan = fold(graph((START, ("a", "b"), "join")).begin(None), a=value, b=value)
    assert plan.ready[0].input == {"a": value, "b": value}


# --- the output -------------------------------------------------------------------------------------------------------


def test_a_second_output_is_refused_by_both_names() -> None:
    """
    The error names both runs and `output=`, before the second is stored; a terminal run that gives None is no output.
    """
    plan = graph((START, "a", {"x": "b", "y": "c"})).begin(None).ended("a@1", gave(1, ["x", "y"]))
    assert plan.is_terminal(run_of(plan, "b@1"), gave("B"))
    assert not plan.is_terminal(run_of(plan, "b@1"), gave(None))
    assert not fold(plan, b=None).has_output
    plan = fold(plan, b="B")
    plan.check(run_of(plan, "c@1"), gave(None))
    with pytest.raises(WorkflowError, match=r"'b@1' has given one, and now 'c@1' gives another.*output="):
        plan.check(run_of(plan, "c@1"), gave("C"))
    with pytest.raises(ReplayError, match="'c@1' is recorded"):
        plan.ended("c@1", gave("C"))


def test_the_named_node_gives_the_output() -> None:
    """
    With `output=` only the outputs of that node count, terminal or not, and the last one stands; None is none.
    """
    plan = graph((START, "a", {"again": "a", "on": "b"}), output="a").begin(None)
    plan = plan.ended("a@1", gave(1, "again")).ended("a@2", gave(2, "again"))
    assert (plan.output, plan.output_by) == (2, "a@2")
    assert not plan.is_terminal(plan.ready[0], gave(None, "on"))
    assert plan.ended("a@3", gave(None, "on")).output == 2
    assert plan.ended("a@3", Outcome(route="on")).output == 2
    plan = plan.ended("a@3", gave(3, "on"))
    assert not plan.is_terminal(plan.ready[0], gave("B"))
    assert fold(plan, b="B").output == 3


def test_an_outcome_that_leads_to_the_end_only_is_terminal() -> None:
    """
    A node with edges gives the workflow's output if the route it takes leads to END.
    """
    plan = graph((START, "a", {"again": "a", "done": END})).begin(None)
    assert not plan.is_terminal(plan.ready[0], gave(1, "again"))
    plan = plan.ended("a@1", gave(1, "again"))
    assert plan.is_terminal(plan.ready[0], gave(2, "done"))
    plan = plan.ended("a@2", gave(2, "done"))
    assert (plan.is_over, plan.output) == (True, 2)


def test_a_failure_is_no_output() -> None:
    """
    `FAILED: END` ends the branch without an output.
    """
    plan = graph((START, "a", {FAILED: END, "x": "b"})).begin(None)
    assert not plan.is_terminal(plan.ready[0], Outcome(failed=FAILURE))
    assert not plan.ended("a@1", Outcome(failed=FAILURE)).has_output


# --- replay -----------------------------------------------------------------------------------------------------------


def test_an_outcome_of_a_run_that_is_not_ready_is_refused() -> None:
    """
    The error names the recorded run and what the graph expects; ended, queued and unknown runs are all refused.
    """
    plan = fold(graph((START, ("a", "b"), "c"), output="c").begin(None), a=1, b=2)
    for run_id in ("a@1", "c@2", "c@3", "nobody@1", "c"):
        with pytest.raises(ReplayError, match=rf"the outcome of '{run_id}' is recorded.*expects one of: c@1; "):
            plan.ended(run_id, gave(1))
    over = plan.ended("c@1", gave(1)).ended("c@2", gave(2))
    with pytest.raises(ReplayError, match="nothing, because the workflow is over"):
        over.ended("c@2", gave(2))


def test_a_loop_does_not_make_the_plan_larger() -> None:
    """
    After 10 000 rounds a plan shows as much as after 10, but for the digits of the numbers.
    """
    looped = graph((START, "s", ("a", "b"), "join", {"again": "s", "done": END}))
    plan, sizes = looped.begin(0), {}
    for number in range(1, 10_001):
        for name in ("s", "a", "b", "join"):
            plan = plan.ended(f"{name}@{number}", gave(0, "again"))
        if number in (10, 10_000):
            sizes[number] = len("".join(char for char in repr(plan) if not char.isdigit()))
    assert sizes[10] == sizes[10_000]


# --- what is refused --------------------------------------------------------------------------------------------------


def nodes(*names: str) -> list[GraphNode]:
    return [GraphNode(name, name.startswith("join")) for name in names]


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([], "expected at least one edge, found none"),
        ([("a", "b")], "nothing leads from START to 'a', 'b'"),
        ([(START, "a"), ("b", "c")], "nothing leads from START to 'b', 'c'"),
        ([(START, "a", START)], "edge from 'a' to START: expected a node or END"),
        ([(START, END)], "edge from START to END: nothing would run"),
        ([(START, "a"), (END, "b")], "edge from END to 'b': nothing leads on from END"),
        ([(START, {"x": "a"})], "edge from START to 'a': START gives no route"),
        ([Edge(START, "a", DEFAULT_ROUTE)], "edge from START to 'a': START gives no route"),
        ([(START, "a", "b"), ("a", "b")], "the edge from 'a' to 'b' is written twice"),
        ([(START, "a", {"x": "b"}), Edge("a", "b", ["y", "x"])], "'a' to 'b' for the route 'x' is written twice"),
        ([(START, "a", {FAILED: "b"}), Edge("a", "b", FAILED)], "'a' to 'b' is written twice"),
        ([(START, "a", "b"), Edge("a", "b", "x")], "'a' to 'b' is always taken, so the one with a route"),
        ([Edge(START, "a"), Edge("a", "b", DEFAULT_ROUTE), ("a", "b")], "always taken"),
        ([(START, "a", "join")], "the join 'join' has one predecessor, 'a'"),
        ([(START, "a", "b", "c", "a")], "the cycle a → b → c → a has no edge with a route"),
        ([(START, "a", "a")], "the cycle a → a has no"),
        ([(START, "a"), Edge("a", "a", DEFAULT_ROUTE)], "the cycle a → a has no"),
        ([(START, ("a", "b"))], "'a', 'b' run side by side"),
        ([(START, "a", ("b", "join")), ("b", "join"), ("b", "c")], "'join', 'c' run side by side"),
        ([(START, ("a", "b")), ("a", END), Edge("b", "c", FAILED)], "'a', 'b' run side by side"),
        ([(START, "a/b")], "the name 'a/b' cannot be a node's"),
        ([(START, "a", "b"), ("a", "b"), ("c", "d")], "the edge from 'a' to 'b' is written twice"),
        ([(START, "a", "a"), ("b", "join")], "nothing leads from START to 'b', 'join'"),
        ([(START, "a", "a", "join")], "the join 'join' has one predecessor"),
        ([(START, " ")], r"a node cannot have this name: expected a string that is not blank"),
    ],
)
def test_a_graph_that_cannot_run_to_its_end_is_refused(items: list[object], problem: str) -> None:
    """
    Each refusal begins with the workflow's name, and names the nodes.
    """
    with pytest.raises(WorkflowConfigurationError, match=problem) as caught:
        graph(*items)
    assert str(caught.value).startswith("workflow 'desk': ")
    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (lambda: Graph.of(nodes("a"), [Arc(START, "a"), Arc("a", "b")]), "'b' is none of its nodes, which are 'a'"),
        (lambda: Graph.of(nodes("a", "a"), [Arc(START, "a")]), "two nodes have the name 'a'"),
        (lambda: Graph.of(nodes("END"), [Arc(START, "END")]), "the name 'END' cannot be"),
        (lambda: Graph.of(nodes("a"), [Arc(START, "a")], output="b"), "one of its nodes, 'a'; found 'b'"),
        (lambda: Graph.of([GraphNode("a", require_all=True)], [Arc(START, "a")]), "require_all has no effect on 'a'"),
    ],
)
def test_nodes_that_make_no_graph_are_refused(made: Callable[[], Graph], problem: str) -> None:
    """
    The nodes are checked as the edges are.
    """
    with pytest.raises(WorkflowConfigurationError, match=f"workflow 'workflow': .*{problem}"):
        made()


@pytest.mark.parametrize(
    ("arc", "problem"),
    [
        (Arc(DEFAULT_ROUTE, "a"), "edge from DEFAULT_ROUTE to 'a': nothing leads on from DEFAULT_ROUTE; begin"),
        (Arc("END", "a"), "edge from 'END' to 'a': nothing leads on from 'END'; begin the edge"),
        (Arc(END, "a"), "edge from END to 'a': nothing leads on from END; begin the edge"),
        (Arc("a", "START"), "edge from 'a' to 'START': expected a node or END as its end; to run again, lead back"),
        (Arc("a", FAILED), "edge from 'a' to FAILED: expected a node or END as its end; to run again, lead back"),
        (Arc("b", "a"), "edge from 'b' to 'a': 'b' is none of its nodes, which are 'a'"),
        (Arc("a", "b"), "edge from 'a' to 'b': 'b' is none of its nodes, which are 'a'"),
        (Arc(START, "a", ("x",), "routed"), "edge from START to 'a': START gives no route; put a node between them"),
    ],
)
def test_an_arc_leads_from_a_node_to_a_node(arc: Arc, problem: str) -> None:
    """
    Markers and names that are no ends of an edge are refused by both ends.
    """
    with pytest.raises(WorkflowConfigurationError) as caught:
        Graph.of(nodes("a"), [Arc(START, "a"), arc])
    assert str(caught.value).startswith(f"workflow 'workflow': {problem}")


@pytest.mark.parametrize("name", ["a@1", "a/b", "a.b", "a#2", "@", "START", "END"])
def test_names_that_build_ids_are_no_nodes(name: str) -> None:
    """
    The characters of ids and the two places of every graph are refused, and told.
    """
    with pytest.raises(WorkflowConfigurationError) as caught:
        Graph.of(nodes(name), [Arc(START, name)])
    assert str(caught.value) == (
        f"workflow 'workflow': the name {name!r} cannot be a node's: '@', '/', '.' and '#' build ids of runs, "
        "START and END are places of every graph; name the node otherwise"
    )


def test_other_characters_of_names_are_fine() -> None:
    """
    A graph knows nothing of identifiers.
    """
    for name in ("a~b", "a-b", "a b", "start", "ü", ":"):
        assert ids(Graph.of(nodes(name), [Arc(START, name)]).begin(None).ready) == [f"{name}@1"]


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    X = "x"


@pytest.mark.parametrize(
    ("route", "arc"),
    [
        (None, Arc("a", "b", None, "plain")),
        (DEFAULT_ROUTE, Arc("a", "b", None, "default")),
        (FAILED, Arc("a", "b", None, "failed")),
        (True, Arc("a", "b", (True,), "routed")),
        (0, Arc("a", "b", (0,), "routed")),
        ("", Arc("a", "b", ("",), "routed")),
        (["x", 1], Arc("a", "b", ("x", 1), "routed")),
        (("x", False), Arc("a", "b", ("x", False), "routed")),
        (Number.ONE, Arc("a", "b", (1,), "routed")),
        ([Word.X], Arc("a", "b", ("x",), "routed")),
    ],
    ids=repr,
)
def test_a_route_is_what_comes_back_from_a_log(route: object, arc: Arc) -> None:
    """
    A member of an enumeration is its plain value; an empty text and 0 are routes.
    """
    found = Arc.of("a", "b", route)
    assert found == arc
    assert [type(each) for each in found.routes or ()] == [type(each) for each in arc.routes or ()]


def test_an_outcome_without_a_way_is_told_in_full() -> None:
    """
    The errors name the workflow, the run, what there is, what was found and what to do.
    """
    plan = graph((START, "a", {"x": "b", 1: "c", FAILED: "d"}), output="b").begin(None)
    for outcome, found in ((gave(1, ["y", True]), "the route ['y', True]"), (gave(1, ()), "no route")):
        with pytest.raises(RouteError) as caught:
            plan.check(plan.ready[0], outcome)
        assert str(caught.value) == (
            f"workflow 'desk': 'a@1': expected one of the routes 'x', 1, FAILED; found {found}; give one of them "
            "(type and value count), or add an edge for it, or DEFAULT_ROUTE to a node or to END"
        )
    plan = graph((START, "a", "b")).begin(None)
    with pytest.raises(WorkflowError) as failed:
        plan.check(plan.ready[0], Outcome(failed=FAILURE))
    assert str(failed.value) == (
        "workflow 'desk': 'a@1' has failed, and no edge with route=FAILED leads on from it"
    )
    with pytest.raises(ReplayError) as refused:
        plan.ended("b@1", gave(1))
    assert str(refused.value) == (
        "workflow 'desk': the outcome of 'b@1' is recorded, but its graph expects one of: a@1; "
        "resume it with the graph it was begun with"
    )


def test_what_may_end_is_not_refused() -> None:
    """
    Cycles with a route, a failure's way back, terminals on different routes, and terminals beside `output=` are fine.
    """
    graph((START, "a", {"x": "a", "y": END}))
    graph((START, "a", "b"), Edge("a", "a", FAILED))
    graph((START, "a", {"x": "b", "y": "c", DEFAULT_ROUTE: "b"}))
    graph((START, ("a", "b")), output="a")
    graph((START, ("a", "b")), ("a", {"x": "c", DEFAULT_ROUTE: END}), output=None)


# --- edges as users write them ----------------------------------------------------------------------------------------


def arcs(*items: object) -> list[str]:
    _, found = read_edges(list(items), str)
    return [f"{arc.source}-{'' if arc.kind == 'plain' else arc.routes or arc.kind}>{arc.target}" for arc in found]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([("START", "a", "b")], ["START->a", "a->b"]),
        ([["START", "a", ["b", "c"], "d"]], ["START->a", "a->b", "a->c", "b->d", "c->d"]),
        ([(("a", "b"), ("c", "d"))], ["a->c", "a->d", "b->c", "b->d"]),
        ([("a", {"x": "b", True: ("c", END)}, "d")], ["a-('x',)>b", "a-(True,)>c", "a-(True,)>END", "b->d", "c->d"]),
        ([("a", {"x": "b", "y": "b"}, "c")], ["a-('x',)>b", "a-('y',)>b", "b->c"]),
        ([(("a", "b"), {DEFAULT_ROUTE: "c"})], ["a-default>c", "b-default>c"]),
        ([("a", {FAILED: ["b"]})], ["a-failed>b"]),
        ([Edge("START", "a"), Edge("a", "b", ["x", 1])], ["START->a", "a-('x', 1)>b"]),
    ],
)
def test_edges_are_read(items: list[object], expected: list[str]) -> None:
    """
    Chains, groups, maps and Edges become arcs in the order in which they are written.
    """
    assert arcs(*items) == expected


def test_names_are_those_of_the_caller() -> None:
    """
    What stands for a node is named by the caller, and listed in the order in which it first stands in the edges.
    """
    names, found = read_edges([(START, len, (repr, len))], lambda node: node.__name__)
    assert names == ("len", "repr")
    assert [(arc.source, arc.target) for arc in found] == [(START, "len"), ("len", "repr"), ("len", "len")]


def route_list(*routes: object) -> Any:
    """A list that a type checker would refuse."""
    return [*routes]


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ("ab", r"workflow 'desk': expected edges to be a list of chains and Edges, found 'ab' of type str"),
        (["a"], r"edges\[0\]: expected an Edge, or a chain such as \(START, node\), found 'a'"),
        ([("a", "b"), ("a",)], r"edges\[1\]: expected a chain of two elements at least.*, found 1"),
        ([()], "found 0"),
        ([({"x": "a"}, "b")], "a chain begins with a node"),
        ([("a", {"x": "b"}, {"y": "c"})], r"edges\[0\]\[2\]: a node stands between two maps"),
        ([("a", {})], r"edges\[0\]\[1\]: expected a map of routes, found an empty one"),
        ([("a", ())], r"edges\[0\]\[1\]: expected a group of nodes, found an empty one"),
        ([("a", ("b", ("c", "d")))], r"edges\[0\]\[1\]: expected nodes in a group, found \('c', 'd'\)"),
        ([("a", {"x": {"y": "b"}})], r"is a map|expected nodes|found \{'y'"),
        ([("a", {None: "b"})], r"expected a route as a key, found None"),
        ([("a", {("x", "y"): "b"})], r"expected a route as a key, found \('x', 'y'\)"),
        ([("a", {1.5: "b"})], r"'a' to 'b': expected a route that is a bool, an int or a string, found 1.5"),
        ([("a", {"x": START})], r"expected a node or END, found START"),
        ([("a", {"x": END}, "b")], r"every route before it leads to END"),
        ([("a", DEFAULT_ROUTE)], r"DEFAULT_ROUTE is a route and no node; write it as a key: \{DEFAULT_ROUTE: node\}"),
        ([Edge("a", "b", route_list("x", DEFAULT_ROUTE))], "DEFAULT_ROUTE cannot stand in a list of routes"),
        ([Edge("a", "b", route_list("x", FAILED))], "FAILED cannot stand in a list of routes"),
        ([Edge("a", "b", [])], "found an empty list"),
    ],
)
def test_what_is_no_edge_is_refused(items: Any, problem: str) -> None:
    """
    The message says where it stands, and what to write.
    """
    with pytest.raises(WorkflowConfigurationError, match=problem):
        read_edges(items, node_name, name="desk")


def node_name(node: object) -> str:
    if isinstance(node, Mapping):
        raise WorkflowConfigurationError(f"expected nodes, found {node!r}")
    return str(node)


def test_an_edge_of_unknown_fields_is_refused() -> None:
    """
    A misspelt field of an Edge is an error.
    """
    with pytest.raises(TypeError, match="routes"):
        Edge("a", "b", routes="x")  # type: ignore[call-arg]  # that is the point


@pytest.mark.parametrize("marker", [START, END, DEFAULT_ROUTE, FAILED], ids=repr)
def test_there_is_one_of_each_marker(marker: object) -> None:
    """
    A copy or a pickle of a marker is the marker, and it shows as its name.
    """
    assert copy.deepcopy(marker) is copy.copy(marker) is pickle.loads(pickle.dumps(marker)) is marker
    assert repr(marker) in ("START", "END", "DEFAULT_ROUTE", "FAILED")


# --- how a graph is shown ---------------------------------------------------------------------------------------------

DESK = graph(
    (START, "triage", {"urgent": ("page", "lookup"), DEFAULT_ROUTE: "lookup", FAILED: END}),
    (("page", "lookup"), "join", "writer"),
    all_of="join",
)


def test_a_graph_describes_itself() -> None:
    """
    The table has a line for each edge, in the order of the triggers, and says what the output is.
    """
    assert describe(DESK).splitlines() == [
        "workflow desk",
        "from    route          to",
        "START                  triage",
        "triage  'urgent'       page",
        "triage  'urgent'       lookup",
        "triage  DEFAULT_ROUTE  lookup",
        "triage  FAILED         END",
        "page                   join    join of all",
        "lookup                 join    join of all",
        "join                   writer",
        "output: the one output of a node that nothing follows",
    ]
    assert describe(attrs.evolve(DESK, output="join")).endswith("\noutput: the last of join")


def test_a_graph_is_drawn() -> None:
    """
    Mermaid's nodes have ids of their own, so that no name is taken for its syntax.
    """
    drawn = graph((START, "end", {'say "x" & <y>': "join", 2: "b", FAILED: END}), ("b", "join"))
    assert mermaid(drawn).splitlines() == [
        "flowchart TD",
        "    start((START))",
        '    n0["end"]',
        '    n1{{"join"}}',
        '    n2["b"]',
        "    finish((END))",
        "    start --> n0",
        "    n0 -->|\"'say &quot;x&quot; &amp; &lt;y>'\"| n1",
        '    n0 -->|"2"| n2',
        '    n0 -.->|"FAILED"| finish',
        "    n2 --> n1",
    ]


# --- random graphs ----------------------------------------------------------------------------------------------------

ROUTE_VALUES: list[Any] = ["x", "y", 1, True]
OUTCOMES = st.builds(
    Outcome,
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.none() | st.sampled_from(ROUTE_VALUES) | st.lists(st.sampled_from(ROUTE_VALUES), max_size=2).map(tuple),
    st.just(None) | st.just(None) | st.just(FAILURE),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to eight nodes: each has a way from START, any of them may be a join, and routes lead forward and back."""
    names = [f"n{index}" for index in range(draw(st.integers(1, 8)))]
    ends: dict[tuple[Any, Any], Arc] = {}

    def add(source: Any, target: Any, kinds: str) -> None:
        kind = draw(st.sampled_from(kinds.split()))
        chosen = tuple(draw(st.lists(st.sampled_from(["x", "y", 1, True]), min_size=1, max_size=2, unique_by=repr)))
        ends.setdefault((source, target), Arc(source, target, chosen if kind == "routed" else None, kind))  # type: ignore[arg-type]

    for index, name in enumerate(names):
        before = draw(st.sampled_from([START, *names[:index]]))
        add(before, name, "plain" if before is START else "plain plain routed default failed")
    for _ in range(draw(st.integers(0, 10))):
        source: Any = draw(st.sampled_from([START, *names]))
        target: Any = draw(st.sampled_from([*names, END]))
        forward = source is START or target is END or names.index(target) > names.index(source)
        if source is not START:
            add(source, target, "plain plain routed default" if forward else "routed failed")
        elif target is not END:
            add(source, target, "plain")
    sources = Counter(arc.target for arc in ends.values())
    nodes = [GraphNode(name, sources[name] > 1 and draw(st.booleans())) for name in names]
    arcs = draw(st.permutations(list(ends.values())))
    return Graph.of(nodes, arcs, output=draw(st.sampled_from(names)))


def leads(graph: Graph, source: str, target: Any, join: str) -> bool:
    """Whether a way leads from a node to a predecessor of a join, not through the join."""
    if target == join:
        return source == join
    seen, todo = set(), [source]
    while todo:
        name = todo.pop()
        if name == target:
            return True
        if name not in seen and (name != join or name == source):
            seen.add(name)
            todo += [arc.target for arc in graph.arcs if arc.source == name and isinstance(arc.target, str)]
    return False


def takes(graph: Graph, name: str, outcome: Outcome) -> list[str] | None:
    """The nodes that an outcome leads to, worked out from the arcs as they are written; None: nothing takes it."""
    mine = [arc for arc in graph.arcs if arc.source == name]
    route = outcome.route
    said = {repr(each) for each in (route if isinstance(route, tuple) else () if route is None else (route,))}
    if outcome.failed is not None:
        chosen = [arc for arc in mine if arc.kind == "failed"]
        if not chosen:
            return None
    else:
        matched = any(repr(each) in said for arc in mine for each in arc.routes or ())
        chosen = [
            arc
            for arc in mine
            if arc.kind == "plain"
            or (arc.kind == "default" and not matched)
            or any(repr(each) in said for each in arc.routes or ())
        ]
        conditional = any(arc.kind in ("routed", "default") for arc in mine)
        alternative = matched or any(arc.kind == "default" for arc in mine)
        if conditional and not alternative and (said or not any(arc.kind == "plain" for arc in mine)):
            return None
    return list(dict.fromkeys(arc.target for arc in chosen if isinstance(arc.target, str)))


def steps(graph: Graph, data: st.DataObject, count: int) -> Iterator[tuple[Plan, NodeRun, Outcome, Plan]]:
    """Runs that are ready, ended in any order with outcomes that the graph expects."""
    plan = graph.begin(0)
    for _ in range(count):
        if plan.is_over:
            return
        run = data.draw(st.sampled_from(plan.ready))
        outcome = data.draw(OUTCOMES)
        if takes(graph, run.name, outcome) is None:
            with pytest.raises(WorkflowError):
                plan.check(run, outcome)
            with pytest.raises(ReplayError):
                plan.ended(run.id, outcome)
            continue
        plan.check(run, outcome)
        after = plan.ended(run.id, outcome)
        yield plan, run, outcome, after
        plan = after


@given(graphs(), st.data())
def test_no_join_waits_for_ever(graph: Graph, data: st.DataObject) -> None:
    """
    A join waits only while a run, or another join that has something, leads to what it lacks; in the end none waits.
    """
    for _, _, _, plan in steps(graph, data, 25):
        held = plan.waiting
        for join, lacking in held.items():
            busy = [run.name for run in plan.ready] + [other for other in held if other != join]
            assert any(leads(graph, name, each, join) for name in busy for each in lacking)
        if not plan.ready:
            assert (plan.is_over, plan.queued, held) == (True, (), {})


@given(graphs(), st.data())
def test_a_join_leaves_out_only_what_can_come_no_more(graph: Graph, data: st.DataObject) -> None:
    """
    When a join fires without a predecessor, no run that goes on leads to it, but through the join.
    """
    for before, run, _, plan in steps(graph, data, 25):
        last = max((each.serial for each in (*before.ready, *before.queued)), default=0)
        new = [each for each in (*plan.ready, *plan.queued) if each.serial > last]
        joins = {node.name for node in graph.nodes if node.is_join}
        for fired in [each for each in new if each.missing]:
            # What other joins fired in the same fold comes later, and so does what follows it.
            on = [each for each in (*plan.ready, *plan.queued) if each not in new or each.name not in joins]
            assert not any(leads(graph, each.name, lost, fired.name) for each in on for lost in fired.missing), run


@given(graphs(), st.data())
def test_what_comes_to_a_node_goes_on_once_and_in_order(graph: Graph, data: st.DataObject) -> None:
    """
    A target is triggered once per outcome; a join takes each value once, those of one predecessor in their order.
    """
    joins: dict[str, list[str]] = {node.name: [] for node in graph.nodes if node.is_join}
    for arc in graph.arcs:
        if arc.target in joins:
            joins[str(arc.target)].append(str(arc.source))
    came: dict[tuple[str, str], list[str]] = {}
    seen: dict[str, NodeRun] = {}
    plan = graph.begin(0)
    for before, run, outcome, plan in steps(graph, data, 20):
        seen |= {each.id: each for each in (*before.ready, *before.queued)}
        targets = takes(graph, run.name, outcome)
        assert targets is not None
        for join in joins.keys() & {*targets}:
            came.setdefault((join, run.name), []).append(run.id)
        new = [each for each in (*plan.ready, *plan.queued) if each.id not in seen and each.name not in joins]
        assert [each.name for each in sorted(new, key=lambda each: each.serial)] == [
            name for name in targets if name not in joins
        ]
        assert all(each.by == (run.id,) for each in new)
    seen |= {each.id: each for each in (*plan.ready, *plan.queued)}
    for (join, source), values in came.items():
        fired = sorted((each for each in seen.values() if each.name == join), key=lambda each: each.number)
        taken = [by for each in fired for by in each.by if by.partition("@")[0] == source]
        assert taken == values[: len(taken)]
        assert len(values) == len(taken) or join in plan.waiting
        assert all([*each.input] == [name for name in joins[join] if name not in each.missing] for each in fired)


@given(graphs(), st.data())
def test_numbers_and_serials_follow_from_the_fold(graph: Graph, data: st.DataObject) -> None:
    """
    Runs of a node count from 1 in the order of the triggers, those of the graph too; a node runs once at a time.
    """
    seen: dict[str, NodeRun] = {run.id: run for run in graph.begin(0).ready}
    for _, _, _, plan in steps(graph, data, 20):
        assert max(Counter(run.name for run in plan.ready).values(), default=0) <= 1
        assert {run.name for run in plan.queued} <= {run.name for run in plan.ready}
        seen |= {run.id: run for run in (*plan.ready, *plan.queued)}
        assert [*plan.ready] == sorted(plan.ready, key=lambda run: run.serial)
    runs = sorted(seen.values(), key=lambda run: run.serial)
    assert [run.serial for run in runs] == [*range(1, len(runs) + 1)]
    numbers: Counter[str] = Counter()
    for run in runs:
        numbers[run.name] += 1
        assert run.number == numbers[run.name]


@given(graphs(), st.data())
def test_the_same_outcomes_give_the_same_plan(graph: Graph, data: st.DataObject) -> None:
    """
    A plan is a value: folding again gives an equal one, from an equal graph too, and no fold changes the one before.
    """
    taken = [*steps(graph, data, 20)]
    again = Graph.of(graph.nodes, graph.arcs, output=graph.output).begin(0)
    for before, run, outcome, after in taken:
        assert again == before
        again = again.ended(run.id, outcome)
        assert again == after
        assert {*ids(after.added)} == {*ids(after.ready)} - {*ids(before.ready)}


@given(graphs(), st.data())
def test_an_outcome_that_is_not_expected_changes_nothing(graph: Graph, data: st.DataObject) -> None:
    """
    What is queued, has ended, or was never triggered cannot end: ReplayError.
    """
    ended: set[str] = set()
    for before, run, _, after in steps(graph, data, 15):
        ended.add(run.id)
        for run_id in {*ended, *ids(after.queued), f"{run.name}@{run.number + 50}"}:
            with pytest.raises(ReplayError):
                after.ended(run_id, gave(1))
        assert run.id in ids(before.ready)


@given(graphs())
@settings(max_examples=examples(30))
def test_every_graph_can_be_shown(graph: Graph) -> None:
    """
    Each edge has a line in the table, and one in the picture.
    """
    assert len(describe(graph).splitlines()) == len(graph.arcs) + 3
    assert sum("-->" in line or "-.->" in line for line in mermaid(graph).splitlines()) == len(graph.arcs)


def test_a_join_waits_for_those_that_others_wait_for() -> None:
    """
    What a join waits for is found through any number of others, and each once, also in a ring.
    """
    direct = {"a": ["b"], "b": ["c"], "c": ["d", "b"], "d": []}
    assert _closure("a", direct) == {"b", "c", "d"}
    assert _closure("d", direct) == set()
