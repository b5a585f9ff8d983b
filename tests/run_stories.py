"""
Runs in writing from beginning to end, told line by line, in `tests/fixtures/runs/stories.json`: the events that a
caller sees and the log keeps, what each model was asked, and how each run has ended.

    python -m tests.run_stories        write the stories anew; read the difference before it is kept
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Any, cast

import attrs
import trio
from trio.testing import MockClock

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Event,
    FunctionTool,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    RunConfig,
    SequentialAgent,
    StreamingMode,
    ToolContext,
)
from minirun.agents import CallbackContext, Guardrail
from minirun.env import Env, derived_id
from minirun.errors import GuardrailTripwireError, ModelOverloadedError, ModelRetry
from minirun.events import EventActions
from minirun.flows import keep_last, remove_all_tools
from minirun.models import LlmResponse
from minirun.planners import BuiltInPlanner
from minirun.plugins import BasePlugin
from minirun.simulation._private import seeded_trio
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool, RetryConfig, exit_loop
from minirun.types import Blob, Content, Part, ThinkingConfig
from minirun.workflow import DEFAULT_ROUTE, END, FAILED, START, JoinNode, RequestInput, Workflow, node

from .helpers import PLACE
from .tables import write

__all__ = ["STORIES", "story"]

BUSY = ModelOverloadedError("busy")
SSE = RunConfig(streaming_mode=StreamingMode.SSE)


@attrs.frozen
class Story:
    """One session: who answers, to what, with what settings."""

    root: Callable[[], BaseAgent]
    says: tuple[Any, ...] = ("go",)
    """What the user says; a tuple of one value is the answer to the first open question."""
    config: RunConfig | None = None
    plugins: Callable[[], list[BasePlugin]] = list
    has_threads: bool = False
    """Whether some of it runs in threads, which no clock of a test waits for: then nothing in it takes time."""


# --- tools and agents to play with ------------------------------------------------------------------------------------


async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def slow(seconds: float) -> str:
    """Take a while."""
    await trio.sleep(seconds)
    return f"after {seconds}"


async def fail(why: str) -> None:
    """Fail."""
    raise ValueError(why)


async def note(tool_context: ToolContext, what: str) -> dict[str, Any]:
    """Note something."""
    notes = [*tool_context.state.get("notes", []), what]
    tool_context.state["notes"] = notes
    tool_context.state["temp:last"] = what
    return {"notes": len(notes)}


async def store(tool_context: ToolContext, name: str) -> int:
    """Store an artifact."""
    return await tool_context.save_artifact(name, Part(text="kept"))


async def ticket(what: str) -> dict[str, str]:
    """Open a ticket."""
    return {"status": "opened", "what": what}


async def leave(tool_context: ToolContext) -> str:
    """Skip the summary."""
    tool_context.actions.skip_summarization = True
    return "as it is"


@attrs.frozen
class Pet:
    """A pet."""

    name: str
    age: int = 1


TOOLS: list[Any] = [add, slow, fail, note, store, leave]


def agent(*script: Any, name: str = "desk", **fields: Any) -> LlmAgent:
    given = {"model_retry": RetryConfig(max_attempts=2, initial_delay=1, jitter=0), **fields}
    return LlmAgent(name=name, model=ScriptedLlm(list(script), name=f"model of {name}"), **given)


def tooled(*script: Any, **fields: Any) -> LlmAgent:
    return agent(*script, tools=TOOLS, **fields)


def to(name: str) -> Part:
    return call("transfer_to_agent", agent_name=name)


async def careful(ctx: CallbackContext, content: Content) -> str | None:
    """A guardrail that takes a while."""
    await trio.sleep(1)
    if "bad" in content.text:
        raise GuardrailTripwireError({"why": "bad words"})
    if "again" in content.text:
        raise ModelRetry("Say it otherwise.")
    return content.text.replace("card", "[card]") if "card" in content.text else None


@attrs.frozen(eq=False)
class Fixed(Env):
    """Ids by where they are made and how many were made there before, and a clock that begins at 1 000 000 000 s."""

    made: dict[str, int] = attrs.Factory(dict)

    def now(self) -> float:
        return 1_000_000_000 + trio.current_time() // 1

    def new_id(self, path: str) -> str:
        self.made[path] = count = self.made.get(path, 0) + 1
        return derived_id("story", path, count)

    def random(self, path: str) -> float:
        return 0.5


class Watching(BasePlugin):
    """Answers in the place of what it is told to."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(name="watching")
        self.answers = answers

    async def before_model_callback(self, **given: Any) -> Any:
        return self.answers.get("before_model")

    async def after_model_callback(self, **given: Any) -> Any:
        return self.answers.get("after_model")

    async def before_tool_callback(self, **given: Any) -> Any:
        return self.answers.get("before_tool")

    async def on_tool_error_callback(self, **given: Any) -> Any:
        return self.answers.get("tool_error")

    async def on_model_error_callback(self, **given: Any) -> Any:
        return self.answers.get("model_error")


