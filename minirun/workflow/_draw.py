"""
A graph as a person reads it: a table in plain text, and a picture in Mermaid's notation.

Both are for people: their form may change between versions.
"""

from __future__ import annotations

from ._arcs import DEFAULT_ROUTE, FAILED, Arc, Marker, told
from ._graph import Graph

__all__ = ["describe", "mermaid"]


def describe(graph: Graph) -> str:
    """Return a table of the edges, a line each, in the order in which targets are triggered."""
    kinds = {node.name: "join" if node.is_join else "" for node in graph.nodes}
    for node in graph.nodes:
        if node.require_all:
            kinds[node.name] = "join of all"
    rows = [("from", "route", "to", "")]
    rows += [(_shown(arc.source), _when(arc), _shown(arc.target), _kind(arc, kinds)) for arc in graph.arcs]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    output = "the one output of a node that nothing follows" if graph.output is None else f"the last of {graph.output}"
    return "\n".join([f"workflow {graph.name}", *lines, f"output: {output}"])


def mermaid(graph: Graph) -> str:
    """Return the graph as a Mermaid flowchart: joins as hexagons, failures dotted, routes on the edges."""
    ids = {node.name: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = ["flowchart TD", "    start((START))"]
    for node in graph.nodes:
        label = _quoted(node.name)
        lines.append(f"    {ids[node.name]}" + (f"{{{{{label}}}}}" if node.is_join else f"[{label}]"))
    if any(isinstance(arc.target, Marker) for arc in graph.arcs):
        lines.append("    finish((END))")
    for arc in graph.arcs:
        source = "start" if isinstance(arc.source, Marker) else ids[arc.source]
        target = "finish" if isinstance(arc.target, Marker) else ids[arc.target]
        line = "-.->" if arc.kind == "failed" else "-->"
        label = f"|{_quoted(when)}|" if (when := _when(arc)) else ""
        lines.append(f"    {source} {line}{label} {target}")
    return "\n".join(lines) + "\n"


def _kind(arc: Arc, kinds: dict[str, str]) -> str:
    return kinds[arc.target] if isinstance(arc.target, str) else ""


def _shown(end: str | Marker) -> str:
    return end if isinstance(end, str) else told(end)


def _when(arc: Arc) -> str:
    """What takes the arc; nothing for one that is always taken."""
    if arc.kind == "routed":
        return ", ".join(map(repr, arc.routes or ()))
    return {"plain": "", "default": repr(DEFAULT_ROUTE), "failed": repr(FAILED)}[arc.kind]


def _quoted(text: str) -> str:
    return '"' + text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("\n", " ") + '"'
