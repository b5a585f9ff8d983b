"""
Live runs of the peer and of minirun in the same scenarios, as what is sent to the model and what is stored.

A line says one thing, so an event of ours that says several is several lines:

    sent      `connect`, `connect h1` (with a handle), `history`, `text`, `sound`, `response slow`, `truncate`,
              `update`
    stored    `user text`, `user heard hello`, `root said Hi there`, `root text`, `root call`, `root response`,
              `root file`, `root usage`, `root handle`, `root interrupted`, `root over`, `root connection`, `begins`

What a trace says beyond that is not taken over: ids, wording of the framework, times.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from difflib import ndiff
from typing import Any

import attrs
import trio

from minirun import LiveRequestQueue, LlmAgent, RunConfig
from minirun.events import Event
from minirun.testing import LiveSent, ScriptedLive, call, drop, go_away, handle, hear, interrupted, pause, say, usage
from minirun.testing._live_dialects import DialectName

from ..live_client import Client, conversing, is_over, new_runner, stored

__all__ = ["SCENARIOS", "PlayedLive", "differences_of", "extract_live", "play_live"]


@attrs.define
class PlayedLive:
    """A live scenario that was played."""

    title: str
    sent: list[str]
    stored: list[str]
    exception: str | None = None


# --- of a trace -------------------------------------------------------------------------------------------------------


def extract_live(trace: Iterable[str]) -> list[PlayedLive]:
    """Reduce the lines of a trace file to what is compared."""
    scenarios: list[PlayedLive] = []
    for text in trace:
        entry = json.loads(text)
        kind = entry["kind"]
        if kind == "scenario":
            scenarios.append(PlayedLive(entry["title"], [], []))
        elif kind == "note":
            scenarios[-1].sent += _sent_of_peer(entry)
        elif kind == "exception":
            scenarios[-1].exception = entry["type"]
        elif kind == "stored":
            scenarios[-1].stored = [line for each in entry["events"] for line in _stored_of_peer(each)]
    return scenarios


def _sent_of_peer(entry: Mapping[str, Any]) -> list[str]:
    what = entry["what"]
    if what == "connect":
        return [f"connect {entry['handle']}" if entry["handle"] else "connect"]
    if what == "send_history":
        return ["history"]
    if what == "send_realtime":
        return ["sound"]
    if what == "send_content":
        parts = entry["content"]["parts"]
        return [f"response {part['response']['name']}" if "response" in part else "text" for part in parts]
    return []


def _stored_of_peer(entry: Mapping[str, Any]) -> list[str]:
    author = entry["author"]
    lines = [f"{author} {kind}" for kind in dict.fromkeys(entry["part_kinds"] or ())]
    for name, verb in (("input_transcription", "heard"), ("output_transcription", "said")):
        if name in entry:
            lines.append(f"{author} {verb} {entry[name]['text'].strip()}")
    named = {"usage": "usage", "resumption": "handle", "interrupted": "interrupted", "turn_complete": "over"}
    return lines + [f"{author} {said}" for name, said in named.items() if entry.get(name)]


# --- of a run ---------------------------------------------------------------------------------------------------------


def _sent_of_ours(each: LiveSent) -> list[str]:
    match each.kind:
        case "connect":
            live = each.request.live if each.request is not None else None
            return [f"connect {live.handle}" if live is not None and live.handle else "connect"]
        case "history":
            return ["history"]
        case "audio":
            return ["sound"]
        case "content":
            return ["text"]
        case "responses":
            assert each.content is not None
            return [f"response {response.name}" for response in each.content.responses]
        case "truncate" | "update":
            return [each.kind]
    return []


def _stored_of_ours(event: Event) -> list[str]:
    author, live = event.author, event.live or {}
    lines = ["begins"] if live.get("begins") else []
    if "connection" in live:
        lines.append(f"{author} connection")
    if event.get_function_calls():
        lines.append(f"{author} call")
    if event.get_function_responses():
        lines.append(f"{author} response")
    if event.input_transcription is not None:
        lines.append(f"{author} heard {event.text}")
    elif event.output_transcription is not None:
        lines.append(f"{author} said {event.text}".strip())
    elif event.text:
        lines.append(f"{author} text")
    if event.actions.artifact_delta:
        lines.append(f"{author} file")
    if event.usage_metadata is not None:
        lines.append(f"{author} usage")
    if event.interrupted:
        lines.append(f"{author} interrupted")
    if event.turn_complete:
        lines.append(f"{author} over")
    return lines


def differences_of(peer: PlayedLive, ours: PlayedLive, left_out: Collection[str] = ()) -> list[str]:
    """What is different, a line each: `sent - text` is the peer's alone, `stored + user text` ours alone."""
    found = []
    for name, *sides in (("sent", peer.sent, ours.sent), ("stored", peer.stored, ours.stored)):
        theirs, own = ([line for line in side if line not in left_out] for side in sides)
        found += [f"{name} {each}" for each in ndiff(theirs, own) if each[0] in "+-"]
    if peer.exception != ours.exception:
        found.append(f"exception {peer.exception} -> {ours.exception}")
    return found


