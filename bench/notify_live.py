"""Delivery of events from a live run to a client: losses and latency.

    python bench/notify_live.py [--seconds 60] [--json FILE]

`dodona up` runs in its own process, with five rules that each emit an event for every tool call. A
model on loopback calls twenty tools per turn, for as many turns as fill the requested time: at
least a hundred events per second, most of them in bursts at the end of turns. A client reads all of
them from /api/events. The latency of an event is the time from its timestamp until it was read.

No event is lost if each type was received as often as the figures of the run require: for every
tool call one pending event, one success event and five rule events; for every request, the start
and the end of a turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

RULES = 5
CALLS = 20  # per turn, the maximum that a user may allow
TURNS = 50  # also the maximum
PER_SECOND = 100
LATEST_MS = 100.0
PATIENCE = 60.0


@dataclass
class Model:
    """Answers each request on schedule."""

    turns: int
    pace: float
    requests: int = 0
    called: int = 0
    began: float = 0.0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.began = self.began or time.monotonic()
        turn = self.requests
        self.requests += 1
        # On schedule, even if the turn before it was slow.
        await asyncio.sleep(max(0.0, self.began + turn * self.pace - time.monotonic()))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        deltas = [{"content": "Done."}] if turn >= self.turns else self._calls(turn)
        for delta in deltas:
            await response.write(chunk(delta))
        await response.write(chunk({}, finish="stop" if turn >= self.turns else "tool_calls"))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _calls(self, turn: int) -> list[dict[str, Any]]:
        self.called += CALLS
        return [
            {
                "tool_calls": [
                    {
                        "index": place,
                        "id": f"call-{turn}-{place}",
                        "type": "function",
                        "function": {
                            "name": "vault_search",
                            "arguments": json.dumps({"query": f"oak {turn} {place}", "limit": 1}),
                        },
                    }
                ]
            }
            for place in range(CALLS)
        ]


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    told: dict[str, Any] = {"id": "bench", "model": "bench", "choices": [choice]}
    return f"data: {json.dumps(told | ({'usage': usage} if finish else {}))}\n\n".encode()


@dataclass
class Read:
    """The events that a client has read."""

    kinds: Counter[str] = field(default_factory=Counter[str])
    late_ms: list[float] = field(default_factory=list[float])
    by_second: Counter[int] = field(default_factory=Counter[int])
    lost: int = 0
    ids: set[str] = field(default_factory=set[str])

    def add(self, event: dict[str, Any]) -> None:
        now = time.time()
        self.kinds[event["type"]] += 1
        self.late_ms.append((now - event["timestamp"]) * 1000)
        self.by_second[int(event["timestamp"])] += 1
        self.ids.add(event["id"])
        if event["type"] == "events.lost":
            self.lost += event["payload"]["count"]


async def read_all(session: aiohttp.ClientSession, url: str, ready: asyncio.Event) -> Read:
    """Read every event until the session ends."""
    read = Read()
    async with session.get(f"{url}/api/events") as response:
        ready.set()
        async for line in response.content:
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                read.add(event)
                if event["type"] == "session.end":
                    break
    return read


def write_home(folder: Path, model_url: str) -> dict[str, str]:
    """Write a config, a note and the rules; return the environment of the process."""
    (folder / "notes").mkdir()
    (folder / "notes" / "oak.md").write_text("# The oak\n\nThe oak spoke through its leaves.\n")
    rules = folder / ".dodona" / "rules"
    rules.mkdir(parents=True)
    for number in range(RULES):
        (rules / f"tell-{number}.toml").write_text(
            f'[rule]\nid = "tell-{number}"\ntrigger = "on_tool_complete"\n[action]\n'
            f'kind = "emit_event"\ntype = "plugin.user.tell-{number}"\n[action.payload]\n'
            'characters = { cel = "context.result.characters" }\n'
        )
    config = folder / "dodona.toml"
    config.write_text(
        f'[agent]\nprovider = "openai-compatible"\nbase_url = "{model_url}/v1"\nmodel = "bench"\n'
        f'[vault]\npath = "{folder / "notes"}"\n[store]\nurl = "{folder / "store.db"}"\n'
    )
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(folder), "DODONA_CONFIG": str(config)}


def started(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dodona.cli.main", "up", "--port", "0"]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


async def listening(folder: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE
    told = folder / ".dodona" / "gateway.json"
    while time.monotonic() < deadline and process.poll() is None:
        if told.exists():
            return json.loads(told.read_text())["url"].rstrip("/")
        await asyncio.sleep(0.05)
    raise RuntimeError("`dodona up` did not start")


async def asked(session: aiohttp.ClientSession, url: str, seconds: float) -> dict[str, Any]:
    """Return the answer of one run, with the highest limits that a user may set."""
    limits = {
        "max_iterations": TURNS, "token_budget": 200_000, "max_tool_calls_per_turn": CALLS,
        "max_parallel_tools": 10, "timeout_seconds": min(600, int(seconds) + 60),
    }  # fmt: skip
    async with session.patch(f"{url}/api/settings", json=limits) as response:
        response.raise_for_status()
    async with session.post(f"{url}/api/oracle", json={"question": "Search."}) as response:
        response.raise_for_status()
        return await response.json()


async def measured(seconds: float) -> tuple[Model, Read, float]:
    model = Model(TURNS - 1, seconds / (TURNS - 1))
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", model.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            environment = write_home(folder, f"http://{host}:{port}")
            process = started(folder, environment)
            try:
                return model, *await watched(await listening(folder, process), seconds)
            finally:
                process.terminate()
                process.wait(PATIENCE)
        finally:
            await runner.cleanup()


async def watched(url: str, seconds: float) -> tuple[Read, float]:
    timeout = aiohttp.ClientTimeout(total=seconds + 2 * PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        ready = asyncio.Event()
        reading = asyncio.create_task(read_all(session, url, ready))
        await ready.wait()
        began = time.monotonic()
        await asked(session, url, seconds)
        took = time.monotonic() - began
        return await asyncio.wait_for(reading, PATIENCE), took


def expected(model: Model) -> Counter[str]:
    """The expected number of events by type."""
    each = Counter({f"plugin.user.tell-{number}": model.called for number in range(RULES)})
    each["tool.call.pending"] = each["tool.call.success"] = model.called
    each["agent.turn.start"] = each["agent.turn.end"] = model.requests
    return each


def figures(model: Model, read: Read, took: float) -> dict[str, Any]:
    late = sorted(read.late_ms)
    wanted = expected(model)
    missing = {kind: n - read.kinds[kind] for kind, n in wanted.items() if read.kinds[kind] != n}
    came = sum(read.kinds.values())
    return {
        "seconds": round(took, 1),
        "events": came,
        "events_per_second": round(came / took, 1),
        "most_in_a_second": max(read.by_second.values()),
        "missing": missing,
        "dropped": read.lost,
        "twice": came - len(read.ids),
        "late_ms": {
            "p50": round(statistics.median(late), 2),
            "p99": round(late[int(len(late) * 0.99)], 2),
            "most": round(late[-1], 2),
        },
        "load": [round(each, 2) for each in os.getloadavg()],
    }


def table(found: dict[str, Any]) -> str:
    late = found["late_ms"]
    rows = [
        ("seconds", f"{found['seconds']:g}"),
        ("events", f"{found['events']:,}"),
        ("events a second", f"{found['events_per_second']:g}"),
        ("most in one second", f"{found['most_in_a_second']:,}"),
        ("late, p50 ms", f"{late['p50']:.2f}"),
        ("late, p99 ms", f"{late['p99']:.2f}"),
        ("late, at most ms", f"{late['most']:.2f}"),
        ("load of the machine", " ".join(f"{each:g}" for each in found["load"])),
    ]
    widest = max(len(value) for _, value in rows)
    return "\n".join(f"{name:20}  {value:>{widest}}" for name, value in rows)


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    given = options.parse_args()
    found = figures(*asyncio.run(measured(given.seconds)))
    print(table(found))
    lost = bool(found["missing"]) or found["dropped"] > 0 or found["twice"] > 0
    met = {
        f"at least {PER_SECOND} events a second": found["events_per_second"] >= PER_SECOND,
        "none is lost, none comes twice": not lost,
        f"each comes within {LATEST_MS:g} ms": found["late_ms"]["most"] < LATEST_MS,
    }
    print()
    for check, is_met in met.items():
        print(f"  {'met   ' if is_met else 'MISSED'}  {check}")
    print("\n" + json.dumps(found | {"met": met}))
    if given.json:
        given.json.write_text(json.dumps(found | {"met": met}, indent=2) + "\n", encoding="utf-8")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
