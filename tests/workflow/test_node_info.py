"""Which run of which agent or node has said an event, whose outcome it is, and which route it takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minirun import (
    App,
    BaseAgent,
    Event,
    EventActions,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SequentialAgent,
    StreamingMode,
)
from minirun._codec import from_json, to_json
from minirun._values import changed
from minirun.credentials import AuthCredential
from minirun.credentials._secrets import HIDDEN, Secrets
from minirun.errors import InvalidValueError, NotSupportedError
from minirun.events import NO_NODE, NodeInfo, Replay
from minirun.plugins import BasePlugin
from minirun.sessions import InvocationStatus
from minirun.sessions._node_runs import node_runs
from minirun.testing import ScriptedLlm, call
from minirun.tools import AgentTool

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events
from ..runtime.test_resume import SCENARIOS, cut_after, log_of, runner_of

FIXTURES = Path(__file__).parents[1] / "fixtures"


def llm(name: str, *answers: Any, **fields: Any) -> LlmAgent:
    """An agent whose model gives these answers."""
    return LlmAgent(name=name, model=ScriptedLlm(list(answers)), **fields)


def double(n: int) -> int:
    """Double."""
    return 2 * n


def paths_of(events: list[Event]) -> list[str]:
    return [event.node_info.path for event in events]


def in_node(*output_for: str, path: str = "wf@1/ask@1", **fields: Any) -> Event:
    """What a node run says."""
    return Event(author="wf", node_info=NodeInfo(path=path, output_for=output_for), **fields)


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_path_tells_the_runs() -> None:
    """A path ends with the node's name and its run; the run of what it was run by stands before."""
    info = NodeInfo(path="wf@2/inner@1/ask@call-7")
    assert (info.name, info.run_id, info.parent_run_id) == ("ask", "call-7", "1")
    assert [NodeInfo(path=path).parent_run_id for path in ("", "root@1", "alone")] == ["", "", ""]


def test_no_outcome_is_not_the_same_as_outside_of_node_runs() -> None:
    """An empty `output_for` is written and read again as such; None is not written at all."""
    for said, stored in ((None, {"path": "n@1"}), ([], {"path": "n@1", "output_for": []})):
        event = Event(author="a", node_info=NodeInfo(path="n@1", output_for=said))
        assert json.loads(to_json(event))["node_info"] == stored
        found = from_json(Event, to_json(event))
        assert (found, found.node_info.output_for) == (event, None if said is None else ())


def test_what_was_stored_without_the_new_fields_reads_as_before() -> None:
    """Of an event of an earlier version nothing is said of outcomes; what a later version adds is kept."""
    old = from_json(Event, '{"author":"a","node_info":{"path":"n"},"actions":{"replay":{"aside":true}}}')
    assert old.node_info == NodeInfo(path="n", output_for=None, message_as_output=None)
    assert (old.actions.replay.ended, old.actions.replay.attempt) == (None, None)
    line = {
        "author": "a",
        "node_info": {"path": "n@1", "output_for": ["n@1"], "message_as_output": True, "later": 1},
        "actions": {"replay": {"ended": "run/n@1", "attempt": {"run": "run/n@1", "number": 2, "due": 5.5}, "later": 2}},
    }
    assert json.loads(to_json(from_json(Event, json.dumps(line)))) == line


def test_files_of_today_have_events_of_no_node() -> None:
    """In a log of the version before, no event has a `node_info`, and it is written as it was read."""
    lines = json.loads((FIXTURES / "interrupted-1.json").read_text("utf-8"))
    stored = [each for each in _dicts(lines) if "author" in each and "seq" in each]
    assert stored
    for each in stored:
        event = from_json(Event, json.dumps(each))
        assert event.node_info is NO_NODE
        assert json.loads(to_json(event)) == each


def _dicts(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)
    if isinstance(value, dict):
        return [value, *(found for each in value.values() for found in _dicts(each))]
    return [found for each in value for found in _dicts(each)] if isinstance(value, list) else []


FINAL = [
    (Event(author="a", message="x", node_info=NodeInfo(path="root@1")), True),
    (in_node(message="x"), False),
    (in_node("wf@1/ask@1", output=1), False),
    (in_node("wf@1/ask@1", "wf@1", output=1), True),
    (in_node("wf@1/ask@1", "wf@1"), True),
    (in_node(actions=EventActions(skip_summarization=True)), False),
    (in_node(state={"a": 1}), False),
    (in_node(long_running_tool_ids=["c"]), True),
    (in_node(error_code="X"), False),
]


@pytest.mark.parametrize(("event", "is_final"), FINAL)
def test_of_a_node_run_only_what_its_workflow_ends_with_is_final(event: Event, is_final: bool) -> None:
    """A message, a state change or the outcome of a node in the middle is not final; a question stays so (W36)."""
    assert event.is_final_response() is is_final


