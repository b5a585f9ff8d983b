"""
A model of the server at the driver's seam: what the few statements of sessions mean, in plain Python, with bad luck.

It lives in a simulated world (`minirun.simulation`), whose choices decide everything. Statements of one round trip take
effect at one instant, as the locks of the real ones let it look; before and after it its worker stands at a point of
the world's schedule, so round trips of several workers happen in any order. An answer may be lost before the statement
is executed, after it, or while it is still on its way: then it is executed when it arrives, perhaps long after its
worker has gone on. Who settles a doubt waits for those that the server is at work on, not for those that have not come.

A worker is a `ModelEnv`. It may be cut off for longer than a lease, stand still, or be killed. Notifications are lost
now and then; the server's clock, by which leases end, may jump.

The model knows no SQL: that the statements do what is written here is shown by the same tests on a real server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import trio

from minirun._postgres._connection import Bounds, Connect, ConnectionLostError, ServerError
from minirun._postgres._values import Call, Notification, Result
from minirun.errors import StorageConnectionError
from minirun.sessions._postgres._leases import CHANNEL
from minirun.sessions._postgres._schema import MIGRATIONS, REFUSED_OPERATION, REFUSED_RUN, SEPARATOR
from minirun.sessions._postgres._statement import CONTINUES, ENTERS, MEMBER, PARTS
from minirun.sessions._sqlite._logs import link
from minirun.simulation import Choices
from minirun.simulation._env import SimulatedEnv

__all__ = ["Luck", "ModelEnv", "ModelServer", "Network"]

T = TypeVar("T")


class Luck:
    """The choices of a world, as code asks for them that has several things to choose from."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def one_of(self, label: str, options: Sequence[T]) -> T:
        """One of these; the first one is the dullest."""
        return options[self._choices.choose(len(options), label)]

    def happens(self, label: str, rate: float) -> bool:
        """Whether something happens that happens so often."""
        return self._choices.choose(2, label, lambda randomness: int(randomness.random() < rate)) == 1


@attrs.define
class ModelSession:
    """A row of `sessions`."""

    id: int
    place: tuple[str, str, str]
    revision: int
    create_time: float
    update_time: float
    chain: bytes
    compaction: int
    epoch: int = 0
    owner: str | None = None
    expires: float | None = None


