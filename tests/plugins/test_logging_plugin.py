"""The base of plugins, and the one that logs. Its hooks are called by hand here, with the contexts of real runs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from minirun import App, Content, Event, InMemoryRunner, InvocationContext, LlmAgent, Part
from minirun.errors import ConfigurationError
from minirun.models import LlmRequest, LlmRequestDraft, LlmResponse
from minirun.plugins import BasePlugin, LoggingPlugin
from minirun.plugins import _observer as observer
from minirun.sessions._concurrent import ConcurrentWrites
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, ToolContext
from minirun.types import GenerateContentConfig, UsageMetadata

from ..helpers import run_to_end, runner_for

HOOKS = {
    "on_user_message_callback": ["invocation_context", "user_message"],
    "before_run_callback": ["invocation_context"],
    "on_event_callback": ["invocation_context", "event"],
    "after_run_callback": ["invocation_context"],
    "on_run_error_callback": ["invocation_context", "error"],
    "before_agent_callback": ["agent", "callback_context"],
    "after_agent_callback": ["agent", "callback_context"],
    "on_agent_error_callback": ["agent", "callback_context", "error"],
    "before_model_callback": ["callback_context", "llm_request"],
    "after_model_callback": ["callback_context", "llm_response"],
    "on_model_error_callback": ["callback_context", "llm_request", "error"],
    "before_tool_callback": ["tool", "tool_args", "tool_context"],
    "after_tool_callback": ["tool", "tool_args", "tool_context", "result"],
    "on_tool_error_callback": ["tool", "tool_args", "tool_context", "error"],
    "close": [],
}


# --- the base ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BasePlugin, LoggingPlugin])
def test_a_plugin_has_the_hooks_of_the_adk(kind: type[BasePlugin]) -> None:
    """All are async, take their arguments by keyword only, and carry the documented names."""
    hooks = {name: getattr(kind, name) for name in dir(kind) if name == "close" or name.endswith("_callback")}
    assert {name: list(inspect.signature(hook).parameters)[1:] for name, hook in hooks.items()} == HOOKS
    for hook in hooks.values():
        assert inspect.iscoroutinefunction(hook)
        parameters = list(inspect.signature(hook).parameters.values())[1:]
        assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
        assert inspect.getdoc(hook)


async def test_a_plugin_that_overrides_nothing_does_nothing() -> None:
    """Every hook of the base returns None."""
    plugin = BasePlugin("p")
    for name, parameters in HOOKS.items():
        assert await getattr(plugin, name)(**dict.fromkeys(parameters)) is None


@pytest.mark.parametrize("name", ["", "1st", "a b", "a.b", "a\n", None])
def test_the_name_of_a_plugin_is_checked(name: Any) -> None:
    """What is no name is refused when the plugin is made."""
    with pytest.raises(ConfigurationError, match="expected a plugin name"):
        BasePlugin(name)
    assert BasePlugin("rate-limit_2").name == "rate-limit_2"


# --- the one that logs ------------------------------------------------------------------------------------------------


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is logged under "minirun", fragments included."""
    caplog.set_level(logging.DEBUG, logger="minirun")
    return caplog


