"""
An agent's question to its model, where guardrails look at what goes in and at what comes out.

    message ──► guardrails with parallel=False ──► model ──┐
          └───► the other guardrails ──────────► verdict ──┴─► hooks, fragments, answer, tools

*   A message is looked at once by the guardrails of each agent that is shown it, and once by those of a plugin, before
    a model says anything. The verdict is stored as an event, and later runs find it there. See `_verdicts`.
*   What the model says meanwhile is held back in front of everything else: no hook sees it, no fragment is shown,
    nothing is stored and no tool is called before the verdict. So what is refused is in no log of a plugin, either.
*   If the message is replaced, or the model is to be told something, what was held is dropped, and the model is asked
    anew. The question that was dropped is noted for the budgets.
*   Output guardrails look at complete answers. The fragments of an answer are held until it has passed.
*   What they fail with is a failure of the run, never a pass.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import trio

from .._json import FrozenTuple, brief, dumps, freeze
from .._values import changed
from ..env import Env, derived_id
from ..errors import FatalError, InvalidValueError
from ..events import Event, EventActions, RecordedStep, Replay
from ..models import BaseLlm, LlmRequest, LlmResponse
from ..models._base import responses_of
from ..runtime import InvocationContext, ToolContext
from ..runtime._failure import first_failure, is_only_cancelled, leaves
from ..types import Content, FunctionCall, Part
from ._base import SET_MODEL_RESPONSE
from ._guardrails import Finding, Guardrail, ask_all
from ._request import ModelRequest, prepare
from ._verdicts import STEP, Looked, Message, Verdict

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = ["guarded"]

INSIDE = f"/{STEP}#"
"""What is in the path of everything that guardrails do themselves: agents in there are not looked at."""

# A model that is asked beside a guardrail is at most so many fragments ahead; then its stream waits for the verdict.
HELD_MAX = 1_024

# Fragments of an answer that an output guardrail waits for. One that has more is shown in one piece.
FRAGMENTS_MAX = 10_000


class _Failed(FatalError):
    """Brings the *error* that a guardrail has failed with past the hooks for failures of the model."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Source:
    """The guardrails of one plugin or agent, and where they say what they say."""

    def __init__(
        self, name: str, base: InvocationContext, input: Sequence[Guardrail], output: Sequence[Guardrail]
    ) -> None:
        self._name = name
        self._base = base
        self._invocation = base._invocation
        self._input = input
        self.output = output

    def looking(self, *, parallel: bool) -> list[Guardrail]:
        return [each for each in self._input if each.parallel is parallel]

    # --- messages

    def kind(self, message: Message | None, *, parallel: bool) -> str:
        """What verdicts of these guardrails are known by, with the message's id. Inside of a call they are its own."""
        kind = f"{self._name} {'beside' if parallel else 'before'}"
        return kind if message is None or message.id else f"{self._base._path}!{kind} {dumps(message.content.text)}"

    def known(self, message: Message, *, parallel: bool) -> Verdict | None:
        """The verdict, if it was given before."""
        place = f"{self.kind(message, parallel=parallel)} {message.id}"
        return Looked.at(self._invocation.live).verdict(place)

    async def look_at(self, message: Message, shown: Content, *, parallel: bool) -> None:
        """Look at the message, as it is *shown* by now, unless that was done before; the first does it, others wait."""
        place = f"{self.kind(message, parallel=parallel)} {message.id}"
        async with self._invocation.memo.setdefault(("guardrails", place), trio.Lock()):
            if self.known(message, parallel=parallel) is None:
                await self._look(place, message, shown, self.looking(parallel=parallel))

    async def _look(self, place: str, message: Message, shown: Content, guardrails: Sequence[Guardrail]) -> None:
        context = self._context(derived_id(self._invocation.id, place, 1))
        finding = await self._ask(context, guardrails, shown, "user")
        parts = [] if finding.replacement is None else [*finding.replacement.parts]
        parts += [] if finding.retry is None else [Part(text=finding.retry)]
        # What is shown inside of a call or a node is put into the request there, and found by no transcript.
        is_inside = not message.id and finding.trip is None and finding != Finding()
        is_hidden = finding.replacement is not None or (finding.trip is not None and not finding.keeps_refused)
        hides = message.id if is_inside or (is_hidden and message.id) else None
        replay = Replay(step=RecordedStep(name=STEP, path=place), hides=hides)
        event = Event(
            id=context.function_call_id,
            content=Content(role="user", parts=FrozenTuple(parts)) if parts else None,
            output=_told(finding, guardrails),
            actions=EventActions(replay=replay),
        )
        await self._invocation.emitter.emit(context, event)

    # --- answers

    async def look_at_answer(self, event_id: str, response: LlmResponse, said: Content) -> LlmResponse:
        """Return what is left of a complete answer: itself, another one, or a word that it is to be given again."""
        place = f"{self._base._path}!{self._name} after {event_id} {dumps([part.text for part in said.parts])}"
        context = self._context(derived_id(self._invocation.id, place, 1))
        finding = await self._ask(context, self.output, said, "model")
        if finding.trip is not None:
            await self._note_refused(context, finding, response)
            raise finding.trip
        self._base._state.merge(context._state.pending())
        about = ("turn_complete", "usage_metadata", "finish_reason", "model_version")
        kept = {name: getattr(response, name) for name in about}
        if finding.retry is not None:
            return LlmResponse(ask_again=finding.retry, **kept)
        if finding.replacement is None:
            return response
        return LlmResponse(content=_in_place(response.content, finding.replacement), **kept)

    async def _note_refused(self, context: ToolContext, finding: Finding, response: LlmResponse) -> None:
        """Store that an answer was refused, by whom, and what it has cost; nothing of what it says."""
        step = RecordedStep(name=STEP, path=context._path)
        actions = EventActions(replay=Replay(step=step, asked=True))
        told = _told(finding, self.output)
        event = Event(
            id=self._invocation.ids.claim(f"{context._path}!refused"),
            output=told, usage_metadata=response.usage_metadata, actions=actions,
        )  # fmt: skip
        await self._invocation.emitter.emit(context, event)

    # --- both

    async def _ask(
        self, context: ToolContext, guardrails: Sequence[Guardrail], content: Content, role: str
    ) -> Finding:
        try:
            return await ask_all(context, guardrails, content, role=role)
        except BaseException as error:
            self._invocation.ids.release(context._claims)  # another look takes the same
            if isinstance(error, Exception):
                self._invocation.failures.of_hooks += leaves(error)
            raise

    def _context(self, looks: str) -> ToolContext:
        """Of the guardrails, for one look: what agents say in it is inside of a call, so nobody outside is shown it."""
        base = self._base
        context = ToolContext(base, base._state.layer(), looks, path=f"{base._path}{INSIDE}{looks}")
        context._cannot_wait = "in a guardrail"
        return context


