"""How much is measured."""

from __future__ import annotations

import attrs


@attrs.frozen
class Scale:
    """
    How much is measured.

    Args:
        rounds: How often the sides take turns, and how often in slow scenarios; in those of one process, too.
        sizes: Stored events before a turn. Peers are asked up to `peer_events` of them.
        windows: Stored events of which a turn sees the newest few; peers are asked for the first of these.
        crowd, chunks, agents, keys: Sessions at once, chunks of an answer, agents in parallel, keys of a state.
        nodes, items: Nodes of a graph, items of a map.
        turns: Turns in a round, at most.
        slow_rounds, events, appends, histories, writers, seeds, node_runs: What the scenarios of one process use.
        memories, memories_on_disk: In memory and on disk, and, if not 0, on disk alone.
        database_events: If not 0, in the table of a Postgres database that is compared with an empty one.
        peers: Whether other frameworks are measured, too, in a part that has one.
    """

    rounds: int
    slow_rounds: int
    sizes: tuple[int, ...]
    windows: tuple[int, ...]
    peer_events: int
    crowd: int
    chunks: int
    agents: int
    keys: int
    nodes: int
    items: int
    turns: int
    events: int
    appends: int
    histories: tuple[int, ...]
    writers: int
    seeds: int
    node_runs: int
    memories: int
    memories_on_disk: int = 0
    database_events: int = 0
    peers: bool = False


FULL = Scale(
    rounds=5,
    slow_rounds=3,
    sizes=(0, 100, 1_000, 5_000, 50_000),
    windows=(10_000, 1_000_000),
    peer_events=5_000,
    crowd=1_000,
    chunks=1_000,
    agents=100,
    keys=10_000,
    nodes=100,
    items=1_000,
    turns=100,
    events=1_000,
    appends=100,
    histories=(0, 100, 1_000, 5_000),
    writers=16,
    seeds=50,
    node_runs=10_000,
    memories=20_000,
)
# Tiny sizes: to see that it works, not to measure.
QUICK = Scale(
    rounds=1,
    slow_rounds=1,
    sizes=(0, 10),
    windows=(30,),
    peer_events=10,
    crowd=3,
    chunks=20,
    agents=3,
    keys=20,
    nodes=3,
    items=5,
    turns=2,
    events=20,
    appends=10,
    histories=(0, 10),
    writers=2,
    seeds=1,
    node_runs=60,
    memories=300,
)
