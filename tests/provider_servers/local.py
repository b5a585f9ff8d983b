"""
A server of chat completions in a thread, for programs that run trio themselves: it always says the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from .openai_chat import problem_with_body

__all__ = ["local_server"]


@contextmanager
def local_server(said: str) -> Iterator[str]:
    """Serve; the block has the address, without `/v1`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            problem = problem_with_body(body)
            if self.path != "/v1/chat/completions" or problem is not None:
                self._send(400, "application/json", {"error": {"message": problem or f"no {self.path}"}})
            elif body.get("stream"):
                chunks = [_answer({"delta": {"content": said}}), _answer({"delta": {}, "finish_reason": "stop"})]
                self._send(200, "text/event-stream", *chunks)
            else:
                message = {"role": "assistant", "content": said}
                self._send(200, "application/json", _answer({"message": message, "finish_reason": "stop"}))

        def _send(self, status: int, content_type: str, *values: object) -> None:
            texts = [json.dumps(value) for value in values]
            if content_type == "text/event-stream":
                texts = [f"data: {text}\n\n" for text in (*texts, "[DONE]")]
            data = "".join(texts).encode()
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _answer(choice: dict[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "model": "qwen3", "choices": [{"index": 0, **choice}]}