def _told(finding: Finding, guardrails: Sequence[Guardrail]) -> Any:
    """The verdict, as the event that is stored says it."""
    if finding.trip is not None:
        return freeze({"verdict": "tripped", "guardrail": finding.trip.guardrail, "info": finding.trip.info})
    what = "passed" if finding == Finding() else "replaced" if finding.retry is None else "retry"
    return freeze({"verdict": what, "guardrails": [each._called for each in guardrails]})


# --- the question -----------------------------------------------------------------------------------------------------


async def guarded(agent: LlmAgent, ctx: InvocationContext, request: ModelRequest) -> LlmResponse | None:
    """
    What `agent._answer` returns, once all guardrails have let it pass.

    Raises:
        GuardrailTripwireError: One has not. What the model has said is dropped.
    """
    if INSIDE in ctx._path:
        return await agent._answer(ctx, request)
    own = _Source(f"agent {agent.name}", ctx, agent.input_guardrails, agent.output_guardrails)
    sources = [*_of_plugins(ctx), own]
    try:
        return await _answer(agent, ctx, request, sources)
    except _Failed as failed:
        raise failed.error from None


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


async def _answer(
    agent: LlmAgent, ctx: InvocationContext, request: ModelRequest, sources: Sequence[_Source]
) -> LlmResponse | None:
    live = ctx._invocation.live
    seq = live.revision  # what the request shows
    while True:  # until nothing is shown that was not looked at: preparing takes messages, too
        await _look_at(agent, ctx, sources, parallel=False)
        if Looked.at(live).changed_seq <= seq:  # else by agents beside this one, too
            _show_inside(ctx, request, sources)
            if not any(_left(agent, ctx, source, parallel=True) for source in sources):
                break
            held = await _held_answer(agent, ctx, request, sources, seq)
            if held is not None:
                return held.answer
        seq = live.revision
        await _prepare_again(agent, ctx, request)
    _look_at_answers(request, sources)
    return await agent._answer(ctx, request)


