"""The gateway process that is killed and restarted."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LAUNCHER: Final = Path(__file__).with_name("launcher.py")
PATIENCE: Final = 60.0  # seconds until it listens

CONFIG = """
[agent]
provider = "openai-compatible"
base_url = {base_url}
model = "crash"

[vault]
path = {vault}

[store]
url = {store}

# A summary is a request that no run made; the checks could not distinguish it from a repeated one.
[context]
compress = false

[log]
level = "warning"
"""


class CannotStart(Exception):
    """The gateway ended before it listened, without being killed."""


@dataclass(slots=True)
class Gateway:
    """One folder, one store, and one process after another on them."""

    folder: Path
    world: str
    url: str = ""
    starts: int = 0
    deaths: int = 0
    _process: Process | None = None
    _up: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def store(self) -> Path:
        return self.folder / "dodona.db"

    @property
    def vault(self) -> Path:
        return self.folder / "vault"

    @property
    def log(self) -> Path:
        return self.folder / "gateway.log"

    def prepare(self) -> None:
        self.vault.mkdir(parents=True)
        text = CONFIG.format(
            base_url=json.dumps(f"{self.world}/v1"),
            vault=json.dumps(str(self.vault)),
            store=json.dumps(str(self.store)),
        )
        (self.folder / "config.toml").write_text(text, encoding="utf-8")

    async def start(self, *, die_at: int = 0, when: str = "before") -> bool:
        """Start it. False if it killed itself before it listened, as planned."""
        self.starts += 1
        command = [sys.executable, str(LAUNCHER), str(self.folder / "config.toml"), self.world]
        if die_at:
            command += ["--die-at", str(die_at), "--when", when]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=log,
                env={**os.environ, "DODONA_HOME": str(self.folder / "home")},
            )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        if line:
            self.url = line.decode().strip()
            self._up.set()
            return True
        code = await self._process.wait()
        if not (die_at and code == -9):
            raise CannotStart(f"the gateway exited with {code}: {self.last_words()}")
        self.deaths += 1
        return False

    def last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]

    async def is_up(self) -> None:
        await self._up.wait()

    async def kill(self) -> None:
        """Send SIGKILL, unless it has already killed itself."""
        assert self._process is not None
        self._up.clear()
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self.deaths += 1

    async def died(self, patience: float) -> bool:
        """Wait until it has killed itself; False if it is still alive after that time."""
        assert self._process is not None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), patience)
        return self._process.returncode is not None

    async def stop(self) -> int:
        """Stop it with SIGTERM, and return its exit status."""
        assert self._process is not None
        self._up.clear()
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            return await asyncio.wait_for(self._process.wait(), PATIENCE)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()