def said(text: str) -> Content:
    return Content(role="model", parts=[Part(text=text)])


# --- the stories ------------------------------------------------------------------------------------------------------


def _of_agents() -> Iterator[tuple[str, Story]]:
    yield "an answer", Story(lambda: agent("hello", instruction="Be brief.", description="d"), ("hi",))
    yield "an answer in pieces", Story(lambda: agent("one two three"), config=SSE)
    yield "no answer", Story(lambda: agent(LlmResponse(content=None)))
    yield (
        "an error for an answer",
        Story(lambda: agent(LlmResponse(error_code="SAFETY", error_message="No."), "ok"), ("a", "b")),
    )
    yield "an answer that is cut off", Story(lambda: agent(LlmResponse(content=said("on"), finish_reason="MAX_TOKENS")))
    yield "a model that fails", Story(lambda: agent(*[BUSY] * 9))
    yield (
        "a model that fails and is tried again",
        Story(lambda: agent(BUSY, "ok", model_retry=RetryConfig(max_attempts=2, initial_delay=1, jitter=0))),
    )
    yield (
        "an instruction with state",
        Story(
            lambda: tooled(
                call("note", what="x"),
                "ok",
                "more",
                instruction="Notes: {notes?}, {none?}.",
                global_instruction="All: {notes?}.",
            ),
            ("a", "b"),
        ),
    )
    yield "an instruction without its state", Story(lambda: agent("ok", instruction="Notes: {notes}."))
    for contents in ("none", "default"):
        yield (
            f"contents: {contents}",
            Story(partial(agent, "one", "two", include_contents=contents), ("a", "b")),
        )
    yield (
        "contents without tools",
        Story(lambda: tooled(call("add", a=1), "one", "two", include_contents=remove_all_tools), ("a", "b")),
    )
    yield (
        "the last contents",
        Story(lambda: agent("one", "two", "three", include_contents=keep_last(2)), ("a", "b", "c")),
    )
    yield "an output under a key", Story(lambda: agent("one", output_key="said"))
    yield "an output of a form", Story(lambda: agent('{"name": "Rex"}', output_schema=Pet, output_key="pet"))
    yield (
        "an output of a form, in another try",
        Story(lambda: agent("Rex", '{"name": 3}', '{"name": "Rex"}', output_schema=Pet, output_retries=2)),
    )
    yield "an output of no form", Story(lambda: agent("Rex", "Rex", output_schema=Pet, output_retries=1))
    yield (
        "an output beside tools",
        Story(
            lambda: tooled(
                call("add", a=1),
                call("set_model_response", name=3),
                call("set_model_response", name="Rex", age=2),
                output_schema=Pet,
                output_retries=1,
            )
        ),
    )
    yield "an output that nobody accepts", Story(lambda: agent("one", "two", output_validator=_two, output_retries=1))
    yield (
        "an output that is made another",
        Story(lambda: agent("one", "three", output_validator=_two, output_retries=1)),
    )
    yield (
        "thoughts",
        Story(lambda: agent("ok", planner=BuiltInPlanner(thinking_config=ThinkingConfig(thinking_level="low")))),
    )


def _two(ctx: ToolContext, text: str) -> str:
    if text == "three":
        return "two and one"
    if text != "two!":
        raise ModelRetry(f"expected two, found {text}")
    return text