def _asked_inside(ctx: InvocationContext) -> Message | None:
    """What an agent in a call or a node is asked, unless that is the user's message; None for agents outside."""
    inside = ctx._position.inside
    if inside is None or inside.content == ctx._invocation.user_content:
        return None
    return Message("", inside.content, invocation_id=ctx.invocation_id)


def _messages(ctx: InvocationContext) -> list[Message]:
    """What the invocation is asked, as far as *ctx* is asked it."""
    asked, invocation = _asked_inside(ctx), ctx._invocation
    found = Looked.at(invocation.live).since(invocation.history.message_seq)
    return [asked] if asked is not None else [each for each in found if each.invocation_id == invocation.id]


def _left(agent: LlmAgent, ctx: InvocationContext, source: _Source, *, parallel: bool) -> list[Message]:
    """The messages that the model would be shown and that *source* has not looked at."""
    if not source.looking(parallel=parallel):
        return []
    if ctx._position.inside is not None:
        return [each for each in _messages(ctx) if source.known(each, parallel=parallel) is None]
    history = ctx._invocation.history
    start_seq = history.message_seq if agent.include_contents == "none" else history.prompt_seq
    return Looked.at(ctx._invocation.live).without(source.kind(None, parallel=parallel), start_seq)


async def _look_at(agent: LlmAgent, ctx: InvocationContext, sources: Sequence[_Source], *, parallel: bool) -> None:
    """
    Have the guardrails look, plugins' first, those that look *parallel* to the model or those that look before.

    Raises:
        GuardrailTripwireError: What the invocation is asked is refused. What was asked earlier is only hidden.
    """
    for source in sources:
        for message in _left(agent, ctx, source, parallel=parallel):
            await source.look_at(message, _shown(message, sources), parallel=parallel)
    for message in _messages(ctx):
        for verdict in _known(message, sources):
            verdict.check()


def _known(message: Message, sources: Sequence[_Source]) -> list[Verdict]:
    """The verdicts on the message, in the order in which guardrails look."""
    found = (source.known(message, parallel=parallel) for parallel in (False, True) for source in sources)
    return [verdict for verdict in found if verdict is not None]


def _shown(message: Message, sources: Sequence[_Source]) -> Content:
    """The message as verdicts show it by now."""
    shown = [verdict.shown for verdict in _known(message, sources) if verdict.shown is not None]
    return shown[-1] if shown else message.content


async def _prepare_again(agent: LlmAgent, ctx: InvocationContext, request: ModelRequest) -> None:
    fresh = await prepare(agent, ctx, request.event_id)
    for name in ModelRequest.__slots__:
        setattr(request, name, getattr(fresh, name))


def _show_inside(ctx: InvocationContext, request: ModelRequest, sources: Sequence[_Source]) -> None:
    """Put into a request inside of a call or a node what verdicts show: it shows the message, but no event of it."""
    inside = ctx._position.inside
    asked = [] if inside is None else [each for each in _messages(ctx) if each.content == inside.content]
    for message in asked[-1:]:  # of the messages of an invocation, the one that this node is asked
        notes = [verdict.event.content for verdict in _known(message, sources) if verdict.what == "retry"]
        contents: list[Content] = []
        for content in request.llm_request.contents:
            is_opening = inside is not None and content is inside.content
            contents.append(_shown(message, sources) if is_opening else content)
            contents += [note for note in notes if note is not None] if is_opening else []
        request.llm_request = attrs.evolve(request.llm_request, contents=contents)


def _look_at_answers(request: ModelRequest, sources: Sequence[_Source]) -> None:
    for source in sources:
        if source.output:
            request.model = _LookedAt(request.model, request.event_id, source)


class _Held(NamedTuple):
    answer: LlmResponse | None


