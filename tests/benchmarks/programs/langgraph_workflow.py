# mypy: ignore-errors
"""
The side of langgraph where a graph is run: a StateGraph of functions with a checkpointer.

Stores: `sqlite` (AsyncSqliteSaver as it is: WAL, synchronous=FULL), and `normal`, where its connection is told
synchronous=NORMAL. `durability="sync"`, so that what a step has changed is stored before the next one begins, as with
the other sides. A map is a `Send` for each item, whose results a reducer collects. It runs where
langgraph is installed, so nothing here is checked for types.
"""

from __future__ import annotations

import asyncio
import operator
from functools import partial
from itertools import count
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from .protocol import QUESTION, given, serve

NUMBERS = count()


class State(TypedDict):
    question: str
    value: int
    found: Annotated[list, operator.add]


class Item(TypedDict):
    item: int


async def begin(state: State):
    return {"value": 1}


async def add_one(state: State):
    return {"value": state["value"] + 1}


async def measure(state: State):
    return {"found": [len(state["question"])]}


async def joined(state: State):
    return {"value": len(state["found"])}


async def add_one_to_item(item: Item):
    return {"found": [item["item"] + 1]}


def chain(nodes):
    graph = StateGraph(State)
    graph.add_node("node_0", begin)
    graph.add_edge(START, "node_0")
    for number in range(1, nodes):
        graph.add_node(f"node_{number}", add_one)
        graph.add_edge(f"node_{number - 1}", f"node_{number}")
    graph.add_edge(f"node_{nodes - 1}", END)
    return graph


def fan(nodes):
    graph = StateGraph(State)
    names = [f"node_{number}" for number in range(nodes)]
    for name in names:
        graph.add_node(name, measure)
        graph.add_edge(START, name)
    graph.add_node("all", joined)
    graph.add_edge(names, "all")
    graph.add_edge("all", END)
    return graph


def mapped(items):
    graph = StateGraph(State)
    graph.add_node("listed", begin)
    graph.add_node("work", add_one_to_item)
    graph.add_edge(START, "listed")
    graph.add_conditional_edges("listed", lambda state: [Send("work", {"item": n}) for n in range(items)], ["work"])
    graph.add_edge("work", END)
    return graph


GRAPHS = {"chain": chain, "fan": fan, "map": mapped}


async def run(graph, task, name):
    config = {"configurable": {"thread_id": name}, "recursion_limit": task.size + 10}
    state = await graph.ainvoke({"question": QUESTION, "found": []}, config, durability="sync")
    if task.what == "map":
        assert state["found"] == [item + 1 for item in range(task.size)]
    else:
        assert state["value"] == task.size
        assert state["found"] == ([] if task.what == "chain" else [len(QUESTION)] * task.size)


async def main(task):
    async with AsyncSqliteSaver.from_conn_string(str(task.file)) as saver:
        if task.store == "normal":
            await saver.conn.execute("PRAGMA synchronous=NORMAL")
        graph = GRAPHS[task.what](task.size).compile(checkpointer=saver)

        async def make(steps):
            return [partial(run, graph, task, f"s{next(NUMBERS)}") for _ in range(steps)]

        await serve(task, make)


if __name__ == "__main__":
    asyncio.run(main(given()))
