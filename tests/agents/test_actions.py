"""
Actions of a context: checked when they are set, carried by the next event, refused where nothing would come of them.

The lists in this file are made to fail for a new field that was forgotten in one of the places that look at fields.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import attrs
import pytest

from minirun import App, Event, EventActions, InMemoryRunner, LlmAgent, Runner, ToolContext
from minirun.credentials._secrets import _FREE
from minirun.errors import InvalidValueError, InvocationEndedError, NotSupportedError
from minirun.events import Replay
from minirun.flows._actions import ActionsDraft, over_turn
from minirun.models import LlmResponse
from minirun.plugins import BasePlugin
from minirun.sessions import SqliteSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool
from minirun.types import Content

from .. import strategies
from ..helpers import PLACE

FIELDS = [field.name for field in attrs.fields(ActionsDraft) if not field.name.startswith("_")]
FLAGS = ["skip_summarization", "escalate", "transfer_to_agent"]

WRONG: dict[str, list[Any]] = {
    "skip_summarization": [5, 1, 0, "yes", object()],
    "escalate": [5, 1, "", [], object()],
    "transfer_to_agent": [5, True, b"helper", "\ud800", object()],
    "artifact_delta": [
        5, None, "a", [], {"a": "1"}, {"a": True}, {"a": -1}, {"a": 1.0}, {"a": None}, {1: 1}, {"a": object()},
    ],
}  # fmt: skip
RIGHT: dict[str, Any] = {
    "skip_summarization": True,
    "escalate": True,
    "transfer_to_agent": "helper",
    "artifact_delta": {"a.md": 1},
}


# --- checked when they are set ----------------------------------------------------------------------------------------


def test_every_field_of_a_draft_has_values_that_are_tried() -> None:
    """The lists of this file name every field that a program may set, and every flag."""
    assert FIELDS == list(WRONG) == list(RIGHT)
    assert list(over_turn([])) == FLAGS


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_value_is_refused_where_it_is_assigned(name: str) -> None:
    """The error names the field and says what it expects; the draft is as before, and so it is for a new draft."""
    for value in WRONG[name]:
        draft = ActionsDraft()
        with pytest.raises(InvalidValueError, match=rf"^actions\.{name}.*expected") as info:
            setattr(draft, name, value)
        assert info.value.path.startswith(f"actions.{name}")
        assert draft == ActionsDraft()
        with pytest.raises(InvalidValueError):
            ActionsDraft(**{name: value})


@pytest.mark.parametrize("name", FIELDS)
def test_a_right_value_is_kept_and_can_be_taken_back(name: str) -> None:
    """What is assigned is in the event's actions; the default takes it back."""
    draft = ActionsDraft()
    default = getattr(draft, name)
    setattr(draft, name, RIGHT[name])
    assert draft.changes_to(EventActions())[name] == RIGHT[name]
    EventActions(**draft.changes_to(EventActions()))  # the event itself finds nothing to refuse
    setattr(draft, name, default)
    assert draft.is_empty()


def test_artifact_names_cannot_change_behind_the_check() -> None:
    """A dict that was assigned is copied, and the copy is frozen, like the empty one."""
    draft, named = ActionsDraft(), {"a.md": 1}
    draft.artifact_delta = named
    named["b.md"] = "x"  # type: ignore[assignment]
    assert draft.artifact_delta == {"a.md": 1}
    for each in (draft, ActionsDraft()):
        with pytest.raises(TypeError):
            each.artifact_delta["b.md"] = object()  # type: ignore[index]


