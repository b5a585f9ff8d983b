"""
Workflows that nobody has thought of, as data: drawn from choices.

A `Sketch` is a graph. Its nodes are named against the alphabet, so that an order by name is not that of declaration.
graphs.py builds the workflow that it stands for, and graph_laws.py says what is true of the logs of that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import attrs

from minirun.simulation import Choices
from minirun.workflow import DEFAULT_ROUTE, FAILED

__all__ = ["Draft", "Sketch", "draw"]

NODES_MAX = 6
"""With the last one, and joins between them, a graph has 8 nodes at most; one more for each toolset."""
INNER_MAX = 2
DEPTH_MAX = 2
KINDS = (
    "says", "acts", "maps", "asks", "yields", "waits", "retries", "fails", "agent", "inner", "parent", "rounds",
    "routes", "tool", "toolset", "task",
)
NUMBERS = {"maps": 3, "rounds": 3, "retries": 3, "fails": 3, "agent": 7, "task": 3}
"""Of these kinds, how many items, rounds, attempts, sorts of agents and messages there are."""
VARIANTS = {"says": 2, "maps": 4, "retries": 2, "fails": 3, "parent": 3, "toolset": 2, "task": 2, "join": 3}
"""How many forms there are of these kinds: see the functions of graphs.py that build them."""
NAMES = ("zoe", "yan", "xia", "will", "vic", "uma", "tom", "sue", "ron")
ROUTES: tuple[Any, ...] = ("a", 1, True)
DELAYS_S = (0.0, 5.0, 1000.0)
"""How long the next attempt waits: not at all, in the process, or without one."""
LONG_S = 1e7
"""A limit of time that nothing here comes to."""
SHORT_S = 50.0
"""One that whoever stands still comes to, and nobody else."""


@attrs.frozen
class Draft:
    """A node: what it does, and to whom it leads, by which route."""

    name: str
    kind: str
    number: int = 1
    """How many items, rounds, messages, or attempts; of an agent, of which kind it is."""
    variant: int = 0
    """In which form it does so."""
    delay_s: float = 0.0
    timeout_s: float | None = None
    to: tuple[tuple[Any, str], ...] = ()
    inner: Sketch | None = None
    is_strict: bool = False
    """Whether a join requires all of its predecessors."""
    reads: str | None = None
    """Whose key of the state it reads."""


@attrs.frozen
class Sketch:
    """A graph: the targets of START, the nodes in order of declaration, and how many of them at once."""

    name: str
    start: tuple[str, ...]
    drafts: tuple[Draft, ...]
    limit: int | None = None
    on_failure: str = "cancel_others"
    has_schema: bool = False
    """Whether it says which keys of the state may be written."""

    def all(self) -> Iterator[tuple[Sketch, Draft]]:
        """Every node, with its graph, those of graphs inside included."""
        for draft in self.drafts:
            yield self, draft
            if draft.inner is not None:
                yield from draft.inner.all()

    def arcs(self) -> list[tuple[str, str, Any]]:
        """All edges, in order of declaration; START is there by its name."""
        own = [(draft.name, target, route) for draft in self.drafts for route, target in draft.to]
        return [*(("START", target, None) for target in self.start), *own]

    def predecessors(self, join: str) -> list[str]:
        """Who leads to a node, in order of declaration."""
        return list(dict.fromkeys(source for source, target, _ in self.arcs() if target == join))

    def is_settled(self) -> bool:
        """Whether each node runs for one reason, so that every run gets the same, in whatever order others end."""
        for draft in self.drafts:
            reasons = [source for source, target, _ in self.arcs() if target == draft.name and source != draft.name]
            is_one = len(reasons) == 1 if draft.kind != "join" else len(reasons) == len(set(reasons))
            if not is_one or (draft.inner is not None and not draft.inner.is_settled()):
                return False
            back = [target for _, target in draft.to if self._place(target) < self._place(draft.name)]
            if back:
                return False
        return True

    def _place(self, name: str) -> int:
        return [draft.name for draft in self.drafts].index(name) if name != "END" else len(self.drafts)


class _Drawing:
    """Draws one graph."""

    def __init__(self, choices: Choices, name: str, depth: int, *, in_schema: bool = False) -> None:
        self._choices = choices
        self._name = name
        self._depth = depth
        self._suffix = f"_{name}" if depth else ""  # the state has the keys of all
        self._kinds: dict[str, str] = {}
        self._to: dict[str, list[tuple[Any, str]]] = defaultdict(list)
        self._has_schema = choices.maybe(f"the state of {name} has a schema", 3)
        self._in_schema = in_schema or self._has_schema
        self._strict: set[str] = set()

    def sketch(self) -> Sketch:
        choose, name = self._choices.choose, self._name
        for place in range(1 + choose(INNER_MAX if self._depth else NODES_MAX, f"nodes of {name}")):
            self._add(f"{NAMES[place]}{self._suffix}", place)
        self._end()
        drafts = tuple(self._draft(each) for each in self._kinds)
        limit = (None, 1, 2)[choose(3, f"how many nodes of {name} at once", names=("any", "1", "2"))]
        on_failure = ("cancel_others", "collect")[choose(2, f"{name} lets others come to their end")]
        start = tuple(target for _, target in self._to["START"])
        return Sketch(name, start, drafts, limit, on_failure, self._has_schema)

    def _add(self, name: str, place: int) -> None:
        choose = self._choices.choose
        before = ["START", *(each for each, kind in self._kinds.items() if kind != "calls")]
        count = 1 + (choose(3, f"what leads to {name}", lambda luck: max(0, luck.randrange(4) - 1)) if place else 0)
        sources = []
        for _ in range(min(count, len(before))):
            picked = before[-1 - choose(len(before), f"what leads to {name}")] if place else "START"
            before.remove(picked)
            sources.append(picked)
        kinds = [kind for kind in KINDS if not (self._depth and kind == "parent")]
        if self._depth == DEPTH_MAX:
            kinds.remove("inner")
        is_join = len(sources) > 1 and not self._choices.maybe(f"{name} joins nothing", 4)
        kind = "join" if is_join else kinds[choose(len(kinds), f"what {name} is", names=tuple(kinds))]
        entry = name
        if kind == "toolset":  # somebody has to say which tool
            entry = f"{name}_call"
            self._kinds[entry] = "calls"
            self._to[entry].append((None, name))
        self._kinds[name] = kind
        if is_join and self._choices.maybe(f"{name} requires all", 3):
            self._strict.add(name)
        for source in sources:
            self._lead(source, entry)
        if self._kinds[name] == "rounds":
            earlier = [each for each in sources if each != "START"]
            options = [name, *(each for each in earlier if self._kinds[each] not in ("join", "toolset"))]
            self._to[name].append(("again", options[choose(len(options), f"where the rounds of {name} begin")]))

    def _lead(self, source: str, target: str) -> None:
        kind = self._kinds.get(source, "START")
        found = len(self._to[source])
        route: Any = None
        if kind == "rounds":
            route = "enough"
        elif kind == "routes":
            options = [*ROUTES, DEFAULT_ROUTE]
            picked = self._choices.choose(len(options) + 1, f"when {source} goes to {target}")
            route = None if picked == len(options) else options[picked]
        elif kind == "fails":
            route = FAILED if found == 0 or self._choices.choose(2, f"{source} fails to {target}") == 0 else None
        elif source in self._strict and found:
            route = FAILED if self._choices.choose(2, f"{source} fails to {target}") else None
        self._to[source].append((route, target))

    def _end(self) -> None:
        """Lead everything that leads nowhere to one last node."""
        last = f"last{self._suffix}"
        forward = {name: [target for route, target in self._to[name] if route != "again"] for name in self._kinds}
        sinks = [name for name in self._kinds if not forward[name]]
        is_join = len(sinks) > 1 and not self._choices.maybe(f"{last} joins nothing", 4)
        self._kinds[last] = "join" if is_join else "says"
        for name in sinks:
            self._lead(name, last)
        for name, kind in self._kinds.items():
            routes = [route for route, _ in self._to[name]]
            if kind == "routes" and DEFAULT_ROUTE not in routes:
                self._to[name].append((DEFAULT_ROUTE, "END"))
            if name in self._strict and FAILED not in routes:
                self._to[name].append((FAILED, "END"))

    def _draft(self, name: str) -> Draft:
        choose, kind = self._choices.choose, self._kinds[name]
        inner = None
        if kind == "inner":
            inner = _Drawing(self._choices, name, self._depth + 1, in_schema=self._in_schema).sketch()
        variants = VARIANTS.get(kind, 1) - (kind == "fails" and not self._in_schema)
        variant = choose(variants, f"which form of {name}") if variants > 1 else 0
        timeout_s = LONG_S if self._choices.maybe(f"{name} has a limit of time", 4) else None
        if (kind, variant) in (("retries", 1), ("fails", 1)):
            timeout_s = SHORT_S
        sources = [each for each in self._kinds if any(target == name for _, target in self._to[each])]
        return Draft(
            name,
            kind,
            number=1 + choose(NUMBERS[kind], f"how often {name}") if kind in NUMBERS else 1,
            variant=variant,
            delay_s=DELAYS_S[choose(3, f"how long {name} waits")] if kind in ("retries", "fails") else 0.0,
            timeout_s=timeout_s,
            to=tuple(self._to[name]),
            inner=inner,
            is_strict=name in self._strict,
            reads=sources[0] if (kind, variant) == ("says", 1) and sources else None,
        )


def draw(choices: Choices, name: str = "wf") -> Sketch:
    """Draw a graph of at most 8 nodes, and graphs inside of them."""
    return _Drawing(choices, name, 0).sketch()
