"""
One history with a bit of everything, written over any session service: what is stored of it, and what is read.

State of all scopes and its operations, runs that end in every way, questions, messages, forks of forks, imports,
rewinds over rewinds, summaries, deletions, artifacts, and a turn of an agent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs

from minirun import Env, Event, EventActions, LlmAgent, Runner, ToolContext
from minirun._postgres._connection import Bounds, Connect, Connection
from minirun._postgres._values import Call, Result, Statement
from minirun.artifacts import BaseArtifactService
from minirun.events import Replay
from minirun.sessions import BaseSessionService, InvocationStatus, SessionKey, SessionWriter
from minirun.sessions._compactions import compaction_actions
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool
from minirun.types import Content, FunctionCall, FunctionResponse, Part

__all__ = ["LONG", "History", "Told"]

LONG = "long/" * 120
"""A key that Postgres has no room for in an index."""


@attrs.frozen(eq=False)
class Told(Env):
    """Counts ids by their kind; the time is what the history says it is. Keeps what a Postgres server is told."""

    counts: dict[str, int] = attrs.field(factory=dict)
    seconds: list[float] = attrs.field(factory=lambda: [1_700_000_000.0])
    statements: set[Statement] = attrs.field(factory=set)

    def now(self) -> float:
        return self.seconds[0]

    def new_id(self, path: str) -> str:
        self.counts[path] = self.counts.get(path, 0) + 1
        return f"{path}-{self.counts[path]}"[-40:]

    def postgres(self) -> Connect:
        real = super().postgres()

        async def connect(url: str, bounds: Bounds) -> Connection:
            wire: Any = Wire(await real(url, bounds), self.statements)
            return wire  # type: ignore[no-any-return]  # it behaves as one

        return connect


class Wire:
    """A connection that notes which statements are executed on it."""

    def __init__(self, connection: Connection, statements: set[Statement]) -> None:
        self._connection = connection
        self._statements = statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def run(self, calls: Sequence[Call], **options: Any) -> list[Result]:
        self._statements.update(call.statement for call in calls)
        return await self._connection.run(calls, **options)


async def nothing(key: SessionKey) -> None:
    """What is done after each step, unless somebody wants to look."""


class History:
    """
    One history, written step by step over a service; each step is a second later.

    *stored* is called after each event of a run, with its session; *done* after each part of the history.
    """

    def __init__(
        self,
        service: BaseSessionService,
        artifacts: BaseArtifactService,
        env: Told,
        stored: Callable[[SessionKey], Awaitable[None]] = nothing,
        done: Callable[[SessionKey], Awaitable[None]] = nothing,
    ) -> None:
        self.service = service
        self.artifacts = artifacts
        self.env = env
        self.stored = stored
        self.done = done

    async def write(self) -> None:
        """Write all of it."""
        for part in (self.outside, self.runs, self.questions, self.forks, self.imports, self.undone, self.deleted):
            self.env.seconds[0] += 1
            await part()
            for name in ("s", "r", "f-2"):
                await self.done(SessionKey("app", "u", name))
        await self.turn()

    async def writer(self, name: str, session_id: str, user_id: str = "u") -> SessionWriter:
        self.env.seconds[0] += 1
        key = SessionKey("app", user_id, session_id)
        found = await self.service.open_writer(key, name, None, reject=True)
        assert found is not None
        return found

    async def run(self, session_id: str, status: InvocationStatus | None, *events: Event) -> None:
        """A run of the events' invocation."""
        name = events[0].invocation_id
        assert name is not None
        writer = await self.writer(name, session_id)
        for event in events:
            self.env.seconds[0] += 0.5
            await writer.append(event, begins=event is events[0])
            await self.stored(writer.live.key)
        await writer.finish(status)
        await self.stored(writer.live.key)

    async def outside(self) -> None:
        """State of all scopes, set, changed and removed by appends from outside."""
        state = {"n": 0, "user:n": 0, "app:list": [1], "app:gone": 1, LONG: 1, f"user:{LONG}": "ü\0"}
        session = await self.service.create_session(app_name="app", user_id="u", session_id="s", state=state)
        ops: dict[str, Any] = {"user:n": {"add": 3}, "app:list": {"extend": [2]}, "n": {"add": 0.5}}
        for number, actions in enumerate((
            EventActions(state_delta={"n": 1, "key": None, "user:n": 2}),
            EventActions(state_removed=["key", "app:gone", LONG], state_ops=ops),
        )):  # fmt: skip
            self.env.seconds[0] += 1
            event = Event(id=f"outside-{number}", author="a", message="hello", actions=actions)
            await self.service.append_event(session, event)
        keys = {f"key {number}": number for number in range(30)}
        session = await self.service.create_session(app_name="app", user_id="v", session_id="k", state=keys)
        more = {f"more {number}": number for number in range(30)}
        await self.service.append_event(session, Event(id="more", author="a", state=more))

    async def runs(self) -> None:
        """One that is completed, one that fails with an open call, one that is left, one that goes on."""
        await self.run("s", InvocationStatus.COMPLETED, says("e-1"), calls("e-1", f="c-1"), answers("e-1", f="c-1"))
        await self.run("s", InvocationStatus.FAILED, says("e-2"), calls("e-2", f="c-2", g="c-3"))
        await self.run("s", None, says("e-3"), calls("e-3", f="c-4"))
        again = EventActions(replay=Replay(attempt={"run": "", "status": "failed"}))
        goes_on = Event(id="again", author="system", invocation_id="e-2", actions=again)
        await self.run("s", InvocationStatus.CANCELLED, goes_on, answers("e-2", g="c-3"))
        await self.service.create_session(app_name="app", user_id="u", session_id="left")
        await self.run("left", None, says("e-1"))

    async def questions(self) -> None:
        """A run that waits for three answers, of which one came, with messages that wait for it."""
        asks = calls("e-4", waits=["c-6"], suspended=["c-5"], f="c-5", adk_request_input="c-6", g="c-7")
        await self.run("s", InvocationStatus.PAUSED, says("e-4"), asks, calls("e-4", waits=["c-7", "c-8"], g="c-8"))
        key = SessionKey("app", "u", "s")
        for number in (1, 2):
            actions = EventActions(replay=Replay(sent="next_model_call"))
            message = Event(id=f"message-{number}", author="user", message="wait", timestamp=5.0, actions=actions)
            await self.service.insert_message(key, message)
            await self.stored(key)
        writer = await self.writer("e-4", "s")
        await writer.append(answers("e-4", g="c-7"), begins=True)
        [first, _] = await self.service.load_messages(writer.live)
        await writer.append(first)
        await self.stored(key)
        await writer.finish(InvocationStatus.PAUSED)

    async def forks(self) -> None:
        """One at an early event, one at the head while it waits, and one of a fork; each goes on."""
        for number, (source, at, name) in enumerate((("s", 2, "f-1"), ("s", None, "f-2"), ("f-1", 3, "f-3"))):
            self.env.seconds[0] += 1
            place = {"app_name": "app", "user_id": "u", "session_id": source}
            fork = await self.service.fork_session(**place, at_seq=at, new_session_id=name)
            event = Event(id=f"fork-{number}", author="a", message="own", state={"own": name, "user:own": name})
            await self.service.append_event(fork, event)

    async def imports(self) -> None:
        """The whole log under another user's name, with marks of text that need an escape in it."""
        events = await self.service.read_events(app_name="app", user_id="u", session_id="s")
        self.env.seconds[0] += 1
        place = {"app_name": "other", "user_id": "ü/%", "session_id": "a b"}
        await self.service.import_session(**place, events=events)

    async def undone(self) -> None:
        """Runs that are summed up and undone, and undone with their summary."""
        await self.service.create_session(app_name="app", user_id="u", session_id="r")
        await self.run("r", InvocationStatus.COMPLETED, says("e-1"), says("e-1", "1"))
        await self.run("r", InvocationStatus.PAUSED, says("e-2"), calls("e-2", waits=["c-1"], work="c-1"))
        await self.run("r", InvocationStatus.PAUSED, says("e-3"), calls("e-3", waits=["c-2"], work="c-2"))
        for name, target, compacted in (("e-4", 5, 2), ("e-5", 3, 0), ("e-6", 0, 2)):
            writer = await self.writer(name, "r")
            if compacted:
                summary = Content(role="user", parts=[Part(text=f"up to {compacted}")])
                before = writer.live.compaction
                sums_up = compaction_actions(summary, end_seq=compacted, previous=before, speaker="a")
                await writer.append(Event(id=f"sum-{name}", author="system", invocation_id=name, actions=sums_up))
            undoes = EventActions(rewind_before_invocation_id="e", rewind_before_seq=target)
            if target:
                await writer.append(Event(id=f"undo-{name}", author="user", invocation_id=name, actions=undoes))
            await self.stored(writer.live.key)
            await writer.finish(None)

    async def deleted(self) -> None:
        """Sessions that were deleted, of which one has forks and one was made again; their shared values stay."""
        for name in ("d", "d", "f-1"):
            self.env.seconds[0] += 1
            place = {"app_name": "app", "user_id": "v", "session_id": name}
            if name == "d":
                session = await self.service.create_session(**place, state={"user:d": 1, "d": 1})
                event = Event(id="gone", author="a", message="x", state={"user:d": 2, "app:d": [1]})
                await self.service.append_event(session, event)
            else:
                place["user_id"] = "u"
            await self.service.delete_session(**place)
        self.env.seconds[0] += 1
        await self.service.create_session(app_name="app", user_id="v", session_id="d", state={"d": 2})

    async def turn(self) -> None:
        """A run of an agent, as the runtime records it: a tool that saves an artifact, and one that asks first."""

        async def save(text: str, tool_context: ToolContext) -> int:
            """Save a text."""
            await tool_context.save_artifact("own.txt", Part(text=f"{text} again"))
            return await tool_context.save_artifact("user:notes.txt", Part(text=text))

        async def ship(to: str) -> str:
            """Ship something."""
            return f"shipped to {to}"

        turns: list[Any] = [[call("save", text="hello"), call("ship", to="Rome")], "done"]
        tools = [FunctionTool(save), FunctionTool(ship, require_confirmation=True)]
        runner = Runner(
            app_name="app",
            agent=LlmAgent(name="agent", model=ScriptedLlm(turns), tools=tools, output_key="last"),
            session_service=self.service,
            artifact_service=self.artifacts,
            auto_create_session=True,
        )
        for answer in (None, True):
            self.env.seconds[0] += 1
            found = await self.service.list_pending(app_name="app", session_id="t")
            message = "go" if answer is None else found[0].reply(answer)
            async with runner.run_async(user_id="u", session_id="t", new_message=message) as run:
                await run.wait()


def says(name: str, text: str = "hi") -> Event:
    return Event(id=f"{name}-says{text}", author="user", message=text, invocation_id=name, state={f"told {name}": text})


def calls(name: str, *, waits: list[str] | None = None, suspended: list[str] | None = None, **made: str) -> Event:
    """Calls, each a tool and its id."""
    parts = [Part(function_call=FunctionCall(id=call_id, name=tool, args={"a": 1})) for tool, call_id in made.items()]
    return Event(
        id=f"{name}-calls{'-'.join(made.values())}",
        author="agent",
        branch="agent",
        invocation_id=name,
        content=Content(role="model", parts=parts),
        long_running_tool_ids=tuple(waits or ()),
        actions=EventActions(suspended_calls=tuple(suspended or ())),
    )


def answers(name: str, **made: str) -> Event:
    """Their responses."""
    parts = [
        Part(function_response=FunctionResponse(id=call_id, name=tool, response={"result": 1}))
        for tool, call_id in made.items()
    ]
    content = Content(role="user", parts=parts)
    return Event(id=f"{name}-answers{'-'.join(made.values())}", author="user", invocation_id=name, content=content)
