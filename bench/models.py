"""CPU time per stream event of the model wires, compared with the openai and anthropic SDKs.

    python bench/models.py [--rounds 7] [--json FILE]

A server in its own process sends the same 2,000 deltas (text, thinking, call arguments) to each
client, one event per chunk, as providers do. Clients alternate over several rounds, so that load on
the machine affects all of them. Measured is the CPU time of this process, from the request to the
last event.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import process_time

import anthropic
import openai

from dodona.core.messages import UserText
from dodona.core.ports.model import Done, ModelRequest
from dodona.models import connect
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor

DELTAS = 2_000
STREAMS = 5  # answers per client and round
TARGET = 5.0  # times less CPU than the SDK
KEY = "not-a-real-key-of-anyone"
MODEL = "bench-model"

Client = Callable[[str], Awaitable[int]]


# -- the server ------------------------------------------------------------------------------


def kinds() -> list[str]:
    """The kind of each delta: thinking, then text, then the arguments of two calls."""
    part = DELTAS // 4
    return ["thinking"] * part + ["text"] * (2 * part) + ["call"] * (DELTAS - 3 * part)


def openai_events() -> list[bytes]:
    def chunk(delta: dict[str, object], **more: object) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        body = {
            "id": "chatcmpl-bench",
            "object": "chat.completion.chunk",
            "created": 1_760_000_000,
            "model": MODEL,
            "service_tier": "default",
            "system_fingerprint": "fp_bench",
            "choices": [choice],
            "usage": None,
        }
        return b"data: " + json.dumps({**body, **more}, separators=(",", ":")).encode() + b"\n\n"

    events = [chunk({"role": "assistant", "content": ""})]
    for n, kind in enumerate(kinds()):
        if kind == "thinking":
            events.append(chunk({"reasoning_content": f" thought {n}"}))
        elif kind == "text":
            events.append(chunk({"content": f" word {n}"}))
        else:
            events.append(chunk({"tool_calls": [call_piece(n)]}))
    ended = [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    usage = {"prompt_tokens": 100, "completion_tokens": DELTAS, "total_tokens": DELTAS + 100}
    events += [chunk({}, choices=ended), chunk({}, choices=[], usage=usage), b"data: [DONE]\n\n"]
    return events


def call_piece(n: int) -> dict[str, object]:
    begun = DELTAS - DELTAS // 4
    index = (n - begun) * 2 // (DELTAS // 4)
    if n in {begun, begun + DELTAS // 8}:
        function = {"name": "search", "arguments": ""}
        return {"index": index, "id": f"call_{index}", "type": "function", "function": function}
    return {"index": index, "function": {"arguments": f'"{n}",'}}


def anthropic_events() -> list[bytes]:
    def event(kind: str, **members: object) -> bytes:
        body = json.dumps({"type": kind, **members}, separators=(",", ":"))
        return f"event: {kind}\ndata: {body}\n\n".encode()

    usage = {"input_tokens": 100, "output_tokens": 1}
    message = {"id": "msg_bench", "type": "message", "role": "assistant", "model": MODEL}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    starts = {
        "thinking": {"type": "thinking", "thinking": "", "signature": ""},
        "text": {"type": "text", "text": ""},
        "call": {"type": "tool_use", "id": "toolu_bench", "name": "search", "input": {}},
    }
    events = [event("message_start", message=message)]
    block, last = -1, ""
    for n, kind in enumerate(kinds()):
        if kind != last:
            if last:
                events.append(event("content_block_stop", index=block))
            block, last = block + 1, kind
            events.append(event("content_block_start", index=block, content_block=starts[kind]))
        events.append(event("content_block_delta", index=block, delta=anthropic_delta(kind, n)))
    events.append(event("content_block_stop", index=block))
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    events.append(event("message_delta", delta=ended, usage={"output_tokens": DELTAS}))
    events.append(event("message_stop"))
    return events


def anthropic_delta(kind: str, n: int) -> dict[str, object]:
    if kind == "thinking":
        return {"type": "thinking_delta", "thinking": f" thought {n}"}
    if kind == "text":
        return {"type": "text_delta", "text": f" word {n}"}
    ends = {DELTAS - DELTAS // 4: '{"q":[', DELTAS - 1: '"end"]}'}
    return {"type": "input_json_delta", "partial_json": ends.get(n, f'"{n}",')}


def response(events: list[bytes]) -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return head + b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in events) + b"0\r\n\r\n"


async def serve() -> None:
    """Print the port, then serve until the parent process ends this one."""
    answers = {True: response(anthropic_events()), False: response(openai_events())}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            size = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            await reader.readexactly(size)
            writer.write(answers[b"/messages" in head.split(b"\r\n")[0]])
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# -- the clients -----------------------------------------------------------------------------


def our_client(http: HttpPool, provider: str) -> Client:
    redactor = Redactor()

    async def stream(base: str) -> int:
        base_url = f"{base}/v1" if provider == "openai" else base
        model = connect(
            provider, MODEL, http=http, redactor=redactor, api_key=KEY, base_url=base_url
        )
        request = ModelRequest((UserText("go"),))
        async with model.stream(request) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.usage.output_tokens  # events received together are merged here
        return 0

    return stream


def openai_client() -> Client:
    clients: dict[str, openai.AsyncOpenAI] = {}

    async def stream(base: str) -> int:
        client = clients.setdefault(
            base, openai.AsyncOpenAI(api_key=KEY, base_url=f"{base}/v1", max_retries=0)
        )
        count = 0
        async with await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "go"}],
            stream=True,
            stream_options={"include_usage": True},
        ) as events:
            async for _ in events:
                count += 1
        return count

    return stream


def anthropic_client() -> Client:
    clients: dict[str, anthropic.AsyncAnthropic] = {}

    async def stream(base: str) -> int:
        client = clients.setdefault(
            base, anthropic.AsyncAnthropic(api_key=KEY, base_url=base, max_retries=0)
        )
        count = 0
        async with await client.messages.create(
            model=MODEL,
            max_tokens=4096,
            messages=[{"role": "user", "content": "go"}],
            stream=True,
        ) as events:
            async for _ in events:
                count += 1
        return count

    return stream


# -- measuring -------------------------------------------------------------------------------


async def measure(base: str, rounds: int) -> list[dict[str, object]]:
    async with HttpPool() as http:
        contenders: dict[tuple[str, str], Client] = {
            ("openai", "dodona"): our_client(http, "openai"),
            ("openai", "sdk"): openai_client(),
            ("anthropic", "dodona"): our_client(http, "anthropic"),
            ("anthropic", "sdk"): anthropic_client(),
        }
        figures: dict[tuple[str, str], list[float]] = {name: [] for name in contenders}
        for client in contenders.values():
            count = await client(base)
            assert count >= DELTAS, count
        for _ in range(rounds):
            for name, client in contenders.items():
                gc.collect()
                begun = process_time()
                for _ in range(STREAMS):
                    await client(base)
                took = process_time() - begun
                figures[name].append(took / STREAMS / DELTAS * 1e6)
    return [row(wire, figures) for wire in ("openai", "anthropic")]


def row(wire: str, figures: dict[tuple[str, str], list[float]]) -> dict[str, object]:
    ours, theirs = figures[wire, "dodona"], figures[wire, "sdk"]
    values = {
        "dodona best": min(ours),
        "dodona median": statistics.median(ours),
        "sdk best": min(theirs),
        "sdk median": statistics.median(theirs),
        "x best": min(theirs) / min(ours),
        "x median": statistics.median(theirs) / statistics.median(ours),
    }
    return {"wire": wire, **{name: round(value, 2) for name, value in values.items()}}


def table(rows: list[dict[str, object]]) -> str:
    lines = [list(rows[0])]
    lines += [
        [cell if isinstance(cell, str) else f"{cell:.2f}" for cell in each.values()]
        for each in rows
    ]
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def main() -> int:
    options = argparse.ArgumentParser(description="CPU per stream event of the model wires.")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        asyncio.run(serve())
        return 0
    print(
        f"CPU µs per event, {DELTAS:,} deltas a stream, {STREAMS} streams a round,"
        f" {given.rounds} interleaved rounds:\n",
        flush=True,
    )
    with subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            base = f"http://127.0.0.1:{int(server.stdout.readline())}"
            rows = asyncio.run(measure(base, given.rounds))
        finally:
            server.terminate()
    print(table(rows))
    checks = {
        f"on the wire of {each['wire']} at most a fifth of the SDK's": (
            float(str(each["x best"])) >= TARGET
        )
        for each in rows
    }
    print()
    for check, met in checks.items():
        print(f"  {'met   ' if met else 'MISSED'}  {check}")
    figures = {"us_per_event": rows, "met": checks}
    print("\n" + json.dumps(figures))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
