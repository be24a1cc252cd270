"""A model on loopback that stops in the middle of a sentence until it may go on."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SlowModel:
    """Says "The oak", waits, says " speaks." It speaks OpenAI's wire."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.requests = 0
        self.url = ""

    @property
    def config(self) -> str:
        return f'[agent]\nprovider = "openai-compatible"\nbase_url = "{self.url}"\nmodel = "slow"\n'


@contextmanager
def slow_model() -> Generator[SlowModel]:
    model = SlowModel()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            model.requests += 1
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                self._say({"content": "The oak"})
                model.may_go_on.wait(timeout=120)
                self._say({"content": " speaks."})
                self._say({}, finish="stop")
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                pass  # whoever asked is gone

        def _say(self, delta: dict[str, Any], finish: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield model
        finally:
            model.may_go_on.set()
            server.shutdown()
