"""
A server on 127.0.0.1 that stands for the providers of models: it streams answers as fast as somebody reads them.

    POST /CHUNKS/TOGETHER/v1/chat/completions       as OpenAI does
    POST /CHUNKS/TOGETHER/v1/messages               as Anthropic does

The address says how many chunks an answer has, and how many requests come together: none is answered before all of
them are there. Each chunk is sent by itself, and `together` streams take turns, chunk by chunk.

It is a process of its own, so that what it costs is not what is measured; `provider` starts it. It answers whatever it
is asked. The standard library only: it runs beside each peer.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .protocol import CHUNK, allow_many_files

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: req_1\r\nrequest-id: req_1\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


@contextmanager
def provider() -> Iterator[str]:
    """Start the server; the block has its address, and ends it."""
    program = [sys.executable, "-m", __name__]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None  # noqa: PT018 - both are pipes
        yield server.stdout.readline().strip()
        server.stdin.close()


def chat(chunks: int) -> Iterator[str]:
    """An answer of chat completions, as its events."""
    head = {"id": "chatcmpl-C9mkXWfzZkRvJbLVQ", "object": "chat.completion.chunk", "created": 1_790_000_000,
            "model": "gpt-5-2026-01-01", "service_tier": "default", "system_fingerprint": "fp_44709d6fcb"}  # fmt: skip

    def chunk(delta: dict[str, object], reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return data({**head, "choices": [choice], "usage": None})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for _ in range(chunks):
        yield chunk({"content": CHUNK})
    yield chunk({}, "stop")
    usage = {"prompt_tokens": 40, "completion_tokens": chunks, "total_tokens": 40 + chunks}
    yield data({**head, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def messages(chunks: int) -> Iterator[str]:
    """An answer of messages, as its events."""

    def event(kind: str, **fields: object) -> str:
        return f"event: {kind}\n" + data({"type": kind, **fields})

    usage = {"input_tokens": 40, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message: dict[str, object] = {
        "id": "msg_014p7gG3wDgGV9EUtLvnow3U",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-opus-4-5",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield event("message_start", message=message)
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for _ in range(chunks):
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": CHUNK})
    yield event("content_block_stop", index=0)
    yield event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 9})
    yield event("message_stop")


def data(value: object) -> str:
    """An event's data."""
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


APIS = {"chat/completions": chat, "messages": messages}


class Provider:
    """The server."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[str, int], list[bytes]] = {}
        self._waiting = 0
        self._all_there = asyncio.Event()

    def _chunks_of(self, api: str, chunks: int) -> list[bytes]:
        if (api, chunks) not in self._bodies:
            events = [event.encode() for event in APIS[api](chunks)]
            self._bodies[api, chunks] = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
        return self._bodies[api, chunks]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: requests, one after another, until the client leaves."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                [length] = re.findall(r"(?i)\r\ncontent-length: *(\d+)", head)
                await reader.readexactly(int(length))
                [(chunks, together, api)] = re.findall(r"^POST /(\d+)/(\d+)/v1/([\w/]+)", head)
                await self._together(int(together))
                writer.write(HEAD)
                for chunk in self._chunks_of(api, int(chunks)):
                    writer.write(chunk)
                    await writer.drain()
                    if together != "1":
                        await asyncio.sleep(0)  # another stream's turn
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        writer.close()

    async def _together(self, number: int) -> None:
        self._waiting += 1
        if self._waiting < number:
            await self._all_there.wait()
            return
        self._waiting = 0
        self._all_there.set()
        self._all_there = asyncio.Event()


async def main() -> None:
    """Serve until the standard input ends."""
    allow_many_files()
    server = await asyncio.start_server(Provider().serve, "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
