"""
Guardrails around a model call. They run in sequence, those of plugins before those of the agent.

    messages ──► input guardrails ──► model ──► output guardrails ──► hooks ──► stored, shown, calls made

*   A model sees a user's message only after each plugin and agent with input guardrails has a verdict on it. A verdict
    is one stored event, so a resumed invocation takes it from the log, and a message of a run that was killed before
    the verdict is checked by the next run that would show it.
*   A refused message ends the run. It stays in the log, and its verdict hides it from all later prompts. A replacement
    is shown in its place.
*   Output guardrails check every complete response with text, before a hook sees it, so a refused one is in no log of
    a plugin. A response that a hook returns is checked as well. Partial responses are dropped, so an agent with output
    guardrails emits no partial events. The verdict on a response is the response's own event.
*   An exception in a guardrail fails the run; it never counts as a pass.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import trio

from .._json import FrozenTuple, brief, dumps, freeze
from .._values import changed
from ..env import derived_id
from ..errors import GuardrailTripwireError, InvalidValueError
from ..events import Event, EventActions, RecordedStep, Replay
from ..models import LlmResponse
from ..runtime import InvocationContext, ToolContext
from ..runtime._failure import leaves
from ..sessions import LiveSession
from ..types import Content, FunctionCall, Part, id_of
from ._base import SET_MODEL_RESPONSE
from ._guardrails import Finding, Guardrail, check_all
from ._request import ModelRequest, prepare

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = ["guarded"]

STEP = "guardrails"
"""The name of the step that the event of a verdict records."""

INSIDE = f"/{STEP}#"
"""A part of the path of everything inside of guardrails. Model calls there are not checked."""


async def guarded(agent: LlmAgent, ctx: InvocationContext, request: ModelRequest) -> LlmResponse | None:
    """
    Return the response of the model, or of a callback, after all guardrails; None if the invocation has ended.

    Raises:
        GuardrailTripwireError: A guardrail refused a message of this invocation, or the response.
    """
    if INSIDE in ctx._path:
        return await agent._answer(ctx, request)
    own = _Source(f"agent {agent.name}", ctx, agent.input_guardrails, agent.output_guardrails)
    sources = [*_of_plugins(ctx), own]
    await _check_messages(agent, ctx, request, sources)
    check = _Check(request.event_id, [source for source in sources if source.output])
    if not check.sources:
        return await agent._answer(ctx, request)
    request.check = check
    response = await agent._answer(ctx, request)
    if response is None or response.content is check.passed:
        return response
    return await check(response)  # a hook has returned it


class _Check:
    """The output guardrails of one model call."""

    def __init__(self, event_id: str, sources: Sequence[_Source]) -> None:
        self.sources = sources
        self.passed: Content | None = None
        self._event_id = event_id

    async def __call__(self, response: LlmResponse) -> LlmResponse:
        """Return the response, its replacement, or a response that requests another one."""
        for source in self.sources:
            said = _said(response)
            if said is not None:
                response = await source.check_response(self._event_id, response, said)
        self.passed = response.content
        return response


def _of_plugins(ctx: InvocationContext) -> list[_Source]:
    invocation = ctx._invocation
    found = []
    for guards in invocation.program.plugins.get("_guardrails", ()):
        name, input, output = guards()
        base: InvocationContext | None = invocation.memo.get(name)
        if base is None:
            base = invocation.memo[name] = InvocationContext.root(invocation)
        found.append(_Source(name, base, input, output))
    return found


class _Source:
    """The guardrails of one plugin or agent. Their contexts are below *base*."""

    def __init__(
        self, name: str, base: InvocationContext, input: Sequence[Guardrail], output: Sequence[Guardrail]
    ) -> None:
        self._name = name
        self._base = base
        self._invocation = base._invocation
        self.input = input
        self.output = output

    def kind(self, message: Message | None) -> str:
        """Return the first part of the key of a verdict. A message inside of a call belongs to that call."""
        if message is None or message.id:
            return self._name
        return f"{self._base._path}!{self._name} {dumps(message.content.text)}"

    def known(self, message: Message) -> Verdict | None:
        """Return the verdict from the log, or None."""
        if not self.input:
            return None
        return Checked.of(self._invocation.live).verdict(f"{self.kind(message)} {message.id}")

    async def check_message(self, message: Message, shown: Content) -> None:
        """Check the message as it is *shown* by now, and store the verdict. Concurrent branches wait for the first."""
        place = f"{self.kind(message)} {message.id}"
        async with self._invocation.memo.setdefault(("guardrails", place), trio.Lock()):
            if self.known(message) is not None:
                return
            context = self._context(derived_id(self._invocation.id, place, 1))
            finding = await self._check(context, self.input, shown, "user")
            parts = [] if finding.replacement is None else [*finding.replacement.parts]
            parts += [] if finding.retry is None else [Part(text=finding.retry)]
            # The request of an agent inside of a call or a node shows a message of which no transcript has an event.
            is_inside = not message.id and finding.trip is None and finding != Finding()
            is_hidden = bool(message.id) and (finding.replacement is not None or finding.trip is not None)
            hides = message.id if is_inside or is_hidden else None
            replay = Replay(step=RecordedStep(name=STEP, path=place), hides=hides)
            event = Event(
                id=context.function_call_id,
                content=Content(role="user", parts=FrozenTuple(parts)) if parts else None,
                output=_verdict(finding, self.input),
                actions=EventActions(replay=replay),
            )
            await self._invocation.emitter.emit(context, event)

    async def check_response(self, event_id: str, response: LlmResponse, said: Content) -> LlmResponse:
        """Return the response, its replacement, or a response that requests another one."""
        place = f"{self._base._path}!{self._name} after {event_id} {dumps([part.text for part in said.parts])}"
        context = self._context(derived_id(self._invocation.id, place, 1))
        finding = await self._check(context, self.output, said, "model")
        if finding.trip is not None:
            await self._note_refused(context, finding, response)
            raise finding.trip
        self._base._state.merge(context._state.pending())
        about = ("turn_complete", "usage_metadata", "finish_reason", "model_version", "ask_again", "ask_again_max")
        kept = {name: getattr(response, name) for name in about}
        if finding.retry is not None:
            return LlmResponse(**{**kept, "ask_again": finding.retry})
        if finding.replacement is None:
            return response
        return LlmResponse(content=_in_place(response.content, finding.replacement), **kept)

    async def _note_refused(self, context: ToolContext, finding: Finding, response: LlmResponse) -> None:
        """Store the verdict and the usage of a refused response, and nothing of its content."""
        step = RecordedStep(name=STEP, path=context._path)
        event = Event(
            id=self._invocation.ids.claim(f"{context._path}!refused"),
            output=_verdict(finding, self.output),
            usage_metadata=response.usage_metadata,
            actions=EventActions(replay=Replay(step=step, asked=True)),
        )
        await self._invocation.emitter.emit(context, event)

    async def _check(
        self, context: ToolContext, guardrails: Sequence[Guardrail], content: Content, role: str
    ) -> Finding:
        try:
            return await check_all(context, guardrails, content, role=role)
        except BaseException as error:
            self._invocation.ids.release(context._claims)  # the next check takes the same
            if isinstance(error, Exception):
                self._invocation.failures.of_hooks += leaves(error)
            raise

    def _context(self, id: str) -> ToolContext:
        """Return a context for one check. It is inside of a call, so events of agents in it are in no transcript."""
        base = self._base
        context = ToolContext(base, base._state.layer(), id, path=f"{base._path}{INSIDE}{id}")
        context._cannot_wait = "in a guardrail"
        return context


def _verdict(finding: Finding, guardrails: Sequence[Guardrail]) -> Any:
    """Return the output of the event of a verdict."""
    if finding.trip is not None:
        return freeze({"verdict": "tripped", "guardrail": finding.trip.guardrail, "info": finding.trip.info})
    what = "passed" if finding == Finding() else "replaced" if finding.retry is None else "retry"
    return freeze({"verdict": what, "guardrails": [each._called for each in guardrails]})


# --- messages ---------------------------------------------------------------------------------------------------------


class Message(NamedTuple):
    """A message to an agent."""

    id: str
    """The id of the user's event; "" for the request of another agent, inside of a call or a node."""
    content: Content
    seq: int = 0
    invocation_id: str | None = None