def _of_tools() -> Iterator[tuple[str, Story]]:
    yield "a tool", Story(lambda: tooled(call("add", a=1), "two"))
    yield (
        "tools at once",
        Story(lambda: tooled([call("slow", seconds=2.0), call("slow", seconds=1.0), call("fail", why="no")], "done")),
    )
    yield "a tool that there is not", Story(lambda: tooled(call("sub", a=1), "sorry"))
    yield "arguments that do not fit", Story(lambda: tooled(call("add", a="one", c=2), "sorry"))
    yield (
        "state and artifacts",
        Story(lambda: tooled([call("note", what="x"), call("store", name="f")], call("note", what="y"), "ok")),
    )
    yield "a result as it is", Story(lambda: tooled(call("leave")))
    for answer in (True, False):
        yield (
            f"a call that has to be allowed: {answer}",
            Story(
                lambda: agent(
                    [call("add", a=1), call("add", a=2)], "ok", tools=[FunctionTool(add, require_confirmation=_is_one)]
                ),
                ("go", (answer,)),
            ),
        )
    yield (
        "a call that goes on elsewhere",
        Story(
            lambda: agent(call("ticket", what="x"), "waiting", "done", tools=[LongRunningFunctionTool(ticket)]),
            ("go", ({"status": "closed"},)),
        ),
    )
    yield "a tool that asks", Story(lambda: agent(call("ask", what="x"), "ok", tools=[_ask]), ("go", ("blue",)))
    yield (
        "a tool that is tried again",
        Story(
            lambda: agent(
                call("shaky"),
                "ok",
                tools=[FunctionTool(_shaky(), retry=RetryConfig(max_attempts=3, initial_delay=1, jitter=0))],
            )
        ),
    )
    yield (
        "a tool that takes too long",
        Story(lambda: agent(call("slow", seconds=9.0), "ok", tools=[FunctionTool(slow, timeout_s=3)])),
    )
    yield (
        "tools one after the other",
        Story(
            lambda: agent(
                [call("slow", seconds=2.0), call("slow", seconds=1.0)],
                "ok",
                tools=[FunctionTool(slow, sequential=True)],
            )
        ),
    )
    yield (
        "questions to the model without end",
        Story(lambda: tooled(*[call("add", a=1)] * 3), config=RunConfig(max_llm_calls=2)),
    )
    yield (
        "an agent as a tool",
        Story(lambda: agent(call("helper", request="please"), "ok", tools=[AgentTool(_helper())])),
    )
    yield (
        "an agent as a tool that fails",
        Story(lambda: agent(call("helper", request="x"), "ok", tools=[AgentTool(agent(*[BUSY] * 9, name="helper"))])),
    )
    yield (
        "an agent as a tool with a form",
        Story(
            lambda: agent(
                call("helper", name="Rex"), "ok", tools=[AgentTool(agent("good dog", name="helper", input_schema=Pet))]
            )
        ),
    )


def _is_one(a: int) -> bool:
    return a == 1


async def _ask(tool_context: ToolContext, what: str) -> str:
    """Ask somebody."""
    return f"{what} is {await tool_context.request_input(f'What is {what}?')}"


_ask.__name__ = "ask"


def _helper() -> LlmAgent:
    return agent(call("note", what="in"), "helped", name="helper", tools=[note], description="Helps.")


def _yes(**given: Any) -> LlmResponse:
    return LlmResponse(content=said("yes"))


def _answering(hook: str) -> list[BasePlugin]:
    return [Watching(**{hook: _yes()})]


def _guarded() -> LlmAgent:
    return agent("one", "two", "three", input_guardrails=[careful])


def _guarding(text: str) -> LlmAgent:
    return agent(text, "two", "three", output_guardrails=[Guardrail(careful)], output_retries=1)


def _routed(route: Any) -> Workflow:
    return flow((START, goes(route), {"a": left, "b": right, DEFAULT_ROUTE: told}), output="left")()


def _shaky() -> Callable[..., Any]:
    tries: list[int] = []

    async def shaky() -> str:
        """Fail twice."""
        tries.append(1)
        if len(tries) < 3:
            raise OSError("shaken")
        return "steady"

    return shaky


def _of_teams() -> Iterator[tuple[str, Story]]:
    yield (
        "a handover",
        Story(
            lambda: agent(to("sales"), sub_agents=[agent("I sell.", "More.", name="sales", description="Sells.")]),
            ("a", "b"),
        ),
    )
    yield (
        "a handover and back",
        Story(lambda: agent(to("sales"), "Back.", sub_agents=[agent(to("desk"), name="sales")])),
    )
    yield "a handover to nobody", Story(lambda: agent(to("nobody"), "sorry", sub_agents=[agent(name="sales")]))
    yield (
        "a handover with a form",
        Story(
            lambda: agent(
                call("transfer_to_agent", agent_name="sales", input={"name": "Rex"}),
                sub_agents=[agent("sold", name="sales", input_schema=Pet)],
            )
        ),
    )
    yield (
        "handovers without end",
        Story(
            lambda: agent(*[to("sales")] * 9, sub_agents=[agent(*[to("desk")] * 9, name="sales")]),
            config=RunConfig(max_transfers=3),
        ),
    )
    yield (
        "one after the other",
        Story(
            lambda: SequentialAgent(
                name="all",
                sub_agents=[
                    agent("one", name="first", output_key="x"),
                    agent("two", name="second", instruction="x is {x}"),
                ],
            )
        ),
    )
    yield (
        "round and round",
        Story(
            lambda: LoopAgent(
                name="loop",
                max_iterations=3,
                sub_agents=[
                    agent("1", "2", "3", name="first"),
                    agent("no", call("exit_loop"), "", name="critic", tools=[exit_loop]),
                ],
            )
        ),
    )
    yield (
        "rounds that are counted",
        Story(lambda: LoopAgent(name="loop", max_iterations=2, sub_agents=[agent("1", "2", name="first")])),
    )


