"""
When a join fires.

A join that has a value of each of its predecessors fires. One that lacks some waits for those that can still come: a
predecessor can come while a run that is ready or queued leads to it, or another join that has something. Ways through
the join itself do not count, because they are open only after it has fired.

So a join may wait for another one, and that one for the first. The rule for both cases is one: a join fires if no run
leads to what it lacks, and every join that it waits for waits for it in turn; of several, the first in order of
declaration. Among any joins that nothing else leads to there is such a one, so none waits for ever; and a group of
joins that wait only for each other does not wait for what else goes on, such as a lane in which somebody is asked.

Nodes are bits of integers here: sets of a graph of 1 000 nodes are compared in one operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ._arcs import Arc, GraphNode, Marker

__all__ = ["Joins"]


class Joins:
    """The joins of one graph. What leads to their predecessors is found out when it is first asked for, and kept."""

    __slots__ = ("_all", "_bits", "_index", "_predecessors", "_sources", "_ways")

    def __init__(self, nodes: Sequence[GraphNode], arcs: Sequence[Arc]) -> None:
        self._index: dict[str, int] = {node.name: index for index, node in enumerate(nodes)}
        # START is a predecessor of joins, to which nothing leads.
        self._bits = {name: 1 << index for index, name in enumerate((*self._index, "START"))}
        self._predecessors: dict[str, tuple[str, ...]] = {}
        self._all: dict[str, int] = {}  # the predecessors of each join, as bits
        self._sources: dict[str, list[str]] = {}
        self._ways: dict[tuple[str, str], int] = {}
        for arc in arcs:
            if isinstance(arc.target, str):
                self._sources.setdefault(arc.target, []).append(name_of_source(arc))
        for node in nodes:
            if node.is_join:
                self._predecessors[node.name] = tuple(dict.fromkeys(self._sources.get(node.name, ())))
                self._all[node.name] = sum(self._bits[name] for name in self._predecessors[node.name])

    def __contains__(self, name: str) -> bool:
        return name in self._predecessors

    def bit(self, name: str) -> int:
        """Return the node as a set of one."""
        return self._bits[name]

    def predecessors(self, join: str) -> tuple[str, ...]:
        """Return the names of the nodes that lead to a join, in order of declaration; START has its name there."""
        return self._predecessors[join]

    def first_to_fire(self, active: int, have: Mapping[str, int]) -> str | None:
        """
        Return the join that fires next, if one does.

        Args:
            active: The nodes that have a ready run. A node with a queued run has a ready one, too.
            have: The joins that have something, and the predecessors of which they have it.
        """
        holding = sorted(have, key=self._index.__getitem__)
        for join in holding:
            if not self._all[join] & ~have[join]:
                return join
        waiting = [join for join in holding if not self._run_leads_to(join, have[join], active)]
        if not waiting:
            return None
        awaited = self._awaited(holding, have)
        lanes = {*holding} - {*waiting}
        for join in waiting:
            others = awaited[join]
            if not others & lanes and all(join in awaited[other] for other in others):
                return join
        return None

    def lacking(self, have: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
        """Return for each join that has something, in order of declaration, the predecessors of which it lacks it."""
        return {join: tuple(self._missing(join, have[join])) for join in sorted(have, key=self._index.__getitem__)}

    def _missing(self, join: str, have: int) -> Iterator[str]:
        return (name for name in self._predecessors[join] if not have & self._bits[name])

    def _run_leads_to(self, join: str, have: int, active: int) -> bool:
        if active & self._all[join] & ~have:
            return True  # one of those it lacks runs: what most joins wait for
        return any(active & self._leading_to(join, name) for name in self._missing(join, have))

    def _awaited(self, holding: list[str], have: Mapping[str, int]) -> dict[str, set[str]]:
        """Return for each join that has something the others it waits for, directly or through others."""
        direct: dict[str, list[str]] = {}
        for join in holding:
            ways = 0
            for name in self._missing(join, have[join]):
                ways |= self._leading_to(join, name)
            direct[join] = [other for other in holding if other != join and ways & self._bits[other]]
        return {join: _closure(join, direct) for join in holding}

    def _leading_to(self, join: str, predecessor: str) -> int:
        """Return the nodes from which a way leads to a predecessor of a join, itself included, not through the join."""
        ways = self._ways.get((join, predecessor))
        if ways is None:
            ways = self._bits[predecessor]
            todo = [] if predecessor == join else [predecessor]
            while todo:
                more = [each for each in self._sources.get(todo.pop(), ()) if not ways & self._bits[each]]
                for source in more:
                    ways |= self._bits[source]
                todo += [source for source in more if source != join]
            self._ways[join, predecessor] = ways
        return ways


def name_of_source(arc: Arc) -> str:
    """Return where an arc comes from as a name, which START has, too."""
    return arc.source.name if isinstance(arc.source, Marker) else arc.source


def _closure(start: str, direct: Mapping[str, list[str]]) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        for each in direct[todo.pop()]:
            if each not in found:
                found.add(each)
                todo.append(each)
    return found