async def _held_answer(
    agent: LlmAgent, ctx: InvocationContext, request: ModelRequest, sources: Sequence[_Source], seq: int
) -> _Held | None:
    """
    Ask the model while the guardrails look at the message, and return the answer when it has passed.

    None if the model is to be asked something else: its answer is dropped. The request shows the log up to *seq*.
    """
    request.model = gate = _Gate(request.model, ctx._path)
    _look_at_answers(request, sources)
    env, failed, held = ctx._invocation.env, list[BaseException](), None
    is_outdated = False

    async def look() -> None:
        nonlocal is_outdated
        await env.point(f"guardrails {ctx._path}")
        try:
            await _look_at(agent, ctx, sources, parallel=True)
            is_outdated = Looked.at(ctx._invocation.live).changed_seq > seq
        except BaseException as error:
            if is_only_cancelled(error):
                raise
            failed.append(error)
        if failed or is_outdated:
            nursery.cancel_scope.cancel()
        else:
            gate.passed.set()

    try:
        async with trio.open_nursery() as nursery:
            gate.opens(nursery, env)
            nursery.start_soon(look, name=f"guardrails of {agent.name}")
            found = await agent._answer(ctx, request)
            await gate.passed.wait()
            nursery.cancel_scope.cancel()
            held = _Held(found)
    except BaseException as group:
        if not failed:
            failed.append(group)
    if failed:
        raise first_failure(failed[0])
    if held is None and gate.was_asked:
        await _note_dropped(ctx, request.event_id, seq)
    return held


async def _note_dropped(ctx: InvocationContext, event_id: str, seq: int) -> None:
    """Store that the model was asked, for the budgets, with the log up to *seq*: no answer says so."""
    context = ctx._for_model_hooks(event_id)
    actions = EventActions(replay=Replay(asked=True))
    event = Event(id=derived_id(ctx.invocation_id, f"{ctx._path}!dropped {seq}", event_id), actions=actions)
    await ctx._invocation.emitter.emit(context, event)


# --- models that hold back --------------------------------------------------------------------------------------------


class _InFront(BaseLlm):
    """A model in front of another one, which it passes for."""

    def __init__(self, model: BaseLlm) -> None:
        self.name = model.name
        self.model = model.model
        self.capabilities = model.capabilities
        self._behind = model


class _Gate(_InFront):
    """Asks the model behind it at once, and lets through what that says when the message has `passed`."""

    def __init__(self, model: BaseLlm, path: str) -> None:
        super().__init__(model)
        self._path = path
        self.passed = trio.Event()
        self.was_asked = False

    def opens(self, nursery: trio.Nursery, env: Env) -> None:
        """The model is asked in a task of *nursery*."""
        self._nursery, self._env = nursery, env

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield what the model says, once that may be heard."""
        self.was_asked = True
        send, receive = trio.open_memory_channel[Any](HELD_MAX)
        scope = trio.CancelScope()
        self._nursery.start_soon(self._ask, request, stream, send, scope, name=f"held model {self.name}")
        try:
            await self.passed.wait()
            async for said in receive:
                if isinstance(said, Exception):
                    raise said
                yield said
        finally:
            scope.cancel()

    async def _ask(
        self, request: LlmRequest, stream: bool, send: trio.MemorySendChannel[Any], scope: trio.CancelScope
    ) -> None:
        with scope, send:
            await self._env.point(f"held model {self._path}")
            try:
                await self._pass_on(request, stream, send)
            except Exception as error:
                await send.send(error)

    async def _pass_on(self, request: LlmRequest, stream: bool, send: trio.MemorySendChannel[Any]) -> None:
        async with aclosing(responses_of(self._behind, request, stream)) as responses:
            async for response in responses:
                await send.send(response)
                if not getattr(response, "partial", None):
                    return


class _LookedAt(_InFront):
    """Says what the model behind it says, once output guardrails have let it pass."""

    def __init__(self, model: BaseLlm, event_id: str, source: _Source) -> None:
        super().__init__(model)
        self._event_id = event_id
        self._source = source

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield what the model says when the guardrails have seen all of it."""
        fragments: list[LlmResponse] = []
        async with aclosing(responses_of(self._behind, request, stream)) as responses:
            async for response in responses:
                if getattr(response, "partial", None):
                    if len(fragments) <= FRAGMENTS_MAX:
                        fragments.append(response)
                    continue
                said = _said(response) if isinstance(response, LlmResponse) else None
                taken = response if said is None else await self._look(response, said)
                if taken is response and len(fragments) <= FRAGMENTS_MAX:
                    for fragment in fragments:
                        yield fragment
                yield taken
                return

    async def _look(self, response: LlmResponse, said: Content) -> LlmResponse:
        try:
            return await self._source.look_at_answer(self._event_id, response, said)
        except FatalError:
            raise
        except Exception as error:  # it is none of the model's failures
            raise _Failed(error) from error


def _said(response: LlmResponse) -> Content | None:
    """What somebody would be told by *response*: neither thoughts nor calls, but an answer that a call gives."""
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
    """What *replacement* makes of the content of an answer: its calls stay, but for one that is the answer."""
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