class Verdict(NamedTuple):
    """A stored verdict on a message."""

    event: Event
    what: str
    """`passed`, `replaced`, `retry` or `tripped`."""

    @property
    def shown(self) -> Content | None:
        """The replacement of the message, or None."""
        return self.event.content if self.what == "replaced" else None

    def check(self) -> None:
        """Raise GuardrailTripwireError if the message was refused."""
        if self.what == "tripped":
            raise GuardrailTripwireError(self.event.output["info"], guardrail=self.event.output["guardrail"])


class Checked:
    """The messages and verdicts in the log of a session; only new events are read."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.changed_seq = 0
        """The `seq` of the last verdict that changes prompts."""
        self._verdicts: dict[str, Verdict] = {}
        self._next_seq = 0
        self._done: dict[tuple[str, int], int] = {}  # leading messages with a verdict, by kind and start

    @classmethod
    def of(cls, live: LiveSession) -> Checked:
        """Return the messages and verdicts of *live*."""
        found: Checked = live.memo.setdefault("guardrails", cls())
        for event in live.events[live.index_of(found._next_seq) :]:
            found._read(event)
        return found

    def _read(self, event: Event) -> None:
        assert event.seq is not None
        self._next_seq, step = event.seq + 1, event.actions.replay.step
        if event.author == "user" and event.content is not None:
            if not all(part.function_response is not None for part in event.content.parts):
                self.messages.append(Message(id_of(event), event.content, event.seq, event.invocation_id))
        elif step is not None and step.name == STEP and isinstance(event.output, Mapping):
            self._verdicts[step.path] = Verdict(event, str(event.output.get("verdict")))
            if event.content is not None or event.actions.replay.hides is not None:
                self.changed_seq = event.seq

    def verdict(self, place: str) -> Verdict | None:
        """Return the verdict with this key, or None."""
        return self._verdicts.get(place)

    def since(self, seq: int) -> list[Message]:
        """Return the messages from *seq* on."""
        return self.messages[bisect_left(self.messages, seq, key=_seq_of) :]

    def without(self, kind: str, start_seq: int) -> list[Message]:
        """Return the messages from *start_seq* on without a verdict of this *kind*, the first part of its key."""
        done = self._done.get((kind, start_seq))
        if done is None:
            done = len(self.messages) - len(self.since(start_seq))
        while done < len(self.messages) and f"{kind} {self.messages[done].id}" in self._verdicts:
            done += 1
        self._done[kind, start_seq] = done
        return [each for each in self.messages[done:] if f"{kind} {each.id}" not in self._verdicts]


def _seq_of(message: Message) -> int:
    return message.seq


async def _check_messages(
    agent: LlmAgent, ctx: InvocationContext, request: ModelRequest, sources: Sequence[_Source]
) -> None:
    """
    Check all messages that the request shows, and prepare it again while verdicts change what it shows.

    Raises:
        GuardrailTripwireError: A message of this invocation is refused. An earlier one is only hidden.
    """
    live = ctx._invocation.live
    seq = live.revision  # the request shows the log up to here
    while True:
        for source in sources:
            for message in _left(agent, ctx, source):
                await source.check_message(message, _shown(message, sources))
        for message in _messages(ctx):
            for verdict in _known(message, sources):
                verdict.check()
        if Checked.of(live).changed_seq <= seq:  # concurrent agents store verdicts too
            break
        seq = live.revision
        fresh = await prepare(agent, ctx, request.event_id)  # takes new messages, too
        for name in ModelRequest.__slots__:
            setattr(request, name, getattr(fresh, name))
    _show_inside(ctx, request, sources)


def _messages(ctx: InvocationContext) -> list[Message]:
    """Return the messages of the invocation that *ctx* has to respond to."""
    inside, invocation = ctx._position.inside, ctx._invocation
    if inside is not None and inside.content != invocation.user_content:  # asked by an agent in a call or a node
        return [Message("", inside.content, invocation_id=ctx.invocation_id)]
    found = Checked.of(invocation.live).since(invocation.history.message_seq)
    return [each for each in found if each.invocation_id == invocation.id]


def _left(agent: LlmAgent, ctx: InvocationContext, source: _Source) -> list[Message]:
    """Return the messages that the model would be shown and on which *source* has no verdict."""
    if not source.input:
        return []
    if ctx._position.inside is not None:
        return [each for each in _messages(ctx) if source.known(each) is None]
    history = ctx._invocation.history
    start_seq = history.message_seq if agent.include_contents == "none" else history.prompt_seq
    return Checked.of(ctx._invocation.live).without(source.kind(None), start_seq)


def _known(message: Message, sources: Sequence[_Source]) -> list[Verdict]:
    """Return the verdicts on the message, in the order of the sources."""
    found = (source.known(message) for source in sources)
    return [verdict for verdict in found if verdict is not None]


def _shown(message: Message, sources: Sequence[_Source]) -> Content:
    """Return the message, or its last replacement."""
    shown = [verdict.shown for verdict in _known(message, sources) if verdict.shown is not None]
    return shown[-1] if shown else message.content


def _show_inside(ctx: InvocationContext, request: ModelRequest, sources: Sequence[_Source]) -> None:
    """Apply the verdicts to a request inside of a call or a node, whose message is in no transcript."""
    inside = ctx._position.inside
    asked = [] if inside is None else [each for each in _messages(ctx) if each.content == inside.content]
    for message in asked[-1:]:
        notes = [verdict.event.content for verdict in _known(message, sources) if verdict.what == "retry"]
        contents: list[Content] = []
        for content in request.llm_request.contents:
            is_opening = inside is not None and content is inside.content
            contents.append(_shown(message, sources) if is_opening else content)
            contents += [note for note in notes if note is not None] if is_opening else []
        request.llm_request = attrs.evolve(request.llm_request, contents=contents)


# --- responses --------------------------------------------------------------------------------------------------------


def _said(response: LlmResponse) -> Content | None:
    """Return the content that the user would see: no thoughts, no calls except a structured response; None if empty."""
    content = response.content
    if content is None:
        return None
    parts = [part for part in map(_told_part, content.parts) if part is not None]
    return Content(role="model", parts=FrozenTuple(parts)) if parts else None


def _told_part(part: Part) -> Part | None:
    call = part.function_call
    if call is not None:
        return Part(text=dumps(call.args)) if call.name == SET_MODEL_RESPONSE else None
    if part.text is not None:
        return part if part.text and not part.thought else None
    return part


def _in_place(content: Content | None, replacement: Content) -> Content:
    """Return *replacement* with the calls of the response; a call that is the structured response is replaced."""
    calls = [] if content is None else [part for part in content.parts if part.function_call is not None]
    answers = [part for part in calls if part.function_call and part.function_call.name == SET_MODEL_RESPONSE]
    if not answers:
        return changed(replacement, parts=FrozenTuple([*replacement.parts, *calls]))
    try:
        args = json.loads(replacement.text)
    except ValueError:
        args = None
    if not isinstance(args, dict):
        problem = f"expected the JSON object that is the answer, found {brief(replacement.text)}"
        raise InvalidValueError("what an output guardrail returned", problem)
    others = [part for part in calls if part not in answers]
    call = Part(function_call=FunctionCall(name=SET_MODEL_RESPONSE, args=args))
    return Content(role="model", parts=FrozenTuple([*others, call]))