def _of_hooks() -> Iterator[tuple[str, Story]]:
    yield (
        "an agent that is answered for",
        Story(lambda: agent("no", before_agent_callback=lambda callback_context: said("yes"))),
    )
    yield (
        "an agent that is added to",
        Story(lambda: agent("yes", after_agent_callback=lambda callback_context: said("and"))),
    )
    yield "a hook that writes", Story(lambda: agent("ok", before_agent_callback=_writes, after_agent_callback=_writes))
    for hook in ("before_model", "after_model"):
        yield (
            f"a model that is answered for: {hook}",
            Story(partial(agent, "no", **{f"{hook}_callback": cast(Any, _yes)})),
        )
        yield (
            f"a model that a plugin answers for: {hook}",
            Story(lambda: agent("no"), plugins=partial(_answering, hook)),
        )
    yield (
        "a tool that a plugin answers for",
        Story(lambda: tooled(call("add", a=1), "ok"), plugins=lambda: [Watching(before_tool={"x": 1})]),
    )
    yield (
        "a failure that a plugin answers for",
        Story(lambda: tooled(call("fail", why="no"), "ok"), plugins=lambda: [Watching(tool_error={"x": 1})]),
    )
    yield (
        "a model's failure that a plugin answers for",
        Story(lambda: agent(*[BUSY] * 9), plugins=lambda: [Watching(model_error=LlmResponse(content=said("later")))]),
    )
    yield (
        "an answer that is asked for again",
        Story(
            lambda: agent(
                "one",
                "two",
                output_retries=1,
                after_model_callback=lambda callback_context, llm_response: (
                    LlmResponse(content=said("one"), ask_again="Once more.")
                    if llm_response.content.text == "one"
                    else None
                ),
            )
        ),
    )
    yield "a run that a hook ends", Story(lambda: tooled(call("add", a=1), "no", before_model_callback=_ends))
    for text in ("fine", "bad", "card", "again"):
        yield f"a message, guarded: {text}", Story(_guarded, (text, "next"))
        yield (
            f"an answer, guarded: {text}",
            Story(
                partial(_guarding, text),
                ("go", "next"),
                SSE,
            ),
        )
    picture = Part(inline_data=Blob(data=b"ab", mime_type="image/png"))
    yield (
        "an answer with a picture, guarded",
        Story(
            lambda: agent(
                LlmResponse(content=Content(role="model", parts=[Part(text="see a card"), picture])),
                output_guardrails=[Guardrail(careful)],
            )
        ),
    )
    yield (
        "a guarded agent in an agent",
        Story(
            lambda: agent(
                call("helper", request="card"),
                "ok",
                tools=[
                    AgentTool(
                        agent(
                            "a card", "a card", name="helper", input_guardrails=[careful], output_guardrails=[careful]
                        )
                    )
                ],
            )
        ),
    )


def _writes(callback_context: CallbackContext) -> None:
    callback_context.state["count"] = callback_context.state.get("count", 0) + 1


def _ends(callback_context: CallbackContext, llm_request: Any) -> None:
    if len(llm_request.contents) > 1:
        callback_context._invocation.end_invocation = True


# --- workflows


async def told(node_input: Any) -> Any:
    """Hand on what was given, as a text."""
    return node_input.text if isinstance(node_input, Content) else node_input


async def left(node_input: Any) -> Any:
    return f"left of {node_input}"


async def right(node_input: Any) -> Any:
    await trio.sleep(1)
    return f"right of {node_input}"


async def breaks(node_input: Any) -> Any:
    raise ValueError("broken")


def goes(*where: Any) -> Callable[..., Any]:
    routes = list(where)

    async def choose(node_input: Any) -> Event:
        return Event(output="chosen", route=routes.pop(0))

    return choose