class ModelServer:
    """The tables, and who is connected."""

    def __init__(self, luck: Luck) -> None:
        self.luck = luck
        self.clock_offset_s = 0.0
        self.deafness = luck.one_of("how many notifications are lost", [0.3, 0, 1])
        self.commit_no = self.session_no = 0
        self.sessions: dict[int, ModelSession] = {}
        self.events: dict[int, list[tuple[int, int, bytes, str]]] = {}
        self.own: dict[tuple[int, str], tuple[str | None, str]] = {}
        self.shared: dict[tuple[str, str, str], tuple[str | None, str | None, int]] = {}
        self.calls: dict[tuple[int, str], tuple[Any, ...]] = {}
        self.invocations: dict[tuple[int, str], list[Any]] = {}
        self.connections: list[ModelConnection] = []
        self.pids = 0

    def execute(self, connection: ModelConnection, calls: Sequence[Call]) -> list[Result]:
        """Execute these statements, all at once or, if one is refused, none."""
        return [self._one(connection, call) for call in calls]  # only the first of a write can be refused

    def _one(self, connection: ModelConnection, call: Call) -> Result:
        do: Callable[..., Any] = getattr(self, f"_do_{call.statement.name}")
        rows = do(connection, call, *call.arguments) or []
        return Result(rows, len(rows))

    # --- connections

    def _do_settings(self, connection: ModelConnection, call: Call, *_: Any) -> Any:
        return [(connection.backend_pid,)]

    def _do_backend_pid(self, connection: ModelConnection, call: Call) -> Any:
        return [(connection.backend_pid,)]

    def _do_has_versions(self, connection: ModelConnection, call: Call) -> Any:
        return [(True,)]

    def _do_version(self, connection: ModelConnection, call: Call, part: str) -> Any:
        return [(len(MIGRATIONS),)]

    def _do_alive(self, connection: ModelConnection, call: Call, owner: str) -> None:
        connection.owner = owner

    def _do_listen(self, connection: ModelConnection, call: Call) -> None:
        connection.listens = True

    def _nothing(self, connection: ModelConnection, call: Call, *_: Any) -> None:
        """What concerns transactions and disks: here everything happens at once."""

    _do_begin_snapshot = _do_commit = _do_hurried = _do_pasts = _do_unclaim = _do_tell_work = _nothing
    _do_begin = _do_rollback = _do_hurried_hold = _nothing

    # --- reading

    def _now(self) -> float:
        return trio.current_time() + self.clock_offset_s

    def _row(self, session: ModelSession, asker: str) -> tuple[Any, ...]:
        is_over = session.expires is None or session.expires <= self._now()
        is_free = session.owner in (None, asker) or is_over or not self._lives(session.owner)
        return (
            session.id, session.revision, session.create_time, session.update_time, session.epoch, session.owner,
            session.expires, is_over, is_free, session.chain, session.compaction, False,
        )  # fmt: skip

    def _lives(self, owner: str | None) -> bool:
        return any(each.owner == owner for each in self.connections)

    def _at(self, *place: str) -> ModelSession | None:
        return next((each for each in self.sessions.values() if each.place == place), None)

    def _do_find(self, connection: ModelConnection, call: Call, asker: str, *place: str) -> Any:
        session = self._at(*place)
        return [] if session is None else [self._row(session, asker)]

    def _do_look(self, connection: ModelConnection, call: Call, asker: str, *rest: Any) -> Any:
        *place, app_no, user_no = rest
        session = self._at(*place)
        if session is None:
            return []
        app, user, _ = session.place
        known = {(app, ""): app_no, (app, user): user_no}
        has_news = any(number > known.get(key[:2], self.commit_no) for key, (_, _, number) in self.shared.items())
        return [(*self._row(session, asker), has_news)]

    def _do_row(self, connection: ModelConnection, call: Call, asker: str, session: int) -> Any:
        return [self._row(self.sessions[session], asker)] if session in self.sessions else []

    def _do_state(self, connection: ModelConnection, call: Call, *place: str) -> Any:
        session = self._at(*place)
        return [(key, *rest) for (of, key), rest in self.own.items() if session is not None and of == session.id]

    def _do_calls(self, connection: ModelConnection, call: Call, *place: str) -> Any:
        session = self._at(*place)
        found = [(key, *rest) for (of, key), rest in self.calls.items() if session is not None and of == session.id]
        return sorted(found, key=lambda row: (row[1], row[2]))

    def _do_news(self, connection: ModelConnection, call: Call, apps: Any, users: Any, known: Any) -> Any:
        since = dict(zip(zip(apps, users, strict=True), known, strict=True))
        return [
            (app, user, key, name, value, number)
            for (app, user, key), (name, value, number) in self.shared.items()
            if number > since.get((app, user), self.commit_no)
        ]

    def _do_later(self, connection: ModelConnection, call: Call, log: int, after: int) -> Any:
        return [(seq, data) for seq, _, _, data in self.events.get(log, []) if seq > after]

    def _do_lines(self, connection: ModelConnection, call: Call, log: int, first: int, until: int) -> Any:
        return [(seq, data) for seq, _, _, data in self.events.get(log, []) if first <= seq < until]

    def _do_exists(self, connection: ModelConnection, call: Call, session: int) -> Any:
        return [()] if session in self.sessions else []

    def _do_settle(self, connection: ModelConnection, call: Call, *place: str) -> None:
        """Wait for what the server is at work on: it holds the lock of the row."""
        for each in list(self.connections):
            each.land(arrived=True)

    # --- writing

    def _do_create(self, connection: ModelConnection, call: Call, *arguments: Any) -> Any:
        *place, create_time, update_time, compaction, lines = arguments[:7]
        if self._at(*place) is not None:
            return []
        self.session_no += 1
        made = ModelSession(self.session_no, tuple(place), -1, create_time, update_time, bytes(32), compaction)
        self.sessions[made.id], self.events[made.id] = made, []
        numbers = {member: self._log(made, line) for member, line in enumerate(lines, 1)}
        self._write_parts(call, arguments[7:], numbers, dict.fromkeys(numbers, made))
        return [(made.id, made.chain, *self._ran(call))]

    def _log(self, session: ModelSession, line: str) -> int:
        self.commit_no += 1
        session.revision += 1
        session.chain = link(session.chain, session.revision, self.commit_no, line)
        self.events[session.id].append((session.revision, self.commit_no, session.chain, line))
        return self.commit_no

    def _do_append(self, connection: ModelConnection, call: Call, owner: str, lease_s: float, *arguments: Any) -> Any:
        members = list(enumerate(zip(*arguments[: len(MEMBER)], strict=True), 1))
        held = [(i, member) for i, member in members if self._holds(member, owner)]
        numbers: dict[int, int] = {}
        written = {i: self.sessions[member[0]] for i, member in held}
        epochs = {i: session.epoch for i, session in written.items()}
        self._check_parts(call, arguments[len(MEMBER) :], written)
        for i, (_, _, _, _, mode, _, update_time, compaction, data) in held:
            session = written[i]
            numbers[i] = self._log(session, data)
            session.update_time, session.compaction = update_time, compaction
            if mode == ENTERS:
                session.epoch, session.owner, session.expires = session.epoch + 1, owner, self._now() + lease_s
            elif mode != CONTINUES:
                session.epoch += session.owner is not None
                session.owner = session.expires = None
            epochs[i] = session.epoch
        self._write_parts(call, arguments[len(MEMBER) :], numbers, written)
        ran = self._ran(call)
        return [(i, numbers[i], epochs[i], written[i].chain, False, *ran) for i in numbers]

    def _holds(self, member: tuple[Any, ...], owner: str) -> bool:
        session, revision, chain, epoch, mode, gone, *_ = member
        row = self.sessions.get(session)
        if row is None or (row.revision, row.chain, row.epoch) != (revision, chain, epoch):
            return False
        is_over = row.expires is not None and row.expires <= self._now()
        return mode == CONTINUES or row.owner in (None, owner) or (gone is not None and row.owner == gone) or is_over

    def _ran(self, call: Call) -> list[int]:
        return [0 for part in PARTS if part.is_query and f", {part.name} AS " in call.statement.sql]

    def _parts(self, call: Call, arguments: Sequence[Any]) -> list[tuple[str, list[tuple[Any, ...]]]]:
        found, at = [], 0
        for part in PARTS:
            if f", {part.name} AS " in call.statement.sql:
                found.append((part.name, [*zip(*arguments[at : at + len(part.columns)], strict=True)]))
                at += len(part.columns)
        return found

    def _check_parts(self, call: Call, arguments: Sequence[Any], written: dict[int, ModelSession]) -> None:
        """Refuse what the server's functions refuse, before anything is written."""
        for name, rows in self._parts(call, arguments):
            if name == "shared":
                self._folded(rows, written)
            for i, key, *_, again in rows if name == "begun" else ():
                found = self.invocations.get((written[i].id, key)) if i in written else None
                status = "running" if found is None else found[0]
                if status not in ("running", "paused") and (not again or status == "completed"):
                    raise ServerError(REFUSED_RUN, "ended", constraint=str(i))

    def _folded(self, rows: Sequence[Any], written: dict[int, ModelSession]) -> dict[Any, tuple[int, str | None, Any]]:
        values: dict[Any, tuple[int, str | None, Any]] = {}
        for i, app, user, key, name, operation in sorted(rows, key=lambda row: row[0]):
            if i not in written:
                continue
            place = app, user, key
            present = values[place][2] if place in values else self.shared.get(place, (None, None, 0))[1]
            try:
                values[place] = i, name, folded(present, operation)
            except TypeError:
                found = SEPARATOR.join([str(i), key, name or "", present or ""])
                raise ServerError(REFUSED_OPERATION, "does not fit", constraint=found) from None
        return values

    def _write_parts(
        self, call: Call, arguments: Sequence[Any], numbers: dict[int, int], written: dict[int, ModelSession]
    ) -> None:
        for part, rows in self._parts(call, arguments):
            if part == "shared":
                for place, (i, name, value) in self._folded(rows, written).items():
                    self.shared[place] = name, value, numbers[i]
                continue
            for i, key, *rest in rows:
                if i not in numbers:
                    continue
                place = written[i].id, key
                if part == "set_state":
                    self.own[place] = rest[0], rest[1]
                elif part == "removed_state":
                    self.own.pop(place, None)
                elif part == "calls":
                    self.calls[place] = tuple(rest)
                elif part == "answered":
                    self.calls.pop(place, None)
                elif part == "begun":
                    self.invocations[place] = ["running", written[i].epoch, written[i].revision]
                else:
                    raise AssertionError(f"the model knows no {part}")

    def _do_renew(
        self, connection: ModelConnection, call: Call, owner: str, lease_s: float, ids: Any, epochs: Any
    ) -> None:
        for number, epoch in zip(ids, epochs, strict=True):
            session = self.sessions.get(number)
            if session is not None and (session.epoch, session.owner) == (epoch, owner):
                session.expires = self._now() + lease_s

    def _do_leave(self, connection: ModelConnection, call: Call, number: int, epoch: int, owner: str) -> None:
        session = self.sessions.get(number)
        if session is not None and (session.epoch, session.owner) == (epoch, owner):
            session.owner = session.expires = None
            for each in self.connections:
                each.hear(Notification(CHANNEL, str(number)))

    def _do_end_run(
        self, connection: ModelConnection, call: Call, number: int, epoch: int, key: str, status: str, end_seq: int
    ) -> None:
        found = self.invocations.get((number, key))
        if found is not None and found[1] == epoch:
            found[0] = status

    def _do_end_uncalled(self, connection: ModelConnection, call: Call, *arguments: Any) -> Any:
        """The same: nobody sends messages here."""
        number, epoch, key, *_ = arguments
        found, session = self.invocations.get((number, key)), self.sessions.get(number)
        if found is None or found[1] != epoch or session is None or session.epoch != epoch:
            return []
        self._do_end_run(connection, call, *arguments)
        return [(True,)]

    def _do_leave_ended(
        self, connection: ModelConnection, call: Call, number: int, epoch: int, owner: str, key: str
    ) -> None:
        found = self.invocations.get((number, key))
        if found is None or found[:2] != ["running", epoch]:
            self._do_leave(connection, call, number, epoch, owner)

    def _do_epoch_of_message(self, connection: ModelConnection, call: Call, number: int) -> Any:
        found = self.sessions.get(number)
        return [] if found is None else [(found.epoch, found.owner)]

    def _do_waiting_messages(self, connection: ModelConnection, call: Call, number: int, after: int = 0) -> Any:
        return []

    _do_later_messages = _do_waiting_messages


