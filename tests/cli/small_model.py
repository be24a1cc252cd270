"""A model on loopback that answers OK, or with an error status. It speaks OpenAI's wire."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = (
    {"choices": [{"delta": {"content": "OK"}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 2}},
)


class SmallModel:
    """`requests` has the header Authorization and the body of each request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str | None, dict[str, Any]]] = []


@contextmanager
def small_model(status: int = 200) -> Generator[SmallModel]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model.requests.append((self.headers["authorization"], body))
            if status != 200:
                self._send(status, "application/json", json.dumps({"error": {"message": "no."}}))
                return
            events = [f"data: {json.dumps(each)}\n\n" for each in ANSWER]
            self._send(200, "text/event-stream", "".join([*events, "data: [DONE]\n\n"]))

        def do_GET(self) -> None:
            self._send(200, "application/json", '{"data": []}')

        def _send(self, code: int, kind: str, text: str) -> None:
            self.send_response(code)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        model = SmallModel(f"http://127.0.0.1:{server.server_address[1]}/v1")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield model
        finally:
            server.shutdown()
