# mypy: ignore-errors
"""
The side of langgraph: a StateGraph over messages with a checkpointer, as its quickstart builds an agent.

Stores: `memory` (InMemorySaver) and `sqlite` (AsyncSqliteSaver); `durability="sync"`, so that what a step has changed
is stored before the next one begins, as with the other sides. Several agents at once are nodes without an order. A
history is written with `update_state`. It runs where langgraph is installed, so nothing here is checked for types.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from uuid import uuid4

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from .protocol import (
    ANSWER,
    CHUNK,
    CROWD_TURNS,
    QUESTION,
    SHORT_HISTORY_EVENTS,
    TOOL,
    TOOL_ARGUMENTS,
    TOOL_RESULT,
    Crowd,
    given,
    serve,
)

NUMBERS = count()
BRIEF = SystemMessage("Be brief.")


class Text(BaseChatModel):
    """Answers, in chunks if it is asked to stream and has some."""

    chunks: int = 0

    @property
    def _llm_type(self):
        return "fake"

    def bind_tools(self, tools, **more):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **more):
        return ChatResult(generations=[ChatGeneration(message=AIMessage(ANSWER))])

    async def _agenerate(self, messages, stop=None, run_manager=None, **more):
        return self._generate(messages)


class CallsOnce(Text):
    """Calls the tool, and answers when it has the response."""

    def _generate(self, messages, stop=None, run_manager=None, **more):
        if isinstance(messages[-1], ToolMessage):
            return super()._generate(messages)
        call = {"name": TOOL, "args": dict(TOOL_ARGUMENTS), "id": f"c{next(NUMBERS)}"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])


class Streaming(Text):
    """Answers in chunks."""

    async def _astream(self, messages, stop=None, run_manager=None, **more):
        for _ in range(self.chunks):
            chunk = ChatGenerationChunk(message=AIMessageChunk(CHUNK))
            if run_manager:
                await run_manager.on_llm_new_token(CHUNK, chunk=chunk)
            yield chunk


@tool(TOOL)
async def weather(city: str) -> dict:
    """Tell the weather of a city."""
    return dict(TOOL_RESULT)


def asks(model):
    async def node(state):
        return {"messages": [await model.ainvoke([BRIEF, *state["messages"]])]}

    return node


def graph_of(task, saver):
    graph = StateGraph(MessagesState)
    if task.what == "parallel":
        for number in range(task.size):
            graph.add_node(f"agent_{number}", asks(Text()))
            graph.add_edge(START, f"agent_{number}")
        return graph.compile(checkpointer=saver)
    if task.what in ("tool", "crowd"):
        graph.add_node("model", asks(CallsOnce().bind_tools([weather])))
        graph.add_node("tools", ToolNode([weather]))
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
    else:
        model = Streaming(chunks=task.size) if task.what == "stream" else Text()
        graph.add_node("model", asks(model))
        graph.add_edge("model", END)
    graph.add_edge(START, "model")
    return graph.compile(checkpointer=saver)


@asynccontextmanager
async def opened(task):
    if task.store == "memory":
        yield InMemorySaver()
    else:
        async with AsyncSqliteSaver.from_conn_string(str(task.file)) as saver:
            yield saver


def thread(name):
    return {"configurable": {"thread_id": name}}


async def turn(graph, name):
    return await graph.ainvoke({"messages": [HumanMessage(QUESTION)]}, thread(name), durability="sync")


async def talked(graph, history):
    """A thread with so many messages: those of one real turn, again and again."""
    name = f"s{next(NUMBERS)}"
    made = (await turn(graph, f"example of {name}"))["messages"]
    again = [made[number % len(made)].model_copy(update={"id": str(uuid4())}) for number in range(history)]
    await graph.aupdate_state(thread(name), {"messages": again})
    return name


async def turns(task):
    async with opened(task) as saver:
        graph = graph_of(task, saver)
        long = await talked(graph, task.size) if task.size > SHORT_HISTORY_EVENTS else ""

        async def make(steps):
            if task.size == 0:
                return [partial(turn, graph, f"s{next(NUMBERS)}") for _ in range(steps)]
            return [partial(turn, graph, long or await talked(graph, task.size))] * steps

        await serve(task, make)


async def crowd(task):
    async with opened(task) as saver:
        graph = graph_of(task, saver)

        async def make(steps):
            await turn(graph, "warm")

            async def all_at_once():
                members = Crowd(partial(turn, graph))
                await asyncio.gather(*(members.member(f"s{number}") for number in range(task.size)))
                return members.told()

            return [all_at_once]

        await serve(task, make, units=task.size * CROWD_TURNS)


async def stream(task):
    async with opened(task) as saver:
        graph = graph_of(task, saver)

        async def streamed(name):
            message, chunks = {"messages": [HumanMessage(QUESTION)]}, 0
            async for _ in graph.astream(message, thread(name), stream_mode="messages", durability="sync"):
                chunks += 1
            assert chunks >= task.size, chunks

        async def make(steps):
            return [partial(streamed, f"s{next(NUMBERS)}") for _ in range(steps)]

        await serve(task, make, units=task.size)


async def parallel(task):
    async with opened(task) as saver:
        graph = graph_of(task, saver)

        async def make(steps):
            return [partial(turn, graph, f"s{next(NUMBERS)}") for _ in range(steps)]

        await serve(task, make)


SCENARIOS = {"text": turns, "tool": turns, "crowd": crowd, "stream": stream, "parallel": parallel}

if __name__ == "__main__":
    asyncio.run(SCENARIOS[given().what](given()))