# --- the scenarios ----------------------------------------------------------------------------------------------------

Scenario = Callable[["Stage"], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}
KINDS = ["connect", "history", "sound", "text", "response", "truncate", "update"]  # their order at the same moment
QUIET, LOUD = bytes(32000), b"\1\0" * 16000


def scenario(title: str) -> Callable[[Scenario], Scenario]:
    """Add the scenario of this title."""

    def add(play: Scenario) -> Scenario:
        SCENARIOS[title] = play
        return play

    return add


class Stage:
    """Where a scenario is played: in which dialect, and what has come of it."""

    def __init__(self, title: str, dialect: DialectName) -> None:
        self.dialect = dialect
        self.played = PlayedLive(title, [], [])

    def model(self, *script: Any, name: str = "live") -> ScriptedLive:
        """A model that converses by this script."""
        return ScriptedLive(script, dialect=self.dialect, name=name)

    def replies(self, replies: Mapping[str, Any]) -> ScriptedLive:
        """A model that replies to a result by its tool's name, to a text by the text, and to all else by ""."""

        def reply(sent: LiveSent) -> Any:
            named = [each.name for each in sent.content.responses] if sent.content is not None else []
            for key in [*named, sent.text, ""]:
                if key in replies:
                    return replies[key]
            return None

        return ScriptedLive(reply, dialect=self.dialect)

    async def run(
        self, model: ScriptedLive, talk: Callable[[Client], Awaitable[None]], *, also: Any = None, **options: Any
    ) -> None:
        """Converse, and note what was sent and stored."""
        config = options.pop("run_config", None)
        async with new_runner(model, **options) as runner:
            async with conversing(runner, run_config=config) as client:
                await talk(client)
            if client.failure is not None:
                self.played.exception = type(client.failure).__name__
            events = await stored(runner)
        told = [
            (each.at, place, each.connection, KINDS.index(line.split()[0]), line)
            for place, model in enumerate([model, *([also] if also else [])])
            for each in model.sent
            if not each.lost
            for line in _sent_of_ours(each)
        ]
        self.played.sent = [line for *_, line in sorted(told)]
        self.played.stored = [line for event in events for line in _stored_of_ours(event)]


async def play_live(title: str, dialect: DialectName) -> PlayedLive:
    """Play a scenario with minirun."""
    stage = Stage(title, dialect)
    await SCENARIOS[title](stage)
    return stage.played


async def speak(client: Client) -> None:
    """Say something by voice."""
    for chunk in (LOUD, QUIET):
        await client.live.send_audio(chunk)


async def slow(q: str) -> str:
    """Take a second."""
    await trio.sleep(1)
    return "R"


@scenario("audio in, audio out with transcriptions")
async def _audio(stage: Stage) -> None:
    async def talk(client: Client) -> None:
        await speak(client)
        await client.until(is_over)

    await stage.run(stage.model([hear("hello"), say("Hi there"), usage(3, 4)]), talk)


@scenario("the same with save_live_blob")
async def _recorded(stage: Stage) -> None:
    async def talk(client: Client) -> None:
        await speak(client)
        await client.until(is_over)

    model = stage.model([hear("hello"), say("Hi")])
    await stage.run(model, talk, run_config=RunConfig(save_live_blob=True))


@scenario("the user interrupts")
async def _interrupts(stage: Stage) -> None:
    async def talk(client: Client) -> None:
        await client.live.send_text("tell me")
        await client.until(is_over)
        await client.until(is_over)

    await stage.run(stage.model([say("I was going to "), pause(9), hear("stop"), say("Okay")]), talk)


