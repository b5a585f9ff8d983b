"""
What is sent to a provider when agents really run: whatever was said, called, undone and summarised before.
"""

from __future__ import annotations

import json
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import App, InMemoryRunner, LlmAgent, ParallelAgent, SequentialAgent
from minirun._json import dumps
from minirun.apps import EventsCompactionConfig
from minirun.errors import MinirunError
from minirun.models import LlmCapabilities, LlmRequest, LlmResponse
from minirun.models._seals import sealed
from minirun.testing import ScriptedLlm
from minirun.types import Blob, Content, FileData, FunctionCall, Part

from ..examples import examples
from ..helpers import PLACE, run_to_end
from ..models.test_request_bodies import WIRES

MEDIA: dict[str, Any] = {
    "picture": Blob(data=b"\x89", mime_type="image/PNG"),
    "jpg": Blob(data=b"\x89", mime_type="image/jpg"),
    "film": Blob(data=b"\x00", mime_type="video/mp4"),
    "sound": Blob(data=b"\x00", mime_type="audio/wav"),
    "empty picture": Blob(data=b"", mime_type="image/png"),
    "empty text": Blob(data=b"", mime_type="text/plain"),
    "untyped": Blob(data=b"a", mime_type=""),
    "elsewhere": FileData(file_uri="gs://b/a.png", mime_type="image/png"),
}


async def look(thing: str) -> Any:
    """Look at a thing."""
    if thing == "nothing":
        raise ValueError("there is nothing")
    return ["here", MEDIA[thing]] if thing in MEDIA else {"b": 1, "a": thing}


IDS = st.sampled_from([None, "one", "two", "not an id", "x" * 90, "\n"])
THINGS = st.sampled_from(["nothing", "book", *MEDIA])
CALLS = st.one_of(
    st.builds(lambda thing, id: FunctionCall(name="look", args={"thing": thing}, id=id), THINGS, IDS),
    st.builds(lambda id: FunctionCall(name="look", args_text='{"thing": ', id=id), IDS),
    st.builds(
        lambda name, id: FunctionCall(name=name, id=id),
        st.sampled_from(["", "functions.look", "näh", "a b\nc", "l" * 300, "look<|end|>"]),
        IDS,
    ),
    st.builds(
        lambda name: FunctionCall(name="transfer_to_agent", args={"agent_name": name}),
        st.sampled_from(["root", "child", "both", "nobody"]),
    ),
)
SEALS = st.none() | st.sampled_from(
    [
        b"\xff",
        sealed("anthropic", "thinking", "S"),
        sealed("anthropic", "redacted", "S"),
        sealed("openai", "item", dumps({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "S"})),
        sealed("openai", "phase", "commentary"),
        sealed("gemini", "signature", "Uw=="),
    ]
)
THOUGHTS = st.builds(
    lambda text, seal: Part(text=text, thought=True, thought_signature=seal), st.just("hm") | st.just(""), SEALS
)
TEXTS = st.builds(
    lambda text, seal: Part(text=text, thought_signature=seal), st.sampled_from(["hi", " ", "", "\x00"]), SEALS
)
ANSWERS = st.builds(
    lambda parts, reason, error: LlmResponse(
        content=Content(role="model", parts=parts) if parts else None, finish_reason=reason, error_code=error
    ),
    st.lists(
        st.one_of(
            THOUGHTS,
            TEXTS,
            st.builds(lambda call, seal: Part(function_call=call, thought_signature=seal), CALLS, SEALS),
        ),
        max_size=5,
    ),
    st.sampled_from(["STOP", "STOP", "MAX_TOKENS", "OTHER"]),
    st.sampled_from([None, None, None, "SAFETY"]),
)
WORDS = st.one_of(
    st.sampled_from(["go", " ", "\n", "\x00"]).map(lambda text: Part(text=text)),
    st.sampled_from([Part(inline_data=blob) for blob in MEDIA.values() if isinstance(blob, Blob)]),
    st.just(Part(file_data=MEDIA["elsewhere"])),
)
MESSAGES = st.builds(lambda parts: Content(role="user", parts=parts), st.lists(WORDS, min_size=1, max_size=2))
# A message to run, or how many invocations to undo.
STEPS = st.lists(MESSAGES | st.integers(1, 2), min_size=1, max_size=5)


async def requests_of(answers: list[LlmResponse], steps: list[Any], is_summarised: bool) -> list[LlmRequest]:
    """Run a root, its child, and two agents side by side, all of one model, which says *answers* and then "done"."""
    left = list(answers)
    model = ScriptedLlm(
        lambda request: left.pop(0) if left else "done", capabilities=LlmCapabilities(media_in_tool_results=True)
    )
    options: Any = {"model": model, "tools": [look]}
    child = LlmAgent(name="child", description="c", **options)
    sides = [
        LlmAgent(name=name, disallow_transfer_to_parent=True, disallow_transfer_to_peers=True, **options)
        for name in ("left", "right")
    ]
    both = SequentialAgent(
        name="both", sub_agents=[ParallelAgent(name="sides", sub_agents=sides), LlmAgent(name="last", **options)]
    )
    root = LlmAgent(name="root", instruction="Look around.", sub_agents=[child, both], **options)
    compaction = EventsCompactionConfig(compaction_interval=2, overlap_size=1) if is_summarised else None
    runner = InMemoryRunner(app=App("app", root, events_compaction_config=compaction), auto_create_session=True)
    done: list[str] = []
    for step in steps:
        if isinstance(step, int):
            if len(done) >= step:
                await runner.rewind_async(**PLACE, rewind_before_invocation_id=done[-step])
                del done[-step:]
            continue
        try:
            events, _ = await run_to_end(runner, step)
        except MinirunError:
            continue
        done.append(str(events[0].invocation_id))
    return model.requests


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(ANSWERS, max_size=8), STEPS, st.booleans())
def test_bodies_of_real_runs_are_what_the_apis_take(
    answers: list[LlmResponse], steps: list[Any], is_summarised: bool
) -> None:
    """
    Every request of agents that call, hand over, work side by side, fail, are undone and summarised can be sent.

    To each of the four APIs, whoever has sealed what is in it, and whatever the user has sent.
    """
    for request in trio.run(requests_of, answers, steps, is_summarised):
        for wire, problem_with, types in WIRES.values():
            body = json.loads(dumps(wire.outgoing(request, "model", False).body))
            assert problem_with(body) is None
            if types is not None:
                types.validate_python(body)