async def tried(path: Path, attempt: Any, where: str) -> list[str]:
    """Let a callback or tool try something; return what it was refused with. The file is opened again after it."""
    errors: list[str] = []

    def trial(context: Any) -> None:
        try:
            attempt(context)
        except (InvalidValueError, AttributeError, TypeError) as error:
            errors.append(str(error))

    class Plugin(BasePlugin):
        async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> None:
            if where == "on_user_message_callback":
                trial(invocation_context)

        async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
            if where == "on_event_callback":
                trial(invocation_context)

    def work(tool_context: ToolContext) -> str:
        """Work."""
        if where == "tool":
            trial(tool_context)
        return "done"

    def hook(name: str) -> Any:
        return {name: (lambda *_, **given: trial(given.get("callback_context") or given["tool_context"]))}

    hooks = hook(where) if where.startswith(("before", "after")) else {}
    agent = LlmAgent(name="agent", model=ScriptedLlm([call("work"), "bye"]), tools=[work], **hooks)
    async with SqliteSessionService(path, durability="process") as sessions:
        runner = Runner(
            app=App("app", agent, plugins=[Plugin("plugin")]), session_service=sessions, auto_create_session=True
        )
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    async with SqliteSessionService(path, durability="process") as sessions:
        assert await sessions.get_session(app_name="app", **PLACE) is not None
        for event in await sessions.read_events(app_name="app", **PLACE, after_seq=0):
            assert event.actions == EventActions(replay=event.actions.replay)
    return errors


PLACES = [
    "tool", "before_agent_callback", "after_agent_callback", "before_model_callback", "after_model_callback",
    "before_tool_callback", "after_tool_callback", "on_event_callback", "on_user_message_callback",
]  # fmt: skip


@pytest.mark.parametrize("where", PLACES)
async def test_no_wrong_value_reaches_the_store(tmp_path: Path, where: str) -> None:
    """Whoever assigns it, a tool or a hook: it is refused there, and the file can be read afterwards."""

    def attempt_of(name: str, value: object) -> Any:
        return lambda context: setattr(context.actions, name, value)

    def put(context: Any) -> None:
        context.actions.requested_auth_configs["tool"] = object()

    def replace(context: Any) -> None:
        context.actions = EventActions(escalate=True)

    attempts = [attempt_of(name, WRONG[name][0]) for name in FIELDS]
    attempts += [attempt_of("artifact_delta", {"a": "1"}), attempt_of("requested_auth_configs", {}), put, replace]

    def all_of_them(context: Any) -> None:
        seen = []
        for attempt in attempts:
            with pytest.raises((InvalidValueError, AttributeError)) as info:
                attempt(context)
            seen.append(info.value)
        raise TypeError(f"{len(seen)} were refused")

    found = await tried(tmp_path / "sessions.db", all_of_them, where)
    assert found
    assert set(found) == {f"{len(attempts)} were refused"}


def test_what_hooks_return_is_checked_where_it_is_made() -> None:
    """An event, its actions and a model's answer refuse an object in any field, and can be changed by nobody."""
    values: list[Any] = [Event, EventActions, LlmResponse, Replay]
    for cls in values:
        value = cls()
        for field in attrs.fields(cls):
            with pytest.raises((InvalidValueError, TypeError)):
                cls(**{field.name: object()})
            with pytest.raises(AttributeError):
                setattr(value, field.name, object())


# --- refused where nothing would come of them -------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLAGS)
async def test_a_flag_for_a_users_message_is_refused(name: str) -> None:
    """It would be in no event; the run fails before anything is stored, and the error says where to set it."""

    class Plugin(BasePlugin):
        async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> None:
            setattr(invocation_context.actions, name, RIGHT[name])

    agent = LlmAgent(name="agent", model=ScriptedLlm(["hello"]))
    runner = InMemoryRunner(app=App("app", agent, plugins=[Plugin("plugin")]), auto_create_session=True)
    with pytest.raises(NotSupportedError, match=rf"a user's message, found actions\.{name}; set them in an agent"):
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    assert await runner.session_service.read_events(app_name="app", **PLACE, after_seq=0) == []


