"""A model server for benchmarks: OpenAI's chat completions over SSE, rendered in advance.

    python bench/mock_model.py          prints its port, then serves until it is stopped

The model name selects the behaviour:

    none         50 chunks of text
    rounds3      three turns with one call of `vault_read` each, then 50 chunks
    parallel5    one turn with five calls, then 50 chunks
    burst        50 chunks at once, each with the time at which it was sent
    paced        the same, one chunk per millisecond
    stream50-N   N chunks, 50 per second, with their times

The progress of a run is derived from the tool results after the last question, found by searching
the bytes of the request: nothing is parsed. Times are `perf_counter_ns`, which on Linux is the same
clock in every process. `GET /stats` returns the number of requests by model.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from time import perf_counter_ns

CHUNKS = 50
ROUNDS = 3
PARALLEL = 5
PER_SECOND = 50
NOTES = tuple(f"notes/note-{n}.md" for n in range(1, PARALLEL + 1))

STAMP = b"@" * 16  # as many digits as a time has
CALL_ID = b"#" * 10

_MODEL = re.compile(rb'"model":\s*"([a-z0-9-]+)"')
_USER = re.compile(rb'"role":\s*"user"')
_TOOL = re.compile(rb'"role":\s*"tool"')
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nCache-Control: no-cache\r\n\r\n"
)


# -- responses -------------------------------------------------------------------------------


def event(delta: dict[str, object] | None, finish: str | None = None, **more: object) -> bytes:
    """One chunk of the answer, as an HTTP chunk."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    body = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "bench",
        "system_fingerprint": "fp_bench",
        "choices": [] if delta is None else [choice],
        **more,
    }
    return framed(b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n")


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def usage(output: int) -> bytes:
    counted = {"prompt_tokens": 100, "completion_tokens": output, "total_tokens": 100 + output}
    return event(None, usage=counted)


BEGIN = HEAD + event({"role": "assistant", "content": ""})
DONE = framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
END = event({}, "stop") + usage(CHUNKS) + DONE
STAMPED = event({"content": " " + STAMP.decode()})
TEXT = BEGIN + b"".join(event({"content": f" word{n:02}"}) for n in range(CHUNKS)) + END
BURST = BEGIN + STAMPED * CHUNKS + END


def calls(paths: tuple[str, ...]) -> bytes:
    """A turn that calls `vault_read` for each path, with the arguments in two pieces."""
    pieces: list[bytes] = []
    for index, path in enumerate(paths):
        begun = {"name": "vault_read", "arguments": ""}
        first = {"index": index, "id": f"call_{CALL_ID.decode()}{index}", "type": "function"}
        pieces.append(event({"tool_calls": [{**first, "function": begun}]}))
        text = json.dumps({"path": path})
        for piece in (text[:9], text[9:]):
            call = {"index": index, "function": {"arguments": piece}}
            pieces.append(event({"tool_calls": [call]}))
    return BEGIN + b"".join(pieces) + event({}, "tool_calls") + usage(20) + DONE


ROUND = [calls((path,)) for path in NOTES[:ROUNDS]]
AT_ONCE = calls(NOTES)


# -- serving ---------------------------------------------------------------------------------


class Server:
    """State that the connections share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.requests: Counter[str] = Counter()
        self.wheel = Wheel(loop)
        self._calls = 0

    def answer(self, model: str, body: bytes) -> bytes:
        """The complete answer of a model that is not paced."""
        if model == "burst":
            return BURST.replace(STAMP, b"%016d" % perf_counter_ns())
        if model not in ("rounds3", "parallel5"):
            return TEXT
        last = max((found.start() for found in _USER.finditer(body)), default=0)
        results = len(_TOOL.findall(body, last))
        turns = ROUND if model == "rounds3" else [AT_ONCE]
        if results >= len(turns):
            return TEXT
        self._calls += 1
        return turns[results].replace(CALL_ID, b"%010d" % self._calls)

    def stats(self) -> bytes:
        body = json.dumps(self.requests).encode()
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
        return head.format(len(body)).encode() + body


class Connection(asyncio.Protocol):
    """One client, with its requests one after the other."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pieces: list[bytes] = []
        self._size = 0
        self._wanted = 0  # size of the request, once its header is complete
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if not self._wanted:
            self._read_head()
        if self._wanted and self._size >= self._wanted:
            request = b"".join(self._pieces)
            self._pieces, self._size, self._wanted = [], 0, 0
            self._respond(request)

    def _read_head(self) -> None:
        read = b"".join(self._pieces)
        end = read.find(b"\r\n\r\n")
        if end >= 0:
            found = _LENGTH.search(read, 0, end)
            self._wanted = end + 4 + (int(found[1]) if found else 0)
        self._pieces = [read]

    def _respond(self, request: bytes) -> None:
        if self._transport is None:
            return
        if request.startswith(b"GET"):
            self._transport.write(self._server.stats())
            return
        found = _MODEL.search(request)
        model = found[1].decode() if found else "none"
        self._server.requests[model] += 1
        if model == "paced":
            self._transport.write(BEGIN)
            self._server.loop.call_later(0.001, self._pace, CHUNKS)
        elif model.startswith("stream50-"):
            self._transport.write(BEGIN)
            self._server.wheel.add(self, int(model.removeprefix("stream50-")))
        else:
            self._transport.write(self._server.answer(model, request))

    def _pace(self, left: int) -> None:
        if left and self.send_stamped():
            self._server.loop.call_later(0.001, self._pace, left - 1)
        else:
            self.end()

    def send_stamped(self) -> bool:
        """Send a chunk with the time; False if the client has disconnected."""
        if self._transport is None:
            return False
        self._transport.write(STAMPED.replace(STAMP, b"%016d" % perf_counter_ns()))
        return True

    def end(self) -> None:
        if self._transport is not None:
            self._transport.write(END)


class Wheel:
    """Schedules each connection 50 times per second, evenly spread."""

    SLOTS = 1000 // PER_SECOND  # slots of one millisecond

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: list[dict[Connection, int]] = [{} for _ in range(self.SLOTS)]
        self._at = 0
        self._count = 0
        self._next = 0.0

    def add(self, connection: Connection, chunks: int) -> None:
        min(self._slots, key=len)[connection] = chunks
        self._count += 1
        if self._count == 1:
            self._next = self._loop.time() + 0.001
            self._loop.call_at(self._next, self._turn)

    def _turn(self) -> None:
        slot = self._slots[self._at % self.SLOTS]
        for connection, left in list(slot.items()):
            if left and connection.send_stamped():
                slot[connection] = left - 1
            else:
                connection.end()
                del slot[connection]
                self._count -= 1
        self._at += 1
        if self._count:
            self._next += 0.001
            self._loop.call_at(self._next, self._turn)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    shared = Server(loop)
    server = await loop.create_server(lambda: Connection(shared), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
