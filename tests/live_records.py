"""A live conversation as plain lines: everything that the caller is given and the server is sent, with its time."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from textwrap import dedent, wrap
from typing import Any

import trio

from minirun import Runner
from minirun.events import Event
from minirun.runners import LiveRun
from minirun.testing import LiveSent, ScriptedLive
from minirun.types import Content, Part

__all__ = ["Recorder", "left", "recorded", "records"]

_ID = re.compile(r"(?:m-)?[0-9a-f]{24,}")


class Recorder:
    """
    What happens in a run, as lines, with the seconds since this was made; ids are named in the order of their events.

    An event that is stored has its `seq` in front, a partial one `~`; what the server is sent has `>`. `in` and `out`
    are transcriptions, with their text if it is another one than that of the content, and a dot if they are finished.
    A response that the server is sent has the id of its call, and `more` if others follow.
    """

    def __init__(self) -> None:
        self._began = trio.current_time()
        self._names: dict[str, str] = {}
        self.lines: list[str] = []

    def event(self, event: Event) -> None:
        """Note an event that the caller is given."""
        self.lines.append(f"{self._at()} {self.line(event)}")

    def sent(self, model: ScriptedLive) -> Iterator[str]:
        """What a server was sent, but for sound, a line each; a history has a line for each of its contents."""
        for each in model.sent:
            if each.kind != "audio":
                yield self._sent(each)
                yield from (f"    {' '.join(_content(content))}" for content in each.contents)

    def _at(self) -> str:
        return f"{trio.current_time() - self._began:.2f}"

    def _sent_part(self, part: Part) -> str:
        response = part.function_response
        if response is None:
            return _part(part)
        told = [f"{response.name}({self._named(response.id)})={dict(response.response)}"]
        told += [] if response.will_continue is None else ["more" if response.will_continue else "no more"]
        told += [response.scheduling] if response.scheduling else []
        return " ".join(told)

    def line(self, event: Event) -> str:
        """An event, with all that it says."""
        name = self._names.setdefault(event.id or "", f"e{len(self._names) + 1}")
        told: list[str] = ["~" if event.partial else f"{event.seq}", name, event.author or "?"]
        told += _content(event.content)
        text = event.content.text if event.content is not None else None
        for what, spoken in (("in", event.input_transcription), ("out", event.output_transcription)):
            if spoken is not None:
                told.append(
                    f"{what}{'' if spoken.text == text else f'={spoken.text!r}'}{'.' if spoken.finished else ''}"
                )
        told += [word for word, is_so in (("over", event.turn_complete), ("cut", event.interrupted)) if is_so]
        told += [f"{event.error_code}: {event.error_message}"] if event.error_code else []
        told += [f"tokens={event.usage_metadata.total_token_count}"] if event.usage_metadata else []
        told += [] if event.live is None else [self._mapping("live", event.live)]
        told += [self._mapping("about", event.custom_metadata)] if event.custom_metadata else []
        told += [self._mapping("state", event.actions.state_delta)] if event.actions.state_delta else []
        told += [self._mapping("files", event.actions.artifact_delta)] if event.actions.artifact_delta else []
        return " ".join(told)

    def _mapping(self, what: str, values: Mapping[str, Any]) -> str:
        pairs = (f"{self._named(name)}={self._named(value)}" for name, value in sorted(values.items()))
        return f"{what}({', '.join(pairs)})"

    def _named(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return _ID.sub(lambda found: self._names.get(found[0], "?"), value)

    def _sent(self, sent: LiveSent) -> str:
        began = f"{sent.at - self._began:.2f} > {sent.kind}"
        told = [f"{began} {sent.connection}" if sent.kind == "connect" else began]
        told += [] if sent.content is None else [f"{sent.content.role}:", *map(self._sent_part, sent.content.parts)]
        told += ["?"] if sent.turn_complete else []
        told += [f"id={self._named(sent.id)}"] if sent.id else []
        told += [f"{sent.item_id} {sent.played_ms} ms"] if sent.item_id else []
        told += [f"{sent.system_instruction!r}"] if sent.system_instruction is not None else []
        told += [f"tools={[each.name for each in sent.tools]}"] if sent.tools else []
        live = None if sent.request is None else sent.request.live
        told += [f"handle={live.handle}"] if live is not None and live.handle else []
        return " ".join([*told, *(["lost"] if sent.lost else [])])


async def recorded(
    runner: Runner,
    model: ScriptedLive,
    act: Callable[[LiveRun], Awaitable[None]],
    *others: ScriptedLive,
    pieces: bool = False,
    **options: Any,
) -> str:
    """
    Let *act* converse, and close the run when it is done; return what the caller was given, and the server was sent.

    What servers of *others* were sent follows. Without *pieces*, what is shown of words and sound before it is stored
    is left out.
    """
    recorder = Recorder()

    async def converse(live: LiveRun) -> None:
        await act(live)
        await live.aclose()

    async with runner.run_live(user_id="u", session_id="s", **options) as live, trio.open_nursery() as nursery:
        nursery.start_soon(converse, live)
        async for event in live:
            if pieces or not event.partial or not _is_piece(event):
                recorder.event(event)
    lines = [*recorder.lines, *(line for each in (model, *others) for line in recorder.sent(each))]
    return "\n".join("\n".join(wrap(line, 105, subsequent_indent="        ")) for line in lines)


async def left(runner: Runner, act: Callable[[LiveRun], Awaitable[None]], **options: Any) -> str:
    """Let *act* converse, and leave the run when it is done, in the middle of things; return what is stored then."""

    async def read() -> None:
        async for _ in live:
            pass

    async with runner.run_live(user_id="u", session_id="s", **options) as live, trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await act(live)
        nursery.cancel_scope.cancel()
    recorder = Recorder()
    session = await runner.session_service.get_session(app_name=runner.app_name, user_id="u", session_id="s")
    assert session is not None
    lines = [recorder.line(event) for event in session.events]
    return "\n".join("\n".join(wrap(line, 105, subsequent_indent="        ")) for line in lines)


def records(text: str) -> str:
    """Lines as they stand in a test."""
    return dedent(text).strip()


def _is_piece(event: Event) -> bool:
    return bool(event.audio or event.input_transcription or event.output_transcription)


def _content(content: Content | None) -> list[str]:
    return [] if content is None else [f"{content.role}:", *(_part(part) for part in content.parts)]


def _part(part: Part) -> str:
    if part.inline_data is not None:
        return f"<{part.inline_data.mime_type} {len(part.inline_data.data)}>"
    if part.function_call is not None:
        return f"{part.function_call.name}({dict(part.function_call.args)})"
    if part.function_response is not None:
        return f"{part.function_response.name}={dict(part.function_response.response)}"
    return repr(part.text)