def test_a_secret_is_taken_out_of_a_failed_attempt() -> None:
    """What the attempt failed with is searched; which run it was, and when the next begins, are left as they are."""
    secrets = Secrets()
    secrets.know(AuthCredential("custom", token="s3cret-t0ken", number="1700000000"))
    attempt = {"run": "run/s3cret-t0ken@1", "number": 1, "due": 1700000000, "message": "no s3cret-t0ken here"}
    event = Event(author="a", actions=EventActions(replay=Replay(attempt=attempt)))
    found = secrets.out_of_event(event).actions.replay.attempt
    assert found == {**attempt, "message": f"no {HIDDEN} here"}
    harmless = Event(author="a", actions=EventActions(replay=Replay(attempt={"run": "r", "number": 1, "due": 1.0})))
    assert secrets.out_of_event(harmless) is harmless


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", [True, False, 0, 3, "urgent", "", ["a", 1, True], []])
def test_a_route_is_short_for_an_action(route: Any) -> None:
    """`Event(route=...)` is `actions.route`, beside other actions."""
    event = Event(author="a", route=route, state={"k": 1}, actions=EventActions(escalate=True))
    assert event.actions == EventActions(route=route, state_delta={"k": 1}, escalate=True)


@pytest.mark.parametrize("route", [1.5, {"a": 1}, ["a", 1.5], ["a", None], [["a"]], object()])
def test_what_is_no_route_is_refused(route: Any) -> None:
    """Only bools, ints, strings and lists of them can be compared with the routes of edges."""
    with pytest.raises(InvalidValueError, match=r"Event\.route: expected a bool, an int, a string or a list of them"):
        Event(author="a", route=route)


def test_two_routes_are_refused() -> None:
    """It is given in one of two ways."""
    with pytest.raises(InvalidValueError, match=r"Event\.route: it is short for actions\.route"):
        Event(author="a", route="a", actions=EventActions(route="a"))


async def test_a_route_is_refused_outside_of_node_runs() -> None:
    """What a plain agent emits, or somebody appends, takes no route; what a node run says, does."""
    refusals: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        for event in (Event(route="x"), in_node(actions=EventActions(route={"a": 1}))):
            try:
                await ctx.emit(event)
            except (NotSupportedError, InvalidValueError) as error:
                refusals.append(str(error))
        await ctx.emit(in_node("wf@1/ask@1", route=["x", 2], output="kept"))

    runner = runner_for(logic)
    events, _ = await run_to_end(runner)
    assert [(event.output, event.actions.route) for event in events] == [("kept", ["x", 2])]
    assert [refusal.partition(":")[0] for refusal in refusals] == [
        "EventActions.route has no effect outside of a Workflow", "EventActions.route",
    ]  # fmt: skip
    assert "expected a bool, an int, a string or a list of them" in refusals[1]
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    with pytest.raises(NotSupportedError, match="has no effect outside of a Workflow"):
        await runner.session_service.append_event(session, Event(author="a", route="x"))


# --- what is filled in ------------------------------------------------------------------------------------------------


async def test_all_that_an_agent_says_has_its_path() -> None:
    """Answers, calls, responses and fragments are of `root@1` in each invocation; what the user says is of nobody."""
    agent = llm("root", call("double", n=2), ["fo", "ur"], "again", tools=[double])
    runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
    shown: list[Event] = []
    for _ in range(2):
        events, _run = await run_to_end(runner, run_config=RunConfig(streaming_mode=StreamingMode.SSE))
        shown += events
    assert set(paths_of(shown)) == {"root@1"}
    assert any(event.partial for event in shown)
    stored = await stored_events(runner)
    assert [event.author == "user" for event in stored] == [event.node_info is NO_NODE for event in stored]
    assert all(event.node_info.output_for is None for event in stored)


async def test_agents_that_run_others_stand_above_them() -> None:
    """The number is how often an agent was run below that parent."""
    loop = LoopAgent(name="loop", sub_agents=[llm("writer", "1", "2")], max_iterations=2)
    lanes = ParallelAgent(name="lanes", sub_agents=[llm("p", "x"), llm("q", "x")])
    tree = SequentialAgent(name="seq", sub_agents=[loop, lanes])
    events, _ = await run_to_end(runner_for(tree))
    assert sorted(paths_of(events)) == [
        "seq@1/lanes@1/p@1", "seq@1/lanes@1/q@1", "seq@1/loop@1/writer@1", "seq@1/loop@1/writer@2",
    ]  # fmt: skip


