"""
The examples of live runs: calls in simulated worlds, and a page in a real browser. Its microphone is a file, and its
buttons are pressed by another page.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import wave
from array import array
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from examples import live_echo, live_phone
from minirun import InMemoryRunner, LlmAgent
from minirun.simulation import SeededChoices

from ..simulation.stores import simulate


@pytest.mark.parametrize("seeds", [5, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dialect", ["gemini", "openai"])
def test_a_session_has_what_the_caller_heard(dialect: str, seeds: int) -> None:
    """Whenever the caller interrupts or hangs up, each answer in the log is as long as what was played of it."""
    coverage = Counter[str]()
    for seed in range(seeds):
        outcome = simulate(partial(live_phone.call, dialect=dialect), SeededChoices(seed), storage="memory")
        outcome.check()
        coverage.update(outcome.coverage)
    assert coverage["interruption"] > seeds / 2


# A browser that has not done it after this long hangs, however busy the machine: it takes eight seconds, five of them
# to speak and to listen.
BROWSER_S_MAX = 300
RATE = 48_000  # samples a second in the file
# Without a screen, without a sandbox (CI is root), asking nobody beyond this machine anything; with a microphone that
# needs no permission and may be used, as may the speaker, before a real person has clicked.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)  # fmt: skip

# What a person would do with the page, and what they would hear. It sees the page in a frame of its own window.
PERSON = """
<!doctype html>
<script type="module">
const report = (found) => fetch("/report", { method: "POST", body: JSON.stringify(found) })
addEventListener("error", (event) => report({ failure: event.message }))
addEventListener("unhandledrejection", (event) => report({ failure: String(event.reason?.stack ?? event.reason) }))

const seconds = (count) => new Promise((over) => setTimeout(over, 1000 * count))
async function until(what) { while (!what()) await seconds(0.01) }

const frame = document.createElement("iframe")
frame.allow = "microphone"
frame.src = "/?user=ada"
const loaded = new Promise((over) => { frame.onload = over })
document.body.append(frame)
await loaded
const page = frame.contentWindow
page.addEventListener("error", (event) => report({ failure: event.message }))
page.addEventListener("unhandledrejection", (event) => report({ failure: String(event.reason) }))

// An ear: what goes to the speaker goes here, too.
const connect = page.AudioNode.prototype.connect
let ear
page.AudioNode.prototype.connect = function (to, ...others) {
  if (to instanceof page.AudioDestinationNode && this instanceof page.AudioBufferSourceNode)
    connect.call(this, (ear ??= new page.AnalyserNode(to.context)))
  return connect.call(this, to, ...others)
}
function isLoud() {
  if (!ear) return false
  const wave = new Float32Array(ear.fftSize)
  ear.getFloatTimeDomainData(wave)
  return wave.some((sample) => Math.abs(sample) > 0.01)
}

const find = (selector) => page.document.querySelector(selector)
const log = () => [...page.document.querySelectorAll("#log li")].map((line) => line.textContent)
const press = () => find("#talk").dispatchEvent(new page.PointerEvent("pointerdown"))
const release = () => find("#talk").dispatchEvent(new page.PointerEvent("pointerup"))

find("#start").click()
await until(() => !find("#talk").disabled)
find("#write [name=text]").value = "hello"
find("#write button").click()
await until(() => log().length == 2)

const wasLoud = isLoud()
const speak = async (count) => { press(); await seconds(count); release() }
const exchange = () => log().slice(before, before + 2)
const isOver = () => exchange().length == 2   // the answer is over when it has been played
let before, isHeard, first
do {                                   // a busy machine may look too late: then it is asked again
  before = log().length
  await speak(0.6)
  await until(() => isLoud() || isOver())
  isHeard = isLoud()
  await until(isOver)
  await until(() => !isLoud())
  first = exchange()
} while (!isHeard)

do {
  before = log().length
  await speak(2)
  await until(() => isLoud() || isOver())
  await seconds(0.3)
} while (isOver())
const pressed = performance.now()
press()                                // the other one is speaking
await until(() => !isLoud())
const silent_s = (performance.now() - pressed) / 1000
await until(isOver)
report({ was_loud: wasLoud, silent_s, lines: [...log().slice(0, 2), ...first, ...exchange()] })
</script>
"""


@pytest.fixture
def browser() -> str:
    """The program of a browser; without one the test is skipped, and fails in CI."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        problem = "no Chromium is installed: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(f"{problem} (CI tests it)")
        pytest.skip(problem)
    return found


def record_voice(path: Path) -> None:
    """What the microphone hears, again and again: tones that rise, as a browser may take a steady one for noise."""
    samples = array("h")
    for number in range(RATE):
        time_s = number / RATE
        samples.append(round(12_000 * math.sin(2 * math.pi * (300 + 400 * (time_s % 0.25)) * time_s)))
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
        file.writeframes(samples.tobytes())


@asynccontextmanager
async def visited(app: Starlette, page: str, program: str, folder: Path) -> AsyncGenerator[None, None]:
    """A browser looks at *page* of the application, until the block ends. It keeps its files in *folder*."""
    record_voice(folder / "voice.wav")
    config: Any = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(serve, app, config)
        voice = f"--use-file-for-fake-audio-capture={folder / 'voice.wav'}"
        command = [program, *FLAGS, voice, f"--user-data-dir={folder / 'browser'}", f"{url}{page}"]
        process = await trio.lowlevel.open_process(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # it is many processes
            with trio.CancelScope(shield=True):
                await process.wait()
        nursery.cancel_scope.cancel()


async def test_a_page_converses_by_sound_and_interrupts(browser: str, tmp_path: Path) -> None:
    """
    What is said into a microphone comes back to the ear, what is written to the eye; who interrupts hears nothing more
    at once, and the session has of that answer what was played.
    """
    runner = InMemoryRunner(
        agent=LlmAgent(name="parrot", model=live_echo.parrot()), app_name="web", auto_create_session=True
    )
    tell, told = trio.open_memory_channel[dict[str, Any]](10)

    async def person(request: Request) -> Response:
        return HTMLResponse(PERSON)

    async def report(request: Request) -> Response:
        await tell.send(await request.json())
        return Response()

    app = live_echo.application(runner)
    app.router.routes += [Route("/person", person), Route("/report", report, methods=["POST"])]
    with trio.fail_after(BROWSER_S_MAX):
        async with visited(app, "/person", browser, tmp_path):
            found = await told.receive()
            assert "failure" not in found, found["failure"]
    assert not found["was_loud"]
    assert found["silent_s"] < 1  # a tenth, as a rule; left alone, the answer would go on for nearly two
    written, parroted, said, answered, said_again, cut = found["lines"]
    assert (written, parroted) == ("user: hello", "parrot: hello")
    assert said.startswith("user: chirp")
    assert answered == said.replace("user", "parrot")
    session = await runner.session_service.get_session(app_name="web", user_id="ada", session_id="echo")
    assert session is not None
    answer = next(event for event in session.events if event.interrupted)
    assert cut == f"parrot: {answer.text}"
    assert answer.custom_metadata is not None
    assert said_again == f"user: {answer.text} {answer.custom_metadata['unheard']}"