async def over(node_input: Any, ctx: InvocationContext) -> Any:
    return await ctx.map(left, ["a", "b", "c"], max_concurrency=2)


async def in_turn(node_input: Any, ctx: InvocationContext) -> Any:
    first = await ctx.run_node(left, "x")
    return await ctx.run_node(right, first)


async def asks(node_input: Any) -> Any:
    return RequestInput(message="What colour?")


def flow(*edges: Any, **fields: Any) -> Callable[[], Workflow]:
    return lambda: Workflow(name="wf", edges=edges, **fields)


def _of_workflows() -> Iterator[tuple[str, Story]]:
    yield "a chain", Story(flow((START, told, left, right)))
    yield "a join", Story(flow((START, told, (left, right), JoinNode(name="both"), node(told, name="last"))))
    for route in ("a", "b", "hm", None, ["a", "b"]):
        yield (
            f"routes: {route}",
            Story(partial(_routed, route)),
        )
    yield "a route that leads nowhere", Story(lambda: flow((START, goes("hm"), {"a": left, "b": END}))())
    yield "a loop", Story(lambda: flow((START, told, goes("again", "again", "done"), {"again": told, "done": left}))())
    yield "a failure that is taken", Story(flow((START, breaks, {FAILED: told, DEFAULT_ROUTE: left})))
    yield "a failure that is not", Story(flow((START, breaks)))
    yield (
        "a node that is tried again",
        Story(
            lambda: flow(
                (START, node(_shaky_node(), name="shaky", retry=RetryConfig(max_attempts=3, initial_delay=1, jitter=0)))
            )()
        ),
    )
    yield "items", Story(flow((START, over, told)))
    yield "nodes that a node runs", Story(flow((START, in_turn)))
    yield "a question", Story(flow((START, asks, told)), ("go", ("blue",)))
    yield "an agent in it", Story(lambda: flow((START, agent("one", output_key="x"), left))())
    yield "a form in it", Story(lambda: flow((START, agent('{"name": "Rex"}', output_schema=Pet), told))())
    yield "a tool in it", Story(lambda: flow((START, node(_given, name="given"), FunctionTool(add), told))())
    yield (
        "a task in it",
        Story(
            lambda: flow(
                (
                    START,
                    agent("What?", call("finish_task", name="Rex"), name="clerk", mode="task", output_schema=Pet),
                    told,
                )
            )(),
            ("order", "a dog"),
        ),
    )
    yield "a workflow in it", Story(lambda: flow((START, Workflow(name="inner", edges=[(START, told, left)]), right))())
    yield "a message from it", Story(flow((START, _says, told)))
    yield (
        "nodes without end",
        Story(lambda: flow((START, told, goes(*["again"] * 99), {"again": told}))(), config=RunConfig(max_node_runs=7)),
    )


async def _given(node_input: Any) -> Any:
    return {"a": 1}


async def _says(node_input: Any) -> Event:
    return Event(message="Working.", output=1, actions=EventActions(state_delta={"k": 1}))


def _shaky_node() -> Callable[..., Any]:
    tries: list[int] = []

    async def shaky(node_input: Any) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("shaken")
        return "steady"

    return shaky


STORIES = dict([*_of_agents(), *_of_tools(), *_of_teams(), *_of_hooks(), *_of_workflows()])


# --- told -------------------------------------------------------------------------------------------------------------


def story(plan: Story) -> list[Any]:
    """Carry a story out, and tell it: run by run, then what the models were asked, what is stored, and all ids."""
    root = plan.root()
    runner = InMemoryRunner(app=App("app", root, plugins=plan.plugins()), auto_create_session=True, env=Fixed())
    runs: list[Any] = []
    models = _models_of(root)

    async def one(message: Any) -> Any:
        seen: list[str] = []
        run = None
        begun = trio.current_time()
        try:
            async with runner.run_async(**PLACE, new_message=message, run_config=plan.config) as run:
                async for event in run:
                    seen.append(f"{0 if plan.has_threads else trio.current_time() - begun:.1f} s: {_event(event)}")
            end = [str(run.status), None if run.answer is None else _event(run.answer)]
            end += [f"{each.kind} of {each.name}: {each.hint}" for each in run.pending]
        except Exception as error:
            end = [f"{type(error).__name__}: {error}"]
        runs.append({"seen": seen, "end": end})
        return run

    async def main() -> list[Event]:
        run = None
        for message in plan.says:
            if isinstance(message, tuple):
                assert run is not None
                message = run.pending[0].reply(message[0])
            run = await one(message)
        return await runner.session_service.read_events(app_name="app", **PLACE, after_seq=0)

    logging.disable(logging.CRITICAL)
    try:
        with seeded_trio(0):
            log = trio.run(main, clock=None if plan.has_threads else MockClock(autojump_threshold=0))
    finally:
        logging.disable(logging.NOTSET)
    asked = {model.name: [_request(request) for request in model.requests] for model in models if model.requests}
    seen = {line.partition(": ")[2] for run in runs for line in run["seen"]}
    stored = [line if (line := _event(event)) not in seen else f"({event.author})" for event in log]
    found: list[Any] = json.loads(_without_ids(json.dumps([*runs, {"asked": asked}, {"stored": stored}])))
    ids = " ".join(f"{event.id} {event.invocation_id} {_calls_of(event)} {event.branch}" for event in log)
    return [*found, {"ids": blake2b(ids.encode(), digest_size=8).hexdigest()}]