@pytest.mark.parametrize("name", FLAGS)
async def test_a_flag_of_a_call_that_waits_is_refused(name: str) -> None:
    """The pause ends the turn, so nothing would come of it: the call is answered with an error that says so."""

    def order(tool_context: ToolContext) -> str:
        """Order."""
        setattr(tool_context.actions, name, RIGHT[name])
        tool_context.state["ordered"] = True
        return "ordered"

    model = ScriptedLlm([call("order"), "sorry"])
    helper = LlmAgent(name="helper", model=ScriptedLlm([]), description="Helps.")
    agent = LlmAgent(name="agent", model=model, tools=[LongRunningFunctionTool(order)], sub_agents=[helper])
    runner = InMemoryRunner(app=App("app", agent), auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert run.pending == []
    events = await runner.session_service.read_events(app_name="app", **PLACE, after_seq=0)
    [response] = [response for event in events for response in event.get_function_responses()]
    assert f"found actions.{name}" in str(response.response)
    assert "set them in a tool that returns its result" in str(response.response)
    assert not any(getattr(event.actions, name) for event in events)
    assert events[-1].text == "sorry"


# --- one table --------------------------------------------------------------------------------------------------------


def test_flags_of_a_turn_come_together_by_their_rules() -> None:
    """All calls have to skip the summary; one that escalates is enough; the last transfer counts."""
    one = ActionsDraft(skip_summarization=True, escalate=True, transfer_to_agent="a")
    two = ActionsDraft(skip_summarization=True, transfer_to_agent="b")
    assert over_turn([one, two]) == {"skip_summarization": True, "escalate": True, "transfer_to_agent": "b"}
    assert over_turn([one, two, ActionsDraft()]) == {
        "skip_summarization": None, "escalate": True, "transfer_to_agent": "b",
    }  # fmt: skip
    merged = ActionsDraft(escalate=True)
    merged.merge_flags([two])
    assert merged == two
    merged.take()
    assert merged.is_empty()


# --- lists that a new field has to be in ------------------------------------------------------------------------------

REFERENCES: dict[str, Any] = {
    "suspended_calls": ["c"],
    "artifact_delta": {"a": 1},
    "artifact_versions": {"a": [1]},
    "requested_auth_configs": {"a": 1},
    "requested_tool_confirmations": {"a": 1},
    "compaction": {},
    "rewind_before_invocation_id": "i",
    "rewind_before_seq": 1,
    "agent_state": {"a": 1},
    "end_of_agent": True,
    "route": "a",
    "render_ui_widgets": "a",
}
# State, or looked at by the runtime itself, or by nobody.
OTHERS: dict[str, Any] = {
    "state_delta": {"a": 1},
    "state_removed": ["a"],
    "state_ops": {"a": {"add": 1}},
    "state_conflicts": ["a"],
    "replay": Replay(early=True),
    "transfer_to_agent": "a",
    "escalate": True,
    "skip_summarization": True,
    "end_invocation": True,
    "unknown_fields": {"new": 1},
}


def names_of(cls: Any) -> set[str]:
    """The names of the fields of a value."""
    return {field.name for field in attrs.fields(cls)}


def test_only_actions_that_refer_to_nothing_are_not_looked_at() -> None:
    """Each field is known here as one that is looked at before it is stored, or as one that need not be."""
    assert names_of(EventActions) == REFERENCES.keys() | OTHERS.keys()
    assert [name for name, value in REFERENCES.items() if EventActions(**{name: value}).is_only_state] == []
    assert [name for name, value in OTHERS.items() if not EventActions(**{name: value}).is_only_state] == []


# Names, ids, kinds and numbers, which are no place for a secret; those of calls and artifacts are refused instead.
NO_TEXT = {
    Event: {
        "id", "invocation_id", "author", "seq", "timestamp", "branch", "partial", "turn_complete", "finish_reason",
        "error_code", "interrupted", "live", "long_running_tool_ids", "usage_metadata", "node_info", "model_version",
    },
    EventActions: {
        "state_removed", "state_conflicts", "suspended_calls", "artifact_delta", "artifact_versions",
        "transfer_to_agent", "escalate", "skip_summarization", "end_invocation", "requested_auth_configs",
        "compaction", "rewind_before_invocation_id", "rewind_before_seq", "end_of_agent",
    },
}  # fmt: skip


@pytest.mark.parametrize("cls", NO_TEXT)
def test_every_field_of_an_event_is_searched_for_secrets_or_known_to_have_none(cls: type) -> None:
    """A field stands in one of two lists: those that are free to say, and names, ids, kinds and numbers."""
    free = set(_FREE[cls])
    assert names_of(cls) == free | NO_TEXT[cls]
    assert not free & NO_TEXT[cls]


@pytest.mark.parametrize("cls", [Event, EventActions, Replay])
def test_every_field_of_an_event_is_made_by_the_strategies(cls: type) -> None:
    """What is generated has something in each field, so that what is written and read again is all of it."""
    calls = [node for node in ast.walk(ast.parse(Path(strategies.__file__).read_text())) if isinstance(node, ast.Call)]
    [made] = [call for call in calls if call.args and ast.unparse(call.args[0]) == cls.__name__]
    assert {keyword.arg for keyword in made.keywords} == names_of(cls)


# --- state_delta ------------------------------------------------------------------------------------------------------


async def state_after(agent: LlmAgent, *plugins: BasePlugin, state: dict[str, Any] | None = None) -> dict[str, Any]:
    """The state that is stored after one run of the agent, and what the run has of `temp:` keys."""
    async with InMemoryRunner(app=App("app", agent, plugins=plugins)) as runner:
        await runner.session_service.create_session(app_name="app", **PLACE, state=state)
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
        assert (run.status, run.failed_calls) == ("completed", {})
        temp = {key: value for key, value in run.session.state.items() if key.startswith("temp:")}
        session = await runner.session_service.get_session(app_name="app", **PLACE)
        assert session is not None
        return {**session.state, **temp}


@pytest.mark.parametrize("where", [
    "tool", "sync tool", "before_agent_callback", "after_agent_callback", "before_model_callback",
    "after_model_callback", "before_tool_callback", "after_tool_callback", "on_event_callback",
    "on_user_message_callback", "before_run_callback", "after_run_callback",
])  # fmt: skip
async def test_what_is_put_into_state_delta_is_stored(where: str) -> None:
    """In tools, in worker threads too, and in callbacks and plugins it is a write to the state of the same context."""

    def write(context: Any) -> None:
        delta = context.actions.state_delta
        delta["a"] = [1]
        delta.update({"user:b": 2, "temp:c": 3})
        assert (context.state["a"], context.state["user:b"], context.state["temp:c"]) == ([1], 2, 3)

    async def tool(tool_context: ToolContext) -> str:
        """Work."""
        if where == "tool":
            write(tool_context)
        return "done"

    def sync_tool(tool_context: ToolContext) -> str:
        """Work in a thread."""
        if where == "sync tool":
            write(tool_context)
        return "done"

    class Plugin(BasePlugin):
        async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> None:
            if where == "on_user_message_callback":
                write(invocation_context)

        async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
            if where == "on_event_callback":
                write(invocation_context)

        async def before_run_callback(self, *, invocation_context: Any) -> None:
            if where == "before_run_callback":
                write(invocation_context)

        async def after_run_callback(self, *, invocation_context: Any) -> None:
            if where == "after_run_callback":
                write(invocation_context)

    def hook(**given: Any) -> None:
        write(given.get("callback_context") or given["tool_context"])

    hooks: dict[str, Any] = {}
    if where.endswith(("agent_callback", "model_callback", "tool_callback")):
        hooks[where] = lambda *_, **given: hook(**given)
    model = ScriptedLlm([[call("tool"), call("sync_tool")], "bye"])
    agent = LlmAgent(name="agent", model=model, tools=[tool, sync_tool], **hooks)
    assert await state_after(agent, Plugin("plugin")) == {"a": [1], "user:b": 2, "temp:c": 3}


async def test_state_delta_is_what_this_context_has_written_and_no_event_carried() -> None:
    """It has neither what is stored nor what other contexts write; `del` takes a pending write back."""
    seen: list[dict[str, Any]] = []

    async def work(tool_context: ToolContext) -> str:
        """Work."""
        state, delta = tool_context.state, tool_context.actions.state_delta
        seen.append(dict(delta))
        state["a"], delta["b"], state["stored"] = 1, None, "new"
        state.add("n", 2)
        del state["old"]
        seen.append(dict(delta))
        assert ("a" in delta, "old" in delta, "m" in delta, len(delta)) == (True, False, False, 4)
        del delta["stored"]
        assert state["stored"] == "as it was"
        with pytest.raises(KeyError):
            del delta["old"]
        delta |= {"c": 3}
        with pytest.raises(TypeError, match=r"write `state\.extend"):
            delta.setdefault("list", []).append(5)
        assert delta.pop("list") == []
        tool_context.actions.state_delta |= {"d": 4}  # type: ignore[operator]  # mypy looks at the setter
        seen.append(dict(tool_context.actions.state_delta))
        await tool_context.emit(Event(message="so far"))
        seen.append(dict(delta))
        return "done"

    def before(tool: Any, args: Any, tool_context: ToolContext) -> None:
        tool_context.actions.state_delta["m"] = 5

    agent = LlmAgent(
        name="agent", model=ScriptedLlm([call("work"), "bye"]), tools=[work], before_tool_callback=before
    )
    state = await state_after(agent, state={"stored": "as it was", "old": 0, "n": 10})
    assert state == {"stored": "as it was", "n": 12, "a": 1, "b": None, "c": 3, "d": 4, "m": 5}
    assert seen == [
        {},
        {"a": 1, "b": None, "stored": "new", "n": 12},
        {"a": 1, "b": None, "n": 12, "c": 3, "d": 4},
        {},
    ]


async def test_a_dict_that_is_assigned_takes_the_place_of_the_pending_values() -> None:
    """What was pending and is not in it is taken back; what is no dict of JSON is refused, and nothing is lost."""

    async def work(tool_context: ToolContext) -> str:
        """Work."""
        tool_context.state["a"] = 1
        for wrong in ({"b": object()}, 5, None, {"a": {1}}, {1: 1}):
            with pytest.raises(InvalidValueError, match=r"^actions\.state_delta"):
                tool_context.actions.state_delta = wrong  # type: ignore[assignment]
        assert tool_context.actions.state_delta == {"a": 1}
        tool_context.actions.state_delta = {"b": 2, "temp:c": 3}
        return "done"

    agent = LlmAgent(name="agent", model=ScriptedLlm([call("work"), "bye"]), tools=[work])
    assert await state_after(agent) == {"b": 2, "temp:c": 3}


async def test_state_delta_follows_the_rules_of_the_state() -> None:
    """What a tool that fails has put into it is dropped; once the call has ended, writes and `del` are refused."""
    held: list[Any] = []

    async def fails(tool_context: ToolContext) -> str:
        """Fail."""
        tool_context.actions.state_delta["a"] = 1
        raise ValueError("no")

    async def keeps(tool_context: ToolContext) -> str:
        """Keep it."""
        held.append(tool_context.actions)
        tool_context.actions.state_delta["b"] = 2
        for wrong in ({"app:": 1}, {"minirun:x": 1}):
            with pytest.raises(InvalidValueError):
                tool_context.actions.state_delta.update(wrong)
        return "done"

    agent = LlmAgent(
        name="agent", model=ScriptedLlm([[call("fails"), call("keeps")], "bye"]), tools=[fails, keeps]
    )
    async with InMemoryRunner(agent=agent, app_name="app", auto_create_session=True) as runner:
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
        assert run.session.state == {"b": 2}
    with pytest.raises(InvocationEndedError):
        held[0].state_delta["c"] = 3
    with pytest.raises(InvocationEndedError):
        held[0].state_delta = {"c": 3}
