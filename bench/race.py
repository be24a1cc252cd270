"""Processes of a comparison: the model server, and each contestant with its Python and folder."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

HERE = Path(__file__).parent
PEERS = ("openai-agents", "pydantic-ai", "langgraph", "agno")
PATIENCE = 600.0  # seconds per order
REQUESTS = {"none": 1, "rounds3": 4, "parallel5": 2, "paced": 1, "burst": 1}

Reply = dict[str, Any]


class Lost(Exception):
    """A contestant ended, hung or refused an order."""


@dataclass(slots=True)
class Entrant:
    """A contestant, as seen by the benchmark."""

    name: str
    process: Process
    server: ModelServer

    async def order(self, what: str, **values: Any) -> Reply:
        """Send an order and return the reply with its cost."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **values}).encode() + b"\n")
        await self.process.stdin.drain()
        reply = await self.reply()
        if "failed" in reply:
            raise Lost(f"{self.name}, {what}: {reply['failed']}")
        return reply

    async def counted(self, what: str, runs: int, *, model: str, **values: Any) -> Reply:
        """The same for a number of runs, with the request count of the model server."""
        before = await self.server.requests(model)
        reply = await self.order(what, model=model, **values)
        made = await self.server.requests(model) - before
        if made != runs * REQUESTS[model] and not reply["lost"]:
            raise Lost(f"{self.name}: {runs} runs of {model} made {made} requests")
        return reply

    async def reply(self) -> Reply:
        assert self.process.stdout is not None
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
        except TimeoutError:
            raise Lost(f"{self.name} does not respond") from None
        if not line:
            raise Lost(f"{self.name} exited with {await self.process.wait()}")
        return json.loads(line)


@dataclass(frozen=True, slots=True)
class ModelServer:
    process: Process
    address: str

    async def requests(self, model: str) -> int:
        return (await asyncio.to_thread(self._stats)).get(model, 0)

    def _stats(self) -> dict[str, int]:
        with urlopen(f"{self.address}/stats", timeout=60) as reply:  # noqa: S310 - our own
            return json.load(reply)

    def pin(self, cores: Sequence[int]) -> None:
        os.sched_setaffinity(self.process.pid, cores)


@asynccontextmanager
async def race(names: Sequence[str], peers_python: Path) -> AsyncGenerator[dict[str, Entrant]]:
    """Start all contestants; report and skip those that cannot start."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dodona-bench-")))
        server = await stack.enter_async_context(model_server())
        entrants: dict[str, Entrant] = {}
        for name in names:
            python = peers_python if name in PEERS else Path(sys.executable)
            process = await stack.enter_async_context(
                started(
                    [python, HERE / "contestant.py", name, f"{server.address}/v1", folder / name],
                    vault=folder / name / "vault",
                )
            )
            entrants[name] = Entrant(name, process, server)
        yield await ready(entrants)


async def ready(entrants: dict[str, Entrant]) -> dict[str, Entrant]:
    """Yield the contestants that are ready, starting one after the other."""
    found: dict[str, Entrant] = {}
    for name, entrant in entrants.items():
        try:
            await entrant.reply()
        except Lost as lost:
            note(f"skipped: {lost}")
        else:
            found[name] = entrant
    return found


@asynccontextmanager
async def model_server() -> AsyncGenerator[ModelServer]:
    async with started([sys.executable, HERE / "mock_model.py"]) as process:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield ModelServer(process, f"http://127.0.0.1:{port}")


@asynccontextmanager
async def started(
    command: Sequence[str | Path], *, vault: Path | None = None
) -> AsyncGenerator[Process]:
    """Start a process that is ended with the block, in any state."""
    if vault is not None:
        write_notes(vault)
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=PIPE if vault else DEVNULL,
        stdout=PIPE,
        limit=2**24,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def write_notes(vault: Path) -> None:
    """Write the five notes that the model requests."""
    (vault / "notes").mkdir(parents=True)
    for n in range(1, 6):
        text = f"# Note {n}\n\nWhat note {n} says of the oak.\n"
        (vault / "notes" / f"note-{n}.md").write_text(text, encoding="utf-8")


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