@scenario("an interruption arrives while a tool runs")
async def _interrupts_tool(stage: Stage) -> None:
    model = stage.model([call("slow", q="x")], say("R it is"))

    async def talk(client: Client) -> None:
        await client.live.send_text("do it")
        await client.until(lambda event: event.get_function_calls())
        model.play(interrupted(), say("sorry", audio=False))
        await client.until(is_over)
        await client.until(lambda event: event.text == "R it is" and is_over(event))

    await stage.run(model, talk, tools=[slow], run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("a tool raises")
async def _raises(stage: Stage) -> None:
    async def bad(q: str) -> str:
        """Fail."""
        raise ValueError("tool is bad")

    async def talk(client: Client) -> None:
        await client.ask("do it")

    model = stage.model([call("bad", q="x")], "I cannot")
    await stage.run(model, talk, tools=[bad], run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("two calls in one response")
async def _two_calls(stage: Stage) -> None:
    async def one(x: int) -> int:
        """Return it."""
        return x

    async def two(x: int) -> int:
        """Return it."""
        return x

    async def talk(client: Client) -> None:
        await client.ask("do it")

    model = stage.model([call("one", x=1), call("two", x=2)], "both")
    await stage.run(model, talk, tools=[one, two], run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("a streaming tool")
async def _streams(stage: Stage) -> None:
    async def prices(stock: str) -> AsyncIterator[dict[str, int]]:
        """Tell the prices of a stock."""
        for price in (1, 2, 3):
            await trio.sleep(1)
            yield {"price": price}

    async def talk(client: Client) -> None:
        await client.live.send_text("watch")
        await client.until(lambda event: event.get_function_responses() and not event.partial)
        await client.until(is_over)

    model = stage.replies({"watch": [call("prices", stock="X")], "prices": "watching", "": "I see"})
    await stage.run(model, talk, tools=[prices], run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("a tool with an input stream")
async def _hears(stage: Stage) -> None:
    async def watch(input_stream: LiveRequestQueue) -> AsyncIterator[dict[str, int]]:
        """Watch what is heard."""
        while True:
            request = await input_stream.get()
            if request.blob is not None:
                yield {"heard": len(request.blob.data)}
                return

    async def talk(client: Client) -> None:
        await client.live.send_text("listen")
        await client.until(lambda event: event.get_function_calls())
        await trio.sleep(1)
        await client.live.send_audio(bytes(4))
        await client.until(lambda event: event.get_function_responses() and not event.partial)
        await client.until(is_over)

    model = stage.replies({"listen": [call("watch")], "watch": "listening", "": "I see"})
    await stage.run(model, talk, tools=[watch], run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("stop_streaming")
async def _stops(stage: Stage) -> None:
    async def ticks() -> AsyncIterator[int]:
        """Tick."""
        for number in range(1, 100):
            yield number
            await trio.sleep(1)

    async def talk(client: Client) -> None:
        await client.live.send_text("tick")
        await trio.sleep(1.5)
        await client.live.send_text("stop")
        await client.until(lambda event: event.text == "off" and is_over(event))

    async def stop_streaming(function_name: str) -> None:
        """Stop a stream."""

    stop = [call("stop_streaming", function_name="ticks")]
    model = stage.replies({"tick": [call("ticks")], "stop": stop, "ticks": None, "stop_streaming": "off", "": None})
    await stage.run(model, talk, tools=[ticks, stop_streaming], run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("go_away after a handle: the connection is renewed")
async def _goes_away(stage: Stage) -> None:
    gemini = stage.dialect == "gemini"
    first = [handle("h1"), "one"] if gemini else ["one"]

    async def talk(client: Client) -> None:
        await client.ask("hi")
        model.play(go_away(10) if gemini else drop(1000))
        await client.until(lambda event: event.live and "connection" in event.live)
        await client.ask("again")

    model = stage.model(first, "two")
    await stage.run(model, talk, run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("go_away without a handle")
async def _goes_away_without(stage: Stage) -> None:
    async def talk(client: Client) -> None:
        await client.ask("hi")
        model.play(go_away(10) if stage.dialect == "gemini" else drop(1000))
        await client.until(lambda event: event.live and event.live.get("connection") == 2)
        await client.ask("again")

    model = stage.model("one", "two")
    await stage.run(model, talk, run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("the connection drops right after a call")
async def _drops_after_call(stage: Stage) -> None:
    first = [handle("h1"), call("slow", q="x")] if stage.dialect == "gemini" else [call("slow", q="x")]

    async def talk(client: Client) -> None:
        await client.live.send_text("do it")
        await client.until(lambda event: event.get_function_calls())
        model.play(drop(1011))
        await client.until(is_over)

    model = stage.model(first, "got R")
    await stage.run(model, talk, tools=[slow], run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("the connection drops without a handle")
async def _drops(stage: Stage) -> None:
    async def talk(client: Client) -> None:
        await client.live.send_text("hi")
        await client.until(lambda event: event.text == "one")
        await client.until(lambda event: event.live and event.live.get("connection") == 2)

    model = stage.model(["one", pause(1), drop(1006)])
    await stage.run(model, talk, run_config=RunConfig(response_modalities=["TEXT"]))


@scenario("transfer to a sub-agent")
async def _transfers(stage: Stage) -> None:
    child = stage.model([pause(1), "sub here"], "I have heard it", "sub again", name="child")
    model = stage.model([call("transfer_to_agent", agent_name="sub"), pause(9), "late root"])

    async def talk(client: Client) -> None:
        await client.live.send_text("give me sub")
        await client.until(lambda event: event.get_function_calls())
        await client.live.send_text("sent during the handover")
        await client.until(lambda event: event.text == "I have heard it" and is_over(event))
        await client.ask("and you?")

    sub = LlmAgent(name="sub", model=child)
    config = RunConfig(response_modalities=["TEXT"])
    await stage.run(model, talk, also=child, sub_agents=[sub], run_config=config)