async def test_who_was_handed_to_stands_below_those_above_it() -> None:
    """There and back again is the second run of the root; a message that the sub-agent answers has the same path."""
    sub = llm("sub", call("transfer_to_agent", agent_name="root"), "kept", "next turn")
    there = call("transfer_to_agent", agent_name="sub")
    runner = runner_for(llm("root", there, there, sub_agents=[sub]))
    events, _ = await run_to_end(runner)
    assert paths_of(events) == [
        "root@1", "root@1", "root@1/sub@1", "root@1/sub@1", "root@2", "root@2", "root@2/sub@2",
    ]  # fmt: skip
    events, _ = await run_to_end(runner)
    assert [(event.text, event.node_info.path) for event in events] == [("next turn", "root@1/sub@1")]


async def test_inside_of_a_call_the_run_is_the_call() -> None:
    """An agent as a tool is `helper@<call id>`, and what it hands to, or runs, stands below."""
    helper = llm("helper", call("transfer_to_agent", agent_name="deep"), sub_agents=[llm("deep", "found")])
    root = llm("root", call("helper", request="x"), "done", tools=[AgentTool(helper)])
    events, _ = await run_to_end(runner_for(root))
    [made] = events[0].get_function_calls()
    inside = [event.node_info.path for event in events if event.branch is not None]
    assert inside == [f"root@1/helper@{made.id}"] * 2 + [f"root@1/helper@{made.id}/deep@1"]
    assert {event.node_info.path for event in events if event.branch is None} == {"root@1"}


async def test_inside_of_a_call_each_level_stands_once() -> None:
    """Only the agent that is the tool is named by the call; those that it runs are as elsewhere."""
    middle = SequentialAgent(name="middle", sub_agents=[llm("leaf", "found")])
    helper = SequentialAgent(name="helper", sub_agents=[middle])
    root = llm("root", call("helper", request="x"), "done", tools=[AgentTool(helper)])
    events, _ = await run_to_end(runner_for(root))
    [made] = events[0].get_function_calls()
    assert [event.node_info.path for event in events if event.author == "leaf"] == [
        f"root@1/helper@{made.id}/middle@1/leaf@1"
    ]


async def test_an_agent_that_is_in_no_tree_stands_below_who_runs_it() -> None:
    """Agents that are made at run time, and agents of another place, are simply run by the one that calls them."""

    async def logic(ctx: InvocationContext) -> None:
        await llm("made", "x").run_async(ctx)
        beside = ctx.root_agent.find_agent("beside")
        assert beside is not None
        await beside.run_async(ctx)

    tree = SequentialAgent(name="seq", sub_agents=[Logic(name="custom", logic=logic), llm("beside", "y", "z")])
    events, _ = await run_to_end(runner_for(tree))
    assert paths_of(events) == ["seq@1/custom@1/made@1", "seq@1/custom@1/beside@1", "seq@1/beside@1"]


async def test_an_event_keeps_the_node_that_it_names() -> None:
    """What carries a `node_info` is not given another; the agent's own does not change by it."""
    own = NodeInfo(path="other@3", message_as_output=True)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="a", node_info=own))
        await ctx.emit(Event(message="b"))

    events, _ = await run_to_end(runner_for(logic))
    assert [event.node_info for event in events] == [own, NodeInfo(path="agent@1")]


async def test_an_agent_as_a_node_says_no_outcome() -> None:
    """Run as a node, it has the node's path, and neither its words nor those below it are final."""
    writer = SequentialAgent(name="writer", sub_agents=[llm("child", "words")])

    async def logic(ctx: InvocationContext) -> None:
        node = NodeInfo(path="wf@1/writer@3", output_for=())
        await writer.run_async(ctx._at(ctx._state, node_info=node, node_of=writer))
        await ctx.emit(Event(message="outside"))

    events, _ = await run_to_end(runner_for(logic))
    assert [(event.node_info, event.is_final_response()) for event in events] == [
        (NodeInfo(path="wf@1/writer@3/child@1", output_for=()), False), (NodeInfo(path="agent@1"), True),
    ]  # fmt: skip