def fields_of(log: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of all records of a plugin, without the ids that every run has anew."""
    found = [cast(Any, record).minirun for record in log.records if hasattr(record, "minirun")]
    return [{name: value for name, value in fields.items() if name != "invocation_id"} for fields in found]


async def in_a_run(logic: Callable[[InvocationContext], Awaitable[None]]) -> None:
    """Call *logic* with the context of a run, as an agent named "agent"."""
    await run_to_end(runner_for(logic))


def hooks(plugin: LoggingPlugin, ctx: object) -> Any:
    """The plugin's hooks, each with this context: `hooks(plugin, ctx).before_run()`."""

    class Bound:
        def __getattr__(self, name: str) -> Callable[..., Awaitable[None]]:
            hook = getattr(plugin, f"{name}_callback")
            contexts = {"invocation_context", "callback_context", "tool_context"}
            [parameter] = contexts & inspect.signature(hook).parameters.keys()

            async def call_it(**arguments: Any) -> None:
                assert await hook(**{parameter: ctx}, **arguments) is None

            return call_it

    return Bound()


def echo(text: str) -> dict[str, str]:
    """Say it again."""
    return {"text": text}


ECHO = FunctionTool(echo)
GO = Content(role="user", parts=[Part(text="go")])
REQUEST = LlmRequest(contents=[GO], config=GenerateContentConfig(tools=[ECHO.declaration]), model="m")


def failed(text: str = "cut") -> OSError:
    """An error that was raised and caught, with its traceback."""
    try:
        raise OSError(text)
    except OSError as error:
        return error


async def test_a_run_leaves_one_record_for_each_thing_that_happens(
    log: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    """All belong to the run's invocation, and hold what the kind promises, with durations on trio's clock."""
    plugin = LoggingPlugin()

    async def logic(ctx: InvocationContext) -> None:
        of = hooks(plugin, ctx)
        await of.on_user_message(user_message=GO)
        await of.before_run()
        await of.before_agent(agent=ctx.agent)
        await of.before_model(llm_request=LlmRequestDraft.of(REQUEST))
        mock_clock.jump(2)
        usage = UsageMetadata(prompt_token_count=7, candidates_token_count=5)
        content = Content(role="model", parts=[Part(text="wait"), call("echo", text="x")])
        await of.after_model(llm_response=LlmResponse(content=content, finish_reason="STOP", usage_metadata=usage))
        tool_context = ctx._for_call("c1", "echo", ConcurrentWrites(), 0)
        of_call = hooks(plugin, tool_context)
        await of_call.before_tool(tool=ECHO, tool_args={"text": "x"})
        mock_clock.jump(0.5)
        await of_call.after_tool(tool=ECHO, tool_args={"text": "x"}, result={"text": "x"})
        await of.on_event(event=Event(id="e1", author="agent", message="done"))
        await of.after_agent(agent=ctx.agent)
        mock_clock.jump(1)
        await of.after_run()

    await in_a_run(logic)
    run = {"app_name": "app", "user_id": "u", "session_id": "s"}
    agent = {"agent": "agent", "branch": None}
    no_error = {"error_code": None, "error_message": None}
    on_call = {**agent, "tool": "echo", "call_id": "c1", "text": "{'text': 'x'}"}
    assert fields_of(log) == [
        {"kind": "user_message", "text": "go"},
        {"kind": "run_begin", **run, "resumed": False},
        {"kind": "agent_begin", **agent},
        {"kind": "model_request", **agent, "model": "m", "contents": 1, "tools": ["echo"]},
        {
            **agent,
            "kind": "model_response",
            "text": "wait",
            "calls": ["echo"],
            "partial": False,
            "finish_reason": "STOP",
            **no_error,
            "usage": {"prompt_token_count": 7, "candidates_token_count": 5},
            "duration_s": 2,
        },
        {"kind": "tool_call", **on_call},
        {"kind": "tool_result", **on_call, "duration_s": 0.5},
        {
            "kind": "event",
            "event_id": "e1",
            "author": "agent",
            "branch": None,
            "partial": False,
            "text": "done",
            **no_error,
            "waits": [],
        },
        {"kind": "agent_end", **agent},
        {"kind": "run_end", **run, "status": "running", "duration_s": 3.5},
    ]
    assert len({cast(Any, record).minirun["invocation_id"] for record in log.records}) == 1
    assert {record.levelno for record in log.records} == {logging.INFO}
    assert [record.getMessage() for record in log.records] == [
        "user message: go",
        "run begins for user u in session s",
        "agent begins",
        "agent asks m with 1 contents",
        "agent is answered and calls echo (2.000 s): wait",
        "echo is called: {'text': 'x'}",
        "echo returned (0.500 s): {'text': 'x'}",
        "event by agent: done",
        "agent ends",
        "run ends as running (3.500 s)",
    ]


async def test_failures_are_warnings_or_errors_with_one_traceback(
    log: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    """What models and tools raise may be recovered from; an agent's error shows its traceback as the run's."""
    plugin = LoggingPlugin()
    error = failed()

    async def logic(ctx: InvocationContext) -> None:
        of, of_call = hooks(plugin, ctx), hooks(plugin, ctx._for_call("c1", "echo", ConcurrentWrites(), 0))
        await of.before_run()
        await of.before_model(llm_request=LlmRequestDraft.of(REQUEST))
        await of_call.before_tool(tool=ECHO, tool_args={})
        mock_clock.jump(1)
        log.clear()
        await of.on_model_error(llm_request=REQUEST, error=error)
        await of_call.on_tool_error(tool=ECHO, tool_args={}, error=error)
        await of.on_agent_error(agent=ctx.agent, error=error)
        await of.on_run_error(error=error)

    await in_a_run(logic)
    agent = {"agent": "agent", "branch": None}
    told = {"error_type": "OSError", "error_message": "cut"}
    assert fields_of(log) == [
        {"kind": "model_error", **agent, "model": "m", **told, "duration_s": 1},
        {"kind": "tool_error", **agent, "tool": "echo", "call_id": "c1", **told, "duration_s": 1},
        {"kind": "agent_error", **agent, **told},
        {"kind": "run_error", **told, "duration_s": 1},
    ]
    assert [(record.levelname, record.exc_info is not None) for record in log.records] == [
        ("WARNING", True),
        ("WARNING", True),
        ("ERROR", False),
        ("ERROR", True),
    ]
    assert [record.getMessage() for record in log.records] == [
        "m failed to answer agent (1.000 s): cut",
        "echo failed (1.000 s): cut",
        "agent failed: cut",
        "run failed (1.000 s): cut",
    ]


async def test_fragments_are_for_debugging(log: pytest.LogCaptureFixture, mock_clock: MockClock) -> None:
    """Partial responses and events are DEBUG, and only the complete response has a duration."""
    plugin = LoggingPlugin()

    async def logic(ctx: InvocationContext) -> None:
        of = hooks(plugin, ctx)
        await of.before_run()
        await of.before_model(llm_request=LlmRequestDraft.of(REQUEST))
        log.clear()
        for text, partial in (("He", True), ("Hello", None)):
            mock_clock.jump(1)
            content = Content(role="model", parts=[Part(text=text)])
            await of.after_model(llm_response=LlmResponse(content=content, partial=partial))
            await of.on_event(event=Event(id="e1", author="agent", content=content, partial=partial))

    await in_a_run(logic)
    found = [
        (record.levelname, fields["kind"], fields["text"], fields["partial"], fields.get("duration_s"))
        for record, fields in zip(log.records, fields_of(log), strict=True)
    ]
    assert found == [
        ("DEBUG", "model_response", "He", True, None),
        ("DEBUG", "event", "He", True, None),
        ("INFO", "model_response", "Hello", False, 2),
        ("INFO", "event", "Hello", False, None),
    ]


async def test_errors_that_are_no_exceptions_are_told(log: pytest.LogCaptureFixture) -> None:
    """The error code and message of a response or an event are in the record, the message for people, too."""
    plugin = LoggingPlugin()

    async def logic(ctx: InvocationContext) -> None:
        of = hooks(plugin, ctx)
        await of.after_model(llm_response=LlmResponse(error_code="SAFETY", error_message="no"))
        await of.on_event(event=Event(author="agent", error_code="SAFETY", error_message="no"))

    await in_a_run(logic)
    assert [(fields["error_code"], fields["error_message"]) for fields in fields_of(log)] == [("SAFETY", "no")] * 2
    assert [record.getMessage() for record in log.records] == ["agent is answered: no", "event by agent: no"]


class Odd:
    """A value that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("max_text", "value", "text", "message"),
    [
        (200, "short", "short", "echo returned: short"),
        (8, "123456789", "1234567…", "echo returned: 1234567…"),
        (8, {"a": "123456789"}, "{'a': '…", "echo returned: {'a': '…"),
        (0, "a secret", None, "echo returned"),
        (
            200,
            "a\nminirun: forged \x1b[31m",
            "a\nminirun: forged \x1b[31m",
            r"echo returned: a\nminirun: forged \x1b[31m",
        ),
        (200, "\ud800 ünïcode 😀", "\ud800 ünïcode 😀", r"echo returned: \ud800 ünïcode 😀"),
        (200, Odd(), "a value of type Odd", "echo returned: a value of type Odd"),
        (200, None, None, "echo returned"),
    ],
)
async def test_texts_are_shortened_and_stay_on_one_line(
    log: pytest.LogCaptureFixture, max_text: int, value: object, text: str | None, message: str
) -> None:
    """At most `max_text` characters are logged; in the message nothing can look like another record."""
    plugin = LoggingPlugin(max_text=max_text)

    async def logic(ctx: InvocationContext) -> None:
        of_call = hooks(plugin, ctx._for_call("c1", "echo", ConcurrentWrites(), 0))
        await of_call.after_tool(tool=ECHO, tool_args={}, result=value)

    await in_a_run(logic)
    [record], [fields] = log.records, fields_of(log)
    assert fields["text"] == text
    assert record.getMessage() == message


async def test_concurrent_runs_do_not_mix(log: pytest.LogCaptureFixture, mock_clock: MockClock) -> None:
    """Each run has its own durations, and nothing of it is kept when it has ended, even what never came to an end."""
    plugin = LoggingPlugin()
    steps = {name: trio.Event() for name in ("begun", "other begun", "other ended")}

    async def first(ctx: InvocationContext) -> None:
        of = hooks(plugin, ctx)
        await of.before_run()
        await of.before_model(llm_request=LlmRequestDraft.of(REQUEST))
        steps["begun"].set()
        await steps["other ended"].wait()
        await of.after_model(llm_response=LlmResponse())
        await of.after_run()

    async def second(ctx: InvocationContext) -> None:
        of = hooks(plugin, ctx)
        await steps["begun"].wait()
        mock_clock.jump(1)
        await of.before_run()
        await of.before_model(llm_request=LlmRequestDraft.of(REQUEST))  # nobody answers
        mock_clock.jump(1)
        await of.after_run()
        steps["other ended"].set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_a_run, first)
        nursery.start_soon(in_a_run, second)
    found = [(fields["kind"], fields["duration_s"]) for fields in fields_of(log) if "duration_s" in fields]
    assert found == [("run_end", 1), ("model_response", 2), ("run_end", 2)]
    assert plugin._runs == {}


async def test_runs_whose_end_is_never_told_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a bounded number of runs is remembered; the newest are."""
    monkeypatch.setattr(observer, "RUNS_MAX", 2)
    plugin = LoggingPlugin()
    begun: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        await hooks(plugin, ctx).before_run()
        begun.append(ctx.invocation_id)

    for _ in range(4):
        await in_a_run(logic)
    assert list(plugin._runs) == begun[-2:]


async def test_what_nobody_saw_begin_has_no_duration(log: pytest.LogCaptureFixture) -> None:
    """Where another plugin has answered first, the record says None."""
    plugin = LoggingPlugin()

    async def logic(ctx: InvocationContext) -> None:
        of, of_call = hooks(plugin, ctx), hooks(plugin, ctx._for_call("c1", "echo", ConcurrentWrites(), 0))
        await of.after_model(llm_response=LlmResponse())
        await of.on_model_error(llm_request=REQUEST, error=failed())
        await of_call.after_tool(tool=ECHO, tool_args={}, result=1)
        await of_call.on_tool_error(tool=ECHO, tool_args={}, error=failed())
        await of.on_run_error(error=failed())
        await of.after_run()

    await in_a_run(logic)
    assert [fields["duration_s"] for fields in fields_of(log)] == [None] * 6


async def test_the_logger_and_the_level_are_the_applications(caplog: pytest.LogCaptureFixture) -> None:
    """Records go to the named logger at the given level; what it does not want is not even put into words."""
    caplog.set_level(logging.WARNING, logger="minirun")
    caplog.set_level(logging.INFO, logger="my.app")
    said: list[str] = []

    class Watched:
        def __str__(self) -> str:
            said.append("put into words")
            return "x"

    async def logic(ctx: InvocationContext) -> None:
        context = ctx._for_call("c1", "echo", ConcurrentWrites(), 0)
        for plugin in (
            LoggingPlugin(),
            LoggingPlugin(logger="my.app", level=logging.ERROR),
            LoggingPlugin("l", level=1),
        ):
            await hooks(plugin, context).after_tool(tool=ECHO, tool_args={}, result=Watched())
            await hooks(plugin, context).on_tool_error(tool=ECHO, tool_args={}, error=failed())

    await in_a_run(logic)
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("minirun", "WARNING"),
        ("my.app", "ERROR"),
        ("my.app", "ERROR"),
        ("minirun", "WARNING"),
    ]
    assert said == ["put into words"]


async def test_a_record_names_the_hook_and_carries_one_attribute(log: pytest.LogCaptureFixture) -> None:
    """All fields are in `record.minirun`, so none can collide with logging's own."""
    plain = vars(logging.makeLogRecord({})).keys()
    plugin = LoggingPlugin()

    async def logic(ctx: InvocationContext) -> None:
        await hooks(plugin, ctx).before_run()

    await in_a_run(logic)
    [record] = log.records
    assert record.funcName == "before_run_callback"
    assert vars(record).keys() - plain <= {"minirun", "message", "asctime"}


def test_logging_is_not_configured() -> None:
    """Making the plugin adds no handler, sets no level and leaves records to the loggers above (promise P11)."""
    before = list(logging.root.handlers), logging.root.level
    LoggingPlugin(logger="minirun.of_this_test")
    made = logging.getLogger("minirun.of_this_test")
    assert (made.handlers, made.level, made.propagate, made.filters) == ([], logging.NOTSET, True, [])
    assert (logging.root.handlers, logging.root.level) == before
    assert logging.getLogger("minirun").handlers == []


@pytest.mark.parametrize(
    "options", [{"logger": logging.getLogger("x")}, {"level": "INFO"}, {"max_text": -1}, {"max_text": None}]
)
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    """The message shows what was found."""
    with pytest.raises(ConfigurationError, match=r"expected a logger's name, a level such as logging.INFO"):
        LoggingPlugin(**options)


async def test_a_real_run_is_logged_from_its_message_to_its_end(log: pytest.LogCaptureFixture) -> None:
    """A runner calls the hooks in order, with failures; nothing is remembered of a run that has ended."""

    def divide(a: int, b: int) -> float:
        return a / b

    plugin = LoggingPlugin()
    model = ScriptedLlm([call("divide", a=1, b=0), "It cannot be done.", OSError("cut")])
    agent = LlmAgent(name="agent", model=model, tools=[FunctionTool(divide, run_in="loop")])
    runner = InMemoryRunner(app=App("app", agent, plugins=[plugin]), auto_create_session=True)
    await run_to_end(runner)
    one_turn = ["model_request", "model_response", "event"]
    begin = ["user_message", "run_begin", "agent_begin"]
    end = ["agent_end", "run_end"]
    assert [fields["kind"] for fields in fields_of(log)] == [
        *begin,
        *one_turn,
        *("tool_call", "tool_error", "event"),
        *one_turn,
        *end,
    ]
    log.clear()
    with pytest.raises(OSError, match="cut"):
        await run_to_end(runner)
    failures = ["model_request", "model_error", "agent_error", "agent_end", "run_error", "run_end", "event"]
    assert [fields["kind"] for fields in fields_of(log)] == [*begin, *failures]
    assert plugin._runs == {}


async def test_a_run_that_pauses_and_the_one_that_goes_on_say_so(log: pytest.LogCaptureFixture) -> None:
    """The event with which a call begins to wait names it, and the runs tell how they begin and end."""

    async def ask(tool_context: ToolContext) -> Any:
        return await tool_context.request_input("go on?")

    agent = LlmAgent(name="agent", model=ScriptedLlm([call("ask"), "done"]), tools=[FunctionTool(ask)])
    runner = InMemoryRunner(app=App("app", agent, plugins=[LoggingPlugin()]), auto_create_session=True)
    _, run = await run_to_end(runner)
    [pending] = run.pending
    await run_to_end(runner, pending.reply("yes"))
    fields = fields_of(log)
    assert [each["resumed"] for each in fields if each["kind"] == "run_begin"] == [False, True]
    assert [each["status"] for each in fields if each["kind"] == "run_end"] == ["paused", "completed"]
    waits = [each["waits"] for each in fields if each["kind"] == "event" and each["waits"]]
    called = run.session.events[1].get_function_calls()[0].id or ""
    assert waits == [sorted([pending.call_id, called])]
    messages = [record.getMessage() for record in log.records]
    assert f"event by agent, {' and '.join(waits[0])} waiting" in messages
    assert "run goes on for user u in session s" in messages


class Raises(logging.Filter):
    """A filter with a fault."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("filter")


async def test_a_filter_that_raises_fails_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    """It is told once, on stderr."""
    logger, fault = logging.getLogger("tests.faulty"), Raises()
    logger.addFilter(fault)
    try:
        agent = LlmAgent(name="a", model=ScriptedLlm(["hi"]))
        app = App("app", agent, plugins=[LoggingPlugin(logger="tests.faulty", level=logging.ERROR)])
        events, _ = await run_to_end(InMemoryRunner(app=app, auto_create_session=True))
    finally:
        logger.removeFilter(fault)
    assert events[-1].text == "hi"
    assert capsys.readouterr().err.count("cannot log (RuntimeError") == 1


async def test_arguments_and_results_are_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """What their keys call a secret is redacted, as in a trace."""

    def login(user: str, password: str) -> dict[str, str]:
        """A tool."""
        return {"access_token": f"{user} {password}"}

    model = ScriptedLlm([call("login", user="ann", password="hunter2"), "done"])
    app = App("app", LlmAgent(name="a", model=model, tools=[login]), plugins=[LoggingPlugin()])
    with caplog.at_level(logging.DEBUG, "minirun"):
        await run_to_end(InMemoryRunner(app=app, auto_create_session=True))
    told = [record.getMessage() for record in caplog.records if "login" in record.getMessage()]
    assert any("'user': 'ann', 'password': '[redacted]'" in text for text in told)
    assert any("'access_token': '[redacted]'" in text for text in told)
    assert not any("hunter2" in text for text in told)


@pytest.mark.parametrize("options", [{"level": True}, {"max_text": True}])
def test_true_is_no_number(options: dict[str, Any]) -> None:
    """True would count as 1, and is refused."""
    with pytest.raises(ConfigurationError, match="True"):
        LoggingPlugin(**options)