def _calls_of(event: Event) -> list[str | None]:
    return [*(each.id for each in event.get_function_calls()), *(each.id for each in event.get_function_responses())]


def _models_of(root: Any) -> list[ScriptedLlm]:
    found, todo, known = [], [root], set()
    while todo:
        each = todo.pop()
        if id(each) in known or isinstance(each, (str, bytes)):
            continue
        known.add(id(each))
        if isinstance(each, ScriptedLlm):
            found.append(each)
        for name in ("model", "sub_agents", "tools", "agent", "edges", "nodes"):
            inner = getattr(each, name, None)
            todo += list(inner) if isinstance(inner, (list, tuple)) else [inner] if inner is not None else []
        if isinstance(each, (list, tuple)):
            todo += list(each)
        elif isinstance(each, dict):
            todo += list(each.values())
    return sorted(found, key=lambda model: model.name)


def _without_ids(text: str) -> str:
    known: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return known.setdefault(found[0], f"id{len(known) + 1}")

    text = re.sub(r"\b\d{10}\.\d+\b", "some time", text)
    return re.sub(r"\b(?:[a-z]+-)?[0-9a-f]{24,}\b|~[0-9a-f]{8}\b", named, text)


def parts_told(parts: Any) -> str:
    found = []
    for part in parts:
        if part.function_call is not None:
            found.append(f"{part.function_call.name}({part.function_call.id}, {dict(part.function_call.args)})")
        elif part.function_response is not None:
            answer = part.function_response
            found.append(f"{answer.name}({answer.id}) = {dict(answer.response)}")
        elif part.inline_data is not None:
            found.append(f"<{len(part.inline_data.data)} bytes>")
        elif part.executable_code is not None:
            found.append(f"{part.executable_code.language} {part.executable_code.code!r}")
        elif part.code_execution_result is not None:
            found.append(f"{part.code_execution_result.outcome} {part.code_execution_result.output!r}")
        else:
            found.append(f"({part.text!r})" if part.thought else repr(part.text))
    return " ".join(found)


def _event(event: Event) -> str:
    words = [f"{event.author}:", parts_told(event.content.parts) if event.content is not None else "-"]
    for field in attrs.fields(Event):
        if field.name in ("id", "author", "content", "timestamp", "seq", "actions", "invocation_id", "usage_metadata"):
            continue
        value = getattr(event, field.name)
        if value is not None and value != field.default and value not in ((), {}, [], False):
            words.append(f"{field.name}={_plain(value)}")
    for field in attrs.fields(EventActions):
        value = getattr(event.actions, field.name)
        if value not in (None, (), {}, [], False) and (told := _plain(value)) != {}:
            words.append(f"{field.name}={told}")
    return " ".join(words)


def _plain(value: Any) -> Any:
    if attrs.has(type(value)):
        fields = {
            field.name: (getattr(value, field.name), field.default) for field in attrs.fields(type(value)) if field.init
        }
        return {
            name: _plain(each)
            for name, (each, default) in fields.items()
            if each is not None and each != default and each not in ((), {}, [])
        }
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _request(request: Any) -> str:
    contents = [f"{content.role}: {parts_told(content.parts)}" for content in request.contents]
    config = _plain(request.config)
    tools = [
        f"{tool['name']}({', '.join(tool.get('parameters', {}).get('properties', {}))})"
        for tool in config.pop("tools", ())
    ]
    return json.dumps([contents, tools, config], ensure_ascii=False, default=str)


if __name__ == "__main__":
    write("runs/stories", {name: story(plan) for name, plan in STORIES.items()}, 4)
