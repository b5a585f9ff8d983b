"""The scenarios in which sides take turns. A further one has its place here and in the programs that play it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .contest import Scenario
from .programs.protocol import STREAM_CHUNKS
from .scale import Scale
from .sides import Kind

Sizes = Callable[[Scale], Sequence[int]]


def histories(scale: Scale) -> Sequence[int]:
    """Stored events before a turn."""
    return scale.sizes


def peer_histories(scale: Scale) -> Sequence[int]:
    """The same for peers, whose turns grow with them."""
    return [size for size in scale.sizes if size <= scale.peer_events]


def crowds(scale: Scale) -> Sequence[int]:
    """Sessions at once."""
    return [scale.crowd]


def chunks(scale: Scale) -> Sequence[int]:
    """Chunks of an answer."""
    return [scale.chunks]


def none(scale: Scale) -> Sequence[int]:
    """For sides that take no part."""
    return ()


def agents(scale: Scale) -> Sequence[int]:
    """Agents in parallel."""
    return [scale.agents]


def keys(scale: Scale) -> Sequence[int]:
    """Keys of a state."""
    return [scale.keys]


def nodes(scale: Scale) -> Sequence[int]:
    """Nodes of a graph."""
    return [scale.nodes]


def items(scale: Scale) -> Sequence[int]:
    """Items of a map."""
    return [scale.items]


def windows(scale: Scale) -> Sequence[int]:
    """Stored events before a turn that sees the newest."""
    return scale.windows


def peer_windows(scale: Scale) -> Sequence[int]:
    """The same for peers: only the first."""
    return scale.windows[:1]


def _turns(what: str, kind: Kind) -> Scenario:
    place = "in memory" if kind == "memory" else "in a file"
    return Scenario(f"{what}-{kind}", f"{what} turn {place}, {{}} events before", what, kind, histories, peer_histories)


def _crowd(kind: Kind) -> Scenario:
    place = "in memory" if kind == "memory" else "in a file"
    title = f"{{}} sessions x 5 tool turns {place}, per turn"
    return Scenario(f"crowd-{kind}", title, "crowd", kind, crowds, crowds, alone=True)


def _over_http(api: str, what: str) -> Scenario:
    return Scenario(f"models-{api}", f"{what} over HTTP, {{}} chunks, per chunk", api, "memory", chunks, chunks)


def _keys(kind: Kind) -> Scenario:
    place = "in memory" if kind == "memory" else "in a file"
    return Scenario(f"keys-{kind}", f"an event that changes one key of {{}} {place}", "keys", kind, keys, keys)


def _workflow(what: str, kind: Kind, title: str, sizes: Sizes) -> Scenario:
    name = f"{what}-{kind.partition(' ')[0]}"
    return Scenario(name, f"{title} in a {kind}", what, kind, sizes, sizes, "ms", clock="cpu")


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        _turns("text", "memory"),
        _turns("tool", "memory"),
        _turns("text", "file"),
        _turns("tool", "file"),
        _crowd("memory"),
        _crowd("file"),
        Scenario("stream", "an answer in {} chunks, per chunk", "stream", "memory", chunks, chunks),
        Scenario(
            "window",
            "a file of {} events is opened, a turn sees the last 20",
            "window",
            "file",
            windows,
            peer_windows,
            unit="ms",
        ),
        _keys("memory"),
        _keys("file"),
        _over_http("chat", "chat completions"),
        _over_http("messages", "Anthropic's messages"),
        Scenario(
            "models-streams",
            f"{{}} streams of {STREAM_CHUNKS} chunks over HTTP at once, per chunk",
            "streams",
            "memory",
            crowds,
            none,
            alone=True,
        ),
        _workflow("chain", "file", "a chain of {} nodes", nodes),
        _workflow("chain", "quick file", "a chain of {} nodes", nodes),
        _workflow("fan", "file", "{} nodes side by side and a join", nodes),
        _workflow("fan", "quick file", "{} nodes side by side and a join", nodes),
        _workflow("map", "file", "a node mapped over {} items", items),
        _workflow("map", "quick file", "a node mapped over {} items", items),
        Scenario("parallel", "{} agents answer in parallel", "parallel", "memory", agents, agents, unit="ms"),
    )
}