@pytest.mark.parametrize("build", SCENARIOS, ids=lambda build: build.__name__)
async def test_an_invocation_of_the_version_before_goes_on(build: Callable[[], BaseAgent]) -> None:
    """
    What was stored without a node stays so, and what is new has the paths that it would have had.

    That a log cut off anywhere comes to the same paths is looked at in `test_resume`.
    """
    undisturbed = runner_of(build())
    async with undisturbed.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    log = await log_of(undisturbed)
    paths = {event.id: event.node_info.path for event in log}
    service = await cut_after([changed(event, node_info=NO_NODE) for event in log], len(log) // 2)
    runner = runner_of(build(), service)
    async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
        fresh = [event async for event in run]
    assert run.status == "completed"
    new = {event.id for event in fresh}
    assert {event.node_info.path for event in await log_of(runner) if event.id not in new} == {""}
    known = [event for event in fresh if event.id in paths]
    assert known
    assert [event.node_info.path for event in known] == [paths[event.id] for event in known]


# --- hooks ------------------------------------------------------------------------------------------------------------


def forged_new(event: Event) -> Event:
    """Another event, with other marks."""
    forged = NodeInfo(path="wf@1/other@1", output_for=["wf@1/other@1", "wf@1"])
    actions = EventActions(route="elsewhere", replay=Replay(ended="run/other"))
    return Event(author="evil", node_info=forged, actions=actions)


def forged_same(event: Event) -> Event:
    """The same event with other marks."""
    forged = forged_new(event)
    return changed(event, node_info=forged.node_info, actions=forged.actions)


def stripped(event: Event) -> Event:
    """The same event without any marks."""
    return changed(event, node_info=NO_NODE, actions=EventActions())


class Forger(BasePlugin):
    """Answers each event with what *forge* makes of it."""

    def __init__(self, forge: Callable[[Event], Event]) -> None:
        super().__init__(name="forger")
        self.forge = forge

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        return self.forge(event)


def forging(forge: Callable[[Event], Event], event: Event) -> Runner:
    """A runner whose agent emits *event*, and whose plugin forges it."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(event)

    app = App(name="app", root_agent=Logic(name="agent", logic=logic), plugins=[Forger(forge)])
    return InMemoryRunner(app=app, auto_create_session=True)


@pytest.mark.parametrize("forge", [forged_new, forged_same, stripped])
@pytest.mark.parametrize("output_for", [[], ["wf@1/ask@1"], ["wf@1/ask@1", "wf@1"]])
async def test_no_hook_forges_an_outcome(forge: Callable[[Event], Event], output_for: list[str]) -> None:
    """Whose outcome an event is, which route it takes and that its run has ended stay as the runtime has said."""
    actions = EventActions(route="here", replay=Replay(ended="run/ask@1"))
    runner = forging(forge, in_node(*output_for, output=1, actions=actions))
    events, _ = await run_to_end(runner)
    stored = await stored_events(runner)
    for event in (events[0], stored[-1]):
        assert event.node_info == NodeInfo(path="wf@1/ask@1", output_for=output_for)
        assert (event.actions.route, event.actions.replay) == ("here", Replay(ended="run/ask@1"))


@pytest.mark.parametrize("forge", [forged_new, forged_same])
async def test_no_hook_sends_a_node_elsewhere(forge: Callable[[Event], Event]) -> None:
    """A route that a node did not take is not added to its outcome."""
    events, _ = await run_to_end(forging(forge, in_node("wf@1/ask@1", output=1)))
    assert (events[0].actions.route, events[0].actions.replay) == (None, Replay())


async def test_no_hook_gives_a_plain_agent_a_route() -> None:
    """It is refused as one of the agent's own is, and the event is not stored."""
    runner = forging(forged_same, Event(message="x"))
    with pytest.raises(NotSupportedError, match="has no effect outside of a Workflow"):
        await run_to_end(runner)
    assert "x" not in [event.text for event in await stored_events(runner)]


@pytest.mark.parametrize("forge", [forged_new, forged_same, stripped])
async def test_no_hook_changes_who_says_a_fragment(forge: Callable[[Event], Event]) -> None:
    """A partial event is of the node run that shows it, and no more final than before."""
    events, _ = await run_to_end(forging(forge, in_node(message="x", partial=True)))
    assert [(event.node_info.path, event.is_final_response()) for event in events] == [("wf@1/ask@1", False)]


@pytest.mark.parametrize(
    ("branch", "shown"),
    [
        ("wf.fetch", "wf@1/fetch@1"),
        ("wf.fetch#2", "wf@1/fetch@1/in@3/fetch@2"),
        ("wf.fetch~2", "wf@1/fetch@1/in@3/fetch@2"),
        ("wf.fetch#2*1", "wf@1/fetch@1/in@3/fetch@2"),
        ("in#3", "wf@1/fetch@1/in@3"),
        ("wf", "wf@1"),
        ("wf.other", None),
        (None, None),
    ],
)
def test_what_a_node_only_says_is_of_the_innermost_run_of_its_branch(branch: str | None, shown: str | None) -> None:
    """The last part of the branch names the run; one that does not stand on the path is none."""
    said = Event(
        author="a",
        message="x",
        invocation_id="e-1",
        branch=branch,
        node_info=NodeInfo(path="wf@1/fetch@1/in@3/fetch@2", output_for=[]),
    )
    found = node_runs([said], "e-1", InvocationStatus.RUNNING)
    assert [(one.path, one.status, one.attempts) for one in found] == ([(shown, "running", 1)] if shown else [])
    assert node_runs([said], "e-2", InvocationStatus.RUNNING) == []