def folded(present: str | None, operation: str) -> str | None:
    """What a key of a shared scope holds after an operation."""
    kind, operand = operation[0], operation[1:]
    if kind == "s":
        return operand
    if kind == "r":
        return None
    value = None if present is None else json.loads(present)
    empty: Any = 0 if kind == "a" else []
    return json.dumps((empty if value is None else value) + json.loads(operand), separators=(",", ":"))


class ModelConnection:
    """One connection; what was sent and whose answer is lost may be `on its way` still."""

    server_version = 150_000

    def __init__(self, server: ModelServer, env: ModelEnv) -> None:
        self._server, self._env = server, env
        server.pids += 1
        self.backend_pid = server.pids
        self.is_open = True
        self.in_transaction = False
        self.owner: str | None = None
        self.listens = False
        self._on_its_way: list[tuple[bool, Sequence[Call]]] = []  # and whether the server is at work on it
        self._notes: list[Notification] = []
        self._heard = trio.Event()
        server.connections.append(self)

    def parameter(self, name: str) -> str:
        """The encoding."""
        return "UTF8"

    async def run(self, calls: Sequence[Call], *, withdraw: bool, answer_s: float | None = None) -> list[Result]:
        """Execute them, in time or late, or not at all."""
        luck, trouble = self._server.luck, self._env.network.trouble
        await self._travel("is sent")
        if not self.is_open or luck.happens("lost before it is sent", trouble / 4):
            return self._lose(sent=False)
        with trio.CancelScope(shield=not withdraw):
            if not withdraw and luck.happens("lost on its way", trouble / 2):
                if luck.happens("it arrives nevertheless", 0.7):
                    self._on_its_way.append((luck.happens("the server is at work on it", 0.5), calls))
                return self._lose(sent=True)
            await self._travel("arrives")
            if not self.is_open:
                return self._lose(sent=True)
            results = self._server.execute(self, calls)
            if luck.happens("its answer is lost", trouble / 4):
                return self._lose(sent=True)
            await self._travel("is answered")
            return results if self.is_open else self._lose(sent=True)
        raise AssertionError("not reached")

    async def _travel(self, label: str) -> None:
        """Let others go on, and time pass now and then; nothing gets through to who is cut off, or from there."""
        await self._env.point(f"a statement {label}")
        if self._server.luck.happens("takes its time", 0.1):
            await self._env.sleep(self._server.luck.one_of("for so long", [0.001, 0.01, 1]))
        while (until := self._env.network.cut_off_until) > trio.current_time():  # it may grow
            await self._env.sleep(until - trio.current_time())

    def _lose(self, *, sent: bool) -> list[Result]:
        self.close()
        raise ConnectionLostError("the model has cut it", sent=sent)

    @property
    def is_on_its_way(self) -> bool:
        """Whether something may still be executed, though nobody waits for it."""
        return bool(self._on_its_way)

    def land(self, *, arrived: bool = False) -> None:
        """Execute what is still on its way, or of that what has *arrived*."""
        landing = [calls for is_there, calls in self._on_its_way if is_there or not arrived]
        self._on_its_way = [each for each in self._on_its_way if arrived and not each[0]]
        for calls in landing:
            try:
                self._server.execute(self, calls)
            except ServerError:
                pass
        self._forget()

    def _forget(self) -> None:
        if not self.is_open and not self._on_its_way and self in self._server.connections:
            self._server.connections.remove(self)

    async def notified(self) -> list[Notification]:
        """Wait for notifications."""
        while not self._notes:
            if not self.is_open:
                raise ConnectionLostError("closed", sent=False)
            self._heard = trio.Event()
            await self._heard.wait()
        found, self._notes = self._notes, []
        return found

    def hear(self, note: Notification) -> None:
        """Somebody has said something; it may be lost."""
        if self.listens and not self._server.luck.happens("a notification is lost", self._server.deafness):
            self._notes.append(note)
            self._heard.set()

    def is_alive(self) -> bool:
        """Whether it is open."""
        return self.is_open

    def close(self) -> None:
        """End it; what is on its way stays there."""
        self.is_open, self.owner = False, None
        self._forget()
        self._heard.set()

    abandon = close


@attrs.define
class Network:
    """The way of one worker to the server: how often a write loses its connection, and until when nothing arrives."""

    trouble: float = 0.0
    cut_off_until: float = 0.0
    is_dead: bool = False
    """Whether the worker was killed: nothing of it arrives any more but what is on its way."""


@attrs.frozen(eq=False)
class ModelEnv(SimulatedEnv):
    """What one worker of the model sees of its simulated world."""

    server: ModelServer = attrs.field(kw_only=True)
    network: Network = attrs.field(kw_only=True, factory=Network)

    def postgres(self) -> Connect:
        """Connections to the model."""

        async def connect(url: str, bounds: Bounds) -> Any:
            await self.point("connects")
            if self.network.is_dead or self.network.cut_off_until > trio.current_time():
                raise StorageConnectionError("the model is cut off; look at the network")
            return ModelConnection(self.server, self)

        return connect

    def kill(self) -> None:
        """The worker dies: its connections end, and nothing that it still does reaches anything."""
        self.network.is_dead = True
        for each in list(self.server.connections):
            if each._env is self:
                each.close()
